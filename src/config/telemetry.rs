//! `[metrics]`, `[tracing]`, `[notify.JOB]`: what lore tells about itself, and to whom.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration_text;
use crate::secret::SecretRef;

/// `[metrics]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// File for the textfile collector of node_exporter, written after each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub textfile: Option<PathBuf>,
    /// Address of a Pushgateway, `http://host:9091`, pushed to after each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push: Option<String>,
    /// Name of the group on the Pushgateway. Default `lore`; two databases need two names.
    pub push_group: String,
    /// Jobs that are meant to run: they appear before their first run, so that one that
    /// never starts is noticed. Default: every job that has a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
    /// Whether `lore query` counts its queries and their duration in the database. Default
    /// true; a database that cannot be written is queried all the same.
    pub queries: bool,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { textfile: None, push: None, push_group: "lore".to_owned(), jobs: None, queries: true }
    }
}

/// `[tracing]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TracingConfig {
    /// Address of an OTLP collector that takes HTTP, `http://host:4318`. Default: no traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// How long the end of a run waits for the collector, at most `3s`. Default `3s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Name of the service in traces. Default `lore`.
    pub service_name: String,
    /// Headers of each export, by name: credentials of the collector.
    pub headers: BTreeMap<String, SecretRef>,
}

impl Default for TracingConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            timeout: Duration::from_secs(3),
            service_name: "lore".to_owned(),
            headers: BTreeMap::new(),
        }
    }
}

/// `[notify.JOB]`: addresses in the style of healthchecks.io, each kept as a secret, since
/// knowing one is enough to use it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// Address of the check; `/start` and `/EXIT_CODE` are added to it. Pinged for every
    /// event that has no address of its own below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ping: Option<SecretRef>,
    /// Pinged when a run begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<SecretRef>,
    /// Pinged when a run succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<SecretRef>,
    /// Pinged when a run failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail: Option<SecretRef>,
}
