//! Logging: one line per event on standard error, for people or as JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// Starts logging to standard error. `level` is a filter such as `info` or `lore=debug`.
///
/// A second call changes nothing: the first one wins.
pub fn start_logging(form: LogForm, level: &str) {
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    let started = match form {
        LogForm::Human => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .with_writer(std::io::stderr)
                    .with_target(false)
                    .with_ansi(std::io::stderr().is_terminal()),
            )
            .try_init(),
        LogForm::Json => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .json()
                    .with_writer(std::io::stderr)
                    .with_current_span(false)
                    .with_span_list(true),
            )
            .try_init(),
    };
    // Only tests run two commands in one process; the first subscriber serves both.
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
