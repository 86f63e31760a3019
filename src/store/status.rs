//! SQL of the overview: how many of everything there are.

use serde::Serialize;

use super::{ReadTx, Store};
use crate::error::Result;

/// Documents by type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DocumentCounts {
    /// Documents of issues.
    pub issues: i64,
    /// Documents of merge requests.
    pub mrs: i64,
    /// Documents of discussions.
    pub discussions: i64,
    /// All documents.
    pub total: i64,
    /// Documents that were cut at the length limit.
    pub truncated: i64,
}

/// Rows of the entities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EntityCounts {
    /// Projects.
    pub projects: i64,
    /// Issues.
    pub issues: i64,
    /// Merge requests.
    pub merge_requests: i64,
    /// Discussions.
    pub discussions: i64,
    /// Notes, system notes included.
    pub notes: i64,
    /// Labels.
    pub labels: i64,
    /// Milestones.
    pub milestones: i64,
}

/// Returns the number of documents.
///
/// # Errors
/// SQLite's.
pub fn document_count(tx: &ReadTx<'_>) -> Result<i64> {
    Ok(tx.sql().prepare_cached("SELECT count(*) FROM documents")?.query_row([], |row| row.get(0))?)
}

/// Two indexes answer it: the rows of documents are wide, and reading them takes seconds.
const DOCUMENTS: &str =
    "SELECT count(*) FILTER (WHERE source_type = 'issue'), count(*) FILTER (WHERE source_type = 'merge_request'),
            count(*) FILTER (WHERE source_type = 'discussion'), count(*),
            (SELECT count(*) FROM documents WHERE is_truncated = 1)
       FROM documents";

/// Counts documents by type.
///
/// # Errors
/// SQLite's.
pub fn documents(tx: &ReadTx<'_>) -> Result<DocumentCounts> {
    let counts = tx.sql().prepare_cached(DOCUMENTS)?.query_row([], |row| {
        Ok(DocumentCounts {
            issues: row.get(0)?,
            mrs: row.get(1)?,
            discussions: row.get(2)?,
            total: row.get(3)?,
            truncated: row.get(4)?,
        })
    })?;
    Ok(counts)
}

/// Counts the rows of the full-text index itself. Counting the index by its own name would
/// count the documents instead: it holds no text of its own.
///
/// # Errors
/// SQLite's.
pub fn fts_rows(tx: &ReadTx<'_>) -> Result<i64> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT count(*) FROM documents_fts_docsize")?
        .query_row([], |row| row.get(0))?)
}

/// Counts the rows of the entities.
///
/// # Errors
/// SQLite's.
pub fn entities(tx: &ReadTx<'_>) -> Result<EntityCounts> {
    let count = |table: &str| -> Result<i64> {
        Ok(tx
            .sql()
            .prepare_cached(&format!("SELECT count(*) FROM {table}"))?
            .query_row([], |row| row.get(0))?)
    };
    Ok(EntityCounts {
        projects: count("projects")?,
        issues: count("issues")?,
        merge_requests: count("merge_requests")?,
        discussions: count("discussions")?,
        notes: count("notes")?,
        labels: count("labels")?,
        milestones: count("milestones")?,
    })
}

/// Sizes of the database's files, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FileSizes {
    /// The database file.
    pub database: u64,
    /// The write-ahead log, 0 when there is none.
    pub wal: u64,
}

/// Looks at the sizes of the files.
pub fn file_sizes(store: &Store) -> FileSizes {
    let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let mut wal = store.path().as_os_str().to_owned();
    wal.push("-wal");
    FileSizes { database: size(store.path()), wal: size(std::path::Path::new(&wal)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_counted_without_reading_their_rows() {
        let (_dir, store) = crate::store::fixtures::store();
        let plan: Vec<String> = store
            .read(|tx| {
                let mut statement = tx.sql().prepare(&format!("EXPLAIN QUERY PLAN {DOCUMENTS}"))?;
                let rows = statement.query_map([], |row| row.get("detail"))?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            })
            .unwrap();
        let scans: Vec<&String> = plan.iter().filter(|line| line.contains("documents")).collect();
        assert_eq!(scans.len(), 2, "{plan:?}");
        assert!(scans.iter().all(|line| line.contains("COVERING INDEX")), "{plan:?}");
        assert!(scans.iter().any(|line| line.contains("idx_documents_truncated")), "{plan:?}");
    }
}
