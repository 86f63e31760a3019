//! `repair`: puts right what the integrity check finds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::store::fts;
use crate::store::integrity::{self, Repaired};

/// Plans a repair from what the integrity check finds and applies it in one transaction.
///
/// The full-text index is built again, rows that belong to nothing are deleted, documents
/// that are missing or wrong are queued to be made again.
///
/// Damaged pages cannot be repaired; then the step fails with exit code 22.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Repair {
    /// Plans and reports, changes nothing.
    pub dry_run: bool,
}

impl Step for Repair {
    const KIND: &'static str = "repair";
    const SUMMARY: &'static str = "puts right what the integrity check finds";
    const EXAMPLE: &'static str = "{ dry_run = false }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let found = integrity::check(ctx.store, &ctx.cancel)?;
        let now = ctx.now();
        let done = if self.dry_run || found.total() == 0 {
            integrity::plan(&found)
        } else {
            if found.rebuilds_index() {
                ctx.read(|tx| fts::refuse_without_room(tx, ctx.store.path()))?;
            }
            ctx.write_long(|tx| integrity::repair(tx, &found, now))?
        };
        let mut report = StepReport::default();
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let Repaired {
            orphaned_embeddings_deleted,
            stale_embeddings_cleared,
            missing_fts_repopulated,
            wrong_fts_replaced,
            documents_requeued,
            orphaned_documents_deleted,
            orphaned_parts_deleted,
            dangling_rows_deleted,
            queue_entries_deleted,
            runs_closed,
            not_repairable,
        } = done;
        for (name, n) in [
            ("findings", found.total()),
            ("orphaned_embeddings_deleted", orphaned_embeddings_deleted),
            ("stale_embeddings_cleared", stale_embeddings_cleared),
            ("missing_fts_repopulated", missing_fts_repopulated),
            ("wrong_fts_replaced", wrong_fts_replaced),
            ("documents_requeued", documents_requeued),
            ("orphaned_documents_deleted", orphaned_documents_deleted),
            ("orphaned_parts_deleted", orphaned_parts_deleted),
            ("dangling_rows_deleted", dangling_rows_deleted),
            ("queue_entries_deleted", queue_entries_deleted),
            ("runs_closed", runs_closed),
            ("not_repairable", not_repairable),
        ] {
            report.add(name, count(n));
        }
        if self.dry_run {
            report.warn("dry run: this is the plan, nothing was changed");
        }
        if not_repairable > 0 {
            return Err(integrity::findings_error(&found));
        }
        Ok(report)
    }
}
