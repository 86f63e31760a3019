//! What to do with a step, and how a run ended: decided from outcomes, nothing else.
//!
//! A step *ends* in one of the ways of [`Outcome`]. The rules:
//!
//! 1. A step waits until every need has ended.
//! 2. A need is **satisfied** when it succeeded, when it failed but is allowed to, or when it
//!    was skipped for a reason of its own: it had nothing to do, its condition was false, it
//!    was not selected on the command line, an earlier run had done it.
//! 3. A need is **failed** when it failed or ran out of time without being allowed to, and
//!    when it was skipped because one of *its* needs failed: failure travels along the graph.
//! 4. A need that was **cancelled** is neither: the run is being stopped, and no step begins
//!    any more, not even one that runs `always`. The runner does not ask then; when asked
//!    all the same (a single step was cancelled), cancelled counts as failed.
//! 5. `success` runs when all needs are satisfied, else it is skipped and counts as failed for
//!    its own dependents. `always` runs however its needs ended. `failure` runs when at
//!    least one need failed, else it is skipped and counts as satisfied.
//! 6. A condition needs all needs satisfied *and* to be true; when it names one of the
//!    functions `success()`, `failure()`, `always()` it alone decides. A false condition is a
//!    skip that counts as satisfied.
//! 7. A step without needs behaves as if a satisfied need were there: `failure` never runs.
//!
//! The run succeeds when no step failed that was not allowed to. One cause gives the run its
//! kind, several give [`ErrorKind::RunFailed`]. A stop counts only when it kept a step from
//! ending: a signal that arrives after the last step has ended changes nothing.

use serde::Serialize;

use super::when::{Facts, NeedsState, When};
use super::{Job, JobStep};
use crate::error::ErrorKind;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Succeeded,
    /// Its last attempt ended with an error of this kind.
    Failed(ErrorKind),
    /// Its last attempt ran out of time.
    TimedOut,
    /// Not run.
    Skipped(SkipReason),
    /// Stopped from outside.
    Cancelled,
}

/// Why a step did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// The step itself found nothing to do, with its reason.
    NothingToDo(String),
    /// Its condition, as written, was false.
    ConditionFalse(String),
    /// `--only`, `--from` or `--skip` left it out.
    NotSelected,
    /// The run that this one continues had done it.
    DoneBefore,
    /// It runs after failures only, and nothing failed.
    NothingFailed,
    /// It runs after failures only, and this need's failure is allowed: it counts as none.
    FailureAllowed(String),
    /// This need failed.
    NeedFailed(String),
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NothingToDo(reason) => f.write_str(reason),
            Self::ConditionFalse(condition) => write!(f, "its condition is false: {condition}"),
            Self::NotSelected => f.write_str("not selected on the command line"),
            Self::DoneBefore => f.write_str("succeeded in the run that this one continues"),
            Self::NothingFailed => f.write_str("runs after failures only, and nothing failed"),
            Self::FailureAllowed(need) => {
                write!(f, "runs after failures only, and that of {need} is allowed (allow_failure)")
            }
            Self::NeedFailed(need) => write!(f, "{need}, which it needs, did not succeed"),
        }
    }
}

/// What an outcome means for the run and for the steps that need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Dependents may go on.
    Satisfied,
    /// Dependents of the `success` sort are skipped, those of `failure` run.
    Failed,
    /// Stopped from outside.
    Cancelled,
}

impl Outcome {
    /// What the outcome means when the step is, or is not, allowed to fail.
    pub fn conclusion(&self, allow_failure: bool) -> Conclusion {
        match self {
            Self::Succeeded => Conclusion::Satisfied,
            Self::Failed(_) | Self::TimedOut if allow_failure => Conclusion::Satisfied,
            Self::Failed(_) | Self::TimedOut => Conclusion::Failed,
            Self::Skipped(reason) => match reason {
                SkipReason::NothingToDo(_)
                | SkipReason::ConditionFalse(_)
                | SkipReason::NotSelected
                | SkipReason::DoneBefore
                | SkipReason::NothingFailed
                | SkipReason::FailureAllowed(_) => Conclusion::Satisfied,
                SkipReason::NeedFailed(_) => Conclusion::Failed,
            },
            Self::Cancelled => Conclusion::Cancelled,
        }
    }
}

/// What to do with a step now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// A need has not ended.
    Wait,
    /// Begin it.
    Run,
    /// Do not run it.
    Skip(SkipReason),
}

/// Decides what to do with `step`. `outcome_of` tells how a step ended, nothing while it has
/// not. `facts` is asked only when [`When::reads_facts`] and all needs have ended.
pub fn decide<'a>(
    job: &'a Job,
    step: &JobStep,
    outcome_of: impl Fn(&str) -> Option<&'a Outcome>,
    facts: &dyn Facts,
) -> Decision {
    let (mut failed_need, mut allowed_failure) = (None, None);
    for need in &step.needs {
        let Some(outcome) = outcome_of(need) else {
            return Decision::Wait;
        };
        let allowed = job.step(need).is_some_and(|need| need.allow_failure);
        match outcome.conclusion(allowed) {
            Conclusion::Satisfied => {
                if matches!(outcome, Outcome::Failed(_) | Outcome::TimedOut) {
                    allowed_failure.get_or_insert(need);
                }
            }
            Conclusion::Failed | Conclusion::Cancelled => {
                failed_need.get_or_insert(need);
            }
        }
    }
    let need_failed = |need: &String| Decision::Skip(SkipReason::NeedFailed(need.clone()));
    match (&step.when, failed_need) {
        (When::Always, _) | (When::Success, None) | (When::Failure, Some(_)) => Decision::Run,
        (When::Success, Some(need)) => need_failed(need),
        (When::Failure, None) => Decision::Skip(match allowed_failure {
            Some(need) => SkipReason::FailureAllowed(need.clone()),
            None => SkipReason::NothingFailed,
        }),
        (When::Condition(condition), Some(need)) if !condition.decides_alone() => need_failed(need),
        (When::Condition(condition), failed) => {
            let needs = if failed.is_some() { NeedsState::Failed } else { NeedsState::Satisfied };
            if condition.eval(facts, needs) {
                Decision::Run
            } else {
                Decision::Skip(SkipReason::ConditionFalse(condition.text().to_owned()))
            }
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunOutcome {
    /// Nothing when the run succeeded, else the kind that decides the exit code.
    pub failure: Option<ErrorKind>,
    /// Steps that failed and were allowed to.
    pub allowed_failures: usize,
}

/// Decides how a run ended. Each step comes with whether it may fail; nothing for one that
/// has not ended. `stop` is the kind of what stopped the run, if something did.
pub fn run_outcome<'a>(
    steps: impl IntoIterator<Item = (Option<&'a Outcome>, bool)>,
    stop: Option<ErrorKind>,
) -> RunOutcome {
    let mut causes: Vec<ErrorKind> = Vec::new();
    let mut allowed_failures = 0;
    let mut cut_short = false;
    for (outcome, allow_failure) in steps {
        let kind = match outcome {
            Some(Outcome::Failed(kind)) => *kind,
            Some(Outcome::TimedOut) => ErrorKind::RunFailed,
            Some(Outcome::Succeeded | Outcome::Skipped(_)) => continue,
            Some(Outcome::Cancelled) | None => {
                cut_short = true;
                continue;
            }
        };
        if allow_failure {
            allowed_failures += 1;
        } else if !causes.contains(&kind) {
            causes.push(kind);
        }
    }
    let failure = match (stop, causes.as_slice()) {
        // A lost lock outweighs everything: another run is at work on the same database.
        (Some(ErrorKind::Fenced), _) if cut_short || !causes.is_empty() => Some(ErrorKind::Fenced),
        (Some(stop), _) if cut_short => Some(stop),
        (_, []) if cut_short => Some(ErrorKind::RunFailed),
        (_, []) => None,
        (_, [kind]) => Some(*kind),
        (_, [_, ..]) => Some(ErrorKind::RunFailed),
    };
    RunOutcome { failure, allowed_failures }
}
