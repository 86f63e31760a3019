//! SQL of the two queues: `dirty_sources` and `pending_discussion_fetches`.
//!
//! An entry carries a generation that every new mark raises. Whoever processed an entry
//! removes it only at the generation that was read: a change that arrives meanwhile stays
//! queued. Failures back off; an entry that failed [`MAX_ATTEMPTS`] times is quarantined:
//! kept, counted, and left alone until it is asked for or its content changes.

use rusqlite::ToSql;
use serde::Serialize;

use super::{ReadTx, WriteTx, tables};
use crate::backoff::{self, QUEUE};
use crate::clock::Millis;
use crate::content::{ItemType, SourceType};
use crate::error::{Error, Result};

/// Failures after which an entry is quarantined.
pub const MAX_ATTEMPTS: i64 = 12;

/// Longest error text that is kept with an entry, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// A source whose document is to be made again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DirtyEntry {
    /// What the document is made of.
    pub source_type: SourceType,
    /// Id of the source in this database.
    pub source_id: i64,
    /// Generation that was read.
    pub generation: i64,
    /// Failures so far.
    pub attempt_count: i64,
}

/// An item whose discussions are to be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FetchEntry {
    /// Project in this database.
    pub project_id: i64,
    /// Kind of the item.
    pub item_type: ItemType,
    /// Number of the item.
    pub iid: i64,
    /// Generation that was read.
    pub generation: i64,
    /// Failures so far.
    pub attempt_count: i64,
}

/// How a queue stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// Name of its table.
    pub queue: &'static str,
    /// Entries, all of them.
    pub depth: i64,
    /// Entries that may be processed now.
    pub ready: i64,
    /// Entries whose last attempt failed.
    pub failed: i64,
    /// Entries that failed too often.
    pub quarantined: i64,
    /// When the oldest entry was queued.
    pub oldest_at: Option<Millis>,
}

/// Statement that marks every row of `select` (source type, id, time) as dirty.
pub(super) fn mark_all_sql(select: &str) -> String {
    // `WHERE true` keeps the parser from reading ON CONFLICT as a join constraint.
    let select = if select.contains("WHERE") { select.to_owned() } else { format!("{select} WHERE true") };
    format!(
        "INSERT INTO dirty_sources(source_type, source_id, queued_at) {select}
         ON CONFLICT(source_type, source_id) DO UPDATE SET generation = generation + 1, attempt_count = 0,
           last_attempt_at = NULL, last_error = NULL, next_attempt_at = NULL, quarantined_at = NULL"
    )
}

/// Marks a source as dirty. New content: whatever failed before is forgotten.
///
/// # Errors
/// SQLite's.
pub fn mark_dirty(tx: &WriteTx<'_>, source_type: SourceType, source_id: i64, now: Millis) -> Result<()> {
    tx.sql().prepare_cached(&mark_all_sql("SELECT ?1, ?2, ?3"))?.execute((
        source_type.as_str(),
        source_id,
        now,
    ))?;
    Ok(())
}

/// Marks the next `limit` sources of a type after `after_id`, in id order. Returns the last
/// id that was marked, or nothing when there are no more.
///
/// # Errors
/// SQLite's.
pub fn seed_dirty(
    tx: &WriteTx<'_>,
    source_type: SourceType,
    after_id: i64,
    limit: i64,
    now: Millis,
) -> Result<Option<i64>> {
    let table = tables::of_source(source_type);
    let last: Option<i64> = tx
        .sql()
        .prepare_cached(&format!(
            "SELECT max(id) FROM (SELECT id FROM {table} WHERE id > ?1 ORDER BY id LIMIT ?2)"
        ))?
        .query_row((after_id, limit), |row| row.get(0))?;
    let Some(last) = last else { return Ok(None) };
    let select = format!("SELECT ?1, id, ?2 FROM {table} WHERE id > ?3 AND id <= ?4");
    tx.sql().prepare_cached(&mark_all_sql(&select))?.execute((source_type.as_str(), now, after_id, last))?;
    Ok(Some(last))
}

const READY_DIRTY: &str = "SELECT source_type, source_id, generation, attempt_count FROM dirty_sources
      WHERE quarantined_at IS NULL AND (next_attempt_at IS NULL OR next_attempt_at <= ?1)
      ORDER BY attempt_count, queued_at, source_type, source_id LIMIT ?2";

/// Returns the dirty sources that may be processed now: fewest failures first, then oldest.
///
/// # Errors
/// SQLite's.
pub fn ready_dirty(tx: &ReadTx<'_>, now: Millis, limit: i64) -> Result<Vec<DirtyEntry>> {
    let mut statement = tx.sql().prepare_cached(READY_DIRTY)?;
    let mut rows = statement.query((now, limit))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let source_type: String = row.get(0)?;
        entries.push(DirtyEntry {
            source_type: SourceType::parse(&source_type)
                .ok_or_else(|| Error::internal(format!("unknown source type {source_type:?}")))?,
            source_id: row.get(1)?,
            generation: row.get(2)?,
            attempt_count: row.get(3)?,
        });
    }
    Ok(entries)
}

/// Removes a processed entry. Returns false when it was marked again meanwhile and stays.
///
/// # Errors
/// SQLite's.
pub fn complete_dirty(tx: &WriteTx<'_>, entry: &DirtyEntry) -> Result<bool> {
    let removed = tx
        .sql()
        .prepare_cached(
            "DELETE FROM dirty_sources WHERE source_type = ?1 AND source_id = ?2 AND generation = ?3",
        )?
        .execute((entry.source_type.as_str(), entry.source_id, entry.generation))?;
    Ok(removed == 1)
}

/// Records that processing an entry failed, and when it may be tried again.
///
/// # Errors
/// SQLite's.
pub fn fail_dirty(tx: &WriteTx<'_>, entry: &DirtyEntry, error: &str, now: Millis) -> Result<()> {
    let key: [(&str, &dyn ToSql); 3] = [
        ("source_type", &entry.source_type.as_str()),
        ("source_id", &entry.source_id),
        ("generation", &entry.generation),
    ];
    fail(tx, "dirty_sources", &key, Failure::after(entry.attempt_count, error, now), now)
}

/// Writes a failure to the entry that `key` names, if it was not changed meanwhile.
fn fail(
    tx: &WriteTx<'_>,
    queue: &str,
    key: &[(&str, &dyn ToSql)],
    failure: Failure,
    now: Millis,
) -> Result<()> {
    let mut values: Vec<&dyn ToSql> =
        vec![&failure.attempts, &now, &failure.error, &failure.next_attempt_at, &failure.quarantined_at];
    let mut conditions = Vec::new();
    for (column, value) in key {
        values.push(value);
        conditions.push(format!("{column} = ?{}", values.len()));
    }
    tx.sql()
        .prepare_cached(&format!(
            "UPDATE {queue} SET attempt_count = ?1, last_attempt_at = ?2, last_error = ?3, next_attempt_at = ?4,
                    quarantined_at = ?5
              WHERE {}",
            conditions.join(" AND ")
        ))?
        .execute(values.as_slice())?;
    Ok(())
}

/// What a failure changes in an entry.
struct Failure {
    attempts: i64,
    error: String,
    next_attempt_at: Millis,
    quarantined_at: Option<Millis>,
}

impl Failure {
    fn after(attempts_before: i64, error: &str, now: Millis) -> Self {
        let attempts = attempts_before + 1;
        let failures = u32::try_from(attempts).unwrap_or(u32::MAX);
        Self {
            attempts,
            error: error.chars().take(MAX_ERROR_CHARS).collect(),
            next_attempt_at: QUEUE.next_attempt_at(now, failures, backoff::random()),
            quarantined_at: (attempts >= MAX_ATTEMPTS).then_some(now),
        }
    }
}

/// Makes every entry that waits or is quarantined ready, in both queues. Their failures stay
/// counted: one that fails again is quarantined again. Returns how many there were.
///
/// # Errors
/// SQLite's.
pub fn retry_failed(tx: &WriteTx<'_>) -> Result<usize> {
    let mut n = 0;
    for queue in QUEUES {
        n += tx.sql().execute(
            &format!(
                "UPDATE {queue} SET next_attempt_at = NULL, quarantined_at = NULL
                  WHERE next_attempt_at IS NOT NULL OR quarantined_at IS NOT NULL"
            ),
            [],
        )?;
    }
    Ok(n)
}

/// Queues an item's discussions because its content moved: earlier failures are forgotten.
///
/// # Errors
/// SQLite's.
pub fn queue_discussions(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    iid: i64,
    now: Millis,
) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT(project_id, noteable_type, noteable_iid) DO UPDATE SET generation = generation + 1,
               attempt_count = 0, last_attempt_at = NULL, last_error = NULL, next_attempt_at = NULL, quarantined_at = NULL",
        )?
        .execute((project_id, item_type.noteable_type(), iid, now))?;
    Ok(())
}

/// Queues an item's discussions to be looked at again although nothing says that they
/// changed: an entry that is there, waiting or quarantined, stays as it is.
///
/// # Errors
/// SQLite's.
pub fn queue_discussions_again(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    iid: i64,
    now: Millis,
) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT(project_id, noteable_type, noteable_iid) DO NOTHING",
        )?
        .execute((project_id, item_type.noteable_type(), iid, now))?;
    Ok(())
}

/// Queues the discussions of all items of a kind that were updated at `since` or later to be
/// looked at again, as [`queue_discussions_again`]. Returns how many were not queued before.
///
/// # Errors
/// SQLite's.
pub fn queue_discussions_since(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    since: Millis,
    now: Millis,
) -> Result<usize> {
    let table = tables::of_item(item_type);
    Ok(tx
        .sql()
        .prepare_cached(&format!(
            "INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at)
             SELECT project_id, ?3, iid, ?4 FROM {table} WHERE project_id = ?1 AND updated_at >= ?2
             ON CONFLICT(project_id, noteable_type, noteable_iid) DO NOTHING"
        ))?
        .execute((project_id, since, item_type.noteable_type(), now))?)
}

/// CROSS JOIN: the queue is read in the order of its index, up to the limit. Beginning with
/// the projects would read and sort the whole queue for every batch.
const READY_FETCHES: &str =
    "SELECT q.project_id, q.noteable_type, q.noteable_iid, q.generation, q.attempt_count
       FROM pending_discussion_fetches q CROSS JOIN projects p ON p.id = q.project_id
      WHERE p.source_name = ?1 AND q.quarantined_at IS NULL AND (q.next_attempt_at IS NULL OR q.next_attempt_at <= ?2)
      ORDER BY q.attempt_count, q.queued_at, q.project_id, q.noteable_type, q.noteable_iid LIMIT ?3";

/// Returns the fetches of a source's projects that may be tried now.
///
/// # Errors
/// SQLite's.
pub fn ready_fetches(tx: &ReadTx<'_>, source_name: &str, now: Millis, limit: i64) -> Result<Vec<FetchEntry>> {
    let mut statement = tx.sql().prepare_cached(READY_FETCHES)?;
    let mut rows = statement.query((source_name, now, limit))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let noteable_type: String = row.get(1)?;
        entries.push(FetchEntry {
            project_id: row.get(0)?,
            item_type: ItemType::parse(&noteable_type)
                .ok_or_else(|| Error::internal(format!("unknown noteable type {noteable_type:?}")))?,
            iid: row.get(2)?,
            generation: row.get(3)?,
            attempt_count: row.get(4)?,
        });
    }
    Ok(entries)
}

/// Removes a fetch that is done. Returns false when it was queued again meanwhile and stays.
///
/// # Errors
/// SQLite's.
pub fn complete_fetch(tx: &WriteTx<'_>, entry: &FetchEntry) -> Result<bool> {
    let removed = tx
        .sql()
        .prepare_cached(
            "DELETE FROM pending_discussion_fetches
              WHERE project_id = ?1 AND noteable_type = ?2 AND noteable_iid = ?3 AND generation = ?4",
        )?
        .execute((entry.project_id, entry.item_type.noteable_type(), entry.iid, entry.generation))?;
    Ok(removed == 1)
}

/// Records that a fetch failed, and when it may be tried again.
///
/// # Errors
/// SQLite's.
pub fn fail_fetch(tx: &WriteTx<'_>, entry: &FetchEntry, error: &str, now: Millis) -> Result<()> {
    let key: [(&str, &dyn ToSql); 4] = [
        ("project_id", &entry.project_id),
        ("noteable_type", &entry.item_type.noteable_type()),
        ("noteable_iid", &entry.iid),
        ("generation", &entry.generation),
    ];
    fail(tx, "pending_discussion_fetches", &key, Failure::after(entry.attempt_count, error, now), now)
}

/// Names of the queues' tables.
pub const QUEUES: [&str; 2] = ["dirty_sources", "pending_discussion_fetches"];

/// Returns how each queue stands.
///
/// # Errors
/// SQLite's.
pub fn depths(tx: &ReadTx<'_>, now: Millis) -> Result<Vec<QueueDepth>> {
    QUEUES
        .iter()
        .map(|queue| {
            let sql = format!(
                "SELECT count(*),
                        count(*) FILTER (WHERE quarantined_at IS NULL AND (next_attempt_at IS NULL OR next_attempt_at <= ?1)),
                        count(*) FILTER (WHERE last_error IS NOT NULL),
                        count(*) FILTER (WHERE quarantined_at IS NOT NULL),
                        min(queued_at)
                   FROM {queue}"
            );
            let depth = tx.sql().prepare_cached(&sql)?.query_row([now], |row| {
                Ok(QueueDepth {
                    queue,
                    depth: row.get(0)?,
                    ready: row.get(1)?,
                    failed: row.get(2)?,
                    quarantined: row.get(3)?,
                    oldest_at: row.get(4)?,
                })
            })?;
            Ok(depth)
        })
        .collect()
}

/// A failing entry, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailingEntry {
    /// Name of its queue.
    pub queue: String,
    /// What it stands for: `issue 12` or `group/project Issue 12`.
    pub subject: String,
    /// Failures so far.
    pub attempt_count: i64,
    /// The last error.
    pub error: String,
    /// When it is tried again.
    pub next_attempt_at: Option<Millis>,
    /// Whether it is left alone.
    pub quarantined: bool,
}

/// Returns failing entries of both queues, most failures first.
///
/// # Errors
/// SQLite's.
pub fn failing(tx: &ReadTx<'_>, limit: i64) -> Result<Vec<FailingEntry>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT 'dirty_sources' AS queue, source_type || ' ' || source_id AS subject, attempt_count, last_error,
                next_attempt_at, quarantined_at IS NOT NULL
           FROM dirty_sources WHERE last_error IS NOT NULL
         UNION ALL
         SELECT 'pending_discussion_fetches', p.path || CASE noteable_type WHEN 'Issue' THEN '#' ELSE '!' END || noteable_iid,
                attempt_count, last_error, next_attempt_at, quarantined_at IS NOT NULL
           FROM pending_discussion_fetches q JOIN projects p ON p.id = q.project_id WHERE last_error IS NOT NULL
         ORDER BY 3 DESC, 1, 2 LIMIT ?1",
    )?;
    let rows = statement.query_map([limit], |row| {
        Ok(FailingEntry {
            queue: row.get(0)?,
            subject: row.get(1)?,
            attempt_count: row.get(2)?,
            error: row.get(3)?,
            next_attempt_at: row.get(4)?,
            quarantined: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_read_in_the_order_of_an_index_and_nothing_is_sorted() {
        let (_dir, store) = crate::store::fixtures::store();
        for (sql, index) in
            [(READY_DIRTY, "idx_dirty_sources_ready"), (READY_FETCHES, "idx_pending_discussions_ready")]
        {
            let plan: Vec<String> = store
                .read(|tx| {
                    let mut statement = tx.sql().prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                    let rows = statement.raw_query().mapped(|row| row.get("detail"));
                    Ok(rows.collect::<rusqlite::Result<_>>()?)
                })
                .unwrap();
            assert!(plan.first().is_some_and(|first| first.contains(index)), "{plan:?}");
            assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{plan:?}");
        }
    }
}
