//! What telemetry costs: runs of the compiled binary with and without it, and one scrape.
//!
//! Each run reads the same items over HTTP from a model server into a new database. One is
//! silent; the others log JSON, send their spans to a collector, write the textfile and ping a
//! check. Processor time of the process, ways in turn, because a busy machine disturbs it least. The scrape asks a running `lore metrics --listen`.
//!
//!     cargo bench --bench telemetry              # LORE_BENCH_DB=FILE: the scrape of that database
#![expect(clippy::print_stdout, reason = "it reports to whoever runs it")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot run has nothing to report")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[path = "../tests/it/support/fake_gitlab/mod.rs"]
#[expect(dead_code, unused_imports, reason = "tests use more of it")]
mod fake_gitlab;

use fake_gitlab::FakeGitlab;
use fake_gitlab::model::Kind;

/// Issues that a run reads, each with its discussions: one request an issue, one span each.
/// `LORE_BENCH_ISSUES` says otherwise.
const ISSUES: i64 = 5_000;
/// Rounds of runs; the least of each way is reported: what disturbs a run only adds to it.
const ROUNDS: usize = 8;
/// What is told: name, and whether spans, log lines, and textfile with ping.
const WAYS: [(&str, [bool; 3]); 5] = [
    ("nothing", [false, false, false]),
    ("spans", [true, false, false]),
    ("log lines as JSON", [false, true, false]),
    ("textfile and ping", [false, false, true]),
    ("all of it", [true, true, true]),
];
/// Scrapes that are timed.
const SCRAPES: u32 = 50;

fn main() {
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let server = filled();
    let sink = sink();
    let dir = tempfile::tempdir().unwrap();
    let mut spent = vec![Duration::MAX; WAYS.len()];
    let mut database = PathBuf::new();
    for n in 0..ROUNDS {
        for at in (0..WAYS.len()).map(|at| (at + n) % WAYS.len()) {
            let home = dir.path().join(format!("{n}-{at}"));
            spent[at] = spent[at].min(run(&home, &server.url(), &sink, WAYS[at].1));
            database = home.join("lore.db");
        }
    }
    let plain = spent[0].as_secs_f64();
    for ((name, _), own) in WAYS.iter().zip(&spent) {
        let own = own.as_secs_f64();
        println!("run with {name}: {:.1} ms CPU, {:+.1} %", own * 1e3, (own / plain - 1.0) * 100.0);
    }
    let database = std::env::var_os("LORE_BENCH_DB").map_or(database, PathBuf::from);
    scrapes(&database);
}

fn filled() -> FakeGitlab {
    let server = FakeGitlab::start();
    server.edit(|model| {
        let project = model.add_project("group/project");
        let told = std::env::var_os("LORE_BENCH_ISSUES").and_then(|n| n.into_string().ok());
        let issues = told.and_then(|n| n.parse().ok()).unwrap_or(ISSUES);
        for n in 0..issues {
            let iid = model.add_item(
                project,
                Kind::Issue,
                &format!("issue {n}: {}", "a title of words ".repeat(3)),
            );
            for note in 0..4 {
                model.add_note(
                    project,
                    Kind::Issue,
                    iid,
                    "bo",
                    &format!("note {note} {}", "of some length ".repeat(30)),
                );
            }
        }
        model.advance(3_600_000);
    });
    server
}

/// Takes whatever is posted and says yes; returns its address.
fn sink() -> String {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in socket.incoming().flatten() {
            std::thread::spawn(move || while swallow(&stream).is_some() {});
        }
    });
    address
}

fn swallow(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    (&mut &*stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()
}

fn lore(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lore"));
    command.args(args).current_dir(home).env_clear().env("HOME", home);
    command.env("GITLAB_TOKEN", "test-token").env("LORE__DATABASE__PATH", home.join("lore.db"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Processor time of a first sync into a new database.
fn run(home: &Path, gitlab: &str, sink: &str, [spans, lines, rest]: [bool; 3]) -> Duration {
    std::fs::create_dir(home).unwrap();
    let source = format!(
        "[sources.main]\nkind = \"gitlab\"\nurl = {gitlab:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\n\
         projects = [\"group/project\"]\nrequests_per_second = 100000.0\n"
    );
    let tracing = format!("[tracing]\nendpoint = \"http://{sink}\"\n");
    let told = "[metrics]\ntextfile = \"lore.prom\"\n[notify.sync]\nping = { env = \"PING\" }\n";
    let text = source + if spans { &tracing } else { "" } + if rest { told } else { "" };
    std::fs::write(home.join("lore.toml"), text).unwrap();
    let mut args = vec!["run", "sync", "--skip", "embed", "--set", "fetch-discussions.limit=100000"];
    args.extend(if lines { &["--log-format", "json"][..] } else { &["--quiet"] });
    let mut command = lore(home, &args);
    command.env("PING", format!("http://{sink}/ping"));
    waited(&command.spawn().unwrap())
}

/// Waits for a child; returns its processor time as the kernel counts it.
#[expect(unsafe_code, clippy::cast_possible_wrap, reason = "wait4 is the one way to a child's own usage")]
fn waited(child: &Child) -> Duration {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the child is ours and not waited for yet; both pointers are valid for writes.
    let pid = unsafe { libc::wait4(child.id() as libc::pid_t, &raw mut status, 0, usage.as_mut_ptr()) };
    assert!(pid > 0 && status == 0, "the run failed");
    // SAFETY: zeroed, and filled by the call.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// User and system time of a process: fields 14 and 15 of `/proc/PID/stat`, in ticks of 10 ms.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn scrapes(database: &Path) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let home = tempfile::tempdir().unwrap();
    let mut command = lore(home.path(), &["metrics", "--listen", &address]);
    let mut child = command.env("LORE__DATABASE__PATH", database).spawn().unwrap();
    while TcpStream::connect(&address).is_err() {
        std::thread::yield_now();
    }
    let scrape = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let documents: f64 = scrape()
        .lines()
        .filter(|line| line.starts_with("lore_documents{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    let before = processor_time(child.id());
    let mut walls: Vec<Duration> = (0..SCRAPES)
        .map(|_| {
            let begun = Instant::now();
            scrape();
            begun.elapsed()
        })
        .collect();
    let spent = (processor_time(child.id()) - before) / SCRAPES;
    walls.sort_unstable();
    println!(
        "scrape of {documents} documents: {:.1} ms CPU on average, {:.1} ms wall p50",
        spent.as_secs_f64() * 1e3,
        walls[walls.len() / 2].as_secs_f64() * 1e3
    );
    child.kill().unwrap();
    child.wait().unwrap();
}
