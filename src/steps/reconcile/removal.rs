//! Strikes, the fuse, and the deletion of what is gone.

use super::Run;
use super::judge::fuse_blows;
use crate::content::ItemType;
use crate::engine::step::StepReport;
use crate::error::Result;
use crate::store::entities::StoredProject;
use crate::store::groups::{self, ProjectState};
use crate::store::tombstones::{self, STRIKES};

/// Items deleted in one transaction: each takes its documents and vectors along.
const BATCH: usize = 50;

/// Items of a project that are gone, and how many are stored.
type Gone = [(ItemType, i64)];

/// Gives each item that was not found a strike, and deletes those that have two.
pub(super) fn of_items(
    run: &Run<'_>,
    path: &str,
    project_id: i64,
    gone: &Gone,
    n_stored: usize,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = run.ctx;
    report.add("items_missing", count(gone.len()));
    let due = ctx.write(|tx| {
        let mut due = Vec::new();
        for item_type in ItemType::ALL {
            let iids: Vec<i64> =
                gone.iter().filter(|(other, _)| *other == item_type).map(|(_, iid)| *iid).collect();
            tombstones::strike(tx, project_id, item_type, &iids, &run.proof, ctx.now())?;
            let struck = tombstones::struck(tx, project_id, item_type, STRIKES)?;
            due.extend(struck.into_iter().filter(|iid| iids.contains(iid)).map(|iid| (item_type, iid)));
        }
        Ok(due)
    })?;
    if blows(run, path, gone.len(), n_stored, report) {
        return Ok(());
    }
    bury(run, path, project_id, &due, "not found in two runs", report)
}

/// Deletes the items that two newer exports lack.
pub(super) fn of_export(run: &Run<'_>, project: &StoredProject, report: &mut StepReport) -> Result<()> {
    let (due, n_missing, n_stored) = run.ctx.read(|tx| {
        let (mut due, mut n_missing, mut n_stored) = (Vec::new(), 0, 0);
        for item_type in ItemType::ALL {
            let struck = tombstones::struck(tx, project.id, item_type, STRIKES)?;
            due.extend(struck.into_iter().map(|iid| (item_type, iid)));
            n_missing += tombstones::struck(tx, project.id, item_type, 1)?.len();
            n_stored += tombstones::known(tx, project.id, item_type)?.len();
        }
        Ok((due, n_missing, n_stored))
    })?;
    report.add("items_missing", count(n_missing));
    if due.is_empty() || blows(run, &project.path, n_missing, n_stored, report) {
        return Ok(());
    }
    bury(run, &project.path, project.id, &due, "not in two exports", report)
}

/// Gives a project that was not found a strike; with two, its items are deleted. Its row
/// remains.
pub(super) fn of_project(run: &Run<'_>, project: &StoredProject, report: &mut StepReport) -> Result<()> {
    let ctx = run.ctx;
    report.add("projects_missing", 1);
    let (strikes, items) = ctx.write(|tx| {
        let strikes = groups::strike_project(tx, project.id, &run.proof, ctx.now())?;
        let mut items = Vec::new();
        for item_type in ItemType::ALL {
            let known = tombstones::known(tx, project.id, item_type)?;
            items.extend(known.into_iter().map(|known| (item_type, known.iid)));
        }
        Ok((strikes, items))
    })?;
    if strikes < STRIKES {
        report.warn(format!(
            "{}: the server does not know it any more; its {} items are deleted when the next run says so too",
            project.path,
            items.len()
        ));
        return Ok(());
    }
    if blows(run, &project.path, items.len(), items.len(), report) {
        return Ok(());
    }
    bury(run, &project.path, project.id, &items, "its project was not found in two runs", report)?;
    report.add("projects_deleted", 1);
    ctx.write(|tx| {
        tombstones::clear_project(tx, project.id)?;
        groups::set_state(tx, project.id, ProjectState::Deleted, ctx.now())
    })
}

/// Whether the fuse keeps so many items from being deleted; it is shown.
fn blows(run: &Run<'_>, path: &str, n_missing: usize, n_stored: usize, report: &mut StepReport) -> bool {
    let blows = fuse_blows(n_missing, n_stored, run.allow_mass_delete);
    if blows {
        report.failing += 1;
        report.add("fuses_blown", 1);
        report.warn(format!(
            "{path}: {n_missing} of {n_stored} items are gone at once, too many to believe it: nothing was deleted. If they are gone for good, run with --allow-mass-delete"
        ));
    }
    blows
}

fn bury(
    run: &Run<'_>,
    path: &str,
    project_id: i64,
    items: &Gone,
    reason: &str,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = run.ctx;
    for batch in items.chunks(BATCH) {
        ctx.check()?;
        let n = ctx.write(|tx| {
            let mut n = 0;
            for (item_type, iid) in batch {
                n += i64::from(tombstones::bury(tx, project_id, *item_type, *iid, reason, ctx.now())?);
            }
            Ok(n)
        })?;
        report.add("items_deleted", n);
        for (item_type, iid) in batch {
            tracing::info!(
                item = format!("{path}{}{iid}", item_type.sigil()),
                reason,
                "deleted: gone upstream"
            );
        }
    }
    Ok(())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
