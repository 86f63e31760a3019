//! `lore jobs` from outside, and the jobs that are shipped.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lore(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lore"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("XDG_CONFIG_HOME", dir.join("xdg"))
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

fn work() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

const GOOD: &str = "description = \"mine\"\n[steps.ingest]\nwith = { source = \"main\" }\n";
const BAD: &str = "retrys = 3\n[steps.ingest]\nneeds = [\"ingst\"]\nwith = { sorce = \"main\" }\n";

#[test]
fn every_shipped_job_passes_the_check() {
    let dir = work();
    let output = lore(dir.path(), &["jobs", "check", "--json"]);
    let answer = json(&output);
    assert_eq!(output.status.code(), Some(0), "{answer:#}");
    assert_eq!(answer["data"]["errors"], 0);
    assert_eq!(answer["data"]["warnings"], 0);
    // The same files, as files.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/jobs");
    let output = lore(dir.path(), &["jobs", "check", "--jobs-dir", shipped, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", out(&output));
    let files = std::fs::read_dir(shipped).unwrap().count();
    assert_eq!(json(&output)["data"]["checked"], files, "a job in jobs/ is not compiled in");
}

#[test]
fn jobs_are_found_by_directory_then_compiled_in_then_path() {
    let dir = work();
    std::fs::create_dir(dir.path().join("jobs")).unwrap();
    std::fs::write(dir.path().join("jobs/sync.toml"), GOOD).unwrap();
    std::fs::write(dir.path().join("jobs/broken.toml"), BAD).unwrap();
    std::fs::write(dir.path().join("jobs/notes.txt"), "no job").unwrap();
    let answer = json(&lore(dir.path(), &["jobs", "list", "--json"]));
    let jobs = answer["data"]["jobs"].as_array().unwrap();
    let find = |name: &str| jobs.iter().find(|job| job["name"] == name).unwrap();
    assert_eq!(find("sync")["description"], "mine");
    assert_eq!(find("sync")["origin"], "jobs/sync.toml");
    assert_eq!(find("broken")["valid"], false);
    assert_eq!(find("demo")["origin"], "built in");
    assert_eq!(jobs.iter().filter(|job| job["name"] == "sync").count(), 1);

    std::fs::write(dir.path().join("other.toml"), GOOD).unwrap();
    let shown = json(&lore(dir.path(), &["jobs", "show", "./other.toml", "--json"]));
    assert_eq!(shown["data"]["name"], "other");
    assert_eq!(shown["data"]["steps"][0]["with"]["source"], "main");
}

#[test]
fn a_job_that_is_not_there_is_named_with_its_nearest_neighbour() {
    let dir = work();
    let output = lore(dir.path(), &["jobs", "show", "snyc"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("no job is named snyc"), "{}", err(&output));
    assert!(err(&output).contains("did you mean sync?"), "{}", err(&output));
    let output = lore(dir.path(), &["jobs", "show", "./absent.toml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("absent.toml"), "{}", err(&output));
    let output = lore(dir.path(), &["jobs", "list", "--jobs-dir", "absent"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--jobs-dir"), "{}", err(&output));
}

#[test]
fn check_reports_in_three_forms_and_exits_with_3() {
    let dir = work();
    std::fs::write(dir.path().join("broken.toml"), BAD).unwrap();
    let output = lore(dir.path(), &["jobs", "check", "broken.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let text = out(&output);
    for want in [
        "--> broken.toml:1:1",
        "--> broken.toml:3:10",
        "3 | needs = [\"ingst\"]\n  |          ^^^^^^^",
        "--> broken.toml:4:10",
        "did you mean `source`?",
    ] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    assert!(err(&output).contains("3 errors in 1 of 1 job file"), "{}", err(&output));

    let output = lore(dir.path(), &["jobs", "check", "broken.toml", "--format", "github"]);
    assert_eq!(output.status.code(), Some(3));
    let text = out(&output);
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("::error file=broken.toml,line=1,col=1,endColumn=7::unknown key"), "{text}");

    let output = lore(dir.path(), &["jobs", "check", "broken.toml", "--format", "json"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(json(&output)["diagnostics"][1]["column"], 10);

    // a6_21: one document on standard output, also on failure.
    let output = lore(dir.path(), &["jobs", "check", "broken.toml", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let answer = json(&output);
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["error"]["code"], "CONFIG_INVALID");
    assert_eq!(answer["error"]["details"]["errors"], 3);
    assert_eq!(answer["error"]["details"]["diagnostics"][2]["line"], 4);
}

#[test]
fn a6_10_nothing_runs_when_the_job_file_is_invalid() {
    let dir = work();
    std::fs::write(dir.path().join("broken.toml"), BAD).unwrap();
    let output = lore(dir.path(), &["run", "broken.toml", "--database", "lore.db"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("broken.toml:3:10"), "{}", err(&output));
    assert!(!dir.path().join("lore.db").exists());
}

#[test]
fn overrides_are_checked_as_usage() {
    let dir = work();
    let shown = json(&lore(dir.path(), &["jobs", "show", "sync", "--set", "ingest.source=main", "--json"]));
    assert_eq!(shown["data"]["steps"][0]["with"]["source"], "main");
    let output = lore(dir.path(), &["jobs", "show", "sync", "--set", "ingest.sorce=main"]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("did you mean `source`?"), "{}", err(&output));
    let output = lore(dir.path(), &["jobs", "show", "sync", "--set", "ingest"]);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("STEP.KEY=VALUE"), "{}", err(&output));
}

#[test]
fn show_prints_a_job_file_that_means_the_same() {
    let dir = work();
    let first = lore(dir.path(), &["jobs", "show", "sync"]);
    assert_eq!(first.status.code(), Some(0), "{}", err(&first));
    std::fs::write(dir.path().join("sync.toml"), out(&first)).unwrap();
    let hash =
        |name: &str| json(&lore(dir.path(), &["jobs", "show", name, "--json"]))["data"]["hash"].clone();
    assert_eq!(hash("sync"), hash("./sync.toml"));
}

#[test]
fn graphs_are_drawn_in_four_forms() {
    let dir = work();
    let job = "name = \"g\"\n[steps.ingest]\n[steps.again]\nuses = \"ingest\"\nneeds = [\"ingest\"]\n\
               when = \"documents() > 0 || failing('dirty_sources') == 0\"\nallow_failure = true\n";
    std::fs::write(dir.path().join("g.toml"), job).unwrap();
    let graph = |form: &str| {
        let output = lore(dir.path(), &["jobs", "graph", "g.toml", "--format", form]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    assert_eq!(
        graph("text"),
        "g\n  1. ingest\n  2. again   after ingest; ingest; when documents() > 0 || failing('dirty_sources') == 0; may fail\n"
    );
    assert_eq!(
        graph("mermaid"),
        "flowchart TD\n    s0[\"ingest\"]\n    s1[\"again<br/>ingest<br/>when documents() &gt; 0 || \
         failing('dirty_sources') == 0<br/>may fail\"]\n    s0 -.-> s1\n"
    );
    assert!(graph("dot").contains("\"ingest\" -> \"again\" [style=dashed];"), "{}", graph("dot"));
    let value: Value = serde_json::from_str(&graph("json")).unwrap();
    assert_eq!(value["edges"][0]["to"], "again");
    assert_eq!(value["steps"][1]["wave"], 2);
}

#[test]
fn a_file_that_is_no_text_is_an_error_with_its_line() {
    let dir = work();
    std::fs::write(dir.path().join("bin.toml"), b"name = \"x\"\n\xff\xfe").unwrap();
    let output = lore(dir.path(), &["jobs", "check", "bin.toml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(err(&output).contains("bin.toml:2 is not UTF-8"), "{}", err(&output));
}
