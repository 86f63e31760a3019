//! What lore tells about itself: log lines, traces, metrics, pings. None of it changes how a
//! run ends.

mod json_lines;
pub mod metrics;
pub mod notify;
pub mod traces;

use std::io::IsTerminal;

use tracing_subscriber::layer::{Layer as _, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry};

pub use json_lines::set_trace_id;

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
    let filter = EnvFilter::try_new(with_quiet_exporters(level)).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines: Box<dyn tracing_subscriber::Layer<_> + Send + Sync> = match form {
        LogForm::Human => tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        LogForm::Json => json_lines::JsonLines::new(Box::new(std::io::stderr())).boxed(),
    };
    // Each with a filter of its own: spans of a trace do not depend on what is logged.
    let subscriber = Registry::default().with(traces::layer()).with(lines.with_filter(filter));
    // Only tests run two commands in one process; the first subscriber serves both.
    if subscriber.try_init().is_err() {
        tracing::debug!("logging was started before");
    }
}

/// The exporters tell of every start and stop at `info`: only what they fail at is of use.
fn with_quiet_exporters(level: &str) -> String {
    if !matches!(level, "warn" | "info" | "info,lore=debug") {
        return level.to_owned();
    }
    let targets = ["opentelemetry", "opentelemetry_sdk", "opentelemetry_otlp", "opentelemetry_prometheus"];
    targets.iter().fold(level.to_owned(), |filter, target| format!("{filter},{target}=warn"))
}
