//! Runs the graph of a job: begins what is ready, records what ends, decides what follows.
//!
//! Deciding is [`job::state`](crate::job::state)'s; this module starts threads, keeps time and
//! writes rows. Every step attempt is one thread; commits are serial because the store has
//! one writer, network and embedding are not.

mod report;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::cancel::{Cancel, StopReason};
use super::ctx::{RunOptions, StepCtx};
use super::progress::{Progress, ProgressMode};
use super::shared::Shared;
use super::step::StepReport;
use crate::backoff;
use crate::clock::{self, Millis};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::job::state::{self, Conclusion, Decision, Outcome, SkipReason};
use crate::job::when::{Facts, Queue};
use crate::job::{Job, JobStep};
use crate::store::runs::{self, AttemptEnd, AttemptState};
use crate::store::{Store, queues, status};

pub use report::{RunReport, StepSummary};

/// Longest time that the loop sleeps before it looks at the stop signal.
const TICK: Duration = Duration::from_millis(50);

/// What a run works with.
pub struct RunEnv<'a> {
    /// The database, bound to the lock's fence.
    pub store: &'a Store,
    /// The configuration.
    pub config: &'a Config,
    /// Environment variables, for secrets.
    pub vars: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Runs asynchronous work.
    pub runtime: tokio::runtime::Handle,
    /// How progress is shown.
    pub progress: ProgressMode,
    /// What the command line asked for.
    pub options: RunOptions,
    /// Stops the run.
    pub cancel: Cancel,
}

/// Which steps of a job are to run.
#[derive(Debug)]
pub struct RunPlan<'a> {
    /// The job.
    pub job: &'a Job,
    /// For each step whether the command line selects it.
    pub selected: Vec<bool>,
    /// Steps that the run that is continued has done.
    pub done_before: Vec<String>,
}

/// A step while the run goes on.
#[derive(Default)]
struct Progressing {
    outcome: Option<Outcome>,
    attempt: u32,
    running: Option<Running>,
    retry_at: Option<Instant>,
    began: Option<Instant>,
    elapsed: Duration,
    report: StepReport,
    error: Option<Error>,
    hints: Vec<String>,
}

struct Running {
    cancel: Cancel,
    deadline: Option<Instant>,
}

struct Ended {
    step: usize,
    result: Result<StepReport>,
}

/// Runs the steps until all have ended or the run is stopped.
///
/// # Errors
/// When the run's own rows cannot be written (a lost lock, a full disk); what the steps
/// committed before stays.
pub fn run(env: &RunEnv<'_>, plan: &RunPlan<'_>, run_id: i64) -> Result<RunReport> {
    let deadline = plan.job.timeout.map(|timeout| Instant::now() + timeout);
    let mut steps: Vec<Progressing> = plan.job.steps.iter().map(|_| Progressing::default()).collect();
    // Outlives the threads: a step that still ends after the loop gave up can say so.
    let (sender, receiver) = mpsc::channel();
    let loop_result = std::thread::scope(|scope| {
        let shared = Shared::default();
        let mut driver = Driver { env, plan, run_id, steps: &mut steps, deadline, sender, scope, shared };
        let result = driver.drive(&receiver);
        if result.is_err() {
            // The rows cannot be written any more: nothing may go on.
            env.cancel.cancel(StopReason::LockLost);
        }
        result
    });
    loop_result?;
    Ok(report::conclude(env, plan, steps))
}

struct Driver<'run, 'scope, 'env> {
    env: &'scope RunEnv<'env>,
    plan: &'scope RunPlan<'env>,
    run_id: i64,
    steps: &'run mut Vec<Progressing>,
    deadline: Option<Instant>,
    sender: mpsc::Sender<Ended>,
    scope: &'scope std::thread::Scope<'scope, 'env>,
    shared: Shared,
}

impl<'scope> Driver<'_, 'scope, '_> {
    fn drive(&mut self, receiver: &mpsc::Receiver<Ended>) -> Result<()> {
        loop {
            self.expire();
            let stopping = self.env.cancel.reason().is_some();
            if !stopping {
                self.begin_ready()?;
            }
            let running = self.steps.iter().filter(|step| step.running.is_some()).count();
            let open = self.steps.iter().any(|step| step.outcome.is_none());
            if running == 0 && (stopping || !open) {
                return Ok(());
            }
            match receiver.recv_timeout(TICK) {
                Ok(ended) => self.end(ended)?,
                Err(mpsc::RecvTimeoutError::Timeout | mpsc::RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Stops what ran out of its time.
    fn expire(&self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            self.env.cancel.cancel(StopReason::RunTimeout);
        }
        for running in self.steps.iter().filter_map(|step| step.running.as_ref()) {
            if running.deadline.is_some_and(|deadline| now >= deadline) {
                running.cancel.cancel(StopReason::StepTimeout);
            }
        }
    }

    /// Begins every step that may run now, and skips what will not run.
    fn begin_ready(&mut self) -> Result<()> {
        loop {
            let mut changed = false;
            for place in self.plan.job.order() {
                changed |= self.consider(place)?;
            }
            if !changed {
                return Ok(());
            }
        }
    }

    /// Looks at one step; returns whether it began or ended.
    fn consider(&mut self, place: usize) -> Result<bool> {
        let (Some(step), Some(state)) = (self.plan.job.steps.get(place), self.steps.get(place)) else {
            return Ok(false);
        };
        if state.outcome.is_some() || state.running.is_some() {
            return Ok(false);
        }
        if let Some(at) = state.retry_at {
            return if Instant::now() >= at && self.has_room() { self.begin(place, step) } else { Ok(false) };
        }
        if self.plan.done_before.contains(&step.id) {
            return self.skip(place, step, SkipReason::DoneBefore);
        }
        if self.plan.selected.get(place) == Some(&false) {
            return self.skip(place, step, SkipReason::NotSelected);
        }
        match self.decide(step)? {
            Decision::Wait => Ok(false),
            Decision::Run if self.has_room() => self.begin(place, step),
            Decision::Run => Ok(false),
            Decision::Skip(reason) => self.skip(place, step, reason),
        }
    }

    fn has_room(&self) -> bool {
        let running = self.steps.iter().filter(|step| step.running.is_some()).count();
        running < self.plan.job.max_parallel
    }

    fn decide(&self, step: &JobStep) -> Result<Decision> {
        let outcome_of = |id: &str| {
            let place = self.plan.job.steps.iter().position(|step| step.id == id)?;
            self.steps.get(place)?.outcome.as_ref()
        };
        let mut facts = Snapshot::default();
        if step.when.reads_facts() {
            // Counted once, when the answer is used: this is asked at every tick.
            let may_begin = step.needs.iter().all(|need| outcome_of(need).is_some()) && self.has_room();
            if !may_begin {
                return Ok(Decision::Wait);
            }
            facts = read_facts(self.env.store)?;
        }
        Ok(state::decide(self.plan.job, step, outcome_of, &facts))
    }

    fn skip(&mut self, place: usize, step: &JobStep, reason: SkipReason) -> Result<bool> {
        let text = reason.to_string();
        tracing::info!(step = %step.id, reason = %text, "step skipped");
        let outcome = Outcome::Skipped(reason);
        let ok = outcome.conclusion(step.allow_failure) == Conclusion::Satisfied;
        let now = clock::now_ms();
        self.env.store.write(|tx| runs::skip_step(tx, self.run_id, &step.id, step.kind, &text, ok, now))?;
        if let Some(state) = self.steps.get_mut(place) {
            state.outcome = Some(outcome);
        }
        Ok(true)
    }

    fn begin(&mut self, place: usize, step: &'scope JobStep) -> Result<bool> {
        let Some(state) = self.steps.get_mut(place) else { return Ok(false) };
        let attempt = state.attempt + 1;
        let now = clock::now_ms();
        self.env
            .store
            .write(|tx| runs::begin_attempt(tx, self.run_id, &step.id, i64::from(attempt), step.kind, now))?;
        tracing::info!(step = %step.id, kind = step.kind, attempt, "step begins");
        let began = Instant::now();
        let own_deadline = step.timeout.map(|timeout| began + timeout);
        let deadline = [own_deadline, self.deadline].into_iter().flatten().min();
        let cancel = self.env.cancel.child();
        state.attempt = attempt;
        state.retry_at = None;
        state.began.get_or_insert(began);
        state.running = Some(Running { cancel: cancel.clone(), deadline: own_deadline });
        let ctx = StepCtx {
            store: self.env.store,
            config: self.env.config,
            vars: self.env.vars,
            runtime: self.env.runtime.clone(),
            cancel,
            deadline,
            options: self.env.options,
            progress: Progress::new(&step.id, self.env.progress.clone()),
            shared: self.shared.waiting_at_most(step.retry.backoff.max),
        };
        let sender = self.sender.clone();
        let span = tracing::info_span!(
            "step",
            otel.name = %step.id,
            step = %step.id,
            kind = step.kind,
            attempt,
            error.code = tracing::field::Empty,
            otel.status_code = tracing::field::Empty,
        );
        let parent = tracing::Span::current();
        self.scope.spawn(move || {
            let _in_run = parent.enter();
            let _in_step = span.enter();
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| step.params.run(&ctx)))
                .unwrap_or_else(|panic| Err(panic_error(&*panic)));
            ctx.progress.finish();
            if let Err(error) = &result {
                span.record("error.code", error.kind().code());
                span.record("otel.status_code", "ERROR");
            }
            // The receiver lives longer than the scope of this thread.
            let delivered = sender.send(Ended { step: place, result });
            debug_assert!(delivered.is_ok(), "the loop ended before its steps");
        });
        Ok(true)
    }

    /// Records how an attempt ended and decides whether it is tried again.
    fn end(&mut self, ended: Ended) -> Result<()> {
        let Some(step) = self.plan.job.steps.get(ended.step) else { return Ok(()) };
        let Some(state) = self.steps.get_mut(ended.step) else { return Ok(()) };
        let stop = state.running.take().and_then(|running| running.cancel.reason());
        state.elapsed = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        let (outcome, report, error) = match ended.result {
            Ok(report) => match report.skipped.clone() {
                Some(reason) => (Outcome::Skipped(SkipReason::NothingToDo(reason)), report, None),
                None => (Outcome::Succeeded, report, None),
            },
            Err(error) => (failed_outcome(&error, stop), StepReport::default(), Some(error)),
        };
        if matches!(outcome, Outcome::Failed(ErrorKind::Fenced)) {
            self.env.cancel.cancel(StopReason::LockLost);
        }
        let retry_in = error.as_ref().and_then(|error| {
            retry_delay(
                step,
                state.attempt,
                &outcome,
                error,
                self.env.cancel.reason().is_some(),
                self.deadline,
            )
        });
        let reason = match (&outcome, retry_in) {
            (_, Some(wait)) => Some(format!("tried again in {:.1} s", wait.as_secs_f64())),
            (Outcome::Skipped(reason), None) => Some(reason.to_string()),
            (Outcome::Cancelled | Outcome::TimedOut, None) => stop.map(|stop| stop.error().to_string()),
            (Outcome::Succeeded | Outcome::Failed(_), None) => None,
        };
        log_end(step, state.attempt, &outcome, &report, error.as_ref(), reason.as_deref());
        let attempt = i64::from(state.attempt);
        let report_json = serde_json::to_string(&report)
            .map_err(|error| Error::internal("encode a step's report").because(error))?;
        let end = AttemptEnd {
            state: attempt_state(&outcome),
            conclusion_ok: outcome.conclusion(step.allow_failure) == Conclusion::Satisfied,
            reason: reason.as_deref(),
            error: error.as_ref(),
            report: &report_json,
            failing: report.failing,
        };
        if !matches!(outcome, Outcome::Failed(ErrorKind::Fenced)) {
            let now = clock::now_ms();
            self.env.store.write(|tx| runs::end_attempt(tx, self.run_id, &step.id, attempt, &end, now))?;
        }
        state.report = report;
        state.hints = error.as_ref().map(|error| error.hints().to_vec()).unwrap_or_default();
        state.error = error;
        match retry_in {
            Some(wait) => state.retry_at = Some(Instant::now() + wait),
            None => state.outcome = Some(outcome),
        }
        Ok(())
    }
}

/// Tells a failure of the step from a stop that came from outside.
fn failed_outcome(error: &Error, stop: Option<StopReason>) -> Outcome {
    match stop {
        Some(StopReason::StepTimeout) => Outcome::TimedOut,
        Some(stop) if stop.error().kind() == error.kind() => Outcome::Cancelled,
        Some(_) | None => Outcome::Failed(error.kind()),
    }
}

/// Returns the wait before another attempt, or nothing when there is none: the failure is
/// not transient, the attempts are used up, or the deadline leaves no room.
fn retry_delay(
    step: &JobStep,
    attempt: u32,
    outcome: &Outcome,
    error: &Error,
    stopping: bool,
    deadline: Option<Instant>,
) -> Option<Duration> {
    let transient = matches!(outcome, Outcome::Failed(kind) if kind.is_transient());
    if !transient || stopping || attempt >= step.retry.max_attempts {
        return None;
    }
    let asked = Duration::from_millis(u64::try_from(error.retry_after().unwrap_or(0)).unwrap_or(0));
    if asked > step.retry.backoff.max {
        // A server that wants to be left alone for longer than the job waits at most: the
        // next run is the better retry.
        return None;
    }
    let wait = step.retry.backoff.delay(attempt, backoff::random()).max(asked);
    let room = deadline.is_none_or(|deadline| Instant::now() + wait < deadline);
    room.then_some(wait)
}

fn attempt_state(outcome: &Outcome) -> AttemptState {
    match outcome {
        Outcome::Succeeded => AttemptState::Succeeded,
        Outcome::Failed(_) => AttemptState::Failed,
        Outcome::TimedOut => AttemptState::TimedOut,
        Outcome::Skipped(_) => AttemptState::Skipped,
        Outcome::Cancelled => AttemptState::Cancelled,
    }
}

fn log_end(
    step: &JobStep,
    attempt: u32,
    outcome: &Outcome,
    report: &StepReport,
    error: Option<&Error>,
    reason: Option<&str>,
) {
    let ended = attempt_state(outcome).as_str();
    for warning in &report.warnings {
        tracing::warn!(step = %step.id, "{warning}");
    }
    match error {
        Some(error) => {
            tracing::error!(step = %step.id, attempt, outcome = ended, error.code = error.kind().code(), reason, "step failed: {error}");
        }
        None => {
            let counts: Vec<String> = report.counts.iter().map(|(name, n)| format!("{name}={n}")).collect();
            tracing::info!(step = %step.id, attempt, outcome = ended, reason, counts = counts.join(" "), "step ended");
        }
    }
}

fn panic_error(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    Error::internal(format!("the step panicked: {text}")).hint("this is a defect of lore: please report it")
}

/// What conditions ask about, read once.
#[derive(Debug, Default)]
struct Snapshot {
    queues: BTreeMap<&'static str, (i64, i64)>,
    documents: i64,
}

fn read_facts(store: &Store) -> Result<Snapshot> {
    store.read(|tx| {
        let queues = queues::depths(tx, clock::now_ms())?;
        Ok(Snapshot {
            queues: queues.into_iter().map(|queue| (queue.queue, (queue.depth, queue.failed))).collect(),
            documents: status::document_count(tx)?,
        })
    })
}

impl Facts for Snapshot {
    fn queue_depth(&self, queue: Queue) -> i64 {
        self.queues.get(queue.name()).map_or(0, |(depth, _)| *depth)
    }

    fn failing(&self, queue: Queue) -> i64 {
        self.queues.get(queue.name()).map_or(0, |(_, failed)| *failed)
    }

    fn documents(&self) -> i64 {
        self.documents
    }
}

/// Writes how a run ended.
///
/// # Errors
/// SQLite's, or that the lock was lost: then the next taker closes the run.
pub fn finish(store: &Store, run_id: i64, report: &RunReport, exit_code: u8, now: Millis) -> Result<()> {
    store.write(|tx| runs::finish(tx, run_id, report.state, exit_code, report.error.as_ref(), now))
}

#[cfg(test)]
mod tests;
