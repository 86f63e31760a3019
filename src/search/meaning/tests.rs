use std::cell::Cell;
use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::config::QueryConfig;
use crate::content::SourceType;
use crate::search::filter::Scope;
use crate::search::wanted::Wanted;
use crate::search::{Group, Mode, Options, Request, Settings, answer_with};
use crate::store::embeddings::{ChunkVector, NewChunk, NewIdentity};
use crate::store::fixtures::{Doc, with};

const WORDS: [&str; 6] = ["pump", "valve", "motor", "gauge", "piston", "boiler"];
const PROJECTS: [&str; 3] = ["group/app", "group/lib", "other/app"];
const DIMS: usize = 8;

/// A generator that gives the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    fn unit_vector(&mut self) -> Vec<f32> {
        let values: Vec<f32> = (0..DIMS)
            .map(|_| {
                self.0 ^= self.0 << 13;
                self.0 ^= self.0 >> 7;
                self.0 ^= self.0 << 17;
                (self.0 >> 40) as f32 / (1_u64 << 24) as f32 - 0.4
            })
            .collect();
        let norm = values.iter().map(|value| value * value).sum::<f32>().sqrt();
        values.iter().map(|value| value / norm).collect()
    }
}

/// Documents of every kind: more than are compared one by one, so that the scan is used too.
fn documents() -> Vec<Doc> {
    let mut docs: Vec<Doc> = Vec::new();
    for n in 1..=300_i64 {
        let at = |len: usize, by: i64| usize::try_from(n * by).unwrap() % len;
        let body = format!("{} and {}", WORDS[at(6, 1)], WORDS[at(6, 5)]);
        let base =
            if n % 3 == 0 { Doc::merge_request(n, "title", &body) } else { Doc::issue(n, "title", &body) };
        let state = if n % 3 == 0 { ["opened", "merged"][at(2, 7)] } else { ["opened", "closed"][at(2, 7)] };
        let item = Doc {
            project: 1 + n % 7 % 3,
            author: Some(["ada", "ben", "cho"][at(3, 11)].to_owned()),
            labels: [(n % 4 == 0, "bug"), (n % 5 == 0, "ui")]
                .iter()
                .filter(|(has, _)| *has)
                .map(|(_, label)| (*label).to_owned())
                .collect(),
            state: state.to_owned(),
            confidential: n % 7 == 0 && n % 3 != 0,
            ..base
        };
        if n % 6 == 1 {
            docs.push(Doc { internal: n % 12 == 1, ..Doc::discussion(&item, &body) });
        }
        docs.push(item);
    }
    docs
}

/// Whether a document may be returned, told without the code that is tested.
fn is_wanted(doc: &Doc, scope: &Scope, flags: &Wanted) -> bool {
    let path = PROJECTS[usize::try_from(doc.project - 1).unwrap()];
    let in_scope = match scope.projects.as_deref() {
        Some([only]) if only == "group/*" => path.starts_with("group/"),
        Some(projects) => projects.iter().any(|project| project == path),
        None => true,
    };
    in_scope
        && (scope.include_restricted || !(doc.confidential || doc.internal))
        && (flags.projects.is_empty() || flags.projects.iter().any(|project| project == path))
        && (flags.types.is_empty() || flags.types.contains(&doc.source_type))
        && (flags.states.is_empty() || flags.states.contains(&doc.state))
        && (flags.authors.is_empty() || doc.author.as_ref().is_some_and(|it| flags.authors.contains(it)))
        && flags.labels.iter().all(|label| doc.labels.contains(label))
        && flags.created_from.is_none_or(|from| doc.created_at >= from)
        && flags.created_to.is_none_or(|to| doc.created_at < to)
}

fn flags() -> impl Strategy<Value = Wanted> {
    let some = |values: &'static [&'static str]| {
        prop::collection::vec(prop::sample::select(values).prop_map(str::to_owned), 0..2)
    };
    (
        some(&PROJECTS),
        prop::collection::vec(
            prop::sample::select(&[SourceType::Issue, SourceType::MergeRequest, SourceType::Discussion][..]),
            0..2,
        ),
        some(&["ada", "ben", "cho"]),
        some(&["bug", "ui"]),
        some(&["opened", "closed", "merged"]),
        prop::option::of(0_i64..310_000),
        prop::option::of(0_i64..310_000),
        // Most searches have one or two conditions, or nothing would be left.
        prop::collection::vec(prop::bool::weighted(0.3), 7),
    )
        .prop_map(|(projects, types, authors, labels, states, from, to, on)| Wanted {
            projects: if on[0] { projects } else { Vec::new() },
            types: if on[1] { types } else { Vec::new() },
            authors: if on[2] { authors } else { Vec::new() },
            labels: if on[3] { labels } else { Vec::new() },
            states: if on[4] { states } else { Vec::new() },
            created_from: from.filter(|_| on[5]),
            created_to: to.filter(|_| on[6]),
            ..Wanted::default()
        })
}

fn scopes() -> impl Strategy<Value = Scope> {
    let projects = prop_oneof![
        Just(None),
        Just(Some(vec!["group/*".to_owned()])),
        Just(Some(vec!["other/app".to_owned()])),
        Just(Some(vec!["group/lib".to_owned(), "other/app".to_owned()])),
    ];
    (projects, any::<bool>())
        .prop_map(|(projects, include_restricted)| Scope { projects, include_restricted })
}

#[test]
fn a4_13_a3_04_what_is_found_by_meaning_is_exactly_what_scope_and_filter_allow() {
    let docs = documents();
    let (_dir, store) = with(&docs);
    let new = NewIdentity {
        hash: "h",
        provider: "ollama",
        model: "m",
        dims: DIMS,
        chunking: "none",
        query_prefix: "",
        document_prefix: "",
        endpoint: Some("http://127.0.0.1:1"),
    };
    let mut numbers = Numbers(17);
    let questions: Vec<Vec<f32>> = WORDS.iter().map(|_| numbers.unit_vector()).collect();
    let vectors: Vec<Vec<Vec<f32>>> = docs
        .iter()
        .enumerate()
        .map(|(at, _)| (0..=at % 2).map(|_| numbers.unit_vector()).collect())
        .collect();
    let identity = store
        .write(|tx| {
            let identity = embeddings::create(tx, &new, 0)?;
            for (id, vectors) in (1..).zip(&vectors) {
                let chunk = |vector: &Vec<f32>| NewChunk {
                    hash: [0; 16],
                    is_title: false,
                    char_start: 0,
                    char_end: 0,
                    vector: ChunkVector::New(vector.clone()),
                };
                let chunks: Vec<NewChunk> = vectors.iter().map(chunk).collect();
                embeddings::write_document(tx, &identity, (id, "h"), &chunks, false, 0)?;
            }
            for (word, vector) in WORDS.iter().zip(&questions) {
                embeddings::remember_query(tx, identity.id, word, vector, 0)?;
            }
            Ok(identity)
        })
        .unwrap();
    let backgrounds: Vec<f64> = questions
        .iter()
        .map(|vector| store.read(|tx| knn::background(tx, &identity, vector)).unwrap())
        .collect();
    let config = EmbeddingConfig::default();
    let service = Service {
        config: &config,
        vars: &|_| None,
        memory: &|| Err(Error::internal("nothing has to be remembered")),
    };
    let (answered, scanned) = (Cell::new(0), Cell::new(0));
    let strategy = (0..WORDS.len(), scopes(), flags(), any::<bool>());
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(2_500) });
    runner
        .run(&strategy, |(word, scope, flags, hybrid)| {
            let request = Request {
                text: WORDS[word].to_owned(),
                like: None,
                flags: flags.clone(),
                mode: if hybrid { Mode::Hybrid } else { Mode::Semantic },
                raw: false,
                group: Group::None,
                limit: 1_000,
                offset: 0,
                min_score: None,
                scope: scope.clone(),
                settings: Settings { candidates: 1_000, ..Settings::of_config(&QueryConfig::default()) },
                now: 10_000_000,
                // Neighbours are found by neither words nor meaning.
                options: Options { depth: 0, ..Options::default() },
            };
            let answer = answer_with(&store, Some(&service), &request).unwrap();
            let found: BTreeSet<i64> = answer.hits.iter().map(|hit| hit.document.id).collect();
            let allowed: BTreeSet<i64> = (1..)
                .zip(&docs)
                .filter(|(_, doc)| is_wanted(doc, &scope, &flags))
                .map(|(id, _)| id)
                .collect();
            prop_assert!(found.is_subset(&allowed), "{:?}", found.difference(&allowed).collect::<Vec<_>>());
            // And nothing that is allowed and near enough is missing.
            let near: BTreeSet<i64> = allowed
                .iter()
                .copied()
                .filter(|id| {
                    let cosine = |vector: &Vec<f32>| -> f64 {
                        vector.iter().zip(&questions[word]).map(|(a, b)| f64::from(a * b)).sum()
                    };
                    let own = &vectors[usize::try_from(id - 1).unwrap()];
                    let best = own.iter().map(cosine).fold(f64::MIN, f64::max);
                    // Away from the edge, where half precision decides.
                    (best - backgrounds[word]) / (1.0 - backgrounds[word]) > UNRELATED + 0.01
                })
                .collect();
            prop_assert!(near.is_subset(&found), "{:?}", near.difference(&found).collect::<Vec<_>>());
            answered.set(answered.get() + usize::from(!found.is_empty()));
            scanned.set(scanned.get() + usize::from(allowed.len() > 200));
            Ok(())
        })
        .unwrap();
    let (answered, scanned) = (answered.get(), scanned.get());
    assert!(answered > 800 && scanned > 60, "{answered} answered, {scanned} by scan");
}
