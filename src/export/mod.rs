//! Reads GitLab project exports: archives (`.tar.gz`, `.tgz`, `.tar`), unpacked directories,
//! a bare `project.json`, and the sample that is built into the binary.
//!
//! Both layouts are read: `tree/project/*.ndjson` (GitLab 12.10 and later) and one big
//! `project.json` (before). Reading takes two passes. The first, [`Export::survey`], looks at
//! every header, refuses hostile archives, and learns what later lines point at: members,
//! labels, milestones. The second, [`Export::items`], hands out one issue or merge request
//! with all its notes at a time. Memory holds one item, never the archive; nothing is ever
//! unpacked to disk.
//!
//! What an export does not hold: the project's id, path and address (the configuration says
//! them), links between issues, and the user names of people who are not members.
//!
//! Deliberately absent: deletion. An item that is missing from an archive stays.

mod container;
mod convert;
pub mod demo;
mod fingerprint;
mod guard;
mod legacy;
mod lines;
mod survey;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::HashMap;

use container::OnError;
pub use container::{Export, Stamp};
pub use fingerprint::Fingerprint;
pub use survey::{Layout, Survey};

use crate::content::{Discussion, Issue, Label, MergeRequest, Milestone};
use crate::engine::cancel::Cancel;
use crate::error::Result;

/// Version of the reader. Raised when it reads the same archive differently, so that
/// archives that did not change are read again.
pub const READER_VERSION: u32 = 1;

/// What reading is bounded by.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one line, or of one element of `project.json`.
    pub line_bytes: u64,
    /// Bytes of everything in the archive, unpacked.
    pub unpacked_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 256 << 20, unpacked_bytes: 64 << 30 }
    }
}

/// User names by user id.
pub type Users = HashMap<i64, String>;

/// One issue or merge request with its threads.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The issue or merge request itself.
    pub entity: Entity,
    /// Its discussions, in GitLab's order.
    pub discussions: Vec<Discussion>,
    /// Full forms of its labels: group labels are described nowhere else.
    pub labels: Vec<Label>,
    /// Full form of its milestone.
    pub milestone: Option<Milestone>,
    /// Size of the item in the export, in bytes.
    pub bytes: u64,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq)]
pub enum Entity {
    /// An issue or another work item.
    Issue(Box<Issue>),
    /// A merge request.
    MergeRequest(Box<MergeRequest>),
}

/// What the second pass hands out.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// An item.
    Item(Box<Item>),
    /// A line that cannot be used; the others go on.
    Bad(BadLine),
}

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Member and line: `tree/project/issues.ndjson:17`.
    pub place: String,
    /// What is wrong with it.
    pub problem: String,
}

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// The two kinds of item, as members and arrays of an export name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Issues,
    MergeRequests,
}

impl Export {
    /// First pass: checks every member, and reads members, labels and milestones.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::error::ErrorKind::Io) when the export cannot be read, is
    /// damaged, holds a member that no export holds (link, device, path outside), exceeds the
    /// limits, or is no GitLab project export. The reason for the stop when `cancel` says so.
    pub fn survey(&self, limits: &Limits, cancel: &Cancel) -> Result<Survey> {
        survey::survey(self, limits, cancel)
    }

    /// Second pass: hands every issue and merge request to `sink`, in the order of the export.
    ///
    /// # Errors
    /// Those of `sink` and of reading.
    pub fn items(
        &self,
        survey: &Survey,
        web_url: Option<&str>,
        limits: &Limits,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Read) -> Result<()>,
    ) -> Result<()> {
        let web_url = web_url.map(|url| url.trim_end_matches('/'));
        let converter = convert::Converter { users: &survey.users, web_url };
        self.walk(
            limits,
            cancel,
            OnError::Stop,
            &mut |member| match (survey.layout, member.name.as_str()) {
                (Layout::Legacy, container::LEGACY_PROJECT) => {
                    legacy::items(member, limits, &converter, &mut *sink)
                }
                (Layout::Tree, name) => match tree_relation(name) {
                    Some(relation) => lines::each(member, limits, &mut |place, line| {
                        sink(converter.read(relation, place, line))
                    }),
                    None => Ok(()),
                },
                (Layout::Legacy, _) => Ok(()),
            },
        )?;
        Ok(())
    }
}

/// Returns which items a member of the tree layout holds.
fn tree_relation(name: &str) -> Option<Relation> {
    match name {
        "tree/project/issues.ndjson" => Some(Relation::Issues),
        "tree/project/merge_requests.ndjson" => Some(Relation::MergeRequests),
        _ => None,
    }
}
