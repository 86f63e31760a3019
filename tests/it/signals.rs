//! Signals at every kind of step, and a clock that jumps under a run.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::binary::{Bench, nap, until};
use crate::support::dump::{dump, execute, number, try_number};
use crate::support::fake_embedder::{FakeEmbedder, Faults};
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::model::Kind;

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
        let bench = Self::configured(&self.server, &self.embedder);
        std::fs::copy(self.bench.database(), bench.database()).unwrap();
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

#[test]
fn a_signal_ends_every_kind_of_step_within_ten_seconds_and_resume_completes_it() {
    let ground = Ground::new();
    let mut interrupted = Vec::new();
    for step in lore::steps::ALL {
        let bench = ground.with(step.kind, step.example);
        let expected = bench.lore(["run", "one.toml", "--quiet"]).code;
        assert!([0, 22].contains(&expected), "{}: {expected}", step.kind);
        let undisturbed = dump(&bench.database());
        for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP")] {
            if signal == Signal::HUP && ignores_hangup() {
                eprintln!("skipped: SIGHUP is ignored here");
                continue;
            }
            let mut bench = ground.with(step.kind, step.example);
            // The lock, the attempt, and the step's first transaction.
            bench.var("LORE_FAULT", "before-commit:3:stop");
            let running = bench.spawn(["run", "one.toml", "--quiet"]);
            bench.var("LORE_FAULT", "");
            until(step.kind, || is_stopped(running.id()));
            running.signal(signal);
            running.signal(Signal::CONT);
            let begun = Instant::now();
            let ended = running.wait(TO_EXIT);
            println!("{} {name}: exit {} after {} ms", step.kind, ended.code, begun.elapsed().as_millis());
            assert!(
                [143, expected].contains(&ended.code),
                "{} {name}: {} {}",
                step.kind,
                ended.code,
                ended.stderr
            );
            let path = bench.database();
            assert_eq!(
                number(&path, "SELECT count(*) FROM app_lock WHERE owner IS NOT NULL"),
                0,
                "{}",
                step.kind
            );
            assert_eq!(
                number(&path, "SELECT count(*) FROM runs WHERE state = 'running'"),
                0,
                "{}",
                step.kind
            );
            let stopped = number(&path, "SELECT count(*) FROM runs WHERE state = 'interrupted'");
            assert_eq!(stopped == 1, ended.code == 143, "{} {name}", step.kind);
            if ended.code == 143 {
                interrupted.push(step.kind);
                let resumed = bench.lore(["run", "one.toml", "--quiet", "--resume"]);
                assert_eq!(resumed.code, expected, "{} {name}: {}", step.kind, resumed.stderr);
            }
            assert!(dump(&path) == undisturbed, "{} {name}: resumed to another content", step.kind);
        }
    }
    interrupted.dedup();
    let n = lore::steps::ALL.len();
    // The others had their last batch in hand and ended well, which is as good.
    assert!(interrupted.len() >= 4, "of {n} kinds only {interrupted:?} were under way");
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
