//! SQL of issues and merge requests.

use rusqlite::{OptionalExtension, named_params};

use super::{discussion_column, mark_moved_to};
use crate::clock::Millis;
use crate::content::hash::{Hash, Hasher};
use crate::content::{Issue, ItemType, MergeRequest};
use crate::error::{Error, Result};
use crate::store::queues::{self, mark_dirty};
use crate::store::tombstones;
use crate::store::{ReadTx, WriteTx};

/// What an upsert came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not stored before.
    New,
    /// Its content differs.
    Changed,
    /// Only `updated_at` moved.
    Touched,
    /// Nothing differs; nothing was written.
    Unchanged,
}

/// An item after its upsert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upserted {
    /// Id in this database.
    pub id: i64,
    /// What changed.
    pub change: Change,
    /// Whether its discussions may have changed and are to be fetched.
    pub discussions_stale: bool,
    /// Whether a later state of it was stored before: the source is older than what is stored.
    pub went_back: bool,
}

/// The part of an item that its discussions' documents show too.
fn shown_in_threads(parts: &[Option<&str>], confidential: bool) -> Hash {
    let mut hasher = Hasher::new();
    for part in parts {
        hasher.maybe(*part);
    }
    hasher.flag(confidential).finish()
}

/// What is compared of a stored item.
struct StoredItem {
    id: i64,
    content_hash: Vec<u8>,
    updated_at: Millis,
    user_notes_count: Option<i64>,
    shown: Hash,
}

/// Decides what an upsert has to do.
fn compare(
    stored: Option<&StoredItem>,
    hash: &Hash,
    updated_at: Millis,
    notes_count: Option<i64>,
) -> (Change, bool) {
    let Some(stored) = stored else { return (Change::New, true) };
    let moved = stored.updated_at != updated_at;
    if stored.content_hash != hash {
        let notes_differ = notes_count.is_some() && stored.user_notes_count != notes_count;
        (Change::Changed, moved || notes_differ)
    } else if moved {
        (Change::Touched, true)
    } else {
        (Change::Unchanged, false)
    }
}

/// After an item was written: marks its own document, and those of its discussions when
/// they show what changed. A touch alone reaches the document's time directly.
fn mark_after_upsert(
    tx: &WriteTx<'_>,
    (project_id, item_type, iid): (i64, ItemType, i64),
    upserted: Upserted,
    shown_differs: bool,
    updated_at: Millis,
    now: Millis,
) -> Result<()> {
    match upserted.change {
        Change::Unchanged => Ok(()),
        Change::Touched => {
            tx.sql()
                .prepare_cached(
                    "UPDATE documents SET updated_at = ?3 WHERE source_type = ?1 AND source_id = ?2",
                )?
                .execute((item_type.as_str(), upserted.id, updated_at))?;
            Ok(())
        }
        Change::New | Change::Changed => {
            if upserted.change == Change::New {
                tombstones::unbury(tx, project_id, item_type, iid)?;
            }
            mark_dirty(tx, item_type.into(), upserted.id, now)?;
            if shown_differs {
                let column = discussion_column(item_type);
                let select = format!("SELECT 'discussion', id, ?1 FROM discussions WHERE {column} = ?2");
                tx.sql().prepare_cached(&queues::mark_all_sql(&select))?.execute((now, upserted.id))?;
            }
            Ok(())
        }
    }
}

pub(super) fn json_list(items: &[String]) -> Result<String> {
    serde_json::to_string(items).map_err(|error| Error::internal("encode a list").because(error))
}

/// Stores an issue and marks its documents dirty when its content changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_issue(tx: &WriteTx<'_>, project_id: i64, issue: &Issue, now: Millis) -> Result<Upserted> {
    let hash = issue.content_hash();
    let labels = json_list(&issue.labels)?;
    let assignees = json_list(&issue.assignees)?;
    let stored = tx
        .sql()
        .prepare_cached(
            "SELECT id, content_hash, updated_at, user_notes_count, title, label_names, web_url, state,
                    milestone_title, assignee_usernames, confidential
               FROM issues WHERE project_id = ?1 AND iid = ?2",
        )?
        .query_row((project_id, issue.iid), |row| {
            let text = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str_or_null()?));
            Ok(StoredItem {
                id: row.get(0)?,
                content_hash: row.get(1)?,
                updated_at: row.get(2)?,
                user_notes_count: row.get(3)?,
                shown: shown_in_threads(
                    &[text(4)?, text(5)?, text(6)?, text(7)?, text(8)?, text(9)?],
                    row.get(10)?,
                ),
            })
        })
        .optional()?;
    let (change, discussions_stale) =
        compare(stored.as_ref(), &hash, issue.updated_at, issue.user_notes_count);
    let shown = shown_in_threads(
        &[
            Some(&issue.title),
            Some(&labels),
            issue.web_url.as_deref(),
            Some(&issue.state),
            issue.milestone.as_deref(),
            Some(&assignees),
        ],
        issue.confidential,
    );
    let shown_differs = stored.as_ref().is_some_and(|stored| stored.shown != shown);
    if change != Change::Unchanged {
        tx.sql()
            .prepare_cached(
                "INSERT INTO issues(project_id, gitlab_id, iid, state, issue_type, confidential, author_username,
                        author_name, assignee_usernames, label_names, milestone_title, web_url, created_at, updated_at,
                        closed_at, due_date, user_notes_count, moved_to_gitlab_id, content_hash, synced_at, title, description)
                 VALUES (:project_id, :gitlab_id, :iid, :state, :issue_type, :confidential, :author_username,
                        :author_name, :assignees, :labels, :milestone, :web_url, :created_at, :updated_at,
                        :closed_at, :due_date, :notes_count, :moved_to, :hash, :now, :title, :description)
                 ON CONFLICT(project_id, iid) DO UPDATE SET gitlab_id = excluded.gitlab_id, state = excluded.state,
                        issue_type = excluded.issue_type, confidential = excluded.confidential,
                        author_username = excluded.author_username, author_name = excluded.author_name,
                        assignee_usernames = excluded.assignee_usernames, label_names = excluded.label_names,
                        milestone_title = excluded.milestone_title, web_url = excluded.web_url,
                        created_at = excluded.created_at, updated_at = excluded.updated_at,
                        closed_at = excluded.closed_at, due_date = excluded.due_date,
                        user_notes_count = excluded.user_notes_count, moved_to_gitlab_id = excluded.moved_to_gitlab_id,
                        content_hash = excluded.content_hash, synced_at = excluded.synced_at,
                        title = excluded.title, description = excluded.description",
            )?
            .execute(named_params! {
                ":project_id": project_id,
                ":gitlab_id": issue.gitlab_id,
                ":iid": issue.iid,
                ":state": issue.state,
                ":issue_type": issue.issue_type,
                ":confidential": issue.confidential,
                ":author_username": issue.author.username,
                ":author_name": issue.author.name,
                ":assignees": assignees,
                ":labels": labels,
                ":milestone": issue.milestone,
                ":web_url": issue.web_url,
                ":created_at": issue.created_at,
                ":updated_at": issue.updated_at,
                ":closed_at": issue.closed_at,
                ":due_date": issue.due_date,
                ":notes_count": issue.user_notes_count,
                ":moved_to": issue.moved_to_gitlab_id,
                ":hash": hash,
                ":now": now,
                ":title": issue.title,
                ":description": issue.description,
            })?;
    }
    let went_back = stored.as_ref().is_some_and(|stored| stored.updated_at > issue.updated_at);
    let id = stored.map_or_else(|| tx.sql().last_insert_rowid(), |stored| stored.id);
    let upserted = Upserted { id, change, discussions_stale, went_back };
    let key = (project_id, ItemType::Issue, issue.iid);
    mark_after_upsert(tx, key, upserted, shown_differs, issue.updated_at, now)?;
    if change == Change::New {
        mark_moved_to(tx, project_id, issue.gitlab_id, now)?;
    }
    Ok(upserted)
}

/// Stores a merge request and marks its documents dirty when its content changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_merge_request(
    tx: &WriteTx<'_>,
    project_id: i64,
    merge_request: &MergeRequest,
    now: Millis,
) -> Result<Upserted> {
    let hash = merge_request.content_hash();
    let labels = json_list(&merge_request.labels)?;
    let assignees = json_list(&merge_request.assignees)?;
    let stored = tx
        .sql()
        .prepare_cached(
            "SELECT id, content_hash, updated_at, user_notes_count, title, label_names, web_url, state,
                    milestone_title, assignee_usernames, draft
               FROM merge_requests WHERE project_id = ?1 AND iid = ?2",
        )?
        .query_row((project_id, merge_request.iid), |row| {
            let text = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str_or_null()?));
            Ok(StoredItem {
                id: row.get(0)?,
                content_hash: row.get(1)?,
                updated_at: row.get(2)?,
                user_notes_count: row.get(3)?,
                shown: shown_in_threads(
                    &[text(4)?, text(5)?, text(6)?, text(7)?, text(8)?, text(9)?],
                    row.get(10)?,
                ),
            })
        })
        .optional()?;
    let (change, discussions_stale) =
        compare(stored.as_ref(), &hash, merge_request.updated_at, merge_request.user_notes_count);
    let shown = shown_in_threads(
        &[
            Some(&merge_request.title),
            Some(&labels),
            merge_request.web_url.as_deref(),
            Some(&merge_request.state),
            merge_request.milestone.as_deref(),
            Some(&assignees),
        ],
        merge_request.draft,
    );
    let shown_differs = stored.as_ref().is_some_and(|stored| stored.shown != shown);
    if change != Change::Unchanged {
        tx.sql()
            .prepare_cached(
                "INSERT INTO merge_requests(project_id, gitlab_id, iid, state, draft, author_username, author_name,
                        assignee_usernames, label_names, milestone_title, source_branch, target_branch, web_url,
                        created_at, updated_at, merged_at, closed_at, user_notes_count, content_hash, synced_at,
                        title, description)
                 VALUES (:project_id, :gitlab_id, :iid, :state, :draft, :author_username, :author_name,
                        :assignees, :labels, :milestone, :source_branch, :target_branch, :web_url,
                        :created_at, :updated_at, :merged_at, :closed_at, :notes_count, :hash, :now,
                        :title, :description)
                 ON CONFLICT(project_id, iid) DO UPDATE SET gitlab_id = excluded.gitlab_id, state = excluded.state,
                        draft = excluded.draft, author_username = excluded.author_username,
                        author_name = excluded.author_name, assignee_usernames = excluded.assignee_usernames,
                        label_names = excluded.label_names, milestone_title = excluded.milestone_title,
                        source_branch = excluded.source_branch, target_branch = excluded.target_branch,
                        web_url = excluded.web_url, created_at = excluded.created_at, updated_at = excluded.updated_at,
                        merged_at = excluded.merged_at, closed_at = excluded.closed_at,
                        user_notes_count = excluded.user_notes_count, content_hash = excluded.content_hash,
                        synced_at = excluded.synced_at, title = excluded.title, description = excluded.description",
            )?
            .execute(named_params! {
                ":project_id": project_id,
                ":gitlab_id": merge_request.gitlab_id,
                ":iid": merge_request.iid,
                ":state": merge_request.state,
                ":draft": merge_request.draft,
                ":author_username": merge_request.author.username,
                ":author_name": merge_request.author.name,
                ":assignees": assignees,
                ":labels": labels,
                ":milestone": merge_request.milestone,
                ":source_branch": merge_request.source_branch,
                ":target_branch": merge_request.target_branch,
                ":web_url": merge_request.web_url,
                ":created_at": merge_request.created_at,
                ":updated_at": merge_request.updated_at,
                ":merged_at": merge_request.merged_at,
                ":closed_at": merge_request.closed_at,
                ":notes_count": merge_request.user_notes_count,
                ":hash": hash,
                ":now": now,
                ":title": merge_request.title,
                ":description": merge_request.description,
            })?;
    }
    let went_back = stored.as_ref().is_some_and(|stored| stored.updated_at > merge_request.updated_at);
    let id = stored.map_or_else(|| tx.sql().last_insert_rowid(), |stored| stored.id);
    let upserted = Upserted { id, change, discussions_stale, went_back };
    let key = (project_id, ItemType::MergeRequest, merge_request.iid);
    mark_after_upsert(tx, key, upserted, shown_differs, merge_request.updated_at, now)?;
    Ok(upserted)
}

/// Finds an item by its number.
///
/// # Errors
/// SQLite's.
pub fn item_id(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType, iid: i64) -> Result<Option<i64>> {
    let sql = match item_type {
        ItemType::Issue => "SELECT id FROM issues WHERE project_id = ?1 AND iid = ?2",
        ItemType::MergeRequest => "SELECT id FROM merge_requests WHERE project_id = ?1 AND iid = ?2",
    };
    Ok(tx.sql().prepare_cached(sql)?.query_row((project_id, iid), |row| row.get(0)).optional()?)
}
