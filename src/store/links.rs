//! SQL of links between items as GitLab keeps them, and of when they were looked at.
//!
//! `item_links` holds what the API said, per item. `document_refs` holds the same, with
//! `origin = 'api'`, for every item that has a document, beside what its text says. Both are
//! brought together in the transaction that changes either.

use std::collections::BTreeSet;

use rusqlite::OptionalExtension;

use super::{ReadTx, WriteTx, tables};
use crate::backoff::{self, QUEUE};
use crate::clock::Millis;
use crate::content::refs::{RefKind, Reference};
use crate::content::{ItemRef, ItemType};
use crate::error::{Error, Result};

/// Longest error text that is kept, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// An item whose links are to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkEntry {
    /// Project in this database.
    pub project_id: i64,
    /// Kind of the item.
    pub item_type: ItemType,
    /// Number of the item.
    pub iid: i64,
    /// Its `updated_at` when it was read from the database.
    pub updated_at: Millis,
    /// Failures so far.
    pub attempt_count: i64,
}

/// Returns items of a source that moved since their links were looked at: those that never
/// failed first, then the most recently updated. With `all`, items that did not move too.
///
/// # Errors
/// SQLite's.
pub fn to_look_at(
    tx: &ReadTx<'_>,
    source_name: &str,
    all: bool,
    now: Millis,
    limit: i64,
) -> Result<Vec<LinkEntry>> {
    let part = |item_type: ItemType| {
        format!(
            "SELECT i.project_id, '{item_type}', i.iid, i.updated_at, coalesce(l.attempt_count, 0)
               FROM {table} i JOIN projects p ON p.id = i.project_id
               LEFT JOIN link_looks l ON l.project_id = i.project_id AND l.item_type = '{item_type}' AND l.item_iid = i.iid
              WHERE p.source_name = ?1 AND (?2 OR l.seen_updated_at IS NULL OR l.seen_updated_at < i.updated_at)
                AND (l.next_attempt_at IS NULL OR l.next_attempt_at <= ?3)",
            item_type = item_type.as_str(),
            table = tables::of_item(item_type),
        )
    };
    let sql = format!(
        "{} UNION ALL {} ORDER BY 5, 4 DESC, 1, 2, 3 LIMIT ?4",
        part(ItemType::Issue),
        part(ItemType::MergeRequest)
    );
    let mut statement = tx.sql().prepare_cached(&sql)?;
    let mut rows = statement.query((source_name, all, now, limit))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        entries.push(LinkEntry {
            project_id: row.get(0)?,
            item_type: item_type(&row.get::<_, String>(1)?)?,
            iid: row.get(2)?,
            updated_at: row.get(3)?,
            attempt_count: row.get(4)?,
        });
    }
    Ok(entries)
}

fn item_type(text: &str) -> Result<ItemType> {
    ItemType::ALL
        .into_iter()
        .find(|known| known.as_str() == text)
        .ok_or_else(|| Error::internal(format!("unknown item type {text:?}")))
}

/// Replaces the links of an item, those of `kinds`, by what the server told, and remembers
/// that the item was looked at. Links of other kinds stay. Returns whether any changed.
///
/// # Errors
/// SQLite's.
pub fn replace(
    tx: &WriteTx<'_>,
    entry: &LinkEntry,
    kinds: &[RefKind],
    links: &BTreeSet<Reference>,
) -> Result<bool> {
    let LinkEntry { project_id, item_type, iid, updated_at, .. } = *entry;
    if super::entities::item_id(tx, project_id, item_type, iid)?.is_none() {
        // It was deleted while its links were on their way.
        return Ok(false);
    }
    let stored = stored(tx, project_id, item_type, iid)?;
    let wanted: BTreeSet<&Reference> = links
        .iter()
        .filter(|link| kinds.contains(&link.kind))
        .chain(stored.iter().filter(|link| !kinds.contains(&link.kind)))
        .collect();
    let changed = stored.iter().collect::<BTreeSet<_>>() != wanted;
    if changed {
        tx.sql()
            .prepare_cached(
                "DELETE FROM item_links WHERE project_id = ?1 AND item_type = ?2 AND item_iid = ?3",
            )?
            .execute((project_id, item_type.as_str(), iid))?;
        let mut insert = tx.sql().prepare_cached(
            "INSERT INTO item_links(project_id, item_type, item_iid, kind, target_type, target_path, target_iid)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        for Reference { kind, target } in wanted {
            insert.execute((
                project_id,
                item_type.as_str(),
                iid,
                kind.as_str(),
                target.item_type.as_str(),
                &target.project_path,
                target.iid,
            ))?;
        }
        if let Some(document) = document(tx, project_id, item_type, iid)? {
            apply(tx, document)?;
        }
    }
    tx.sql()
        .prepare_cached(
            "INSERT INTO link_looks(project_id, item_type, item_iid, seen_updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT(project_id, item_type, item_iid) DO UPDATE SET seen_updated_at = excluded.seen_updated_at,
               attempt_count = 0, next_attempt_at = NULL, last_error = NULL",
        )?
        .execute((project_id, item_type.as_str(), iid, updated_at))?;
    Ok(changed)
}

fn stored(tx: &ReadTx<'_>, project_id: i64, own: ItemType, iid: i64) -> Result<BTreeSet<Reference>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT kind, target_type, target_path, target_iid FROM item_links
          WHERE project_id = ?1 AND item_type = ?2 AND item_iid = ?3",
    )?;
    let mut rows = statement.query((project_id, own.as_str(), iid))?;
    let mut links = BTreeSet::new();
    while let Some(row) = rows.next()? {
        let kind: String = row.get(0)?;
        let kind = RefKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or_else(|| Error::internal(format!("unknown kind of link {kind:?}")))?;
        let target = ItemRef {
            item_type: item_type(&row.get::<_, String>(1)?)?,
            project_path: row.get(2)?,
            iid: row.get(3)?,
        };
        links.insert(Reference { kind, target });
    }
    Ok(links)
}

/// The document of an item itself.
fn document(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType, iid: i64) -> Result<Option<i64>> {
    let Some(item) = super::entities::item_id(tx, project_id, item_type, iid)? else { return Ok(None) };
    Ok(tx
        .sql()
        .prepare_cached("SELECT id FROM documents WHERE source_type = ?1 AND source_id = ?2")?
        .query_row((item_type.as_str(), item), |row| row.get(0))
        .optional()?)
}

/// Brings the references of an item's document to what its links say, beside its text. Does
/// nothing for the document of a discussion.
///
/// # Errors
/// SQLite's.
pub(super) fn apply(tx: &WriteTx<'_>, document_id: i64) -> Result<()> {
    tx.sql()
        .prepare_cached("DELETE FROM document_refs WHERE document_id = ?1 AND origin = 'api'")?
        .execute([document_id])?;
    tx.sql()
        .prepare_cached(
            "INSERT INTO document_refs(document_id, kind, target_type, target_path, target_iid, origin)
             SELECT d.id, l.kind, l.target_type, l.target_path, l.target_iid, 'api'
               FROM documents d JOIN item_links l
                 ON l.project_id = d.project_id AND l.item_type = d.item_type AND l.item_iid = d.item_iid
              WHERE d.id = ?1 AND d.source_type = d.item_type
             ON CONFLICT DO NOTHING",
        )?
        .execute([document_id])?;
    Ok(())
}

/// Records that the links of an item cannot be read, and when they may be tried again.
///
/// # Errors
/// SQLite's.
pub fn fail(tx: &WriteTx<'_>, entry: &LinkEntry, error: &str, now: Millis) -> Result<()> {
    if super::entities::item_id(tx, entry.project_id, entry.item_type, entry.iid)?.is_none() {
        return Ok(());
    }
    let attempts = entry.attempt_count + 1;
    let failures = u32::try_from(attempts).unwrap_or(u32::MAX);
    let error: String = error.chars().take(MAX_ERROR_CHARS).collect();
    tx.sql()
        .prepare_cached(
            "INSERT INTO link_looks(project_id, item_type, item_iid, attempt_count, next_attempt_at, last_error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT(project_id, item_type, item_iid) DO UPDATE SET attempt_count = excluded.attempt_count,
               next_attempt_at = excluded.next_attempt_at, last_error = excluded.last_error",
        )?
        .execute((
            entry.project_id,
            entry.item_type.as_str(),
            entry.iid,
            attempts,
            QUEUE.next_attempt_at(now, failures, backoff::random()),
            error,
        ))?;
    Ok(())
}

/// Whether a stream of a project that failed before is left alone still.
///
/// # Errors
/// SQLite's.
pub fn is_left_alone(tx: &ReadTx<'_>, project_id: i64, stream: &str, now: Millis) -> Result<bool> {
    let until: Option<Millis> = tx
        .sql()
        .prepare_cached("SELECT next_attempt_at FROM stream_failures WHERE project_id = ?1 AND stream = ?2")?
        .query_row((project_id, stream), |row| row.get(0))
        .optional()?
        .flatten();
    Ok(until.is_some_and(|until| until > now))
}
