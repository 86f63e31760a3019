//! The streams of a project: those that are read whole, and what becomes of one that fails.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::ahead;
use super::{ProjectIds, Source, bad_row, count, is_isolated};
use crate::clock::{self, Millis};
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::wire::{self, BadRow};
use crate::store::cursors::{self, StreamFailure};
use crate::store::entities;

/// The streams of a project while they are read.
pub(super) struct Streams<'a> {
    source: &'a Source<'a>,
    ids: &'a ProjectIds,
    /// Those that failed and are not to be tried yet.
    waiting: BTreeMap<String, StreamFailure>,
}

impl<'a> Streams<'a> {
    pub(super) fn of(source: &'a Source<'a>, ids: &'a ProjectIds) -> Result<Self> {
        let ctx = source.ctx;
        let waiting = if source.tries_all() {
            BTreeMap::new()
        } else {
            ctx.read(|tx| cursors::waiting_streams(tx, ids.local, ctx.now()))?
        };
        Ok(Self { source, ids, waiting })
    }

    /// The failure of a stream whose next attempt is not due; it is counted and shown.
    pub(super) fn waits(&self, stream: &str, report: &mut StepReport) -> Option<Error> {
        let failure = self.waiting.get(stream)?;
        let what = format!("{} {stream}", self.ids.path);
        let error = waiting_error(
            &what,
            &failure.error_kind,
            &failure.error,
            failure.attempt_count,
            failure.next_attempt_at,
        );
        note_waiting(&error, report);
        Some(error)
    }

    pub(super) fn labels(&self, report: &mut StepReport) -> Result<()> {
        let Some(rows) = self.small_list("labels", false, report)? else { return Ok(()) };
        let (ctx, id) = (self.source.ctx, self.ids.local);
        let labels = self.good_rows("label", rows.iter().map(|raw| wire::label(raw)), report);
        let changed = ctx.write(|tx| {
            cursors::clear_stream_failure(tx, id, "labels")?;
            entities::upsert_labels(tx, id, &labels, ctx.now())
        })?;
        report.add("labels_changed", count(changed));
        Ok(())
    }

    pub(super) fn milestones(&self, is_off: bool, report: &mut StepReport) -> Result<()> {
        let Some(rows) = self.small_list("milestones", is_off, report)? else { return Ok(()) };
        let (ctx, id) = (self.source.ctx, self.ids.local);
        let milestones = self.good_rows("milestone", rows.iter().map(|raw| wire::milestone(raw)), report);
        let changed = ctx.write(|tx| {
            cursors::clear_stream_failure(tx, id, "milestones")?;
            entities::upsert_milestones(tx, id, &milestones, ctx.now())
        })?;
        report.add("milestones_changed", count(changed));
        Ok(())
    }

    /// Reads a list that is small enough to be read whole each run. Nothing when it is switched
    /// off, refused to us (403: an older server refuses milestones when issues are off), or
    /// failing, which is recorded.
    fn small_list(
        &self,
        stream: &str,
        is_off: bool,
        report: &mut StepReport,
    ) -> Result<Option<Vec<Box<RawValue>>>> {
        let (source, ids) = (self.source, self.ids);
        source.ctx.check()?;
        if is_off {
            report.add("streams_off", 1);
            return Ok(None);
        }
        if self.waits(stream, report).is_some() {
            return Ok(None);
        }
        let url = source.client.list_url(&["projects", &ids.remote, stream], &[]);
        let (asked, now) = (ahead::list(source, stream), source.client.list(&url));
        match source.ctx.block_on(async { Ok(ahead::or_else(asked, now).await) })? {
            Ok(rows) => Ok(Some(rows)),
            Err(error) if error.is_forbidden() => {
                report.add("streams_off", 1);
                source.ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, stream))?;
                Ok(None)
            }
            Err(error) => {
                let error = error.error.context(format!("{} {stream}", ids.path));
                self.fail(stream, &error, report)?;
                Ok(None)
            }
        }
    }

    fn good_rows<T>(
        &self,
        what: &str,
        rows: impl Iterator<Item = Result<T, BadRow>>,
        report: &mut StepReport,
    ) -> Vec<T> {
        rows.filter_map(|row| row.map_err(|bad| bad_row(&self.ids.path, what, &bad, report)).ok()).collect()
    }

    /// Records that a stream cannot be read; returns the error when it ends the step.
    pub(super) fn fail(&self, stream: &str, error: &Error, report: &mut StepReport) -> Result<()> {
        let (source, ids) = (self.source, self.ids);
        if !is_isolated(error.kind()) {
            let mut out = Error::new(error.kind(), error.full_message());
            if let Some(wait_ms) = error.retry_after() {
                out = out.retry_after_ms(wait_ms);
            }
            return Err(error.hints().iter().fold(out, |out, hint| out.hint(hint.clone())));
        }
        tracing::warn!(source = source.name, project = %ids.path, stream, error = %error, "stream cannot be read");
        report.failing += 1;
        report.warn(error.full_message());
        source.ctx.write(|tx| cursors::record_stream_failure(tx, ids.local, stream, error, source.ctx.now()))
    }
}

/// Fails when the project itself failed last time and its next attempt is not due.
pub(super) fn ensure_due(
    source: &Source<'_>,
    project_id: i64,
    path: &str,
    report: &mut StepReport,
) -> Result<()> {
    if source.tries_all() {
        return Ok(());
    }
    let ctx = source.ctx;
    let mut waiting = ctx.read(|tx| cursors::waiting_streams(tx, project_id, ctx.now()))?;
    let Some(failure) = waiting.remove("project") else { return Ok(()) };
    let error = waiting_error(
        path,
        &failure.error_kind,
        &failure.error,
        failure.attempt_count,
        failure.next_attempt_at,
    );
    note_waiting(&error, report);
    Err(error)
}

/// Counts and shows something whose next attempt is not due: it is still failing.
pub(super) fn note_waiting(error: &Error, report: &mut StepReport) {
    report.failing += 1;
    report.add("streams_waiting", 1);
    report.warn(error.full_message());
}

/// The error of something that failed before and is not tried now.
pub(super) fn waiting_error(
    what: &str,
    kind: &str,
    last: &str,
    attempts: i64,
    next_attempt_at: Option<Millis>,
) -> Error {
    let when = next_attempt_at.map(|at| format!(" before {}", clock::rfc3339(at))).unwrap_or_default();
    Error::new(
        ErrorKind::from_code(kind).unwrap_or(ErrorKind::RunFailed),
        format!("{what}: not tried again{when}, after {attempts} failures; the last: {last}"),
    )
    .hint("--retry-failed tries it now")
}
