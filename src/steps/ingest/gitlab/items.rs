//! The issue and merge request streams: pages from the cursor on, each one transaction; and
//! the sweep, which reads a stream from its beginning to learn what is still there.

use std::collections::BTreeSet;

use super::ahead;
use super::places::{self, Place, Skip};
use super::{ProjectIds, Source, bad_row, count, stream_name};
use crate::clock::{self, Millis};
use crate::content::{Issue, ItemType, MergeRequest};
use crate::engine::step::StepReport;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::walk::{self, Memo, Onward, Walk};
use crate::gitlab::wire::{self, BadRow};
use crate::gitlab::{Client, Page};
use crate::store::cursors::{self, Cursor};
use crate::store::entities::{self, Change, Upserted};
use crate::store::{WriteTx, queues};

/// An item as it was read, with the bytes it was read from.
struct Row<'a> {
    item: Item,
    raw: &'a [u8],
}

enum Item {
    Issue(Issue),
    MergeRequest(MergeRequest),
}

impl Item {
    fn read(item_type: ItemType, raw: &serde_json::value::RawValue) -> Result<Self, BadRow> {
        match item_type {
            ItemType::Issue => wire::issue(raw).map(Self::Issue),
            ItemType::MergeRequest => wire::merge_request(raw).map(Self::MergeRequest),
        }
    }

    /// Id on the server, number, time of the last update.
    fn key(&self) -> (i64, i64, Millis) {
        match self {
            Self::Issue(issue) => (issue.gitlab_id, issue.iid, issue.updated_at),
            Self::MergeRequest(request) => (request.gitlab_id, request.iid, request.updated_at),
        }
    }

    fn upsert(&self, tx: &WriteTx<'_>, project_id: i64, now: Millis) -> Result<Upserted> {
        match self {
            Self::Issue(issue) => entities::upsert_issue(tx, project_id, issue, now),
            Self::MergeRequest(request) => entities::upsert_merge_request(tx, project_id, request, now),
        }
    }
}

/// When the item of a row was last updated, if the row can be read.
pub(super) fn time_of(item_type: ItemType, raw: &serde_json::value::RawValue) -> Option<Millis> {
    Item::read(item_type, raw).ok().map(|item| item.key().2)
}

/// Where a stream stands while it is read.
struct Standing {
    item_type: ItemType,
    /// Cursor, moved only by rows that are stored.
    at: Option<(Millis, i64)>,
    /// Memo of the run before.
    memo: Memo,
    /// Whether all pages so far came oldest first.
    in_order: bool,
    /// In a sweep: the numbers that were seen. A sweep leaves the cursor alone.
    swept: Option<BTreeSet<i64>>,
    /// A row that cannot be read and lies before the page that is stored next: recorded with it.
    skipped: Option<Place>,
}

impl Standing {
    /// One that leaves the cursor alone.
    fn of_sweep(item_type: ItemType) -> Self {
        Self {
            item_type,
            at: None,
            memo: Memo::default(),
            in_order: true,
            swept: Some(BTreeSet::new()),
            skipped: None,
        }
    }

    fn cursor(&self, memo: Memo, now: Millis) -> Cursor {
        Cursor {
            updated_at: self.at.map(|(time, _)| time),
            tie_id: self.at.map(|(_, id)| id),
            fingerprint: Some(memo.format()).filter(|text| !text.is_empty()),
            saved_at: now,
        }
    }
}

/// Reads the issues or merge requests of a project from the cursor on; returns how many rows
/// there were.
pub(super) fn read(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    report: &mut StepReport,
) -> Result<u64> {
    let ctx = source.ctx;
    let stream = stream_name(item_type);
    let stored = ctx.read(|tx| cursors::get(tx, ids.local, stream))?;
    let had_items = stored.is_some();
    // A full run reads from the beginning. The old cursor stands until the first page is
    // stored: a list that cannot be read leaves everything as it was.
    let stored = stored.filter(|_| !ctx.options.full);
    let mut standing = Standing {
        item_type,
        at: stored.as_ref().and_then(|cursor| Some((cursor.updated_at?, cursor.tie_id.unwrap_or(0)))),
        memo: stored.and_then(|cursor| cursor.fingerprint).map(|text| Memo::parse(&text)).unwrap_or_default(),
        in_order: true,
        swept: None,
        skipped: None,
    };
    let due = places::due(source, ids, item_type, report)?;
    let cursor_before = standing.at;
    let start = walk::start(standing.at.map(|(time, _)| time), source.config.overlap);
    let (n_rows, server_now) = read_pages(source, ids, &mut standing, start, report)?;
    if n_rows == 0 && had_items {
        // Nothing was deleted: the last item always comes back, unless it may not be seen.
        report.warn(format!(
            "{}: the list of {stream} is empty although items were read before; the token may have lost access. Nothing was removed",
            ids.path
        ));
    }
    finish_stream(source, ids, &standing, cursor_before, server_now, report)?;
    places::look_again(source, ids, item_type, due, report)?;
    Ok(n_rows)
}

/// Reads a whole stream, stores what differs from what is stored, and returns the numbers of
/// the items that are there. An item that is updated meanwhile moves to the end of the list and
/// is still seen.
pub(in crate::steps) fn sweep(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    report: &mut StepReport,
) -> Result<BTreeSet<i64>> {
    let mut standing = Standing::of_sweep(item_type);
    read_pages(source, ids, &mut standing, None, report)?;
    Ok(standing.swept.unwrap_or_default())
}

/// Stores one item that was asked for by its number.
///
/// # Errors
/// Those of the database; a row that cannot be read is counted and shown.
pub(in crate::steps) fn store_one(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    raw: Box<serde_json::value::RawValue>,
    report: &mut StepReport,
) -> Result<()> {
    store_rows(source, ids, item_type, vec![raw], report)
}

/// Stores rows that were asked for beside the walk through their stream.
pub(super) fn store_rows(
    source: &Source<'_>,
    ids: &ProjectIds,
    item_type: ItemType,
    rows: Vec<Box<serde_json::value::RawValue>>,
    report: &mut StepReport,
) -> Result<()> {
    let page = Page { rows, next: None, server_time: None, total: None };
    store_page(source, ids, &mut Standing::of_sweep(item_type), &page, &mut BTreeSet::new(), report)
        .map(|_| ())
}

/// The time from which a stream will be read: the start of a run knows it before its turn.
pub(super) fn start_of(source: &Source<'_>, local: i64, item_type: ItemType) -> Result<Option<Millis>> {
    if source.ctx.options.full {
        return Ok(None);
    }
    let stored = source.ctx.read(|tx| cursors::get(tx, local, stream_name(item_type)))?;
    Ok(walk::start(stored.and_then(|cursor| cursor.updated_at), source.config.overlap))
}

/// Reads the pages of a stream from `start` on. Returns how many rows there were, and the
/// server's time at the beginning.
fn read_pages(
    source: &Source<'_>,
    ids: &ProjectIds,
    standing: &mut Standing,
    start: Option<Millis>,
    report: &mut StepReport,
) -> Result<(u64, Option<Millis>)> {
    let ctx = source.ctx;
    let stream = stream_name(standing.item_type);
    let mut walk = Walk::new(start);
    let mut next = Some(window_url(&source.client, &ids.remote, stream, start));
    let mut asked = match standing.swept {
        None => ahead::page(source, standing.item_type, start),
        Some(_) => None,
    };
    let mut reached = start;
    let mut seen_pages = BTreeSet::new();
    let mut last_page = BTreeSet::new();
    let mut server_now = None;
    let (mut n_rows, mut total) = (0_u64, None);
    while let Some(url) = next {
        ctx.check()?;
        if !seen_pages.insert(url.to_string()) {
            return Err(Error::new(
                ErrorKind::Network,
                format!("{} {stream}: the same page came twice", ids.path),
            ));
        }
        let (asked, now) = (asked.take(), source.client.page(&url));
        let page = match ctx.block_on(async { Ok(ahead::or_else(asked, now).await) })? {
            Ok(page) => page,
            Err(error) => match places::skip(source, ids, standing.item_type, &url, error)? {
                Skip::Readable(page) => page,
                Skip::Behind { page, until } => {
                    standing.skipped = Some(Place { from: reached, until });
                    walk.forget_pass();
                    page
                }
            },
        };
        server_now = server_now.or(page.server_time);
        total = total.or(page.total);
        n_rows += page.rows.len() as u64;
        let (times, n_changed) = store_page(source, ids, standing, &page, &mut last_page, report)?;
        ctx.progress.set(stream, n_rows, total.map(|total| total.max(n_rows)));
        reached = times.last().copied().or(reached);
        next = match walk.onward(page.next, &times, n_changed) {
            Onward::Window(start) => {
                seen_pages.clear();
                Some(window_url(&source.client, &ids.remote, stream, start))
            }
            Onward::Page(url) => Some(url),
            Onward::End => None,
        };
    }
    Ok((n_rows, server_now))
}

/// The list of what was updated at a time or later, or of everything, oldest first.
pub(super) fn window_url(client: &Client, remote: &str, stream: &str, window: Option<Millis>) -> url::Url {
    let since = window.map(clock::rfc3339);
    let mut query = vec![("scope", "all"), ("state", "all"), ("order_by", "updated_at"), ("sort", "asc")];
    if let Some(since) = &since {
        query.push(("updated_after", since));
    }
    client.list_url(&["projects", remote, stream], &query)
}

/// Stores one page in one transaction: rows, payloads, queue entries, cursor. Returns the
/// times of its rows and how many of them were news. `last_page` holds what the page before
/// held, which windows repeat.
fn store_page(
    source: &Source<'_>,
    ids: &ProjectIds,
    standing: &mut Standing,
    page: &Page,
    last_page: &mut BTreeSet<(i64, Millis)>,
    report: &mut StepReport,
) -> Result<(Vec<Millis>, usize)> {
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    for raw in &page.rows {
        match Item::read(standing.item_type, raw) {
            Ok(item) => rows.push(Row { item, raw: raw.get().as_bytes() }),
            Err(error) => {
                bad_row(&ids.path, standing.item_type.as_str(), &error, report);
                bad.extend(error.iid.map(|iid| (iid, raw.get().as_bytes())));
            }
        }
    }
    if let Some(swept) = &mut standing.swept {
        swept.extend(rows.iter().map(|row| row.item.key().1).chain(bad.iter().map(|(iid, _)| *iid)));
    }
    let times: Vec<Millis> = rows.iter().map(|row| row.item.key().2).collect();
    standing.in_order &= walk::is_ascending(&times);
    let keys: BTreeSet<(i64, Millis)> = rows.iter().map(|row| (row.item.key().0, row.item.key().2)).collect();
    rows.retain(|row| !last_page.contains(&(row.item.key().0, row.item.key().2)));
    *last_page = keys;
    let skipped = standing.skipped.take();
    if rows.is_empty() && bad.is_empty() && skipped.is_none() {
        return Ok((times, 0));
    }
    let greatest = rows.iter().map(|row| (row.item.key().2, row.item.key().0)).max();
    let moved = greatest.filter(|greatest| standing.at.is_none_or(|at| *greatest > at));
    let now = source.ctx.now();
    let how = source.ctx.config.database.raw_payloads;
    let before = standing.at;
    let is_sweep = standing.swept.is_some();
    standing.at = moved.or(standing.at);
    let stored = source.ctx.write(|tx| {
        let mut tally = Tally::default();
        for Row { item, raw } in &rows {
            let (_, iid, updated_at) = item.key();
            let upserted = item.upsert(tx, ids.local, now)?;
            tally.add(upserted.change);
            if upserted.change != Change::Unchanged {
                entities::save_raw(
                    tx,
                    ids.local,
                    standing.item_type.as_str(),
                    &iid.to_string(),
                    raw,
                    how,
                    now,
                )?;
            }
            if upserted.discussions_stale || (source.ctx.options.full && !is_sweep) {
                queues::queue_discussions(tx, ids.local, standing.item_type, iid, now)?;
                tally.queued += 1;
            } else if !is_sweep && !standing.memo.has_settled(updated_at) {
                // It was read within the minute in which a new note does not show.
                queues::queue_discussions_again(tx, ids.local, standing.item_type, iid, now)?;
                tally.queued += 1;
            }
        }
        for (iid, raw) in &bad {
            // Kept for a reader that understands it one day.
            entities::save_raw(tx, ids.local, standing.item_type.as_str(), &iid.to_string(), raw, how, now)?;
        }
        if let Some(place) = skipped.filter(|_| !is_sweep) {
            // With the cursor that passes it.
            places::record(tx, ids, standing.item_type, place, now)?;
        }
        if moved.is_some() && standing.in_order && !is_sweep {
            cursors::set(
                tx,
                ids.local,
                stream_name(standing.item_type),
                &standing.cursor(standing.memo, now),
            )?;
        }
        Ok(tally)
    });
    match stored {
        Ok(tally) => {
            tally.report(standing.item_type, report);
            Ok((times, usize::try_from(tally.new + tally.changed).unwrap_or(0)))
        }
        Err(error) => {
            standing.at = before;
            Err(error)
        }
    }
}

/// After the last page: remembers when the stream was read, and queues the discussions of
/// recently updated items once a day, since deleted or edited notes move no time.
fn finish_stream(
    source: &Source<'_>,
    ids: &ProjectIds,
    standing: &Standing,
    cursor_before: Option<(Millis, i64)>,
    server_now: Option<Millis>,
    report: &mut StepReport,
) -> Result<()> {
    let ctx = source.ctx;
    let now = ctx.now();
    let server_now = server_now.unwrap_or(now);
    let cursor = standing.at.map(|(time, _)| time);
    let (memo, since) = standing.memo.after_run(cursor, source.config.backfill_window, server_now);
    let unwritten = !standing.in_order && standing.at != cursor_before;
    if standing.at.is_none() || (memo == standing.memo && !unwritten) {
        return Ok(());
    }
    let queued = ctx.write(|tx| {
        cursors::set(tx, ids.local, stream_name(standing.item_type), &standing.cursor(memo, now))?;
        match since {
            Some(since) => queues::queue_discussions_since(tx, ids.local, standing.item_type, since, now),
            None => Ok(0),
        }
    })?;
    report.add("discussions_queued", count(queued));
    Ok(())
}

/// What storing a page came to.
#[derive(Default)]
struct Tally {
    new: i64,
    changed: i64,
    unchanged: i64,
    queued: i64,
}

impl Tally {
    fn add(&mut self, change: Change) {
        match change {
            Change::New => self.new += 1,
            Change::Changed | Change::Touched => self.changed += 1,
            Change::Unchanged => self.unchanged += 1,
        }
    }

    fn report(&self, item_type: ItemType, report: &mut StepReport) {
        let [new, changed, unchanged] = match item_type {
            ItemType::Issue => ["issues_new", "issues_changed", "issues_unchanged"],
            ItemType::MergeRequest => {
                ["merge_requests_new", "merge_requests_changed", "merge_requests_unchanged"]
            }
        };
        report.add(new, self.new);
        report.add(changed, self.changed);
        report.add(unchanged, self.unchanged);
        report.add("discussions_queued", self.queued);
    }
}
