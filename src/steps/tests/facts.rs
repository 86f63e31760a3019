//! Facts about GitLab's API as `ingest` and `fetch-discussions` obey them, by their numbers in
//! `docs/gitlab.md`. What a single header or field means is tested where it is read.

use serde_json::json;

use crate::config::{Config, SourceConfig};
use crate::error::ErrorKind;
use crate::fake_gitlab::faults::{self, Fault, Trouble};
use crate::fake_gitlab::model::{Kind, time};
use crate::fake_gitlab::{Access, Paging, routes};
use crate::steps::ingest::gitlab::tests::World;

/// What was asked since the last look.
fn asked(world: &World) -> Vec<String> {
    world.server.take_log().into_iter().map(|logged| logged.target).collect()
}

fn reconfigure(world: &mut World, change: impl FnOnce(&mut crate::config::GitlabConfig)) {
    if let Some(SourceConfig::Gitlab(config)) = world.config.sources.get_mut("main") {
        change(config);
    }
}

#[test]
fn api_1_2_3_5_lists_ask_for_a_hundred_rows_and_follow_next_without_totals() {
    for paging in [Paging::NoTotal, Paging::LinkOnly] {
        let (world, project) = World::with_issues(230);
        world.server.set(|settings| settings.paging = paging);
        world.server.edit(|model| {
            model.add_item(project, Kind::MergeRequest, "one");
            for n in 0..130 {
                model.project(project).labels.push(routes::label(n, &format!("label {n}")));
                let now = model.now;
                model.project(project).milestones.push(routes::milestone(n, &format!("v{n}"), now));
            }
        });
        world.sync();
        assert_eq!(world.issues(), 230, "{paging:?}");
        assert_eq!(world.number("SELECT count(*) FROM labels"), 130);
        assert_eq!(world.number("SELECT count(*) FROM milestones"), 130);
        let lists = asked(&world).into_iter().filter(|target| target.contains('?'));
        assert!(lists.clone().count() > 5 && lists.clone().all(|target| target.contains("per_page=100")));
    }
}

#[test]
fn api_9_18_rows_that_move_while_pages_are_read_cost_no_other_and_ties_come_in_any_order() {
    let (world, project) = World::with_issues(60);
    world.server.set(|settings| settings.max_per_page = 7);
    world.server.edit(|model| {
        // Groups of five share a time; ids descend among them.
        let base = model.now;
        for ((_, iid), item) in &mut model.project(project).items {
            item.updated_at = base + iid / 5 * 1000;
        }
        model.advance(3_600_000);
    });
    world.server.plan(Fault::times("/issues?", 3, Trouble::TouchOldest { project, kind: Kind::Issue }));
    world.ingest();
    assert_eq!(world.issues(), 60);
}

#[test]
fn api_10_11_13_the_offset_limit_is_never_met_and_keyset_is_not_needed() {
    for version in ["15.0.0", "18.3.0"] {
        let (world, _) = World::with_issues(330);
        world.server.set(|settings| {
            settings.max_offset = 100;
            settings.version = version.to_owned();
        });
        world.ingest();
        assert_eq!(world.issues(), 330);
        assert!(asked(&world).iter().all(|target| !target.contains("keyset")));
    }
}

#[test]
fn api_14_19_the_cursor_is_the_newest_row_stored_and_comes_back_each_time() {
    let (world, _) = World::with_issues(5);
    world.ingest();
    let cursor = world.number("SELECT updated_at FROM cursors WHERE stream = 'issues'");
    assert_eq!(
        cursor,
        world.number("SELECT max(updated_at) FROM issues"),
        "not our clock, which is years away"
    );
    asked(&world);
    let report = world.ingest();
    assert!(report.count("issues_unchanged") >= 1, "the row of the cursor itself");
    assert_eq!(report.count("issues_new") + report.count("issues_changed"), 0);
    let list = asked(&world).into_iter().find(|target| target.contains("/issues?")).unwrap();
    let since = time(cursor - 120_000).replace(':', "%3A");
    assert!(list.contains(&format!("updated_after={since}")), "two minutes before: {list}");
}

#[test]
fn api_15_a_row_that_came_in_the_same_millisecond_is_not_missed() {
    let (world, project) = World::with_issues(1);
    world.ingest();
    world.server.edit(|model| {
        let at = model.item(project, Kind::Issue, 1).updated_at;
        let iid = model.add_item(project, Kind::Issue, "in the same millisecond, later");
        let item = model.item(project, Kind::Issue, iid);
        (item.updated_at, item.micros) = (at, 951);
    });
    assert_eq!(world.ingest().count("issues_new"), 1);
}

#[test]
fn api_17_times_are_sent_in_utc_without_a_plus() {
    let (world, project) = World::with_issues(1);
    world.ingest();
    asked(&world);
    world.ingest();
    let list = asked(&world).into_iter().find(|target| target.contains("/issues?")).unwrap();
    assert!(list.contains("Z&") && !list.contains('+'), "{list}");
    world.server.plan(Fault::always(
        "/issues?",
        Trouble::Answer(crate::fake_gitlab::http::Reply::json(
            400,
            &json!({"error": "updated_after is invalid"}),
        )),
    ));
    world.server.edit(|model| model.add_item(project, Kind::MergeRequest, "one"));
    let report = world.ingest();
    assert!(
        report.warnings.iter().any(|text| text.contains("updated_after is invalid")),
        "{:?}",
        report.warnings
    );
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 1);
}

#[test]
fn api_20_21_22_what_moves_no_time_is_seen_and_what_moves_it_alone_changes_nothing() {
    let (world, project) = World::with_issues(2);
    let thread = world.server.edit(|model| {
        let id = model.add_note(project, Kind::Issue, 2, "bo", "first");
        model.advance(20_000);
        id
    });
    world.sync();
    world.server.edit(|model| {
        model.edit_note(project, Kind::Issue, 2, &thread, "edited within the minute");
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.column("SELECT body FROM notes"), ["edited within the minute"]);
    // A mention moves the time of an item and nothing else of it.
    world.server.edit(|model| model.edit_item(project, Kind::Issue, 1, |_| {}));
    let dirty = world.column("SELECT count(*) FROM dirty_sources WHERE generation > 1");
    world.sync();
    assert_eq!(world.column("SELECT count(*) FROM dirty_sources WHERE generation > 1"), dirty);
    world.server.edit(|model| {
        model.delete_discussion(project, Kind::Issue, 2, &thread);
        model.advance(86_400_000);
    });
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 0);
}

#[test]
fn api_23_24_52_75_what_is_gone_or_hidden_is_kept_until_that_is_certain() {
    let (world, project) = World::with_issues(4);
    world.sync();
    world.server.edit(|model| {
        model.delete_item(project, Kind::Issue, 2);
        model.edit_item(project, Kind::Issue, 4, |row| {
            row["author"] = json!({"id": 1, "username": "ghost", "name": "Ghost User"});
        });
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.column("SELECT iid FROM issues ORDER BY iid"), ["1", "2", "3", "4"]);
    assert_eq!(world.column("SELECT author_name FROM issues WHERE iid = 4"), ["Ghost User"]);
    world.server.edit(|model| model.project(project).access = Some(Access::Public));
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceNotFound);
    assert_eq!(world.issues(), 4, "a project that answers 404 keeps its data");
}

#[test]
fn api_26_28_42_56_57_78_what_is_asked_and_what_is_never_asked() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        model.set_state(project, Kind::Issue, 1, "closed");
        model.add_system_note(project, Kind::Issue, 1, "closed");
        model.add_item(project, Kind::MergeRequest, "one");
    });
    world.sync();
    assert_eq!(
        world.column("SELECT state FROM issues ORDER BY iid"),
        ["closed", "opened", "opened"],
        "from the row, not from notes"
    );
    for target in asked(&world) {
        let path = target.split('?').next().unwrap_or_default();
        if path.ends_with("/issues") || path.ends_with("/merge_requests") {
            assert!(target.contains("scope=all") && target.contains("state=all"), "{target}");
        }
        assert!(path.contains("/projects/"), "one project at a time: {target}");
        for never in ["/users", "/epics", "/members", "/events", "/search"] {
            assert!(!path.contains(never), "{target}");
        }
    }
}

#[test]
fn api_29_30_48_items_are_asked_by_their_own_numbers_in_their_own_lists() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| {
        model.add_item(project, Kind::MergeRequest, "of the same number");
        for kind in [Kind::Issue, Kind::MergeRequest] {
            model.add_note(project, kind, 1, "bo", &format!("{kind:?}"));
        }
    });
    world.sync();
    let targets = asked(&world);
    for list in ["issues", "merge_requests"] {
        assert!(targets.iter().any(|target| target.contains(&format!("/{list}/1/discussions"))));
    }
    // `noteable_iid` of the notes is null: the request says whose they are.
    assert_eq!(
        world.column(
            "SELECT body FROM notes n JOIN discussions d ON d.id = n.discussion_id ORDER BY d.noteable_type"
        ),
        ["Issue", "MergeRequest"]
    );
}

#[test]
fn api_35_archived_projects_that_are_named_are_read() {
    let (world, project) = World::with_issues(2);
    world.server.edit(|model| model.set_archived(project, true));
    world.ingest();
    assert_eq!(world.issues(), 2);
    assert_eq!(world.number("SELECT archived FROM projects"), 1);
}

#[test]
fn api_37_38_46_47_threads_of_any_size_are_read_whole_and_hidden_ones_are_no_error() {
    let (world, project) = World::with_issues(1);
    let thread = world.server.edit(|model| {
        let thread = model.add_note(project, Kind::Issue, 1, "bo", "head");
        for n in 0..1200 {
            model.reply(project, Kind::Issue, 1, &thread, "cy", &format!("reply {n}"));
        }
        for n in 0..120 {
            model.add_note(project, Kind::Issue, 1, "spammer", &format!("spam {n}"));
        }
        model.add_note(project, Kind::Issue, 1, "bo", "the last");
        model.banned.insert("spammer".to_owned());
        model.advance(3_600_000);
        thread
    });
    let (_, fetched) = world.sync();
    assert_eq!((fetched.count("requests"), fetched.failing), (2, 0), "pages are of discussions");
    assert_eq!(world.number("SELECT count(*) FROM notes"), 1202);
    world.server.edit(|model| {
        model.delete_note(project, Kind::Issue, 1, &thread, 1);
        model.edit_item(project, Kind::Issue, 1, |row| row["title"] = json!("again"));
        model.advance(3_600_000);
    });
    world.server.plan(Fault::always("/discussions", faults::json(500, "500 Internal Server Error")).after(1));
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 1202, "one page is missing: nothing is removed");
    world.server.heal();
    world.store.write(crate::store::queues::retry_failed).unwrap();
    world.fetch();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 1201);
}

#[test]
fn api_39_82_a_token_goes_with_every_request_in_a_header_alone() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| model.add_note(project, Kind::Issue, 1, "bo", "hello"));
    world.sync();
    let log = world.server.take_log();
    assert!(log.len() > 5 && log.iter().all(|logged| logged.has_token && !logged.target.contains("token")));
    // Without one a public project is read as far as everybody may.
    let (mut world, project) = World::with_issues(1);
    world.server.edit(|model| model.project(project).row["visibility"] = json!("public"));
    reconfigure(&mut world, |config| config.token = None);
    world.ingest();
    assert_eq!(world.issues(), 1);
    assert_eq!(world.try_fetch().unwrap_err().kind(), ErrorKind::Auth);
}

#[test]
fn api_61_a_moved_issue_keeps_where_it_went() {
    let world = World::new(&["g/a", "g/b"]);
    world.server.edit(|model| {
        let (a, b) = (model.add_project("g/a"), model.add_project("g/b"));
        let iid = model.add_item(a, Kind::Issue, "travels");
        model.add_note(a, Kind::Issue, iid, "bo", "hello");
        model.move_issue(a, iid, b);
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.column("SELECT state FROM issues ORDER BY project_id"), ["closed", "opened"]);
    assert_eq!(
        world.number("SELECT count(*) FROM issues a JOIN issues b ON b.gitlab_id = a.moved_to_gitlab_id"),
        1
    );
    assert_eq!(world.number("SELECT count(*) FROM notes WHERE body = 'hello'"), 2, "both have the text");
}

#[test]
fn api_63_64_texts_of_a_megabyte_and_of_any_character_are_stored_whole() {
    let (world, project) = World::with_issues(1);
    let long = "ü😀\r\n\u{202e}x\u{1}".repeat(100_000);
    world.server.edit(|model| {
        model.edit_item(project, Kind::Issue, 1, |row| row["description"] = json!(long));
        model.add_note(project, Kind::Issue, 1, "bo", &long);
        model.add_note(project, Kind::Issue, 1, "bo", "a\u{0}b");
    });
    world.sync();
    assert_eq!(world.column("SELECT description FROM issues"), std::slice::from_ref(&long));
    assert_eq!(world.column("SELECT body FROM notes ORDER BY length(body) DESC"), [long, "ab".to_owned()]);
}

#[test]
fn api_74_a_feature_that_is_off_costs_no_other_stream() {
    let (world, project) = World::with_issues(2);
    world.server.edit(|model| {
        model.add_item(project, Kind::MergeRequest, "one");
        model.set_feature(project, Kind::MergeRequest, false);
    });
    let report = world.ingest();
    assert_eq!((report.failing, world.issues()), (0, 2));
    world.server.edit(|model| {
        model.set_feature(project, Kind::MergeRequest, true);
        model.set_feature(project, Kind::Issue, false);
    });
    let report = world.ingest();
    assert_eq!((report.failing, world.issues()), (0, 2), "an empty list deletes nothing");
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 1);
}

#[test]
fn api_76_77_limits_of_every_form_are_waited_for_and_missing_headers_are_no_error() {
    use crate::fake_gitlab::limits::{RateLimit, Told};
    for told in
        [Told::Full, Told::RetryAfter, Told::Reset, Told::ResetTime, Told::Plain, Told::Json, Told::Html]
    {
        let (world, _) = World::with_issues(2);
        world.server.set(|settings| {
            settings.rate = Some(RateLimit::new(3, std::time::Duration::from_millis(300), told));
            settings.rate_headers = false;
        });
        let report = world.ingest();
        assert_eq!((report.failing, world.issues()), (0, 2), "{told:?}");
    }
}

#[test]
fn api_79_a_body_that_breaks_off_is_asked_for_again() {
    use crate::fake_gitlab::http::Delivery;
    for delivery in [
        Delivery::Truncated,
        Delivery::Halved,
        Delivery::Reset,
        Delivery::Trickle(std::time::Duration::from_millis(2)),
    ] {
        let (world, _) = World::with_issues(3);
        world.server.plan(Fault::times("/issues?", 1, Trouble::Deliver(delivery)));
        assert_eq!((world.ingest().failing, world.issues()), (0, 3), "{delivery:?}");
    }
}

#[test]
fn api_84_bugs_45_a_file_of_certificates_is_read_at_the_start_and_named_when_it_is_not_usable() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for path in [dir.path().join("missing.pem"), empty] {
        let (mut world, _) = World::with_issues(1);
        reconfigure(&mut world, |config| config.ca_file = Some(path.clone()));
        let error = world.try_ingest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.full_message().contains(&path.display().to_string()), "{}", error.full_message());
        assert!(world.server.take_log().is_empty());
    }
}

#[test]
fn api_8_empty_pages_in_the_middle_are_not_the_end() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| {
        for n in 0..100 {
            let id = model.add_note(project, Kind::Issue, 1, "bo", &format!("hidden {n}"));
            model.hide_discussion(project, Kind::Issue, 1, &id);
        }
        model.add_note(project, Kind::Issue, 1, "bo", "shown");
    });
    world.sync();
    assert_eq!(world.column("SELECT body FROM notes"), ["shown"]);
}

#[test]
fn bugs_36_44_an_instance_of_ones_own_is_asked_at_its_own_address() {
    let (world, project) = World::with_issues(1);
    world.server.set(|settings| settings.prefix = "/gitlab".to_owned());
    let mut world = world;
    let url = world.server.url();
    reconfigure(&mut world, |config| config.url.clone_from(&url));
    world.server.edit(|model| {
        model.edit_item(project, Kind::Issue, 1, |row| {
            row["web_url"] = json!("https://gitlab.example.com/group/project/-/work_items/1");
        });
    });
    world.ingest();
    assert_eq!(world.issues(), 1);
    let text = toml::to_string(&Config::default()).unwrap_or_default();
    assert!(!text.contains("gitlab.com"), "no instance is assumed");
    let reference =
        crate::search::reference::read("https://gitlab.example.com/group/project/-/work_items/1").unwrap();
    assert_eq!((reference.iid, reference.project.as_deref()), (1, Some("group/project")));
}

#[test]
fn bugs_3_4_5_a_list_without_totals_is_not_one_page() {
    let (world, project) = World::with_issues(130);
    world.server.set(|settings| settings.max_total = 50);
    world.server.edit(|model| {
        for n in 0..150 {
            model.add_note(project, Kind::Issue, 1, "bo", &format!("note {n}"));
        }
    });
    world.sync();
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM notes")), (130, 150));
}

#[test]
fn api_43_bugs_40_41_states_and_labels_come_from_the_rows_and_twice_is_once() {
    let (world, project) = World::with_issues(2);
    world.server.edit(|model| {
        model.set_state(project, Kind::Issue, 1, "closed");
        model.project(project).labels.push(routes::label(1, "bug"));
        model.set_labels(project, Kind::Issue, 2, &["bug"]);
        model.delete_label(project, "bug");
    });
    for _ in 0..2 {
        world.sync();
        assert_eq!(world.column("SELECT state FROM issues ORDER BY iid"), ["closed", "opened"]);
        assert_eq!(world.column("SELECT label_names FROM issues WHERE iid = 2"), ["[]"]);
        assert_eq!(world.issues(), 2);
    }
    assert!(asked(&world).iter().all(|target| !target.contains("resource_")));
}
