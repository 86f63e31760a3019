//! Starts that meet a lock that is held, and a database that another process has to itself:
//! they say who it is, with the exit code of a lock that is held.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::signals::is_stopped;
use crate::support::binary::{Bench, until};
use crate::support::dump::{dump, execute, number, open};

const LIMIT: Duration = Duration::from_secs(60);

/// From the signal to the end.
const TO_EXIT: Duration = Duration::from_secs(10);

const RUN: [&str; 5] = ["run", "demo", "--skip", "embed", "--quiet"];

/// Every command that takes the lock, and the writes that go without it.
const STARTS: &[&[&str]] = &[
    &["run", "demo", "--skip", "embed", "--quiet", "--if-locked", "fail"],
    &["run", "demo", "--skip", "embed", "--quiet", "--if-locked", "wait", "--lock-wait", "400ms"],
    &["run", "sync", "--quiet"],
    &["sync", "--quiet"],
    &["generate-docs", "--quiet"],
    &["embed", "--quiet"],
    &["status", "--check"],
    &["restore", "copy.db", "--force"],
];

fn run_with(args: &[&'static str]) -> Vec<&'static str> {
    RUN.iter().chain(args).copied().collect()
}

#[test]
fn every_start_that_meets_a_held_lock_says_so_whatever_its_holder_is_in_the_middle_of() {
    let mut bench = Bench::demo();
    bench.lore(["backup", "copy.db", "--quiet"]).ok();
    bench.var("LORE__DATABASE__BUSY_TIMEOUT", "300ms");
    let holder = open(&bench.database());
    let me = format!("process {}", std::process::id());
    // A heartbeat that is new, and one that is old: its holder looks dead, but the write lock is not free.
    for (beat, lease_ms) in [("unixepoch() * 1000", 60_000), ("1", 200)] {
        holder
            .execute_batch(&format!(
                "UPDATE app_lock SET owner = 'o', boot_id = 'b', job = 'sync', heartbeat_at = {beat}, lease_ms = {lease_ms}"
            ))
            .unwrap();
        holder.execute_batch("BEGIN IMMEDIATE").unwrap();
        for args in STARTS {
            let told = bench.lore(*args).fails(75);
            assert!(told.contains("held by job sync") && told.contains("hint: "), "{args:?}: {told}");
            if lease_ms == 200 && !args.contains(&"400ms") {
                assert!(told.contains(&me), "{args:?}: {told}");
            }
        }
        let skipped = bench.lore(run_with(&["--if-locked", "skip", "--json"])).data();
        assert_eq!(skipped["state"], "skipped");
        assert_eq!(skipped["lock"]["owner"], "o");
        for args in [&["lock", "break", "--owner", "o"][..], &["runs", "cancel", "1"]] {
            let told = bench.lore(args).fails(75);
            assert!(told.contains("held by job sync") && told.contains(&me), "{args:?}: {told}");
        }
        // Looking needs no lock.
        for args in [&["lock", "status"][..], &["status"], &["query", "photo"], &["runs"]] {
            bench.lore(args).ok();
        }
        holder.execute_batch("ROLLBACK").unwrap();
    }
    bench.lore(["lock", "break", "--owner", "o"]).ok();
}

#[test]
fn a_write_lock_that_no_holder_explains_is_a_busy_database() {
    let mut bench = Bench::demo();
    bench.var("LORE__DATABASE__BUSY_TIMEOUT", "300ms");
    let me = format!("process {}", std::process::id());
    let shell = open(&bench.database());
    // The lock is free, then held by a process that is known to be gone.
    for dies_first in [false, true] {
        if dies_first {
            let died = bench.command(RUN).env("LORE_FAULT", "after-lock").output().unwrap();
            assert!(!died.status.success());
        }
        shell.execute_batch("BEGIN IMMEDIATE").unwrap();
        for args in [&[][..], &["--if-locked", "skip"], &["--if-locked", "wait", "--lock-wait", "400ms"]] {
            let told = bench.lore(run_with(args)).fails(9);
            assert!(told.contains("write-locked by") && told.contains(&me), "{args:?}: {told}");
        }
        shell.execute_batch("ROLLBACK").unwrap();
    }
    bench.lore(RUN).ok();
}

#[test]
fn a_holder_that_is_stopped_in_the_middle_of_a_write_is_named_and_goes_on_when_it_is_woken() {
    let mut bench = Bench::demo();
    let content = dump(&bench.database());
    bench.var("LORE__DATABASE__BUSY_TIMEOUT", "500ms").var("LORE__LOCK__HEARTBEAT", "100ms");
    bench.var("LORE__LOCK__LEASE", "1s").var("LORE_FAULT", "before-commit:3:stop");
    let holder = bench.spawn(RUN);
    bench.var("LORE_FAULT", "");
    until("the stop", || is_stopped(holder.id()));
    let skipped = bench.lore(run_with(&["--if-locked", "skip", "--json"])).data();
    assert_eq!(skipped["state"], "skipped");
    // Its lease runs out meanwhile; it cannot be replaced all the same.
    let told = bench.lore(run_with(&["--if-locked", "wait", "--lock-wait", "3s"])).fails(75);
    assert!(told.contains("in the middle of a write") && told.contains("which is stopped"), "{told}");
    assert!(told.contains(&format!("kill -CONT {}", holder.id())), "{told}");
    bench.lore(RUN).fails(75);
    // Who waits for it obeys a signal.
    let mut waiting = bench.spawn(run_with(&["--if-locked", "wait", "--lock-wait", "50s"]));
    crate::support::binary::nap(Duration::from_millis(500));
    assert!(waiting.is_running());
    waiting.signal(Signal::TERM);
    waiting.wait(TO_EXIT).fails(143);
    holder.signal(Signal::CONT);
    holder.wait(LIMIT).ok();
    assert_eq!(number(&bench.database(), "SELECT takeovers FROM app_lock"), 0);
    assert_eq!(dump(&bench.database()), content);
}

#[test]
fn a_signal_is_obeyed_in_time_though_nothing_can_be_written() {
    let mut bench = Bench::demo();
    let content = dump(&bench.database());
    // Held before a read, and before a write that then waits.
    for n in [1, 4] {
        // Another thread may have been stopped in the middle of its own write: then once more.
        let (running, shell) = (0..20)
            .find_map(|_| {
                execute(
                    &bench.database(),
                    "INSERT OR IGNORE INTO dirty_sources(source_type, source_id, queued_at) SELECT 'issue', id, 0 FROM issues",
                );
                bench.var("LORE_FAULT", &format!("check:{n}"));
                let running = bench.spawn(RUN);
                bench.var("LORE_FAULT", "");
                until("the stop", || is_stopped(running.id()));
                let shell = open(&bench.database());
                if shell.execute_batch("BEGIN IMMEDIATE").is_ok() {
                    return Some((running, shell));
                }
                running.signal(Signal::TERM);
                running.signal(Signal::CONT);
                running.wait(TO_EXIT).fails(143);
                None
            })
            .expect("a stop outside of every write");
        running.signal(Signal::TERM);
        running.signal(Signal::CONT);
        let begun = Instant::now();
        let told = running.wait(TO_EXIT).fails(143);
        println!("check {n}: {} ms", begun.elapsed().as_millis());
        assert!(told.contains("write-locked by"), "{told}");
        shell.execute_batch("ROLLBACK").unwrap();
        let next = bench.lore(run_with(&["--json"])).data();
        assert_eq!(next["abandoned_runs"].as_array().unwrap().len(), 1, "its process is gone: no wait");
    }
    assert_eq!(dump(&bench.database()), content);
}

#[test]
fn a_step_that_waits_for_the_write_lock_obeys_a_signal() {
    let mut bench = Bench::demo();
    let shell = open(&bench.database());
    // After the first commit of the step; its next one has to wait.
    bench.var("LORE_FAULT", "after-commit:1:stop");
    let running = bench.spawn(["run", "demo", "--full", "--skip", "embed", "--quiet"]);
    bench.var("LORE_FAULT", "");
    until("the stop", || is_stopped(running.id()));
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    running.signal(Signal::CONT);
    crate::support::binary::nap(Duration::from_millis(700));
    running.signal(Signal::TERM);
    // The end can be written when the write lock is free soon.
    crate::support::binary::nap(Duration::from_millis(700));
    shell.execute_batch("ROLLBACK").unwrap();
    running.wait(TO_EXIT).fails(143);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM runs WHERE state = 'interrupted'"), 1);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL"), 0);
}

#[test]
fn twenty_starts_on_no_database_make_one() {
    let bench = Bench::new();
    let running: Vec<_> =
        (0..20).map(|_| bench.spawn(run_with(&["--if-locked", "skip", "--json"]))).collect();
    let mut done = 0;
    for run in running {
        let answer = run.wait(LIMIT).data();
        done += i32::from(answer["state"] == "succeeded");
    }
    assert!(done >= 1, "nobody worked");
    assert_eq!(dump(&bench.database()), dump(&Bench::demo().database()));
}
