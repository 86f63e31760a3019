use proptest::prelude::*;

use super::super::fixtures::{Doc, store, store_lengths, with};
use super::*;

fn scores(
    store: &super::super::Store,
    expression: &str,
    stock: bool,
    phrases: Option<&[(f64, f64)]>,
) -> Vec<(i64, f64)> {
    weighted(store, &[1.0; 4], expression, stock, phrases)
}

fn weighted(
    store: &super::super::Store,
    weights: &[f64; 4],
    expression: &str,
    stock: bool,
    phrases: Option<&[(f64, f64)]>,
) -> Vec<(i64, f64)> {
    let sql = if stock {
        "SELECT rowid, bm25(documents_fts) FROM documents_fts WHERE documents_fts MATCH ?1 AND ?2 IS NOT NULL"
    } else {
        "SELECT rowid, lore_bm25(documents_fts, ?2) FROM documents_fts WHERE documents_fts MATCH ?1"
    };
    store
        .read(|tx| {
            let mut statement = tx.sql().prepare(sql)?;
            let parameters = parameters(weights, None, phrases);
            let rows = statement
                .query_map(rusqlite::params![expression, parameters], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .unwrap()
}

fn assert_equal(mine: &[(i64, f64)], stock: &[(i64, f64)]) {
    assert_eq!(mine.len(), stock.len());
    for (mine, stock) in mine.iter().zip(stock) {
        assert_eq!(mine.0, stock.0);
        assert!((mine.1 - stock.1).abs() < 1e-9, "{mine:?} {stock:?}");
    }
}

const EXPRESSIONS: &[&str] = &[
    "\"a\"",
    "\"a\" OR \"b\" OR \"c\"",
    "\"a\" AND \"b\"",
    "\"a b\" OR \"c\"",
    "(\"a\" OR \"b\") NOT \"d\"",
    "title : \"a\" OR \"e\"*",
    "\"a\" OR \"a\"",
    "\"zzz\" OR \"a\"",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn scores_without_weights_are_those_of_bm25(
        texts in prop::collection::vec(("[a-f ]{0,12}", "[a-f ]{0,80}", "[a-f ]{0,40}", "[a-f ]{0,8}"), 1..40),
    ) {
        let docs: Vec<Doc> = (1..)
            .zip(&texts)
            .map(|(iid, (title, body, thread, terms))| {
                let spaced = |text: &str| text.chars().flat_map(|c| [c, ' ']).collect::<String>();
                let mut doc = Doc::issue(iid, &spaced(title), &spaced(body));
                doc.thread = spaced(thread);
                doc.terms = spaced(terms);
                doc
            })
            .collect();
        let (_dir, store) = with(&docs);
        for expression in EXPRESSIONS {
            assert_equal(&scores(&store, expression, false, None), &scores(&store, expression, true, None));
        }
        store.write(store_lengths).unwrap();
        for expression in EXPRESSIONS {
            assert_equal(&scores(&store, expression, false, None), &scores(&store, expression, true, None));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn a_column_of_weight_three_is_one_that_is_written_three_times(
        texts in prop::collection::vec(("[a-f]{0,6}", "[a-f]{0,40}", "[a-f]{0,20}"), 1..20),
    ) {
        let docs = |times: [usize; 3]| -> Vec<Doc> {
            let spaced = |text: &str, times| text.repeat(times).chars().flat_map(|c| [c, ' ']).collect::<String>();
            let doc = |(iid, (title, body, thread)): (i64, &(String, String, String))| Doc {
                thread: spaced(thread, times[2]),
                ..Doc::issue(iid, &spaced(title, times[0]), &spaced(body, times[1]))
            };
            (1..).zip(&texts).map(doc).collect()
        };
        let ((_once_dir, once), (_repeated_dir, repeated)) = (with(&docs([1, 1, 1])), with(&docs([3, 1, 2])));
        for expression in ["\"a\"", "\"a\" OR \"b\" OR \"c\"", "\"a\" AND \"b\""] {
            let expected = scores(&repeated, expression, true, None);
            assert_equal(&weighted(&once, &[3.0, 1.0, 2.0, 1.0], expression, false, None), &expected);
        }
        once.write(store_lengths).unwrap();
        for expression in ["\"a\"", "\"a\" OR \"b\" OR \"c\"", "\"a\" AND \"b\""] {
            let expected = scores(&repeated, expression, true, None);
            assert_equal(&weighted(&once, &[3.0, 1.0, 2.0, 1.0], expression, false, None), &expected);
        }
    }
}

#[test]
fn known_frequencies_and_factors_are_used() {
    let docs: Vec<Doc> =
        (1..=9).map(|n| Doc::issue(n, "x", if n < 4 { "pump valve" } else { "valve" })).collect();
    let (_dir, store) = with(&docs);
    let stock = scores(&store, "\"pump\" OR \"x\"", true, None);
    assert_equal(&scores(&store, "\"pump\" OR \"x\"", false, Some(&[(3.0, 1.0), (9.0, 1.0)])), &stock);
    let twice = scores(&store, "\"pump\"", false, Some(&[(3.0, 2.0)]));
    assert_equal(&twice, &scores(&store, "\"pump\" OR \"pump\"", true, None));
    let misfit = scores(&store, "\"pump\"", false, Some(&[(1.0, 1.0), (1.0, 1.0)]));
    assert_equal(&misfit, &scores(&store, "\"pump\"", true, None));
}

#[test]
fn a_document_beyond_the_counter_is_measured_by_fts5() {
    let long = "pump ".repeat(70_000);
    let (_dir, store) = with(&[
        Doc::issue(1, "a", &long),
        Doc::issue(2, "b", "pump"),
        Doc::issue(3, "c", "valve"),
        Doc::issue(4, "d", "valve"),
    ]);
    store.write(store_lengths).unwrap();
    assert_equal(&scores(&store, "\"pump\"", false, None), &scores(&store, "\"pump\"", true, None));
}

#[test]
fn membership_is_that_of_the_bits() {
    let (_dir, store) = store();
    let answer: (bool, bool, bool, bool) = store
        .read(|tx| {
            Ok(tx.sql().query_row(
                "SELECT lore_allow(0, x'81'), lore_allow(1, x'81'), lore_allow(7, x'81'), lore_allow(-1, x'81') OR lore_allow(8, x'81') OR lore_allow(1, NULL)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
            )?)
        })
        .unwrap();
    assert_eq!(answer, (true, false, true, false));
}
