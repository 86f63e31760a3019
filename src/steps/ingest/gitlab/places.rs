//! Rows of a list that the server cannot bring, not even alone.
//!
//! Such a row would block all that lies behind it for ever. So once its stream has failed as
//! often as a passing trouble would, the walk goes on behind the row. The place is recorded
//! with the page behind it, in one transaction: it stays visible among the failing streams,
//! and is read again whenever its next attempt is due.

use super::{ProjectIds, Source, is_isolated, items, stream_name};
use crate::clock::{self, Millis};
use crate::content::ItemType;
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::{Page, RequestError, paging};
use crate::store::WriteTx;
use crate::store::cursors::{self, StreamFailure};

/// Rows side by side that are passed by at most. More of them look like a server that is down.
const MOST_AT_ONCE: u64 = 3;

/// A stretch of a stream, by `updated_at`, with something in it that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Nothing: from the beginning.
    pub(super) from: Option<Millis>,
    pub(super) until: Millis,
}

impl Place {
    /// Its name among the failing streams.
    fn name(self, stream: &str) -> String {
        let from = self.from.map(clock::rfc3339).unwrap_or_default();
        format!("{stream} {from}/{}", clock::rfc3339(self.until))
    }

    fn parse(name: &str) -> Option<Self> {
        let (from, until) = name.split_once(' ')?.1.split_once('/')?;
        let from = if from.is_empty() { None } else { Some(clock::parse_time(from)?) };
        Some(Self { from, until: clock::parse_time(until)? })
    }

    fn meets(self, other: Self) -> bool {
        let starts_before = |from: Option<Millis>, until| from.is_none_or(|from| from <= until);
        starts_before(self.from, other.until) && starts_before(other.from, self.until)
    }
}

/// What comes of a page that failed.
pub(super) enum Skip {
    /// Its first row can be read after all.
    Readable(Page),
    /// The row behind what cannot be read, and its time.
    Behind { page: Page, until: Millis },
}

/// Looks for the row behind one that cannot be read even alone; the error of the page when
/// the stream is to fail: it has not failed often enough, or nothing behind it answers either.
pub(super) fn skip(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    url: &url::Url,
    error: RequestError,
) -> Result<Skip> {
    let ctx = source.ctx;
    let stream = stream_name(item_type);
    if !is_of_row(&error) {
        return Err(error.into());
    }
    let known = ctx.read(|tx| cursors::failures_within(tx, ids.local, stream))?;
    let is_old = |failure: &StreamFailure| {
        failure.stream != stream || failure.attempt_count >= i64::from(cursors::PATIENCE)
    };
    if !known.iter().any(is_old) {
        return Err(error.into());
    }
    let page = |url: &url::Url| ctx.block_on(async { Ok(source.client.page(url).await) });
    for nth in 1..=MOST_AT_ONCE {
        let Some((row, behind)) = paging::row_and_next(url, nth) else { break };
        match page(&behind)? {
            Ok(found) => {
                let Some(until) = found.rows.first().and_then(|raw| items::time_of(item_type, raw)) else {
                    break;
                };
                // What lies before may have moved on meanwhile, and another row into its place.
                return match page(&row)? {
                    Ok(readable) => Ok(Skip::Readable(readable)),
                    Err(again) if is_of_row(&again) => {
                        tracing::warn!(source = source.name, project = %ids.path, stream, error = %again.error, "a row cannot be read and is passed by");
                        Ok(Skip::Behind { page: found, until })
                    }
                    Err(again) => Err(again.into()),
                };
            }
            Err(other) if is_of_row(&other) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Err(error.into())
}

/// Whether a failure may be one of a row: the answer is not made, not in time, or damaged.
fn is_of_row(error: &RequestError) -> bool {
    error.error.kind() == ErrorKind::Network
        && matches!(error.status, None | Some(200 | 500 | 502 | 504 | 524))
}

/// Records a place that was passed by.
pub(super) fn record(
    tx: &WriteTx<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    place: Place,
    now: Millis,
) -> Result<()> {
    let stream = stream_name(item_type);
    let known = cursors::failures_within(tx, ids.local, stream)?;
    let known =
        known.iter().find(|failure| Place::parse(&failure.stream).is_some_and(|old| old.meets(place)));
    let name = known.map_or_else(|| place.name(stream), |failure| failure.stream.clone());
    cursors::record_stream_failure(tx, ids.local, &name, &unreadable(&ids.path, stream), now)
}

fn unreadable(path: &str, stream: &str) -> Error {
    Error::new(
        ErrorKind::Network,
        format!(
            "{path} {stream}: the server fails at a row of its list, even alone; it was passed by, and what lies behind it was read"
        ),
    )
    .hint("look for an item of that time at the server, and into the server's own log")
}

/// The places of a stream that are to be read again, and a word about the others.
pub(super) fn due(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    report: &mut StepReport,
) -> Result<Vec<String>> {
    let ctx = source.ctx;
    let (stream, now) = (stream_name(item_type), ctx.now());
    let mut due = Vec::new();
    for failure in ctx.read(|tx| cursors::failures_within(tx, ids.local, stream))? {
        if Place::parse(&failure.stream).is_none() {
            continue;
        }
        if source.tries_all() || failure.next_attempt_at.is_none_or(|at| at <= now) {
            due.push(failure.stream);
        } else {
            report.failing += 1;
            report.add("places_waiting", 1);
            report.warn(failure.error);
        }
    }
    Ok(due)
}

/// Reads places again that could not be read before.
pub(super) fn look_again(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    due: Vec<String>,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = source.ctx;
    let stream = stream_name(item_type);
    for name in due {
        ctx.check()?;
        let Some(place) = Place::parse(&name) else { continue };
        // A millisecond around it: the server compares by microseconds.
        let before = clock::rfc3339(place.until + 1);
        let mut url = items::window_url(&source.client, &ids.remote, stream, place.from.map(|from| from - 1));
        url.query_pairs_mut().append_pair("updated_before", &before);
        match ctx.block_on(async { Ok(source.client.list(&url).await) })? {
            Ok(rows) => {
                items::store_rows(source, ids, item_type, rows, report)?;
                ctx.write(|tx| cursors::clear_stream_failure(tx, ids.local, &name))?;
            }
            Err(error) if is_isolated(error.error.kind()) => {
                let error = if is_of_row(&error) { unreadable(&ids.path, stream) } else { error.error };
                report.failing += 1;
                report.warn(error.full_message());
                ctx.write(|tx| cursors::record_stream_failure(tx, ids.local, &name, &error, ctx.now()))?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_named_and_read_back_and_known_again() {
        for place in [Place { from: None, until: 5 }, Place { from: Some(-7), until: 1_700_000_000_123 }] {
            assert_eq!(Place::parse(&place.name("issues")), Some(place));
        }
        assert_eq!(Place::parse("issues"), None);
        let place = Place { from: Some(10), until: 20 };
        assert!(
            place.meets(Place { from: Some(20), until: 30 }) && place.meets(Place { from: None, until: 10 })
        );
        assert!(
            !place.meets(Place { from: Some(21), until: 30 }) && !place.meets(Place { from: None, until: 9 })
        );
    }
}
