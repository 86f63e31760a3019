//! nDCG@10 and recall@100 of the defaults on the collections beside the repository, when
//! they are there. Not a check but a measurement of some minutes:
//! `LORE_QUALITY=1 cargo test --release --lib quality_of -- --nocapture`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::*;
use crate::store::fixtures::{Doc, insert, store, store_lengths};

fn lines(path: &Path) -> Vec<serde_json::Value> {
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(value: &serde_json::Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn measure(directory: &Path, discussions: bool, queries: &str) {
    let (_dir, store) = store();
    let mut names = BTreeMap::new();
    store
        .write(|tx| {
            for (iid, record) in (1..).zip(lines(&directory.join("corpus.jsonl.gz"))) {
                let comments: Vec<String> = record["comments"]
                    .as_array()
                    .map(|list| list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect())
                    .unwrap_or_default();
                let item = Doc {
                    thread: comments.join("\n").chars().take(32_000).collect(),
                    ..doc(iid, &text(&record, "title"), &text(&record, "text"))
                };
                insert(tx, &item)?;
                names.insert(iid, text(&record, "id"));
                for comment in comments.iter().filter(|_| discussions) {
                    let terms = crate::content::terms::document_terms(comment);
                    insert(tx, &Doc { thread: String::new(), terms, ..Doc::discussion(&item, comment) })?;
                }
            }
            store_lengths(tx)
        })
        .unwrap();
    println!("{:?}", store.read(sql::corpus).unwrap());
    for discussion in if discussions { vec![0.3, 0.5, 0.7] } else { vec![DISCUSSION_FACTOR] } {
        score(directory, &store, &names, discussion, discussions, queries);
    }
}

fn score(
    directory: &Path,
    store: &Store,
    names: &BTreeMap<i64, String>,
    discussion: f64,
    discussions: bool,
    queries: &str,
) {
    let settings = Settings { discussion, ..request("").settings };
    let mut relevant: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    let judgements = std::fs::File::open(directory.join("qrels.tsv")).unwrap();
    for line in BufReader::new(judgements).lines() {
        let line = line.unwrap();
        let mut parts = line.split('\t');
        let (query, document) = (parts.next().unwrap().to_owned(), parts.next().unwrap().to_owned());
        let gain: f64 = parts.next().unwrap().parse().unwrap();
        relevant.entry(query).or_default().insert(document, gain);
    }
    let (mut ndcg, mut recall, mut count) = (0.0, 0.0, 0.0);
    for query in lines(&directory.join(queries)).into_iter().take(250) {
        let Some(judged) = relevant.get(&text(&query, "id")) else { continue };
        let found: Vec<String> =
            match answer(store, &Request { limit: 100, settings, ..request(&text(&query, "text")) }) {
                Ok(answer) => iids(&answer).iter().map(|iid| names[iid].clone()).collect(),
                Err(error) => panic!("{error}"),
            };
        let gains = found.iter().take(10).map(|name| judged.get(name).copied().unwrap_or(0.0));
        let discount = |(rank, gain): (usize, f64)| gain / (rank as f64 + 2.0).log2();
        let dcg: f64 = gains.enumerate().map(discount).sum();
        let mut ideal: Vec<f64> = judged.values().copied().collect();
        ideal.sort_by(|a, b| b.total_cmp(a));
        ndcg += dcg / ideal.into_iter().take(10).enumerate().map(discount).sum::<f64>();
        let hits: BTreeSet<&String> = found.iter().filter(|name| judged.contains_key(*name)).collect();
        recall += hits.len() as f64 / judged.len() as f64;
        count += 1.0;
    }
    let name = directory.file_name().unwrap().to_string_lossy().into_owned();
    println!(
        "{name:<10} discussions {discussions:<5} x {discussion} {queries:<24} nDCG@10 {:.4} R@100 {:.4} ({count} queries)",
        ndcg / count,
        recall / count
    );
}

#[test]
fn quality_of_the_defaults() {
    if std::env::var_os("LORE_QUALITY").is_none() {
        eprintln!("not measured: LORE_QUALITY is not set");
        return;
    }
    let shared = std::env::var_os("LORE_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    if !shared.join("ir").exists() {
        eprintln!("no collections at {}", shared.display());
        return;
    }
    for (name, discussions, queries) in [
        ("issue-pr", true, "queries.jsonl.gz"),
        ("cacm", false, "queries.jsonl.gz"),
        ("cranfield", false, "queries.jsonl.gz"),
        ("scifact", false, "queries.jsonl.gz"),
        ("issue-pr", false, "queries.jsonl.gz"),
        ("issue-pr", false, "queries_long.jsonl.gz"),
    ] {
        measure(&shared.join("ir").join(name), discussions, queries);
    }
}
