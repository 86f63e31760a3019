//! `lore run --dry-run`: what would run, in which order, and what waits to be done.

use serde::Serialize;

use super::App;
use crate::clock;
use crate::error::Result;
use crate::job::Job;
use crate::store::lock::{self, LockState};
use crate::store::queues::{self, QueueDepth};

#[derive(Serialize)]
struct Plan<'a> {
    job: &'a str,
    dry_run: bool,
    waves: Vec<Vec<PlannedStep<'a>>>,
    /// None when there is no database yet.
    queues: Option<Vec<QueueDepth>>,
    lock: Option<LockState>,
}

#[derive(Serialize)]
struct PlannedStep<'a> {
    step: &'a str,
    kind: &'a str,
    needs: &'a [String],
    when: String,
    selected: bool,
    allow_failure: bool,
    with: serde_json::Value,
}

/// Shows the plan. Takes no lock, opens the database for reading only, writes nothing.
///
/// # Errors
/// Those of the database, when there is one.
pub(super) fn show(job: &Job, selected: &[bool], app: &mut App) -> Result<()> {
    let now = clock::now_ms();
    let state = if app.database_path()?.exists() {
        let store = app.open_read_only()?;
        Some(store.read(|tx| Ok((queues::depths(tx, now)?, lock::state(tx)?)))?)
    } else {
        None
    };
    let (queues, lock) = state.unzip();
    let waves = job
        .waves()
        .into_iter()
        .map(|wave| {
            let planned = |place: usize| {
                let step = job.steps.get(place)?;
                Some(PlannedStep {
                    step: &step.id,
                    kind: step.kind,
                    needs: &step.needs,
                    when: step.when.to_string(),
                    selected: selected.get(place).copied().unwrap_or(false),
                    allow_failure: step.allow_failure,
                    with: step.params.params(),
                })
            };
            wave.into_iter().filter_map(planned).collect()
        })
        .collect();
    let plan = Plan { job: &job.name, dry_run: true, waves, queues, lock };
    app.reply(&plan, |out| {
        out.line(format!("Job {} would run:", plan.job))?;
        for (wave, number) in plan.waves.iter().zip(1..) {
            for step in wave {
                let what = if !step.selected {
                    "not selected".to_owned()
                } else if step.needs.is_empty() {
                    "at once".to_owned()
                } else {
                    format!("{} of {}", step.when, step.needs.join(", "))
                };
                out.line(format!("  {number}. {:<20} {:<18} {what}", step.step, step.kind))?;
            }
        }
        match &plan.queues {
            None => out.line("There is no database yet: the first run creates it.")?,
            Some(queues) => {
                for queue in queues {
                    out.line(format!(
                        "Queue {}: {} entries, {} ready",
                        queue.queue, queue.depth, queue.ready
                    ))?;
                }
            }
        }
        if let Some(held) = plan.lock.as_ref().filter(|lock| lock.owner.is_some()) {
            for line in super::lock::describe(held, now) {
                out.line(format!("The lock is {line}"))?;
            }
        }
        out.line("Nothing was changed.")
    })
}
