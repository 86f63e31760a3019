//! Speed of queries by words and hybrid ones over synthetic documents, references and vectors:
//! CPU time of the whole path in process with its stages, and wall time of a cold process.
//!
//! `cargo bench --bench queries`. `LORE_BENCH_DOCS` (default 100000) sets the size. The
//! database is made once and kept under `target/bench-data`, or in `LORE_BENCH_DATA`. Words follow Zipf's law
//! (s = 1.05, 200,000 of them, the commonest are English stop words), a document has about
//! 200. One query of each set is run once before, so that pages are warm.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and may fail loudly")]

#[path = "common/data.rs"]
mod data;
#[path = "common/space.rs"]
mod space;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use data::thread_cpu;
use lore::config::EmbeddingConfig;
use lore::embed::identity::Target;
use lore::search::filter::Scope;
use lore::search::meaning::Service;
use lore::search::wanted::Wanted;
use lore::search::{self, Group, Mode, Options, Request, Settings};
use lore::store::embeddings::{self, NewChunk, NewIdentity};
use lore::store::{OpenOptions, Store};
use rusqlite::{Connection, params};
use space::{DIMS, Random, Space};

const VOCABULARY: usize = 200_000;
const STOP_WORDS: &[&str] = &[
    "the", "of", "and", "to", "a", "in", "is", "it", "that", "for", "on", "with", "as", "this", "was", "be",
    "are", "by", "not", "at", "from", "or", "have", "an", "but", "when", "if", "we", "can", "has", "which",
    "there", "how", "does", "so", "what", "all", "do", "will", "you", "i", "would", "should", "after",
    "then",
];
/// Words around this rank are in one or two of a hundred documents.
const MIDDLE: std::ops::Range<usize> = 900..2_400;
/// Common words that are no stop words: in a fifth to half of all documents.
const COMMON: std::ops::Range<usize> = 60..110;
/// Words in a few documents.
const RARE: std::ops::Range<usize> = 60_000..150_000;
const QUERIES: usize = 60;

/// Words by rank, with the cumulative probabilities of Zipf's law.
struct Language {
    words: Vec<String>,
    cumulative: Vec<f64>,
}

impl Language {
    fn new() -> Self {
        let syllables: Vec<String> =
            "bdfgklmnprtvz".chars().flat_map(|c| "aeiou".chars().map(move |v| format!("{c}{v}"))).collect();
        let word = |rank: usize| {
            STOP_WORDS.get(rank).map_or_else(
                || {
                    // A bijection, so that every rank has its own word.
                    let mut n = rank + 65 * 65;
                    let mut text = String::new();
                    while n > 0 {
                        text.push_str(&syllables[n % 65]);
                        n /= 65;
                    }
                    text + "x"
                },
                |word| (*word).to_owned(),
            )
        };
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (0..VOCABULARY)
            .map(|rank| {
                sum += 1.0 / ((rank + 1) as f64).powf(1.05);
                sum
            })
            .collect();
        cumulative.iter_mut().for_each(|value| *value /= sum);
        Self { words: (0..VOCABULARY).map(word).collect(), cumulative }
    }

    fn text(&self, random: &mut Random, words: usize) -> String {
        let mut text = String::new();
        for at in 0..words {
            let point = unit(random);
            let rank = self.cumulative.partition_point(|value| *value < point).min(VOCABULARY - 1);
            if at > 0 {
                text.push(' ');
            }
            text.push_str(&self.words[rank]);
        }
        text
    }
}

fn below(random: &mut Random, n: usize) -> usize {
    (random.next() % n as u64) as usize
}

fn pick(random: &mut Random, range: std::ops::Range<usize>) -> usize {
    range.start + below(random, range.end - range.start)
}

fn unit(random: &mut Random) -> f64 {
    (random.next() >> 11) as f64 / (1_u64 << 53) as f64
}

fn database(documents: usize, language: &Language) -> PathBuf {
    data::made_once(&format!("queries-{documents}-v2.db"), |path| {
        drop(Store::open(path, OpenOptions::default()).unwrap());
        #[expect(clippy::disallowed_methods, reason = "the bench writes documents without the pipeline")]
        let connection = Connection::open(path).unwrap();
        fill(&connection, documents, language);
        refer(&connection, documents);
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        drop(connection);
        embed(path, documents);
    })
}

fn fill(connection: &Connection, documents: usize, language: &Language) {
    connection
        .execute_batch(
            "PRAGMA synchronous = OFF;
             CREATE TEMP TABLE stage AS SELECT * FROM documents LIMIT 0;",
        )
        .unwrap();
    for project in 1..=20 {
        connection
            .execute(
                "INSERT INTO projects(id, source_name, path, created_at, updated_at) VALUES (?1, 'bench', ?2, 0, 0)",
                params![project, format!("group/project-{project}")],
            )
            .unwrap();
    }
    let mut random = Random(42);
    let mut lengths = vec![[0_u16; 4]];
    let batch = 1_000;
    for first in (1..=documents).step_by(batch) {
        let tx = connection.unchecked_transaction().unwrap();
        for id in first..(first + batch).min(documents + 1) {
            let words = 60 + below(&mut random, 140) + below(&mut random, 140);
            let title = 4 + below(&mut random, 8);
            let kind = ["issue", "issue", "merge_request", "discussion"][below(&mut random, 4)];
            let item_type = if kind == "merge_request" { "merge_request" } else { "issue" };
            let project = 1 + below(&mut random, 20) * below(&mut random, 20) / 20;
            let updated = 1_600_000_000_000_i64 + below(&mut random, 100_000_000) as i64 * 1_000;
            let header = format!("[[{kind}]] #{id}\n");
            let text = format!("{header}{}", language.text(&mut random, words));
            lengths.push([if kind == "discussion" { 0 } else { title as u16 }, words as u16, 0, 0]);
            let title = (kind != "discussion").then(|| language.text(&mut random, title));
            tx.prepare_cached(
                "INSERT INTO temp.stage(id, source_type, source_id, project_id, item_type, item_id, item_iid, author_username, created_at,
                    updated_at, state, is_draft, is_confidential, is_internal, label_names, content_hash, source_hash, labels_hash, paths_hash, meta_hash,
                    is_truncated, body_start, title, terms_text, content_text, thread_text)
                 VALUES (?1, ?2, ?1, ?3, ?4, ?1, ?1, ?5, ?6, ?6, ?7, 0, ?8, 0, '[]', 'h', x'00', '', '', '', 0, ?9, ?10, '', ?11, '')",
            )
            .unwrap()
            .execute(params![
                id as i64, kind, project as i64, item_type, format!("user{}", below(&mut random, 200)), updated,
                ["opened", "closed", "closed", "merged"][below(&mut random, 4)], i64::from(below(&mut random, 100) == 0),
                header.chars().count() as i64, title, text,
            ])
            .unwrap();
            for label in [below(&mut random, 30), 30 + below(&mut random, 300)] {
                tx.prepare_cached("INSERT INTO document_labels VALUES (?1, ?2)")
                    .unwrap()
                    .execute(params![id as i64, format!("label-{label}")])
                    .ok();
            }
        }
        tx.execute_batch("PRAGMA defer_foreign_keys = ON; INSERT INTO documents SELECT * FROM temp.stage; DELETE FROM temp.stage;")
            .unwrap();
        tx.commit().unwrap();
    }
    let tx = connection.unchecked_transaction().unwrap();
    for (block, lengths) in lengths.chunks(1_024).enumerate() {
        let mut bytes: Vec<u8> = lengths.iter().flatten().flat_map(|length| length.to_le_bytes()).collect();
        bytes.resize(8_192, 0);
        tx.execute("INSERT INTO document_lengths VALUES (?1, ?2)", params![block as i64, bytes]).unwrap();
    }
    tx.commit().unwrap();
    connection.execute_batch("INSERT INTO documents_fts(documents_fts) VALUES ('optimize')").unwrap();
}

/// Two references of every document; a tenth of all items gets half of them.
fn refer(connection: &Connection, documents: usize) {
    let tx = connection.unchecked_transaction().unwrap();
    tx.execute_batch(
        "INSERT OR IGNORE INTO issues(id, project_id, gitlab_id, iid, state, confidential, created_at, updated_at, content_hash, synced_at, title)
           SELECT item_id, project_id, id, item_iid, 'opened', 0, 0, 0, x'00', 0, '' FROM documents WHERE item_type = 'issue';
         INSERT OR IGNORE INTO merge_requests(id, project_id, gitlab_id, iid, state, created_at, updated_at, content_hash, synced_at, title)
           SELECT item_id, project_id, id, item_iid, 'opened', 0, 0, x'00', 0, '' FROM documents WHERE item_type = 'merge_request';",
    )
    .unwrap();
    let mut random = Random(8);
    for id in 1..=documents {
        for (kind, range) in [("mentions", documents), ("closes", documents / 10)] {
            let target = 1 + below(&mut random, range);
            tx.prepare_cached(
                "INSERT OR IGNORE INTO document_refs(document_id, kind, target_type, target_path, target_iid)
                   SELECT ?1, ?3, d.item_type, p.path, d.item_iid FROM documents AS d JOIN projects AS p ON p.id = d.project_id
                    WHERE d.id = ?2",
            )
            .unwrap()
            .execute(params![id as i64, target as i64, kind])
            .unwrap();
        }
    }
    tx.commit().unwrap();
}

/// One vector for every other document, two for the others, as if the builtin model had made them.
fn embed(path: &Path, documents: usize) {
    let store = Store::open(path, OpenOptions::default()).unwrap();
    let target = Target::of_config(&EmbeddingConfig::default()).unwrap();
    let new = NewIdentity {
        hash: &target.hash(),
        provider: target.provider.as_str(),
        model: &target.model,
        dims: DIMS,
        chunking: &target.chunking(),
        query_prefix: &target.query_prefix,
        document_prefix: &target.document_prefix,
        endpoint: None,
    };
    let identity = store.write(|tx| embeddings::create(tx, &new, 0)).unwrap();
    let (space, mut random) = (Space::new(), Random(5));
    let ids: Vec<i64> = (1..=documents as i64).collect();
    for batch in ids.chunks(500) {
        let chunks: Vec<(i64, Vec<NewChunk>)> = batch
            .iter()
            .map(|id| (*id, (0..1 + id % 2).map(|_| space::chunk(space.vector(&mut random))).collect()))
            .collect();
        store
            .write(|tx| {
                chunks.iter().try_for_each(|(id, list)| {
                    embeddings::write_document(tx, &identity, (*id, "h"), list, false, 0).map(drop)
                })
            })
            .unwrap();
    }
}

/// Lets every question have a vector, so that no time goes into making it.
fn remember(path: &Path, requests: &[Request]) {
    let store = Store::open(path, OpenOptions::default()).unwrap();
    let identity = store.read(embeddings::active).unwrap().unwrap();
    let (space, mut random) = (Space::new(), Random(6));
    store
        .write(|tx| {
            requests.iter().try_for_each(|request| {
                embeddings::remember_query(tx, identity.id, &request.text, &space.vector(&mut random), 0)
            })
        })
        .unwrap();
}

fn request(text: &str, flags: Wanted) -> Request {
    Request {
        text: text.to_owned(),
        like: None,
        flags,
        mode: Mode::Lexical,
        raw: false,
        group: Group::Item,
        limit: 20,
        offset: 0,
        min_score: None,
        scope: Scope::default(),
        settings: Settings::of_config(&lore::config::QueryConfig::default()),
        now: 1_700_000_000_000,
        options: Options::default(),
    }
}

fn percentiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    (at(0.5), at(0.95))
}

fn main() {
    let size = std::env::var_os("LORE_BENCH_DOCS");
    let documents = size.map_or(100_000, |size| size.to_str().unwrap().parse().unwrap());
    let language = Language::new();
    let path = database(documents, &language);
    let mut random = Random(7);
    let mut word = |range: &std::ops::Range<usize>| language.words[pick(&mut random, range.clone())].clone();
    let plain = Wanted::default();
    let project = Wanted { projects: vec!["group/project-1".to_owned()], ..Wanted::default() };
    let labels = Wanted { labels: vec!["label-3".to_owned()], ..Wanted::default() };
    let dated = Wanted {
        types: vec![lore::content::SourceType::Issue],
        updated_from: Some(1_670_000_000_000),
        ..Wanted::default()
    };
    let states = Wanted { states: vec!["opened".to_owned()], ..Wanted::default() };
    let question = |word: &mut dyn FnMut(&std::ops::Range<usize>) -> String| {
        let mut middle = || word(&MIDDLE);
        format!("how does the {} {} {} {} {}", middle(), middle(), middle(), middle(), middle())
    };
    let mut sets: Vec<(&str, Vec<Request>)> = Vec::new();
    let mut set = |name, make: &mut dyn FnMut() -> Request| {
        sets.push((name, (0..QUERIES).map(|_| make()).collect()));
    };
    set("rare word", &mut || request(&word(&RARE), plain.clone()));
    set("AND of 3", &mut || {
        request(&format!("+{} +{} +{}", word(&MIDDLE), word(&MIDDLE), word(&MIDDLE)), plain.clone())
    });
    set("OR of 3", &mut || {
        request(&format!("{} {} {}", word(&MIDDLE), word(&MIDDLE), word(&MIDDLE)), plain.clone())
    });
    set("question, 5 + 3 stop words", &mut || request(&question(&mut word), plain.clone()));
    set("question, 5 + 3 common", &mut || {
        let common = format!("{} {} {}", word(&COMMON), word(&COMMON), word(&COMMON));
        request(&format!("{} {common}", question(&mut word)), plain.clone())
    });
    set("one common word", &mut || request(&word(&COMMON), plain.clone()));
    for (name, flags) in [
        ("question in a project", &project),
        ("question with a label", &labels),
        ("question, type and date", &dated),
        ("question, state", &states),
    ] {
        set(name, &mut || request(&question(&mut word), flags.clone()));
    }
    set("no words, a label", &mut || request("", labels.clone()));
    set("prefix", &mut || {
        let whole = word(&MIDDLE);
        request(&format!("{}*", whole.chars().take(5).collect::<String>()), plain.clone())
    });
    set("phrase", &mut || request(&format!("\"{} {}\"", word(&COMMON), word(&COMMON)), plain.clone()));
    let words = sets.len();
    for name in ["question, 5 + 3 stop words", "question, 5 + 3 common", "question in a project"] {
        let Some((_, requests)) = sets.iter().find(|(known, _)| *known == name) else { continue };
        let requests = requests.iter().map(|it| Request { mode: Mode::Hybrid, ..it.clone() }).collect();
        sets.push((name, requests));
    }
    for (_, requests) in &sets[words..] {
        remember(&path, requests);
    }
    println!("{documents} documents; ms of CPU time, whole path in process");
    println!("{:<28} {:>8} {:>8} {:>9}   slowest stages (mean)", "query", "p50", "p95", "results");
    for (at, (name, requests)) in sets.iter().enumerate() {
        if at == words {
            println!("hybrid, the vector of the question at hand");
        }
        ask(&path, name, requests);
    }
    println!("resident: {} KiB, of it from files {} KiB", status("VmRSS:"), status("RssFile:"));
    cold(&path, &sets);
}

fn ask(path: &Path, name: &str, requests: &[Request]) {
    let store = Store::open_read_only(path, OpenOptions::default()).unwrap();
    let config = EmbeddingConfig::default();
    let service =
        Service { config: &config, vars: &|_| None, memory: &|| Store::open(path, OpenOptions::default()) };
    drop(search::answer_with(&store, Some(&service), &requests[0]).unwrap());
    let (mut times, mut results) = (Vec::new(), Vec::new());
    let mut stages: Vec<(&str, Duration)> = Vec::new();
    for request in requests {
        let started = thread_cpu();
        let answer = search::answer_with(&store, Some(&service), request).unwrap();
        times.push(thread_cpu() - started);
        assert_eq!(answer.mode, request.mode, "{:?}", answer.warnings);
        results.push(answer.total.count);
        for stage in answer.stages {
            match stages.iter_mut().find(|(known, _)| *known == stage.name) {
                Some((_, sum)) => *sum += stage.elapsed,
                None => stages.push((stage.name, stage.elapsed)),
            }
        }
    }
    results.sort_unstable();
    stages.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    let slowest: Vec<String> = stages
        .iter()
        .take(5)
        .map(|(name, sum)| format!("{name} {:.2}", sum.as_secs_f64() * 1e3 / QUERIES as f64))
        .collect();
    let (p50, p95) = percentiles(times);
    println!("{name:<28} {p50:>8.2} {p95:>8.2} {:>9}   {}", results[results.len() / 2], slowest.join(", "));
}

/// A line of the process's status, where the system has one.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Wall time of the whole process, pages in the kernel's cache.
fn cold(path: &Path, sets: &[(&str, Vec<Request>)]) {
    for (name, mode) in [
        ("rare word", "lexical"),
        ("question, 5 + 3 stop words", "lexical"),
        ("question, 5 + 3 stop words", "hybrid"),
    ] {
        let Some((_, requests)) = sets.iter().find(|(known, _)| *known == name) else { continue };
        let mut times = Vec::new();
        for (at, request) in requests.iter().take(30).enumerate() {
            // Another text than before, so that its vector is made in the process.
            let text = format!("{} q{at}", request.text);
            let started = Instant::now();
            let status = Command::new(env!("CARGO_BIN_EXE_lore"))
                .env_clear()
                .args(["query", &text, "--mode", mode, "--json", "--database"])
                .arg(path)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            if !status.success() {
                println!("cold process: `lore query` ended with {status}");
                return;
            }
            times.push(started.elapsed());
        }
        let (p50, p95) = percentiles(times);
        println!("cold process, {mode}, {name}: wall p50 {p50:.1} ms, p95 {p95:.1} ms");
    }
}
