//! Syncs that are killed, stopped, paused and crossed at random while the server changes.
//! A short one by default; `just soak` makes it long.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::binary::{Bench, Running, nap};
use crate::support::dump::{dump, number, open};
use crate::support::fake_embedder::{FakeEmbedder, Faults};
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::model::Kind;

const LIMIT: Duration = Duration::from_secs(60);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
}

/// SplitMix64 (Steele, Lea, Flood 2014): a seed tells the whole run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}

/// What became of the runs.
#[derive(Debug, Default)]
struct Tally {
    killed: u64,
    terminated: u64,
    fenced: u64,
    refused: u64,
    done: u64,
    edits: u64,
}

impl Tally {
    fn disturbed(&self) -> u64 {
        self.killed + self.terminated + self.fenced
    }

    fn count(&mut self, code: i32, stderr: &str) {
        match code {
            0 => self.done += 1,
            -9 => self.killed += 1,
            // Before the handlers are there, the signal ends the process itself.
            143 | -15 => self.terminated += 1,
            76 => self.fenced += 1,
            // 9: the other one was stopped in the middle of a heartbeat and holds the write lock.
            9 | 75 => self.refused += 1,
            other => panic!("exit {other}: {stderr}"),
        }
    }
}

/// Changes that GitLab shows by `updated_at`, a minute apart.
fn edit(server: &FakeGitlab, random: &mut Random, n: u64) {
    let project = crate::sync::project(server);
    server.edit(|model| {
        model.advance(61_000);
        let kind = if random.below(3) == 0 { Kind::MergeRequest } else { Kind::Issue };
        let known = if kind == Kind::Issue { 25 } else { 5 };
        let iid = i64::try_from(1 + random.below(known)).unwrap();
        match random.below(4) {
            0 => {
                let iid = model.add_item(project, kind, &format!("new trouble {n}"));
                model.add_note(project, kind, iid, "bo", &format!("seen on host {n}"));
            }
            1 => model.edit_item(project, kind, iid, |row| row["title"] = format!("title number {n}").into()),
            2 => _ = model.add_note(project, kind, iid, "cy", &format!("note number {n}")),
            _ => model.set_state(project, kind, iid, if random.below(2) == 0 { "closed" } else { "opened" }),
        }
    });
}

const SYNC: [&str; 3] = ["run", "sync", "--quiet"];

/// The content that must be that of the server, whatever happened on the way.
fn content(bench: &Bench) -> Vec<String> {
    let connection = open(&bench.database());
    let mut lines = Vec::new();
    for sql in [
        "SELECT 'issue', iid, title || ' ' || state || ' ' || coalesce(description, '') FROM issues",
        "SELECT 'mr', iid, title || ' ' || state || ' ' || coalesce(description, '') FROM merge_requests",
        "SELECT 'note', gitlab_id, body FROM notes",
        "SELECT 'document of ' || d.source_type || ' ' || d.item_type, d.item_iid, d.content_text FROM documents d",
        "SELECT 'chunks of ' || d.source_type || ' ' || d.item_type, d.item_iid, d.content_hash || ' ' || count(v.chunk_id)
           FROM documents d LEFT JOIN chunks c ON c.document_id = d.id LEFT JOIN chunk_vectors v ON v.chunk_id = c.id GROUP BY d.id",
    ] {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            let (what, number, text): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(format!("{what} {number}: {text}"))
        });
        lines.extend(rows.unwrap().map(Result::unwrap));
    }
    lines.sort();
    lines
}

/// Whether nobody holds the write lock.
fn is_writable(bench: &Bench) -> bool {
    open(&bench.database()).execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
}

/// Stops a run after one of its commits, lets another take over, and wakes the first up: it
/// must write nothing more.
fn pause_and_cross(bench: &mut Bench, random: &mut Random, tally: &mut Tally) {
    bench.var("LORE_FAULT", &format!("after-commit:{}:stop", 1 + random.below(25)));
    let mut first = bench.spawn(SYNC);
    bench.var("LORE_FAULT", "");
    nap(random.millis(300));
    let taker = bench.lore(["run", "sync", "--quiet", "--if-locked", "wait", "--lock-wait", "50s"]);
    tally.count(taker.code, &taker.stderr);
    // One that did not come to its fault works or is done: there is nothing to compare.
    // Nor when it was stopped in the middle of a heartbeat: then nobody can look closely.
    let can_compare = crate::signals::is_stopped(first.id()) && is_writable(bench);
    let before = can_compare.then(|| dump(&bench.database()));
    first.signal_if_running(Signal::CONT);
    let ended = first.wait(LIMIT);
    tally.count(ended.code, &ended.stderr);
    if let Some(before) = before
        && ended.code == 76
    {
        assert!(dump(&bench.database()) == before, "a fenced run wrote something");
    }
}

fn one_round(bench: &mut Bench, random: &mut Random, tally: &mut Tally) {
    let signal = if random.below(2) == 0 { Signal::KILL } else { Signal::TERM };
    match random.below(6) {
        0 | 1 => {
            let running = bench.spawn(SYNC);
            nap(random.millis(150));
            end(running, signal, tally);
        }
        2 | 3 => {
            let point = ["before-commit", "after-commit", "after-lock", "before-release"]
                [usize::try_from(random.below(4)).unwrap()];
            bench.var("LORE_FAULT", &format!("{point}:{}", 1 + random.below(30)));
            let ended = bench.lore(SYNC);
            bench.var("LORE_FAULT", "");
            tally.count(ended.code, &ended.stderr);
        }
        4 => {
            let (first, second) = (bench.spawn(SYNC), bench.spawn(SYNC));
            nap(random.millis(120));
            end(first, signal, tally);
            let second = second.wait(LIMIT);
            tally.count(second.code, &second.stderr);
        }
        _ => pause_and_cross(bench, random, tally),
    }
}

fn end(mut running: Running, signal: Signal, tally: &mut Tally) {
    running.signal_if_running(signal);
    let ended = running.wait(LIMIT);
    tally.count(ended.code, &ended.stderr);
}

#[test]
fn whatever_is_killed_stopped_or_crossed_nothing_is_lost() {
    let (runs, seconds) = (setting("LORE_SOAK_RUNS", 15), setting("LORE_SOAK_SECONDS", 25));
    let seed = setting("LORE_SOAK_SEED", 1);
    let mut random = Random(seed);
    let server = crate::sync::server();
    let embedder = FakeEmbedder::new(Faults::default());
    let configured = || {
        let mut bench = crate::sync::bench(&server);
        bench
            .var("LORE__EMBEDDING__PROVIDER", "ollama")
            .var("LORE__EMBEDDING__URL", &embedder.url())
            .var("LORE__EMBEDDING__MODEL", "nomic-embed-text")
            .var("LORE__LOCK__HEARTBEAT", "100ms")
            .var("LORE__LOCK__LEASE", "1s");
        bench
    };
    let mut bench = configured();
    let mut tally = Tally::default();
    let begun = Instant::now();
    while tally.disturbed() < runs && begun.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..random.below(3) {
            tally.edits += 1;
            edit(&server, &mut random, tally.edits);
        }
        one_round(&mut bench, &mut random, &mut tally);
    }
    server.edit(|model| model.advance(3_600_000));
    bench
        .lore(["run", "sync", "--quiet", "--retry-failed", "--if-locked", "wait", "--lock-wait", "30s"])
        .ok();
    bench.lore(SYNC).ok();
    println!(
        "seed {seed}: {} disturbed in {:.0} s: {tally:?}",
        tally.disturbed(),
        begun.elapsed().as_secs_f64()
    );
    assert!(tally.disturbed() > 0, "nothing was disturbed");
    let path = bench.database();
    for (what, sql) in [
        ("runs that are still open", "SELECT count(*) FROM runs WHERE state = 'running'"),
        ("attempts that are still open", "SELECT count(*) FROM step_attempts WHERE state = 'running'"),
        ("tokens that were used twice", "SELECT count(*) - count(DISTINCT token) FROM runs"),
        (
            "tokens that did not grow",
            "SELECT count(*) FROM runs r WHERE EXISTS (SELECT 1 FROM runs e WHERE e.id < r.id AND e.token >= r.token)",
        ),
        (
            "documents that are there twice",
            "SELECT count(*) - count(DISTINCT source_type || source_id) FROM documents",
        ),
        ("notes that are there twice", "SELECT count(*) - count(DISTINCT gitlab_id) FROM notes"),
        (
            "queued",
            "SELECT (SELECT count(*) FROM dirty_sources) + (SELECT count(*) FROM pending_discussion_fetches)",
        ),
        ("suspects", "SELECT count(*) FROM suspects"),
        ("a lock that is held", "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL"),
    ] {
        assert_eq!(number(&path, sql), 0, "{what}, seed {seed}");
    }
    bench.lore(["status", "--check"]).ok();
    let fresh = configured();
    fresh.lore(SYNC).ok();
    let (found, expected) = (content(&bench), content(&fresh));
    let differing: Vec<_> =
        expected.iter().filter(|line| found.binary_search(line).is_err()).take(3).collect();
    assert!(differing.is_empty(), "seed {seed}: lost {differing:?}");
    assert_eq!(found.len(), expected.len(), "seed {seed}");
}
