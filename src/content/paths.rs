//! File paths that the notes of a discussion are attached to, and patterns of project paths.

use std::collections::BTreeSet;

use super::source::NoteSource;

/// Most paths of one document: a thread is about a few files, whatever a source says.
const MAX_PATHS: usize = 500;

/// Returns the paths, old and new, that the notes comment on: sorted, each once.
pub fn paths_of<'a>(notes: impl Iterator<Item = &'a NoteSource>) -> Vec<String> {
    let paths: BTreeSet<&str> = notes
        .flat_map(|note| [note.old_path.as_deref(), note.new_path.as_deref()])
        .flatten()
        .filter(|path| !path.trim().is_empty())
        .collect();
    paths.into_iter().take(MAX_PATHS).map(str::to_owned).collect()
}

/// Whether a pattern means a project: its whole path, everything below `group/*`, or `*`.
pub fn is_project_meant(pattern: &str, path: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(front) if front.ends_with('/') => path.starts_with(front),
        Some(_) | None => pattern == path,
    }
}
