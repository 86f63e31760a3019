//! Speed of the builtin embedder: `cargo bench --bench embed`.
//!
//! Prints wall and CPU time. On a machine that others use, believe the CPU time.
//! With `--quality DIR` (corpus.jsonl, queries.jsonl plain or gzipped, qrels.tsv) it prints
//! nDCG@10 and recall@100 of one vector a document, title and text cut to what the model takes.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::unwrap_used, reason = "a benchmark may stop at the first surprise")]

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::time::Instant;

use lore::embed::builtin::{Builtin, Kernel};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "--quality") {
        Some(at) => quality(Path::new(&arguments[at + 1])),
        None => speed(),
    }
}

fn speed() {
    let (wall, cpu) = timed(1, || assert!(Builtin::load().is_ok()));
    println!("load                          {:8.2} ms wall {:8.2} ms CPU", wall * 1e3, cpu * 1e3);
    let builtin = Builtin::load().unwrap();
    let query = "users are logged out at random";
    for (name, rounds) in [("first query (pages come in)", 1), ("query", 50)] {
        let (wall, cpu) = timed(rounds, || assert!(!builtin.embed_query(query).is_empty()));
        println!("{name:28} {:9.2} ms wall {:8.2} ms CPU", wall * 1e3, cpu * 1e3);
    }
    println!(
        "resident                      {:8} KiB, of it from the file {} KiB",
        status("VmRSS:"),
        status("RssFile:")
    );
    let text = sample(2000);
    let (wall, _) = timed(20, || assert!(builtin.count_tokens(&text) > 0));
    println!("count_tokens                  {:8.2} MB/s", text.len() as f64 / wall / 1e6);
    for kernel in Kernel::available() {
        let builtin = Builtin::with_kernel(kernel).unwrap();
        for n_tokens in [100, 400] {
            // The model takes 256 tokens: a longer text is two pieces here, as it is in lore.
            let pieces: Vec<String> = match n_tokens {
                100 => vec![sample(98)],
                _ => vec![sample(198), sample(198)],
            };
            for n_threads in [1, 2] {
                let n_texts = if kernel.name() == "scalar" { 2 } else { 12_000 / n_tokens };
                let texts: Vec<&str> = (0..n_texts).flat_map(|_| pieces.iter().map(String::as_str)).collect();
                let rounds = if kernel.name() == "scalar" { 1 } else { 3 };
                let (wall, cpu) = timed(rounds, || assert!(!builtin.embed(&texts, n_threads).is_empty()));
                println!(
                    "{:12} {n_tokens} tokens, {n_threads} threads {:8.1} texts/s wall {:8.1} a CPU second",
                    kernel.name(),
                    n_texts as f64 / wall,
                    n_texts as f64 / cpu
                );
            }
        }
    }
    println!("resident at the end           {:8} KiB, most {} KiB", status("VmRSS:"), status("VmHWM:"));
}

/// Text of exactly so many tokens.
fn sample(n_tokens: usize) -> String {
    let words = ["the", "session", "token", "of", "a", "user", "is", "lost", "after", "one", "hour", "."];
    (0..n_tokens).map(|at| words[at % words.len()]).collect::<Vec<_>>().join(" ")
}

/// Least wall and CPU seconds of some rounds.
fn timed(rounds: usize, mut work: impl FnMut()) -> (f64, f64) {
    (0..rounds).fold((f64::MAX, f64::MAX), |(wall, cpu), _| {
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        work();
        (wall.min(start.elapsed().as_secs_f64()), cpu.min(cpu_seconds() - cpu_start))
    })
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A line of the process's status, where the system has one.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn quality(directory: &Path) {
    let corpus = records(directory, "corpus.jsonl");
    let queries = records(directory, "queries.jsonl");
    let mut wanted: HashMap<String, HashMap<String, f64>> = HashMap::new();
    for line in std::fs::read_to_string(directory.join("qrels.tsv")).unwrap().lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if let [query, document, grade] = fields[..]
            && let Ok(grade) = grade.parse()
        {
            wanted.entry(query.to_owned()).or_default().insert(document.to_owned(), grade);
        }
    }
    let builtin = Builtin::load().unwrap();
    let embed = |records: &[(String, String)]| {
        let texts: Vec<&str> = records.iter().map(|(_, text)| text.as_str()).collect();
        builtin.embed(&texts, 2)
    };
    let cpu = cpu_seconds();
    let documents = embed(&corpus);
    println!("{} documents in {:.0} CPU seconds", documents.len(), cpu_seconds() - cpu);
    let (mut ndcg, mut recall, mut n_queries) = (0.0, 0.0, 0.0);
    for ((id, _), query) in queries.iter().zip(embed(&queries)) {
        let Some(grades) = wanted.get(id) else { continue };
        let mut scored: Vec<(f32, &str)> = documents
            .iter()
            .zip(&corpus)
            .map(|(vector, (id, _))| (vector.iter().zip(&query).map(|(a, b)| a * b).sum(), id.as_str()))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let gain = |rank: usize, grade: f64| grade / (rank as f64 + 2.0).log2();
        let found = |(_, id): &(f32, &str)| grades.get(*id).copied().unwrap_or(0.0);
        let got: f64 = scored.iter().take(10).enumerate().map(|(rank, hit)| gain(rank, found(hit))).sum();
        let mut best: Vec<f64> = grades.values().copied().filter(|grade| *grade > 0.0).collect();
        best.sort_by(|a, b| b.total_cmp(a));
        if best.is_empty() {
            continue;
        }
        let most: f64 = best.iter().take(10).enumerate().map(|(rank, grade)| gain(rank, *grade)).sum();
        ndcg += got / most;
        recall += scored.iter().take(100).filter(|hit| found(hit) > 0.0).count() as f64 / best.len() as f64;
        n_queries += 1.0;
    }
    println!("{n_queries} queries: nDCG@10 {:.4}, recall@100 {:.4}", ndcg / n_queries, recall / n_queries);
}

/// Identifier and text (title first) of each record of a file, plain or gzipped.
fn records(directory: &Path, name: &str) -> Vec<(String, String)> {
    let plain = directory.join(name);
    let text = std::fs::read_to_string(&plain).unwrap_or_else(|_| {
        let file = std::fs::File::open(directory.join(format!("{name}.gz"))).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        text
    });
    let field = |record: &serde_json::Value, names: [&str; 2]| {
        names.iter().find_map(|name| record.get(name)?.as_str().map(str::to_owned)).unwrap_or_default()
    };
    text.lines()
        .map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let (title, body) = (field(&record, ["title", "title"]), field(&record, ["text", "body"]));
            let text = if title.is_empty() { body } else { format!("{title}\n{body}") };
            (field(&record, ["_id", "id"]), text)
        })
        .collect()
}
