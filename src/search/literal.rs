//! Literals: tokens that are meant letter by letter. References to items, commit hashes,
//! versions, ticket keys, error codes, paths, identifiers.

use crate::content::ItemType;

use super::words::words;

/// Names an item the way people do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Path of the project, whole or its last parts; for an address, everything between the
    /// host and the item, which ends with the project's path. Absent: any project.
    pub project: Option<String>,
    /// Issue or merge request.
    pub item_type: ItemType,
    /// Number inside the project.
    pub iid: i64,
}

impl Reference {
    /// Whether a project with this full path may be meant.
    pub fn may_mean(&self, project_path: &str) -> bool {
        let Some(named) = &self.project else { return true };
        is_tail(project_path, named) || is_tail(named, project_path)
    }
}

/// Whether `tail` is `path` or its last segments.
pub fn is_tail(path: &str, tail: &str) -> bool {
    path.strip_suffix(tail).is_some_and(|front| front.is_empty() || front.ends_with('/'))
}

/// Reads `#12`, `!34`, `project#12`, `group/project!34`, or the address of an item.
pub fn reference(token: &str) -> Option<Reference> {
    if token.starts_with("https://") || token.starts_with("http://") {
        return address(token);
    }
    let at = token.find(['#', '!'])?;
    let (project, rest) = token.split_at_checked(at)?;
    let item_type = if rest.starts_with('#') { ItemType::Issue } else { ItemType::MergeRequest };
    let iid = number(rest.get(1..)?)?;
    let project_ok = project.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'));
    if !project_ok || project.starts_with('/') || project.ends_with('/') {
        return None;
    }
    Some(Reference { project: (!project.is_empty()).then(|| project.to_owned()), item_type, iid })
}

fn address(url: &str) -> Option<Reference> {
    let (_, rest) = url.split_once("://")?;
    let (_, path) = rest.split_once('/')?;
    let path = path.split(['?', '#']).next()?.trim_end_matches('/');
    for (part, item_type) in [
        ("/issues/", ItemType::Issue),
        ("/work_items/", ItemType::Issue),
        ("/merge_requests/", ItemType::MergeRequest),
    ] {
        if let Some((project, tail)) = path.split_once(part) {
            let iid = number(tail.split('/').next()?)?;
            let project = project.trim_end_matches("/-").to_owned();
            return Some(Reference { project: Some(project), item_type, iid });
        }
    }
    None
}

fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Whether a token looks like an abbreviated or whole commit hash: 7 to 64 hexadecimal
/// digits in lower case, with at least one figure and one letter.
pub fn is_hash(token: &str) -> bool {
    (7..=64).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        && token.bytes().any(|byte| byte.is_ascii_digit())
        && token.bytes().any(|byte| byte.is_ascii_lowercase())
}

/// The numbers of a version (`1.2.3`, `v1.2`), without the `v`.
pub fn version(token: &str) -> Option<&str> {
    let numbers = token.strip_prefix(['v', 'V']).unwrap_or(token);
    let parts = numbers.split('.').count();
    let plain =
        numbers.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    (parts >= 2 && plain).then_some(numbers)
}

/// Whether a token of several words is meant as one: it holds a figure, or a mark that joins
/// the parts of identifiers, paths and addresses. Hyphenated words of a language do not count.
pub fn is_compound(token: &str) -> bool {
    words(token).nth(1).is_some()
        && (token.contains(|c: char| c.is_ascii_digit())
            || token.contains(['_', '/', '.', '@', '=', '[', '(', '\\', '$'])
            || token.contains("::")
            || token.contains("->")
            || token.starts_with("--"))
}

/// Whether a token after a dash reads as an option of a command (`-DWITH_SSL`, `--force`,
/// `-v`) and not as a word to exclude.
pub fn is_option(after_dash: &str) -> bool {
    let mut chars = after_dash.chars();
    let (first, second) = (chars.next(), chars.next());
    first.is_none_or(|c| !c.is_alphanumeric() && c != '"')
        || second.is_none()
        || after_dash.contains(['=', '_'])
        || (first.is_some_and(char::is_uppercase) && second.is_some_and(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(token: &str) -> Option<(Option<String>, ItemType, i64)> {
        reference(token).map(|r| (r.project, r.item_type, r.iid))
    }

    #[test]
    fn references_are_read_in_every_form() {
        let project = |name: &str| Some(name.to_owned());
        assert_eq!(parsed("#12"), Some((None, ItemType::Issue, 12)));
        assert_eq!(parsed("!34"), Some((None, ItemType::MergeRequest, 34)));
        assert_eq!(parsed("a/b-c.d#5"), Some((project("a/b-c.d"), ItemType::Issue, 5)));
        assert_eq!(
            parsed("https://host/gitlab/a/b/-/merge_requests/7/diffs#note_9"),
            Some((project("gitlab/a/b"), ItemType::MergeRequest, 7))
        );
        assert_eq!(parsed("https://host/a/b/issues/8"), Some((project("a/b"), ItemType::Issue, 8)));
        for no in
            ["#", "#x", "C#", "a#b", "##1", "#1a", "#99999999999999999999", "/#1", "https://host", "#１"]
        {
            assert_eq!(parsed(no), None, "{no}");
        }
    }

    #[test]
    fn a_reference_means_projects_by_their_last_parts() {
        let named = |token: &str| reference(token).unwrap();
        assert!(named("b#1").may_mean("a/b"));
        assert!(!named("b#1").may_mean("a/bb"));
        assert!(!named("xb#1").may_mean("a/b"));
        assert!(named("https://host/sub/a/b/-/issues/1").may_mean("a/b"));
        assert!(named("#1").may_mean("anything"));
    }

    #[test]
    fn literals_are_told_from_words() {
        assert!(is_hash("4c76932b1") && is_hash("deadbeef12") && !is_hash("deadbeef") && !is_hash("1234567"));
        assert_eq!(version("v1.2.3"), Some("1.2.3"));
        assert_eq!(version("20.04"), Some("20.04"));
        assert_eq!(version("1."), None);
        assert!(is_compound("POL-358") && is_compound("src/search/mod.rs:1227") && is_compound("a::b"));
        assert!(!is_compound("state-of-the-art") && !is_compound("word"));
        assert!(is_option("DWITH_SSL") && is_option("-force") && is_option("v") && !is_option("draft"));
    }
}
