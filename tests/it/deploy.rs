//! What is in `deploy/`: complete, made from the job files where it carries schedules, and
//! accepted by the tools that will read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lore::error::ErrorKind;
use lore::telemetry::metrics::{Kind as MetricKind, Metric};

use crate::metrics::{listen, series};
use crate::support::binary::Bench;
use crate::support::dump::execute;
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::model::Kind;
use crate::support::tools::{Server, encode, find, patiently, run};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy().join(name)).unwrap()
}

/// Runs a tool on files of `deploy/`, where it is installed; it must have nothing to say
/// against them.
fn accept(program: &str, args: &[&str]) {
    let Some(program) = find(program) else { return };
    let (ok, said) = run(Command::new(&program).args(args).current_dir(deploy()), "");
    assert!(ok, "{} {args:?}: {said}", program.display());
}

fn alerts() -> BTreeSet<String> {
    let rules = read("prometheus/lore.rules.yml");
    rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).map(str::to_owned).collect()
}

/// Names of metrics of ours in an expression.
fn metric_names(expr: &str) -> BTreeSet<String> {
    regex::Regex::new(r"\blore_[a-z0-9_]+")
        .unwrap()
        .find_iter(expr)
        .map(|found| found.as_str().to_owned())
        .collect()
}

fn known_metrics() -> BTreeSet<String> {
    Metric::ALL.iter().map(|metric| metric.name().to_owned()).collect()
}

/// Names that can be asked for: a histogram has three.
fn known_series() -> BTreeSet<String> {
    let mut known = known_metrics();
    for metric in Metric::ALL.iter().filter(|metric| metric.kind() == MetricKind::Histogram) {
        known.extend(["bucket", "count", "sum"].map(|part| format!("{}_{part}", metric.name())));
    }
    known
}

// ---------------------------------------------------------------- lists that must agree

#[test]
fn the_runbook_has_an_entry_for_every_alert_and_every_exit_code_and_no_other() {
    let runbook = read("RUNBOOK.md");
    let entries: BTreeSet<String> =
        runbook.lines().filter_map(|line| line.strip_prefix("### ")).map(str::to_owned).collect();
    let codes = ErrorKind::ALL.iter().map(|kind| kind.exit_code()).chain([0]);
    let wanted: BTreeSet<String> =
        alerts().into_iter().chain(codes.map(|code| format!("Exit {code}"))).collect();
    assert_eq!(entries, wanted);
    for entry in runbook.split("\n### ").skip(1) {
        let name = entry.lines().next().unwrap();
        assert!(entry.contains("**Means**") && (name == "Watchdog" || entry.contains("**Do**")), "{name}");
    }
    let rules = read("prometheus/lore.rules.yml");
    for alert in alerts() {
        let link = format!("runbook: deploy/RUNBOOK.md#{}", alert.to_lowercase());
        assert!(rules.contains(&link), "{alert} does not link to its entry");
    }
}

#[test]
fn every_alert_is_tested_to_fire_and_to_stay_quiet() {
    let tests = read("prometheus/lore.test.yml") + &read("prometheus/lore.days.test.yml");
    let groups: Vec<&str> = tests.split("  - name: ").skip(1).collect();
    for alert in alerts() {
        let fires = format!("alertname=\"{alert}\"");
        let own: Vec<&&str> = groups.iter().filter(|group| group.contains(&fires)).collect();
        assert!(!own.is_empty(), "nothing makes {alert} fire");
        let quiet = own.iter().any(|group| group.contains("exp_samples: []"));
        assert!(quiet || alert == "Watchdog" || alert == "LoreDiskFull", "{alert} is never quiet");
    }
}

#[test]
fn rules_and_dashboards_name_metrics_that_exist() {
    let known = known_series();
    let mut unknown = Vec::new();
    let mut used = BTreeSet::new();
    for expr in dashboards().into_iter().flat_map(|(_, dashboard)| expressions(&dashboard)) {
        used.extend(metric_names(&expr));
    }
    for line in read("prometheus/lore.rules.yml").lines().filter(|line| !line.trim().starts_with('#')) {
        used.extend(metric_names(line));
    }
    unknown.extend(used.difference(&known));
    assert!(unknown.is_empty(), "{unknown:?}");
}

// ---------------------------------------------------------------- generated files

#[test]
fn manifests_with_schedules_are_what_jobs_export_prints() {
    let bench = Bench::new();
    let jobs = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs");
    let jobs = jobs.to_str().unwrap();
    #[expect(clippy::disallowed_methods, reason = "the switch of `just gen`")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    for (format, dir) in [
        ("kubernetes", "kubernetes/base"),
        ("systemd", "systemd"),
        ("gitlab-ci", "ci"),
        ("github-actions", "ci"),
    ] {
        if update {
            let dir = deploy().join(dir);
            let dir = dir.to_str().unwrap();
            bench.lore(["jobs", "export", "--jobs-dir", jobs, "--format", format, "--output", dir]).ok();
        }
        let answer = bench.lore(["jobs", "export", "--jobs-dir", jobs, "--format", format, "--json"]).data();
        for file in answer["files"].as_array().unwrap() {
            let name = format!("{dir}/{}", file["name"].as_str().unwrap());
            let have = std::fs::read_to_string(deploy().join(&name)).unwrap_or_default();
            assert!(
                have == file["text"].as_str().unwrap(),
                "deploy/{name} is stale: UPDATE_DOCS=1 cargo test --test it deploy"
            );
        }
    }
}

#[test]
fn every_shipped_schedule_has_its_timer_and_no_timer_is_left_over() {
    let bench = Bench::new();
    let jobs = bench.lore(["jobs", "list", "--json"]).data();
    let wanted: BTreeSet<String> = jobs["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|job| job["schedule"].is_string())
        .map(|job| format!("lore-{}.timer", job["name"].as_str().unwrap()))
        .collect();
    let have: BTreeSet<String> = std::fs::read_dir(deploy().join("systemd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".timer"))
        .collect();
    assert_eq!(have, wanted);
}

#[test]
fn a6_15_every_cron_job_names_its_time_zone_and_what_schemas_do_not_check_holds() {
    let text = read("kubernetes/base/cronjobs.yaml");
    let jobs: Vec<&str> = text.split("---\n").skip(1).collect();
    assert!(!jobs.is_empty());
    for job in jobs {
        for line in [
            "timeZone: Etc/UTC",
            "concurrencyPolicy: Forbid",
            "startingDeadlineSeconds: 300",
            "restartPolicy: Never",
            "runAsNonRoot: true",
            "readOnlyRootFilesystem: true",
            "allowPrivilegeEscalation: false",
            "automountServiceAccountToken: false",
            "drop: [ALL]",
            "type: RuntimeDefault",
            "containerName: lore",
            "- name: lore",
            "status: 'True'",
        ] {
            assert!(job.contains(line), "{line} is missing in\n{job}");
        }
        let codes = job.lines().find_map(|line| line.trim().strip_prefix("values: [")).unwrap();
        let codes: Vec<u8> =
            codes.trim_end_matches(']').split(", ").map(|code| code.parse().unwrap()).collect();
        for code in &codes {
            let kinds: Vec<_> = ErrorKind::ALL.iter().filter(|kind| kind.exit_code() == *code).collect();
            assert!(!kinds.is_empty() && kinds.iter().all(|kind| !kind.is_transient()), "{code}");
        }
        for retried in [0, 8, 9, 14, 75, 143] {
            assert!(!codes.contains(&retried), "{retried} is worth another try");
        }
    }
    let bench = Bench::new();
    let zoned =
        bench.lore(["jobs", "export", "sync", "--format", "kubernetes", "--time-zone", "Europe/Dublin"]).ok();
    assert!(zoned.contains("timeZone: Europe/Dublin"), "{zoned}");
    let timer =
        bench.lore(["jobs", "export", "sync", "--format", "systemd", "--time-zone", "Europe/Dublin"]).ok();
    assert!(timer.contains(":00 Europe/Dublin\n"), "{timer}");
    bench.lore(["jobs", "export", "demo", "--format", "kubernetes"]).fails(3);
    bench.lore(["jobs", "export", "--format", "kubernetes", "--time-zone", "a\nb"]).fails(2);
    bench.lore(["jobs", "export", "--format", "github-actions", "--time-zone", "Europe/Dublin"]).fails(2);
}

// ---------------------------------------------------------------- the tools that read it

#[test]
fn prometheus_and_alertmanager_accept_their_files() {
    accept("promtool", &["check", "rules", "prometheus/lore.rules.yml"]);
    accept("promtool", &["check", "config", "prometheus/prometheus.example.yml"]);
    accept("amtool", &["check-config", "prometheus/alertmanager.example.yml"]);
}

#[test]
fn the_rules_pass_their_tests() {
    accept("promtool", &["test", "rules", "prometheus/lore.test.yml"]);
}

#[test]
fn the_rules_pass_their_tests_that_span_days() {
    accept("promtool", &["test", "rules", "prometheus/lore.days.test.yml"]);
}

#[test]
fn kubernetes_manifests_are_valid_in_every_overlay() {
    let (Some(kubectl), Some(validate)) = (find("kubectl"), find("kubernetes-validate")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (ok, said) = run(
        Command::new("cp").args(["-r", "."]).arg(dir.path()).current_dir(deploy().join("kubernetes")),
        "",
    );
    assert!(ok, "{said}");
    std::fs::rename(
        dir.path().join("overlays/small/secrets.env.example"),
        dir.path().join("overlays/small/secrets.env"),
    )
    .unwrap();
    for overlay in ["small", "split", "external-secrets"] {
        let (ok, text) =
            run(Command::new(&kubectl).arg("kustomize").arg(dir.path().join("overlays").join(overlay)), "");
        assert!(ok, "{overlay}: {text}");
        let rendered = dir.path().join(format!("{overlay}.yaml"));
        std::fs::write(&rendered, &text).unwrap();
        let (ok, said) = run(Command::new(&validate).args(["--strict", "-k", "1.33"]).arg(&rendered), "");
        assert!(ok, "{overlay}: {said}");
        assert_eq!(text.matches("kind: CronJob").count(), text.matches("timeZone: ").count());
        let mode = if overlay == "split" { "- ReadWriteOnce\n" } else { "- ReadWriteOncePod\n" };
        assert!(text.contains(mode), "{overlay}");
        // With the exporter every run is pinned to its node; without it nothing is.
        let pinned = text.matches("podAffinity").count();
        assert_eq!(pinned, if overlay == "split" { text.matches("kind: CronJob").count() } else { 0 });
        // The pod that answers queries holds no secret.
        if let Some(exporter) = text.split("---\n").find(|part| part.contains("kind: Deployment")) {
            assert!(!exporter.contains("lore-secrets"), "{exporter}");
        }
    }
}

#[test]
fn systemd_accepts_the_units_and_finds_them_tight() {
    let Some(analyze) = find("systemd-analyze") else { return };
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(deploy().join("systemd")).unwrap() {
        let entry = entry.unwrap();
        // The binary that is named has to exist.
        let text = std::fs::read_to_string(entry.path()).unwrap().replace("/usr/bin/lore ", "/bin/true ");
        let name = entry.file_name().into_string().unwrap();
        std::fs::write(dir.path().join(&name), &text).unwrap();
        std::fs::write(dir.path().join(name.replace("lore@.", "lore@sync.")), &text).unwrap();
    }
    let check = |args: &[&str]| run(Command::new(&analyze).args(args).current_dir(dir.path()), "");
    let (ok, said) =
        check(&["verify", "./lore@sync.service", "./lore-exporter.service", "./lore-sync.timer"]);
    assert!(ok && said.trim().is_empty(), "{said}");
    for unit in ["./lore@sync.service", "./lore-exporter.service"] {
        let (ok, said) = check(&["security", "--offline=true", "--threshold=25", unit]);
        assert!(ok, "{said}");
    }
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for time in text.lines().filter_map(|line| line.strip_prefix("OnCalendar=")) {
            let (ok, said) = check(&["calendar", time]);
            assert!(ok, "{time}: {said}");
        }
    }
}

#[test]
fn linters_accept_the_image_and_the_pipelines() {
    accept("hadolint", &["docker/Dockerfile"]);
    accept("check-jsonschema", &["--builtin-schema", "vendor.gitlab-ci", "ci/gitlab-ci.yml"]);
    accept("check-jsonschema", &["--builtin-schema", "vendor.github-workflows", "ci/github-actions.yml"]);
    accept("yamllint", &["-d", "{extends: relaxed, rules: {line-length: disable}}", "."]);
}

// ---------------------------------------------------------------- dashboards

fn dashboards() -> Vec<(String, serde_json::Value)> {
    let mut found: Vec<_> = std::fs::read_dir(deploy().join("grafana"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path.file_name().unwrap().to_string_lossy().into_owned(), serde_json::from_str(&text).unwrap())
        })
        .collect();
    found.sort_by(|left, right| left.0.cmp(&right.0));
    found
}

fn expressions(dashboard: &serde_json::Value) -> Vec<String> {
    let targets =
        dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array());
    targets.flatten().map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn dashboards_are_well_formed() {
    let mut uids = BTreeSet::new();
    let variables = regex::Regex::new(r"\$\{?([a-z]+)\}?").unwrap();
    for (name, dashboard) in dashboards() {
        assert!(uids.insert(dashboard["uid"].as_str().unwrap().to_owned()), "{name}");
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len(), "{name}: ids");
        let mut cells = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().unwrap();
            let at = |key: &str| panel["gridPos"][key].as_i64().unwrap();
            assert!(at("x") >= 0 && at("x") + at("w") <= 24, "{name}: {title} is off the grid");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    assert!(cells.insert((x, y)), "{name}: {title} overlaps another panel");
                }
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{name}: {title} explains nothing");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{name}: {title}");
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{name}: {title} asks nothing");
        }
        let text = dashboard.to_string();
        for variable in variables.captures_iter(&text) {
            let known = dashboard["templating"]["list"].as_array().unwrap();
            assert!(known.iter().any(|known| known["name"] == variable[1]), "{name}: ${}", &variable[1]);
        }
    }
}

#[test]
fn every_expression_of_a_dashboard_and_of_a_rule_returns_data_from_a_real_exposition() {
    let Some(prometheus) = find("prometheus") else { return };
    let world = World::new();
    let (_exporter, address) = listen(&world.bench);
    world.bench.write(
        "prometheus.yml",
        &format!(
            "global: {{ scrape_interval: 500ms, evaluation_interval: 500ms }}\nrule_files: [{:?}]\nscrape_configs:\n- job_name: lore\n  static_configs: [{{ targets: ['{address}'] }}]\n",
            deploy().join("prometheus/lore.rules.yml")
        ),
    );
    let prometheus = Server::start(&prometheus, world.bench.path(), |address| {
        vec![
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=tsdb".to_owned(),
            format!("--web.listen-address={address}"),
        ]
    });
    let query = |expr: &str| -> Result<usize, String> {
        let (status, body) = prometheus.get(&format!("/api/v1/query?query={}", encode(expr)));
        if status != 200 {
            return Err(body);
        }
        let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
        Ok(answer["data"]["result"].as_array().unwrap().len())
    };
    let ready = "count_over_time(lore_exporter_database_readable[1m]) > 4";
    patiently("some scrapes", || query(ready).is_ok_and(|n| n == 1));
    for (name, dashboard) in dashboards() {
        for expr in expressions(&dashboard) {
            let asked = expr.replace("$graph", "sync").replace("$service", ".*");
            assert!(
                query(&asked).unwrap_or_else(|said| panic!("{name}: {expr}: {said}")) > 0,
                "{name}: {expr} returns nothing"
            );
        }
    }
    for record in [
        "lore:step_failures:increase1h",
        "lore:success_age:seconds",
        "lore:index_coverage:ratio",
        "lore:requests:rate15m",
    ] {
        patiently(record, || query(record).is_ok_and(|n| n > 0));
    }
    let (_, rules) = prometheus.get("/api/v1/rules");
    assert!(!rules.contains("\"health\":\"err\""), "{rules}");
    patiently("the watchdog", || {
        query("ALERTS{alertname=\"Watchdog\",alertstate=\"firing\"}").is_ok_and(|n| n == 1)
    });
}

// ---------------------------------------------------------------- what breaks raises its alert

/// A GitLab server and a database that was synced from it and checked.
struct World {
    gitlab: Option<FakeGitlab>,
    bench: Bench,
}

impl World {
    fn new() -> Self {
        let gitlab = FakeGitlab::start();
        gitlab.edit(|model| {
            let project = model.add_project("group/project");
            for number in 1..=3 {
                let iid = model.add_item(project, Kind::Issue, &format!("issue {number}"));
                model.add_note(project, Kind::Issue, iid, "bo", "a note");
            }
            model.advance(3_600_000);
        });
        let mut bench = Bench::new();
        bench.write(
            "lore.toml",
            &format!(
                "[metrics]\njobs = [\"sync\", \"maintain\", \"vectors\"]\n[embedding]\nprovider = \"ollama\"\nurl = \"http://127.0.0.1:1\"\n[sources.main]\nkind = \"gitlab\"\nurl = {:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\n\
                 projects = [\"group/project\"]\nrequests_per_second = 100000.0\nretries = 0\nretry_wait = \"1ms\"\n",
                gitlab.url()
            ),
        );
        // The shipped jobs, but quick to try again.
        std::fs::create_dir(bench.path().join("jobs")).unwrap();
        for job in ["sync", "maintain"] {
            let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("jobs/{job}.toml"));
            let text = std::fs::read_to_string(shipped).unwrap().replace("base = \"1s\"", "base = \"1ms\"");
            bench.write(&format!("jobs/{job}.toml"), &text);
        }
        bench.write("jobs/check.toml", "[steps.integrity-check]\n");
        bench.write(
            "jobs/vectors.toml",
            "[defaults]\nretry = { max_attempts = 1 }\n[steps.embed]\nallow_failure = true\n",
        );
        bench.var("GITLAB_TOKEN", "test-token");
        for job in ["sync", "maintain", "check"] {
            bench.lore(["run", job, "--quiet"]).ok();
        }
        Self { gitlab: Some(gitlab), bench }
    }

    fn exposition(&self) -> BTreeMap<String, f64> {
        series(&self.bench.lore(["metrics"]).ok())
    }

    fn sync(&self) -> i32 {
        self.bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).code
    }
}

/// When, in the time of a rule test, the second of two expositions takes the place of the
/// first: late enough for what is hours old.
const SWITCH_MINUTES: i64 = 600;

/// A group of a rule test: one exposition, then another, then what fires `after_minutes` later.
fn group(
    name: &str,
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
    after_minutes: i64,
    fires: &[&str],
) -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "the times of an exposition are moved to those of the test"
    )]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "minutes")]
    let switch_s = SWITCH_MINUTES as f64 * 60.0;
    let moved = |name: &str, value: f64| {
        let is_time = name.split('{').next().unwrap().ends_with("_timestamp_seconds");
        if is_time && value > 0.0 { value - now + switch_s } else { value }
    };
    let mut text = format!("  - name: {name}\n    interval: 1m\n    input_series:\n");
    for (name, value) in after {
        let value = moved(name, *value);
        let was = before.get(name).map_or("_".to_owned(), |value| moved(name, *value).to_string());
        let (until, from) = (SWITCH_MINUTES - 1, after_minutes + 5);
        writeln!(text, "      - {{ series: '{name}', values: '{was}x{until} {value}x{from}' }}").unwrap();
    }
    let at = SWITCH_MINUTES + after_minutes;
    let expr = "count by (alertname) (ALERTS{alertstate=\"firing\", alertname!=\"Watchdog\"})";
    write!(text, "    promql_expr_test:\n      - expr: {expr}\n        eval_time: {at}m\n").unwrap();
    if fires.is_empty() {
        text.push_str("        exp_samples: []\n");
    } else {
        text.push_str("        exp_samples:\n");
        for alert in fires {
            writeln!(text, "          - {{ labels: '{{alertname=\"{alert}\"}}', value: 1 }}").unwrap();
        }
    }
    text
}

/// Runs rule tests that were made from expositions.
#[track_caller]
fn judge(promtool: &Path, interval: &str, groups: &[String]) {
    let dir = tempfile::tempdir().unwrap();
    let rules = deploy().join("prometheus/lore.rules.yml");
    let head = format!("rule_files: [{rules:?}]\nevaluation_interval: {interval}\ntests:\n");
    let file = dir.path().join("test.yml");
    std::fs::write(&file, head + &groups.concat()).unwrap();
    let (ok, said) = run(Command::new(promtool).args(["test", "rules"]).arg(&file), "");
    assert!(ok, "{}", said.chars().take(3000).collect::<String>());
}

#[test]
fn every_kind_of_broken_run_raises_exactly_its_alert() {
    let Some(promtool) = find("promtool") else { return };
    let mut groups = Vec::new();

    let world = World::new();
    let healthy = world.exposition();
    groups.push(group("healthy", &healthy, &healthy, 30, &[]));
    assert_eq!(world.sync(), 0);
    groups.push(group("still healthy", &healthy, &world.exposition(), 30, &[]));

    let mut world = World::new();
    let before = world.exposition();
    world.gitlab = None;
    for _ in 0..2 {
        assert_eq!(world.sync(), 8);
    }
    groups.push(group("GitLab is down", &before, &world.exposition(), 20, &["LoreSourceUnreachable"]));

    let mut world = World::new();
    let before = world.exposition();
    world.bench.var("GITLAB_TOKEN", "revoked");
    assert_eq!(world.sync(), 5);
    groups.push(group(
        "the token is revoked",
        &before,
        &world.exposition(),
        20,
        &["LoreCredentialsRejected"],
    ));

    let world = World::new();
    let before = world.exposition();
    world.bench.lore(["run", "vectors", "--quiet"]).ok();
    groups.push(group(
        "the embedder is down",
        &before,
        &world.exposition(),
        20,
        &["LoreEmbedderUnavailable"],
    ));

    let world = World::new();
    let before = world.exposition();
    let mut dying = world.bench.command(["run", "sync", "--skip", "embed", "--quiet"]);
    dying.env("LORE_FAULT", "after-lock");
    drop(dying.output().unwrap());
    let held = world.exposition();
    assert_eq!(held["lore_lock_held"], 1.0, "it died with the lock");
    groups.push(group("the lock is stuck", &before, &held, 20, &["LoreLockStuck"]));
    assert_eq!(world.sync(), 0);
    groups.push(group("the next run takes it over", &held, &world.exposition(), 20, &["LoreLockTakenOver"]));

    let world = World::new();
    let before = world.exposition();
    world.gitlab.as_ref().unwrap().edit(|model| {
        let project = model.add_project("group/other");
        model.add_item(project, Kind::Issue, "another");
    });
    world.bench.write("jobs/half.toml", "[steps.ingest]\n");
    let config = std::fs::read_to_string(world.bench.path().join("lore.toml")).unwrap();
    world
        .bench
        .write("lore.toml", &config.replace("[\"group/project\"]", "[\"group/project\", \"group/other\"]"));
    world.bench.lore(["run", "half", "--quiet"]).ok();
    execute(&world.bench.database(), "UPDATE dirty_sources SET queued_at = queued_at - 7 * 3600 * 1000");
    groups.push(group("nobody drains the queue", &before, &world.exposition(), 40, &["LoreQueueStuck"]));

    let world = World::new();
    let before = world.exposition();
    execute(&world.bench.database(), "UPDATE documents SET content_hash = 'x' WHERE source_type = 'issue'");
    assert_eq!(world.bench.lore(["run", "check", "--quiet"]).code, 22);
    groups.push(group("an integrity finding", &before, &world.exposition(), 40, &["LoreIntegrityFindings"]));

    let bench = Bench::new();
    bench.write("lore.toml", "[metrics]\njobs = [\"sync\"]\n");
    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    let never = series(&bench.lore(["metrics"]).ok());
    groups.push(group("never scheduled", &never, &never, 30, &["LoreJobNeverSucceeded"]));

    judge(&promtool, "1m", &groups);
}

#[test]
fn a_full_disk_raises_its_alert() {
    let (Some(promtool), Some(unshare)) = (find("promtool"), find("unshare")) else { return };
    let bench = Bench::new();
    bench.write("lore.toml", "[metrics]\njobs = []\n");
    std::fs::create_dir(bench.path().join("small")).unwrap();
    // A file system of its own, which the kernel takes back with the shell.
    let script = "mount -t tmpfs -o size=900k tmpfs small || exit 99\n\
        \"$0\" run demo --quiet; code=$?; \"$0\" metrics > metrics.txt; exit $code";
    let mut command = Command::new(unshare);
    command
        .args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_lore")])
        .current_dir(bench.path())
        .env_clear();
    command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("LORE__DATABASE__PATH", "small/lore.db");
    let output = command.output().unwrap();
    if output.status.code().is_none_or(|code| code == 99 || code == 1) {
        eprintln!("skipped: no file system may be mounted here: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert_eq!(output.status.code(), Some(74), "{}", String::from_utf8_lossy(&output.stderr));
    let after = series(&std::fs::read_to_string(bench.path().join("metrics.txt")).unwrap());
    let before = series(&Bench::demo().lore(["metrics"]).ok());
    judge(&promtool, "1m", &[group("the disk is full", &before, &after, 5, &["LoreDiskFull"])]);
}

#[test]
fn no_alert_fires_because_a_series_is_missing() {
    let Some(promtool) = find("promtool") else { return };
    let healthy = World::new().exposition();
    let groups: Vec<String> = known_metrics()
        .iter()
        .map(|missing| {
            let mut left = healthy.clone();
            left.retain(|series, _| series.split('{').next() != Some(missing));
            let fires: &[&str] =
                if missing == "lore_exporter_database_readable" { &["LoreMetricsMissing"] } else { &[] };
            group(&format!("without {missing}"), &left, &left, 30, fires)
        })
        .collect();
    judge(&promtool, "10m", &groups);
}
