//! A document: the text that is searched, shown and embedded, and what a query filters by.

use std::collections::BTreeSet;

use super::entities::{ItemType, SourceType};
use super::hash::{self, Hasher};
use super::refs::Reference;
use super::truncate::TruncationReason;
use crate::clock::Millis;

/// A document with everything that is stored of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What it is made of.
    pub source_type: SourceType,
    /// Id of the source in this database.
    pub source_id: i64,
    /// Project in this database.
    pub project_id: i64,
    /// Kind of the item it is or belongs to.
    pub item_type: ItemType,
    /// Id of that item in this database.
    pub item_id: i64,
    /// Number of that item.
    pub item_iid: i64,
    /// Who opened the item, or wrote the first note.
    pub author_username: Option<String>,
    /// When.
    pub created_at: Millis,
    /// When it last changed. In no hash: it moves alone, and is compared alone.
    pub updated_at: Millis,
    /// State of the item.
    pub state: String,
    /// Whether the item is a draft.
    pub is_draft: bool,
    /// Whether the item is confidential.
    pub is_confidential: bool,
    /// Whether its notes are for members only.
    pub is_internal: bool,
    /// Milestone of the item.
    pub milestone_title: Option<String>,
    /// Labels of the item.
    pub labels: Vec<String>,
    /// Address of the item, or of the first note.
    pub url: Option<String>,
    /// Title of the item; nothing for discussions.
    pub title: Option<String>,
    /// Header and text.
    pub content_text: String,
    /// Characters of `content_text` that are header.
    pub body_start: usize,
    /// Why something was left out.
    pub truncated: Option<TruncationReason>,
    /// Synthetic search terms.
    pub terms_text: String,
    /// What people said about the item in public; empty for discussions.
    pub thread_text: String,
    /// File paths that its notes comment on.
    pub paths: Vec<String>,
    /// Login names of the item's assignees.
    pub assignees: Vec<String>,
    /// References to other items.
    pub refs: BTreeSet<Reference>,
    /// SHA-256 of `content_text`, hexadecimal.
    pub content_hash: String,
    /// SHA-256 of the labels.
    pub labels_hash: String,
    /// SHA-256 of the paths.
    pub paths_hash: String,
    /// SHA-256 of everything else but `updated_at`.
    pub meta_hash: String,
}

impl Document {
    /// SHA-256 over everything that is in no other hash, hexadecimal; `updated_at` left out.
    pub fn meta_hash_of_rest(&self) -> String {
        // Destructured without `..`: a new field must be hashed or left out on purpose.
        let Self {
            source_type: _,
            source_id: _,
            project_id,
            item_type,
            item_id,
            item_iid,
            author_username,
            created_at,
            updated_at: _,
            state,
            is_draft,
            is_confidential,
            is_internal,
            milestone_title,
            labels: _,
            url,
            title,
            content_text: _,
            body_start,
            truncated,
            terms_text,
            thread_text,
            paths: _,
            assignees,
            refs,
            content_hash: _,
            labels_hash: _,
            paths_hash: _,
            meta_hash: _,
        } = self;
        let mut hasher = Hasher::new();
        hasher
            .number(Some(*project_id))
            .text(item_type.as_str())
            .number(Some(*item_id))
            .number(Some(*item_iid))
            .maybe(author_username.as_deref())
            .number(Some(*created_at))
            .text(state)
            .flag(*is_draft)
            .flag(*is_confidential)
            .flag(*is_internal)
            .maybe(milestone_title.as_deref())
            .maybe(url.as_deref())
            .maybe(title.as_deref())
            .number(i64::try_from(*body_start).ok())
            .maybe(truncated.map(TruncationReason::as_str))
            .text(terms_text)
            .text(thread_text)
            .list(assignees)
            .number(i64::try_from(refs.len()).ok());
        for Reference { kind, target } in refs {
            hasher
                .text(kind.as_str())
                .text(&target.project_path)
                .text(target.item_type.as_str())
                .number(Some(target.iid));
        }
        hash::hex(&hasher.finish())
    }
}
