//! Ingests projects of a GitLab server.

use crate::config::GitlabConfig;
use crate::engine::ctx::StepCtx;
use crate::engine::step::StepReport;
use crate::error::{Error, Result};

/// Reads the projects of one server and stores what changed.
///
/// # Errors
/// When no project of the server could be read.
pub fn ingest(ctx: &StepCtx<'_>, name: &str, config: &GitlabConfig, report: &mut StepReport) -> Result<()> {
    let _ = (ctx, name, config, report);
    Err(Error::internal("not built yet"))
}
