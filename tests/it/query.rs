use serde_json::Value;

use crate::support::binary::Bench;

fn results(data: &Value) -> &Vec<Value> {
    data["results"].as_array().unwrap()
}

fn ask(bench: &Bench, args: &[&str]) -> Value {
    bench.lore(["query", "--json"].iter().chain(args)).data()
}

fn titles(data: &Value) -> Vec<&str> {
    results(data).iter().map(|result| result["title"].as_str().unwrap()).collect()
}

#[test]
fn a_query_finds_and_every_field_is_there() {
    let bench = Bench::demo();
    let data = ask(&bench, &["session expires too early", "--mode", "lexical", "--explain"]);
    assert_eq!(data["mode"], "lexical");
    assert_eq!(data["query"], "session expires too early");
    assert!(data["total_results"].as_u64().unwrap() >= 1);
    assert_eq!(data["warnings"], serde_json::json!([]));
    for result in results(&data) {
        let result = result.as_object().unwrap();
        for field in [
            "document_id",
            "source_type",
            "title",
            "url",
            "project_path",
            "author",
            "created_at",
            "updated_at",
            "score",
            "relevance",
            "snippet",
            "labels",
            "iid",
            "state",
            "reference",
            "explain",
        ] {
            assert!(result.contains_key(field), "{field}");
        }
        assert!(result["updated_at"].as_str().unwrap().ends_with('Z'));
        let explain = &result["explain"];
        assert!(explain["fts_rank"].is_u64() || explain["neighbour_of"].is_object(), "{explain}");
        assert_eq!(result["explain"]["vector_rank"], Value::Null);
    }
    assert_eq!(results(&data)[0]["score"], 1.0);
}

#[test]
fn bad_values_end_with_the_code_of_the_table_and_say_what_is_accepted() {
    let bench = Bench::demo();
    for (args, code, says) in [
        (vec!["crash", "--type", "isue"], 13, "issue, mr, discussion"),
        (vec!["crash type:isue"], 13, "issue, mr, discussion"),
        (vec!["crash", "--mode", "fuzzy"], 13, "hybrid"),
        (vec!["crash", "--state", "ajar"], 13, "open, closed, merged"),
        (vec!["crash", "--after", "someday"], 2, "7d"),
        (vec!["?!"], 2, "no word"),
        (vec![""], 2, "no word"),
        (vec![], 2, "no word"),
        (vec!["crash", "--scope", "team"], 2, "scope"),
        (vec!["crash", "--min-score", "7"], 2, "between 0 and 1"),
        (vec!["crash", "--fields", "titel"], 13, "title"),
        (vec!["crash", "--mode", "semantic"], 16, "lore embed"),
    ] {
        let stderr = bench.lore(["query"].iter().chain(&args)).fails(code);
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}

#[test]
fn a3_03_a_limit_out_of_range_is_refused_or_lowered() {
    let bench = Bench::demo();
    for bad in ["-1", "0", "99999999999999999999", "abc"] {
        let stderr = bench.lore(["query", "upload", "--limit", bad]).fails(2);
        assert!(stderr.contains("--limit"), "{bad}: {stderr}");
    }
    for bad in ["4", "-1", "x"] {
        assert!(bench.lore(["query", "upload", "--depth", bad]).fails(2).contains("--depth"), "{bad}");
    }
    for bad in ["-1", "4294967296"] {
        assert!(bench.lore(["query", "upload", "--offset", bad]).fails(2).contains("--offset"), "{bad}");
    }
    let beyond = ask(&bench, &["upload", "--mode", "lexical", "--offset", "4294967295"]);
    assert!(results(&beyond).is_empty() && beyond["total_results"].as_u64().unwrap() > 0);
    let data = ask(&bench, &["upload", "--mode", "lexical", "--limit", "999999999"]);
    assert!(data["warnings"][0].as_str().unwrap().contains("lowered to 100"));
}

#[test]
fn a3_13_a_raw_expression_that_fts5_refuses_is_an_error() {
    let bench = Bench::demo();
    bench.lore(["query", "title : upload", "--fts-mode", "raw"]).ok();
    for text in ["with-dash", "state-of-the-art", "foo AND", "\"open", "nocol:x"] {
        let output = bench.lore(["query", text, "--fts-mode", "raw", "--json"]);
        assert_eq!(output.code, 2, "{text}");
        let answer = output.json();
        assert_eq!(answer["error"]["code"], "USAGE");
        assert!(answer["error"]["suggestion"].as_str().unwrap().contains("safe mode"), "{answer}");
    }
}

#[test]
fn a4_01_pages_joined_are_the_long_list() {
    let bench = Bench::demo();
    let ids = |args: &[&str]| -> Vec<i64> {
        let data = ask(&bench, &[&["the upload server", "--mode", "lexical"], args].concat());
        results(&data).iter().map(|result| result["document_id"].as_i64().unwrap()).collect()
    };
    let long = ids(&["--limit", "60"]);
    assert!(long.len() > 10);
    let mut joined = Vec::new();
    for offset in (0..60).step_by(5) {
        joined.extend(ids(&["--limit", "5", "--offset", &offset.to_string()]));
    }
    assert_eq!(joined, long);
}

#[test]
fn a4_03_every_process_gives_the_same_list() {
    let bench = Bench::demo();
    let first = ask(&bench, &["server error"]);
    for _ in 0..100 {
        assert_eq!(ask(&bench, &["server error"]), first);
    }
}

#[test]
fn a4_12_an_empty_answer_has_the_same_keys() {
    let bench = Bench::demo();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let full = ask(&bench, &["upload"]);
    let empty = ask(&bench, &["qqqzzz", "--project", "none"]);
    assert!(results(&empty).is_empty());
    assert_eq!(keys(&full), keys(&empty));
    assert!(empty["warnings"][0].as_str().unwrap().contains("no project \"none\""));
}

#[test]
fn an_index_without_documents_says_what_to_run() {
    let bench = Bench::new();
    let stderr = bench.lore(["query", "crash"]).fails(11);
    assert!(stderr.contains("lore run demo"), "{stderr}");
    drop(lore::store::Store::open(&bench.database(), lore::store::OpenOptions::default()).unwrap());
    let text = bench.lore(["query", "crash"]).ok();
    assert!(text.contains("No data indexed") && text.contains("lore run sync"), "{text}");
    let data = ask(&bench, &["crash"]);
    assert_eq!(data["total_results"], 0);
}

#[test]
fn a_named_item_comes_first_and_can_be_shown() {
    let bench = Bench::demo();
    let data = ask(&bench, &["#12"]);
    assert_eq!(results(&data)[0]["iid"], 12);
    assert_eq!(results(&data)[0]["source_type"], "issue");
    let reference = results(&data)[0]["reference"].as_str().unwrap().to_owned();
    let url = results(&data)[0]["url"].as_str().unwrap().to_owned();
    let shown = bench.lore(["show", &reference]).ok();
    assert!(shown.starts_with(&reference), "{shown}");
    assert_eq!(bench.lore(["show", "#12"]).ok(), shown);
    assert_eq!(bench.lore(["show", &url]).ok(), shown);
    let json = bench.lore(["show", "#12", "--json"]).data();
    assert_eq!(json["iid"], 12);
    assert!(json["notes"].as_array().unwrap().iter().all(|note| note["system"] == false));
    let missing = bench.lore(["show", &reference.replace("#12", "#99999")]).fails(17);
    assert!(missing.contains("near: "), "{missing}");
    bench.lore(["show", "twelve"]).fails(2);
}

#[test]
fn a6_21_standard_output_is_one_document() {
    let mut bench = Bench::demo();
    bench.var("LORE_LOG", "debug");
    for args in [
        vec!["query", "upload", "--robot", "-vv"],
        vec!["query", "?!", "--robot", "-vv"],
        vec!["query", "upload", "--limit", "abc", "--robot"],
        vec!["show", "#99999", "--robot"],
        vec!["show", "#12", "--robot"],
    ] {
        let answer = bench.lore(&args).json();
        assert!(answer["ok"].is_boolean(), "{args:?}");
    }
}

#[test]
fn a_scope_of_the_configuration_binds() {
    let bench = Bench::demo();
    bench.write(
        "lore.toml",
        "[scopes.nothing]\nprojects = [\"elsewhere/*\"]\n[scopes.all]\nprojects = [\"*\"]\n",
    );
    assert!(results(&ask(&bench, &["upload", "--scope", "nothing"])).is_empty());
    assert!(!results(&ask(&bench, &["upload", "--scope", "all"])).is_empty());
    let stderr = bench.lore(["query", "upload", "--scope", "al"]).fails(2);
    assert!(stderr.contains("all, nothing"), "{stderr}");
    bench.lore(["show", "#12", "--scope", "nothing"]).fails(17);
    bench.lore(["query", "upload", "--scope", "all", "--include-confidential"]).fails(2);
}

#[test]
fn snippets_and_fields_come_in_the_form_that_is_asked_for() {
    let bench = Bench::demo();
    let marked = ask(&bench, &["uploads", "--highlight", "mark"]);
    let with_mark = results(&marked).iter().any(|r| r["snippet"].as_str().unwrap().contains("<mark>upload"));
    assert!(with_mark, "{marked}");
    let plain = ask(&bench, &["uploads", "--fields", "title,score"]);
    let keys: Vec<_> = results(&plain)[0].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["score", "title"]);
    assert!(!titles(&plain).is_empty());
    let coloured = bench.lore(["query", "uploads", "--color", "always"]).ok();
    assert!(coloured.contains("\u{1b}[1m"));
    let bare = bench.lore(["query", "uploads"]).ok();
    assert!(!bare.contains('\u{1b}'));
}

#[test]
fn filters_without_words_list_the_newest_first() {
    let bench = Bench::demo();
    let data = ask(&bench, &["is:open label:bug", "--mode", "lexical"]);
    let dates: Vec<&str> = results(&data).iter().map(|r| r["updated_at"].as_str().unwrap()).collect();
    assert!(dates.len() > 1 && dates.is_sorted_by(|a, b| a >= b), "{dates:?}");
    assert!(results(&data).iter().all(|result| result["state"] == "opened"));
}

#[test]
fn a_sentence_without_spaces_finds_what_shares_parts_of_it() {
    let bench = Bench::demo();
    let place = |text: &str, iid: i64| {
        let answer = ask(&bench, &[text, "--mode", "lexical"]);
        let found: Vec<i64> = results(&answer).iter().map(|it| it["iid"].as_i64().unwrap()).collect();
        found.iter().position(|it| *it == iid)
    };
    assert_eq!(place("タグを付けた写真が検索で見つかりません", 13), Some(0));
    assert_eq!(place("アルバム名が長いと切れる", 60), Some(0));
    let long = "アルバム名が長いと切れる、".repeat(60);
    assert_eq!(place(&long, 60), Some(0));
    assert_eq!(place(&"アルバム名が長いと切れる".repeat(40), 60), Some(0));
}
