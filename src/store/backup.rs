//! Copies of the whole database: made while others read and write, checked, and brought back.
//!
//! Copying uses SQLite's online backup API under one read transaction, so that a copy is one
//! consistent state however long it takes and whoever writes meanwhile. A copy appears
//! under its name only when it is whole and checked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use tempfile::NamedTempFile;

use super::open::{self, OpenOptions, SCHEMA_VERSION};
use super::{Fence, Store, lock};
use crate::engine::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::fault;

/// Pages that are copied between two looks at the stop signal (4 MiB).
const STEP_PAGES: std::ffi::c_int = 1024;

/// Pause before a page is asked for again that another connection holds.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// How long a restore waits for readers before it leaves its log to others.
const FOLD_PATIENCE: Duration = Duration::from_secs(1);

/// End of the name of a copy that is not whole yet.
const PARTIAL: &str = ".partial";

/// Age from which a partial copy that nobody holds is what a killed process left.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// How long the app lock is kept for a restore, without a heartbeat.
const RESTORE_LEASE_MS: i64 = 30 * 60 * 1000;

/// A copy that was made and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Copied {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Version of its schema.
    pub schema_version: i64,
    /// Documents in it.
    pub documents: i64,
}

/// What is told while pages are copied: pages done and pages in all.
pub type OnProgress<'a> = &'a mut dyn FnMut(u64, u64);

/// What may happen to a file that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the copy fails.
    Keep,
    /// It is replaced by the whole copy at once.
    Replace,
}

/// Copies the database at `source` to the file `target`.
///
/// The copy is one self-contained file (no write-ahead log beside it, readable from a
/// read-only file system), mode 0600, its app lock free.
///
/// # Errors
/// [`ErrorKind::DiskFull`] before anything is written when there is no room,
/// [`ErrorKind::Usage`] for a target that exists and is to be kept,
/// [`ErrorKind::IntegrityFindings`] when the copy is damaged, the reason for a stop, and
/// those of the files. Then there is no file of that name, or the old one.
pub fn copy(
    source: &Path,
    target: &Path,
    existing: Existing,
    options: OpenOptions,
    cancel: &Cancel,
    on_progress: OnProgress<'_>,
) -> Result<Copied> {
    refuse_existing(target, existing)?;
    let from = open_any_version(source, options)?;
    refuse_same_file(source, target)?;
    let directory = directory_of(target);
    std::fs::create_dir_all(directory)
        .map_err(|error| io_error(format!("create directory {}", directory.display()), error))?;
    open::refuse_full_disk(directory, open::size_of(&from)?)?;
    let temporary = partial(directory, ".lore-backup-")?;
    let copied = (|| {
        let mut to = open::open_file(temporary.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        copy_pages(&from, &mut to, cancel, on_progress)?;
        fault::point("backup-copied");
        // One file, without a log beside it.
        to.pragma_update(None, "journal_mode", "DELETE")?;
        free_lock(&to, 0)?;
        look_into(&to, source)
    })()
    .map_err(|error: Error| error.context(format!("back up {}", source.display())))?;
    persist(temporary, target, existing)?;
    let bytes = std::fs::metadata(target).map(|metadata| metadata.len()).unwrap_or_default();
    Ok(Copied { path: target.to_owned(), bytes, ..copied })
}

/// Makes the file that a copy is written to before it gets its name, and removes those of
/// processes that died over it.
fn partial(directory: &Path, prefix: &str) -> Result<NamedTempFile> {
    let failed = |error| io_error(format!("write in {}", directory.display()), error);
    for entry in std::fs::read_dir(directory).map_err(failed)?.flatten() {
        let name = entry.file_name();
        let is_partial =
            name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(PARTIAL));
        if is_partial && is_abandoned(&entry.path()) {
            for suffix in ["-journal", "-wal", "-shm", ""] {
                let path = with_suffix(&entry.path(), suffix);
                if let Err(error) = std::fs::remove_file(&path)
                    && error.kind() != std::io::ErrorKind::NotFound
                {
                    tracing::warn!(path = %path.display(), %error, "what a killed copy left cannot be removed");
                }
            }
        }
    }
    let file =
        tempfile::Builder::new().prefix(prefix).suffix(PARTIAL).tempfile_in(directory).map_err(failed)?;
    // Shows others that somebody is at it. Where locks do not work, nothing is ever removed.
    if let Err(error) = flock(file.as_file(), FlockOperation::NonBlockingLockExclusive) {
        tracing::debug!(%error, "a partial copy cannot be locked");
    }
    Ok(file)
}

/// Whether nobody holds a partial copy. A young one may not be locked yet.
fn is_abandoned(path: &Path) -> bool {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
    let age = metadata.and_then(|it| it.modified().ok()).and_then(|it| it.elapsed().ok());
    age.is_some_and(|age| age >= ABANDONED_AFTER)
        && std::fs::File::open(path)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
}

/// Checks a copy: whole, ours, not of a newer lore.
///
/// # Errors
/// [`ErrorKind::DatabaseVersion`] for a file that is no database of ours or a newer one's,
/// [`ErrorKind::IntegrityFindings`] for a damaged one.
pub fn verify(path: &Path, options: OpenOptions) -> Result<Copied> {
    if let Err(error) = std::fs::metadata(path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(Error::new(ErrorKind::DatabaseVersion, format!("there is no backup at {}", path.display()))
            .hint("name the file that `lore backup` or the step `backup` made (by default in `backups` beside the database)"));
    }
    let looked = open_any_version(path, options).and_then(|connection| look_into(&connection, path));
    // A schema that cannot be read ends the look before SQLite's own check.
    let copied = looked.map_err(|error| match error.kind() {
        ErrorKind::Database => damaged(path, &error.to_string()),
        _ => error,
    })?;
    let bytes = std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or_default();
    Ok(Copied { bytes, ..copied })
}

fn damaged(path: &Path, how: &str) -> Error {
    Error::new(ErrorKind::IntegrityFindings, format!("{} is damaged: {how}", path.display()))
        .hint("take an older backup; `lore status --check` looks at the database itself")
}

/// Brings a copy back where there is no database.
///
/// # Errors
/// As [`copy`].
pub fn restore_new(
    backup: &Path,
    target: &Path,
    options: OpenOptions,
    cancel: &Cancel,
    on_progress: OnProgress<'_>,
) -> Result<Copied> {
    copy(backup, target, Existing::Keep, options, cancel, on_progress)
}

/// Replaces the content of an open database by that of a copy, in one transaction: readers
/// see the old state until it commits, and a restore that is killed has changed nothing.
///
/// The app lock must be held; with the commit it is free, and its token is not lower than
/// before, so that a process that held it earlier writes nothing into the restored state.
///
/// # Errors
/// [`ErrorKind::Fenced`] when the lock is lost, the reason for a stop, and SQLite's; then
/// nothing was changed.
pub fn restore_into(
    store: &Store,
    fence: &Fence,
    backup: &Path,
    cancel: &Cancel,
    on_progress: OnProgress<'_>,
) -> Result<Copied> {
    let copied = verify(backup, store.options())?;
    // A private copy whose lock row is set right before it becomes everybody's.
    let directory = directory_of(store.path());
    open::refuse_full_disk(directory, copied.bytes.saturating_mul(2))?;
    let stage = partial(directory, ".lore-restore-")?;
    let from = open_any_version(backup, store.options())?;
    let mut to = open::open_file(stage.path(), OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    copy_pages(&from, &mut to, cancel, &mut |_, _| {})?;
    free_lock(&to, fence.token)?;
    store.write(|tx| lock::extend(tx, fence, RESTORE_LEASE_MS))?;
    fault::point("restore-staged");
    store.replace_content(&to, fence, cancel, on_progress)?;
    Ok(Copied { path: store.path().to_owned(), ..copied })
}

/// Moves the files of a database that cannot be opened out of the way; returns where the
/// main file is now.
///
/// # Errors
/// Those of the file system.
pub fn set_aside(path: &Path, stamp: &str) -> Result<PathBuf> {
    let aside = with_suffix(path, &format!(".damaged-{stamp}"));
    for part in ["-wal", "-shm", ""] {
        let from = with_suffix(path, part);
        match std::fs::rename(&from, with_suffix(&aside, part)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error(format!("move {} aside", from.display()), error));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(aside)
}

impl Store {
    /// Copies every page of `from` over this database's.
    fn replace_content(
        &self,
        from: &Connection,
        fence: &Fence,
        cancel: &Cancel,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let mut handle = self.writer_handle()?;
        lock::check_fence(&handle.connection, fence)?;
        copy_pages(from, &mut handle.connection, cancel, on_progress)?;
        // What was prepared speaks of tables that were replaced; the log holds a whole copy.
        handle.connection.flush_prepared_statement_cache();
        // A reader that looks at the old state for long is not waited for: whoever commits or
        // closes next folds the log back.
        handle.connection.busy_timeout(FOLD_PATIENCE)?;
        handle.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

fn copy_pages(
    from: &Connection,
    to: &mut Connection,
    cancel: &Cancel,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    // The read transaction pins the state: without it, every commit of another process would
    // make the copy start again.
    let pinned = from.unchecked_transaction()?;
    pinned.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    let backup = Backup::new(from, to)?;
    loop {
        cancel.check()?;
        match backup.step(STEP_PAGES)? {
            StepResult::Done => break,
            StepResult::More => {
                let at = backup.progress();
                let total = u64::try_from(at.pagecount).unwrap_or(0);
                on_progress(total.saturating_sub(u64::try_from(at.remaining).unwrap_or(0)), total);
            }
            StepResult::Busy | StepResult::Locked => std::thread::park_timeout(BUSY_PAUSE),
            // The enum is not ours to match completely.
            _ => return Err(Error::internal("the backup ended in a state that is not known")),
        }
    }
    drop(backup);
    pinned.finish()?;
    Ok(())
}

/// Frees the lock of a copy: its holder works on the original. The token never goes back.
fn free_lock(copy: &Connection, least_token: i64) -> Result<()> {
    copy.execute(
        "UPDATE app_lock SET owner = NULL, acquired_at = NULL, heartbeat_at = NULL, beat = 0, host = NULL,
                pid = NULL, pid_start = NULL, pid_namespace = NULL, boot_id = NULL, job = NULL, run_id = NULL,
                token = max(token, ?1)
          WHERE name = 'main'",
        [least_token],
    )?;
    Ok(())
}

fn look_into(connection: &Connection, path: &Path) -> Result<Copied> {
    let schema_version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let verdict: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).or_else(
        |error| match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(error.to_string()),
            _ => Err(error),
        },
    )?;
    if verdict != "ok" {
        return Err(damaged(path, &verdict));
    }
    let documents = connection.query_row("SELECT count(*) FROM documents", [], |row| row.get(0))?;
    Ok(Copied { path: path.to_owned(), bytes: 0, schema_version, documents })
}

/// Opens a database of ours for reading, of this version or an older one.
fn open_any_version(path: &Path, options: OpenOptions) -> Result<Connection> {
    open::look_at(path)?;
    let connection = open::open_file(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(options.busy_timeout)?;
    open::refuse_other(&connection, path).map_err(|error| open::explain_read_only(path, error))?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if !(1..=SCHEMA_VERSION).contains(&version) {
        return Err(Error::new(
            ErrorKind::DatabaseVersion,
            format!("{} holds no data of lore", path.display()),
        )
        .hint("name a database or a backup of one"));
    }
    Ok(connection)
}

fn refuse_existing(target: &Path, existing: Existing) -> Result<()> {
    if existing == Existing::Keep && target.symlink_metadata().is_ok() {
        return Err(Error::usage(format!("{} exists already", target.display()))
            .hint("name another file, or replace it with --force"));
    }
    Ok(())
}

fn refuse_same_file(source: &Path, target: &Path) -> Result<()> {
    let same = match (source.canonicalize(), target.canonicalize()) {
        (Ok(source), Ok(target)) => source == target,
        (Ok(_) | Err(_), Err(_)) | (Err(_), Ok(_)) => false,
    };
    if same {
        return Err(Error::usage(format!("{} is the database itself", target.display())));
    }
    Ok(())
}

fn persist(temporary: NamedTempFile, target: &Path, existing: Existing) -> Result<()> {
    let what = format!("write {}", target.display());
    temporary.as_file().sync_all().map_err(|error| io_error(what.clone(), error))?;
    let file = match existing {
        Existing::Keep => temporary.persist_noclobber(target),
        Existing::Replace => temporary.persist(target),
    }
    .map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => Error::usage(format!("{} exists already", target.display())),
        _ => io_error(what.clone(), error.error),
    })?;
    drop(file);
    // Makes the new name last through a power cut; not every file system can.
    if let Ok(directory) = std::fs::File::open(directory_of(target)) {
        drop(directory.sync_all());
    }
    Ok(())
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests;
