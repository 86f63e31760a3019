//! `regenerate-docs`: brings the documents up to date with their sources.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Millis;
use crate::content::hash::Hash;
use crate::content::{Document, SourceType, render};
use crate::engine::careful::{self, Careful};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Error, ErrorKind, Result};
use crate::fault;
use crate::store::WriteTx;
use crate::store::documents::{self, NewDocument, StoredDocument};
use crate::store::queues::{self, DirtyEntry};
use crate::store::sources::{self, Glance, ReadSource};

/// Sources marked per transaction of a full run.
const SEED_BATCH: i64 = 2_000;

/// Sources whose text is read at once: an item can have a megabyte.
const READ_BATCH: usize = 64;

/// Text of rendered documents that ends a batch early, in bytes.
const BATCH_BYTES: usize = 8 << 20;

/// Makes the documents of all sources that changed: issues, merge requests, discussions.
///
/// A source that is as it was when its document was made costs a look at its hash. With
/// `--full` every source is queued first and every document made anew; what comes out the
/// same is still not written. A source that cannot be rendered is recorded, retried with
/// backoff, and does not stop the others.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RegenerateDocs {
    /// Most queue entries to process; 0 means all.
    pub limit: u32,
    /// Documents written per transaction.
    #[schemars(range(min = 1, max = 5000))]
    pub batch: u32,
}

impl Default for RegenerateDocs {
    fn default() -> Self {
        Self { limit: 0, batch: 1_000 }
    }
}

impl Step for RegenerateDocs {
    const KIND: &'static str = "regenerate-docs";
    const SUMMARY: &'static str = "makes the documents of changed sources";
    const EXAMPLE: &'static str = "{ batch = 1000 }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let mut report = StepReport::default();
        for name in ["regenerated", "unchanged", "deleted", "errored", "truncated"] {
            report.add(name, 0);
        }
        if ctx.options.full {
            seed_everything(ctx, &mut report)?;
        }
        self.drain(ctx, &mut report)?;
        ctx.progress.finish();
        report.failing = report.count("errored");
        Ok(report)
    }
}

/// Marks every source, in short transactions.
fn seed_everything(ctx: &StepCtx<'_>, report: &mut StepReport) -> Result<()> {
    for source_type in SourceType::ALL {
        let mut after_id = 0;
        while let Some(last) =
            ctx.write(|tx| queues::seed_dirty(tx, source_type, after_id, SEED_BATCH, ctx.now()))?
        {
            after_id = last;
        }
        tracing::debug!(source_type = %source_type, last_id = after_id, "queued every source");
    }
    report
        .add("queued", ctx.read(|tx| queues::depths(tx, ctx.now()))?.first().map_or(0, |depth| depth.ready));
    Ok(())
}

impl RegenerateDocs {
    fn drain(&self, ctx: &StepCtx<'_>, report: &mut StepReport) -> Result<()> {
        let batch = usize::try_from(self.batch.max(1)).unwrap_or(usize::MAX);
        let mut left =
            if self.limit == 0 { usize::MAX } else { usize::try_from(self.limit).unwrap_or(usize::MAX) };
        // An entry is tried once in a run: one that fails comes back with a later run, and
        // one that changes all the time does not keep this one going.
        let mut tried = Tried::new();
        let total = ctx.read(|tx| queues::depths(tx, ctx.now()))?.first().map(|depth| depth.ready);
        let total = total.and_then(|ready| u64::try_from(ready).ok());
        let mut done = 0_u64;
        let mut stuck = 0;
        let careful = Careful::begin(ctx, Self::KIND)?;
        loop {
            ctx.check()?;
            let wanted = batch.min(left);
            if wanted == 0 {
                return Ok(());
            }
            // Entries that were tried and stayed, or that wait for the others, may stand in
            // front of them.
            let window = i64::try_from(wanted + stuck + careful.suspects()).unwrap_or(i64::MAX);
            let ready = ctx.read(|tx| queues::ready_dirty(tx, ctx.now(), window))?;
            let untried: Vec<DirtyEntry> = ready
                .into_iter()
                .filter(|entry| !tried.contains(&(entry.source_type, entry.source_id)))
                .collect();
            let mut entries = careful.turn(untried, name);
            entries.truncate(wanted);
            if entries.is_empty() {
                return careful.end(ctx);
            }
            left -= entries.len();
            done += u64::try_from(entries.len()).unwrap_or(0);
            if careful.is_on() {
                for entry in entries {
                    stuck += one(ctx, &careful, entry, report, &mut tried)?;
                }
            } else {
                stuck += all(ctx, entries, report, &mut tried)?;
            }
            ctx.progress.set("documents", done, total.map(|total| total.max(done)));
        }
    }
}

/// What an entry is called when the process may have died of it.
fn name(entry: &DirtyEntry) -> String {
    format!("{} {}", entry.source_type, entry.source_id)
}

/// Works on entries in as few transactions as they fit in; returns how many stayed.
fn all(
    ctx: &StepCtx<'_>,
    entries: Vec<DirtyEntry>,
    report: &mut StepReport,
    tried: &mut Tried,
) -> Result<usize> {
    let mut stuck = 0;
    let (known, changed) = look(ctx, entries)?;
    let mut prepared = Batch { prepared: known, bytes: 0 };
    let mut changed = changed.into_iter().peekable();
    while changed.peek().is_some() {
        prepared.render(ctx, changed.by_ref().take(READ_BATCH).collect())?;
        if prepared.bytes > BATCH_BYTES {
            stuck += std::mem::take(&mut prepared).write(ctx, report, tried)?;
        }
    }
    Ok(stuck + prepared.write(ctx, report, tried)?)
}

/// Works on one entry that the process may die of; returns whether it stayed, as 0 or 1.
fn one(
    ctx: &StepCtx<'_>,
    careful: &Careful,
    entry: DirtyEntry,
    report: &mut StepReport,
    tried: &mut Tried,
) -> Result<usize> {
    let name = name(&entry);
    if careful.is_condemned(&name) {
        let last = DirtyEntry { attempt_count: queues::MAX_ATTEMPTS - 1, ..entry };
        let plan = Plan::Fail(careful::VERDICT.to_owned());
        let batch = Batch { prepared: vec![Prepared { entry: last, glance: None, plan }], bytes: 0 };
        return careful.settle(ctx, &name, batch.write(ctx, report, tried));
    }
    careful.note(ctx, &name)?;
    careful.settle(ctx, &name, all(ctx, vec![entry], report, tried))
}

/// Entries that were tried in this run and stayed.
type Tried = HashSet<(SourceType, i64)>;

/// What is to happen with one entry.
#[derive(Debug)]
enum Plan {
    /// The document holds what it should; only its time (when it is known here) or the hash of
    /// its source may differ.
    Keep(StoredDocument, Option<Millis>),
    /// The document is to be written.
    Write(Box<Document>),
    /// There is to be no document.
    Delete(Option<i64>),
    /// The source cannot be rendered.
    Fail(String),
}

/// One entry with its plan.
#[derive(Debug)]
struct Prepared {
    entry: DirtyEntry,
    glance: Option<Glance>,
    plan: Plan,
}

/// Entries that are ready to be written in one transaction.
#[derive(Debug, Default)]
struct Batch {
    prepared: Vec<Prepared>,
    bytes: usize,
}

/// An entry whose source has to be read.
#[derive(Debug)]
struct Changed {
    entry: DirtyEntry,
    glance: Glance,
    stored: Option<StoredDocument>,
}

/// Tells the entries that need no reading, with their plans, from those that changed.
fn look(ctx: &StepCtx<'_>, entries: Vec<DirtyEntry>) -> Result<(Vec<Prepared>, Vec<Changed>)> {
    let (glances, stored) =
        ctx.read(|tx| Ok((sources::glance(tx, &entries)?, documents::stored(tx, &entries)?)))?;
    let (mut known, mut changed) = (Vec::new(), Vec::new());
    for ((entry, glance), stored) in entries.into_iter().zip(glances).zip(stored) {
        match (glance, stored) {
            (Some(glance), Some(stored)) if !ctx.options.full && stored.is_made_of(&glance.source_hash) => {
                let plan = Plan::Keep(stored, glance.updated_at);
                known.push(Prepared { entry, glance: Some(glance), plan });
            }
            (Some(glance), stored) => changed.push(Changed { entry, glance, stored }),
            (None, stored) => {
                let plan = Plan::Delete(stored.map(|stored| stored.id));
                known.push(Prepared { entry, glance: None, plan });
            }
        }
    }
    Ok((known, changed))
}

impl Batch {
    /// Reads and renders what changed; nothing is locked meanwhile.
    fn render(&mut self, ctx: &StepCtx<'_>, changed: Vec<Changed>) -> Result<()> {
        let entries: Vec<DirtyEntry> = changed.iter().map(|changed| changed.entry.clone()).collect();
        let sources = ctx.read(|tx| sources::read_sources(tx, &entries))?;
        for (Changed { entry, glance, stored }, source) in changed.into_iter().zip(sources) {
            let plan = plan(source, stored);
            if let Plan::Write(document) = &plan {
                self.bytes +=
                    document.content_text.len() + document.thread_text.len() + document.terms_text.len();
            }
            self.prepared.push(Prepared { entry, glance: Some(glance), plan });
        }
        Ok(())
    }

    /// Writes everything in one transaction; returns how many entries stayed in the queue.
    /// When SQLite refuses the batch, each entry is written alone, so that one that cannot
    /// be stored does not hold up the others.
    fn write(self, ctx: &StepCtx<'_>, report: &mut StepReport, tried: &mut Tried) -> Result<usize> {
        let mut outcome = match ctx.write(|tx| write_all(ctx, tx, &self.prepared)) {
            Ok(outcome) => outcome,
            Err(error) if error.kind() == ErrorKind::Database => write_each(ctx, &self.prepared, &error)?,
            Err(error) => return Err(error),
        };
        tried.extend(outcome.stayed.drain(..));
        for (name, n) in outcome.counts {
            report.add(name, n);
        }
        for warning in outcome.warnings {
            report.warn(warning);
        }
        Ok(outcome.n_stayed)
    }
}

fn plan(source: ReadSource, stored: Option<StoredDocument>) -> Plan {
    let source = match source {
        Ok(Some(source)) => source,
        Ok(None) => return Plan::Delete(stored.map(|stored| stored.id)),
        Err(error) => return Plan::Fail(error),
    };
    // A defect that one text brings to light must not stop the others.
    match catch_unwind(AssertUnwindSafe(|| render::render(&source))) {
        Err(_) => Plan::Fail("rendering panicked: a defect of lore".to_owned()),
        Ok(None) => Plan::Delete(stored.map(|stored| stored.id)),
        Ok(Some(document)) => {
            fault::item(RegenerateDocs::KIND, document.title.as_deref().unwrap_or_default());
            match stored {
                Some(stored) if stored.holds(&document) => Plan::Keep(stored, Some(document.updated_at)),
                Some(_) | None => Plan::Write(Box::new(document)),
            }
        }
    }
}

/// What a transaction came to.
#[derive(Debug, Default)]
struct Outcome {
    counts: Vec<(&'static str, i64)>,
    warnings: Vec<String>,
    stayed: Vec<(SourceType, i64)>,
    n_stayed: usize,
}

impl Outcome {
    fn stays(&mut self, entry: &DirtyEntry) {
        self.stayed.push((entry.source_type, entry.source_id));
        self.n_stayed += 1;
    }

    fn failed(&mut self, entry: &DirtyEntry, error: &str) {
        self.stays(entry);
        self.counts.push(("errored", 1));
        self.warnings.push(format!("{} {}: {error}", entry.source_type, entry.source_id));
    }
}

fn write_all(ctx: &StepCtx<'_>, tx: &WriteTx<'_>, prepared: &[Prepared]) -> Result<Outcome> {
    const NO_HASH: &Hash = &[0; 32];
    let mut outcome = Outcome::default();
    let (mut to_write, mut to_delete) = (Vec::new(), Vec::new());
    for Prepared { entry, glance, plan } in prepared {
        if let Plan::Fail(error) = plan {
            queues::fail_dirty(tx, entry, error, ctx.now())?;
            outcome.failed(entry, error);
            continue;
        }
        if !queues::complete_dirty(tx, entry)? {
            // Changed or deleted since it was read: what was made of it is stale.
            outcome.stays(entry);
            continue;
        }
        let source_hash = glance.as_ref().map_or(NO_HASH, |glance| &glance.source_hash);
        match plan {
            Plan::Keep(stored, updated_at) => {
                let is_later = updated_at.is_some() && stored.updated_at != *updated_at;
                if is_later || !stored.is_made_of(source_hash) {
                    documents::touch(tx, stored.id, source_hash, *updated_at)?;
                }
                outcome.counts.push(("unchanged", 1));
            }
            Plan::Write(document) => {
                outcome.counts.push(("regenerated", 1));
                outcome.counts.push(("truncated", i64::from(document.truncated.is_some())));
                to_write.push(NewDocument { document: document.as_ref(), source_hash });
            }
            Plan::Delete(Some(id)) => {
                outcome.counts.push(("deleted", 1));
                to_delete.push(*id);
            }
            // A discussion in which nobody said anything.
            Plan::Delete(None) => outcome.counts.push(("without_text", 1)),
            Plan::Fail(_) => {}
        }
    }
    documents::delete_documents(tx, &to_delete)?;
    documents::write_documents(tx, &to_write)?;
    Ok(outcome)
}

/// Writes entries one by one after the whole batch was refused.
fn write_each(ctx: &StepCtx<'_>, prepared: &[Prepared], refusal: &Error) -> Result<Outcome> {
    tracing::warn!(entries = prepared.len(), error = %refusal, "a batch of documents was refused, writing each alone");
    let mut total = Outcome::default();
    for one in prepared.chunks(1) {
        match ctx.write(|tx| write_all(ctx, tx, one)) {
            Ok(outcome) => {
                total.counts.extend(outcome.counts);
                total.warnings.extend(outcome.warnings);
                total.stayed.extend(outcome.stayed);
                total.n_stayed += outcome.n_stayed;
            }
            Err(error) if error.kind() == ErrorKind::Database => {
                for Prepared { entry, .. } in one {
                    let text = error.to_string();
                    ctx.write(|tx| queues::fail_dirty(tx, entry, &text, ctx.now()))?;
                    total.failed(entry, &text);
                }
            }
            Err(error) => return Err(error),
        }
    }
    if total.n_stayed == prepared.len() && prepared.len() > 1 {
        // Nothing at all can be written: that is not the fault of the entries.
        return Err(Error::new(ErrorKind::Database, "write documents")
            .because(refusal.to_string())
            .hint("run `lore status --check`: the database may be damaged"));
    }
    Ok(total)
}

#[cfg(test)]
mod tests;
