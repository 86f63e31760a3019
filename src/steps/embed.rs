//! `embed`: makes vectors of documents that have none, or of whose text they no longer are.

mod work;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{EmbeddingConfig, maybe_duration_text};
use crate::embed::{Embedder, Failure, breaker};
use crate::engine::careful::{self, Careful};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::store::embeddings::{self, Identity};
use crate::store::metrics::{self, Service};
use work::Pass;

/// Passes over the documents: what changed while it was embedded is embedded again at once,
/// but a text that changes all the time must not keep the step busy.
const MAX_PASSES: usize = 3;

/// Chunks of a retired index that one transaction drops.
const DROP_SLICE: i64 = 2_000;

/// Cuts documents into passages, has them embedded and stores the vectors.
///
/// Only what is new or changed is embedded; a passage whose text stayed the same keeps its
/// vector. A passage that the model cannot embed is recorded and tried again later, with
/// growing waits; its document keeps its other vectors. When model, chunking or prefixes
/// change, a new index is built beside the old one, which queries are answered from until
/// the new one covers as much. What is done is kept, whenever the step stops.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Embed {
    /// Texts in one request. Default: `batch` in `[embedding]`.
    #[schemars(range(min = 1, max = 2048))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Requests under way at once. Default: `concurrency` in `[embedding]`.
    #[schemars(range(min = 1, max = 64))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<usize>,
    /// Documents to embed in this run at most. Default: all.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Time after which no new documents are begun. Default: none.
    #[serde(with = "maybe_duration_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub time_budget: Option<Duration>,
}

impl Step for Embed {
    const KIND: &'static str = "embed";
    const SUMMARY: &'static str = "makes vectors of new and changed documents";
    const EXAMPLE: &'static str = "{ batch = 32, concurrency = 2, limit = 10000, time_budget = \"20m\" }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let mut report = StepReport::default();
        for name in ["embedded", "failed", "skipped", "chunks", "chunks_failed", "truncated"] {
            report.add(name, 0);
        }
        if ctx.options.retry_failed {
            let n = ctx.write(embeddings::retry_failed)?;
            report.add("retried_chunks", i64::try_from(n).unwrap_or(i64::MAX));
        }
        let config = self.config(&ctx.config.embedding);
        let mut embedder = Embedder::new(&config, ctx.vars)?;
        let mut run = Run { step: self, config: &config, identity: None, started: Instant::now() };
        let is_pending = run.prepare(ctx, &mut embedder);
        let embedder = Arc::new(embedder);
        let done = is_pending
            .and_then(
                |is_pending| {
                    if is_pending { run.embed_all(ctx, &embedder, &mut report) } else { Ok(()) }
                },
            )
            .and_then(|()| run.finish(ctx, &mut report));
        // Also of a step that fails: that the service refuses is what the numbers are for.
        metrics::count_requests(ctx.store, Service::Embedding, &embedder.stats());
        done.map(|()| report)
    }
}

/// The service answered: queries that left it alone after failures need not do so any longer.
fn end_of_failures(ctx: &StepCtx<'_>, embedder: &Embedder) -> Result<()> {
    let Some(endpoint) = embedder.endpoint() else { return Ok(()) };
    let name = breaker::name(&endpoint);
    if ctx.read(|tx| embeddings::circuit(tx, &name))?.failures > 0 {
        ctx.write(|tx| embeddings::close_circuit(tx, &name))?;
    }
    Ok(())
}

impl Embed {
    fn config(&self, base: &EmbeddingConfig) -> EmbeddingConfig {
        EmbeddingConfig {
            batch: self.batch.unwrap_or(base.batch),
            concurrency: self.concurrency.unwrap_or(base.concurrency),
            ..base.clone()
        }
    }
}

/// What one execution knows.
struct Run<'a> {
    step: &'a Embed,
    config: &'a EmbeddingConfig,
    /// Whose vectors are made; absent until the length of the first is known.
    identity: Option<Identity>,
    started: Instant,
}

impl Run<'_> {
    /// Finds the identity that the embedder's vectors belong to.
    fn resolve(&mut self, ctx: &StepCtx<'_>, embedder: &Embedder) -> Result<()> {
        let hash = embedder.target().hash();
        self.identity = ctx.read(|tx| embeddings::live(tx, &hash, self.config.dims))?;
        embedder.expect_dims(self.identity.as_ref().map(|identity| identity.dims).or(self.config.dims));
        Ok(())
    }

    /// Finds out whose vectors are wanted, and whether any are.
    fn prepare(&mut self, ctx: &StepCtx<'_>, embedder: &mut Embedder) -> Result<bool> {
        // A model that only the server can name is asked for first; otherwise nothing is
        // asked as long as there is nothing to embed.
        if !embedder.target().model.is_empty() {
            self.resolve(ctx, embedder)?;
            if self.pending(ctx)?.is_empty() {
                return Ok(false);
            }
        }
        for note in ctx.block_on(embedder.check())?.notes {
            tracing::info!("{note}");
        }
        self.resolve(ctx, embedder)?;
        Ok(true)
    }

    fn pending(&self, ctx: &StepCtx<'_>) -> Result<Vec<i64>> {
        // No identity has the id 0: everything is pending for one that is not made yet.
        let id = self.identity.as_ref().map_or(0, |identity| identity.id);
        ctx.read(|tx| embeddings::pending(tx, id, ctx.now()))
    }

    fn is_out_of_time(&self) -> bool {
        self.step.time_budget.is_some_and(|budget| self.started.elapsed() >= budget)
    }

    fn embed_all(
        &mut self,
        ctx: &StepCtx<'_>,
        embedder: &Arc<Embedder>,
        report: &mut StepReport,
    ) -> Result<()> {
        let mut tried: BTreeSet<i64> = BTreeSet::new();
        let mut may_switch = self.config.dims.is_none();
        let careful = Careful::begin(ctx, Embed::KIND)?;
        for _ in 0..MAX_PASSES {
            let room = self.step.limit.map_or(usize::MAX, |limit| limit.saturating_sub(tried.len()));
            let mut ids = self.pending(ctx)?;
            ids.truncate(room);
            if ids.is_empty() || self.is_out_of_time() {
                break;
            }
            let outcome = self.pass(ctx, embedder, &careful, ids, &mut tried, report);
            match outcome {
                Ok(()) => {}
                Err(Failure::Dims { got, .. }) if may_switch => {
                    // The server has another model under the same name: its vectors are
                    // those of another identity, which is built beside this one.
                    may_switch = false;
                    let hash = embedder.target().hash();
                    self.identity = ctx.read(|tx| embeddings::live(tx, &hash, Some(got)))?;
                    embedder.expect_dims(Some(got));
                }
                Err(failure) => {
                    // What was done is in the database; the error says why there is no more.
                    return Err(failure.into_error());
                }
            }
            self.settle(ctx)?;
        }
        let left = self.pending(ctx)?.len();
        if left > 0 && self.is_out_of_time() {
            report.warn(format!("the time budget is used up; {left} documents are left for the next run"));
        }
        ctx.progress.finish();
        if left == 0 {
            careful.end(ctx)?;
        }
        if report.count("chunks") > 0 {
            end_of_failures(ctx, embedder)?;
        }
        Ok(())
    }

    /// Embeds documents: all in one pass, or each alone, those that the process died of last.
    fn pass(
        &mut self,
        ctx: &StepCtx<'_>,
        embedder: &Arc<Embedder>,
        careful: &Careful,
        ids: Vec<i64>,
        tried: &mut BTreeSet<i64>,
        report: &mut StepReport,
    ) -> std::result::Result<(), Failure> {
        let name = |id: &i64| format!("document {id}");
        let (suspects, others): (Vec<i64>, Vec<i64>) =
            ids.into_iter().partition(|id| careful.is_suspect(&name(id)));
        if !careful.is_on() {
            let mut pass = Pass::new(ctx, embedder, self.identity.take(), others);
            let outcome = pass.run(|| self.is_out_of_time(), report);
            self.identity = pass.identity().cloned();
            tried.extend(pass.tried());
            return outcome;
        }
        for id in others.into_iter().chain(suspects) {
            if self.is_out_of_time() {
                break;
            }
            let name = name(&id);
            let mut pass = Pass::new(ctx, embedder, self.identity.take(), vec![id]);
            let outcome = if careful.is_condemned(&name) {
                match pass.condemn(id, report) {
                    // It stays under suspicion.
                    Ok(false) => {
                        report.warn(format!("{name}: {}", careful::VERDICT));
                        continue;
                    }
                    Ok(true) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            } else {
                careful.note(ctx, &name)?;
                pass.run(|| self.is_out_of_time(), report)
            };
            self.identity = pass.identity().cloned();
            tried.insert(id);
            careful.settle(ctx, &name, outcome)?;
        }
        Ok(())
    }

    /// Lets queries be answered from the new index once it covers enough.
    fn settle(&self, ctx: &StepCtx<'_>) -> Result<()> {
        let Some(identity) = &self.identity else { return Ok(()) };
        ctx.write(|tx| {
            embeddings::retire_other_builds(tx, identity.id, ctx.now())?;
            if embeddings::settle(tx, identity, ctx.now())? {
                tracing::debug!(identity = identity.id, "queries are answered from this index");
            }
            Ok(())
        })
    }

    /// Switches, drops what is retired, and counts what stays failing.
    fn finish(&self, ctx: &StepCtx<'_>, report: &mut StepReport) -> Result<()> {
        self.settle(ctx)?;
        while ctx.write(|tx| embeddings::drop_retired(tx, DROP_SLICE))? {}
        let coverage = ctx.read(embeddings::coverage)?;
        report.failing = coverage.failed;
        if coverage.failed > 0 {
            report.warn(format!(
                "{} documents hold text that could not be embedded; `lore embed --retry-failed` tries them again now",
                coverage.failed
            ));
        }
        if let Some(building) = coverage.building {
            report.warn(format!(
                "queries are answered from the index of {} until that of {} covers as much ({} %)",
                coverage.identity.map_or_else(String::new, |identity| identity.model),
                building.identity.model,
                building.coverage_pct
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
