//! Stopping: one token per run and one per step attempt, with the reason for the stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::fault;

/// Why work is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StopReason {
    /// SIGINT.
    Interrupted = 1,
    /// SIGTERM.
    Terminated = 2,
    /// The attempt's own timeout ran out.
    StepTimeout = 3,
    /// The run's timeout ran out.
    RunTimeout = 4,
    /// The app lock is lost, or about to be.
    LockLost = 5,
    /// Somebody asked for it with `lore runs cancel`.
    Cancelled = 6,
    /// Another step failed and the run does not go on.
    RunFailed = 7,
    /// The database file is no longer the one that was opened.
    DatabaseReplaced = 8,
    /// SIGHUP: the terminal is gone.
    HungUp = 9,
}

impl StopReason {
    fn from_code(code: u8) -> Option<Self> {
        [
            Self::Interrupted,
            Self::Terminated,
            Self::StepTimeout,
            Self::RunTimeout,
            Self::LockLost,
            Self::Cancelled,
            Self::RunFailed,
            Self::DatabaseReplaced,
            Self::HungUp,
        ]
        .into_iter()
        .find(|reason| *reason as u8 == code)
    }

    /// The error that a stopped step returns.
    pub fn error(self) -> Error {
        match self {
            Self::Interrupted => Error::new(ErrorKind::Interrupted, "interrupted (SIGINT)"),
            Self::Terminated => Error::new(ErrorKind::Terminated, "terminated (SIGTERM)"),
            Self::HungUp => Error::new(ErrorKind::Terminated, "terminated (SIGHUP)"),
            Self::StepTimeout => Error::new(ErrorKind::RunFailed, "the step's timeout ran out"),
            Self::RunTimeout => Error::new(ErrorKind::RunFailed, "the run's timeout ran out"),
            Self::LockLost => {
                Error::new(ErrorKind::Fenced, "the app lock is lost: another run may have taken it")
            }
            Self::DatabaseReplaced => {
                Error::new(ErrorKind::Fenced, "the database file was replaced while the run was under way")
            }
            Self::Cancelled => Error::new(ErrorKind::RunFailed, "cancelled on request"),
            Self::RunFailed => Error::new(ErrorKind::RunFailed, "stopped because another step failed"),
        }
    }
}

/// A token that is shared by everything that has to stop together. A child stops with its
/// parent; the parent does not stop with a child.
#[derive(Debug, Clone)]
pub struct Cancel {
    own: Arc<State>,
    parent: Option<Arc<State>>,
    token: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    reason: AtomicU8,
    /// Milliseconds since boot at which the stop was asked for.
    since_boot_ms: AtomicI64,
}

impl Default for Cancel {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancel {
    /// Makes a token that nobody has cancelled.
    pub fn new() -> Self {
        Self { own: Arc::default(), parent: None, token: CancellationToken::new() }
    }

    /// Makes a child: it stops with `self`, or alone.
    pub fn child(&self) -> Self {
        Self { own: Arc::default(), parent: Some(Arc::clone(&self.own)), token: self.token.child_token() }
    }

    /// Asks for a stop. The first reason stays.
    pub fn cancel(&self, reason: StopReason) {
        let now = i64::try_from(clock::since_boot().as_millis()).unwrap_or(i64::MAX);
        if self.own.reason.compare_exchange(0, reason as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.own.since_boot_ms.store(now, Ordering::SeqCst);
        }
        self.token.cancel();
    }

    /// Returns the reason when a stop was asked for.
    pub fn reason(&self) -> Option<StopReason> {
        StopReason::from_code(self.own.reason.load(Ordering::SeqCst)).or_else(|| {
            let parent = self.parent.as_ref()?;
            StopReason::from_code(parent.reason.load(Ordering::SeqCst))
        })
    }

    /// Returns the stop's error when a stop was asked for.
    ///
    /// # Errors
    /// That of [`StopReason::error`].
    pub fn check(&self) -> Result<()> {
        if self.parent.is_some() {
            // Only in steps: each look at the signal is a place where a test can hold one.
            fault::held_until("check", || self.reason().is_some());
        }
        self.reason().map_or(Ok(()), |reason| Err(reason.error()))
    }

    /// How long ago a stop was asked for, when one was.
    pub fn stopped_for(&self) -> Option<Duration> {
        self.reason()?;
        let asked = [Some(&self.own), self.parent.as_ref()]
            .into_iter()
            .flatten()
            .map(|state| state.since_boot_ms.load(Ordering::SeqCst))
            .filter(|at| *at > 0)
            .min();
        // Between the reason and its time there is a moment.
        let now = i64::try_from(clock::since_boot().as_millis()).unwrap_or(i64::MAX);
        let ago = asked.map_or(0, |at| now.saturating_sub(at));
        Some(Duration::from_millis(u64::try_from(ago).unwrap_or(0)))
    }

    /// Whether running SQL is to be interrupted: at once when the lock is lost or the database
    /// is another one, otherwise after `grace`, so that a short transaction can end.
    pub fn is_overdue(&self, grace: Duration) -> bool {
        let Some(reason) = self.reason() else { return false };
        if matches!(reason, StopReason::LockLost | StopReason::DatabaseReplaced) {
            return true;
        }
        self.stopped_for().is_some_and(|since| since > grace)
    }

    /// Waits until a stop is asked for.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_stops_with_its_parent_and_not_the_other_way() {
        let run = Cancel::new();
        let (left, right) = (run.child(), run.child());
        left.cancel(StopReason::StepTimeout);
        assert_eq!(left.reason(), Some(StopReason::StepTimeout));
        assert_eq!(run.reason(), None);
        assert_eq!(right.reason(), None);
        run.cancel(StopReason::Terminated);
        assert_eq!(right.reason(), Some(StopReason::Terminated));
        assert_eq!(right.check().unwrap_err().kind(), ErrorKind::Terminated);
        assert_eq!(left.reason(), Some(StopReason::StepTimeout), "the first reason stays");
    }

    #[test]
    fn sql_is_interrupted_only_after_the_grace() {
        let run = Cancel::new();
        assert!(!run.is_overdue(Duration::ZERO));
        run.cancel(StopReason::Terminated);
        assert!(!run.is_overdue(Duration::from_secs(60)));
        let lost = Cancel::new();
        lost.cancel(StopReason::LockLost);
        assert!(lost.is_overdue(Duration::from_secs(60)));
    }
}
