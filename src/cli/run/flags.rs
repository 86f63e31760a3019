//! Options of `lore run`.

use std::time::Duration;

use crate::duration::duration_text as duration;
use crate::engine::ctx::RunOptions;
use crate::job::{Job, Override};

/// Options of `lore run`.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct RunFlags {
    /// Run these steps only
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run these steps and everything that needs them
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub from: Vec<String>,
    /// Leave these steps out
    #[arg(long, value_name = "STEP", value_delimiter = ',')]
    pub skip: Vec<String>,
    /// Set a parameter of a step; the value is TOML, else text
    #[arg(long, value_name = "STEP.KEY=VALUE")]
    pub set: Vec<Override>,
    /// Reset cursors and render everything again
    #[arg(long)]
    pub full: bool,
    /// Process entries now that wait after a failure or are quarantined
    #[arg(long)]
    pub retry_failed: bool,
    /// Delete however many items are gone upstream (`reconcile` stops above 10 that are a fifth of a project)
    #[arg(long)]
    pub allow_mass_delete: bool,
    /// Continue a run that did not succeed: the last one of this job, or run N; steps that succeeded are not run again, unless one that they need is
    #[arg(long, value_name = "RUN", num_args = 0..=1, default_missing_value = "last")]
    pub resume: Option<String>,
    /// With --resume: continue although the job changed meanwhile
    #[arg(long, requires = "resume")]
    pub force: bool,
    /// Show what would run and why; change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// What to do when another run holds the lock
    #[arg(long, value_enum, default_value_t = LockedAction::Fail, value_name = "ACTION")]
    pub if_locked: LockedAction,
    /// How long `--if-locked wait` waits
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "TIME")]
    pub lock_wait: DurationArg,
    /// Do nothing when the job succeeded within this time
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub skip_if_fresh: Option<DurationArg>,
    /// Exit with 21 when items keep failing or a failure was allowed
    #[arg(long)]
    pub strict: bool,
}

/// A duration of the command line.
#[derive(Debug, Clone, Copy, Default)]
pub struct DurationArg(pub Duration);

fn parse_duration(text: &str) -> std::result::Result<DurationArg, String> {
    duration::parse(text).map(DurationArg).ok_or_else(|| format!("expected {}", duration::FORM))
}

/// What to do when the lock is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LockedAction {
    /// Wait for it
    Wait,
    /// Exit with 75
    #[default]
    Fail,
    /// Exit with 0
    Skip,
}

impl RunFlags {
    /// What the flags and the job itself ask of the whole run.
    pub(super) fn run_options(&self, job: &Job) -> RunOptions {
        RunOptions {
            full: self.full || job.full,
            retry_failed: self.retry_failed,
            allow_mass_delete: self.allow_mass_delete,
        }
    }
}
