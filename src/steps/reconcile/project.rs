//! One project: whether it is there, which of its items are, and whether the others are gone.

use std::collections::BTreeSet;

use super::access::Token;
use super::judge::{Withheld, judge};
use super::{Run, removal};
use crate::content::ItemType;
use crate::content::paths::is_project_meant;
use crate::engine::step::StepReport;
use crate::error::Result;
use crate::gitlab::wire::ProjectRow;
use crate::steps::ingest::gitlab::{ProjectIds, Source, get_project, is_isolated, items, stream_name};
use crate::store::entities::{self, StoredProject};
use crate::store::groups::{self, ProjectState};
use crate::store::{cursors, tombstones};

/// Items that are named in one warning.
const NAMED: usize = 5;

/// Looks at every project of a source.
pub(super) fn reconcile_all(
    run: &Run<'_>,
    source: &Source<'_>,
    token: Token,
    stored: &[StoredProject],
    report: &mut StepReport,
) -> Result<()> {
    let ctx = run.ctx;
    let wanted = wanted(source)?;
    let mut is_proven = token.is_proven;
    let mut missing = Vec::new();
    let mut n_asked = 0;
    for (done, project) in (0_u64..).zip(stored) {
        ctx.check()?;
        ctx.progress.set("projects", done, Some(stored.len() as u64));
        let Some(gitlab_id) = project.gitlab_id else { continue };
        if ctx.read(|tx| groups::state(tx, project.id))? == Some(ProjectState::Deleted) {
            continue;
        }
        n_asked += 1;
        match get_project(source, &gitlab_id.to_string())? {
            Ok(row) => {
                is_proven = true;
                let is_wanted = wanted.contains(&project.id)
                    && (!row.project.archived || source.config.include_archived || is_named(source, &row));
                one(run, source, token, project, &row, is_wanted, report)?;
            }
            Err(error) if error.is_missing() => missing.push(project),
            Err(error) if is_isolated(error.error.kind()) => fail(&project.path, &error.error, report),
            Err(error) => return Err(error.error.context(&project.path)),
        }
    }
    if missing.is_empty() || token.is_lessened {
        return Ok(());
    }
    let all_missing = missing.len() == n_asked && n_asked > 1 && !run.allow_mass_delete;
    if !is_proven || all_missing {
        report.failing += 1;
        report.add("projects_withheld", i64::try_from(missing.len()).unwrap_or(i64::MAX));
        report.warn(format!(
            "source {}: none of its projects can be seen; the token may have lost access. Nothing was deleted",
            source.name
        ));
        return Ok(());
    }
    for project in missing {
        removal::of_project(run, project, report)?;
    }
    Ok(())
}

/// Local ids of the projects that the configuration asks for now. The others are looked after,
/// but nothing new is read of them.
fn wanted(source: &Source<'_>) -> Result<BTreeSet<i64>> {
    let config = source.config;
    let meant =
        |patterns: &[String], path: &str| patterns.iter().any(|pattern| is_project_meant(pattern, path));
    source.ctx.read(|tx| {
        let mut wanted = BTreeSet::new();
        for path in &config.projects {
            wanted.extend(entities::project(tx, source.name, path)?.map(|stored| stored.id));
            wanted.extend(groups::alias(tx, source.name, path)?.map(|stored| stored.id));
        }
        for group in &config.groups {
            wanted.extend(
                groups::members(tx, source.name, group)?
                    .into_iter()
                    .filter(|stored| config.include.is_empty() || meant(&config.include, &stored.path))
                    .filter(|stored| !meant(&config.exclude, &stored.path))
                    .map(|stored| stored.id),
            );
        }
        Ok(wanted)
    })
}

/// Whether the configuration names a project itself.
fn is_named(source: &Source<'_>, row: &ProjectRow) -> bool {
    source.config.projects.contains(&row.project.path)
}

fn fail(what: &str, error: &crate::error::Error, report: &mut StepReport) {
    let text = format!("{what}: {}", error.full_message());
    tracing::warn!(subject = what, error = %text, "project or item cannot be reconciled");
    report.failing += 1;
    report.warn(text);
}

/// Looks at a project that is there.
fn one(
    run: &Run<'_>,
    source: &Source<'_>,
    token: Token,
    project: &StoredProject,
    row: &ProjectRow,
    is_wanted: bool,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = run.ctx;
    if row.is_marked_for_deletion {
        return ctx.write(|tx| groups::set_state(tx, project.id, ProjectState::MarkedForDeletion, ctx.now()));
    }
    let local = ctx.write(|tx| {
        groups::clear_state(tx, project.id)?;
        entities::upsert_project(tx, source.name, &row.project, ctx.now())
    })?;
    let ids = ProjectIds {
        local,
        remote: row.project.gitlab_id.map(|id| id.to_string()).unwrap_or_default(),
        path: row.project.path.clone(),
    };
    let is_lessened = is_level_lessened(run, &ids, row.access_level, report)?;
    if !is_wanted {
        return Ok(());
    }
    report.add("projects", 1);
    let (mut gone, mut n_stored) = (Vec::new(), 0);
    for (item_type, is_off) in
        [(ItemType::Issue, row.issues_off), (ItemType::MergeRequest, row.merge_requests_off)]
    {
        ctx.check()?;
        if is_off {
            // Switched off is hidden, not deleted.
            report.add("streams_off", 1);
            n_stored += ctx.read(|tx| tombstones::known(tx, local, item_type))?.len();
            continue;
        }
        let seen = match items::sweep(source, &ids, item_type, report) {
            Ok(seen) => seen,
            Err(error) if is_isolated(error.kind()) => {
                fail(&format!("{} {}", ids.path, stream_name(item_type)), &error, report);
                n_stored += ctx.read(|tx| tombstones::known(tx, local, item_type))?.len();
                continue;
            }
            Err(error) => return Err(error.context(&ids.path)),
        };
        report.add("items_listed", i64::try_from(seen.len()).unwrap_or(i64::MAX));
        let known = ctx.write(|tx| {
            tombstones::forgive(tx, local, item_type, &seen)?;
            tombstones::known(tx, local, item_type)
        })?;
        n_stored += known.len();
        if token.is_lessened || is_lessened {
            continue;
        }
        let verdict = judge(&known, &seen, row.access_level, run.allow_mass_delete);
        note_withheld(&ids, item_type, &verdict.withheld, report);
        let absent = confirm(source, &ids, item_type, &verdict.suspects, report)?;
        gone.extend(absent.into_iter().map(|iid| (item_type, iid)));
    }
    if gone.is_empty() || !still_there(source, &ids, row, report)? {
        return Ok(());
    }
    removal::of_items(run, &ids.path, local, &gone, n_stored, report)
}

/// Compares the access level in a project with the highest seen; it becomes the measure when
/// it is higher, or when that is accepted.
fn is_level_lessened(
    run: &Run<'_>,
    ids: &ProjectIds,
    level: Option<i64>,
    report: &mut StepReport,
) -> Result<bool> {
    let Some(level) = level else { return Ok(false) };
    let before = run.ctx.read(|tx| tombstones::project_access(tx, ids.local))?;
    match before {
        Some(before) if level < before && !run.accept_access => {
            report.failing += 1;
            report.warn(format!(
                "{}: the token has access level {level} there, and had {before}; nothing that is missing is taken as deleted. If that is intended, run once with --set reconcile.accept_access=true",
                ids.path
            ));
            Ok(true)
        }
        Some(_) | None => {
            run.ctx.write(|tx| tombstones::set_project_access(tx, ids.local, level))?;
            Ok(false)
        }
    }
}

fn note_withheld(
    ids: &ProjectIds,
    item_type: ItemType,
    withheld: &[(i64, Withheld)],
    report: &mut StepReport,
) {
    let Some((_, why)) = withheld.first() else { return };
    let names: Vec<String> =
        withheld.iter().take(NAMED).map(|(iid, _)| format!("{}{iid}", item_type.sigil())).collect();
    let more = withheld.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let why = match why {
        Withheld::AllOfKind => format!("all {} are missing at once", stream_name(item_type)),
        Withheld::Confidential => "confidential items are missing together".to_owned(),
    };
    report.failing += 1;
    report.add("items_withheld", i64::try_from(withheld.len()).unwrap_or(i64::MAX));
    report.warn(format!(
        "{}: {why} ({}{more}); the token may have lost access. Nothing of it was deleted; --allow-mass-delete deletes it all the same",
        ids.path,
        names.join(", ")
    ));
}

/// Asks for each item that is not listed. Returns those that the server does not know; one
/// that is there after all is stored, and any other answer decides nothing.
fn confirm(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    suspects: &[i64],
    report: &mut StepReport,
) -> Result<Vec<i64>> {
    let (ctx, mut absent) = (source.ctx, Vec::new());
    for iid in suspects {
        ctx.check()?;
        let number = iid.to_string();
        let url =
            source.client.address().url(&["projects", &ids.remote, stream_name(item_type), &number], &[]);
        match ctx.block_on(async { Ok(source.client.object(&url).await) })? {
            Ok(raw) => {
                items::store_one(source, ids, item_type, raw, report)?;
                let seen = BTreeSet::from([*iid]);
                ctx.write(|tx| tombstones::forgive(tx, ids.local, item_type, &seen))?;
            }
            Err(error) if error.is_missing() => absent.push(*iid),
            Err(error) if is_isolated(error.error.kind()) => {
                report.add("items_unconfirmed", 1);
                fail(&format!("{}{}{iid}", ids.path, item_type.sigil()), &error.error, report);
            }
            Err(error) => return Err(error.error.context(&ids.path)),
        }
    }
    Ok(absent)
}

/// Whether the project can be seen as before, now that items were not found in it: otherwise
/// access was lost meanwhile.
fn still_there(
    source: &Source<'_>,
    ids: &ProjectIds,
    before: &ProjectRow,
    report: &mut StepReport,
) -> Result<bool> {
    match get_project(source, &ids.remote)? {
        Ok(row) => Ok(row.access_level >= before.access_level),
        Err(error) if is_isolated(error.error.kind()) => {
            fail(&ids.path, &error.error, report);
            source.ctx.write(|tx| {
                cursors::record_stream_failure(tx, ids.local, "project", &error.error, source.ctx.now())
            })?;
            Ok(false)
        }
        Err(error) => Err(error.error.context(&ids.path)),
    }
}
