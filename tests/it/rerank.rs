//! `lore query` with a reranker and a token extractor of our own.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::binary::Bench;
use crate::support::dump::open;
use crate::support::fake_reranker::{FakeReranker, Faults, Scale};

const WEATHER: &str = "machine learning, machine learning and nice weather";

/// Three issues, in this order by words, and others.
const ISSUES: [(&str, &str); 3] =
    [(WEATHER, "machine learning"), ("machine learning basics", "an introduction"), ("learning", "by doing")];

fn export(issues: &[(&str, &str)]) -> String {
    let line = |(iid, (title, text)): (usize, &(&str, &str))| {
        let at = format!("2024-01-{:02}T00:00:00Z", iid % 28 + 1);
        json!({
            "iid": iid, "title": title, "description": text, "state": "opened", "author_id": 1,
            "created_at": at, "updated_at": at, "notes": [], "label_links": [],
        })
        .to_string()
    };
    (1..).zip(issues).map(line).collect::<Vec<_>>().join("\n")
}

fn bench_of(issues: &[(&str, &str)], server: &FakeReranker, provider: &str) -> Bench {
    let mut bench = Bench::new();
    bench.write("export/tree/project.json", "{}");
    bench.write("export/tree/project/issues.ndjson", &export(issues));
    bench.write(
        "lore.toml",
        "[sources.main]\nkind = \"gitlab-export\"\npath = \"export\"\nproject = \"group/app\"\n",
    );
    bench
        .var("LORE__RERANK__PROVIDER", provider)
        .var("LORE__RERANK__URL", &server.url())
        .var("LORE__RERANK__MODEL", "some-model");
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    bench
}

fn bench(server: &FakeReranker) -> Bench {
    bench_of(&ISSUES, server, "tei")
}

fn ask(bench: &Bench, args: &[&str]) -> Value {
    let answer = bench.lore(["query", "--json", "--mode", "lexical"].iter().chain(args)).json();
    assert_eq!(answer["ok"], true, "{answer}");
    answer
}

fn titles(answer: &Value) -> Vec<&str> {
    let results = answer["data"]["results"].as_array().unwrap();
    results.iter().map(|result| result["title"].as_str().unwrap()).collect()
}

fn scores(answer: &Value) -> Vec<f64> {
    let results = answer["data"]["results"].as_array().unwrap();
    results.iter().map(|result| result["score"].as_f64().unwrap()).collect()
}

fn status(answer: &Value) -> &str {
    let stages = answer["meta"]["pipeline"].as_array().unwrap();
    let stage = stages.iter().find(|stage| stage["name"] == "rerank").unwrap();
    assert_eq!(stage["status"], answer["meta"]["rerank"]["status"]);
    stage["status"].as_str().unwrap()
}

fn favours() -> Faults {
    Faults { favour: vec!["basics", "by doing"], ..Faults::default() }
}

#[test]
fn a2_08_each_text_gets_its_own_score_in_both_dialects() {
    for (provider, path) in [("tei", "/rerank"), ("cohere", "/v1/rerank")] {
        let server = FakeReranker::new(favours());
        let bench = bench_of(&ISSUES, &server, provider);
        let fused = ask(&bench, &["machine learning", "--no-rerank"]);
        assert_eq!((titles(&fused)[0], status(&fused)), (WEATHER, "disabled"));
        assert!(server.asked().is_empty());
        let answer = ask(&bench, &["machine learning", "--rerank"]);
        assert_eq!(titles(&answer), ["machine learning basics", "learning", WEATHER]);
        assert_eq!(status(&answer), "ok");
        assert!(scores(&answer).is_sorted_by(|a, b| a >= b));
        let said: Vec<f64> = answer["data"]["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["rerank_score"].as_f64().unwrap())
            .collect();
        assert_eq!(said, [1.0, 0.5, 0.0]);
        let asked = server.asked();
        assert_eq!((asked.len(), asked[0].path.as_str()), (1, path));
        assert_eq!(asked[0].body["query"], "machine learning");
        assert!(asked[0].texts().iter().all(|text| text.contains('\n')), "title and passage");
    }
}

#[test]
fn a2_10_what_has_no_text_is_not_sent_and_one_that_is_not_scored_keeps_its_place() {
    let server = FakeReranker::new(Faults { null_for_empty: true, refuse_empty: true, ..favours() });
    let bench = bench(&server);
    // An issue without title and text, which only a label brings in.
    open(&bench.database())
        .execute_batch("UPDATE documents SET title = '', content_text = '', body_start = 0, terms_text = 'machine learning' WHERE item_iid = 1")
        .unwrap();
    let answer = ask(&bench, &["machine learning"]);
    assert_eq!(status(&answer), "ok", "{answer}");
    assert_eq!(server.asked()[0].texts().len(), 2);
    assert_eq!(answer["data"]["results"].as_array().unwrap().len(), 3);
    server.change(|faults| faults.silent_about = Some(0));
    let answer = ask(&bench, &["machine learning"]);
    assert_eq!((status(&answer), answer["meta"]["rerank"]["scored"].as_u64()), ("degraded", Some(1)));
}

#[test]
fn a2_11_a_reranker_that_fails_leaves_the_fused_order_and_says_so() {
    let server = FakeReranker::new(favours());
    let mut bench = bench(&server);
    bench.var("LORE__RERANK__TIMEOUT", "300ms");
    let fused = ask(&bench, &["machine learning", "--no-rerank"]);
    let forget =
        |bench: &Bench| open(&bench.database()).execute_batch("DELETE FROM circuit_breakers").unwrap();
    let faults: [(&str, Faults, &str); 6] = [
        ("error", Faults { status: Some(500), ..favours() }, "answers 500"),
        ("error", Faults { status: Some(401), ..favours() }, "answers 401"),
        ("error", Faults { web_page: true, ..favours() }, "a web page"),
        ("error", Faults { double_index: true, ..favours() }, "two scores"),
        ("timeout", Faults { slow: Some(Duration::from_secs(30)), ..favours() }, "within 0.3 s"),
        ("error", Faults { status: Some(422), ..favours() }, "answers 422"),
    ];
    for (expected, fault, says) in faults {
        server.change(|faults| *faults = fault);
        let begun = Instant::now();
        let answer = ask(&bench, &["machine learning"]);
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!((titles(&answer), status(&answer)), (titles(&fused), expected), "{says}");
        let error = answer["meta"]["rerank"]["error"].as_str().unwrap();
        assert!(error.contains(says), "{error}");
        assert!(answer["data"]["warnings"][0].as_str().unwrap().contains("not reranked"), "{answer}");
        let keys = |answer: &Value| answer["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&answer), keys(&fused));
        forget(&bench);
    }
    bench.var("LORE__RERANK__URL", "http://127.0.0.1:9");
    let output = bench.lore(["query", "machine learning", "--mode", "lexical"]);
    assert_eq!((output.code, output.stderr.lines().count()), (0, 1), "{}", output.stderr);
    assert!(output.stderr.contains("not reranked") && output.stdout.contains("nice weather"));
}

#[test]
fn a_reranker_that_fails_twice_is_left_alone_by_the_next_process_too() {
    let server = FakeReranker::new(Faults { status: Some(503), ..favours() });
    let bench = bench(&server);
    for expected in ["error", "error", "circuit_open"] {
        assert_eq!(status(&ask(&bench, &["machine learning"])), expected);
    }
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a2_13_any_scale_of_scores_gives_the_same_order() {
    let server = FakeReranker::new(favours());
    let bench = bench(&server);
    for scale in [Scale::Unit, Scale::Logits, Scale::Small] {
        server.change(|faults| faults.scale = scale);
        let answer = ask(&bench, &["machine learning"]);
        assert_eq!(titles(&answer), ["machine learning basics", "learning", WEATHER], "{scale:?}");
    }
}

#[test]
fn a2_15_texts_are_cut_to_what_the_reranker_takes_around_the_hit() {
    let filler = "日本 filler words without meaning. ".repeat(900);
    let long = format!("{filler} the machine learning part {filler}");
    let mut issues = ISSUES.to_vec();
    issues.push(("a long report", long.as_str()));
    let server = FakeReranker::new(Faults { max_chars: Some(4_000), ..favours() });
    let mut bench = bench_of(&issues, &server, "tei");
    let answer = ask(&bench, &["machine learning"]);
    assert_eq!(status(&answer), "ok");
    let texts = server.asked()[0].texts();
    assert_eq!(texts.len(), 4);
    assert!(
        texts.iter().all(|text| text.chars().count() <= 1_602),
        "{:?}",
        texts.iter().map(|t| t.chars().count()).collect::<Vec<_>>()
    );
    assert!(
        texts.iter().any(|text| text.contains("a long report") && text.contains("the machine learning part"))
    );
    // A limit that is not known is found by cutting once.
    server.change(|faults| faults.max_chars = Some(900));
    bench.var("LORE__RERANK__MAX_CHARS", "1600");
    assert_eq!(status(&ask(&bench, &["machine learning"])), "ok");
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a2_01_texts_that_are_too_many_for_a_request_go_in_several() {
    let server = FakeReranker::new(Faults { max_batch: Some(1), ..favours() });
    let bench = bench(&server);
    let answer = ask(&bench, &["machine learning"]);
    assert_eq!((status(&answer), answer["meta"]["rerank"]["scored"].as_u64()), ("ok", Some(3)), "{answer}");
    assert_eq!(titles(&answer), ["machine learning basics", "learning", WEATHER]);
    let sizes: Vec<usize> = server.asked().iter().map(|asked| asked.texts().len()).collect();
    assert_eq!(sizes, [3, 2, 1, 1, 1]);
}

#[test]
fn a4_07_the_least_score_speaks_of_the_score_that_is_shown() {
    let server = FakeReranker::new(favours());
    let bench = bench(&server);
    let all = ask(&bench, &["machine learning"]);
    for least in ["0.0", "0.3", "0.6", "1.0"] {
        let number: f64 = least.parse().unwrap();
        let answer = ask(&bench, &["machine learning", "--min-score", least]);
        let expected: Vec<f64> = scores(&all).into_iter().filter(|score| *score >= number).collect();
        assert_eq!(scores(&answer), expected, "{least}");
        assert_eq!(answer["meta"]["score"], "relative to the best result");
    }
}

#[test]
fn a4_12_nothing_is_sent_when_there_is_nothing_to_rerank() {
    let server = FakeReranker::new(favours());
    let bench = bench(&server);
    for (args, expected) in [
        (vec!["qqqzzz"], "skipped"),
        (vec!["basics introduction"], "skipped"),
        (vec!["is:open"], "skipped"),
        (vec!["machine is:closed"], "skipped"),
        (vec!["machine project:none"], "skipped"),
    ] {
        let answer = ask(&bench, &args);
        assert_eq!(status(&answer), expected, "{args:?}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn a4_03_reranked_pages_joined_are_the_long_list_in_every_process() {
    let titles: Vec<String> =
        (0..60).map(|n| format!("machine number {n} {}", "learning ".repeat(n % 7))).collect();
    let issues: Vec<(&str, &str)> = titles.iter().map(|title| (title.as_str(), "text of it")).collect();
    let server =
        FakeReranker::new(Faults { favour: vec!["number 13", "number 7", "number 41"], ..Faults::default() });
    let bench = bench_of(&issues, &server, "tei");
    let ids = |args: &[&str]| -> Vec<i64> {
        let answer = ask(&bench, &[&["machine learning"], args].concat());
        answer["data"]["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["document_id"].as_i64().unwrap())
            .collect()
    };
    let long = ids(&["--limit", "60"]);
    assert_eq!(long.len(), 60);
    let pages: Vec<i64> =
        (0..60).step_by(7).flat_map(|at| ids(&["--limit", "7", "--offset", &at.to_string()])).collect();
    assert_eq!(pages, long);
    assert_eq!(ids(&["--limit", "60"]), long);
}

#[test]
fn a_token_is_sent_and_never_shown() {
    let server = FakeReranker::new(Faults { status: Some(401), ..favours() });
    let mut bench = bench(&server);
    bench.write("token", "S3CR3T-TOKEN\n");
    bench.write(
        "lore.toml",
        &format!(
            "[rerank]\nprovider = \"tei\"\nurl = \"{}\"\ntoken = {{ file = \"token\" }}\n",
            server.url()
        ),
    );
    let output = bench.lore(["query", "machine learning", "--mode", "lexical", "--json", "--explain"]);
    assert_eq!(server.asked()[0].authorization.as_deref(), Some("Bearer S3CR3T-TOKEN"));
    assert!(!output.stdout.contains("S3CR3T") && !output.stderr.contains("S3CR3T"), "{output:?}");
    bench.var("LORE__RERANK__TOP_K", "1");
    bench.lore(["query", "x"]).fails(3);
}

fn with_extractor(server: &FakeReranker, fallback: &str) -> Bench {
    let mut bench = bench(server);
    bench
        .var("LORE__RERANK__PROVIDER", "none")
        .var("LORE__QUERY__NER", "llm")
        .var("LORE__QUERY__NER_URL", &server.url())
        .var("LORE__QUERY__NER_MODEL", "small")
        .var("LORE__QUERY__NER_TIMEOUT", "2s")
        .var("LORE__QUERY__NER_FALLBACK", fallback);
    bench
}

#[test]
fn an_extractor_says_what_to_search_for_and_reads_no_operator() {
    let says = r#"{"keywords": ["basics", "is:closed"], "literals": []}"#;
    let server = FakeReranker::new(Faults { says: Some(says.to_owned()), ..Faults::default() });
    let bench = with_extractor(&server, "use_heuristic");
    let answer = ask(&bench, &["what would be a good start is:open"]);
    assert_eq!(titles(&answer), ["machine learning basics"]);
    let asked = server.asked();
    assert_eq!(asked[0].path, "/v1/chat/completions");
    assert!(asked[0].body["messages"][1]["content"].as_str().unwrap().starts_with("what would be"));
    // Nothing to be understood is refused before anybody is asked.
    bench.lore(["query", "?!"]).fails(2);
    assert!(server.asked().is_empty());
}

#[test]
fn an_extractor_that_fails_falls_back_as_configured() {
    let server = FakeReranker::new(Faults::default());
    let heuristic = with_extractor(&server, "use_heuristic");
    let answer = ask(&heuristic, &["machine learning"]);
    assert_eq!(titles(&answer).len(), 3);
    assert!(answer["data"]["warnings"][0].as_str().unwrap().contains("own rules"), "{answer}");
    let stage = &answer["meta"]["pipeline"].as_array().unwrap()[1];
    assert_eq!((stage["name"].as_str(), stage["status"].as_str()), (Some("extract"), Some("error")));
    let empty = with_extractor(&server, "empty_on_fail");
    let refused = empty.lore(["query", "machine learning", "--json", "--mode", "lexical"]);
    assert_eq!((refused.code, refused.json()["error"]["code"].as_str()), (2, Some("NO_USABLE_TOKENS")));
    let filters = ask(&empty, &["machine learning is:open"]);
    assert_eq!(titles(&filters).len(), 3, "the filter is left");
    let propagate = with_extractor(&server, "propagate");
    server.change(|faults| faults.status = Some(500));
    let failed = propagate.lore(["query", "machine learning", "--json", "--mode", "lexical"]);
    assert_eq!((failed.code, failed.json()["error"]["code"].as_str()), (8, Some("NETWORK")));
}

#[test]
fn requests_of_a_query_are_counted_with_the_query() {
    let server = FakeReranker::new(favours());
    let bench = bench(&server);
    let counted = || {
        let database = open(&bench.database());
        let mut statement = database
            .prepare("SELECT labels, value FROM counters WHERE name = 'lore_requests_total'")
            .unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<Vec<(String, f64)>, _>>().unwrap()
    };
    ask(&bench, &["machine learning"]);
    server.change(|faults| faults.status = Some(503));
    ask(&bench, &["machine learning"]);
    let of = |class: &str| format!("service=rerank,status_class={class}");
    assert_eq!(counted(), [(of("2xx"), 1.0), (of("5xx"), 1.0)]);
    bench.command(["query", "machine learning"]).env("LORE__METRICS__QUERIES", "false").output().unwrap();
    assert_eq!(counted().len(), 2);
}
