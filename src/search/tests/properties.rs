//! What holds for any corpus, scope and question. Each property is tried on twenty corpora with
//! a hundred questions each: making a database takes longer than asking it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;
use crate::store::fixtures::{insert, refer, store};

const CORPORA: u32 = 20;
const QUESTIONS: usize = 100;

const WORDS: [&str; 10] =
    ["pump", "valve", "crash", "upload", "E0382", "auth_token", "日本語", "zeppelin", "v1.2.3", "login"];
const NAMES: [&str; 5] = ["ann", "Ann", "bob", "bug", "src/a.rs"];
const PATHS: [&str; 3] = ["group/app", "group/lib", "other/app"];

/// A reference: from which document, how, to which project, kind and number.
type Refers = (usize, &'static str, usize, bool, i64);

#[derive(Debug, Clone)]
struct Corpus {
    docs: Vec<Doc>,
    refs: Vec<Refers>,
}

fn words(most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..most).prop_map(|words| words.join(" "))
}

fn a_doc() -> impl Strategy<Value = Doc> {
    let flags = (any::<bool>(), prop::bool::weighted(0.25), prop::bool::weighted(0.2), any::<bool>());
    let name = || prop::sample::select(&NAMES[..]);
    (0_i64..3, words(4), words(8), flags, name(), name(), any::<bool>()).prop_map(
        |(project, title, body, (is_mr, confidential, internal, open), author, label, talk)| {
            let title = format!("t {title}");
            let kind = if is_mr { Doc::merge_request(0, &title, &body) } else { doc(0, &title, &body) };
            Doc {
                project: project + 1,
                // Merge requests are never confidential; a talk may be internal.
                confidential: confidential && !is_mr,
                internal: internal && talk,
                author: Some(author.to_owned()),
                labels: vec![label.to_owned()],
                paths: if label.contains('/') { vec![label.to_owned()] } else { Vec::new() },
                state: if open { "opened" } else { "closed" }.to_owned(),
                source_type: if talk { crate::content::SourceType::Discussion } else { kind.source_type },
                ..kind
            }
        },
    )
}

/// Items numbered from 1; what was to be a discussion belongs to the item before it.
fn a_corpus(size: usize) -> impl Strategy<Value = Corpus> {
    let kinds = prop::sample::select(&["mentions", "closes", "related", "moved", "duplicates"][..]);
    let refs =
        prop::collection::vec((0..size, kinds, 0_usize..3, any::<bool>(), 1..=size as i64), 0..size * 2);
    (prop::collection::vec(a_doc(), size..=size), refs).prop_map(|(mut docs, refs)| {
        let mut item: Option<Doc> = None;
        for (iid, doc) in (1..).zip(&mut docs) {
            let is_talk = doc.source_type == crate::content::SourceType::Discussion;
            match (&item, is_talk) {
                (Some(item), true) => {
                    let (body, internal, author) = (doc.body.clone(), doc.internal, doc.author.clone());
                    *doc = Doc { internal, author, ..Doc::discussion(item, &body) };
                }
                (None, true) | (_, false) => {
                    doc.source_type = match doc.item_type {
                        crate::content::ItemType::Issue => crate::content::SourceType::Issue,
                        crate::content::ItemType::MergeRequest => crate::content::SourceType::MergeRequest,
                    };
                    (doc.iid, doc.internal) = (iid, false);
                    doc.updated_at = iid;
                    item = Some(doc.clone());
                }
            }
        }
        Corpus { docs, refs }
    })
}

fn a_query() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => prop::sample::select(&WORDS[..]).prop_map(str::to_owned),
        1 => prop::sample::select(&NAMES[..]).prop_map(|name| format!("author:{name}")),
        1 => prop::sample::select(&NAMES[..]).prop_map(|name| format!("label:{name}")),
        1 => prop::sample::select(&NAMES[..]).prop_map(str::to_owned),
        1 => prop::sample::select(&PATHS[..]).prop_map(|path| format!("project:{path}")),
        1 => (1_i64..12).prop_map(|iid| iid.to_string()),
        1 => (1_i64..12, prop::sample::select(&["#", "!", "group/lib#", "other/app!"][..]))
            .prop_map(|(iid, sign)| format!("{sign}{iid}")),
        1 => prop::sample::select(
            &["is:open", "-is:open", "-label:bug", "-author:ann", "-project:group/lib", "-path:src/*", "type:mr", "type:discussion", "in:title", "path:src/", "-valve", "+crash", "\"pump valve\"", "uplo*"][..]
        ).prop_map(str::to_owned),
    ];
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join(" "))
}

fn a_scope() -> impl Strategy<Value = Scope> {
    let patterns = prop::sample::subsequence(&["group/app", "group/lib", "other/*"][..], 0..=3);
    (prop::option::weighted(0.8, patterns), any::<bool>()).prop_map(|(projects, include_restricted)| Scope {
        projects: projects.map(|patterns| patterns.into_iter().map(str::to_owned).collect()),
        include_restricted,
    })
}

/// The documents of a corpus that `seen` lets through, and the references in them.
fn make(corpus: &Corpus, seen: impl Fn(&Doc) -> bool) -> (tempfile::TempDir, Store) {
    let (dir, store) = store();
    store
        .write(|tx| {
            for (at, doc) in corpus.docs.iter().enumerate().filter(|(_, doc)| seen(doc)) {
                let id = insert(tx, doc)?;
                for (_, kind, project, is_mr, iid) in corpus.refs.iter().filter(|refers| refers.0 == at) {
                    let target = if *is_mr { "merge_request" } else { "issue" };
                    let path = PATHS[*project];
                    refer(tx, id, kind, target, path, *iid)?;
                }
            }
            Ok(())
        })
        .unwrap();
    (dir, store)
}

/// All that an answer tells, without what depends on how common words are elsewhere: order
/// and scores. Ids of documents differ between two databases.
fn told(outcome: &Result<Answer>, by_item: bool) -> String {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(error) => return format!("{} {:?}", error.full_message(), error.hints()),
    };
    let mut hits: Vec<String> = answer
        .hits
        .iter()
        .map(|hit| {
            let document = Hydrated { id: 0, ..hit.document.clone() };
            if by_item {
                // Which of its documents stands for an item is a matter of scores.
                let Hydrated { project_path, item_type, iid, .. } = document;
                return format!("{project_path} {item_type:?} {iid} {:?}", hit.related);
            }
            format!("{document:?} {:?} {:?} {:?}", hit.snippet, hit.related, hit.explain.matched)
        })
        .collect();
    hits.sort();
    let terms: Vec<_> = answer.terms.iter().map(|term| (&term.text, term.documents)).collect();
    format!(
        "{hits:#?} {:?} {} {terms:?} {:?} {:?} {:?} {:?}",
        answer.total, answer.corpus, answer.loosened, answer.facets, answer.hints, answer.warnings
    )
}

proptest! {
    #![proptest_config(Config { cases: CORPORA, max_shrink_iters: 200, ..Config::default() })]

    /// The answer is the one of a database that holds nothing else than what may be seen.
    #[test]
    fn a4_13_what_may_not_be_seen_changes_nothing_that_is_told(
        corpus in a_corpus(10),
        questions in prop::collection::vec((a_query(), any::<bool>(), any::<bool>(), 0_usize..4), QUESTIONS),
        scopes in prop::collection::vec(a_scope(), 4),
    ) {
        let (_dir, full) = make(&corpus, |_| true);
        let cuts: Vec<_> = scopes
            .iter()
            .map(|scope| {
                make(&corpus, |doc| {
                    let path = PATHS[usize::try_from(doc.project - 1).unwrap()];
                    scope.allows(path) && (scope.include_restricted || !(doc.confidential || doc.internal))
                })
            })
            .collect();
        for (at, (text, by_item, is_like, depth)) in questions.iter().enumerate() {
            let (scope, cut) = (&scopes[at % 4], &cuts[at % 4].1);
            let mut settings = request("").settings;
            settings.boosts.parents = 100;
            let asked = Request {
                scope: scope.clone(),
                like: is_like.then(|| format!("{}#{}", PATHS[at % 3], at % 10 + 1)),
                group: if *by_item { Group::Item } else { Group::None },
                limit: 100,
                settings,
                options: Options { depth: *depth, explain: true, facets: true, passage_chars: Some(300), ..Options::default() },
                ..request(text)
            };
            let all = answer(&full, &asked);
            let none = answer(cut, &asked);
            prop_assert_eq!(told(&all, *by_item), told(&none, *by_item), "{} in {:?}", text, scope);
            for hit in all.iter().flat_map(|answer| &answer.hits) {
                let is_seen = corpus.docs.iter().any(|doc| {
                    let kind = (doc.iid, doc.source_type, doc.body.as_str());
                    kind == (hit.document.iid, hit.document.source_type, hit.document.body.as_str())
                        && PATHS[usize::try_from(doc.project - 1).unwrap()] == hit.document.project_path
                        && (scope.include_restricted || !(doc.confidential || doc.internal))
                });
                prop_assert!(is_seen && scope.allows(&hit.document.project_path), "{} {:?}", text, hit);
            }
        }
    }

    #[test]
    fn a4_01_pages_of_any_size_joined_are_the_long_list(
        corpus in a_corpus(60),
        questions in prop::collection::vec((a_query(), any::<bool>(), 1_usize..40, 5_usize..60), QUESTIONS),
    ) {
        let (_dir, store) = make(&corpus, |_| true);
        for (text, by_item, size, candidates) in &questions {
            let group = if *by_item { Group::Item } else { Group::None };
            let settings = Settings { candidates: *candidates, ..request("").settings };
            let asked = Request { group, settings, ..request(text) };
            let Ok(long) = answer(&store, &Request { limit: 100, ..asked.clone() }) else { continue };
            let shape = |answer: &Answer| -> Vec<(i64, u64)> {
                answer.hits.iter().map(|hit| (hit.document.id, hit.score.to_bits())).collect()
            };
            let mut joined = Vec::new();
            for offset in (0..long.hits.len()).step_by(*size) {
                joined.extend(shape(&answer(&store, &Request { limit: *size, offset, ..asked.clone() }).unwrap()));
            }
            prop_assert_eq!(&joined, &shape(&long), "{}", text);
            let ids: std::collections::BTreeSet<i64> = joined.iter().map(|(id, _)| *id).collect();
            prop_assert_eq!(ids.len(), joined.len());
            prop_assert!(long.hits.is_sorted_by(|a, b| a.score >= b.score), "{}", text);
            if long.total.exact {
                prop_assert_eq!(long.total.count, long.hits.len());
            }
        }
    }

    #[test]
    fn a4_03_the_same_question_has_the_same_answer_a_hundred_times(corpus in a_corpus(40), text in a_query()) {
        let (_dir, store) = make(&corpus, |_| true);
        let options = Options { depth: 2, explain: true, facets: true, ..Options::default() };
        let asked = Request { options, ..request(&text) };
        let tell = |outcome: Result<Answer>| outcome.map_or_else(
            |error| error.full_message(),
            |answer| format!("{:?} {:?} {:?} {:?}", answer.hits, answer.facets, answer.terms, answer.hints),
        );
        let first = tell(answer(&store, &asked));
        for _ in 1..QUESTIONS {
            prop_assert_eq!(&tell(answer(&store, &asked)), &first);
        }
    }

    #[test]
    fn facets_count_what_filters_find(
        corpus in a_corpus(40),
        questions in prop::collection::vec((a_query(), any::<bool>()), QUESTIONS),
    ) {
        let (_dir, store) = make(&corpus, |_| true);
        for (text, by_item) in &questions {
            let asked = Request {
                group: if *by_item { Group::Item } else { Group::None },
                limit: 100,
                options: Options { depth: 0, facets: true, ..Options::default() },
                ..request(text)
            };
            let Ok(all) = answer(&store, &asked) else { continue };
            let facets = all.facets.clone().unwrap();
            prop_assert_eq!((facets.total, true), (all.total.count, all.total.exact), "{}", text);
            prop_assert_eq!(facets.total, all.hits.len(), "{}", text);
            let by_project: usize = facets.project.values.iter().map(|value| value.count).sum();
            prop_assert_eq!(by_project, facets.total);
            let counts: BTreeMap<&str, usize> =
                facets.source_type.values.iter().map(|value| (value.value.as_str(), value.count)).collect();
            // Alone, `-word` is text; beside a filter it excludes.
            if !text.contains("type:") && !text.contains('-') {
                for (name, count) in counts {
                    let mut flags = Wanted::default();
                    flags.set("type", name, "--type", 0).unwrap();
                    let some = answer(&store, &Request { flags, ..asked.clone() }).unwrap();
                    // References name items, whatever words are asked for beside them.
                    if !text.contains(['#', '!']) {
                        prop_assert_eq!(some.total.count, count, "{} {}", text, name);
                    }
                }
            }
        }
    }
}
