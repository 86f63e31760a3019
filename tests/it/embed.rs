//! `embed` by the compiled binary, against an embedding server of our own.

use std::time::Duration;

use crate::metrics::series;
use crate::support::binary::{Bench, until};
use crate::support::dump::{number, open, try_number};
use crate::support::fake_embedder::{FakeEmbedder, Faults};

/// A bench with the sample project's documents, and a job that embeds them.
fn bench(server: &FakeEmbedder) -> Bench {
    let mut bench = Bench::demo();
    bench.write("embed.toml", "name = \"embed\"\n[steps.embed]\nwith = { batch = 8 }\n");
    bench
        .var("LORE__EMBEDDING__PROVIDER", "ollama")
        .var("LORE__EMBEDDING__URL", &server.url())
        .var("LORE__EMBEDDING__MODEL", "nomic-embed-text");
    bench
}

/// A document, a chunk's place in it, whether it is the title, hash of its text, vector.
type Row = (String, i64, i64, Vec<u8>, Vec<u8>);

/// What is embedded, without ids and times.
fn embedded(bench: &Bench) -> Vec<Row> {
    let connection = open(&bench.database());
    let mut statement = connection
        .prepare(
            "SELECT d.source_type || ' ' || d.source_id, c.ordinal, c.is_title, c.content_hash, v.vector
               FROM chunks c JOIN documents d ON d.id = c.document_id JOIN chunk_vectors v ON v.chunk_id = c.id
              ORDER BY 1, 2",
        )
        .unwrap();
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        .unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Vectors and texts agree: nothing missing, nothing orphaned, nothing twice.
fn assert_whole(bench: &Bench) {
    let path = bench.database();
    let vectors = number(&path, "SELECT count(*) FROM chunk_vectors");
    assert!(vectors > 0);
    for sql in [
        "SELECT count(*) FROM chunks WHERE last_error IS NULL",
        "SELECT coalesce(sum(chunk_count), 0) FROM chunked_documents",
        "SELECT count(*) FROM chunk_codes_1_rowids",
        "SELECT count(*) FROM chunk_codes_1_rowids r JOIN chunks c ON c.id = r.rowid JOIN chunk_vectors v ON v.chunk_id = c.id",
    ] {
        assert_eq!(number(&path, sql), vectors, "{sql}");
    }
    let stale = "SELECT count(*) FROM documents d LEFT JOIN chunked_documents c ON c.document_id = d.id
                  WHERE c.content_hash IS NOT d.content_hash OR c.is_stale = 1";
    assert_eq!(number(&path, stale), 0);
}

#[test]
fn a_run_embeds_every_document_once_and_the_next_asks_nobody() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = bench(&server);
    bench.lore(["run", "embed.toml", "--quiet"]).ok();
    assert_whole(&bench);
    for asked in server.asked() {
        assert_eq!(
            (asked.path.as_str(), asked.model.as_str(), asked.status),
            ("/api/embed", "nomic-embed-text", 200)
        );
        assert!((1..=8).contains(&asked.texts.len()));
    }
    assert!(server.texts().iter().all(|text| text.starts_with("search_document: ")));
    server.forget();
    bench.lore(["run", "embed.toml", "--quiet"]).ok();
    assert!(server.paths().is_empty(), "{:?}", server.paths());
}

#[test]
fn requests_to_the_embedding_service_are_counted_by_class_retries_and_waits() {
    let faults = Faults { limited: 1, retry_after: Some("1"), ..Faults::default() };
    let server = FakeEmbedder::new(faults);
    let mut bench = bench(&server);
    bench.lore(["run", "embed.toml", "--quiet"]).ok();
    let count = |bench: &Bench, class: &str| {
        let metrics = series(&bench.lore(["metrics"]).ok());
        metrics[&format!("lore_requests_total{{service=\"embedding\",status_class=\"{class}\"}}")]
    };
    let answered = server.asked().iter().filter(|asked| asked.status == 200).count();
    let looks = server.paths().len() - server.asked().len();
    assert_eq!(count(&bench, "2xx"), (answered + looks) as f64);
    assert_eq!(count(&bench, "4xx"), 1.0);
    let metrics = series(&bench.lore(["metrics"]).ok());
    assert_eq!(metrics["lore_request_retries_total{service=\"embedding\"}"], 1.0);
    assert!(metrics["lore_rate_limit_wait_seconds_total{service=\"embedding\"}"] >= 1.0);

    // One that does not answer is counted too, though its step fails.
    bench.var("LORE__EMBEDDING__MODEL", "another-model").var("LORE__EMBEDDING__URL", "http://127.0.0.1:1");
    bench.lore(["run", "embed.toml", "--quiet"]).fails(14);
    assert!(count(&bench, "none") >= 1.0);
}

#[test]
fn a3_01_a_run_killed_at_any_commit_is_completed_by_the_next() {
    let server = FakeEmbedder::new(Faults::default());
    let undisturbed = bench(&server);
    undisturbed.lore(["run", "embed.toml", "--quiet"]).ok();
    let expected = embedded(&undisturbed);
    let mut killed = 0;
    for point in ["before-commit", "after-commit"] {
        for n in 1..=40 {
            let bench = bench(&server);
            let mut command = bench.command(["run", "embed.toml", "--quiet"]);
            let output = command.env("LORE_FAULT", format!("{point}:{n}")).output().unwrap();
            if output.status.success() {
                break;
            }
            killed += 1;
            bench.lore(["run", "embed.toml", "--quiet"]).ok();
            assert_whole(&bench);
            assert!(embedded(&bench) == expected, "killed at {point}, time {n}");
        }
    }
    assert!(killed >= 4, "only {killed} kills: the points moved");
}

#[test]
fn a_server_that_is_down_exits_14_and_one_without_the_model_15() {
    let server = FakeEmbedder::new(Faults { tags: Some(vec!["other"]), ..Faults::default() });
    let mut bench = bench(&server);
    let error = bench.lore(["run", "embed.toml", "--quiet"]).fails(15);
    assert!(error.contains("ollama pull nomic-embed-text"), "{error}");
    server.change(|faults| faults.tags = Some(vec!["nomic-embed-text:latest"]));
    bench.var("LORE__EMBEDDING__URL", "http://user:S3CR3TVALUE@127.0.0.1:1");
    let error = bench.lore(["run", "embed.toml", "--quiet"]).fails(14);
    assert!(error.contains("127.0.0.1") && !error.contains("S3CR3TVALUE"), "{error}");
    let dump = std::fs::read(bench.database()).unwrap();
    assert!(!dump.windows(11).any(|bytes| bytes == b"S3CR3TVALUE"));
}

#[test]
fn a1_05_failing_texts_do_not_fail_the_run_and_are_counted() {
    let server = FakeEmbedder::new(Faults { max_chars: Some(120), ..Faults::default() });
    let bench = bench(&server);
    let data = bench.lore(["run", "embed.toml", "--json"]).data();
    let report = &data["steps"][0]["report"];
    let failed = report["counts"]["failed"].as_i64().unwrap();
    assert!(failed > 0, "{report}");
    assert_eq!(report["failing"].as_i64().unwrap(), failed);
    let recorded = number(
        &bench.database(),
        "SELECT count(DISTINCT document_id) FROM chunks WHERE last_error LIKE '%context length%'",
    );
    assert_eq!(recorded, failed);
}

#[test]
fn an_embedder_of_zeros_exits_16_and_texts_that_keep_failing_21_when_strict() {
    let server = FakeEmbedder::new(Faults { zero: Some(""), ..Faults::default() });
    let bench = bench(&server);
    let error = bench.lore(["embed", "--quiet"]).fails(16);
    assert!(error.contains("the vector is zero"), "{error}");
    server.change(|faults| faults.zero = Some("photos"));
    bench.lore(["embed", "--quiet"]).ok();
    assert!(number(&bench.database(), "SELECT count(*) FROM chunks WHERE last_error LIKE '%zero%'") > 0);
    bench.lore(["embed", "--strict", "--quiet"]).fails(21);
}

#[test]
fn vectors_are_stored_while_the_next_answer_is_slow() {
    let wait = Duration::from_secs(120);
    let server = FakeEmbedder::new(Faults { slow: Some(wait), slow_after: 3, ..Faults::default() });
    let bench = bench(&server);
    let slow = bench.spawn(["embed", "--set", "embed.batch=8", "--set", "embed.concurrency=1", "--quiet"]);
    until("the vectors of the first answers", || {
        try_number(&bench.database(), "SELECT count(*) FROM chunk_vectors").is_some_and(|n| n > 0)
    });
    drop(slow);
    let stored = number(&bench.database(), "SELECT count(*) FROM chunk_vectors");
    server.forget();
    server.change(|faults| faults.slow = None);
    bench.lore(["embed", "--quiet"]).ok();
    assert_whole(&bench);
    let all = number(&bench.database(), "SELECT count(*) FROM chunk_vectors");
    assert_eq!(server.texts().len() as i64, all - stored, "what was stored is not asked for again");
}

#[test]
fn shortcuts_obey_what_is_set_and_refuse_what_they_do_not_know() {
    let server = FakeEmbedder::new(Faults::default());
    let bench = bench(&server);
    assert_eq!(bench.lore(["embed", "--set", "embed.limit=5", "--json"]).data()["embedded"], 5);
    for (command, key) in
        [("embed", "embed.limitt"), ("generate-docs", "regenerate-docs.bogus"), ("sync", "x.y")]
    {
        let error = bench.lore([command, "--set", &format!("{key}=5")]).fails(2);
        assert!(error.contains("--set") && error.contains(key.split('.').next_back().unwrap()), "{error}");
    }
    let error = bench.lore(["embed", "--set", "embed.limit=many"]).fails(2);
    assert!(error.contains("many"), "{error}");
}

#[test]
fn what_failed_under_a_clock_that_was_ahead_does_not_wait_until_then() {
    let server = FakeEmbedder::new(Faults { zero: Some("photos"), ..Faults::default() });
    let mut bench = bench(&server);
    // Milliseconds: 3,000 days.
    let clock = bench.write("clock", "259200000000");
    bench.var("LORE_FAULT_CLOCK", clock.to_str().unwrap());
    let failed = bench.lore(["embed", "--json"]).data()["failed"].as_i64().unwrap();
    assert!(failed > 0);
    bench.var("LORE_FAULT_CLOCK", "");
    server.change(|faults| faults.zero = None);
    let answer = bench.lore(["embed", "--json"]).data();
    assert_eq!((answer["embedded"].as_i64(), answer["failed"].as_i64()), (Some(failed), Some(0)), "{answer}");
}

#[test]
fn an_answer_that_breaks_off_is_told_from_a_server_that_is_not_there() {
    let server = FakeEmbedder::new(Faults { truncated: true, ..Faults::default() });
    let bench = bench(&server);
    let error = bench.lore(["embed", "--quiet"]).fails(14);
    assert!(error.contains("broke off") && !error.contains("ollama serve"), "{error}");
}
