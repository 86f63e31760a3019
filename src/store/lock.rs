//! SQL of the app lock: acquire, beat, release, break, and the fence of every write.
//!
//! The lock is one row. Its fencing token grows with every acquisition and is never reused;
//! its beat counter grows with every heartbeat. Whoever wants a lock that is held judges it
//! by watching the pair (token, beat) with a clock of his own: wall-clock times in the row
//! are for people.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, named_params};
use serde::Serialize;

use super::runs::{self, NewRun};
use super::{Fence, LongWork, Patience, ReadTx, Store, WriteTx, blocker};
use crate::clock::{self, Millis};
use crate::engine::cancel::Cancel;
use crate::engine::process;
use crate::error::{Error, ErrorKind, Result};

/// Where a process runs, as far as another one can make use of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ProcessIdentity {
    /// Host name, for people.
    pub host: Option<String>,
    /// Process id, valid inside its namespace.
    pub pid: Option<i64>,
    /// Start time of the process: tells a reused pid apart.
    pub pid_start: Option<String>,
    /// Identity of the pid namespace.
    pub pid_namespace: Option<String>,
    /// Identity of this boot of the machine.
    pub boot_id: Option<String>,
}

/// The app lock as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockState {
    /// Random id of the owning process; none when free.
    pub owner: Option<String>,
    /// Fencing token of the current or last acquisition.
    pub token: i64,
    /// Heartbeats since the acquisition.
    pub beat: i64,
    /// When it was taken.
    pub acquired_at: Option<Millis>,
    /// When the holder last said that it lives, by the holder's clock.
    pub heartbeat_at: Option<Millis>,
    /// How long a silent holder keeps it.
    pub lease_ms: i64,
    /// The holder's process.
    pub process: ProcessIdentity,
    /// The holder's job.
    pub job: Option<String>,
    /// The holder's run.
    pub run_id: Option<i64>,
    /// How often a dead holder's lock was taken over.
    pub takeovers: i64,
}

/// What an attempt to take the lock came to.
#[derive(Debug)]
pub enum Acquired {
    /// It is ours.
    Taken {
        /// What every write is bound to.
        fence: Fence,
        /// The run that was begun in the same transaction.
        run_id: i64,
        /// Runs of dead processes that were closed.
        abandoned: Vec<i64>,
    },
    /// Somebody else holds it.
    Held(Box<LockState>),
}

/// Who wants the lock, and what for.
#[derive(Debug)]
pub struct Claim<'a> {
    /// Random id of this process.
    pub owner: &'a str,
    /// This process.
    pub process: &'a ProcessIdentity,
    /// How long the lock stays ours without a heartbeat.
    pub lease_ms: i64,
    /// The holder that was judged dead, as (token, beat); only exactly that one is replaced.
    pub dead: Option<(i64, i64)>,
    /// How long to wait for a writer at the most; not longer than the busy timeout.
    pub patience: Option<Duration>,
    /// Ends the wait.
    pub cancel: &'a Cancel,
    /// The run to begin.
    pub run: &'a NewRun<'a>,
}

const SELECT_LOCK: &str =
    "SELECT owner, token, beat, acquired_at, heartbeat_at, lease_ms, host, pid, pid_start,
    pid_namespace, boot_id, job, run_id, takeovers FROM app_lock WHERE name = 'main'";

fn read_lock(connection: &Connection) -> rusqlite::Result<LockState> {
    connection.prepare_cached(SELECT_LOCK)?.query_row([], |row| {
        Ok(LockState {
            owner: row.get("owner")?,
            token: row.get("token")?,
            beat: row.get("beat")?,
            acquired_at: row.get("acquired_at")?,
            heartbeat_at: row.get("heartbeat_at")?,
            lease_ms: row.get("lease_ms")?,
            process: ProcessIdentity {
                host: row.get("host")?,
                pid: row.get("pid")?,
                pid_start: row.get("pid_start")?,
                pid_namespace: row.get("pid_namespace")?,
                boot_id: row.get("boot_id")?,
            },
            job: row.get("job")?,
            run_id: row.get("run_id")?,
            takeovers: row.get("takeovers")?,
        })
    })
}

/// Returns the lock as it stands.
///
/// # Errors
/// SQLite's.
pub fn state(tx: &ReadTx<'_>) -> Result<LockState> {
    Ok(read_lock(tx.sql())?)
}

/// Takes the lock when it is free, or when its holder is the dead one of the claim.
///
/// The run row and the first heartbeat are written in the same transaction, and runs that dead
/// processes left open are closed as abandoned.
///
/// # Errors
/// SQLite's; then nothing was taken.
pub fn acquire(store: &Store, claim: &Claim<'_>) -> Result<Acquired> {
    store.write_within(Patience { most: claim.patience, cancel: Some(claim.cancel) }, |tx| {
        let now = clock::now_ms();
        let held = read_lock(tx.sql())?;
        let takeover = match (&held.owner, claim.dead) {
            (None, _) => false,
            (Some(_), Some(dead)) if dead == (held.token, held.beat) => true,
            (Some(_), _) => return Ok(Acquired::Held(Box::new(held))),
        };
        let token = held.token + 1;
        let abandoned = runs::abandon_open(tx, now)?;
        let run_id = runs::insert(tx, claim.run, claim.owner, claim.process, token, now)?;
        tx.sql()
            .prepare_cached(
                "UPDATE app_lock SET token = :token, owner = :owner, acquired_at = :now, heartbeat_at = :now, beat = 1,
                        lease_ms = :lease_ms, host = :host, pid = :pid, pid_start = :pid_start,
                        pid_namespace = :pid_namespace, boot_id = :boot_id, job = :job, run_id = :run_id,
                        takeovers = takeovers + :takeover
                  WHERE name = 'main'",
            )?
            .execute(named_params! {
                ":token": token,
                ":owner": claim.owner,
                ":now": now,
                ":lease_ms": claim.lease_ms,
                ":host": claim.process.host,
                ":pid": claim.process.pid,
                ":pid_start": claim.process.pid_start,
                ":pid_namespace": claim.process.pid_namespace,
                ":boot_id": claim.process.boot_id,
                ":job": claim.run.job,
                ":run_id": run_id,
                ":takeover": takeover,
            })?;
        let fence = Fence { owner: claim.owner.to_owned(), token };
        Ok(Acquired::Taken { fence, run_id, abandoned })
    })
}

/// Beats with a longer lease, before work during which no beat can be written. The next
/// ordinary beat brings the ordinary lease back.
pub(super) fn extend(tx: &WriteTx<'_>, fence: &Fence, lease_ms: i64) -> Result<()> {
    beat(tx.sql(), fence, lease_ms).map(drop)
}

fn beat(connection: &Connection, fence: &Fence, lease_ms: i64) -> Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE app_lock SET beat = beat + 1, heartbeat_at = ?1, lease_ms = ?2
              WHERE name = 'main' AND owner = ?3 AND token = ?4",
        )?
        .execute((clock::now_ms(), lease_ms, &fence.owner, fence.token))?;
    Ok(changed == 1)
}

/// A connection of the heartbeat's own: a beat never waits for this process's own writer.
#[derive(Debug)]
pub struct HeartbeatConnection {
    connection: Connection,
    long_work: Arc<LongWork>,
}

impl HeartbeatConnection {
    /// Opens it. `busy` bounds how long one beat may wait for another writer.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(store: &Store, busy: Duration) -> Result<Self> {
        let connection = super::open::open_writer(&store.path, store.options)?;
        connection.busy_timeout(busy)?;
        Ok(Self { connection, long_work: Arc::clone(&store.long_work) })
    }

    /// The lease that holds now: a longer one than `ordinary` during long work.
    pub fn lease(&self, ordinary: Duration) -> Duration {
        let long = u64::try_from(self.long_work.lease_ms.load(Ordering::SeqCst)).unwrap_or(0);
        ordinary.max(Duration::from_millis(long))
    }

    /// When long work last committed, as time since boot: that proved the lock to be held.
    pub fn proven_at(&self) -> Duration {
        let at = u64::try_from(self.long_work.proven_at_ms.load(Ordering::SeqCst)).unwrap_or(0);
        Duration::from_millis(at)
    }

    /// Says that the holder lives. Returns false when the lock is no longer the fence's.
    ///
    /// # Errors
    /// SQLite's; a busy database is no proof of anything.
    pub fn beat(&self, fence: &Fence, lease: Duration) -> Result<bool> {
        beat(&self.connection, fence, i64::try_from(lease.as_millis()).unwrap_or(i64::MAX))
    }

    /// Whether somebody asked for this run to be cancelled.
    ///
    /// # Errors
    /// SQLite's.
    pub fn cancel_requested(&self, run_id: i64) -> Result<bool> {
        let asked: Option<bool> = self
            .connection
            .prepare_cached("SELECT cancel_requested_at IS NOT NULL FROM runs WHERE id = ?1")?
            .query_row([run_id], |row| row.get(0))
            .optional()?;
        Ok(asked.unwrap_or(false))
    }
}

/// Frees the lock. Does nothing when it is no longer the fence's: a late release must not
/// free the next holder's lock. Returns whether it was ours.
///
/// # Errors
/// SQLite's.
pub fn release(store: &Store, fence: &Fence) -> Result<bool> {
    store.set_fence(None);
    store.write(|tx| {
        let changed = tx
            .sql()
            .prepare_cached("UPDATE app_lock SET owner = NULL, job = NULL, run_id = NULL WHERE name = 'main' AND owner = ?1 AND token = ?2")?
            .execute((&fence.owner, fence.token))?;
        Ok(changed == 1)
    })
}

/// Frees a lock whoever holds it, provided its owner is named. The old holder's further
/// writes are fenced.
///
/// # Errors
/// [`ErrorKind::Usage`] when `owner` is not the holder, and SQLite's.
pub fn break_lock(store: &Store, owner: &str) -> Result<LockState> {
    store.write(|tx| {
        let held = read_lock(tx.sql())?;
        match &held.owner {
            Some(holder) if holder == owner => {}
            Some(holder) => {
                return Err(Error::usage(format!("the lock's owner is {holder}, not {owner}"))
                    .hint("copy the owner from `lore lock status`"));
            }
            None => return Err(Error::usage("the lock is free")),
        }
        runs::abandon_open(tx, clock::now_ms())?;
        tx.sql().execute("UPDATE app_lock SET owner = NULL, job = NULL, run_id = NULL, token = token + 1 WHERE name = 'main'", [])?;
        Ok(held)
    })
}

/// Fails unless the lock is the fence's. Called first inside every write transaction.
pub(super) fn check_fence(connection: &Connection, fence: &Fence) -> Result<()> {
    let ours: Option<i64> = connection
        .prepare_cached("SELECT 1 FROM app_lock WHERE name = 'main' AND owner = ?1 AND token = ?2")?
        .query_row((&fence.owner, fence.token), |row| row.get(0))
        .optional()?;
    if ours.is_some() {
        return Ok(());
    }
    Err(lost(fence))
}

fn lost(fence: &Fence) -> Error {
    Error::new(
        ErrorKind::Fenced,
        format!("the app lock (token {}) was lost to another process; nothing was written", fence.token),
    )
    .hint("`lore lock status` shows who holds it now; the next run continues where this one stopped")
}

/// A migration must not change the schema under a working process.
pub(super) fn refuse_while_held(connection: &Connection, now: Millis) -> Result<()> {
    let held = read_lock(connection)?;
    let fresh = held.heartbeat_at.is_some_and(|at| now.saturating_sub(at) < held.lease_ms);
    if held.owner.is_some() && fresh {
        return Err(held_error(&held, now).context("cannot bring the database up to date"));
    }
    Ok(())
}

/// The error for a lock that somebody else holds: who, since when, and what to do.
pub fn held_error(held: &LockState, now: Millis) -> Error {
    let age = |at: Option<Millis>| at.map_or(0, |at| now.saturating_sub(at).max(0) / 1000);
    let host = held.process.host.as_deref().unwrap_or("an unknown host");
    let pid = held.process.pid.map_or_else(String::new, |pid| format!(" pid {pid}"));
    let job = held.job.as_deref().unwrap_or("unknown");
    let run = held.run_id.map_or_else(String::new, |run| format!(" (run {run})"));
    let owner = held.owner.as_deref().unwrap_or_default();
    Error::new(
        ErrorKind::Locked,
        format!(
            "the app lock is held by job {job}{run} on {host}{pid} for {} s, last heartbeat {} s ago",
            age(held.acquired_at),
            age(held.heartbeat_at),
        ),
    )
    .hint("wait for it with `--if-locked wait --lock-wait 10m`, or exit 0 with `--if-locked skip`")
    .hint(format!(
        "a dead holder's lock is taken over after {} s without a heartbeat; or free it now with `lore lock break --owner {owner}`",
        held.lease_ms / 1000
    ))
    .details(serde_json::json!({ "lock": held }))
}

/// Says who keeps the database from being written. `ours` is the lock that this process holds.
///
/// The row of the app lock can be read without the write lock. When it names a holder that is
/// not known to be gone, the lock is held, whatever its holder is in the middle of: a
/// start says so, and does not call the database busy. So it does when the row names
/// nobody, but the process in the way is another lore: it is taking the lock, or just freed it.
pub(crate) fn explain_busy(path: &Path, ours: Option<&Fence>, error: Error) -> Error {
    if error.kind() != ErrorKind::DatabaseBusy {
        return error;
    }
    let blocker = blocker::find(path);
    // Of any version: this is asked before a migration too.
    let held = super::open::open_file(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY)
        .ok()
        .and_then(|connection| read_lock(&connection).ok())
        .filter(|held| held.owner.is_some());
    let who = blocker.as_ref().map_or_else(|| "another process".to_owned(), ToString::to_string);
    let blocked = format!("{} is write-locked by {who}", path.display());
    let hint = blocker.as_ref().map_or_else(
        || {
            "find the process that holds a transaction open (a shell with sqlite3?), or try again later"
                .to_owned()
        },
        blocker::Blocker::hint,
    );
    match (held, ours) {
        (Some(held), Some(ours))
            if held.owner.as_deref() != Some(&ours.owner) || held.token != ours.token =>
        {
            lost(ours).context(blocked)
        }
        (Some(held), None) if !process::is_gone(&held.process, &process::own_identity()) => {
            let age = held.heartbeat_at.map_or(0, |at| clock::now_ms().saturating_sub(at).max(0) / 1000);
            let is_holder = blocker.as_ref().is_some_and(|blocker| held.process.pid == Some(blocker.pid));
            let middle = if is_holder { ", in the middle of a write" } else { "" };
            let message = format!(
                "the app lock is held by job {} on {} pid {}{middle}, last heartbeat {age} s ago, and {blocked}",
                held.job.as_deref().unwrap_or("unknown"),
                held.process.host.as_deref().unwrap_or("an unknown host"),
                held.process.pid.unwrap_or_default(),
            );
            Error::new(ErrorKind::Locked, message).hint(hint).details(serde_json::json!({ "lock": held }))
        }
        (Some(_) | None, None) if blocker.as_ref().is_some_and(|blocker| blocker.is_lore) => {
            Error::new(ErrorKind::Locked, format!("{blocked}, another run that begins or ends")).hint(hint)
        }
        (Some(_) | None, Some(_) | None) => error.context(blocked).hint(hint),
    }
}

/// Moves the holder to another machine, where it cannot be probed.
#[cfg(test)]
pub(crate) fn set_boot_id_for_test(tx: &super::WriteTx<'_>, boot_id: &str) -> Result<()> {
    tx.sql().execute("UPDATE app_lock SET boot_id = ?1", [boot_id])?;
    Ok(())
}

/// Beats as a holder whose clock shows `at`.
#[cfg(test)]
pub(crate) fn beat_at_for_test(tx: &super::WriteTx<'_>, at: Millis) -> Result<()> {
    tx.sql().execute("UPDATE app_lock SET beat = beat + 1, heartbeat_at = ?1", [at])?;
    Ok(())
}
