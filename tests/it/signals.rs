//! Signals at every kind of step, and a clock that jumps under a run.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::binary::{Bench, nap, until};
use crate::support::dump::{dump, execute, number, try_number};
use crate::support::fake_embedder::{FakeEmbedder, Faults};
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::model::Kind;

/// The last look at which a step is held.
const MOST_LOOKS: u32 = 32;

/// From the signal to the end, with every kind of step.
const TO_EXIT: Duration = Duration::from_secs(10);

/// A database in which every kind of step finds something to do, and its servers. The
/// examples of the kinds speak of a source `demo`.
struct Ground {
    server: FakeGitlab,
    embedder: FakeEmbedder,
    bench: Bench,
}

impl Ground {
    fn new() -> Self {
        let server = crate::sync::server();
        let embedder = FakeEmbedder::new(Faults::default());
        let bench = Self::configured(&server, &embedder);
        bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
        let project = crate::sync::project(&server);
        server.edit(|model| {
            for iid in 1..=12 {
                model.edit_item(project, Kind::Issue, iid, |row| row["title"] = "The keytab is stale".into());
            }
            model.advance(3_600_000);
        });
        bench.lore(["run", "sync", "--only", "ingest", "--quiet"]).ok();
        server.edit(|model| {
            model.edit_item(project, Kind::Issue, 2, |row| row["title"] = "Another one".into());
            model.advance(3_600_000);
        });
        execute(
            &bench.database(),
            "UPDATE documents SET content_text = 'edited by hand' WHERE id = (SELECT min(id) FROM documents);
             INSERT INTO dirty_sources(source_type, source_id, queued_at) VALUES ('discussion', 9999, 0);",
        );
        Self { server, embedder, bench }
    }

    fn configured(server: &FakeGitlab, embedder: &FakeEmbedder) -> Bench {
        let mut bench = Bench::new();
        bench.write(
            "lore.toml",
            &format!(
                "[sources.demo]\nkind = \"gitlab\"\nurl = {:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\n\
                 projects = [\"group/project\"]\nrequests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"\n",
                server.url()
            ),
        );
        bench
            .var("GITLAB_TOKEN", "test-token")
            .var("LORE__EMBEDDING__PROVIDER", "ollama")
            .var("LORE__EMBEDDING__URL", &embedder.url())
            .var("LORE__EMBEDDING__MODEL", "nomic-embed-text");
        bench
    }

    /// A bench with a copy of the database and a job of one step.
    fn with(&self, kind: &str, example: &str) -> Bench {
        let mut bench = Self::configured(&self.server, &self.embedder);
        std::fs::copy(self.bench.database(), bench.database()).unwrap();
        // Otherwise the step of that name has nothing to do.
        let file = bench.path().join("lore.prom");
        bench.var("LORE__METRICS__TEXTFILE", file.to_str().unwrap());
        bench.write("one.toml", &format!("[steps.one]\nuses = \"{kind}\"\nwith = {example}\n"));
        bench
    }
}

/// Whether a process is stopped, as Linux shows it.
pub fn is_stopped(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Whether this process, and so its children, ignores SIGHUP.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1
}

/// Every kind of step, and how often it looks at the stop signal at the least while it works on
/// the [`Ground`]. A step is held at the first, second, fourth … of its looks until the signal
/// has come.
const LOOKS: &[(&str, u32)] = &[
    ("ingest", 8),
    ("fetch-discussions", 16),
    ("fetch-links", 16),
    ("rebuild", 4),
    ("regenerate-docs", 8),
    ("embed", 8),
    ("optimize-fts", 2),
    ("integrity-check", 16),
    ("repair", 16),
    ("backup", 2),
    ("reconcile", 8),
    ("prune", 2),
    ("metrics", 1),
];

/// Ends a run that is held at its `n`-th look by a signal, and completes it. Returns false when
/// it does not look so often.
fn end_and_resume(bench: &mut Bench, what: &str, n: u32, signal: Signal, expected: i32) -> bool {
    bench.var("LORE_FAULT", &format!("check:{n}"));
    let mut running = bench.spawn(["run", "one.toml", "--quiet"]);
    bench.var("LORE_FAULT", "");
    until(what, || is_stopped(running.id()) || !running.is_running());
    if !running.is_running() {
        let ended = running.wait(TO_EXIT);
        assert_eq!(ended.code, expected, "{what}: {}", ended.stderr);
        return false;
    }
    let path = bench.database();
    assert_eq!(number(&path, "SELECT count(*) FROM step_attempts WHERE state = 'running'"), 1, "{what}");
    running.signal(signal);
    running.signal(Signal::CONT);
    let begun = Instant::now();
    running.wait(TO_EXIT).fails(143);
    eprintln!("{what}: over after {} ms", begun.elapsed().as_millis());
    for (rows, sql, n) in [
        ("locks held", "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL", 0),
        ("runs under way", "SELECT count(*) FROM runs WHERE state = 'running'", 0),
        ("attempts under way", "SELECT count(*) FROM step_attempts WHERE state = 'running'", 0),
        ("interrupted runs", "SELECT count(*) FROM runs WHERE state = 'interrupted'", 1),
    ] {
        assert_eq!(number(&path, sql), n, "{what}: {rows}");
    }
    let name = if signal == Signal::HUP { "SIGHUP" } else { "SIGTERM" };
    let told = format!("SELECT count(*) FROM step_attempts WHERE reason = 'terminated ({name})'");
    assert_eq!(number(&path, &told), 1, "{what}: which signal it was");
    let resumed = bench.lore(["run", "one.toml", "--quiet", "--resume"]);
    assert_eq!(resumed.code, expected, "{what}: {}", resumed.stderr);
    true
}

#[test]
fn a_signal_ends_every_kind_of_step_within_ten_seconds_and_resume_completes_it() {
    let mut known: Vec<&str> = lore::steps::ALL.iter().map(|step| step.kind).collect();
    let mut listed: Vec<&str> = LOOKS.iter().map(|(kind, _)| *kind).collect();
    known.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, known, "every kind has its row");
    let ground = Ground::new();
    for (kind, least) in LOOKS {
        let step = lore::steps::find(kind).unwrap();
        let bench = ground.with(step.kind, step.example);
        let expected = bench.lore(["run", "one.toml", "--quiet"]).code;
        assert!([0, 22].contains(&expected), "{kind}: {expected}");
        let undisturbed = dump(&bench.database());
        let ended = |signal: Signal, name: &str, n: u32| {
            let mut bench = ground.with(step.kind, step.example);
            let what = format!("{kind} {name} at look {n}");
            let is_held = end_and_resume(&mut bench, &what, n, signal, expected);
            assert!(dump(&bench.database()) == undisturbed, "{what}: resumed to another content");
            is_held
        };
        if ignores_hangup() {
            eprintln!("skipped: SIGHUP is ignored here");
        } else {
            assert!(ended(Signal::HUP, "SIGHUP", 1), "{kind} does not look");
        }
        let mut n = 1;
        while n <= MOST_LOOKS && ended(Signal::TERM, "SIGTERM", n) {
            n *= 2;
        }
        assert!(n > *least, "{kind}: under way at look {} only", n / 2);
    }
}

#[test]
fn a_run_under_a_clock_that_jumps_keeps_its_lock() {
    let server = crate::sync::server();
    let mut bench = crate::sync::bench(&server);
    let slow = std::fs::read_to_string(bench.path().join("lore.toml")).unwrap();
    bench.write("lore.toml", &slow.replace("100000.0", "12.0"));
    bench.var("LORE__LOCK__HEARTBEAT", "100ms").var("LORE__LOCK__LEASE", "900ms");
    let clock = bench.write("clock", "0");
    bench.var("LORE_FAULT_CLOCK", clock.to_str().unwrap());
    let mut holder = bench.spawn(["run", "sync", "--skip", "embed", "--quiet"]);
    bench.var("LORE_FAULT_CLOCK", "");
    let held = "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL";
    until("the lock", || bench.database().exists() && try_number(&bench.database(), held) == Some(1));
    let (mut jumps, mut refused) = (0, 0);
    let mut shown = Vec::new();
    while holder.is_running() {
        // Milliseconds: an hour ahead, two behind, three days ahead, right.
        let jump = [3_600_000, -7_200_000, 259_200_000, 0][jumps % 4];
        jumps += 1;
        std::fs::write(&clock, jump.to_string()).unwrap();
        nap(Duration::from_millis(250));
        shown.extend(try_number(&bench.database(), "SELECT heartbeat_at FROM app_lock"));
        let other = bench.lore(["run", "sync", "--skip", "embed", "--quiet"]);
        if holder.is_running() {
            assert_eq!(other.code, 75, "jump {jumps}: {}", other.stderr);
            refused += 1;
        }
    }
    holder.wait(Duration::from_secs(10)).ok();
    assert!(refused >= 4, "the run was over after {jumps} jumps");
    assert!(shown.windows(2).any(|pair| pair[1] < pair[0]), "the holder's clock never went back: {shown:?}");
    assert_eq!(number(&bench.database(), "SELECT takeovers FROM app_lock"), 0);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM runs WHERE state = 'abandoned'"), 0);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM notes"), 60, "and misses nothing");
}
