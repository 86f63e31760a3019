//! Reading ahead: while one project is stored, the next ones are already asked for.
//!
//! A quiet run over many projects is bound by latency: each answer is small, and nothing else
//! is asked while it is on its way. So the requests with which a project begins (itself, its
//! labels and milestones, the first page of each item stream) are made for some projects at a
//! time, in the order in which one project alone would make them. Storing stays as it was: one
//! project after the other, each page in its transaction. An answer that was not read ahead,
//! or for another place of the stream than the one that is wanted now, is asked for as always.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::value::RawValue;
use tokio::sync::oneshot::{self, Receiver, Sender};
use tokio::task::AbortHandle;

use super::projects::{ReadProject, read_project};
use super::{Source, is_isolated, items, stream_name};
use crate::clock::Millis;
use crate::content::ItemType;
use crate::error::Result;
use crate::gitlab::wire::ProjectRow;
use crate::gitlab::{Client, Page, RequestError};
use crate::store::{cursors, entities, groups};

/// Bytes of answers that are held; above them no further project is asked for.
const MAX_BYTES: usize = 16 << 20;

type ReadList = Result<Vec<Box<RawValue>>, RequestError>;
type ReadPage = Result<Page, RequestError>;

/// A project that will be read.
pub(super) struct Wanted {
    /// Its path, by which it is found again.
    pub(super) path: String,
    /// Its id in the database, when it is known there.
    pub(super) local: Option<i64>,
    pub(super) ask: Ask,
}

/// With what a project begins.
pub(super) enum Ask {
    /// With itself, by its id or path.
    Project(String),
    /// With its streams: it is known from a list.
    Streams(Box<ProjectRow>),
}

/// Projects that are asked for ahead of being stored, in the order in which they will be.
#[derive(Default)]
pub(super) struct Ahead {
    waiting: VecDeque<Wanted>,
    flights: VecDeque<(String, Flight)>,
    /// What was asked for the project that is being stored.
    current: Option<Flight>,
    /// The server was seen to answer: before, one project is asked for, so that a refused
    /// token or a server that is down costs one request.
    is_open: bool,
}

/// Answers of one project, as they arrive.
struct Flight {
    task: AbortHandle,
    asked: Option<String>,
    row: Option<Receiver<ReadProject>>,
    lists: [Option<Receiver<ReadList>>; 2],
    pages: [Option<(Option<Millis>, Receiver<ReadPage>)>; 2],
    bytes: Arc<AtomicUsize>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Which streams are asked for: those whose next attempt is due.
struct Plan {
    ask: Ask,
    row: Sender<ReadProject>,
    lists: [Option<Sender<ReadList>>; 2],
    /// With the time from which they are read.
    pages: [Option<(Option<Millis>, Sender<ReadPage>)>; 2],
    bytes: Arc<AtomicUsize>,
}

const LISTS: [&str; 2] = ["labels", "milestones"];
const ITEMS: [ItemType; 2] = [ItemType::Issue, ItemType::MergeRequest];

/// Forgets what was to come and asks for these, in their order.
pub(super) fn expect(source: &Source<'_>, wanted: Vec<Wanted>) {
    let mut ahead = source.ahead.borrow_mut();
    ahead.is_open |= wanted.iter().any(|wanted| matches!(wanted.ask, Ask::Streams(_)));
    ahead.flights.clear();
    ahead.waiting = wanted.into();
}

/// A project is read now: what was asked for it is at hand, and the next ones are asked for.
pub(super) fn begin(source: &Source<'_>, path: &str) -> Result<()> {
    source.ahead.borrow_mut().current = None;
    fill(source)?;
    {
        let mut ahead = source.ahead.borrow_mut();
        while let Some((name, flight)) = ahead.flights.pop_front() {
            if name == path {
                ahead.current = Some(flight);
                break;
            }
        }
    }
    fill(source)
}

/// The server answered for a project: more of them may be asked for at once.
pub(super) fn open(source: &Source<'_>) -> Result<()> {
    if std::mem::replace(&mut source.ahead.borrow_mut().is_open, true) { Ok(()) } else { fill(source) }
}

/// The project that was asked for under this id or path.
pub(super) fn row(source: &Source<'_>, id_or_path: &str) -> Option<Receiver<ReadProject>> {
    let mut ahead = source.ahead.borrow_mut();
    let flight = ahead.current.as_mut()?;
    if flight.asked.as_deref() == Some(id_or_path) { flight.row.take() } else { None }
}

/// A list of the project that is being stored.
pub(super) fn list(source: &Source<'_>, stream: &str) -> Option<Receiver<ReadList>> {
    let place = LISTS.iter().position(|name| *name == stream)?;
    source.ahead.borrow_mut().current.as_mut()?.lists[place].take()
}

/// The first page of an item stream from a time on.
pub(super) fn page(
    source: &Source<'_>,
    item_type: ItemType,
    start: Option<Millis>,
) -> Option<Receiver<ReadPage>> {
    let place = ITEMS.iter().position(|known| *known == item_type)?;
    let mut ahead = source.ahead.borrow_mut();
    let (from, answer) = ahead.current.as_mut()?.pages[place].take()?;
    (from == start).then_some(answer)
}

/// What was asked for ahead, or else what is asked for now.
pub(super) async fn or_else<T>(ahead: Option<Receiver<T>>, now: impl Future<Output = T>) -> T {
    match ahead {
        Some(ahead) => match ahead.await {
            Ok(answer) => answer,
            // It was not asked for after all.
            Err(_) => now.await,
        },
        None => now.await,
    }
}

/// Asks for as many projects as may be under way.
fn fill(source: &Source<'_>) -> Result<()> {
    let mut ahead = source.ahead.borrow_mut();
    let most = match (ahead.is_open, &ahead.current) {
        (true, _) => source.config.concurrency.max(1),
        (false, None) => 1,
        (false, Some(_)) => 0,
    };
    while ahead.flights.len() < most {
        let held: usize = ahead.flights.iter().map(|(_, flight)| flight.bytes.load(Ordering::Relaxed)).sum();
        if held >= MAX_BYTES {
            break;
        }
        let Some(wanted) = ahead.waiting.pop_front() else { break };
        let path = wanted.path.clone();
        if let Some(flight) = launch(source, wanted)? {
            ahead.flights.push_back((path, flight));
        }
    }
    Ok(())
}

/// Starts to ask for one project; nothing when its next attempt is not due.
fn launch(source: &Source<'_>, wanted: Wanted) -> Result<Option<Flight>> {
    let ctx = source.ctx;
    let Wanted { local, ask, .. } = wanted;
    let waiting = match local {
        Some(local) if !source.tries_all() => {
            ctx.read(|tx| cursors::waiting_streams(tx, local, ctx.now()))?
        }
        Some(_) | None => std::collections::BTreeMap::new(),
    };
    if matches!(ask, Ask::Project(_)) && waiting.contains_key("project") {
        return Ok(None);
    }
    let asked = match &ask {
        Ask::Project(id_or_path) => Some(id_or_path.clone()),
        Ask::Streams(_) => None,
    };
    let bytes = Arc::new(AtomicUsize::new(0));
    let (row, row_answer) = oneshot::channel();
    let (mut lists, mut list_answers) = ([None, None], [None, None]);
    for (place, stream) in LISTS.into_iter().enumerate() {
        if !waiting.contains_key(stream) {
            let (tell, answer) = oneshot::channel();
            (lists[place], list_answers[place]) = (Some(tell), Some(answer));
        }
    }
    let (mut pages, mut page_answers) = ([None, None], [None, None]);
    for (place, item_type) in ITEMS.into_iter().enumerate() {
        if !waiting.contains_key(stream_name(item_type)) {
            let start = match local {
                Some(local) => items::start_of(source, local, item_type)?,
                None => None,
            };
            let (tell, answer) = oneshot::channel();
            (pages[place], page_answers[place]) = (Some((start, tell)), Some((start, answer)));
        }
    }
    let plan = Plan { ask, row, lists, pages, bytes: Arc::clone(&bytes) };
    let task = ctx.runtime.spawn(fly(source.client.clone(), plan)).abort_handle();
    Ok(Some(Flight { task, asked, row: Some(row_answer), lists: list_answers, pages: page_answers, bytes }))
}

/// Asks for one project. What is not sent (switched off, or after an error that ends the
/// source) is asked for by whoever wants it.
async fn fly(client: Client, plan: Plan) {
    let Plan { ask, row, lists, pages, bytes } = plan;
    let (remote, issues_off, merge_requests_off) = match ask {
        Ask::Streams(project) => (project.project.gitlab_id, project.issues_off, project.merge_requests_off),
        Ask::Project(id_or_path) => {
            let read = read_project(&client, &id_or_path).await;
            let known =
                read.as_ref().ok().filter(|project| !project.is_marked_for_deletion).map(|project| {
                    (project.project.gitlab_id, project.issues_off, project.merge_requests_off)
                });
            // Nobody waits for it any more: neither will anybody for the rest.
            let (Ok(()), Some(known)) = (row.send(read), known) else { return };
            known
        }
    };
    let Some(remote) = remote.map(|id| id.to_string()) else { return };
    for ((stream, tell), is_off) in
        LISTS.into_iter().zip(lists).zip([false, issues_off && merge_requests_off])
    {
        let Some(tell) = tell.filter(|_| !is_off) else { continue };
        let read = client.list(&client.list_url(&["projects", &remote, stream], &[])).await;
        if let Ok(rows) = &read {
            hold(&bytes, rows);
        }
        if !goes_on(&read) | tell.send(read).is_err() {
            return;
        }
    }
    for ((item_type, tell), is_off) in ITEMS.into_iter().zip(pages).zip([issues_off, merge_requests_off]) {
        let Some((start, tell)) = tell.filter(|_| !is_off) else { continue };
        let read = client.page(&items::window_url(&client, &remote, stream_name(item_type), start)).await;
        if let Ok(page) = &read {
            hold(&bytes, &page.rows);
        }
        if !goes_on(&read) | tell.send(read).is_err() {
            return;
        }
    }
}

fn hold(bytes: &AtomicUsize, rows: &[Box<RawValue>]) {
    bytes.fetch_add(rows.iter().map(|row| row.get().len()).sum(), Ordering::Relaxed);
}

/// Whether the rest of a project is worth asking for after this answer.
fn goes_on<T>(read: &Result<T, RequestError>) -> bool {
    read.as_ref().err().is_none_or(|error| is_isolated(error.error.kind()))
}

/// A project of the configuration, as it will be asked for.
pub(super) fn configured(source: &Source<'_>, path: &str) -> Result<Wanted> {
    let (stored, renamed) = source
        .ctx
        .read(|tx| Ok((entities::project(tx, source.name, path)?, groups::alias(tx, source.name, path)?)))?;
    // A renamed one is asked for by the path that is configured, and its streams go on.
    let local = stored.as_ref().or(renamed.as_ref()).map(|stored| stored.id);
    let known = stored.and_then(|stored| stored.gitlab_id).map(|id| id.to_string());
    Ok(Wanted { path: path.to_owned(), local, ask: Ask::Project(known.unwrap_or_else(|| path.to_owned())) })
}
