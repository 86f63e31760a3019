//! Fills a project from files: rows as the API sends them, one JSON object a line.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use super::model::{Kind, Model};

/// What a folder held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Issues and merge requests.
    pub items: usize,
    /// Notes of all of them.
    pub notes: usize,
}

/// Rows of a file of one JSON object a line, gzipped or not. Nothing when it is not there.
pub fn rows(path: &Path) -> Vec<Value> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(bytes.as_slice())
            .read_to_string(&mut text)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    } else {
        text = String::from_utf8(bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

impl Model {
    /// Fills a project from a folder with `labels`, `milestones`, `issues`, `merge_requests`,
    /// `issue_discussions` and `mr_discussions`. `max` bounds the items of each kind.
    pub fn load_folder(&mut self, project: i64, dir: &Path, max: usize) -> Loaded {
        let mut loaded = Loaded::default();
        self.project(project).labels = rows(&dir.join("labels.ndjson"));
        self.project(project).milestones = rows(&dir.join("milestones.ndjson"));
        for (kind, list, threads) in [
            (Kind::Issue, "issues.ndjson.gz", "issue_discussions.ndjson.gz"),
            (Kind::MergeRequest, "merge_requests.ndjson.gz", "mr_discussions.ndjson.gz"),
        ] {
            for row in rows(&dir.join(list)).into_iter().take(max) {
                self.load_item(project, kind, row);
                loaded.items += 1;
            }
            for mut line in rows(&dir.join(threads)) {
                let Some(iid) = line["iid"].as_i64() else { continue };
                let Some(item) = self.project(project).items.get_mut(&(kind, iid)) else { continue };
                if let Value::Array(threads) = line["discussions"].take() {
                    loaded.notes +=
                        threads.iter().map(|thread| super::notes::notes_of(thread).count()).sum::<usize>();
                    item.discussions = threads;
                }
            }
        }
        loaded
    }
}
