//! SQL of cursors and of streams that fail: where each stream of each project stands.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, ToSql};
use serde::Serialize;

use super::{ReadTx, WriteTx};
use crate::backoff::{self, QUEUE, REFUSED};
use crate::clock::Millis;
use crate::error::{Error, ErrorKind, Result};

/// Where a stream stands. Written in the transaction of the rows it speaks of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Greatest `updated_at` stored.
    pub updated_at: Option<Millis>,
    /// GitLab id of the row that holds it.
    pub tie_id: Option<i64>,
    /// Archives: what file was read.
    pub fingerprint: Option<String>,
    /// When it was last written here.
    pub saved_at: Millis,
}

/// Returns the cursor of a stream.
///
/// # Errors
/// SQLite's.
pub fn get(tx: &ReadTx<'_>, project_id: i64, stream: &str) -> Result<Option<Cursor>> {
    Ok(tx
        .sql()
        .prepare_cached(
            "SELECT updated_at, tie_id, fingerprint, saved_at FROM cursors WHERE project_id = ?1 AND stream = ?2",
        )?
        .query_row((project_id, stream), |row| {
            Ok(Cursor {
                updated_at: row.get(0)?,
                tie_id: row.get(1)?,
                fingerprint: row.get(2)?,
                saved_at: row.get(3)?,
            })
        })
        .optional()?)
}

/// Writes the cursor of a stream; `saved_at` is taken from it.
///
/// # Errors
/// SQLite's.
pub fn set(tx: &WriteTx<'_>, project_id: i64, stream: &str, cursor: &Cursor) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO cursors(project_id, stream, updated_at, tie_id, fingerprint, saved_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT(project_id, stream) DO UPDATE SET updated_at = excluded.updated_at, tie_id = excluded.tie_id,
               fingerprint = excluded.fingerprint, saved_at = excluded.saved_at",
        )?
        .execute((
            project_id,
            stream,
            cursor.updated_at,
            cursor.tie_id,
            &cursor.fingerprint,
            cursor.saved_at,
        ))?;
    Ok(())
}

/// Failures in a row after which a stream that may recover at any moment begins to wait:
/// those before are the retries of one run.
pub const PATIENCE: u32 = 3;

/// When something that failed `failures` times in a row may be tried again; nothing: at once.
///
/// What is refused (switched off, no access, gone) is tried after an hour, then more and more
/// rarely, once a day at least. What broke on the way is tried at once three times, then with
/// the waits of the queues.
pub fn next_try(error: &Error, failures: u32, now: Millis) -> Option<Millis> {
    match error.kind() {
        // A file: looking at it costs nobody anything.
        ErrorKind::Io => None,
        kind if !kind.is_transient() => Some(REFUSED.next_attempt_at(now, failures, backoff::random())),
        _ => (failures > PATIENCE).then(|| QUEUE.next_attempt_at(now, failures, backoff::random())),
    }
}

/// A stream that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamFailure {
    /// Path of the project.
    pub project_path: String,
    /// Name of the stream.
    pub stream: String,
    /// Failures in a row.
    pub attempt_count: i64,
    /// When it was last tried.
    pub last_attempt_at: Millis,
    /// When it may be tried again.
    pub next_attempt_at: Option<Millis>,
    /// Kind of the last error.
    pub error_kind: String,
    /// The last error.
    pub error: String,
}

/// Records that a stream could not be read.
///
/// # Errors
/// SQLite's.
pub fn record_stream_failure(
    tx: &WriteTx<'_>,
    project_id: i64,
    stream: &str,
    error: &Error,
    now: Millis,
) -> Result<()> {
    record_failure(tx, "stream_failures", [("project_id", &project_id), ("stream", &stream)], error, now)
}

/// Counts one more failure of what `key` names in a table of failures.
pub(super) fn record_failure(
    tx: &WriteTx<'_>,
    table: &str,
    [(first, first_value), (second, second_value)]: [(&str, &dyn ToSql); 2],
    error: &Error,
    now: Millis,
) -> Result<()> {
    let before: Option<i64> = tx
        .sql()
        .prepare_cached(&format!("SELECT attempt_count FROM {table} WHERE {first} = ?1 AND {second} = ?2"))?
        .query_row((first_value, second_value), |row| row.get(0))
        .optional()?;
    let attempts = before.unwrap_or(0) + 1;
    let failures = u32::try_from(attempts).unwrap_or(u32::MAX);
    tx.sql()
        .prepare_cached(&format!(
            "INSERT INTO {table}({first}, {second}, attempt_count, last_attempt_at, next_attempt_at, error_kind, last_error)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT({first}, {second}) DO UPDATE SET attempt_count = excluded.attempt_count,
               last_attempt_at = excluded.last_attempt_at, next_attempt_at = excluded.next_attempt_at,
               error_kind = excluded.error_kind, last_error = excluded.last_error"
        ))?
        .execute((
            first_value,
            second_value,
            attempts,
            now,
            next_try(error, failures, now),
            error.kind().code(),
            error.full_message(),
        ))?;
    Ok(())
}

/// Forgets the failures of a stream that was read.
///
/// # Errors
/// SQLite's.
pub fn clear_stream_failure(tx: &WriteTx<'_>, project_id: i64, stream: &str) -> Result<()> {
    tx.sql()
        .prepare_cached("DELETE FROM stream_failures WHERE project_id = ?1 AND stream = ?2")?
        .execute((project_id, stream))?;
    Ok(())
}

/// Returns the streams that could not be read, by project.
///
/// # Errors
/// SQLite's.
pub fn stream_failures(tx: &ReadTx<'_>) -> Result<Vec<StreamFailure>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT p.path, f.stream, f.attempt_count, f.last_attempt_at, f.next_attempt_at, f.error_kind, f.last_error
           FROM stream_failures f JOIN projects p ON p.id = f.project_id ORDER BY p.path, f.stream",
    )?;
    let rows = statement.query_map([], stream_failure)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the streams of a project that failed and are not to be tried yet, by name.
///
/// # Errors
/// SQLite's.
pub fn waiting_streams(
    tx: &ReadTx<'_>,
    project_id: i64,
    now: Millis,
) -> Result<BTreeMap<String, StreamFailure>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT p.path, f.stream, f.attempt_count, f.last_attempt_at, f.next_attempt_at, f.error_kind, f.last_error
           FROM stream_failures f JOIN projects p ON p.id = f.project_id
          WHERE f.project_id = ?1 AND f.next_attempt_at > ?2",
    )?;
    let rows = statement.query_map((project_id, now), stream_failure)?;
    rows.map(|row| row.map(|failure| (failure.stream.clone(), failure)).map_err(Error::from)).collect()
}

/// Returns what is recorded of a stream and of places in it, `STREAM PLACE`, by name.
///
/// # Errors
/// SQLite's.
pub fn failures_within(tx: &ReadTx<'_>, project_id: i64, stream: &str) -> Result<Vec<StreamFailure>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT p.path, f.stream, f.attempt_count, f.last_attempt_at, f.next_attempt_at, f.error_kind, f.last_error
           FROM stream_failures f JOIN projects p ON p.id = f.project_id
          WHERE f.project_id = ?1 AND (f.stream = ?2 OR f.stream GLOB ?2 || ' *') ORDER BY f.stream",
    )?;
    let rows = statement.query_map((project_id, stream), stream_failure)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn stream_failure(row: &rusqlite::Row<'_>) -> rusqlite::Result<StreamFailure> {
    Ok(StreamFailure {
        project_path: row.get(0)?,
        stream: row.get(1)?,
        attempt_count: row.get(2)?,
        last_attempt_at: row.get(3)?,
        next_attempt_at: row.get(4)?,
        error_kind: row.get(5)?,
        error: row.get(6)?,
    })
}
