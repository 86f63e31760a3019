//! `prune`: removes what only history needs: old runs, payloads that nothing can be rebuilt
//! from, and the oldest payloads above a bound.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::duration_text;
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::store::{entities, runs};

/// Rows removed per transaction.
const BATCH: i64 = 500;

/// Removes old runs from the history and bounds what is kept of GitLab's answers.
///
/// A run goes when it is older than `keep_runs_for` and not among the newest `keep_runs` of
/// its job. A job's newest run, its newest successful one and runs under way always stay:
/// metrics, `--resume` and `--skip-if-fresh` read them. Of answers those go that belong to
/// nothing any more, and then the oldest until they fit into `payload_mb`; what is gone cannot
/// be rebuilt without fetching again. Nothing of the index is touched.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prune {
    /// Age up to which every run is kept. Default `90d`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub keep_runs_for: Duration,
    /// Newest runs of each job that are kept whatever their age. Default 100.
    pub keep_runs: u32,
    /// Compressed answers that are kept, in MB (1,000,000 bytes). Default 4096.
    pub payload_mb: u32,
}

impl Default for Prune {
    fn default() -> Self {
        Self { keep_runs_for: Duration::from_secs(90 * 86_400), keep_runs: 100, payload_mb: 4096 }
    }
}

impl Step for Prune {
    const KIND: &'static str = "prune";
    const SUMMARY: &'static str = "removes old runs and bounds the kept answers of GitLab";
    const EXAMPLE: &'static str = "{ keep_runs_for = \"90d\", keep_runs = 100 }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let mut report = StepReport::default();
        for name in ["runs_removed", "payloads_removed", "payload_bytes_removed"] {
            report.add(name, 0);
        }
        let age = i64::try_from(self.keep_runs_for.as_millis()).unwrap_or(i64::MAX);
        let before = ctx.now().saturating_sub(age);
        repeat(ctx, &mut report, "runs_removed", |tx| {
            runs::prune(tx, before, i64::from(self.keep_runs), BATCH)
        })?;
        repeat(ctx, &mut report, "payloads_removed", |tx| entities::prune_orphans(tx, BATCH))?;
        let bound = i64::from(self.payload_mb).saturating_mul(1_000_000);
        loop {
            let (_, bytes) = ctx.read(entities::payload_sizes)?;
            if bytes <= bound {
                break;
            }
            let (removed, freed) = ctx.write(|tx| entities::prune_oldest(tx, bytes - bound, BATCH))?;
            report.add("payloads_removed", i64::try_from(removed).unwrap_or(i64::MAX));
            report.add("payload_bytes_removed", freed);
            if removed == 0 {
                break;
            }
        }
        Ok(report)
    }
}

/// Removes in short transactions until there is nothing left to remove.
fn repeat(
    ctx: &StepCtx<'_>,
    report: &mut StepReport,
    count: &'static str,
    remove: impl Fn(&crate::store::WriteTx<'_>) -> Result<usize>,
) -> Result<()> {
    loop {
        let removed = ctx.write(&remove)?;
        report.add(count, i64::try_from(removed).unwrap_or(i64::MAX));
        if removed == 0 {
            return Ok(());
        }
    }
}
