use super::super::Store;
use super::super::fixtures::{Doc, execute, store, with};
use super::*;

fn allowed(store: &Store, filter: &Filter) -> Vec<i64> {
    let set = store.read(|tx| compile(tx, filter)).unwrap().expect("a filter");
    (0..50).filter(|id| set.contains(*id)).collect()
}

fn sample() -> Vec<Doc> {
    let mut docs: Vec<Doc> = (1..=6).map(|n| Doc::issue(n, "pump", "valve")).collect();
    docs[1].labels = vec!["bug".to_owned(), "needs review".to_owned()];
    docs[2].labels = vec!["bug".to_owned()];
    docs[2].paths = vec!["src/a.rs".to_owned(), "src0/b.rs".to_owned()];
    docs[3].paths = vec!["src/x_y/z.rs".to_owned()];
    docs[3].author = Some("ann".to_owned());
    docs[3].project = 2;
    docs[4].state = "closed".to_owned();
    docs[4].assignees = vec!["bob".to_owned()];
    docs[4].milestone = Some("1.0".to_owned());
    docs[5].confidential = true;
    docs.push(Doc { draft: true, ..Doc::merge_request(7, "pump", "valve") });
    docs
}

#[test]
fn each_predicate_restricts_and_all_compose() {
    let (_dir, store) = with(&sample());
    let all = Filter { include_restricted: true, ..Filter::default() };
    let f = |change: &dyn Fn(&mut Filter)| {
        let mut filter = all.clone();
        change(&mut filter);
        filter
    };
    let bug = "bug".to_owned();
    assert_eq!(allowed(&store, &f(&|f| f.labels = vec![vec![bug.clone()]])), [2, 3]);
    assert_eq!(
        allowed(&store, &f(&|f| f.labels = vec![vec![bug.clone()], vec!["needs review".to_owned()]])),
        [2]
    );
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("src/")])), [3, 4]);
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("src/x_y/")])), [4]);
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("src/a.rs")])), [3]);
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("src/a_rs")])), [0_i64; 0]);
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("*.rs")])), [3, 4]);
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("src/**/a.rs")])), [3]);
    assert_eq!(allowed(&store, &f(&|f| f.paths = vec![PathFilter::parse("src/?_?/")])), [4]);
    assert_eq!(allowed(&store, &f(&|f| f.projects = Some(vec![2]))), [4]);
    assert_eq!(allowed(&store, &f(&|f| f.projects = Some(vec![]))), [0_i64; 0]);
    assert_eq!(allowed(&store, &f(&|f| f.authors = vec!["ann".to_owned()])), [4]);
    assert_eq!(allowed(&store, &f(&|f| f.states = vec!["closed".to_owned()])), [5]);
    assert_eq!(allowed(&store, &f(&|f| f.assignees = vec!["bob".to_owned()])), [5]);
    assert_eq!(allowed(&store, &f(&|f| f.milestone = Some("1.0".to_owned()))), [5]);
    assert_eq!(allowed(&store, &f(&|f| f.types = vec![SourceType::MergeRequest])), [7]);
    assert_eq!(allowed(&store, &f(&|f| f.draft = Some(true))), [7]);
    assert_eq!(allowed(&store, &f(&|f| f.confidential = Some(true))), [6]);
    assert_eq!(allowed(&store, &f(&|f| f.created_from = Some(5_000))), [5, 6, 7]);
    assert_eq!(allowed(&store, &f(&|f| (f.created_from, f.created_to) = (Some(5_000), Some(7_000)))), [5, 6]);
    assert_eq!(allowed(&store, &f(&|f| f.updated_from = Some(6_000))), [6, 7]);
    let composed = f(&|f| {
        f.labels = vec![vec![bug.clone()]];
        f.paths = vec![PathFilter::parse("src/")];
        f.states = vec!["opened".to_owned()];
        f.projects = Some(vec![1, 2]);
    });
    assert_eq!(allowed(&store, &composed), [3]);
    assert_eq!(store.read(|tx| compile(tx, &all)).unwrap(), None);
}

#[test]
fn what_is_restricted_is_left_out_unless_allowed() {
    let mut docs = sample();
    docs[0].internal = true;
    let (_dir, store) = with(&docs);
    let set = store.read(|tx| compile(tx, &Filter::default())).unwrap().expect("a filter");
    let seen: Vec<i64> = (1..=7).filter(|id| set.contains(*id)).collect();
    assert_eq!(seen, [2, 3, 4, 5, 7]);
    let only = Filter { confidential: Some(true), ..Filter::default() };
    assert!(allowed(&store, &only).is_empty(), "asking for confidential items does not allow them");
}

#[test]
fn filters_never_read_the_wide_rows() {
    let (_dir, store) = store();
    let everything = Filter {
        projects: Some(vec![1]),
        types: vec![SourceType::Issue],
        authors: vec!["a".to_owned()],
        labels: vec![vec!["l".to_owned()], vec!["m".to_owned(), "n".to_owned()]],
        not: vec![Filter { labels: vec![vec!["l".to_owned()]], ..Filter::default() }],
        paths: vec![PathFilter::parse("a/"), PathFilter::parse("b")],
        states: vec!["opened".to_owned()],
        milestone: Some("m".to_owned()),
        assignees: vec!["a".to_owned()],
        created_from: Some(1),
        created_to: Some(2),
        updated_from: Some(1),
        draft: Some(true),
        confidential: Some(false),
        include_restricted: false,
    };
    let narrow =
        Filter { projects: None, states: Vec::new(), draft: None, confidential: None, ..everything.clone() };
    for (sql, values) in predicates(&everything).into_iter().chain(predicates(&narrow)) {
        let plan: String = store
            .read(|tx| {
                let mut statement = tx.sql().prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                let rows = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3))?;
                Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.join("; "))
            })
            .unwrap();
        let index_only = plan.contains("COVERING INDEX")
            || plan.contains("idx_documents_milestone")
            || plan.contains("PRIMARY KEY");
        assert!(index_only, "{sql}: {plan}");
    }
}

#[test]
fn ranked_hits_come_best_first_and_ties_by_id() {
    let (_dir, store) = with(&[
        Doc::issue(1, "other", "pump in the text"),
        Doc::issue(2, "pump", "other text"),
        Doc::issue(3, "other", "pump in the text"),
        Doc::issue(4, "nothing", "of interest"),
        Doc::issue(5, "nothing", "of interest"),
        Doc::issue(6, "nothing", "of interest"),
        Doc::issue(7, "nothing", "of interest"),
    ]);
    let run = |allowed: Option<&Bitset>, limit| {
        let search = Ranked {
            expression: "\"pump\"",
            weights: [3.0, 1.0, 0.5, 1.0],
            average_length: None,
            phrases: None,
            allowed,
            limit,
        };
        store.read(|tx| ranked(tx, &search)).unwrap()
    };
    let hits = run(None, 10);
    assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [2, 1, 3]);
    assert!(hits[0].score > hits[1].score && (hits[1].score - hits[2].score).abs() < f64::EPSILON);
    assert_eq!(run(None, 2).len(), 2);
    assert_eq!(run(Some(&Bitset::from_ids([3, 4])), 10).iter().map(|hit| hit.id).collect::<Vec<_>>(), [3]);
    assert_eq!(store.read(corpus).unwrap().documents, 7);
    assert_eq!(store.read(|tx| frequency(tx, "\"pump\"", 100)).unwrap(), 3);
    assert_eq!(store.read(|tx| frequency(tx, "\"pump\"", 2)).unwrap(), 2);
}

#[test]
fn an_expression_that_fts5_refuses_is_a_usage_error() {
    let (_dir, store) = with(&sample());
    for bad in ["with-dash", "state-of-the-art", "foo AND", "\"open", "nocol:x"] {
        let search = Ranked {
            expression: bad,
            weights: [1.0; 4],
            average_length: None,
            phrases: None,
            allowed: None,
            limit: 10,
        };
        let error = store.read(|tx| ranked(tx, &search)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{bad}: {error}");
        assert!(error.hints().iter().any(|hint| hint.contains("safe mode")), "{bad}");
    }
}

#[test]
fn an_empty_index_has_no_documents() {
    let (_dir, store) = store();
    assert_eq!(store.read(corpus).unwrap().documents, 0);
    assert!(store.read(|tx| newest(tx, None, 10)).unwrap().is_empty());
}

#[test]
fn items_are_compared_with_items() {
    let item = Doc { thread: "five words of the talk".to_owned(), ..Doc::issue(1, "one", "two words") };
    let talks = [Doc::discussion(&item, "five words of"), Doc::discussion(&item, "the talk")];
    let talks = talks.map(|talk| Doc { thread: String::new(), ..talk });
    let (_dir, store) = with(&[item, talks[0].clone(), talks[1].clone()]);
    let corpus = store.read(corpus).unwrap();
    assert_eq!(corpus, Corpus { documents: 3, items: 1, tokens: [1, 7, 5, 0] });
    assert_eq!(corpus.item_length(&[1.0; 4]), Some(8.0));
    assert_eq!(corpus.item_length(&[3.0, 1.0, 0.5, 1.0]), Some(7.5));
    // Nothing to tell apart: the average of all is that of the items.
    assert_eq!(Corpus { documents: 1, ..corpus }.item_length(&[1.0; 4]), None);
}

#[test]
fn hydration_keeps_the_order_and_names_the_parent() {
    let parent =
        Doc { labels: vec!["b".to_owned(), "a".to_owned()], ..Doc::issue(4, "Leaking pump", "body") };
    let talk = Doc::discussion(&parent, "turn the valve");
    let (_dir, store) = with(&[parent, talk]);
    let shown = store.read(|tx| hydrate(tx, &[2, 1, 99])).unwrap();
    assert_eq!(shown.iter().map(|doc| doc.id).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(shown[0].title.as_deref(), Some("Leaking pump"));
    assert_eq!(shown[0].body, "turn the valve", "without the header");
    assert_eq!(shown[1].labels, ["a", "b"]);
    assert_eq!(shown[1].project_path, "group/app");
    let found = store.read(|tx| numbered(tx, ItemType::Issue, 4)).unwrap();
    assert_eq!(found, [(1, "group/app".to_owned())]);
    execute(&store, "DELETE FROM issues");
    assert!(store.read(|tx| hydrate(tx, &[1])).unwrap().is_empty());
}
