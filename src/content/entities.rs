//! Entities in the form in which every source delivers them and the store keeps them.
//!
//! Open enumerations of GitLab (state, issue type, note type) stay text: an unknown value
//! is stored, never an error. Times are milliseconds since the epoch. Texts hold no NUL.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::hash::{Hash, Hasher};
use crate::clock::Millis;

/// The two kinds of item that have a number and a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemType {
    /// An issue, incident, task or other work item: `#12`.
    Issue,
    /// A merge request: `!34`.
    MergeRequest,
}

impl ItemType {
    /// Both item types.
    pub const ALL: [Self; 2] = [Self::Issue, Self::MergeRequest];

    /// Name in documents, queues and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::MergeRequest => "merge_request",
        }
    }

    /// GitLab's `noteable_type`.
    pub const fn noteable_type(self) -> &'static str {
        match self {
            Self::Issue => "Issue",
            Self::MergeRequest => "MergeRequest",
        }
    }

    /// The character in front of the number.
    pub const fn sigil(self) -> char {
        match self {
            Self::Issue => '#',
            Self::MergeRequest => '!',
        }
    }

    /// Parses [`as_str`](Self::as_str) or [`noteable_type`](Self::noteable_type).
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "issue" | "Issue" => Some(Self::Issue),
            "merge_request" | "MergeRequest" => Some(Self::MergeRequest),
            _ => None,
        }
    }
}

/// What a document is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceType {
    /// An issue with its description.
    Issue,
    /// A merge request with its description.
    MergeRequest,
    /// One discussion thread of an item.
    Discussion,
}

impl SourceType {
    /// All source types.
    pub const ALL: [Self; 3] = [Self::Issue, Self::MergeRequest, Self::Discussion];

    /// Name in the database and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::MergeRequest => "merge_request",
            Self::Discussion => "discussion",
        }
    }

    /// Parses the name in the database.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Parses what people type: `issue`, `issues`, `mr`, `mrs`, `merge_request`,
    /// `merge-requests`, `discussion`, `note`, … in any case.
    pub fn parse_alias(text: &str) -> Option<Self> {
        match text.to_lowercase().replace('-', "_").as_str() {
            "issue" | "issues" => Some(Self::Issue),
            "mr" | "mrs" | "merge_request" | "merge_requests" => Some(Self::MergeRequest),
            "discussion" | "discussions" | "thread" | "threads" | "note" | "notes" => Some(Self::Discussion),
            _ => None,
        }
    }
}

impl From<ItemType> for SourceType {
    fn from(item: ItemType) -> Self {
        match item {
            ItemType::Issue => Self::Issue,
            ItemType::MergeRequest => Self::MergeRequest,
        }
    }
}

impl fmt::Display for SourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names an item: `group/project#12` or `group/project!34`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemRef {
    /// Full path of the project.
    pub project_path: String,
    /// Which of the two number sequences.
    pub item_type: ItemType,
    /// Number inside the project.
    pub iid: i64,
}

impl fmt::Display for ItemRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.project_path, self.item_type.sigil(), self.iid)
    }
}

/// Who wrote something. Both parts may be unknown: an export archive often has the name
/// alone, a deleted account may have neither.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Author {
    /// Login name.
    pub username: Option<String>,
    /// Display name.
    pub name: Option<String>,
}

/// A project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Project {
    /// Id on the GitLab instance; unknown for export archives.
    pub gitlab_id: Option<i64>,
    /// Full path with namespace.
    pub path: String,
    /// Display name.
    pub name: Option<String>,
    /// Address of the project's page, without a trailing slash.
    pub web_url: Option<String>,
    /// Whether the project is archived (read-only).
    pub archived: bool,
}

/// A label of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    /// Id on the instance.
    pub gitlab_id: Option<i64>,
    /// Name as shown, unique in the project.
    pub name: String,
    /// `#rrggbb`.
    pub color: Option<String>,
    /// What it is for.
    pub description: Option<String>,
}

/// A milestone of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Milestone {
    /// Id on the instance.
    pub gitlab_id: i64,
    /// Number inside the project.
    pub iid: Option<i64>,
    /// Title as shown.
    pub title: String,
    /// Markdown text.
    pub description: Option<String>,
    /// `active`, `closed`, …
    pub state: Option<String>,
    /// `YYYY-MM-DD`.
    pub due_date: Option<String>,
    /// Address of its page.
    pub web_url: Option<String>,
}

/// An issue (or another work item that is listed among the issues).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Issue {
    /// Id on the instance.
    pub gitlab_id: i64,
    /// Number inside the project.
    pub iid: i64,
    /// One line.
    pub title: String,
    /// Markdown text.
    pub description: Option<String>,
    /// `opened`, `closed`, …
    pub state: String,
    /// `issue`, `incident`, `task`, …
    pub issue_type: String,
    /// Whether only members may see it.
    pub confidential: bool,
    /// Who opened it.
    pub author: Author,
    /// Login names, sorted, without repeats.
    pub assignees: Vec<String>,
    /// Label names, sorted, without repeats.
    pub labels: Vec<String>,
    /// Title of its milestone.
    pub milestone: Option<String>,
    /// Address of its page.
    pub web_url: Option<String>,
    /// When it was opened.
    pub created_at: Millis,
    /// When GitLab says it last changed; it can stand still for a minute after a change.
    pub updated_at: Millis,
    /// When it was closed.
    pub closed_at: Option<Millis>,
    /// `YYYY-MM-DD`.
    pub due_date: Option<String>,
    /// Number of notes that people wrote, where the source tells it.
    pub user_notes_count: Option<i64>,
    /// GitLab id of the copy in another project.
    pub moved_to_gitlab_id: Option<i64>,
}

impl Issue {
    /// Hash over everything but `updated_at`, which moves without a change of content.
    pub fn content_hash(&self) -> Hash {
        // Destructured without `..`: a new field must be hashed or left out on purpose.
        let Self {
            gitlab_id,
            iid,
            title,
            description,
            state,
            issue_type,
            confidential,
            author,
            assignees,
            labels,
            milestone,
            web_url,
            created_at,
            updated_at: _,
            closed_at,
            due_date,
            user_notes_count,
            moved_to_gitlab_id,
        } = self;
        Hasher::new()
            .number(Some(*gitlab_id))
            .number(Some(*iid))
            .text(title)
            .maybe(description.as_deref())
            .text(state)
            .text(issue_type)
            .flag(*confidential)
            .maybe(author.username.as_deref())
            .maybe(author.name.as_deref())
            .list(assignees)
            .list(labels)
            .maybe(milestone.as_deref())
            .maybe(web_url.as_deref())
            .number(Some(*created_at))
            .number(*closed_at)
            .maybe(due_date.as_deref())
            .number(*user_notes_count)
            .number(*moved_to_gitlab_id)
            .finish()
    }
}

/// A merge request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeRequest {
    /// Id on the instance.
    pub gitlab_id: i64,
    /// Number inside the project.
    pub iid: i64,
    /// One line.
    pub title: String,
    /// Markdown text.
    pub description: Option<String>,
    /// `opened`, `closed`, `merged`, `locked`, …
    pub state: String,
    /// Whether it is marked as a draft.
    pub draft: bool,
    /// Who opened it.
    pub author: Author,
    /// Login names, sorted, without repeats.
    pub assignees: Vec<String>,
    /// Label names, sorted, without repeats.
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
    /// When GitLab says it last changed.
    pub updated_at: Millis,
    /// When it was merged.
    pub merged_at: Option<Millis>,
    /// When it was closed without merging.
    pub closed_at: Option<Millis>,
    /// Number of notes that people wrote, where the source tells it.
    pub user_notes_count: Option<i64>,
}

impl MergeRequest {
    /// Hash over everything but `updated_at`.
    pub fn content_hash(&self) -> Hash {
        let Self {
            gitlab_id,
            iid,
            title,
            description,
            state,
            draft,
            author,
            assignees,
            labels,
            milestone,
            source_branch,
            target_branch,
            web_url,
            created_at,
            updated_at: _,
            merged_at,
            closed_at,
            user_notes_count,
        } = self;
        Hasher::new()
            .number(Some(*gitlab_id))
            .number(Some(*iid))
            .text(title)
            .maybe(description.as_deref())
            .text(state)
            .flag(*draft)
            .maybe(author.username.as_deref())
            .maybe(author.name.as_deref())
            .list(assignees)
            .list(labels)
            .maybe(milestone.as_deref())
            .maybe(source_branch.as_deref())
            .maybe(target_branch.as_deref())
            .maybe(web_url.as_deref())
            .number(Some(*created_at))
            .number(*merged_at)
            .number(*closed_at)
            .number(*user_notes_count)
            .finish()
    }
}

/// A discussion: one comment, or a thread of comments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discussion {
    /// GitLab's id, 40 hexadecimal digits.
    pub gitlab_id: String,
    /// A plain comment (true) or a thread (false).
    pub individual_note: bool,
    /// Its notes in GitLab's order.
    pub notes: Vec<Note>,
}

impl Discussion {
    /// Hash over the discussion and all its notes, `updated_at` left out.
    pub fn content_hash(&self) -> Hash {
        let Self { gitlab_id, individual_note, notes } = self;
        let mut hasher = Hasher::new();
        hasher.text(gitlab_id).flag(*individual_note).number(i64::try_from(notes.len()).ok());
        for note in notes {
            note.hash_into(&mut hasher);
        }
        hasher.finish()
    }
}

/// One note of a discussion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// Id on the instance.
    pub gitlab_id: i64,
    /// `DiscussionNote`, `DiffNote`, … or none.
    pub note_type: Option<String>,
    /// Written by GitLab itself ("changed the milestone").
    pub system: bool,
    /// Visible to members only.
    pub internal: bool,
    /// Who wrote it.
    pub author: Author,
    /// Markdown text.
    pub body: String,
    /// When it was written.
    pub created_at: Millis,
    /// When it was last edited.
    pub updated_at: Millis,
    /// Whether it can be resolved.
    pub resolvable: bool,
    /// Whether it is resolved.
    pub resolved: bool,
    /// Login name or display name of who resolved it.
    pub resolved_by: Option<String>,
    /// The place in a diff that it comments on.
    pub position: Option<DiffPosition>,
}

impl Note {
    fn hash_into(&self, hasher: &mut Hasher) {
        let Self {
            gitlab_id,
            note_type,
            system,
            internal,
            author,
            body,
            created_at,
            updated_at: _,
            resolvable,
            resolved,
            resolved_by,
            position,
        } = self;
        hasher
            .number(Some(*gitlab_id))
            .maybe(note_type.as_deref())
            .flag(*system)
            .flag(*internal)
            .maybe(author.username.as_deref())
            .maybe(author.name.as_deref())
            .text(body)
            .number(Some(*created_at))
            .flag(*resolvable)
            .flag(*resolved)
            .maybe(resolved_by.as_deref())
            .flag(position.is_some());
        if let Some(DiffPosition { position_type, old_path, new_path, old_line, new_line }) = position {
            hasher
                .maybe(position_type.as_deref())
                .maybe(old_path.as_deref())
                .maybe(new_path.as_deref())
                .number(*old_line)
                .number(*new_line);
        }
    }
}

/// A place in a diff. Every part can be missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiffPosition {
    /// `text`, `image`, `file`, …
    pub position_type: Option<String>,
    /// Path before the change.
    pub old_path: Option<String>,
    /// Path after the change.
    pub new_path: Option<String>,
    /// Line before the change, from 1.
    pub old_line: Option<i64>,
    /// Line after the change, from 1.
    pub new_line: Option<i64>,
}
