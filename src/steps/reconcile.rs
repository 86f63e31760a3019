//! `reconcile`: finds out what is gone upstream, and deletes it here once that is certain.
//!
//! GitLab tells nobody that an item was deleted, and answers 404 for what a token may not see.
//! So an item goes only when all of this holds: the whole list of its project was read and
//! lacks it, a request for it alone was answered with 404, both in two runs, the token can do
//! what it could before, and not too many go at once.

mod access;
mod judge;
mod project;
mod removal;

#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ingest::gitlab::{Source, add_stats};
use super::ingest::{is_about_source, unknown_source};
use crate::config::{GitlabConfig, SourceConfig};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::export::demo;
use crate::store::{entities, lock};

pub(in crate::steps) use judge::judge;

/// Deletes what is gone upstream: issues, merge requests, whole projects.
///
/// Reads the whole lists of issues and merge requests of each project, stores what differs,
/// and asks for each stored item that is not listed. One that the server does not know (404)
/// in two runs is deleted with its discussions, documents and vectors; should it come back,
/// it is read again. An error is never taken as a deletion. More than 10 items that are also
/// more than a fifth of a project are deleted only when that is allowed, and nothing is
/// deleted where the token may have lost access. Of an export, an item counts as missing when
/// two newer exports lack it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Reconcile {
    /// Name of one source, `[sources.NAME]`. Default: every source.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Deletes however many items are gone. The same as `--allow-mass-delete`.
    pub allow_mass_delete: bool,
    /// Takes what the token may see now as the measure: set it once after a token was
    /// exchanged for one that may see less, on purpose.
    pub accept_access: bool,
}

impl Step for Reconcile {
    const KIND: &'static str = "reconcile";
    const SUMMARY: &'static str = "deletes what is gone upstream";
    const EXAMPLE: &'static str = "{ source = \"demo\" }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let mut report = StepReport::default();
        for name in ["items_listed", "items_missing", "items_deleted", "items_withheld", "projects_deleted"] {
            report.add(name, 0);
        }
        // A retry within one run is no second run.
        let run_id = ctx.read(lock::state)?.run_id.unwrap_or_default();
        let run = Run {
            ctx,
            allow_mass_delete: self.allow_mass_delete || ctx.options.allow_mass_delete,
            accept_access: self.accept_access,
            proof: format!("run {run_id}"),
        };
        let mut failures = Vec::new();
        for (name, source) in self.sources(ctx)? {
            let done = match source {
                Some(SourceConfig::Gitlab(config)) => server(&run, name, config, &mut report),
                Some(SourceConfig::GitlabExport(_)) | None => export(&run, name, &mut report),
            };
            let Err(error) = done else { continue };
            ctx.check()?;
            if !is_about_source(error.kind()) {
                return Err(error);
            }
            report.failing += 1;
            report.warn(error.full_message());
            failures.push(error);
        }
        ctx.progress.finish();
        failures.into_iter().next().map_or(Ok(report), Err)
    }
}

impl Reconcile {
    /// The sources to look at; no configuration for the built-in sample.
    fn sources<'a>(&'a self, ctx: &StepCtx<'a>) -> Result<Vec<(&'a str, Option<&'a SourceConfig>)>> {
        let Some(wanted) = self.source.as_deref() else {
            return Ok(ctx
                .config
                .sources
                .iter()
                .map(|(name, source)| (name.as_str(), Some(source)))
                .collect());
        };
        match ctx.config.sources.get(wanted) {
            Some(source) => Ok(vec![(wanted, Some(source))]),
            None if wanted == demo::SOURCE => Ok(vec![(wanted, None)]),
            None => Err(unknown_source(ctx.config, wanted)),
        }
    }
}

/// What one run of the step goes by.
struct Run<'a> {
    ctx: &'a StepCtx<'a>,
    allow_mass_delete: bool,
    accept_access: bool,
    /// Names the run: two strikes are two runs.
    proof: String,
}

/// Reconciles the projects of a server.
fn server(run: &Run<'_>, name: &str, config: &GitlabConfig, report: &mut StepReport) -> Result<()> {
    let ctx = run.ctx;
    let stored = ctx.read(|tx| entities::projects_of(tx, name))?;
    if stored.is_empty() {
        // Nothing to lose, and no reason to need the token.
        return Ok(());
    }
    let source = Source::new(ctx, name, config)?;
    let out = access::check(run, &source, report)
        .and_then(|token| project::reconcile_all(run, &source, token, &stored, report));
    add_stats(ctx, &source.client, report);
    out.map_err(|error| error.context(format!("reconcile source {name}")))
}

/// Reconciles what two newer exports lack.
fn export(run: &Run<'_>, name: &str, report: &mut StepReport) -> Result<()> {
    for stored in run.ctx.read(|tx| entities::projects_of(tx, name))? {
        run.ctx.check()?;
        removal::of_export(run, &stored, report)?;
    }
    Ok(())
}
