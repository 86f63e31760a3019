//! SQL of issues and merge requests.

use rusqlite::{OptionalExtension, ToSql};

use super::mark_moved_to;
use crate::clock::Millis;
use crate::content::hash::{Hash, Hasher};
use crate::content::{Issue, ItemType, MergeRequest};
use crate::error::{Error, Result};
use crate::store::queues::{self, mark_dirty};
use crate::store::tombstones;
use crate::store::{ReadTx, WriteTx, tables};

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
                let column = tables::item_column(item_type);
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

/// An item on its way into its table.
struct NewItem<'a> {
    project_id: i64,
    item_type: ItemType,
    iid: i64,
    content_hash: Hash,
    updated_at: Millis,
    notes_count: Option<i64>,
    /// The flag that discussions show too: that it is confidential, or a draft.
    flag: &'static str,
    shown: Hash,
    /// What is stored of it, by column; its project, number, hash and the time are added.
    columns: &'a [(&'static str, &'a dyn ToSql)],
}

/// Stores an issue and marks its documents dirty when its content changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_issue(tx: &WriteTx<'_>, project_id: i64, issue: &Issue, now: Millis) -> Result<Upserted> {
    let labels = json_list(&issue.labels)?;
    let assignees = json_list(&issue.assignees)?;
    let shown = [
        Some(issue.title.as_str()),
        Some(&labels),
        issue.web_url.as_deref(),
        Some(&issue.state),
        issue.milestone.as_deref(),
        Some(&assignees),
    ];
    let item = NewItem {
        project_id,
        item_type: ItemType::Issue,
        iid: issue.iid,
        content_hash: issue.content_hash(),
        updated_at: issue.updated_at,
        notes_count: issue.user_notes_count,
        flag: "confidential",
        shown: shown_in_threads(&shown, issue.confidential),
        columns: &[
            ("gitlab_id", &issue.gitlab_id),
            ("state", &issue.state),
            ("issue_type", &issue.issue_type),
            ("confidential", &issue.confidential),
            ("author_username", &issue.author.username),
            ("author_name", &issue.author.name),
            ("assignee_usernames", &assignees),
            ("label_names", &labels),
            ("milestone_title", &issue.milestone),
            ("web_url", &issue.web_url),
            ("created_at", &issue.created_at),
            ("updated_at", &issue.updated_at),
            ("closed_at", &issue.closed_at),
            ("due_date", &issue.due_date),
            ("user_notes_count", &issue.user_notes_count),
            ("moved_to_gitlab_id", &issue.moved_to_gitlab_id),
            ("title", &issue.title),
            ("description", &issue.description),
        ],
    };
    let upserted = upsert(tx, &item, now)?;
    if upserted.change == Change::New {
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
    let labels = json_list(&merge_request.labels)?;
    let assignees = json_list(&merge_request.assignees)?;
    let shown = [
        Some(merge_request.title.as_str()),
        Some(&labels),
        merge_request.web_url.as_deref(),
        Some(&merge_request.state),
        merge_request.milestone.as_deref(),
        Some(&assignees),
    ];
    let item = NewItem {
        project_id,
        item_type: ItemType::MergeRequest,
        iid: merge_request.iid,
        content_hash: merge_request.content_hash(),
        updated_at: merge_request.updated_at,
        notes_count: merge_request.user_notes_count,
        flag: "draft",
        shown: shown_in_threads(&shown, merge_request.draft),
        columns: &[
            ("gitlab_id", &merge_request.gitlab_id),
            ("state", &merge_request.state),
            ("draft", &merge_request.draft),
            ("author_username", &merge_request.author.username),
            ("author_name", &merge_request.author.name),
            ("assignee_usernames", &assignees),
            ("label_names", &labels),
            ("milestone_title", &merge_request.milestone),
            ("source_branch", &merge_request.source_branch),
            ("target_branch", &merge_request.target_branch),
            ("web_url", &merge_request.web_url),
            ("created_at", &merge_request.created_at),
            ("updated_at", &merge_request.updated_at),
            ("merged_at", &merge_request.merged_at),
            ("closed_at", &merge_request.closed_at),
            ("user_notes_count", &merge_request.user_notes_count),
            ("title", &merge_request.title),
            ("description", &merge_request.description),
        ],
    };
    upsert(tx, &item, now)
}

/// Compares an item with what is stored, writes it when it differs, and marks what shows it.
fn upsert(tx: &WriteTx<'_>, item: &NewItem<'_>, now: Millis) -> Result<Upserted> {
    let stored = stored(tx, item)?;
    let (change, discussions_stale) =
        compare(stored.as_ref(), &item.content_hash, item.updated_at, item.notes_count);
    if change != Change::Unchanged {
        write(tx, item, now)?;
    }
    let shown_differs = stored.as_ref().is_some_and(|stored| stored.shown != item.shown);
    let went_back = stored.as_ref().is_some_and(|stored| stored.updated_at > item.updated_at);
    let id = stored.map_or_else(|| tx.sql().last_insert_rowid(), |stored| stored.id);
    let upserted = Upserted { id, change, discussions_stale, went_back };
    let key = (item.project_id, item.item_type, item.iid);
    mark_after_upsert(tx, key, upserted, shown_differs, item.updated_at, now)?;
    Ok(upserted)
}

fn stored(tx: &ReadTx<'_>, item: &NewItem<'_>) -> Result<Option<StoredItem>> {
    let sql = format!(
        "SELECT id, content_hash, updated_at, user_notes_count, title, label_names, web_url, state,
                milestone_title, assignee_usernames, {flag}
           FROM {table} WHERE project_id = ?1 AND iid = ?2",
        flag = item.flag,
        table = tables::of_item(item.item_type),
    );
    let row = tx.sql().prepare_cached(&sql)?.query_row((item.project_id, item.iid), |row| {
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
    });
    Ok(row.optional()?)
}

fn write(tx: &WriteTx<'_>, item: &NewItem<'_>, now: Millis) -> Result<()> {
    let key: [(&str, &dyn ToSql); 2] = [("project_id", &item.project_id), ("iid", &item.iid)];
    let state: [(&str, &dyn ToSql); 2] = [("content_hash", &item.content_hash), ("synced_at", &now)];
    let kept = || item.columns.iter().chain(&state);
    let names: Vec<&str> = key.iter().chain(kept()).map(|(name, _)| *name).collect();
    let values: Vec<&dyn ToSql> = key.iter().chain(kept()).map(|(_, value)| *value).collect();
    let places: Vec<String> = (1..=names.len()).map(|place| format!("?{place}")).collect();
    let updates: Vec<String> = kept().map(|(name, _)| format!("{name} = excluded.{name}")).collect();
    let sql = format!(
        "INSERT INTO {table}({names}) VALUES ({places}) ON CONFLICT(project_id, iid) DO UPDATE SET {updates}",
        table = tables::of_item(item.item_type),
        names = names.join(", "),
        places = places.join(", "),
        updates = updates.join(", "),
    );
    tx.sql().prepare_cached(&sql)?.execute(values.as_slice())?;
    Ok(())
}

/// Finds an item by its number.
///
/// # Errors
/// SQLite's.
pub fn item_id(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType, iid: i64) -> Result<Option<i64>> {
    let sql = format!("SELECT id FROM {} WHERE project_id = ?1 AND iid = ?2", tables::of_item(item_type));
    Ok(tx.sql().prepare_cached(&sql)?.query_row((project_id, iid), |row| row.get(0)).optional()?)
}
