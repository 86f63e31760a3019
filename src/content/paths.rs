//! File paths that the notes of a discussion are attached to.

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
