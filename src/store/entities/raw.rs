//! SQL of raw payloads.

use rusqlite::OptionalExtension;

use crate::clock::Millis;
use crate::config::RawPayloads;
use crate::content::hash;
use crate::error::{Result, io_error};
use crate::store::WriteTx;

/// Keeps the payload that a row was parsed from. Does nothing when it is kept already, or
/// when payloads are not to be kept.
///
/// # Errors
/// SQLite's, or when the payload cannot be compressed.
pub fn save_raw(
    tx: &WriteTx<'_>,
    project_id: i64,
    resource_type: &str,
    resource_key: &str,
    payload: &[u8],
    how: RawPayloads,
    now: Millis,
) -> Result<()> {
    match how {
        RawPayloads::None => return Ok(()),
        RawPayloads::Zstd => {}
    }
    let digest = hash::bytes_hash(payload);
    let kept: Option<i64> = tx
        .sql()
        .prepare_cached(
            "SELECT 1 FROM raw_payloads WHERE project_id = ?1 AND resource_type = ?2 AND resource_key = ?3 AND payload_hash = ?4",
        )?
        .query_row((project_id, resource_type, resource_key, digest), |row| row.get(0))
        .optional()?;
    if kept.is_some() {
        return Ok(());
    }
    let packed = zstd::bulk::compress(payload, 3).map_err(|error| io_error("compress a payload", error))?;
    tx.sql()
        .prepare_cached(
            "INSERT INTO raw_payloads(project_id, resource_type, resource_key, encoding, payload, payload_hash, fetched_at)
             VALUES (?1, ?2, ?3, 'zstd', ?4, ?5, ?6)
             ON CONFLICT(project_id, resource_type, resource_key) DO UPDATE SET encoding = excluded.encoding,
               payload = excluded.payload, payload_hash = excluded.payload_hash, fetched_at = excluded.fetched_at",
        )?
        .execute((project_id, resource_type, resource_key, packed, digest, now))?;
    Ok(())
}
