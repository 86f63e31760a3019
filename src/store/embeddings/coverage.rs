//! SQL of how much is embedded.

use serde::Serialize;

use super::{Identity, active, newest};
use crate::clock::Millis;
use crate::error::Result;
use crate::store::ReadTx;

/// How much of the documents an identity covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Documents whose text has all its vectors, as it is now.
    pub embedded: i64,
    /// Documents that are new or changed.
    pub pending: i64,
    /// Documents with a chunk that could not be embedded.
    pub failed: i64,
    /// Documents.
    pub total: i64,
}

/// What queries can be answered from.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Coverage {
    /// Documents whose text has all its vectors, as it is now.
    pub embedded: i64,
    /// Documents that are new or changed.
    pub pending: i64,
    /// Documents with a chunk that could not be embedded.
    pub failed: i64,
    /// Documents.
    pub total: i64,
    /// Embedded documents of all, percent, rounded down to a tenth; 100 when there are none.
    pub coverage_pct: f64,
    /// Vectors.
    pub chunks: i64,
    /// Chunks that are left alone after many failures.
    pub quarantined: i64,
    /// Documents whose end has no chunk.
    pub truncated: i64,
    /// When the oldest failing chunk is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Millis>,
    /// What queries are answered from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// What is being built beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub building: Option<Building>,
}

/// An index that is not answered from yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Building {
    /// What it is of.
    pub identity: Identity,
    /// Documents embedded for it, percent.
    pub coverage_pct: f64,
}

/// Counts how much is embedded for what queries are answered from.
///
/// # Errors
/// SQLite's.
pub fn coverage(tx: &ReadTx<'_>) -> Result<Coverage> {
    let identity = active(tx)?;
    let counts = of_identity(tx, identity.as_ref().map_or(-1, |identity| identity.id))?;
    let mut coverage = Coverage {
        embedded: counts.embedded,
        pending: counts.pending,
        failed: counts.failed,
        total: counts.total,
        coverage_pct: percent(counts),
        ..Coverage::default()
    };
    if let Some(identity) = identity {
        let (quarantined, next_attempt_at, failing) = tx
            .sql()
            .prepare_cached(
                "SELECT count(quarantined_at), min(next_attempt_at) FILTER (WHERE quarantined_at IS NULL), count(*)
                   FROM chunks WHERE identity_id = ?1 AND last_error IS NOT NULL",
            )?
            .query_row([identity.id], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?)))?;
        (coverage.quarantined, coverage.next_attempt_at) = (quarantined, next_attempt_at);
        let (chunks, truncated): (i64, i64) = tx
            .sql()
            .prepare_cached("SELECT coalesce(sum(chunk_count), 0), coalesce(sum(is_truncated), 0) FROM chunked_documents WHERE identity_id = ?1")?
            .query_row([identity.id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        (coverage.chunks, coverage.truncated) = (chunks - failing, truncated);
        if let Some(building) = newest(tx)?.filter(|newest| newest.id != identity.id) {
            let counts = of_identity(tx, building.id)?;
            coverage.building = Some(Building { identity: building, coverage_pct: percent(counts) });
        }
        coverage.identity = Some(identity);
    }
    Ok(coverage)
}

fn percent(counts: Counts) -> f64 {
    if counts.total == 0 {
        return 100.0;
    }
    (counts.embedded * 1000 / counts.total) as f64 / 10.0
}

/// Counts for one identity.
pub(super) fn of_identity(tx: &ReadTx<'_>, identity_id: i64) -> Result<Counts> {
    let total: i64 =
        tx.sql().prepare_cached("SELECT count(*) FROM documents")?.query_row([], |row| row.get(0))?;
    let fresh: i64 = tx
        .sql()
        .prepare_cached("SELECT count(*) FROM chunked_documents WHERE identity_id = ?1 AND is_stale = 0")?
        .query_row([identity_id], |row| row.get(0))?;
    let failed: i64 = tx
        .sql()
        .prepare_cached(
            "SELECT count(*) FROM (SELECT DISTINCT document_id FROM chunks WHERE identity_id = ?1 AND last_error IS NOT NULL) f
               CROSS JOIN chunked_documents c ON c.document_id = f.document_id AND c.identity_id = ?1 AND c.is_stale = 0",
        )?
        .query_row([identity_id], |row| row.get(0))?;
    Ok(Counts { embedded: fresh - failed, pending: total - fresh, failed, total })
}
