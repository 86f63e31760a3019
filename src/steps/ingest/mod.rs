//! `ingest`: brings what changed at the sources into the database.

pub mod export;
pub mod gitlab;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{ExportConfig, SourceConfig};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Error, ErrorKind, Result};

/// Reads the sources and stores what is new or changed: projects, labels, milestones,
/// issues, merge requests and, from export archives, their discussions.
///
/// Everything that changed is queued for `regenerate-docs`, and discussions that have to
/// be fetched from a server for `fetch-discussions`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ingest {
    /// Name of one source, `[sources.NAME]`. Default: every configured source. `demo`
    /// names the sample that is built in, unless the configuration has a source of that name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Step for Ingest {
    const KIND: &'static str = "ingest";
    const SUMMARY: &'static str = "reads the sources and stores what changed";
    const EXAMPLE: &'static str = "{ source = \"demo\" }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let _ = ctx;
        let _: fn(&StepCtx<'_>, &str, &ExportConfig, &mut StepReport) -> Result<()> = export::ingest;
        let _: Option<&SourceConfig> = None;
        Err(Error::new(ErrorKind::Internal, "not built yet"))
    }
}
