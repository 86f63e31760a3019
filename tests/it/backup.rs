//! `lore backup`, `lore restore` and the step `backup`, by the compiled binary.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::binary::{Bench, until};
use crate::support::dump::{dump, execute, number, try_number};

const LIMIT: Duration = Duration::from_secs(30);

/// Names in the bench's directory that begin like an unfinished copy.
fn unfinished(bench: &Bench) -> usize {
    let entries = std::fs::read_dir(bench.path()).unwrap();
    entries
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".partial"))
        .count()
}

#[test]
fn what_was_backed_up_is_brought_back_over_what_became_of_it() {
    let bench = Bench::demo();
    let content = dump(&bench.database());
    let made = bench.lore(["backup", "copy.db", "--json"]).data();
    assert_eq!(made["documents"], number(&bench.database(), "SELECT count(*) FROM documents"));
    // The copy is a database: it can be asked in place.
    let hits =
        bench.lore(["query", "session", "--mode", "lexical", "--json", "--database", "copy.db"]).data();
    assert!(hits["total_results"].as_i64().unwrap() > 0);
    bench.lore(["backup", "copy.db"]).fails(2);
    bench.lore(["backup", "copy.db", "--force"]).ok();

    execute(&bench.database(), "DELETE FROM documents");
    let told = bench.lore(["restore", "copy.db"]).fails(2);
    assert!(told.contains("--force"), "{told}");
    bench.lore(["restore", "copy.db", "--force"]).ok();
    assert_eq!(dump(&bench.database()), content);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM runs WHERE state = 'running'"), 0);
    bench.lore(["status", "--check"]).ok();
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    assert_eq!(dump(&bench.database()), content);
    assert_eq!(unfinished(&bench), 0);
}

#[test]
fn a_backup_is_restored_where_there_is_nothing_and_a_bad_one_is_refused_first() {
    let bench = Bench::demo();
    bench.lore(["backup", "copy.db", "--quiet"]).ok();
    let content = dump(&bench.database());
    bench.lore(["restore", "copy.db", "--database", "new/place.db", "--quiet"]).ok();
    assert_eq!(dump(&bench.path().join("new/place.db")), content);
    let mut bytes = std::fs::read(bench.path().join("copy.db")).unwrap();
    for page in 1..bytes.len() / 4096 {
        bytes[page * 4096..page * 4096 + 8].fill(0xA5);
    }
    std::fs::write(bench.path().join("bad.db"), bytes).unwrap();
    bench.lore(["restore", "bad.db", "--force"]).fails(22);
    let error = bench.lore(["restore", "none.db", "--force"]).fails(11);
    assert!(error.contains("no backup at") && !error.contains("lore run demo"), "{error}");
    assert_eq!(dump(&bench.database()), content, "what is there is not touched");
}

#[test]
fn a_database_that_cannot_be_opened_is_moved_aside_and_kept() {
    let bench = Bench::demo();
    let content = dump(&bench.database());
    bench.lore(["backup", "copy.db", "--quiet"]).ok();
    let damaged = b"this was a database once".repeat(1000);
    std::fs::write(bench.database(), &damaged).unwrap();
    bench.lore(["status"]).fails(11);
    let answer = bench.lore(["restore", "copy.db", "--force", "--json"]).data();
    let aside = answer["moved_aside"].as_str().unwrap();
    assert_eq!(std::fs::read(aside).unwrap(), damaged);
    assert_eq!(dump(&bench.database()), content);
}

#[test]
fn a_restore_waits_for_no_run_and_a_run_under_way_is_not_disturbed() {
    let mut bench = Bench::demo();
    bench.lore(["backup", "copy.db", "--quiet"]).ok();
    bench.var("LORE_FAULT", "after-lock:1:stop");
    let holder = bench.spawn(["run", "demo", "--skip", "embed", "--quiet"]);
    bench.var("LORE_FAULT", "");
    until("the holder's lock", || {
        try_number(&bench.database(), "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL") == Some(1)
    });
    bench.lore(["restore", "copy.db", "--force"]).fails(75);
    // A backup needs no lock; the copy's own is free.
    bench.lore(["backup", "second.db", "--quiet"]).ok();
    let free = bench.lore(["lock", "status", "--json", "--database", "second.db"]).data();
    assert_eq!(free["owner"], serde_json::Value::Null);
    holder.signal(Signal::CONT);
    holder.wait(LIMIT).ok();
}

#[test]
fn killed_at_any_point_a_backup_leaves_no_file_of_its_name_and_a_restore_the_old_state() {
    let bench = Bench::demo();
    bench.lore(["backup", "copy.db", "--quiet"]).ok();
    execute(&bench.database(), "UPDATE documents SET title = 'later'");
    let later = dump(&bench.database());
    let killed = |args: &[&str], point: &str| {
        let output = bench.command(args).env("LORE_FAULT", point).output().unwrap();
        assert!(!output.status.success(), "{point} was not passed");
    };
    killed(&["backup", "second.db"], "backup-copied");
    assert!(!bench.path().join("second.db").exists());
    killed(&["restore", "copy.db", "--force"], "restore-staged");
    assert_eq!(dump(&bench.database()), later);
    // The dead one's lock is in nobody's way.
    bench.lore(["restore", "copy.db", "--force", "--quiet"]).ok();
    assert_ne!(dump(&bench.database()), later);
}

#[test]
fn the_step_keeps_the_newest_copies_and_nothing_else_is_removed() {
    let bench = Bench::demo();
    bench.write("backups/lore-20250101T000000Z.db", "old");
    bench.write("backups/lore-20250102T000000Z.db", "old");
    bench.write("backups/notes.txt", "mine");
    bench.write("save.toml", "name = \"save\"\n[steps.backup]\nwith = { keep = 2 }\n");
    let answer = bench.lore(["run", "./save.toml", "--json"]).data();
    assert_eq!(answer["steps"][0]["report"]["counts"]["removed"], 1, "{answer}");
    let mut left: Vec<String> = std::fs::read_dir(bench.path().join("backups"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    assert_eq!(left.len(), 3, "{left:?}");
    assert_eq!((left[0].as_str(), left[2].as_str()), ("lore-20250102T000000Z.db", "notes.txt"));
    let newest = bench.path().join("backups").join(&left[1]);
    assert_eq!(dump(&newest), dump(&bench.database()));
    bench.write("zero.toml", "name = \"zero\"\n[steps.backup]\nwith = { keep = 0 }\n");
    bench.lore(["jobs", "check", "./zero.toml"]).fails(3);
}
