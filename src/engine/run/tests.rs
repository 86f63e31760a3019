use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::engine::lease::{self, IfLocked};
use crate::engine::step::ErasedStep;
use crate::job::when::{self, When};
use crate::job::{Origin, Retry};
use crate::store::OpenOptions;
use crate::store::runs::{NewRun, RunState};

/// A step that does what a test says.
struct Scripted<F>(F);

impl<F: Fn(&StepCtx<'_>) -> Result<StepReport> + Send + Sync> ErasedStep for Scripted<F> {
    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        (self.0)(ctx)
    }

    fn params(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

fn step(
    id: &str,
    needs: &[&str],
    work: impl Fn(&StepCtx<'_>) -> Result<StepReport> + Send + Sync + 'static,
) -> JobStep {
    JobStep {
        id: id.to_owned(),
        kind: "scripted",
        needs: needs.iter().map(|need| (*need).to_owned()).collect(),
        when: When::Success,
        timeout: None,
        retry: Retry {
            max_attempts: 1,
            backoff: backoff::Backoff { base: Duration::from_millis(1), max: Duration::from_millis(5) },
        },
        allow_failure: false,
        params: Arc::new(Scripted(work)),
    }
}

fn fine(_: &StepCtx<'_>) -> Result<StepReport> {
    Ok(StepReport::default())
}

fn broken(_: &StepCtx<'_>) -> Result<StepReport> {
    Err(Error::new(ErrorKind::Auth, "token revoked").hint("make a new one"))
}

fn job(steps: Vec<JobStep>) -> Job {
    Job {
        name: "test".to_owned(),
        description: None,
        schedule: None,
        timeout: None,
        max_parallel: 2,
        full: false,
        steps,
        hash: "h".to_owned(),
        origin: Origin::BuiltIn,
    }
}

struct Bench {
    _dir: tempfile::TempDir,
    store: Store,
    runtime: tokio::runtime::Runtime,
    config: Config,
    cancel: Cancel,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { _dir: dir, store, runtime, config: Config::default(), cancel: Cancel::new() }
    }

    fn run(&self, job: &Job) -> (i64, RunReport) {
        let new = NewRun { job: &job.name, job_hash: &job.hash, options: "{}", resumed_from: None };
        let taken = lease::take(&self.store, &new, self.config.lock, IfLocked::Fail, &Cancel::new()).unwrap();
        let lease::Outcome::Taken(taken) = taken else { panic!("not taken") };
        self.store.set_fence(Some(taken.fence.clone()));
        let env = RunEnv {
            store: &self.store,
            config: &self.config,
            vars: &|_| None,
            runtime: self.runtime.handle().clone(),
            progress: ProgressMode::Silent,
            options: RunOptions::default(),
            cancel: self.cancel.clone(),
        };
        let plan = RunPlan { job, selected: vec![true; job.steps.len()], done_before: Vec::new() };
        let report = run(&env, &plan, taken.run_id).unwrap();
        finish(&self.store, taken.run_id, &report, 0, 1).unwrap();
        crate::store::lock::release(&self.store, &taken.fence).unwrap();
        (taken.run_id, report)
    }
}

fn outcomes(report: &RunReport) -> Vec<(&str, &str)> {
    report.steps.iter().map(|step| (step.step.as_str(), step.outcome)).collect()
}

#[test]
fn a_failure_skips_what_needs_it_and_nothing_else() {
    let bench = Bench::new();
    let mut always = step("report", &["b"], fine);
    always.when = When::Always;
    let (run_id, report) =
        bench.run(&job(vec![step("a", &[], broken), step("b", &["a"], fine), step("c", &[], fine), always]));
    assert_eq!(
        outcomes(&report),
        [("a", "failed"), ("b", "skipped"), ("c", "succeeded"), ("report", "succeeded")]
    );
    let error = report.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Auth, "one cause: its own kind");
    assert!(error.to_string().contains("step a: token revoked"), "{error}");
    assert_eq!(error.hints(), ["make a new one"]);
    let rows = bench.store.read(|tx| runs::attempts(tx, run_id)).unwrap();
    assert_eq!(rows.len(), 4, "every step has its row");
    let skipped = rows.iter().find(|row| row.step == "b").unwrap();
    assert_eq!(skipped.reason.as_deref(), Some("a, which it needs, did not succeed"));
    assert_eq!(bench.store.read(|tx| runs::get(tx, run_id)).unwrap().state, "failed");
}

#[test]
fn several_causes_are_a_kind_of_their_own() {
    let bench = Bench::new();
    let full = |_: &StepCtx<'_>| Err(Error::new(ErrorKind::DiskFull, "write"));
    let (_, report) = bench.run(&job(vec![step("a", &[], broken), step("b", &[], full)]));
    assert_eq!(report.error.unwrap().kind(), ErrorKind::RunFailed);
}

#[test]
fn an_allowed_failure_is_seen_but_does_not_fail_the_run() {
    let bench = Bench::new();
    let mut allowed = step("a", &[], broken);
    allowed.allow_failure = true;
    let (run_id, report) = bench.run(&job(vec![allowed, step("b", &["a"], fine)]));
    assert_eq!(outcomes(&report), [("a", "failed"), ("b", "succeeded")]);
    assert!(report.error.is_none());
    assert_eq!((report.allowed_failures, report.state), (1, RunState::Succeeded));
    let rows = bench.store.read(|tx| runs::attempts(tx, run_id)).unwrap();
    assert_eq!((rows[0].state.as_str(), rows[0].conclusion.as_deref()), ("failed", Some("ok")));
}

#[test]
fn transient_failures_are_tried_again_and_others_are_not() {
    let bench = Bench::new();
    let calls = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&calls);
    let mut flaky = step("a", &[], move |_| {
        if seen.fetch_add(1, Ordering::SeqCst) < 2 {
            return Err(Error::new(ErrorKind::Network, "connection reset"));
        }
        Ok(StepReport::default())
    });
    flaky.retry.max_attempts = 3;
    let mut hopeless = step("b", &[], broken);
    hopeless.retry.max_attempts = 3;
    let (run_id, report) = bench.run(&job(vec![flaky, hopeless]));
    assert_eq!(outcomes(&report), [("a", "succeeded"), ("b", "failed")]);
    assert_eq!((report.steps[0].attempts, report.steps[1].attempts), (3, 1));
    let rows = bench.store.read(|tx| runs::attempts(tx, run_id)).unwrap();
    assert_eq!(rows.iter().filter(|row| row.step == "a").count(), 3);
}

#[test]
fn a_retry_that_the_deadline_leaves_no_room_for_is_not_made() {
    let bench = Bench::new();
    let mut limited =
        step("a", &[], |_| Err(Error::new(ErrorKind::RateLimited, "429").retry_after_ms(3_600_000)));
    limited.retry.max_attempts = 5;
    let mut job = job(vec![limited]);
    job.timeout = Some(Duration::from_secs(60));
    let (_, report) = bench.run(&job);
    assert_eq!(report.steps[0].attempts, 1);
    assert_eq!(report.error.unwrap().kind(), ErrorKind::RateLimited);
}

#[test]
fn a_step_that_hangs_is_timed_out_and_its_sql_interrupted() {
    let bench = Bench::new();
    let mut slow = step("a", &[], |ctx| ctx.block_on(std::future::pending()));
    slow.timeout = Some(Duration::from_millis(50));
    let (_, report) = bench.run(&job(vec![slow, step("b", &[], fine)]));
    assert_eq!(outcomes(&report), [("a", "timed_out"), ("b", "succeeded")]);
    assert_eq!(report.error.unwrap().kind(), ErrorKind::RunFailed);
}

#[test]
fn a_panic_is_a_failure_of_its_step_alone() {
    let bench = Bench::new();
    let bomb = |_: &StepCtx<'_>| panic!("index out of range");
    let (_, report) = bench.run(&job(vec![step("a", &[], bomb), step("b", &[], fine)]));
    assert_eq!(outcomes(&report), [("a", "failed"), ("b", "succeeded")]);
    let error = report.error.unwrap();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("index out of range"), "{error}");
}

#[test]
fn a_signal_stops_the_steps_and_the_run_is_interrupted() {
    let bench = Bench::new();
    let cancel = bench.cancel.clone();
    let stopped = step("a", &[], move |ctx| {
        cancel.cancel(StopReason::Terminated);
        ctx.check()?;
        Ok(StepReport::default())
    });
    let (run_id, report) = bench.run(&job(vec![stopped, step("b", &["a"], fine)]));
    assert_eq!(outcomes(&report), [("a", "cancelled"), ("b", "cancelled")]);
    assert_eq!(report.state, RunState::Interrupted);
    assert_eq!(report.error.unwrap().kind(), ErrorKind::Terminated);
    assert_eq!(bench.store.read(|tx| runs::get(tx, run_id)).unwrap().state, "interrupted");
}

#[test]
fn a_signal_after_the_last_step_changes_nothing() {
    let bench = Bench::new();
    let cancel = bench.cancel.clone();
    let last = step("a", &[], move |_| {
        cancel.cancel(StopReason::Terminated);
        Ok(StepReport::default())
    });
    let (_, report) = bench.run(&job(vec![last]));
    assert_eq!(report.state, RunState::Succeeded);
    assert!(report.error.is_none());
}

#[test]
fn conditions_ask_the_database_and_say_why_they_skip() {
    let bench = Bench::new();
    let mut conditional = step("b", &["a"], fine);
    conditional.when = when::parse("queue_depth('dirty_sources') > 0").unwrap();
    let (run_id, report) = bench.run(&job(vec![step("a", &[], fine), conditional]));
    assert_eq!(outcomes(&report), [("a", "succeeded"), ("b", "skipped")]);
    let rows = bench.store.read(|tx| runs::attempts(tx, run_id)).unwrap();
    assert!(rows[1].reason.as_deref().unwrap().contains("queue_depth"), "{:?}", rows[1].reason);
}

#[test]
fn no_more_steps_run_at_once_than_allowed() {
    let bench = Bench::new();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let steps = ["a", "b", "c", "d", "e"]
        .map(|id| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            step(id, &[], move |ctx| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                ctx.wait(Duration::from_millis(20))?;
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(StepReport::default())
            })
        })
        .into();
    let (_, report) = bench.run(&job(steps));
    assert!(report.error.is_none());
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[test]
fn a_step_of_a_fenced_run_writes_nothing_and_the_run_says_so() {
    let bench = Bench::new();
    let path = bench.store.path().to_owned();
    let robbed = step("a", &[], move |ctx| {
        let other = Store::open(&path, OpenOptions::default())?;
        let owner = other.read(crate::store::lock::state)?.owner.unwrap_or_default();
        crate::store::lock::break_lock(&other, &owner)?;
        ctx.write(|tx| crate::store::queues::mark_dirty(tx, crate::content::SourceType::Issue, 1, 1))?;
        Ok(StepReport::default())
    });
    let new = NewRun { job: "test", job_hash: "h", options: "{}", resumed_from: None };
    let taken = lease::take(&bench.store, &new, bench.config.lock, IfLocked::Fail, &Cancel::new()).unwrap();
    let lease::Outcome::Taken(taken) = taken else { panic!("not taken") };
    bench.store.set_fence(Some(taken.fence));
    let job = job(vec![robbed, step("b", &["a"], fine)]);
    let env = RunEnv {
        store: &bench.store,
        config: &bench.config,
        vars: &|_| None,
        runtime: bench.runtime.handle().clone(),
        progress: ProgressMode::Silent,
        options: RunOptions::default(),
        cancel: bench.cancel.clone(),
    };
    let plan = RunPlan { job: &job, selected: vec![true; 2], done_before: Vec::new() };
    let report = run(&env, &plan, taken.run_id).unwrap();
    assert_eq!(report.error.unwrap().kind(), ErrorKind::Fenced);
    let depth = bench.store.read(|tx| crate::store::queues::depths(tx, 1)).unwrap();
    assert_eq!(depth[0].depth, 0, "the fenced write left nothing");
    assert_eq!(bench.store.read(|tx| runs::get(tx, taken.run_id)).unwrap().state, "abandoned");
}
