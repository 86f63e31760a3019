//! The table of smoke tests, on the compiled binary and the sample project: one row, one
//! command, what has to come of it. Rows about embeddings are tested with the embeddings.

use serde_json::Value;

use crate::support::binary::{Bench, Output};
use crate::support::dump::{execute, number};

fn count(data: &Value, name: &str) -> i64 {
    data[name].as_i64().unwrap_or_else(|| panic!("{name} in {data}"))
}

fn search(bench: &Bench, args: &[&str]) -> Output {
    bench.lore([&["search"], args].concat())
}

/// Results of a search that has to find something.
fn found(bench: &Bench, args: &[&str]) -> Vec<Value> {
    let data = search(bench, &[args, &["--json"]].concat()).data();
    let results = data["results"].as_array().unwrap().clone();
    assert!(!results.is_empty(), "{args:?}: {data}");
    results
}

/// A bench with the sample stored and nothing made of it.
fn ingested() -> Bench {
    let bench = Bench::new();
    bench.lore(["run", "demo", "--only", "ingest", "--quiet"]).ok();
    bench
}

#[test]
fn generate_docs_makes_documents_and_says_how_many() {
    let bench = ingested();
    let data = bench.lore(["generate-docs", "--json"]).data();
    assert!(count(&data, "regenerated") > 100, "{data}");
    assert_eq!(count(&data, "total"), count(&data, "regenerated"));
    assert_eq!(count(&data, "errored"), 0);
}

#[test]
fn generate_docs_again_makes_none() {
    let bench = Bench::demo();
    let data = bench.lore(["generate-docs", "--json"]).data();
    assert_eq!(count(&data, "regenerated"), 0);
    assert!(bench.lore(["generate-docs"]).ok().contains("0 documents made"));
}

#[test]
fn generate_docs_full_looks_at_all_and_rewrites_none() {
    let bench = Bench::demo();
    let sources = number(
        &bench.database(),
        "SELECT (SELECT count(*) FROM issues) + (SELECT count(*) FROM merge_requests) + (SELECT count(*) FROM discussions)",
    );
    assert!(sources > 100);
    let before = number(&bench.database(), "SELECT max(id) FROM documents");
    let data = bench.lore(["generate-docs", "--full", "--json"]).data();
    let looked_at = count(&data, "regenerated") + count(&data, "skipped");
    let documents = number(&bench.database(), "SELECT count(*) FROM documents");
    assert_eq!((count(&data, "regenerated"), looked_at), (0, documents));
    assert_eq!(number(&bench.database(), "SELECT max(id) FROM documents"), before);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM dirty_sources"), 0, "drained");
}

#[test]
fn stats_shows_coverage_and_queue_depths() {
    let bench = ingested();
    let data = bench.lore(["stats", "--json"]).data();
    assert!(count(&data["queues"], "dirty_sources") > 100, "{data}");
    assert_eq!(count(&data["queues"], "pending_discussion_fetches"), 0);
    let text = bench.lore(["stats"]).ok();
    assert!(text.contains("dirty_sources") && text.contains("pending_discussion_fetches"), "{text}");
    bench.lore(["generate-docs", "--quiet"]).ok();
    let data = bench.lore(["stats", "--json"]).data();
    assert_eq!(count(&data["queues"], "dirty_sources"), 0);
    assert_eq!(count(&data["fts"], "indexed"), count(&data["documents"], "total"), "all are indexed");
}

#[test]
fn lexical_and_hybrid_searches_find() {
    let bench = Bench::demo();
    found(&bench, &["upload", "--mode=lexical"]);
    found(&bench, &["upload"]);
}

#[test]
fn explain_shows_the_ranks() {
    let bench = Bench::demo();
    let results = found(&bench, &["upload", "--explain"]);
    for result in &results {
        let explain = result["explain"].as_object().unwrap();
        for name in ["fts_rank", "vector_rank", "rrf_score"] {
            assert!(explain.contains_key(name), "{name} in {result}");
        }
    }
    assert_eq!(results[0]["explain"]["fts_rank"], 1);
    let text = search(&bench, &["upload", "--explain"]).ok();
    assert!(text.contains("FTS: #1") && text.contains("lexical"), "{text}");
}

#[test]
fn a_type_filter_holds_by_each_of_its_names() {
    let bench = Bench::demo();
    let ids = |results: &[Value]| -> Vec<Value> {
        assert!(results.iter().all(|result| result["source_type"] == "merge_request"), "{results:?}");
        results.iter().map(|result| result["document_id"].clone()).collect()
    };
    let by_mr = ids(&found(&bench, &["upload", "--type=mr"]));
    for alias in ["--type=mrs", "--type=merge_request"] {
        assert_eq!(ids(&found(&bench, &["upload", alias])), by_mr, "{alias}");
    }
    let refused = search(&bench, &["upload", "--type=foo", "--json"]);
    assert_eq!(refused.code, 13, "{}", refused.stderr);
    assert_eq!(refused.json()["error"]["code"], "INVALID_ENUM_VALUE");
}

#[test]
fn a_label_filter_holds() {
    let bench = Bench::demo();
    for result in found(&bench, &["upload", "--label=bug"]) {
        let labels = result["labels"].as_array().unwrap();
        let is_bug = |label: &Value| label.as_str().unwrap().to_lowercase().ends_with("bug");
        assert!(labels.iter().any(is_bug), "{result}");
    }
}

#[test]
fn awkward_texts_are_no_errors() {
    let bench = Bench::demo();
    for text in ["-DWITH_SSL", "C++", "\"", "*", "NEAR(", "a AND", "C++ OR", "🦀"] {
        let answer = search(&bench, &[text, "--json"]);
        let json = answer.json();
        // A text without a word is refused as such, and not by the index.
        let refused = json["error"]["code"] == "NO_USABLE_TOKENS";
        assert!(answer.code == 0 || refused, "{text}: {json}");
    }
    search(&bench, &["-DWITH_SSL"]).ok();
    search(&bench, &["C++"]).ok();
}

#[test]
fn a_time_filter_holds() {
    let bench = Bench::demo();
    let all = found(&bench, &["upload", "--limit", "100"]);
    let newest = all.iter().map(|result| result["updated_at"].as_str().unwrap()).max().unwrap();
    for since in ["2024-01-01", newest] {
        for result in found(&bench, &["upload", "--updated-after", since]) {
            assert!(result["updated_at"].as_str().unwrap() >= since, "{since}: {result}");
        }
    }
    let none = search(&bench, &["upload", "--updated-after", "2999-01-01", "--json"]).data();
    assert_eq!(none["total_results"], 0);
}

#[test]
fn nothing_found_is_an_answer_that_helps() {
    let bench = Bench::demo();
    let data = search(&bench, &["nonexistent123", "--mode=lexical", "--json"]).data();
    assert_eq!((&data["total_results"], &data["results"]), (&0.into(), &serde_json::json!([])));
    let text = search(&bench, &["nonexistent123", "--mode=lexical"]).ok();
    assert!(text.contains("No results") && text.contains("nonexistent123"), "{text}");
}

#[test]
fn a_search_by_meaning_without_embeddings_says_what_to_run() {
    let bench = Bench::demo();
    let told = search(&bench, &["upload", "--mode=semantic"]).fails(16);
    assert!(told.contains("lore embed"), "{told}");
}

/// Configures the sample as the one source, so that `sync` has something to bring in.
fn with_source() -> Bench {
    let bench = Bench::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/jobs/demo-data");
    bench.write(
        "lore.toml",
        &format!("[sources.main]\nkind = \"gitlab-export\"\npath = {sample:?}\nproject = \"acme/photon\"\n"),
    );
    bench
}

#[test]
fn sync_completes_all_steps() {
    let bench = with_source();
    let data = bench.lore(["sync", "--json"]).data();
    assert_eq!(data["state"], "succeeded");
    assert!(count(&data, "issues_updated") > 0 && count(&data, "documents_regenerated") > 0, "{data}");
    let steps = data["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["conclusion"] == "satisfied"), "{data}");
    assert_eq!(bench.lore(["status", "--check", "--json"]).data()["integrity"]["ok"], true);
}

#[test]
fn sync_without_embedding_makes_the_documents_all_the_same() {
    let bench = with_source();
    let data = bench.lore(["sync", "--no-embed", "--json"]).data();
    assert!(count(&data, "documents_regenerated") > 0);
    assert_eq!(count(&data, "documents_embedded"), 0);
    let status = bench.lore(["stats", "--json"]).data();
    assert_eq!(count(&status["embeddings"], "embedded"), 0);
    assert_eq!(count(&status["embeddings"], "pending"), count(&status["documents"], "total"));
}

#[test]
fn stats_check_repair_rebuilds_the_index_and_clears_orphans_with_true_counts() {
    let bench = Bench::demo();
    execute(
        &bench.database(),
        "INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
           SELECT 'delete', id, title, content_text, thread_text, terms_text FROM documents_fts_source WHERE id IN (3, 4);
         INSERT INTO dirty_sources(source_type, source_id, queued_at) VALUES ('discussion', 99999, 0);",
    );
    bench.lore(["stats", "--check"]).fails(22);
    let planned = bench.lore(["stats", "--check", "--repair", "--dry-run", "--json"]).data();
    let plan = &planned["integrity"]["repair"];
    assert_eq!((count(plan, "missing_fts_repopulated"), count(plan, "queue_entries_deleted")), (2, 1));
    bench.lore(["stats", "--check"]).fails(22);
    let repaired = bench.lore(["stats", "--check", "--repair", "--json"]).data();
    let done = &repaired["integrity"]["repair"];
    assert_eq!((count(done, "missing_fts_repopulated"), count(done, "queue_entries_deleted")), (2, 1));
    for name in ["orphaned_embeddings_deleted", "stale_embeddings_cleared"] {
        assert_eq!(count(done, name), 0, "{name}");
    }
    bench.lore(["stats", "--check"]).ok();
    let again = bench.lore(["stats", "--check", "--repair", "--json"]).data();
    assert_eq!(count(&again["integrity"]["repair"], "missing_fts_repopulated"), 0, "true counts");
}

/// Names that programs rely on.
#[test]
fn the_fields_of_the_answers_are_there() {
    let bench = Bench::demo();
    let answer = bench.lore(["status", "--json"]).json();
    assert_eq!(answer["ok"], true);
    for name in ["elapsed_ms", "schema"] {
        assert!(answer["meta"][name].is_number(), "meta.{name}");
    }
    let data = &answer["data"];
    for (group, names) in [
        ("documents", &["issues", "mrs", "discussions", "total", "truncated"][..]),
        ("embeddings", &["embedded", "pending", "failed", "coverage_pct"]),
        ("fts", &["indexed"]),
        (
            "queues",
            &[
                "dirty_sources",
                "dirty_sources_failed",
                "pending_discussion_fetches",
                "pending_discussion_fetches_failed",
            ],
        ),
    ] {
        for name in names {
            assert!(data[group][*name].is_number(), "data.{group}.{name} in {data}");
        }
    }
    let answer = search(&bench, &["upload", "--json"]).json();
    let data = &answer["data"];
    for name in ["query", "mode"] {
        assert!(data[name].is_string(), "data.{name}");
    }
    assert!(data["total_results"].is_number() && data["warnings"].is_array());
    assert!(answer["meta"]["pipeline"].as_array().unwrap().iter().all(|stage| stage["status"].is_string()));
    for result in data["results"].as_array().unwrap() {
        let names = result.as_object().unwrap();
        for name in [
            "document_id",
            "source_type",
            "title",
            "url",
            "project_path",
            "author",
            "created_at",
            "updated_at",
            "score",
            "snippet",
            "labels",
        ] {
            assert!(names.contains_key(name), "result.{name}");
        }
        assert!(!names.contains_key("explain"), "only with --explain");
    }
    let docs = bench.lore(["generate-docs", "--json"]).data();
    for name in ["issues", "mrs", "discussions", "total", "truncated", "skipped", "errored"] {
        count(&docs, name);
    }
}

/// Whatever fails, a program finds the same keys.
#[test]
fn a_failure_is_one_document_of_one_shape() {
    let bench = Bench::demo();
    for (args, code, exit) in [
        (&["search", "x", "--no-such-flag", "--json"][..], "USAGE", 2),
        (&["search", "x", "--mode", "psychic", "--json"], "INVALID_ENUM_VALUE", 13),
        (&["search", "?!", "--json"], "NO_USABLE_TOKENS", 2),
        (&["show", "#99999", "--json"], "REFERENCE_NOT_FOUND", 17),
        (&["run", "no-such-job", "--json"], "CONFIG_INVALID", 3),
        (&["status", "--database", "absent.db", "--json"], "DATABASE_VERSION", 11),
    ] {
        let output = bench.lore(args);
        let answer = output.json();
        assert_eq!(output.code, exit, "{args:?}: {answer}");
        assert_eq!(answer["ok"], false);
        assert_eq!(answer["error"]["code"], code, "{args:?}: {answer}");
        assert!(
            answer["error"]["message"].is_string() && answer["error"]["suggestion"].is_string(),
            "{answer}"
        );
        assert!(answer["error"].as_object().unwrap().contains_key("details"), "{answer}");
        assert!(answer["meta"]["elapsed_ms"].is_number() && answer["meta"]["schema"].is_number(), "{answer}");
    }
}
