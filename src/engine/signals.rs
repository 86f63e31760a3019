//! SIGINT and SIGTERM: the first asks for a stop, the second ends the process at once.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::cancel::{Cancel, StopReason};
use crate::error::{ErrorKind, Result, io_error};

/// Time from the first signal after which the process ends whatever still runs. Everything
/// that a run does is cut into pieces far shorter than this; the limit is for a piece that
/// hangs in the operating system.
const LAST_RESORT: Duration = Duration::from_secs(10);

/// Installs the handlers. Called before the lock is taken: a process that is number 1 of a
/// container has no default action for SIGTERM.
///
/// # Errors
/// When the handlers cannot be installed.
pub fn install(cancel: &Cancel) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| io_error("install signal handlers", error))?;
    let cancel = cancel.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut asked = false;
            for signal in signals.forever() {
                let (reason, kind) = if signal == SIGINT {
                    (StopReason::Interrupted, ErrorKind::Interrupted)
                } else {
                    (StopReason::Terminated, ErrorKind::Terminated)
                };
                let code = i32::from(kind.exit_code());
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
