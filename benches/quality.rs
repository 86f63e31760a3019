//! How good answers are: collections with questions and judgements, loaded through the real
//! store and steps and asked through the real query path, with the defaults a user gets.
//!
//! `cargo bench --bench quality -- DIR...`; what a DIR holds is told in
//! `tests/it/support/collection.rs`. Prints one JSON line per collection and mode. Databases are
//! made once and kept under `target/bench-data`; each is known by the texts of its collection and
//! the way they are cut, so that only what is new is embedded.
//!
//! `LORE_QUALITY_QUERIES=100` asks that many only, evenly spread. `LORE_QUALITY_DOCS=2000`
//! takes that many documents, those that are judged first: then figures compare only among
//! themselves. `LORE_QUALITY_MODE=hybrid` asks in one mode only, `LORE_QUALITY_HALF=1` every other
//! query from the second on. `LORE_QUALITY_CHUNK=96` embeds passages of that many tokens.
//!
//! Instead of the figures of the defaults:
//! - `LORE_QUALITY_STAGES=1`: those of the funnel with one stage off, or on, at a time, and the
//!   rerank stage with rerankers of our own (`benches/common/reranker.rs`).
//! - `LORE_QUALITY_TUNE=feedback`: those of the ways of ranking whose name holds that word, on
//!   every other query; an empty one tries all.
//! - `LORE_QUALITY_MISSES=1`: how well the relevance of the best answer tells questions of a
//!   collection from those of the others.
//! - `LORE_QUALITY_DUMP=DIR`: writes what each retriever finds.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a bench prints and may fail loudly"
)]

#[path = "../tests/it/support/collection.rs"]
mod collection;
#[path = "common/reranker.rs"]
mod reranker;

use std::path::Path;
use std::time::Instant;

use collection::{Collection, Part, Score};
use lore::config::{QueryConfig, RerankConfig, RerankProvider};
use lore::search::fuse::Method;
use lore::search::{Mode, Options, Settings};
use reranker::{Judge, Reranker};
use serde_json::{Value, json};

fn number_of(name: &str) -> Option<usize> {
    std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok())
}

/// A way of asking.
#[derive(Clone)]
struct Way {
    name: String,
    mode: Mode,
    settings: Settings,
    options: Options,
    judge: Option<Judge>,
}

impl Way {
    fn of(mode: Mode) -> Self {
        let settings = Settings::of_config(&QueryConfig::default());
        Self { name: mode.as_str().to_owned(), mode, settings, options: Options::default(), judge: None }
    }

    /// The defaults, changed.
    fn new(name: impl Into<String>, change: impl FnOnce(&mut Settings)) -> Self {
        let mut way = Self { name: name.into(), ..Self::of(Mode::Hybrid) };
        change(&mut way.settings);
        way
    }
}

/// Asks every `step`th question from `first` on.
fn measure(collection: &Collection, way: &Way, (first, step): (usize, usize)) -> Value {
    let mut score = Score::default();
    let mut times = Vec::new();
    let server = way.judge.map(Reranker::start);
    let rerank = RerankConfig {
        provider: if server.is_some() { RerankProvider::Tei } else { RerankProvider::None },
        url: server.as_ref().map(Reranker::url),
        ..RerankConfig::default()
    };
    let judged = collection.questions.iter().filter(|question| !question.gains.is_empty());
    for question in judged.skip(first).step_by(step) {
        if let Some(server) = &server {
            let titles = question.gains.keys().filter_map(|id| collection.title(id));
            server.knows(titles.map(str::to_owned).collect());
        }
        let started = Instant::now();
        let found =
            collection.ask_with(&question.text, way.mode, way.settings, 100, way.options.clone(), &rerank);
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let found: Vec<&String> = found.iter().map(|hit| collection.id(hit)).collect();
        score.add(&found, &question.gains);
    }
    times.sort_by(f64::total_cmp);
    let [ndcg10, recall100, mrr] = score.means().map(rounded);
    let mut line = json!({
        "mode": way.mode.as_str(),
        "ndcg10": ndcg10,
        "recall100": recall100,
        "mrr": mrr,
        "p50_ms": rounded(times.get(times.len() / 2).copied().unwrap_or(0.0)),
        "queries": times.len(),
    });
    if let Some(server) = &server {
        line["reranked"] = server.answered().into();
    }
    line
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Writes what each retriever finds for each question, for trying fusions elsewhere: lines of
/// `text`, `gains`, `lexical` and `semantic`, these two lists of item, score, relevance.
fn dump(collection: &Collection, path: &Path) {
    let settings = Settings { candidates: 400, ..Settings::of_config(&QueryConfig::default()) };
    let mut out = String::new();
    for question in &collection.questions {
        let mut line = json!({ "text": question.text, "gains": question.gains });
        for mode in [Mode::Lexical, Mode::Semantic] {
            let hits = collection.ask(&question.text, mode, settings, 400);
            let list: Vec<Value> = hits
                .iter()
                .map(|hit| {
                    let score = hit.explain.bm25.or(hit.explain.cosine);
                    json!([collection.id(hit), score, hit.relevance])
                })
                .collect();
            line[mode.as_str()] = list.into();
        }
        out.push_str(&format!("{line}\n"));
    }
    std::fs::write(path, out).unwrap();
}

/// The funnel with one stage off or on at a time.
fn stages() -> Vec<Way> {
    let judged = |name: &str, judge| Way { judge: Some(judge), ..Way::new(name, |_| ()) };
    let depth = |name: &str, depth| Way {
        options: Options { depth, ..Options::default() },
        ..Way::new(name, |_| ())
    };
    vec![
        Way::new("defaults", |_| ()),
        depth("graph off", 0),
        depth("graph of two steps", 2),
        Way::new("hubs off", |it| it.boosts.hub = 1.0),
        Way::new("moved off", |it| it.boosts.moved = 1.0),
        Way::new("feedback off", |it| it.feedback = 0.0),
        Way::new("coverage off", |it| it.coverage = 0.0),
        Way::new("state boosts on", |it| it.boosts.by_state = true),
        Way::new("recency on", |it| it.boosts.half_life = Some(180 * 24 * 3_600 * 1_000)),
        judged("rerank by words", Judge::Words),
        judged("rerank by a judge who errs", Judge::Errs),
    ]
}

/// The ways of ranking that the defaults were chosen from.
fn tried() -> Vec<Way> {
    let mut all = vec![Way::of(Mode::Lexical), Way::of(Mode::Semantic), Way::new("defaults", |_| ())];
    let mut add = |name: String, change: &dyn Fn(&mut Settings)| all.push(Way::new(name, change));
    for (name, fusion) in
        [("minmax", Method::MinMax), ("share", Method::Share), ("deviations", Method::Deviations)]
    {
        for weight in [0.4, 0.5, 0.55, 0.6, 0.7] {
            for coverage in [0.0, 1.0, 2.0] {
                add(format!("{name} {weight} covered {coverage}"), &|it| {
                    (it.fusion, it.lexical_weight, it.coverage) = (fusion, weight, coverage);
                });
            }
        }
    }
    for feedback in [0.0, 0.3, 0.6, 1.0] {
        for weight in [0.5, 0.6, 0.7] {
            add(format!("feedback {feedback} words {weight}"), &|it| {
                (it.feedback, it.lexical_weight) = (feedback, weight);
            });
        }
    }
    for k in [10.0, 20.0, 60.0] {
        for weight in [0.5, 0.6, 0.7] {
            add(format!("rrf {k} {weight}"), &|it| {
                (it.fusion, it.lexical_weight) = (Method::Rrf { k }, weight);
            });
        }
    }
    for factor in [0.5, 0.7, 0.85] {
        add(format!("discussion vectors {factor}"), &|it| it.discussion_meaning = factor);
    }
    for factor in [0.3, 0.7, 0.85] {
        add(format!("discussion {factor}"), &|it| it.discussion = factor);
    }
    for candidates in [100, 300, 400] {
        add(format!("depth {candidates}"), &|it| it.candidates = candidates);
    }
    for (parents, neighbours, share) in
        [(3, 3, 0.4), (5, 2, 0.4), (5, 3, 0.3), (5, 3, 0.2), (3, 2, 0.3), (10, 5, 0.4), (1, 3, 0.4)]
    {
        add(format!("graph of {parents} with {neighbours} at {share}"), &|it| {
            (it.boosts.parents, it.boosts.neighbours, it.boosts.neighbour) = (parents, neighbours, share);
        });
    }
    let columns = [
        [1.0, 1.0, 0.5, 1.0],
        [2.0, 1.0, 0.5, 1.0],
        [4.0, 1.0, 0.5, 1.0],
        [5.0, 1.0, 0.5, 1.0],
        [3.0, 1.0, 0.3, 1.0],
        [3.0, 1.0, 0.7, 1.0],
        [3.0, 1.0, 0.5, 0.5],
    ];
    for weights in columns {
        for mode in [Mode::Lexical, Mode::Hybrid] {
            let way = Way::new(format!("columns {weights:?}"), |it| it.weights = weights);
            all.push(Way { mode, ..way });
        }
    }
    all
}

/// How often the best answer to a question of the collection is more relevant than the best one to
/// a question of the other collection, which cannot be answered: 0.5 is chance.
fn misses(collection: &Collection, other: &Collection, mode: Mode) -> Value {
    const QUESTIONS: usize = 200;
    let best = |it: &Collection| -> Vec<f64> {
        let questions: Vec<_> = it.questions.iter().filter(|question| !question.gains.is_empty()).collect();
        let step = questions.len().div_ceil(QUESTIONS).max(1);
        let asked = questions.into_iter().step_by(step);
        let settings = Way::of(mode).settings;
        let relevance = |text: &String| {
            let hits = collection.ask(text, mode, settings, 10);
            hits.iter().map(|hit| hit.relevance).fold(0.0, f64::max)
        };
        let mut all: Vec<f64> = asked.map(|question| relevance(&question.text)).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let (own, foreign) = (best(collection), best(other));
    let above =
        |of: f64| own.partition_point(|it| *it < of) as f64 + own.partition_point(|it| *it <= of) as f64;
    let below: f64 = foreign.iter().map(|it| above(*it) / 2.0).sum();
    let auc = 1.0 - below / (own.len() * foreign.len()) as f64;
    let quantile = |of: &[f64], part: f64| rounded(of[((of.len() - 1) as f64 * part) as usize]);
    json!({
        "mode": mode.as_str(),
        "auc": rounded(auc),
        "own": [quantile(&own, 0.1), quantile(&own, 0.5), quantile(&own, 0.9)],
        "foreign": [quantile(&foreign, 0.1), quantile(&foreign, 0.5), quantile(&foreign, 0.9)],
    })
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

fn main() {
    let directories: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if directories.is_empty() {
        eprintln!("no collections: cargo bench --bench quality -- DIR...");
    }
    let is_tuning = is_set("LORE_QUALITY_TUNE");
    let part = match number_of("LORE_QUALITY_HALF") {
        Some(half) => (half, 2),
        None if is_tuning => (0, 2),
        None => (0, 1),
    };
    let use_only = Part {
        questions: number_of("LORE_QUALITY_QUERIES"),
        documents: number_of("LORE_QUALITY_DOCS"),
        chunk_tokens: number_of("LORE_QUALITY_CHUNK"),
    };
    let mut loaded = Vec::new();
    for directory in directories {
        let name = Path::new(&directory).canonicalize().unwrap();
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        let started = Instant::now();
        let databases = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
        let collection = Collection::load(Path::new(&directory), &databases, use_only);
        let loaded_s = started.elapsed().as_secs();
        if loaded_s > 1 {
            eprintln!("{name}: {} documents loaded in {loaded_s} s", collection.documents);
        }
        if let Some(directory) = std::env::var_os("LORE_QUALITY_DUMP") {
            dump(&collection, &Path::new(&directory).join(format!("{name}.jsonl")));
        } else if is_set("LORE_QUALITY_MISSES") {
            loaded.push((name, collection));
        } else {
            report(&name, &collection, part);
        }
    }
    for (name, collection) in &loaded {
        for (other_name, other) in loaded.iter().filter(|(other, _)| other != name) {
            for mode in [Mode::Lexical, Mode::Semantic, Mode::Hybrid] {
                let mut line = misses(collection, other, mode);
                line["collection"] = name.as_str().into();
                line["asked"] = other_name.as_str().into();
                println!("{line}");
            }
        }
    }
}

/// Prints the figures of a collection.
fn report(name: &str, collection: &Collection, part: (usize, usize)) {
    let wanted = std::env::var_os("LORE_QUALITY_TUNE").or(std::env::var_os("LORE_QUALITY_STAGES"));
    let ways = if is_set("LORE_QUALITY_TUNE") {
        tried()
    } else if is_set("LORE_QUALITY_STAGES") {
        stages()
    } else {
        [Mode::Lexical, Mode::Semantic, Mode::Hybrid].map(Way::of).to_vec()
    };
    let word = wanted.and_then(|text| text.into_string().ok()).filter(|text| text != "1").unwrap_or_default();
    let only = std::env::var_os("LORE_QUALITY_MODE");
    let is_wanted = |way: &Way| only.as_ref().is_none_or(|only| only.to_str() == Some(way.mode.as_str()));
    for way in ways.iter().filter(|way| is_wanted(way) && way.name.contains(&word)) {
        let mut line = measure(collection, way, part);
        line["collection"] = name.into();
        if way.name != way.mode.as_str() {
            line["tried"] = way.name.as_str().into();
        }
        println!("{line}");
    }
}
