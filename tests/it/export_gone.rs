//! Exports that lack what an earlier one had, or all of whose lines are unusable.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::ops::RangeInclusive;
use std::path::Path;

use lore::error::ErrorKind;
use lore::steps::reconcile::Reconcile;

use crate::export_world::{World, write_archive};

/// An export of issues; `day` is when all of them were last updated.
fn export(path: &Path, iids: RangeInclusive<i64>, without: &[i64], day: u8) {
    let issues: String = iids
        .filter(|iid| !without.contains(iid))
        .map(|iid| {
            let row = serde_json::json!({"id": iid + 500, "iid": iid, "title": format!("Issue {iid}"), "state": "opened",
                "created_at": "2024-01-01T00:00:00Z", "updated_at": format!("2024-02-{day:02}T00:00:00Z"), "author_id": 1,
                "notes": [{"id": iid * 10, "note": format!("note of {iid}"), "created_at": "2024-01-02T00:00:00Z", "author_id": 1}]});
            format!("{row}\n")
        })
        .collect();
    write(path, &issues);
}

fn write(path: &Path, issues: &str) {
    write_archive(
        path,
        &[("tree/project.json", b"{\"archived\":false}"), ("tree/project/issues.ndjson", issues.as_bytes())],
    );
}

fn deleted(world: &World) -> i64 {
    world.reconcile(&Reconcile::default()).unwrap().count("items_deleted")
}

#[test]
fn an_item_that_two_newer_exports_lack_is_deleted_by_reconcile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    export(&path, 1..=30, &[], 1);
    let world = World::of(&path);
    world.counts(None, false);
    export(&path, 1..=30, &[3], 2);
    assert_eq!(world.counts(None, false)["items_missing"], 1);
    // The same export read again proves nothing more.
    world.counts(None, true);
    assert_eq!(deleted(&world) + deleted(&world), 0);
    assert_eq!(world.number("SELECT count(*) FROM issues"), 30);
    export(&path, 1..=31, &[3], 3);
    assert_eq!(world.counts(None, false)["items_missing"], 1);
    assert_eq!(world.number("SELECT count(*) FROM issues"), 31, "ingest deletes nothing");
    assert_eq!(deleted(&world), 1);
    assert_eq!(world.number("SELECT count(*) FROM notes WHERE body = 'note of 3'"), 0);
    assert_eq!(world.texts("SELECT item_type || iid FROM tombstones"), ["issue3"]);
    // It comes back with an export that has it.
    export(&path, 1..=31, &[], 4);
    world.counts(None, false);
    assert_eq!(world.number("SELECT count(*) FROM issues"), 31);
    assert_eq!(world.number("SELECT count(*) FROM tombstones"), 0);
}

#[test]
fn an_older_or_damaged_export_and_one_that_has_the_item_again_give_no_strike() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    export(&path, 1..=30, &[], 9);
    let world = World::of(&path);
    world.counts(None, false);
    export(&path, 1..=20, &[], 5);
    let report = world.ingest(None, false).unwrap();
    assert_eq!(report.count("items_missing"), 0);
    assert!(
        report.warnings.iter().any(|text| text.contains("older than what was stored")),
        "{:?}",
        report.warnings
    );
    write(
        &path,
        "{\"id\":501,\"iid\":1,\"title\":\"x\",\"updated_at\":\"2024-03-01T00:00:00Z\"}\nnot json\n",
    );
    assert_eq!(world.ingest(None, false).unwrap().count("items_missing"), 0, "a line of it cannot be read");
    assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0);
    export(&path, 1..=30, &[3], 10);
    world.counts(None, false);
    export(&path, 1..=30, &[], 11);
    world.counts(None, false);
    assert_eq!(world.number("SELECT count(*) FROM item_strikes"), 0);
}

#[test]
fn the_fuse_holds_for_exports_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    export(&path, 1..=30, &[], 1);
    let world = World::of(&path);
    world.counts(None, false);
    for day in [2, 3] {
        export(&path, 1..=18, &[], day);
        world.counts(None, false);
    }
    let report = world.reconcile(&Reconcile::default()).unwrap();
    assert_eq!((report.count("items_deleted"), report.count("fuses_blown")), (0, 1));
    let allowed = Reconcile { allow_mass_delete: true, ..Reconcile::default() };
    assert_eq!(world.reconcile(&allowed).unwrap().count("items_deleted"), 12);
    // An export without any issue is taken as one that was made without them.
    for day in ["04", "05"] {
        write_archive(
            &path,
            &[("tree/project.json", format!("{{\"archived\":false,\"x\":\"{day}\"}}").as_bytes())],
        );
        world.counts(None, false);
    }
    assert_eq!(world.reconcile(&allowed).unwrap().count("items_deleted"), 0);
    assert_eq!(world.number("SELECT count(*) FROM issues"), 18);
}

#[test]
fn an_export_all_of_whose_lines_are_unusable_fails_and_is_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    export(&path, 1..=3, &[], 1);
    let world = World::of(&path);
    world.counts(None, false);
    write(&path, "not json\n{\"iid\": \"x\"}\n");
    for _ in 0..2 {
        let error = world.ingest(None, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("none of its 2 items can be used"), "{error}");
    }
    assert_eq!(world.number("SELECT count(*) FROM issues"), 3);
    assert_eq!(world.texts("SELECT stream FROM stream_failures"), ["archive"]);
    export(&path, 1..=4, &[], 2);
    world.counts(None, false);
    assert_eq!(world.number("SELECT count(*) FROM stream_failures"), 0);
}
