//! Collections: documents, questions and which documents answer them, loaded through the real
//! store and steps and asked through the real query path. The quality test and the quality
//! bench share it.
//!
//! A collection is a directory with `corpus.jsonl` (`id`, `title`, `text`, and perhaps
//! `comments`, `project` and `state`), `queries.jsonl` (`id`, `text`) and `qrels.tsv` (query,
//! document, gain), the first two perhaps gzipped. Where every id is a number, or ends with one
//! after `#` or `!`, that is the number of the issue or merge request, so that references between
//! the texts lead where they should; otherwise the documents are numbered so that no reference leads to one.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use lore::config::{EmbeddingConfig, QueryConfig, RerankConfig};
use lore::content::ItemType;
use lore::content::chunk::Limits;
use lore::content::entities::{Author, Discussion, Issue, MergeRequest, Note, Project};
use lore::content::render::RENDER_VERSION;
use lore::search::filter::Scope;
use lore::search::meaning::Service;
use lore::search::wanted::Wanted;
use lore::search::{self, Assist, Group, Hit, Mode, Options, Request, Settings};
use lore::store::{OpenOptions, Store, WriteTx, entities};
use serde_json::Value;

/// Raised when collections are written otherwise than before.
const LAYOUT: u32 = 2;

/// First number of items that have none: what a text refers to by `#12` is none of them.
const UNNUMBERED: i64 = 1_000_000_001;

/// Where items are whose project is not told.
const PROJECT: &str = "quality/collection";

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
    /// Tokens of a passage, when they are not the usual ones.
    pub chunk_tokens: Option<usize>,
}

/// What an item of a collection is called in the database: project, kind, number.
type Name = (String, ItemType, i64);

/// A collection with its database.
#[derive(Debug)]
pub struct Collection {
    /// Documents.
    pub documents: usize,
    /// The questions.
    pub questions: Vec<Question>,
    store: Store,
    path: PathBuf,
    /// Ids of the collection by what the item is called.
    ids: BTreeMap<Name, String>,
    /// Titles by id.
    titles: BTreeMap<String, String>,
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
        let names = names(&corpus);
        let path = database(databases, &name, &corpus, &names, part.chunk_tokens);
        let ids = names.into_iter().zip(&corpus).map(|(name, record)| (name, field(record, "id"))).collect();
        // Brings a database of an older schema up to date; its vectors stay.
        drop(Store::open(&path, OpenOptions::default()).unwrap());
        let store = Store::open_read_only(&path, OpenOptions::default()).unwrap();
        let titles = corpus.iter().map(|record| (field(record, "id"), field(record, "title"))).collect();
        Self { documents: corpus.len(), questions, store, path, ids, titles }
    }

    /// What answers a text, best first.
    pub fn ask(&self, text: &str, mode: Mode, settings: Settings, limit: usize) -> Vec<Hit> {
        self.ask_with(text, mode, settings, limit, Options::default(), &RerankConfig::default())
    }

    /// As [`Self::ask`], with what is not asked of every query and a reranker.
    pub fn ask_with(
        &self,
        text: &str,
        mode: Mode,
        settings: Settings,
        limit: usize,
        options: Options,
        rerank: &RerankConfig,
    ) -> Vec<Hit> {
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
            options,
        };
        let query = QueryConfig::default();
        let assist = Assist { rerank, query: &query, vars: service.vars, memory: service.memory };
        // A question without a usable word, or that no index can answer, has no answer.
        let answer = search::answer_through(&self.store, Some(&service), Some(&assist), &request);
        answer.map_or_else(|_| Vec::new(), |it| it.hits)
    }

    /// The title of a document, by the collection's name.
    pub fn title(&self, id: &str) -> Option<&str> {
        self.titles.get(id).map(String::as_str)
    }

    /// The collection's name of a result.
    pub fn id(&self, hit: &Hit) -> &String {
        let document = &hit.document;
        &self.ids[&(document.project_path.clone(), document.item_type, document.iid)]
    }
}

/// What the items are called, in the order of the corpus.
fn names(corpus: &[Value]) -> Vec<Name> {
    let own: Option<Vec<Name>> = corpus.iter().map(own_name).collect();
    if let Some(own) = own
        && own.iter().collect::<BTreeSet<_>>().len() == own.len()
    {
        return own;
    }
    (UNNUMBERED..).zip(corpus).map(|(iid, _)| (PROJECT.to_owned(), ItemType::Issue, iid)).collect()
}

/// What an item is called by its id: `12`, `#12`, `!12`, `group/project#12`.
fn own_name(record: &Value) -> Option<Name> {
    let id = field(record, "id");
    let (project, item_type, number) = match id.split_once(['#', '!']) {
        Some((project, number)) if id.contains('!') => (project, ItemType::MergeRequest, number),
        Some((project, number)) => (project, ItemType::Issue, number),
        None => ("", ItemType::Issue, id.as_str()),
    };
    let project = match (field(record, "project"), project) {
        (named, _) if !named.is_empty() => named,
        (_, "") => PROJECT.to_owned(),
        (_, project) => project.to_owned(),
    };
    Some((project, item_type, number.parse().ok().filter(|iid| *iid > 0)?))
}

/// Makes the database of a collection, unless it is there: it is known by everything that what it
/// holds depends on.
fn database(
    directory: &Path,
    name: &str,
    corpus: &[Value],
    names: &[Name],
    chunk_tokens: Option<usize>,
) -> PathBuf {
    std::fs::create_dir_all(directory).unwrap();
    let chunk_tokens = chunk_tokens.unwrap_or(EmbeddingConfig::default().chunk_tokens);
    let mut content = DefaultHasher::new();
    (LAYOUT, RENDER_VERSION, Limits::of_tokens(chunk_tokens).name()).hash(&mut content);
    for record in corpus {
        record.to_string().hash(&mut content);
    }
    let path = directory.join(format!("quality-{name}-{}-{:016x}.db", corpus.len(), content.finish()));
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
    let all: Vec<(i64, &Name, &Value)> =
        (1..).zip(names).zip(corpus).map(|((n, name), record)| (n, name, record)).collect();
    for part in all.chunks(500) {
        store.write(|tx| part.iter().try_for_each(|(n, name, record)| write(tx, *n, name, record))).unwrap();
    }
    drop(store);
    let job = directory.join("quality.toml");
    std::fs::write(&job, JOB).unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_lore"))
        .env_clear()
        .env("LORE__EMBEDDING__CHUNK_TOKENS", chunk_tokens.to_string())
        .args(["run", "--quiet", "--if-locked", "wait", "--database"])
        .arg(&unfinished)
        .arg(&job)
        .status()
        .unwrap();
    assert!(status.success(), "{name} could not be indexed: {status}");
    std::fs::rename(&unfinished, &path).unwrap();
    path
}

/// Writes an item with its discussions, `n` being its place in the corpus.
fn write(
    tx: &WriteTx<'_>,
    n: i64,
    (project, item_type, iid): &Name,
    record: &Value,
) -> lore::error::Result<()> {
    let project = Project { path: project.clone(), ..Project::default() };
    let project = entities::upsert_project(tx, "quality", &project, 0)?;
    let (title, text) = (field(record, "title"), Some(field(record, "text")));
    let is_open = matches!(field(record, "state").to_lowercase().as_str(), "" | "open" | "opened");
    let state = if is_open { "opened" } else { "closed" }.to_owned();
    let time = n * 1_000;
    let stored = match item_type {
        ItemType::Issue => {
            let issue = Issue {
                gitlab_id: n,
                iid: *iid,
                title,
                description: text,
                state,
                issue_type: "issue".to_owned(),
                created_at: time,
                updated_at: time,
                ..Issue::default()
            };
            entities::upsert_issue(tx, project, &issue, 0)?
        }
        ItemType::MergeRequest => {
            let request = MergeRequest {
                gitlab_id: n,
                iid: *iid,
                title,
                description: text,
                state,
                created_at: time,
                updated_at: time,
                ..MergeRequest::default()
            };
            entities::upsert_merge_request(tx, project, &request, 0)?
        }
    };
    entities::replace_discussions(tx, project, *item_type, stored.id, &discussions(n, record), 0).map(|_| ())
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
