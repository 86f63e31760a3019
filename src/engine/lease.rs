//! Taking the app lock, and keeping it: who may take a lock that is held, and the heartbeat.
//!
//! A holder is judged dead when its (token, beat) pair did not move for a whole lease *by
//! the taker's own clock*, or at once when the same boot and pid namespace show that its
//! process is gone. Clocks of two machines are never compared to take a lock; they only
//! decide whether watching is worth the wait.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::cancel::{Cancel, StopReason};
use super::process;
use crate::clock::{self, Millis};
use crate::config::LockConfig;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::store::lock::{self, Acquired, Claim, HeartbeatConnection, LockState};
use crate::store::runs::NewRun;
use crate::store::{Fence, Store};

/// What to do when another process holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfLocked {
    /// Wait for it, at most this long.
    Wait(Duration),
    /// Fail.
    Fail,
    /// End well without doing anything.
    Skip,
}

/// The lock, taken.
#[derive(Debug)]
pub struct Taken {
    /// What every write is bound to.
    pub fence: Fence,
    /// The run that was begun with it.
    pub run_id: i64,
    /// Runs of dead processes that were closed.
    pub abandoned: Vec<i64>,
}

/// What trying to take the lock came to.
#[derive(Debug)]
pub enum Outcome {
    /// It is ours.
    Taken(Taken),
    /// It is held, and the run is to be skipped.
    Skipped(Box<LockState>),
}

/// Watches a holder with the watcher's own clock.
#[derive(Debug, Default)]
struct Watch {
    seen: Option<((i64, i64), Duration)>,
    /// Whether the holder beat while it was watched.
    has_beaten: bool,
}

impl Watch {
    /// Notes the pair seen at `at`; returns how long it has not moved.
    fn note(&mut self, pair: (i64, i64), at: Duration) -> Duration {
        match self.seen {
            Some((seen, since)) if seen == pair => at.saturating_sub(since),
            seen => {
                self.has_beaten |= seen.is_some_and(|((token, beat), _)| token == pair.0 && beat < pair.1);
                self.seen = Some((pair, at));
                Duration::ZERO
            }
        }
    }
}

/// Whether the holder's heartbeat is recent by the wall clock. Only a hint: it says whether
/// a caller that does not want to wait should watch at all. A time in the future is no sign
/// of life.
fn looks_alive(held: &LockState, now: Millis) -> bool {
    held.heartbeat_at.is_some_and(|at| {
        let age = now.saturating_sub(at);
        (-5_000..held.lease_ms).contains(&age)
    })
}

/// Takes the app lock and begins the run in the same transaction.
///
/// # Errors
/// [`ErrorKind::Locked`] when it stays held, the reason of a stop, and SQLite's.
pub fn take(
    store: &Store,
    run: &NewRun<'_>,
    config: LockConfig,
    if_locked: IfLocked,
    cancel: &Cancel,
) -> Result<Outcome> {
    let own = process::own_identity();
    let owner = uuid::Uuid::new_v4().to_string();
    let started = clock::since_boot();
    let lease_ms = i64::try_from(config.lease.as_millis()).unwrap_or(i64::MAX);
    let poll = (config.lease / 20).clamp(Duration::from_millis(20), Duration::from_secs(1));
    let mut watch = Watch::default();
    let mut dead = None;
    loop {
        cancel.check()?;
        // Read first: a lock that is held is seen without the write lock, which its holder may be
        // stopped with, and whoever only waits is in no writer's way.
        let seen = match store.read(lock::state) {
            Ok(seen) => seen,
            Err(error) => {
                let error = lock::explain_busy(store.path(), None, error);
                if !waits_on(&error, if_locked, started) {
                    return Err(error);
                }
                pause(cancel, poll);
                continue;
            }
        };
        let is_free = seen.owner.is_none() || dead == Some((seen.token, seen.beat));
        let held = if is_free {
            // What is left of the wait bounds the database's own wait: the two must not add up.
            let patience = match if_locked {
                IfLocked::Wait(limit) => {
                    Some(limit.saturating_sub(clock::since_boot().saturating_sub(started)))
                }
                IfLocked::Fail | IfLocked::Skip => None,
            };
            let claim = Claim { owner: &owner, process: &own, lease_ms, dead, patience, cancel, run };
            match lock::acquire(store, &claim) {
                Ok(Acquired::Taken { fence, run_id, abandoned }) => {
                    return Ok(Outcome::Taken(Taken { fence, run_id, abandoned }));
                }
                Ok(Acquired::Held(held)) => held,
                // A holder that hangs inside a transaction: waiting for it is what was asked for.
                Err(error) if waits_on(&error, if_locked, started) => {
                    pause(cancel, poll);
                    continue;
                }
                Err(error)
                    if if_locked == IfLocked::Skip
                        && error.kind() == ErrorKind::Locked
                        && seen.owner.is_some() =>
                {
                    return Ok(Outcome::Skipped(Box::new(seen)));
                }
                Err(error) => return Err(error),
            }
        } else {
            Box::new(seen)
        };
        let pair = (held.token, held.beat);
        let silent = watch.note(pair, clock::since_boot());
        let holder_lease = Duration::from_millis(u64::try_from(held.lease_ms).unwrap_or(u64::MAX));
        if process::is_gone(&held.process, &own) || silent >= holder_lease {
            tracing::warn!(
                lock.owner = held.owner.as_deref(),
                lock.token = held.token,
                "the lock's holder is dead; taking over"
            );
            dead = Some(pair);
            continue;
        }
        dead = None;
        let now = clock::now_ms();
        match if_locked {
            IfLocked::Wait(limit) if clock::since_boot().saturating_sub(started) >= limit => {
                return Err(lock::held_error(&held, now));
            }
            IfLocked::Wait(_) => {}
            // A holder whose clock stands elsewhere looks dead until it is seen to beat.
            IfLocked::Fail if watch.has_beaten || looks_alive(&held, now) => {
                return Err(lock::held_error(&held, now));
            }
            IfLocked::Skip if watch.has_beaten || looks_alive(&held, now) => {
                return Ok(Outcome::Skipped(held));
            }
            IfLocked::Fail | IfLocked::Skip => {
                if silent.is_zero() {
                    tracing::info!(
                        lock.owner = held.owner.as_deref(),
                        "the lock's holder looks dead; watching its heartbeat for {} s before taking over",
                        holder_lease.as_secs()
                    );
                }
            }
        }
        pause(cancel, poll);
    }
}

/// Whether a wait goes on though the write lock, or the whole database, is another's for now.
fn waits_on(error: &Error, if_locked: IfLocked, started: Duration) -> bool {
    let is_busy = matches!(error.kind(), ErrorKind::DatabaseBusy | ErrorKind::Locked);
    let goes_on = match if_locked {
        IfLocked::Wait(limit) => is_busy && clock::since_boot().saturating_sub(started) < limit,
        IfLocked::Fail | IfLocked::Skip => false,
    };
    if goes_on {
        tracing::info!("waiting for the write lock: {error}");
    }
    goes_on
}

/// Sleeps, but not past a stop.
fn pause(cancel: &Cancel, time: Duration) {
    let until = clock::since_boot() + time;
    while cancel.reason().is_none() && clock::since_boot() < until {
        std::thread::park_timeout(Duration::from_millis(20).min(time));
    }
}

/// The heartbeat: a thread and a connection of its own.
#[derive(Debug)]
pub struct Heartbeat {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// Everything that the heartbeat's thread owns.
struct Beater {
    connection: HeartbeatConnection,
    file: FileIdentity,
    fence: Fence,
    run_id: i64,
    config: LockConfig,
    cancel: Cancel,
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl Heartbeat {
    /// Starts beating for `fence`. Cancels `cancel` when the lock is lost, when no beat
    /// succeeded for two thirds of the lease, when the database file was replaced, or when
    /// somebody asked for the run to be cancelled.
    ///
    /// # Errors
    /// When the connection or the thread cannot be made.
    pub fn start(
        store: &Store,
        fence: &Fence,
        run_id: i64,
        config: LockConfig,
        cancel: &Cancel,
    ) -> Result<Self> {
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let beater = Beater {
            connection: HeartbeatConnection::open(store, config.heartbeat.min(config.lease / 6))?,
            file: FileIdentity::of(store.path())?,
            fence: fence.clone(),
            run_id,
            config,
            cancel: cancel.clone(),
            stop: Arc::clone(&stop),
        };
        let run = tracing::Span::current();
        let thread = std::thread::Builder::new()
            .name("heartbeat".to_owned())
            .spawn(move || {
                let _in_run = run.enter();
                beater.run();
            })
            .map_err(|error| io_error("start the heartbeat", error))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Stops beating.
    pub fn stop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the heartbeat's thread panicked");
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Beater {
    fn run(self) {
        let mut last_success = clock::since_boot();
        while !self.wait() {
            // Asked before the beat: one that fails because of long work is judged by the
            // lease that held when it was tried.
            let lease = self.connection.lease(self.config.lease);
            match self.connection.beat(&self.fence, lease) {
                Ok(true) => last_success = clock::since_boot(),
                Ok(false) => {
                    tracing::error!(
                        lock.token = self.fence.token,
                        "the app lock was taken by another process"
                    );
                    self.cancel.cancel(StopReason::LockLost);
                    return;
                }
                Err(error) => {
                    tracing::warn!(lock.token = self.fence.token, "heartbeat failed: {error}");
                    let proven = last_success.max(self.connection.proven_at());
                    if clock::since_boot().saturating_sub(proven) >= lease * 2 / 3 {
                        self.cancel.cancel(StopReason::LockLost);
                        return;
                    }
                }
            }
            if !self.file.is_still_there() {
                tracing::error!("the database file was replaced");
                self.cancel.cancel(StopReason::DatabaseReplaced);
                return;
            }
            match self.connection.cancel_requested(self.run_id) {
                Ok(true) => self.cancel.cancel(StopReason::Cancelled),
                Ok(false) => {}
                Err(error) => tracing::warn!("look for a request to cancel: {error}"),
            }
        }
    }

    /// Waits one interval; returns true when the heartbeat is to end.
    fn wait(&self) -> bool {
        let (stopped, wake) = &*self.stop;
        let guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) = wake
            .wait_timeout_while(guard, self.config.heartbeat, |stopped| !*stopped)
            .unwrap_or_else(PoisonError::into_inner);
        *guard
    }
}

/// Which file a path led to when it was opened: a restored or moved database must not be
/// written through its old name.
#[derive(Debug)]
struct FileIdentity {
    path: std::path::PathBuf,
    #[cfg(unix)]
    device_and_inode: (u64, u64),
}

impl FileIdentity {
    fn of(path: &std::path::Path) -> Result<Self> {
        #[cfg(unix)]
        let device_and_inode = {
            use std::os::unix::fs::MetadataExt;
            let metadata = std::fs::metadata(path)
                .map_err(|error| io_error(format!("look at {}", path.display()), error))?;
            (metadata.dev(), metadata.ino())
        };
        Ok(Self {
            path: path.to_owned(),
            #[cfg(unix)]
            device_and_inode,
        })
    }

    fn is_still_there(&self) -> bool {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(&self.path)
                .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.device_and_inode)
        }
        #[cfg(not(unix))]
        {
            self.path.exists()
        }
    }
}

#[cfg(test)]
mod tests;
