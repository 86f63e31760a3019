//! Groups as sources: their projects are listed anew in each run.
//!
//! Only a whole list says anything about what is not in it, and what it says is shown, not
//! acted upon: a project that a group lists no more stays stored. When the list cannot be had,
//! the projects that it held last time are read by their ids.

use std::collections::{BTreeMap, BTreeSet};

use super::ahead::{self, Ask, Wanted};
use super::streams::{note_waiting, waiting_error};
use super::{Source, Tally, bad_row, count, is_isolated, projects};
use crate::content::paths::is_project_meant;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::RequestError;
use crate::gitlab::wire::{self, ProjectRow};
use crate::store::{cursors, entities, groups};

/// Projects that are named in one warning.
const NAMED: usize = 5;

/// Reads the projects of a group.
pub(super) fn ingest(
    source: &Source<'_>,
    group: &str,
    tally: &mut Tally,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = source.ctx;
    let what = format!("group {group}");
    let waiting = ctx.read(|tx| groups::waiting(tx, source.name, group, ctx.now()))?;
    if let Some(failure) = waiting.filter(|_| !source.tries_all()) {
        let error = waiting_error(
            &what,
            &failure.error_kind,
            &failure.error,
            failure.attempt_count,
            failure.next_attempt_at,
        );
        note_waiting(&error, report);
        tally.take(source, &what, Err(error), report)?;
        return read_stored(source, group, tally, report);
    }
    let rows = match list(source, group, report) {
        Ok(rows) => rows,
        Err(error) => {
            let error = error.error.context(&what);
            if is_isolated(error.kind()) {
                report.failing += 1;
                ctx.write(|tx| groups::record_failure(tx, source.name, group, &error, ctx.now()))?;
            }
            tally.take(source, &what, Err(error), report)?;
            return read_stored(source, group, tally, report);
        }
    };
    let chosen = adopt(source, group, rows, report)?;
    let unread =
        chosen.iter().filter(|(row, _)| row.project.gitlab_id.is_none_or(|id| !tally.seen.contains(&id)));
    let wanted = unread.map(|(row, local)| Wanted {
        path: row.project.path.clone(),
        local: Some(*local),
        ask: Ask::Streams(Box::new(row.clone())),
    });
    ahead::expect(source, wanted.collect());
    for (row, local) in &chosen {
        ctx.check()?;
        if row.project.gitlab_id.is_none_or(|id| tally.seen.insert(id)) {
            ahead::begin(source, &row.project.path)?;
            let ids = projects::ids(*local, row);
            let done = projects::streams(source, &ids, row, report).map(|()| true);
            tally.take(source, &row.project.path, done, report)?;
        }
    }
    Ok(())
}

/// Reads the projects that a group held when it was last listed.
fn read_stored(source: &Source<'_>, group: &str, tally: &mut Tally, report: &mut StepReport) -> Result<()> {
    let members = source.ctx.read(|tx| groups::members(tx, source.name, group))?;
    let unread = members.iter().filter(|stored| is_chosen(source, &stored.path));
    let wanted = unread.filter_map(|stored| {
        let id = stored.gitlab_id.filter(|id| !tally.seen.contains(id))?;
        Some(Wanted { path: stored.path.clone(), local: Some(stored.id), ask: Ask::Project(id.to_string()) })
    });
    ahead::expect(source, wanted.collect());
    for stored in members {
        source.ctx.check()?;
        let Some(gitlab_id) = stored.gitlab_id else { continue };
        if is_chosen(source, &stored.path) && tally.seen.insert(gitlab_id) {
            ahead::begin(source, &stored.path)?;
            let done = projects::by_id(source, stored.id, gitlab_id, &stored.path, report);
            tally.take(source, &stored.path, done, report)?;
        }
    }
    Ok(())
}

/// Lists the projects of a group, each once.
fn list(
    source: &Source<'_>,
    group: &str,
    report: &mut StepReport,
) -> Result<BTreeMap<i64, ProjectRow>, RequestError> {
    // Projects that others share with the group are not the group's.
    let mut query = vec![("order_by", "id"), ("sort", "asc"), ("with_shared", "false")];
    if source.config.include_subgroups {
        query.push(("include_subgroups", "true"));
    }
    let mut next = Some(source.client.list_url(&["groups", group, "projects"], &query));
    let (mut rows, mut pages) = (BTreeMap::new(), BTreeSet::new());
    while let Some(url) = next {
        source.ctx.check()?;
        if !pages.insert(url.to_string()) {
            return Err(Error::new(
                ErrorKind::Network,
                "the list of projects leads back to a page that was read",
            )
            .into());
        }
        let page = source.ctx.block_on(async { Ok(source.client.page(&url).await) })??;
        for raw in &page.rows {
            match wire::project(raw) {
                Ok(row) => {
                    rows.insert(row.project.gitlab_id.unwrap_or_default(), row);
                }
                Err(bad) => bad_row(group, "project", &bad, report),
            }
        }
        next = page.next;
    }
    Ok(rows)
}

/// Stores what a whole list of a group says; returns the projects to read, with their ids here.
fn adopt(
    source: &Source<'_>,
    group: &str,
    rows: BTreeMap<i64, ProjectRow>,
    report: &mut StepReport,
) -> Result<Vec<(ProjectRow, i64)>> {
    let ctx = source.ctx;
    let n_listed = rows.len();
    let (mut chosen, mut present, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows.into_values() {
        let stored = match row.project.gitlab_id {
            Some(id) => ctx.read(|tx| entities::project_by_gitlab_id(tx, source.name, id))?,
            None => None,
        };
        if row.is_marked_for_deletion {
            // Its path has changed with the mark: what was chosen is told by the stored one.
            if let Some(stored) = stored {
                projects::note_marked(source, &row, report)?;
                present.push(stored.id);
            }
            continue;
        }
        if !is_chosen(source, &row.project.path) {
            left_out.extend(stored.map(|stored| stored.id));
            continue;
        }
        if row.project.archived && !source.config.include_archived {
            report.add("projects_archived", 1);
            present.extend(stored.map(|stored| stored.id));
            continue;
        }
        chosen.push(row);
    }
    let (stored, vanished) = ctx.write(|tx| {
        let mut stored = Vec::new();
        for row in chosen {
            let id = entities::upsert_project(tx, source.name, &row.project, ctx.now())?;
            cursors::clear_stream_failure(tx, id, "project")?;
            groups::clear_state(tx, id)?;
            present.push(id);
            stored.push((row, id));
        }
        groups::clear_failure(tx, source.name, group)?;
        groups::forget_members(tx, source.name, group, &left_out)?;
        Ok((stored, groups::note_members(tx, source.name, group, &present, ctx.now())?))
    })?;
    if n_listed == 0 {
        report.warn(format!("group {group} lists no project; the token may lack access to it"));
    } else if stored.is_empty() {
        report.warn(format!("group {group}: none of its {n_listed} projects is chosen by include, exclude and include_archived"));
    }
    report.add("projects_vanished", count(vanished.len()));
    if !vanished.is_empty() {
        let mut names: Vec<String> = vanished.iter().take(NAMED).cloned().collect();
        if vanished.len() > NAMED {
            names.push(format!("and {} more", vanished.len() - NAMED));
        }
        report.warn(format!(
            "group {group} no longer lists {}: moved, deleted or hidden from the token; not read any more, and what is stored is kept",
            names.join(", ")
        ));
    }
    Ok(stored)
}

/// Whether a project of a group is chosen.
fn is_chosen(source: &Source<'_>, path: &str) -> bool {
    let config = source.config;
    let meant = |patterns: &[String]| patterns.iter().any(|pattern| is_project_meant(pattern, path));
    (config.include.is_empty() || meant(&config.include)) && !meant(&config.exclude)
}
