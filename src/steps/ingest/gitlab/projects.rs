//! One project: finding it, and reading its streams.

use std::collections::BTreeSet;

use super::ahead;
use super::streams::{self, Streams};
use super::{ProjectIds, Source, is_isolated, items, stream_name};
use crate::content::ItemType;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::wire::{self, ProjectRow};
use crate::gitlab::{Client, RequestError};
use crate::store::groups::{self, ProjectState};
use crate::store::{cursors, entities};

/// A project as the server tells of it.
pub(in crate::steps) type ReadProject = Result<ProjectRow, RequestError>;

/// Reads a project that the configuration names. Returns whether it was read; a project that
/// is about to be deleted is not.
pub(super) fn configured(
    source: &Source<'_>,
    path: &str,
    seen: &mut BTreeSet<i64>,
    report: &mut StepReport,
) -> Result<bool> {
    let ctx = source.ctx;
    let stored = ctx.read(|tx| entities::project(tx, source.name, path))?;
    if let Some(stored) = &stored {
        seen.extend(stored.gitlab_id);
        streams::ensure_due(source, stored.id, path, report)?;
    }
    match look_up(source, path, stored.and_then(|stored| stored.gitlab_id)) {
        Ok(row) => {
            seen.extend(row.project.gitlab_id);
            let Some(ids) = adopt(source, &row, report)? else { return Ok(false) };
            if ids.path != path {
                // A server before 16.7 knows the old path no more: the id is found by it.
                ctx.write(|tx| groups::set_alias(tx, source.name, path, ids.local))?;
                report.warn(format!("{path} is {} now: put that into the configuration", ids.path));
            }
            streams(source, &ids, &row, report)?;
            Ok(true)
        }
        Err(error) => {
            let error = error.context(path);
            if is_isolated(error.kind()) {
                report.failing += 1;
                let stored = ctx.read(|tx| {
                    Ok(match entities::project(tx, source.name, path)? {
                        Some(stored) => Some(stored),
                        None => groups::alias(tx, source.name, path)?,
                    })
                })?;
                if let Some(stored) = stored {
                    seen.extend(stored.gitlab_id);
                    ctx.write(|tx| {
                        cursors::record_stream_failure(tx, stored.id, "project", &error, ctx.now())
                    })?;
                }
            }
            Err(error)
        }
    }
}

/// Reads a project by its id, when the list that should tell of it cannot be had.
pub(super) fn by_id(
    source: &Source<'_>,
    local: i64,
    remote: i64,
    path: &str,
    report: &mut StepReport,
) -> Result<bool> {
    streams::ensure_due(source, local, path, report)?;
    match get_project(source, &remote.to_string())? {
        Ok(row) => {
            let Some(ids) = adopt(source, &row, report)? else { return Ok(false) };
            streams(source, &ids, &row, report)?;
            Ok(true)
        }
        Err(error) => {
            let error = error.error.context(path);
            if is_isolated(error.kind()) {
                report.failing += 1;
                source.ctx.write(|tx| {
                    cursors::record_stream_failure(tx, local, "project", &error, source.ctx.now())
                })?;
            }
            Err(error)
        }
    }
}

/// Stores what the server says of a project. Nothing when it is about to be deleted: it is
/// left as it is stored, under the path it had.
fn adopt(source: &Source<'_>, row: &ProjectRow, report: &mut StepReport) -> Result<Option<ProjectIds>> {
    let ctx = source.ctx;
    let (project, now) = (&row.project, ctx.now());
    if row.is_marked_for_deletion {
        note_marked(source, row, report)?;
        return Ok(None);
    }
    let local = ctx.write(|tx| {
        let id = entities::upsert_project(tx, source.name, project, now)?;
        cursors::clear_stream_failure(tx, id, "project")?;
        groups::clear_state(tx, id)?;
        Ok(id)
    })?;
    Ok(Some(ids(local, row)))
}

/// Shows that a project is about to be deleted.
pub(super) fn note_marked(source: &Source<'_>, row: &ProjectRow, report: &mut StepReport) -> Result<()> {
    let ctx = source.ctx;
    report.add("projects_marked_for_deletion", 1);
    let Some(gitlab_id) = row.project.gitlab_id else { return Ok(()) };
    let stored = ctx.read(|tx| entities::project_by_gitlab_id(tx, source.name, gitlab_id))?;
    let path = stored.as_ref().map_or(row.project.path.as_str(), |stored| stored.path.as_str());
    report.warn(format!(
        "{path} is marked for deletion at the server: it is not read, and what is stored is kept"
    ));
    if let Some(stored) = stored {
        ctx.write(|tx| {
            cursors::clear_stream_failure(tx, stored.id, "project")?;
            groups::set_state(tx, stored.id, ProjectState::MarkedForDeletion, ctx.now())
        })?;
    }
    Ok(())
}

/// The ids of a project that is stored.
pub(super) fn ids(local: i64, row: &ProjectRow) -> ProjectIds {
    let remote = row.project.gitlab_id.map(|id| id.to_string()).unwrap_or_default();
    ProjectIds { local, remote, path: row.project.path.clone() }
}

/// Reads the streams of a project. Fails when both of its item streams cannot be read.
pub(super) fn streams(
    source: &Source<'_>,
    ids: &ProjectIds,
    row: &ProjectRow,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = source.ctx;
    let (issues_off, merge_requests_off) = (row.issues_off, row.merge_requests_off);
    let streams = Streams::of(source, ids)?;
    streams.labels(report)?;
    streams.milestones(issues_off && merge_requests_off, report)?;
    let (mut n_on, mut failures) = (0, Vec::new());
    for (item_type, is_off) in [(ItemType::Issue, issues_off), (ItemType::MergeRequest, merge_requests_off)] {
        ctx.check()?;
        if is_off {
            report.add("streams_off", 1);
            ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, stream_name(item_type)))?;
            continue;
        }
        n_on += 1;
        let name = stream_name(item_type);
        if let Some(error) = streams.waits(name, report) {
            failures.push(error);
            continue;
        }
        match items::read(source, ids, item_type, report) {
            Ok(n_rows) => {
                ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, name))?;
                if n_rows == 0 && item_type == ItemType::Issue && row.open_issues.is_some_and(|n| n > 0) {
                    report.warn(format!(
                        "{}: the server counts {} open issues and lists none; the token may lack access",
                        ids.path,
                        row.open_issues.unwrap_or_default()
                    ));
                }
            }
            Err(error) => {
                let error = error.context(format!("{} {name}", ids.path));
                streams.fail(name, &error, report)?;
                failures.push(error);
            }
        }
    }
    match failures.pop() {
        Some(error) if failures.len() + 1 == n_on => Err(error),
        Some(_) | None => Ok(()),
    }
}

/// Finds a project: by the id it had last time, which survives renames, else by its path,
/// else by the id that the path stood for before it was renamed.
fn look_up(source: &Source<'_>, path: &str, known: Option<i64>) -> Result<ProjectRow> {
    if let Some(id) = known {
        match get_project(source, &id.to_string())? {
            Err(error) if error.is_missing() => {}
            found => return Ok(found?),
        }
    }
    match get_project(source, path)? {
        Err(error) if error.is_missing() => {
            let alias = source.ctx.read(|tx| groups::alias(tx, source.name, path))?;
            match alias.and_then(|stored| stored.gitlab_id) {
                Some(id) if known != Some(id) => Ok(get_project(source, &id.to_string())??),
                Some(_) | None => Err(error.into()),
            }
        }
        found => Ok(found?),
    }
}

/// Asks for a project by its id or path.
pub(in crate::steps) fn get_project(source: &Source<'_>, id_or_path: &str) -> Result<ReadProject> {
    let asked = ahead::row(source, id_or_path);
    let now = read_project(&source.client, id_or_path);
    let read = source.ctx.block_on(async { Ok(ahead::or_else(asked, now).await) })?;
    if read.is_ok() {
        ahead::open(source)?;
    }
    Ok(read)
}

/// Sends the request for a project.
pub(super) async fn read_project(client: &Client, id_or_path: &str) -> ReadProject {
    let raw = client.object(&client.address().url(&["projects", id_or_path], &[])).await?;
    wire::project(&raw).map_err(|bad| {
        Error::new(ErrorKind::Network, format!("the server's answer is not a project: {}", bad.reason)).into()
    })
}
