//! SQL of what is gone upstream: strikes against items that were found missing, and the
//! deletion of items with everything that was made of them.

use std::collections::BTreeSet;

use rusqlite::OptionalExtension;
use serde::Serialize;

use super::documents::delete_documents;
use super::search::documents_of;
use super::{ReadTx, WriteTx, tables};
use crate::clock::Millis;
use crate::content::ItemType;
use crate::error::{Error, Result};

/// Strikes after which an item may be deleted.
pub const STRIKES: i64 = 2;

/// An item as far as its absence is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// Number in the project.
    pub iid: i64,
    /// Whether only members see it.
    pub is_confidential: bool,
}

/// Returns the items of a project that are stored.
///
/// # Errors
/// SQLite's.
pub fn known(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType) -> Result<Vec<Known>> {
    let sql = match item_type {
        ItemType::Issue => "SELECT iid, confidential FROM issues WHERE project_id = ?1 ORDER BY iid",
        ItemType::MergeRequest => "SELECT iid, 0 FROM merge_requests WHERE project_id = ?1 ORDER BY iid",
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement
        .query_map([project_id], |row| Ok(Known { iid: row.get(0)?, is_confidential: row.get(1)? }))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Notes that items were found missing; the same proof (a run, an export) counts once.
///
/// # Errors
/// SQLite's.
pub fn strike(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    iids: &[i64],
    proof: &str,
    now: Millis,
) -> Result<()> {
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO item_strikes(project_id, item_type, iid, strikes, proof, first_at, last_at)
         VALUES (?1, ?2, ?3, 1, ?4, ?5, ?5)
         ON CONFLICT(project_id, item_type, iid) DO UPDATE SET strikes = strikes + 1, proof = excluded.proof,
           last_at = excluded.last_at
         WHERE proof <> excluded.proof",
    )?;
    for iid in iids {
        statement.execute((project_id, item_type.as_str(), iid, proof, now))?;
    }
    Ok(())
}

/// Forgets the strikes against items that were seen. Returns how many there were.
///
/// # Errors
/// SQLite's.
pub fn forgive(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    seen: &BTreeSet<i64>,
) -> Result<usize> {
    let struck = struck(tx, project_id, item_type, 1)?;
    let mut n = 0;
    for iid in struck.iter().filter(|iid| seen.contains(iid)) {
        n += tx
            .sql()
            .prepare_cached("DELETE FROM item_strikes WHERE project_id = ?1 AND item_type = ?2 AND iid = ?3")?
            .execute((project_id, item_type.as_str(), iid))?;
    }
    Ok(n)
}

/// Returns the items of a project with at least so many strikes.
///
/// # Errors
/// SQLite's.
pub fn struck(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType, at_least: i64) -> Result<Vec<i64>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT iid FROM item_strikes WHERE project_id = ?1 AND item_type = ?2 AND strikes >= ?3 ORDER BY iid",
    )?;
    let rows = statement.query_map((project_id, item_type.as_str(), at_least), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Deletes an item: its documents with their chunks, vectors and references, its discussions,
/// payloads and queue entries. A tombstone remains. Returns whether it was stored.
///
/// # Errors
/// SQLite's.
pub fn bury(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    iid: i64,
    reason: &str,
    now: Millis,
) -> Result<bool> {
    let (table, column) = (tables::of_item(item_type), tables::item_column(item_type));
    let sql = tx.sql();
    sql.prepare_cached("DELETE FROM item_strikes WHERE project_id = ?1 AND item_type = ?2 AND iid = ?3")?
        .execute((project_id, item_type.as_str(), iid))?;
    let stored: Option<(i64, i64)> = sql
        .prepare_cached(&format!("SELECT id, gitlab_id FROM {table} WHERE project_id = ?1 AND iid = ?2"))?
        .query_row((project_id, iid), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, gitlab_id)) = stored else { return Ok(false) };
    delete_documents(tx, &documents_of(tx, item_type, id)?)?;
    sql.prepare_cached(&format!(
        "DELETE FROM dirty_sources WHERE (source_type = ?1 AND source_id = ?2)
            OR (source_type = 'discussion' AND source_id IN (SELECT id FROM discussions WHERE {column} = ?2))"
    ))?
    .execute((item_type.as_str(), id))?;
    sql.prepare_cached(
        "DELETE FROM pending_discussion_fetches WHERE project_id = ?1 AND noteable_type = ?2 AND noteable_iid = ?3",
    )?
    .execute((project_id, item_type.noteable_type(), iid))?;
    // `0` is the character after `/`.
    let (from, to) =
        (format!("{}/{iid}/", item_type.noteable_type()), format!("{}/{iid}0", item_type.noteable_type()));
    sql.prepare_cached(
        "DELETE FROM raw_payloads WHERE project_id = ?1 AND ((resource_type = ?2 AND resource_key = ?3)
            OR (resource_type = 'discussion' AND resource_key >= ?4 AND resource_key < ?5))",
    )?
    .execute((project_id, item_type.as_str(), iid.to_string(), from, to))?;
    sql.prepare_cached(&format!("DELETE FROM {table} WHERE id = ?1"))?.execute([id])?;
    if item_type == ItemType::Issue {
        super::entities::mark_moved_to(tx, project_id, gitlab_id, now)?;
    }
    sql.prepare_cached(
        "INSERT INTO tombstones(project_id, item_type, iid, gitlab_id, deleted_at, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT(project_id, item_type, iid) DO UPDATE SET gitlab_id = excluded.gitlab_id,
           deleted_at = excluded.deleted_at, reason = excluded.reason",
    )?
    .execute((project_id, item_type.as_str(), iid, gitlab_id, now, reason))?;
    Ok(true)
}

/// After the items of a project were deleted: forgets its labels, milestones and where its
/// streams stood, so that it is read from the beginning should it come back.
///
/// # Errors
/// SQLite's.
pub fn clear_project(tx: &WriteTx<'_>, project_id: i64) -> Result<()> {
    for table in ["labels", "milestones", "cursors", "stream_failures", "raw_payloads", "item_strikes"] {
        tx.sql().execute(&format!("DELETE FROM {table} WHERE project_id = ?1"), [project_id])?;
    }
    Ok(())
}

/// Removes the tombstone of an item that is there again.
///
/// # Errors
/// SQLite's.
pub(super) fn unbury(tx: &WriteTx<'_>, project_id: i64, item_type: ItemType, iid: i64) -> Result<()> {
    for table in ["tombstones", "item_strikes"] {
        tx.sql()
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE project_id = ?1 AND item_type = ?2 AND iid = ?3"
            ))?
            .execute((project_id, item_type.as_str(), iid))?;
    }
    Ok(())
}

/// How many items are gone, or may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Gone {
    /// Items that were found missing and are still stored.
    pub missing: i64,
    /// Items that were deleted because they are gone upstream.
    pub tombstones: i64,
}

/// Counts items that are gone, or may be.
///
/// # Errors
/// SQLite's.
pub fn gone(tx: &ReadTx<'_>) -> Result<Gone> {
    let counts = tx
        .sql()
        .prepare_cached("SELECT (SELECT count(*) FROM item_strikes), (SELECT count(*) FROM tombstones)")?
        .query_row([], |row| Ok(Gone { missing: row.get(0)?, tombstones: row.get(1)? }))?;
    Ok(counts)
}

/// What a token was seen to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceAccess {
    /// Id of its user.
    pub user_id: Option<i64>,
    /// Its scopes, sorted; none when they are not known.
    pub scopes: Vec<String>,
}

/// Returns what the token of a source had.
///
/// # Errors
/// SQLite's.
pub fn source_access(tx: &ReadTx<'_>, source: &str) -> Result<Option<SourceAccess>> {
    let row: Option<(Option<i64>, String)> = tx
        .sql()
        .prepare_cached("SELECT user_id, scopes FROM source_access WHERE source_name = ?1")?
        .query_row([source], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    row.map(|(user_id, scopes)| {
        let scopes = serde_json::from_str(&scopes)
            .map_err(|error| Error::internal("read the scopes of a token").because(error))?;
        Ok(SourceAccess { user_id, scopes })
    })
    .transpose()
}

/// Takes what a token has as the measure.
///
/// # Errors
/// SQLite's.
pub fn set_source_access(tx: &WriteTx<'_>, source: &str, access: &SourceAccess) -> Result<()> {
    let scopes = serde_json::Value::from(access.scopes.as_slice()).to_string();
    tx.sql()
        .prepare_cached(
            "INSERT INTO source_access(source_name, user_id, scopes) VALUES (?1, ?2, ?3)
             ON CONFLICT(source_name) DO UPDATE SET user_id = excluded.user_id, scopes = excluded.scopes
             WHERE user_id IS NOT excluded.user_id OR scopes <> excluded.scopes",
        )?
        .execute((source, access.user_id, scopes))?;
    Ok(())
}

/// Returns the access level that the token had in a project.
///
/// # Errors
/// SQLite's.
pub fn project_access(tx: &ReadTx<'_>, project_id: i64) -> Result<Option<i64>> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT access_level FROM project_access WHERE project_id = ?1")?
        .query_row([project_id], |row| row.get(0))
        .optional()?)
}

/// Takes an access level as the measure.
///
/// # Errors
/// SQLite's.
pub fn set_project_access(tx: &WriteTx<'_>, project_id: i64, level: i64) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO project_access(project_id, access_level) VALUES (?1, ?2)
             ON CONFLICT(project_id) DO UPDATE SET access_level = excluded.access_level
             WHERE access_level <> excluded.access_level",
        )?
        .execute((project_id, level))?;
    Ok(())
}
