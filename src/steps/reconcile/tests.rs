//! Reconcile against a server of our own.

use super::*;
use crate::engine::cancel::Cancel;
use crate::engine::ctx::RunOptions;
use crate::error::ErrorKind;
use crate::fake_gitlab::faults::{self, Fault, Trouble};
use crate::fake_gitlab::http::Reply;
use crate::fake_gitlab::model::Kind;
use crate::steps::ingest::gitlab::tests::World;
use crate::steps::regenerate_docs::RegenerateDocs;
use crate::store::lock::{Acquired, Claim, ProcessIdentity};
use crate::store::runs::NewRun;

/// Runs the step as a run of its own: strikes count by runs.
fn reconcile(world: &World, step: &Reconcile) -> Result<StepReport> {
    let process = ProcessIdentity::default();
    let run = NewRun { job: "reconcile", job_hash: "", options: "{}", resumed_from: None };
    let claim = Claim {
        run: &run,
        owner: "test",
        process: &process,
        lease_ms: 60_000,
        dead: None,
        patience: None,
        cancel: &Cancel::new(),
    };
    let Acquired::Taken { fence, .. } = lock::acquire(&world.store, &claim).unwrap() else {
        panic!("locked")
    };
    let out = world.step(|ctx| step.run(ctx));
    assert!(lock::release(&world.store, &fence).unwrap());
    out
}

fn runs(world: &World, n: usize) -> StepReport {
    (0..n).map(|_| reconcile(world, &Reconcile::default()).unwrap()).last().unwrap()
}

fn synced(n: i64) -> (World, i64) {
    let (world, project) = World::with_issues(n);
    world.server.edit(|model| {
        model.add_item(project, Kind::MergeRequest, "A change");
        for iid in 1..=n {
            model.add_note(project, Kind::Issue, iid, "bo", &format!("zanzibar {iid}"));
        }
        model.advance(3_600_000);
    });
    world.sync();
    world.step(|ctx| RegenerateDocs::default().run(ctx)).unwrap();
    (world, project)
}

/// Adds an issue that is so new that an incremental run lists none of the others.
fn leave_behind(world: &World, project: i64) {
    world.server.edit(|model| {
        model.add_item(project, Kind::Issue, "newest");
        model.advance(3_600_000);
    });
    world.sync();
}

/// Rows that belong to issue 3, in any table.
fn traces(world: &World) -> i64 {
    world.number(
        "SELECT (SELECT count(*) FROM issues WHERE iid = 3) + (SELECT count(*) FROM documents WHERE item_iid = 3 AND item_type = 'issue')
              + (SELECT count(*) FROM notes WHERE body = 'zanzibar 3')
              + (SELECT count(*) FROM raw_payloads WHERE resource_key = '3' AND resource_type = 'issue' OR resource_key LIKE 'Issue/3/%')
              + (SELECT count(*) FROM pending_discussion_fetches WHERE noteable_iid = 3)
              + (SELECT count(*) FROM documents_fts WHERE documents_fts MATCH '\"zanzibar 3\"')",
    )
}

#[test]
fn a5_12_api_23_an_item_that_is_gone_in_two_runs_goes_with_all_that_was_made_of_it() {
    let (world, project) = synced(30);
    assert!(traces(&world) >= 6, "{}", traces(&world));
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
    let first = runs(&world, 1);
    assert_eq!((first.count("items_missing"), first.count("items_deleted")), (1, 0));
    assert_eq!(world.issues(), 30);
    let second = runs(&world, 1);
    assert_eq!((second.count("items_deleted"), second.failing), (1, 0), "{:?}", second.warnings);
    world.step(|ctx| RegenerateDocs::default().run(ctx)).unwrap();
    assert_eq!(traces(&world), 0);
    assert_eq!(world.issues(), 29);
    assert_eq!(world.column("SELECT item_type || iid FROM tombstones"), ["issue3"]);
    assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0);
    assert_eq!(runs(&world, 1).count("items_missing"), 0);
}

#[test]
fn one_run_gives_one_strike_however_often_its_step_is_tried() {
    let (world, project) = synced(30);
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
    for _ in 0..3 {
        world.step(|ctx| Reconcile::default().run(ctx)).unwrap();
    }
    assert_eq!(world.column("SELECT strikes FROM item_strikes"), ["1"]);
    assert_eq!(world.issues(), 30);
}

#[test]
fn an_item_that_reappears_is_forgiven_or_comes_back() {
    let (world, project) = synced(29);
    leave_behind(&world, project);
    let row = world.server.edit(|model| model.item(project, Kind::Issue, 3).clone());
    let put_back = |world: &World| {
        world.server.edit(|model| {
            model.project(project).items.insert((Kind::Issue, 3), row.clone());
        });
    };
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
    runs(&world, 1);
    put_back(&world);
    runs(&world, 1);
    assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0, "seen again");
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
    runs(&world, 2);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM tombstones")), (29, 1));
    // Its `updated_at` is old: an incremental run does not list it.
    put_back(&world);
    world.ingest();
    assert_eq!(world.issues(), 29);
    runs(&world, 1);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM tombstones")), (30, 0));
    world.fetch();
    assert_eq!(world.number("SELECT count(*) FROM notes WHERE body = 'zanzibar 3'"), 1);
}

#[test]
fn api_75_only_404_confirms_and_any_other_answer_decides_nothing() {
    for trouble in [
        faults::json(403, "403 Forbidden"),
        faults::html(500),
        faults::html(503),
        Trouble::Deliver(crate::fake_gitlab::http::Delivery::Reset),
    ] {
        let (world, project) = synced(30);
        world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
        world.server.plan(Fault::always("/issues/3", trouble.clone()));
        let report = runs(&world, 3);
        assert_eq!(report.count("items_unconfirmed"), 1, "{trouble:?}");
        assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0, "{trouble:?}");
        assert_eq!(world.issues(), 30, "{trouble:?}");
    }
}

#[test]
fn a5_11_a_list_that_breaks_off_or_lacks_items_that_are_there_deletes_nothing() {
    let (world, project) = synced(30);
    world.server.set(|settings| settings.max_per_page = 10);
    world.server.plan(Fault::always("/issues?", faults::html(503)).after(1));
    let report = runs(&world, 2);
    assert!(report.failing > 0);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM item_strikes")), (30, 0));
    // A list without a row that a request for it finds.
    world.server.heal();
    let row = world.server.edit(|model| model.item(project, Kind::Issue, 3).listed());
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
    world.server.plan(Fault::always("/issues/3", Trouble::Answer(Reply::json(200, &row))));
    runs(&world, 2);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM item_strikes")), (30, 0));
}

#[test]
fn the_fuse_stops_a_mass_deletion_until_it_is_allowed() {
    let (mut world, project) = synced(30);
    world.server.edit(|model| (1..=12).for_each(|iid| model.delete_item(project, Kind::Issue, iid)));
    for _ in 0..3 {
        let report = runs(&world, 1);
        assert_eq!((report.count("fuses_blown"), report.count("items_deleted")), (1, 0));
        assert!(report.warnings[0].contains("12 of 31 items are gone at once"), "{:?}", report.warnings);
    }
    assert_eq!(world.issues(), 30);
    world.options = RunOptions { allow_mass_delete: true, ..RunOptions::default() };
    assert_eq!(runs(&world, 1).count("items_deleted"), 12);
    assert_eq!(world.issues(), 18);
}

#[test]
fn ten_items_or_a_fifth_of_a_large_project_go_without_asking() {
    let (world, project) = synced(12);
    world.server.edit(|model| (1..=10).for_each(|iid| model.delete_item(project, Kind::Issue, iid)));
    assert_eq!(runs(&world, 2).count("items_deleted"), 10);
    assert_eq!(world.issues(), 2);
}

#[test]
fn api_62_a_token_that_sees_less_is_recognised_and_nothing_is_deleted() {
    let (world, project) = World::with_issues(30);
    world.server.edit(|model| {
        for iid in [3, 7] {
            model.item(project, Kind::Issue, iid).row["confidential"] = true.into();
        }
        model.project(project).row["permissions"] =
            serde_json::json!({"project_access": {"access_level": 30}, "group_access": null});
    });
    world.sync();
    runs(&world, 1);
    let hidden = world.server.edit(|model| {
        [3, 7].map(|iid| {
            let item = model.item(project, Kind::Issue, iid).clone();
            model.delete_item(project, Kind::Issue, iid);
            (iid, item)
        })
    });
    // Confidential items vanish together.
    let report = runs(&world, 3);
    assert_eq!((report.count("items_withheld"), report.count("items_missing")), (2, 0));
    assert!(
        report.warnings[0].contains("confidential items are missing together (#3, #7)"),
        "{:?}",
        report.warnings
    );
    assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0);
    // The access level is lower: a public item is no exception.
    world.server.edit(|model| {
        model.project(project).row["permissions"]["project_access"]["access_level"] = 10.into();
        model.delete_item(project, Kind::Issue, 5);
    });
    let report = runs(&world, 3);
    assert!(report.warnings[0].contains("access level 10 there, and had 30"), "{:?}", report.warnings);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM item_strikes")), (30, 0));
    // Accepted: what is public and gone goes, what is confidential is still withheld.
    let accept = Reconcile { accept_access: true, ..Reconcile::default() };
    reconcile(&world, &accept).unwrap();
    assert_eq!(runs(&world, 1).count("items_deleted"), 1);
    assert_eq!(world.issues(), 29);
    world.server.edit(|model| {
        for (iid, item) in hidden.clone() {
            model.project(project).items.insert((Kind::Issue, iid), item);
        }
    });
    assert_eq!(runs(&world, 1).count("items_withheld"), 0);
}

#[test]
fn another_user_or_fewer_scopes_stop_every_deletion() {
    let user = |id: i64| Trouble::Answer(Reply::json(200, &serde_json::json!({"id": id, "username": "bot"})));
    let scopes = |scopes: &[&str]| Trouble::Answer(Reply::json(200, &serde_json::json!({"scopes": scopes})));
    for (second_user, second_scopes, said) in
        [(2, &["api", "sudo"][..], "belongs to user 2"), (1, &["read_api"], "lost the scope sudo")]
    {
        let (world, project) = synced(30);
        world.server.plan(Fault::always("/v4/user", user(1)));
        world.server.plan(Fault::always("/personal_access_tokens/self", scopes(&["api", "sudo"])));
        runs(&world, 1);
        world.server.heal();
        world.server.plan(Fault::always("/v4/user", user(second_user)));
        world.server.plan(Fault::always("/personal_access_tokens/self", scopes(second_scopes)));
        world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
        let report = runs(&world, 3);
        assert!(report.warnings[0].contains(said), "{:?}", report.warnings);
        assert_eq!((world.issues(), world.number("SELECT count(*) FROM item_strikes")), (30, 0));
        let accept = Reconcile { accept_access: true, ..Reconcile::default() };
        reconcile(&world, &accept).unwrap();
        assert_eq!(runs(&world, 1).count("items_deleted"), 1);
    }
}

#[test]
fn all_items_of_a_kind_missing_at_once_are_not_believed() {
    let (world, _) = synced(30);
    world.server.plan(Fault::always("/issues?", Trouble::EmptyList));
    world.server.plan(Fault::always("/issues/", faults::json(404, "404 Not found")));
    let report = runs(&world, 3);
    assert_eq!(report.count("items_withheld"), 30);
    assert!(report.warnings[0].contains("all issues are missing at once"), "{:?}", report.warnings);
    assert_eq!(world.issues(), 30);
}

#[test]
fn issues_that_are_switched_off_are_hidden_and_not_deleted() {
    let (world, project) = synced(30);
    world.server.edit(|model| {
        model.project(project).row["issues_access_level"] = "disabled".into();
        model.project(project).denied.insert("issues".to_owned(), 404);
    });
    assert_eq!(runs(&world, 3).count("streams_off"), 1);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM item_strikes")), (30, 0));
}

#[test]
fn a_project_that_is_gone_in_two_runs_loses_its_items_when_the_fuse_allows() {
    let (mut world, project) = synced(5);
    world
        .server
        .plan(Fault::always("/v4/user", Trouble::Answer(Reply::json(200, &serde_json::json!({"id": 1})))));
    world.server.edit(|model| model.delete_project(project));
    let report = runs(&world, 1);
    assert_eq!((report.count("projects_missing"), report.count("projects_deleted")), (1, 0));
    assert_eq!(world.issues(), 5);
    assert_eq!(runs(&world, 1).count("projects_deleted"), 1);
    assert_eq!((world.issues(), world.number("SELECT count(*) FROM documents")), (0, 0));
    assert_eq!(world.column("SELECT path FROM projects"), ["group/project"]);
    assert_eq!(world.column("SELECT state FROM project_states"), ["deleted"]);
    assert_eq!(world.number("SELECT count(*) FROM tombstones"), 6);
    assert_eq!(runs(&world, 1).count("projects_missing"), 0, "done with");

    let (large, project) = synced(30);
    world = large;
    world
        .server
        .plan(Fault::always("/v4/user", Trouble::Answer(Reply::json(200, &serde_json::json!({"id": 1})))));
    world.server.edit(|model| model.delete_project(project));
    assert_eq!(runs(&world, 3).count("fuses_blown"), 1);
    assert_eq!(world.issues(), 30);
    world.options.allow_mass_delete = true;
    assert_eq!(runs(&world, 1).count("projects_deleted"), 1);
}

#[test]
fn a_project_that_cannot_be_seen_by_a_token_that_is_not_proved_to_work_is_kept() {
    let (world, project) = synced(5);
    world.server.plan(Fault::always("/v4/user", faults::json(403, "403 Forbidden")));
    world.server.edit(|model| model.delete_project(project));
    let report = runs(&world, 3);
    assert_eq!(report.count("projects_withheld"), 1);
    assert_eq!(world.issues(), 5);
    for status in [403, 500, 503] {
        let (world, _) = synced(5);
        world.server.plan(Fault::always("/projects/", faults::html(status)));
        runs(&world, 3);
        assert_eq!(world.issues(), 5, "{status}");
        assert_eq!(world.number("SELECT count(*) FROM project_states"), 0);
    }
}

#[test]
fn a_refused_token_ends_the_step_and_changes_nothing() {
    let (world, project) = synced(5);
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 3));
    world.server.set(|settings| settings.token = Some("another".to_owned()));
    let error = reconcile(&world, &Reconcile::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0);
}

#[test]
fn a_sweep_brings_what_no_incremental_run_lists() {
    let (world, project) = synced(29);
    leave_behind(&world, project);
    world.server.edit(|model| {
        // Imported with an old time, and a label that lost its items without a word.
        let old = model.now - 86_400_000 * 400;
        let iid = model.add_item(project, Kind::Issue, "imported");
        model.item(project, Kind::Issue, iid).updated_at = old;
        model.item(project, Kind::Issue, 4).row["labels"] = serde_json::json!(["late"]);
    });
    world.ingest();
    assert_eq!(world.issues(), 30);
    let report = runs(&world, 1);
    assert_eq!((report.count("issues_new"), report.count("issues_changed")), (1, 1));
    assert_eq!(world.issues(), 31);
    let cursor = world.number("SELECT updated_at FROM cursors WHERE stream = 'issues'");
    assert_eq!(cursor, world.number("SELECT max(updated_at) FROM issues"));
}
