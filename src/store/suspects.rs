//! SQL of the entries that may have killed the process that worked on them.
//!
//! Nothing is written here as long as no process dies: the attempts of steps tell in which of
//! them a run ended without a word, see [`crate::engine::careful`].

use std::collections::BTreeMap;

use super::{ReadTx, WriteTx};
use crate::clock::Millis;
use crate::error::Result;

/// Whether the process died in a step of this kind in each of the last `runs` runs that had
/// one. The newest run is the one that asks.
///
/// # Errors
/// SQLite's.
pub fn died_in(tx: &ReadTx<'_>, step: &str, runs: i64) -> Result<bool> {
    Ok(tx
        .sql()
        .prepare_cached(
            "SELECT count(*) FILTER (WHERE has_died) = ?2
               FROM (SELECT max(state = 'abandoned') AS has_died FROM step_attempts
                      WHERE kind = ?1 AND state <> 'skipped' AND run_id < (SELECT max(id) FROM runs)
                      GROUP BY run_id ORDER BY run_id DESC LIMIT ?2)",
        )?
        .query_row((step, runs), |row| row.get(0))?)
}

/// Whether entries of this step are under suspicion.
///
/// # Errors
/// SQLite's.
pub fn are_any(tx: &ReadTx<'_>, step: &str) -> Result<bool> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM suspects WHERE step = ?1)")?
        .query_row([step], |row| row.get(0))?)
}

/// Charges the entries that were under way with the death of their process. Returns the
/// entries that are charged with any.
///
/// # Errors
/// SQLite's.
pub fn charge(tx: &WriteTx<'_>, step: &str) -> Result<BTreeMap<String, i64>> {
    tx.sql().execute(
        "UPDATE suspects SET crashes = crashes + 1, is_under_way = 0 WHERE step = ?1 AND is_under_way = 1",
        [step],
    )?;
    let mut statement =
        tx.sql().prepare_cached("SELECT entry, crashes FROM suspects WHERE step = ?1 AND crashes > 0")?;
    let rows = statement.query_map([step], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Entries that were left alone because the process died of them, as `verdict` says in their
/// last error, and that were released since. Named as their steps name them.
///
/// # Errors
/// SQLite's.
pub fn released(tx: &ReadTx<'_>, step: &str, verdict: &str) -> Result<Vec<String>> {
    let sql = match step {
        "regenerate-docs" => {
            "SELECT source_type || ' ' || source_id FROM dirty_sources
              WHERE last_error IS NOT NULL AND quarantined_at IS NULL AND instr(last_error, ?1) > 0"
        }
        "fetch-discussions" => {
            "SELECT project_id || ' ' || noteable_type || ' ' || noteable_iid FROM pending_discussion_fetches
              WHERE last_error IS NOT NULL AND quarantined_at IS NULL AND instr(last_error, ?1) > 0"
        }
        "embed" => {
            "SELECT DISTINCT 'document ' || document_id FROM chunks
              WHERE last_error IS NOT NULL AND quarantined_at IS NULL AND instr(last_error, ?1) > 0"
        }
        _ => return Ok(Vec::new()),
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement.query_map([verdict], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Notes that work on an entry begins.
///
/// # Errors
/// SQLite's.
pub fn note(tx: &WriteTx<'_>, step: &str, entry: &str, now: Millis) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO suspects(step, entry, is_under_way, noted_at) VALUES (?1, ?2, 1, ?3)
             ON CONFLICT(step, entry) DO UPDATE SET is_under_way = 1, noted_at = excluded.noted_at",
        )?
        .execute((step, entry, now))?;
    Ok(())
}

/// The process outlived the entry, or leaves it alone for good.
///
/// # Errors
/// SQLite's.
pub fn clear(tx: &WriteTx<'_>, step: &str, entry: &str) -> Result<()> {
    tx.sql().prepare_cached("DELETE FROM suspects WHERE step = ?1 AND entry = ?2")?.execute((step, entry))?;
    Ok(())
}

/// The work was stopped: the entry is neither cleared nor charged.
///
/// # Errors
/// SQLite's.
pub fn pause(tx: &WriteTx<'_>, step: &str, entry: &str) -> Result<()> {
    tx.sql()
        .prepare_cached("UPDATE suspects SET is_under_way = 0 WHERE step = ?1 AND entry = ?2")?
        .execute((step, entry))?;
    Ok(())
}

/// The step came to its end: whoever was not met again is gone from its queue.
///
/// # Errors
/// SQLite's.
pub fn acquit_all(tx: &WriteTx<'_>, step: &str) -> Result<()> {
    tx.sql().execute("DELETE FROM suspects WHERE step = ?1", [step])?;
    Ok(())
}
