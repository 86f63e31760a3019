//! Metrics: read from the database, encoded as Prometheus text, given out three ways.
//!
//! The way of a value: [`store::metrics::snapshot`](crate::store::metrics::snapshot) reads,
//! [`samples`] decides which series exist and what they stand at, [`exposition`] encodes, and
//! `textfile`, `push` and `serve` hand the one text on. Nothing is counted in memory: every
//! way out shows the same values, also after the process that produced them is gone.

mod catalogue;
pub mod exposition;
pub mod push;
mod reference;
pub mod samples;
pub mod serve;
pub mod textfile;

#[cfg(test)]
mod tests;

pub use catalogue::{Kind, Metric};
pub use reference::markdown;
pub use samples::{Known, KnownGraph, Sample};

use std::sync::OnceLock;

use crate::clock;
use crate::config::Config;
use crate::error::Result;
use crate::store::{Store, metrics, status};

/// The jobs that the command line found. Set once by it: a step knows its own job only.
static JOBS: OnceLock<Vec<KnownGraph>> = OnceLock::new();

/// Remembers the jobs that are meant to run, for [`known`].
pub fn remember_jobs(graphs: Vec<KnownGraph>) {
    // Only tests run two commands in one process; the first one's jobs serve both.
    drop(JOBS.set(graphs));
}

/// What is meant to be seen, as far as it is known inside a run.
pub fn known(config: &Config) -> Known {
    Known {
        graphs: JOBS.get().cloned().unwrap_or_default(),
        sources: config.sources.keys().cloned().collect(),
    }
}

/// Reads the database and returns the exposition.
///
/// A database that cannot be read is a value too: then the exposition says so and holds
/// nothing else that depends on it.
///
/// # Errors
/// When the text cannot be made.
pub fn gather(open: impl FnOnce() -> Result<Store>, known: &Known) -> Result<String> {
    let read = open().and_then(|store| {
        let sizes = status::file_sizes(&store);
        let snapshot = store.read(|tx| metrics::snapshot(tx, clock::now_ms()))?;
        Ok((snapshot, sizes))
    });
    let samples = match read {
        Ok((snapshot, sizes)) => samples::of(&snapshot, sizes, known),
        Err(error) => {
            tracing::warn!(
                error.code = error.kind().code(),
                "the database cannot be read for metrics: {error}"
            );
            samples::unreadable()
        }
    };
    exposition::encode(&samples)
}
