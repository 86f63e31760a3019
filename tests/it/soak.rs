//! Syncs that are killed, stopped, paused and crossed at random while the server changes.
//! A short one by default; `just soak` makes it long.

use std::sync::atomic::{AtomicU64, Ordering};
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
    /// Runs that were stopped, as by SIGSTOP, while another one wanted the lock.
    stopped: u64,
    /// Those of them that found their lock lost when they went on.
    fenced: u64,
    refused: u64,
    done: u64,
    edits: u64,
}

impl Tally {
    fn disturbed(&self) -> u64 {
        self.killed + self.terminated + self.stopped
    }

    fn count(&mut self, code: i32, stderr: &str) {
        match code {
            0 => self.done += 1,
            -9 => self.killed += 1,
            // Before the handlers are there, the signal ends the process itself.
            143 | -15 => self.terminated += 1,
            76 => self.fenced += 1,
            75 => self.refused += 1,
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

/// The content of a database that a stopped process may hold the write lock of: of a copy.
fn content_of_copy(bench: &Bench) -> String {
    let copy = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal"] {
        let from = bench.path().join(format!("lore.db{suffix}"));
        match std::fs::copy(from, copy.path().join(format!("lore.db{suffix}"))) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{error}"),
            Ok(_) | Err(_) => {}
        }
    }
    dump(&copy.path().join("lore.db"))
}

/// Stops a run after one of its commits, or anywhere, lets another take over, and wakes the
/// first up: it must write nothing more.
fn pause_and_cross(bench: &mut Bench, random: &mut Random, tally: &mut Tally) {
    let anywhere = random.below(2) == 0;
    if !anywhere {
        bench.var("LORE_FAULT", &format!("after-commit:{}:stop", 1 + random.below(25)));
    }
    let mut first = bench.spawn(SYNC);
    bench.var("LORE_FAULT", "");
    nap(random.millis(300));
    if anywhere {
        first.signal_if_running(Signal::STOP);
    }
    let taker = bench.lore(["run", "sync", "--quiet", "--if-locked", "wait", "--lock-wait", "15s"]);
    tally.count(taker.code, &taker.stderr);
    // One that did not come to its fault works or is done: there is nothing to compare.
    let is_stopped = crate::signals::is_stopped(first.id());
    tally.stopped += u64::from(is_stopped);
    let before = is_stopped.then(|| content_of_copy(bench));
    first.signal_if_running(Signal::CONT);
    let ended = first.wait(LIMIT);
    tally.count(ended.code, &ended.stderr);
    // Stopped anywhere, it may not have had the lock yet, or not any more.
    if taker.code == 0 && is_stopped && !anywhere {
        assert_eq!(ended.code, 76, "it went on with a lock that was another's: {}", ended.stderr);
    }
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

/// Disturbs runs on a database of its own, with servers of its own, until all lanes together
/// have disturbed enough; then everything must be there.
fn lane(seed: u64, disturbed: &AtomicU64, runs: u64, until: Instant) -> Tally {
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
            .var("LORE__LOCK__LEASE", "1s")
            .var("LORE__DATABASE__BUSY_TIMEOUT", "10s");
        bench
    };
    let mut bench = configured();
    let mut tally = Tally::default();
    while disturbed.load(Ordering::SeqCst) < runs && Instant::now() < until {
        for _ in 0..random.below(3) {
            tally.edits += 1;
            edit(&server, &mut random, tally.edits);
        }
        let before = tally.disturbed();
        one_round(&mut bench, &mut random, &mut tally);
        disturbed.fetch_add(tally.disturbed() - before, Ordering::SeqCst);
    }
    server.edit(|model| model.advance(3_600_000));
    bench
        .lore(["run", "sync", "--quiet", "--retry-failed", "--if-locked", "wait", "--lock-wait", "30s"])
        .ok();
    bench.lore(SYNC).ok();
    nothing_is_amiss(&bench, seed);
    bench.lore(["status", "--check"]).ok();
    let fresh = configured();
    fresh.lore(SYNC).ok();
    let (found, expected) = (content(&bench), content(&fresh));
    let differing: Vec<_> =
        expected.iter().filter(|line| found.binary_search(line).is_err()).take(3).collect();
    assert!(differing.is_empty(), "seed {seed}: lost {differing:?}");
    assert_eq!(found.len(), expected.len(), "seed {seed}");
    tally
}

fn nothing_is_amiss(bench: &Bench, seed: u64) {
    let path = bench.database();
    for (what, sql) in [
        (
            "runs in no final state",
            "SELECT count(*) FROM runs WHERE state NOT IN ('succeeded', 'failed', 'interrupted', 'abandoned')
                OR finished_at IS NULL",
        ),
        (
            "attempts in no final state",
            "SELECT count(*) FROM step_attempts WHERE state = 'running' OR finished_at IS NULL",
        ),
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
}

#[test]
fn whatever_is_killed_stopped_or_crossed_nothing_is_lost() {
    let (runs, seconds) = (setting("LORE_SOAK_RUNS", 15), setting("LORE_SOAK_SECONDS", 25));
    let (seed, lanes) = (setting("LORE_SOAK_SEED", 1), setting("LORE_SOAK_LANES", 1));
    let begun = Instant::now();
    let disturbed = AtomicU64::new(0);
    let until = begun + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let disturbed = &disturbed;
        let lanes: Vec<_> = (0..lanes)
            .map(|n| scope.spawn(move || lane(seed.wrapping_add(n << 32), disturbed, runs, until)))
            .collect();
        for (n, lane) in lanes.into_iter().enumerate() {
            let tally = lane.join().unwrap();
            println!("seed {seed}, lane {n}: {tally:?}");
        }
    });
    let disturbed = disturbed.into_inner();
    println!("seed {seed}: {disturbed} disturbed in {:.0} s", begun.elapsed().as_secs_f64());
    assert!(disturbed > 0, "nothing was disturbed");
}
