use super::*;
use crate::config::{Config, EmbeddingProvider};
use crate::embed::identity::Target;
use crate::engine::cancel::{Cancel, StopReason};
use crate::engine::ctx::RunOptions;
use crate::engine::progress::{Progress, ProgressMode};
use crate::error::{Error, ErrorKind};
use crate::fake_embedder::{FakeEmbedder, Faults, vector_of};
use crate::secret::SecretRef;
use crate::store::Store;
use crate::store::embeddings::tests::{put, store};
use crate::store::knn::{self, NearestQuery};

struct Bench {
    _dir: tempfile::TempDir,
    store: Store,
    runtime: tokio::runtime::Runtime,
    config: Config,
    cancel: Cancel,
    options: RunOptions,
    step: Embed,
    server: FakeEmbedder,
}

impl Bench {
    fn new(faults: Faults) -> Self {
        let (dir, store) = store();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let server = FakeEmbedder::new(faults);
        let mut config = Config::default();
        config.embedding.provider = EmbeddingProvider::Ollama;
        config.embedding.url = Some(server.url());
        Self {
            _dir: dir,
            store,
            runtime,
            config,
            cancel: Cancel::new(),
            options: RunOptions::default(),
            step: Embed::default(),
            server,
        }
    }

    fn of(provider: EmbeddingProvider, faults: Faults) -> Self {
        let mut bench = Self::new(faults);
        bench.config.embedding.provider = provider;
        bench.config.embedding.model = Some("m".to_owned());
        bench
    }

    fn put(&self, iid: i64, title: &str, body: &str) -> i64 {
        self.store.write(|tx| put(tx, iid, title, body)).unwrap()
    }

    fn put_many(&self, n: i64) {
        self.store
            .write(|tx| {
                (1..=n).try_for_each(|iid| {
                    put(tx, iid, &format!("title{iid}"), &format!("text{iid} of it")).map(drop)
                })
            })
            .unwrap();
    }

    fn run(&self) -> Result<StepReport> {
        let ctx = StepCtx {
            store: &self.store,
            config: &self.config,
            vars: &|name| (name == "TOKEN").then(|| "S3CR3TVALUE".to_owned()),
            runtime: self.runtime.handle().clone(),
            cancel: self.cancel.clone(),
            deadline: None,
            options: self.options,
            progress: Progress::new("embed", ProgressMode::Silent),
            shared: crate::engine::shared::Shared::default(),
        };
        Step::run(&self.step, &ctx)
    }

    /// Runs the step; returns documents embedded and failed.
    #[track_caller]
    fn embed(&self) -> (i64, i64) {
        let report = self.run().unwrap();
        let found = self.store.read(embeddings::findings).unwrap();
        assert!(found.is_empty(), "{found:?}");
        (report.count("embedded"), report.count("failed"))
    }

    fn coverage(&self) -> embeddings::Coverage {
        self.store.read(embeddings::coverage).unwrap()
    }

    /// Documents nearest to a text, as a query would find them.
    fn search(&self, text: &str, limit: usize) -> Vec<i64> {
        let identity = self.store.read(embeddings::active).unwrap().unwrap();
        let vector = vector_of(text, identity.dims);
        let query = NearestQuery { identity: &identity, vector: &vector, allowed: None, limit };
        let found = self.store.read(|tx| knn::nearest(tx, &query)).unwrap();
        assert!(found.hits.iter().all(|hit| (-1.0..=1.0).contains(&hit.similarity)));
        found.hits.iter().map(|hit| hit.document_id).collect()
    }

    fn asked(&self) -> usize {
        self.server.asked().len()
    }

    fn embedder(&self) -> Embedder {
        Embedder::new(&self.config.embedding, &|_| None).unwrap()
    }
}

#[test]
fn a1_01_one_text_over_the_limit_does_not_fail_the_others() {
    let bench = Bench::new(Faults { max_chars: Some(2_000), ..Faults::default() });
    bench.put(1, "long", &"word ".repeat(1_800));
    bench.put(2, "short", "a short text of about forty characters");
    bench.put(3, "short", "another short text of forty characters");
    assert_eq!(bench.embed(), (3, 0));
    assert_eq!(bench.coverage().coverage_pct, 100.0);
}

#[test]
fn a1_01_what_no_cut_helps_is_reported_alone_with_the_servers_text() {
    let bench = Bench::new(Faults { max_chars: Some(100), ..Faults::default() });
    bench.put(1, "long", &"word ".repeat(100));
    bench.put(2, "short", "text");
    let report = bench.run().unwrap();
    assert_eq!((report.count("embedded"), report.count("failed"), report.failing), (1, 1, 1));
    let error: String = bench.store.read(|tx| Ok(embeddings::failing(tx, 10)?.remove(0).error)).unwrap();
    assert!(error.contains("exceeds the context length"), "{error}");
}

#[test]
fn a1_02_a_dense_text_is_isolated_with_few_requests() {
    let bench = Bench::new(Faults { max_tokens: Some(2_048), ..Faults::default() });
    for iid in 1..=8 {
        let body = if iid == 4 {
            "${{ x }}: =\n".repeat(725)
        } else {
            "plain prose of the kind people write ".repeat(5)
        };
        bench.put(iid, "t", &body);
    }
    assert_eq!(bench.embed(), (8, 0));
    assert!(bench.asked() <= 20, "{} requests", bench.asked());
}

#[test]
fn a1_04_the_tail_of_a_long_text_is_found_by_meaning() {
    let bench = Bench::new(Faults { silent_cut: Some(8_000), dims: 512, ..Faults::default() });
    let common = "lorem ipsum dolor sit amet consectetur ".repeat(750);
    let a = bench.put(1, "same title", &format!("{common}\n\nkerberos ticket expired"));
    let b = bench.put(2, "same title", &format!("{common}\n\ninvoice rounding wrong"));
    assert_eq!(bench.embed(), (2, 0));
    assert_eq!(bench.search("invoice rounding wrong", 2), [b, a]);
    assert_eq!(bench.search("kerberos ticket expired", 2), [a, b]);
}

#[test]
fn a1_05_a_text_that_gives_nan_fails_alone_and_is_not_tried_without_end() {
    let bench = Bench::new(Faults { nan: Some("NANBAIT"), ..Faults::default() });
    for iid in 1..=5 {
        bench.put(iid, &format!("title {iid}"), if iid == 3 { "text NANBAIT text" } else { "text" });
    }
    let report = bench.run().unwrap();
    assert_eq!((report.count("embedded"), report.count("failed"), report.failing), (4, 1, 1));
    let bait = bench
        .server
        .asked()
        .iter()
        .filter(|asked| asked.texts.iter().any(|text| text.contains("NANBAIT")))
        .count();
    assert!(bait <= 6, "{bait} requests with the bad text");
    assert_eq!(bench.coverage().failed, 1);
    // Later runs do not ask again before its time, unless they are told to.
    bench.server.forget();
    assert_eq!(bench.embed(), (0, 0));
    assert_eq!(bench.asked(), 0);
    let mut bench = bench;
    bench.options.retry_failed = true;
    assert_eq!(bench.embed(), (0, 1));
    assert_eq!(bench.server.asked().last().unwrap().texts.len(), 1, "only the failed passage");
    // The cure: a server that can.
    bench.server.change(|faults| faults.nan = None);
    assert_eq!(bench.embed(), (1, 0));
    assert_eq!(bench.coverage().failed, 0);
}

#[test]
fn a_service_that_refuses_everything_blames_no_text() {
    let bench = Bench::new(Faults { broken: true, ..Faults::default() });
    bench.put_many(3);
    let error = bench.run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EmbeddingFailed);
    assert!(error.to_string().contains("llama runner"), "{error}");
    let coverage = bench.coverage();
    assert_eq!((coverage.failed, coverage.pending), (0, 3));
}

#[test]
fn a1_07_a_blank_document_is_no_failure_and_gets_nobodys_vector() {
    let bench = Bench::new(Faults::default());
    let blank = bench.put(1, " ", "  \n ");
    bench.put(2, "printer", "paper jam");
    let report = bench.run().unwrap();
    assert_eq!((report.count("embedded"), report.count("skipped"), report.count("failed")), (1, 1, 0));
    assert!(bench.server.texts().iter().all(|text| !text.trim().is_empty()));
    assert!(!bench.search("printer", 10).contains(&blank));
    assert_eq!(bench.coverage().pending, 0);
    assert_eq!(bench.embed(), (0, 0));
}

#[test]
fn a1_08_empty_vectors_store_nothing_and_say_so() {
    for provider in [EmbeddingProvider::Openai, EmbeddingProvider::Ollama] {
        let mut bench = Bench::of(provider, Faults { empty_vectors: true, ..Faults::default() });
        bench.config.embedding.model = Some("nomic-embed-text".to_owned());
        bench.put_many(3);
        let error = bench.run().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EmbeddingFailed);
        assert!(error.to_string().contains("0 dimensions, expected 768"), "{error}");
        assert_eq!((bench.coverage().chunks, bench.coverage().pending), (0, 3));
    }
}

#[test]
fn a1_10_a_server_that_mixes_up_a_batch_is_found_out() {
    let bench = Bench::new(Faults::default());
    let good = bench.runtime.block_on(bench.embedder().probe()).unwrap();
    assert!(good.batch_similarity > 0.999 && good.dims == 64, "{good:?}");
    bench.server.change(|faults| faults.rotate = true);
    let bad = bench.runtime.block_on(bench.embedder().probe()).unwrap();
    assert!(bad.batch_similarity < 0.9, "{bad:?}");
}

#[test]
fn a1_11_vectors_of_any_length_rank_alike() {
    let bodies =
        ["printer jam", "kerberos ticket expired", "invoice rounding", "printer ink", "ticket printer"];
    let ranked: Vec<Vec<i64>> = [0.0, 20.0]
        .into_iter()
        .flat_map(|norm| {
            let bench = Bench::new(Faults { norm, ..Faults::default() });
            (1..=20).for_each(|iid| {
                bench.put(iid, &format!("t{iid}"), bodies[iid as usize % 5]);
            });
            assert_eq!(bench.embed(), (20, 0));
            ["printer", "expired ticket", "invoice"].map(|query| bench.search(query, 5))
        })
        .collect();
    assert_eq!(ranked[..3], ranked[3..]);
}

#[test]
fn a1_12_another_spelling_of_the_model_is_no_other_model() {
    let mut bench = Bench::new(Faults { tags: Some(vec!["nomic-embed-text:latest"]), ..Faults::default() });
    bench.put_many(4);
    bench.config.embedding.model = Some("nomic-embed-text".to_owned());
    assert_eq!(bench.embed(), (4, 0));
    bench.config.embedding.model = Some("nomic-embed-text:latest".to_owned());
    bench.put(5, "new", "one");
    assert_eq!(bench.embed(), (1, 0));
}

#[test]
fn a_model_that_the_server_has_not_is_named_with_the_command_that_gets_it() {
    for tags in [vec!["nomic-embed-text-v2:latest"], vec![]] {
        let bench = Bench::new(Faults { tags: Some(tags), ..Faults::default() });
        bench.put_many(1);
        let error = bench.run().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EmbeddingModelNotFound);
        assert!(error.hints().iter().any(|hint| hint.contains("ollama pull nomic-embed-text")), "{error:?}");
        assert_eq!(bench.asked(), 0);
    }
}

#[test]
fn a1_14_the_model_is_sent_exactly_as_it_is_configured() {
    let mut bench = Bench::new(Faults { tags: Some(vec!["nomic-embed-text:v1.5"]), ..Faults::default() });
    bench.config.embedding.model = Some("nomic-embed-text:v1.5".to_owned());
    bench.put_many(3);
    assert_eq!(bench.embed(), (3, 0));
    assert!(bench.server.asked().iter().all(|asked| asked.model == "nomic-embed-text:v1.5"));
    assert_eq!(bench.coverage().identity.unwrap().model, "nomic-embed-text:v1.5");
}

#[test]
fn a1_15_the_path_of_a_proxy_is_kept() {
    for end in ["", "/"] {
        let mut bench = Bench::new(Faults { prefix: "/ollama", ..Faults::default() });
        bench.config.embedding.url = Some(format!("{}{end}", bench.server.url()));
        bench.put_many(1);
        assert_eq!(bench.embed(), (1, 0));
        assert_eq!(bench.server.paths(), ["/ollama/api/tags", "/ollama/api/embed"]);
    }
}

#[test]
fn a1_17_a_busy_server_is_asked_again_and_not_flooded() {
    let mut bench = Bench::new(Faults { busy: 3, ..Faults::default() });
    bench.step = Embed { batch: Some(16), concurrency: Some(8), ..Embed::default() };
    bench.put_many(40);
    assert_eq!(bench.embed(), (40, 0));
    // 40 documents are 80 passages: five requests of 16, and the three that were refused.
    assert_eq!(bench.asked(), 5 + 3);
}

#[test]
fn a1_18_a_late_first_answer_is_waited_for_once_and_a_query_does_not_wait() {
    let wait = Duration::from_millis(1_200);
    let mut bench = Bench::new(Faults { slow: Some(wait), ..Faults::default() });
    bench.put_many(1);
    assert_eq!(bench.embed(), (1, 0));
    assert_eq!(bench.asked(), 1);
    bench.server.forget();
    bench.config.embedding.query_timeout = Duration::from_millis(200);
    let started = Instant::now();
    let error = bench.runtime.block_on(bench.embedder().embed_query("x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EmbeddingUnavailable);
    assert!(started.elapsed() < wait, "{:?}", started.elapsed());
}

#[test]
fn a1_19_a_model_of_another_dimension_gets_an_index_of_its_own_without_dark_time() {
    let bench = Bench::new(Faults { dims: 32, ..Faults::default() });
    bench.put_many(6);
    assert_eq!(bench.embed(), (6, 0));
    let old = bench.coverage().identity.unwrap();
    bench.server.change(|faults| faults.dims = 48);
    // A query with the new model cannot be answered from the old index, and says both sizes.
    let embedder = Embedder::for_target(
        Target::of_index(EmbeddingProvider::Ollama, &old.model, old.dims, old.endpoint.as_deref(), "", ""),
        &bench.config.embedding,
        &|_| None,
    );
    let error = bench.runtime.block_on(embedder.unwrap().embed_query("title1")).unwrap_err();
    assert!(error.to_string().contains("48") && error.to_string().contains("32"), "{error}");
    assert!(error.hints().iter().any(|hint| hint.contains("lore embed")));
    // One new document shows the change; all six and the new one are embedded anew.
    bench.put(7, "title7", "text7");
    assert_eq!(bench.embed(), (7, 0));
    let new = bench.coverage().identity.unwrap();
    assert_eq!((new.dims, bench.coverage().coverage_pct), (48, 100.0));
    assert_eq!(bench.search("title3", 1), [3]);
    // With `dims` in the configuration, another length is an error instead.
    let mut bench = bench;
    bench.config.embedding.dims = Some(48);
    bench.server.change(|faults| faults.dims = 32);
    bench.put(8, "title8", "text8");
    assert_eq!(bench.run().unwrap_err().kind(), ErrorKind::EmbeddingFailed);
    assert_eq!(bench.coverage().identity.unwrap().id, new.id);
}

#[test]
fn switching_model_and_chunking_and_back_answers_from_one_whole_index_at_every_moment() {
    let mut bench = Bench::new(Faults { tags: Some(vec!["a", "b"]), ..Faults::default() });
    bench.put_many(30);
    bench.config.embedding.model = Some("a".to_owned());
    assert_eq!(bench.embed(), (30, 0));
    bench.step.limit = Some(10);
    for (model, chunk_tokens) in [("b", 180), ("b", 100), ("a", 180)] {
        let before = bench.coverage().identity.unwrap();
        bench.config.embedding.model = Some(model.to_owned());
        bench.config.embedding.chunk_tokens = chunk_tokens;
        for run in 1..=3 {
            assert_eq!(bench.search("title9", 1), [9], "answered before run {run}");
            assert_eq!(bench.coverage().coverage_pct, 100.0);
            assert_eq!(bench.embed(), (10, 0));
            let now = bench.coverage();
            let identity = now.identity.unwrap();
            assert_eq!(identity.id == before.id, run < 3, "run {run}");
            assert_eq!(
                now.building.map(|building| building.coverage_pct),
                (run < 3).then(|| (run * 1000 / 3) as f64 / 10.0).map(|pct| pct.floor().max(if run == 1 {
                    33.3
                } else {
                    66.6
                }))
            );
        }
        assert_eq!(bench.coverage().identity.unwrap().model, model);
    }
    // A change that is taken back half-way leaves nothing behind.
    bench.config.embedding.model = Some("b".to_owned());
    assert_eq!(bench.embed(), (10, 0));
    bench.config.embedding.model = Some("a".to_owned());
    assert_eq!(bench.embed(), (0, 0));
    assert_eq!(bench.coverage().building, None);
    assert_eq!(bench.coverage().chunks, 60);
}

#[test]
fn a1_21_an_edited_text_is_stale_until_it_is_embedded_and_other_edits_cost_nothing() {
    let bench = Bench::new(Faults::default());
    let id = bench.put(1, "report", "printer jam");
    bench.put(2, "other", "printer ink");
    assert_eq!(bench.embed(), (2, 0));
    assert_eq!(bench.search("printer jam", 1), [id]);
    bench.put(1, "report", "kerberos ticket expired");
    assert_eq!(bench.coverage().coverage_pct, 50.0);
    bench.server.forget();
    assert_eq!(bench.embed(), (1, 0));
    assert_eq!(
        bench.server.texts(),
        ["search_document: report\nkerberos ticket expired"],
        "the title kept its vector"
    );
    assert_eq!(bench.search("kerberos ticket expired", 1), [id]);
    assert_eq!(bench.search("printer jam", 1), [2]);
    // Labels are no part of what is embedded.
    bench.store.write(|tx| crate::store::embeddings::tests::set_labels(tx, id)).unwrap();
    bench.server.forget();
    assert_eq!(bench.embed(), (0, 0));
    assert!(bench.server.paths().is_empty(), "nothing to do: nobody is asked");
}

#[test]
fn a1_22_passages_and_queries_get_the_prefixes_of_nomic_models_only() {
    let mut bench =
        Bench::new(Faults { tags: Some(vec!["nomic-embed-text", "mxbai-embed-large"]), ..Faults::default() });
    bench.put_many(1);
    assert_eq!(bench.embed(), (1, 0));
    bench.runtime.block_on(bench.embedder().embed_query("hello")).unwrap();
    let texts = bench.server.texts();
    assert_eq!(
        texts,
        ["search_document: title1", "search_document: title1\ntext1 of it", "search_query: hello"]
    );
    bench.server.forget();
    bench.config.embedding.model = Some("mxbai-embed-large".to_owned());
    assert_eq!(bench.embed(), (1, 0));
    assert!(bench.server.texts().iter().all(|text| !text.contains("search_")));
}

#[test]
fn a2_01_a_limit_of_texts_is_learned_from_the_message_from_info_or_by_halving() {
    let refused = |bench: &Bench| bench.server.asked().iter().filter(|asked| asked.status == 413).count();
    let step = Embed { batch: Some(100), concurrency: Some(4), ..Embed::default() };
    let mut bench = Bench::of(EmbeddingProvider::Tei, Faults { max_batch: Some(32), ..Faults::default() });
    bench.step = step.clone();
    bench.put_many(100);
    assert_eq!(bench.embed(), (100, 0));
    assert_eq!(refused(&bench), 1);

    let info = serde_json::json!({ "model_id": "sentence/model", "max_client_batch_size": 32, "max_batch_tokens": 16384 });
    let mut bench = Bench::of(
        EmbeddingProvider::Tei,
        Faults { max_batch: Some(32), info: Some(info), ..Faults::default() },
    );
    bench.config.embedding.model = None;
    bench.step = step.clone();
    bench.put_many(100);
    assert_eq!(bench.embed(), (100, 0));
    assert_eq!((refused(&bench), bench.coverage().identity.unwrap().model.as_str()), (0, "sentence/model"));

    let mut bench =
        Bench::of(EmbeddingProvider::Openai, Faults { max_batch_silent: Some(32), ..Faults::default() });
    bench.step = step;
    bench.put_many(100);
    assert_eq!(bench.embed(), (100, 0));
    assert!(refused(&bench) <= 3, "{} refused", refused(&bench));
}

#[test]
fn a2_03_requests_are_bounded_by_tokens_too() {
    let mut bench =
        Bench::of(EmbeddingProvider::Openai, Faults { max_request_tokens: Some(3_000), ..Faults::default() });
    bench.step.batch = Some(2_000);
    bench.config.embedding.batch_tokens = 1_000_000;
    bench.config.embedding.batch_chars = 10_000_000;
    for iid in 1..=10 {
        bench.put(iid, &format!("t{iid}"), &"some words of a long text ".repeat(300));
    }
    assert_eq!(bench.embed(), (10, 0));
    let refused = bench.server.asked().iter().filter(|asked| asked.status == 400).count();
    assert!(refused <= 16, "{refused} refused");
    // With the default bounds nothing is refused at all.
    let bench = Bench::of(
        EmbeddingProvider::Openai,
        Faults { max_request_tokens: Some(300_000), ..Faults::default() },
    );
    (1..=20).for_each(|iid| {
        bench.put(iid, "t", &"word ".repeat(1_600));
    });
    assert_eq!(bench.embed(), (20, 0));
    assert!(bench.server.asked().iter().all(|asked| asked.status == 200));
}

#[test]
fn a2_04_the_index_decides_whose_vector_it_is() {
    let bench = Bench::of(EmbeddingProvider::Openai, Faults { shuffle: true, ..Faults::default() });
    let words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliet"];
    let ids: Vec<i64> = (1..).zip(words).map(|(iid, word)| bench.put(iid, word, word)).collect();
    assert_eq!(bench.embed(), (10, 0));
    for (id, word) in ids.iter().zip(words) {
        assert_eq!(bench.search(word, 1), [*id]);
    }
    let bench = Bench::of(EmbeddingProvider::Openai, Faults { no_index: true, ..Faults::default() });
    bench.put_many(2);
    assert!(bench.run().unwrap_err().to_string().contains("without its index"));
    assert_eq!(bench.coverage().pending, 2);
}

#[test]
fn a2_06_a_rate_limit_is_waited_for_and_what_is_done_is_kept() {
    let mut bench = Bench::of(
        EmbeddingProvider::Openai,
        Faults { limited: 2, retry_after: Some("1"), ..Faults::default() },
    );
    bench.step.batch = Some(4);
    bench.put_many(20);
    let started = Instant::now();
    assert_eq!(bench.embed(), (20, 0));
    assert!(started.elapsed() >= Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn a2_16_every_spelling_of_the_base_reaches_the_endpoint() {
    for (end, path) in [
        ("", "/v1/embeddings"),
        ("/", "/v1/embeddings"),
        ("/v1", "/v1/embeddings"),
        ("/v1/", "/v1/embeddings"),
        ("/openai/v1", "/openai/v1/embeddings"),
    ] {
        let mut bench = Bench::of(EmbeddingProvider::Openai, Faults::default());
        bench.config.embedding.url = Some(format!("{}{end}", bench.server.url()));
        bench.put_many(1);
        assert_eq!(bench.embed(), (1, 0));
        assert_eq!(bench.server.paths(), [path]);
    }
}

fn all_of(error: &Error) -> String {
    format!("{error} {error:?} {:?} {:?}", error.hints(), error.details_value())
}

#[test]
fn a6_11_refused_credentials_are_reported_without_them() {
    let mut bench = Bench::of(EmbeddingProvider::Openai, Faults { refuse_token: true, ..Faults::default() });
    bench.config.embedding.token = Some(SecretRef { env: Some("TOKEN".to_owned()), file: None });
    let address = bench.server.url().replace("http://", "http://user:S3CR3TVALUE@");
    bench.config.embedding.url = Some(format!("{address}/?key=S3CR3TVALUE"));
    bench.put_many(1);
    let error = bench.run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert!(!all_of(&error).contains("S3CR3TVALUE"), "{}", all_of(&error));
    bench.config.embedding.url = Some("http://user:S3CR3TVALUE@127.0.0.1:1/?key=S3CR3TVALUE".to_owned());
    let error = bench.run().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::EmbeddingUnavailable);
    assert!(!all_of(&error).contains("S3CR3TVALUE"), "{}", all_of(&error));
}

#[test]
fn a_web_page_instead_of_vectors_is_reported_as_such() {
    for provider in [EmbeddingProvider::Ollama, EmbeddingProvider::Openai, EmbeddingProvider::Tei] {
        let bench = Bench::of(provider, Faults { web_page: true, ..Faults::default() });
        bench.put_many(1);
        let error = bench.run().unwrap_err();
        assert!(error.to_string().contains("a web page"), "{error}");
        assert_eq!(bench.coverage().failed, 0);
    }
}

#[test]
fn a_text_that_changes_while_its_vector_is_under_way_is_embedded_again() {
    let bench = Bench::new(Faults { slow: Some(Duration::from_millis(400)), ..Faults::default() });
    let id = bench.put(1, "t", "printer jam");
    std::thread::scope(|scope| {
        let running = scope.spawn(|| bench.run().unwrap());
        while bench.asked() == 0 && !running.is_finished() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        bench.put(1, "t", "kerberos ticket");
        assert_eq!(running.join().unwrap().count("embedded"), 1);
    });
    assert!(bench.store.read(embeddings::findings).unwrap().is_empty());
    assert!(bench.server.texts().iter().any(|text| text.ends_with("kerberos ticket")));
    assert_eq!(bench.search("kerberos ticket", 1), [id]);
    assert_eq!(bench.coverage().coverage_pct, 100.0);
}

#[test]
fn a_stop_ends_the_step_at_once_and_the_next_run_goes_on() {
    let mut bench = Bench::new(Faults { slow: Some(Duration::from_secs(20)), ..Faults::default() });
    bench.put_many(5);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| bench.run().unwrap_err());
        while bench.asked() == 0 && !running.is_finished() {
            std::thread::park_timeout(Duration::from_millis(5));
        }
        bench.cancel.cancel(StopReason::Terminated);
        assert_eq!(running.join().unwrap().kind(), ErrorKind::Terminated);
    });
    assert!(started.elapsed() < Duration::from_secs(5));
    bench.cancel = Cancel::new();
    assert_eq!(bench.embed(), (5, 0));
}

#[test]
fn limit_and_time_budget_leave_the_rest_for_the_next_run() {
    let mut bench = Bench::new(Faults::default());
    bench.put_many(10);
    bench.step.limit = Some(4);
    assert_eq!(bench.embed(), (4, 0));
    assert_eq!(bench.coverage().coverage_pct, 40.0);
    bench.step = Embed { time_budget: Some(Duration::ZERO), ..Embed::default() };
    let report = bench.run().unwrap();
    assert_eq!(report.count("embedded"), 0);
    assert!(report.warnings[0].contains("6 documents are left"), "{:?}", report.warnings);
    bench.step = Embed::default();
    assert_eq!(bench.embed(), (6, 0));
}

#[test]
fn an_empty_database_is_embedded_without_asking_anybody() {
    let bench = Bench::new(Faults::default());
    assert_eq!(bench.embed(), (0, 0));
    assert!(bench.server.paths().is_empty());
    assert_eq!(bench.coverage().coverage_pct, 100.0);
}

#[cfg(feature = "builtin-embedder")]
#[test]
fn the_builtin_model_embeds_without_a_server_and_finds_by_meaning() {
    let mut bench = Bench::new(Faults::default());
    bench.config.embedding = EmbeddingConfig::default();
    let ids = [
        bench.put(
            1,
            "Session token expires early",
            "The cookie is dropped after five minutes, people have to sign in again.",
        ),
        bench.put(2, "Printer prints blank pages", "Ink is there, paper too, the pages stay white."),
        bench.put(3, "Invoice totals are rounded wrong", "Sums of many positions are off by a cent."),
    ];
    assert_eq!(bench.embed(), (3, 0));
    let identity = bench.coverage().identity.unwrap();
    assert_eq!((identity.dims, identity.endpoint.as_deref()), (384, None));
    for (text, id) in [
        ("users are logged out at random", ids[0]),
        ("white sheets come out", ids[1]),
        ("wrong amount of money", ids[2]),
    ] {
        let vector = bench.runtime.block_on(bench.embedder().embed_query(text)).unwrap();
        let query = NearestQuery { identity: &identity, vector: &vector, allowed: None, limit: 3 };
        let found = bench.store.read(|tx| knn::nearest(tx, &query)).unwrap();
        assert_eq!(found.hits[0].document_id, id, "{text}");
    }
    assert!(bench.server.paths().is_empty());
    assert_eq!(bench.embed(), (0, 0));
    bench.config.embedding.model = Some("another".to_owned());
    assert_eq!(bench.run().unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn a_service_whose_vectors_are_all_zero_fails_the_step_whoever_it_is() {
    for provider in [EmbeddingProvider::Ollama, EmbeddingProvider::Openai, EmbeddingProvider::Tei] {
        let info = Some(serde_json::json!({ "model_id": "m", "max_client_batch_size": 32 }));
        let tags = Some(vec!["m:latest"]);
        let bench =
            Bench::of(provider, Faults { zero: Some(""), info: info.clone(), tags, ..Faults::default() });
        bench.put_many(40);
        let error = bench.run().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::EmbeddingFailed, "{provider:?}: {error}");
        assert!(error.to_string().contains("the vector is zero"), "{error}");
        assert!(bench.asked() <= 2, "{} requests", bench.asked());
        // And when an index is there: nothing is held against the texts.
        bench.server.change(|faults| faults.zero = None);
        assert_eq!(bench.embed(), (40, 0));
        bench.put(41, "new", "text");
        bench.server.change(|faults| faults.zero = Some(""));
        assert_eq!(bench.run().unwrap_err().kind(), ErrorKind::EmbeddingFailed, "{provider:?}");
        assert_eq!(bench.coverage().failed, 0);
    }
}

#[test]
fn a_text_whose_vector_is_zero_is_recorded_though_no_vector_was_made_before() {
    let bench = Bench::new(Faults { zero: Some("wombat"), ..Faults::default() });
    bench.put(1, "wombat", "wombat");
    assert_eq!(bench.embed(), (0, 1));
    let error: String = bench.store.read(|tx| Ok(embeddings::failing(tx, 10)?.remove(0).error)).unwrap();
    assert!(error.contains("the vector is zero"), "{error}");
    bench.put(2, "other", "text");
    assert_eq!(bench.embed(), (1, 0));
}
