//! Speed and recall of nearest neighbours, and the rate at which `embed` stores vectors.
//!
//! `cargo bench --bench knn`. `LORE_BENCH_DOCS` (default 66667) documents with one to three
//! passages each, two on average, with synthetic vectors of 384 dimensions; or the vectors of the
//! databases named in `LORE_BENCH_VECTORS` (the bench `quality` leaves some under
//! `target/bench-data`), asked with the questions of the collections in `LORE_BENCH_QUESTIONS`,
//! several separated by spaces; or those of `LORE_BENCH_DATABASE` (the bench `queries` makes one).
//! CPU time of this process, queries warm. The vectors are stored once and kept under
//! `target/bench-data`. `LORE_BENCH_EMBED=0` leaves the second part out, `LORE_BENCH_EVERY=10`
//! compares only every tenth answer with the exact one.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and may fail loudly")]

#[path = "common/data.rs"]
mod data;
#[path = "common/space.rs"]
mod space;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use data::process_cpu;
use lore::config::{Config, EmbeddingProvider};
use lore::engine::cancel::Cancel;
use lore::engine::ctx::{RunOptions, StepCtx};
use lore::engine::progress::{Progress, ProgressMode};
use lore::engine::step::Step;
use lore::steps::embed::Embed;
use lore::store::embeddings::{self, Identity, NewChunk, NewIdentity};
use lore::store::knn::{self, NearestQuery, half};
use lore::store::{OpenOptions, Store};
use rusqlite::{Connection, params};
use space::{DIMS, Random, Space};

const QUERIES: usize = 200;
const LIMIT: usize = 100;

fn milliseconds(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    (at(0.5), at(0.95))
}

fn put_documents(path: &Path, n: i64, body: &str) {
    drop(Store::open(path, OpenOptions::default()).unwrap());
    #[expect(clippy::disallowed_methods, reason = "rows for a bench")]
    let mut connection = Connection::open(path).unwrap();
    let tx = connection.transaction().unwrap();
    tx.execute("INSERT OR IGNORE INTO projects(id, source_name, path, created_at, updated_at) VALUES (1, 's', 'p', 0, 0)", []).unwrap();
    {
        let mut insert = tx
            .prepare(
                "INSERT INTO documents(source_type, source_id, project_id, item_type, item_id, item_iid, state, title, content_hash, content_text)
                 VALUES ('issue', ?1, 1, 'issue', ?1, ?1, 'opened', ?2, 'h' || ?1, ?3)",
            )
            .unwrap();
        for id in 1..=n {
            insert.execute(params![id, format!("title {id}"), format!("{body} {id}")]).unwrap();
        }
    }
    tx.commit().unwrap();
}

/// A database of synthetic vectors, made once.
fn synthetic(documents: i64, space: &Space) -> PathBuf {
    data::made_once(&format!("knn-v2-{documents}.db"), |path| {
        let mut random = Random(2);
        let vectors = (1..=documents).map(|id| (0..1 + id % 3).map(|_| space.vector(&mut random)).collect());
        store(path, documents, vectors);
    })
}

/// A database of the vectors of others, made once: their documents one after the other.
fn real(sources: &str) -> PathBuf {
    let read = |source: &str| -> Vec<Vec<Vec<f32>>> {
        #[expect(clippy::disallowed_methods, reason = "reads the vectors of another database")]
        let connection = Connection::open(source).unwrap();
        let mut statement = connection
            .prepare(
                "SELECT c.document_id, v.vector FROM chunks c JOIN chunk_vectors v ON v.chunk_id = c.id
                  JOIN embedding_identities i ON i.id = c.identity_id AND i.state = 'active'
                 WHERE length(v.vector) = ?1 ORDER BY 1, c.ordinal",
            )
            .unwrap();
        let mut rows = statement.query([DIMS as i64 * 2]).unwrap();
        let (mut documents, mut last) = (Vec::new(), 0_i64);
        while let Some(row) = rows.next().unwrap() {
            let id: i64 = row.get(0).unwrap();
            if id != last || documents.is_empty() {
                documents.push(Vec::new());
                last = id;
            }
            let vector = half::decode(row.get_ref(1).unwrap().as_blob().unwrap());
            documents.last_mut().unwrap().push(vector);
        }
        documents
    };
    let documents: Vec<Vec<Vec<f32>>> = sources.split_whitespace().flat_map(read).collect();
    let chunks: usize = documents.iter().map(Vec::len).sum();
    data::made_once(&format!("knn-real-{}-{chunks}.db", documents.len()), |path| {
        store(path, i64::try_from(documents.len()).unwrap(), documents.into_iter());
    })
}

/// Stores a document for each list of vectors.
fn store(path: &Path, documents: i64, vectors: impl Iterator<Item = Vec<Vec<f32>>>) {
    put_documents(path, documents, "text");
    let store = Store::open(path, OpenOptions::default()).unwrap();
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
    let (mut chunks, started) = (0, process_cpu());
    let mut storing = Duration::ZERO;
    let mut documents = (1_i64..).zip(vectors);
    loop {
        let batch: Vec<(i64, Vec<NewChunk>)> = documents
            .by_ref()
            .take(250)
            .map(|(id, list)| (id, list.into_iter().map(space::chunk).collect()))
            .collect();
        if batch.is_empty() {
            break;
        }
        let began = process_cpu();
        store
            .write(|tx| {
                for (id, list) in &batch {
                    chunks += list.len();
                    embeddings::write_document(tx, &identity, (*id, &format!("h{id}")), list, false, 0)?;
                }
                Ok(())
            })
            .unwrap();
        storing += process_cpu() - began;
    }
    println!(
        "{chunks} vectors: {:.1} s CPU, of it storing {:.1} s ({:.0} vectors a CPU second)",
        (process_cpu() - started).as_secs_f64(),
        storing.as_secs_f64(),
        chunks as f64 / storing.as_secs_f64()
    );
}

/// Questions of collections, embedded by the builtin model; `QUERIES` of them, spread evenly.
#[cfg(feature = "builtin-embedder")]
fn questions(directories: &str) -> Vec<Vec<f32>> {
    let builtin = lore::embed::builtin::Builtin::load().unwrap();
    let mut texts: Vec<String> = Vec::new();
    for directory in directories.split_whitespace() {
        let path = Path::new(directory).join("queries.jsonl");
        let mut text = String::new();
        match std::fs::File::open(&path) {
            Ok(mut file) => drop(file.read_to_string(&mut text).unwrap()),
            Err(_) => {
                let file = std::fs::File::open(path.with_extension("jsonl.gz")).unwrap();
                flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
            }
        }
        texts.extend(text.lines().map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            record["text"].as_str().unwrap_or_default().to_owned()
        }));
    }
    let n = texts.len();
    (0..=QUERIES).map(|at| builtin.embed_query(&texts[at * (n - 1) / QUERIES])).collect()
}

fn filter(documents: i64, part: f64) -> Vec<u8> {
    let mut random = Random(77);
    let mut set = vec![0_u8; usize::try_from(documents).unwrap() / 8 + 1];
    for id in 1..=usize::try_from(documents).unwrap() {
        if f64::from(random.unit()) < part {
            set[id / 8] |= 1 << (id % 8);
        }
    }
    set
}

/// Every stored vector, for the exact answer.
fn exact(all: &[(i64, Vec<u8>)], vector: &[f32], allowed: Option<&[u8]>, limit: usize) -> Vec<i64> {
    let mut best = std::collections::BTreeMap::<i64, f32>::new();
    for (id, stored) in all {
        let at = usize::try_from(*id).unwrap();
        if allowed.is_none_or(|set| set[at / 8] >> (at % 8) & 1 == 1) {
            let similarity = half::dot(vector, stored);
            best.entry(*id).and_modify(|seen| *seen = seen.max(similarity)).or_insert(similarity);
        }
    }
    let mut list: Vec<(i64, f32)> = best.into_iter().collect();
    list.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    list.into_iter().take(limit).map(|(id, _)| id).collect()
}

fn search(path: &Path, queries: &[Vec<f32>]) {
    let store = Store::open_read_only(path, OpenOptions::default()).unwrap();
    let identity: Identity = store.read(embeddings::active).unwrap().unwrap();
    #[expect(clippy::disallowed_methods, reason = "reads all vectors for the exact answer")]
    let connection = Connection::open(path).unwrap();
    let all: Vec<(i64, Vec<u8>)> = connection
        .prepare("SELECT c.document_id, v.vector FROM chunks c JOIN chunk_vectors v ON v.chunk_id = c.id")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    let documents: i64 =
        connection.query_row("SELECT max(document_id) FROM chunked_documents", [], |row| row.get(0)).unwrap();
    let size = std::fs::metadata(path).unwrap().len() as f64 / 1e6;
    #[expect(clippy::disallowed_methods, reason = "what the bench is to measure")]
    let every = std::env::var("LORE_BENCH_EVERY").ok().and_then(|n| n.parse().ok()).unwrap_or(1_usize);
    println!("{documents} documents, {} vectors x {DIMS}, {size:.0} MB", all.len());
    println!(
        "{:>11} {:>8} {:>8} {:>10} {:>10} {:>9}  way",
        "filter", "p50 ms", "p95 ms", "recall@10", "@100", "compared"
    );
    for (name, part) in [
        ("none", None),
        ("50 %", Some(0.5)),
        ("10 %", Some(0.1)),
        ("1 %", Some(0.01)),
        ("0.1 %", Some(0.001)),
        ("5 documents", Some(5.0 / documents as f64)),
    ] {
        let allowed = part.map(|part| filter(documents, part));
        let (mut times, mut found, mut found_100, mut compared) = (Vec::new(), 0.0, 0.0, 0);
        let mut way = knn::Way::Exact;
        let mut asked = 0.0;
        for (turn, vector) in queries.iter().enumerate() {
            let query =
                NearestQuery { identity: &identity, vector, allowed: allowed.as_deref(), limit: LIMIT };
            let started = process_cpu();
            let answer = store.read(|tx| knn::nearest(tx, &query)).unwrap();
            if turn > 0 {
                times.push(process_cpu() - started);
            }
            if turn % every == 0 {
                asked += 1.0;
                let truth = exact(&all, vector, allowed.as_deref(), LIMIT);
                let ids: Vec<i64> = answer.hits.iter().map(|hit| hit.document_id).collect();
                let recall = |n: usize| {
                    let truth = &truth[..n.min(truth.len())];
                    truth.iter().filter(|id| ids[..n.min(ids.len())].contains(id)).count() as f64
                        / truth.len().max(1) as f64
                };
                found += recall(10);
                found_100 += recall(100);
            }
            (way, compared) = (answer.way, answer.compared);
        }
        let (p50, p95) = milliseconds(times);
        (found, found_100) = (found / asked, found_100 / asked);
        println!("{name:>11} {p50:>8.2} {p95:>8.2} {found:>10.4} {found_100:>10.4} {compared:>9}  {way:?}");
    }
}

/// A server that answers every request at once, with vectors of 768 dimensions.
fn instant_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut random = Random(9);
    let vectors: Vec<String> = (0..64)
        .map(|_| {
            format!(
                "[{}]",
                (0..768).map(|_| format!("{:.7}", random.normal() / 28.0)).collect::<Vec<_>>().join(",")
            )
        })
        .collect();
    let vectors = Arc::new(vectors);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let vectors = Arc::clone(&vectors);
            std::thread::spawn(move || drop(serve(&stream.unwrap(), &vectors)));
        }
    });
    url
}

fn serve(mut stream: &TcpStream, vectors: &[String]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let lower = line.trim().to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if lower.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body = String::from_utf8(body).unwrap();
        let n = body.matches("search_document: ").count();
        let answer = if n == 0 {
            r#"{"models":[{"name":"nomic-embed-text:latest"}]}"#.to_owned()
        } else {
            let list: Vec<&str> =
                (0..n).map(|idx| vectors[(length + idx) % vectors.len()].as_str()).collect();
            format!("{{\"embeddings\":[{}]}}", list.join(","))
        };
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{answer}", answer.len())?;
    }
}

fn embed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("embed.db");
    put_documents(
        &path,
        10_000,
        &"the server refuses the token after an update of the cache index ".repeat(14),
    );
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut config = Config::default();
    config.embedding.provider = EmbeddingProvider::Ollama;
    config.embedding.url = Some(instant_server());
    let ctx = StepCtx {
        store: &store,
        config: &config,
        vars: &|_| None,
        runtime: runtime.handle().clone(),
        cancel: Cancel::new(),
        deadline: None,
        options: RunOptions::default(),
        progress: Progress::new("embed", ProgressMode::Silent),
        shared: lore::engine::shared::Shared::default(),
    };
    let (wall, started) = (Instant::now(), process_cpu());
    let report = Embed::default().run(&ctx).unwrap();
    let (wall, spent) = (wall.elapsed().as_secs_f64(), (process_cpu() - started).as_secs_f64());
    let chunks = report.count("chunks") as f64;
    println!(
        "embed, 768 dimensions, instant server in this process: {chunks} chunks of {} documents, {wall:.1} s wall ({:.0}/s), {spent:.1} s CPU ({:.0}/s), server included",
        report.count("embedded"),
        chunks / wall,
        chunks / spent
    );
    let wall = Instant::now();
    Embed::default().run(&ctx).unwrap();
    println!("embed with nothing to do: {:.1} ms wall", wall.elapsed().as_secs_f64() * 1000.0);
}

fn main() {
    #[expect(clippy::disallowed_methods, reason = "what the bench is to measure")]
    let var = |name: &str| std::env::var(name).ok();
    let documents = var("LORE_BENCH_DOCS").and_then(|n| n.parse().ok()).unwrap_or(66_667);
    let space = Space::new();
    let mut random = Random(3);
    let queries: Vec<Vec<f32>> = (0..=QUERIES).map(|_| space.vector(&mut random)).collect();
    match (var("LORE_BENCH_VECTORS"), var("LORE_BENCH_QUESTIONS"), var("LORE_BENCH_DATABASE")) {
        #[cfg(feature = "builtin-embedder")]
        (Some(sources), Some(directories), _) => search(&real(&sources), &questions(&directories)),
        (_, _, Some(database)) => search(Path::new(&database), &queries),
        _ => search(&synthetic(documents, &space), &queries),
    }
    if var("LORE_BENCH_EMBED").is_none_or(|value| value != "0") {
        embed();
    }
}
