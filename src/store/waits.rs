//! Waits that a wrong clock wrote.
//!
//! When something may be tried again is stored as a wall-clock time. A machine whose clock was
//! ahead, once, would leave entries that wait for years; every run ends such waits first.

use super::{ReadTx, WriteTx};
use crate::clock::Millis;
use crate::error::Result;

/// No schedule waits as long: the longest is a day, give or take a tenth.
const LONGEST_MS: Millis = 2 * 24 * 3_600_000;

/// Every table and column that holds the time of a next attempt, and what its index wants.
const WAITS: &[(&str, &str, &str)] = &[
    ("dirty_sources", "next_attempt_at", ""),
    ("pending_discussion_fetches", "next_attempt_at", ""),
    ("chunks", "next_attempt_at", " AND last_error IS NOT NULL"),
    ("link_looks", "next_attempt_at", ""),
    ("stream_failures", "next_attempt_at", ""),
    ("group_failures", "next_attempt_at", ""),
    ("circuit_breakers", "open_until", ""),
];

/// Whether anything waits for longer than any schedule makes it wait.
///
/// # Errors
/// SQLite's.
pub fn are_beyond_reason(tx: &ReadTx<'_>, now: Millis) -> Result<bool> {
    for (table, column, and) in WAITS {
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE {column} > ?1{and})");
        if tx.sql().prepare_cached(&sql)?.query_row([now.saturating_add(LONGEST_MS)], |row| row.get(0))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets what waits for longer than any schedule makes it wait be tried now. Returns how many
/// entries that were.
///
/// # Errors
/// SQLite's.
pub fn end_beyond_reason(tx: &WriteTx<'_>, now: Millis) -> Result<usize> {
    let mut n = 0;
    for (table, column, and) in WAITS {
        let sql = format!("UPDATE {table} SET {column} = ?1 WHERE {column} > ?2{and}");
        n += tx.sql().execute(&sql, (now, now.saturating_add(LONGEST_MS)))?;
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::backoff::{QUEUE, REFUSED};
    use crate::store::{OpenOptions, Store};

    #[test]
    fn every_column_that_holds_the_time_of_a_next_attempt_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
        let found: BTreeSet<(String, String)> = store
            .read(|tx| {
                let mut statement = tx.sql().prepare(
                    "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c
                      WHERE t.type = 'table' AND (c.name LIKE 'next%at' OR c.name LIKE '%until')",
                )?;
                let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            })
            .unwrap();
        let known: BTreeSet<(String, String)> =
            WAITS.iter().map(|(table, column, _)| ((*table).to_owned(), (*column).to_owned())).collect();
        assert_eq!(found, known);
        let longest = QUEUE.delay(u32::MAX, 1.0).max(REFUSED.delay(u32::MAX, 1.0));
        assert!(longest.as_millis() < u128::try_from(LONGEST_MS).unwrap());
    }

    #[test]
    fn a_wait_that_a_clock_that_was_ahead_wrote_is_ended_and_others_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
        store
            .write(|tx| {
                tx.sql().execute_batch(
                    "INSERT INTO dirty_sources(source_type, source_id, queued_at, attempt_count, last_attempt_at, last_error, next_attempt_at)
                       VALUES ('issue', 1, 0, 1, 1, 'e', 3600000), ('issue', 2, 0, 1, 1, 'e', 40000000000);
                     INSERT INTO circuit_breakers(name, failures, open_until, changed_at) VALUES ('x', 1, 40000000000, 1);",
                )?;
                assert!(are_beyond_reason(tx, 0)?);
                assert_eq!(end_beyond_reason(tx, 0)?, 2);
                assert!(!are_beyond_reason(tx, 0)?);
                let kept: i64 = tx.sql().query_row(
                    "SELECT next_attempt_at FROM dirty_sources WHERE source_id = 1",
                    [],
                    |row| row.get(0),
                )?;
                assert_eq!(kept, 3_600_000);
                Ok(())
            })
            .unwrap();
    }
}
