//! `optimize-fts`: merges the full-text index into one segment, a slice at a time.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration::duration_text;
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::store::fts::{self, Merge};

/// Pages merged per transaction: about a tenth of a second.
const SLICE_PAGES: i64 = 1_000;

/// Merges the segments that updates leave behind, so that queries read one list per word.
///
/// Works in short transactions and stops when its time is up; the next run goes on. Skipped
/// when there is nothing to merge.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizeFts {
    /// How long to go on, for example `"30s"`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub time_budget: Duration,
}

impl Default for OptimizeFts {
    fn default() -> Self {
        Self { time_budget: Duration::from_secs(30) }
    }
}

impl Step for OptimizeFts {
    const KIND: &'static str = "optimize-fts";
    const SUMMARY: &'static str = "merges the full-text index";
    const EXAMPLE: &'static str = "{ time_budget = \"30s\" }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let before = ctx.read(fts::segments)?;
        if before <= 1 {
            return Ok(StepReport::skipped("the full-text index is in one piece"));
        }
        let started = Instant::now();
        let mut report = StepReport::default();
        let mut start = Merge::Begin;
        loop {
            let goes_on = ctx.write(|tx| fts::merge(tx, start, SLICE_PAGES))?;
            report.add("merges", 1);
            ctx.progress.set("slices", u64::try_from(report.count("merges")).unwrap_or(0), None);
            if !goes_on {
                break;
            }
            if started.elapsed() >= self.time_budget {
                report.warn("the time was up before everything was merged; the next run goes on");
                break;
            }
            start = Merge::Continue;
        }
        ctx.progress.finish();
        ctx.write(fts::refresh_statistics)?;
        report.add("segments_before", before);
        report.add("segments_after", ctx.read(fts::segments)?);
        Ok(report)
    }
}

#[cfg(test)]
mod tests;
