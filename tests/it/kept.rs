//! What is kept beside the index: GitLab's answers and what is rebuilt from them, its links,
//! the history, and how they are pruned.

use serde_json::json;

use crate::support::binary::Bench;
use crate::support::dump::{dump, execute, number};
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::faults::{self, Fault, Trouble};
use crate::support::fake_gitlab::http::Reply;
use crate::support::fake_gitlab::model::Kind;

const ONCE: &str = "name = \"once\"\n[steps.ingest]\n[steps.fetch-discussions]\nneeds = [\"ingest\"]\n\
                    [steps.regenerate-docs]\nneeds = [\"fetch-discussions\"]\n";

/// A server with one project of three issues and a merge request, each with two threads, and
/// a bench that has read it.
fn synced() -> (FakeGitlab, i64, Bench) {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("group/project");
        for (kind, n) in [(Kind::Issue, 3), (Kind::MergeRequest, 1)] {
            for number in 1..=n {
                let iid = model.add_item(project, kind, &format!("{kind:?} about kerberos {number}"));
                let thread = model.add_note(project, kind, iid, "bo", "the first thread");
                model.reply(project, kind, iid, &thread, "cy", "the ticket expired");
                model.add_note(project, kind, iid, "di", "the second thread");
                model.advance(1000);
            }
        }
        model.advance(3_600_000);
        project
    });
    let mut bench = Bench::new();
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\nprojects = [\"group/project\"]\n\
             requests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"\n",
            server.url()
        ),
    );
    bench.write("once.toml", ONCE);
    bench.var("GITLAB_TOKEN", "test-token");
    bench.lore(["run", "once.toml"]).ok();
    (server, project, bench)
}

fn rebuild(bench: &Bench) -> serde_json::Value {
    let run = bench.lore(["run", "rebuild", "--skip", "embed", "--json"]).data();
    run["steps"].as_array().unwrap().iter().find(|step| step["step"] == "rebuild").unwrap().clone()
}

#[test]
fn what_was_damaged_is_rebuilt_from_the_kept_answers_without_the_network() {
    let (server, _, bench) = synced();
    let healthy = dump(&bench.database());
    drop(server);
    let unchanged = rebuild(&bench);
    assert_eq!(unchanged["report"]["counts"]["rebuilt"], 0, "{unchanged}");
    assert!(dump(&bench.database()) == healthy);
    execute(
        &bench.database(),
        "UPDATE issues SET title = 'damaged', label_names = '[\"damaged\"]' WHERE iid = 1;
         UPDATE merge_requests SET source_branch = 'damaged', state = 'damaged';
         UPDATE notes SET body = 'damaged', author_username = NULL WHERE id = (SELECT min(id) FROM notes);
         UPDATE discussions SET resolved = 1 - resolved WHERE id = (SELECT max(id) FROM discussions);
         DELETE FROM notes WHERE id = (SELECT max(id) FROM notes);",
    );
    // The damage is everywhere by now.
    bench.lore(["generate-docs", "--full"]).ok();
    assert!(
        number(&bench.database(), "SELECT count(*) FROM documents WHERE content_text LIKE '%damaged%'") > 0
    );
    let rebuilt = rebuild(&bench);
    assert!(rebuilt["report"]["counts"]["rebuilt"].as_i64().unwrap() >= 4, "{rebuilt}");
    let found = dump(&bench.database());
    let differing = found.lines().zip(healthy.lines()).find(|(found, healthy)| found != healthy);
    assert!(found == healthy, "{differing:?}");
}

#[test]
fn a_damaged_answer_is_named_and_costs_nothing_else() {
    let (_server, _, bench) = synced();
    execute(
        &bench.database(),
        "UPDATE raw_payloads SET payload = x'00' WHERE resource_type = 'issue' AND resource_key = '1';
         UPDATE issues SET title = 'damaged'",
    );
    let rebuilt = rebuild(&bench);
    assert_eq!(rebuilt["report"]["counts"]["bad_payloads"], 1, "{rebuilt}");
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues WHERE title = 'damaged'"), 1);
}

#[test]
fn answers_go_with_what_they_describe() {
    let (server, project, bench) = synced();
    let kept = |kind: &str| {
        number(
            &bench.database(),
            &format!("SELECT count(*) FROM raw_payloads WHERE resource_type = '{kind}'"),
        )
    };
    assert_eq!((kept("issue"), kept("merge_request"), kept("discussion")), (3, 1, 8));
    server.edit(|model| {
        model.item(project, Kind::Issue, 1).discussions.remove(0);
        model.edit_item(project, Kind::Issue, 1, |row| row["title"] = "another".into());
        model.advance(3_600_000);
    });
    bench.lore(["run", "once.toml"]).ok();
    assert_eq!(kept("discussion"), 7, "a rebuild must not bring a deleted thread back");
    execute(&bench.database(), "PRAGMA foreign_keys = ON; DELETE FROM issues WHERE iid = 1");
    assert_eq!((kept("issue"), kept("discussion")), (2, 6), "nor a deleted issue");
    rebuild(&bench);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 2);
}

#[test]
fn history_and_answers_are_pruned_within_their_bounds() {
    let (_server, _, bench) = synced();
    execute(
        &bench.database(),
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
         INSERT INTO runs(id, uuid, job, job_hash, state, exit_code, started_at, finished_at, token, owner, version)
         SELECT -i, 'old-' || i, CASE WHEN i % 2 THEN 'odd' ELSE 'even' END, '', CASE WHEN i = 29 THEN 'succeeded' ELSE 'failed' END,
                0, 1000 * (100 - i), 1000 * (100 - i), 0, 'x', '0' FROM n;",
    );
    bench.write("prune.toml", "name = \"prune\"\n[steps.prune]\nwith = { keep_runs_for = \"30d\", keep_runs = 3, payload_mb = 1 }\n");
    bench.lore(["run", "prune.toml"]).ok();
    let left =
        |condition: &str| number(&bench.database(), &format!("SELECT count(*) FROM runs WHERE {condition}"));
    assert_eq!(left("job = 'even'"), 3);
    assert_eq!(left("job = 'odd'"), 4, "three, and the newest that succeeded");
    assert_eq!(left("uuid = 'old-29'"), 1);
    assert_eq!(left("job = 'once'"), 1);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM raw_payloads"), 12);
    bench.write("prune.toml", "name = \"prune\"\n[steps.prune]\nwith = { payload_mb = 0 }\n");
    bench.lore(["run", "prune.toml"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM raw_payloads"), 0);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM documents"), 12, "the index is untouched");
    bench.lore(["run", "maintain"]).ok();
}

#[test]
fn api_69_70_links_of_gitlab_stand_beside_those_of_the_text() {
    let (server, project, bench) = synced();
    let row = |iid: i64, full: &str| json!({"id": 900 + iid, "iid": iid, "references": {"full": full}});
    let mut blocks = row(2, "group/project#2");
    blocks["link_type"] = "blocks".into();
    let mut elsewhere = row(9, "other/place#9");
    elsewhere["link_type"] = "relates_to".into();
    let external = json!({"title": "Title of the JIRA issue", "id": "JIRA-1"});
    let answers = |links: serde_json::Value| {
        server.heal();
        for (list, rows) in [
            ("/issues/1/links?", links),
            ("/issues/1/closed_by?", json!([row(1, "group/project!1")])),
            ("/issues/1/related_merge_requests?", json!([row(1, "group/project!1")])),
            ("/merge_requests/1/closes_issues?", json!([row(1, "group/project#1"), external])),
            ("/links?", json!([])),
            ("/closed_by?", json!([])),
            ("/related_merge_requests?", json!([])),
        ] {
            server.plan(Fault::always(list, Trouble::Answer(Reply::json(200, &rows))));
        }
    };
    answers(json!([blocks, elsewhere]));
    let refs = || {
        crate::support::dump::open(&bench.database())
            .prepare(
                "SELECT d.item_type || d.item_iid || ' ' || kind || ' ' || target_path || ' ' || r.target_type || r.target_iid
                   FROM document_refs r JOIN documents d ON d.id = r.document_id WHERE r.origin = 'api' ORDER BY 1",
            )
            .unwrap()
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap()
    };
    bench.lore(["run", "links"]).ok();
    let linked = [
        "issue1 blocks group/project issue2",
        "issue1 closed_by group/project merge_request1",
        "issue1 related group/project merge_request1",
        "issue1 relates_to other/place issue9",
        "merge_request1 closes group/project issue1",
    ];
    assert_eq!(refs(), linked, "also to what is not stored yet");
    server.take_log();
    bench.lore(["run", "links"]).ok();
    assert_eq!(server.take_log(), [], "looked at once, and again when it changes");
    bench.lore(["generate-docs", "--full"]).ok();
    assert_eq!(refs(), linked, "a new text does not lose them");
    server.edit(|model| {
        model
            .edit_item(project, Kind::Issue, 1, |row| row["description"] = "it blocks nobody, see #3".into());
        model.advance(3_600_000);
    });
    answers(json!([elsewhere]));
    bench.lore(["run", "once.toml"]).ok();
    bench.lore(["run", "links"]).ok();
    assert_eq!(refs(), linked[1..], "what was unlinked is gone");
    assert_eq!(server.take_log().iter().filter(|asked| asked.target.contains("/links")).count(), 1);
}

#[test]
fn api_74_lists_of_links_that_are_switched_off_are_left_alone_and_nothing_is_removed() {
    let (server, _, bench) = synced();
    execute(
        &bench.database(),
        "INSERT INTO item_links SELECT id, 'issue', 1, 'blocks', 'issue', 'group/project', 2 FROM projects",
    );
    for (list, status) in [("/links?", 403), ("/closed_by?", 404)] {
        server.plan(Fault::always(list, faults::json(status, "not here")));
    }
    for list in ["/related_merge_requests?", "/closes_issues?"] {
        server.plan(Fault::always(list, Trouble::EmptyList));
    }
    server.take_log();
    bench.lore(["run", "links", "--strict"]).ok();
    let asked = |log: &[crate::support::fake_gitlab::Logged], list: &str| {
        log.iter().filter(|asked| asked.target.contains(list)).count()
    };
    let log = server.take_log();
    assert!(asked(&log, "/links?") <= 3, "those that were under way together");
    assert_eq!(asked(&log, "/related_merge_requests?"), 3);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM item_links"), 1);
    let off = "SELECT count(*) FROM stream_failures WHERE stream IN ('links', 'closed_by') AND next_attempt_at > last_attempt_at";
    assert_eq!(number(&bench.database(), off), 2, "tried again later");
}
