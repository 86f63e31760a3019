//! How a run ended: summed up from its steps.

use serde::Serialize;

use super::{Progressing, RunEnv, RunPlan, attempt_state};
use crate::engine::cancel::StopReason;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind};
use crate::job::JobStep;
use crate::job::state::{self, Conclusion, Outcome};
use crate::store::runs::RunState;

/// How a step ended, for people and JSON.
#[derive(Debug, Clone, Serialize)]
pub struct StepSummary {
    /// Name of the step.
    pub step: String,
    /// Kind of the step.
    pub kind: &'static str,
    /// How it ended: `succeeded`, `failed`, `skipped`, `timed_out`, `cancelled`.
    pub outcome: &'static str,
    /// What the run makes of it.
    pub conclusion: Conclusion,
    /// Attempts made.
    pub attempts: u32,
    /// Milliseconds from the first attempt's begin to the last one's end.
    pub elapsed_ms: u64,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Name of the error's kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<&'static str>,
    /// What it did.
    pub report: StepReport,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunReport {
    /// State for the run's row.
    pub state: RunState,
    /// The error that the process exits with; none when the run succeeded.
    pub error: Option<Error>,
    /// The steps in the order of the job.
    pub steps: Vec<StepSummary>,
    /// Steps that failed and were allowed to.
    pub allowed_failures: usize,
    /// Items that failed and stay queued or recorded.
    pub failing: i64,
}

/// Sums a run up.
pub(super) fn conclude(env: &RunEnv<'_>, plan: &RunPlan<'_>, mut steps: Vec<Progressing>) -> RunReport {
    let stop = env.cancel.reason();
    let outcomes =
        steps.iter().zip(&plan.job.steps).map(|(state, step)| (state.outcome.as_ref(), step.allow_failure));
    let outcome = state::run_outcome(outcomes, stop.map(|stop| stop.error().kind()));
    let state = match (outcome.failure, stop) {
        (None, _) => RunState::Succeeded,
        (Some(ErrorKind::Interrupted | ErrorKind::Terminated), _) => RunState::Interrupted,
        (Some(_), Some(StopReason::Cancelled)) => RunState::Cancelled,
        (Some(_), _) => RunState::Failed,
    };
    let error = outcome.failure.map(|kind| run_error(kind, stop, plan, &steps));
    let failing = steps.iter().map(|step| step.report.failing).sum();
    let summaries = steps
        .iter_mut()
        .zip(&plan.job.steps)
        .map(|(state, step)| summary(std::mem::take(state), step))
        .collect();
    RunReport { state, error, steps: summaries, allowed_failures: outcome.allowed_failures, failing }
}

fn summary(state: Progressing, step: &JobStep) -> StepSummary {
    let outcome = state.outcome.unwrap_or(Outcome::Cancelled);
    StepSummary {
        step: step.id.clone(),
        kind: step.kind,
        outcome: attempt_state(&outcome).as_str(),
        conclusion: outcome.conclusion(step.allow_failure),
        attempts: state.attempt,
        elapsed_ms: u64::try_from(state.elapsed.as_millis()).unwrap_or(u64::MAX),
        reason: match &outcome {
            Outcome::Skipped(reason) => Some(reason.to_string()),
            Outcome::Succeeded | Outcome::Failed(_) | Outcome::TimedOut | Outcome::Cancelled => None,
        },
        error: state.error.as_ref().map(Error::full_message),
        error_code: state.error.as_ref().map(|error| error.kind().code()),
        report: state.report,
    }
}

/// The error of a run names the steps that failed; with one cause it is that step's own.
fn run_error(kind: ErrorKind, stop: Option<StopReason>, plan: &RunPlan<'_>, steps: &[Progressing]) -> Error {
    let failed: Vec<(&JobStep, &Progressing)> = plan
        .job
        .steps
        .iter()
        .zip(steps)
        .filter(|(step, state)| {
            let failed = matches!(state.outcome, Some(Outcome::Failed(_) | Outcome::TimedOut));
            failed && !step.allow_failure
        })
        .collect();
    let stopped = stop.map(StopReason::error).filter(|error| error.kind() == kind);
    if let Some(error) = stopped {
        return error
            .context(format!("job {}", plan.job.name))
            .hint("the next run continues where this one stopped");
    }
    let describe = |(step, state): &(&JobStep, &Progressing)| {
        let message = state.error.as_ref().map_or_else(|| "failed".to_owned(), Error::full_message);
        format!("step {}: {message}", step.id)
    };
    let message: Vec<String> = failed.iter().map(describe).collect();
    let mut error = Error::new(kind, format!("job {}: {}", plan.job.name, message.join("; ")));
    for hint in failed.iter().flat_map(|(_, state)| &state.hints) {
        if !error.hints().contains(hint) {
            error = error.hint(hint.clone());
        }
    }
    error
}
