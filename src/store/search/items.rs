//! SQL of items and their documents.

use rusqlite::params;

use super::json_list;
use crate::content::ItemType;
use crate::error::Result;
use crate::store::ReadTx;

/// The item that a document belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemKey {
    /// Whether it is a merge request.
    pub merge_request: bool,
    /// Local id of the issue or merge request.
    pub item_id: i64,
    /// Whether the document is one of its discussions.
    pub is_discussion: bool,
}

/// The items of documents, in the order of `ids`. An id without a document is left out.
///
/// # Errors
/// Those of SQLite.
pub fn items(tx: &ReadTx<'_>, ids: &[i64]) -> Result<Vec<(i64, ItemKey)>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id, d.item_type = 'merge_request', d.item_id, d.source_type = 'discussion'
           FROM json_each(?1) AS j CROSS JOIN documents AS d INDEXED BY idx_documents_key ON d.id = j.value ORDER BY j.key",
    )?;
    let rows = statement.query_map([json_list(ids)], |row| {
        Ok((
            row.get(0)?,
            ItemKey { merge_request: row.get(1)?, item_id: row.get(2)?, is_discussion: row.get(3)? },
        ))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Documents of the items that have this number, with their projects. One look-up a project:
/// there are far fewer projects than items.
///
/// # Errors
/// Those of SQLite.
pub fn numbered(tx: &ReadTx<'_>, item_type: ItemType, iid: i64) -> Result<Vec<(i64, i64)>> {
    let sql = match item_type {
        ItemType::Issue => {
            "SELECT d.id, p.id FROM projects AS p
               CROSS JOIN issues AS i ON i.project_id = p.id AND i.iid = ?1
               JOIN documents AS d ON d.source_type = 'issue' AND d.source_id = i.id ORDER BY d.id"
        }
        ItemType::MergeRequest => {
            "SELECT d.id, p.id FROM projects AS p
               CROSS JOIN merge_requests AS m ON m.project_id = p.id AND m.iid = ?1
               JOIN documents AS d ON d.source_type = 'merge_request' AND d.source_id = m.id ORDER BY d.id"
        }
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement.query_map([iid], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Documents of an item: its own first, then those of its discussions.
///
/// # Errors
/// Those of SQLite.
pub fn documents_of(tx: &ReadTx<'_>, item_type: ItemType, item_id: i64) -> Result<Vec<i64>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT id FROM documents WHERE item_type = ?1 AND item_id = ?2
          ORDER BY source_type = 'discussion', id",
    )?;
    let rows = statement.query_map(params![item_type.as_str(), item_id], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
