//! `metrics`: writes or pushes the metrics from inside a run.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Error, Result};
use crate::store::Store;
use crate::telemetry::metrics::{self, push, textfile};

/// Writes the metrics to a file, pushes them, or both, in the middle of a run.
///
/// At that time the run itself has not ended; to export how it ended, set `[metrics]` in the
/// configuration, which works after every run.
///
/// An export that fails is a warning, unless it is required.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// File for the textfile collector. Default: `[metrics] textfile`.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub textfile: Option<PathBuf>,
    /// Address of a Pushgateway. Default: `[metrics] push`.
    #[schemars(url)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<String>,
    /// Whether an export that fails fails the step. Default false.
    pub required: bool,
}

impl Step for Metrics {
    const KIND: &'static str = "metrics";
    const SUMMARY: &'static str = "writes or pushes metrics for Prometheus";
    const EXAMPLE: &'static str = "{ required = false }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let config = &ctx.config.metrics;
        let file = self.textfile.as_ref().or(config.textfile.as_ref());
        let gateway = self.push.as_ref().or(config.push.as_ref());
        if file.is_none() && gateway.is_none() {
            return Ok(StepReport::skipped("neither a file nor a Pushgateway is configured"));
        }
        let (path, options) = (ctx.store.path(), ctx.store.options());
        let text = metrics::gather(|| Store::open_read_only(path, options), &metrics::known(ctx.config))?;
        ctx.check()?;
        let mut report = StepReport::default();
        if let Some(file) = file {
            self.judge(textfile::write(file, &text), "files_written", &mut report)?;
        }
        if let Some(gateway) = gateway {
            // Before an effect outside of the database: a run that lost its lock tells nothing.
            ctx.write(|_| Ok(()))?;
            let pushed = ctx.block_on(push::push(gateway, &config.push_group, text));
            ctx.check()?;
            self.judge(pushed, "pushes", &mut report)?;
        }
        Ok(report)
    }
}

impl Metrics {
    fn judge(&self, result: Result<()>, count: &'static str, report: &mut StepReport) -> Result<()> {
        match result {
            Ok(()) => report.add(count, 1),
            Err(error) if self.required => return Err(error),
            Err(error) => report.warn(warning(&error)),
        }
        Ok(())
    }
}

fn warning(error: &Error) -> String {
    format!("metrics were not exported: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_that_fails_is_a_warning_unless_it_is_required() {
        let failed = || textfile::write(std::path::Path::new("/no/such/lore.prom"), "a 1\n");
        let mut report = StepReport::default();
        Metrics::default().judge(failed(), "files_written", &mut report).unwrap();
        assert!(report.warnings[0].contains("/no/such/lore.prom"), "{:?}", report.warnings);
        let required = Metrics { required: true, ..Metrics::default() };
        assert!(required.judge(failed(), "files_written", &mut report).is_err());
    }
}
