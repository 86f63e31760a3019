//! The rows about embeddings of the table of smoke tests: the compiled binary, the sample
//! project and an embedding server of our own.

use serde_json::Value;

use crate::support::binary::Bench;
use crate::support::dump::{execute, number};
use crate::support::fake_embedder::{FakeEmbedder, Faults};

fn count(data: &Value, name: &str) -> i64 {
    data[name].as_i64().unwrap_or_else(|| panic!("{name} in {data}"))
}

fn bench(server: &FakeEmbedder) -> Bench {
    let mut bench = Bench::demo();
    bench.var("LORE__EMBEDDING__PROVIDER", "ollama").var("LORE__EMBEDDING__URL", &server.url());
    bench
}

#[test]
fn embed_completes_counts_match_and_again_embeds_none() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = bench(&server);
    let documents = number(&bench.database(), "SELECT count(*) FROM documents");
    let data = bench.lore(["embed", "--json"]).data();
    assert_eq!((count(&data, "embedded"), count(&data, "failed")), (documents, 0));
    let shown = bench.lore(["stats", "--json"]).data()["embeddings"].take();
    assert_eq!((count(&shown, "embedded"), count(&shown, "pending")), (documents, 0));
    assert_eq!(shown["coverage_pct"], 100.0);
    assert!(bench.lore(["stats"]).ok().contains("100"));
    server.forget();
    let again = bench.lore(["embed", "--json"]).data();
    assert_eq!(count(&again, "embedded"), 0);
    assert!(server.texts().is_empty(), "unchanged texts are not sent");
}

#[test]
fn embed_retry_failed_works_on_what_failed_and_on_nothing_else() {
    let server = FakeEmbedder::new(Faults { max_chars: Some(150), ..Faults::default() });
    let bench = bench(&server);
    let failed = count(&bench.lore(["embed", "--json"]).data(), "failed");
    assert!(failed > 0);
    server.change(|faults| faults.max_chars = None);
    server.forget();
    let data = bench.lore(["embed", "--retry-failed", "--json"]).data();
    assert_eq!((count(&data, "embedded"), count(&data, "failed")), (failed, 0));
    let prefix = "search_document: ".len();
    assert!(server.texts().iter().all(|text| text.chars().count() > 150 - prefix), "only those that failed");
}

#[test]
fn hybrid_explain_semantic_and_a_server_that_is_down() {
    let server = FakeEmbedder::new(Faults::default());
    let mut bench = bench(&server);
    bench.lore(["embed", "--quiet"]).ok();
    let found = bench.lore(["search", "upload of photos", "--explain", "--json"]).data();
    assert_eq!(found["mode"], "hybrid");
    let first = &found["results"][0]["explain"];
    for name in ["vector_rank", "fts_rank", "rrf_score"] {
        assert!(first[name].is_number(), "{name} in {first}");
    }
    let semantic = bench.lore(["search", "upload of photos", "--mode=semantic", "--json"]).data();
    assert!(!semantic["results"].as_array().unwrap().is_empty());
    bench.var("LORE__EMBEDDING__URL", "http://127.0.0.1:1");
    let without = bench.lore(["search", "photos on the phone", "--json"]).data();
    assert!(!without["results"].as_array().unwrap().is_empty());
    assert_eq!(without["mode"], "lexical");
    assert!(without["warnings"][0].as_str().unwrap().contains("by words alone"), "{without}");
    bench.lore(["search", "photos on the phone", "--mode=semantic"]).fails(14);
    bench.lore(["search", "photos on the phone", "--mode=lexical"]).ok();
}

#[test]
fn stats_check_repair_clears_orphaned_and_stale_vectors_with_true_counts() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = bench(&server);
    bench.lore(["embed", "--quiet"]).ok();
    let orphans = number(&bench.database(), "SELECT count(*) FROM chunks WHERE document_id IN (4, 5)");
    assert!(orphans > 1);
    execute(
        &bench.database(),
        "DELETE FROM chunked_documents WHERE document_id IN (4, 5);
         UPDATE chunked_documents SET content_hash = 'another', is_stale = 0 WHERE document_id IN (1, 2, 3);",
    );
    bench.lore(["stats", "--check"]).fails(22);
    let data = bench.lore(["stats", "--check", "--repair", "--json"]).data();
    let done = &data["integrity"]["repair"];
    assert_eq!((count(done, "orphaned_embeddings_deleted"), count(done, "stale_embeddings_cleared")), (2, 3));
    bench.lore(["stats", "--check"]).ok();
    bench.lore(["embed", "--quiet"]).ok();
    assert_eq!(bench.lore(["stats", "--json"]).data()["embeddings"]["coverage_pct"], 100.0);
}
