//! `lore backup`, `lore restore`: copies of the whole database, checked both ways.

use std::path::PathBuf;

use super::App;
use super::run::progress_mode;
use crate::clock;
use crate::engine::cancel::Cancel;
use crate::engine::lease::{self, IfLocked, Outcome};
use crate::engine::progress::Progress;
use crate::engine::signals;
use crate::error::{Error, ErrorKind, Result};
use crate::store::backup::{self, Copied, Existing};
use crate::store::runs::{self, NewRun, RunState};
use crate::store::{Fence, Store, lock};

/// Copy the database to a file, while runs and queries go on.
///
/// The copy is one state of the database, however long it takes; it appears under its name only
/// when it is whole and checked. It needs nothing beside it and can be queried in place.
#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    /// File to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace FILE when it exists
    #[arg(long)]
    force: bool,
}

/// Bring a backup back.
///
/// Where a database is, it is replaced only with --force, in one transaction under the app
/// lock: queries see the old state until then, and a restore that is killed has changed
/// nothing. A database that cannot be opened is moved aside and kept.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// File that `lore backup` made
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace the database when there is one
    #[arg(long)]
    force: bool,
}

/// Runs `lore backup`.
///
/// # Errors
/// Those of [`backup::copy`].
pub fn backup(args: &BackupArgs, app: &mut App) -> Result<()> {
    let cancel = Cancel::new();
    signals::install(&cancel)?;
    let target = app.world.current_dir.join(&args.file);
    let existing = if args.force { Existing::Replace } else { Existing::Keep };
    let progress = Progress::new("backup", progress_mode(app));
    let mut told = |done, total| progress.set("pages", done, Some(total));
    let copied =
        backup::copy(&app.database_path()?, &target, existing, app.open_options()?, &cancel, &mut told)?;
    progress.finish();
    reply("Backed up to", &copied, None, app)
}

/// Runs `lore restore`.
///
/// # Errors
/// Those of [`backup::verify`] and [`backup::restore_into`], [`ErrorKind::Usage`] when there
/// is a database and no --force, [`ErrorKind::Locked`] while a run is at work.
pub fn restore(args: &RestoreArgs, app: &mut App) -> Result<()> {
    let cancel = Cancel::new();
    signals::install(&cancel)?;
    let options = app.open_options()?;
    let (file, target) = (app.world.current_dir.join(&args.file), app.database_path()?);
    // First of all: a bad backup must not cost what is there.
    backup::verify(&file, options)?;
    let progress = Progress::new("restore", progress_mode(app));
    let mut told = |done, total| progress.set("pages", done, Some(total));
    let is_there = target.metadata().is_ok_and(|metadata| metadata.len() > 0);
    if is_there && !args.force {
        return Err(Error::usage(format!("{} is a database already", target.display()))
            .hint("replace its content with --force; `lore backup` keeps what it holds now"));
    }
    let mut aside = None;
    let copied = if is_there {
        match Store::open(&target, options) {
            Ok(store) => replace(&store, &file, app, &cancel, &mut told)?,
            Err(error) if matches!(error.kind(), ErrorKind::Database | ErrorKind::DatabaseVersion) => {
                tracing::warn!(error = %error, "the database cannot be opened and is moved aside");
                let stamp = clock::rfc3339(clock::now_ms()).replace([':', '-', '.'], "");
                aside = Some(backup::set_aside(&target, &stamp)?);
                backup::restore_new(&file, &target, options, &cancel, &mut told)?
            }
            Err(error) => return Err(error),
        }
    } else {
        backup::restore_new(&file, &target, options, &cancel, &mut told)?
    };
    progress.finish();
    reply("Restored to", &copied, aside, app)
}

/// Takes the app lock and replaces the content. With success the lock is free again.
fn replace(
    store: &Store,
    file: &std::path::Path,
    app: &App,
    cancel: &Cancel,
    told: backup::OnProgress<'_>,
) -> Result<Copied> {
    let run = NewRun { job: "restore", job_hash: "", options: "{}", resumed_from: None };
    let taken = match lease::take(store, &run, app.config()?.lock, IfLocked::Fail, cancel)? {
        Outcome::Taken(taken) => taken,
        Outcome::Skipped(held) => return Err(lock::held_error(&held, clock::now_ms())),
    };
    store.set_fence(Some(taken.fence.clone()));
    let restored = backup::restore_into(store, &taken.fence, file, cancel, told);
    store.set_fence(None);
    if let Err(error) = &restored {
        give_up(store, &taken.fence, taken.run_id, error);
    }
    restored
}

/// Ends the run of a restore that failed. The first error is the one to report.
fn give_up(store: &Store, fence: &Fence, run_id: i64, error: &Error) {
    let now = clock::now_ms();
    let code = error.kind().exit_code();
    let ended = store
        .write(|tx| runs::finish(tx, run_id, RunState::Failed, code, Some(error), now))
        .and_then(|()| lock::release(store, fence).map(drop));
    if let Err(other) = ended {
        tracing::warn!(error = %other, "the lock of the restore is not freed; it ends by itself");
    }
}

/// What both commands answer with.
#[derive(Debug, serde::Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    copied: &'a Copied,
    /// Where the database that could not be opened was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_aside: Option<PathBuf>,
}

fn reply(what: &str, copied: &Copied, moved_aside: Option<PathBuf>, app: &mut App) -> Result<()> {
    let answer = Answer { copied, moved_aside };
    app.reply(&answer, |out| {
        out.line(format!(
            "{what} {}: {} documents, {:.1} MB, checked",
            copied.path.display(),
            copied.documents,
            copied.bytes as f64 / 1e6
        ))?;
        match &answer.moved_aside {
            Some(aside) => out.line(format!("The damaged database is kept as {}", aside.display())),
            None => Ok(()),
        }
    })
}
