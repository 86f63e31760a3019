//! What a step may touch.

use std::future::Future;
use std::time::{Duration, Instant};

use super::cancel::Cancel;
use super::progress::Progress;
use super::shared::Shared;
use crate::clock::{self, Millis};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::fault;
use crate::store::{ReadTx, Store, WriteTx};

/// What the command line asked of the whole run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunOptions {
    /// Reset cursors and re-render everything.
    pub full: bool,
    /// Process quarantined and backed-off entries now.
    pub retry_failed: bool,
    /// Delete however much is gone upstream.
    #[serde(default)]
    pub allow_mass_delete: bool,
}

/// Everything that a running step is given.
pub struct StepCtx<'a> {
    /// The database.
    pub store: &'a Store,
    /// The configuration.
    pub config: &'a Config,
    /// Environment variables, for secrets.
    pub vars: &'a (dyn Fn(&str) -> Option<String> + Sync),
    /// Runs asynchronous work (HTTP).
    pub runtime: tokio::runtime::Handle,
    /// When to stop, and why.
    pub cancel: Cancel,
    /// End of this attempt.
    pub deadline: Option<Instant>,
    /// What the command line asked of the run.
    pub options: RunOptions,
    /// Where progress is shown.
    pub progress: Progress,
    /// What the steps of the run use together.
    pub shared: Shared,
}

impl StepCtx<'_> {
    /// Returns an error when the step is to stop. Called between units of work.
    ///
    /// # Errors
    /// The reason for the stop.
    pub fn check(&self) -> Result<()> {
        self.cancel.check()
    }

    /// The wall clock.
    pub fn now(&self) -> Millis {
        clock::now_ms()
    }

    /// Runs one short write transaction: IMMEDIATE, with the fencing token checked inside.
    ///
    /// # Errors
    /// Those of `work`, of the stop, of the lock and of SQLite; then nothing was written.
    pub fn write<T>(&self, work: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        self.check()?;
        let out = self.store.write_until(&self.cancel, work)?;
        fault::point("after-commit");
        Ok(out)
    }

    /// Like [`StepCtx::write`], for the few statements that cannot be cut, such as building
    /// the whole index: the lease is extended before, since no heartbeat can be written
    /// while they run.
    ///
    /// # Errors
    /// As [`StepCtx::write`].
    pub fn write_long<T>(&self, work: impl FnOnce(&WriteTx<'_>) -> Result<T>) -> Result<T> {
        self.check()?;
        let out = self.store.write_long(&self.cancel, work)?;
        fault::point("after-commit");
        Ok(out)
    }

    /// Reads one consistent state.
    ///
    /// # Errors
    /// Those of `work` and of SQLite.
    pub fn read<T>(&self, work: impl FnOnce(&ReadTx<'_>) -> Result<T>) -> Result<T> {
        self.check()?;
        self.store.read_until(&self.cancel, work)
    }

    /// Runs asynchronous work until it ends or the step is to stop.
    ///
    /// # Errors
    /// Those of `work`, or the reason for the stop.
    pub fn block_on<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.check()?;
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(self.check().err().unwrap_or_else(|| Error::internal("stopped without a reason"))),
                out = work => out,
            }
        })
    }

    /// Waits, unless the step is to stop or its deadline leaves no room.
    ///
    /// # Errors
    /// The reason for the stop, or [`ErrorKind::RateLimited`] when the wait would end after
    /// the deadline.
    pub fn wait(&self, wait: Duration) -> Result<()> {
        if self.deadline.is_some_and(|deadline| Instant::now() + wait >= deadline) {
            return Err(Error::new(
                ErrorKind::RateLimited,
                format!("a wait of {:.0} s would end after the step's deadline", wait.as_secs_f64()),
            ));
        }
        self.block_on(async {
            tokio::time::sleep(wait).await;
            Ok(())
        })
    }
}
