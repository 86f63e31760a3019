//! CPU time of whole hybrid queries with every local stage, stage by stage.
//!
//! `cargo bench --bench funnel` after `cargo bench --bench lexical`, whose database (100,000
//! documents unless `LORE_BENCH_DOCS` says otherwise) it copies and gives references and
//! vectors. Vectors of the questions are taken from the cache: embedding is not counted, and no
//! service is asked. Times are those of this process, pages warm.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and may fail loudly")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lore::config::{EmbeddingConfig, QueryConfig};
use lore::search::filter::Scope;
use lore::search::meaning::Service;
use lore::search::wanted::Wanted;
use lore::search::{self, Group, Mode, Options, Request, Settings};
use lore::store::embeddings::{self, ChunkVector, NewChunk, NewIdentity};
use lore::store::{OpenOptions, Store};
use rusqlite::{Connection, params};
use rustix::time::{ClockId, clock_gettime};

const DIMS: usize = 384;
const QUESTIONS: i64 = 200;

/// SplitMix64: the same numbers everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn vector(&mut self) -> Vec<f32> {
        let unit = |random: &mut Self| (random.next() >> 40) as f32 / (1_u64 << 24) as f32 - 0.5;
        let vector: Vec<f32> = (0..DIMS).map(|_| unit(self)).collect();
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter().map(|value| value / norm).collect()
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

fn database(documents: i64) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
    let path = dir.join(format!("funnel-{documents}-v1.db"));
    if path.exists() {
        return path;
    }
    let unfinished = dir.join("funnel-unfinished.db");
    for end in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{end}", unfinished.display())));
    }
    std::fs::copy(dir.join(format!("lexical-{documents}-v4.db")), &unfinished)
        .unwrap_or_else(|error| panic!("run `cargo bench --bench lexical` first: {error}"));
    let store = Store::open(&unfinished, OpenOptions::default()).unwrap();
    let new = NewIdentity {
        hash: "bench",
        provider: "builtin",
        model: "synthetic",
        dims: DIMS,
        chunking: "none",
        query_prefix: "",
        document_prefix: "",
        endpoint: None,
    };
    let identity = store.write(|tx| embeddings::create(tx, &new, 0)).unwrap();
    let mut random = Random(7);
    for first in (1..=documents).step_by(500) {
        store
            .write(|tx| {
                for id in first..(first + 500).min(documents + 1) {
                    let chunk = |_| NewChunk {
                        hash: [0; 16],
                        is_title: false,
                        char_start: 0,
                        char_end: 0,
                        vector: ChunkVector::New(random.vector()),
                    };
                    let chunks: Vec<NewChunk> = (0..1 + id % 2).map(chunk).collect();
                    embeddings::write_document(tx, &identity, (id, "h"), &chunks, false, 0)?;
                }
                Ok(())
            })
            .unwrap();
    }
    store.write(|tx| embeddings::settle(tx, &identity, 0)).unwrap();
    drop(store);
    #[expect(clippy::disallowed_methods, reason = "rows for a bench")]
    let connection = Connection::open(&unfinished).unwrap();
    let tx = connection.unchecked_transaction().unwrap();
    tx.execute_batch(
        "INSERT OR IGNORE INTO issues(id, project_id, gitlab_id, iid, state, confidential, created_at, updated_at, content_hash, synced_at, title)
           SELECT item_id, project_id, id, item_iid, 'opened', 0, 0, 0, x'00', 0, '' FROM documents WHERE item_type = 'issue';
         INSERT OR IGNORE INTO merge_requests(id, project_id, gitlab_id, iid, state, created_at, updated_at, content_hash, synced_at, title)
           SELECT item_id, project_id, id, item_iid, 'opened', 0, 0, x'00', 0, '' FROM documents WHERE item_type = 'merge_request';",
    )
    .unwrap();
    for id in 1..=documents {
        for n in 0..2 {
            // A tenth of all items gets half of the references.
            let range = if n == 0 { documents } else { documents / 10 };
            let target = 1 + i64::try_from(random.next() >> 2).unwrap() % range;
            tx.prepare_cached(
                "INSERT OR IGNORE INTO document_refs(document_id, kind, target_type, target_path, target_iid)
                   SELECT ?1, ?3, d.item_type, p.path, d.item_iid FROM documents AS d JOIN projects AS p ON p.id = d.project_id
                    WHERE d.id = ?2",
            )
            .unwrap()
            .execute(params![id, target, if n == 0 { "mentions" } else { "closes" }])
            .unwrap();
        }
    }
    tx.commit().unwrap();
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    drop(connection);
    std::fs::rename(&unfinished, &path).unwrap();
    path
}

/// Questions of several words: titles of documents.
fn questions(path: &Path) -> Vec<String> {
    #[expect(clippy::disallowed_methods, reason = "reads for a bench")]
    let connection = Connection::open(path).unwrap();
    let last: i64 = connection.query_row("SELECT max(id) FROM documents", [], |row| row.get(0)).unwrap();
    let mut statement = connection
        .prepare("SELECT title FROM documents WHERE title IS NOT NULL AND id % ?1 = 0 ORDER BY id LIMIT ?2")
        .unwrap();
    let rows = statement.query_map([(last / QUESTIONS / 2).max(1), QUESTIONS], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn main() {
    let documents =
        std::env::var_os("LORE_BENCH_DOCS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(100_000);
    let path = database(documents);
    let questions = questions(&path);
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    let identity = store.read(embeddings::active).unwrap().unwrap();
    let mut random = Random(9);
    store
        .write(|tx| {
            questions
                .iter()
                .try_for_each(|text| embeddings::remember_query(tx, identity.id, text, &random.vector(), 0))
        })
        .unwrap();
    drop(store);
    let store = Store::open_read_only(&path, OpenOptions::default()).unwrap();
    let config = EmbeddingConfig::default();
    let service =
        Service { config: &config, vars: &|_| None, memory: &|| Store::open(&path, OpenOptions::default()) };
    for (name, mode, explain) in [
        ("lexical", Mode::Lexical, false),
        ("hybrid", Mode::Hybrid, false),
        ("hybrid, explained", Mode::Hybrid, true),
    ] {
        let mut times = Vec::new();
        let mut stages: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (at, text) in questions.iter().chain(&questions).enumerate() {
            let request = Request {
                text: text.clone(),
                like: None,
                flags: Wanted::default(),
                mode,
                raw: false,
                group: Group::Item,
                limit: 20,
                offset: 0,
                min_score: None,
                scope: Scope::default(),
                settings: Settings { ..Settings::of_config(&QueryConfig::default()) },
                now: 1_700_000_000_000,
                options: Options { explain, ..Options::default() },
            };
            let started = cpu();
            let answer = search::answer_with(&store, Some(&service), &request).unwrap();
            let took = cpu() - started;
            // The first round warms.
            if at >= questions.len() {
                times.push(took.as_secs_f64() * 1e3);
                for stage in answer.stages {
                    stages.entry(stage.name).or_default().push(stage.elapsed.as_secs_f64() * 1e3);
                }
            }
        }
        let median = |list: &mut Vec<f64>, part: f64| {
            list.sort_by(f64::total_cmp);
            list[((list.len() - 1) as f64 * part) as usize]
        };
        println!(
            "{name}: p50 {:.2} ms, p95 {:.2} ms of CPU over {} questions",
            median(&mut times, 0.5),
            median(&mut times, 0.95),
            times.len()
        );
        for (stage, mut list) in stages {
            println!("    {stage:<11} p50 {:>7.3} ms (wall)", median(&mut list, 0.5));
        }
    }
}
