//! Addresses: the base URL normalised once, encoded paths, and URLs that a server sent us.
//!
//! The authority (scheme, host, port) is always the configured one. A server behind a proxy
//! writes its own idea of it into `Link` and `Location`; only what follows `/api/v4/` is
//! taken from there, so that neither the sub-path nor the token gets lost.

use url::Url;

use crate::error::{Error, Result};
use crate::secret::redact_url;

/// What every path of the API starts with.
const API: &str = "/api/v4/";

/// Lists whose name is followed by the id of one of their members.
const COLLECTIONS: &[&str] = &["projects", "groups", "issues", "merge_requests"];

/// The root of one server's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Ends with `/api/v4/`.
    root: Url,
}

impl Address {
    /// Reads the `url` of a source: `https://host`, `https://host/gitlab`, with or without a
    /// trailing slash or `/api/v4`.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Config`] when it is not an absolute http(s) address, or
    /// holds a user, a password, a query or a fragment. The message repeats none of them.
    pub fn parse(text: &str) -> Result<Self> {
        let mut root = Url::parse(text.trim()).map_err(|error| {
            // The text itself may hold a password: it is not repeated.
            Error::config(format!("url is not an address ({error})"))
                .hint("write it with its scheme: https://gitlab.example.com or https://host/gitlab")
        })?;
        if !matches!(root.scheme(), "http" | "https") || root.host_str().is_none() {
            return Err(Error::config("url must start with https:// or http:// and name a host"));
        }
        if !root.username().is_empty() || root.password().is_some() {
            return Err(Error::config(format!("url {} holds a user or password", redact_url(&root)))
                .hint("remove it and name the token: token = { env = \"GITLAB_TOKEN\" }"));
        }
        if root.query().is_some() || root.fragment().is_some() {
            return Err(Error::config(format!(
                "url {} must not hold a query or a fragment",
                redact_url(&root)
            )));
        }
        let path = root.path().trim_end_matches('/');
        let path = path.strip_suffix("/api/v4").or_else(|| path.strip_suffix("/api")).unwrap_or(path);
        let path = format!("{}{API}", path.trim_end_matches('/'));
        root.set_path(&path);
        Ok(Self { root })
    }

    /// Host, with its port when it is not the scheme's own.
    pub fn authority(&self) -> String {
        let host = self.root.host_str().unwrap_or_default();
        self.root.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Path of the installation below its host: empty, or `/gitlab`.
    pub fn sub_path(&self) -> &str {
        self.root.path().strip_suffix(API).unwrap_or_default()
    }

    /// Whether the host is this machine itself, which no proxy can reach for us.
    pub fn is_loopback(&self) -> bool {
        match self.root.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        }
    }

    /// Whether requests go without TLS.
    pub fn is_plain(&self) -> bool {
        self.root.scheme() == "http"
    }

    /// Makes the URL of `segments` below the API's root; each segment is encoded as a whole,
    /// slashes and dots included.
    pub fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.root.clone();
        let path: Vec<String> = segments.iter().map(|segment| encode_segment(segment)).collect();
        url.set_path(&format!("{}{}", self.root.path(), path.join("/")));
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// The route of a URL of the API: its path with a placeholder for each id, so that spans
    /// of one kind of request can be grouped.
    pub fn route(&self, url: &Url) -> String {
        let path = url.path();
        let mut route = String::new();
        let mut is_id = false;
        for segment in path.strip_prefix(self.root.path()).unwrap_or(path).split('/') {
            route.push('/');
            if is_id {
                let is_item = route.ends_with("issues/") || route.ends_with("merge_requests/");
                route.push_str(if is_item { "{iid}" } else { "{id}" });
            } else {
                route.push_str(segment);
            }
            is_id = !is_id && COLLECTIONS.contains(&segment);
        }
        route
    }

    /// Returns what a server's URL means at our own authority and sub-path, or nothing when
    /// it is not a URL of the API.
    pub fn own(&self, current: &Url, foreign: &str) -> Option<Url> {
        let foreign = current.join(foreign).ok()?;
        let (_, rest) = foreign.path().split_once(API)?;
        let mut url = self.root.clone();
        url.set_path(&format!("{}{rest}", self.root.path()));
        url.set_query(foreign.query());
        Some(url)
    }

    /// Returns where a redirect leads, at our own authority.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Config`] when it leads to another host, out of the API, or
    /// back to where it came from.
    pub fn redirect(&self, current: &Url, location: &str) -> Result<Url> {
        let there = current.join(location).map_err(|_| {
            Error::config(format!("GET {} redirects to something that is not a URL", redact_url(current)))
        })?;
        let shown = redact_url(&there);
        if there.host_str() != self.root.host_str() {
            return Err(Error::config(format!(
                "GET {} redirects to another host, {shown}; the token is not sent there",
                redact_url(current)
            ))
            .hint("set url of the source to the server's final address"));
        }
        let Some(url) = self.own(current, location) else {
            return Err(Error::config(format!(
                "GET {} redirects to {shown}, which is not the API",
                redact_url(current)
            ))
            .hint("check that url of the source is the server's address with its sub-path, and the token"));
        };
        if url == *current {
            return Err(Error::config(format!("GET {} redirects to {shown}", redact_url(current)))
                .hint("set url of the source to that scheme, host and port"));
        }
        Ok(url)
    }
}

/// Encodes everything but letters, digits, `-`, `_` and `~`. Dots too: GitLab's redirect of a
/// moved project is wrong when its path holds a bare dot.
fn encode_segment(segment: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_route_holds_no_id_whatever_it_looks_like() {
        let address = Address::parse("https://host/gitlab").unwrap();
        for (segments, route) in [
            (&["projects"][..], "/projects"),
            (&["projects", "group/sub/project"], "/projects/{id}"),
            (&["projects", "17", "issues"], "/projects/{id}/issues"),
            (
                &["projects", "a/issues", "issues", "5", "discussions"],
                "/projects/{id}/issues/{iid}/discussions",
            ),
            (&["projects", "issues", "merge_requests", "1"], "/projects/{id}/merge_requests/{iid}"),
            (&["groups", "g/h", "projects"], "/groups/{id}/projects"),
            (&["personal_access_tokens", "self"], "/personal_access_tokens/self"),
        ] {
            assert_eq!(address.route(&address.url(segments, &[])), route);
        }
    }

    fn projects_url(base: &str) -> String {
        Address::parse(base).unwrap().url(&["projects"], &[]).to_string()
    }

    #[test]
    fn bugs_32_33_a_sub_path_is_kept_and_a_suffix_is_not_doubled() {
        for (base, want) in [
            ("https://host", "https://host/api/v4/projects"),
            ("https://host/", "https://host/api/v4/projects"),
            ("https://host:8443/gitlab", "https://host:8443/gitlab/api/v4/projects"),
            ("https://host/gitlab/", "https://host/gitlab/api/v4/projects"),
            ("https://host/api", "https://host/api/v4/projects"),
            ("https://host/api/v4", "https://host/api/v4/projects"),
            ("http://host/a/b/api/v4/", "http://host/a/b/api/v4/projects"),
        ] {
            assert_eq!(projects_url(base), want);
        }
    }

    #[test]
    fn bugs_31_34_paths_of_any_depth_are_encoded_whole() {
        let address = Address::parse("https://host/gitlab").unwrap();
        let url =
            address.url(&["projects", "group/sub1/sub.2/prüfung", "issues"], &[("updated_after", "a+b:c")]);
        assert_eq!(
            url.as_str(),
            "https://host/gitlab/api/v4/projects/group%2Fsub1%2Fsub%2E2%2Fpr%C3%BCfung/issues?updated_after=a%2Bb%3Ac"
        );
    }

    #[test]
    fn a6_11_userinfo_and_queries_are_refused_without_repeating_them() {
        for base in [
            "https://user:S3CR3T@host/",
            "https://S3CR3T@host/",
            "https://host/?private_token=S3CR3T",
            "ftp://S3CR3T/",
            "S3CR3T:S3CR3T",
        ] {
            let error = Address::parse(base).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{base}");
            assert!(!format!("{error:?}").contains("S3CR3T"), "{error:?}");
        }
    }

    #[test]
    fn bugs_11_a_foreign_authority_is_replaced_by_our_own() {
        let address = Address::parse("https://proxy:12345/gitlab").unwrap();
        let current = address.url(&["projects", "5", "issues"], &[]);
        for foreign in [
            "http://internal/api/v4/projects/5/issues?page=2&id=g%2Fp",
            "https://proxy/gitlab/api/v4/projects/5/issues?page=2&id=g%2Fp",
            "/gitlab/api/v4/projects/5/issues?page=2&id=g%2Fp",
        ] {
            assert_eq!(
                address.own(&current, foreign).unwrap().as_str(),
                "https://proxy:12345/gitlab/api/v4/projects/5/issues?page=2&id=g%2Fp"
            );
        }
        assert_eq!(address.own(&current, "https://proxy:12345/users/sign_in"), None);
    }

    #[test]
    fn bugs_35_redirects_are_followed_to_the_same_host_only() {
        let address = Address::parse("https://host").unwrap();
        let current = address.url(&["projects", "g/old"], &[]);
        let next = address.redirect(&current, "http://host/api/v4/projects/81").unwrap();
        assert_eq!(next.as_str(), "https://host/api/v4/projects/81");
        for bad in [
            "https://evil/api/v4/projects/81",
            "https://host/users/sign_in",
            "http://host/api/v4/projects/g%2Fold",
        ] {
            assert_eq!(address.redirect(&current, bad).unwrap_err().kind(), ErrorKind::Config, "{bad}");
        }
    }
}
