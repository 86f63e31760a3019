//! SIGINT, SIGTERM and SIGHUP: the first asks for a stop, the second ends the process at once.

use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::cancel::{Cancel, StopReason};
use crate::error::{Result, io_error};

/// Time from the first signal after which the process ends whatever still runs. Everything
/// that a run does is cut into pieces far shorter than this; the limit is for a piece that
/// hangs in the operating system.
const LAST_RESORT: Duration = Duration::from_millis(9_500);

/// Installs the handlers. Called before the lock is taken: a process that is number 1 of a
/// container has no default action for SIGTERM.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn install(cancel: &Cancel) -> Result<()> {
    let mut wanted = vec![SIGINT, SIGTERM];
    // Who starts us with `nohup` wants the end of the terminal to change nothing.
    if !is_ignored(SIGHUP, &std::fs::read_to_string("/proc/self/status").unwrap_or_default()) {
        wanted.push(SIGHUP);
    }
    let mut signals = Signals::new(wanted).map_err(|error| io_error("install signal handlers", error))?;
    let cancel = cancel.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                let reason = match signal {
                    SIGINT => StopReason::Interrupted,
                    SIGHUP => StopReason::HungUp,
                    _ => StopReason::Terminated,
                };
                let code = i32::from(reason.error().kind().exit_code());
                if asked {
                    signal_hook::low_level::exit(code);
                }
                asked = true;
                tracing::warn!(
                    signal,
                    "stopping: the batch under way ends or is rolled back; a second signal stops at once"
                );
                cancel.cancel(reason);
                start_last_resort(code);
            }
        })
        .map_err(|error| io_error("start the signal thread", error))?;
    Ok(())
}

/// Whether a process ignores a signal, by its status as Linux shows it.
fn is_ignored(signal: std::ffi::c_int, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

fn start_last_resort(code: i32) {
    let started = std::thread::Builder::new().name("last-resort".to_owned()).spawn(move || {
        let begun = std::time::Instant::now();
        while begun.elapsed() < LAST_RESORT {
            std::thread::park_timeout(LAST_RESORT.saturating_sub(begun.elapsed()));
        }
        signal_hook::low_level::exit(code);
    });
    if let Err(error) = started {
        tracing::error!("start the last-resort thread: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_seen_in_the_status() {
        let status = "Name:\tlore\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(SIGHUP, status));
        assert!(!is_ignored(SIGTERM, status));
        assert!(!is_ignored(SIGHUP, ""), "where nothing tells it, it is not");
    }
}
