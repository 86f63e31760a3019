//! `lore run sync` against a GitLab server of our own: what arrives, what fails, with which
//! exit code, and what a kill or a stop leaves behind.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::binary::{Bench, until};
use crate::support::dump::{dump, number};
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::faults::{self, Fault, Trouble};
use crate::support::fake_gitlab::http::{Delivery, Reply};
use crate::support::fake_gitlab::model::Kind;

const TOKEN: &str = "test-token";

/// A server with one project of 25 issues and 5 merge requests, each with a thread.
pub fn server() -> FakeGitlab {
    let server = FakeGitlab::start();
    server.edit(|model| {
        let project = model.add_project("group/project");
        for (kind, n) in [(Kind::Issue, 25), (Kind::MergeRequest, 5)] {
            for number in 1..=n {
                let iid = model.add_item(project, kind, &format!("{kind:?} about kerberos {number}"));
                let thread =
                    model.add_note(project, kind, iid, "bo", &format!("first note of {kind:?} {number}"));
                model.reply(project, kind, iid, &thread, "cy", "the ticket expired");
                model.advance(1000);
            }
        }
        model.advance(3_600_000);
    });
    server
}

/// The id of the server's one project.
pub fn project(server: &FakeGitlab) -> i64 {
    server.edit(|model| *model.projects.keys().next().unwrap())
}

pub fn configure(bench: &mut Bench, url: &str, projects: &[&str]) {
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {url:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\nprojects = {projects:?}\n\
             requests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"\n"
        ),
    );
    bench.write(
        "once.toml",
        "name = \"once\"\ntimeout = \"1m\"\n[steps.ingest]\n[steps.fetch-discussions]\nneeds = [\"ingest\"]\n",
    );
    bench.var("GITLAB_TOKEN", TOKEN);
}

pub fn bench(server: &FakeGitlab) -> Bench {
    let mut bench = Bench::new();
    configure(&mut bench, &server.url(), &["group/project"]);
    bench
}

#[test]
fn a_sync_brings_everything_in_and_the_next_one_only_looks() {
    let server = server();
    let bench = bench(&server);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 25);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM merge_requests"), 5);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM notes"), 60);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM pending_discussion_fetches"), 0);
    // 30 items, and a discussion of each.
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM documents"), 60);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    server.take_log();
    let content = dump(&bench.database());
    let answer = bench.lore(["run", "sync", "--skip", "embed", "--json"]).data();
    assert_eq!(server.take_log().len(), 5, "one request per stream");
    assert_eq!(dump(&bench.database()), content);
    assert_eq!(answer["steps"][0]["report"]["counts"]["requests"], 5, "{answer}");
    let changed = number(
        &bench.database(),
        "SELECT (SELECT count(*) FROM dirty_sources) + (SELECT count(*) FROM pending_discussion_fetches)",
    );
    assert_eq!(changed, 0, "nothing is queued");
}

#[test]
fn a6_06_a_source_of_which_every_project_fails_fails_the_run() {
    let server = server();
    let mut bench = Bench::new();
    configure(&mut bench, &server.url(), &["no/such", "nor/this"]);
    let answer = bench.lore(["run", "once.toml", "--json"]);
    assert_eq!(answer.code, 6, "{}", answer.stderr);
    let answer = answer.json();
    assert_eq!(answer["ok"], false);
    let text = answer.to_string();
    assert!(text.contains("no/such") && text.contains("nor/this"), "{text}");
    let skipped = number(
        &bench.database(),
        "SELECT count(*) FROM step_attempts WHERE step = 'fetch-discussions' AND state = 'skipped'",
    );
    assert_eq!(skipped, 1, "what needs the ingest does not run");
    configure(&mut bench, "http://127.0.0.1:1", &["no/such", "nor/this"]);
    bench.lore(["run", "once.toml"]).fails(8);
}

#[test]
fn each_kind_of_refusal_has_its_exit_code() {
    let server = server();
    let mut bench = bench(&server);
    bench.var("GITLAB_TOKEN", "wrong-S3CR3TVALUE");
    let told = bench.lore(["run", "once.toml", "-v"]).fails(5);
    assert!(told.contains("401") && !told.contains("S3CR3TVALUE"), "{told}");
    bench.var("GITLAB_TOKEN", "");
    bench.lore(["run", "once.toml"]).fails(4);
    bench.var("GITLAB_TOKEN", TOKEN);
    let limited =
        Reply::text(429, "text/html", "<!DOCTYPE html><html>HTMLBODY</html>").with("Retry-After", "100000");
    server.plan(Fault::always("/issues?", Trouble::Answer(limited)));
    let told = bench.lore(["run", "once.toml"]).fails(7);
    assert!(told.contains("rate limited") && !told.contains("HTMLBODY"), "a5_04: {told}");
}

#[test]
fn a6_11_a_secret_in_the_address_or_echoed_by_the_server_shows_nowhere() {
    let server = server();
    let mut bench = Bench::new();
    configure(&mut bench, &server.url().replace("http://", "http://user:S3CR3TVALUE@"), &["group/project"]);
    let refused = bench.lore(["run", "once.toml", "--json", "-v"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(!format!("{refused:?}").contains("S3CR3TVALUE"));
    configure(&mut bench, &server.url(), &["group/project"]);
    bench.var("GITLAB_TOKEN", "S3CR3TVALUE");
    server.set(|settings| settings.token = None);
    server.plan(Fault::always("/issues?", faults::json(400, "token S3CR3TVALUE is bad")));
    server.plan(Fault::always("/merge_requests?", faults::json(500, "S3CR3TVALUE")));
    let told = bench.lore(["run", "once.toml", "-v"]);
    assert_ne!(told.code, 0);
    assert!(told.stderr.contains("token … is bad"), "{}", told.stderr);
    assert!(!format!("{told:?}").contains("S3CR3TVALUE"));
    for name in ["lore.db", "lore.db-wal"] {
        let Ok(bytes) = std::fs::read(bench.path().join(name)) else { continue };
        assert!(!bytes.windows(11).any(|window| window == b"S3CR3TVALUE"), "{name}");
    }
}

#[test]
fn a_sync_killed_at_any_planned_point_is_completed_by_the_next() {
    let server = server();
    server.set(|settings| settings.max_per_page = 10);
    let undisturbed = {
        let bench = bench(&server);
        bench.lore(["run", "once.toml", "--quiet"]).ok();
        dump(&bench.database())
    };
    let mut killed = 0;
    for point in ["before-commit", "after-commit"] {
        for n in [1, 2, 3, 5, 8, 13, 21, 34] {
            let bench = bench(&server);
            let mut command = bench.command(["run", "once.toml", "--quiet"]);
            let output = command.env("LORE_FAULT", format!("{point}:{n}")).output().unwrap();
            if output.status.success() {
                break;
            }
            assert_eq!(output.status.signal(), Some(9), "{}", String::from_utf8_lossy(&output.stderr));
            killed += 1;
            bench.lore(["run", "once.toml", "--quiet"]).ok();
            assert_eq!(dump(&bench.database()), undisturbed, "killed at {point}, time {n}");
        }
    }
    assert!(killed >= 8, "only {killed} kills: the points moved");
}

#[test]
fn sigterm_gives_up_requests_under_way_and_loses_nothing() {
    let server = server();
    let bench = bench(&server);
    let late = Trouble::Deliver(Delivery::Late(Duration::from_secs(2)));
    server.plan(Fault::always("/discussions", late).after(12));
    let running = bench.spawn(["run", "once.toml", "--quiet"]);
    until("the first late answer", || {
        server.state().log.iter().filter(|logged| logged.target.contains("/discussions")).count() > 12
    });
    running.signal(Signal::TERM);
    let ended = running.wait(Duration::from_secs(10));
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    server.heal();
    bench.lore(["run", "once.toml", "--quiet"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM notes"), 60);
}

#[test]
fn a5_11_a_page_that_fails_deletes_nothing_and_is_seen() {
    let server = server();
    server.set(|settings| settings.max_per_page = 10);
    let bench = bench(&server);
    bench.lore(["run", "once.toml", "--quiet"]).ok();
    server.plan(Fault::always("/issues?", faults::html(503)).after(1));
    let answer = bench.lore(["run", "once.toml", "--full", "--json"]).data();
    assert_eq!(answer["steps"][0]["report"]["failing"], 1, "{answer}");
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 25);
    bench.lore(["run", "once.toml", "--full", "--quiet", "--strict"]).fails(21);
}

#[test]
fn a5_05_a5_14_null_authors_and_equal_numbers_are_found_by_a_query() {
    let server = FakeGitlab::start();
    server.edit(|model| {
        for path in ["group/a", "group/b"] {
            let project = model.add_project(path);
            model.add_item(project, Kind::Issue, "the first");
            model.add_item(project, Kind::MergeRequest, "the first");
            model.add_item(project, Kind::Issue, "iid two of an issue");
            model.add_item(project, Kind::MergeRequest, "iid two of a change");
            model.edit_item(project, Kind::Issue, 2, |row| row["author"] = serde_json::Value::Null);
        }
        model.advance(3_600_000);
    });
    let mut bench = Bench::new();
    configure(&mut bench, &server.url(), &["group/a", "group/b"]);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    let found = bench.lore(["query", "iid two", "--json"]).data();
    let results = found["results"].as_array().unwrap();
    assert_eq!(results.len(), 4, "{found}");
    for result in results {
        let is_issue = result["source_type"] == "issue";
        assert_eq!(result["author"].is_null(), is_issue, "{result}");
    }
    let found = bench.lore(["query", "iid two author:ghost", "--json"]);
    assert!(!found.stdout.contains("iid two of an issue"), "nobody is not ghost: {}", found.stdout);
}

#[test]
fn recorded_answers_of_gitlab_com_go_through_a_whole_sync() {
    #[expect(clippy::disallowed_methods, reason = "says where test data is")]
    let root =
        std::env::var("LORE_SHARED").unwrap_or_else(|_| format!("{}/../shared", env!("CARGO_MANIFEST_DIR")));
    let Ok(lines) = std::fs::read_to_string(format!("{root}/gitlab/rest/exchanges.ndjson")) else {
        eprintln!("skipped: there are no recorded exchanges below {root}");
        return;
    };
    let server = FakeGitlab::replay(&lines);
    let mut bench = Bench::new();
    configure(
        &mut bench,
        &server.url(),
        &["packit-service/ogr-tests", "forgejo/test_repo", "troyengel/archbuild"],
    );
    let answer = bench.lore(["run", "sync", "--skip", "embed", "--json"]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    let answer = answer.data();
    assert_eq!(answer["steps"][0]["report"]["counts"]["projects"], 3, "{answer}");
    assert!(answer["steps"][0]["report"]["counts"]["bad_rows"].is_null(), "{answer}");
    let stored = "SELECT (SELECT count(*) FROM issues) + (SELECT count(*) FROM merge_requests) + (SELECT count(*) FROM discussions)";
    let documents = number(&bench.database(), "SELECT count(*) FROM documents");
    assert!(documents > 100, "{documents}");
    assert!(documents <= number(&bench.database(), stored));
}
