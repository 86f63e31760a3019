//! SQL of raw payloads: what GitLab sent, compressed, the latest of each thing once.

use std::io::Read as _;

use rusqlite::OptionalExtension;

use crate::clock::Millis;
use crate::config::RawPayloads;
use crate::content::hash;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::store::{ReadTx, WriteTx};

/// Largest payload that is unpacked: what is larger no client of ours ever stored.
const MAX_BYTES: u64 = 512 << 20;

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

/// A payload that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Payload {
    /// Id of its row.
    pub id: i64,
    /// Project in this database.
    pub project_id: i64,
    /// `issue`, `merge_request` or `discussion`.
    pub resource_type: String,
    /// Number of the item, or `Issue/12/<discussion id>`.
    pub resource_key: String,
    /// What GitLab sent; the reason when it is damaged.
    pub body: Result<Vec<u8>, String>,
}

/// Returns the next payloads after `after_id` in the order of their ids, at most `limit`, and
/// about `bytes` of them (packed), but at least one.
///
/// # Errors
/// SQLite's.
pub fn payloads(tx: &ReadTx<'_>, after_id: i64, limit: usize, bytes: usize) -> Result<Vec<Payload>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT id, project_id, resource_type, resource_key, encoding, payload, payload_hash FROM raw_payloads
          WHERE id > ?1 ORDER BY id LIMIT ?2",
    )?;
    let mut rows = statement.query((after_id, i64::try_from(limit).unwrap_or(i64::MAX)))?;
    let (mut found, mut n_bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let packed = row.get_ref("payload")?.as_blob().map_err(rusqlite::Error::from)?;
        let encoding: String = row.get("encoding")?;
        let digest: Vec<u8> = row.get("payload_hash")?;
        n_bytes += packed.len();
        found.push(Payload {
            id: row.get("id")?,
            project_id: row.get("project_id")?,
            resource_type: row.get("resource_type")?,
            resource_key: row.get("resource_key")?,
            body: unpack(&encoding, packed, &digest),
        });
        if n_bytes >= bytes {
            break;
        }
    }
    Ok(found)
}

fn unpack(encoding: &str, packed: &[u8], digest: &[u8]) -> Result<Vec<u8>, String> {
    let body = match encoding {
        "zstd" => {
            let mut body = Vec::new();
            zstd::stream::Decoder::new(packed)
                .and_then(|decoder| decoder.take(MAX_BYTES).read_to_end(&mut body))
                .map_err(|error| format!("it cannot be unpacked: {error}"))?;
            body
        }
        _ => packed.to_vec(),
    };
    if hash::bytes_hash(&body).as_slice() != digest {
        return Err("it is not what was stored: its digest differs".to_owned());
    }
    Ok(body)
}

/// Returns how many payloads there are, and their packed bytes.
///
/// # Errors
/// SQLite's.
pub fn payload_sizes(tx: &ReadTx<'_>) -> Result<(i64, i64)> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT count(*), coalesce(sum(octet_length(payload)), 0) FROM raw_payloads")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// Removes payloads of discussions whose item is not stored: nothing can be rebuilt from them.
/// At most `limit`; returns how many.
///
/// # Errors
/// SQLite's.
pub fn prune_orphans(tx: &WriteTx<'_>, limit: i64) -> Result<usize> {
    let mut removed = 0;
    for (prefix, table) in [("Issue", "issues"), ("MergeRequest", "merge_requests")] {
        removed += tx.sql().execute(
            &format!(
                "DELETE FROM raw_payloads WHERE id IN (
                   SELECT r.id FROM raw_payloads r
                    WHERE r.resource_type = 'discussion' AND r.resource_key GLOB '{prefix}/*'
                      AND NOT EXISTS (SELECT 1 FROM {table} i WHERE i.project_id = r.project_id
                            AND i.iid = CAST(substr(r.resource_key, length('{prefix}/') + 1) AS INTEGER))
                    LIMIT ?1)"
            ),
            [limit],
        )?;
    }
    Ok(removed)
}

/// Removes the oldest payloads, at most `limit` and about `bytes` of them; returns how many,
/// and their bytes.
///
/// # Errors
/// SQLite's.
pub fn prune_oldest(tx: &WriteTx<'_>, bytes: i64, limit: i64) -> Result<(usize, i64)> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT id, octet_length(payload) FROM raw_payloads ORDER BY fetched_at, id LIMIT ?1",
    )?;
    let mut rows = statement.query([limit])?;
    let (mut ids, mut freed) = (Vec::new(), 0_i64);
    while let Some(row) = rows.next()? {
        if freed >= bytes {
            break;
        }
        ids.push(row.get::<_, i64>(0)?);
        freed += row.get::<_, i64>(1)?;
    }
    let mut delete = tx.sql().prepare_cached("DELETE FROM raw_payloads WHERE id = ?1")?;
    for id in &ids {
        delete.execute([id])?;
    }
    Ok((ids.len(), freed))
}

/// Removes the payloads of discussions of an item that are not among `kept`: the whole set
/// arrived, and they are gone.
///
/// # Errors
/// SQLite's.
pub fn forget_discussions(tx: &WriteTx<'_>, project_id: i64, prefix: &str, kept: &[String]) -> Result<usize> {
    let kept = serde_json::to_string(kept)
        .map_err(|error| Error::new(ErrorKind::Internal, "encode a list").because(error))?;
    // `0` follows `/`: every key that begins with the prefix, by the index.
    let end = format!("{}0", prefix.trim_end_matches('/'));
    Ok(tx
        .sql()
        .prepare_cached(
            "DELETE FROM raw_payloads WHERE project_id = ?1 AND resource_type = 'discussion'
                AND resource_key >= ?2 AND resource_key < ?3 AND resource_key NOT IN (SELECT value FROM json_each(?4))",
        )?
        .execute((project_id, prefix, end, kept))?)
}
