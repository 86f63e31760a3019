//! Collections: documents, questions and which documents answer them, loaded through the real
//! store and steps and asked through the real query path. The quality test and the quality
//! bench share it.
//!
//! A collection is a directory with `corpus.jsonl` (`id`, `title`, `text`, and perhaps
//! `comments`), `queries.jsonl` (`id`, `text`) and `qrels.tsv` (query,
//! document, gain), the first two perhaps gzipped.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use lore::config::EmbeddingConfig;
use lore::content::ItemType;
use lore::content::entities::{Author, Discussion, Issue, Note, Project};
use lore::search::filter::Scope;
use lore::search::meaning::Service;
use lore::search::wanted::Wanted;
use lore::search::{self, Group, Hit, Mode, Options, Request, Settings};
use lore::store::{OpenOptions, Store, entities};
use serde_json::Value;

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

/// A question.
#[derive(Debug, Clone)]
pub struct Question {
    /// As it is asked.
    pub text: String,
    /// Gains of the documents that answer it; a question may have none.
    pub gains: BTreeMap<String, f64>,
}

/// Which part of a collection is used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    /// So many questions, evenly spread.
    pub questions: Option<usize>,
    /// So many documents, those that are judged first.
    pub documents: Option<usize>,
}

/// A collection with its database.
#[derive(Debug)]
pub struct Collection {
    /// Documents.
    pub documents: usize,
    /// The questions.
    pub questions: Vec<Question>,
    store: Store,
    path: PathBuf,
    /// Ids of the collection by number of the issue.
    ids: BTreeMap<i64, String>,
}

impl Collection {
    /// Loads a collection; its database is made in `databases`, unless it is there.
    pub fn load(directory: &Path, databases: &Path, part: Part) -> Self {
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
        let mut questions: Vec<Question> = lines(directory, "queries.jsonl")
            .iter()
            .map(|query| Question {
                text: field(query, "text"),
                gains: judged.remove(&field(query, "id")).unwrap_or_default(),
            })
            .collect();
        if let Some(n) = part.questions.filter(|n| *n < questions.len()) {
            questions = (0..n).map(|at| questions[at * questions.len() / n].clone()).collect();
        }
        let mut corpus = lines(directory, "corpus.jsonl");
        if let Some(n) = part.documents.filter(|n| *n < corpus.len()) {
            let wanted: BTreeSet<&String> = questions.iter().flat_map(|it| it.gains.keys()).collect();
            let (first, rest): (Vec<Value>, Vec<Value>) =
                corpus.into_iter().partition(|record| wanted.contains(&field(record, "id")));
            let room = n.saturating_sub(first.len()).min(rest.len());
            let spread = (0..room).map(|at| rest[at * rest.len() / room].clone()).collect::<Vec<_>>();
            corpus = first.into_iter().chain(spread).collect();
        }
        let ids = (1..).zip(&corpus).map(|(iid, record)| (iid, field(record, "id"))).collect();
        let path = database(databases, &name, &corpus);
        let store = Store::open_read_only(&path, OpenOptions::default()).unwrap();
        Self { documents: corpus.len(), questions, store, path, ids }
    }

    /// What answers a text, best first.
    pub fn ask(&self, text: &str, mode: Mode, settings: Settings, limit: usize) -> Vec<Hit> {
        let config = EmbeddingConfig::default();
        let service = Service {
            config: &config,
            vars: &|_| None,
            memory: &|| Store::open(&self.path, OpenOptions::default()),
        };
        let request = Request {
            text: text.to_owned(),
            like: None,
            flags: Wanted::default(),
            mode,
            raw: false,
            group: Group::Item,
            limit,
            offset: 0,
            min_score: None,
            scope: Scope::default(),
            settings,
            now: 1_700_000_000_000,
            options: Options::default(),
        };
        // A question without a usable word, or that no index can answer, has no answer.
        search::answer_with(&self.store, Some(&service), &request).map_or_else(|_| Vec::new(), |it| it.hits)
    }

    /// The collection's name of a result.
    pub fn id(&self, hit: &Hit) -> &String {
        &self.ids[&hit.document.iid]
    }
}

/// Makes the database of a collection, unless it is there.
fn database(directory: &Path, name: &str, corpus: &[Value]) -> PathBuf {
    std::fs::create_dir_all(directory).unwrap();
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
    let status = Command::new(env!("CARGO_BIN_EXE_lore"))
        .env_clear()
        .args(["run", "--quiet", "--if-locked", "wait", "--database"])
        .arg(&unfinished)
        .arg(&job)
        .status()
        .unwrap();
    assert!(status.success(), "{name} could not be indexed: {status}");
    std::fs::rename(&unfinished, &path).unwrap();
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
#[derive(Debug, Clone, Copy, Default)]
pub struct Score {
    ndcg10: f64,
    recall100: f64,
    mrr: f64,
    questions: f64,
}

impl Score {
    /// Adds a question: what was found for it, best first, and what should be.
    pub fn add(&mut self, found: &[&String], gains: &BTreeMap<String, f64>) {
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
        self.questions += 1.0;
    }

    /// nDCG@10 with linear gain, recall@100 and MRR: means over the questions.
    pub fn means(&self) -> [f64; 3] {
        [self.ndcg10, self.recall100, self.mrr].map(|sum| sum / self.questions)
    }
}
