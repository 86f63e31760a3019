//! `integrity-check`: looks for what does not hold across tables.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{ErrorKind, Result};
use crate::store::integrity;

/// Runs every check of the integrity table and keeps the findings. Changes nothing else.
///
/// Fails with exit code 22 when something was found; `repair` puts right what can be.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IntegrityCheck {
    /// Whether findings fail the step. Default true; false reports them and goes on.
    pub fail: bool,
}

impl Default for IntegrityCheck {
    fn default() -> Self {
        Self { fail: true }
    }
}

impl Step for IntegrityCheck {
    const KIND: &'static str = "integrity-check";
    const SUMMARY: &'static str = "looks for what does not hold across tables";
    const EXAMPLE: &'static str = "{ fail = true }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let found = integrity::check(ctx.store, &ctx.cancel)?;
        let saved = ctx.write(|tx| integrity::save_findings(tx, &found, ctx.now()));
        let mut report = StepReport::default();
        report.add("checks", i64::try_from(integrity::CHECKS.len()).unwrap_or(i64::MAX));
        report.add("findings", i64::try_from(found.total()).unwrap_or(i64::MAX));
        for finding in &found.findings {
            report.warn(finding.line());
        }
        match saved {
            // So damaged that the findings cannot be kept: they are told all the same.
            Err(error) if error.kind() == ErrorKind::Database && found.total() > 0 => {
                report.warn(format!("the findings cannot be written down: {error}"));
            }
            saved => saved?,
        }
        if found.total() > 0 && self.fail {
            return Err(integrity::findings_error(&found)
                .details(serde_json::json!({ "counts": found.counts, "findings": found.findings })));
        }
        Ok(report)
    }
}
