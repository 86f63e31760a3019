//! `lore lock`: who holds the app lock, and freeing it by hand.

use clap::Subcommand;

use super::App;
use crate::clock;
use crate::error::Result;
use crate::store::lock::{self, LockState};

/// Show or break the app lock.
#[derive(Debug, clap::Args)]
pub struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
}

#[derive(Debug, Subcommand)]
enum LockCommand {
    /// Show who holds the lock, since when, and the last heartbeat
    #[command(after_help = "Examples:\n  lore lock status\n  lore lock status --json | jq .data.owner")]
    Status,
    /// Free the lock of a holder that is named; its further writes are refused
    #[command(
        after_help = "Examples:\n  lore lock break --owner 1c5e6a2e-…   # the owner that `lore lock status` shows"
    )]
    Break {
        /// Owner of the lock as shown by `lore lock status`
        #[arg(long, value_name = "ID")]
        owner: String,
    },
}

/// Runs `lore lock`.
///
/// # Errors
/// Those of the database.
pub fn run(args: &LockArgs, app: &mut App) -> Result<()> {
    match &args.command {
        LockCommand::Status => {
            let state = app.open_read_only()?.read(lock::state)?;
            app.reply(&state, |out| {
                for line in describe(&state, clock::now_ms()) {
                    out.line(line)?;
                }
                Ok(())
            })
        }
        LockCommand::Break { owner } => {
            let broken = lock::break_lock(&app.open_existing()?, owner)?;
            app.reply(&broken, |out| {
                out.line(format!(
                    "The lock (token {}) is free. Its old holder's further writes are refused.",
                    broken.token
                ))
            })
        }
    }
}

/// Describes the lock in lines for people.
pub(super) fn describe(state: &LockState, now: i64) -> Vec<String> {
    let Some(owner) = &state.owner else {
        return vec!["free".to_owned()];
    };
    let seconds = |at: Option<i64>| at.map_or(0, |at| now.saturating_sub(at).max(0) / 1000);
    vec![
        format!(
            "held by job {}{} on {}{}",
            state.job.as_deref().unwrap_or("unknown"),
            state.run_id.map_or_else(String::new, |run| format!(" (run {run})")),
            state.process.host.as_deref().unwrap_or("an unknown host"),
            state.process.pid.map_or_else(String::new, |pid| format!(" pid {pid}")),
        ),
        format!(
            "since {} s, last heartbeat {} s ago, lease {} s, token {}",
            seconds(state.acquired_at),
            seconds(state.heartbeat_at),
            state.lease_ms / 1000,
            state.token
        ),
        format!("owner {owner}"),
    ]
}
