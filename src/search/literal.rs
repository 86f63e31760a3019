//! Literals: tokens that are meant letter by letter. References to items, commit hashes,
//! versions, ticket keys, error codes, paths, identifiers.

use std::collections::BTreeSet;

use crate::content::ItemType;
use crate::store::search::KnownProject;

use super::words::{is_cjk, words};

/// Names an item the way people do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Path of the project, whole or its last parts; for an address, everything between the
    /// host and the item, which ends with the project's path. Absent: any project.
    pub project: Option<String>,
    /// Of an address with a scheme: its host and port, in lower case.
    pub host: Option<String>,
    /// Issue or merge request.
    pub item_type: ItemType,
    /// Number inside the project.
    pub iid: i64,
}

impl Reference {
    /// Which of the projects may be meant. A path that one has now does not mean another that
    /// had it before; the host of an address decides between servers.
    pub fn projects<'a>(&self, known: impl Iterator<Item = &'a KnownProject> + Clone) -> BTreeSet<i64> {
        let elsewhere = |project: &KnownProject| {
            self.host.as_ref().zip(project.host.as_ref()).is_some_and(|(named, its)| named != its)
        };
        let here = known.filter(|project| !elsewhere(project));
        let now: BTreeSet<i64> =
            here.clone().filter(|project| self.may_mean(&project.path)).map(|project| project.id).collect();
        if !now.is_empty() {
            return now;
        }
        here.filter(|project| project.aliases.iter().any(|path| self.may_mean(path)))
            .map(|project| project.id)
            .collect()
    }

    /// Whether a project with this full path may be meant.
    fn may_mean(&self, project_path: &str) -> bool {
        let Some(named) = &self.project else { return true };
        // GitLab's paths are the same in any case.
        let (path, named) = (project_path.to_lowercase(), named.to_lowercase());
        is_tail(&path, &named) || is_tail(&named, &path)
    }
}

/// Whether `tail` is `path` or its last segments.
pub fn is_tail(path: &str, tail: &str) -> bool {
    path.strip_suffix(tail).is_some_and(|front| front.is_empty() || front.ends_with('/'))
}

/// Reads `#12`, `!34`, `project#12`, `group/project!34`, or the address of an item.
pub fn reference(token: &str) -> Option<Reference> {
    if let Some((scheme, rest)) = token.split_once("://") {
        return if matches!(scheme.to_lowercase().as_str(), "http" | "https") { address(rest) } else { None };
    }
    // A browser shows addresses without their scheme.
    if token.contains("/-/") {
        return page(token, None);
    }
    let at = token.find(['#', '!'])?;
    let (project, rest) = token.split_at_checked(at)?;
    let item_type = if rest.starts_with('#') { ItemType::Issue } else { ItemType::MergeRequest };
    let iid = number(rest.get(1..)?)?;
    let project_ok = project.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '-' | '_' | '.'));
    if !project_ok || project.starts_with('/') || project.ends_with('/') {
        return None;
    }
    Some(Reference { project: (!project.is_empty()).then(|| project.to_owned()), host: None, item_type, iid })
}

fn address(after_scheme: &str) -> Option<Reference> {
    let (authority, path) = after_scheme.split_once('/')?;
    let host = authority.rsplit('@').next()?.to_lowercase();
    page(path, Some(host))
}

/// Reads the path of an item's page.
fn page(path: &str, host: Option<String>) -> Option<Reference> {
    let path = path.split(['?', '#']).next()?.trim_end_matches('/');
    for (part, item_type) in [
        ("/issues/", ItemType::Issue),
        ("/work_items/", ItemType::Issue),
        ("/merge_requests/", ItemType::MergeRequest),
    ] {
        if let Some((project, tail)) = path.split_once(part) {
            let iid = number(tail.split('/').next()?)?;
            let project = project.trim_end_matches("/-").to_owned();
            return Some(Reference { project: Some(project), host, item_type, iid });
        }
    }
    None
}

fn number(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Whether a token looks like an abbreviated or whole commit hash: 7 to 64 hexadecimal
/// digits with at least one figure and one letter.
pub fn is_hash(token: &str) -> bool {
    (7..=64).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_hexdigit())
        && token.bytes().any(|byte| byte.is_ascii_digit())
        && token.bytes().any(|byte| byte.is_ascii_alphabetic())
}

/// Whether a number may be the beginning of a commit hash too.
pub fn is_digits_of_hash(token: &str) -> bool {
    (7..=40).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_digit())
}

/// The numbers of a version (`1.2.3`, `v1.2`), without the `v`.
pub fn version(token: &str) -> Option<&str> {
    let numbers = token.strip_prefix(['v', 'V']).unwrap_or(token);
    let parts = numbers.split('.').count();
    let plain =
        numbers.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    (parts >= 2 && plain).then_some(numbers)
}

/// A range of versions (`>=1.2`, `^1.2`, `1.2.x`) is about the version in it.
pub fn without_range(token: &str) -> &str {
    let bare = token.trim_start_matches(['<', '>', '=', '^', '~']);
    let bare = [".x", ".X", ".*"].iter().find_map(|any| bare.strip_suffix(any)).unwrap_or(bare);
    if version(bare).is_some() { bare } else { token }
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

/// Whether a token is meant letter by letter: a hash, a version that is none of a number's
/// usual forms, something written as one, an error code or ticket key, six figures or more, a
/// name in camel case.
pub fn is_pin(token: &str) -> bool {
    if let Some(numbers) = version(token) {
        return numbers.len() < token.len() || numbers.split('.').nth(2).is_some();
    }
    is_hash(token) || is_compound(token) || is_code(token) || is_camel(token)
}

/// Capitals, figures and hyphens with a figure in it, or six figures.
fn is_code(token: &str) -> bool {
    let digits = token.bytes().filter(u8::is_ascii_digit).count();
    let shape = token.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase() || b == b'-');
    shape && token.len() >= 3 && digits > 0 && (digits < token.len() || digits >= 6)
}

/// A name like `getUserById`.
fn is_camel(token: &str) -> bool {
    let is_name = token.chars().all(|c| c.is_alphanumeric()) && token.chars().nth(3).is_some();
    is_name && token.chars().zip(token.chars().skip(1)).any(|(a, b)| a.is_lowercase() && b.is_uppercase())
}

/// How much of what is meant letter by letter a document holds, 0 to 1. A difference of case
/// counts a little less.
pub fn holds(pins: &[String], parts: &[&str]) -> f64 {
    let of_one = |pin: &String| {
        if parts.iter().any(|part| stands_in(part, pin)) {
            return 1.0;
        }
        let lower = pin.to_lowercase();
        if parts.iter().any(|part| stands_in(&part.to_lowercase(), &lower)) { 0.9 } else { 0.0 }
    };
    #[expect(clippy::cast_precision_loss, reason = "a query holds few literals")]
    let all = pins.len().max(1) as f64;
    pins.iter().map(of_one).sum::<f64>() / all
}

/// Whether a text holds a literal, not as a part of a longer word. A hash may be cut short.
fn stands_in(text: &str, pin: &str) -> bool {
    // Scripts without spaces have no words that could be longer.
    let is_word = |c: char| (c.is_alphanumeric() && !is_cjk(c)) || c == '_';
    let is_cut = is_hash(pin) || is_digits_of_hash(pin);
    let (opens, closes) = (pin.starts_with(is_word), pin.ends_with(is_word) && !is_cut);
    text.match_indices(pin).any(|(at, _)| {
        let before = text.get(..at).and_then(|front| front.chars().next_back());
        let after = text.get(at + pin.len()..).and_then(|rest| rest.chars().next());
        !(opens && before.is_some_and(is_word) || closes && after.is_some_and(is_word))
    })
}

/// Whether a token after a dash reads as an option of a command (`-DWITH_SSL`, `--force`,
/// `-v`, `-O2`) or a number (`code -4`), and not as a word to exclude.
pub fn is_option(after_dash: &str) -> bool {
    let mut chars = after_dash.chars();
    let (first, second) = (chars.next(), chars.next());
    first.is_none_or(|c| c.is_numeric() || !c.is_alphanumeric() && c != '"')
        || second.is_none_or(char::is_numeric)
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
    fn the_host_of_an_address_decides_and_old_paths_lead_to_what_they_became() {
        let project = |id, path: &str, host: Option<&str>, aliases: &[&str]| KnownProject {
            id,
            path: path.to_owned(),
            host: host.map(str::to_owned),
            aliases: aliases.iter().map(|path| (*path).to_owned()).collect(),
        };
        let known = [
            project(1, "acme/pub", Some("one.example"), &[]),
            project(2, "acme/pub", Some("two.example:8443"), &[]),
            project(3, "acme/export", None, &[]),
            project(4, "new/home", Some("one.example"), &["old/home", "acme/export"]),
        ];
        let meant =
            |text: &str| reference(text).unwrap().projects(known.iter()).into_iter().collect::<Vec<_>>();
        assert_eq!(meant("https://one.example/acme/pub/-/issues/1"), [1]);
        assert_eq!(meant("https://user@TWO.example:8443/acme/pub/-/issues/1"), [2]);
        assert_eq!(meant("https://three.example/acme/pub/-/issues/1"), [0_i64; 0]);
        assert_eq!(meant("one.example/acme/pub/-/issues/1"), [1, 2]);
        assert_eq!(meant("https://any.example/acme/export/-/issues/1"), [3]);
        assert_eq!(meant("acme/pub#1"), [1, 2]);
        assert_eq!(meant("old/home!3"), [4]);
        assert_eq!(meant("acme/export#1"), [3], "what has the path now comes before what had it");
        assert_eq!(meant("#1"), [1, 2, 3, 4]);
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
        for range in [">=1.2.3", "^1.2.3", "~1.2.3", "=1.2.3", "1.2.3.x", "1.2.3.*", "<1.2.3", "1.2.3"] {
            assert_eq!(without_range(range), "1.2.3", "{range}");
        }
        assert_eq!(
            (without_range("=v1.2"), without_range("=>x"), without_range("a.x")),
            ("v1.2", "=>x", "a.x")
        );
        assert!(is_hash("4C76932B1") && !is_hash("ABCDEFG1"));
        assert!(is_compound("POL-358") && is_compound("src/search/mod.rs:1227") && is_compound("a::b"));
        assert!(!is_compound("state-of-the-art") && !is_compound("word"));
        for pin in
            ["E0382", "FDD-12313", "123456", "getUserById", "src/a.rs", "v1.2", "1.2.3", "a_b", "4c76932b1"]
        {
            assert!(is_pin(pin), "{pin}");
        }
        for no in ["1.2", "API", "12345", "Crash", "state-of-the-art", "iOS", "HTTP"] {
            assert!(!is_pin(no), "{no}");
        }
        assert!(
            is_option("DWITH_SSL")
                && is_option("-force")
                && is_option("v")
                && is_option("4)")
                && is_option("11")
                && is_option("O2")
                && !is_option("draft")
        );
    }

    #[test]
    fn a_literal_is_held_as_a_whole() {
        let held = |pin: &str, text: &str| holds(&[pin.to_owned()], &["", text]);
        assert_eq!(held("E0382", "error[E0382]: use of moved value"), 1.0);
        assert_eq!(held("E038", "error[E0382]"), 0.0);
        assert_eq!(held("POL-35", "POL-358"), 0.0);
        assert_eq!(held("e0382", "E0382"), 0.9);
        assert_eq!(held("4c76932b1", "fixed in 4c76932b1e0f"), 1.0);
        assert_eq!(held("0000000000", "at 0000000000ab"), 1.0);
        assert_eq!(held("::new()", "Vec::new()"), 1.0);
        assert_eq!(held("日本", "東日本語"), 1.0);
        assert_eq!(holds(&["a_b".to_owned(), "c_d".to_owned()], &["a_b"]), 0.5);
    }
}
