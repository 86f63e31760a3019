//! Ingests a project export.

use crate::config::ExportConfig;
use crate::engine::ctx::StepCtx;
use crate::engine::step::StepReport;
use crate::error::{Error, Result};

/// Reads one export and stores what changed.
///
/// # Errors
/// When the export cannot be read or the database cannot be written.
pub fn ingest(ctx: &StepCtx<'_>, name: &str, config: &ExportConfig, report: &mut StepReport) -> Result<()> {
    let _ = (ctx, name, config, report);
    Err(Error::internal("not built yet"))
}
