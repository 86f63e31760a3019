//! How the server as a whole behaves: version, sub-path, paging, tokens, limits.

use std::collections::BTreeMap;

use super::limits::RateLimit;

/// How offset paging is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    /// `Link` and all `x-…` headers; without totals above [`Settings::max_total`] rows.
    Full,
    /// As above 10,000 rows: no `x-total`, no `x-total-pages`, no `rel="last"`.
    NoTotal,
    /// `Link` alone, as for keyset lists.
    LinkOnly,
    /// No header at all, as behind a proxy that removes what it does not know.
    None,
}

/// What a token, or nobody, may do in a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// No member: public projects only, and of those only what everybody sees.
    Public,
    /// A member who sees neither confidential issues nor internal notes.
    Guest,
    /// Sees everything.
    Reporter,
    /// Sees everything.
    Owner,
}

/// How the server as a whole behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Sub-path of the installation: empty or `/gitlab`.
    pub prefix: String,
    /// Token that is accepted; any, or none at all, when none.
    pub token: Option<String>,
    /// What that token may do, unless a project says otherwise.
    pub access: Access,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// Login of its user: confidential issues of their own are always seen.
    pub username: String,
    /// Day on which it expires.
    pub expires_at: Option<String>,
    /// Further tokens and what they may do.
    pub tokens: BTreeMap<String, Access>,
    /// Set: the token is known but not accepted any more; the text says why.
    pub revoked: Option<String>,
    /// How paging is told.
    pub paging: Paging,
    /// Version of the server. Redirects of renamed projects exist from 16.7, keyset paging of
    /// a project's issues from 18.3.
    pub version: String,
    /// Scheme, host and port that `Link` and `Location` name instead of the real ones.
    pub foreign_authority: Option<String>,
    /// Every request is redirected to `https://`, as an http listener in front does.
    pub to_https: bool,
    /// A proxy decodes `%2F` in paths before GitLab sees them.
    pub decodes_slashes: bool,
    /// Largest page.
    pub max_per_page: usize,
    /// Largest offset.
    pub max_offset: usize,
    /// Rows up to which totals are told.
    pub max_total: usize,
    /// The limit on requests, when there is one.
    pub rate: Option<RateLimit>,
    /// Whether answers carry `RateLimit-…` although no limit is in force.
    pub rate_headers: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            token: Some("test-token".to_owned()),
            access: Access::Owner,
            scopes: vec!["read_api".to_owned()],
            username: "lore-bot".to_owned(),
            expires_at: None,
            tokens: BTreeMap::new(),
            revoked: None,
            paging: Paging::Full,
            version: "17.7.0".to_owned(),
            foreign_authority: None,
            to_https: false,
            decodes_slashes: false,
            max_per_page: 100,
            max_offset: 50_000,
            max_total: 10_000,
            rate: None,
            rate_headers: true,
        }
    }
}

impl Settings {
    /// Whether the server is at least of that version.
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let mut parts = self.version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
    }
}
