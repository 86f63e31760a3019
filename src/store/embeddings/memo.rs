//! SQL of what is remembered about embedding services: vectors of questions asked before,
//! and services that failed lately.

use rusqlite::OptionalExtension;

use crate::clock::Millis;
use crate::content::hash::bytes_hash;
use crate::error::Result;
use crate::store::{ReadTx, WriteTx};

/// Vectors of questions that are kept.
pub const MAX_CACHED_QUERIES: i64 = 1_000;

/// Returns the vector of a question that was asked before.
///
/// # Errors
/// SQLite's.
pub fn cached_query(tx: &ReadTx<'_>, identity_id: i64, text: &str) -> Result<Option<Vec<f32>>> {
    let found: Option<Vec<u8>> = tx
        .sql()
        .prepare_cached("SELECT vector FROM query_embeddings WHERE identity_id = ?1 AND text_hash = ?2")?
        .query_row((identity_id, bytes_hash(text.as_bytes())), |row| row.get(0))
        .optional()?;
    Ok(found.map(|bytes| {
        let (values, _) = bytes.as_chunks::<4>();
        values.iter().map(|value| f32::from_le_bytes(*value)).collect()
    }))
}

/// Keeps the vector of a question, and drops those used longest ago beyond the bound.
///
/// # Errors
/// SQLite's.
pub fn remember_query(
    tx: &WriteTx<'_>,
    identity_id: i64,
    text: &str,
    vector: &[f32],
    now: Millis,
) -> Result<()> {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    tx.sql()
        .prepare_cached(
            "INSERT INTO query_embeddings(identity_id, text_hash, vector, used_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT(identity_id, text_hash) DO UPDATE SET vector = excluded.vector, used_at = excluded.used_at",
        )?
        .execute((identity_id, bytes_hash(text.as_bytes()), bytes, now))?;
    tx.sql()
        .prepare_cached(
            "DELETE FROM query_embeddings WHERE (identity_id, text_hash) IN
               (SELECT identity_id, text_hash FROM query_embeddings ORDER BY used_at DESC, text_hash LIMIT -1 OFFSET ?1)",
        )?
        .execute([MAX_CACHED_QUERIES])?;
    Ok(())
}

/// What is known of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Circuit {
    /// Failures in a row.
    pub failures: i64,
    /// Until when it is not asked.
    pub open_until: Option<Millis>,
    /// What the last failure said.
    pub last_error: Option<String>,
}

/// Returns what is known of the service `name`.
///
/// # Errors
/// SQLite's.
pub fn circuit(tx: &ReadTx<'_>, name: &str) -> Result<Circuit> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT failures, open_until, last_error FROM circuit_breakers WHERE name = ?1")?
        .query_row([name], |row| {
            Ok(Circuit { failures: row.get(0)?, open_until: row.get(1)?, last_error: row.get(2)? })
        })
        .optional()?
        .unwrap_or_default())
}

/// Keeps what is known of the service `name`.
///
/// # Errors
/// SQLite's.
pub fn set_circuit(tx: &WriteTx<'_>, name: &str, circuit: &Circuit, now: Millis) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO circuit_breakers(name, failures, open_until, last_error, changed_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT(name) DO UPDATE SET failures = excluded.failures, open_until = excluded.open_until,
               last_error = excluded.last_error, changed_at = excluded.changed_at",
        )?
        .execute((name, circuit.failures, circuit.open_until, &circuit.last_error, now))?;
    Ok(())
}

/// Forgets the failures of the service `name`. Returns whether there were any.
///
/// # Errors
/// SQLite's.
pub fn close_circuit(tx: &WriteTx<'_>, name: &str) -> Result<bool> {
    let changed = tx.sql().prepare_cached("DELETE FROM circuit_breakers WHERE name = ?1")?.execute([name])?;
    Ok(changed > 0)
}
