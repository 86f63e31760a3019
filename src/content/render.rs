//! Makes documents of issues, merge requests and discussions.
//!
//! What is unknown is left out with its line: no author, no `Author:` line. In a thread a
//! note always has its author line; a person without a login name is named without `@`, and
//! one without any name is `unknown`. A discussion of system notes alone has no document. What members alone may read never meets public text: a discussion with public
//! notes shows those alone, one of internal notes alone is a document marked internal.

use std::collections::BTreeSet;

use super::document::Document;
use super::entities::{Author, ItemType, SourceType};
use super::hash;
use super::paths::paths_of;
use super::refs::{RefContext, RefKind, RefText, Reference, collect_refs};
use super::source::{ItemSource, NoteSource, Source};
use super::terms::Terms;
use super::truncate::{MAX_CONTENT_CHARS, Omission, Truncated, TruncationReason, cut_text, join_notes};
use crate::clock::{self, Millis};

/// Raised whenever the same source renders differently, so that documents of older binaries
/// are made again when their source is looked at.
pub const RENDER_VERSION: i64 = 1;

/// Longest value of one header line, in characters. GitLab's own limits are far below; the
/// header of a hostile export must leave room for the text.
const MAX_HEADER_VALUE: usize = 2_000;

/// Ends the text of a note that was imported without its user.
const IMPORT_TAIL: &str = "(imported from GitLab project)*";

/// Makes the document of a source; nothing when it has no text of its own.
pub fn render(source: &Source) -> Option<Document> {
    match source {
        Source::Item { item, notes } => Some(render_item(item, notes)),
        Source::Discussion { id, item, notes } => render_discussion(*id, item, notes),
    }
}

fn render_item(item: &ItemSource, notes: &[NoteSource]) -> Document {
    let mut header = Header::default();
    let kind = kind_name(item.item_type);
    header.line(&format!("[[{kind}]] {}{}: ", item.item_type.sigil(), item.iid), Some(&item.title));
    header.line("Project: ", Some(&item.project.path));
    header.line("URL: ", item.web_url.as_deref());
    header.list("Labels: ", &item.labels);
    header.line("State: ", Some(&item.state));
    header.line("Author: ", display_name(&item.author).as_deref());
    match (&item.source_branch, &item.target_branch) {
        (Some(from), Some(to)) => header.line("Source: ", Some(&format!("{from} -> {to}"))),
        (Some(from), None) => header.line("Source: ", Some(from)),
        (None, _) => {}
    }
    let description = item.description.as_deref().filter(|text| !text.trim().is_empty());
    let text = match description {
        Some(text) => header.with_body("--- Description ---", |room| cut_text(text, room)),
        None => header.alone(),
    };

    let context = ref_context(item);
    let mut refs = BTreeSet::new();
    collect_refs(&item.title, RefText::Description, context, &mut refs);
    if let Some(text) = description {
        collect_refs(text, RefText::Description, context, &mut refs);
    }
    for note in notes.iter().filter(|note| note.is_system && !note.is_internal) {
        collect_refs(&note.body, RefText::System, context, &mut refs);
    }
    refs.extend(
        item.moved_to.iter().map(|target| Reference { kind: RefKind::Moved, target: target.clone() }),
    );

    let spoken = || notes.iter().filter(|note| is_spoken(note) && !note.is_internal);
    let bodies: Vec<String> =
        spoken().map(|note| note_text(&note.body).into_owned()).filter(|body| !body.is_empty()).collect();
    finish(Parts {
        source_type: item.item_type.into(),
        source_id: item.id,
        item,
        author_username: item.author.username.clone(),
        created_at: item.created_at,
        updated_at: item.updated_at,
        is_internal: false,
        url: item.web_url.clone(),
        title: Some(item.title.clone()),
        text,
        thread_text: join_notes(&bodies, MAX_CONTENT_CHARS, Omission::Silent).text,
        paths: paths_of(spoken()),
        refs,
    })
}

fn render_discussion(id: i64, item: &ItemSource, notes: &[NoteSource]) -> Option<Document> {
    let is_internal = !notes.iter().any(|note| is_spoken(note) && !note.is_internal);
    let shown: Vec<&NoteSource> =
        notes.iter().filter(|note| is_spoken(note) && note.is_internal == is_internal).collect();
    let first = shown.first()?;
    let url = item.web_url.as_deref().map(|url| format!("{url}#note_{}", first.gitlab_id));
    let paths = paths_of(shown.iter().copied());

    let mut header = Header::default();
    let (kind, sigil) = (kind_name(item.item_type), item.item_type.sigil());
    header.line(&format!("[[Discussion]] {kind} {sigil}{}: ", item.iid), Some(&item.title));
    header.line("Project: ", Some(&item.project.path));
    header.line("URL: ", url.as_deref());
    header.list("Labels: ", &item.labels);
    header.list("Files: ", &paths);
    let blocks: Vec<String> = shown
        .iter()
        .map(|note| {
            let name = display_name(&note.author).unwrap_or_else(|| "unknown".to_owned());
            format!("{name} ({}):\n{}", clock::day(note.created_at), note_text(&note.body))
        })
        .collect();
    let text = header.with_body("--- Thread ---", |room| join_notes(&blocks, room, Omission::Shown));

    let mut refs = BTreeSet::new();
    for note in &shown {
        collect_refs(&note.body, RefText::Comment, ref_context(item), &mut refs);
    }
    Some(finish(Parts {
        source_type: SourceType::Discussion,
        source_id: id,
        item,
        author_username: first.author.username.clone(),
        created_at: first.created_at,
        updated_at: shown.iter().map(|note| note.updated_at).max().unwrap_or(first.updated_at),
        is_internal,
        url,
        title: None,
        text,
        thread_text: String::new(),
        paths,
        refs,
    }))
}

/// Whether a note is somebody's.
fn is_spoken(note: &NoteSource) -> bool {
    !note.is_system
}

const fn kind_name(item_type: ItemType) -> &'static str {
    match item_type {
        ItemType::Issue => "Issue",
        ItemType::MergeRequest => "MergeRequest",
    }
}

fn ref_context(item: &ItemSource) -> RefContext<'_> {
    RefContext {
        project_path: &item.project.path,
        project_url: item.project.web_url.as_deref(),
        own: (item.item_type, item.iid),
    }
}

fn display_name(author: &Author) -> Option<String> {
    let known = |name: &Option<String>| name.clone().filter(|name| !name.trim().is_empty());
    known(&author.username).map(|username| format!("@{username}")).or_else(|| known(&author.name))
}

/// The text of a note. Each import of a project adds a line that says who wrote it; the
/// first is the true one, the others are noise.
fn note_text(body: &str) -> std::borrow::Cow<'_, str> {
    let body = body.trim_end();
    let is_tail =
        |line: &str| line.trim_start().starts_with("*By ") && line.trim_end().ends_with(IMPORT_TAIL);
    if !body.ends_with(IMPORT_TAIL) {
        return body.into();
    }
    let lines: Vec<&str> = body.lines().collect();
    let from =
        lines.iter().rposition(|line| !line.trim().is_empty() && !is_tail(line)).map_or(0, |last| last + 1);
    let (text, tails) = lines.split_at(from);
    let original = tails.iter().find(|line| is_tail(line));
    let mut kept = text.join("\n").trim_end().to_owned();
    if let Some(original) = original {
        kept.push_str("\n\n");
        kept.push_str(original.trim());
    }
    kept.into()
}

/// The lines in front of a document's text.
#[derive(Default)]
struct Header(String);

/// A document's text within its limit.
struct Text {
    content: String,
    body_start: usize,
    truncated: Option<TruncationReason>,
}

impl Header {
    fn line(&mut self, name: &str, value: Option<&str>) {
        let Some(value) = value.filter(|value| !value.trim().is_empty()) else { return };
        self.0.push_str(name);
        self.0.extend(
            value.chars().take(MAX_HEADER_VALUE).map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }),
        );
        self.0.push('\n');
    }

    /// Adds a JSON array; entries that would make the line too long are counted.
    fn list(&mut self, name: &str, values: &[String]) {
        if values.is_empty() {
            return;
        }
        let mut line = String::new();
        for (index, value) in values.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let quoted = serde_json::Value::from(value.as_str()).to_string();
            if line.len() + quoted.len() > MAX_HEADER_VALUE {
                line.push_str(&format!("{separator}\"... {} more\"", values.len() - index));
                break;
            }
            line.push_str(separator);
            line.push_str(&quoted);
        }
        self.0.push_str(name);
        self.0.push('[');
        self.0.push_str(&line);
        self.0.push_str("]\n");
    }

    /// The header as a whole document.
    fn alone(self) -> Text {
        let content = self.0.trim_end().to_owned();
        Text { body_start: content.chars().count(), content, truncated: None }
    }

    /// The header, a mark, and the body that `make` returns for the characters left.
    fn with_body(self, mark: &str, make: impl FnOnce(usize) -> Truncated) -> Text {
        let mut content = format!("{}\n{mark}\n\n", self.0);
        let body_start = content.chars().count();
        let Truncated { text, reason } = make(MAX_CONTENT_CHARS.saturating_sub(body_start));
        content.push_str(&text);
        Text { content, body_start, truncated: reason }
    }
}

/// What the three kinds of document differ in.
struct Parts<'a> {
    source_type: SourceType,
    source_id: i64,
    item: &'a ItemSource,
    author_username: Option<String>,
    created_at: Millis,
    updated_at: Millis,
    is_internal: bool,
    url: Option<String>,
    title: Option<String>,
    text: Text,
    thread_text: String,
    paths: Vec<String>,
    refs: BTreeSet<Reference>,
}

fn finish(parts: Parts<'_>) -> Document {
    let Parts { source_type, source_id, item, text, title, .. } = parts;
    let mut terms = Terms::default();
    terms.add(title.as_deref().unwrap_or_default());
    terms.add(after_chars(&text.content, text.body_start));
    let mut document = Document {
        source_type,
        source_id,
        project_id: item.project.id,
        item_type: item.item_type,
        item_id: item.id,
        item_iid: item.iid,
        author_username: parts.author_username,
        created_at: parts.created_at,
        updated_at: parts.updated_at,
        state: item.state.clone(),
        is_draft: item.is_draft,
        is_confidential: item.is_confidential,
        is_internal: parts.is_internal,
        milestone_title: item.milestone.clone(),
        labels: item.labels.clone(),
        url: parts.url,
        title,
        content_hash: hash::text_hash(&text.content),
        content_text: text.content,
        body_start: text.body_start,
        truncated: text.truncated,
        terms_text: terms.into_text(),
        thread_text: parts.thread_text,
        labels_hash: hash::list_hash(&item.labels),
        paths_hash: hash::list_hash(&parts.paths),
        paths: parts.paths,
        assignees: item.assignees.clone(),
        refs: parts.refs,
        meta_hash: String::new(),
    };
    document.meta_hash = document.meta_hash_of_rest();
    document
}

fn after_chars(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).and_then(|(at, _)| text.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
