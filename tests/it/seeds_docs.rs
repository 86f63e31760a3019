//! `docs/seeds.md` names a test for each behaviour, and every test that it names exists.

use std::path::Path;

use lore::config::{QueryConfig, RerankConfig};

use crate::gitlab_docs::tests;

#[test]
fn every_behaviour_has_a_test_or_a_reason_and_every_named_test_exists() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/seeds.md");
    let text = std::fs::read_to_string(path).unwrap();
    let tests = tests();
    let mut problems = Vec::new();
    let mut rows = 0;
    for line in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Behaviour |")) {
        let cells: Vec<&str> =
            line.trim_start_matches('|').trim_end_matches('|').split('|').map(str::trim).collect();
        let [behaviour, named, different] = cells.as_slice() else {
            problems.push(format!("{line}: not three cells"));
            continue;
        };
        rows += 1;
        let quoted = |cell: &str| {
            let names: Vec<String> = cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            names
        };
        if quoted(named).is_empty() && different.len() < 30 {
            problems.push(format!("{behaviour}: neither a test nor a reason"));
        }
        // In the last cell, names of three words and more are tests too.
        let also = quoted(different).into_iter().filter(|name| name.matches('_').count() > 2);
        for name in quoted(named).into_iter().chain(also) {
            if !tests.contains(&name) {
                problems.push(format!("{behaviour}: there is no test {name}"));
            }
        }
    }
    assert!(rows > 80, "{rows} rows");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn default_coefficients_are_those_of_the_table() {
    let (query, rerank) = (QueryConfig::default(), RerankConfig::default());
    assert_eq!((query.rrf_k, rerank.weight, query.away_factor), (60.0, 0.7, 0.7));
    assert_eq!((query.active_factor, query.pending_factor, query.stale_factor), (1.2, 0.8, 0.5));
    assert_eq!((query.graph_factor, query.hub_factor, query.hub_references), (0.4, 1.15, 5));
    assert!(!query.state_boosts && query.home.is_empty(), "off unless asked for");
}
