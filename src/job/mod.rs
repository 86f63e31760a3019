//! Jobs: what a job file says, checked and resolved.
//!
//! A *job* is a graph of *steps*; each step has a *kind* (`ingest`, `regenerate-docs`, …)
//! and the parameters of that kind. Everything here is pure: text in, [`Job`] or
//! [`Diagnostic`]s out; what to do with a step is decided by [`state`] from outcomes that
//! the runner reports. The one thing taken from elsewhere is the list of step kinds, which
//! is handed in.
//!
//! Job files are TOML 1.1: inline tables may span lines and end with a comma.

mod bounds;
pub mod cron;
pub mod graph;
mod hash;
pub mod keys;
mod parse;
pub mod schedule;
pub mod schema;
pub mod shipped;
pub mod state;
pub mod when;
mod with;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::backoff::Backoff;
use crate::diagnostic::Diagnostic;
use crate::engine::step::{ErasedStep, StepDef};
use crate::error::{Error, Result};

pub use when::When;

/// A job file, resolved: defaults filled in, names checked, no cycle.
#[derive(Debug, Clone)]
pub struct Job {
    /// Name of the job; of its file when the file names none.
    pub name: String,
    /// What it is for, one line.
    pub description: Option<String>,
    /// When it is meant to be started, five cron fields. Documentation: lore starts nothing.
    pub schedule: Option<String>,
    /// Time that a run may take, the wait for the lock not included.
    pub timeout: Option<Duration>,
    /// Steps that may run at once, 1 or more.
    pub max_parallel: usize,
    /// Whether every run of this job is a full one, as with `--full`.
    pub full: bool,
    /// The steps in the order of the file.
    pub steps: Vec<JobStep>,
    /// SHA-256 over everything that decides what a run does, lower-case hex. Comments,
    /// formatting, description and schedule do not change it; overrides do.
    pub hash: String,
    /// Where the job was found.
    pub origin: Origin,
}

/// One step of a job.
#[derive(Clone)]
pub struct JobStep {
    /// Name in this job.
    pub id: String,
    /// Name of the step kind.
    pub kind: &'static str,
    /// Steps that have to end first, in the order of the file.
    pub needs: Vec<String>,
    /// Whether it runs, given how its needs ended.
    pub when: When,
    /// Time that one attempt may take.
    pub timeout: Option<Duration>,
    /// How often and how fast it is tried again after a transient failure.
    pub retry: Retry,
    /// Whether the run goes on and succeeds although this step failed.
    pub allow_failure: bool,
    /// What does the work.
    pub params: Arc<dyn ErasedStep>,
}

impl fmt::Debug for JobStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobStep")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("needs", &self.needs)
            .field("when", &self.when)
            .field("timeout", &self.timeout)
            .field("retry", &self.retry)
            .field("allow_failure", &self.allow_failure)
            .field("params", &self.params.params())
            .finish()
    }
}

/// How a step is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts altogether, 1 or more; 1 means no retry.
    pub max_attempts: u32,
    /// Waits between attempts.
    pub backoff: Backoff,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            backoff: Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) },
        }
    }
}

/// Where a job was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Compiled into the binary.
    BuiltIn,
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// `--set STEP.KEY=VALUE`: a parameter of one step, given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The argument as it was given.
    pub text: String,
    /// The step that it is about.
    pub step: String,
    /// Path of the key in the step's `with`, one element unless the key has dots.
    pub key: Vec<String>,
    /// The value: TOML, or else plain text.
    pub value: String,
}

impl std::str::FromStr for Override {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("--set {text}: not of the form STEP.KEY=VALUE"))
                .hint("for example --set fetch-discussions.limit=50")
        };
        let (path, value) = text.split_once('=').ok_or_else(bad)?;
        let (step, key) = path.split_once('.').ok_or_else(bad)?;
        let key: Vec<String> = key.split('.').map(|part| part.trim().to_owned()).collect();
        let step = step.trim();
        if step.is_empty() || key.iter().any(String::is_empty) {
            return Err(bad());
        }
        Ok(Self { text: text.to_owned(), step: step.to_owned(), key, value: value.trim().to_owned() })
    }
}

/// What checking a job file found.
#[derive(Debug)]
pub struct Checked {
    /// The job, when there is no error.
    pub job: Option<Job>,
    /// Errors and warnings, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

/// Checks the text of a job file. `file` is shown in diagnostics and gives the job its name
/// when the text does not.
pub fn check(file: &str, text: &str, kinds: &[StepDef], overrides: &[Override]) -> Checked {
    parse::check(file, text, kinds, overrides)
}

/// Reads the text of a job file; warnings are dropped.
///
/// # Errors
/// Every problem of the text, warnings included, when at least one is an error.
pub fn parse(
    file: &str,
    text: &str,
    kinds: &[StepDef],
    overrides: &[Override],
) -> std::result::Result<Job, Vec<Diagnostic>> {
    let checked = check(file, text, kinds, overrides);
    checked.job.ok_or(checked.diagnostics)
}

impl Job {
    /// Finds a step by its name.
    pub fn step(&self, id: &str) -> Option<&JobStep> {
        self.steps.iter().find(|step| step.id == id)
    }
}
