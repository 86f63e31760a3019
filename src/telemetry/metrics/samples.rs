//! Decides which series there are and what they stand at. Pure.
//!
//! Series that could appear later exist from the start, at 0: `increase()` does not see a
//! counter that is born at 1, and an alert on a job that never ran needs a series to fire on.

use std::collections::BTreeMap;

use super::catalogue::Metric;
use crate::clock::Millis;
use crate::error::ErrorKind;
use crate::store::SCHEMA_VERSION;
use crate::store::integrity::CHECKS;
use crate::store::metrics::{
    GraphState, LAST_BUCKET, Persisted, PersistedValue, QUERY_BUCKETS, SUM, Service, Snapshot, seconds,
};
use crate::store::queues::QUEUES;
use crate::store::runs::{RunState, TIMED_OUT};
use crate::store::status::FileSizes;
use crate::traffic::StatusClass;

/// A value of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The metric.
    pub metric: Metric,
    /// Values of its labels, in the order of [`Metric::labels`].
    pub labels: Vec<String>,
    /// What it stands at.
    pub value: Value,
}

/// What a series stands at.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One number.
    Number(f64),
    /// Counts by size.
    Histogram(Buckets),
}

/// Counts by size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Buckets {
    /// How many are not above each of [`QUERY_BUCKETS`].
    pub cumulative: Vec<u64>,
    /// How many there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

/// What exists although the database may not know it yet.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Jobs that are meant to run.
    pub graphs: Vec<KnownGraph>,
    /// Names of the configured sources.
    pub sources: Vec<String>,
}

/// A job that is meant to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownGraph {
    /// Its name.
    pub name: String,
    /// Names of its steps.
    pub steps: Vec<String>,
    /// Longest time between two starts of its schedule, seconds.
    pub period_s: Option<u64>,
}

/// Types of documents.
const TYPES: [&str; 3] = ["issue", "merge_request", "discussion"];
/// How a query is answered.
const MODES: [&str; 3] = ["hybrid", "lexical", "semantic"];
/// Stages of a query that can fail and be done without.
const FALLIBLE_STAGES: [&str; 3] = ["extract", "rerank", "vector"];
/// Exit code that is shown for a run whose process died: what a shell says after SIGKILL.
const DIED: i64 = 137;

/// Series by metric and label values; adding one again replaces it.
#[derive(Debug, Default)]
struct Series(BTreeMap<(Metric, Vec<String>), f64>);

impl Series {
    fn set(&mut self, metric: Metric, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), metric.labels().len(), "{metric:?}");
        self.0.insert((metric, labels.iter().map(|label| (*label).to_owned()).collect()), value);
    }

    #[expect(clippy::cast_precision_loss, reason = "a count")]
    fn count(&mut self, metric: Metric, labels: &[&str], n: i64) {
        self.set(metric, labels, n as f64);
    }

    fn time(&mut self, metric: Metric, labels: &[&str], at: Option<Millis>) {
        self.set(metric, labels, at.map_or(0.0, seconds));
    }

    fn finish(self) -> Vec<Sample> {
        self.0
            .into_iter()
            .map(|((metric, labels), value)| Sample { metric, labels, value: Value::Number(value) })
            .collect()
    }
}

/// The samples when the database cannot be read.
pub fn unreadable() -> Vec<Sample> {
    let mut series = Series::default();
    build_info(&mut series);
    series.set(Metric::DatabaseReadable, &[], 0.0);
    series.finish()
}

/// The samples of a database.
pub fn of(snapshot: &Snapshot, sizes: FileSizes, known: &Known) -> Vec<Sample> {
    let mut series = Series::default();
    build_info(&mut series);
    series.set(Metric::DatabaseReadable, &[], 1.0);
    series.count(Metric::DatabaseSize, &[], i64::try_from(sizes.database).unwrap_or(i64::MAX));
    series.count(Metric::DatabaseWal, &[], i64::try_from(sizes.wal).unwrap_or(i64::MAX));
    documents(&mut series, snapshot);
    queues(&mut series, snapshot);
    sources(&mut series, snapshot, known);
    graphs(&mut series, snapshot, known);
    lock(&mut series, snapshot);
    integrity(&mut series, snapshot);
    defaults(&mut series);
    for value in snapshot.persisted.iter().filter(|value| value.which != Persisted::QueryDuration) {
        let labels: Vec<&str> = value.labels.iter().map(String::as_str).collect();
        series.set(Metric::of(value.which), &labels, value.value);
    }
    let mut samples = series.finish();
    samples.extend(MODES.map(|mode| query_duration(snapshot, mode)));
    samples
}

/// How long the queries of a mode took, its buckets added up.
fn query_duration(snapshot: &Snapshot, mode: &str) -> Sample {
    let kept = |bucket: &str| {
        let own = |value: &&PersistedValue| {
            value.which == Persisted::QueryDuration && value.labels == [bucket, mode]
        };
        snapshot.persisted.iter().find(own).map_or(0.0, |value| value.value)
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, not below 0")]
    let count = |bucket: &str| kept(bucket) as u64;
    let mut buckets = Buckets { sum: kept(SUM), ..Buckets::default() };
    for bound in QUERY_BUCKETS {
        buckets.count += count(&bound.to_string());
        buckets.cumulative.push(buckets.count);
    }
    buckets.count += count(LAST_BUCKET);
    let labels = vec![mode.to_owned()];
    Sample { metric: Metric::QueryDuration, labels, value: Value::Histogram(buckets) }
}

fn build_info(series: &mut Series) {
    let commit = option_env!("LORE_COMMIT").filter(|commit| !commit.is_empty()).unwrap_or("unknown");
    let schema = SCHEMA_VERSION.to_string();
    series.set(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION"), commit, &schema], 1.0);
}

fn documents(series: &mut Series, snapshot: &Snapshot) {
    for known in TYPES {
        series.set(Metric::Documents, &[known], 0.0);
    }
    for (source_type, n) in &snapshot.documents {
        series.count(Metric::Documents, &[source_type], *n);
    }
    series.count(Metric::DocumentsTruncated, &[], snapshot.documents_truncated);
    series.count(Metric::FtsRows, &[], snapshot.fts_rows);
    let coverage = &snapshot.coverage;
    series.count(Metric::Embeddings, &["embedded"], coverage.embedded);
    series.count(Metric::Embeddings, &["pending"], coverage.pending);
    series.count(Metric::Embeddings, &["failed"], coverage.failed);
    series.count(Metric::EmbeddingChunks, &[], coverage.chunks);
    series.count(Metric::EmbeddingQuarantined, &[], coverage.quarantined);
}

fn queues(series: &mut Series, snapshot: &Snapshot) {
    for queue in QUEUES {
        let state = snapshot.queues.iter().find(|state| state.queue == queue);
        let n = |get: fn(&crate::store::queues::QueueDepth) -> i64| state.map_or(0, get);
        series.count(Metric::QueueDepth, &[queue], n(|state| state.depth));
        series.count(Metric::QueueReady, &[queue], n(|state| state.ready));
        series.count(Metric::QueueFailing, &[queue], n(|state| state.failed));
        series.count(Metric::QueueQuarantined, &[queue], n(|state| state.quarantined));
        series.time(Metric::QueueOldest, &[queue], state.and_then(|state| state.oldest_at));
    }
}

fn sources(series: &mut Series, snapshot: &Snapshot, known: &Known) {
    for source in &known.sources {
        series.set(Metric::StreamsFailing, &[source], 0.0);
        series.set(Metric::SourceSynced, &[source], 0.0);
        series.set(Metric::ProjectsOdd, &[source], 0.0);
    }
    for (source, synced_at) in &snapshot.sources_synced_at {
        series.set(Metric::StreamsFailing, &[source], 0.0);
        series.time(Metric::SourceSynced, &[source], Some(*synced_at));
    }
    for (source, n) in &snapshot.streams_failing {
        series.count(Metric::StreamsFailing, &[source], *n);
    }
    for (source, n) in &snapshot.odd_projects {
        series.count(Metric::ProjectsOdd, &[source], *n);
    }
    series.count(Metric::ItemsMissing, &[], snapshot.gone.missing);
    series.count(Metric::Tombstones, &[], snapshot.gone.tombstones);
}

fn graphs(series: &mut Series, snapshot: &Snapshot, known: &Known) {
    for graph in &known.graphs {
        graph_state(series, &GraphState { graph: graph.name.clone(), ..GraphState::default() });
        #[expect(clippy::cast_precision_loss, reason = "a period of a schedule")]
        series.set(Metric::GraphPeriod, &[&graph.name], graph.period_s.unwrap_or(0) as f64);
        for step in &graph.steps {
            series.set(Metric::StepRetries, &[&graph.name, step], 0.0);
            series.set(Metric::StepItemsFailed, &[&graph.name, step], 0.0);
            for reason in reasons() {
                series.set(Metric::StepFailures, &[&graph.name, reason, step], 0.0);
            }
        }
    }
    for graph in &snapshot.graphs {
        graph_state(series, graph);
        if !known.graphs.iter().any(|known| known.name == graph.graph) {
            series.set(Metric::GraphPeriod, &[&graph.graph], 0.0);
        }
    }
}

fn graph_state(series: &mut Series, state: &GraphState) {
    let GraphState { graph, started_at, running, finished_at, duration_ms, exit_code, succeeded_at, steps } =
        state;
    let name = &[graph.as_str()];
    series.set(Metric::GraphRunning, name, if *running { 1.0 } else { 0.0 });
    series.time(Metric::GraphStart, name, Some(*started_at));
    series.time(Metric::GraphCompletion, name, *finished_at);
    series.time(Metric::GraphSuccess, name, *succeeded_at);
    series.time(Metric::GraphDuration, name, *duration_ms);
    let exit_code = if finished_at.is_some() { exit_code.unwrap_or(DIED) } else { 0 };
    series.count(Metric::GraphExitCode, name, exit_code);
    for outcome in RunState::ALL.iter().filter(|outcome| **outcome != RunState::Running) {
        series.set(Metric::GraphRuns, &[graph, outcome.as_str()], 0.0);
    }
    for step in steps {
        series.time(Metric::StepDuration, &[graph, &step.step], Some(step.duration_ms));
        for (count, n) in &step.counts {
            series.set(Metric::StepItems, &[graph, count, &step.step], *n);
        }
    }
}

/// Codes that a step can fail with: those of the command line and of the lock never come
/// from a step.
fn reasons() -> impl Iterator<Item = &'static str> {
    let of_a_step = |kind: &&ErrorKind| match kind {
        ErrorKind::Internal
        | ErrorKind::Config
        | ErrorKind::TokenNotSet
        | ErrorKind::Auth
        | ErrorKind::SourceNotFound
        | ErrorKind::RateLimited
        | ErrorKind::Network
        | ErrorKind::DatabaseBusy
        | ErrorKind::Database
        | ErrorKind::Io
        | ErrorKind::EmbeddingUnavailable
        | ErrorKind::EmbeddingModelNotFound
        | ErrorKind::EmbeddingFailed
        | ErrorKind::RunFailed
        | ErrorKind::IntegrityFindings
        | ErrorKind::DiskFull => true,
        ErrorKind::Usage
        | ErrorKind::NoUsableTokens
        | ErrorKind::DatabaseVersion
        | ErrorKind::InvalidEnumValue
        | ErrorKind::ReferenceNotFound
        | ErrorKind::ItemsFailing
        | ErrorKind::Locked
        | ErrorKind::Fenced
        | ErrorKind::Interrupted
        | ErrorKind::Terminated => false,
    };
    ErrorKind::ALL.iter().filter(of_a_step).map(|kind| kind.code()).chain([TIMED_OUT])
}

fn lock(series: &mut Series, snapshot: &Snapshot) {
    let lock = &snapshot.lock;
    let held = lock.owner.is_some();
    series.set(Metric::LockHeld, &[], if held { 1.0 } else { 0.0 });
    series.time(Metric::LockAcquired, &[], lock.acquired_at.filter(|_| held));
    series.time(Metric::LockHeartbeat, &[], lock.heartbeat_at.filter(|_| held));
    series.time(Metric::LockLease, &[], Some(lock.lease_ms));
    series.count(Metric::LockTakeovers, &[], lock.takeovers);
}

fn integrity(series: &mut Series, snapshot: &Snapshot) {
    for check in CHECKS {
        series.set(Metric::IntegrityFindings, &[check.name], 0.0);
    }
    for (check, n) in &snapshot.findings {
        series.count(Metric::IntegrityFindings, &[check], *n);
    }
}

/// The persisted values whose labels are the same for everybody.
fn defaults(series: &mut Series) {
    for service in Service::ALL.map(Service::as_str) {
        series.set(Metric::RequestRetries, &[service], 0.0);
        series.set(Metric::RateLimitWait, &[service], 0.0);
        for class in StatusClass::ALL {
            series.set(Metric::Requests, &[service, class.as_str()], 0.0);
        }
    }
    for mode in MODES {
        series.set(Metric::QueriesEmpty, &[mode], 0.0);
    }
    for stage in FALLIBLE_STAGES {
        series.set(Metric::QueriesDegraded, &[stage], 0.0);
    }
    for which in [Persisted::FencedWrites, Persisted::IntegrityChecked, Persisted::IntegrityOk] {
        series.set(Metric::of(which), &[], 0.0);
    }
}
