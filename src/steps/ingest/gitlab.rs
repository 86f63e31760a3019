//! Ingests projects of a GitLab server.
//!
//! Per project: the project itself, its labels and milestones (whole, they are small), then
//! issues and merge requests from the cursor on. Each page is one transaction that holds its
//! rows, the queue entries they cause and the cursor. What cannot be read is recorded and
//! does not stop the rest; nothing is ever taken as deleted because it was not listed.

mod items;

use super::connect::connect;
use crate::config::GitlabConfig;
use crate::content::ItemType;
use crate::engine::ctx::StepCtx;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::wire::{self, BadRow, ProjectRow};
use crate::gitlab::{Client, RequestError};
use crate::store::metrics::{self, Service};
use crate::store::{cursors, entities};

/// Projects that are named when all of a source failed.
const SHOWN_FAILURES: usize = 3;

/// One source while it is read.
struct Source<'a> {
    ctx: &'a StepCtx<'a>,
    name: &'a str,
    config: &'a GitlabConfig,
    client: Client,
}

/// A project while it is read.
struct ProjectIds {
    /// Id in the database.
    local: i64,
    /// Id on the server, which survives renames.
    remote: String,
    /// Path, for messages.
    path: String,
}

/// Reads the projects of one server and stores what changed.
///
/// # Errors
/// [`ErrorKind::Auth`] as soon as the server refuses the token; the stop's and the store's
/// errors; and, when no project could be read at all, the failure they share.
pub fn ingest(ctx: &StepCtx<'_>, name: &str, config: &GitlabConfig, report: &mut StepReport) -> Result<()> {
    let client = connect(ctx, name, config)?;
    let source = Source { ctx, name, config, client };
    if config.projects.is_empty() {
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

fn ingest_projects(source: &Source<'_>, report: &mut StepReport) -> Result<()> {
    let mut failures = Vec::new();
    let mut n_read = 0;
    for path in &source.config.projects {
        source.ctx.check()?;
        match ingest_project(source, path, report) {
            Ok(()) => n_read += 1,
            Err(error) if is_isolated(error.kind()) => {
                tracing::warn!(source = source.name, project = %path, error = %error, "project cannot be read");
                report.warn(error.to_string());
                failures.push(error);
            }
            Err(error) => return Err(error.context(format!("source {}", source.name))),
        }
    }
    report.add("projects", n_read);
    match all_failed(source.name, failures) {
        Some(error) if n_read == 0 => Err(error),
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
    let message =
        format!("source {name}: none of its {} projects could be read: {}", failures.len(), shown.join("; "));
    let error = Error::new(kind, message);
    Some(first.hints().iter().fold(error, |error, hint| error.hint(hint.clone())))
}

/// Reads one project. Fails when the project itself, or both of its item streams, cannot be
/// read.
fn ingest_project(source: &Source<'_>, path: &str, report: &mut StepReport) -> Result<()> {
    let ctx = source.ctx;
    let row = match look_up(source, path) {
        Ok(row) => row,
        Err(error) => {
            let error = error.context(path);
            if is_isolated(error.kind()) {
                report.failing += 1;
                let stored = ctx.read(|tx| entities::project(tx, source.name, path))?;
                if let Some(stored) = stored {
                    ctx.write(|tx| {
                        cursors::record_stream_failure(tx, stored.id, "project", &error, ctx.now())
                    })?;
                }
            }
            return Err(error);
        }
    };
    let ProjectRow { project, issues_off, merge_requests_off } = row;
    let local = ctx.write(|tx| {
        let id = entities::upsert_project(tx, source.name, &project, ctx.now())?;
        cursors::clear_stream_failure(tx, id, "project")?;
        Ok(id)
    })?;
    let remote = project.gitlab_id.map(|id| id.to_string()).unwrap_or_default();
    let ids = ProjectIds { local, remote, path: project.path };

    labels(source, &ids, report)?;
    milestones(source, &ids, issues_off && merge_requests_off, report)?;
    let (mut n_on, mut failures) = (0, Vec::new());
    for (item_type, is_off) in [(ItemType::Issue, issues_off), (ItemType::MergeRequest, merge_requests_off)] {
        ctx.check()?;
        if is_off {
            report.add("streams_off", 1);
            ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, stream_name(item_type)))?;
            continue;
        }
        n_on += 1;
        match items::read(source, &ids, item_type, report) {
            Ok(()) => ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, stream_name(item_type)))?,
            Err(error) => {
                let error = error.context(format!("{} {}", ids.path, stream_name(item_type)));
                fail_stream(source, &ids, stream_name(item_type), &error, report)?;
                failures.push(error);
            }
        }
    }
    match failures.pop() {
        Some(error) if failures.len() + 1 == n_on => Err(error),
        Some(_) | None => Ok(()),
    }
}

/// Records that a stream cannot be read; returns the error when it ends the step.
fn fail_stream(
    source: &Source<'_>,
    ids: &ProjectIds,
    stream: &str,
    error: &Error,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = source.ctx;
    if !is_isolated(error.kind()) {
        let mut out = Error::new(error.kind(), error.full_message());
        if let Some(wait_ms) = error.retry_after() {
            out = out.retry_after_ms(wait_ms);
        }
        return Err(error.hints().iter().fold(out, |out, hint| out.hint(hint.clone())));
    }
    tracing::warn!(source = source.name, project = %ids.path, stream, error = %error, "stream cannot be read");
    report.failing += 1;
    report.warn(error.full_message());
    ctx.write(|tx| cursors::record_stream_failure(tx, ids.local, stream, error, ctx.now()))
}

/// Finds a project: by the id it had last time, which survives renames, else by its path.
fn look_up(source: &Source<'_>, path: &str) -> Result<ProjectRow> {
    let known =
        source.ctx.read(|tx| entities::project(tx, source.name, path))?.and_then(|stored| stored.gitlab_id);
    if let Some(id) = known {
        match get_project(source, &id.to_string())? {
            Err(error) if error.is_missing() => {}
            found => return Ok(found?),
        }
    }
    Ok(get_project(source, path)??)
}

fn get_project(source: &Source<'_>, id_or_path: &str) -> Result<Result<ProjectRow, RequestError>> {
    let url = source.client.address().url(&["projects", id_or_path], &[]);
    let raw = match source.ctx.block_on(async { Ok(source.client.object(&url).await) })? {
        Ok(raw) => raw,
        Err(error) => return Ok(Err(error)),
    };
    Ok(wire::project(&raw).map_err(|bad| {
        Error::new(ErrorKind::Network, format!("the server's answer is not a project: {}", bad.reason)).into()
    }))
}

fn labels(source: &Source<'_>, ids: &ProjectIds, report: &mut StepReport) -> Result<()> {
    let Some(rows) = small_list(source, ids, "labels", false, report)? else { return Ok(()) };
    let labels = good_rows(ids, "label", rows.iter().map(|raw| wire::label(raw)), report);
    let changed = source.ctx.write(|tx| {
        cursors::clear_stream_failure(tx, ids.local, "labels")?;
        entities::upsert_labels(tx, ids.local, &labels)
    })?;
    report.add("labels_changed", count(changed));
    Ok(())
}

fn milestones(source: &Source<'_>, ids: &ProjectIds, is_off: bool, report: &mut StepReport) -> Result<()> {
    let Some(rows) = small_list(source, ids, "milestones", is_off, report)? else { return Ok(()) };
    let milestones = good_rows(ids, "milestone", rows.iter().map(|raw| wire::milestone(raw)), report);
    let changed = source.ctx.write(|tx| {
        cursors::clear_stream_failure(tx, ids.local, "milestones")?;
        entities::upsert_milestones(tx, ids.local, &milestones)
    })?;
    report.add("milestones_changed", count(changed));
    Ok(())
}

/// Reads a list that is small enough to be read whole each run. Nothing when it is switched
/// off, refused to us (403: an older server refuses milestones when issues are off), or
/// failing, which is recorded.
fn small_list(
    source: &Source<'_>,
    ids: &ProjectIds,
    stream: &str,
    is_off: bool,
    report: &mut StepReport,
) -> Result<Option<Vec<Box<serde_json::value::RawValue>>>> {
    source.ctx.check()?;
    if is_off {
        report.add("streams_off", 1);
        return Ok(None);
    }
    let url = source.client.list_url(&["projects", &ids.remote, stream], &[]);
    match source.ctx.block_on(async { Ok(source.client.list(&url).await) })? {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if error.is_forbidden() => {
            report.add("streams_off", 1);
            source.ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, stream))?;
            Ok(None)
        }
        Err(error) => {
            let error = error.error.context(format!("{} {stream}", ids.path));
            fail_stream(source, ids, stream, &error, report)?;
            Ok(None)
        }
    }
}

fn good_rows<T>(
    ids: &ProjectIds,
    what: &str,
    rows: impl Iterator<Item = Result<T, BadRow>>,
    report: &mut StepReport,
) -> Vec<T> {
    rows.filter_map(|row| row.map_err(|bad| bad_row(&ids.path, what, &bad, report)).ok()).collect()
}

/// Counts and shows a row that cannot be read.
pub(in crate::steps) fn bad_row(path: &str, what: &str, bad: &BadRow, report: &mut StepReport) {
    let number = bad.iid.map(|iid| format!(" {iid}")).unwrap_or_default();
    report.add("bad_rows", 1);
    report.failing += 1;
    report.warn(format!("{path}: {what}{number} cannot be read: {}", bad.reason));
}

const fn stream_name(item_type: ItemType) -> &'static str {
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
