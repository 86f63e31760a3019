//! `lore metrics`: what it shows after runs of every outcome, and what the real servers of
//! Prometheus make of it on each of the three ways out.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::binary::{Bench, Running};
use crate::support::fake_embedder::{FakeEmbedder, Faults};
use crate::support::tools::{Server, encode, find, free_port, patiently, request, run};

/// A job that fails.
const BROKEN: &str = "name = \"broken\"\n[defaults]\nretry = { max_attempts = 2, base = \"1ms\" }\n[steps.ingest]\nwith = { source = \"gone\" }\n";

/// The series of an exposition.
pub fn series(text: &str) -> BTreeMap<String, f64> {
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (canonical(name), value.parse().unwrap())
        })
        .collect()
}

/// A series without the labels that a server adds, its own ones sorted.
fn canonical(series: &str) -> String {
    let Some((name, labels)) = series.trim_end_matches('}').split_once('{') else { return series.to_owned() };
    let mut own: Vec<&str> = labels
        .split("\",")
        .map(|label| label.trim_end_matches('"'))
        .filter(|label| !label.starts_with("job=") && !label.starts_with("instance="))
        .collect();
    own.sort_unstable();
    if own.is_empty() { name.to_owned() } else { format!("{name}{{{}\"}}", own.join("\",")) }
}

/// Compares two looks; a failure shows the series that differ, not all of them.
#[track_caller]
fn assert_same(left: &BTreeMap<String, f64>, right: &BTreeMap<String, f64>) {
    let differing: Vec<_> = left
        .keys()
        .chain(right.keys())
        .filter(|name| left.get(*name) != right.get(*name))
        .map(|name| (name, left.get(name), right.get(name)))
        .collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

fn metrics(bench: &Bench) -> BTreeMap<String, f64> {
    series(&bench.lore(["metrics"]).ok())
}

/// Values that are the same for every look at an idle database: the sizes of the files
/// depend on who has it open.
fn steady(mut series: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    series.retain(|name, _| name.starts_with("lore_") && !name.starts_with("lore_database_"));
    series
}

/// A bench with a good run and two failed ones behind it.
fn used() -> Bench {
    let bench = Bench::demo();
    bench.write("broken.toml", BROKEN);
    bench.write(
        "lore.toml",
        "[sources.gone]\nkind = \"gitlab-export\"\npath = \"gone.tar.gz\"\nproject = \"a/b\"\n",
    );
    for _ in 0..2 {
        assert_ne!(bench.lore(["run", "./broken.toml", "--quiet"]).code, 0);
    }
    bench
}

/// `lore metrics --listen`, with its address.
pub fn listen(bench: &Bench) -> (Running, String) {
    let address = format!("127.0.0.1:{}", free_port());
    let running = bench.spawn(["metrics", "--listen", &address, "--quiet"]);
    patiently("the exporter", || std::net::TcpStream::connect(&address).is_ok());
    (running, address)
}

#[test]
fn a6_13_a_failed_run_and_a_crash_do_not_move_the_last_success() {
    let bench = used();
    let one = metrics(&bench);
    assert_eq!(one["lore_graph_runs_total{graph=\"demo\",outcome=\"succeeded\"}"], 1.0);
    assert_eq!(one["lore_graph_last_exit_code{graph=\"demo\"}"], 0.0);
    assert!(one["lore_graph_last_success_timestamp_seconds{graph=\"demo\"}"] > 1.7e9);
    assert!(one["lore_graph_last_duration_seconds{graph=\"demo\"}"] > 0.0);
    // A failed run.
    assert_eq!(one["lore_graph_runs_total{graph=\"broken\",outcome=\"failed\"}"], 2.0);
    assert_eq!(one["lore_graph_last_success_timestamp_seconds{graph=\"broken\"}"], 0.0);
    assert!(one["lore_graph_last_start_timestamp_seconds{graph=\"broken\"}"] > 1.7e9);
    assert_ne!(one["lore_graph_last_exit_code{graph=\"broken\"}"], 0.0);
    let failures: f64 = one
        .iter()
        .filter(|(name, _)| name.starts_with("lore_step_failures_total{graph=\"broken\""))
        .map(|(_, n)| n)
        .sum();
    assert_eq!(failures, 2.0);
    // Jobs that never ran.
    assert_eq!(one["lore_graph_last_success_timestamp_seconds{graph=\"sync\"}"], 0.0);
    assert_eq!(one["lore_graph_schedule_period_seconds{graph=\"sync\"}"], 900.0);
    assert_eq!(one["lore_graph_runs_total{graph=\"sync\",outcome=\"failed\"}"], 0.0);
    // A crash: the run stays open until the next one closes it.
    let mut crashing = bench.command(["run", "demo", "--skip", "embed", "--quiet"]);
    crashing.env("LORE_FAULT", "after-lock");
    drop(crashing.output().unwrap());
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    let two = metrics(&bench);
    let ended = two["lore_graph_runs_total{graph=\"demo\",outcome=\"succeeded\"}"];
    assert_eq!(ended, 2.0);
    assert_eq!(two["lore_graph_runs_total{graph=\"demo\",outcome=\"abandoned\"}"], 1.0);
}

#[test]
fn the_database_can_be_missing_and_the_metrics_say_so() {
    let bench = Bench::new();
    let values = metrics(&bench);
    assert_eq!(values["lore_exporter_database_readable"], 0.0);
    assert_eq!(values.len(), 2);
    let answer = bench.lore(["metrics", "--json"]).data();
    assert!(answer["text"].as_str().unwrap().contains("lore_exporter_database_readable 0"), "{answer}");
}

#[test]
fn metrics_are_read_while_a_run_holds_the_lock_and_the_exporter_never_takes_it() {
    let bench = Bench::demo();
    bench.write("lore.toml", "");
    let (running, address) = listen(&bench);
    let before = metrics(&bench)["lore_lock_takeovers_total"];
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    let (status, text) = request(&address, "GET", "/metrics", "");
    assert_eq!(status, 200);
    let served = series(&text);
    assert_eq!(served["lore_lock_held"], 0.0);
    assert_eq!(served["lore_lock_takeovers_total"], before);
    assert_eq!(served["lore_graph_runs_total{graph=\"demo\",outcome=\"succeeded\"}"], 2.0);
    assert_eq!(request(&address, "GET", "/healthz", "").0, 200);
    assert_eq!(request(&address, "GET", "/nothing", "").0, 404);
    assert_eq!(request(&address, "POST", "/metrics", "").0, 405);
    running.signal(Signal::TERM);
    let output = running.wait(Duration::from_secs(5));
    assert_eq!(output.code, 0, "{}", output.stderr);
}

#[test]
fn queries_are_counted_and_a_database_that_cannot_be_written_is_queried_all_the_same() {
    let mut bench = Bench::demo();
    for _ in 0..3 {
        bench.lore(["query", "session", "--json"]).data();
    }
    let counted = |bench: &Bench| -> f64 {
        let all = metrics(bench);
        all.iter()
            .filter(|(name, _)| name.starts_with("lore_query_duration_seconds_count"))
            .map(|(_, n)| n)
            .sum()
    };
    assert!((counted(&bench) - 3.0).abs() < 1e-9);
    bench.var("LORE__METRICS__QUERIES", "false");
    bench.lore(["query", "session", "--json"]).data();
    assert!((counted(&bench) - 3.0).abs() < 1e-9);
    bench.var("LORE__METRICS__QUERIES", "true");
    let holder = crate::support::dump::open(&bench.database());
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    bench.lore(["query", "session", "--json"]).data();
    assert!((counted(&bench) - 3.0).abs() < 1e-9, "a writer is not waited for");
}

#[test]
fn a_query_without_a_hit_and_one_without_its_embedder_are_counted_as_such() {
    let mut bench = Bench::demo();
    bench.lore(["query", "xyzzyplugh", "--mode", "lexical", "--json"]).data();
    let all = metrics(&bench);
    assert_eq!(all["lore_queries_empty_total{mode=\"lexical\"}"], 1.0);
    assert_eq!(all["lore_queries_degraded_total{stage=\"vector\"}"], 0.0);
    let server = FakeEmbedder::new(Faults::default());
    bench.var("LORE__EMBEDDING__PROVIDER", "ollama").var("LORE__EMBEDDING__URL", &server.url());
    bench.lore(["run", "embed", "--quiet"]).ok();
    drop(server);
    bench.lore(["query", "session", "--json"]).data();
    let all = metrics(&bench);
    assert_eq!(all["lore_queries_degraded_total{stage=\"vector\"}"], 1.0, "{all:#?}");
    assert_eq!(all["lore_queries_empty_total{mode=\"lexical\"}"], 1.0);
}

#[test]
fn what_queries_ask_of_an_embedding_service_is_counted() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = Bench::demo();
    bench.var("LORE__EMBEDDING__PROVIDER", "ollama").var("LORE__EMBEDDING__URL", &server.url());
    bench.lore(["run", "embed", "--quiet"]).ok();
    let requests = |class: &str| {
        let name = format!("lore_requests_total{{service=\"embedding\",status_class=\"{class}\"}}");
        let all = metrics(&bench);
        *all.get(&name).unwrap_or_else(|| panic!("{name}: {all:#?}"))
    };
    let (answered, failed) = (requests("2xx"), requests("none"));
    for _ in 0..3 {
        bench.lore(["query", "session expires", "--json"]).data();
    }
    assert_eq!(requests("2xx"), answered + 1.0, "a question is asked once");
    server.change(|faults| faults.slow = Some(std::time::Duration::from_secs(30)));
    let mut hasty = bench.command(["query", "another question", "--json"]);
    assert!(hasty.env("LORE__EMBEDDING__QUERY_TIMEOUT", "200ms").output().unwrap().status.success());
    assert_eq!(requests("none"), failed + 1.0, "one that is given up is one without an answer");
}

#[test]
fn promtool_finds_nothing_to_say() {
    let Some(promtool) = find("promtool") else { return };
    let bench = used();
    let text = bench.lore(["metrics"]).ok();
    let (ok, said) = run(Command::new(&promtool).args(["check", "metrics"]), &text);
    assert!(ok && said.is_empty(), "{said}");
    let empty = Bench::new().lore(["metrics"]).ok();
    let (ok, said) = run(Command::new(&promtool).args(["check", "metrics"]), &empty);
    assert!(ok && said.is_empty(), "{said}");
}

#[test]
fn the_three_ways_out_show_the_same_values_to_the_real_servers() {
    let (Some(prometheus), Some(gateway), Some(node)) =
        (find("prometheus"), find("prometheus-pushgateway"), find("prometheus-node-exporter"))
    else {
        return;
    };
    let bench = used();
    let printed = steady(metrics(&bench));
    assert!(printed.len() > 100, "{}", printed.len());

    std::fs::create_dir(bench.path().join("textfiles")).unwrap();
    bench.lore(["metrics", "--textfile", "textfiles/lore.prom"]).ok();
    let node = Server::start(&node, bench.path(), |address| {
        vec![
            format!("--web.listen-address={address}"),
            "--collector.disable-defaults".to_owned(),
            "--collector.textfile".to_owned(),
            "--collector.textfile.directory=textfiles".to_owned(),
        ]
    });
    let exported = series(&node.get("/metrics").1);
    assert_eq!(exported["node_textfile_scrape_error"], 0.0);
    assert_same(&steady(exported), &printed);

    let gateway = Server::start(&gateway, bench.path(), |address| {
        vec![format!("--web.listen-address={address}"), "--persistence.file=pushed".to_owned()]
    });
    for _ in 0..2 {
        bench
            .lore(["metrics", "--push", &format!("http://{}", gateway.address), "--push-group", "lore_all"])
            .ok();
    }
    assert_same(&steady(series(&gateway.get("/metrics").1)), &printed);

    let (exporter, address) = listen(&bench);
    assert_same(&steady(series(&request(&address, "GET", "/metrics", "").1)), &printed);
    bench.write(
        "prometheus.yml",
        &format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: lore\n  static_configs: [{{ targets: ['{address}'] }}]\n"
        ),
    );
    let prometheus = Server::start(&prometheus, bench.path(), |address| {
        vec![
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=tsdb".to_owned(),
            format!("--web.listen-address={address}"),
        ]
    });
    let query = |expr: &str| {
        let (status, body) = prometheus.get(&format!("/api/v1/query?query={}", encode(expr)));
        if status != 200 {
            return Vec::new();
        }
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        answer["data"]["result"].as_array().cloned().unwrap_or_default()
    };
    patiently("a scrape", || query("lore_exporter_database_readable == 1").len() == 1);
    let scraped = query("{__name__=~\"lore_.+\", __name__!~\"lore_database_.+\"}");
    let scraped = scraped.iter().map(|result| {
        let labels = result["metric"].as_object().unwrap();
        assert!(!labels.contains_key("exported_job"), "{labels:?}");
        let own: Vec<String> = labels
            .iter()
            .filter(|(name, _)| *name != "__name__")
            .map(|(name, value)| format!("{name}=\"{}\"", value.as_str().unwrap()))
            .collect();
        let name = canonical(&format!("{}{{{}}}", labels["__name__"].as_str().unwrap(), own.join(",")));
        (name, result["value"][1].as_str().unwrap().parse().unwrap())
    });
    assert_same(&scraped.collect(), &printed);
    drop(exporter);
}

#[test]
fn a_gateway_that_is_down_or_refuses_fails_the_command_and_not_the_run() {
    let mut bench = Bench::demo();
    let nobody = format!("http://user:S3CR3T@127.0.0.1:{}", free_port());
    let stderr = bench.lore(["metrics", "--push", &nobody]).fails(8);
    assert!(!stderr.contains("S3CR3T"), "{stderr}");
    bench.var("LORE__METRICS__PUSH", &nobody.replace("user:S3CR3T@", ""));
    let output = bench.lore(["run", "demo", "--skip", "embed"]);
    assert!(output.stderr.contains("push metrics"), "{}", output.stderr);
    assert_eq!(output.code, 0);
}

#[test]
fn every_run_writes_the_textfile_with_how_it_ended() {
    let bench = Bench::new();
    bench.write("lore.toml", "[metrics]\ntextfile = \"lore.prom\"\n");
    bench.write("broken.toml", BROKEN);
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    let read = || series(&std::fs::read_to_string(bench.path().join("lore.prom")).unwrap());
    let good = read();
    assert_eq!(good["lore_graph_runs_total{graph=\"demo\",outcome=\"succeeded\"}"], 1.0);
    assert_eq!(good["lore_graph_running{graph=\"demo\"}"], 0.0);
    assert_eq!(good["lore_lock_held"], 0.0);
    assert_ne!(bench.lore(["run", "./broken.toml", "--quiet"]).code, 0);
    let bad = read();
    assert_eq!(bad["lore_graph_runs_total{graph=\"broken\",outcome=\"failed\"}"], 1.0);
}

#[test]
fn the_step_exports_in_the_middle_of_a_run_and_its_failure_fails_nothing_unless_asked() {
    let bench = Bench::new();
    let job = |required: bool| {
        format!("[steps.metrics]\nwith = {{ textfile = \"no/such/lore.prom\", required = {required} }}\n")
    };
    bench.write("soft.toml", &job(false));
    bench.write("hard.toml", &job(true));
    bench.write("fine.toml", "[steps.metrics]\nwith = { textfile = \"lore.prom\" }\n");
    let soft = bench.lore(["run", "./soft.toml", "--json"]).data();
    assert!(soft["steps"][0]["report"]["warnings"][0].as_str().unwrap().contains("lore.prom"), "{soft}");
    assert_eq!(bench.lore(["run", "./hard.toml", "--quiet"]).code, 12);
    bench.lore(["run", "./fine.toml", "--quiet"]).ok();
    let values = series(&std::fs::read_to_string(bench.path().join("lore.prom")).unwrap());
    assert_eq!(values["lore_graph_running{graph=\"fine\"}"], 1.0);
}
