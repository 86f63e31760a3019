//! Groups and deletions from end to end: `lore sync`, `lore run reconcile`, `lore status`.

use crate::support::binary::Bench;
use crate::support::dump::number;
use crate::support::fake_gitlab::FakeGitlab;
use crate::support::fake_gitlab::model::Kind;

/// A server with two projects of a group, 30 issues each with a note.
fn server() -> (FakeGitlab, [i64; 2]) {
    let server = FakeGitlab::start();
    let ids = server.edit(|model| {
        let ids = ["group/a", "group/sub/b"].map(|path| model.add_project(path));
        for project in ids {
            for n in 1..=30 {
                let iid = model.add_item(project, Kind::Issue, &format!("Issue {n} about kerberos"));
                model.add_note(project, Kind::Issue, iid, "bo", &format!("zanzibar{n} said so"));
            }
        }
        model.advance(3_600_000);
        ids
    });
    (server, ids)
}

fn bench(server: &FakeGitlab) -> Bench {
    let mut bench = Bench::new();
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\ngroups = [\"group\"]\n\
             requests_per_second = 100000.0\nretries = 1\nretry_wait = \"1ms\"\n",
            server.url()
        ),
    );
    bench.var("GITLAB_TOKEN", "test-token");
    bench
}

#[test]
fn a5_12_a_deleted_issue_is_found_no_more_after_two_reconciliations() {
    let (server, [a, _]) = server();
    let bench = bench(&server);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 60);
    server.edit(|model| model.delete_item(a, Kind::Issue, 7));
    let found = |bench: &Bench| {
        bench.lore(["query", "zanzibar7", "--json"]).data()["results"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(found(&bench), 2);
    bench.lore(["run", "reconcile", "--quiet"]).ok();
    let status = bench.lore(["status", "--json"]).data();
    assert_eq!(status["gone"]["missing"], 1, "{status}");
    assert_eq!(found(&bench), 2);
    bench.lore(["run", "reconcile", "--quiet"]).ok();
    let status = bench.lore(["status", "--json"]).data();
    assert_eq!(
        (&status["gone"]["missing"], &status["gone"]["tombstones"]),
        (&0.into(), &1.into()),
        "{status}"
    );
    assert_eq!(found(&bench), 1, "the other project has one of that name");
    bench.lore(["status", "--check"]).ok();
    let metrics = bench.lore(["metrics"]).ok();
    assert!(
        metrics.contains("lore_tombstones 1\n") && metrics.contains("lore_items_missing 0\n"),
        "{metrics}"
    );
}

#[test]
fn the_fuse_is_shown_and_a_flag_lets_it_pass() {
    let (server, [_, b]) = server();
    let bench = bench(&server);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    server.edit(|model| (1..=20).for_each(|iid| model.delete_item(b, Kind::Issue, iid)));
    bench.lore(["run", "reconcile", "--quiet"]).ok();
    bench.lore(["run", "reconcile", "--quiet", "--strict"]).fails(21);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 60);
    bench.lore(["run", "reconcile", "--quiet", "--allow-mass-delete"]).ok();
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 40);
    bench.lore(["status", "--check"]).ok();
}

#[test]
fn a_project_marked_for_deletion_shows_in_the_status() {
    let (server, [a, _]) = server();
    let bench = bench(&server);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    server.edit(|model| model.mark_for_deletion(a));
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    let text = bench.lore(["status"]).ok();
    assert!(text.contains("group/a: marked for deletion since"), "{text}");
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM issues"), 60);
}
