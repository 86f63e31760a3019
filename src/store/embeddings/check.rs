//! SQL of the invariants of chunks and vectors, and of their repair.

use serde::Serialize;

use super::{codes_table, documents::insert_code, identities, size};
use crate::error::Result;
use crate::store::knn::{half, hamming};
use crate::store::{ReadTx, WriteTx};

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VectorFinding {
    /// Name of the check.
    pub check: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// Whether the rows are nobody's, rather than missing or wrong.
    pub is_orphan: bool,
    /// Rows concerned.
    pub count: i64,
}

/// Checks that are one count each: name, meaning, SQL.
const CHECKS: &[(&str, &str, &str)] = &[
    (
        "vectors_missing",
        "chunks without a vector and without an error",
        "SELECT count(*) FROM chunks c WHERE c.last_error IS NULL AND NOT EXISTS (SELECT 1 FROM chunk_vectors v WHERE v.chunk_id = c.id)",
    ),
    (
        "vectors_orphaned",
        "vectors without their chunk",
        "SELECT count(*) FROM chunk_vectors v WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.id = v.chunk_id)",
    ),
    (
        "vectors_of_failed_chunks",
        "vectors of chunks that are recorded as failed",
        "SELECT count(*) FROM chunks c JOIN chunk_vectors v ON v.chunk_id = c.id WHERE c.last_error IS NOT NULL",
    ),
    (
        "vectors_wrong_dimension",
        "vectors of another length than their identity's",
        "SELECT count(*) FROM chunks c JOIN chunk_vectors v ON v.chunk_id = c.id JOIN embedding_identities i ON i.id = c.identity_id
          WHERE length(v.vector) <> 2 * i.dims",
    ),
    (
        "chunks_orphaned",
        "chunks without their document",
        "SELECT count(*) FROM chunks c WHERE NOT EXISTS (SELECT 1 FROM chunked_documents d WHERE d.document_id = c.document_id AND d.identity_id = c.identity_id)
            OR NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = c.document_id)",
    ),
    (
        "chunks_miscounted",
        "documents whose chunks are not as many as recorded",
        "SELECT count(*) FROM chunked_documents d JOIN embedding_identities i ON i.id = d.identity_id AND i.state <> 'retired'
          WHERE d.is_stale = 0 AND d.chunk_count <> (SELECT count(*) FROM chunks c WHERE c.document_id = d.document_id AND c.identity_id = d.identity_id)",
    ),
    (
        "embeddings_stale",
        "documents whose text changed without being marked",
        "SELECT count(*) FROM chunked_documents c JOIN documents d ON d.id = c.document_id WHERE c.is_stale = 0 AND c.content_hash <> d.content_hash",
    ),
];

/// Returns what is broken; nothing when all is well.
///
/// # Errors
/// SQLite's.
pub fn findings(tx: &ReadTx<'_>) -> Result<Vec<VectorFinding>> {
    let mut found = Vec::new();
    let mut check = |check, meaning, sql: &str| -> Result<()> {
        let count: i64 = tx.sql().prepare(sql)?.query_row([], |row| row.get(0))?;
        if count > 0 {
            let is_orphan = matches!(check, "vectors_orphaned" | "chunks_orphaned" | "codes_orphaned");
            found.push(VectorFinding { check, meaning, is_orphan, count });
        }
        Ok(())
    };
    for (name, meaning, sql) in CHECKS {
        check(name, meaning, sql)?;
    }
    let useless = i64::try_from(useless(tx)?.len()).unwrap_or(i64::MAX);
    check(USELESS, "vectors that are zero or hold what is no number", &format!("SELECT {useless}"))?;
    for (id, _) in live_ids(tx)? {
        let table = codes_table(id);
        if !has_table(tx, &table)? {
            check("codes_missing", "identities without their table of codes", "SELECT 1")?;
            continue;
        }
        check(
            "codes_missing",
            "vectors that no search can find",
            &format!(
                "SELECT count(*) FROM chunks c CROSS JOIN chunk_vectors v ON v.chunk_id = c.id
                  WHERE c.identity_id = {id} AND NOT EXISTS (SELECT 1 FROM {table}_rowids r WHERE r.rowid = c.id)"
            ),
        )?;
        check(
            "codes_orphaned",
            "codes without their chunk",
            &format!(
                "SELECT count(*) FROM {table}_rowids r
                  WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.id = r.rowid AND c.identity_id = {id})"
            ),
        )?;
    }
    Ok(found)
}

/// Name of the check of what the vectors hold.
const USELESS: &str = "vectors_useless";

/// Chunks whose vectors have no direction: nothing is ever near to them. What is nobody's or of
/// the wrong length is found by that.
fn useless(tx: &ReadTx<'_>) -> Result<Vec<i64>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT v.chunk_id, v.vector FROM chunk_vectors v JOIN chunks c ON c.id = v.chunk_id
           JOIN embedding_identities i ON i.id = c.identity_id WHERE length(v.vector) = 2 * i.dims",
    )?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        if row.get_ref(1)?.as_blob().is_ok_and(|bytes| !half::is_direction(bytes)) {
            found.push(row.get(0)?);
        }
    }
    Ok(found)
}

/// Names of everything that is looked for; the last two are looked for per identity.
#[cfg(test)]
pub(crate) fn names() -> Vec<&'static str> {
    CHECKS.iter().map(|(name, ..)| *name).chain([USELESS, "codes_missing", "codes_orphaned"]).collect()
}

fn live_ids(tx: &ReadTx<'_>) -> Result<Vec<(i64, usize)>> {
    let mut statement = tx
        .sql()
        .prepare_cached("SELECT id, dims FROM embedding_identities WHERE state <> 'retired' ORDER BY id")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, size(row, 1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn has_table(tx: &ReadTx<'_>, table: &str) -> Result<bool> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)")?
        .query_row([table], |row| row.get(0))?)
}

/// Makes the codes of every identity anew from the vectors. Returns how many codes there are.
///
/// # Errors
/// SQLite's.
pub fn rebuild_codes(tx: &WriteTx<'_>) -> Result<i64> {
    let mut codes = 0;
    for (id, dims) in live_ids(tx)? {
        let table = codes_table(id);
        tx.sql()
            .execute_batch(&format!("DROP TRIGGER IF EXISTS {table}_ad; DROP TABLE IF EXISTS {table};"))?;
        identities::create_codes(tx, id, dims)?;
        let mut statement = tx.sql().prepare_cached(
            "SELECT c.id, c.document_id, v.vector FROM chunks c JOIN chunk_vectors v ON v.chunk_id = c.id
              WHERE c.identity_id = ?1 ORDER BY c.id",
        )?;
        let mut rows = statement.query([id])?;
        while let Some(row) = rows.next()? {
            let vector = half::decode(row.get_ref(2)?.as_blob().unwrap_or_default());
            insert_code(tx, id, row.get(0)?, row.get(1)?, &hamming::code(&vector))?;
            codes += 1;
        }
    }
    Ok(codes)
}

/// What a repair changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Chunks and vectors without document or chunk that were deleted.
    pub orphaned_embeddings_deleted: i64,
    /// Documents that are to be embedded again.
    pub stale_embeddings_cleared: i64,
    /// Codes that were made anew.
    pub codes_rebuilt: i64,
}

/// Repairs what [`findings`] reports: deletes orphans, queues documents with missing or
/// wrong vectors again, and makes the codes anew. Embeds nothing itself.
///
/// # Errors
/// SQLite's.
pub fn repair(tx: &WriteTx<'_>) -> Result<Repaired> {
    let found = findings(tx)?;
    let mut repaired = Repaired::default();
    let has = |name: &str| found.iter().any(|finding| finding.check == name);
    if found.is_empty() {
        return Ok(repaired);
    }
    let run =
        |sql: &str| -> Result<i64> { Ok(i64::try_from(tx.sql().execute(sql, [])?).unwrap_or(i64::MAX)) };
    if has("codes_missing") || has("codes_orphaned") {
        repaired.codes_rebuilt = rebuild_codes(tx)?;
    }
    let orphaned_codes: i64 =
        found.iter().filter(|finding| finding.check == "codes_orphaned").map(|finding| finding.count).sum();
    repaired.orphaned_embeddings_deleted = orphaned_codes +
        run("DELETE FROM chunk_vectors WHERE NOT EXISTS (SELECT 1 FROM chunks c WHERE c.id = chunk_id)")?
            + run("DELETE FROM chunks WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = document_id)
                      OR NOT EXISTS (SELECT 1 FROM chunked_documents d WHERE d.document_id = chunks.document_id AND d.identity_id = chunks.identity_id)")?;
    // Chunks that are wrong go, so that their texts are embedded again; the rest of the
    // document is kept when it is.
    let spoilt = "SELECT c.id FROM chunks c JOIN embedding_identities i ON i.id = c.identity_id LEFT JOIN chunk_vectors v ON v.chunk_id = c.id
                   WHERE (c.last_error IS NULL) <> (v.chunk_id IS NOT NULL) OR length(v.vector) <> 2 * i.dims";
    run(&format!("DELETE FROM chunks WHERE id IN ({spoilt})"))?;
    for id in useless(tx)? {
        tx.sql().prepare_cached("DELETE FROM chunks WHERE id = ?1")?.execute([id])?;
    }
    repaired.stale_embeddings_cleared = run(
        "UPDATE chunked_documents SET is_stale = 1
          WHERE is_stale = 0 AND (chunk_count <> (SELECT count(*) FROM chunks c WHERE c.document_id = chunked_documents.document_id AND c.identity_id = chunked_documents.identity_id)
             OR content_hash <> (SELECT d.content_hash FROM documents d WHERE d.id = document_id))",
    )?;
    Ok(repaired)
}
