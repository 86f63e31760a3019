//! `fetch-discussions`: brings the discussions of the items that wait for it.

use std::collections::{BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::task::JoinSet;

use super::ingest::connect::connect;
use super::ingest::gitlab::{add_stats, bad_row, is_isolated};
use super::ingest::servers::{self, Projects, Suspects};
use crate::config::GitlabConfig;
use crate::content::{Discussion, ItemType};
use crate::engine::careful::{self, Careful};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::fault;
use crate::gitlab::wire::{self, BadRow};
use crate::gitlab::{Client, RequestError};
use crate::store::entities::{self, ReplacedDiscussions, StoredProject};
use crate::store::queues::{self, FetchEntry};

/// Entries that are taken from the queue at once.
const BATCH: i64 = 200;

/// Notes that may be under way at once, as far as their number is known: one thread of
/// thousands is read alone, so that memory does not depend on how many there are.
const MAX_NOTES: i64 = 4_000;

/// Fetches the discussions of issues and merge requests that `ingest` found new or changed,
/// and replaces those that are stored, one item at a time, once all of its pages arrived.
///
/// An item that cannot be fetched stays queued and is tried again later, with growing waits;
/// nothing of it is removed. Discussions of export archives come with the archive, so there
/// is nothing to do for them.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FetchDiscussions {
    /// Name of one source, `[sources.NAME]`. Default: every GitLab server.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Items fetched in one run at most; the rest waits for the next run. Default 1000.
    #[schemars(range(min = 1))]
    pub limit: u32,
    /// Items fetched at the same time. The source's own `concurrency` bounds the requests
    /// under way. Default 8.
    #[schemars(range(min = 1))]
    pub concurrency: usize,
}

impl Default for FetchDiscussions {
    fn default() -> Self {
        Self { source: None, limit: 1000, concurrency: 8 }
    }
}

impl Step for FetchDiscussions {
    const KIND: &'static str = "fetch-discussions";
    const SUMMARY: &'static str = "fetches the discussions of new and changed items";
    const EXAMPLE: &'static str = "{ limit = 1000, concurrency = 8 }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let sources = servers::of_config(ctx, self.source.as_deref())?;
        if sources.is_empty() {
            return Ok(StepReport::skipped(self.source.as_ref().map_or_else(
                || "no source is a GitLab server".to_owned(),
                |name| format!("source {name} is an export, which holds its discussions"),
            )));
        }
        let mut report = StepReport::default();
        let mut left = i64::from(self.limit);
        let careful = Careful::begin(ctx, Self::KIND)?;
        let done = servers::each(&sources, |name, config| {
            drain(ctx, self, name, config, &careful, &mut left, &mut report)
        });
        ctx.progress.finish();
        done?;
        if left > 0 {
            careful.end(ctx)?;
        }
        Ok(report)
    }
}

/// What fetching one item brought.
struct Fetched {
    entry: FetchEntry,
    project: StoredProject,
    out: Result<Vec<Box<RawValue>>, RequestError>,
    /// Notes that it was taken to have.
    n_notes: i64,
}

/// One discussion and the bytes it was read from.
struct Row {
    raw: Box<RawValue>,
    read: Result<(Discussion, Vec<BadRow>), BadRow>,
}

/// Works on the queue of one source until it is empty or `left` items were fetched.
fn drain(
    ctx: &StepCtx<'_>,
    step: &FetchDiscussions,
    name: &str,
    config: &GitlabConfig,
    careful: &Careful,
    left: &mut i64,
    report: &mut StepReport,
) -> Result<()> {
    if ctx.read(|tx| queues::ready_fetches(tx, name, ctx.now(), 1))?.is_empty() {
        // Nothing to do, and no reason to need the token.
        return Ok(());
    }
    let client = connect(ctx, name, config)?;
    let out =
        Drain { ctx, name, step, careful, client: client.clone(), state: State::default() }.run(left, report);
    add_stats(ctx, &client, report);
    out
}

/// The queue of one source while it is worked on.
struct Drain<'a> {
    ctx: &'a StepCtx<'a>,
    name: &'a str,
    step: &'a FetchDiscussions,
    careful: &'a Careful,
    client: Client,
    state: State,
}

#[derive(Default)]
struct State {
    projects: Projects,
    /// Items that were tried in this run: each is tried once.
    tried: BTreeSet<(i64, ItemType, i64)>,
    /// With what they are called.
    suspects: Suspects<(FetchEntry, String)>,
    n_done: u64,
    /// Items that failed: they stay in the queue.
    n_failed: i64,
    /// Notes of the items under way, as far as known.
    n_notes: i64,
}

/// What an entry is called when the process may have died of it.
fn name(entry: &FetchEntry) -> String {
    format!("{} {} {}", entry.project_id, entry.item_type.noteable_type(), entry.iid)
}

fn key(entry: &FetchEntry) -> (i64, ItemType, i64) {
    (entry.project_id, entry.item_type, entry.iid)
}

impl Drain<'_> {
    fn run(mut self, left: &mut i64, report: &mut StepReport) -> Result<()> {
        let ctx = self.ctx;
        // Dropped on every way out: requests under way are given up.
        let mut tasks: JoinSet<Fetched> = JoinSet::new();
        let mut waiting = VecDeque::new();
        let mut is_drained = false;
        loop {
            ctx.check()?;
            if waiting.is_empty() && !is_drained {
                // Before the last ones are done: the server is not to wait for the next batch.
                waiting = self.next_batch(*left, tasks.len())?;
                is_drained = waiting.is_empty();
            }
            let concurrency = if self.careful.is_on() { 1 } else { self.step.concurrency.max(1) };
            while tasks.len() < concurrency {
                let Some(entry) = waiting.pop_front() else { break };
                if self.careful.is_condemned(&name(&entry)) {
                    self.condemn(entry, report)?;
                    continue;
                }
                let n_notes =
                    ctx.read(|tx| entities::notes_count(tx, entry.project_id, entry.item_type, entry.iid))?;
                if !tasks.is_empty() && self.state.n_notes + n_notes > MAX_NOTES {
                    waiting.push_front(entry);
                    break;
                }
                self.state.n_notes += n_notes;
                *left -= 1;
                let project = self.state.projects.get(self.ctx, entry.project_id)?;
                self.careful.note(ctx, &name(&entry))?;
                tasks.spawn_on(fetch(self.client.clone(), project, entry, n_notes), &ctx.runtime);
            }
            if tasks.is_empty() {
                break;
            }
            let fetched = servers::next_done(ctx, &mut tasks)?;
            self.state.n_notes -= fetched.n_notes;
            let name = name(&fetched.entry);
            let settled = self.settle(fetched, report);
            self.careful.settle(ctx, &name, settled)?;
            self.state.n_done += 1;
            let known = self.state.n_done + waiting.len() as u64 + tasks.len() as u64;
            ctx.progress.set("items", self.state.n_done, Some(known));
        }
        self.settle_suspects(report)
    }

    /// The next entries that were not tried in this run; `under_way` of those that were are
    /// not answered yet.
    fn next_batch(&mut self, left: i64, under_way: usize) -> Result<VecDeque<FetchEntry>> {
        if left <= 0 {
            return Ok(VecDeque::new());
        }
        // Entries that were tried and are still there may stand in front of the others.
        let others = under_way + self.state.suspects.len() + self.careful.suspects();
        let tried = i64::try_from(others).unwrap_or(i64::MAX);
        let window = left.min(BATCH).saturating_add(self.state.n_failed).saturating_add(tried);
        let entries = self.ctx.read(|tx| queues::ready_fetches(tx, self.name, self.ctx.now(), window))?;
        let untried: Vec<FetchEntry> =
            entries.into_iter().filter(|entry| !self.state.tried.contains(&key(entry))).collect();
        let mut batch = self.careful.turn(untried, name);
        batch.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        self.state.tried.extend(batch.iter().map(key));
        Ok(batch.into())
    }

    /// Leaves an entry alone that the process died of.
    fn condemn(&mut self, entry: FetchEntry, report: &mut StepReport) -> Result<()> {
        let project = self.state.projects.get(self.ctx, entry.project_id)?;
        let subject = format!("{}{}{}", project.path, entry.item_type.sigil(), entry.iid);
        let name = name(&entry);
        let last = FetchEntry { attempt_count: queues::MAX_ATTEMPTS - 1, ..entry };
        let failed = self.fail(&last, &subject, careful::VERDICT, report);
        self.careful.settle(self.ctx, &name, failed)
    }

    /// Stores what was fetched, or records why it was not.
    fn settle(&mut self, fetched: Fetched, report: &mut StepReport) -> Result<()> {
        let Fetched { entry, project, out, .. } = fetched;
        let subject = format!("{}{}{}", project.path, entry.item_type.sigil(), entry.iid);
        match out {
            Ok(rows) => {
                self.settle_suspects(report)?;
                // Read here, one item at a time: parsed rows take as much memory as raw ones.
                let rows = rows.into_iter().map(|raw| Row { read: wire::discussion(&raw), raw }).collect();
                self.store(&entry, &subject, rows, report)
            }
            Err(error) if !is_isolated(error.error.kind()) => Err(error.error.context(subject)),
            Err(error) if servers::is_outage(&error) => {
                let error = error.error.context(&subject);
                self.state.suspects.add((entry, subject), error)
            }
            Err(error) => {
                self.settle_suspects(report)?;
                let note = if error.is_missing() {
                    " (kept here: it may be hidden rather than deleted)"
                } else {
                    ""
                };
                let text = format!("{}{note}", error.error.full_message());
                self.fail(&entry, &subject, &text, report)
            }
        }
    }

    fn settle_suspects(&mut self, report: &mut StepReport) -> Result<()> {
        for ((entry, subject), error) in self.state.suspects.acquit_server() {
            self.fail(&entry, &subject, &error.full_message(), report)?;
        }
        Ok(())
    }

    fn fail(
        &mut self,
        entry: &FetchEntry,
        subject: &str,
        error: &str,
        report: &mut StepReport,
    ) -> Result<()> {
        tracing::warn!(item = subject, error, "discussions cannot be fetched");
        self.ctx.write(|tx| queues::fail_fetch(tx, entry, error, self.ctx.now()))?;
        self.state.n_failed += 1;
        report.failing += 1;
        report.add("items_failed", 1);
        Ok(())
    }

    fn store(
        &self,
        entry: &FetchEntry,
        subject: &str,
        rows: Vec<Row>,
        report: &mut StepReport,
    ) -> Result<()> {
        fault::item(FetchDiscussions::KIND, subject);
        let (mut discussions, mut payloads) = (Vec::new(), Vec::new());
        let mut is_whole = true;
        for Row { raw, read } in rows {
            match read {
                Ok((discussion, bad_notes)) => {
                    is_whole &= bad_notes.is_empty();
                    for bad in &bad_notes {
                        bad_row(subject, "note", bad, report);
                    }
                    let key =
                        format!("{}/{}/{}", entry.item_type.noteable_type(), entry.iid, discussion.gitlab_id);
                    payloads.push((key, raw));
                    // All of its notes are hidden from us: there is nothing to show.
                    if !discussion.notes.is_empty() {
                        discussions.push(discussion);
                    }
                }
                Err(bad) => {
                    is_whole = false;
                    bad_row(subject, "discussion", &bad, report);
                }
            }
        }
        let ctx = self.ctx;
        let (now, how) = (ctx.now(), ctx.config.database.raw_payloads);
        let replaced = ctx.write(|tx| {
            queues::complete_fetch(tx, entry)?;
            let Some(item_id) = entities::item_id(tx, entry.project_id, entry.item_type, entry.iid)? else {
                return Ok(ReplacedDiscussions::default());
            };
            if is_whole {
                let kept: Vec<String> = payloads.iter().map(|(key, _)| key.clone()).collect();
                let prefix = format!("{}/{}/", entry.item_type.noteable_type(), entry.iid);
                entities::forget_discussions(tx, entry.project_id, &prefix, &kept)?;
            }
            for (key, raw) in &payloads {
                entities::save_raw(tx, entry.project_id, "discussion", key, raw.get().as_bytes(), how, now)?;
            }
            let store = if is_whole { entities::replace_discussions } else { entities::merge_discussions };
            store(tx, entry.project_id, entry.item_type, item_id, &discussions, now)
        })?;
        let ReplacedDiscussions { new, changed, unchanged, removed, notes } = replaced;
        report.add("items_fetched", 1);
        for (name, n) in [
            ("discussions_new", new),
            ("discussions_changed", changed),
            ("discussions_unchanged", unchanged),
            ("discussions_removed", removed),
            ("notes_stored", notes),
        ] {
            report.add(name, i64::try_from(n).unwrap_or(i64::MAX));
        }
        Ok(())
    }
}

/// Fetches all discussion pages of one item.
async fn fetch(client: Client, project: StoredProject, entry: FetchEntry, n_notes: i64) -> Fetched {
    let items = match entry.item_type {
        ItemType::Issue => "issues",
        ItemType::MergeRequest => "merge_requests",
    };
    let iid = entry.iid.to_string();
    let remote = project.gitlab_id.map_or_else(|| project.path.clone(), |id| id.to_string());
    let url = client.list_url(&["projects", &remote, items, &iid, "discussions"], &[]);
    let out = client.list(&url).await;
    Fetched { entry, project, out, n_notes }
}
