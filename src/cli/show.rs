//! `lore show`: a stored thread as text.

use std::io;

use schemars::JsonSchema;
use serde::Serialize;

use super::query::ScopeArgs;
use super::{App, Human};
use crate::clock;
use crate::error::Result;
use crate::search::filter::Scope;
use crate::search::literal::Reference;
use crate::search::reference;
use crate::search::snippet::printable;
use crate::store::Store;
use crate::store::show::{self as sql, Candidate, Item, StoredNote};

/// Show a stored thread as text.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// What to show: group/project#12, group/project!34, #12, !34, or the address of an item
    #[arg(value_name = "REF")]
    reference: String,
    /// Show GitLab's own notes too (labels changed, mentioned in, …)
    #[arg(long)]
    system: bool,
    #[command(flatten)]
    scope: ScopeArgs,
}

/// An item with its discussions.
#[derive(Serialize, JsonSchema)]
pub(super) struct Thread {
    /// `group/project#12`, `group/project!34`
    pub(super) reference: String,
    #[schemars(extend("enum" = ["issue", "merge_request"]))]
    source_type: &'static str,
    project_path: String,
    iid: i64,
    pub(super) title: String,
    pub(super) state: String,
    draft: bool,
    author: Option<String>,
    created_at: String,
    updated_at: String,
    pub(super) url: Option<String>,
    milestone: Option<String>,
    labels: Vec<String>,
    assignees: Vec<String>,
    source_branch: Option<String>,
    target_branch: Option<String>,
    /// The copy of an issue that was moved.
    moved_to: Option<String>,
    description: Option<String>,
    notes: Vec<Note>,
}

/// A note of a discussion.
#[derive(Serialize, JsonSchema)]
struct Note {
    /// Number of its thread, from 1.
    thread: usize,
    author: Option<String>,
    created_at: String,
    system: bool,
    internal: bool,
    resolved: bool,
    path: Option<String>,
    line: Option<i64>,
    body: String,
}

/// Runs `lore show`.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) for a reference that cannot be read or means several items,
/// [`ErrorKind::ReferenceNotFound`](crate::error::ErrorKind::ReferenceNotFound) when it is not stored or may not be seen.
pub fn run(args: &ShowArgs, app: &mut App) -> Result<()> {
    let scope = args.scope.resolve(app)?;
    let store = app.open_read_only()?;
    let thread = read(&store, &args.reference, args.system, &scope)?;
    app.reply(&thread, |out| write(out, &thread))
}

/// Reads the thread that a reference means, as far as it may be seen; with GitLab's own notes
/// if `system`.
///
/// # Errors
/// As [`run`].
pub(super) fn read(store: &Store, text: &str, system: bool, scope: &Scope) -> Result<Thread> {
    let reference = reference::read(text)?;
    store.read(|tx| {
        let candidate = reference::find(tx, &reference, text, scope)?;
        let item = sql::item(tx, reference.item_type, candidate.item_id)?;
        let notes = sql::notes(tx, reference.item_type, candidate.item_id)?;
        let moved_to = sql::moved_to(tx, reference.item_type, candidate.item_id)?
            .filter(|copy| scope.allows(&copy.project_path))
            .filter(|copy| scope.include_restricted || !copy.confidential)
            .map(|copy| reference::name(reference.item_type, &copy));
        Ok(Thread { moved_to, ..thread(&reference, candidate, item, notes, system, scope) })
    })
}

fn thread(
    reference: &Reference,
    candidate: Candidate,
    item: Item,
    notes: Vec<StoredNote>,
    system: bool,
    scope: &Scope,
) -> Thread {
    let mut threads: Vec<i64> = Vec::new();
    let shown = notes
        .into_iter()
        .filter(|note| (system || !note.system) && (scope.include_restricted || !note.internal))
        .map(|note| {
            if threads.last() != Some(&note.discussion_id) {
                threads.push(note.discussion_id);
            }
            let (path, line) = note.position.map_or((None, None), |(path, line)| (Some(path), line));
            Note {
                thread: threads.len(),
                author: note.author,
                created_at: clock::rfc3339(note.created_at),
                system: note.system,
                internal: note.internal,
                resolved: note.resolved,
                path,
                line,
                body: note.body,
            }
        })
        .collect();
    let (source_branch, target_branch) = item.branches.unzip();
    Thread {
        reference: reference::name(reference.item_type, &candidate),
        source_type: reference.item_type.as_str(),
        project_path: candidate.project_path,
        iid: candidate.iid,
        title: item.title,
        state: item.state,
        draft: item.draft,
        author: item.author,
        created_at: clock::rfc3339(item.created_at),
        updated_at: clock::rfc3339(item.updated_at),
        url: item.url,
        milestone: item.milestone,
        labels: item.labels,
        assignees: item.assignees,
        source_branch,
        target_branch,
        moved_to: None,
        description: item.description,
        notes: shown,
    }
}

/// Writes a thread for people.
pub(super) fn write(out: &mut Human<'_>, thread: &Thread) -> io::Result<()> {
    let title = out.paint("1", &printable(&thread.title));
    out.line(format!("{} {title}", out.paint("36", &thread.reference)))?;
    let draft = if thread.draft { " · draft" } else { "" };
    let author = printable(thread.author.as_deref().unwrap_or("unknown"));
    out.line(format!("{}{draft} · @{author} · {}", thread.state, day(&thread.created_at)))?;
    for (label, values) in [
        ("Labels", thread.labels.join(", ")),
        ("Milestone", thread.milestone.clone().unwrap_or_default()),
        ("Assignees", thread.assignees.join(", ")),
    ] {
        if !values.is_empty() {
            out.line(format!("{label}: {}", printable(&values)))?;
        }
    }
    if let (Some(source), Some(target)) = (&thread.source_branch, &thread.target_branch) {
        out.line(format!("Source: {} -> {}", printable(source), printable(target)))?;
    }
    if let Some(copy) = &thread.moved_to {
        out.line(format!("Moved to: {}", printable(copy)))?;
    }
    if let Some(url) = &thread.url {
        out.line(out.paint("2", &printable(url)))?;
    }
    if let Some(description) = thread.description.as_deref().filter(|text| !text.trim().is_empty()) {
        out.line("")?;
        text(out, description, "")?;
    }
    let mut last = 0;
    for note in &thread.notes {
        out.line("")?;
        let answer = note.thread == last;
        last = note.thread;
        let indent = if answer { "    " } else { "" };
        let mut head = format!(
            "@{} ({})",
            printable(note.author.as_deref().unwrap_or("unknown")),
            day(&note.created_at)
        );
        if let Some(path) = note.path.as_deref().filter(|_| !answer) {
            let line = note.line.map_or_else(String::new, |line| format!(":{line}"));
            head.push_str(&format!(" on {}{line}", printable(path)));
        }
        for (is, word) in [(note.internal, "internal"), (note.system, "system"), (note.resolved, "resolved")]
        {
            if is {
                head.push_str(&format!(" [{word}]"));
            }
        }
        out.line(format!("{indent}{}", out.paint("1", &format!("{head}:"))))?;
        text(out, &note.body, indent)?;
    }
    Ok(())
}

/// Writes a text of several lines without what would steer a terminal.
fn text(out: &mut Human<'_>, text: &str, indent: &str) -> io::Result<()> {
    for line in text.trim_end().lines() {
        out.line(format!("{indent}{}", printable(&line.replace('\t', "    "))))?;
    }
    Ok(())
}

/// The day of an RFC 3339 time.
fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or(time)
}
