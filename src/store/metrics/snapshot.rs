//! Everything that the metrics show, read in one transaction.

use std::collections::BTreeMap;

use rusqlite::OptionalExtension;

use super::{PersistedValue, persisted};
use crate::clock::Millis;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::embeddings::{self, Coverage};
use crate::store::groups;
use crate::store::lock::{self, LockState};
use crate::store::queues::{self, QueueDepth};
use crate::store::tombstones::{self, Gone};

/// One consistent look at the database.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Documents by source type.
    pub documents: Vec<(String, i64)>,
    /// Documents that were cut at the length limit.
    pub documents_truncated: i64,
    /// Rows of the full-text index.
    pub fts_rows: i64,
    /// How much is embedded.
    pub coverage: Coverage,
    /// How each queue stands.
    pub queues: Vec<QueueDepth>,
    /// Items that are gone upstream, or may be.
    pub gone: Gone,
    /// Projects that are not as usual upstream, by source.
    pub odd_projects: Vec<(String, i64)>,
    /// Streams and groups that keep failing, by source.
    pub streams_failing: Vec<(String, i64)>,
    /// When a cursor of each source was last moved.
    pub sources_synced_at: Vec<(String, Millis)>,
    /// Each job that ever ran.
    pub graphs: Vec<GraphState>,
    /// The app lock.
    pub lock: LockState,
    /// Findings of the last integrity check, by check.
    pub findings: Vec<(String, i64)>,
    /// Values kept across processes.
    pub persisted: Vec<PersistedValue>,
}

/// How a job stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GraphState {
    /// Name of the job.
    pub graph: String,
    /// When its newest run began.
    pub started_at: Millis,
    /// Whether that run has not ended.
    pub running: bool,
    /// When the newest run that ended did so.
    pub finished_at: Option<Millis>,
    /// How long that run took, milliseconds.
    pub duration_ms: Option<i64>,
    /// Exit code of that run; absent when its process died.
    pub exit_code: Option<i64>,
    /// When the newest successful run ended.
    pub succeeded_at: Option<Millis>,
    /// The steps of the newest run that ended.
    pub steps: Vec<StepState>,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq)]
pub struct StepState {
    /// Name of the step.
    pub step: String,
    /// How long its last attempt took, milliseconds.
    pub duration_ms: i64,
    /// What it did, by name.
    pub counts: Vec<(String, f64)>,
}

/// Reads everything that the metrics show.
///
/// # Errors
/// SQLite's.
pub fn snapshot(tx: &ReadTx<'_>, now: Millis) -> Result<Snapshot> {
    Ok(Snapshot {
        documents: pairs(tx, "SELECT source_type, count(*) FROM documents GROUP BY source_type")?,
        documents_truncated: count(tx, "SELECT count(*) FROM documents WHERE is_truncated = 1")?,
        fts_rows: count(tx, "SELECT count(*) FROM documents_fts_docsize")?,
        coverage: embeddings::coverage(tx)?,
        queues: queues::depths(tx, now)?,
        gone: tombstones::gone(tx)?,
        odd_projects: odd_projects(tx)?,
        streams_failing: pairs(
            tx,
            "SELECT source_name, count(*) FROM (
               SELECT p.source_name FROM stream_failures f JOIN projects p ON p.id = f.project_id
               UNION ALL SELECT source_name FROM group_failures) GROUP BY source_name",
        )?,
        sources_synced_at: pairs(
            tx,
            "SELECT p.source_name, max(c.saved_at) FROM cursors c JOIN projects p ON p.id = c.project_id
              GROUP BY p.source_name",
        )?,
        graphs: graphs(tx)?,
        lock: lock::state(tx)?,
        findings: pairs(tx, "SELECT check_name, count(*) FROM integrity_findings GROUP BY check_name")?,
        persisted: persisted(tx)?,
    })
}

fn odd_projects(tx: &ReadTx<'_>) -> Result<Vec<(String, i64)>> {
    let mut by_source = BTreeMap::new();
    for project in groups::odd_projects(tx)? {
        *by_source.entry(project.source).or_default() += 1;
    }
    Ok(by_source.into_iter().collect())
}

fn count(tx: &ReadTx<'_>, sql: &str) -> Result<i64> {
    Ok(tx.sql().prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

fn pairs(tx: &ReadTx<'_>, sql: &str) -> Result<Vec<(String, i64)>> {
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Each look-up is one step into the index on (job, started_at): the cost does not grow with
/// the history.
fn graphs(tx: &ReadTx<'_>) -> Result<Vec<GraphState>> {
    let mut next_job = tx.sql().prepare_cached("SELECT job FROM runs WHERE job > ?1 ORDER BY job LIMIT 1")?;
    let mut graphs = Vec::new();
    let mut after = String::new();
    while let Some(job) = next_job.query_row([&after], |row| row.get::<_, String>(0)).optional()? {
        graphs.push(graph(tx, &job)?);
        after = job;
    }
    Ok(graphs)
}

fn graph(tx: &ReadTx<'_>, job: &str) -> Result<GraphState> {
    let mut state = GraphState { graph: job.to_owned(), ..GraphState::default() };
    let newest: Option<(Millis, bool)> = tx
        .sql()
        .prepare_cached(
            "SELECT started_at, state = 'running' FROM runs WHERE job = ?1 ORDER BY started_at DESC, id DESC LIMIT 1",
        )?
        .query_row([job], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if let Some((started_at, running)) = newest {
        (state.started_at, state.running) = (started_at, running);
    }
    let ended: Option<(i64, Millis, i64, Option<i64>)> = tx
        .sql()
        .prepare_cached(
            "SELECT id, finished_at, finished_at - started_at, exit_code FROM runs
              WHERE job = ?1 AND finished_at IS NOT NULL ORDER BY started_at DESC, id DESC LIMIT 1",
        )?
        .query_row([job], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    if let Some((run_id, finished_at, duration_ms, exit_code)) = ended {
        state.finished_at = Some(finished_at);
        state.duration_ms = Some(duration_ms.max(0));
        state.exit_code = exit_code;
        state.steps = steps(tx, run_id)?;
    }
    state.succeeded_at = tx
        .sql()
        .prepare_cached(
            "SELECT finished_at FROM runs WHERE job = ?1 AND state = 'succeeded' ORDER BY started_at DESC, id DESC LIMIT 1",
        )?
        .query_row([job], |row| row.get(0))
        .optional()?;
    Ok(state)
}

fn steps(tx: &ReadTx<'_>, run_id: i64) -> Result<Vec<StepState>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT step, max(attempt), finished_at - started_at, report FROM step_attempts
          WHERE run_id = ?1 AND attempt > 0 AND finished_at IS NOT NULL GROUP BY step",
    )?;
    let mut rows = statement.query([run_id])?;
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        let report: String = row.get(3)?;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap_or_default();
        let counts = report.get("counts").and_then(serde_json::Value::as_object);
        let counts =
            counts.into_iter().flatten().filter_map(|(name, n)| Some((name.clone(), n.as_f64()?))).collect();
        steps.push(StepState { step: row.get(0)?, duration_ms: row.get::<_, i64>(2)?.max(0), counts });
    }
    Ok(steps)
}
