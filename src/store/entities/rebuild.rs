//! SQL of rebuilding: an entity that was parsed again is written only where what is stored
//! differs from it, whatever its hash says.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params};

use super::{StoredProject, item_id, merge_discussions, upsert_issue, upsert_merge_request};
use crate::clock::Millis;
use crate::content::{Discussion, Issue, ItemType, MergeRequest};
use crate::error::{Error, Result};
use crate::store::queues::mark_all_sql;
use crate::store::{ReadTx, WriteTx, tables};

/// What was parsed again.
#[derive(Debug, Clone)]
pub enum Rebuilt {
    /// An issue.
    Issue(Box<Issue>),
    /// A merge request.
    MergeRequest(Box<MergeRequest>),
    /// A discussion of an item.
    Discussion {
        /// Kind of the item.
        item_type: ItemType,
        /// Its number.
        iid: i64,
        /// The discussion.
        discussion: Box<Discussion>,
    },
}

/// Writes one entity where what is stored of it differs. Returns whether anything did; its
/// documents are to be made again then.
///
/// # Errors
/// SQLite's.
pub fn rebuild(tx: &WriteTx<'_>, project: &StoredProject, entity: &Rebuilt, now: Millis) -> Result<bool> {
    let (item_type, iid) = match entity {
        Rebuilt::Issue(issue) => (ItemType::Issue, issue.iid),
        Rebuilt::MergeRequest(request) => (ItemType::MergeRequest, request.iid),
        Rebuilt::Discussion { item_type, iid, .. } => (*item_type, *iid),
    };
    let known = item_id(tx, project.id, item_type, iid)?;
    let before = look(tx, project.id, known, entity)?;
    // Tried for real, and taken back when it comes out the same: the one way of writing an
    // entity decides what is stored of it, and no second list of columns can be forgotten.
    tx.sql().execute_batch("SAVEPOINT rebuild")?;
    match entity {
        Rebuilt::Issue(issue) => {
            let mut issue = issue.clone();
            keep_renames(tx, project.id, "issues", known, &mut issue.labels, &mut issue.milestone)?;
            forget_hash(tx, "issues", known)?;
            upsert_issue(tx, project.id, &issue, now)?;
        }
        Rebuilt::MergeRequest(request) => {
            let mut request = request.clone();
            keep_renames(
                tx,
                project.id,
                "merge_requests",
                known,
                &mut request.labels,
                &mut request.milestone,
            )?;
            forget_hash(tx, "merge_requests", known)?;
            upsert_merge_request(tx, project.id, &request, now)?;
        }
        Rebuilt::Discussion { discussion, .. } => {
            let Some(item) = known else {
                tx.sql().execute_batch("RELEASE rebuild")?;
                return Ok(false);
            };
            let column = tables::item_column(item_type);
            tx.sql()
                .prepare_cached(&format!(
                    "UPDATE discussions SET content_hash = x'' WHERE {column} = ?1 AND gitlab_discussion_id = ?2"
                ))?
                .execute((item, &discussion.gitlab_id))?;
            let list = std::slice::from_ref(&**discussion);
            // All of its notes are hidden from us: there is nothing to store.
            let list = if discussion.notes.is_empty() { &[][..] } else { list };
            merge_discussions(tx, project.id, item_type, item, list, now)?;
        }
    }
    let item = item_id(tx, project.id, item_type, iid)?;
    let differs = look(tx, project.id, item, entity)? != before;
    if differs {
        // What was made of the damaged row may look as if it were made of this one.
        tx.sql()
            .prepare_cached("UPDATE documents SET source_hash = x'' WHERE item_type = ?1 AND item_id = ?2")?
            .execute((item_type.as_str(), item))?;
        let select = "SELECT source_type, source_id, ?3 FROM documents WHERE item_type = ?1 AND item_id = ?2";
        tx.sql().prepare_cached(&mark_all_sql(select))?.execute((item_type.as_str(), item, now))?;
        tx.sql().execute_batch("RELEASE rebuild")?;
    } else {
        tx.sql().execute_batch("ROLLBACK TO rebuild; RELEASE rebuild")?;
    }
    Ok(differs)
}

/// A payload names labels and milestones as they were called when it came. Where they differ
/// from what is stored by nothing but names that the project knows no more, they were renamed
/// since, and the stored names stand.
fn keep_renames(
    tx: &ReadTx<'_>,
    project_id: i64,
    table: &str,
    id: Option<i64>,
    labels: &mut Vec<String>,
    milestone: &mut Option<String>,
) -> Result<()> {
    let stored: Option<(String, Option<String>)> = tx
        .sql()
        .prepare_cached(&format!("SELECT label_names, milestone_title FROM {table} WHERE id = ?1"))?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((stored_labels, stored_milestone)) = stored else { return Ok(()) };
    let is_known = |sql: &str, name: &str| -> Result<bool> {
        Ok(tx.sql().prepare_cached(sql)?.exists((project_id, name))?)
    };
    let is_renamed =
        |sql: &str, old: &str, new: &str| Ok::<_, Error>(!is_known(sql, old)? && is_known(sql, new)?);
    let known_label = "SELECT 1 FROM labels WHERE project_id = ?1 AND name = ?2";
    let known_milestone = "SELECT 1 FROM milestones WHERE project_id = ?1 AND title = ?2";
    let stored_labels: Vec<String> = serde_json::from_str(&stored_labels).unwrap_or_default();
    let old: Vec<&String> = labels.iter().filter(|name| !stored_labels.contains(name)).collect();
    let new: Vec<&String> = stored_labels.iter().filter(|name| !labels.contains(name)).collect();
    let mut are_renamed = !old.is_empty() && old.len() == new.len();
    for (old, new) in old.into_iter().zip(new) {
        are_renamed = are_renamed && is_renamed(known_label, old, new)?;
    }
    if are_renamed {
        *labels = stored_labels;
    }
    if let (Some(old), Some(new)) = (milestone.as_deref(), stored_milestone)
        && old != new
        && is_renamed(known_milestone, old, &new)?
    {
        *milestone = Some(new);
    }
    Ok(())
}

fn forget_hash(tx: &WriteTx<'_>, table: &str, id: Option<i64>) -> Result<()> {
    tx.sql()
        .prepare_cached(&format!("UPDATE {table} SET content_hash = x'' WHERE id = ?1"))?
        .execute([id])?;
    Ok(())
}

/// Everything that is stored of an entity, without the time of its storing.
fn look(tx: &ReadTx<'_>, project_id: i64, item: Option<i64>, entity: &Rebuilt) -> Result<Vec<Vec<Value>>> {
    match entity {
        Rebuilt::Issue(issue) => {
            rows(tx.sql(), "SELECT * FROM issues WHERE project_id = ?1 AND iid = ?2", (project_id, issue.iid))
        }
        Rebuilt::MergeRequest(request) => rows(
            tx.sql(),
            "SELECT * FROM merge_requests WHERE project_id = ?1 AND iid = ?2",
            (project_id, request.iid),
        ),
        Rebuilt::Discussion { item_type, discussion, .. } => {
            let column = tables::item_column(*item_type);
            let condition = format!("{column} = ?1 AND gitlab_discussion_id = ?2");
            let key = (item, &discussion.gitlab_id);
            let mut found = rows(tx.sql(), &format!("SELECT * FROM discussions WHERE {condition}"), key)?;
            found.extend(rows(
                tx.sql(),
                &format!(
                    "SELECT * FROM notes WHERE discussion_id IN (SELECT id FROM discussions WHERE {condition})
                      ORDER BY position"
                ),
                key,
            )?);
            Ok(found)
        }
    }
}

/// Columns that say when, or under which number of ours, something was stored.
const OURS: [&str; 2] = ["id", "synced_at"];

fn rows(sql: &Connection, query: &str, params: impl Params) -> Result<Vec<Vec<Value>>> {
    let mut statement = sql.prepare_cached(query)?;
    let wanted: Vec<usize> = statement
        .column_names()
        .enumerate()
        .filter(|(_, name)| !OURS.contains(name))
        .map(|(index, _)| index)
        .collect();
    let found = statement.query_map(params, |row| wanted.iter().map(|index| row.get(*index)).collect())?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}

/// Returns how many notes an item is said to have; 0 when that is not known.
///
/// # Errors
/// SQLite's.
pub fn notes_count(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType, iid: i64) -> Result<i64> {
    let table = tables::of_item(item_type);
    Ok(tx
        .sql()
        .prepare_cached(&format!(
            "SELECT coalesce(max(user_notes_count), 0) FROM {table} WHERE project_id = ?1 AND iid = ?2"
        ))?
        .query_row((project_id, iid), |row| row.get(0))?)
}
