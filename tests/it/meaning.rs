//! Search by meaning with the compiled binary, against an embedding server of our own.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::binary::Bench;
use crate::support::dump::{number, open};
use crate::support::fake_embedder::{FakeEmbedder, Faults};

/// A bench with the sample project and a server; nothing is embedded yet.
fn bench(server: &FakeEmbedder) -> Bench {
    let mut bench = Bench::demo();
    bench
        .var("LORE__EMBEDDING__PROVIDER", "ollama")
        .var("LORE__EMBEDDING__URL", &server.url())
        .var("LORE__EMBEDDING__MODEL", "nomic-embed-text");
    bench
}

fn embedded(server: &FakeEmbedder) -> Bench {
    let bench = bench(server);
    bench.lore(["embed", "--quiet"]).ok();
    server.forget();
    bench
}

fn ask(bench: &Bench, args: &[&str]) -> Value {
    let mut answer = bench.lore(["query", "--json"].iter().chain(args)).json();
    assert_eq!(answer["ok"], true, "{answer}");
    let mut data = answer["data"].take();
    data["pipeline"] = answer["meta"]["pipeline"].take();
    data
}

fn status<'a>(data: &'a Value, stage: &str) -> &'a str {
    let stages = data["pipeline"].as_array().unwrap();
    stages.iter().find(|found| found["name"] == stage).unwrap()["status"].as_str().unwrap()
}

fn results(data: &Value) -> &Vec<Value> {
    data["results"].as_array().unwrap()
}

fn ids(data: &Value) -> Vec<i64> {
    results(data).iter().map(|result| result["document_id"].as_i64().unwrap()).collect()
}

fn warning(data: &Value) -> &str {
    data["warnings"][0].as_str().unwrap_or_else(|| panic!("no warning: {data}"))
}

#[test]
fn the_demo_embeds_and_both_retrievers_answer_together() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = Bench::new();
    bench.var("LORE__EMBEDDING__PROVIDER", "ollama").var("LORE__EMBEDDING__URL", &server.url());
    bench.lore(["run", "demo", "--quiet"]).ok();
    server.forget();
    let data = ask(&bench, &["the upload server is slow", "--explain"]);
    assert_eq!(
        (data["mode"].as_str(), status(&data, "vector"), status(&data, "fuse")),
        (Some("hybrid"), "ok", "ok")
    );
    assert_eq!(data["warnings"], serde_json::json!([]));
    assert_eq!(server.texts(), ["search_query: the upload server is slow"]);
    let first = &results(&data)[0];
    assert_eq!(first["score"], 1.0);
    let explain = &first["explain"];
    assert!(
        explain["vector_rank"].as_u64().unwrap() >= 1 && explain["fts_rank"].as_u64().unwrap() >= 1,
        "{explain}"
    );
    assert!(explain["cosine"].as_f64().unwrap() > 0.0);
    let parts = &explain["fused"];
    let sum = parts["lexical"].as_f64().unwrap() + parts["vector"].as_f64().unwrap();
    assert!((sum - parts["sum"].as_f64().unwrap()).abs() < 1e-5, "{explain}");
    let scores: Vec<f64> = results(&data).iter().map(|result| result["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let text = bench.lore(["query", "the upload server is slow", "--explain"]).ok();
    assert!(text.contains("Vector: #") && text.contains("(hybrid search)"), "{text}");
}

#[test]
fn a_semantic_search_answers_by_meaning_alone_and_obeys_filters() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = embedded(&server);
    let data = ask(&bench, &["upload server", "--mode", "semantic", "--explain"]);
    assert_eq!((data["mode"].as_str(), status(&data, "lexical")), (Some("semantic"), "skipped"));
    assert!(!results(&data).is_empty());
    assert!(
        results(&data)
            .iter()
            .all(|r| r["explain"]["vector_rank"].is_u64() && r["explain"]["fts_rank"].is_null())
    );
    assert!(results(&data).iter().all(|r| !r["snippet"].as_str().unwrap().is_empty()), "also without a word");
    // What holds nothing to be understood is refused before anybody is asked.
    server.forget();
    for text in ["?!", "  ", "\"\""] {
        assert_eq!(bench.lore(["query", text, "--json"]).json()["error"]["code"], "NO_USABLE_TOKENS");
    }
    assert!(server.asked().is_empty());
    let merged = ask(&bench, &["upload server is:merged -login", "--mode", "semantic"]);
    assert!(!results(&merged).is_empty());
    assert!(results(&merged).iter().all(|result| result["state"] == "merged"), "{merged}");
    for args in
        [vec!["is:open", "--mode", "semantic"], vec!["upload", "--mode", "semantic", "--fts-mode", "raw"]]
    {
        bench.lore(["query"].iter().chain(&args)).fails(2);
    }
}

#[test]
fn a4_01_pages_of_fused_results_joined_are_the_long_list() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = embedded(&server);
    // Fewer candidates than results: the pages go beyond what is fused.
    bench.var("LORE__QUERY__CANDIDATES", "12");
    for group in ["item", "none"] {
        let long = ids(&ask(&bench, &["the upload server fails", "--limit", "60", "--group", group]));
        assert!(long.len() > 15, "{}", long.len());
        let mut joined = Vec::new();
        for offset in (0..60).step_by(5) {
            let offset = offset.to_string();
            let page = ["the upload server fails", "--limit", "5", "--offset", &offset, "--group", group];
            joined.extend(ids(&ask(&bench, &page)));
        }
        assert_eq!(joined, long, "{group}");
        let mut once = long.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), long.len(), "{group}");
    }
}

#[test]
fn a4_03_every_process_fuses_alike_and_asks_the_server_once() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = embedded(&server);
    for method in ["deviations", "minmax", "share", "rrf"] {
        let mut lists = std::collections::BTreeSet::new();
        for _ in 0..25 {
            let mut command = bench.command(["query", "server error", "--json"]);
            command.env("LORE__QUERY__FUSION", method);
            let answer: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
            lists.insert(answer["data"].to_string());
        }
        assert_eq!(lists.len(), 1, "{method}");
    }
    assert_eq!(server.texts().len(), 1, "the vector of the question is kept");
}

#[test]
fn a4_08_a_server_that_is_down_leaves_the_words_and_is_left_alone_after_two_failures() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = embedded(&server);
    for (faults, says) in [
        (Faults { web_page: true, ..Faults::default() }, "a web page instead of vectors (status 200"),
        (Faults { refuse_token: true, ..Faults::default() }, "401"),
        (Faults { busy: 99, ..Faults::default() }, "busy"),
    ] {
        server.change(|now| *now = faults);
        let data = ask(&bench, &["upload"]);
        assert!(!results(&data).is_empty());
        assert_eq!(status(&data, "vector"), "error");
        assert!(warning(&data).contains(says), "{}", warning(&data));
        assert!(bench.lore(["query", "upload", "--mode", "semantic"]).code > 2);
        // As if the minute were over.
        open(&bench.database()).execute("DELETE FROM circuit_breakers", []).unwrap();
    }
    bench.var("LORE__EMBEDDING__URL", "http://127.0.0.1:1");
    let begun = Instant::now();
    let first = ask(&bench, &["upload"]);
    assert!(!results(&first).is_empty() && first["mode"] == "lexical");
    assert_eq!(status(&first, "vector"), "error");
    assert!(warning(&first).contains("127.0.0.1:1"), "{}", warning(&first));
    let second = bench.lore(["query", "upload", "--mode", "semantic"]).fails(14);
    assert!(second.contains("127.0.0.1:1"), "{second}");
    let third = ask(&bench, &["upload"]);
    assert_eq!(status(&third, "vector"), "circuit_open");
    assert!(warning(&third).contains("left alone") && warning(&third).contains("127.0.0.1:1"), "{third}");
    bench.lore(["query", "upload", "--mode", "semantic"]).fails(14);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_successful_embed_ends_the_time_a_service_is_left_alone() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = bench(&server);
    bench.write("some.toml", "name = \"some\"\n[steps.embed]\nwith = { limit = 40 }\n");
    bench.lore(["run", "some.toml", "--quiet"]).ok();
    server.change(|faults| faults.busy = 99);
    for status_of_vector in ["error", "error", "circuit_open"] {
        assert_eq!(status(&ask(&bench, &["upload"]), "vector"), status_of_vector);
    }
    server.change(|faults| faults.busy = 0);
    assert_eq!(status(&ask(&bench, &["upload"]), "vector"), "circuit_open", "the minute is not over");
    bench.lore(["run", "some.toml", "--quiet"]).ok();
    assert_eq!(status(&ask(&bench, &["upload"]), "vector"), "ok");
}

#[test]
fn a3_07_a_semantic_search_works_with_every_filter() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = embedded(&server);
    let connection = open(&bench.database());
    let text = |sql: &str| -> String { connection.query_row(sql, [], |row| row.get(0)).unwrap() };
    let label = text("SELECT label_name FROM document_labels GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1");
    let author =
        text("SELECT author_username FROM documents WHERE author_username IS NOT NULL ORDER BY id LIMIT 1");
    let path = text("SELECT path FROM document_paths ORDER BY path LIMIT 1");
    for filter in [
        ["--label", label.as_str()],
        ["--author", author.as_str()],
        ["--path", path.as_str()],
        ["--project", "sample/photon"],
        ["--type", "mr"],
        ["--state", "closed"],
        ["--after", "2000-01-01"],
        ["--updated-after", "2000-01-01"],
    ] {
        let args = ["the upload of photos to the server", "--mode", "semantic", "--group", "none"];
        let data = ask(&bench, &[args.as_slice(), &filter].concat());
        assert!(!results(&data).is_empty(), "{filter:?}");
        assert_eq!(status(&data, "vector"), "ok", "{filter:?}");
        for result in results(&data) {
            let is_allowed = match filter[0] {
                "--label" => result["labels"].as_array().unwrap().iter().any(|it| *it == label.as_str()),
                "--author" => result["author"] == author.as_str(),
                "--type" => result["source_type"] == "merge_request",
                "--state" => result["state"] == "closed",
                _ => true,
            };
            assert!(is_allowed, "{filter:?}: {result}");
        }
    }
}

#[test]
fn an_index_is_asked_as_it_was_made_whatever_is_configured_now() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = embedded(&server);
    bench.var("LORE__EMBEDDING__PROVIDER", "openai").var("LORE__EMBEDDING__URL", "http://127.0.0.1:1");
    let data = ask(&bench, &["upload"]);
    assert_eq!(status(&data, "vector"), "ok", "{data}");
    assert_eq!(server.texts(), ["search_query: upload"]);
}

#[test]
fn a4_10_what_is_not_embedded_yet_is_found_by_its_words() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = bench(&server);
    bench.write("some.toml", "name = \"some\"\n[steps.embed]\nwith = { limit = 5 }\n");
    bench.lore(["run", "some.toml", "--quiet"]).ok();
    let (id, title): (i64, String) = open(&bench.database())
        .query_row(
            "SELECT id, title FROM documents WHERE source_type = 'issue'
                AND id NOT IN (SELECT document_id FROM chunked_documents) ORDER BY id DESC LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let data = ask(&bench, &[&title]);
    assert_eq!(status(&data, "vector"), "ok");
    assert_eq!(ids(&data)[0], id, "{data}");
}

#[test]
fn a4_05_a_nonsense_query_is_recognisable_by_its_relevance() {
    let server = FakeEmbedder::new(Faults { dims: 512, ..Faults::default() });
    let bench = embedded(&server);
    let best = |text: &str| {
        let data = ask(&bench, &[text]);
        results(&data).first().map_or(0.0, |result| result["relevance"].as_f64().unwrap())
    };
    let (good, nonsense) =
        (best("login loops when the clock is wrong"), best("zebra pancake velocipede trombone"));
    assert!(nonsense + 0.2 < good, "{nonsense} against {good}");
}

#[test]
fn a4_12_an_empty_half_is_no_failure() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = embedded(&server);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let full = ask(&bench, &["upload"]);
    for args in [vec!["qqqzzz", "--project", "none"], vec!["upload", "--author", "nobody"], vec!["qqqzzz"]] {
        for mode in ["hybrid", "semantic"] {
            let data = ask(&bench, &[args.as_slice(), &["--mode", mode]].concat());
            assert_eq!(keys(&data), keys(&full));
            assert!(args.len() == 1 || results(&data).is_empty(), "{data}");
        }
    }
}

#[test]
fn a1_18_a_slow_server_does_not_keep_a_query_waiting() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = embedded(&server);
    bench.var("LORE__EMBEDDING__QUERY_TIMEOUT", "300ms");
    server.change(|faults| faults.slow = Some(Duration::from_secs(6)));
    let begun = Instant::now();
    let data = ask(&bench, &["upload"]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!((status(&data, "vector"), data["mode"].as_str()), ("timeout", Some("lexical")));
    assert!(!results(&data).is_empty());
    assert!(warning(&data).contains("0.3 s"), "{}", warning(&data));
}

#[test]
fn a1_19_other_dimensions_are_told_with_what_rebuilds_the_index() {
    let server = FakeEmbedder::new(Faults { dims: 64, ..Faults::default() });
    let bench = embedded(&server);
    server.change(|faults| faults.dims = 32);
    let data = ask(&bench, &["upload"]);
    assert!(!results(&data).is_empty() && data["mode"] == "lexical");
    let said = warning(&data);
    assert!(said.contains("64") && said.contains("32") && said.contains("`lore embed`"), "{said}");
    let error = bench.lore(["query", "upload", "--mode", "semantic"]).fails(16);
    assert!(error.contains("64") && error.contains("32"), "{error}");
    bench.lore(["embed", "--quiet", "--full"]).ok();
}

#[test]
fn a3_04_a_filter_that_leaves_few_documents_returns_them() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = embedded(&server);
    let author: String = open(&bench.database())
        .query_row(
            "SELECT author_username FROM documents WHERE author_username IS NOT NULL
              GROUP BY 1 ORDER BY count(*), 1 LIMIT 1",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let data =
        ask(&bench, &["the upload server", "--author", &author, "--mode", "semantic", "--group", "none"]);
    assert!(results(&data).iter().all(|result| result["author"] == author.as_str()));
}

#[test]
fn what_is_like_an_item_is_found_without_the_item_itself() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = embedded(&server);
    for mode in ["hybrid", "lexical", "semantic"] {
        let data = ask(&bench, &["--like", "#12", "--mode", mode]);
        assert_eq!(data["mode"], mode);
        assert_eq!(data["like"], "#12");
        assert!(!results(&data).is_empty(), "{mode}");
        let own = |result: &&Value| result["reference"].as_str().unwrap().ends_with("#12");
        assert_eq!(results(&data).iter().find(own), None, "{mode}");
    }
    assert!(server.texts().is_empty(), "the item's own vectors are at hand");
    let open = ask(&bench, &["--like", "#12", "--state", "closed"]);
    assert!(results(&open).iter().all(|result| result["state"] == "closed"));
    bench.lore(["query", "--like", "#99999"]).fails(17);
    bench.lore(["query", "--like", "twelve"]).fails(2);
    bench.lore(["query", "upload", "--like", "#12"]).fails(2);
}

#[test]
fn embed_counts_what_it_did_and_tries_failures_again_when_told() {
    let server = FakeEmbedder::new(Faults { max_chars: Some(120), ..Faults::default() });
    let bench = bench(&server);
    let first = bench.lore(["embed", "--json"]).data();
    let failed = first["failed"].as_i64().unwrap();
    assert!(failed > 0 && first["embedded"].as_i64().unwrap() > 0, "{first}");
    server.change(|faults| faults.max_chars = None);
    assert_eq!(bench.lore(["embed", "--json"]).data()["embedded"], 0, "not before its time");
    let again = bench.lore(["embed", "--retry-failed", "--json"]).data();
    assert_eq!((again["embedded"].as_i64(), again["failed"].as_i64()), (Some(failed), Some(0)), "{again}");
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM chunks WHERE last_error IS NOT NULL"), 0);
    let text = bench.lore(["embed"]).ok();
    assert!(text.contains("0 documents embedded"), "{text}");
}
