//! What is meant letter by letter is found at rank one, over real projects, when they are on
//! this machine: ids, error codes, commit hashes, quoted identifiers.

use std::collections::BTreeSet;

use lore::config::QueryConfig;
use lore::search::filter::Scope;
use lore::search::wanted::Wanted;
use lore::search::{self, Group, Mode, Options, Request, Settings};
use lore::store::{OpenOptions, Store};
use regex::Regex;

use crate::export_world::shared;
use crate::support::binary::Bench;
use crate::support::dump::open;

/// Of each kind.
const SAMPLES: usize = 50;

/// A question, and what the first result must be or hold.
enum Expected {
    Item(&'static str, i64),
    Holds(String),
}

/// Evenly spread over the sorted whole.
fn sample(all: &BTreeSet<String>) -> Vec<String> {
    let all: Vec<&String> = all.iter().collect();
    let n = SAMPLES.min(all.len());
    (0..n).map(|at| all[at * all.len() / n].clone()).collect()
}

fn questions(database: &std::path::Path) -> Vec<(String, Expected)> {
    let sql = open(database);
    let texts: Vec<String> = sql
        .prepare("SELECT substr(content_text, body_start + 1) FROM documents ORDER BY id")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut out = Vec::new();
    let items: Vec<(String, i64)> = sql
        .prepare("SELECT source_type, item_iid FROM documents WHERE source_type <> 'discussion' ORDER BY id")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for at in 0..SAMPLES {
        let (kind, iid) = &items[at * items.len() / SAMPLES];
        let (kind, sign) = if kind == "issue" { ("issue", '#') } else { ("merge_request", '!') };
        out.push((format!("{sign}{iid}"), Expected::Item(kind, *iid)));
    }
    let found = |pattern: &str, keep: &dyn Fn(&str) -> bool| -> BTreeSet<String> {
        let pattern = Regex::new(pattern).unwrap();
        texts
            .iter()
            .flat_map(|text| pattern.captures_iter(text))
            .map(|found| found[1].to_owned())
            .filter(|found| keep(found))
            .collect()
    };
    let mixed = |text: &str| {
        text.contains(|c: char| c.is_ascii_digit()) && text.contains(|c: char| c.is_ascii_lowercase())
    };
    for code in sample(&found(r"\b([A-Z]{1,4}[0-9]{3,5}|[A-Z]{2,6}-[0-9]{2,6})\b", &|_| true)) {
        out.push((code.clone(), Expected::Holds(code)));
    }
    for hash in sample(&found(r"\b([0-9a-f]{8,40})\b", &mixed)) {
        let cut: String = hash.chars().take(10).collect();
        out.push((cut.clone(), Expected::Holds(cut)));
    }
    let is_name = |text: &str| text.contains(['_', ':']) && text.chars().count() < 60;
    for name in sample(&found(r"`([A-Za-z][A-Za-z0-9_]*(?:::[A-Za-z0-9_]+)*)`", &is_name)) {
        out.push((format!("\"{name}\""), Expected::Holds(name)));
    }
    out
}

fn check(name: &str, archive: &str, project: &str) {
    let Some(shared) = shared() else { return };
    let path = shared.join("gitlab/corpus").join(name).join(archive);
    let bench = Bench::new();
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab-export\"\npath = \"{}\"\nproject = \"{project}\"\n",
            path.display()
        ),
    );
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    let store = Store::open_read_only(&bench.database(), OpenOptions::default()).unwrap();
    let sql = open(&bench.database());
    let mut missed = Vec::new();
    let all = questions(&bench.database());
    for (text, expected) in &all {
        let request = Request {
            text: text.clone(),
            like: None,
            flags: Wanted::default(),
            mode: Mode::Lexical,
            raw: false,
            group: Group::Item,
            limit: 1,
            offset: 0,
            min_score: None,
            scope: Scope { projects: None, include_restricted: true },
            settings: Settings::of_config(&QueryConfig::default()),
            now: 0,
            options: Options::default(),
        };
        let answer = search::answer(&store, &request).unwrap();
        let first = answer.hits.first().map(|hit| &hit.document);
        let is_right = first.is_some_and(|document| match expected {
            Expected::Item(kind, iid) => document.source_type.as_str() == *kind && document.iid == *iid,
            Expected::Holds(literal) => sql
                .query_row(
                    "SELECT instr(COALESCE(title, '') || char(10) || content_text || char(10) || thread_text, ?2) > 0
                       FROM documents WHERE id = ?1",
                    (document.id, literal),
                    |row| row.get::<_, bool>(0),
                )
                .unwrap(),
        });
        if !is_right {
            missed.push(text.clone());
        }
    }
    eprintln!("{name}: {} of {} literals at rank 1", all.len() - missed.len(), all.len());
    assert_eq!(missed, Vec::<String>::new());
}

#[test]
fn literals_of_the_rust_sample_are_at_rank_one() {
    check("rust-2k", "rust-2k-gitlab-export.tar.gz", "rust-lang/rust");
}

#[test]
fn literals_of_the_gui_sample_are_at_rank_one() {
    check("bitcoin-core__gui", "gui-gitlab-export.tar.gz", "bitcoin-core/gui");
}
