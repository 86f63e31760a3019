//! References that lead nowhere, jobs of very many steps, disks that are too small: by the
//! compiled binary, from the fault to the clean second check.

use std::fmt::Write as _;

use crate::support::binary::Bench;
use crate::support::dump::{dump, execute, number};

/// Files in the bench's directory.
fn files(bench: &Bench) -> Vec<String> {
    let entries = std::fs::read_dir(bench.path()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
    names.sort();
    names
}

#[test]
fn references_that_lead_nowhere_are_found_planned_repaired_and_gone() {
    // Rows of which the parent is deleted behind lore's back, and where the reference is.
    let faults = [
        ("DELETE FROM discussions WHERE id = (SELECT discussion_id FROM notes ORDER BY id LIMIT 1)", "notes"),
        ("UPDATE notes SET discussion_id = 999999 WHERE id = (SELECT min(id) FROM notes)", "notes"),
        ("UPDATE labels SET project_id = 999999 WHERE id = (SELECT min(id) FROM labels)", "labels"),
        ("UPDATE runs SET resumed_from = 999999", "runs"),
        (
            "INSERT INTO step_attempts(run_id, step, attempt, kind, state, started_at, finished_at) VALUES (4711, 's', 1, 'x', 'failed', 0, 0)",
            "step_attempts",
        ),
    ];
    for (fault, table) in faults {
        let bench = Bench::demo();
        execute(&bench.database(), &format!("PRAGMA foreign_keys = OFF; {fault}"));
        let broken = "SELECT count(*) FROM pragma_foreign_key_check";
        let n = number(&bench.database(), broken);
        assert!(n > 0, "{fault}: nothing was planted");
        let told = bench.lore(["status", "--check"]);
        assert_eq!(told.code, 22, "{fault}: {}", told.stderr);
        let lines = format!("{}{}", told.stdout, told.stderr);
        assert!(lines.contains(&format!("foreign_keys: {table} row ")), "{fault}: {lines}");
        let answer = bench.lore(["status", "--check", "--json"]).json();
        let details = answer["error"]["details"]["integrity"]["check"]["details"].to_string();
        assert!(details.contains(&format!("foreign_keys: {table} row ")), "{fault}: {answer}");

        let planned = bench.lore(["status", "--check", "--repair", "--dry-run"]);
        assert!(planned.stdout.contains("dangling rows deleted"), "{fault}: {}", planned.stdout);
        assert_eq!(number(&bench.database(), broken), n, "{fault}: a plan changes nothing");

        let repaired = bench.lore(["status", "--check", "--repair", "--json"]);
        let answer = repaired.json();
        let done = &answer["data"]["integrity"]["repair"];
        let done =
            ["dangling_rows_deleted", "orphaned_parts_deleted"].map(|name| done[name].as_i64().unwrap());
        assert!(done[0] > 0 && done.iter().sum::<i64>() >= n, "{fault}: {answer}");
        assert_eq!(number(&bench.database(), broken), 0, "{fault}");
        bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
        bench.lore(["status", "--check"]).ok();
    }
}

fn job_of(n: usize) -> String {
    let mut text = "name = \"many\"\nmax_parallel = 4\n".to_owned();
    for step in 0..n {
        let needs = if step == 0 { String::new() } else { format!("\nneeds = [\"s{}\"]", step - 1) };
        write!(text, "[steps.s{step}]\nuses = \"metrics\"{needs}\n").unwrap();
    }
    text
}

#[test]
fn a_job_of_a_thousand_steps_runs_and_one_more_is_refused_with_its_place() {
    let bench = Bench::demo();
    bench.write("many.toml", &job_of(1_000));
    bench.lore(["jobs", "check", "./many.toml"]).ok();
    bench.lore(["run", "./many.toml", "--dry-run"]).ok();
    let answer = bench.lore(["run", "./many.toml", "--json"]).data();
    assert_eq!(answer["state"], "succeeded");
    assert_eq!(answer["steps"].as_array().unwrap().len(), 1_000);
    bench.write("more.toml", &job_of(1_001));
    for args in [&["jobs", "check", "./more.toml"][..], &["run", "./more.toml"]] {
        let refused = bench.lore(args);
        let told = format!("{}{}", refused.stdout, refused.stderr);
        assert_eq!(refused.code, 3, "{told}");
        assert!(told.contains("at most 1000 steps, this one has 1001"), "{args:?}: {told}");
        assert!(told.contains("more.toml:3"), "{args:?}: {told}");
    }
}

#[test]
fn a_disk_that_is_too_small_stops_a_copy_a_restore_and_a_rebuild_before_they_write() {
    let mut bench = Bench::demo();
    bench.lore(["backup", "copy.db", "--quiet"]).ok();
    bench.write("save.toml", "[steps.backup]\n");
    bench.write("repair.toml", "[steps.repair]\n");
    // A document that the full-text index does not know: the repair builds the index again.
    execute(&bench.database(), "INSERT INTO documents_fts(documents_fts) VALUES ('delete-all')");
    let (before, listed) = (content(&bench), files(&bench));
    bench.var("LORE_FAULT_FREE", "100000");
    for args in [
        &["backup", "second.db"][..],
        &["restore", "copy.db", "--force"],
        &["restore", "copy.db", "--database", "third.db"],
        &["run", "./save.toml", "--quiet"],
        &["run", "./repair.toml", "--quiet"],
        &["status", "--check", "--repair"],
    ] {
        let told = bench.lore(args);
        let text = format!("{}{}", told.stdout, told.stderr);
        assert_eq!(told.code, 74, "{args:?}: {text}");
        assert!(text.contains("are needed in") && text.contains("hint: free some space"), "{args:?}: {text}");
        assert!(content(&bench) == before, "{args:?}: something was written");
    }
    let left: Vec<String> =
        files(&bench).into_iter().filter(|name| !listed.contains(name) && name != "backups").collect();
    assert!(left.is_empty(), "{left:?}");
    // With room everything goes on.
    bench.var("LORE_FAULT_FREE", "100000000000");
    bench.lore(["run", "./repair.toml", "--quiet"]).ok();
    bench.lore(["status", "--check"]).ok();
    bench.lore(["backup", "second.db", "--quiet"]).ok();
    bench.lore(["restore", "copy.db", "--force", "--quiet"]).ok();
    dump(&bench.database());
}

/// What is stored, without a look at the index, which is damaged here.
fn content(bench: &Bench) -> (i64, i64, i64) {
    let path = bench.database();
    (
        number(&path, "SELECT count(*) FROM documents"),
        number(&path, "SELECT sum(length(content_text)) FROM documents"),
        number(&path, "SELECT count(*) FROM documents_fts_docsize"),
    )
}
