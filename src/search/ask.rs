//! Asking a service on behalf of a query: in little time, and not at all for a while when it
//! failed twice in a row. What is learned is kept for the next query.

use std::time::Duration;

use super::memory::Memory;
use super::stage::Status;
use crate::assist::Failed;
use crate::clock::Millis;
use crate::config::{QueryConfig, RerankConfig};
use crate::embed::breaker;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::store::Store;
use crate::store::embeddings::Circuit;

/// Services that a query may ask beside the embedder.
pub struct Assist<'a> {
    /// `[rerank]`
    pub rerank: &'a RerankConfig,
    /// `[query]`, for the token extractor.
    pub query: &'a QueryConfig,
    /// Environment variables, for tokens.
    pub vars: &'a dyn Fn(&str) -> Option<String>,
    /// Keeps what is learned about the services.
    pub memory: &'a dyn Memory,
}

impl std::fmt::Debug for Assist<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assist").finish_non_exhaustive()
    }
}

/// How asking ended.
pub(super) enum Outcome<T> {
    Done(T),
    Failed(Status, Error),
}

/// Asks, unless the service is left alone.
///
/// # Errors
/// Those of the database; what the service does wrong is told in the outcome.
pub(super) fn guarded<T>(
    store: &Store,
    assist: &Assist<'_>,
    name: &str,
    (now, timeout): (Millis, Duration),
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<Outcome<T>> {
    let circuit = assist.memory.circuit(store, name)?;
    if let Some(left) = breaker::closed_for(circuit.open_until, now) {
        let last = circuit.last_error.as_deref().unwrap_or("no answer");
        let error = Error::new(
            ErrorKind::Network,
            format!(
                "it failed {} times in a row and is left alone for another {} s; the last time: {last}",
                circuit.failures,
                (left + 999) / 1_000
            ),
        );
        return Ok(Outcome::Failed(Status::CircuitOpen, error));
    }
    match block_on(timeout, work)? {
        Ok(out) => {
            if circuit.failures > 0 {
                assist.memory.keep_circuit(name, &Circuit::default(), now);
            }
            Ok(Outcome::Done(out))
        }
        Err(failed) => {
            let status = if matches!(failed, Failed::Late(_)) { Status::Timeout } else { Status::Error };
            let is_outage = failed.is_outage();
            let error = failed.into_error();
            if is_outage {
                let (failures, open_until) = breaker::after_failure(circuit.failures, now);
                let circuit = Circuit { failures, open_until, last_error: Some(error.full_message()) };
                assist.memory.keep_circuit(name, &circuit, now);
            }
            Ok(Outcome::Failed(status, error))
        }
    }
}

/// Waits on a runtime of its own; the whole of it is over after `timeout`, looking the name
/// up included.
fn block_on<T>(
    timeout: Duration,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<std::result::Result<T, Failed>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| io_error("start waiting for a service", error))?;
    let out = runtime.block_on(async { tokio::time::timeout(timeout, work).await });
    runtime.shutdown_background();
    Ok(out.unwrap_or_else(|_| {
        let error =
            Error::new(ErrorKind::Network, format!("no answer within {:.1} s", timeout.as_secs_f64()));
        Err(Failed::Late(error))
    }))
}
