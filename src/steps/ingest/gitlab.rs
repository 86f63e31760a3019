//! Ingests projects of a GitLab server.
//!
//! Per project: the project itself, its labels and milestones (whole, they are small), then
//! issues and merge requests from the cursor on. Each page is one transaction that holds its
//! rows, the queue entries they cause and the cursor. What cannot be read is recorded, does
//! not stop the rest, and is left alone until its next attempt is due; nothing is ever taken
//! as deleted because it was not listed.

mod ahead;
mod groups;
pub(in crate::steps) mod items;
mod places;
mod projects;
mod streams;

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::connect::connect;
use crate::config::GitlabConfig;
use crate::content::ItemType;
use crate::engine::ctx::StepCtx;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::Client;
use crate::gitlab::wire::BadRow;
use crate::store::metrics::{self, Service};

pub(in crate::steps) use projects::get_project;

/// Projects that are named when all of a source failed.
const SHOWN_FAILURES: usize = 3;

/// One source while it is read.
pub(in crate::steps) struct Source<'a> {
    pub(in crate::steps) ctx: &'a StepCtx<'a>,
    pub(in crate::steps) name: &'a str,
    pub(in crate::steps) config: &'a GitlabConfig,
    pub(in crate::steps) client: Client,
    ahead: RefCell<ahead::Ahead>,
}

impl<'a> Source<'a> {
    /// Reads the token and makes the client.
    pub(in crate::steps) fn new(
        ctx: &'a StepCtx<'a>,
        name: &'a str,
        config: &'a GitlabConfig,
    ) -> Result<Self> {
        let client = connect(ctx, name, config)?;
        Ok(Self { ctx, name, config, client, ahead: RefCell::default() })
    }

    /// Whether what failed is tried although its next attempt is not due.
    fn tries_all(&self) -> bool {
        self.ctx.options.retry_failed || self.ctx.options.full
    }
}

/// A project while it is read.
pub(in crate::steps) struct ProjectIds {
    /// Id in the database.
    pub(in crate::steps) local: i64,
    /// Id on the server, which survives renames.
    pub(in crate::steps) remote: String,
    /// Path, for messages.
    pub(in crate::steps) path: String,
}

/// Reads the projects of one server and stores what changed.
///
/// # Errors
/// [`ErrorKind::Auth`] as soon as the server refuses the token; the stop's and the store's
/// errors; and, when no project could be read at all, the failure they share.
pub fn ingest(ctx: &StepCtx<'_>, name: &str, config: &GitlabConfig, report: &mut StepReport) -> Result<()> {
    let source = Source::new(ctx, name, config)?;
    if config.projects.is_empty() && config.groups.is_empty() {
        report.warn(format!("source {name} names no projects"));
    }
    let out = ingest_projects(&source, report);
    add_stats(ctx, &source.client, report);
    ctx.progress.finish();
    out
}

/// Adds what the requests came to, for the report and for the metrics.
pub(in crate::steps) fn add_stats(ctx: &StepCtx<'_>, client: &Client, report: &mut StepReport) {
    let stats = client.stats();
    metrics::count_requests(ctx.store, Service::Gitlab, &stats);
    report.add("requests", stats.requests);
    report.add("retries", stats.retries);
    report.add("rate_limit_wait_ms", stats.rate_limit_wait_ms);
}

/// Whether a failure is confined to what was asked for; any other ends the step.
pub(in crate::steps) fn is_isolated(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::SourceNotFound | ErrorKind::Network | ErrorKind::Config)
}

/// What reading the projects of a source came to.
#[derive(Default)]
struct Tally {
    read: i64,
    failures: Vec<Error>,
    /// Projects that were read or tried, by their ids on the server: a project that is named
    /// and in a group, or in two groups, is read once.
    seen: BTreeSet<i64>,
}

impl Tally {
    /// Takes the result of one project or group; returns an error that ends the source.
    fn take(
        &mut self,
        source: &Source<'_>,
        what: &str,
        done: Result<bool>,
        report: &mut StepReport,
    ) -> Result<()> {
        match done {
            Ok(was_read) => self.read += i64::from(was_read),
            Err(error) if is_isolated(error.kind()) => {
                tracing::warn!(source = source.name, subject = what, error = %error, "project or group cannot be read");
                report.warn(error.full_message());
                self.failures.push(error);
            }
            Err(error) => return Err(error.context(format!("source {}", source.name))),
        }
        Ok(())
    }
}

fn ingest_projects(source: &Source<'_>, report: &mut StepReport) -> Result<()> {
    let mut tally = Tally::default();
    let wanted = source.config.projects.iter().map(|path| ahead::configured(source, path));
    ahead::expect(source, wanted.collect::<Result<_>>()?);
    for path in &source.config.projects {
        source.ctx.check()?;
        ahead::begin(source, path)?;
        let done = projects::configured(source, path, &mut tally.seen, report);
        tally.take(source, path, done, report)?;
    }
    for group in &source.config.groups {
        source.ctx.check()?;
        groups::ingest(source, group, &mut tally, report)?;
    }
    report.add("projects", tally.read);
    match all_failed(source.name, tally.failures) {
        Some(error) if tally.read == 0 => Err(error),
        Some(_) | None => Ok(()),
    }
}

/// The failure of a source of which every project failed.
fn all_failed(name: &str, failures: Vec<Error>) -> Option<Error> {
    let first = failures.first()?;
    let kind = if failures.iter().all(|error| error.kind() == first.kind()) {
        first.kind()
    } else {
        ErrorKind::RunFailed
    };
    let mut shown: Vec<String> = failures.iter().take(SHOWN_FAILURES).map(Error::full_message).collect();
    if failures.len() > SHOWN_FAILURES {
        shown.push(format!("and {} more", failures.len() - SHOWN_FAILURES));
    }
    let message = format!("source {name}: nothing of it could be read: {}", shown.join("; "));
    let error = Error::new(kind, message);
    Some(first.hints().iter().fold(error, |error, hint| error.hint(hint.clone())))
}

/// Counts and shows a row that cannot be read.
pub(in crate::steps) fn bad_row(path: &str, what: &str, bad: &BadRow, report: &mut StepReport) {
    let number = bad.iid.map(|iid| format!(" {iid}")).unwrap_or_default();
    report.add("bad_rows", 1);
    report.failing += 1;
    report.warn(format!("{path}: {what}{number} cannot be read: {}", bad.reason));
}

pub(in crate::steps) const fn stream_name(item_type: ItemType) -> &'static str {
    match item_type {
        ItemType::Issue => "issues",
        ItemType::MergeRequest => "merge_requests",
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(crate) mod tests;
