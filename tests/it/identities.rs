//! The index changes hands, to another model, other dimensions, other passages and back, while
//! questions are asked: every answer comes from one index, and the coverage shown is true.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use serde_json::Value;

use crate::support::binary::Bench;
use crate::support::dump::open;
use crate::support::fake_embedder::{FakeEmbedder, Faults};

/// Model and tokens of a passage.
const FIRST: (&str, &str) = ("nomic-embed-text", "180");
const CONFIGURATIONS: [(&str, &str); 3] = [("wide-model", "180"), ("wide-model", "40"), FIRST];

/// Documents that one run embeds.
const SLICE: usize = 90;

fn server() -> FakeEmbedder {
    FakeEmbedder::new(Faults {
        tags: Some(vec!["nomic-embed-text:latest", "wide-model:latest"]),
        dims_of: Some(("wide-model", 96)),
        ..Faults::default()
    })
}

fn configure(bench: &mut Bench, server: &FakeEmbedder, (model, tokens): (&str, &str)) {
    bench
        .var("LORE__EMBEDDING__PROVIDER", "ollama")
        .var("LORE__EMBEDDING__URL", &server.url())
        .var("LORE__EMBEDDING__MODEL", model)
        .var("LORE__EMBEDDING__CHUNK_TOKENS", tokens);
}

/// Documents and cosines, as text.
fn answer(output: &Value) -> String {
    assert_eq!(output["ok"], true, "{output}");
    let results = output["data"]["results"].as_array().unwrap();
    assert!(!results.is_empty(), "{output}");
    let shown = |result: &Value| format!("{} {}", result["document_id"], result["explain"]["cosine"]);
    results.iter().map(shown).collect::<Vec<_>>().join(", ")
}

const QUESTION: [&str; 6] =
    ["query", "the upload of large files fails", "--mode", "semantic", "--explain", "--json"];

/// What is answered when everything is embedded so.
fn expected(server: &FakeEmbedder, configuration: (&str, &str)) -> String {
    let mut bench = Bench::demo();
    configure(&mut bench, server, configuration);
    bench.lore(["embed", "--quiet"]).ok();
    answer(&bench.lore(QUESTION).json())
}

/// Embedded and all documents, counted from the rows of what is answered from.
fn counted(connection: &Connection) -> (i64, i64) {
    connection
        .query_row(
            "SELECT (SELECT count(*) FROM documents d JOIN chunked_documents c ON c.document_id = d.id
                       JOIN embedding_identities i ON i.id = c.identity_id AND i.state = 'active'
                      WHERE c.content_hash = d.content_hash AND c.chunk_count =
                        (SELECT count(*) FROM chunks k JOIN chunk_vectors v ON v.chunk_id = k.id
                          WHERE k.document_id = d.id AND k.identity_id = i.id)),
                    (SELECT count(*) FROM documents)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap()
}

#[test]
fn while_the_index_changes_hands_every_answer_is_of_one_index_and_the_coverage_is_true() {
    let server = server();
    let mut known = vec![expected(&server, FIRST)];
    known.extend(CONFIGURATIONS.map(|configuration| expected(&server, configuration)));
    assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), 3, "each index answers in its own way");
    let mut bench = Bench::demo();
    configure(&mut bench, &server, FIRST);
    bench.lore(["embed", "--quiet"]).ok();
    bench.write("slice.toml", &format!("name = \"slice\"\n[steps.embed]\nwith = {{ limit = {SLICE} }}\n"));
    for (at, configuration) in CONFIGURATIONS.into_iter().enumerate() {
        configure(&mut bench, &server, configuration);
        let (old, new) = (&known[at], &known[at + 1]);
        let done = AtomicBool::new(false);
        let mut slices = 0;
        std::thread::scope(|scope| {
            // Asked all the time, while vectors are written and the index is switched.
            let asking = scope.spawn(|| {
                let mut answers = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    answers.push(answer(&bench.lore(QUESTION).json()));
                }
                answers
            });
            loop {
                bench.lore(["run", "slice.toml", "--quiet"]).ok();
                slices += 1;
                let status = bench.lore(["status", "--json"]).data();
                let shown = &status["embeddings"];
                let (embedded, total) = counted(&open(&bench.database()));
                assert_eq!(shown["embedded"], embedded, "{shown}");
                assert_eq!(shown["pending"], total - embedded, "{shown}");
                let percent = (embedded * 1_000 / total) as f64 / 10.0;
                assert_eq!(shown["coverage_pct"], percent, "{shown}");
                let has_switched = shown["building"].is_null();
                let now = answer(&bench.lore(QUESTION).json());
                assert_eq!(&now, if has_switched { new } else { old }, "{configuration:?}, slice {slices}");
                if has_switched {
                    break;
                }
                assert_eq!(embedded, total, "the old index is whole until the new one takes over");
                assert!(slices < 20, "{shown}");
            }
            done.store(true, Ordering::Relaxed);
            let answers = asking.join().unwrap();
            assert!(!answers.is_empty());
            for found in answers {
                assert!(found == *old || found == *new, "{configuration:?}: {found}");
            }
        });
        assert!(slices > 1, "it took several runs");
    }
}

#[test]
fn a_new_model_at_a_new_address_is_not_asked_before_it_has_an_index() {
    let (old, new) = (server(), server());
    let mut bench = Bench::demo();
    configure(&mut bench, &old, FIRST);
    bench.lore(["embed", "--quiet"]).ok();
    let before = answer(&bench.lore(QUESTION).json());
    configure(&mut bench, &new, ("wide-model", "180"));
    // Another question, whose vector is in no cache.
    let mut other = QUESTION;
    other[1] = "photos vanish from the album";
    assert!(!answer(&bench.lore(other).json()).is_empty());
    assert_eq!(answer(&bench.lore(QUESTION).json()), before);
    assert_eq!(new.texts(), Vec::<String>::new(), "nothing of it can be compared with the index");
    bench.lore(["embed", "--quiet"]).ok();
    assert!(!answer(&bench.lore(other).json()).is_empty());
    assert!(new.texts().iter().any(|text| text.contains("photos vanish")));
}
