//! The forms of an answer: for people at any width, for programs, for language models.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

use lore::World;
use lore::content::chunk::estimate_tokens;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

use crate::support::binary::Bench;
use crate::support::dump::open;

/// An output that can be read afterwards.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Runs `lore query` as if on a terminal of so many columns.
fn at(bench: &Bench, columns: Option<usize>, vars: &[(&str, &str)], args: &[&str]) -> String {
    let out = Shared::default();
    let database = bench.database().to_string_lossy().into_owned();
    let fixed = [("LORE__DATABASE__PATH", database.as_str())];
    let world = World {
        args: ["lore", "query"].iter().chain(args).map(std::ffi::OsString::from).collect(),
        vars: fixed
            .iter()
            .chain(vars)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        current_dir: Path::new(bench.path()).to_owned(),
        out: Box::new(out.clone()),
        err: Box::new(std::io::sink()),
        out_is_terminal: columns.is_some(),
        err_is_terminal: false,
        columns,
    };
    assert_eq!(lore::run(world), 0);
    let bytes = out.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

/// A text without its colours.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            rest.by_ref().find(|c| *c == 'm');
        } else {
            out.push(c);
        }
    }
    out
}

const ASKED: &[&str] =
    &["the upload server is slow", "--mode", "lexical", "--limit", "50", "--facets", "--explain"];

#[test]
fn an_answer_fits_terminals_of_80_and_200_columns() {
    let bench = Bench::demo();
    open(&bench.database())
        .execute_batch(
            "UPDATE documents SET title = title || ' 日本語のとても長い題名です ' || substr(hex(zeroblob(200)), 1, 300) WHERE title IS NOT NULL",
        )
        .unwrap();
    for columns in [40, 80, 200] {
        let text = at(&bench, Some(columns), &[], ASKED);
        assert!(text.contains("\u{1b}[1m"), "a terminal has colours");
        for line in bare(&text).lines().filter(|line| !line.contains("://")) {
            // Tables keep their columns on a terminal that is too narrow for any.
            let room = columns.max(52);
            assert!(line.width() <= room, "{columns}: {}: {line}", line.width());
        }
    }
    let wide = bare(&at(&bench, Some(200), &[], ASKED)).lines().count();
    assert!(wide < bare(&at(&bench, Some(80), &[], ASKED)).lines().count());
}

#[test]
fn colours_are_for_terminals_whose_user_wants_them() {
    let bench = Bench::demo();
    for (columns, vars) in
        [(None, vec![]), (Some(80), vec![("NO_COLOR", "1")]), (None, vec![("NO_COLOR", "1")])]
    {
        let text = at(&bench, columns, &vars, ASKED);
        assert!(!text.contains('\u{1b}'), "{columns:?} {vars:?}: {text:?}");
        assert!(text.contains("upload"));
    }
}

#[test]
fn an_explanation_is_a_table_and_in_json_too() {
    let bench = Bench::demo();
    let text = at(&bench, None, &[], ASKED);
    for part in [
        "from       rank",
        "words      #1",
        "meaning    -",
        "score ",
        "stage      status",
        "graph  ",
        "word   ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let answer = bench.lore(["query", "--json"].iter().chain(ASKED)).json();
    let stages: Vec<&str> = answer["meta"]["pipeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    for name in [
        "parse",
        "scope",
        "lexical",
        "vector",
        "fuse",
        "graph",
        "boost",
        "rerank",
        "penalties",
        "page",
        "hydrate",
        "snippet",
    ] {
        assert_eq!(stages.iter().filter(|stage| **stage == name).count(), 1, "{name}: {stages:?}");
    }
    let hints = &answer["meta"]["hints"];
    assert!(hints.is_array(), "{hints}");
    for result in answer["data"]["results"].as_array().unwrap() {
        assert!(result["explain"]["factors"].is_array() && result["related"].is_array());
    }
}

#[test]
fn vocabulary_hints_name_what_the_words_are_and_change_nothing() {
    let bench = Bench::demo();
    let label: String = open(&bench.database())
        .query_row("SELECT label_name FROM document_labels WHERE label_name NOT LIKE '% %' ORDER BY label_name LIMIT 1", [], |row| row.get(0))
        .unwrap();
    let ask = |more: &[&str]| {
        let text = format!("photon {label}");
        bench.lore(["query", "--json", "--mode", "lexical", &text].iter().chain(more)).json()
    };
    let hints = ask(&["--explain"])["meta"]["hints"].clone();
    let hints: Vec<&str> = hints.as_array().unwrap().iter().map(|hint| hint.as_str().unwrap()).collect();
    assert!(
        hints.contains(&"project:sample/photon") && hints.contains(&format!("label:{label}").as_str()),
        "{hints:?}"
    );
    assert_eq!(ask(&[])["meta"]["hints"], serde_json::json!([]));
    let ids = |answer: &Value| -> Vec<Value> {
        answer["data"]["results"].as_array().unwrap().iter().map(|it| it["document_id"].clone()).collect()
    };
    assert_eq!(ids(&ask(&["--explain"])), ids(&ask(&[])));
}

#[test]
fn facets_speak_of_all_results_whatever_page_is_asked_for() {
    let bench = Bench::demo();
    let facets = |args: &[&str]| {
        let all = [&["query", "--json", "--mode", "lexical", "--facets"], args].concat();
        let answer = bench.lore(&all).json();
        assert_eq!(answer["meta"]["total_relation"], "eq", "{answer}");
        assert_eq!(answer["data"]["total_results"], answer["data"]["facets"]["total"]);
        answer["data"]["facets"].clone()
    };
    let first = facets(&["upload server", "--limit", "2"]);
    assert_eq!(first, facets(&["upload server", "--limit", "3", "--offset", "7"]));
    for name in ["project", "type", "label", "author", "month"] {
        assert!(first[name]["values"].is_array(), "{name}: {first}");
    }
    let merged = facets(&["is:merged"]);
    let count = |facets: &Value, facet: &str, value: &str| {
        let values = facets[facet]["values"].as_array().unwrap();
        values.iter().find(|it| it["value"] == value).map_or(0, |it| it["count"].as_u64().unwrap())
    };
    assert_eq!(count(&merged, "type", "issue"), 0);
    assert_eq!(count(&merged, "type", "merge_request"), merged["total"].as_u64().unwrap());
    let text = bench.lore(["query", "upload", "--mode", "lexical", "--facets"]).ok();
    assert!(text.contains("project  sample/photon ("), "{text}");
    let plain = bench.lore(["query", "upload", "--json", "--mode", "lexical"]).data();
    assert_eq!(plain["facets"], Value::Null);
}

#[test]
fn ndjson_is_a_result_a_line_with_the_wanted_fields() {
    let bench = Bench::demo();
    let query = ["query", "upload server", "--mode", "lexical", "--format", "ndjson", "--limit", "5"];
    let lines: Vec<Value> =
        bench.lore(query).ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line["title"].is_string() && line["snippet"].is_string()));
    let some = bench.lore(query.iter().chain(&["--fields", "reference,score"])).ok();
    for line in some.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line.as_object().unwrap().keys().collect::<Vec<_>>(), ["reference", "score"]);
    }
    assert_eq!(bench.lore(["query", "qqqzzz", "--mode", "lexical", "--format", "ndjson"]).ok(), "");
    bench.lore(["query", "x", "--json", "--format", "ndjson"]).fails(2);
    // What the environment asks for gives way to what the command line asks for.
    let mut robot = bench.command(query);
    assert_eq!(robot.env("LORE_ROBOT", "1").output().unwrap().stdout.split(|byte| *byte == b'\n').count(), 6);
    let json = bench.lore(["query", "upload", "--mode", "lexical", "--format", "json"]).json();
    assert_eq!(json["ok"], true);
}

#[test]
fn a_context_pack_cites_its_sources_and_keeps_within_its_tokens() {
    let bench = Bench::demo();
    let pack = |tokens: &str, more: &[&str]| {
        let args = [
            "query",
            "the upload server is slow",
            "--mode",
            "lexical",
            "--format",
            "context",
            "--max-tokens",
            tokens,
        ];
        bench.lore(args.iter().chain(more)).ok()
    };
    for tokens in ["100", "300", "1000", "4000", "100000"] {
        let text = pack(tokens, &[]);
        let most: usize = tokens.parse().unwrap();
        assert!(estimate_tokens(&text) <= most, "{tokens}: {}", estimate_tokens(&text));
        assert!(text.starts_with("[1] sample/photon#") && text.contains("https://"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
    assert!(pack("4000", &[]).contains("\n[2] "));
    assert!(pack("300", &["--offset", "3"]).starts_with("[4] "));
    bench.lore(["query", "x", "--format", "context", "--max-tokens", "20"]).fails(2);
}

#[test]
fn two_processes_ask_twenty_times_and_get_one_list() {
    let bench = Bench::demo();
    let args = ["query", "upload server error", "--mode", "lexical", "--json", "--depth", "2", "--facets"];
    let first = bench.lore(args).data();
    for _ in 0..20 {
        assert_eq!(bench.lore(args).data(), first);
    }
}
