//! `lore jobs` from outside, and the jobs that are shipped.

use serde_json::Value;

use crate::support::binary::Bench;

const GOOD: &str = "description = \"mine\"\n[steps.ingest]\nwith = { source = \"main\" }\n";
const BAD: &str = "retrys = 3\n[steps.ingest]\nneeds = [\"ingst\"]\nwith = { sorce = \"main\" }\n";

#[test]
fn every_shipped_job_passes_the_check() {
    let bench = Bench::new();
    let output = bench.lore(["jobs", "check", "--json"]);
    let answer = output.json();
    assert_eq!(output.code, 0, "{answer:#}");
    assert_eq!(answer["data"]["errors"], 0);
    assert_eq!(answer["data"]["warnings"], 0);
    // The same files, as files.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/jobs");
    let output = bench.lore(["jobs", "check", "--jobs-dir", shipped, "--json"]);
    assert_eq!(output.code, 0, "{}", output.stdout);
    let is_job = |entry: &std::fs::DirEntry| entry.path().extension().is_some_and(|ext| ext == "toml");
    let files = std::fs::read_dir(shipped).unwrap().map(Result::unwrap).filter(is_job).count();
    assert_eq!(output.json()["data"]["checked"], files, "a job in jobs/ is not compiled in");
}

#[test]
fn jobs_are_found_by_directory_then_compiled_in_then_path() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path().join("jobs")).unwrap();
    std::fs::write(bench.path().join("jobs/sync.toml"), GOOD).unwrap();
    std::fs::write(bench.path().join("jobs/broken.toml"), BAD).unwrap();
    std::fs::write(bench.path().join("jobs/notes.txt"), "no job").unwrap();
    let answer = bench.lore(["jobs", "list", "--json"]).json();
    let jobs = answer["data"]["jobs"].as_array().unwrap();
    let find = |name: &str| jobs.iter().find(|job| job["name"] == name).unwrap();
    assert_eq!(find("sync")["description"], "mine");
    assert_eq!(find("sync")["origin"], "jobs/sync.toml");
    assert_eq!(find("broken")["valid"], false);
    assert_eq!(find("demo")["origin"], "built in");
    assert_eq!(jobs.iter().filter(|job| job["name"] == "sync").count(), 1);

    std::fs::write(bench.path().join("other.toml"), GOOD).unwrap();
    let shown = bench.lore(["jobs", "show", "./other.toml", "--json"]).json();
    assert_eq!(shown["data"]["name"], "other");
    assert_eq!(shown["data"]["steps"][0]["with"]["source"], "main");
}

#[test]
fn a_job_that_is_not_there_is_named_with_its_nearest_neighbour() {
    let bench = Bench::new();
    let output = bench.lore(["jobs", "show", "snyc"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("no job is named snyc"), "{}", output.stderr);
    assert!(output.stderr.contains("did you mean sync?"), "{}", output.stderr);
    let output = bench.lore(["jobs", "show", "./absent.toml"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("absent.toml"), "{}", output.stderr);
    let output = bench.lore(["jobs", "list", "--jobs-dir", "absent"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("--jobs-dir"), "{}", output.stderr);
}

#[test]
fn check_reports_in_three_forms_and_exits_with_3() {
    let bench = Bench::new();
    std::fs::write(bench.path().join("broken.toml"), BAD).unwrap();
    let output = bench.lore(["jobs", "check", "broken.toml"]);
    assert_eq!(output.code, 3);
    let text = output.stdout;
    for want in [
        "--> broken.toml:1:1",
        "--> broken.toml:3:10",
        "3 | needs = [\"ingst\"]\n  |          ^^^^^^^",
        "--> broken.toml:4:10",
        "did you mean `source`?",
    ] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    assert!(output.stderr.contains("3 errors in 1 of 1 job file"), "{}", output.stderr);

    let output = bench.lore(["jobs", "check", "broken.toml", "--format", "github"]);
    assert_eq!(output.code, 3);
    let text = output.stdout;
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.starts_with("::error file=broken.toml,line=1,col=1,endColumn=7::unknown key"), "{text}");

    let output = bench.lore(["jobs", "check", "broken.toml", "--format", "json"]);
    assert_eq!(output.code, 3);
    assert_eq!(output.json()["diagnostics"][1]["column"], 10);

    // a6_21: one document on standard output, also on failure.
    let output = bench.lore(["jobs", "check", "broken.toml", "--json"]);
    assert_eq!(output.code, 3);
    let answer = output.json();
    assert_eq!(answer["ok"], false);
    assert_eq!(answer["error"]["code"], "CONFIG_INVALID");
    assert_eq!(answer["error"]["details"]["errors"], 3);
    assert_eq!(answer["error"]["details"]["diagnostics"][2]["line"], 4);
}

#[test]
fn a6_10_nothing_runs_when_the_job_file_is_invalid() {
    let bench = Bench::new();
    std::fs::write(bench.path().join("broken.toml"), BAD).unwrap();
    let output = bench.lore(["run", "broken.toml", "--database", "lore.db"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("broken.toml:3:10"), "{}", output.stderr);
    assert!(!bench.path().join("lore.db").exists());
}

#[test]
fn overrides_are_checked_as_usage() {
    let bench = Bench::new();
    let shown = bench.lore(["jobs", "show", "sync", "--set", "ingest.source=main", "--json"]).json();
    assert_eq!(shown["data"]["steps"][0]["with"]["source"], "main");
    let output = bench.lore(["jobs", "show", "sync", "--set", "ingest.sorce=main"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("did you mean `source`?"), "{}", output.stderr);
    let output = bench.lore(["jobs", "show", "sync", "--set", "ingest"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("STEP.KEY=VALUE"), "{}", output.stderr);
}

#[test]
fn show_prints_a_job_file_that_means_the_same() {
    let bench = Bench::new();
    let first = bench.lore(["jobs", "show", "sync"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    std::fs::write(bench.path().join("sync.toml"), first.stdout).unwrap();
    let hash = |name: &str| bench.lore(["jobs", "show", name, "--json"]).json()["data"]["hash"].clone();
    assert_eq!(hash("sync"), hash("./sync.toml"));
}

#[test]
fn graphs_are_drawn_in_four_forms() {
    let bench = Bench::new();
    let job = "name = \"g\"\n[steps.ingest]\n[steps.again]\nuses = \"ingest\"\nneeds = [\"ingest\"]\n\
               when = \"documents() > 0 || failing('dirty_sources') == 0\"\nallow_failure = true\n";
    std::fs::write(bench.path().join("g.toml"), job).unwrap();
    let graph = |form: &str| {
        let output = bench.lore(["jobs", "graph", "g.toml", "--format", form]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        output.stdout
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
    let bench = Bench::new();
    std::fs::write(bench.path().join("bin.toml"), b"name = \"x\"\n\xff\xfe").unwrap();
    let output = bench.lore(["jobs", "check", "bin.toml"]);
    assert_eq!(output.code, 3);
    assert!(output.stderr.contains("bin.toml:2 is not UTF-8"), "{}", output.stderr);
}

#[test]
fn bad_values_of_parameters_are_found_without_a_run() {
    let bench = Bench::new();
    bench.write(
        "bad.toml",
        "[steps.metrics]\nwith = { push = \"nope\", textfile = \"\" }\n\
         [steps.embed]\nwith = { batch = 0, concurrency = 65, limit = 0 }\n\
         [steps.fetch-discussions]\nwith = { limit = 0, source = \"\" }\n[steps.regenerate-docs]\nwith = { batch = 5001 }\n",
    );
    let output = bench.lore(["jobs", "check", "bad.toml", "--json"]);
    assert_eq!(output.code, 3, "{}", output.stderr);
    let answer = output.json();
    let found: Vec<&str> = answer["error"]["details"]["diagnostics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["message"].as_str().unwrap())
        .collect();
    for want in [
        "`push`: not an http or https address",
        "`textfile`: the text is empty",
        "`batch`: 0 is out of range, expected 1 to 2048",
        "`concurrency`: 65 is out of range, expected 1 to 64",
        "`limit`: 0 is out of range, expected 1 or more",
        "`source`: the text is empty",
        "`batch`: 5001 is out of range, expected 1 to 5000",
    ] {
        assert!(found.contains(&want), "{want}: {found:#?}");
    }
    assert_eq!(found.len(), 8, "{found:#?}");
}

#[test]
fn an_export_makes_its_directory() {
    let bench = Bench::new();
    bench.lore(["jobs", "export", "--format", "systemd", "--output", "a/b"]).ok();
    assert!(std::fs::read_dir(bench.path().join("a/b")).unwrap().count() > 0);
    bench.write("file", "");
    let error = bench.lore(["jobs", "export", "--format", "systemd", "--output", "file/b"]).fails(12);
    assert!(error.contains("--output"), "{error}");
}
