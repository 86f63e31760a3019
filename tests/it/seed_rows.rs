//! What the plan for search says row by row, on the compiled binary and the sample project:
//! flags with their aliases and bounds, the lines for people, the committed questions.

use serde_json::Value;

use crate::support::binary::Bench;

fn ask(bench: &Bench, args: &[&str]) -> Value {
    bench.lore(["search", "--mode", "lexical", "--json"].iter().chain(args)).data()
}

fn results(data: &Value) -> &Vec<Value> {
    data["results"].as_array().unwrap()
}

fn texts<'a>(result: &'a Value, field: &str) -> Vec<&'a str> {
    match &result[field] {
        Value::String(text) => vec![text],
        Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn each_flag_of_a_search_restricts_what_it_names_and_all_hold_together() {
    let bench = Bench::demo();
    let all = ask(&bench, &["the", "--limit", "100"]);
    let author = results(&all)[0]["author"].as_str().unwrap();
    let path =
        results(&all).iter().find_map(|result| texts(result, "paths").first().map(|path| (*path).to_owned()));
    let path = path.unwrap();
    let directory = format!("{}/", path.split('/').next().unwrap());
    let labelled = results(&all).iter().find(|result| texts(result, "labels").len() > 1).unwrap();
    let (one, two) = (texts(labelled, "labels")[0], texts(labelled, "labels")[1]);
    let day = results(&all)[0]["created_at"].as_str().unwrap().split('T').next().unwrap();
    type Holds<'a> = Box<dyn Fn(&Value) -> bool + 'a>;
    let cases: Vec<(Vec<&str>, Holds<'_>)> = vec![
        (vec!["--type", "issues"], Box::new(|it| it["source_type"] == "issue")),
        (vec!["--type", "MRS"], Box::new(|it| it["source_type"] == "merge_request")),
        (vec!["--type", "merge_requests"], Box::new(|it| it["source_type"] == "merge_request")),
        (vec!["--type", "discussions"], Box::new(|it| it["source_type"] == "discussion")),
        (vec!["--author", author], Box::new(|it| it["author"] == author)),
        (vec!["--project", "sample/photon"], Box::new(|it| it["project_path"] == "sample/photon")),
        (vec!["--after", day], Box::new(|it| it["created_at"].as_str().unwrap() >= day)),
        (vec!["--updated-after", day], Box::new(|it| it["updated_at"].as_str().unwrap() >= day)),
        (vec!["--label", one], Box::new(|it| texts(it, "labels").contains(&one))),
        (
            vec!["--label", one, "--label", two],
            Box::new(|it| texts(it, "labels").contains(&one) && texts(it, "labels").contains(&two)),
        ),
        (vec!["--path", &path], Box::new(|it| texts(it, "paths").contains(&path.as_str()))),
        (
            vec!["--path", &directory],
            Box::new(|it| texts(it, "paths").iter().any(|path| path.starts_with(&directory))),
        ),
        (
            vec!["--label", one, "--label", two, "--type", "issue", "--project", "photon"],
            Box::new(|it| it["source_type"] == "issue" && texts(it, "labels").contains(&one)),
        ),
    ];
    for (flags, holds) in cases {
        let some = ask(&bench, &[&["the", "--limit", "100", "--group", "none"], flags.as_slice()].concat());
        assert!(!results(&some).is_empty(), "{flags:?}");
        assert!(results(&some).iter().all(&holds), "{flags:?}: {some}");
    }
}

#[test]
fn modes_have_their_names_and_aliases_in_any_case_and_hybrid_is_the_default() {
    let bench = Bench::demo();
    let lexical = bench.lore(["search", "upload", "--mode", "lexical", "--json"]).data();
    for alias in ["fts", "FTS", "Lexical"] {
        let data = bench.lore(["search", "upload", "--mode", alias, "--json"]).data();
        assert_eq!(data, lexical, "{alias}");
    }
    for alias in ["semantic", "vector", "Vector"] {
        let answer = bench.lore(["search", "upload", "--mode", alias, "--json"]);
        assert_eq!(
            (answer.code, &answer.json()["error"]["code"]),
            (16, &"EMBEDDING_FAILED".into()),
            "{alias}"
        );
    }
    let default = bench.lore(["search", "upload", "--json"]).json();
    assert!(default["data"]["warnings"][0].as_str().unwrap().contains("lore embed"), "{default}");
}

#[test]
fn twenty_results_unless_told_and_a_hundred_at_most() {
    let bench = Bench::demo();
    let listed = |args: &[&str]| results(&ask(&bench, args)).len();
    assert_eq!(listed(&["project:photon"]), 20);
    assert_eq!(listed(&["project:photon", "--limit", "1"]), 1);
    assert_eq!(listed(&["project:photon", "--limit", "100", "--group", "none"]), 100);
    assert_eq!(listed(&["project:photon", "--limit", "101", "--group", "none"]), 100);
}

#[test]
fn the_lines_for_people_are_those_of_the_plan() {
    let bench = Bench::demo();
    let text = bench.lore(["search", "fencing tokens", "--mode", "lexical", "--explain"]).ok();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("Found ") && lines[0].ends_with(" results (lexical search)"), "{text}");
    assert!(
        lines[2].starts_with("[1] MR sample/photon!18 - Job leases with fencing tokens (1.00)"),
        "{text}"
    );
    assert!(lines.contains(&"    Vector: -, FTS: #1, RRF: 0.0164"), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("    @") && line.contains(" · 20")), "{text}");
    assert!(lines.iter().any(|line| line.trim().starts_with("https://")), "{text}");
    let unquoted = bench.lore(["search", "fencing", "tokens", "--mode", "lexical", "--explain"]).ok();
    assert_eq!(unquoted.lines().nth(2), Some(lines[2]));
}

#[test]
fn committed_questions_find_what_they_must_among_the_first() {
    let bench = Bench::demo();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/golden_queries.json");
    let golden: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut missed = Vec::new();
    for row in &golden {
        let query = row["query"].as_str().unwrap();
        let data = ask(&bench, &[query]);
        let most = usize::try_from(row["max_rank"].as_u64().unwrap()).unwrap();
        let first: Vec<&str> =
            results(&data).iter().take(most).map(|it| it["reference"].as_str().unwrap()).collect();
        let wanted = texts(row, "expected");
        let is_there = |wanted: &&str| first.contains(&format!("sample/photon{wanted}").as_str());
        if !wanted.iter().any(is_there) || data["total_results"].as_u64() < row["min_results"].as_u64() {
            missed.push(format!("{query}: {first:?} of {}", data["total_results"]));
        }
    }
    assert!(golden.len() >= 15 && missed.is_empty(), "{missed:#?}");
}

#[test]
fn at_most_three_related_items_are_told_and_none_twice() {
    let bench = Bench::demo();
    let data = ask(&bench, &["project:photon", "--limit", "100"]);
    let related = |it: &Value| it["related"].as_array().unwrap().len();
    assert!(
        results(&data).iter().any(|it| related(it) > 1) && results(&data).iter().all(|it| related(it) <= 3)
    );
    for result in results(&data) {
        let mut names: Vec<&str> = result["related"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["reference"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), related(result));
        assert!(!names.contains(&result["reference"].as_str().unwrap()), "not itself");
    }
}
