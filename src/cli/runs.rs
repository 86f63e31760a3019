//! `lore runs`: the history of runs, one run in detail, and a request to stop one.

use clap::Subcommand;
use serde::Serialize;

use super::App;
use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::store::runs::{self, Attempt, Run};

/// Show the history of runs.
#[derive(Debug, clap::Args)]
pub struct RunsArgs {
    #[command(subcommand)]
    command: Option<RunsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Show runs of this job only
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show this many runs, newest first
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List runs, newest first
    #[command(after_help = "Examples:\n  lore runs list --job sync --limit 5")]
    List(ListArgs),
    /// Show one run with its steps, counts and errors
    #[command(after_help = "Examples:\n  lore runs show 42\n  lore runs show 42 --json | jq .data.steps")]
    Show {
        /// Number of the run
        run: i64,
    },
    /// Ask a running run to stop; it sees the request with its next heartbeat
    #[command(after_help = "Examples:\n  lore runs cancel 42")]
    Cancel {
        /// Number of the run
        run: i64,
    },
}

#[derive(Serialize)]
struct RunDetail {
    run: Run,
    steps: Vec<Attempt>,
}

/// Runs `lore runs`.
///
/// # Errors
/// Those of the database, and when there is no such run.
pub fn run(args: &RunsArgs, app: &mut App) -> Result<()> {
    match &args.command {
        None => list(&args.list, app),
        Some(RunsCommand::List(list_args)) => list(list_args, app),
        Some(RunsCommand::Show { run }) => show(*run, app),
        Some(RunsCommand::Cancel { run }) => cancel(*run, app),
    }
}

fn list(args: &ListArgs, app: &mut App) -> Result<()> {
    let runs = app.open_read_only()?.read(|tx| runs::newest(tx, args.job.as_deref(), args.limit))?;
    app.reply(&serde_json::json!({ "runs": runs }), |out| {
        if runs.is_empty() {
            return out.line("No runs yet. Start one: lore run demo");
        }
        for run in &runs {
            out.line(line_of(run))?;
        }
        Ok(())
    })
}

/// One line about a run.
pub(super) fn line_of(run: &Run) -> String {
    let duration = run
        .finished_at
        .map_or_else(String::new, |end| format!(" {:.1} s", (end - run.started_at) as f64 / 1000.0));
    let error = run.error.as_deref().map_or_else(String::new, |error| format!("  {error}"));
    format!(
        "{:>6}  {:<16} {:<11} {}{duration}{error}",
        run.id,
        run.job,
        run.state,
        clock::rfc3339(run.started_at)
    )
}

fn show(run_id: i64, app: &mut App) -> Result<()> {
    let store = app.open_read_only()?;
    let (run, steps) = store.read(|tx| Ok((runs::get(tx, run_id)?, runs::attempts(tx, run_id)?)))?;
    let detail = RunDetail { run, steps };
    app.reply(&detail, |out| {
        out.line(line_of(&detail.run))?;
        for attempt in &detail.steps {
            let reason = attempt.reason.as_deref().map_or_else(String::new, |text| format!("  ({text})"));
            out.line(format!(
                "  {:<20} {:<11} attempt {}  {:.1} s{reason}",
                attempt.step,
                attempt.state,
                attempt.attempt,
                attempt.finished_at.map_or(0.0, |end| (end - attempt.started_at) as f64 / 1000.0),
            ))?;
            if let Some(error) = &attempt.error {
                out.line(format!("    error: {error}"))?;
            }
            let counts = attempt.report.get("counts").and_then(serde_json::Value::as_object);
            for (name, n) in counts.into_iter().flatten() {
                out.line(format!("    {name}: {n}"))?;
            }
        }
        Ok(())
    })
}

fn cancel(run_id: i64, app: &mut App) -> Result<()> {
    let store = app.open_existing()?;
    let asked = store.write(|tx| runs::request_cancel(tx, run_id, clock::now_ms()))?;
    if !asked {
        let run = store.read(|tx| runs::get(tx, run_id))?;
        return Err(Error::new(
            ErrorKind::Usage,
            format!("run {run_id} is over: its state is {}", run.state),
        ));
    }
    app.reply(&serde_json::json!({ "run": run_id, "cancel_requested": true }), |out| {
        out.line(format!("Run {run_id} is asked to stop; it sees the request with its next heartbeat."))
    })
}
