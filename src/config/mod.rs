//! The configuration: typed, resolved, with its defaults written once, here.
//!
//! `lore.toml` says where things are (database, sources, services); `jobs/*.toml` say what
//! is done. Neither is interpolated: a `$` in a value is a `$`.

mod assist;
mod known;
mod layers;
mod load;
mod telemetry;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::SecretRef;

pub use assist::{FusionMethod, NerBackend, NerFallback, RerankConfig, RerankProvider};
pub use telemetry::{MetricsConfig, NotifyConfig, TracingConfig};

pub use crate::duration::{duration_text, maybe_duration_text};
pub use known::{SOURCE_KINDS, resolve, schema, source_schema};
pub use load::{ENV_PREFIX, Loaded, Places, load};

/// Everything that `lore.toml` and `LORE__…` variables can say.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the database is and how it is kept.
    pub database: DatabaseConfig,
    /// Where job files are.
    pub jobs: JobsConfig,
    /// The app lock's times.
    pub lock: LockConfig,
    /// What is ingested, by name.
    pub sources: BTreeMap<String, SourceConfig>,
    /// Ranking and limits of queries.
    pub query: QueryConfig,
    /// Named sets of projects that a query may be bound to.
    pub scopes: BTreeMap<String, ScopeConfig>,
    /// How texts become vectors.
    pub embedding: EmbeddingConfig,
    /// Who reads the first results again and puts them in order.
    pub rerank: RerankConfig,
    /// Where metrics go after each run.
    pub metrics: MetricsConfig,
    /// Where traces go.
    pub tracing: TracingConfig,
    /// What is pinged when a run of a job begins and ends, by name of the job.
    pub notify: BTreeMap<String, NotifyConfig>,
}

impl Config {
    /// Every secret that is referenced, with its key.
    pub fn secrets(&self) -> Vec<(String, &SecretRef)> {
        let mut found = Vec::new();
        for (name, source) in &self.sources {
            if let SourceConfig::Gitlab(GitlabConfig { token: Some(token), .. }) = source {
                found.push((format!("sources.{name}.token"), token));
            }
        }
        found.extend(self.embedding.token.iter().map(|token| ("embedding.token".to_owned(), token)));
        found.extend(self.rerank.token.iter().map(|token| ("rerank.token".to_owned(), token)));
        found.extend(self.query.ner_token.iter().map(|token| ("query.ner_token".to_owned(), token)));
        for (name, secret) in &self.tracing.headers {
            found.push((format!("tracing.headers.{name}"), secret));
        }
        for (job, NotifyConfig { ping, start, success, fail }) in &self.notify {
            for (key, secret) in [("ping", ping), ("start", start), ("success", success), ("fail", fail)] {
                found.extend(secret.iter().map(|secret| (format!("notify.{job}.{key}"), secret)));
            }
        }
        found
    }
}

/// `[database]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseConfig {
    /// The SQLite file. Default: `lore/lore.db` in the platform's data directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// How answers of GitLab are kept beside the parsed rows, so that a fix of the parser
    /// needs no new fetch: `zstd` (default) or `none`.
    pub raw_payloads: RawPayloads,
    /// Allows a database on a network file system, where SQLite's locks may not work.
    pub allow_network_fs: bool,
    /// How long a writer waits for another process's write lock. Default `30s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub busy_timeout: Duration,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        Self {
            path: None,
            raw_payloads: RawPayloads::Zstd,
            allow_network_fs: false,
            busy_timeout: Duration::from_secs(30),
        }
    }
}

/// How raw payloads are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RawPayloads {
    /// Compressed.
    Zstd,
    /// Not at all.
    None,
}

/// `[jobs]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JobsConfig {
    /// Directory of job files, searched before the jobs compiled into the binary.
    /// Default: `jobs` beside the configuration file, or in the working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
}

/// `[lock]`
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LockConfig {
    /// Time between two heartbeats. Default `10s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub heartbeat: Duration,
    /// A lock whose heartbeat was not seen to move for this long may be taken. Default `60s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub lease: Duration,
}

impl Default for LockConfig {
    fn default() -> Self {
        Self { heartbeat: Duration::from_secs(10), lease: Duration::from_secs(60) }
    }
}

/// `[sources.NAME]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "there are a handful of sources, read once")]
pub enum SourceConfig {
    /// A GitLab server, read through its REST API.
    #[serde(rename = "gitlab")]
    Gitlab(GitlabConfig),
    /// A project export: an archive or an unpacked directory.
    #[serde(rename = "gitlab-export")]
    GitlabExport(ExportConfig),
}

/// `[sources.NAME]` with `kind = "gitlab"`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitlabConfig {
    /// Address of the server, with its sub-path when it has one: `https://host/gitlab`.
    pub url: String,
    /// Where the access token is kept (scope `read_api`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretRef>,
    /// Full paths of the projects to ingest.
    #[serde(default)]
    pub projects: Vec<String>,
    /// Full paths of groups whose projects are ingested; they are listed anew in each run.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Which projects of the groups: full paths, `group/*` for everything below, `*` for all.
    /// Default: all of them.
    #[serde(default)]
    pub include: Vec<String>,
    /// Which projects of the groups are left out, in the same form.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Whether the projects of subgroups belong to a group. Default true.
    #[serde(default = "default_include_subgroups")]
    pub include_subgroups: bool,
    /// Whether archived projects of the groups are read. Default false; what is stored of a
    /// project that is archived later is kept.
    #[serde(default)]
    pub include_archived: bool,
    /// Requests under way at once. Default 4. Fewer while the server refuses (429, 503), and
    /// gradually as many again when it answers.
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
    /// Requests started per second at most, by all steps of a run together. Default 10. Fewer
    /// when the server says that little is left of its own limit.
    #[serde(default = "default_requests_per_second")]
    pub requests_per_second: f64,
    /// Time after which one request is given up. Default `60s`.
    #[serde(default = "default_request_timeout", with = "duration_text")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// How often a request that failed on the way is sent again. Default 4. While a run has not
    /// reached the server at all, it is given up after about 1.5 s: a wrong address or a server
    /// that is down is reported within seconds.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Wait before the first of them, doubled each time, spread at random. Default `1s`.
    #[serde(default = "default_retry_wait", with = "duration_text")]
    #[schemars(with = "String")]
    pub retry_wait: Duration,
    /// File with certificates to trust beside the usual ones, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// How far behind the cursor each run reads again. Default `120s`, at least `60s`:
    /// GitLab does not move `updated_at` for a minute after a change.
    #[serde(default = "default_overlap", with = "duration_text")]
    #[schemars(with = "String")]
    pub overlap: Duration,
    /// Items updated in this window have their discussions fetched again once a day, even
    /// when `updated_at` did not move. Default `14d`; `0s` turns it off.
    #[serde(default = "default_backfill", with = "duration_text")]
    #[schemars(with = "String")]
    pub backfill_window: Duration,
}

/// `[sources.NAME]` with `kind = "gitlab-export"`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportConfig {
    /// The `.tar.gz` file or the unpacked directory.
    pub path: PathBuf,
    /// Full path of the project: an export does not hold it.
    pub project: String,
    /// Address of the project's page, for links in answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web_url: Option<String>,
}

/// `[query]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QueryConfig {
    /// Weight of a hit in the title. Default 3.
    pub title_weight: f64,
    /// Weight of a hit in the text. Default 1.
    pub text_weight: f64,
    /// Weight of a hit in the threads of an item. Default 0.5.
    pub thread_weight: f64,
    /// Weight of a hit among the synthetic terms (identifier parts, CJK pairs). Default 1.
    pub terms_weight: f64,
    /// Candidates that each retriever hands on. Default 200.
    pub candidates: usize,
    /// How the lists by words and by meaning become one: `deviations` (scores in standard
    /// deviations of their list), `minmax` (spread over 0 to 1), `share` (as shares of the best) or
    /// `rrf` (reciprocal ranks). Default `deviations`.
    pub fusion: FusionMethod,
    /// Share of the words in a fused score, 0 to 1; the rest is that of the meaning. Default 0.5.
    pub lexical_weight: f64,
    /// For `rrf`: the larger, the more the ranks further down count. Default 60.
    pub rrf_k: f64,
    /// Share of its parent's score that a neighbour in the graph of references gets. Default 0.4.
    pub graph_factor: f64,
    /// For items that many others refer to. Default 1.15; 1 turns it off.
    pub hub_factor: f64,
    /// References from other items that make a hub. Default 5.
    pub hub_references: usize,
    /// Whether the state of an item counts, by the three factors below. Default false: it was
    /// not shown to help (docs/quality.md).
    pub state_boosts: bool,
    /// For open items. Default 1.2.
    pub active_factor: f64,
    /// For drafts and items labelled `blocked`. Default 0.8.
    pub pending_factor: f64,
    /// For closed items. Default 0.5.
    pub stale_factor: f64,
    /// Share of its copy's score that an item has at most that was moved. Default 0.5.
    pub moved_factor: f64,
    /// Age since the last change at which a score is halved: `180d`. Default: age does not count.
    #[serde(skip_serializing_if = "Option::is_none", with = "maybe_duration_text")]
    #[schemars(with = "Option<String>")]
    pub recency_half_life: Option<Duration>,
    /// Home projects, as in a scope: what lies outside counts `away_factor` times. Default: none.
    pub home: Vec<String>,
    /// For what lies outside of the home projects. Default 0.7.
    pub away_factor: f64,
    /// Who takes a question apart: `heuristic` (default, lore's own rules) or `llm`, a model behind
    /// OpenAI's chat interface.
    pub ner: NerBackend,
    /// Address of the model's server, with or without `/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ner_url: Option<String>,
    /// Model, exactly as the server names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ner_model: Option<String>,
    /// Where the server's access token is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ner_token: Option<SecretRef>,
    /// Time after which it is not waited for. Default `5s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub ner_timeout: Duration,
    /// What is done when it fails: `use_heuristic` (default), `empty_on_fail` (search without
    /// free words) or `propagate` (fail).
    pub ner_fallback: NerFallback,
    /// Whether confidential items and internal notes are answered when no scope is named.
    /// Default false.
    pub include_confidential: bool,
}

impl Default for QueryConfig {
    fn default() -> Self {
        Self {
            title_weight: 3.0,
            text_weight: 1.0,
            thread_weight: 0.5,
            terms_weight: 1.0,
            candidates: 200,
            fusion: FusionMethod::Deviations,
            lexical_weight: 0.5,
            rrf_k: 60.0,
            graph_factor: 0.4,
            hub_factor: 1.15,
            hub_references: 5,
            state_boosts: false,
            active_factor: 1.2,
            pending_factor: 0.8,
            stale_factor: 0.5,
            moved_factor: 0.5,
            recency_half_life: None,
            home: Vec::new(),
            away_factor: 0.7,
            ner: NerBackend::Heuristic,
            ner_url: None,
            ner_model: None,
            ner_token: None,
            ner_timeout: Duration::from_secs(5),
            ner_fallback: NerFallback::UseHeuristic,
            include_confidential: false,
        }
    }
}

/// `[embedding]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddingConfig {
    /// Who embeds: `builtin` (default, in this process), `ollama`, `openai` (any server with
    /// its `/v1/embeddings`) or `tei`.
    pub provider: EmbeddingProvider,
    /// Address of the server, with its sub-path when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Model, exactly as the server names it. Default: `nomic-embed-text` (ollama),
    /// `text-embedding-3-small` (openai), the one that is served (tei).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where the server's access token is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretRef>,
    /// Dimensions of the vectors. Default: what the server's first answer has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dims: Option<usize>,
    /// Text put in front of a query. Default: what the model was trained with, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_prefix: Option<String>,
    /// Text put in front of a passage. Default: what the model was trained with, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_prefix: Option<String>,
    /// Tokens of a passage, title not counted: 32 to 2,000. Default 180.
    pub chunk_tokens: usize,
    /// Texts in one request at most. Default 32.
    pub batch: usize,
    /// Characters in one request at most. Default 60000.
    pub batch_chars: usize,
    /// Tokens in one request at most, estimated. Default 8000.
    pub batch_tokens: usize,
    /// Requests under way at once; for `builtin`, threads. Default 2.
    pub concurrency: usize,
    /// Time after which a request for passages is given up. Default `5m`: a server may load
    /// its model first.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Time after which a query is answered without vectors. Default `3s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub query_timeout: Duration,
    /// File with certificates to trust beside the usual ones, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl Default for EmbeddingConfig {
    fn default() -> Self {
        Self {
            provider: EmbeddingProvider::Builtin,
            url: None,
            model: None,
            token: None,
            dims: None,
            query_prefix: None,
            document_prefix: None,
            chunk_tokens: 180,
            batch: 32,
            batch_chars: 60_000,
            batch_tokens: 8_000,
            concurrency: 2,
            timeout: Duration::from_secs(300),
            query_timeout: Duration::from_secs(3),
            ca_file: None,
        }
    }
}

/// Name of the model in this binary; a change of the weights or of the tokens changes it.
pub const BUILTIN_MODEL: &str = "all-MiniLM-L6-v2-int8-1";

/// Who embeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EmbeddingProvider {
    /// The model in this binary.
    Builtin,
    /// An Ollama server.
    Ollama,
    /// A server with `OpenAI`'s interface.
    Openai,
    /// A server of Hugging Face's text-embeddings-inference.
    Tei,
}

impl EmbeddingProvider {
    /// Name in the configuration and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Ollama => "ollama",
            Self::Openai => "openai",
            Self::Tei => "tei",
        }
    }

    /// Finds a provider by its name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Builtin, Self::Ollama, Self::Openai, Self::Tei].into_iter().find(|it| it.as_str() == name)
    }
}

/// `[scopes.NAME]`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScopeConfig {
    /// Project paths that may be seen; `group/*` means everything below `group`.
    pub projects: Vec<String>,
    /// Whether confidential items and internal notes may be seen. Default false.
    #[serde(default)]
    pub include_confidential: bool,
}

fn default_include_subgroups() -> bool {
    true
}

fn default_concurrency() -> usize {
    4
}

fn default_requests_per_second() -> f64 {
    10.0
}

fn default_request_timeout() -> Duration {
    Duration::from_secs(60)
}

fn default_retries() -> u32 {
    4
}

fn default_retry_wait() -> Duration {
    Duration::from_secs(1)
}

fn default_overlap() -> Duration {
    Duration::from_secs(120)
}

fn default_backfill() -> Duration {
    Duration::from_secs(14 * 86_400)
}
