//! What the answers to a look at a server say about it: judged without asking anything.

use serde::Deserialize;

use super::address::Address;
use crate::clock::{self, Millis};
use crate::error::ErrorKind;
use url::Url;

/// Differences of clocks above this are worth a word: they blur times in logs and answers.
/// Nothing in lore compares the two clocks.
const SKEW_MS: Millis = 60_000;

/// Days before its end at which a token is to be renewed.
const RENEW_DAYS: i64 = 14;

const DAY_MS: Millis = 86_400_000;

/// How a look at one thing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, but somebody should look.
    Warn,
    /// Does not work.
    Fail,
}

/// What a look at one thing showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it ended.
    pub level: Level,
    /// What is so.
    pub text: String,
    /// What to do about it.
    pub advice: Vec<String>,
    /// Class of the failure.
    pub kind: Option<ErrorKind>,
}

impl Finding {
    /// As it should be.
    pub fn ok(text: impl Into<String>) -> Self {
        Self { level: Level::Ok, text: text.into(), advice: Vec::new(), kind: None }
    }

    /// Works, but somebody should look.
    pub fn warn(text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Warn, text: text.into(), advice: vec![advice.into()], kind: None }
    }

    /// Does not work.
    pub fn fail(kind: ErrorKind, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { level: Level::Fail, text: text.into(), advice: vec![advice.into()], kind: Some(kind) }
    }
}

/// Kinds of tokens, as far as their beginning tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Of a person, a project or a group: all begin alike.
    Access,
    /// Of a CI job.
    Job,
    /// For deployments.
    Deploy,
    /// Of an OAuth application.
    OAuth,
    /// For something else than the API; what it is for.
    Other(&'static str),
    /// Nothing is known: an older server, or a prefix of its own.
    Unknown,
}

impl TokenKind {
    /// Knows a token by its beginning.
    ///
    /// Source: GitLab's "Token prefixes" (security/tokens).
    pub fn of(token: &str) -> Self {
        const KNOWN: [(&str, TokenKind); 12] = [
            ("glpat-", TokenKind::Access),
            ("glcbt-", TokenKind::Job),
            ("gldt-", TokenKind::Deploy),
            ("gloas-", TokenKind::Other("an OAuth application's secret")),
            ("glrt-", TokenKind::Other("a runner's")),
            ("glrtr-", TokenKind::Other("for registering runners")),
            ("glptt-", TokenKind::Other("a pipeline trigger's")),
            ("glft-", TokenKind::Other("a feed's")),
            ("glimt-", TokenKind::Other("for incoming mail")),
            ("glagent-", TokenKind::Other("a Kubernetes agent's")),
            ("glsoat-", TokenKind::Other("for SCIM")),
            ("glffct-", TokenKind::Other("a feature flag client's")),
        ];
        let known = KNOWN.iter().find(|(prefix, _)| token.starts_with(prefix));
        match known {
            Some((_, kind)) => *kind,
            // A job's token is a signed one since GitLab 18.
            None if token.starts_with("eyJ") => Self::Job,
            // OAuth access tokens are 64 hexadecimal digits.
            None if token.len() == 64 && token.chars().all(|c| c.is_ascii_hexdigit()) => Self::OAuth,
            None => Self::Unknown,
        }
    }

    /// Judges whether such a token can work.
    pub fn judge(self) -> Finding {
        const CREATE: &str = "create a personal, project or group access token with the scope read_api (role Reporter or above)";
        match self {
            Self::Access => Finding::ok("an access token (personal, project or group)"),
            Self::Unknown => Finding::ok("a token without a known prefix"),
            Self::OAuth => Finding::warn(
                "looks like an OAuth access token, which lives for two hours and is not accepted as PRIVATE-TOKEN",
                CREATE,
            ),
            Self::Job => Finding::fail(
                ErrorKind::Auth,
                "a CI job's token: GitLab does not let it read issues, merge requests or notes",
                CREATE,
            ),
            Self::Deploy => Finding::fail(
                ErrorKind::Auth,
                "a deploy token: GitLab does not accept it for the API",
                CREATE,
            ),
            Self::Other(what) => {
                Finding::fail(ErrorKind::Auth, format!("a token of another kind ({what})"), CREATE)
            }
        }
    }
}

/// What `/personal_access_tokens/self` tells.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TokenRow {
    /// Name that its owner gave it.
    pub name: Option<String>,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Its last day.
    pub expires_at: Option<String>,
}

/// What `/user` tells.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct UserRow {
    /// Name of the user that the token acts as.
    pub username: Option<String>,
}

/// Whose token it is: project and group tokens act as bots with names of their own.
pub fn owner(user: Option<&UserRow>) -> String {
    let Some(name) = user.and_then(|user| user.username.as_deref()) else { return String::new() };
    let whose = if name.starts_with("project_") && name.contains("_bot") {
        "project access token"
    } else if name.starts_with("group_") && name.contains("_bot") {
        "group access token"
    } else {
        "personal access token"
    };
    format!("{whose} of {name}")
}

/// Judges what a token may do.
pub fn scopes(row: &TokenRow, user: Option<&UserRow>) -> Finding {
    let owner = owner(user);
    let who = if owner.is_empty() { "the token".to_owned() } else { owner };
    let has = |scope: &str| row.scopes.iter().any(|known| known == scope);
    let list = row.scopes.join(", ");
    if has("read_api") || has("api") {
        let text = format!("{who} has {list}");
        return if has("api") && !has("read_api") {
            Finding {
                advice: vec!["read_api is enough: a token that cannot write is safer".to_owned()],
                ..Finding::ok(text)
            }
        } else {
            Finding::ok(text)
        };
    }
    Finding::fail(
        ErrorKind::Auth,
        format!("{who} lacks the scope read_api (has {})", if list.is_empty() { "none" } else { &list }),
        "give the token the scope read_api",
    )
}

/// Judges how long a token is valid still; `now` by the server's clock.
pub fn expiry(row: &TokenRow, now: Millis) -> Finding {
    let Some(day) = row.expires_at.as_deref() else { return Finding::ok("the token does not expire") };
    let Some(at) = clock::parse_time(day) else {
        return Finding::ok("the server tells the token's last day in a form that is not known");
    };
    let days = at.saturating_sub(now).div_euclid(DAY_MS);
    let shown = clock::day(at);
    if days < -1 {
        Finding::fail(ErrorKind::Auth, format!("the token expired on {shown}"), "create another one")
    } else if days < RENEW_DAYS {
        Finding::warn(
            format!("the token expires on {shown}, in {} days", days.max(0)),
            "create another one before that day; every request fails after it",
        )
    } else {
        Finding::ok(format!("the token expires on {shown}, in {days} days"))
    }
}

/// Judges the difference between the server's clock and ours.
pub fn skew(server: Option<Millis>, ours: Millis) -> Finding {
    let Some(server) = server else { return Finding::ok("the server does not tell its clock") };
    // `Date` has whole seconds and is a moment old.
    let ahead = ours.saturating_sub(server);
    let seconds = ahead.abs() / 1000;
    if ahead.abs() <= SKEW_MS {
        return Finding::ok(format!("within {} s of the server's", seconds.max(1)));
    }
    let way = if ahead > 0 { "ahead of" } else { "behind" };
    Finding::warn(
        format!("this machine's clock is {seconds} s {way} the server's"),
        "set the clock (NTP): times in logs, metrics and backoffs are this machine's",
    )
}

/// What `/version` tells.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct VersionRow {
    /// For example `17.4.1-ee`.
    pub version: Option<String>,
}

/// Judges the server's version.
pub fn version(row: &VersionRow) -> Finding {
    let Some(version) = row.version.as_deref() else {
        return Finding::fail(
            ErrorKind::Config,
            "the server answers, but not as GitLab does",
            "check that url of the source is the address of GitLab itself, with its sub-path",
        );
    };
    let shown: String = version.chars().filter(|c| !c.is_control()).take(40).collect();
    let major: Option<u32> = version.split('.').next().and_then(|major| major.parse().ok());
    if major.is_some_and(|major| major < 12) {
        return Finding::warn(
            format!("GitLab {shown}"),
            "lore is made for GitLab 12 and later; older ones lack fields that it reads",
        );
    }
    Finding::ok(format!("GitLab {shown}"))
}

/// Judges a redirect of the very first request.
pub fn redirect(address: &Address, current: &Url, location: &str) -> Finding {
    let Ok(there) = current.join(location) else {
        return Finding::fail(
            ErrorKind::Config,
            "the server redirects to something that is not a URL",
            "check url of the source",
        );
    };
    let shown = crate::secret::redact_url(&there);
    if address.is_plain() && there.scheme() == "https" && there.host_str() == current.host_str() {
        return Finding::fail(
            ErrorKind::Config,
            format!("the server redirects http to https ({shown})"),
            "write https:// in url of the source: the token went over the wire in the clear",
        );
    }
    if there.path().contains("sign_in") || there.path().contains("login") {
        return Finding::fail(
            ErrorKind::Config,
            format!("the server redirects to a login page ({shown})"),
            "a single sign-on stands in front of the API: let /api/v4 pass it, or use an address behind it",
        );
    }
    Finding::fail(
        ErrorKind::Config,
        format!("the server redirects to {shown}"),
        "set url of the source to the server's final address",
    )
}

/// How the look-up of a project by its path was refused with 404.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The project answers under its number: it is there, and has the path.
    pub by_number: bool,
    /// The 404 came as an HTML page, which GitLab's API never sends.
    pub is_html: bool,
}

/// Judges a project that is not found by its path.
pub fn missing(missing: Missing) -> Finding {
    const ADVICE: &str = "let the proxy pass %2F untouched: Apache `AllowEncodedSlashes NoDecode` with `ProxyPass … nocanon`, nginx `proxy_pass` without a path, Traefik `encodedCharacters`";
    match missing {
        Missing { by_number: true, .. } => Finding::fail(
            ErrorKind::Config,
            "found by its number, not by its path: a proxy decodes %2F in paths",
            ADVICE,
        ),
        Missing { is_html: true, .. } => Finding::fail(
            ErrorKind::Config,
            "404 with an HTML page, not GitLab's: likely a proxy that decodes %2F in paths, or another server",
            ADVICE,
        ),
        Missing { .. } => Finding::fail(
            ErrorKind::SourceNotFound,
            "404: it does not exist, or the token's user may not see it",
            "check the path, and that the token's user is a member (Reporter, to see confidential issues)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 1_772_366_400_000; // 2026-03-01T12:00:00Z

    #[test]
    fn api_82_a_token_that_cannot_work_is_known_by_its_beginning() {
        for (token, level) in [
            ("glpat-x", Level::Ok),
            ("glpat-XyZ.01.120abcdef", Level::Ok),
            ("20-old-characters-xx", Level::Ok),
            ("glcbt-64_x", Level::Fail),
            ("eyJhbGciOiJSUzI1NiJ9.e.s", Level::Fail),
            ("gldt-x", Level::Fail),
            ("glrt-x", Level::Fail),
            (&"0a".repeat(32), Level::Warn),
        ] {
            let finding = TokenKind::of(token).judge();
            assert_eq!(finding.level, level, "{token}");
            assert!(!finding.text.contains(token), "nothing of the token is shown");
            assert_eq!(finding.advice.is_empty(), level == Level::Ok);
        }
    }

    #[test]
    fn api_82_scopes_and_whose_token_it_is() {
        let row = |list: &[&str]| TokenRow {
            scopes: list.iter().map(|scope| (*scope).to_owned()).collect(),
            ..TokenRow::default()
        };
        let user = |name: &str| UserRow { username: Some(name.to_owned()) };
        assert_eq!(scopes(&row(&["read_api"]), None).level, Level::Ok);
        assert!(scopes(&row(&["api"]), None).advice[0].contains("safer"));
        let lacking = scopes(&row(&["read_user"]), Some(&user("ann")));
        assert_eq!((lacking.level, lacking.kind), (Level::Fail, Some(ErrorKind::Auth)));
        assert_eq!(lacking.text, "personal access token of ann lacks the scope read_api (has read_user)");
        assert!(owner(Some(&user("project_77_bot_ab12"))).starts_with("project"));
        assert!(owner(Some(&user("group_5_bot"))).starts_with("group"));
    }

    #[test]
    fn api_73_the_last_day_of_a_token_is_seen_coming() {
        let level = |day: Option<&str>| {
            expiry(&TokenRow { expires_at: day.map(str::to_owned), ..TokenRow::default() }, NOW).level
        };
        assert_eq!(level(None), Level::Ok);
        assert_eq!(level(Some("2026-09-01")), Level::Ok);
        assert_eq!(level(Some("2026-03-10")), Level::Warn);
        assert_eq!(level(Some("2026-03-01")), Level::Warn, "its last day");
        assert_eq!(level(Some("2026-02-01")), Level::Fail);
        assert_eq!(level(Some("one day")), Level::Ok);
    }

    #[test]
    fn api_19_clocks_that_differ_are_named() {
        assert_eq!(skew(Some(NOW), NOW + 5_000).level, Level::Ok);
        assert_eq!(skew(None, NOW).level, Level::Ok);
        assert!(skew(Some(NOW), NOW + 600_000).text.contains("600 s ahead of"));
        assert!(skew(Some(NOW), NOW - 600_000).text.contains("600 s behind"));
    }

    #[test]
    fn api_36_versions_are_read() {
        let of = |text: &str| version(&VersionRow { version: Some(text.to_owned()) });
        assert_eq!(of("17.4.1-ee"), Finding::ok("GitLab 17.4.1-ee"));
        assert_eq!(of("11.10.4").level, Level::Warn);
        assert_eq!(of("nightly").level, Level::Ok);
        assert_eq!(version(&VersionRow::default()).kind, Some(ErrorKind::Config));
    }

    #[test]
    fn api_85_redirects_are_told_apart() {
        let address = Address::parse("http://host/gitlab").unwrap();
        let current = address.url(&["version"], &[]);
        let text = |location: &str| redirect(&address, &current, location).text;
        assert!(text("https://host/gitlab/api/v4/version").contains("http to https"));
        assert!(text("http://host/users/sign_in").contains("login page"));
        assert!(text("https://user:S3CR3T@other/?private_token=S3CR3T").ends_with("https://other/"));
    }

    #[test]
    fn bugs_28_a_path_that_a_proxy_mangled_is_recognised() {
        let of = |by_number, is_html| missing(Missing { by_number, is_html });
        assert_eq!(of(true, false).kind, Some(ErrorKind::Config));
        assert!(of(true, false).text.contains("%2F"));
        assert!(of(false, true).text.contains("HTML"));
        assert_eq!(of(false, false).kind, Some(ErrorKind::SourceNotFound));
    }
}
