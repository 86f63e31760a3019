//! What changes without telling, and streams that are not asked before their time.

use super::*;
use crate::config::SourceConfig;
use crate::steps::regenerate_docs::RegenerateDocs;

fn documents(world: &World) {
    world.step(|ctx| RegenerateDocs::default().run(ctx)).unwrap();
}

fn retried(world: World) -> World {
    World { options: RunOptions { retry_failed: true, ..RunOptions::default() }, ..world }
}

#[test]
fn api_25_renamed_labels_and_milestones_reach_items_and_documents() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        for (id, name) in [(1, "bug"), (2, "ui")] {
            model.project(project).labels.push(routes::label(id, name));
        }
        let now = model.now;
        model.project(project).milestones.push(routes::milestone(1, "v1", now));
        model.set_labels(project, Kind::Issue, 1, &["bug", "ui"]);
        model.set_milestone(project, Kind::Issue, 1, Some("v1"));
        model.add_note(project, Kind::Issue, 1, "bo", "a thread");
        model.advance(3_600_000);
        // Something newer, so that the first is far behind the cursor.
        model.add_item(project, Kind::Issue, "newest");
        model.advance(3_600_000);
    });
    world.sync();
    documents(&world);
    // The two labels exchange their names, and the milestone gets another.
    world.server.edit(|model| {
        model.rename_label(project, "bug", "x");
        model.rename_label(project, "ui", "bug");
        model.rename_label(project, "x", "type::ui");
        model.rename_milestone(project, "v1", "v1.0");
    });
    world.sync();
    documents(&world);
    assert_eq!(world.column("SELECT name FROM labels ORDER BY gitlab_id"), ["type::ui", "bug"]);
    assert_eq!(
        world.column("SELECT label_names || ' ' || milestone_title FROM issues WHERE iid = 1"),
        ["[\"bug\",\"type::ui\"] v1.0"]
    );
    assert_eq!(
        world.column(
            "SELECT DISTINCT label_names || ' ' || milestone_title FROM documents WHERE item_iid = 1"
        ),
        ["[\"bug\",\"type::ui\"] v1.0"]
    );
    assert_eq!(world.number("SELECT count(*) FROM document_labels WHERE label_name = 'type::ui'"), 2);
    assert_eq!(world.number("SELECT count(*) FROM documents WHERE content_text LIKE '%type::ui%'"), 2);
    // The row that says the same is compared once more, and no document is written.
    let before = world.number("SELECT sum(id) FROM documents");
    world.ingest();
    assert_eq!((world.dirty(), world.number("SELECT sum(id) FROM documents")), (0, before));
}

#[test]
fn a5_20_api_61_a_moved_issue_points_to_its_copy_also_when_that_arrives_later() {
    let world = World::new(&["g/a"]);
    let b = world.server.edit(|model| {
        let (a, b) = (model.add_project("g/a"), model.add_project("g/b"));
        model.add_item(a, Kind::Issue, "Printer on fire");
        model.move_issue(a, 1, b);
        // The note that names the copy is one way to know; here it is told by the row alone.
        model.item(a, Kind::Issue, 1).discussions.clear();
        model.advance(3_600_000);
        b
    });
    world.sync();
    documents(&world);
    let moved = "SELECT target_path || '#' || target_iid FROM document_refs WHERE kind = 'moved'";
    assert_eq!(world.column(moved).len(), 0, "the copy is not known yet");
    assert_eq!(world.issues(), 1, "nothing is lost when only one project is read");
    let mut world = world;
    world.config = config(&world.server.url(), &["g/a", "g/b"]);
    world.sync();
    documents(&world);
    assert_eq!(world.column(moved), ["g/b#1"]);
    // The copy's project is renamed: the original says so.
    world.server.edit(|model| model.rename_project(b, "g/renamed"));
    world.sync();
    documents(&world);
    assert_eq!(world.column(moved), ["g/renamed#1"]);
}

#[test]
fn api_62_an_issue_that_becomes_confidential_and_back_takes_its_documents_along() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| {
        model.add_note(project, Kind::Issue, 1, "bo", "a thread");
        model.advance(3_600_000);
    });
    world.sync();
    documents(&world);
    for confidential in [true, false] {
        world.server.edit(|model| {
            model.set_confidential(project, 1, confidential);
            model.advance(3_600_000);
        });
        world.sync();
        documents(&world);
        assert_eq!(
            world.number("SELECT sum(is_confidential) FROM documents"),
            if confidential { 2 } else { 0 }
        );
    }
}

#[test]
fn api_45_55_internal_notes_and_work_item_types_are_kept_as_such() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        for (iid, row_type) in [(1, "incident"), (2, "task"), (3, "key_result")] {
            model.edit_item(project, Kind::Issue, iid, |row| row["issue_type"] = row_type.into());
        }
        let id = model.add_note(project, Kind::Issue, 1, "bo", "SECRETPLAN");
        model.item(project, Kind::Issue, 1).discussions[0]["notes"][0]["internal"] = true.into();
        model.advance(3_600_000);
        id
    });
    world.sync();
    documents(&world);
    assert_eq!(
        world.column("SELECT issue_type FROM issues ORDER BY iid"),
        ["incident", "task", "key_result"]
    );
    assert_eq!(world.number("SELECT count(*) FROM documents WHERE is_internal = 1"), 1);
    assert_eq!(
        world.number(
            "SELECT count(*) FROM documents WHERE is_internal = 0 AND content_text LIKE '%SECRETPLAN%'"
        ),
        0
    );
    // The note is opened to everybody.
    world.server.edit(|model| {
        let iid = 1;
        model.item(project, Kind::Issue, iid).discussions[0]["notes"][0]["internal"] = false.into();
        model.edit_item(project, Kind::Issue, iid, |row| row["title"] = "Renamed".into());
        model.advance(3_600_000);
    });
    world.sync();
    documents(&world);
    assert_eq!(world.number("SELECT count(*) FROM documents WHERE is_internal = 1"), 0);
}

#[test]
fn bugs_25_what_is_refused_is_asked_again_after_an_hour_at_the_earliest() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        model.add_item(project, Kind::MergeRequest, "A change");
        model.project(project).denied.insert("merge_requests".to_owned(), 403);
    });
    assert_eq!(world.ingest().failing, 1);
    let wait = world.number("SELECT next_attempt_at - last_attempt_at FROM stream_failures");
    assert!((3_200_000..=4_000_000).contains(&wait), "{wait}");
    world.server.take_log();
    let report = world.ingest();
    assert!(targets(&world).iter().all(|target| !target.contains("/merge_requests?")));
    assert_eq!((report.failing, report.count("streams_waiting")), (1, 1), "still visible");
    assert!(report.warnings[0].contains("not tried again before"), "{:?}", report.warnings);
    assert_eq!(world.number("SELECT attempt_count FROM stream_failures"), 1);
    // Twice, three times, … a day at most.
    let mut world = retried(world);
    for _ in 0..8 {
        world.ingest();
    }
    let wait = world.number("SELECT next_attempt_at - last_attempt_at FROM stream_failures");
    assert!((77_000_000..=96_000_000).contains(&wait), "{wait}");
    world.server.edit(|model| model.project(project).denied.clear());
    world.options = RunOptions::default();
    world.ingest();
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 0, "it waits");
    let world = retried(world);
    assert_eq!(world.ingest().failing, 0);
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 1);
    assert_eq!(world.number("SELECT count(*) FROM stream_failures"), 0);
}

#[test]
fn a_source_all_of_which_waits_fails_as_it_did() {
    let (world, project) = World::with_issues(3);
    world.ingest();
    world.server.edit(|model| {
        model.project(project).denied.insert("project".to_owned(), 404);
    });
    assert_eq!(world.try_ingest().unwrap_err().kind(), ErrorKind::SourceNotFound);
    world.server.take_log();
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceNotFound);
    assert!(error.to_string().contains("not tried again before"), "{error}");
    assert_eq!(world.server.take_log(), []);
    assert_eq!(world.issues(), 3);
}

#[test]
fn what_breaks_on_the_way_is_tried_by_the_next_runs_and_then_waited_for() {
    let (world, _) = World::with_issues(3);
    world.server.plan(Fault::always("/issues?", faults::html(502)));
    for attempt in 1..=4 {
        assert_eq!(world.ingest().failing, 1);
        assert_eq!(world.number("SELECT attempt_count FROM stream_failures"), attempt);
    }
    world.ingest();
    assert_eq!(world.number("SELECT attempt_count FROM stream_failures"), 4, "now it waits");
}

#[test]
fn api_73_one_refused_token_fails_the_step_and_costs_the_other_sources_nothing() {
    let (mut world, _) = World::with_issues(3);
    let closed = FakeGitlab::start();
    closed.set(|settings| settings.token = Some("another".to_owned()));
    let other = config(&closed.url(), &["closed/project"]);
    let Some(SourceConfig::Gitlab(closed_config)) = other.sources.get("main") else { panic!() };
    world.config.sources.insert("closed".to_owned(), SourceConfig::Gitlab(closed_config.clone()));
    let error = world.step(|ctx| crate::steps::ingest::Ingest::default().run(ctx)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(error.to_string().contains("1 of 2 sources") && error.to_string().contains("closed"), "{error}");
    assert_eq!(world.issues(), 3);
    assert_eq!(world.fetch().count("items_fetched"), 3, "and its discussions follow");
}
