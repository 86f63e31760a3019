use super::*;

mod graph;
mod properties;

use crate::content::filter::PathFilter;
use crate::store::fixtures::{Doc, with};

fn request(text: &str) -> Request {
    Request {
        text: text.to_owned(),
        like: None,
        flags: Wanted::default(),
        mode: Mode::Lexical,
        raw: false,
        group: Group::Item,
        limit: 20,
        offset: 0,
        min_score: None,
        scope: Scope::default(),
        settings: Settings::of_config(&crate::config::QueryConfig::default()),
        now: 10_000_000,
        options: Options::default(),
    }
}

fn ask(store: &Store, text: &str) -> Answer {
    answer(store, &request(text)).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn iids(answer: &Answer) -> Vec<i64> {
    answer.hits.iter().map(|hit| hit.document.iid).collect()
}

/// A document with the terms that the pipeline would give it.
fn doc(iid: i64, title: &str, body: &str) -> Doc {
    let terms = crate::content::terms::document_terms(&format!("{title}\n{body}"));
    Doc { terms, ..Doc::issue(iid, title, body) }
}

/// `doc` among others that hold nothing of it.
fn among(docs: &[Doc]) -> (tempfile::TempDir, Store) {
    let noise = (900..930).map(|iid| doc(iid, "unrelated heading", "nothing of interest in here"));
    with(&docs.iter().cloned().chain(noise).collect::<Vec<_>>())
}

#[test]
fn a3_08_ticket_keys_and_hyphens_are_words() {
    let (_dir, store) = among(&[
        doc(1, "a", "see POL-358"),
        doc(2, "b", "multi-agent set-up, state-of-the-art"),
        doc(3, "c", "agentic-os dashboard, p5-Test"),
    ]);
    assert_eq!(iids(&ask(&store, "POL-358")), [1]);
    assert_eq!(iids(&ask(&store, "multi-agent"))[0], 2);
    assert_eq!(iids(&ask(&store, "state-of-the-art")), [2]);
    assert_eq!(iids(&ask(&store, "agentic-os dashboard"))[0], 3);
    assert_eq!(iids(&ask(&store, "p5-Test")), [3]);
}

#[test]
fn a3_10_any_punctuation_is_searched() {
    let texts = [
        "don't use agents",
        "Downloads/transcripts",
        "GB/s",
        "foo.bar()",
        "src/search/mod.rs:1227",
        "error[E0382]",
        "user@example.com",
        "a=b",
        "20.04",
        "node.js",
        ".NET",
    ];
    let docs: Vec<Doc> =
        (1..).zip(texts).map(|(iid, text)| doc(iid, "title", &format!("it says {text} here"))).collect();
    let (_dir, store) = among(&docs);
    for (iid, text) in (1..).zip(texts) {
        assert_eq!(iids(&ask(&store, text)).first(), Some(&iid), "{text}");
    }
}

#[test]
fn a3_13_a_raw_expression_that_is_refused_is_a_usage_error() {
    let (_dir, store) = among(&[doc(1, "dash", "with dash")]);
    for text in ["with-dash", "state-of-the-art", "foo AND", "\"open", "nocol:x", ""] {
        let error = answer(&store, &Request { raw: true, ..request(text) }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage, "{text}: {error}");
    }
    let raw = answer(&store, &Request { raw: true, ..request("title : dash AND with*") }).unwrap();
    assert_eq!(iids(&raw), [1]);
    assert!(raw.hits[0].relevance > 0.0 && raw.hits[0].relevance < 1.0);
}

#[test]
fn a3_14_identifiers_with_underscores_are_found_whole_and_in_parts() {
    let (_dir, store) = among(&[doc(1, "x", "calls atomic_write_json and HTTP_502")]);
    for text in ["atomic_write_json", "HTTP_502", "write_json", "HTTP-502"] {
        assert_eq!(iids(&ask(&store, text)), [1], "{text}");
    }
}

#[test]
fn a3_16_a_prefix_finds_words_that_stemming_shortened() {
    let (_dir, store) = among(&[doc(1, "x", "sanitize inputs, authentication, a record, recording")]);
    for text in ["sanitiz*", "sanit*", "authentica*", "authentication*", "recor*", "record*", "recordin*"] {
        assert_eq!(iids(&ask(&store, text)), [1], "{text}");
    }
    assert!(ask(&store, "zebr*").hits.is_empty());
    let (_dir, store) = among(&[doc(1, "x", "the jwt_tokens expire"), doc(2, "x", "a token, a jwt")]);
    for text in ["jwt_tok*", "jwt_token*", "jwt_tokens*"] {
        assert_eq!(iids(&ask(&store, text)), [1], "{text}");
    }
}

#[test]
fn a3_18_scripts_without_spaces_are_found_inside_a_run() {
    let (_dir, store) =
        among(&[doc(1, "統全公寓大廈管理維護", "x"), doc(2, "サンドボックス修正テスト", "x")]);
    assert_eq!(iids(&ask(&store, "管理")), [1]);
    assert_eq!(iids(&ask(&store, "テスト")), [2]);
    assert_eq!(iids(&ask(&store, "護")), [1]);
    // What binds binds inside a run too.
    for text in ["\"大廈管理\"", "+管理", "大廈*", "維護 -テスト", "\"公寓大廈\" -修正"] {
        assert_eq!(iids(&ask(&store, text)), [1], "{text}");
    }
    for text in ["\"修正テスト\"", "+テスト -管理", "テス*", "テスト type:issue -統全"] {
        assert_eq!(iids(&ask(&store, text)), [2], "{text}");
    }
    assert!(ask(&store, "\"管理公寓\"").hits.is_empty());
    assert!(ask(&store, "-管理 -テスト type:issue").hits.iter().all(|hit| hit.document.iid >= 900));
    assert!(ask(&store, "管理 in:title").warnings[0].contains("in:title"));
}

#[test]
fn a3_20_letters_are_folded() {
    let (_dir, store) = among(&[
        doc(1, "x", "Clément Müller résumé Cle\u{301}ment"),
        doc(2, "x", "Økland Paweł Straße caffè"),
        doc(3, "x", "Mu\u{308}ller"),
    ]);
    assert_eq!(iids(&ask(&store, "clement")), [1]);
    assert_eq!(iids(&ask(&store, "resume")), [1]);
    let mut both = iids(&ask(&store, "muller"));
    both.sort_unstable();
    assert_eq!(both, [1, 3]);
    let mut decomposed = iids(&ask(&store, "Mu\u{308}ller"));
    decomposed.sort_unstable();
    assert_eq!(decomposed, [1, 3]);
    for text in ["okland", "pawel", "strasse", "caffe", "Økland", "Paweł", "Straße"] {
        assert_eq!(iids(&ask(&store, text)), [2], "{text}");
    }
}

#[test]
fn a3_21_hashes_codes_and_versions_are_found() {
    let (_dir, store) = among(&[
        doc(1, "x", "fixed in 4c76932b1e0f and deadbeef12"),
        doc(2, "x", "error E0382 since v1.2.3"),
    ]);
    for text in ["4c76932b1e0f", "4c76932b1*", "4c76932b1", "deadbeef12", "deadbeef1"] {
        assert_eq!(iids(&ask(&store, text)), [1], "{text}");
    }
    for text in ["E0382", "v1.2.3", "1.2.3"] {
        assert_eq!(iids(&ask(&store, text)), [2], "{text}");
    }
}

#[test]
fn a3_27_a_giant_token_harms_nothing() {
    let (_dir, store) = among(&[doc(1, "x", &format!("{} tailword", "a".repeat(91_548)))]);
    let found = ask(&store, "tailword");
    assert_eq!(iids(&found), [1]);
    assert!(found.hits[0].snippet.text.chars().count() <= snippet::LENGTH + 2);
}

#[test]
fn a3_28_languages_with_signs_come_first() {
    let (_dir, store) = among(&[
        doc(1, "plain C header", "c c c"),
        doc(2, "C# async bug", "text"),
        doc(3, "C++ template error", "text"),
    ]);
    assert_eq!(iids(&ask(&store, "C++"))[0], 3);
    assert_eq!(iids(&ask(&store, "C#"))[0], 2);
    assert_eq!(iids(&ask(&store, "C")).len(), 3);
    assert!(ask(&store, "F#").hits.is_empty());
}

#[test]
fn a4_01_pages_joined_are_the_long_list() {
    for group in [Group::Item, Group::None] {
        let mut docs = Vec::new();
        for iid in 1..=60 {
            let item = doc(iid, "pump", if iid % 3 == 0 { "pump pump" } else { "valve" });
            docs.push(Doc::discussion(&item, "the pump again"));
            docs.push(item);
        }
        let (_dir, store) = among(&docs);
        let long = answer(&store, &Request { group, limit: 100, ..request("pump") }).unwrap();
        let settings = Settings { candidates: 7, ..request("").settings };
        let mut joined = Vec::new();
        for offset in (0..long.hits.len()).step_by(5) {
            let page =
                answer(&store, &Request { group, limit: 5, offset, settings, ..request("pump") }).unwrap();
            joined.extend(page.hits.iter().map(|hit| (hit.document.id, hit.score.to_bits())));
        }
        let whole: Vec<_> = long.hits.iter().map(|hit| (hit.document.id, hit.score.to_bits())).collect();
        assert_eq!(joined, whole);
        if group == Group::Item {
            assert_eq!(long.total, Total { count: 60, exact: true });
        }
    }
}

#[test]
fn a4_03_ties_are_ordered_by_document() {
    let docs: Vec<Doc> = (1..=30).map(|iid| doc(iid, "pump", "same text")).collect();
    let (_dir, store) = among(&docs);
    let first = iids(&ask(&store, "pump"));
    assert_eq!(first, (1..=20).collect::<Vec<_>>());
    for _ in 0..20 {
        assert_eq!(iids(&ask(&store, "pump")), first);
    }
}

#[test]
fn a4_04_an_item_is_one_result() {
    let item = doc(1, "pump", "pump");
    let mut docs = vec![item.clone()];
    docs.extend((0..5).map(|_| Doc::discussion(&item, "pump pump pump")));
    docs.extend((2..=5).map(|iid| doc(iid, "other", "a pump, maybe")));
    let (_dir, store) = among(&docs);
    let found = answer(&store, &Request { limit: 5, ..request("pump") }).unwrap();
    let mut distinct = iids(&found);
    distinct.sort_unstable();
    assert_eq!(distinct, [1, 2, 3, 4, 5]);
}

#[test]
fn a4_05_a_nonsense_query_is_recognisable() {
    let docs: Vec<Doc> = (1..=20)
        .map(|iid| doc(iid, "printer paper jam", "the printer has a paper jam; zebra stripes on paper"))
        .collect();
    let (_dir, store) = among(&docs);
    let good = ask(&store, "printer paper jam");
    let nonsense = ask(&store, "zebra pancake velocipede submarine trombone");
    assert!((good.hits[0].score - 1.0).abs() < f64::EPSILON);
    assert!((nonsense.hits[0].score - 1.0).abs() < f64::EPSILON, "the relative score cannot tell");
    assert!(good.hits[0].relevance > 3.0 * nonsense.hits[0].relevance);
}

#[test]
fn a4_12_nothing_found_is_an_answer() {
    let (_dir, store) = with(&[]);
    let empty = ask(&store, "crash");
    assert_eq!((empty.corpus, empty.total.count, empty.hits.len()), (0, 0, 0));
    let (_dir, store) = among(&[doc(1, "crash", "x")]);
    let none = ask(&store, "qqqzzz project:none");
    assert!(none.hits.is_empty() && none.total.exact);
    assert!(none.warnings.iter().any(|warning| warning.contains("none")));
}

#[test]
fn a4_13_a4_16_nothing_outside_the_scope_is_answered() {
    let mut other = doc(2, "pump", "secret pump");
    other.project = 3;
    let mut confidential = doc(3, "pump", "secret pump");
    confidential.confidential = true;
    let talk = Doc { internal: true, ..Doc::discussion(&doc(1, "pump", "x"), "secret pump") };
    let (_dir, store) = among(&[doc(1, "pump", "x"), other, confidential, talk]);
    let group = Scope { projects: Some(vec!["group/*".to_owned()]), include_restricted: false };
    for text in ["pump", "secret", "#2", "#3", "type:issue", "pump OR secret", "state:open"] {
        let found = answer(&store, &Request { scope: group.clone(), ..request(text) }).unwrap();
        let leak = iids(&found).into_iter().any(|iid| iid == 2 || iid == 3);
        assert!(!leak && !found.hits.iter().any(|hit| hit.snippet.text.contains("secret")), "{text}");
    }
    let raw = answer(&store, &Request { scope: group, raw: true, ..request("secret") }).unwrap();
    assert_eq!(raw.total.count, 0);
    let all = Scope { projects: None, include_restricted: true };
    assert_eq!(answer(&store, &Request { scope: all, ..request("secret") }).unwrap().total.count, 3);
}

#[test]
fn a5_19_internal_notes_are_not_answered_by_default() {
    let talk = Doc { internal: true, ..Doc::discussion(&doc(1, "pump", "x"), "SECRETPLAN") };
    let (_dir, store) = among(&[doc(1, "pump", "x"), talk]);
    assert!(ask(&store, "SECRETPLAN").hits.is_empty());
}

#[test]
fn a4_16_text_of_any_width_is_cut_safely() {
    let (_dir, store) = among(&[
        doc(1, "emoji 🎉 at the cut", &format!("{}───── crash text", "a".repeat(99))),
        doc(2, "long", &format!("{}日本 crash", "a".repeat(31_999))),
    ]);
    assert_eq!(ask(&store, "crash").hits.len(), 2);
    assert!(ask(&store, &format!("{}—", "a".repeat(79))).hits.is_empty());
}

#[test]
fn a_named_item_comes_first() {
    let mut docs: Vec<Doc> = (1..=5).map(|iid| doc(iid, "text", "see #12 and 12 and 12")).collect();
    docs.push(doc(12, "the one", "itself"));
    docs.push(Doc { project: 3, ..doc(12, "namesake", "elsewhere") });
    docs.push(Doc::merge_request(34, "a change", "text"));
    docs.push(Doc { confidential: true, ..doc(77, "hidden", "the number 34") });
    let (_dir, store) = among(&docs);
    let found = ask(&store, "#12");
    assert_eq!(iids(&found)[..2], [12, 12]);
    assert!(found.hits[0].explain.pinned);
    assert!(found.hits.len() > 2, "those that mention it follow");
    assert_eq!(ask(&store, "other/app#12").hits[0].document.project_path, "other/app");
    assert_eq!(iids(&ask(&store, "!34"))[0], 34);
    assert_eq!(iids(&ask(&store, "https://host/sub/group/app/-/merge_requests/34"))[0], 34);
    assert!(ask(&store, "#999").hits.is_empty());
    assert_eq!(iids(&ask(&store, "issue 12"))[..2], [12, 12]);
    assert_eq!(iids(&ask(&store, "MR 34"))[0], 34);
    assert_eq!(iids(&ask(&store, "Issue: 12"))[..2], [12, 12]);
    assert_eq!(iids(&ask(&store, "34")), [34], "no text that may be seen holds it");
    assert_eq!(iids(&ask(&store, "GROUP/App#12"))[0], 12);
    assert!(!ask(&store, "12").hits[0].explain.pinned, "some texts do");
}

#[test]
fn a_filter_with_a_dash_leaves_out() {
    let mut docs: Vec<Doc> = (1..=6).map(|iid| doc(iid, "pump", "text")).collect();
    docs[0].labels = vec!["bug".to_owned(), "needs review".to_owned()];
    docs[1].labels = vec!["bug".to_owned()];
    docs[2].author = Some("ann".to_owned());
    docs[3].state = "closed".to_owned();
    docs[4].paths = vec!["src/a.rs".to_owned()];
    docs[5].project = 3;
    let (_dir, store) = with(&docs);
    let all = |text: &str| {
        let mut found = iids(&ask(&store, text));
        found.sort_unstable();
        found
    };
    assert_eq!(all("pump -label:bug"), [3, 4, 5, 6]);
    assert_eq!(all("pump -label:\"needs review\""), [2, 3, 4, 5, 6]);
    assert_eq!(all("label:bug -label:\"needs review\""), [2]);
    assert_eq!(all("-label:bug"), [3, 4, 5, 6], "alone it lists the others");
    assert_eq!(all("pump -author:ANN -is:closed"), [1, 2, 5, 6]);
    assert_eq!(all("pump -path:src/ -project:other/app"), [1, 2, 3, 4]);
    assert_eq!(all("path:*.rs"), [5]);
    assert_eq!(all("-type:issue"), [0_i64; 0]);
    assert_eq!(all("-project:nowhere pump").len(), 6);
    assert_eq!(ask(&store, "pump label:bug -is:open").loosened.len(), 2);
}

#[test]
fn filters_alone_list_the_newest_first() {
    let mut docs: Vec<Doc> = (1..=5).map(|iid| doc(iid, "pump", "text")).collect();
    docs[1].labels = vec!["bug".to_owned()];
    docs[3].labels = vec!["bug".to_owned()];
    docs[4].labels = vec!["bug".to_owned()];
    docs[4].state = "closed".to_owned();
    docs[1].paths = vec!["src/a.rs".to_owned()];
    let (_dir, store) = with(&docs);
    let found = ask(&store, "is:open label:bug");
    assert_eq!(iids(&found), [4, 2]);
    assert_eq!(found.total, Total { count: 2, exact: true });
    assert_eq!(iids(&ask(&store, "label:bug -text")), [0_i64; 0]);
    let flags = Wanted { paths: vec![PathFilter::parse("src/")], ..Wanted::default() };
    assert_eq!(iids(&answer(&store, &Request { flags, ..request("") }).unwrap()), [2]);
}

#[test]
fn exclusion_requirement_and_phrases_bind() {
    let (_dir, store) = among(&[
        doc(1, "login", "session expired"),
        doc(2, "login", "expired session"),
        doc(3, "login", "saml session"),
    ]);
    assert_eq!(iids(&ask(&store, "login \"session expired\"")), [1]);
    assert_eq!(iids(&ask(&store, "login -saml")), [1, 2]);
    assert_eq!(iids(&ask(&store, "login +saml")), [3]);
    assert_eq!(iids(&ask(&store, "-DWITH_SSL")), [0_i64; 0]);
    assert_eq!(ask(&store, "login in:title").hits.len(), 3);
    assert!(ask(&store, "saml in:title").hits.is_empty());
}

#[test]
fn a_minimal_score_works_on_the_value_shown() {
    let (_dir, store) =
        among(&[doc(1, "pump", "pump"), doc(2, "x", "a pump in a long text of many other words")]);
    let all = ask(&store, "pump");
    let least = all.hits[1].score + 0.01;
    let some = answer(&store, &Request { min_score: Some(least), ..request("pump") }).unwrap();
    assert_eq!(iids(&some), [1]);
    assert_eq!(some.total, Total { count: 1, exact: true });
}

#[test]
fn without_results_the_filters_in_the_way_are_named() {
    let (_dir, store) =
        among(&[doc(1, "pump", "x"), Doc { labels: vec!["bug".to_owned()], ..doc(2, "valve", "x") }]);
    let found = ask(&store, "pump label:bug author:nobody");
    assert!(found.hits.is_empty());
    assert!(found.loosened.is_empty(), "each alone does not help");
    let found = ask(&store, "pump label:bug");
    assert_eq!(found.loosened, [Loosened { without: "label:bug".to_owned(), documents: 1 }]);
}

#[test]
fn semantic_search_without_vectors_says_what_to_do() {
    let (_dir, store) = among(&[]);
    let error = answer(&store, &Request { mode: Mode::Semantic, ..request("pump") }).unwrap_err();
    assert!(error.hints()[0].contains("lore embed"));
    let hybrid = answer(&store, &Request { mode: Mode::Hybrid, ..request("pump") }).unwrap();
    assert_eq!((hybrid.mode, hybrid.warnings.len()), (Mode::Lexical, 1));
    assert!(hybrid.stages.iter().any(|stage| stage.name == "vector" && stage.status == Status::Disabled));
}
