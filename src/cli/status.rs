//! `lore status`: lock, queues, documents, index, last runs.

use serde::Serialize;

use super::shortcuts::{self, CheckMode};
use super::{App, lock as lock_command, runs as runs_command};
use crate::clock::{self, Millis};
use crate::error::{Error, ErrorKind, Result};
use crate::store::cursors::{self, StreamFailure};
use crate::store::embeddings::{self, Coverage, FailingChunk};
use crate::store::groups::{self, GroupFailure, OddProject};
use crate::store::integrity;
use crate::store::lock::{self, LockState};
use crate::store::queues::{self, FailingEntry, QueueDepth};
use crate::store::runs::{self, Run};
use crate::store::status::{self, DocumentCounts, EntityCounts, FileSizes};
use crate::store::tombstones::{self, Gone};

/// Failing entries that are listed.
const FAILING_SHOWN: i64 = 20;

/// Show lock, queues, documents, index and the last runs.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Run the integrity check first (takes the lock; exit code 22 when it finds something)
    #[arg(long)]
    check: bool,
    /// With --check: repair what it finds, and check again
    #[arg(long, requires = "check")]
    repair: bool,
    /// With --repair: show what would be repaired, change nothing
    #[arg(long, requires = "repair")]
    dry_run: bool,
}

#[derive(Serialize)]
struct Status {
    database: Database,
    documents: DocumentCounts,
    embeddings: Coverage,
    fts: Fts,
    queues: Queues,
    queue_details: Vec<QueueDepth>,
    failing: Vec<FailingEntry>,
    failing_passages: Vec<FailingChunk>,
    stream_failures: Vec<StreamFailure>,
    group_failures: Vec<GroupFailure>,
    odd_projects: Vec<OddProject>,
    gone: Gone,
    entities: EntityCounts,
    lock: LockState,
    last_runs: Vec<Run>,
    #[serde(skip_serializing_if = "Option::is_none")]
    integrity: Option<serde_json::Value>,
}

#[derive(Serialize)]
struct Database {
    path: String,
    schema_version: i64,
    size_bytes: u64,
    wal_bytes: u64,
}

#[derive(Serialize)]
struct Fts {
    indexed: i64,
}

#[derive(Default, Serialize)]
struct Queues {
    dirty_sources: i64,
    dirty_sources_failed: i64,
    dirty_sources_quarantined: i64,
    pending_discussion_fetches: i64,
    pending_discussion_fetches_failed: i64,
    pending_discussion_fetches_quarantined: i64,
}

impl Queues {
    fn of(depths: &[QueueDepth]) -> Self {
        let mut queues = Self::default();
        for depth in depths {
            match depth.queue {
                "dirty_sources" => {
                    queues.dirty_sources = depth.depth;
                    queues.dirty_sources_failed = depth.failed;
                    queues.dirty_sources_quarantined = depth.quarantined;
                }
                _ => {
                    queues.pending_discussion_fetches = depth.depth;
                    queues.pending_discussion_fetches_failed = depth.failed;
                    queues.pending_discussion_fetches_quarantined = depth.quarantined;
                }
            }
        }
        queues
    }
}

/// Runs `lore status`.
///
/// # Errors
/// Those of the database.
pub fn run(args: &StatusArgs, app: &mut App) -> Result<()> {
    show(args, app).map_err(|error| match error.kind() {
        // So damaged that the run of the check cannot be written down, or the rest not be shown.
        ErrorKind::Database if args.check => damaged(&error, app),
        _ => error,
    })
}

/// What is damaged, as far as a look without a run tells.
fn damaged(error: &Error, app: &App) -> Error {
    let looked = app.open_read_only().and_then(|store| integrity::check_pages_only(&store));
    match looked {
        Ok(found) if found.total() > 0 => integrity::findings_error(&found)
            .details(serde_json::json!({ "counts": found.counts, "findings": found.findings })),
        Ok(_) | Err(_) => {
            let told = Error::new(ErrorKind::IntegrityFindings, error.full_message());
            told.hint(integrity::LOST)
        }
    }
}

fn show(args: &StatusArgs, app: &mut App) -> Result<()> {
    let store = app.open_read_only()?;
    let mode = match (args.check, args.repair, args.dry_run) {
        (false, _, _) => None,
        (true, false, _) => Some(CheckMode::Check),
        (true, true, false) => Some(CheckMode::Repair),
        (true, true, true) => Some(CheckMode::PlanRepair),
    };
    let (integrity, integrity_lines, error) = match mode {
        None => (None, Vec::new(), None),
        Some(mode) => {
            let (value, lines, error) = shortcuts::check(mode, app)?;
            (Some(value), lines, error)
        }
    };
    let FileSizes { database, wal } = status::file_sizes(&store);
    let path = store.path().display().to_string();
    let now = clock::now_ms();
    let status = store.read(|tx| {
        let documents = status::documents(tx)?;
        let queue_details = queues::depths(tx, now)?;
        Ok(Status {
            database: Database {
                path,
                schema_version: crate::store::SCHEMA_VERSION,
                size_bytes: database,
                wal_bytes: wal,
            },
            documents,
            embeddings: embeddings::coverage(tx)?,
            fts: Fts { indexed: status::fts_rows(tx)? },
            queues: Queues::of(&queue_details),
            queue_details,
            failing: queues::failing(tx, FAILING_SHOWN)?,
            failing_passages: embeddings::failing(tx, FAILING_SHOWN)?,
            stream_failures: cursors::stream_failures(tx)?,
            group_failures: groups::failures(tx)?,
            odd_projects: groups::odd_projects(tx)?,
            gone: tombstones::gone(tx)?,
            entities: status::entities(tx)?,
            lock: lock::state(tx)?,
            last_runs: runs::newest(tx, None, 5)?,
            integrity,
        })
    })?;
    if let Some(error) = error {
        let details = serde_json::to_value(&status)
            .map_err(|error| Error::internal("encode the status").because(error))?;
        if !app.globals.json {
            app.reply(&(), |out| integrity_lines.iter().try_for_each(|line| out.line(line)))?;
        }
        return Err(error.details(details));
    }
    app.reply(&status, |out| {
        let Status { documents, entities, .. } = &status;
        out.line(format!(
            "Database    {} ({:.1} MB, log {:.1} MB)",
            status.database.path,
            status.database.size_bytes as f64 / 1e6,
            status.database.wal_bytes as f64 / 1e6
        ))?;
        out.line(format!(
            "Stored      {} projects, {} issues, {} merge requests, {} discussions, {} notes",
            entities.projects, entities.issues, entities.merge_requests, entities.discussions, entities.notes
        ))?;
        out.line(format!(
            "Documents   {} ({} issues, {} merge requests, {} discussions; {} cut at the length limit)",
            documents.total, documents.issues, documents.mrs, documents.discussions, documents.truncated
        ))?;
        out.line(format!("Full text   {} indexed", status.fts.indexed))?;
        out.line(format!("Vectors     {}", describe_vectors(&status.embeddings)))?;
        if let Some(building) = &status.embeddings.building {
            out.line(format!(
                "            being built beside them: {}, {} %",
                building.identity.model, building.coverage_pct
            ))?;
        }
        for queue in &status.queue_details {
            let oldest = queue.oldest_at.map_or_else(String::new, |at| {
                format!(", oldest {} s", now.saturating_sub(at).max(0) / 1000)
            });
            out.line(format!(
                "Queue       {}: {} ({} ready, {} failing, {} quarantined{oldest})",
                queue.queue, queue.depth, queue.ready, queue.failed, queue.quarantined
            ))?;
        }
        for (line, label) in lock_command::describe(&status.lock, now)
            .iter()
            .zip(std::iter::once("Lock").chain(std::iter::repeat("")))
        {
            out.line(format!("{label:<11} {line}"))?;
        }
        for failure in &status.stream_failures {
            out.line(format!(
                "Failing     {} {}: {} (failed {} times{})",
                failure.project_path,
                failure.stream,
                failure.error,
                failure.attempt_count,
                next_try(failure.next_attempt_at)
            ))?;
        }
        for failure in &status.group_failures {
            out.line(format!(
                "Failing     group {} of {}: {} (failed {} times{})",
                failure.group,
                failure.source,
                failure.error,
                failure.attempt_count,
                next_try(failure.next_attempt_at)
            ))?;
        }
        for project in &status.odd_projects {
            let since = clock::rfc3339(project.since);
            out.line(format!("Upstream    {}: {} since {since}", project.project_path, odd(&project.state)))?;
        }
        if status.gone != Gone::default() {
            out.line(format!(
                "Gone        {} items missing upstream, {} deleted here",
                status.gone.missing, status.gone.tombstones
            ))?;
        }
        for entry in &status.failing {
            let state = if entry.quarantined { ", quarantined" } else { "" };
            out.line(format!(
                "Failing     {} {}: {} (failed {} times{state})",
                entry.queue, entry.subject, entry.error, entry.attempt_count
            ))?;
        }
        for passage in &status.failing_passages {
            let state = if passage.quarantined { ", quarantined" } else { "" };
            out.line(format!(
                "Failing     embed document {} passage {}: {} (failed {} times{state})",
                passage.document_id, passage.ordinal, passage.error, passage.attempt_count
            ))?;
        }
        for line in &integrity_lines {
            out.line(line)?;
        }
        out.line("Last runs")?;
        if status.last_runs.is_empty() {
            out.line("  none yet; start one: lore run demo")?;
        }
        for run in &status.last_runs {
            out.line(runs_command::line_of(run))?;
        }
        Ok(())
    })
}

/// When something that fails is tried again, for people.
fn next_try(at: Option<Millis>) -> String {
    at.map(|at| format!(", next try {}", clock::rfc3339(at))).unwrap_or_default()
}

/// How a project stands upstream, for people.
fn odd(state: &str) -> &str {
    match state {
        "marked_for_deletion" => "marked for deletion",
        "missing" => "not found",
        "deleted" => "deleted, and here too",
        "not_listed" => "no longer listed by its group",
        other => other,
    }
}

/// Coverage of the index that answers by meaning, for people.
fn describe_vectors(coverage: &Coverage) -> String {
    let Some(identity) = &coverage.identity else {
        return "none; `lore embed` makes them, for search by meaning".to_owned();
    };
    format!(
        "{} % of the documents ({} embedded, {} pending, {} failed) by {}, {} passages",
        coverage.coverage_pct,
        coverage.embedded,
        coverage.pending,
        coverage.failed,
        identity.model,
        coverage.chunks
    )
}
