//! `lore run` and its shortcuts: takes the lock, runs the job, reports how it ended.

mod flags;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

pub use flags::{DurationArg, LockedAction, RunFlags};

use super::App;
use super::args::LogFormat;
use super::observe::{self, Observed};
use crate::clock;
use crate::config::LockConfig;
use crate::engine::cancel::{Cancel, StopReason};
use crate::engine::ctx::RunOptions;
use crate::engine::lease::{self, Heartbeat, IfLocked, Outcome, Taken};
use crate::engine::progress::ProgressMode;
use crate::engine::run::{self, RunEnv, RunPlan, RunReport, StepSummary};
use crate::engine::signals;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::fault;
use crate::job::Job;
use crate::job::graph::Selection;
use crate::store::lock::LockState;
use crate::store::runs::{self, NewRun, RunState};
use crate::store::{Store, lock, queues, waits};

/// Run a job.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Job: a name in the jobs directory or compiled in (see `lore jobs list`), or the path of a job file
    pub job: String,
    #[command(flatten)]
    pub options: RunFlags,
}

/// The answer of a run.
#[derive(Debug, Serialize)]
pub(super) struct RunAnswer {
    job: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<i64>,
    /// `succeeded`, `failed`, …, or `skipped`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    exit_code: u8,
    failing: i64,
    allowed_failures: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    abandoned_runs: Vec<i64>,
    steps: Vec<StepSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<LockState>,
}

impl RunAnswer {
    /// The report of a step, when it ran.
    pub(super) fn step(&self, id: &str) -> Option<&StepSummary> {
        self.steps.iter().find(|step| step.step == id)
    }

    /// Number of the run, when there was one.
    pub(super) fn run_id(&self) -> Option<i64> {
        self.run_id
    }

    /// Why nothing was run, when nothing was.
    pub(super) fn skip_reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    fn skipped(job: &Job, reason: String, lock: Option<LockState>) -> Self {
        Self {
            job: job.name.clone(),
            run_id: None,
            state: "skipped",
            reason: Some(reason),
            exit_code: 0,
            failing: 0,
            allowed_failures: 0,
            abandoned_runs: Vec::new(),
            steps: Vec::new(),
            lock,
        }
    }
}

/// Runs `lore run`.
///
/// # Errors
/// Those of the job file, the lock and the run.
pub fn run(args: &RunArgs, app: &mut App) -> Result<()> {
    let job = super::jobs::find(app, &args.job, &args.options.set)?;
    run_job(&job, &args.options, app)
}

/// Runs a job that is at hand and reports it.
///
/// # Errors
/// Those of the lock and the run.
pub fn run_job(job: &Job, flags: &RunFlags, app: &mut App) -> Result<()> {
    if flags.dry_run {
        let selected = job.select(&selection(flags))?;
        return super::plan::show(job, &selected, app);
    }
    let (answer, error) = execute(job, flags, app)?;
    match error {
        None => reply(&answer, app),
        Some(error) => {
            if !app.globals.json {
                reply(&answer, app)?;
            }
            Err(with_answer(error, &answer)?)
        }
    }
}

/// Adds the answer of a failed run to its error, for `--json`.
///
/// # Errors
/// When it cannot be encoded.
pub(super) fn with_answer(error: Error, answer: &RunAnswer) -> Result<Error> {
    let details =
        serde_json::to_value(answer).map_err(|error| Error::internal("encode the answer").because(error))?;
    Ok(error.details(details))
}

fn selection(flags: &RunFlags) -> Selection {
    Selection { only: flags.only.clone(), from: flags.from.clone(), skip: flags.skip.clone() }
}

/// Runs a job under the lock. The one path that every command that changes something takes.
/// The error beside the answer is the run's; it decides the exit code.
///
/// # Errors
/// Those of the lock and of the run's own rows.
pub(super) fn execute(job: &Job, flags: &RunFlags, app: &App) -> Result<(RunAnswer, Option<Error>)> {
    let selected = job.select(&selection(flags))?;
    // Before the lock: number 1 of a container has no default action for SIGTERM.
    let cancel = Cancel::new();
    signals::install(&cancel)?;
    let store = app.open()?;
    store.set_stop(&cancel);
    if let Some(answer) = fresh(&store, job, flags)? {
        return Ok((answer, None));
    }
    let (resumed_from, done_before) = resume(&store, job, flags)?;
    let options = flags.run_options(job);
    let options_json = serde_json::json!({
        "full": options.full,
        "retry_failed": options.retry_failed,
        "allow_mass_delete": options.allow_mass_delete,
        "partial": selected.contains(&false),
    })
    .to_string();
    let new_run = NewRun { job: &job.name, job_hash: &job.hash, options: &options_json, resumed_from };
    let if_locked = match flags.if_locked {
        LockedAction::Wait => IfLocked::Wait(flags.lock_wait.0),
        LockedAction::Fail => IfLocked::Fail,
        LockedAction::Skip => IfLocked::Skip,
    };
    let lock_config = app.config()?.lock;
    let taken = match lease::take(&store, &new_run, lock_config, if_locked, &cancel)? {
        Outcome::Taken(taken) => taken,
        Outcome::Skipped(held) => {
            let reason = lock::held_error(&held, clock::now_ms()).full_message();
            return Ok((RunAnswer::skipped(job, reason, Some(*held)), None));
        }
    };
    store.set_fence(Some(taken.fence.clone()));
    fault::point("after-lock");
    let plan = RunPlan { job, selected, done_before };
    let observed = Observed::begin(app, &store, &job.name, taken.run_id);
    let ended = work(app, &store, &plan, &taken, options, &cancel)
        .map(|report| end(job, flags, &taken, report))
        .map_err(|error| stopped_unwritten(&cancel, error));
    observed.end(app, &store, ended.as_ref().map_or_else(Some, |(_, error)| error.as_ref()));
    ended
}

/// A run that was told to end and could not write that down, because another process holds the
/// write lock, ended by the signal all the same. The next start finds its process gone.
fn stopped_unwritten(cancel: &Cancel, error: Error) -> Error {
    match cancel.reason() {
        Some(reason @ (StopReason::Interrupted | StopReason::Terminated | StopReason::HungUp))
            if error.kind() == ErrorKind::DatabaseBusy =>
        {
            error.with_kind(reason.error().kind())
        }
        Some(_) | None => error,
    }
}

/// What goes on beside the steps of a run.
struct Machinery {
    heartbeat: Heartbeat,
    runtime: tokio::runtime::Runtime,
}

impl Machinery {
    fn start(store: &Store, lock: LockConfig, taken: &Taken, cancel: &Cancel) -> Result<Self> {
        let heartbeat = Heartbeat::start(store, &taken.fence, taken.run_id, lock, cancel)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| io_error("start the network runtime", error))?;
        Ok(Self { heartbeat, runtime })
    }
}

/// Runs the steps and closes the run: its row first, then the lock. Both whatever happened: a
/// lock that outlives its process delays the next run.
fn work(
    app: &App,
    store: &Store,
    plan: &RunPlan<'_>,
    taken: &Taken,
    options: RunOptions,
    cancel: &Cancel,
) -> Result<RunReport> {
    let config = app.config()?;
    let span = observe::run_span(taken.run_id, &plan.job.name);
    let _in_run = span.enter();
    let (machinery, ran) = match Machinery::start(store, config.lock, taken, cancel) {
        Ok(machinery) => {
            let known = &app.world.vars;
            let vars = |name: &str| known.get(name).cloned();
            let env = RunEnv {
                store,
                config,
                vars: &vars,
                runtime: machinery.runtime.handle().clone(),
                progress: progress_mode(app),
                options,
                cancel: cancel.clone(),
            };
            let ran = run_steps(&env, plan, taken);
            (Some(machinery), ran)
        }
        Err(error) => (None, Err(error)),
    };
    observe::record(&span, &ran);
    let closed = close(store, taken.run_id, ran);
    fault::point("before-release");
    let runtime = machinery.map(|Machinery { mut heartbeat, runtime }| {
        heartbeat.stop();
        runtime
    });
    match lock::release(store, &taken.fence) {
        Ok(true) => {}
        Ok(false) => tracing::warn!("the lock was taken over before it was released"),
        Err(error) => tracing::error!("release the lock: {error}"),
    }
    if let Some(runtime) = runtime {
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
    closed
}

fn run_steps(env: &RunEnv<'_>, plan: &RunPlan<'_>, taken: &Taken) -> Result<RunReport> {
    tracing::info!(token = taken.fence.token, "run begins");
    for run in &taken.abandoned {
        tracing::warn!(
            abandoned_run = run,
            "the process of an earlier run died; its run is closed as abandoned"
        );
    }
    let now = clock::now_ms();
    if env.store.read(|tx| waits::are_beyond_reason(tx, now))? {
        let n = env.store.write(|tx| waits::end_beyond_reason(tx, now))?;
        tracing::warn!(
            entries = n,
            "entries waited for times that only a clock that was ahead can have written; they are ready again"
        );
    }
    if env.options.retry_failed {
        let n = env.store.write(queues::retry_failed)?;
        tracing::info!(entries = n, "entries that failed are ready again");
    }
    run::run(env, plan, taken.run_id)
}

/// Writes how the run ended. A run that lost the lock writes nothing: whoever takes the lock
/// next closes it.
fn close(store: &Store, run_id: i64, ran: Result<RunReport>) -> Result<RunReport> {
    let now = clock::now_ms();
    match ran {
        Ok(report) if report.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Fenced) => {
            Ok(report)
        }
        Ok(report) => {
            let code = report.error.as_ref().map_or(0, |error| error.kind().exit_code());
            run::finish(store, run_id, &report, code, now)?;
            Ok(report)
        }
        Err(error) if error.kind() == ErrorKind::Fenced => Err(error),
        Err(error) => {
            let code = error.kind().exit_code();
            let closed =
                store.write(|tx| runs::finish(tx, run_id, RunState::Failed, code, Some(&error), now));
            if let Err(second) = closed {
                tracing::error!("write how run {run_id} ended: {second}");
            }
            Err(error)
        }
    }
}

pub(super) fn progress_mode(app: &App) -> ProgressMode {
    if app.globals.quiet {
        ProgressMode::Silent
    } else if app.world.err_is_terminal && app.globals.log_format == LogFormat::Human {
        ProgressMode::Bars(indicatif::MultiProgress::new())
    } else {
        ProgressMode::Log
    }
}

/// Returns the answer of a run that is not needed.
fn fresh(store: &Store, job: &Job, flags: &RunFlags) -> Result<Option<RunAnswer>> {
    let Some(DurationArg(window)) = flags.skip_if_fresh else { return Ok(None) };
    let Some(last) = store.read(|tx| runs::last_success(tx, &job.name))? else { return Ok(None) };
    let age = clock::now_ms().saturating_sub(last);
    let window_ms = i64::try_from(window.as_millis()).unwrap_or(i64::MAX);
    if (0..window_ms).contains(&age) {
        let reason = format!("succeeded {} s ago, at {}", age / 1000, clock::rfc3339(last));
        return Ok(Some(RunAnswer::skipped(job, reason, None)));
    }
    Ok(None)
}

/// Finds the run to continue, and the steps that it has done.
fn resume(store: &Store, job: &Job, flags: &RunFlags) -> Result<(Option<i64>, Vec<String>)> {
    let Some(which) = &flags.resume else { return Ok((None, Vec::new())) };
    let (old, done) = store.read(|tx| {
        let old = if which == "last" {
            runs::newest(tx, Some(&job.name), 1)?.into_iter().next().ok_or_else(|| {
                Error::new(ErrorKind::ReferenceNotFound, format!("job {} has not run yet", job.name))
            })?
        } else {
            let id = which.parse().map_err(|_| {
                Error::usage(format!("--resume {which}: not the number of a run"))
                    .hint("`lore runs` lists them")
            })?;
            runs::get(tx, id)?
        };
        // A run that was continued itself counts with all that it continued, the oldest first:
        // what was done before a need was done anew counts no longer.
        let mut chain = vec![old.id];
        let mut at = old.resumed_from;
        while let Some(id) = at {
            chain.push(id);
            at = runs::get(tx, id)?.resumed_from;
        }
        let mut done = BTreeSet::new();
        for id in chain.into_iter().rev() {
            let succeeded =
                runs::attempts(tx, id)?.into_iter().filter(|attempt| attempt.state == "succeeded");
            done.extend(succeeded.map(|attempt| attempt.step));
            done = job.done(&done);
        }
        Ok((old, done.into_iter().collect()))
    })?;
    if old.job != job.name {
        return Err(Error::usage(format!("run {} was of job {}, not {}", old.id, old.job, job.name)));
    }
    if old.state == RunState::Succeeded.as_str() {
        return Err(Error::usage(format!("run {} succeeded: there is nothing to continue", old.id))
            .hint("run the job again without --resume"));
    }
    if old.job_hash != job.hash && !flags.force {
        return Err(Error::new(
            ErrorKind::Config,
            format!("job {} changed since run {}: steps that were done may differ now", job.name, old.id),
        )
        .hint("run it anew, or continue all the same with --force"));
    }
    Ok((Some(old.id), done))
}

fn end(job: &Job, flags: &RunFlags, taken: &Taken, report: RunReport) -> (RunAnswer, Option<Error>) {
    let RunReport { state, error, steps, allowed_failures, failing } = report;
    let strict_failure = error.is_none() && flags.strict && (failing > 0 || allowed_failures > 0);
    let error = error.or_else(|| {
        strict_failure.then(|| {
            Error::new(
                ErrorKind::ItemsFailing,
                format!(
                    "job {}: {failing} items are failing, {allowed_failures} failures were allowed",
                    job.name
                ),
            )
            .hint("`lore status` lists what is failing")
        })
    });
    let answer = RunAnswer {
        job: job.name.clone(),
        run_id: Some(taken.run_id),
        state: state.as_str(),
        reason: None,
        exit_code: error.as_ref().map_or(0, |error| error.kind().exit_code()),
        failing,
        allowed_failures,
        abandoned_runs: taken.abandoned.clone(),
        steps,
        lock: None,
    };
    (answer, error)
}

fn reply(answer: &RunAnswer, app: &mut App) -> Result<()> {
    app.reply(answer, |out| {
        let run = answer.run_id.map_or_else(String::new, |id| format!(" (run {id})"));
        let reason = answer.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
        for step in &answer.steps {
            let mark = match step.outcome {
                "succeeded" => out.paint("32", "ok     "),
                "skipped" => out.paint("2", "skipped"),
                "cancelled" => out.paint("33", "stopped"),
                _ => out.paint("31", "failed "),
            };
            let seconds = step.elapsed_ms as f64 / 1000.0;
            let why = step.reason.as_deref().or(step.error.as_deref()).unwrap_or_default();
            out.line(format!("{mark}  {:<20} {seconds:>7.1} s  {why}", step.step))?;
            for (name, n) in step.report.counts.iter().filter(|(_, n)| **n != 0) {
                out.line(format!("           {:<32} {n:>9}", name.replace('_', " ")))?;
            }
            for warning in &step.report.warnings {
                out.line(format!("           {} {warning}", out.paint("33", "warning:")))?;
            }
        }
        out.line(format!("Job {}{run} {}{reason}", answer.job, answer.state))?;
        if answer.failing > 0 {
            out.line(format!("{} items failed and stay queued or recorded: lore status", answer.failing))?;
        }
        if answer.job == "demo" && answer.state == "succeeded" {
            out.line("")?;
            out.line("Try next:")?;
            for command in DEMO_NEXT {
                out.line(format!("  {command}"))?;
            }
        }
        Ok(())
    })
}

/// What a newcomer can do with the sample data.
const DEMO_NEXT: [&str; 5] = [
    "lore query 'photos vanish when the disk is unplugged'",
    "lore query 'is:open label:type::bug'",
    "lore show '#12'",
    "lore status",
    "lore config init > lore.toml   # then: lore run sync",
];

/// Where a job directory given on the command line lies.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct JobsDirArg {
    /// Directory of job files, searched before the jobs compiled in
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    pub jobs_dir: Option<PathBuf>,
}
