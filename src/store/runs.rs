//! SQL of runs and step attempts. A terminal state is written once and never overwritten.

mod prune;

use rusqlite::{OptionalExtension, Row, named_params};
use serde::Serialize;

use super::lock::ProcessIdentity;
use super::metrics::{self, Persisted};
use super::{ReadTx, WriteTx};
use crate::clock::Millis;
use crate::error::{Error, ErrorKind, Result};

pub use prune::prune;

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its process works, or died without a word.
    Running,
    /// Every step succeeded, was skipped, or was allowed to fail.
    Succeeded,
    /// A step failed.
    Failed,
    /// Stopped by a signal; can be resumed.
    Interrupted,
    /// Stopped on request.
    Cancelled,
    /// Its process died; found by the next taker of the lock.
    Abandoned,
}

impl RunState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Succeeded, Self::Failed, Self::Interrupted, Self::Cancelled, Self::Abandoned];

    /// Name in the database, in JSON and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
        }
    }
}

/// How an attempt of a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptState {
    /// At work.
    Running,
    /// Done.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Not run, for a reason.
    Skipped,
    /// Stopped from outside.
    Cancelled,
    /// Ran out of its time.
    TimedOut,
    /// Its process died.
    Abandoned,
}

impl AttemptState {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Succeeded,
        Self::Failed,
        Self::Skipped,
        Self::Cancelled,
        Self::TimedOut,
        Self::Abandoned,
    ];

    /// Name in the database, in JSON and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Abandoned => "abandoned",
        }
    }
}

/// A run to begin.
#[derive(Debug)]
pub struct NewRun<'a> {
    /// Name of the job.
    pub job: &'a str,
    /// Hash of the resolved job file.
    pub job_hash: &'a str,
    /// Options of the command line, JSON.
    pub options: &'a str,
    /// The run that this one continues.
    pub resumed_from: Option<i64>,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Number of the run in this database.
    pub id: i64,
    /// Name that no other run of any database has.
    pub uuid: String,
    /// Name of the job.
    pub job: String,
    /// Hash of the resolved job file.
    pub job_hash: String,
    /// How it stands.
    pub state: String,
    /// Exit code of its process.
    pub exit_code: Option<i64>,
    /// When it began.
    pub started_at: Millis,
    /// When it ended.
    pub finished_at: Option<Millis>,
    /// Fencing token it wrote with.
    pub token: i64,
    /// Where it ran.
    pub host: Option<String>,
    /// Its process.
    pub pid: Option<i64>,
    /// The run that it continued.
    pub resumed_from: Option<i64>,
    /// Kind of its error.
    pub error_code: Option<String>,
    /// Its error.
    pub error: Option<String>,
}

/// One attempt of a step.
#[derive(Debug, Clone, Serialize)]
pub struct Attempt {
    /// Name of the step.
    pub step: String,
    /// Number of the attempt, from 1; 0 for a step that was skipped.
    pub attempt: i64,
    /// Kind of the step.
    pub kind: String,
    /// How it stands.
    pub state: String,
    /// What the run makes of it.
    pub conclusion: Option<String>,
    /// When it began.
    pub started_at: Millis,
    /// When it ended.
    pub finished_at: Option<Millis>,
    /// Why it was skipped, cancelled or retried.
    pub reason: Option<String>,
    /// Kind of its error.
    pub error_code: Option<String>,
    /// Its error.
    pub error: Option<String>,
    /// What it did.
    pub report: serde_json::Value,
}

/// The end of an attempt.
#[derive(Debug)]
pub struct AttemptEnd<'a> {
    /// How it ended.
    pub state: AttemptState,
    /// Whether the run may call it fine.
    pub conclusion_ok: bool,
    /// Why, when it did not succeed.
    pub reason: Option<&'a str>,
    /// Its error.
    pub error: Option<&'a Error>,
    /// What it did, JSON.
    pub report: &'a str,
    /// Items that failed while the step went on.
    pub failing: i64,
}

/// Reason of a step failure that ran out of its time, beside the codes of
/// [`ErrorKind`].
pub const TIMED_OUT: &str = "TIMED_OUT";

/// Inserts the row of a run that begins; returns its number.
pub(super) fn insert(
    tx: &WriteTx<'_>,
    run: &NewRun<'_>,
    owner: &str,
    process: &ProcessIdentity,
    token: i64,
    now: Millis,
) -> Result<i64> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO runs(uuid, job, job_hash, options, state, started_at, token, owner, host, pid, version, resumed_from)
             VALUES (:uuid, :job, :job_hash, :options, 'running', :now, :token, :owner, :host, :pid, :version, :resumed_from)",
        )?
        .execute(named_params! {
            ":uuid": uuid::Uuid::new_v4().to_string(),
            ":job": run.job,
            ":job_hash": run.job_hash,
            ":options": run.options,
            ":now": now,
            ":token": token,
            ":owner": owner,
            ":host": process.host,
            ":pid": process.pid,
            ":version": env!("CARGO_PKG_VERSION"),
            ":resumed_from": run.resumed_from,
        })?;
    Ok(tx.sql().last_insert_rowid())
}

/// Closes every run that is still open: the lock was free or its holder dead, so their
/// processes are gone. Returns the runs that were closed.
pub(super) fn abandon_open(tx: &WriteTx<'_>, now: Millis) -> Result<Vec<i64>> {
    tx.sql().execute(
        "UPDATE step_attempts SET state = 'abandoned', conclusion = 'failed', finished_at = ?1, reason = 'its process died'
          WHERE state = 'running'",
        [now],
    )?;
    let mut statement = tx.sql().prepare_cached(
        "UPDATE runs SET state = 'abandoned', finished_at = ?1, error = 'its process died without a word'
          WHERE state = 'running' RETURNING id, job",
    )?;
    let closed = statement
        .query_map([now], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    for (_, job) in &closed {
        metrics::add(tx, Persisted::Runs, &[job, RunState::Abandoned.as_str()], 1.0)?;
    }
    Ok(closed.into_iter().map(|(id, _)| id).collect())
}

/// Ends a run. Does nothing to a run that has ended already.
///
/// # Errors
/// SQLite's.
pub fn finish(
    tx: &WriteTx<'_>,
    run_id: i64,
    state: RunState,
    exit_code: u8,
    error: Option<&Error>,
    now: Millis,
) -> Result<()> {
    let job: Option<String> = tx
        .sql()
        .prepare_cached(
            "UPDATE runs SET state = ?2, exit_code = ?3, finished_at = ?4, error_code = ?5, error = ?6
              WHERE id = ?1 AND state = 'running' RETURNING job",
        )?
        .query_row(
            (
                run_id,
                state.as_str(),
                exit_code,
                now,
                error.map(|error| error.kind().code()),
                error.map(Error::full_message),
            ),
            |row| row.get(0),
        )
        .optional()?;
    if let Some(job) = job {
        metrics::add(tx, Persisted::Runs, &[&job, state.as_str()], 1.0)?;
    }
    Ok(())
}

/// Writes that an attempt begins.
///
/// # Errors
/// SQLite's.
pub fn begin_attempt(
    tx: &WriteTx<'_>,
    run_id: i64,
    step: &str,
    attempt: i64,
    kind: &str,
    now: Millis,
) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO step_attempts(run_id, step, attempt, kind, state, started_at) VALUES (?1, ?2, ?3, ?4, 'running', ?5)",
        )?
        .execute((run_id, step, attempt, kind, now))?;
    if attempt > 1 {
        metrics::add(tx, Persisted::StepRetries, &[&job_of(tx, run_id)?, step], 1.0)?;
    }
    Ok(())
}

fn job_of(tx: &ReadTx<'_>, run_id: i64) -> Result<String> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT job FROM runs WHERE id = ?1")?
        .query_row([run_id], |row| row.get(0))?)
}

/// Writes how an attempt ended. Does nothing to one that has ended already.
///
/// # Errors
/// SQLite's.
pub fn end_attempt(
    tx: &WriteTx<'_>,
    run_id: i64,
    step: &str,
    attempt: i64,
    end: &AttemptEnd<'_>,
    now: Millis,
) -> Result<()> {
    let changed = tx
        .sql()
        .prepare_cached(
            "UPDATE step_attempts SET state = :state, conclusion = :conclusion, finished_at = :now, reason = :reason,
                    error_code = :error_code, error = :error, report = :report
              WHERE run_id = :run_id AND step = :step AND attempt = :attempt AND state = 'running'",
        )?
        .execute(named_params! {
            ":state": end.state.as_str(),
            ":conclusion": if end.conclusion_ok { "ok" } else { "failed" },
            ":now": now,
            ":reason": end.reason,
            ":error_code": end.error.map(|error| error.kind().code()),
            ":error": end.error.map(Error::full_message),
            ":report": end.report,
            ":run_id": run_id,
            ":step": step,
            ":attempt": attempt,
        })?;
    if changed == 1 {
        count_end(tx, &job_of(tx, run_id)?, step, end)?;
    }
    Ok(())
}

/// Raises the counters that speak of failures.
fn count_end(tx: &WriteTx<'_>, job: &str, step: &str, end: &AttemptEnd<'_>) -> Result<()> {
    let reason = match end.state {
        AttemptState::Failed => Some(end.error.map_or("INTERNAL", |error| error.kind().code())),
        AttemptState::TimedOut => Some(TIMED_OUT),
        AttemptState::Running
        | AttemptState::Succeeded
        | AttemptState::Skipped
        | AttemptState::Cancelled
        | AttemptState::Abandoned => None,
    };
    if let Some(reason) = reason {
        metrics::add(tx, Persisted::StepFailures, &[job, reason, step], 1.0)?;
    }
    if end.failing > 0 {
        #[expect(clippy::cast_precision_loss, reason = "a count of items")]
        metrics::add(tx, Persisted::ItemsFailed, &[job, step], end.failing as f64)?;
    }
    Ok(())
}

/// Writes that a step was not run, and why.
///
/// # Errors
/// SQLite's.
pub fn skip_step(
    tx: &WriteTx<'_>,
    run_id: i64,
    step: &str,
    kind: &str,
    reason: &str,
    conclusion_ok: bool,
    now: Millis,
) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO step_attempts(run_id, step, attempt, kind, state, conclusion, started_at, finished_at, reason)
             VALUES (?1, ?2, 0, ?3, 'skipped', ?4, ?5, ?5, ?6)
             ON CONFLICT(run_id, step, attempt) DO NOTHING",
        )?
        .execute((run_id, step, kind, if conclusion_ok { "ok" } else { "failed" }, now, reason))?;
    Ok(())
}

/// Asks a running run to stop; its heartbeat sees it. Returns whether it was running.
///
/// # Errors
/// SQLite's.
pub fn request_cancel(tx: &WriteTx<'_>, run_id: i64, now: Millis) -> Result<bool> {
    let changed = tx
        .sql()
        .prepare_cached("UPDATE runs SET cancel_requested_at = ?2 WHERE id = ?1 AND state = 'running'")?
        .execute((run_id, now))?;
    Ok(changed == 1)
}

const RUN_COLUMNS: &str = "id, uuid, job, job_hash, state, exit_code, started_at, finished_at, token, host, pid, resumed_from, error_code, error";

fn run_from_row(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        id: row.get("id")?,
        uuid: row.get("uuid")?,
        job: row.get("job")?,
        job_hash: row.get("job_hash")?,
        state: row.get("state")?,
        exit_code: row.get("exit_code")?,
        started_at: row.get("started_at")?,
        finished_at: row.get("finished_at")?,
        token: row.get("token")?,
        host: row.get("host")?,
        pid: row.get("pid")?,
        resumed_from: row.get("resumed_from")?,
        error_code: row.get("error_code")?,
        error: row.get("error")?,
    })
}

/// Returns the newest runs, newest first, of one job or of all.
///
/// # Errors
/// SQLite's.
pub fn newest(tx: &ReadTx<'_>, job: Option<&str>, limit: i64) -> Result<Vec<Run>> {
    let sql =
        format!("SELECT {RUN_COLUMNS} FROM runs WHERE ?1 IS NULL OR job = ?1 ORDER BY id DESC LIMIT ?2");
    let mut statement = tx.sql().prepare_cached(&sql)?;
    let runs = statement.query_map((job, limit), run_from_row)?.collect::<rusqlite::Result<_>>()?;
    Ok(runs)
}

/// Returns one run.
///
/// # Errors
/// [`ErrorKind::ReferenceNotFound`] when there is none of that number, and SQLite's.
pub fn get(tx: &ReadTx<'_>, run_id: i64) -> Result<Run> {
    let sql = format!("SELECT {RUN_COLUMNS} FROM runs WHERE id = ?1");
    tx.sql().prepare_cached(&sql)?.query_row([run_id], run_from_row).optional()?.ok_or_else(|| {
        Error::new(ErrorKind::ReferenceNotFound, format!("there is no run {run_id}"))
            .hint("`lore runs` lists the runs of this database")
    })
}

/// Returns when the last successful run of a whole job ended; one of some of its steps does
/// not count.
///
/// # Errors
/// SQLite's.
pub fn last_success(tx: &ReadTx<'_>, job: &str) -> Result<Option<Millis>> {
    Ok(tx
        .sql()
        // The newest run, not the highest time: a clock that once stood in the future would
        // hide every later success.
        .prepare_cached(
            "SELECT finished_at FROM runs WHERE job = ?1 AND state = 'succeeded'
                AND coalesce(options ->> '$.partial', 0) = 0 ORDER BY id DESC LIMIT 1",
        )?
        .query_row([job], |row| row.get(0))
        .optional()?
        .flatten())
}

/// Returns the attempts of a run in the order in which they began.
///
/// # Errors
/// SQLite's.
pub fn attempts(tx: &ReadTx<'_>, run_id: i64) -> Result<Vec<Attempt>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT step, attempt, kind, state, conclusion, started_at, finished_at, reason, error_code, error, report
           FROM step_attempts WHERE run_id = ?1 ORDER BY started_at, step, attempt",
    )?;
    let rows = statement.query_map([run_id], |row| {
        let report: String = row.get("report")?;
        Ok(Attempt {
            step: row.get("step")?,
            attempt: row.get("attempt")?,
            kind: row.get("kind")?,
            state: row.get("state")?,
            conclusion: row.get("conclusion")?,
            started_at: row.get("started_at")?,
            finished_at: row.get("finished_at")?,
            reason: row.get("reason")?,
            error_code: row.get("error_code")?,
            error: row.get("error")?,
            report: serde_json::from_str(&report).unwrap_or(serde_json::Value::Null),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
