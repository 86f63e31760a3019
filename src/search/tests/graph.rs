//! The graph of references, moved items, hubs, literals, and what is told of all that.

use super::*;
use crate::store::fixtures::execute;

/// `from` (a document's id) refers to an item.
fn refer(store: &Store, from: i64, kind: &str, target: &str, path: &str, iid: i64) {
    execute(
        store,
        &format!(
            "INSERT INTO document_refs(document_id, kind, target_type, target_path, target_iid) VALUES ({from}, '{kind}', '{target}', '{path}', {iid})"
        ),
    );
}

fn with_depth(text: &str, depth: usize) -> Request {
    Request { options: Options { depth, explain: true, ..Options::default() }, ..request(text) }
}

fn scores(answer: &Answer) -> Vec<(i64, f64)> {
    answer.hits.iter().map(|hit| (hit.document.iid, (hit.score * 1e6).round() / 1e6)).collect()
}

fn status(answer: &Answer, name: &str) -> Status {
    answer.stages.iter().find(|stage| stage.name == name).unwrap().status
}

#[test]
fn neighbours_get_a_share_of_their_parents_score_at_every_step() {
    let (_dir, store) =
        among(&[doc(1, "pump", "valve"), doc(2, "x", "y"), doc(3, "x", "y"), doc(4, "x", "y")]);
    refer(&store, 1, "mentions", "issue", "group/app", 2);
    refer(&store, 3, "closes", "issue", "group/app", 2);
    refer(&store, 4, "mentions", "issue", "group/app", 3);
    refer(&store, 4, "mentions", "issue", "group/app", 99);
    let at = |depth| scores(&answer(&store, &with_depth("pump", depth)).unwrap());
    assert_eq!(at(0), [(1, 1.0)]);
    assert_eq!(at(1), [(1, 1.0), (2, 0.4)]);
    assert_eq!(at(2), [(1, 1.0), (2, 0.4), (3, 0.16)]);
    assert_eq!(at(3), [(1, 1.0), (2, 0.4), (3, 0.16), (4, 0.064)]);
    let answer = answer(&store, &with_depth("pump", 2)).unwrap();
    let of = answer.hits[2].explain.neighbour_of.clone().unwrap();
    assert_eq!((of.name.as_str(), of.phrase, of.depth), ("group/app#2", "closes", 2));
    assert_eq!(status(&answer, "graph"), Status::Ok);
    let related: Vec<(&str, &str)> =
        answer.hits[1].related.iter().map(|it| (it.phrase, it.reference.as_str())).collect();
    assert_eq!(related, [("closed by", "group/app#3"), ("mentioned by", "group/app#1")]);
    let off = super::answer(&store, &with_depth("pump", 0)).unwrap();
    assert_eq!(status(&off, "graph"), Status::Disabled);
}

#[test]
fn a_neighbour_that_was_found_too_low_is_lifted_once() {
    let (_dir, store) =
        among(&[doc(1, "pump pump pump", "pump"), doc(2, "long", &"pump filler words here ".repeat(30))]);
    let before = scores(&answer(&store, &with_depth("pump", 0)).unwrap());
    assert!(before[1].1 < 0.9, "{before:?}");
    refer(&store, 1, "related", "issue", "group/app", 2);
    let settings = Settings {
        boosts: Boosts { neighbour: 0.95, ..request("").settings.boosts },
        ..request("").settings
    };
    let after = answer(&store, &Request { settings, ..with_depth("pump", 1) }).unwrap();
    assert_eq!(scores(&after), [(1, 1.0), (2, 0.95)]);
    assert!(after.hits[1].explain.fts_rank.is_some() && after.hits[1].explain.neighbour_of.is_some());
}

#[test]
fn a4_13_the_graph_obeys_the_filter_at_every_hop_and_hidden_items_are_no_bridges() {
    let docs = [
        doc(1, "pump", "see other/app#2 and #3"),
        Doc { project: 3, ..doc(2, "outside secret", "y") },
        Doc { confidential: true, ..doc(3, "confidential secret", "y") },
        doc(4, "behind", "y"),
    ];
    let (_dir, store) = among(&docs);
    refer(&store, 1, "mentions", "issue", "other/app", 2);
    refer(&store, 1, "mentions", "issue", "group/app", 3);
    refer(&store, 2, "mentions", "issue", "group/app", 4);
    refer(&store, 3, "mentions", "issue", "group/app", 4);
    // A confidential item that closes a visible one is not told either.
    refer(&store, 3, "closes", "issue", "group/app", 1);
    let mut flags = Wanted::default();
    flags.set("project", "group/app", "--project", 0).unwrap();
    let asked = Request { flags, ..with_depth("pump", 3) };
    let found = answer(&store, &asked).unwrap();
    assert_eq!((iids(&found), found.total.count), (vec![1], 1));
    assert_eq!(found.hits[0].related, []);
    let open = Scope { projects: None, include_restricted: true };
    let all = answer(&store, &Request { scope: open, ..with_depth("pump", 3) }).unwrap();
    assert_eq!(iids(&all), [1, 3, 2, 4]);
    let told = format!("{:?}", answer(&store, &with_depth("pump", 3)).unwrap());
    assert!(!told.contains("confidential"), "{told}");
}

#[test]
fn what_must_and_must_not_match_binds_neighbours_too() {
    let (_dir, store) = among(&[doc(1, "pump", "valve"), doc(2, "x", "rusty")]);
    refer(&store, 1, "mentions", "issue", "group/app", 2);
    assert_eq!(iids(&ask(&store, "pump")), [1, 2]);
    assert_eq!(iids(&ask(&store, "pump -rusty")), [1]);
    assert_eq!(iids(&ask(&store, "+pump valve")), [1]);
    assert_eq!(iids(&ask(&store, "pump in:title")), [1]);
    assert_eq!(iids(&answer(&store, &Request { raw: true, ..request("pump") }).unwrap()), [1]);
}

#[test]
fn a5_20_a_moved_issue_ranks_below_its_copy_and_leads_to_it() {
    let text = "the upload stalls at ninety percent";
    let mut original = doc(5, text, &format!("{text} {text}"));
    original.state = "closed".to_owned();
    let copy = Doc { project: 2, ..doc(9, text, text) };
    let (_dir, store) = among(&[original, copy]);
    refer(&store, 1, "moved", "issue", "group/lib", 9);
    for group in [Group::Item, Group::None] {
        let found =
            answer(&store, &Request { group, ..with_depth("upload stalls ninety percent", 1) }).unwrap();
        assert_eq!(iids(&found), [9, 5]);
        assert_eq!(
            (found.hits[1].related[0].phrase, found.hits[1].related[0].reference.as_str()),
            ("moved to", "group/lib#9")
        );
    }
    // The copy is not found by these words, and stands first all the same.
    execute(&store, "UPDATE documents SET title = 'x', content_text = 'y', body_start = 0 WHERE id = 2");
    assert_eq!(iids(&answer(&store, &with_depth("upload stalls", 1)).unwrap()), [9, 5]);
    let named = answer(&store, &with_depth("group/app#5", 1)).unwrap();
    assert_eq!(iids(&named), [5, 9]);
    // With the one project alone nothing is lost.
    let scope = Scope { projects: Some(vec!["group/app".to_owned()]), include_restricted: false };
    let one = answer(&store, &Request { scope, ..with_depth("upload stalls", 1) }).unwrap();
    assert_eq!((iids(&one), one.hits[0].related.len()), (vec![5], 0));
}

#[test]
fn hubs_count_the_items_that_may_be_seen() {
    let mut docs = vec![doc(1, "pump one", "z"), doc(2, "pump two", "z")];
    docs.extend((10..15).map(|iid| doc(iid, "other", "w")));
    docs.extend((20..22).map(|iid| Doc { confidential: true, ..doc(iid, "hidden", "w") }));
    let (_dir, store) = among(&docs);
    (3..8).for_each(|from| refer(&store, from, "mentions", "issue", "group/app", 2));
    let found = answer(&store, &with_depth("pump", 0)).unwrap();
    assert_eq!(iids(&found), [2, 1]);
    assert_eq!(found.hits[0].explain.factors[0].name, "hub");
    execute(&store, "DELETE FROM document_refs WHERE document_id IN (3, 4)");
    (8..10).for_each(|from| refer(&store, from, "mentions", "issue", "group/app", 2));
    assert_eq!(iids(&answer(&store, &with_depth("pump", 0)).unwrap()), [1, 2], "two of the five are hidden");
}

#[test]
fn what_holds_a_literal_letter_by_letter_comes_first() {
    let docs = [
        doc(1, "moved value moved value", "error e 0382 use of moved value"),
        doc(2, "borrow checker", "error[E0382]: use of moved value in src/auth/login.rs"),
        doc(3, "moved value", "error E03821 use of moved value"),
    ];
    let (_dir, store) = among(&docs);
    for text in ["E0382", "who saw E0382 moved", "\"src/auth/login.rs\"", "src/auth/login.rs value"] {
        let found = ask(&store, text);
        assert_eq!(iids(&found)[0], 2, "{text}");
        assert_eq!(found.hits[0].score, 1.0);
    }
    let found = ask(&store, "E0382 moved value");
    assert_eq!(iids(&found)[0], 2);
    assert!(found.hits[0].explain.factors.iter().any(|factor| factor.name == "literal"));
}

#[test]
fn usernames_are_the_same_in_any_case() {
    let by = |iid, name: &str| Doc { author: Some(name.to_owned()), ..doc(iid, "pump", "v") };
    let (_dir, store) = with(&[by(1, "Ann"), by(2, "ann"), by(3, "bob"), by(4, "annette")]);
    for text in ["pump author:ANN", "pump author:@ann"] {
        let mut found = iids(&ask(&store, text));
        found.sort_unstable();
        assert_eq!(found, [1, 2], "{text}");
    }
    assert!(ask(&store, "pump author:nobody").hits.is_empty());
    execute(&store, "INSERT INTO document_assignees VALUES (3, 'Zoë')");
    assert_eq!(iids(&ask(&store, "assignee:zoë")), [3]);
}

#[test]
fn counts_speak_of_what_may_be_seen() {
    let mut docs: Vec<Doc> = (1..=3).map(|iid| doc(iid, "pump", "valve")).collect();
    docs.push(Doc { confidential: true, ..doc(4, "pump", "zeppelin") });
    docs.push(Doc { project: 3, ..doc(5, "pump", "zeppelin") });
    let (_dir, store) = with(&docs);
    let scope = Scope { projects: Some(vec!["group/app".to_owned()]), include_restricted: false };
    let told = |text: &str| {
        let found = answer(&store, &Request { scope: scope.clone(), ..with_depth(text, 1) }).unwrap();
        let terms: Vec<(i64, bool)> = found.terms.iter().map(|term| (term.documents, term.used)).collect();
        (found.corpus, terms)
    };
    assert_eq!(told("pump"), (3, vec![(3, true)]));
    assert_eq!(told("zeppelin"), (3, vec![(0, false)]));
    assert_eq!(ask(&store, "pump").corpus, 4, "all but the confidential one");
    assert!(ask(&store, "pump").terms.is_empty());
}

#[test]
fn a4_13_nothing_hidden_is_counted_hinted_suggested_or_linked() {
    let talk = Doc { internal: true, ..Doc::discussion(&doc(1, "pump", "x"), "see #5") };
    let docs = [
        doc(1, "pump", "x"),
        Doc {
            confidential: true,
            author: Some("mole".to_owned()),
            labels: vec!["plot".to_owned()],
            paths: vec!["burrow/a.rs".to_owned()],
            ..doc(2, "pump zebra", "x")
        },
        Doc { project: 3, author: Some("rook".to_owned()), ..doc(3, "pump zebra", "x") },
        talk,
        doc(5, "behind", "y"),
    ];
    let (_dir, store) = with(&docs);
    refer(&store, 4, "mentions", "issue", "group/app", 5);
    let scope = Scope { projects: Some(vec!["group/*".to_owned()]), include_restricted: false };
    let options = Options { explain: true, facets: true, ..Options::default() };
    let ask = |text: &str| {
        let asked = Request { scope: scope.clone(), options: options.clone(), ..request(text) };
        answer(&store, &asked).unwrap()
    };
    let found = ask("pump");
    assert_eq!(iids(&found), [1], "what an internal note refers to is no neighbour");
    let facets = found.facets.unwrap();
    assert_eq!((facets.total, facets.project.values.len()), (1, 1));
    let told = format!("{facets:?}");
    assert!(!told.contains("plot") && !told.contains("mole") && !told.contains("rook"), "{told}");
    let hints = ask("pump mole plot rook burrow/a.rs app").hints;
    let names: Vec<&str> = hints.iter().map(|hint| hint.name.as_str()).collect();
    assert_eq!(names, ["group/app"]);
    assert_eq!(ask("pump label:none").loosened[0].documents, 1);
    assert!(ask("zebra label:none").loosened.is_empty());
    assert_eq!(ask("zebra").terms[0].documents, 0);
    // A name means what it means among the projects that may be seen.
    execute(&store, "INSERT INTO labels(project_id, name) VALUES (1, 'type::feature'), (3, 'feature')");
    execute(&store, "INSERT INTO document_labels VALUES (1, 'type::feature')");
    assert_eq!(iids(&ask("label:feature")), [1]);
    assert!(iids(&super::ask(&store, "label:feature")).is_empty(), "the other project has this very label");
}

#[test]
fn home_projects_come_first_and_age_counts_when_it_is_wanted() {
    let (_dir, store) = with(&[doc(1, "pump", "v"), Doc { project: 2, ..doc(2, "pump", "v") }]);
    let home = Options { home: Some(vec!["group/lib".to_owned()]), ..Options::default() };
    assert_eq!(iids(&answer(&store, &Request { options: home, ..request("pump") }).unwrap()), [2, 1]);
    let mut settings = request("").settings;
    settings.boosts.half_life = Some(10_000_000);
    let recent = answer(&store, &Request { settings, ..request("pump") }).unwrap();
    assert_eq!(iids(&recent), [2, 1]);
    assert!(recent.hits.iter().all(|hit| hit.explain.factors.iter().any(|factor| factor.name == "recency")));
}
