//! Surroundings that do not help: outputs that cannot be written, files that are something
//! else, databases that are damaged or foreign, text that means harm.

use std::process::Stdio;
use std::time::Duration;

use crate::support::binary::{Bench, nap};
use crate::support::dump::{execute, open};

const LIMIT: Duration = Duration::from_secs(60);

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_said_on_the_other_stream() {
    let bench = Bench::demo();
    for args in [
        &["query", "photo"][..],
        &["query", "photo", "--json"],
        &["status", "--json"],
        &["run", "demo", "--json"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = bench.command(args).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(74), "{args:?} {stderr}");
        assert!(stderr.contains("error: write the answer: No space left"), "{args:?} {stderr}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let bench = Bench::demo();
    for args in [&["query", "photo", "--json"][..], &["jobs", "schema"], &["completions", "bash"], &["man"]] {
        let mut child = bench.command(args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?} {stderr}");
        assert!(!stderr.contains("error"), "{args:?} {stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_without_end_is_refused_where_a_small_one_is_wanted() {
    let bench = Bench::new();
    for args in [
        &["--config", "/dev/zero", "config", "check"][..],
        &["jobs", "check", "/dev/zero"],
        &["run", "/dev/zero", "--dry-run"],
    ] {
        let stderr = bench.lore(args).fails(3);
        assert!(stderr.contains("/dev/zero: a pipe, a socket or a device"), "{args:?} {stderr}");
    }
}

#[test]
fn an_option_without_its_value_is_wrong_usage_and_one_outside_its_list_is_13() {
    let bench = Bench::demo();
    for args in [&["query", "x", "--limit"][..], &["--database=", "status"], &["query", "x", "--limit=x"]] {
        bench.lore(args).fails(2);
    }
    for args in [&["query", "x", "--mode"][..], &["query", "x", "--mode=x"], &["--color=x", "status"]] {
        bench.lore(args).fails(13);
    }
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let bench = Bench::new();
    for version in [0, 1, 99] {
        let path = bench.path().join(format!("other{version}.db"));
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE recipes(id INTEGER)").unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let before = std::fs::read(&path).unwrap();
        for args in
            [&["run", "demo", "--skip", "embed"][..], &["status"], &["query", "x"], &["lock", "status"]]
        {
            let path = path.to_str().unwrap();
            let stderr = bench.lore(["--database", path].iter().chain(args)).fails(11);
            assert!(stderr.contains("of another program"), "{args:?} {stderr}");
        }
        assert!(std::fs::read(&path).unwrap() == before, "version {version}: not one byte is changed");
    }
}

#[test]
fn what_is_no_database_is_named_with_what_to_do() {
    let bench = Bench::new();
    let text = bench.write("text.db", "not a database, but long enough to look at\n");
    for args in [&["run", "demo", "--skip", "embed"][..], &["status"], &["query", "x"]] {
        let stderr = bench.lore(["--database", text.to_str().unwrap()].iter().chain(args)).fails(11);
        assert!(
            stderr.contains("text.db") && stderr.contains("hint: name another file"),
            "{args:?} {stderr}"
        );
        let directory = bench.path().to_str().unwrap();
        let stderr = bench.lore(["--database", directory].iter().chain(args)).fails(12);
        assert!(stderr.contains("directory") && stderr.contains("hint: "), "{args:?} {stderr}");
    }
    assert!(std::fs::read(&text).unwrap().starts_with(b"not a database"));
}

#[test]
fn looking_for_a_lock_or_a_run_makes_no_database() {
    let bench = Bench::new();
    for args in
        [&["lock", "break", "--owner", "x"][..], &["runs", "cancel", "1"], &["run", "demo", "--dry-run"]]
    {
        drop(bench.lore(args));
        assert!(!bench.database().exists(), "{args:?}");
    }
}

#[test]
fn the_check_of_a_damaged_database_exits_22_and_points_to_a_backup() {
    let undamaged = Bench::demo();
    let bytes = std::fs::read(undamaged.database()).unwrap();
    for keep in [bytes.len() / 2, 5_000] {
        let bench = Bench::new();
        std::fs::write(bench.database(), bytes.get(..keep).unwrap()).unwrap();
        let stderr = bench.lore(["status", "--check"]).fails(22);
        assert!(stderr.contains("backup"), "{stderr}");
        assert!(!stderr.contains("`lore status --check`"), "that is what was asked: {stderr}");
        let stderr = bench.lore(["query", "photo"]).fails(10);
        assert!(stderr.contains("backup"), "{stderr}");
    }
    let bench = Bench::demo();
    execute(&bench.database(), "PRAGMA foreign_keys = OFF; DROP TABLE document_refs");
    let stderr = bench.lore(["status", "--check"]).fails(22);
    assert!(stderr.contains("pages"), "{stderr}");
    assert!(stderr.contains("document_refs"), "the finding itself: {stderr}");
}

#[test]
fn damaged_pages_are_told_by_the_check_that_finds_them() {
    let undamaged = Bench::demo();
    let connection = open(&undamaged.database());
    let mut statement = connection
        .prepare(
            "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 1 AND name IN
               ('documents', 'issues', 'runs', 'step_attempts', 'app_lock', 'integrity_findings', 'notes', 'idx_documents_truncated')",
        )
        .unwrap();
    let roots = statement
        .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)? as usize)))
        .unwrap();
    let roots: Vec<_> = roots.collect::<rusqlite::Result<_>>().unwrap();
    assert_eq!(roots.len(), 8, "{roots:?}");
    drop(statement);
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let size = connection.query_row("PRAGMA page_size", [], |row| row.get::<_, u32>(0)).unwrap() as usize;
    drop(connection);
    let whole = std::fs::read(undamaged.database()).unwrap();
    for (table, root) in roots {
        let bench = Bench::new();
        let mut bytes = whole.clone();
        bytes[(root - 1) * size..(root - 1) * size + 64].fill(0xFF);
        std::fs::write(bench.database(), bytes).unwrap();
        let stderr = bench.lore(["status", "--check"]).fails(22);
        assert!(stderr.contains("lore restore"), "{table}: {stderr}");
        assert!(stderr.contains("the first: pages: "), "{table}: {stderr}");
        assert!(!stderr.contains("`lore status --check` says"), "{table}: {stderr}");
    }
}

#[test]
fn first_runs_that_start_together_wait_for_each_other() {
    let bench = Bench::new();
    let running: Vec<_> = (0..8)
        .map(|_| {
            bench.spawn([
                "run",
                "demo",
                "--skip",
                "embed",
                "--quiet",
                "--if-locked",
                "wait",
                "--lock-wait",
                "60s",
            ])
        })
        .collect();
    for run in running {
        run.wait(LIMIT).ok();
    }
}

#[test]
fn waiting_for_the_lock_outlasts_a_holder_that_hangs_in_a_transaction() {
    let mut bench = Bench::demo();
    bench.var("LORE__DATABASE__BUSY_TIMEOUT", "100ms");
    let shell = open(&bench.database());
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).fails(9);
    let waiting = bench.spawn([
        "run",
        "demo",
        "--skip",
        "embed",
        "--quiet",
        "--if-locked",
        "wait",
        "--lock-wait",
        "50s",
    ]);
    nap(Duration::from_millis(700));
    shell.execute_batch("ROLLBACK").unwrap();
    waiting.wait(LIMIT).ok();
    // A lock that is held is skipped, whatever its holder is in the middle of.
    shell
        .execute_batch(
            "UPDATE app_lock SET owner = 'o', boot_id = 'b', job = 'sync', heartbeat_at = unixepoch() * 1000",
        )
        .unwrap();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).fails(75);
    let skipped =
        bench.lore(["run", "demo", "--skip", "embed", "--quiet", "--if-locked", "skip", "--json"]).data();
    assert_eq!(skipped["state"], "skipped");
}

#[test]
fn stored_text_cannot_drive_the_terminal() {
    let bench = Bench::new();
    let harm = "\\u001b]0;owned\\u0007\\u001b[2J\\u202egnp.exe\\rgone";
    bench.write("x/tree/project.json", "{}");
    bench.write(
        "x/tree/project/issues.ndjson",
        &format!(
            "{{\"id\":1,\"iid\":1,\"title\":\"photo {harm}\",\"description\":\"text {harm}\",\"state\":\"opened\",\
             \"created_at\":\"2024-01-01T00:00:00Z\",\"updated_at\":\"2024-01-01T00:00:00Z\",\"author_id\":1,\
             \"notes\":[{{\"id\":1,\"note\":\"note {harm}\",\"author_id\":1,\"author\":{{\"name\":\"{harm}\"}},\
             \"created_at\":\"2024-01-01T00:00:00Z\"}}]}}\n"
        ),
    );
    bench.write(
        "lore.toml",
        "[sources.x]\nkind = \"gitlab-export\"\npath = \"x\"\nproject = \"a/b\"\nweb_url = \"https://h/a/b\"\n",
    );
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    for args in [
        &["query", "photo"][..],
        &["show", "#1"],
        &["--color=always", "query", "photo"],
        &["--color=always", "show", "#1"],
    ] {
        let shown = bench.lore(args).ok();
        assert!(shown.contains("photo"), "{args:?} {shown:?}");
        for c in ['\u{7}', '\r', '\u{202e}'] {
            assert!(!shown.contains(c), "{args:?} {shown:?}");
        }
        assert!(!shown.contains("\u{1b}]") && !shown.contains("\u{1b}[2J"), "{args:?} {shown:?}");
    }
}

#[test]
fn an_export_without_any_item_is_said() {
    let bench = Bench::new();
    bench.write("x/project.json", "{\"description\": \"something else\"}");
    bench.write(
        "lore.toml",
        "[sources.x]\nkind = \"gitlab-export\"\npath = \"x\"\nproject = \"a/b\"\nweb_url = \"https://h/a/b\"\n",
    );
    let output = bench.lore(["run", "sync", "--skip", "embed", "--json"]);
    let answer = output.json().to_string();
    assert!(answer.contains("holds no issue and no merge request"), "{answer}");
}
