//! One history's server and database, and a run of the steps that ends well, with an error,
//! or by a kill.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;

use super::edits::{self, Edit};
use super::{History, Round};
use crate::config::Config;
use crate::engine::cancel::Cancel;
use crate::engine::ctx::{RunOptions, StepCtx};
use crate::engine::progress::{Progress, ProgressMode};
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::fake_gitlab::FakeGitlab;
use crate::fake_gitlab::faults::{self, Fault, Trouble};
use crate::fake_gitlab::http::{Delivery, Reply};
use crate::fake_gitlab::model::Kind;
use crate::fault;
use crate::steps::fetch_discussions::FetchDiscussions;
use crate::steps::ingest::Ingest;
use crate::steps::reconcile::Reconcile;
use crate::steps::regenerate_docs::RegenerateDocs;
use crate::store::lock::{self, Acquired, Claim, ProcessIdentity};
use crate::store::runs::NewRun;
use crate::store::{Fence, OpenOptions, Store, queues};

/// Rows of a page: small, so that a handful of items has several pages.
const PER_PAGE: usize = 4;

/// A day and an hour: the daily look at recent items is due.
const DAY_MS: i64 = 90_000_000;

const HOUR_MS: i64 = 3_600_000;

/// When the process dies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kill {
    pub before_commit: bool,
    /// At which commit of the run.
    pub nth: usize,
}

/// What goes wrong on the server.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Html(u16),
    Json(u16),
    Limited,
    Reset,
    Truncated,
    Halved,
    /// `200 []` of a list of items.
    Empty,
    /// An item moves to the end of its list while the list is read.
    TouchOldest,
    SamePage,
}

/// When it goes wrong.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub target: &'static str,
    pub after: usize,
    pub times: usize,
    pub what: What,
}

/// The payload of the unwinding that stands for a kill.
struct Killed;

/// A server, a database, a configuration.
pub(super) struct Bench {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
    pub server: FakeGitlab,
    config: Config,
    n_edits: usize,
    n_deleted: u64,
    n_projects: u64,
}

/// Begins a run: strikes of what is missing count by runs.
fn take_lock(store: &Store) -> Fence {
    let process = ProcessIdentity::default();
    let run = NewRun { job: "history", job_hash: "", options: "{}", resumed_from: None };
    let claim = Claim {
        run: &run,
        owner: "history",
        process: &process,
        lease_ms: 60_000,
        dead: None,
        patience: None,
        cancel: &Cancel::new(),
    };
    let Acquired::Taken { fence, .. } = lock::acquire(store, &claim).unwrap() else { panic!("locked") };
    fence
}

fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
    })
}

/// An empty database, made once.
fn template() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lore.db");
        drop(Store::open(&path, OpenOptions::default()).unwrap());
        std::fs::read(path).unwrap()
    })
}

/// A directory in memory when there is one: what is tested is not the disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Bench {
    pub fn new(history: &History) -> Self {
        let History { n_projects, by_group, plain, .. } = *history;
        let dir = directory();
        let path = dir.path().join("lore.db");
        std::fs::write(&path, template()).unwrap();
        let server = FakeGitlab::start();
        server.set(|settings| settings.max_per_page = PER_PAGE);
        let projects = server.edit(|model| edits::begin(model, n_projects));
        let wanted =
            if by_group { "groups = [\"group\"]".to_owned() } else { format!("projects = {projects:?}") };
        let config = toml::from_str(&format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {:?}\ntoken = {{ env = \"TOKEN\" }}\n{wanted}\n\
             requests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"\nbackfill_window = \"{}\"",
            server.url(),
            if plain { "0s" } else { "365d" }
        ))
        .unwrap();
        let n_projects = n_projects as u64;
        Self { _dir: dir, path, server, config, n_edits: 0, n_deleted: 0, n_projects }
    }

    pub fn edit(&mut self, edits: &[Edit]) {
        for edit in edits {
            self.n_edits += 1;
            self.n_deleted += u64::from(matches!(edit, Edit::DeleteItem(_)));
            self.server.edit(|model| edits::apply(model, edit, self.n_edits));
        }
    }

    fn plan(&self, plan: &Plan) {
        let is_items = plan.target == "/issues?" || plan.target == "/merge_requests?";
        let kind = if plan.target == "/merge_requests?" { Kind::MergeRequest } else { Kind::Issue };
        let trouble = match plan.what {
            What::Html(status) => faults::html(status),
            What::Json(status) => faults::json(status, "no"),
            What::Limited => Trouble::Answer(Reply::text(429, "text/plain", "Retry later")),
            What::Reset => Trouble::Deliver(Delivery::Reset),
            What::Truncated => Trouble::Deliver(Delivery::Truncated),
            What::Halved => Trouble::Deliver(Delivery::Halved),
            What::Empty if is_items => Trouble::EmptyList,
            What::TouchOldest if is_items => {
                let first = self.server.edit(|model| *model.projects.keys().next().unwrap());
                Trouble::TouchOldest { project: first, kind }
            }
            What::SamePage if is_items => Trouble::NextIsSelf,
            What::Empty | What::TouchOldest | What::SamePage => return,
        };
        self.server.plan(Fault::times(plan.target, plan.times, trouble).after(plan.after));
    }

    /// One run of the steps. A planned kill ends it where it strikes.
    pub fn run(&mut self, round: &Round) {
        if let Some(plan) = &round.fault {
            self.plan(plan);
        }
        let store = self.open();
        let fence = round.reconciles.then(|| take_lock(&store));
        if let Some(Kill { before_commit, nth }) = round.kill {
            let point = if before_commit { "before-commit" } else { "after-commit" };
            fault::planned::at(point, nth, || resume_unwind(Box::new(Killed)));
        }
        let out = catch_unwind(AssertUnwindSafe(|| {
            // A step that fails does not keep the others: they see what it left.
            let _ = self.step(&store, &Ingest::default(), round.full);
            self.edit(&round.between);
            let _ = self.step(&store, &FetchDiscussions::default(), round.full);
            if round.reconciles {
                let _ = self.step(&store, &Reconcile::default(), false);
            }
            let _ = self.step(&store, &RegenerateDocs::default(), round.full);
        }));
        fault::planned::take_back();
        self.server.heal();
        if let Err(panic) = out
            && !panic.is::<Killed>()
        {
            resume_unwind(panic);
        }
        if let Some(fence) = fence {
            assert!(lock::release(&self.open(), &fence).unwrap());
        }
    }

    fn open(&self) -> Store {
        let store = Store::open(&self.path, OpenOptions::default()).unwrap();
        // Waits of failed entries are real time, which does not pass here.
        store.write(queues::retry_failed).unwrap();
        for table in ["stream_failures", "group_failures"] {
            self.execute(&format!("UPDATE {table} SET next_attempt_at = NULL"));
        }
        store
    }

    fn execute(&self, sql: &str) {
        #[expect(clippy::disallowed_methods, reason = "tests look at the tables")]
        rusqlite::Connection::open(&self.path).unwrap().execute(sql, []).unwrap();
    }

    fn step(&self, store: &Store, step: &impl Step, full: bool) -> Result<StepReport> {
        step.run(&StepCtx {
            store,
            config: &self.config,
            vars: &|name| (name == "TOKEN").then(|| "test-token".to_owned()),
            runtime: runtime().handle().clone(),
            cancel: Cancel::new(),
            deadline: None,
            options: RunOptions { full, ..RunOptions::default() },
            shared: crate::engine::shared::Shared::default(),
            progress: Progress::new("history", ProgressMode::Silent),
        })
    }

    /// A run in which nothing may fail; returns its requests.
    fn run_well(&self) -> u64 {
        self.server.take_log();
        let store = self.open();
        let ingested = self.step(&store, &Ingest::default(), false).unwrap();
        // What is gone upstream fails here until it is reconciled.
        self.step(&store, &FetchDiscussions::default(), false).unwrap();
        let made = self.step(&store, &RegenerateDocs::default(), false).unwrap();
        assert_eq!((ingested.failing, made.failing), (0, 0), "{ingested:?}{made:?}");
        self.server.take_log().len() as u64
    }

    fn reconcile(&self) {
        let store = self.open();
        let fence = take_lock(&store);
        let step = Reconcile { allow_mass_delete: true, ..Reconcile::default() };
        self.step(&store, &step, false).unwrap();
        assert!(lock::release(&store, &fence).unwrap());
    }

    /// Runs until everything is seen: with full rights, and unless it is to be plain daily and
    /// reconciled twice.
    pub fn settle(&self, plain: bool) {
        self.server.edit(edits::restore);
        for _ in 0..3 {
            self.server.edit(|model| model.advance(if plain { HOUR_MS } else { DAY_MS }));
            let (n_items, n_pages) = self.server.edit(|model| {
                let items = || model.projects.values().flat_map(|project| project.items.values());
                let pages = |n: usize| n.div_ceil(PER_PAGE).max(1) as u64;
                let lists = items().count() / (PER_PAGE - 1) + items().count();
                (
                    items().count() as u64,
                    items().map(|item| pages(item.discussions.len())).sum::<u64>() + lists as u64,
                )
            });
            let requests = self.run_well();
            // Five streams of a project, each with its last page, and the project once more
            // when it was renamed; then the pages of the items themselves.
            // Of a deleted item one more, until that is certain.
            assert!(
                requests <= 7 * self.n_projects + n_items + n_pages + self.n_deleted,
                "{requests} requests for {n_items} items"
            );
            if !plain {
                self.reconcile();
            }
        }
    }

    /// Nothing happened: one request per stream and project, and nothing is written.
    pub fn stays_quiet(&self) {
        self.server.set(|settings| settings.max_per_page = 100);
        self.server.edit(|model| model.advance(HOUR_MS));
        let renamed = self.server.edit(|model| {
            model.projects.values().filter(|project| !project.old_paths.is_empty()).count() as u64
        });
        let requests = self.run_well();
        // The configured path of a renamed project is answered with a redirect.
        assert!(requests <= 5 * self.n_projects + renamed, "{requests} requests of a quiet run");
    }
}
