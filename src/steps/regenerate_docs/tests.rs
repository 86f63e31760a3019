use super::*;
use crate::config::Config;
use crate::content::{Author, Discussion, Issue, ItemType, MergeRequest, Note, Project};
use crate::engine::cancel::Cancel;
use crate::engine::ctx::RunOptions;
use crate::engine::progress::{Progress, ProgressMode};
use crate::store::{OpenOptions, Store, entities, fts};

struct World {
    _dir: tempfile::TempDir,
    store: Store,
    runtime: tokio::runtime::Runtime,
    project_id: i64,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
        let project = Project {
            gitlab_id: Some(7),
            path: "group/app".into(),
            web_url: Some("https://gitlab.example.com/group/app".into()),
            ..Project::default()
        };
        let project_id = store.write(|tx| entities::upsert_project(tx, "main", &project, 1)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { _dir: dir, store, runtime, project_id }
    }

    fn issue(&self, issue: &Issue) -> i64 {
        self.store.write(|tx| entities::upsert_issue(tx, self.project_id, issue, 1)).unwrap().id
    }

    fn discuss(&self, issue_id: i64, discussions: &[Discussion]) {
        self.store
            .write(|tx| {
                entities::replace_discussions(tx, self.project_id, ItemType::Issue, issue_id, discussions, 1)
            })
            .unwrap();
    }

    fn run(&self, step: &RegenerateDocs, full: bool) -> Result<StepReport> {
        self.with_ctx(full, |ctx| step.run(ctx))
    }

    fn with_ctx<T>(&self, full: bool, work: impl FnOnce(&StepCtx<'_>) -> T) -> T {
        let config = Config::default();
        let ctx = StepCtx {
            store: &self.store,
            config: &config,
            vars: &|_| None,
            runtime: self.runtime.handle().clone(),
            cancel: Cancel::new(),
            deadline: None,
            options: RunOptions { full, ..RunOptions::default() },
            progress: Progress::new("regenerate-docs", ProgressMode::Silent),
            shared: crate::engine::shared::Shared::default(),
        };
        work(&ctx)
    }

    /// Runs the step; returns regenerated, unchanged, deleted, errored, and checks the index.
    fn regenerate(&self, full: bool) -> (i64, i64, i64, i64) {
        let report = self.run(&RegenerateDocs::default(), full).unwrap();
        let found = crate::store::integrity::check(&self.store, &Cancel::new()).unwrap();
        assert!(found.counts.keys().all(|check| !check.starts_with("fts_")), "{found:?}");
        self.check_lengths();
        (
            report.count("regenerated"),
            report.count("unchanged"),
            report.count("deleted"),
            report.count("errored"),
        )
    }

    fn check_lengths(&self) {
        let lengths = || self.store.read(crate::store::documents::tests::lengths).unwrap();
        let kept = lengths();
        self.store.write(fts::rebuild_lengths).unwrap();
        assert_eq!(kept, lengths(), "token counts kept by batch agree with those made anew");
    }

    fn found(&self, query: &str) -> Vec<String> {
        self.store.read(|tx| crate::store::documents::tests::found(tx, query)).unwrap()
    }
}

fn issue(iid: i64, title: &str, description: &str) -> Issue {
    Issue {
        gitlab_id: 1_000 + iid,
        iid,
        title: title.into(),
        description: Some(description.into()),
        state: "opened".into(),
        issue_type: "issue".into(),
        author: Author { username: Some("anna".into()), name: None },
        labels: vec!["bug".into()],
        assignees: vec!["ben".into()],
        web_url: Some(format!("https://gitlab.example.com/group/app/-/issues/{iid}")),
        created_at: 5,
        updated_at: 10,
        ..Issue::default()
    }
}

fn discussion(id: &str, bodies: &[&str]) -> Discussion {
    let notes = bodies
        .iter()
        .zip(1..)
        .map(|(body, gitlab_id)| Note {
            gitlab_id,
            author: Author { username: Some("cleo".into()), name: None },
            body: (*body).into(),
            created_at: 20 + gitlab_id,
            updated_at: 20 + gitlab_id,
            ..Note::default()
        })
        .collect();
    Discussion { gitlab_id: id.into(), individual_note: bodies.len() == 1, notes }
}

#[test]
fn every_source_gets_its_document_once() {
    let world = World::new();
    let id = world.issue(&issue(1, "Kerberos fails", "ticket expired"));
    world.discuss(id, &[discussion("a", &["try kinit", "works"]), discussion("b", &["second thread"])]);
    let merge_request = MergeRequest {
        gitlab_id: 5,
        iid: 1,
        title: "Fix kerberos".into(),
        state: "opened".into(),
        ..MergeRequest::default()
    };
    world.store.write(|tx| entities::upsert_merge_request(tx, world.project_id, &merge_request, 1)).unwrap();
    assert_eq!(world.regenerate(false), (4, 0, 0, 0));
    assert_eq!(world.regenerate(false), (0, 0, 0, 0), "the queue is empty");
    assert_eq!(world.regenerate(true), (0, 4, 0, 0), "a full run finds everything as it was");
    assert_eq!(world.found("kinit"), ["issue 1", "discussion 1"], "an item is found by its thread");
    assert_eq!(world.found("kerberos"), ["issue 1", "merge_request 1"]);
    assert_eq!(world.found("project"), [""; 0], "headers are not indexed");
}

#[test]
fn a_changed_note_changes_its_document_and_that_of_the_item() {
    let world = World::new();
    let id = world.issue(&issue(1, "Title", "text"));
    world.discuss(id, &[discussion("a", &["zanzibar"]), discussion("b", &["other"])]);
    world.regenerate(false);
    world.discuss(id, &[discussion("a", &["tanganyika"]), discussion("b", &["other"])]);
    assert_eq!(world.regenerate(false), (2, 0, 0, 0));
    assert_eq!(world.found("zanzibar"), [""; 0]);
    assert_eq!(world.found("tanganyika"), ["issue 1", "discussion 1"]);
}

#[test]
fn a5_12_what_is_deleted_upstream_is_not_found() {
    let world = World::new();
    let id = world.issue(&issue(1, "Title", "text"));
    world.discuss(id, &[discussion("a", &["zanzibar"]), discussion("b", &["other", "zanzibar too"])]);
    world.regenerate(false);
    assert_eq!(world.found("zanzibar").len(), 3);
    world.discuss(id, &[discussion("b", &["other"])]);
    assert_eq!(world.regenerate(false), (2, 0, 0, 0), "the cascade deleted the document of the thread");
    assert_eq!(world.found("zanzibar"), [""; 0]);
    let mut silent = discussion("b", &["changed the label"]);
    silent.notes[0].system = true;
    world.discuss(id, &[silent]);
    assert_eq!(world.regenerate(false), (1, 0, 1, 0), "a thread of system notes alone loses its document");
}

#[test]
fn only_what_differs_is_written() {
    let world = World::new();
    let first = issue(1, "Title", "text");
    world.issue(&first);
    world.regenerate(false);
    let dump = |world: &World| world.store.read(crate::store::documents::tests::dump).unwrap();
    let before = dump(&world);
    world.store.write(|tx| queues::seed_dirty(tx, SourceType::Issue, 0, 10, 1)).unwrap();
    assert_eq!(world.regenerate(false), (0, 1, 0, 0));
    assert_eq!(dump(&world), before);
    // Another label: the text names it, the lists and the index follow.
    world.issue(&Issue { labels: vec!["feature".into()], ..first.clone() });
    assert_eq!(world.regenerate(false), (1, 0, 0, 0));
    assert!(dump(&world).contains("label feature") && !dump(&world).contains("label bug"));
    // Another assignee: no text differs.
    world.issue(&Issue { labels: vec!["feature".into()], assignees: vec![], ..first });
    assert_eq!(world.regenerate(false), (1, 0, 0, 0));
    assert!(!dump(&world).contains("assignee ben"));
}

#[test]
fn a_time_that_moves_alone_reaches_the_document_without_a_rewrite() {
    let world = World::new();
    let first = issue(1, "Title", "text");
    world.issue(&first);
    world.regenerate(false);
    world.issue(&Issue { updated_at: 99, ..first });
    world.store.write(|tx| queues::seed_dirty(tx, SourceType::Issue, 0, 10, 1)).unwrap();
    assert_eq!(world.regenerate(false), (0, 1, 0, 0));
    assert!(world.store.read(crate::store::documents::tests::dump).unwrap().contains("updated 99"));
}

#[test]
fn a_change_that_arrives_while_a_document_is_made_stays_queued() {
    let world = World::new();
    let first = issue(1, "Title", "old");
    let id = world.issue(&first);
    let doomed = world.issue(&issue(2, "Doomed", "x"));
    world.with_ctx(false, |ctx| {
        let entries = ctx.read(|tx| queues::ready_dirty(tx, ctx.now(), 9)).unwrap();
        assert_eq!(entries.len(), 2);
        let (known, changed) = look(ctx, entries).unwrap();
        let mut batch = Batch { prepared: known, bytes: 0 };
        batch.render(ctx, changed).unwrap();
        // Now the first changes, and the second is deleted.
        world.issue(&Issue { description: Some("new".into()), ..first.clone() });
        world.store.write(|tx| crate::store::documents::tests::delete_issue(tx, doomed)).unwrap();
        let mut report = StepReport::default();
        let stayed = batch.write(ctx, &mut report, &mut HashSet::new()).unwrap();
        assert_eq!((stayed, report.count("regenerated")), (2, 0));
    });
    assert_eq!(world.regenerate(false), (1, 0, 0, 0));
    assert_eq!(world.found("new"), [format!("issue {id}")]);
    assert_eq!(world.found("doomed"), [""; 0], "nothing is made of what is gone");
}

#[test]
fn a_source_that_cannot_be_read_does_not_stop_the_others() {
    let world = World::new();
    let bad = world.issue(&issue(1, "Bad", "x"));
    world.issue(&issue(2, "Good", "y"));
    world.store.write(|tx| crate::store::documents::tests::spoil_labels(tx, bad)).unwrap();
    assert_eq!(world.regenerate(false), (1, 0, 0, 1));
    let failing = world.store.read(|tx| queues::failing(tx, 9)).unwrap();
    assert_eq!((failing.len(), failing[0].attempt_count), (1, 1));
    assert_eq!(world.regenerate(false), (0, 0, 0, 0), "it waits");
    world.issue(&issue(1, "Bad", "mended"));
    assert_eq!(world.regenerate(false), (1, 0, 0, 0));
}

#[test]
fn a_document_that_cannot_be_stored_does_not_stop_the_others() {
    let world = World::new();
    let bad = world.issue(&issue(1, "Bad", "x"));
    world.issue(&issue(2, "Good", "y"));
    world.store.write(|tx| crate::store::documents::tests::refuse_document_of(tx, bad)).unwrap();
    assert_eq!(world.regenerate(false), (1, 0, 0, 1));
    assert_eq!(world.found("y"), ["issue 2"]);
}

#[test]
fn a_limit_leaves_the_rest_for_the_next_run() {
    let world = World::new();
    for iid in 1..=7 {
        world.issue(&issue(iid, "Title", "text"));
    }
    let step = RegenerateDocs { limit: 3, batch: 2 };
    assert_eq!(world.run(&step, false).unwrap().count("regenerated"), 3);
    assert_eq!(world.run(&step, false).unwrap().count("regenerated"), 3);
    assert_eq!(world.run(&step, false).unwrap().count("regenerated"), 1);
}

#[test]
fn a_full_run_drains_everything() {
    let world = World::new();
    world
        .store
        .write(|tx| {
            for iid in 1..=5_100 {
                entities::upsert_issue(tx, world.project_id, &issue(iid, "Title", "text"), 1)?;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(world.regenerate(false), (5_100, 0, 0, 0));
    assert_eq!(world.regenerate(true), (0, 5_100, 0, 0));
}

#[test]
fn a3_27_a_giant_token_is_indexed_with_what_follows() {
    let world = World::new();
    world.issue(&issue(1, "Bundle", &format!("{} tailword", "a".repeat(20_000))));
    world.regenerate(false);
    assert_eq!(world.found("tailword"), ["issue 1"]);
}

#[test]
fn synthetic_terms_are_found() {
    let world = World::new();
    let text = "call getUserById in C++ with -DWITH_SSL since v1.2.3, Økland, サンドボックス修正テスト, atomic_write_json HTTP_502";
    world.issue(&issue(1, "Title", text));
    world.regenerate(false);
    for query in [
        "UserById",
        "cplusplus",
        "withssl",
        "\"1.2.3\"",
        "okland",
        "\"テス\" \"スト\"",
        "\"write_json\"",
        "\"HTTP-502\"",
        "\"atomic_write_json\"",
    ] {
        assert_eq!(world.found(query), ["issue 1"], "{query}");
    }
}
