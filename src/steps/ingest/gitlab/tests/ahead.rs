//! Projects that are asked for ahead, and rows that are passed by.

use super::*;

/// A world of `n` projects with an issue and a merge request each.
fn many(n: usize) -> (World, Vec<i64>) {
    let paths: Vec<String> = (1..=n).map(|number| format!("group/p{number:02}")).collect();
    let names: Vec<&str> = paths.iter().map(String::as_str).collect();
    let world = World::new(&names);
    let ids = world.server.edit(|model| {
        let ids = names
            .iter()
            .map(|path| {
                let project = model.add_project(path);
                model.add_item(project, Kind::Issue, "An issue");
                model.add_item(project, Kind::MergeRequest, "A change");
                project
            })
            .collect();
        model.advance(3_600_000);
        ids
    });
    (world, ids)
}

#[test]
fn projects_that_are_asked_for_ahead_cost_no_request_more() {
    let (world, _) = many(12);
    assert_eq!(world.ingest().count("projects"), 12);
    assert_eq!(world.server.take_log().len(), 60);
    assert_eq!(world.issues(), 12);
    world.ingest();
    let asked = targets(&world);
    assert_eq!(asked.len(), 60, "itself and four streams");
    let unique: BTreeSet<&String> = asked.iter().collect();
    assert_eq!(unique.len(), 60, "nothing is asked twice");
}

#[test]
fn several_projects_are_under_way_at_once() {
    let (world, _) = many(12);
    world.ingest();
    world.server.take_log();
    // The server is silent about the first project's labels until it is asked for more.
    world.server.plan(Fault::times(
        "/labels",
        1,
        Trouble::Deliver(Delivery::Late(Duration::from_millis(300))),
    ));
    world.ingest();
    let asked = targets(&world);
    let first_issues = asked.iter().position(|target| target.contains("/issues?")).unwrap();
    let itself = |target: &&String| !target.contains('?');
    assert!(asked[..first_issues].iter().filter(itself).count() > 1, "{asked:?}");
}

#[test]
fn a_failing_project_among_those_that_are_asked_for_ahead_stops_no_other() {
    let (world, ids) = many(9);
    world.server.edit(|model| {
        model.project(ids[3]).denied.insert("project".to_owned(), 404);
        model.project(ids[5]).denied.insert("issues".to_owned(), 403);
        model.set_feature(ids[6], Kind::MergeRequest, false);
    });
    let report = world.ingest();
    assert_eq!(report.count("projects"), 8);
    assert_eq!(world.issues(), 7);
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 7);
    let off = format!("/projects/{}/merge_requests", ids[6]);
    assert!(targets(&world).iter().all(|target| !target.contains(&off)), "what is off is not asked");
}

#[test]
fn a_stop_ends_what_was_asked_for_ahead() {
    let (world, _) = many(9);
    world.ingest();
    world.server.take_log();
    world
        .server
        .plan(Fault::always("/milestones", Trouble::Deliver(Delivery::Late(Duration::from_secs(20)))));
    let cancel = world.cancel.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::park_timeout(Duration::from_millis(200));
        cancel.cancel(StopReason::Interrupted);
    });
    assert_eq!(world.try_ingest().unwrap_err().kind(), ErrorKind::Interrupted);
    stopper.join().unwrap();
}

/// A server that fails whenever a page holds one of these.
fn fails_at(world: &World, titles: &[&str]) {
    let titles = titles.iter().map(|title| format!("\"{title}\"")).collect();
    world.server.plan(Fault::always("/issues?", Trouble::Poison(titles)));
}

#[test]
fn a_row_that_fails_even_alone_is_passed_by_and_read_once_it_can_be() {
    let (mut world, project) = World::with_issues(60);
    fails_at(&world, &["Issue 30"]);
    for _ in 0..3 {
        assert_eq!(world.ingest().failing, 1);
        assert_eq!(world.issues(), 29, "blocked");
    }
    world.server.take_log();
    retry(&mut world);
    assert_eq!(world.issues(), 59);
    assert_eq!(world.column("SELECT iid FROM issues WHERE iid = 30"), Vec::<String>::new());
    let stream = world.column("SELECT stream FROM stream_failures");
    assert!(stream.len() == 1 && stream[0].starts_with("issues 20"), "{stream:?}");
    assert!(world.server.take_log().len() < 150);
    // Visible as long as it lasts, and what is new comes.
    world.server.edit(|model| {
        model.add_item(project, Kind::Issue, "A newer one");
        model.advance(3_600_000);
    });
    let report = world.ingest();
    assert_eq!((world.issues(), report.failing), (60, 1), "{report:?}");
    world.server.heal();
    let report = retry(&mut world);
    assert_eq!((world.issues(), report.failing), (61, 0), "{report:?}");
    assert_eq!(world.number("SELECT count(*) FROM stream_failures"), 0);
}

#[test]
fn rows_of_one_time_around_a_row_that_fails_are_all_read() {
    let mut world = World::new(&["group/project"]);
    world.server.edit(|model| {
        let project = model.add_project("group/project");
        for number in 1..=20 {
            model.add_item(project, Kind::Issue, &format!("Issue {number}."));
            if number % 10 == 0 {
                model.advance(1000);
            }
        }
        model.advance(3_600_000);
    });
    fails_at(&world, &["Issue 5.", "Issue 6.", "Issue 14."]);
    for _ in 0..3 {
        world.ingest();
    }
    retry(&mut world);
    assert_eq!(world.issues(), 17);
    let report = world.ingest();
    assert_eq!(world.issues(), 17);
    assert!(report.failing > 0 && report.failing <= 3, "{report:?}");
}

#[test]
fn a_server_that_fails_at_everything_is_not_a_row() {
    let (mut world, _) = World::with_issues(5);
    world.server.plan(Fault::always("/issues?", faults::json(500, "no")));
    for _ in 0..5 {
        assert_eq!(retry(&mut world).failing, 1);
    }
    assert_eq!(world.column("SELECT stream FROM stream_failures"), ["issues"]);
    world.server.heal();
    assert_eq!(retry(&mut world).failing, 0);
    assert_eq!(world.issues(), 5);
}

/// One run that tries everything.
fn retry(world: &mut World) -> StepReport {
    world.options.retry_failed = true;
    let report = world.ingest();
    world.options.retry_failed = false;
    report
}

#[test]
fn renamed_labels_and_milestones_stay_renamed_when_everything_is_parsed_again() {
    let (world, project) = World::with_issues(2);
    world.server.edit(|model| {
        model.project(project).labels.push(crate::fake_gitlab::rows::label(7, "old"));
        model.set_labels(project, Kind::Issue, 1, &["old", "other"]);
        model.advance(3_600_000);
    });
    world.ingest();
    world.server.edit(|model| model.rename_label(project, "old", "new"));
    world.ingest();
    let labels = "SELECT label_names FROM issues WHERE iid = 1";
    assert_eq!(world.column(labels), ["[\"new\",\"other\"]"]);
    let report = world.step(|ctx| crate::steps::rebuild::Rebuild::default().run(ctx)).unwrap();
    assert_eq!(world.column(labels), ["[\"new\",\"other\"]"]);
    assert_eq!(report.count("rebuilt"), 0);
}

#[test]
fn a_renamed_project_that_is_asked_for_ahead_goes_on_at_its_cursor() {
    let (world, ids) = many(3);
    world.ingest();
    world.server.edit(|model| model.rename_project(ids[1], "group/renamed"));
    world.ingest();
    world.server.take_log();
    world.ingest();
    let from_the_beginning =
        |target: &String| target.contains("/issues?") && !target.contains("updated_after");
    assert!(!targets(&world).iter().any(from_the_beginning));
}

#[test]
fn a_page_that_cannot_be_stored_moves_no_cursor() {
    let (world, _) = World::with_issues(60);
    world.server.set(|settings| settings.max_per_page = 20);
    #[expect(clippy::disallowed_methods, reason = "tests look at the tables")]
    let side = rusqlite::Connection::open(world.store.path()).unwrap();
    let run = |sql: &str| side.execute_batch(sql).unwrap();
    run(
        "CREATE TRIGGER broken BEFORE INSERT ON issues WHEN new.iid = 35 BEGIN SELECT RAISE(ABORT, 'on purpose'); END",
    );
    assert!(world.try_ingest().is_err());
    let stored = world.number("SELECT count(*) FROM issues");
    assert!((1..35).contains(&stored), "{stored}");
    let cursor = "SELECT (SELECT updated_at FROM cursors WHERE stream = 'issues') = (SELECT max(updated_at) FROM issues)";
    assert_eq!(world.number(cursor), 1, "the cursor stands at what is stored");
    run("DROP TRIGGER broken");
    world.ingest();
    assert_eq!(world.issues(), 60);
}

#[test]
fn streams_whose_next_try_is_not_due_are_not_asked_for_ahead() {
    let (world, ids) = many(3);
    world.server.edit(|model| {
        model.project(ids[1]).denied.insert("labels".to_owned(), 404);
        model.project(ids[2]).denied.insert("issues".to_owned(), 404);
    });
    world.ingest();
    world.server.take_log();
    assert_eq!(world.ingest().count("streams_waiting"), 2);
    let asked = targets(&world);
    for refused in [format!("/projects/{}/labels", ids[1]), format!("/projects/{}/issues", ids[2])] {
        assert!(!asked.iter().any(|target| target.contains(&refused)), "{refused} in {asked:?}");
    }
}

#[test]
fn a_fetch_does_not_take_away_what_was_queued_meanwhile() {
    let (world, _) = World::with_issues(1);
    world.ingest();
    let entry = world.store.read(|tx| queues::ready_fetches(tx, "main", i64::MAX, 1)).unwrap().pop().unwrap();
    let queue = |tx: &crate::store::WriteTx<'_>| {
        queues::queue_discussions(tx, entry.project_id, entry.item_type, entry.iid, 5)
    };
    world.store.write(queue).unwrap();
    assert!(!world.store.write(|tx| queues::complete_fetch(tx, &entry)).unwrap());
    assert_eq!(world.queued(), 1, "it changed while it was fetched");
}
