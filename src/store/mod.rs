//! The database. All SQL of lore is in this folder; nobody else sees a connection.
//!
//! Two doors: [`Store::read`] gives one consistent state, [`Store::write`] one short
//! IMMEDIATE transaction that commits whole or not at all. Once the app lock is held, every
//! write transaction checks the fencing token inside itself: a process that lost the lock
//! changes nothing. Functions of the subject modules take a [`ReadTx`] or a [`WriteTx`].

pub mod backup;
mod blocker;
pub mod cursors;
pub mod documents;
pub mod embeddings;
pub mod entities;
#[cfg(test)]
#[expect(missing_docs, reason = "the fields are those of the table")]
pub mod fixtures;
pub mod fts;
pub mod groups;
pub mod integrity;
pub mod knn;
pub mod links;
pub mod lock;
pub mod metrics;
pub mod open;
pub mod queues;
mod rank;
pub mod runs;
pub mod search;
pub mod show;
pub mod sources;
pub mod status;
pub mod suspects;
mod tables;
pub mod tombstones;
pub mod waits;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

use crate::clock;
use crate::engine::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result};
use crate::fault;

pub use open::{OpenOptions, SCHEMA_VERSION};

/// How long running SQL may go on after a stop was asked for: a short transaction ends in
/// this time, a long statement is interrupted and rolled back.
const INTERRUPT_GRACE: Duration = Duration::from_secs(2);

/// How long a holder that works on what cannot be cut keeps the lock without a heartbeat:
/// comparing or building the index of a few million documents.
const LONG_LEASE: Duration = Duration::from_secs(30 * 60);

/// How long a wait for the write lock goes on at once, before the stop signal is looked at.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// How long all waits for the write lock together may last after a stop was asked for: the run
/// is to be closed and the lock to be freed, but not after the process was to be gone.
const WAIT_AFTER_STOP: Duration = Duration::from_secs(5);

/// Virtual-machine instructions between two looks at the stop signal.
const PROGRESS_OPS: std::ffi::c_int = 20_000;

/// An open database.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    options: OpenOptions,
    readers: Mutex<Vec<Handle>>,
    /// Absent when the database is opened for reading only. Declared after the readers, so
    /// that it is closed last: only a writer folds the write-ahead log back when it closes.
    writer: Option<Mutex<Handle>>,
    fence: Mutex<Option<Fence>>,
    stop: Mutex<Option<Cancel>>,
    long_work: Arc<LongWork>,
    pending: metrics::Pending,
}

/// How long to wait for another process's write lock.
#[derive(Debug, Clone, Copy, Default)]
struct Patience<'a> {
    /// At most this long, instead of as long as the store waits.
    most: Option<Duration>,
    /// No longer than until this stop.
    cancel: Option<&'a Cancel>,
}

/// Work under way that holds the write lock for longer than a lease, as the heartbeat has to
/// know it: no beat can be written meanwhile.
#[derive(Debug, Default)]
struct LongWork {
    /// The lease while it lasts, milliseconds; 0 when there is none.
    lease_ms: AtomicI64,
    /// Milliseconds since boot at which such work last committed, its fence checked.
    proven_at_ms: AtomicI64,
}

/// Proof of holding the app lock, checked inside every write transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Random id of the owning process.
    pub owner: String,
    /// Fencing token of this acquisition.
    pub token: i64,
}

/// A connection together with the stop signal that its SQL obeys.
#[derive(Debug)]
struct Handle {
    connection: Connection,
    cancel: Arc<Mutex<Option<Cancel>>>,
}

impl Handle {
    fn new(mut connection: Connection) -> Result<Self> {
        rank::register(&connection)?;
        let cancel: Arc<Mutex<Option<Cancel>>> = Arc::default();
        let seen = Arc::clone(&cancel);
        connection.progress_handler(
            PROGRESS_OPS,
            Some(move || {
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .as_ref()
                    .is_some_and(|cancel| cancel.is_overdue(INTERRUPT_GRACE))
            }),
        )?;
        Ok(Self { connection, cancel })
    }

    fn obey(&self, cancel: Option<Cancel>) {
        *self.cancel.lock().unwrap_or_else(PoisonError::into_inner) = cancel;
    }
}

/// One consistent state of the database.
#[derive(Debug)]
pub struct ReadTx<'a> {
    connection: &'a Connection,
}

impl ReadTx<'_> {
    /// The connection, for the modules of this folder.
    pub(in crate::store) fn sql(&self) -> &Connection {
        self.connection
    }
}

/// One write transaction; also reads.
#[derive(Debug)]
pub struct WriteTx<'a> {
    read: ReadTx<'a>,
}

impl<'a> Deref for WriteTx<'a> {
    type Target = ReadTx<'a>;

    fn deref(&self) -> &Self::Target {
        &self.read
    }
}

impl Store {
    /// Opens the database for reading and writing, creates it when it is missing, and
    /// brings its schema up to date.
    ///
    /// # Errors
    /// [`ErrorKind::DatabaseVersion`] when it is newer than this binary, [`ErrorKind::Io`]
    /// when it cannot be opened or lies on a network file system, and SQLite's own.
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        let mut connection = open::open_writer(path, options)?;
        open::migrate(&mut connection, path)?;
        Ok(Self {
            path: path.to_owned(),
            options,
            writer: Some(Mutex::new(Handle::new(connection)?)),
            readers: Mutex::default(),
            fence: Mutex::default(),
            stop: Mutex::default(),
            long_work: Arc::default(),
            pending: metrics::Pending::default(),
        })
    }

    /// Like [`Store::open`], but makes no database where there is none.
    ///
    /// # Errors
    /// As [`Store::open`], and [`ErrorKind::DatabaseVersion`] when there is none.
    pub fn open_existing(path: &Path, options: OpenOptions) -> Result<Self> {
        open::look_at(path)?;
        Self::open(path, options)
    }

    /// Opens an existing database for reading only.
    ///
    /// # Errors
    /// [`ErrorKind::DatabaseVersion`] when there is none or its schema is not this binary's.
    pub fn open_read_only(path: &Path, options: OpenOptions) -> Result<Self> {
        let connection = open::open_reader(path, options)?;
        Ok(Self {
            path: path.to_owned(),
            options,
            writer: None,
            readers: Mutex::new(vec![Handle::new(connection)?]),
            fence: Mutex::default(),
            stop: Mutex::default(),
            long_work: Arc::default(),
            pending: metrics::Pending::default(),
        })
    }

    /// Path of the database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it was opened.
    pub fn options(&self) -> OpenOptions {
        self.options
    }

    /// Binds all further writes to a held lock.
    pub fn set_fence(&self, fence: Option<Fence>) {
        *self.fence.lock().unwrap_or_else(PoisonError::into_inner) = fence;
    }

    /// Bounds what writes that nothing else stops wait once a stop is asked for.
    pub fn set_stop(&self, cancel: &Cancel) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(cancel.clone());
    }

    /// The fence that writes are bound to.
    pub fn fence(&self) -> Option<Fence> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Raises a counter with the next transaction that commits, whoever makes it: for what
    /// happens outside of transactions, such as requests.
    pub fn count(&self, which: metrics::Persisted, labels: &[&str], n: f64) {
        self.pending.add(which, labels, n);
    }

    /// Runs `work` in one IMMEDIATE transaction.
    ///
    /// # Errors
    /// Those of `work` and of SQLite, and [`ErrorKind::Fenced`] when the lock this process
    /// held is gone; in each case nothing is written.
    pub fn write<T>(&self, work: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        self.write_with(None, work)
    }

    /// Like [`Store::write`]; a statement that still runs some seconds after `cancel` was
    /// set is interrupted and the transaction rolled back.
    ///
    /// # Errors
    /// As [`Store::write`], and the reason for the stop.
    pub fn write_until<T>(&self, cancel: &Cancel, work: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        self.write_with(Some(cancel), work)
    }

    /// Like [`Store::write_until`], for the few statements that cannot be cut into short
    /// transactions: the lease of the app lock is extended before.
    ///
    /// # Errors
    /// As [`Store::write_until`].
    pub fn write_long<T>(&self, cancel: &Cancel, work: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        let lease_ms = i64::try_from(LONG_LEASE.as_millis()).unwrap_or(i64::MAX);
        // From here on the heartbeat writes the long lease too.
        self.long_work.lease_ms.store(lease_ms, Ordering::SeqCst);
        let out = self
            .write_until(cancel, |tx| match self.fence() {
                Some(fence) => lock::extend(tx, &fence, lease_ms),
                None => Ok(()),
            })
            .and_then(|()| self.write_until(cancel, work));
        if out.is_ok() {
            let now = i64::try_from(clock::since_boot().as_millis()).unwrap_or(i64::MAX);
            self.long_work.proven_at_ms.store(now, Ordering::SeqCst);
        }
        self.long_work.lease_ms.store(0, Ordering::SeqCst);
        out
    }

    /// Like [`Store::write`], with a patience of its own.
    fn write_within<T>(
        &self,
        patience: Patience<'_>,
        work: impl FnOnce(&WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transact(&mut self.writer_handle()?.connection, patience, work)
    }

    fn writer_handle(&self) -> Result<MutexGuard<'_, Handle>> {
        let writer = self.writer.as_ref().ok_or_else(|| {
            Error::internal("a write was asked of a database that is open for reading only")
        })?;
        Ok(writer.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn write_with<T>(
        &self,
        cancel: Option<&Cancel>,
        work: impl FnOnce(&WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut handle = self.writer_handle()?;
        handle.obey(cancel.cloned());
        let patience = Patience { most: None, cancel };
        let out = self.transact(&mut handle.connection, patience, work);
        handle.obey(None);
        out.map_err(|error| stopped(cancel, error))
    }

    fn transact<T>(
        &self,
        connection: &mut Connection,
        patience: Patience<'_>,
        work: impl FnOnce(&WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let begun = clock::since_boot();
        let fence = self.fence();
        // SQLite's own wait knows no stop: many short ones do what one long one would.
        loop {
            let left = self.most_patience(patience).saturating_sub(clock::since_boot().saturating_sub(begun));
            connection.busy_timeout(WAIT_SLICE.min(left))?;
            let busy = match connection.transaction_with_behavior(TransactionBehavior::Immediate) {
                Ok(tx) => return self.work_in(tx, fence.as_ref(), work),
                Err(error) => Error::from(error),
            };
            if busy.kind() != ErrorKind::DatabaseBusy {
                return Err(busy);
            }
            patience.cancel.map_or(Ok(()), Cancel::check)?;
            if left.is_zero() {
                return Err(lock::explain_busy(&self.path, fence.as_ref(), busy));
            }
        }
    }

    /// How long a wait for the write lock may last in all.
    fn most_patience(&self, patience: Patience<'_>) -> Duration {
        let usual = self.options.busy_timeout;
        let most = patience.most.map_or(usual, |most| most.min(usual));
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        match stop.as_ref().and_then(Cancel::stopped_for) {
            Some(since) => most.min(WAIT_AFTER_STOP.saturating_sub(since).max(WAIT_SLICE)),
            None => most,
        }
    }

    fn work_in<T>(
        &self,
        tx: rusqlite::Transaction<'_>,
        fence: Option<&Fence>,
        work: impl FnOnce(&WriteTx<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(fence) = fence {
            lock::check_fence(&tx, fence)?;
        }
        let write = WriteTx { read: ReadTx { connection: &tx } };
        let out = work(&write)?;
        let counted = self.pending.write(&write)?;
        fault::point("before-commit");
        tx.commit()?;
        self.pending.forget(counted);
        Ok(out)
    }

    /// Runs `work` on one consistent state. Writers do not wait for readers, nor readers for
    /// writers; a read must not be held open across network calls all the same, since it
    /// keeps the write-ahead log from being folded back.
    ///
    /// # Errors
    /// Those of `work` and of SQLite.
    pub fn read<T>(&self, work: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        self.read_with(None, work)
    }

    /// Like [`Store::read`]; interrupted when `cancel` is set.
    ///
    /// # Errors
    /// As [`Store::read`], and the reason for the stop.
    pub fn read_until<T>(&self, cancel: &Cancel, work: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        self.read_with(Some(cancel), work)
    }

    fn read_with<T>(
        &self,
        cancel: Option<&Cancel>,
        work: impl FnOnce(&ReadTx<'_>) -> Result<T>,
    ) -> Result<T> {
        let pooled = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut handle = match pooled {
            Some(handle) => handle,
            None => {
                let connection = open::open_reader(&self.path, self.options)?;
                open::map_file(&connection, self.writer.is_none())?;
                Handle::new(connection)?
            }
        };
        handle.obey(cancel.cloned());
        let out = handle
            .connection
            .transaction_with_behavior(TransactionBehavior::Deferred)
            .map_err(Error::from)
            .and_then(|tx| work(&ReadTx { connection: &tx }));
        handle.obey(None);
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        out.map_err(|error| stopped(cancel, error))
    }
}

/// An interrupted statement is reported as the stop that caused it.
fn stopped(cancel: Option<&Cancel>, error: Error) -> Error {
    if error.kind() == ErrorKind::Interrupted
        && let Some(reason) = cancel.and_then(Cancel::reason)
    {
        return reason.error();
    }
    error
}

#[cfg(test)]
mod tests;
