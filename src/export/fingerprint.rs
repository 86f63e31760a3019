//! Tells whether an export was read before: what the archive cursor holds.

use super::{READER_VERSION, Stamp};
use crate::content::hash::text_hash;

/// What was read, as it is kept in the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    reader: u32,
    address: String,
    stamp: Stamp,
    digest: String,
}

impl Fingerprint {
    /// Describes an export that was read under a web address.
    pub fn new(stamp: Stamp, web_url: Option<&str>, digest: &str) -> Self {
        Self { reader: READER_VERSION, address: address(web_url), stamp, digest: digest.to_owned() }
    }

    /// Whether an export with this stamp needs no reading: same size and time of change, read
    /// by this reader under the same address.
    pub fn is_current(&self, stamp: Stamp, web_url: Option<&str>) -> bool {
        self.stamp == stamp && self.reader == READER_VERSION && self.address == address(web_url)
    }

    /// Whether the same bytes were read, whatever the file's time of change.
    pub fn same_content(&self, other: &Self) -> bool {
        self.reader == other.reader && self.address == other.address && self.digest == other.digest
    }

    /// The text for the cursor.
    pub fn to_text(&self) -> String {
        let Self { reader, address, stamp: Stamp { size, mtime_ns }, digest } = self;
        format!("{reader} {address} {size} {mtime_ns} {digest}")
    }

    /// Reads [`to_text`](Self::to_text); nothing for what another version wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let mut next = || parts.next();
        let reader = next()?.parse().ok()?;
        let address = next()?.to_owned();
        let size = next()?.parse().ok()?;
        let mtime_ns = next()?.parse().ok()?;
        let digest = next()?.to_owned();
        next().is_none().then_some(Self { reader, address, stamp: Stamp { size, mtime_ns }, digest })
    }
}

fn address(web_url: Option<&str>) -> String {
    text_hash(web_url.unwrap_or_default()).chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_survives_the_cursor_and_sees_what_changed() {
        let stamp = Stamp { size: 7, mtime_ns: -5 };
        let mark = Fingerprint::new(stamp, Some("https://a.example/p"), "abc");
        assert_eq!(Fingerprint::parse(&mark.to_text()), Some(mark.clone()));
        assert_eq!(Fingerprint::parse("something older"), None);
        assert!(mark.is_current(stamp, Some("https://a.example/p")));
        assert!(!mark.is_current(stamp, None), "links in documents would be old");
        let touched = Stamp { mtime_ns: 6, ..stamp };
        assert!(!mark.is_current(touched, Some("https://a.example/p")));
        assert!(mark.same_content(&Fingerprint::new(touched, Some("https://a.example/p"), "abc")));
        assert!(!mark.same_content(&Fingerprint::new(touched, Some("https://a.example/p"), "abd")));
    }
}
