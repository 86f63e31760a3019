//! The stages of a query: what each took and how it ended.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::traffic::StatsView;

/// How a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Ok,
    /// Done in part.
    Degraded,
    /// Given up after its time.
    Timeout,
    /// Failed; the answer does without it.
    Error,
    /// Not tried: it failed too often a short while ago.
    CircuitOpen,
    /// Not configured or not available.
    Disabled,
    /// Nothing to do for this query.
    Skipped,
}

impl Status {
    /// Whether the answer does without something that was wanted of the stage.
    pub const fn is_failure(self) -> bool {
        match self {
            Self::Degraded | Self::Timeout | Self::Error | Self::CircuitOpen => true,
            Self::Ok | Self::Disabled | Self::Skipped => false,
        }
    }

    /// Name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::CircuitOpen => "circuit_open",
            Self::Disabled => "disabled",
            Self::Skipped => "skipped",
        }
    }
}

/// A stage that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Name.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What it took.
    pub elapsed: Duration,
    /// Requests that it sent.
    pub requests: StatsView,
}

/// Collects the stages of one query.
#[derive(Debug, Clone, Default)]
pub struct Stages(Vec<Stage>);

impl Stages {
    /// Runs a stage. `work` may lower the status it is given, [`Status::Ok`].
    ///
    /// # Errors
    /// Those of `work`.
    pub fn time<T>(&mut self, name: &'static str, work: impl FnOnce(&mut Status) -> Result<T>) -> Result<T> {
        let started = Instant::now();
        let mut status = Status::Ok;
        let out = work(&mut status)?;
        let elapsed = started.elapsed();
        // A stage that goes deeper is still one stage.
        match self.0.iter_mut().find(|stage| stage.name == name) {
            Some(stage) => stage.elapsed += elapsed,
            None => self.0.push(Stage { name, status, elapsed, requests: StatsView::default() }),
        }
        Ok(out)
    }

    /// Notes a stage that did not run.
    pub fn note(&mut self, name: &'static str, status: Status) {
        self.0.push(Stage { name, status, elapsed: Duration::ZERO, requests: StatsView::default() });
    }

    /// Adds to a stage what was done for it before.
    pub fn add(&mut self, name: &'static str, elapsed: Duration) {
        if let Some(stage) = self.0.iter_mut().find(|stage| stage.name == name) {
            stage.elapsed += elapsed;
        }
    }

    /// Notes the requests that a stage sent.
    pub fn sent(&mut self, name: &'static str, requests: StatsView) {
        if let Some(stage) = self.0.iter_mut().find(|stage| stage.name == name) {
            stage.requests = requests;
        }
    }

    /// The stages in their order.
    pub fn into_vec(self) -> Vec<Stage> {
        self.0
    }
}
