//! Awkward bodies on their whole way: export, document, query, `--json`.

use serde_json::{Value, json};

use crate::export_world::shared;
use crate::support::binary::Bench;

/// Bodies that real trackers hold; with the collection of real ones when it is there.
fn bodies() -> Vec<String> {
    let mut bodies: Vec<String> = [
        "",
        "a\u{0}b",
        "\u{202e}right to left\u{202c}",
        "👨\u{200d}👩\u{200d}👧 e\u{301} ﬁ ｆｕｌｌ",
        "日本語の説明。スレッドが落ちる。",
        "</script><b>\"quoted\" & 'more'\\\u{1b}[31m",
        "type:nonsense is:nothing after:never",
        "\"unbalanced (NEAR AND -",
    ]
    .map(str::to_owned)
    .into();
    bodies.push("word ".repeat(60_000));
    bodies.push("日".repeat(40_000));
    if let Some(shared) = shared() {
        let text = std::fs::read_to_string(shared.join("gitlab/corpus/edge_cases.ndjson")).unwrap();
        let body =
            |line: &str| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().map(str::to_owned);
        bodies.extend(text.lines().filter_map(body));
    }
    bodies
}

#[test]
fn every_awkward_body_is_stored_found_and_shown_as_it_was() {
    let bodies = bodies();
    let bench = Bench::new();
    let issues: String = bodies
        .iter()
        .zip(1..)
        .map(|(body, iid)| {
            let issue = json!({"id": iid, "iid": iid, "title": format!("edgecase {iid}"), "description": body,
                "state": "opened", "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z",
                "notes": [{"id": iid, "note": body, "created_at": "2024-01-01T00:00:00Z"}]});
            format!("{issue}\n")
        })
        .collect();
    bench.write("export/tree/project.json", "{}");
    bench.write("export/tree/project/issues.ndjson", &issues);
    bench.write(
        "lore.toml",
        "[sources.main]\nkind = \"gitlab-export\"\npath = \"export\"\nproject = \"group/project\"\n",
    );
    bench.lore(["sync", "--no-embed", "--quiet"]).ok();

    let mut found = Vec::new();
    loop {
        let offset = found.len().to_string();
        let args =
            ["query", "edgecase", "--mode", "lexical", "--limit", "100", "--offset", &offset, "--json"];
        let page = bench.lore(args).data()["results"].as_array().unwrap().clone();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found.len(), bodies.len(), "each is found by its title");
    for result in &found {
        let iid = usize::try_from(result["iid"].as_u64().unwrap()).unwrap();
        let snippet = result["snippet"].as_str().unwrap();
        assert!(!snippet.chars().any(char::is_control), "{iid}: {snippet:?}");
        let replaced = bodies[iid - 1].contains(char::REPLACEMENT_CHARACTER);
        assert!(replaced || !snippet.contains(char::REPLACEMENT_CHARACTER), "{iid}: {snippet:?}");
    }
    for (body, iid) in bodies.iter().zip(1..) {
        let stored = body.replace('\0', "");
        let shown = bench.lore(["show", &format!("#{iid}"), "--json"]).data();
        assert_eq!(shown["description"].as_str().unwrap_or_default(), stored, "{iid}");
        let text: String = stored.chars().take(20_000).collect();
        let answer = bench.lore(["query", &text, "--mode", "lexical", "--limit", "1", "--json"]);
        assert!(matches!(answer.code, 0 | 2 | 13), "{iid}: {} {}", answer.code, answer.stderr);
        assert_eq!(answer.json()["ok"], answer.code == 0, "{iid}");
        assert!(!answer.stderr.contains("panicked"), "{iid}: {}", answer.stderr);
    }
}
