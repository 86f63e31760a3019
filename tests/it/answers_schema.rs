//! docs/answers.schema.json describes what the compiled binary answers: every field of it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::binary::Bench;
use crate::support::fake_reranker::{FakeReranker, Faults};
use crate::support::tools::{find, run};

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/answers.schema.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The schema of one kind of answer in which no other field may stand than those it names.
fn closed(definition: &str) -> Value {
    fn close(value: &mut Value) {
        if let Value::Object(map) = value {
            if map.contains_key("properties") {
                map.insert("additionalProperties".to_owned(), false.into());
            }
            map.values_mut().for_each(close);
        } else if let Value::Array(list) = value {
            list.iter_mut().for_each(close);
        }
    }
    let mut defs = schema()["$defs"].take();
    close(&mut defs);
    json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": format!("#/$defs/{definition}"), "$defs": defs })
}

/// Answers of every shape: the definition, and the document.
fn answers() -> Vec<(&'static str, Value)> {
    let bench = Bench::demo();
    let mut out = Vec::new();
    let mut ask = |bench: &Bench, args: &[&str]| out.push(("QueryAnswer", bench.lore(args).json()));
    for args in [
        &["query", "upload server", "--json"][..],
        &["query", "upload server", "--json", "--mode", "lexical", "--explain", "--facets", "--depth", "3"],
        &[
            "query",
            "is:open label:type::bug",
            "--json",
            "--highlight",
            "mark",
            "--limit",
            "3",
            "--offset",
            "2",
        ],
        &["query", "#12", "--json", "--explain"],
        &["query", "qqqzzz label:none", "--json", "--explain"],
        &["query", "--like", "#1", "--json", "--fields", "title,score"],
        &["query", "upload", "--json", "--scope", "all", "--group", "none", "--min-score", "0.5"],
    ] {
        bench.write("lore.toml", "[scopes.all]\nprojects = [\"*\"]\n");
        ask(&bench, args);
    }
    let server = FakeReranker::new(Faults { favour: vec!["upload"], ..Faults::default() });
    let mut reranked = Bench::demo();
    reranked.var("LORE__RERANK__PROVIDER", "tei").var("LORE__RERANK__URL", &server.url());
    ask(&reranked, &["query", "upload server", "--json", "--explain"]);
    server.change(|faults| faults.status = Some(503));
    ask(&reranked, &["query", "upload server", "--json", "--explain"]);
    for args in [&["show", "#12", "--json"][..], &["show", "!8", "--json", "--system"]] {
        out.push(("ShowAnswer", bench.lore(args).json()));
    }
    for args in [
        &["query", "?!", "--json"][..],
        &["query", "x", "--type", "epic", "--json"],
        &["query", "x", "--mode", "semantic", "--json"],
        &["query", "x", "--limit", "none", "--json"],
        &["show", "#99999", "--json"],
    ] {
        out.push(("FailedAnswer", bench.lore(args).json()));
    }
    out
}

#[test]
fn real_answers_are_what_the_schema_says_field_by_field() {
    let Some(validator) = find("check-jsonschema") else { return };
    let bench = Bench::new();
    let mut kinds: std::collections::BTreeMap<&str, Vec<String>> = std::collections::BTreeMap::new();
    for (at, (definition, answer)) in answers().into_iter().enumerate() {
        let path = bench.write(&format!("answer{at}.json"), &answer.to_string());
        kinds.entry(definition).or_default().push(path.to_string_lossy().into_owned());
        // A field that is not named, or one that is missing, is told.
        if definition != "QueryAnswer" || at > 0 {
            continue;
        }
        let schema = bench.write("closed.json", &closed(definition).to_string());
        let check = |document: &Value| {
            let path = bench.write("changed.json", &document.to_string());
            run(Command::new(&validator).arg("--schemafile").args([&schema, &path]), "").0
        };
        assert!(check(&answer));
        let (mut more, mut less, mut other) = (answer.clone(), answer.clone(), answer);
        more["data"]["results"][0]["surprise"] = 1.into();
        less["data"].as_object_mut().unwrap().remove("warnings");
        other["data"]["mode"] = "psychic".into();
        for (what, document) in [("a field more", more), ("a field less", less), ("a mode", other)] {
            assert!(!check(&document), "{what} is not noticed");
        }
    }
    for (definition, paths) in kinds {
        let schema = bench.write("closed.json", &closed(definition).to_string());
        let (ok, said) = run(Command::new(&validator).arg("--schemafile").arg(schema).args(paths), "");
        assert!(ok, "{definition}: {said}");
    }
}

#[test]
fn the_fields_that_can_be_chosen_are_those_of_the_schema() {
    let bench = Bench::demo();
    let stderr = bench.lore(["query", "x", "--fields", "?"]).fails(13);
    let listed = stderr.split("fields: ").nth(1).unwrap().lines().next().unwrap();
    let mut listed: Vec<&str> = listed.split(", ").map(str::trim).collect();
    listed.sort_unstable();
    let schema = schema();
    let mut named: Vec<&str> =
        schema["$defs"]["Found"]["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    named.sort_unstable();
    assert_eq!(listed, named);
}
