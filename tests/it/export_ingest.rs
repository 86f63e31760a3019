//! The ingest step on export archives: what is stored, what is not written again, what
//! happens when a source fails.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;

use lore::engine::cancel::StopReason;
use lore::error::ErrorKind;

use crate::export_world::{World, fixture, write_archive};

const TREE: &str = "{\"archived\":false}";

fn lines(items: &[serde_json::Value]) -> Vec<u8> {
    items.iter().map(|item| format!("{item}\n")).collect::<String>().into_bytes()
}

fn archive(path: &Path, issues: &[serde_json::Value]) {
    let issues = lines(issues);
    write_archive(
        path,
        &[("tree/project.json", TREE.as_bytes()), ("tree/project/issues.ndjson", issues.as_slice())],
    );
}

fn small_issue(iid: i64, body: &str, notes: &[&str]) -> serde_json::Value {
    let notes: Vec<_> = notes
        .iter()
        .enumerate()
        .map(|(idx, text)| {
            serde_json::json!({"id": iid * 1000 + i64::try_from(idx).unwrap(), "note": text,
                "created_at": "2024-01-02T00:00:00Z", "discussion_id": null, "author_id": 1})
        })
        .collect();
    serde_json::json!({"id": iid + 500, "iid": iid, "title": format!("Issue {iid}"), "description": body,
        "state": "opened", "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-02T00:00:00Z",
        "author_id": 1, "notes": notes})
}

#[test]
fn a_byte_order_mark_costs_no_item() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.tar.gz");
    let mut issues = "\u{feff}".as_bytes().to_vec();
    issues.extend(lines(&[small_issue(1, "first", &[]), small_issue(2, "second", &[])]));
    write_archive(
        &path,
        &[("tree/project.json", TREE.as_bytes()), ("tree/project/issues.ndjson", issues.as_slice())],
    );
    let world = World::of(&path);
    let counts = world.counts(None, false);
    assert_eq!((counts["issues_new"], counts["bad_lines"]), (2, 0));
}

#[test]
fn both_layouts_store_the_same_rows() {
    let tree = World::of(&fixture("tree"));
    let counts = tree.counts(None, false);
    assert_eq!(counts["issues_new"], 3);
    assert_eq!(counts["merge_requests_new"], 2);
    assert_eq!(counts["discussions_new"], 5 + 1 + 4);
    assert_eq!(counts["notes"], 6 + 1 + 4);
    assert_eq!(counts["labels"], 2 + 1, "the group label is described on the issue only");
    assert_eq!(counts["milestones"], 2);
    assert_eq!(counts["bad_lines"], 0);
    let legacy = World::of(&fixture("legacy"));
    legacy.counts(None, false);
    assert_eq!(tree.dump(), legacy.dump());
    assert_eq!(tree.number("SELECT count(*) FROM dirty_sources"), 3 + 2 + 10);
    assert_eq!(tree.number("SELECT count(*) FROM pending_discussion_fetches"), 0);
    assert_eq!(tree.number("SELECT archived FROM projects"), 1);
}

#[test]
fn an_unchanged_export_is_not_read_again_and_writes_nothing() {
    let world = World::of(&fixture("tree"));
    world.counts(None, false);
    let before = world.dump();
    let reader = world.sql();
    let version = |sql: &rusqlite::Connection| -> i64 {
        sql.query_row("SELECT data_version FROM pragma_data_version", [], |row| row.get(0)).unwrap()
    };
    let first = version(&reader);
    let counts = world.counts(None, false);
    assert_eq!(counts["exports_unchanged"], 1);
    assert_eq!(counts["issues_new"] + counts["issues_changed"] + counts["issues_unchanged"], 0);
    assert_eq!(version(&reader), first, "no transaction was committed");
    assert_eq!(world.dump(), before);
}

#[test]
fn twice_is_once_even_when_everything_is_read_again() {
    let world = World::of(&fixture("tree"));
    world.counts(None, false);
    let before = world.dump();
    let queued = world.texts("SELECT source_type||source_id||' '||generation FROM dirty_sources ORDER BY 1");
    let counts = world.counts(None, true);
    assert_eq!((counts["issues_unchanged"], counts["merge_requests_unchanged"]), (3, 2));
    for name in ["issues_new", "issues_changed", "discussions_new", "discussions_changed", "notes", "labels"]
    {
        assert_eq!(counts[name], 0, "{name}");
    }
    assert_eq!(world.dump(), before);
    assert_eq!(
        world.texts("SELECT source_type||source_id||' '||generation FROM dirty_sources ORDER BY 1"),
        queued,
        "nothing is queued that did not change"
    );
}

#[test]
fn a_touched_file_with_the_same_content_costs_one_cursor() {
    let world_dir = tempfile::tempdir().unwrap();
    let path = world_dir.path().join("e.tar.gz");
    archive(&path, &[small_issue(1, "one", &["a"])]);
    let world = World::of(&path);
    world.counts(None, false);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000)).unwrap();
    let fingerprint = world.texts("SELECT fingerprint FROM cursors");
    assert_eq!(world.counts(None, false)["exports_unchanged"], 1);
    assert_ne!(world.texts("SELECT fingerprint FROM cursors"), fingerprint);
    assert_eq!(world.counts(None, false)["exports_unchanged"], 1);
}

#[test]
fn a_new_export_changes_only_what_differs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    archive(&path, &[small_issue(1, "one", &["a", "b"]), small_issue(2, "two", &[])]);
    let world = World::of(&path);
    world.counts(None, false);
    world.sql().execute("DELETE FROM dirty_sources", []).unwrap();
    archive(
        &path,
        &[small_issue(1, "one", &["a"]), small_issue(2, "two, edited", &[]), small_issue(3, "three", &[])],
    );
    let counts = world.counts(None, false);
    assert_eq!(
        (counts["issues_new"], counts["issues_changed"], counts["issues_unchanged"]),
        (1, 1, 1),
        "{counts:?}"
    );
    assert_eq!((counts["discussions_new"], counts["discussions_removed"]), (0, 1));
    let dirty = world.texts(
        "SELECT i.iid||'' FROM dirty_sources d JOIN issues i ON d.source_type = 'issue' AND i.id = d.source_id ORDER BY 1",
    );
    assert_eq!(dirty, ["1", "2", "3"], "issue 1 lost a note, and its document shows its thread");
}

#[test]
fn a5_14_an_issue_and_a_merge_request_of_one_number_are_two_things() {
    let world = World::of(&fixture("tree"));
    world.counts(None, false);
    assert_eq!(
        world.texts(
            "SELECT title FROM issues WHERE iid = 2 UNION ALL SELECT title FROM merge_requests WHERE iid = 2"
        ),
        ["iid two, as the merge request", "Draft: iid two"]
    );
    let mut both = World::of(&fixture("tree"));
    both.add("other", &fixture("legacy"));
    both.counts(None, false);
    assert_eq!(both.number("SELECT count(*) FROM issues WHERE iid = 2"), 2);
}

#[test]
fn a5_05_null_and_unknown_authors_are_stored_as_nobody() {
    let world = World::of(&fixture("tree"));
    world.counts(None, false);
    assert_eq!(world.number("SELECT count(*) FROM issues WHERE iid = 3 AND author_username IS NULL"), 1);
    assert_eq!(
        world.number("SELECT count(*) FROM notes WHERE author_username IS NULL AND author_name = 'User 0'"),
        1
    );
}

#[test]
fn a5_19_flags_of_confidential_and_internal_texts_are_stored() {
    let world = World::of(&fixture("tree"));
    world.counts(None, false);
    assert_eq!(world.texts("SELECT title FROM issues WHERE confidential"), ["Typed by both"]);
    assert_eq!(
        world.texts("SELECT body FROM notes WHERE is_internal ORDER BY gitlab_id"),
        ["secret plan", "newer name of the same flag"]
    );
    assert_eq!(world.texts("SELECT body FROM notes WHERE is_system"), ["added ~group label"]);
}

#[test]
fn a5_17_long_threads_and_huge_notes_are_stored_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    let note = "ä".repeat(2_000);
    let mut notes = vec![note.as_str(); 29];
    notes.push("NEEDLE9");
    let huge = "漢".repeat(100_000);
    archive(&path, &[small_issue(1, "long", &notes), small_issue(2, &"x".repeat(32_001), &[&huge])]);
    let world = World::of(&path);
    assert_eq!(world.counts(None, false)["notes"], 31);
    assert_eq!(world.number("SELECT max(length(body)) FROM notes"), 100_000);
    assert_eq!(world.number("SELECT count(*) FROM notes WHERE body = 'NEEDLE9'"), 1);
    assert_eq!(world.number("SELECT length(description) FROM issues WHERE iid = 2"), 32_001);
}

#[test]
fn a_hostile_archive_writes_nothing_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar");
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in [
        ("tree/project.json", TREE.as_bytes()),
        ("tree/project/issues.ndjson", &lines(&[small_issue(1, "x", &[])])),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append_data(&mut header, name, content).unwrap();
    }
    let mut link = tar::Header::new_ustar();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "uploads/x", "/etc/passwd").unwrap();
    std::fs::write(&path, builder.into_inner().unwrap()).unwrap();
    let world = World::of(&path);
    let error = world.ingest(None, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("uploads/x"), "{error}");
    assert!(world.dump().is_empty());
}

#[test]
fn one_source_that_fails_fails_the_step_and_does_not_stop_the_others() {
    let mut world = World::of(&fixture("tree"));
    world.add("broken", Path::new("/nowhere/e.tar.gz"));
    let error = world.ingest(None, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(
        error.to_string().contains("1 of 2 sources") && error.to_string().contains("\"broken\""),
        "{error}"
    );
    assert_eq!(error.details_value().unwrap()["counts"]["issues_new"], 3);
    assert_eq!(world.number("SELECT count(*) FROM issues"), 3);
}

#[test]
fn a6_06_the_step_fails_when_every_source_fails() {
    let mut world = World::of(Path::new("/nowhere/a.tar.gz"));
    world.add("second", Path::new("/nowhere/b.tar.gz"));
    let error = world.ingest(None, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "the common kind");
    assert!(error.to_string().contains("a.tar.gz") && error.to_string().contains("b.tar.gz"), "{error}");
    assert_eq!(world.ingest(Some("main"), false).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn an_unknown_source_is_a_configuration_error_with_the_nearest_name() {
    let world = World::of(&fixture("tree"));
    let error = world.ingest(Some("mian"), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.hints().iter().any(|hint| hint.contains("did you mean \"main\"")), "{:?}", error.hints());
    assert!(error.hints().iter().any(|hint| hint.contains("main, demo")), "{:?}", error.hints());
    let error = World::new().ingest(None, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.hints().iter().any(|hint| hint.contains("lore run demo")));
}

#[test]
fn the_sample_needs_no_configuration_and_is_not_among_the_configured_sources() {
    let world = World::new();
    let report = world.ingest(Some("demo"), false).unwrap();
    assert_eq!(report.failing, 0);
    assert!(report.count("issues_new") >= 60 && report.count("merge_requests_new") >= 30);
    assert_eq!(world.texts("SELECT path FROM projects"), ["sample/photon"]);
    assert_eq!(world.ingest(Some("demo"), false).unwrap().count("exports_unchanged"), 1);
    let mut configured = World::of(&fixture("tree"));
    configured.counts(None, false);
    assert_eq!(configured.texts("SELECT path FROM projects"), ["group/project"]);
    configured.add("demo", &fixture("legacy"));
    assert_eq!(configured.counts(Some("demo"), false)["issues_new"], 3, "a configured source wins");
}

#[test]
fn bad_lines_and_repeated_numbers_are_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    let mut issues =
        lines(&[small_issue(1, "one", &[]), small_issue(1, "again", &[]), small_issue(2, "two", &[])]);
    for _ in 0..12 {
        issues.extend_from_slice(b"{\"iid\":}\n");
    }
    write_archive(&path, &[("tree/project.json", TREE.as_bytes()), ("tree/project/issues.ndjson", &issues)]);
    let world = World::of(&path);
    let report = world.ingest(None, false).unwrap();
    assert_eq!((report.count("issues_new"), report.count("bad_lines"), report.failing), (2, 13, 13));
    assert!(
        report.warnings[0].contains("#1") && report.warnings[0].contains("twice"),
        "{:?}",
        report.warnings
    );
    assert!(report.warnings[1].starts_with("tree/project/issues.ndjson:4: "), "{:?}", report.warnings);
    assert_eq!(report.warnings.last().unwrap(), "3 more lines cannot be used");
    assert_eq!(world.texts("SELECT description FROM issues ORDER BY iid"), ["one", "two"]);
}

#[test]
fn lines_that_cannot_be_used_are_shown_until_an_export_reads_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    let mut issues = lines(&[small_issue(1, "one", &[])]);
    issues.extend_from_slice(b"{\"iid\":}\n{\"iid\":}\n");
    write_archive(&path, &[("tree/project.json", TREE.as_bytes()), ("tree/project/issues.ndjson", &issues)]);
    let world = World::of(&path);
    assert_eq!(world.ingest(None, false).unwrap().failing, 2);
    let recorded = || world.texts("SELECT stream || ': ' || last_error FROM stream_failures");
    assert!(
        recorded()[0].starts_with("archive lines: 2 lines of the export cannot be used"),
        "{:?}",
        recorded()
    );
    // The export is the same: it is not read again, and lacks them all the same.
    let again = world.ingest(None, false).unwrap();
    assert_eq!((again.count("exports_unchanged"), again.failing), (1, 1));
    assert!(again.warnings[0].contains("2 lines"), "{:?}", again.warnings);
    assert_eq!(recorded().len(), 1);
    archive(&path, &[small_issue(1, "one", &[]), small_issue(2, "two", &[])]);
    assert_eq!(world.ingest(None, false).unwrap().failing, 0);
    assert!(recorded().is_empty(), "{:?}", recorded());
    assert_eq!(world.ingest(None, false).unwrap().failing, 0);
}

#[test]
fn an_export_that_broke_is_visible_until_it_can_be_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    archive(&path, &[small_issue(1, "one", &["a"])]);
    let world = World::of(&path);
    world.counts(None, false);
    let (whole, stored) = (std::fs::read(&path).unwrap(), world.dump());
    let mtime = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert_eq!(world.ingest(None, false).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(world.texts("SELECT error_kind FROM stream_failures"), ["IO"]);
    assert_eq!(world.dump(), stored, "what was stored stays");
    std::fs::write(&path, &whole).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(mtime).unwrap();
    assert_eq!(world.counts(None, false)["exports_unchanged"], 1);
    assert_eq!(world.number("SELECT count(*) FROM stream_failures"), 0);
}

#[test]
fn an_ingest_that_was_stopped_is_finished_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("e.tar.gz");
    let issues: Vec<_> = (1..=450).map(|iid| small_issue(iid, "text", &["note"])).collect();
    archive(&path, &issues);
    let whole = World::of(&path);
    whole.counts(None, false);
    // A trigger stands for the kill: it refuses a row of the third batch.
    let world = World::of(&path);
    world
        .sql()
        .execute_batch(
            "CREATE TRIGGER refuse BEFORE INSERT ON issues WHEN new.iid = 401 BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        .unwrap();
    assert_eq!(world.ingest(None, false).unwrap_err().kind(), ErrorKind::Database);
    assert_eq!(world.number("SELECT count(*) FROM issues"), 400);
    assert_eq!(world.number("SELECT count(*) FROM cursors"), 0, "the cursor comes with the last batch");
    world.sql().execute_batch("DROP TRIGGER refuse").unwrap();
    let counts = world.counts(None, false);
    assert_eq!((counts["issues_new"], counts["issues_unchanged"]), (50, 400));
    assert_eq!(world.dump(), whole.dump());
    let stopped = World::of(&path);
    stopped.cancel.cancel(StopReason::Terminated);
    assert_eq!(stopped.ingest(None, false).unwrap_err().kind(), ErrorKind::Terminated);
    assert!(stopped.dump().is_empty());
}
