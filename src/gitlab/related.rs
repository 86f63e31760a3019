//! Lists of related items: which there are, and how their rows are read.

use serde::Deserialize;
use serde_json::value::RawValue;
use url::Url;

use super::address::Address;
use crate::content::refs::{RefKind, Reference};
use crate::content::{ItemRef, ItemType};

/// A list of related items that GitLab has for every item of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// `…/issues/:iid/links`
    Links,
    /// `…/issues/:iid/closed_by`
    ClosedBy,
    /// `…/issues/:iid/related_merge_requests`
    Related,
    /// `…/merge_requests/:iid/closes_issues`
    Closes,
}

impl Stream {
    /// The lists that there are for a kind of item.
    pub const fn of(item_type: ItemType) -> &'static [Self] {
        match item_type {
            ItemType::Issue => &[Self::Links, Self::ClosedBy, Self::Related],
            ItemType::MergeRequest => &[Self::Closes],
        }
    }

    /// Last part of its path, and its name where it fails.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::ClosedBy => "closed_by",
            Self::Related => "related_merge_requests",
            Self::Closes => "closes_issues",
        }
    }

    /// The kinds of relations that it tells.
    pub const fn kinds(self) -> &'static [RefKind] {
        match self {
            Self::Links => &[RefKind::RelatesTo, RefKind::Blocks, RefKind::IsBlockedBy],
            Self::ClosedBy => &[RefKind::ClosedBy],
            Self::Related => &[RefKind::Related],
            Self::Closes => &[RefKind::Closes],
        }
    }

    const fn target(self) -> ItemType {
        match self {
            Self::Links | Self::Closes => ItemType::Issue,
            Self::ClosedBy | Self::Related => ItemType::MergeRequest,
        }
    }
}

#[derive(Deserialize)]
struct Row {
    iid: Option<i64>,
    link_type: Option<String>,
    references: Option<References>,
    web_url: Option<String>,
}

#[derive(Deserialize)]
struct References {
    full: Option<String>,
}

/// Reads a row. Nothing for one that names no item of GitLab's: issues of external trackers
/// come with a title and an id alone, and links of unknown types may mean anything.
pub fn link(stream: Stream, raw: &RawValue, address: &Address) -> Option<Reference> {
    let row: Row = serde_json::from_str(raw.get()).ok()?;
    let item_type = stream.target();
    let iid = row.iid.filter(|iid| *iid > 0)?;
    let kind = match (stream, row.link_type.as_deref()) {
        (Stream::Links, None | Some("relates_to")) => RefKind::RelatesTo,
        (Stream::Links, Some("blocks")) => RefKind::Blocks,
        (Stream::Links, Some("is_blocked_by")) => RefKind::IsBlockedBy,
        (Stream::Links, Some(_)) => return None,
        (Stream::ClosedBy, _) => RefKind::ClosedBy,
        (Stream::Related, _) => RefKind::Related,
        (Stream::Closes, _) => RefKind::Closes,
    };
    let told = row.references.and_then(|references| references.full);
    let project_path = told
        .and_then(|full| full.strip_suffix(&format!("{}{iid}", item_type.sigil())).map(str::to_owned))
        .or_else(|| project_of(&row.web_url?, address))
        .filter(|path| path.contains('/'))?;
    Some(Reference { kind, target: ItemRef { project_path, item_type, iid } })
}

/// The project's path in the address of an item's page, for servers before 12.7, which tell
/// no references.
fn project_of(web_url: &str, address: &Address) -> Option<String> {
    let url = Url::parse(web_url).ok()?;
    let path = url.path().strip_prefix(address.sub_path()).unwrap_or(url.path());
    let end = ["/-/", "/issues/", "/merge_requests/"].iter().filter_map(|mark| path.find(mark)).min()?;
    Some(path.get(..end)?.trim_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(stream: Stream, row: &serde_json::Value) -> Option<String> {
        let raw = RawValue::from_string(row.to_string()).unwrap();
        let address = Address::parse("https://host/gitlab").unwrap();
        link(stream, &raw, &address).map(|link| format!("{} {}", link.kind.as_str(), link.target))
    }

    #[test]
    fn api_69_links_have_a_type_and_reach_other_projects() {
        let row = |link_type: &str| {
            serde_json::json!({"iid": 7, "link_type": link_type, "issue_link_id": 1,
                               "references": {"short": "#7", "relative": "b#7", "full": "a/b#7"}})
        };
        assert_eq!(read(Stream::Links, &row("relates_to")).unwrap(), "relates_to a/b#7");
        assert_eq!(read(Stream::Links, &row("blocks")).unwrap(), "blocks a/b#7");
        assert_eq!(read(Stream::Links, &row("is_blocked_by")).unwrap(), "is_blocked_by a/b#7");
        assert_eq!(read(Stream::Links, &row("causes")), None, "api_65");
    }

    #[test]
    fn api_70_issues_of_external_trackers_are_no_items() {
        let external = serde_json::json!({"title": "Title of the JIRA issue", "id": "JIRA-1"});
        assert_eq!(read(Stream::Closes, &external), None);
        let internal = serde_json::json!({"iid": 3, "references": {"full": "g/sub/p#3"}});
        assert_eq!(read(Stream::Closes, &internal).unwrap(), "closes g/sub/p#3");
        let request = serde_json::json!({"iid": 4, "references": {"full": "g/p!4"}});
        assert_eq!(read(Stream::ClosedBy, &request).unwrap(), "closed_by g/p!4");
        assert_eq!(read(Stream::Related, &request).unwrap(), "related g/p!4");
    }

    #[test]
    fn api_59_60_without_references_the_page_tells_the_project() {
        for (page, want) in [
            ("https://host/gitlab/g/p/-/issues/3", Some("relates_to g/p#3")),
            ("https://host/gitlab/g/p/issues/3", Some("relates_to g/p#3")),
            ("https://host/gitlab/g/p/-/work_items/3", Some("relates_to g/p#3")),
            ("https://host/gitlab", None),
            ("nonsense", None),
        ] {
            let row = serde_json::json!({"iid": 3, "web_url": page});
            assert_eq!(read(Stream::Links, &row).as_deref(), want, "{page}");
        }
    }
}
