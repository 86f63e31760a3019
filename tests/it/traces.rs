//! Traces, log lines and pings: what a run tells about itself, to whom, and that nobody it
//! tells can change how it ends.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::support::binary::{Bench, nap};
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::model::Kind;
use crate::support::tools::free_port;

/// A request that a [`Listener`] took.
#[derive(Debug, Clone)]
struct Taken {
    /// Method, path and query.
    line: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// Takes requests and answers each with one status.
struct Listener {
    address: String,
    taken: Arc<Mutex<Vec<Taken>>>,
}

impl Listener {
    fn start(status: u16) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let taken: Arc<Mutex<Vec<Taken>>> = Arc::default();
        let log = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in socket.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || {
                    while let Some(taken) = take(&stream, status) {
                        log.lock().unwrap().push(taken);
                    }
                });
            }
        });
        Self { address, taken }
    }

    fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap().clone()
    }
}

/// Reads one request and answers it; nothing when the connection ends.
fn take(stream: &TcpStream, status: u16) -> Option<Taken> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let mut out = stream;
    write!(out, "HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n").ok()?;
    Some(Taken { line: line.trim_end().to_owned(), headers, body })
}

/// The spans that a collector got.
fn spans(collector: &Listener) -> Vec<Span> {
    collector
        .taken()
        .iter()
        .flat_map(|taken| ExportTraceServiceRequest::decode(taken.body.as_slice()).unwrap().resource_spans)
        .flat_map(|resource| resource.scope_spans)
        .flat_map(|scope| scope.spans)
        .collect()
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?;
    match value.value.as_ref()?.value.as_ref()? {
        Any::StringValue(text) => Some(text.clone()),
        Any::IntValue(n) => Some(n.to_string()),
        other => Some(format!("{other:?}")),
    }
}

fn server() -> FakeGitlab {
    let server = FakeGitlab::start();
    server.edit(|model| {
        let project = model.add_project("group/project");
        let iid = model.add_item(project, Kind::Issue, "an issue");
        model.add_note(project, Kind::Issue, iid, "bo", "a note");
        model.advance(3_600_000);
    });
    server
}

fn configure(bench: &mut Bench, url: &str, rest: &str) {
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {url:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\n\
             projects = [\"group/project\"]\nrequests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"\n{rest}"
        ),
    );
    bench.var("GITLAB_TOKEN", "test-token");
}

#[test]
fn a_run_is_the_root_its_steps_are_children_and_requests_are_theirs() {
    let (gitlab, collector) = (server(), Listener::start(200));
    let mut bench = Bench::new();
    let tracing = format!(
        "[tracing]\nendpoint = \"http://{}\"\nheaders = {{ x-key = {{ env = \"OTLP_KEY\" }} }}\n",
        collector.address
    );
    configure(&mut bench, &gitlab.url(), &tracing);
    bench.var("OTLP_KEY", "S3CR3T");
    // What is logged decides nothing about what is traced.
    let output = bench.lore(["run", "sync", "--skip", "embed", "--quiet"]);
    assert!(!output.stderr.contains("S3CR3T"), "{}", output.stderr);
    output.ok();

    let taken = collector.taken();
    assert!(taken.iter().all(|taken| taken.line.starts_with("POST /v1/traces ")), "{taken:?}");
    assert!(taken.iter().all(|taken| taken.headers["x-key"] == "S3CR3T"));
    let spans = spans(&collector);
    let root: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id.is_empty()).collect();
    assert_eq!(root.len(), 1, "{spans:#?}");
    let run = root[0];
    assert_eq!(run.name, "run");
    assert_eq!(attribute(run, "job").as_deref(), Some("sync"));
    assert_eq!(attribute(run, "state").as_deref(), Some("succeeded"));
    let uuid: serde_json::Value = bench.lore(["runs", "show", "1", "--json"]).data();
    let trace_id: String = run.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(uuid.to_string().replace('-', "").contains(&trace_id), "{trace_id} is not in {uuid}");
    assert!(spans.iter().all(|span| span.trace_id == run.trace_id));

    let mut steps: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == run.span_id).collect();
    steps.sort_by_key(|span| span.start_time_unix_nano);
    let names: Vec<&str> = steps.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["ingest", "fetch-discussions", "regenerate-docs", "optimize-fts"]);
    assert_eq!(attribute(steps[0], "attempt").as_deref(), Some("1"));

    let requests = |step: &Span| -> Vec<&Span> {
        spans
            .iter()
            .filter(|span| span.parent_span_id == step.span_id && span.name.starts_with("GET "))
            .collect()
    };
    assert_eq!(requests(steps[0]).len(), 5, "{spans:#?}");
    assert_eq!(requests(steps[1]).len(), 1, "{spans:#?}");
    let request = requests(steps[1])[0];
    assert_eq!(request.name, "GET /projects/{id}/issues/{iid}/discussions");
    let template = attribute(request, "url.template");
    assert_eq!(template.as_deref(), Some("/projects/{id}/issues/{iid}/discussions"));
    assert_eq!(attribute(request, "http.response.status_code").as_deref(), Some("200"));
    assert!(attribute(request, "url.path").unwrap().ends_with("/issues/1/discussions"), "{request:?}");
}

#[test]
fn a_failed_attempt_is_an_error_span_with_its_code() {
    let collector = Listener::start(200);
    let mut bench = Bench::new();
    let tracing = format!("[tracing]\nendpoint = \"http://{}\"\n", collector.address);
    configure(&mut bench, &format!("http://127.0.0.1:{}", free_port()), &tracing);
    bench.write("once.toml", "[defaults]\nretry = { max_attempts = 2, base = \"1ms\" }\n[steps.ingest]\n");
    bench.lore(["run", "./once.toml", "--quiet"]).fails(8);
    let spans = spans(&collector);
    let failed: Vec<&Span> = spans.iter().filter(|span| span.name == "ingest").collect();
    assert_eq!(failed.len(), 2, "each attempt is a span");
    for span in failed {
        assert_eq!(attribute(span, "error.code").as_deref(), Some("NETWORK"), "{span:?}");
        assert_eq!(span.status.as_ref().unwrap().code, 2, "{span:?}");
    }
    let run = spans.iter().find(|span| span.name == "run").unwrap();
    assert_eq!(attribute(run, "state").as_deref(), Some("failed"));
}

#[test]
fn a_collector_that_is_down_refuses_or_hangs_changes_no_result_and_costs_three_seconds_at_most() {
    let plain = Bench::new();
    let begun = Instant::now();
    plain.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    let without = begun.elapsed();
    let refusing = Listener::start(503);
    // Accepts connections into its backlog and never reads.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let down = format!("127.0.0.1:{}", free_port());
    for endpoint in [down, refusing.address.clone(), hanging.local_addr().unwrap().to_string()] {
        let mut bench = Bench::new();
        bench.var("LORE__TRACING__ENDPOINT", &format!("http://{endpoint}"));
        let begun = Instant::now();
        let output = bench.lore(["run", "demo", "--skip", "embed", "--quiet"]);
        let took = begun.elapsed();
        assert_eq!(output.code, 0, "{endpoint}: {}", output.stderr);
        let answer = bench.lore(["runs", "--json"]).data();
        assert!(answer.to_string().contains("succeeded"), "{answer}");
        assert!(took < without + Duration::from_secs(6), "{endpoint}: {took:?} instead of {without:?}");
    }
}

#[test]
fn the_lock_is_free_before_anybody_is_waited_for() {
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut bench = Bench::demo();
    bench.var("LORE__TRACING__ENDPOINT", &format!("http://{}", hanging.local_addr().unwrap()));
    bench.var("LORE__METRICS__PUSH", &format!("http://{}", hanging.local_addr().unwrap()));
    let mut waiting = bench.spawn(["run", "demo", "--skip", "embed", "--quiet"]);
    let begun = Instant::now();
    loop {
        let lock = bench.lore(["lock", "status", "--json"]).data();
        let runs = bench.lore(["runs", "--json"]).data();
        if runs.to_string().matches("succeeded").count() >= 2 && !lock.to_string().contains("\"owner\":\"") {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "the lock stayed held");
        nap(Duration::from_millis(20));
    }
    assert!(waiting.is_running(), "it waits for the gateway");
}

#[test]
fn json_log_lines_carry_run_job_step_attempt_and_trace() {
    let bench = Bench::new();
    let output = bench.lore(["run", "demo", "--skip", "embed", "--log-format", "json"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let lines: Vec<serde_json::Value> =
        output.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let run: Vec<&serde_json::Value> = lines.iter().filter(|line| line["job"] == "demo").collect();
    assert!(run.len() >= 7, "{lines:#?}");
    assert!(lines.iter().all(|line| line["target"].as_str().unwrap().starts_with("lore")), "{lines:#?}");
    for line in &run {
        assert_eq!(line["run_id"], 1, "{line}");
        assert_eq!(line["trace_id"].as_str().unwrap().len(), 32, "{line}");
        assert!(line["message"].is_string() && line["level"].is_string(), "{line}");
    }
    let ended = run.iter().find(|line| line["message"] == "step ended").unwrap();
    assert!(ended["step"].is_string(), "{ended}");
    assert_eq!(ended["attempt"], 1, "{ended}");
}

#[test]
fn a_check_is_pinged_with_run_id_and_exit_code_and_its_address_is_never_shown() {
    let check = Listener::start(200);
    let mut bench = Bench::new();
    bench.write(
        "lore.toml",
        "[notify.demo]\nping = { env = \"HC\" }\n[notify.broken]\nping = { env = \"HC\" }\n",
    );
    bench.write("broken.toml", "[steps.ingest]\nwith = { source = \"none\" }\n");
    bench.var("HC", &format!("http://{}/ping/S3CR3T", check.address));
    let good = bench.lore(["run", "demo", "--skip", "embed", "-vv"]);
    let bad = bench.lore(["run", "./broken.toml", "-vv"]);
    assert_eq!((good.code, bad.code), (0, 3), "{}", bad.stderr);
    assert!(!good.stderr.contains("S3CR3T") && !bad.stderr.contains("S3CR3T"), "{}", good.stderr);
    let mut lines: Vec<String> = check.taken().iter().map(|taken| taken.line.clone()).collect();
    lines.sort();
    let paths: Vec<&str> = lines.iter().map(|line| line.split(['?', ' ']).nth(1).unwrap()).collect();
    assert_eq!(
        paths,
        ["/ping/S3CR3T/0", "/ping/S3CR3T/3", "/ping/S3CR3T/start", "/ping/S3CR3T/start"],
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| line.contains("?rid=")), "{lines:?}");
    assert!(lines[1].contains("&exit_code=3"), "{lines:?}");
}

#[test]
fn a_check_that_is_down_or_refuses_or_has_no_address_fails_nothing() {
    let refusing = Listener::start(500);
    for value in [
        format!("http://127.0.0.1:{}/S3CR3T", free_port()),
        format!("http://{}/S3CR3T", refusing.address),
        "S3CR3T".to_owned(),
    ] {
        let mut bench = Bench::new();
        bench.write("lore.toml", "[notify.demo]\nping = { env = \"HC\" }\n");
        bench.var("HC", &value);
        let output = bench.lore(["run", "demo", "--skip", "embed"]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        assert!(!output.stderr.contains("S3CR3T"), "{}", output.stderr);
        assert!(output.stderr.contains("WARN"), "{}", output.stderr);
    }
}

/// One event of the source: its level, its text, its fields.
fn events() -> BTreeMap<(String, String), (&'static str, Vec<String>)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut events = BTreeMap::new();
    let mut open = vec![src.clone()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let module = path.strip_prefix(&src).unwrap().display().to_string();
        let is_test = module.ends_with("tests.rs") || module.contains("/tests/");
        for level in ["error", "warn", "info"] {
            for (at, _) in text.match_indices(&format!("tracing::{level}!(")).filter(|_| !is_test) {
                let (message, fields) = event(text.get(at..).unwrap());
                events.insert((module.clone(), message), (level, fields));
            }
        }
    }
    events
}

/// Reads one macro call: its message is its first text at the top level.
fn event(call: &str) -> (String, Vec<String>) {
    let (_, arguments) = call.split_once('(').unwrap();
    let (mut depth, mut in_text, mut escaped) = (1, false, false);
    let (mut part, mut parts) = (String::new(), Vec::new());
    for c in arguments.chars() {
        let was_text = in_text;
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => in_text = !in_text,
            '(' | '[' | '{' if !in_text => depth += 1,
            ')' | ']' | '}' if !in_text => depth -= 1,
            _ => {}
        }
        if depth == 0 || (c == ',' && depth == 1 && !was_text) {
            parts.push(std::mem::take(&mut part).trim().to_owned());
            if depth == 0 {
                break;
            }
        } else {
            part.push(c);
        }
    }
    let message = parts.iter().position(|part| part.starts_with('"')).unwrap_or(parts.len());
    let text = parts
        .get(message)
        .map(|part| part.trim_matches('"').split_whitespace().collect::<Vec<_>>().join(" "));
    let fields = parts
        .iter()
        .take(message)
        .filter(|part| !part.starts_with("target:") && !part.starts_with("parent:"))
        .map(|part| part.split('=').next().unwrap().trim().trim_start_matches(['%', '?']).to_owned())
        .collect();
    (text.unwrap_or_default(), fields)
}

/// The reference of the log events, made from the source.
fn logs_page() -> String {
    let mut page = "<!-- Made from the source by `just gen`; do not edit. -->\n\n# Log events\n\n\
        Log lines go to standard error, one a line: for people, or as flat JSON objects with `--log-format json`.\n\
        Inside of a run every JSON line also carries `run_id`, `job`, `trace_id` and, inside of a step, `step`,\n\
        `kind` and `attempt`; `trace_id` is the UUID of the run. `{…}` in a text stands for a value.\n\
        Events of the levels debug and trace are for developers and not listed.\n\n\
        | level | event | fields | from |\n|---|---|---|---|\n"
        .to_owned();
    for level in ["error", "warn", "info"] {
        for ((module, text), (_, fields)) in events().iter().filter(|(_, (own, _))| *own == level) {
            let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
            let module = module.trim_end_matches(".rs").trim_end_matches("/mod");
            page.push_str(&format!(
                "| {level} | {} | {} | {module} |\n",
                text.replace('|', "\\|"),
                fields.join(", ")
            ));
        }
    }
    page
}

#[test]
fn docs_of_the_log_events_are_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/logs.md");
    let page = logs_page();
    #[expect(clippy::disallowed_methods, reason = "the switch of `just gen`")]
    if std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1") {
        std::fs::write(&path, &page).unwrap();
    }
    let have = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(have == page, "docs/logs.md is stale: run `just gen` (UPDATE_DOCS=1 cargo test --test it docs)");
}

#[test]
fn every_event_has_a_text_that_reads_as_a_sentence() {
    let wrong: Vec<_> =
        events().into_keys().filter(|(_, text)| text.is_empty() || text.ends_with('.')).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
