//! SQL of pruning the history of runs.

use crate::clock::Millis;
use crate::error::Result;
use crate::store::WriteTx;

/// Removes runs that began before `before` and are not among the newest `keep` of their job.
///
/// At most `limit` of them; returns how many. Those that are read later stay: a job's newest, its
/// newest that ended, its newest success of the whole job, and those under way.
///
/// # Errors
/// SQLite's.
pub fn prune(tx: &WriteTx<'_>, before: Millis, keep: i64, limit: i64) -> Result<usize> {
    Ok(tx
        .sql()
        .prepare_cached(
            "DELETE FROM runs WHERE id IN (
               SELECT r.id FROM runs r
                WHERE r.started_at < ?1 AND r.state <> 'running'
                  AND r.id NOT IN (SELECT max(id) FROM runs GROUP BY job)
                  AND r.id NOT IN (SELECT max(id) FROM runs WHERE finished_at IS NOT NULL GROUP BY job)
                  AND r.id NOT IN (SELECT max(id) FROM runs WHERE state = 'succeeded' GROUP BY job)
                  AND r.id NOT IN (SELECT max(id) FROM runs WHERE state = 'succeeded'
                                    AND coalesce(options ->> '$.partial', 0) = 0 GROUP BY job)
                  AND (SELECT count(*) FROM runs n WHERE n.job = r.job AND n.id > r.id) >= ?2
                ORDER BY r.id LIMIT ?3)",
        )?
        .execute((before, keep, limit))?)
}
