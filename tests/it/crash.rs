//! The real binary, killed and contended: nothing is lost, nothing is written twice.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::binary::{Bench, until};
use crate::support::dump::{dump, execute, number, try_number};

const LIMIT: Duration = Duration::from_secs(30);

/// Kills a demo run at the N-th time it passes a point, for every point and as many N as
/// there are, and lets the next run finish: the content is that of an undisturbed run.
#[test]
fn a_run_killed_at_any_planned_point_is_completed_by_the_next() {
    let undisturbed = dump(&Bench::demo().database());
    let mut killed = 0;
    for point in ["after-lock", "before-commit", "after-commit", "before-release"] {
        for n in 1..=30 {
            let bench = Bench::new();
            let mut command = bench.command(["run", "demo", "--skip", "embed", "--quiet"]);
            let output = command.env("LORE_FAULT", format!("{point}:{n}")).output().unwrap();
            if output.status.success() {
                break;
            }
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(output.status.signal(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
            killed += 1;
            bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
            assert_eq!(dump(&bench.database()), undisturbed, "killed at {point}, time {n}");
            bench.lore(["status", "--check"]).ok();
            let open = number(&bench.database(), "SELECT count(*) FROM runs WHERE state = 'running'");
            assert_eq!(open, 0, "killed at {point}, time {n}: every run is closed");
        }
    }
    assert!(killed >= 12, "only {killed} kills: the points moved");
}

/// Kills at moments that nobody planned.
#[test]
fn a_run_killed_at_random_moments_is_completed_by_the_next() {
    let undisturbed = dump(&Bench::demo().database());
    let bench = Bench::new();
    for delay_ms in [3, 11, 17, 29, 41, 59, 83, 97, 131, 173] {
        let running = bench.spawn(["run", "demo", "--skip", "embed", "--quiet", "--full"]);
        crate::support::binary::nap(Duration::from_millis(delay_ms));
        running.signal(Signal::KILL);
        let _ended = running.wait(LIMIT);
    }
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    assert_eq!(dump(&bench.database()), undisturbed);
}

#[test]
fn twice_is_once() {
    let bench = Bench::demo();
    let once = dump(&bench.database());
    let answer = bench.lore(["run", "demo", "--skip", "embed", "--json"]).data();
    assert_eq!(dump(&bench.database()), once);
    let regenerated =
        answer["steps"].as_array().unwrap().iter().find(|step| step["kind"] == "regenerate-docs").unwrap();
    assert_eq!(regenerated["report"]["counts"]["regenerated"].as_i64().unwrap_or(0), 0);
    bench.lore(["run", "demo", "--skip", "embed", "--full", "--quiet"]).ok();
    assert_eq!(dump(&bench.database()), once, "a full run makes the same");
}

#[test]
fn two_runs_at_once_one_works_and_the_other_names_the_holder() {
    let bench = Bench::demo();
    // A holder of another machine, beating a moment ago: it cannot be probed.
    execute(
        &bench.database(),
        "UPDATE app_lock SET owner = 'other', token = token + 1, beat = 1, boot_id = 'b', pid = 7, host = 'node-2', job = 'sync',
                acquired_at = unixepoch('subsec') * 1000, heartbeat_at = unixepoch('subsec') * 1000",
    );
    let refused = bench.lore(["run", "demo", "--skip", "embed"]).fails(75);
    for part in ["job sync", "node-2", "pid 7", "lore lock break --owner other"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    let answer = bench.lore(["run", "demo", "--skip", "embed", "--json"]);
    assert_eq!(answer.code, 75);
    assert_eq!(answer.json()["error"]["code"], "LOCKED");
    let skipped = bench.lore(["run", "demo", "--skip", "embed", "--if-locked", "skip", "--json"]).data();
    assert_eq!(skipped["state"], "skipped");
    bench.lore(["lock", "break", "--owner", "somebody"]).fails(2);
    bench.lore(["lock", "break", "--owner", "other"]).ok();
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
}

#[test]
fn twenty_starts_at_once_take_twenty_tokens_or_are_refused() {
    let bench = Bench::demo();
    let before = number(&bench.database(), "SELECT token FROM app_lock");
    let running: Vec<_> =
        (0..20).map(|_| bench.spawn(["run", "demo", "--skip", "embed", "--quiet"])).collect();
    let mut done = 0;
    for process in running {
        let output = process.wait(LIMIT);
        match output.code {
            0 => done += 1,
            75 => {}
            other => panic!("exit {other}: {}", output.stderr),
        }
    }
    assert!(done >= 1);
    assert_eq!(number(&bench.database(), "SELECT token FROM app_lock"), before + done, "one token a holder");
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM runs WHERE state <> 'succeeded'"), 0);
}

#[test]
fn a6_03_a_paused_holder_that_wakes_up_is_fenced() {
    let mut bench = Bench::new();
    bench.var("LORE__LOCK__HEARTBEAT", "100ms").var("LORE__LOCK__LEASE", "600ms");
    bench.var("LORE_FAULT", "after-lock:1:stop");
    let holder = bench.spawn(["run", "demo", "--skip", "embed", "--quiet"]);
    bench.var("LORE_FAULT", "");
    until("the holder's lock", || {
        let held = "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL";
        bench.database().exists() && try_number(&bench.database(), held) == Some(1)
    });
    // The holder's process is alive, so only its silence counts.
    bench
        .lore(["run", "demo", "--skip", "embed", "--quiet", "--if-locked", "wait", "--lock-wait", "20s"])
        .ok();
    let content = dump(&bench.database());
    let runs = "SELECT count(*) FROM runs WHERE state = 'abandoned'";
    assert_eq!(number(&bench.database(), runs), 1, "the paused run is closed by the taker");
    holder.signal(Signal::CONT);
    let told = holder.wait(LIMIT).fails(76);
    assert!(told.contains("lock"), "{told}");
    assert_eq!(dump(&bench.database()), content, "the old holder wrote nothing");
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM runs WHERE state = 'running'"), 0);
    let owner = bench.lore(["lock", "status", "--json"]).data()["owner"].take();
    assert_eq!(owner, serde_json::Value::Null, "and it freed nobody's lock");
    let metrics = crate::metrics::series(&bench.lore(["metrics"]).ok());
    assert_eq!(metrics["lore_lock_fenced_writes_total"], 1.0, "the operator learns of it");
}

#[test]
fn a6_01_a6_04_a_killed_run_is_closed_by_the_next_start() {
    let bench = Bench::demo();
    let mut command = bench.command(["run", "demo", "--skip", "embed", "--quiet"]);
    let killed = command.env("LORE_FAULT", "after-lock").output().unwrap();
    assert!(!killed.status.success());
    let rows = bench.lore(["runs", "list", "--json"]).data();
    assert_eq!(rows["runs"][0]["state"], "running", "nobody has looked yet");
    let next = bench.lore(["run", "demo", "--skip", "embed", "--json"]).data();
    assert_eq!(next["abandoned_runs"].as_array().unwrap().len(), 1, "the process is gone: no wait");
    let rows = bench.lore(["runs", "list", "--json"]).data();
    assert_eq!(rows["runs"][1]["state"], "abandoned");
}

#[test]
fn sigterm_ends_a_run_as_interrupted_and_resume_completes_it() {
    let undisturbed = dump(&Bench::demo().database());
    let mut seen = 0;
    for delay_ms in [20, 40, 60, 90, 120] {
        let bench = Bench::new();
        let running = bench.spawn(["run", "demo", "--skip", "embed", "--quiet"]);
        crate::support::binary::nap(Duration::from_millis(delay_ms));
        running.signal(Signal::TERM);
        let ended = running.wait(Duration::from_secs(10));
        if ended.code == 143 && bench.database().exists() {
            let runs = bench.lore(["runs", "--json"]).data();
            if let Some(run) = runs["runs"].as_array().unwrap().first() {
                assert_eq!(run["state"], "interrupted");
                assert_eq!(bench.lore(["lock", "status", "--json"]).data()["owner"], serde_json::Value::Null);
                bench.lore(["run", "demo", "--skip", "embed", "--quiet", "--resume"]).ok();
                seen += 1;
            }
        }
        bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
        assert_eq!(dump(&bench.database()), undisturbed, "stopped after {delay_ms} ms ({})", ended.code);
    }
    println!("{seen} of 5 runs were under way when the signal came");
}

#[test]
fn a3_24_a_writer_that_waits_is_served_and_one_that_waits_too_long_is_told() {
    let mut bench = Bench::demo();
    let other = crate::support::dump::open(&bench.database());
    other.execute_batch("BEGIN IMMEDIATE; UPDATE projects SET name = name").unwrap();
    let running = bench.spawn(["run", "demo", "--skip", "embed", "--quiet"]);
    crate::support::binary::nap(Duration::from_millis(700));
    other.execute_batch("COMMIT").unwrap();
    running.wait(LIMIT).ok();
    bench.var("LORE__DATABASE__BUSY_TIMEOUT", "300ms");
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let told = bench.lore(["run", "demo", "--skip", "embed"]).fails(9);
    assert!(told.contains("write-locked by"), "a3_24: {told}");
    other.execute_batch("ROLLBACK").unwrap();
}

/// The run's own rows cannot be written, or its setting up fails.
#[test]
fn a6_04_a_run_that_breaks_between_its_steps_is_closed_and_frees_the_lock() {
    for (trigger, arguments) in [
        ("BEFORE INSERT ON step_attempts", &["run", "demo", "--skip", "embed", "--quiet"][..]),
        ("BEFORE UPDATE ON dirty_sources", &["run", "demo", "--skip", "embed", "--quiet", "--retry-failed"]),
    ] {
        let bench = Bench::demo();
        execute(
            &bench.database(),
            &format!(
                "INSERT INTO dirty_sources(source_type, source_id, queued_at, next_attempt_at) VALUES ('issue', 1, 0, 1);
                 CREATE TRIGGER fault {trigger} BEGIN SELECT RAISE(ABORT, 'planned'); END"
            ),
        );
        let told = bench.lore(arguments).fails(10);
        assert!(told.contains("planned"), "{told}");
        assert_eq!(bench.lore(["lock", "status", "--json"]).data()["owner"], serde_json::Value::Null);
        let run = bench.lore(["runs", "--json"]).data()["runs"][0].take();
        assert_eq!(
            (run["state"].as_str(), run["exit_code"].as_i64()),
            (Some("failed"), Some(10)),
            "{trigger}"
        );
        assert!(run["error"].as_str().unwrap().contains("planned"));
    }
}
