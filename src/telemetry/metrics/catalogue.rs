//! Every metric: its name, kind, labels and meaning. Nothing else names a metric; the
//! reference `docs/metrics.md` is made from here.

use crate::store::metrics::Persisted;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rises and falls.
    Gauge,
    /// Only rises.
    Counter,
    /// Counts by size.
    Histogram,
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`help` says what each one means")]
pub enum Metric {
    BuildInfo,
    DatabaseReadable,
    DatabaseSize,
    DatabaseWal,
    Documents,
    DocumentsTruncated,
    FtsRows,
    Embeddings,
    EmbeddingChunks,
    EmbeddingQuarantined,
    QueueDepth,
    QueueReady,
    QueueFailing,
    QueueQuarantined,
    QueueOldest,
    StreamsFailing,
    SourceSynced,
    ProjectsOdd,
    ItemsMissing,
    Tombstones,
    GraphPeriod,
    GraphRunning,
    GraphStart,
    GraphCompletion,
    GraphSuccess,
    GraphDuration,
    GraphExitCode,
    GraphRuns,
    StepDuration,
    StepItems,
    StepFailures,
    StepRetries,
    StepItemsFailed,
    Requests,
    RequestRetries,
    RateLimitWait,
    LockHeld,
    LockAcquired,
    LockHeartbeat,
    LockLease,
    LockTakeovers,
    LockFencedWrites,
    IntegrityFindings,
    IntegrityChecked,
    IntegrityOk,
    QueryDuration,
    QueriesDegraded,
    QueriesEmpty,
}

impl Metric {
    /// Every metric, in the order of the reference.
    pub const ALL: &'static [Self] = &[
        Self::BuildInfo,
        Self::DatabaseReadable,
        Self::DatabaseSize,
        Self::DatabaseWal,
        Self::Documents,
        Self::DocumentsTruncated,
        Self::FtsRows,
        Self::Embeddings,
        Self::EmbeddingChunks,
        Self::EmbeddingQuarantined,
        Self::QueueDepth,
        Self::QueueReady,
        Self::QueueFailing,
        Self::QueueQuarantined,
        Self::QueueOldest,
        Self::StreamsFailing,
        Self::SourceSynced,
        Self::ProjectsOdd,
        Self::ItemsMissing,
        Self::Tombstones,
        Self::GraphPeriod,
        Self::GraphRunning,
        Self::GraphStart,
        Self::GraphCompletion,
        Self::GraphSuccess,
        Self::GraphDuration,
        Self::GraphExitCode,
        Self::GraphRuns,
        Self::StepDuration,
        Self::StepItems,
        Self::StepFailures,
        Self::StepRetries,
        Self::StepItemsFailed,
        Self::Requests,
        Self::RequestRetries,
        Self::RateLimitWait,
        Self::LockHeld,
        Self::LockAcquired,
        Self::LockHeartbeat,
        Self::LockLease,
        Self::LockTakeovers,
        Self::LockFencedWrites,
        Self::IntegrityFindings,
        Self::IntegrityChecked,
        Self::IntegrityOk,
        Self::QueryDuration,
        Self::QueriesDegraded,
        Self::QueriesEmpty,
    ];

    /// Name, as Prometheus shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BuildInfo => "lore_build_info",
            Self::DatabaseReadable => "lore_exporter_database_readable",
            Self::DatabaseSize => "lore_database_size_bytes",
            Self::DatabaseWal => "lore_database_wal_bytes",
            Self::Documents => "lore_documents",
            Self::DocumentsTruncated => "lore_documents_truncated",
            Self::FtsRows => "lore_fts_rows",
            Self::Embeddings => "lore_embeddings",
            Self::EmbeddingChunks => "lore_embedding_chunks",
            Self::EmbeddingQuarantined => "lore_embedding_chunks_quarantined",
            Self::QueueDepth => "lore_queue_depth",
            Self::QueueReady => "lore_queue_ready",
            Self::QueueFailing => "lore_queue_failing",
            Self::QueueQuarantined => "lore_queue_quarantined",
            Self::QueueOldest => "lore_queue_oldest_timestamp_seconds",
            Self::StreamsFailing => "lore_source_streams_failing",
            Self::SourceSynced => "lore_source_synced_timestamp_seconds",
            Self::ProjectsOdd => "lore_source_projects_gone",
            Self::ItemsMissing => "lore_items_missing",
            Self::Tombstones => "lore_tombstones",
            Self::GraphPeriod => "lore_graph_schedule_period_seconds",
            Self::GraphRunning => "lore_graph_running",
            Self::GraphStart => "lore_graph_last_start_timestamp_seconds",
            Self::GraphCompletion => "lore_graph_last_completion_timestamp_seconds",
            Self::GraphSuccess => "lore_graph_last_success_timestamp_seconds",
            Self::GraphDuration => "lore_graph_last_duration_seconds",
            Self::GraphExitCode => "lore_graph_last_exit_code",
            Self::GraphRuns => Persisted::Runs.name(),
            Self::StepDuration => "lore_step_last_duration_seconds",
            Self::StepItems => "lore_step_last_items",
            Self::StepFailures => Persisted::StepFailures.name(),
            Self::StepRetries => Persisted::StepRetries.name(),
            Self::StepItemsFailed => Persisted::ItemsFailed.name(),
            Self::Requests => Persisted::Requests.name(),
            Self::RequestRetries => Persisted::RequestRetries.name(),
            Self::RateLimitWait => Persisted::RateLimitWait.name(),
            Self::LockHeld => "lore_lock_held",
            Self::LockAcquired => "lore_lock_acquired_timestamp_seconds",
            Self::LockHeartbeat => "lore_lock_heartbeat_timestamp_seconds",
            Self::LockLease => "lore_lock_lease_seconds",
            Self::LockTakeovers => "lore_lock_takeovers_total",
            Self::LockFencedWrites => Persisted::FencedWrites.name(),
            Self::IntegrityFindings => "lore_integrity_findings",
            Self::IntegrityChecked => Persisted::IntegrityChecked.name(),
            Self::IntegrityOk => Persisted::IntegrityOk.name(),
            Self::QueryDuration => Persisted::QueryDuration.name(),
            Self::QueriesDegraded => Persisted::QueriesDegraded.name(),
            Self::QueriesEmpty => Persisted::QueriesEmpty.name(),
        }
    }

    /// Kind: of all but histograms by the name, as Prometheus' rules for names have it.
    pub fn kind(self) -> Kind {
        match self {
            Self::QueryDuration => Kind::Histogram,
            _ if self.name().ends_with("_total") => Kind::Counter,
            _ => Kind::Gauge,
        }
    }

    /// Names of its labels. Never `job` or `instance`, which belong to the scraper.
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::BuildInfo => &["version", "commit", "schema"],
            Self::DatabaseReadable
            | Self::DatabaseSize
            | Self::DatabaseWal
            | Self::DocumentsTruncated
            | Self::FtsRows
            | Self::ItemsMissing
            | Self::Tombstones
            | Self::EmbeddingChunks
            | Self::EmbeddingQuarantined
            | Self::LockHeld
            | Self::LockAcquired
            | Self::LockHeartbeat
            | Self::LockLease
            | Self::LockTakeovers => &[],
            Self::Documents => &["type"],
            Self::Embeddings => &["state"],
            Self::QueueDepth
            | Self::QueueReady
            | Self::QueueFailing
            | Self::QueueQuarantined
            | Self::QueueOldest => &["queue"],
            Self::StreamsFailing | Self::SourceSynced | Self::ProjectsOdd => &["source"],
            Self::GraphPeriod
            | Self::GraphRunning
            | Self::GraphStart
            | Self::GraphCompletion
            | Self::GraphSuccess
            | Self::GraphDuration
            | Self::GraphExitCode => &["graph"],
            Self::StepDuration => &["graph", "step"],
            Self::StepItems => &["graph", "item", "step"],
            Self::GraphRuns => Persisted::Runs.labels(),
            Self::StepFailures => Persisted::StepFailures.labels(),
            Self::StepRetries => Persisted::StepRetries.labels(),
            Self::StepItemsFailed => Persisted::ItemsFailed.labels(),
            Self::Requests => Persisted::Requests.labels(),
            Self::RequestRetries => Persisted::RequestRetries.labels(),
            Self::RateLimitWait => Persisted::RateLimitWait.labels(),
            Self::LockFencedWrites => Persisted::FencedWrites.labels(),
            Self::IntegrityFindings => &["check"],
            Self::IntegrityChecked => Persisted::IntegrityChecked.labels(),
            Self::IntegrityOk => Persisted::IntegrityOk.labels(),
            Self::QueryDuration => &["mode"],
            Self::QueriesDegraded => Persisted::QueriesDegraded.labels(),
            Self::QueriesEmpty => Persisted::QueriesEmpty.labels(),
        }
    }

    /// What it means, for HELP and for the reference.
    pub const fn help(self) -> &'static str {
        match self {
            Self::BuildInfo => {
                "Always 1; the labels name the version, the commit and the database schema of this binary."
            }
            Self::DatabaseReadable => "Whether the database could be read: 1, or 0 with no other values.",
            Self::DatabaseSize => "Size of the database file.",
            Self::DatabaseWal => {
                "Size of the write-ahead log; it stays large when a reader keeps it from being folded back."
            }
            Self::Documents => "Documents by type.",
            Self::DocumentsTruncated => "Documents that were cut at the length limit.",
            Self::FtsRows => "Rows of the full-text index; equals the documents.",
            Self::Embeddings => {
                "Documents by the state of their vectors, of the index that queries are answered from."
            }
            Self::EmbeddingChunks => "Vectors of the index that queries are answered from.",
            Self::EmbeddingQuarantined => {
                "Passages that failed too often and are left alone until --retry-failed."
            }
            Self::QueueDepth => "Entries of a queue, whatever their state.",
            Self::QueueReady => "Entries of a queue that may be processed now.",
            Self::QueueFailing => "Entries of a queue whose last attempt failed.",
            Self::QueueQuarantined => {
                "Entries of a queue that failed too often and are left alone until --retry-failed."
            }
            Self::QueueOldest => "When the oldest entry of a queue was queued; 0 when the queue is empty.",
            Self::StreamsFailing => {
                "Streams (issues or merge requests of a project) and groups of a source that cannot be read."
            }
            Self::SourceSynced => "When a stream of a source was last brought up to date; 0 when never.",
            Self::ProjectsOdd => {
                "Projects of a source that are missing, marked for deletion or no longer listed by their group."
            }
            Self::ItemsMissing => "Items that were found missing upstream and are still stored.",
            Self::Tombstones => {
                "Items that were deleted because they are gone upstream, less those that came back."
            }
            Self::GraphPeriod => {
                "Longest time between two starts that the schedule of a job asks for; 0 when it has no schedule."
            }
            Self::GraphRunning => "Whether the newest run of a job has not ended.",
            Self::GraphStart => "When the newest run of a job began; 0 when it never ran.",
            Self::GraphCompletion => {
                "When the newest run of a job that ended did so, however it ended; 0 when none has."
            }
            Self::GraphSuccess => "When the newest successful run of a job ended; 0 when none has.",
            Self::GraphDuration => "How long the newest run of a job that ended took; 0 when none has.",
            Self::GraphExitCode => {
                "Exit code of the newest run of a job that ended; 137 when its process died without a word."
            }
            Self::GraphRuns => "Runs of a job that ended, by outcome.",
            Self::StepDuration => "How long the last attempt of a step took in the newest run that ended.",
            Self::StepItems => "What a step counted in the newest run that ended.",
            Self::StepFailures => "Failed attempts of a step, by error code.",
            Self::StepRetries => "Attempts of a step after the first.",
            Self::StepItemsFailed => "Items that failed while their step went on.",
            Self::Requests => {
                "HTTP requests by service and class of the answer; none means that no answer came."
            }
            Self::RequestRetries => "HTTP requests that were sent again.",
            Self::RateLimitWait => "Time spent in pauses that a service asked for.",
            Self::LockHeld => "Whether the app lock is held.",
            Self::LockAcquired => "When the app lock was taken by its holder; 0 when it is free.",
            Self::LockHeartbeat => "Last heartbeat of the holder of the app lock; 0 when it is free.",
            Self::LockLease => "How long a silent holder keeps the app lock.",
            Self::LockTakeovers => "How often the lock of a dead holder was taken over.",
            Self::LockFencedWrites => {
                "How often a process found its lock taken by another and wrote nothing more."
            }
            Self::IntegrityFindings => {
                "Findings of the last integrity check, at most 100 counted for each check."
            }
            Self::IntegrityChecked => "When the last integrity check ended; 0 when none has.",
            Self::IntegrityOk => "When the last integrity check without findings ended; 0 when none has.",
            Self::QueryDuration => "How long queries took, from the request to the answer.",
            Self::QueriesDegraded => "Queries that were answered without a stage that failed.",
            Self::QueriesEmpty => "Queries without a hit, by how they were looked for in the end.",
        }
    }

    /// The metric that shows a persisted value.
    pub const fn of(which: Persisted) -> Self {
        match which {
            Persisted::Runs => Self::GraphRuns,
            Persisted::StepFailures => Self::StepFailures,
            Persisted::StepRetries => Self::StepRetries,
            Persisted::ItemsFailed => Self::StepItemsFailed,
            Persisted::Requests => Self::Requests,
            Persisted::RequestRetries => Self::RequestRetries,
            Persisted::RateLimitWait => Self::RateLimitWait,
            Persisted::FencedWrites => Self::LockFencedWrites,
            Persisted::IntegrityChecked => Self::IntegrityChecked,
            Persisted::IntegrityOk => Self::IntegrityOk,
            Persisted::QueryDuration => Self::QueryDuration,
            Persisted::QueriesDegraded => Self::QueriesDegraded,
            Persisted::QueriesEmpty => Self::QueriesEmpty,
        }
    }
}

/// What each label holds: name, and the values it can take.
pub(super) const LABELS: &[(&str, &str)] = &[
    ("check", "name of an integrity check"),
    ("commit", "commit that the binary was built from, `unknown` when the build did not say"),
    ("graph", "name of a job"),
    ("item", "name of a count in the step's report, such as `issues_changed`"),
    ("mode", "`hybrid`, `lexical`, `semantic`: how a query was answered in the end"),
    ("outcome", "`succeeded`, `failed`, `interrupted`, `cancelled`, `abandoned`"),
    ("queue", "`dirty_sources`, `pending_discussion_fetches`"),
    ("reason", "code of an error kind (see `lore --help`), or `TIMED_OUT`"),
    ("schema", "version of the database schema"),
    ("service", "`gitlab`, `embedding`, `rerank` and `extract` (of queries, when queries are counted)"),
    ("source", "name of a source of the configuration"),
    ("stage", "stage of a query that can fail: `rerank`, `vector`"),
    ("state", "`embedded`, `pending` (new or changed), `failed` (a passage could not be embedded)"),
    ("status_class", "`2xx`, `3xx`, `4xx`, `5xx`, `none`"),
    ("step", "name of a step of the job"),
    ("type", "`issue`, `merge_request`, `discussion`"),
    ("version", "version of the binary"),
];
