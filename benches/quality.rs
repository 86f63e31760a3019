//! How good answers are: collections with questions and judgements, loaded through the real
//! store and steps and asked through the real query path, with the defaults a user gets.
//!
//! `cargo bench --bench quality -- DIR...`; a DIR holds `corpus.jsonl` (`id`, `title`,
//! `text`, and perhaps `comments`), `queries.jsonl` (`id`, `text`) and `qrels.tsv` (query,
//! document, gain), the first two perhaps gzipped. Prints one JSON line per collection and
//! mode. Databases are made once and kept under `target/bench-data`.
//!
//! `LORE_QUALITY_QUERIES=100` asks that many only, evenly spread. `LORE_QUALITY_DOCS=2000`
//! takes that many documents, those that are judged first: then figures compare only among
//! themselves. `LORE_QUALITY_MODE=hybrid` asks in one mode only, `LORE_QUALITY_HALF=1` every other
//! query from the second on. `LORE_QUALITY_TUNE=1` tries ways of fusion on every other query instead.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use lore::config::{EmbeddingConfig, QueryConfig};
use lore::content::ItemType;
use lore::content::entities::{Author, Discussion, Issue, Note, Project};
use lore::search::filter::Scope;
use lore::search::fuse::Method;
use lore::search::meaning::Service;
use lore::search::wanted::Wanted;
use lore::search::{self, Group, Mode, Request, Settings};
use lore::store::{OpenOptions, Store, entities};
use serde_json::{Value, json};

const JOB: &str = "name = \"quality\"\n[steps.regenerate-docs]\n[steps.optimize-fts]\nneeds = [\"regenerate-docs\"]\n\
                   [steps.embed]\nneeds = [\"optimize-fts\"]\n";

/// Reads a file, or the same file gzipped.
fn text(directory: &Path, name: &str) -> String {
    let mut text = String::new();
    let plain = directory.join(name);
    if plain.exists() {
        std::fs::File::open(plain).unwrap().read_to_string(&mut text).unwrap();
    } else {
        let file = std::fs::File::open(directory.join(format!("{name}.gz"))).unwrap();
        flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    }
    text
}

fn lines(directory: &Path, name: &str) -> Vec<Value> {
    text(directory, name)
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A field as text: ids may be numbers.
fn field(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn number_of(name: &str) -> Option<usize> {
    std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok())
}

/// A collection with its database.
struct Collection {
    name: String,
    store: Store,
    path: PathBuf,
    /// Ids of the collection by number of the issue.
    ids: BTreeMap<i64, String>,
    /// Question and gains of the documents judged.
    queries: Vec<(String, BTreeMap<String, f64>)>,
}

impl Collection {
    fn load(directory: &Path) -> Self {
        let name = directory.canonicalize().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let mut judged: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for line in text(directory, "qrels.tsv").lines() {
            let parts: Vec<&str> = line.split('\t').collect();
            // Some have four columns, the second of which says nothing.
            let (document, gain) = if parts.len() > 3 { (parts[2], parts[3]) } else { (parts[1], parts[2]) };
            let Ok(gain) = gain.trim().parse::<f64>() else { continue };
            if gain > 0.0 {
                judged.entry(parts[0].to_owned()).or_default().insert(document.to_owned(), gain);
            }
        }
        let mut queries: Vec<(String, BTreeMap<String, f64>)> = lines(directory, "queries.jsonl")
            .iter()
            .filter_map(|query| Some((field(query, "text"), judged.get(&field(query, "id"))?.clone())))
            .collect();
        if let Some(n) = number_of("LORE_QUALITY_QUERIES").filter(|n| *n < queries.len()) {
            queries = (0..n).map(|at| queries[at * queries.len() / n].clone()).collect();
        }
        let mut corpus = lines(directory, "corpus.jsonl");
        if let Some(n) = number_of("LORE_QUALITY_DOCS").filter(|n| *n < corpus.len()) {
            let wanted: BTreeSet<&String> = queries.iter().flat_map(|(_, gains)| gains.keys()).collect();
            let (first, rest): (Vec<Value>, Vec<Value>) =
                corpus.into_iter().partition(|record| wanted.contains(&field(record, "id")));
            let room = n.saturating_sub(first.len()).min(rest.len());
            let spread = (0..room).map(|at| rest[at * rest.len() / room].clone()).collect::<Vec<_>>();
            corpus = first.into_iter().chain(spread).collect();
        }
        let ids = (1..).zip(&corpus).map(|(iid, record)| (iid, field(record, "id"))).collect();
        let path = database(&name, &corpus);
        let store = Store::open_read_only(&path, OpenOptions::default()).unwrap();
        Self { name, store, path, ids, queries }
    }
}

/// Makes the database of a collection, unless it is there.
fn database(name: &str, corpus: &[Value]) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
    std::fs::create_dir_all(&directory).unwrap();
    let size: usize = corpus.iter().map(|record| field(record, "text").len()).sum();
    let path = directory.join(format!("quality-{name}-{}-{size}.db", corpus.len()));
    if path.exists() {
        return path;
    }
    let unfinished = path.with_extension("unfinished");
    for suffix in ["", "-wal", "-shm"] {
        let mut file = unfinished.clone().into_os_string();
        file.push(suffix);
        drop(std::fs::remove_file(file));
    }
    let store = Store::open(&unfinished, OpenOptions::default()).unwrap();
    for (n, part) in corpus.chunks(500).enumerate() {
        store
            .write(|tx| {
                let project = Project { path: "quality/collection".to_owned(), ..Project::default() };
                let project = entities::upsert_project(tx, "quality", &project, 0)?;
                for (iid, record) in (i64::try_from(n * 500).unwrap() + 1..).zip(part) {
                    let stored = entities::upsert_issue(tx, project, &issue(iid, record), 0)?;
                    let discussions = discussions(iid, record);
                    entities::replace_discussions(tx, project, ItemType::Issue, stored.id, &discussions, 0)?;
                }
                Ok(())
            })
            .unwrap();
    }
    drop(store);
    let job = directory.join("quality.toml");
    std::fs::write(&job, JOB).unwrap();
    let started = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_lore"))
        .env_clear()
        .args(["run", "--quiet", "--if-locked", "wait", "--database"])
        .arg(&unfinished)
        .arg(&job)
        .status()
        .unwrap();
    assert!(status.success(), "{name} could not be indexed: {status}");
    std::fs::rename(&unfinished, &path).unwrap();
    println!(
        "{}",
        json!({ "collection": name, "documents": corpus.len(), "indexed_s": started.elapsed().as_secs() })
    );
    path
}

fn issue(iid: i64, record: &Value) -> Issue {
    Issue {
        gitlab_id: iid,
        iid,
        title: field(record, "title"),
        description: Some(field(record, "text")),
        state: "opened".to_owned(),
        issue_type: "issue".to_owned(),
        confidential: false,
        author: Author::default(),
        assignees: Vec::new(),
        labels: Vec::new(),
        milestone: None,
        web_url: None,
        created_at: iid * 1_000,
        updated_at: iid * 1_000,
        closed_at: None,
        due_date: None,
        user_notes_count: None,
        moved_to_gitlab_id: None,
    }
}

/// Each comment is a thread.
fn discussions(iid: i64, record: &Value) -> Vec<Discussion> {
    let comments = record["comments"].as_array().cloned().unwrap_or_default();
    (0..)
        .zip(&comments)
        .filter_map(|(n, comment)| {
            let note = Note {
                gitlab_id: iid * 10_000 + n,
                note_type: None,
                system: false,
                internal: false,
                author: Author::default(),
                body: comment.as_str()?.to_owned(),
                created_at: iid * 1_000 + n,
                updated_at: iid * 1_000 + n,
                resolvable: false,
                resolved: false,
                resolved_by: None,
                position: None,
            };
            Some(Discussion {
                gitlab_id: format!("{iid:020}{n:020}"),
                individual_note: true,
                notes: vec![note],
            })
        })
        .collect()
}

/// Sums over questions.
#[derive(Default)]
struct Score {
    ndcg10: f64,
    recall100: f64,
    mrr: f64,
    times: Vec<f64>,
}

impl Score {
    fn add(&mut self, found: &[&String], gains: &BTreeMap<String, f64>) {
        let gain = |name: &&String| gains.get(*name).copied().unwrap_or(0.0);
        let discount = |(rank, gain): (usize, f64)| gain / (rank as f64 + 2.0).log2();
        let dcg: f64 = found.iter().take(10).map(gain).enumerate().map(discount).sum();
        let mut ideal: Vec<f64> = gains.values().copied().collect();
        ideal.sort_by(|a, b| b.total_cmp(a));
        self.ndcg10 += dcg / ideal.into_iter().take(10).enumerate().map(discount).sum::<f64>();
        let hits = found.iter().take(100).filter(|name| gains.contains_key(**name)).count();
        self.recall100 += hits as f64 / gains.len() as f64;
        let first = found.iter().position(|name| gains.contains_key(*name));
        self.mrr += first.map_or(0.0, |rank| 1.0 / (rank as f64 + 1.0));
    }

    fn json(mut self, collection: &str, mode: Mode) -> Value {
        self.times.sort_by(f64::total_cmp);
        let n = self.times.len() as f64;
        let rounded = |value: f64| (value * 1e4).round() / 1e4;
        json!({
            "collection": collection,
            "mode": mode.as_str(),
            "ndcg10": rounded(self.ndcg10 / n),
            "recall100": rounded(self.recall100 / n),
            "mrr": rounded(self.mrr / n),
            "p50_ms": rounded(self.times.get(self.times.len() / 2).copied().unwrap_or(0.0)),
            "queries": self.times.len(),
        })
    }
}

/// Asks every `step`th question from `first` on.
fn measure(collection: &Collection, mode: Mode, settings: Settings, (first, step): (usize, usize)) -> Value {
    let config = EmbeddingConfig::default();
    let path = &collection.path;
    let service =
        Service { config: &config, vars: &|_| None, memory: &|| Store::open(path, OpenOptions::default()) };
    let mut score = Score::default();
    for (text, gains) in collection.queries.iter().skip(first).step_by(step) {
        let request = Request {
            text: text.clone(),
            like: None,
            flags: Wanted::default(),
            mode,
            raw: false,
            group: Group::Item,
            limit: 100,
            offset: 0,
            min_score: None,
            scope: Scope::default(),
            settings,
            now: 1_700_000_000_000,
        };
        let started = Instant::now();
        let answer = search::answer_with(&collection.store, Some(&service), &request);
        score.times.push(started.elapsed().as_secs_f64() * 1e3);
        let found = answer.map(|answer| answer.hits).unwrap_or_default();
        let found: Vec<&String> = found.iter().map(|hit| &collection.ids[&hit.document.iid]).collect();
        score.add(&found, gains);
    }
    score.json(&collection.name, mode)
}

fn tune(collection: &Collection) {
    let defaults = Settings::of_config(&QueryConfig::default());
    let mut tried = Vec::new();
    for mode in [Mode::Lexical, Mode::Semantic] {
        tried.push((mode.as_str().to_owned(), mode, defaults));
    }
    for weight in [0.3, 0.4, 0.5, 0.6, 0.7, 0.8] {
        let settings = Settings { fusion: Method::MinMax, lexical_weight: weight, ..defaults };
        tried.push((format!("minmax {weight}"), Mode::Hybrid, settings));
    }
    for k in [10.0, 20.0, 60.0] {
        for weight in [0.5, 0.6, 0.7] {
            let settings = Settings { fusion: Method::Rrf { k }, lexical_weight: weight, ..defaults };
            tried.push((format!("rrf {k} {weight}"), Mode::Hybrid, settings));
        }
    }
    for weight in [0.4, 0.5, 0.6, 0.7, 0.8] {
        let settings = Settings { fusion: Method::Share, lexical_weight: weight, ..defaults };
        tried.push((format!("share {weight}"), Mode::Hybrid, settings));
    }
    for discussion_meaning in [0.5, 0.7, 0.85] {
        for mode in [Mode::Semantic, Mode::Hybrid] {
            let settings = Settings { discussion_meaning, ..defaults };
            tried.push((format!("discussion vectors {discussion_meaning}"), mode, settings));
        }
    }
    for candidates in [100, 400] {
        tried.push((format!("depth {candidates}"), Mode::Hybrid, Settings { candidates, ..defaults }));
    }
    for discussion in [0.3, 0.7, 0.85] {
        tried.push((format!("discussion {discussion}"), Mode::Hybrid, Settings { discussion, ..defaults }));
    }
    for (name, mode, settings) in tried {
        let mut line = measure(collection, mode, settings, (0, 2));
        line["tried"] = name.into();
        println!("{line}");
    }
}

fn main() {
    let directories: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if directories.is_empty() {
        println!("no collections: cargo bench --bench quality -- DIR...");
    }
    let is_tuning = std::env::var_os("LORE_QUALITY_TUNE").is_some();
    let part = match number_of("LORE_QUALITY_HALF") {
        Some(half) => (half, 2),
        None => (0, 1),
    };
    for directory in directories {
        let collection = Collection::load(Path::new(&directory));
        if is_tuning {
            tune(&collection);
            continue;
        }
        let settings = Settings::of_config(&QueryConfig::default());
        let only = std::env::var_os("LORE_QUALITY_MODE");
        for mode in [Mode::Lexical, Mode::Semantic, Mode::Hybrid] {
            if only.as_ref().is_some_and(|only| only.to_str() != Some(mode.as_str())) {
                continue;
            }
            println!("{}", measure(&collection, mode, settings, part));
        }
    }
}
