//! How good answers are: collections with questions and judgements, loaded through the real
//! store and steps and asked through the real query path, with the defaults a user gets.
//!
//! `cargo bench --bench quality -- DIR...`; what a DIR holds is told in
//! `tests/it/support/collection.rs`. Prints one JSON line per collection and mode. Databases are
//! made once and kept under `target/bench-data`.
//!
//! `LORE_QUALITY_QUERIES=100` asks that many only, evenly spread. `LORE_QUALITY_DOCS=2000`
//! takes that many documents, those that are judged first: then figures compare only among
//! themselves. `LORE_QUALITY_MODE=hybrid` asks in one mode only, `LORE_QUALITY_HALF=1` every other
//! query from the second on. `LORE_QUALITY_TUNE=feedback` tries those ways of fusion
//! whose name holds that word on every other query instead; an empty one tries all.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and may fail loudly")]

#[path = "../tests/it/support/collection.rs"]
mod collection;

use std::path::Path;
use std::time::Instant;

use collection::{Collection, Part, Score};
use lore::config::QueryConfig;
use lore::search::fuse::Method;
use lore::search::{Mode, Settings};
use serde_json::{Value, json};

fn number_of(name: &str) -> Option<usize> {
    std::env::var_os(name).and_then(|text| text.to_str()?.parse().ok())
}

/// Asks every `step`th question from `first` on.
fn measure(collection: &Collection, mode: Mode, settings: Settings, (first, step): (usize, usize)) -> Value {
    let mut score = Score::default();
    let mut times = Vec::new();
    let judged = collection.questions.iter().filter(|question| !question.gains.is_empty());
    for question in judged.skip(first).step_by(step) {
        let started = Instant::now();
        let found = collection.ask(&question.text, mode, settings, 100);
        times.push(started.elapsed().as_secs_f64() * 1e3);
        let found: Vec<&String> = found.iter().map(|hit| collection.id(hit)).collect();
        score.add(&found, &question.gains);
    }
    times.sort_by(f64::total_cmp);
    let rounded = |value: f64| (value * 1e4).round() / 1e4;
    let [ndcg10, recall100, mrr] = score.means().map(rounded);
    json!({
        "mode": mode.as_str(),
        "ndcg10": ndcg10,
        "recall100": recall100,
        "mrr": mrr,
        "p50_ms": rounded(times.get(times.len() / 2).copied().unwrap_or(0.0)),
        "queries": times.len(),
    })
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

fn tune(name: &str, collection: &Collection, part: (usize, usize)) {
    let defaults = Settings::of_config(&QueryConfig::default());
    let mut tried = Vec::new();
    for mode in [Mode::Lexical, Mode::Semantic] {
        tried.push((mode.as_str().to_owned(), mode, defaults));
    }
    for weight in [0.3, 0.4, 0.5, 0.6, 0.7, 0.8] {
        let settings = Settings { fusion: Method::MinMax, lexical_weight: weight, ..defaults };
        tried.push((format!("minmax {weight}"), Mode::Hybrid, settings));
    }
    for feedback in [0.0, 0.3, 0.6, 1.0] {
        for lexical_weight in [0.5, 0.6, 0.7] {
            let settings = Settings { feedback, lexical_weight, ..defaults };
            tried.push((format!("feedback {feedback} words {lexical_weight}"), Mode::Hybrid, settings));
        }
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
    let only = std::env::var_os("LORE_QUALITY_TUNE").unwrap_or_default();
    for (what, mode, settings) in tried.into_iter().filter(|it| it.0.contains(only.to_str().unwrap())) {
        let mut line = measure(collection, mode, settings, part);
        line["collection"] = name.into();
        line["tried"] = what.into();
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
        None if is_tuning => (0, 2),
        None => (0, 1),
    };
    let use_only =
        Part { questions: number_of("LORE_QUALITY_QUERIES"), documents: number_of("LORE_QUALITY_DOCS") };
    for directory in directories {
        let name = Path::new(&directory).canonicalize().unwrap();
        let name = name.file_name().unwrap().to_string_lossy().into_owned();
        let started = Instant::now();
        let databases = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data");
        let collection = Collection::load(Path::new(&directory), &databases, use_only);
        let loaded_s = started.elapsed().as_secs();
        if loaded_s > 1 {
            println!(
                "{}",
                json!({ "collection": name, "documents": collection.documents, "loaded_s": loaded_s })
            );
        }
        if let Some(directory) = std::env::var_os("LORE_QUALITY_DUMP") {
            dump(&collection, &Path::new(&directory).join(format!("{name}.jsonl")));
            continue;
        }
        if is_tuning {
            tune(&name, &collection, part);
            continue;
        }
        let settings = Settings::of_config(&QueryConfig::default());
        let only = std::env::var_os("LORE_QUALITY_MODE");
        for mode in [Mode::Lexical, Mode::Semantic, Mode::Hybrid] {
            if only.as_ref().is_some_and(|only| only.to_str() != Some(mode.as_str())) {
                continue;
            }
            let mut line = measure(&collection, mode, settings, part);
            line["collection"] = name.as_str().into();
            println!("{line}");
        }
    }
}
