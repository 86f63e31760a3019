//! SQL of the metrics: values that outlive the processes that produce them, and one
//! consistent look at everything that is exported.
//!
//! lore's processes are short-lived, so a counter in memory would start at 0 with every run
//! and `increase()` would never see it move. Counters are rows that are raised in the
//! transaction that writes what they count.

mod snapshot;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::TransactionBehavior;

use super::{OpenOptions, ReadTx, Store, WriteTx};
use crate::clock::Millis;
use crate::error::Result;
use crate::traffic::{StatsView, StatusClass};

pub use snapshot::{GraphState, Snapshot, StepState, snapshot};

/// A value that is kept in the table `counters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Persisted {
    /// Runs that ended, by graph and outcome.
    Runs,
    /// Step attempts that failed, by graph, step and kind of error.
    StepFailures,
    /// Step attempts after the first, by graph and step.
    StepRetries,
    /// Items that failed inside steps that went on, by graph and step.
    ItemsFailed,
    /// HTTP requests, by service and class of the answer.
    Requests,
    /// HTTP requests that were sent again, by service.
    RequestRetries,
    /// Seconds spent in pauses that a server asked for, by service.
    RateLimitWait,
    /// Processes that found their lock taken and wrote nothing more.
    FencedWrites,
    /// When the last integrity check ended, Unix seconds.
    IntegrityChecked,
    /// When the last integrity check without findings ended, Unix seconds.
    IntegrityOk,
    /// Queries by mode and by how long they took: see [`QUERY_BUCKETS`]. The bucket `sum`
    /// holds their seconds.
    QueryDuration,
    /// Queries one of whose stages failed, by stage: they were answered without it.
    QueriesDegraded,
    /// Queries without a hit, by mode.
    QueriesEmpty,
}

impl Persisted {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Runs,
        Self::StepFailures,
        Self::StepRetries,
        Self::ItemsFailed,
        Self::Requests,
        Self::RequestRetries,
        Self::RateLimitWait,
        Self::FencedWrites,
        Self::IntegrityChecked,
        Self::IntegrityOk,
        Self::QueryDuration,
        Self::QueriesDegraded,
        Self::QueriesEmpty,
    ];

    /// Name of the metric, and of the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runs => "lore_graph_runs_total",
            Self::StepFailures => "lore_step_failures_total",
            Self::StepRetries => "lore_step_retries_total",
            Self::ItemsFailed => "lore_step_items_failed_total",
            Self::Requests => "lore_requests_total",
            Self::RequestRetries => "lore_request_retries_total",
            Self::RateLimitWait => "lore_rate_limit_wait_seconds_total",
            Self::FencedWrites => "lore_lock_fenced_writes_total",
            Self::IntegrityChecked => "lore_integrity_last_check_timestamp_seconds",
            Self::IntegrityOk => "lore_integrity_last_ok_timestamp_seconds",
            Self::QueryDuration => "lore_query_duration_seconds",
            Self::QueriesDegraded => "lore_queries_degraded_total",
            Self::QueriesEmpty => "lore_queries_empty_total",
        }
    }

    /// Names of its labels, sorted.
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Runs => &["graph", "outcome"],
            Self::StepFailures => &["graph", "reason", "step"],
            Self::StepRetries | Self::ItemsFailed => &["graph", "step"],
            Self::Requests => &["service", "status_class"],
            Self::RequestRetries | Self::RateLimitWait => &["service"],
            Self::QueryDuration => &["bucket", "mode"],
            Self::QueriesDegraded => &["stage"],
            Self::QueriesEmpty => &["mode"],
            Self::FencedWrites | Self::IntegrityChecked | Self::IntegrityOk => &[],
        }
    }
}

/// Upper bounds of the buckets of query durations, seconds; what is longer is in `+Inf`.
pub const QUERY_BUCKETS: [f64; 10] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// Name of the bucket of the queries that took longer than all bounds.
pub const LAST_BUCKET: &str = "+Inf";

/// Name of the row that sums durations up.
pub const SUM: &str = "sum";

/// A row of the table: which value, its labels in the order of [`Persisted::labels`], and
/// what it stands at.
#[derive(Debug, Clone, PartialEq)]
pub struct PersistedValue {
    /// Which value.
    pub which: Persisted,
    /// Values of its labels.
    pub labels: Vec<String>,
    /// Where it stands.
    pub value: f64,
}

/// Raises a counter by `n`; a negative `n` is ignored, since counters only grow.
///
/// # Errors
/// SQLite's.
pub fn add(tx: &WriteTx<'_>, which: Persisted, labels: &[&str], n: f64) -> Result<()> {
    if !n.is_finite() || n < 0.0 {
        return Ok(());
    }
    tx.sql()
        .prepare_cached(
            "INSERT INTO counters(name, labels, value) VALUES (?1, ?2, ?3)
             ON CONFLICT(name, labels) DO UPDATE SET value = value + excluded.value",
        )?
        .execute((which.name(), encode_labels(which.labels(), labels), n))?;
    Ok(())
}

/// Sets a value that is no counter.
///
/// # Errors
/// SQLite's.
pub fn set(tx: &WriteTx<'_>, which: Persisted, labels: &[&str], value: f64) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO counters(name, labels, value) VALUES (?1, ?2, ?3)
             ON CONFLICT(name, labels) DO UPDATE SET value = excluded.value",
        )?
        .execute((which.name(), encode_labels(which.labels(), labels), value))?;
    Ok(())
}

/// Counts that wait for the next transaction.
#[derive(Debug, Default)]
pub(super) struct Pending(Mutex<Waiting>);

/// Counter and label values to what it is to be raised by.
type Waiting = BTreeMap<(Persisted, Vec<String>), f64>;

impl Pending {
    pub(super) fn add(&self, which: Persisted, labels: &[&str], n: f64) {
        let key = (which, labels.iter().map(|label| (*label).to_owned()).collect());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default() += n;
    }

    /// Writes what waits; it waits on until the transaction has committed.
    pub(super) fn write(&self, tx: &WriteTx<'_>) -> Result<Waiting> {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((which, labels), n) in &waiting {
            let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
            add(tx, *which, &labels, *n)?;
        }
        Ok(waiting)
    }

    /// Takes off what was committed; counts that came meanwhile stay.
    pub(super) fn forget(&self, committed: Waiting) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, n) in committed {
            if let Some(left) = waiting.get_mut(&key) {
                *left -= n;
            }
        }
        waiting.retain(|_, left| *left > 0.0);
    }
}

/// Counts a process that lost its lock. This is the one write such a process makes: it is no
/// write of the lock's holder and touches nothing that the new holder works with.
///
/// # Errors
/// SQLite's.
pub fn count_fenced(store: &Store) -> Result<()> {
    store.set_fence(None);
    store.write(|tx| add(tx, Persisted::FencedWrites, &[], 1.0))
}

/// Who is asked over the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A GitLab server.
    Gitlab,
    /// An embedding service.
    Embedding,
    /// A reranker.
    Rerank,
    /// A model that takes questions apart.
    Extract,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gitlab, Self::Embedding, Self::Rerank, Self::Extract];

    /// Name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gitlab => "gitlab",
            Self::Embedding => "embedding",
            Self::Rerank => "rerank",
            Self::Extract => "extract",
        }
    }
}

/// Counts requests with the next transaction that commits.
pub fn count_requests(store: &Store, service: Service, stats: &StatsView) {
    let service = service.as_str();
    for (class, n) in StatusClass::ALL.into_iter().zip(stats.answers) {
        store.count(Persisted::Requests, &[service, class.as_str()], f64::from(n));
    }
    #[expect(clippy::cast_precision_loss, reason = "counts and milliseconds of one step")]
    let (retries, waited) = (stats.retries as f64, stats.rate_limit_wait_ms as f64 / 1000.0);
    store.count(Persisted::RequestRetries, &[service], retries);
    store.count(Persisted::RateLimitWait, &[service], waited);
}

/// A query that was answered.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// How it was looked for in the end.
    pub mode: &'a str,
    /// How long it took.
    pub took: Duration,
    /// Whether nothing was found.
    pub is_empty: bool,
    /// Stages that failed, so that it was answered without them.
    pub failed_stages: &'a [&'a str],
    /// Requests that were sent for it.
    pub requests: &'a [(Service, StatsView)],
}

/// Counts a query. It is no write of the lock's holder: it touches a few counters and waits
/// for nobody, so a query that meets a busy database is not counted.
///
/// # Errors
/// SQLite's; a database that cannot be written is one.
pub fn count_query(store: &Store, answered: Answered<'_>) -> Result<()> {
    let Answered { mode, took, is_empty, failed_stages, requests } = answered;
    let options = OpenOptions { busy_timeout: Duration::from_millis(20), ..store.options };
    let mut connection = super::open::open_writer(&store.path, options)?;
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    {
        let write = WriteTx { read: ReadTx { connection: &tx } };
        let bucket = bucket_of(took.as_secs_f64());
        add(&write, Persisted::QueryDuration, &[&bucket, mode], 1.0)?;
        add(&write, Persisted::QueryDuration, &[SUM, mode], took.as_secs_f64())?;
        add(&write, Persisted::QueriesEmpty, &[mode], f64::from(u8::from(is_empty)))?;
        for stage in failed_stages {
            add(&write, Persisted::QueriesDegraded, &[stage], 1.0)?;
        }
        for (service, stats) in requests {
            for (class, n) in StatusClass::ALL.into_iter().zip(stats.answers) {
                if n > 0 {
                    add(&write, Persisted::Requests, &[service.as_str(), class.as_str()], f64::from(n))?;
                }
            }
        }
    }
    tx.commit()?;
    Ok(())
}

fn bucket_of(seconds: f64) -> String {
    let bound = QUERY_BUCKETS.iter().find(|bound| seconds <= **bound);
    bound.map_or_else(|| LAST_BUCKET.to_owned(), f64::to_string)
}

/// Notes that an integrity check ended, and whether it found nothing.
///
/// # Errors
/// SQLite's.
pub fn note_integrity_check(tx: &WriteTx<'_>, found_nothing: bool, now: Millis) -> Result<()> {
    set(tx, Persisted::IntegrityChecked, &[], seconds(now))?;
    if found_nothing {
        set(tx, Persisted::IntegrityOk, &[], seconds(now))?;
    }
    Ok(())
}

/// Returns every persisted value; rows of another version of lore are left out.
pub(super) fn persisted(tx: &ReadTx<'_>) -> Result<Vec<PersistedValue>> {
    let mut statement =
        tx.sql().prepare_cached("SELECT name, labels, value FROM counters ORDER BY name, labels")?;
    let mut rows = statement.query([])?;
    let mut values = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, labels): (String, String) = (row.get("name")?, row.get("labels")?);
        let Some(which) = Persisted::ALL.into_iter().find(|which| which.name() == name) else { continue };
        let Some(labels) = decode_labels(which.labels(), &labels) else { continue };
        values.push(PersistedValue { which, labels, value: row.get("value")? });
    }
    Ok(values)
}

/// A time as Prometheus wants it.
#[expect(clippy::cast_precision_loss, reason = "exact for the next 200,000 years")]
pub fn seconds(at: Millis) -> f64 {
    at as f64 / 1000.0
}

/// `key=value` joined by commas; the three characters that would be ambiguous are escaped.
fn encode_labels(keys: &[&str], values: &[&str]) -> String {
    debug_assert_eq!(keys.len(), values.len(), "a value for each of {keys:?}");
    let mut text = String::new();
    for (key, value) in keys.iter().zip(values) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(key);
        text.push('=');
        for c in value.chars() {
            match c {
                '%' => text.push_str("%25"),
                ',' => text.push_str("%2C"),
                '=' => text.push_str("%3D"),
                other => text.push(other),
            }
        }
    }
    text
}

fn decode_labels(keys: &[&str], text: &str) -> Option<Vec<String>> {
    let pairs: Vec<(&str, &str)> = if text.is_empty() {
        Vec::new()
    } else {
        text.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>()?
    };
    let known = pairs.len() == keys.len() && pairs.iter().zip(keys).all(|((key, _), known)| key == known);
    known.then(|| {
        pairs
            .iter()
            .map(|(_, value)| value.replace("%2C", ",").replace("%3D", "=").replace("%25", "%"))
            .collect()
    })
}
