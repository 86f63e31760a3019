//! The contract of a step kind, and how a kind is registered.
//!
//! A step kind is a struct of its parameters plus one `impl Step`. The doc comment of the
//! struct is its manual page. The contract:
//!
//! - It is idempotent: running it twice leaves the database as running it once.
//! - It makes progress only through [`StepCtx::write`], one short transaction that holds the
//!   rows *and* the cursor or queue change they belong to.
//! - It never waits for the network inside a transaction.
//! - It calls [`StepCtx::check`] between units of work and returns its error unchanged.
//! - It isolates what fails: one bad item is recorded with [`StepReport::failing`], the rest goes on.
//! - It decides nothing about retry beyond the kind of its error.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ctx::StepCtx;
use crate::error::Result;

/// A kind of step. See the module's head for what an implementation promises.
pub trait Step: DeserializeOwned + Serialize + JsonSchema + Send + Sync + 'static {
    /// Name in job files.
    const KIND: &'static str;
    /// One line for lists.
    const SUMMARY: &'static str;
    /// A `with` table, as TOML, that the manual shows and the tests run.
    const EXAMPLE: &'static str;

    /// Does the work.
    ///
    /// # Errors
    /// When the step as a whole failed; what was committed before stays.
    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport>;
}

/// What a step did: named counts for people, JSON and metrics.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StepReport {
    /// Named counts, for example `issues_updated`.
    pub counts: BTreeMap<&'static str, i64>,
    /// Items that failed and stay queued or recorded.
    pub failing: i64,
    /// Things that the reader should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Set when there was nothing to do: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
}

impl StepReport {
    /// A report of a step that had nothing to do, with the reason.
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: Some(reason.into()), ..Self::default() }
    }

    /// Adds to a count; a count of zero is shown too.
    pub fn add(&mut self, name: &'static str, n: i64) {
        *self.counts.entry(name).or_default() += n;
    }

    /// Returns a count, 0 when it was never added to.
    pub fn count(&self, name: &str) -> i64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Adds a warning once.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// A step with its parameters, its kind erased.
pub trait ErasedStep: Send + Sync {
    /// Runs the step.
    ///
    /// # Errors
    /// Those of [`Step::run`].
    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport>;
    /// The parameters, defaults included, for `lore jobs show`.
    fn params(&self) -> serde_json::Value;
}

impl<S: Step> ErasedStep for S {
    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        Step::run(self, ctx)
    }

    fn params(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or(serde_json::Value::Null)
    }
}

/// One entry of the registry.
#[derive(Clone, Copy)]
pub struct StepDef {
    /// Name in job files.
    pub kind: &'static str,
    /// One line for lists.
    pub summary: &'static str,
    /// A `with` table that runs.
    pub example: &'static str,
    /// Reads a `with` table; the error carries the byte span of what is wrong.
    pub parse: fn(toml::de::ValueDeserializer<'_>) -> Result<Arc<dyn ErasedStep>, toml::de::Error>,
    /// JSON Schema of the `with` table.
    pub schema: fn() -> Schema,
}

impl StepDef {
    /// Makes the entry of kind `S`.
    pub const fn of<S: Step>() -> Self {
        Self {
            kind: S::KIND,
            summary: S::SUMMARY,
            example: S::EXAMPLE,
            parse: |with| Ok(Arc::new(S::deserialize(with)?)),
            schema: || schemars::schema_for!(S),
        }
    }
}

impl std::fmt::Debug for StepDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepDef").field("kind", &self.kind).finish_non_exhaustive()
    }
}
