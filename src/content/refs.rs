//! References from one text to other items: `#12`, `!34`, `group/project#12`, addresses.
//!
//! Rules where GitLab's are not known or not wanted:
//! - Nothing in code counts ([`super::prose`]); quoted text (`> #4`) does.
//! - `project#12` means a project of the same namespace. A single letter in front (`C#7`)
//!   is a name of something else.
//! - Numbers start at 1 and have no leading zero; `\#12` is escaped.
//! - An address counts when it lies on the instance of the project; when that is not known,
//!   any instance will do.
//! - `closes` follows GitLab's default closing pattern and counts in titles and descriptions
//!   alone. Other wordings of the same text are `mentions`.
//! - Of system notes only the wording that names a relation of *this* item is used. "mentioned
//!   in #5" is not: the text of the other item says so itself, in the right direction.

use std::collections::BTreeSet;
use std::ops::Range;

use super::entities::{ItemRef, ItemType};
use super::prose::without_code;

/// How one item refers to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RefKind {
    /// Names it.
    Mentions,
    /// Will close, or closed it.
    Closes,
    /// Was linked to it.
    Related,
    /// Was moved there.
    Moved,
    /// Is a duplicate of it.
    Duplicates,
    /// Was linked to it, says GitLab's own record, as the ones below.
    RelatesTo,
    /// Blocks it.
    Blocks,
    /// Waits for it.
    IsBlockedBy,
    /// Is closed by it: an issue by a merge request.
    ClosedBy,
}

impl RefKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Mentions,
        Self::Closes,
        Self::Related,
        Self::Moved,
        Self::Duplicates,
        Self::RelatesTo,
        Self::Blocks,
        Self::IsBlockedBy,
        Self::ClosedBy,
    ];

    /// Name in the database and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mentions => "mentions",
            Self::Closes => "closes",
            Self::Related => "related",
            Self::Moved => "moved",
            Self::Duplicates => "duplicates",
            Self::RelatesTo => "relates_to",
            Self::Blocks => "blocks",
            Self::IsBlockedBy => "is_blocked_by",
            Self::ClosedBy => "closed_by",
        }
    }
}

/// A reference to another item.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// How.
    pub kind: RefKind,
    /// To what. It need not be stored.
    pub target: ItemRef,
}

/// Where a text stands: what short forms in it mean.
#[derive(Debug, Clone, Copy)]
pub struct RefContext<'a> {
    /// Full path of the project.
    pub project_path: &'a str,
    /// Address of the project's page, when it is known.
    pub project_url: Option<&'a str>,
    /// The item that the text belongs to; a reference to itself is none.
    pub own: (ItemType, i64),
}

/// Which wordings count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefText {
    /// A title or description: the closing pattern counts.
    Description,
    /// A comment: everything is a mention.
    Comment,
    /// A note that GitLab wrote: only the wordings that relate this item to another.
    System,
}

/// Adds the references of `text` to `found`.
pub fn collect_refs(text: &str, role: RefText, context: RefContext<'_>, found: &mut BTreeSet<Reference>) {
    if !text.bytes().any(|byte| matches!(byte, b'#' | b'!' | b':')) {
        return;
    }
    let (kind, closing) = match role {
        RefText::Description => (RefKind::Mentions, true),
        RefText::Comment => (RefKind::Mentions, false),
        RefText::System => match system_kind(text) {
            Some(kind) => (kind, false),
            None => return,
        },
    };
    let masked = if text.contains(['`', '~', '<', '\t']) || text.contains("    ") {
        std::borrow::Cow::Owned(without_code(text))
    } else {
        std::borrow::Cow::Borrowed(text)
    };
    // End of the last reference of a closing list ("fixes #1, #2 and #3").
    let mut closing_end = None;
    let mut previous_end = 0;
    for Found { range, target } in (Scanner { text: &masked, at: 0, context }) {
        let mut kind = kind;
        if closing && target.item_type == ItemType::Issue {
            let gap = masked.get(previous_end..range.start).unwrap_or("");
            let goes_on = closing_end == Some(previous_end) && is_list_gap(gap);
            if goes_on || ends_with_closing_word(gap) {
                kind = RefKind::Closes;
                closing_end = Some(range.end);
            }
        }
        previous_end = range.end;
        let is_own =
            (target.item_type, target.iid) == context.own && target.project_path == context.project_path;
        if !is_own {
            found.insert(Reference { kind, target });
        }
    }
}

/// What a system note says about its item and the one it names.
fn system_kind(body: &str) -> Option<RefKind> {
    let start: String = body.trim_start().chars().take(200).collect::<String>().to_lowercase();
    let marked = start.starts_with("marked ");
    if start.starts_with("moved to ") {
        Some(RefKind::Moved)
    } else if marked && start.contains("as a duplicate of") && !start.contains("as a duplicate of this") {
        Some(RefKind::Duplicates)
    } else if start.starts_with("moved from ")
        || start.starts_with("closed via merge request ")
        || (marked
            && ["as a duplicate of", "as related to", "as blocking", "as blocked by", "is blocked by"]
                .iter()
                .any(|wording| start.contains(wording)))
    {
        Some(RefKind::Related)
    } else {
        None
    }
}

/// Whether the text between two references continues a closing list: `, `, ` and `, …
fn is_list_gap(gap: &str) -> bool {
    let gap = strip_issue_word(gap);
    let rest = gap.trim_start_matches(' ');
    let rest = rest.strip_prefix(',').unwrap_or(gap);
    match rest.trim_matches(' ') {
        "" => true,
        "and" => rest.starts_with(' ') && rest.ends_with(' '),
        _ => false,
    }
}

/// Removes a trailing `issue ` or `issues `.
fn strip_issue_word(gap: &str) -> &str {
    let trimmed = gap.trim_end_matches(' ');
    if trimmed.len() == gap.len() {
        return gap;
    }
    trimmed.strip_suffix("issues").or_else(|| trimmed.strip_suffix("issue")).unwrap_or(gap)
}

/// Whether a text ends with a word of GitLab's default closing pattern and the space that
/// separates it from the reference.
fn ends_with_closing_word(before: &str) -> bool {
    let before = strip_issue_word(before);
    let trimmed = before.trim_end_matches(' ');
    if trimmed.len() == before.len() {
        return false;
    }
    let trimmed = trimmed.strip_suffix(':').unwrap_or(trimmed);
    let letters = trimmed.bytes().rev().take_while(u8::is_ascii_alphabetic).take(13).count();
    let Some(word) = trimmed.get(trimmed.len() - letters..) else { return false };
    let at_border = trimmed
        .get(..trimmed.len() - letters)
        .and_then(|head| head.chars().next_back())
        .is_none_or(|before| !is_word(before));
    let mut chars = word.chars();
    let Some(first) = chars.next() else { return false };
    let lowered = format!("{}{}", first.to_ascii_lowercase(), chars.as_str());
    at_border && CLOSING_WORDS.contains(&lowered.as_str())
}

const CLOSING_WORDS: &[&str] = &[
    "close",
    "closes",
    "closed",
    "closing",
    "fix",
    "fixes",
    "fixed",
    "fixing",
    "resolve",
    "resolves",
    "resolved",
    "resolving",
    "implement",
    "implements",
    "implemented",
    "implementing",
];

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A reference and where it stands.
struct Found {
    range: Range<usize>,
    target: ItemRef,
}

/// Walks a text from left to right; each byte is looked at a constant number of times.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    context: RefContext<'a>,
}

impl Iterator for Scanner<'_> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let at = self.at + rest.iter().position(|byte| matches!(byte, b'#' | b'!' | b':'))?;
            let found = if self.text.as_bytes()[at] == b':' { self.address(at) } else { self.short(at) };
            if found.is_some() {
                return found;
            }
        }
    }
}

impl Scanner<'_> {
    /// Reads `#12` or `!34`, with or without a project in front, at its sigil.
    fn short(&mut self, sigil: usize) -> Option<Found> {
        let bytes = self.text.as_bytes();
        let from = self.at;
        self.at = sigil + 1;
        let item_type = if bytes[sigil] == b'#' { ItemType::Issue } else { ItemType::MergeRequest };
        let digits = bytes[sigil + 1..].iter().take(10).take_while(|byte| byte.is_ascii_digit()).count();
        let end = sigil + 1 + digits;
        let iid = number(self.text.get(sigil + 1..end)?)?;
        // `#12+` and `#12+s` ask GitLab for the title; anything else that goes on is no reference.
        let after = self.text.get(end..)?.chars().next();
        if after.is_some_and(is_word) {
            return None;
        }
        let path_length = bytes[from..sigil].iter().rev().take_while(|byte| is_path_byte(**byte)).count();
        let start = sigil - path_length;
        let project_path = self.project(self.text.get(start..sigil)?)?;
        let before = self.text.get(..start)?;
        // A letter, an escape, an entity (`&#39;`), a mention, a fragment link (`](#12)`).
        let blocked = before.ends_with(['\\', '&', '@', '#', '!', '?', '=', '%', '~'])
            || before.ends_with("](")
            || before.chars().next_back().is_some_and(is_word);
        if blocked {
            return None;
        }
        self.at = end;
        Some(Found { range: start..end, target: ItemRef { project_path, item_type, iid } })
    }

    /// Completes what stands in front of a sigil to a full path.
    fn project(&self, written: &str) -> Option<String> {
        if written.is_empty() {
            return Some(self.context.project_path.to_owned());
        }
        if !written.split('/').all(is_path_segment) {
            return None;
        }
        if written.contains('/') {
            return Some(written.to_owned());
        }
        if written.len() < 2 || !written.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            return None;
        }
        Some(match self.context.project_path.rsplit_once('/') {
            Some((namespace, _)) => format!("{namespace}/{written}"),
            None => written.to_owned(),
        })
    }

    /// Reads an address at its colon. Nothing else in an address is a reference.
    fn address(&mut self, colon: usize) -> Option<Found> {
        let from = self.at;
        self.at = colon + 1;
        let rest = self.text.get(colon..)?.strip_prefix("://")?;
        let scheme = ["https", "http"].into_iter().find(|scheme| {
            self.text.get(from..colon).is_some_and(|before| before.to_ascii_lowercase_ends_with(scheme))
        })?;
        let length = rest.bytes().take_while(|byte| is_address_byte(*byte)).count();
        self.at = colon + 3 + length;
        let address = rest.get(..length)?;
        let address = address.trim_end_matches(['.', ',', ';', ':', '!', '?', '\'', '*', '_', '~']);
        let target = self.parse_address(address)?;
        let range = colon - scheme.len()..colon + 3 + address.len();
        self.at = range.end.max(self.at);
        Some(Found { range, target })
    }

    /// Parses an address without its scheme.
    fn parse_address(&self, address: &str) -> Option<ItemRef> {
        let address = address.split(['?', '#']).next()?;
        let path = match self.context.instance() {
            Some(instance) => {
                let head = address.get(..instance.len())?;
                if !head.eq_ignore_ascii_case(instance) {
                    return None;
                }
                address.get(instance.len()..)?.strip_prefix('/')?
            }
            None => address.split_once('/')?.1,
        };
        let segments: Vec<&str> = path.split('/').collect();
        let (project, rest) = match segments.iter().position(|segment| *segment == "-") {
            Some(dash) => (segments.get(..dash)?, segments.get(dash + 1..)?),
            None => {
                let kind = segments.iter().skip(2).position(|segment| item_kind(segment).is_some())? + 2;
                (segments.get(..kind)?, segments.get(kind..)?)
            }
        };
        let item_type = item_kind(rest.first()?)?;
        let mut numbers = rest.iter().skip(1);
        let mut written = numbers.next()?;
        if *written == "incident" {
            written = numbers.next()?;
        }
        // Work items of a group live under /groups/ and belong to no project.
        let is_project = project.len() >= 2
            && project[0] != "groups"
            && project.iter().all(|segment| is_path_segment(segment));
        let iid = number(written)?;
        is_project.then(|| ItemRef { project_path: project.join("/"), item_type, iid })
    }
}

impl<'a> RefContext<'a> {
    /// Host of the instance with the path it lives under, without the scheme.
    fn instance(&self) -> Option<&'a str> {
        let url = self.project_url?.split_once("://")?.1.trim_end_matches('/');
        url.strip_suffix(self.project_path)
            .map(|head| head.trim_end_matches('/'))
            .or_else(|| url.split('/').next())
            .filter(|instance| !instance.is_empty())
    }
}

/// Case-insensitive `ends_with` for ASCII.
trait EndsWithAscii {
    fn to_ascii_lowercase_ends_with(&self, suffix: &str) -> bool;
}

impl EndsWithAscii for str {
    fn to_ascii_lowercase_ends_with(&self, suffix: &str) -> bool {
        let (text, suffix) = (self.as_bytes(), suffix.as_bytes());
        text.len() >= suffix.len() && text[text.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
    }
}

fn item_kind(segment: &str) -> Option<ItemType> {
    match segment {
        "issues" | "work_items" | "incidents" => Some(ItemType::Issue),
        "merge_requests" => Some(ItemType::MergeRequest),
        _ => None,
    }
}

/// Parses a number of an item: from 1, at most nine digits, no leading zero.
fn number(digits: &str) -> Option<i64> {
    let valid = (1..=9).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && !digits.starts_with('0');
    if valid { digits.parse().ok() } else { None }
}

fn is_path_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/')
}

fn is_path_segment(segment: &str) -> bool {
    segment.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric() || first == b'_')
        && segment.bytes().all(|byte| is_path_byte(byte) && byte != b'/')
}

/// Bytes of an address in running text: visible ASCII without what encloses it.
fn is_address_byte(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'<' | b'>' | b'"' | b'`' | b'(' | b')' | b'[' | b']' | b'{' | b'}' | b'|' | b'\\')
}

#[cfg(test)]
mod tests;
