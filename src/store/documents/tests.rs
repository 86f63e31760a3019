//! Looks into the database for the tests of this folder and of the steps.

use crate::error::Result;
use crate::store::{ReadTx, WriteTx};

/// The token counts of every document: a count that a cascade left behind is no matter.
pub(crate) fn lengths(tx: &ReadTx<'_>) -> Result<Vec<(i64, [u8; 8])>> {
    let mut statement = tx.sql().prepare(
        "SELECT d.id, substr(l.lengths, 1 + 8 * (d.id % 1024), 8) FROM documents d
           JOIN document_lengths l ON l.block = d.id / 1024 ORDER BY d.id",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Documents that match a full-text query, in order of their type and source.
pub(crate) fn found(tx: &ReadTx<'_>, query: &str) -> Result<Vec<String>> {
    let mut statement = tx.sql().prepare(
        "SELECT d.source_type || ' ' || d.source_id FROM documents_fts f JOIN documents d ON d.id = f.rowid
          WHERE documents_fts MATCH ?1 ORDER BY d.source_type <> 'issue', d.source_type <> 'merge_request', d.source_id",
    )?;
    let rows = statement.query_map([query], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Everything that is stored of documents, as text.
pub(crate) fn dump(tx: &ReadTx<'_>) -> Result<String> {
    let mut statement = tx.sql().prepare(
        "SELECT 'document ' || id || ' updated ' || updated_at || ' ' || meta_hash || hex(source_hash) || content_text FROM documents
         UNION ALL SELECT 'label ' || label_name FROM document_labels
         UNION ALL SELECT 'path ' || path FROM document_paths
         UNION ALL SELECT 'assignee ' || username FROM document_assignees
         UNION ALL SELECT 'ref ' || kind || target_path || target_iid FROM document_refs",
    )?;
    let rows: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(rows.join("\n"))
}

/// Makes an issue unreadable: its labels are JSON, but no list of names.
pub(crate) fn spoil_labels(tx: &WriteTx<'_>, issue_id: i64) -> Result<()> {
    tx.sql().execute("UPDATE issues SET label_names = '{\"a\":1}' WHERE id = ?1", [issue_id])?;
    Ok(())
}

/// Makes SQLite refuse one document.
pub(crate) fn refuse_document_of(tx: &WriteTx<'_>, issue_id: i64) -> Result<()> {
    tx.sql().execute_batch(&format!(
        "CREATE TRIGGER refuse BEFORE INSERT ON documents WHEN new.source_id = {issue_id}
         BEGIN SELECT RAISE(ABORT, 'refused on purpose'); END"
    ))?;
    Ok(())
}

/// Deletes an issue as reconciliation does.
pub(crate) fn delete_issue(tx: &WriteTx<'_>, issue_id: i64) -> Result<()> {
    tx.sql().execute("DELETE FROM issues WHERE id = ?1", [issue_id])?;
    Ok(())
}
