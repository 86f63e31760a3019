//! The sample: one command without any configuration, and the commands it proposes next.

use crate::support::binary::Bench;

#[test]
fn the_queries_that_the_demo_proposes_find_something() {
    let bench = Bench::new();
    let output = bench.lore(["run", "demo", "--skip", "embed"]).ok();
    let queries: Vec<&str> = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("lore query '")?.strip_suffix('\''))
        .collect();
    assert!(queries.len() >= 2, "{output}");
    for query in queries {
        let found = bench.lore(["query", query, "--json"]).data();
        assert!(found["total_results"].as_i64().unwrap() > 0, "{query}");
    }
    assert!(bench.lore(["show", "#12"]).ok().contains("database is locked"));
}

#[test]
fn a_question_in_other_words_finds_the_right_thread_of_the_sample() {
    let bench = Bench::demo();
    for (query, url) in [
        ("photos vanish when the disk is unplugged", "/-/issues/9"),
        ("E0382", "/-/issues/15"),
        ("Vorschaubilder grau", "/-/issues/4"),
        ("PHE0042 checksum mismatch", "/-/issues/28"),
    ] {
        let found = bench.lore(["query", query, "--json"]).data();
        let first = found["results"][0]["url"].as_str().unwrap_or_default().to_owned();
        assert!(first.contains(url), "{query}: {first}");
    }
    let hidden = bench.lore(["query", "Share links can be enumerated", "--json"]).data();
    let urls = hidden["results"].to_string();
    assert!(!urls.contains("/-/issues/6\""), "a confidential issue is not answered without a scope");
}
