//! `fetch-links`: brings what GitLab knows about relations between items.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::ingest::connect::connect;
use super::ingest::gitlab::{add_stats, is_isolated};
use super::ingest::servers::{self, Projects, Suspects};
use crate::content::ItemType;
use crate::content::refs::{RefKind, Reference};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Error, Result};
use crate::gitlab::related::{self, Stream};
use crate::gitlab::{Client, RequestError};
use crate::store::cursors;
use crate::store::entities::StoredProject;
use crate::store::links::{self, LinkEntry};

/// Items of which a list is missing (404) before it counts as switched off in the project,
/// when it was there for none.
const OFF_AFTER: usize = 3;

/// Fetches the relations between items that GitLab keeps beside their texts.
///
/// These are links between issues (relates to, blocks, is blocked by), merge requests that
/// close or mention an issue, issues that a merge request closes. They become references of
/// documents, as those found in texts.
///
/// Items are looked at once and again when they change, the most recently updated first; an
/// issue costs three requests, a merge request one. A list that is refused to the token or
/// switched off in the project (403, 404) is left alone for a while, up to an hour, and what is
/// stored of it stays. With `--full` items that did not change are looked at too.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FetchLinks {
    /// Name of one source, `[sources.NAME]`. Default: every GitLab server.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Items looked at in one run at most; the rest waits for the next run. Default 500.
    #[schemars(range(min = 1))]
    pub limit: u32,
    /// Items looked at at the same time. The source's own `concurrency` bounds the requests
    /// under way. Default 8.
    #[schemars(range(min = 1))]
    pub concurrency: usize,
}

impl Default for FetchLinks {
    fn default() -> Self {
        Self { source: None, limit: 500, concurrency: 8 }
    }
}

impl Step for FetchLinks {
    const KIND: &'static str = "fetch-links";
    const SUMMARY: &'static str = "fetches GitLab's own links between issues and merge requests";
    const EXAMPLE: &'static str = "{ limit = 500 }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let sources = servers::of_config(ctx, self.source.as_deref())?;
        if sources.is_empty() {
            return Ok(StepReport::skipped("no source is a GitLab server (an export holds no links)"));
        }
        let mut report = StepReport::default();
        for name in ["items_looked_at", "items_changed", "links"] {
            report.add(name, 0);
        }
        let mut left = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let done = servers::each(&sources, |name, config| {
            let now = ctx.now();
            let limit = i64::try_from(left).unwrap_or(i64::MAX);
            let entries = ctx.read(|tx| links::to_look_at(tx, name, ctx.options.full, now, limit))?;
            if entries.is_empty() {
                return Ok(());
            }
            left = left.saturating_sub(entries.len());
            let client = connect(ctx, name, config)?;
            let walk = Walk {
                ctx,
                client: client.clone(),
                concurrency: self.concurrency.max(1),
                projects: Projects::default(),
                streams: BTreeMap::new(),
                suspects: Suspects::default(),
            };
            let out = walk.run(entries.into(), &mut report);
            add_stats(ctx, &client, &mut report);
            out
        });
        ctx.progress.finish();
        done.map(|()| report)
    }
}

/// What one list of one item came to.
type Answer = Result<BTreeSet<Reference>, RequestError>;

/// What looking at one item brought.
struct Looked {
    entry: LinkEntry,
    answers: Vec<(Stream, Answer)>,
}

/// How a list does in one project.
#[derive(Debug, Default)]
struct Standing {
    is_off: bool,
    was_there: bool,
    n_missing: usize,
}

/// The items of one source while they are looked at.
struct Walk<'a> {
    ctx: &'a StepCtx<'a>,
    client: Client,
    concurrency: usize,
    projects: Projects,
    streams: BTreeMap<(i64, Stream), Standing>,
    suspects: Suspects<LinkEntry>,
}

impl Walk<'_> {
    fn run(mut self, mut waiting: VecDeque<LinkEntry>, report: &mut StepReport) -> Result<()> {
        let ctx = self.ctx;
        let total = waiting.len() as u64;
        let mut n_done = 0;
        // Dropped on every way out: requests under way are given up.
        let mut tasks: JoinSet<Looked> = JoinSet::new();
        loop {
            ctx.check()?;
            while tasks.len() < self.concurrency {
                let Some(entry) = waiting.pop_front() else { break };
                let project = self.projects.get(ctx, entry.project_id)?;
                let streams = self.streams(&entry)?;
                tasks.spawn_on(look(self.client.clone(), project, entry, streams), &ctx.runtime);
            }
            if tasks.is_empty() {
                break;
            }
            let looked = servers::next_done(ctx, &mut tasks)?;
            self.settle(looked, report)?;
            n_done += 1;
            ctx.progress.set("items", n_done, Some(total));
        }
        self.settle_suspects(report)
    }

    /// The lists of an item that are not switched off.
    fn streams(&mut self, entry: &LinkEntry) -> Result<Vec<Stream>> {
        let mut on = Vec::new();
        for stream in Stream::of(entry.item_type) {
            let key = (entry.project_id, *stream);
            if !self.streams.contains_key(&key) {
                let now = self.ctx.now();
                let is_off =
                    self.ctx.read(|tx| links::is_left_alone(tx, entry.project_id, stream.as_str(), now))?;
                self.streams.insert(key, Standing { is_off, ..Standing::default() });
            }
            if self.streams.get(&key).is_some_and(|standing| !standing.is_off) {
                on.push(*stream);
            }
        }
        Ok(on)
    }

    /// Stores what was found, or records why nothing was.
    fn settle(&mut self, Looked { entry, answers }: Looked, report: &mut StepReport) -> Result<()> {
        let ctx = self.ctx;
        let mut kinds: Vec<RefKind> = Vec::new();
        let mut found: BTreeSet<Reference> = BTreeSet::new();
        let mut failure = None;
        let mut n_missing = 0;
        for (stream, answer) in answers {
            match answer {
                Ok(links) => {
                    kinds.extend(stream.kinds());
                    found.extend(links);
                    self.was_there(&entry, stream)?;
                }
                Err(error) if !is_isolated(error.error.kind()) => return Err(error.error),
                Err(error) if error.is_forbidden() => {
                    self.switch_off(&entry, stream, &error.error, report)?;
                }
                Err(error) if error.is_missing() => {
                    n_missing += 1;
                    self.missing(&entry, stream, &error.error, report)?;
                }
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure {
            if servers::is_outage(&error) {
                return self.suspects.add(entry, error.error);
            }
            self.settle_suspects(report)?;
            return self.fail(&entry, &error.error, report);
        }
        if n_missing == 0 || !kinds.is_empty() {
            self.settle_suspects(report)?;
        }
        let n_links = i64::try_from(found.len()).unwrap_or(i64::MAX);
        let changed = ctx.write(|tx| links::replace(tx, &entry, &kinds, &found))?;
        report.add("items_looked_at", 1);
        report.add("items_changed", i64::from(changed));
        report.add("links", n_links);
        Ok(())
    }

    fn settle_suspects(&mut self, report: &mut StepReport) -> Result<()> {
        self.suspects.acquit_server().iter().try_for_each(|(entry, error)| self.fail(entry, error, report))
    }

    fn fail(&self, entry: &LinkEntry, error: &Error, report: &mut StepReport) -> Result<()> {
        let error = error.full_message();
        tracing::warn!(iid = entry.iid, error, "links cannot be fetched");
        self.ctx.write(|tx| links::fail(tx, entry, &error, self.ctx.now()))?;
        report.failing += 1;
        report.add("items_failed", 1);
        Ok(())
    }

    fn was_there(&mut self, entry: &LinkEntry, stream: Stream) -> Result<()> {
        let standing = self.streams.entry((entry.project_id, stream)).or_default();
        if !standing.was_there {
            standing.was_there = true;
            self.ctx.write(|tx| cursors::clear_stream_failure(tx, entry.project_id, stream.as_str()))?;
        }
        Ok(())
    }

    fn missing(
        &mut self,
        entry: &LinkEntry,
        stream: Stream,
        error: &Error,
        report: &mut StepReport,
    ) -> Result<()> {
        let standing = self.streams.entry((entry.project_id, stream)).or_default();
        standing.n_missing += 1;
        if !standing.was_there && standing.n_missing >= OFF_AFTER {
            return self.switch_off(entry, stream, error, report);
        }
        Ok(())
    }

    /// Leaves a list of a project alone, with growing waits.
    fn switch_off(
        &mut self,
        entry: &LinkEntry,
        stream: Stream,
        error: &Error,
        report: &mut StepReport,
    ) -> Result<()> {
        let standing = self.streams.entry((entry.project_id, stream)).or_default();
        if standing.is_off {
            return Ok(());
        }
        standing.is_off = true;
        let name = stream.as_str();
        tracing::info!(stream = name, error = %error, "the list is switched off or refused");
        report.add("streams_off", 1);
        self.ctx.write(|tx| cursors::record_stream_failure(tx, entry.project_id, name, error, self.ctx.now()))
    }
}

/// Asks for the lists of one item, one after the other.
async fn look(client: Client, project: StoredProject, entry: LinkEntry, streams: Vec<Stream>) -> Looked {
    let items = match entry.item_type {
        ItemType::Issue => "issues",
        ItemType::MergeRequest => "merge_requests",
    };
    let iid = entry.iid.to_string();
    let remote = project.gitlab_id.map_or_else(|| project.path.clone(), |id| id.to_string());
    let mut answers = Vec::new();
    for stream in streams {
        let url = client.list_url(&["projects", &remote, items, &iid, stream.as_str()], &[]);
        let answer: Answer = client
            .list(&url)
            .await
            .map(|rows| rows.iter().filter_map(|raw| related::link(stream, raw, client.address())).collect());
        answers.push((stream, answer));
    }
    Looked { entry, answers }
}
