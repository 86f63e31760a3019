//! The meaning of a query: its vector, made by the service that made the index.
//!
//! The service has little time, and is left alone for a while when it fails twice in a row.
//! What is learned is kept for the next query, as far as it can be: a query never fails because
//! nothing can be remembered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::like::Like;
use super::memory::Memory;
use super::rank::Meant;
use super::stage::Status;
use crate::clock::Millis;
use crate::config::{EmbeddingConfig, EmbeddingProvider};
use crate::content::filter::Bitset;
use crate::embed::identity::{Target, canonical_model};
use crate::embed::{Embedder, breaker};
use crate::error::{Error, ErrorKind, Result};
use crate::store::embeddings::{self, Circuit, Identity};
use crate::store::knn;
use crate::store::{ReadTx, Store};
use crate::traffic::StatsView;

/// Vectors of an item that others are compared with: its title and its first passages.
const OWN_VECTORS: i64 = 4;

/// Relevance below which a passage has nothing to do with the query.
pub(super) const UNRELATED: f64 = 0.1;

/// How queries are embedded.
pub struct Service<'a> {
    /// `[embedding]`
    pub config: &'a EmbeddingConfig,
    /// Environment variables, for tokens.
    pub vars: &'a dyn Fn(&str) -> Option<String>,
    /// Keeps what is learned about the service.
    pub memory: &'a dyn Memory,
}

impl std::fmt::Debug for Service<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Vectors to search with.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Whose vectors they are to be compared with.
    pub(super) identity: Identity,
    /// One for a text, several for an item.
    pub(super) vectors: Vec<Vec<f32>>,
}

/// What became of a query's meaning.
#[derive(Debug)]
pub(super) struct Meaning {
    pub(super) found: Option<Found>,
    /// How the attempt ended.
    pub(super) status: Status,
    /// Why there are no vectors.
    pub(super) error: Option<Error>,
    /// What it took.
    pub(super) elapsed: Duration,
    /// Requests that were sent for it.
    pub(super) requests: StatsView,
}

impl Meaning {
    /// No vectors, and nothing to complain about.
    pub(super) fn none(status: Status) -> Self {
        Self { found: None, status, error: None, elapsed: Duration::ZERO, requests: StatsView::default() }
    }

    fn failed(status: Status, error: Error, started: Instant) -> Self {
        Self { error: Some(error), elapsed: started.elapsed(), ..Self::none(status) }
    }

    fn found(identity: Identity, vectors: Vec<Vec<f32>>, started: Instant) -> Self {
        let found = Some(Found { identity, vectors });
        Self { found, elapsed: started.elapsed(), ..Self::none(Status::Ok) }
    }

    /// Whether the index is still the one that the vectors were made for.
    ///
    /// # Errors
    /// SQLite's.
    pub(super) fn is_current(&self, tx: &ReadTx<'_>) -> Result<bool> {
        let Some(found) = &self.found else { return Ok(true) };
        Ok(embeddings::active(tx)?.is_some_and(|active| active.id == found.identity.id))
    }
}

/// There is no index to search by meaning.
pub(super) fn not_embedded() -> Error {
    Error::new(ErrorKind::EmbeddingFailed, "no embeddings are stored: nothing can be found by meaning")
        .hint("run `lore embed` first")
}

/// The vectors of a stored item.
///
/// # Errors
/// SQLite's.
pub(super) fn of_item(store: &Store, like: &Like) -> Result<Meaning> {
    let started = Instant::now();
    store.read(|tx| {
        let Some(identity) = embeddings::active(tx)? else { return Ok(Meaning::none(Status::Disabled)) };
        let vectors = knn::vectors_of(tx, &identity, like.document_id, OWN_VECTORS)?;
        if vectors.is_empty() {
            let error = Error::new(ErrorKind::EmbeddingFailed, format!("{} is not embedded yet", like.name))
                .hint("run `lore embed`");
            return Ok(Meaning::failed(Status::Disabled, error, started));
        }
        Ok(Meaning::found(identity, vectors, started))
    })
}

/// The vector of a text.
///
/// # Errors
/// Those of the database; a service that fails is told in [`Meaning::error`].
pub(super) fn of_query(store: &Store, service: &Service<'_>, text: &str, now: Millis) -> Result<Meaning> {
    let started = Instant::now();
    let (identity, cached) = store.read(|tx| {
        let identity = embeddings::active(tx)?;
        let cached = match &identity {
            Some(identity) => embeddings::cached_query(tx, identity.id, text)?,
            None => None,
        };
        Ok((identity, cached))
    })?;
    let Some(identity) = identity else { return Ok(Meaning::none(Status::Disabled)) };
    if let Some(vector) = cached {
        return Ok(Meaning::found(identity, vec![vector], started));
    }
    let embedder = match embedder(&identity, service) {
        Ok(embedder) => embedder,
        Err(error) => return Ok(Meaning::failed(Status::Error, rebuild(error, &identity, service), started)),
    };
    let Some(endpoint) = embedder.endpoint() else {
        // In this process: nothing to remember that would be dearer than remembering.
        return Ok(match block_on(embedder.embed_query(text)) {
            Ok(vector) => Meaning::found(identity, vec![vector], started),
            Err(error) => Meaning::failed(Status::Error, rebuild(error, &identity, service), started),
        });
    };
    let circuit_name = breaker::name(&endpoint);
    let circuit = service.memory.circuit(store, &circuit_name)?;
    if let Some(left) = breaker::closed_for(circuit.open_until, now) {
        return Ok(Meaning::failed(Status::CircuitOpen, left_alone(&circuit, left), started));
    }
    let asked = Instant::now();
    let asked_for = block_on(embedder.embed_query(text));
    let requests = embedder.stats();
    let meaning = match asked_for {
        Ok(vector) => {
            if circuit.failures > 0 {
                service.memory.keep_circuit(&circuit_name, &Circuit::default(), now);
            }
            service.memory.keep_vector(identity.id, text, &vector, now);
            Meaning::found(identity, vec![vector], started)
        }
        Err(error) => {
            let is_late = asked.elapsed() >= service.config.query_timeout;
            // A service that answers, if not as it should, need not be left alone.
            if error.kind() != ErrorKind::EmbeddingFailed {
                let (failures, open_until) = breaker::after_failure(circuit.failures, now);
                let circuit = Circuit { failures, open_until, last_error: Some(error.full_message()) };
                service.memory.keep_circuit(&circuit_name, &circuit, now);
            }
            let status = if is_late { Status::Timeout } else { Status::Error };
            Meaning::failed(status, rebuild(error, &identity, service), started)
        }
    };
    Ok(Meaning { requests, ..meaning })
}

/// VECTOR: the documents nearest to any of the vectors, and whether there are no further ones.
///
/// # Errors
/// Those of [`knn::nearest`].
pub(super) fn nearest(
    tx: &ReadTx<'_>,
    found: &Found,
    allowed: Option<&Bitset>,
    depth: usize,
) -> Result<(Vec<Meant>, bool)> {
    let mut best: BTreeMap<i64, Meant> = BTreeMap::new();
    let mut exhausted = true;
    for vector in &found.vectors {
        let background = knn::background(tx, &found.identity, vector)?;
        let query = knn::NearestQuery {
            identity: &found.identity,
            vector,
            allowed: allowed.map(Bitset::as_bytes),
            limit: depth,
        };
        let neighbours = knn::nearest(tx, &query)?;
        exhausted &= neighbours.hits.len() < depth;
        for hit in neighbours.hits {
            let relevance = (hit.similarity - background) / (1.0 - background);
            if relevance < UNRELATED {
                exhausted = true;
                break;
            }
            let meant = Meant {
                id: hit.document_id,
                chunk_id: hit.chunk_id,
                cosine: hit.similarity,
                relevance,
                score: relevance,
            };
            let seen = best.entry(hit.document_id).or_insert(meant);
            if relevance > seen.relevance {
                *seen = meant;
            }
        }
    }
    let mut hits: Vec<Meant> = best.into_values().collect();
    hits.sort_by(|a, b| b.relevance.total_cmp(&a.relevance).then(a.id.cmp(&b.id)));
    exhausted &= hits.len() <= depth;
    hits.truncate(depth);
    Ok((hits, exhausted))
}

/// The embedder that makes vectors as those of the index were made: the configured service when
/// it is the one that made them, or when nothing but its address changed; else the one that did.
/// A service may answer for a model that it does not have, and what it answers would be compared
/// with vectors of another kind.
fn embedder(identity: &Identity, service: &Service<'_>) -> Result<Embedder> {
    let provider = EmbeddingProvider::parse(&identity.provider).ok_or_else(|| {
        Error::new(
            ErrorKind::EmbeddingFailed,
            format!("the index was made by {:?}, which this binary does not know", identity.provider),
        )
    })?;
    let at = |url: Option<&str>| {
        let target = Target::of_index(
            provider,
            &identity.model,
            identity.dims,
            url,
            &identity.query_prefix,
            &identity.document_prefix,
        );
        Embedder::for_target(target, service.config, service.vars)
    };
    if provider == service.config.provider {
        let configured = at(service.config.url.as_deref())?;
        let made_there = identity.endpoint.is_none() || configured.endpoint() == identity.endpoint;
        if made_there || names_model_of(service, identity) {
            return Ok(configured);
        }
    }
    at(identity.endpoint.as_deref())
}

/// Whether the configuration names the model of an index, or leaves it to the service.
fn names_model_of(service: &Service<'_>, identity: &Identity) -> bool {
    let Ok(wanted) = Target::of_config(service.config) else { return false };
    let canonical = |model| canonical_model(wanted.provider, model);
    wanted.provider.as_str() == identity.provider
        && (wanted.model.is_empty() || canonical(&wanted.model) == canonical(&identity.model))
}

/// Says what would help when the configuration names another model than the index has.
fn rebuild(error: Error, identity: &Identity, service: &Service<'_>) -> Error {
    let Ok(wanted) = Target::of_config(service.config) else { return error };
    if names_model_of(service, identity) {
        return error;
    }
    error.hint(format!(
        "the index was made with {} of {}, configured is {} of {}: `lore embed` builds an index for it",
        identity.model,
        identity.provider,
        wanted.model,
        wanted.provider.as_str()
    ))
}

fn left_alone(circuit: &Circuit, left: Millis) -> Error {
    let last = circuit.last_error.as_deref().unwrap_or("no answer");
    Error::new(
        ErrorKind::EmbeddingUnavailable,
        format!(
            "the embedding service failed {} times in a row and is left alone for another {} s; the last time: {last}",
            circuit.failures,
            (left + 999) / 1_000
        ),
    )
    .hint("`lore query --mode lexical` answers without it")
}

/// Waits for the service on a runtime of the query's own.
fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| crate::error::io_error("start waiting for the embedding service", error))?;
    let out = runtime.block_on(work);
    // An answer that is still under way on another thread is not waited for.
    runtime.shutdown_background();
    out
}

#[cfg(test)]
mod tests;
