//! SQL of what names may mean and of what may be told: never more than may be seen.

use rusqlite::params;

use super::json_list;
use crate::content::filter::{Bitset, Filter};
use crate::error::Result;
use crate::store::ReadTx;

/// Names of the labels that these projects define.
///
/// # Errors
/// Those of SQLite.
pub fn labels(tx: &ReadTx<'_>, projects: &[i64]) -> Result<Vec<String>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT DISTINCT name FROM labels WHERE project_id IN (SELECT value FROM json_each(?1)) ORDER BY name",
    )?;
    let rows = statement.query_map([json_list(projects)], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Usernames of authors and assignees of documents. One step in an index for each: the rows
/// between two of them are not read.
///
/// # Errors
/// Those of SQLite.
pub fn usernames(tx: &ReadTx<'_>) -> Result<Vec<String>> {
    let mut statement = tx.sql().prepare_cached(
        "WITH RECURSIVE
           authors(name) AS (
             SELECT min(author_username) FROM documents
             UNION ALL
             SELECT (SELECT min(author_username) FROM documents WHERE author_username > name)
               FROM authors WHERE name IS NOT NULL),
           assignees(name) AS (
             SELECT min(username) FROM document_assignees
             UNION ALL
             SELECT (SELECT min(username) FROM document_assignees WHERE username > name)
               FROM assignees WHERE name IS NOT NULL)
         SELECT name FROM authors WHERE name IS NOT NULL
         UNION SELECT name FROM assignees WHERE name IS NOT NULL ORDER BY name",
    )?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Number of documents that may be seen; `visible` is the compiled `access`.
///
/// # Errors
/// Those of SQLite.
pub fn visible_count(
    tx: &ReadTx<'_>,
    access: &Filter,
    visible: Option<&Bitset>,
    documents: i64,
) -> Result<i64> {
    let Some(visible) = visible else { return Ok(documents) };
    if access.projects.is_some() {
        return Ok(i64::try_from(visible.len()).unwrap_or(i64::MAX));
    }
    // The set is all but the restricted ones, and holds ids that do not exist.
    let mut statement = tx.sql().prepare_cached(
        "SELECT count(*) FROM documents INDEXED BY idx_documents_restricted
          WHERE is_confidential = 1 OR is_internal = 1",
    )?;
    let restricted: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(documents.saturating_sub(restricted))
}

/// Number of documents of a set that match an expression of FTS5.
///
/// # Errors
/// Those of SQLite.
pub fn frequency_in(tx: &ReadTx<'_>, expression: &str, set: &Bitset) -> Result<i64> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT count(*) FROM documents_fts WHERE documents_fts MATCH ?1 AND lore_allow(rowid, ?2)",
    )?;
    Ok(statement.query_row(params![expression, set.as_bytes()], |row| row.get(0))?)
}
