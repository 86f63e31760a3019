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

use crate::clock;
use crate::error::Result;
use crate::store::{Store, metrics, status};

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
