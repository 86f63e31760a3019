//! What every step kind promises, shown with its own example: a kind is covered on the day
//! it is added.

mod facts;
mod histories;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use super::*;
use crate::config::{Config, EmbeddingProvider};
use crate::engine::cancel::{Cancel, StopReason};
use crate::engine::ctx::{RunOptions, StepCtx};
use crate::engine::progress::{Progress, ProgressMode};
use crate::engine::step::StepReport;
use crate::error::{ErrorKind, Result};
use crate::fake_embedder::{FakeEmbedder, Faults};
use crate::fake_gitlab::FakeGitlab;
use crate::fake_gitlab::model::Kind;
use crate::fault::planned;
use crate::store::{OpenOptions, Store};

#[expect(dead_code, reason = "shared with the tests of the binary, which use all of it")]
#[path = "../../tests/it/support/dump.rs"]
mod dump;

/// Commits of one step, at the most, at which it is disturbed.
const MOST_COMMITS: usize = 60;

/// A server, and a database in which every kind finds something to do.
struct Ground {
    dir: tempfile::TempDir,
    server: FakeGitlab,
    embedder: FakeEmbedder,
    config: Config,
    runtime: tokio::runtime::Runtime,
}

impl Ground {
    fn new() -> Self {
        let server = FakeGitlab::start();
        let project = server.edit(|model| {
            let project = model.add_project("group/project");
            for (kind, n) in [(Kind::Issue, 3), (Kind::MergeRequest, 1)] {
                for number in 1..=n {
                    let iid = model.add_item(project, kind, &format!("{kind:?} about kerberos {number}"));
                    let thread = model.add_note(project, kind, iid, "bo", "see #1, it closes !2");
                    model.reply(project, kind, iid, &thread, "cy", "the ticket expired");
                    model.advance(1000);
                }
            }
            model.advance(3_600_000);
            project
        });
        // The examples speak of a source `demo`: here it is this server.
        let mut config: Config = toml::from_str(&format!(
            "[sources.demo]\nkind = \"gitlab\"\nurl = {:?}\nprojects = [\"group/project\"]\n\
             requests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"",
            server.url()
        ))
        .unwrap();
        server.set(|settings| settings.token = None);
        // A model of our own takes seconds to load without optimisation; a server takes none.
        let embedder = FakeEmbedder::new(Faults::default());
        config.embedding.provider = EmbeddingProvider::Ollama;
        config.embedding.url = Some(embedder.url());
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let ground = Self { dir, server, embedder, config, runtime: runtime.unwrap() };
        let path = ground.dir.path().join("lore.db");
        let store = Store::open(&path, OpenOptions::default()).unwrap();
        // Half of the work is done, in pieces.
        for (kind, with) in [
            ("ingest", "{ source = \"demo\" }"),
            ("regenerate-docs", "{ limit = 2 }"),
            ("fetch-discussions", "{ limit = 2 }"),
            ("regenerate-docs", "{ limit = 2 }"),
        ] {
            ground.run(&store, find(kind).unwrap(), with, &Cancel::new()).unwrap();
        }
        drop(store);
        ground.server.edit(|model| {
            model.edit_item(project, Kind::Issue, 1, |row| row["title"] = "The keytab is stale".into());
            model.add_item(project, Kind::Issue, "One more");
            model.advance(3_600_000);
        });
        dump::execute(
            &path,
            "UPDATE documents SET content_text = 'edited by hand' WHERE id = (SELECT min(id) FROM documents);
             INSERT INTO dirty_sources(source_type, source_id, queued_at) VALUES ('discussion', 9999, 0);",
        );
        assert!(dump::number(&path, "SELECT count(*) FROM dirty_sources") > 2);
        assert!(dump::number(&path, "SELECT count(*) FROM pending_discussion_fetches") > 1);
        ground
    }

    fn run(&self, store: &Store, step: &StepDef, with: &str, cancel: &Cancel) -> Result<StepReport> {
        let params = toml::de::ValueDeserializer::parse(with).and_then(step.parse).unwrap();
        params.run(&StepCtx {
            store,
            config: &self.config,
            vars: &|_| None,
            runtime: self.runtime.handle().clone(),
            cancel: cancel.clone(),
            deadline: None,
            options: RunOptions::default(),
            progress: Progress::new(step.kind, ProgressMode::Silent),
            shared: crate::engine::shared::Shared::default(),
        })
    }

    /// A copy of the database.
    fn world(&self) -> World<'_> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(self.dir.path().join("lore.db"), dir.path().join("lore.db")).unwrap();
        World { ground: self, dir }
    }
}

struct World<'a> {
    ground: &'a Ground,
    dir: tempfile::TempDir,
}

impl World<'_> {
    fn path(&self) -> PathBuf {
        self.dir.path().join("lore.db")
    }

    /// Runs a step with its example, as a process of its own would.
    fn run_until(&self, step: &StepDef, cancel: &Cancel) -> Result<StepReport> {
        let store = Store::open(&self.path(), OpenOptions::default()).unwrap();
        self.ground.run(&store, step, step.example, cancel)
    }

    /// Runs a step to its end; a step that finds faults fails, and that is its end.
    fn run(&self, step: &StepDef) {
        match self.run_until(step, &Cancel::new()) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::IntegrityFindings => {}
            Err(error) => panic!("{}: {error}", step.kind),
        }
    }

    fn dump(&self) -> String {
        dump::dump(&self.path())
    }
}

/// Two databases hold the same. The first line that differs says enough.
#[track_caller]
fn assert_same(found: &str, expected: &str, what: &str) {
    let differing = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
    let shown = |line: &str| line.chars().take(400).collect::<String>();
    if let Some((found, expected)) = differing {
        panic!("{what}:\n found    {}\n expected {}", shown(found), shown(expected));
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "{what}");
}

#[test]
fn kinds_are_unique_and_their_examples_parse() {
    for (idx, step) in ALL.iter().enumerate() {
        assert!(ALL.iter().skip(idx + 1).all(|other| other.kind != step.kind), "{}", step.kind);
        let with = toml::de::ValueDeserializer::parse(step.example);
        let parsed = with.and_then(step.parse);
        assert!(parsed.is_ok(), "example of {}: {:?}", step.kind, parsed.err());
    }
}

#[test]
fn twice_is_once() {
    let ground = Ground::new();
    for step in ALL {
        let world = ground.world();
        world.run(step);
        let once = world.dump();
        world.run(step);
        assert_same(&world.dump(), &once, step.kind);
    }
}

#[test]
fn a_crash_at_any_commit_changes_nothing_for_the_next_run() {
    let ground = Ground::new();
    let mut crashes = 0;
    for step in ALL {
        let world = ground.world();
        world.run(step);
        let undisturbed = world.dump();
        for point in ["before-commit", "after-commit"] {
            for n in 1..=MOST_COMMITS {
                let world = ground.world();
                // Unwinds past everything, as a process that dies: no message, no handler.
                planned::at(point, n, || resume_unwind(Box::new("planned")));
                let ended = catch_unwind(AssertUnwindSafe(|| world.run(step)));
                if planned::take_back().is_none() {
                    assert!(ended.is_ok(), "{}", step.kind);
                    break;
                }
                assert!(ended.is_err(), "{} goes on after a crash", step.kind);
                crashes += 1;
                world.run(step);
                assert_same(&world.dump(), &undisturbed, &format!("{} crashed {point} {n}", step.kind));
            }
        }
    }
    assert!(crashes >= 2 * ALL.len(), "only {crashes} crashes: the points moved");
}

#[test]
fn the_order_of_steps_does_not_matter_once_all_have_nothing_to_do() {
    let ground = Ground::new();
    let settle = |order: &[&StepDef]| {
        let world = ground.world();
        let mut before = world.dump();
        for _ in 0..12 {
            order.iter().for_each(|step| world.run(step));
            let now = world.dump();
            if now == before {
                return now;
            }
            before = now;
        }
        panic!("{order:?} do not settle");
    };
    let forward: Vec<&StepDef> = ALL.iter().collect();
    let settled = settle(&forward);
    assert!(settled.contains("dirty_sources: 0 rows"), "{settled}");
    let backward: Vec<&StepDef> = ALL.iter().rev().collect();
    let (evens, odds): (Vec<_>, Vec<_>) = ALL.iter().zip(0..).partition(|(_, idx)| idx % 2 == 0);
    let mixed: Vec<&StepDef> = odds.into_iter().chain(evens).map(|(step, _)| step).collect();
    for order in [backward, mixed] {
        assert_same(&settle(&order), &settled, &format!("{order:?}"));
    }
}

#[test]
fn a_dry_run_writes_nothing_and_asks_nobody() {
    let ground = Ground::new();
    for step in ALL {
        let world = ground.world();
        let job = world.dir.path().join("job.toml");
        let text = format!("[steps.one]\nuses = \"{}\"\nwith = {}\n", step.kind, step.example);
        std::fs::write(&job, text).unwrap();
        let before = std::fs::read(world.path()).unwrap();
        ground.server.take_log();
        let asked = ground.embedder.asked().len();
        assert_eq!(dry_run(world.dir.path(), &job, &world.path()), 0, "{}", step.kind);
        assert_eq!(std::fs::read(world.path()).unwrap(), before, "{}", step.kind);
        assert_eq!(ground.server.take_log(), [], "{}", step.kind);
        assert_eq!(ground.embedder.asked().len(), asked, "{}", step.kind);
        let absent = world.dir.path().join("absent/lore.db");
        assert_eq!(dry_run(world.dir.path(), &job, &absent), 0, "{}", step.kind);
        assert!(!absent.parent().unwrap().exists(), "{}", step.kind);
    }
}

fn dry_run(dir: &Path, job: &Path, database: &Path) -> u8 {
    let args = ["lore".as_ref(), "run".as_ref(), job.as_os_str(), "--dry-run".as_ref()];
    crate::run(crate::World {
        args: args.map(ToOwned::to_owned).to_vec(),
        vars: [
            ("LORE__DATABASE__PATH".to_owned(), database.display().to_string()),
            ("LORE_LOG".to_owned(), "error".to_owned()),
        ]
        .into(),
        current_dir: dir.to_owned(),
        out: Box::new(std::io::sink()),
        err: Box::new(std::io::sink()),
        out_is_terminal: false,
        err_is_terminal: false,
        columns: None,
    })
}

/// Prompt: not one more transaction is committed, and what was committed is taken up again.
#[test]
fn a_stop_is_obeyed_before_the_next_commit() {
    let ground = Ground::new();
    for step in ALL {
        let world = ground.world();
        let untouched = world.dump();
        let stopped = Cancel::new();
        stopped.cancel(StopReason::Terminated);
        match world.run_until(step, &stopped) {
            // These two write elsewhere, and nothing that depends on the lock.
            Ok(report) => assert!(report.skipped.is_some(), "{} worked after a stop", step.kind),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Terminated, "{}: {error}", step.kind),
        }
        assert_same(&world.dump(), &untouched, &format!("{} wrote after a stop", step.kind));
        world.run(step);
        let undisturbed = world.dump();
        for n in 1..=MOST_COMMITS {
            let world = ground.world();
            let cancel = Cancel::new();
            let asked = cancel.clone();
            planned::at("after-commit", n, move || asked.cancel(StopReason::Terminated));
            let ended = world.run_until(step, &cancel);
            let Some(commits) = planned::take_back() else { break };
            assert_eq!(commits, 0, "{} went on after a stop at commit {n}", step.kind);
            if let Err(error) = ended {
                // What the step itself has to say at its end counts too.
                let own = error.kind() == ErrorKind::IntegrityFindings;
                assert!(own || error.kind() == ErrorKind::Terminated, "{}: {error}", step.kind);
            }
            world.run(step);
            assert_same(&world.dump(), &undisturbed, &format!("{} stopped at commit {n}", step.kind));
        }
    }
}

/// A run whose lock is gone: whatever its step tries, nothing of it stays.
#[test]
fn a_fenced_step_of_any_kind_changes_nothing() {
    let ground = Ground::new();
    let mut fenced = 0;
    for step in ALL {
        let world = ground.world();
        let untouched = world.dump();
        let store = Store::open(&world.path(), OpenOptions::default()).unwrap();
        store.set_fence(Some(crate::store::Fence { owner: "gone".to_owned(), token: 77 }));
        match ground.run(&store, step, step.example, &Cancel::new()) {
            // These two write elsewhere, and nothing that depends on the lock.
            Ok(report) => assert!(
                report.skipped.is_some() || ["backup", "metrics"].contains(&step.kind),
                "{}",
                step.kind
            ),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Fenced, "{}: {error}", step.kind);
                assert_eq!(error.kind().exit_code(), 76);
                fenced += 1;
            }
        }
        drop(store);
        assert_same(&world.dump(), &untouched, step.kind);
    }
    assert!(fenced + 4 >= ALL.len(), "only {fenced} kinds wrote anything");
}
