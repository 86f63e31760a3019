//! How a first sync uses the rate that it is allowed, and how much memory it takes: the
//! compiled binary against a model server that answers slowly.
//!
//! Prints requests per second against the configured rate, for one project of many items,
//! and peak memory while threads of 5,000 notes are read. Wall time: rates are about waiting.
#![expect(clippy::print_stdout, reason = "it reports to whoever runs it")]
#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark that cannot run has nothing to report"
)]

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[expect(dead_code, unused_imports, reason = "shared with the tests, which use all of it")]
#[path = "../tests/it/support/fake_gitlab/mod.rs"]
mod fake_gitlab;

#[path = "../tests/it/support/relay.rs"]
mod relay;

use fake_gitlab::FakeGitlab;
use fake_gitlab::model::{Kind, Model};

/// Time that the server takes for each answer.
const LATENCY: Duration = Duration::from_millis(200);

/// One sync of everything in a model.
struct Sync {
    requests: usize,
    wall: Duration,
    peak_kb: u64,
}

fn sync(fill: impl FnOnce(&mut Model), latency: Duration, rate: f64, concurrency: usize) -> Sync {
    let projects = vec!["group/project".to_owned()];
    syncs(fill, &projects, 1, latency, rate, concurrency)
}

/// Syncs `runs` times, and tells of the last one.
fn syncs(
    fill: impl FnOnce(&mut Model),
    projects: &[String],
    runs: usize,
    latency: Duration,
    rate: f64,
    concurrency: usize,
) -> Sync {
    let dir = tempfile::tempdir().expect("a directory");
    let server = FakeGitlab::start();
    server.edit(fill);
    let upstream = server.url().replace("http://", "");
    let n_asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&n_asked);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let slow = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let (seen, upstream) = (Arc::clone(&seen), upstream.clone());
            std::thread::spawn(move || {
                relay::relay(&mut client, &upstream, |target| {
                    seen.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(latency);
                    Some(target.to_owned())
                });
            });
        }
    });
    let config = format!(
        "[sources.main]\nkind = \"gitlab\"\nurl = \"http://{slow}\"\ntoken = {{ env = \"TOKEN\" }}\nprojects = {projects:?}\n\
         requests_per_second = {rate:?}\nconcurrency = {concurrency}\n",
    );
    std::fs::write(dir.path().join("lore.toml"), config).expect("a file");
    let job = "name = \"once\"\n[steps.ingest]\n[steps.fetch-discussions]\nneeds = [\"ingest\"]\nwith = { limit = 1000000 }\n";
    std::fs::write(dir.path().join("once.toml"), job).expect("a file");
    for _ in 1..runs {
        let (_, ended) = run(dir.path());
        assert!(ended.success(), "{ended}");
        n_asked.store(0, Ordering::SeqCst);
    }
    let began = Instant::now();
    let (peak_kb, ended) = run(dir.path());
    assert!(ended.success(), "{ended}");
    Sync { requests: n_asked.load(Ordering::SeqCst), wall: began.elapsed(), peak_kb }
}

/// Runs the job; returns its peak of memory and how it ended.
fn run(dir: &std::path::Path) -> (u64, std::process::ExitStatus) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_lore"))
        .args(["run", "once.toml", "--quiet", "--database", "lore.db"])
        .env("TOKEN", "test-token")
        .current_dir(dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("lore starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    let ended = loop {
        if let Some(ended) = child.try_wait().expect("lore is waited for") {
            break ended;
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now: u64 = line.and_then(|kb| kb.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
        peak_kb = peak_kb.max(now);
        std::thread::sleep(Duration::from_millis(10));
    };
    (peak_kb, ended)
}

fn items(model: &mut Model, issues: i64, requests: i64, notes: usize, body: &str) {
    let project = model.add_project("group/project");
    for (kind, n) in [(Kind::Issue, issues), (Kind::MergeRequest, requests)] {
        for number in 1..=n {
            let iid = model.add_item(project, kind, &format!("{kind:?} {number}"));
            let mut thread = None;
            for _ in 0..notes {
                match &thread {
                    None => thread = Some(model.add_note(project, kind, iid, "bo", body)),
                    Some(thread) => model.reply(project, kind, iid, thread, "cy", body),
                };
            }
            model.advance(1000);
        }
    }
    model.advance(3_600_000);
}

fn main() {
    // `cargo test --benches` asks whether it runs, not how fast.
    let quick = std::env::args().any(|arg| arg == "--test");
    let n = if quick { 20 } else { 600 };
    for (rate, concurrency) in [(10.0, 4), (20.0, 8), (30.0, 8)] {
        let Sync { requests, wall, peak_kb } =
            sync(|model| items(model, n, n / 3, 2, "a note"), LATENCY, rate, concurrency);
        let reached = requests as f64 / wall.as_secs_f64();
        println!(
            "{requests} requests of {} ms in {:.1} s at {rate} a second and {concurrency} at once: {reached:.1}/s, {:.0} % of the rate; peak {:.0} MB",
            LATENCY.as_millis(),
            wall.as_secs_f64(),
            100.0 * reached / rate,
            peak_kb as f64 / 1e3,
        );
        if quick {
            break;
        }
    }
    let paths: Vec<String> = (1..=if quick { 3 } else { 50 }).map(|n| format!("group/project-{n}")).collect();
    let fill = |model: &mut Model| {
        for path in &paths {
            let project = model.add_project(path);
            model.add_item(project, Kind::Issue, "An issue");
            model.add_item(project, Kind::MergeRequest, "A change");
        }
        model.advance(3_600_000);
    };
    let Sync { requests, wall, .. } = syncs(fill, &paths, 3, LATENCY, 20.0, 8);
    let reached = requests as f64 / wall.as_secs_f64();
    println!(
        "{} quiet projects, {requests} requests of {} ms in {:.1} s at 20 a second and 8 at once: {reached:.1}/s, {:.0} % of the rate",
        paths.len(),
        LATENCY.as_millis(),
        wall.as_secs_f64(),
        100.0 * reached / 20.0,
    );
    let (items_n, notes) = if quick { (2, 50) } else { (12, 5_000) };
    let body = "a note of about four hundred characters, as people write them. ".repeat(6);
    let Sync { requests, wall, peak_kb } =
        sync(|model| items(model, items_n, 0, notes, &body), Duration::ZERO, 1e5, 8);
    println!(
        "{items_n} threads of {notes} notes, {requests} requests in {:.1} s: peak {:.0} MB",
        wall.as_secs_f64(),
        peak_kb as f64 / 1e3
    );
}
