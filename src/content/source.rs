//! What documents are made of, as the store keeps it.

use std::sync::Arc;

use super::entities::{Author, ItemRef, ItemType};
use crate::clock::Millis;

/// A project as documents show it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProjectSource {
    /// Id in this database.
    pub id: i64,
    /// Full path with namespace.
    pub path: String,
    /// Address of its page.
    pub web_url: Option<String>,
}

/// An issue or merge request as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemSource {
    /// Id in this database.
    pub id: i64,
    /// Which of the two.
    pub item_type: ItemType,
    /// Number inside the project.
    pub iid: i64,
    /// Its project.
    pub project: Arc<ProjectSource>,
    /// One line.
    pub title: String,
    /// Markdown text; not read for the documents of its discussions.
    pub description: Option<String>,
    /// `opened`, `closed`, …
    pub state: String,
    /// Whether it is marked as a draft.
    pub is_draft: bool,
    /// Whether only members may see it.
    pub is_confidential: bool,
    /// Who opened it.
    pub author: Author,
    /// Login names.
    pub assignees: Vec<String>,
    /// Label names.
    pub labels: Vec<String>,
    /// Title of its milestone.
    pub milestone: Option<String>,
    /// Branch with the change.
    pub source_branch: Option<String>,
    /// Branch to merge into.
    pub target_branch: Option<String>,
    /// Address of its page.
    pub web_url: Option<String>,
    /// When it was opened.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
    /// Where it was moved to, when that is stored.
    pub moved_to: Option<ItemRef>,
}

/// A note as it is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoteSource {
    /// Id on the instance.
    pub gitlab_id: i64,
    /// Written by GitLab itself.
    pub is_system: bool,
    /// Visible to members only.
    pub is_internal: bool,
    /// Who wrote it.
    pub author: Author,
    /// When it was written.
    pub created_at: Millis,
    /// When it was last edited.
    pub updated_at: Millis,
    /// Path before the change that it comments on.
    pub old_path: Option<String>,
    /// Path after the change that it comments on.
    pub new_path: Option<String>,
    /// Markdown text.
    pub body: String,
}

/// What a document is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An issue or merge request with the notes of all its discussions, in order.
    Item {
        /// The item.
        item: Arc<ItemSource>,
        /// The notes.
        notes: Vec<NoteSource>,
    },
    /// One discussion.
    Discussion {
        /// Id in this database.
        id: i64,
        /// The item it belongs to, without its description.
        item: Arc<ItemSource>,
        /// Its notes in order.
        notes: Vec<NoteSource>,
    },
}
