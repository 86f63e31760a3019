//! Speed and recall of nearest neighbours, and the rate at which `embed` stores vectors.
//!
//! `cargo bench --bench knn`. `LORE_BENCH_DOCS` (default 66667) documents with one to three
//! passages each, two on average, 384 dimensions, in clusters whose sizes follow Zipf's law.
//! Inside a cluster vectors differ in 24 directions of its own and a little in all others: as
//! those of texts do, which lie in far fewer dimensions than they have.
//! CPU time of this process, queries warm. The vectors are made once and kept under
//! `target/bench-data`. `LORE_BENCH_EMBED=0` leaves the second part out.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and may fail loudly")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lore::config::{Config, EmbeddingProvider};
use lore::engine::cancel::Cancel;
use lore::engine::ctx::{RunOptions, StepCtx};
use lore::engine::progress::{Progress, ProgressMode};
use lore::engine::step::Step;
use lore::steps::embed::Embed;
use lore::store::embeddings::{self, ChunkVector, Identity, NewChunk, NewIdentity};
use lore::store::knn::{self, NearestQuery, half};
use lore::store::{OpenOptions, Store};
use rusqlite::{Connection, params};
use rustix::time::{ClockId, clock_gettime};

const DIMS: usize = 384;
const CLUSTERS: usize = 3_000;
const QUERIES: usize = 60;
const LIMIT: usize = 100;

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

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// About normally distributed.
    fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() - 3.0
    }
}

/// Texts on one subject lie near each other, and all texts share a direction.
struct Space {
    centres: Vec<Vec<f32>>,
    directions: Vec<Vec<f32>>,
    cumulated: Vec<f32>,
}

impl Space {
    fn new() -> Self {
        let mut random = Random(1);
        let mean: Vec<f32> = (0..DIMS).map(|_| 0.4 * random.normal()).collect();
        let centres =
            (0..CLUSTERS).map(|_| mean.iter().map(|mean| mean + random.normal()).collect()).collect();
        let directions = (0..4_096).map(|_| (0..DIMS).map(|_| random.normal()).collect()).collect();
        let mut sum = 0.0;
        let cumulated = (1..=CLUSTERS)
            .map(|rank| {
                sum += 1.0 / rank as f32;
                sum
            })
            .collect();
        Self { centres, directions, cumulated }
    }

    fn vector(&self, random: &mut Random) -> Vec<f32> {
        let total = self.cumulated.last().copied().unwrap();
        let at = random.unit() * total;
        let cluster = self.cumulated.partition_point(|sum| *sum < at).min(CLUSTERS - 1);
        let mut vector: Vec<f32> =
            self.centres[cluster].iter().map(|centre| centre + 0.15 * random.normal()).collect();
        for n in 0..24 {
            let weight = 0.25 * random.normal();
            let direction = &self.directions[(cluster * 131 + n * 17) % self.directions.len()];
            for (value, part) in vector.iter_mut().zip(direction) {
                *value += weight * part;
            }
        }
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter().map(|value| value / norm).collect()
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}

fn milliseconds(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    (at(0.5), at(0.95))
}

fn data(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
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

/// A database of vectors, made once.
fn vectors(documents: i64, space: &Space) -> PathBuf {
    let path = data(&format!("knn-v2-{documents}.db"));
    if path.exists() {
        return path;
    }
    let unfinished = data("knn-unfinished.db");
    for end in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{end}", unfinished.display())));
    }
    put_documents(&unfinished, documents, "text");
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
    let mut random = Random(2);
    let (mut chunks, started) = (0, cpu());
    let mut storing = Duration::ZERO;
    for first in (1..=documents).step_by(250) {
        let batch: Vec<(i64, Vec<NewChunk>)> = (first..(first + 250).min(documents + 1))
            .map(|id| {
                let n = 1 + id % 3;
                let chunk = |_| NewChunk {
                    hash: [0; 16],
                    is_title: false,
                    char_start: 0,
                    char_end: 0,
                    vector: ChunkVector::New(space.vector(&mut random)),
                };
                (id, (0..n).map(chunk).collect())
            })
            .collect();
        let began = cpu();
        store
            .write(|tx| {
                for (id, list) in &batch {
                    chunks += list.len();
                    embeddings::write_document(tx, &identity, (*id, &format!("h{id}")), list, false, 0)?;
                }
                Ok(())
            })
            .unwrap();
        storing += cpu() - began;
    }
    let rate = chunks as f64 / storing.as_secs_f64();
    println!(
        "stored {chunks} vectors in {:.1} s of CPU ({rate:.0}/s), {:.1} s with making them",
        storing.as_secs_f64(),
        (cpu() - started).as_secs_f64()
    );
    drop(store);
    #[expect(clippy::disallowed_methods, reason = "folds the log back")]
    Connection::open(&unfinished).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    std::fs::rename(&unfinished, &path).unwrap();
    path
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

fn search(path: &Path, documents: i64, space: &Space) {
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
    let size = std::fs::metadata(path).unwrap().len() as f64 / 1e6;
    println!("{documents} documents, {} vectors x {DIMS}, {size:.0} MB", all.len());
    println!(
        "{:>10} {:>8} {:>8} {:>10} {:>10} {:>9}  way",
        "filter", "p50 ms", "p95 ms", "recall@10", "@100", "compared"
    );
    for (name, part) in [
        ("none", None),
        ("50 %", Some(0.5)),
        ("10 %", Some(0.1)),
        ("1 %", Some(0.01)),
        ("0.1 %", Some(0.001)),
    ] {
        let allowed = part.map(|part| filter(documents, part));
        let mut random = Random(3);
        let (mut times, mut found, mut found_100, mut compared) = (Vec::new(), 0.0, 0.0, 0);
        let mut way = knn::Way::Exact;
        for turn in 0..=QUERIES {
            let vector = space.vector(&mut random);
            let query = NearestQuery {
                identity: &identity,
                vector: &vector,
                allowed: allowed.as_deref(),
                limit: LIMIT,
            };
            let started = cpu();
            let answer = store.read(|tx| knn::nearest(tx, &query)).unwrap();
            if turn > 0 {
                times.push(cpu() - started);
            }
            if turn % 3 == 0 {
                let truth = exact(&all, &vector, allowed.as_deref(), LIMIT);
                let ids: Vec<i64> = answer.hits.iter().map(|hit| hit.document_id).collect();
                let recall = |n: usize| {
                    let truth = &truth[..n.min(truth.len())];
                    truth.iter().filter(|id| ids[..n.min(ids.len())].contains(id)).count() as f64
                        / truth.len().max(1) as f64
                };
                found += recall(10) / (QUERIES / 3 + 1) as f64;
                found_100 += recall(100) / (QUERIES / 3 + 1) as f64;
            }
            (way, compared) = (answer.way, answer.compared);
        }
        let (p50, p95) = milliseconds(times);
        println!("{name:>10} {p50:>8.2} {p95:>8.2} {found:>10.4} {found_100:>10.4} {compared:>9}  {way:?}");
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
    let (wall, started) = (Instant::now(), cpu());
    let report = Embed::default().run(&ctx).unwrap();
    let (wall, spent) = (wall.elapsed().as_secs_f64(), (cpu() - started).as_secs_f64());
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
    #[expect(clippy::disallowed_methods, reason = "size of the bench")]
    let (documents, with_embed) = (
        std::env::var("LORE_BENCH_DOCS").ok().and_then(|n| n.parse().ok()).unwrap_or(66_667),
        std::env::var("LORE_BENCH_EMBED").map_or(true, |value| value != "0"),
    );
    let space = Space::new();
    search(&vectors(documents, &space), documents, &space);
    if with_embed {
        embed();
    }
}
