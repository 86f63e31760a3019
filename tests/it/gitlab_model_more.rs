//! The model server: groups, permissions, moves, renames, limits, keyset paging, relations.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gitlab_model::{get, request};
use crate::support::fake_gitlab::faults::{Fault, Trouble};
use crate::support::fake_gitlab::http::Delivery;
use crate::support::fake_gitlab::limits::{RateLimit, Told};
use crate::support::fake_gitlab::model::Kind;
use crate::support::fake_gitlab::{Access, FakeGitlab, routes};

fn paths(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter_map(|row| row["path_with_namespace"].as_str().or(row["full_path"].as_str())).collect()
}

#[test]
fn api_27_35_groups_list_their_projects_and_subgroups() {
    let server = FakeGitlab::start();
    let [plain, deep, old, elsewhere, going] = server.edit(|model| {
        let ids =
            ["g/plain", "g/sub/deep", "g/old", "other/shared", "g/going"].map(|path| model.add_project(path));
        let [plain, deep, old, elsewhere, going] = ids;
        for id in [plain, deep, old] {
            model.add_item(id, Kind::Issue, "one");
        }
        model.set_archived(old, true);
        model.mark_for_deletion(going);
        let group = model.group_id("g").unwrap();
        model.group(group).shared.insert(elsewhere);
        ids
    });
    let listed = |query: &str| {
        let rows = get(&server, &format!("/groups/g/projects?order_by=path&sort=asc{query}")).rows();
        paths(&rows).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed(""), ["g/going", "g/old", "g/plain", "other/shared"], "no subgroups unless asked");
    assert_eq!(
        listed("&with_shared=false&include_subgroups=true"),
        ["g/going", "g/old", "g/plain", "g/sub/deep"]
    );
    assert_eq!(listed("&with_shared=false&archived=false"), ["g/going", "g/plain"]);
    assert_eq!(paths(&get(&server, "/groups/g/subgroups").rows()), ["g/sub"]);
    assert_eq!(
        get(&server, "/groups/g/issues?scope=all").rows().len(),
        2,
        "those of archived projects are left out"
    );
    assert_eq!(get(&server, "/groups/g/issues?scope=all&non_archived=false").rows().len(), 3);
    assert!(get(&server, &format!("/projects/{going}")).json()["marked_for_deletion_on"].is_string());
    assert_eq!(get(&server, "/groups/g/epics").status, 403);
    server.edit(|model| {
        let group = model.group_id("g").unwrap();
        model.rename_group(group, "renamed");
        model.delete_project(plain);
    });
    assert_eq!(get(&server, "/groups/g").status, 404, "paths of groups do not redirect");
    assert_eq!(get(&server, &format!("/projects/{plain}")).status, 404);
    assert_eq!(get(&server, &format!("/projects/{deep}")).json()["path_with_namespace"], "renamed/sub/deep");
    assert_eq!(get(&server, "/projects/g%2Fold").status, 301);
    assert_eq!(get(&server, &format!("/projects/{old}")).status, 200);
    assert_eq!(get(&server, &format!("/projects/{elsewhere}")).status, 200);
}

#[test]
fn api_33_older_servers_know_no_redirect_and_nobody_may_write_to_a_moved_project() {
    let server = FakeGitlab::start();
    server.edit(|model| {
        let id = model.add_project("g/old");
        model.rename_project(id, "h/new");
    });
    assert_eq!(get(&server, "/projects/g%2Fold").status, 301);
    server.set(|settings| settings.version = "16.6.2-ee".to_owned());
    assert_eq!(get(&server, "/projects/g%2Fold").status, 404);
    assert_eq!(get(&server, "/projects/h%2Fnew").status, 200);
}

#[test]
fn api_11_12_keyset_lists_end_with_an_empty_page_without_a_link() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        for n in 0..3 {
            model.add_project(&format!("g/p{n}"));
        }
        let project = model.add_project("g/issues");
        for n in 0..5 {
            model.add_item(project, Kind::Issue, &format!("n {n}"));
        }
        project
    });
    let walk = |first: String| {
        let (mut target, mut ids) = (Some(first), Vec::new());
        while let Some(at) = target {
            let page = get(&server, &at);
            assert!(page.header("x-page").is_none() && page.header("x-next-page").is_none());
            ids.extend(page.rows().iter().filter_map(|row| row["id"].as_i64()));
            let link = page.header("link").map(|link| link.split(['<', '>']).nth(1).unwrap().to_owned());
            assert_eq!(link.is_none(), page.rows().is_empty(), "{at}");
            target = link.map(|link| link.split_once("/api/v4").unwrap().1.to_owned());
        }
        ids
    };
    let projects = walk("/projects?pagination=keyset&order_by=id&sort=asc&per_page=2".to_owned());
    assert_eq!(projects.len(), 4);
    assert!(projects.is_sorted());
    assert_eq!(get(&server, "/projects?pagination=keyset&order_by=name").status, 405);
    let list =
        format!("/projects/{project}/issues?pagination=keyset&order_by=updated_at&sort=asc&per_page=2");
    assert!(get(&server, &list).header("x-page").is_some(), "17.7 pages issues by offset");
    server.set(|settings| settings.version = "18.3.0".to_owned());
    assert_eq!(walk(list).len(), 5);
}

#[test]
fn api_3_totals_are_not_told_of_long_lists() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/p");
        for n in 0..4 {
            model.add_item(project, Kind::Issue, &format!("n {n}"));
        }
        project
    });
    server.set(|settings| settings.max_total = 3);
    let page = get(&server, &format!("/projects/{project}/issues?per_page=2"));
    assert_eq!((page.header("x-total"), page.header("x-next-page")), (None, Some("2")));
    assert_eq!(page.relations(), ["next", "first"]);
}

#[test]
fn api_15_the_server_compares_by_microseconds_that_it_does_not_show() {
    let server = FakeGitlab::start();
    let (project, at) = server.edit(|model| {
        let project = model.add_project("g/p");
        let iid = model.add_item(project, Kind::Issue, "one");
        model.item(project, Kind::Issue, iid).micros = 42;
        (project, crate::support::fake_gitlab::model::time(model.now))
    });
    let list = format!("/projects/{project}/issues?updated");
    assert_eq!(get(&server, &format!("{list}_after={at}")).iids(), [1]);
    assert_eq!(get(&server, &format!("{list}_before={at}")).iids(), [0; 0]);
}

#[test]
fn api_45_47_62_what_a_token_may_not_see_is_not_there() {
    let server = FakeGitlab::start();
    let (project, closed) = server.edit(|model| {
        let project = model.add_project("g/p");
        let open = model.add_item(project, Kind::Issue, "open");
        let closed = model.add_item(project, Kind::Issue, "secret");
        model.set_confidential(project, closed, true);
        model.add_note(project, Kind::Issue, open, "bo", "public");
        model.add_internal_note(project, Kind::Issue, open, "bo", "internal");
        model.add_note(project, Kind::Issue, open, "spammer", "of somebody banned");
        model.banned.insert("spammer".to_owned());
        (project, closed)
    });
    let list = format!("/projects/{project}/issues");
    let notes = format!("{list}/1/discussions?per_page=1");
    assert_eq!(get(&server, &list).iids(), [2, 1]);
    let pages = |n: usize| get(&server, &format!("{notes}&page={n}")).rows().len();
    assert_eq!([pages(1), pages(2), pages(3)], [1, 1, 0]);
    server.set(|settings| settings.access = Access::Guest);
    assert_eq!(get(&server, &list).iids(), [1]);
    assert_eq!(get(&server, &format!("{list}/{closed}")).status, 404);
    assert_eq!([pages(1), pages(2), pages(3)], [1, 0, 0]);
    server.set(|settings| settings.username = "ada".to_owned());
    assert_eq!(get(&server, &list).iids(), [2, 1], "one's own");
    server.edit(|model| model.project(project).access = Some(Access::Public));
    assert_eq!(get(&server, &list).status, 404, "no member any more");
}

#[test]
fn api_36_39_72_73_82_tokens_and_what_needs_one() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/p");
        model.add_item(project, Kind::Issue, "one");
        model.project(project).row["visibility"] = json!("public");
        project
    });
    let issues = format!("/projects/{project}/issues");
    assert_eq!(request(&server, &issues, "").status, 200);
    assert_eq!(request(&server, &format!("{issues}/1/discussions"), "").status, 401);
    assert_eq!(request(&server, "/version", "").status, 401);
    assert_eq!(
        request(&server, "/version", "Authorization: Bearer test-token\r\n").json()["version"],
        "17.7.0"
    );
    assert_eq!(get(&server, "/user").json()["username"], "lore-bot");
    assert_eq!(get(&server, "/personal_access_tokens/self").json()["scopes"], json!(["read_api"]));
    server.set(|settings| settings.scopes = vec!["read_user".to_owned()]);
    let refused = get(&server, &issues);
    assert_eq!((refused.status, refused.json()["error"].clone()), (403, json!("insufficient_scope")));
    assert_eq!(get(&server, "/user").status, 200);
    server.set(|settings| settings.revoked = Some("Token was revoked.".to_owned()));
    let refused = get(&server, &issues);
    assert_eq!((refused.status, refused.json()["error"].clone()), (401, json!("invalid_token")));
    server.set(|settings| {
        settings.tokens.insert("guest".to_owned(), Access::Guest);
        settings.scopes = vec!["api".to_owned()];
    });
    assert_eq!(request(&server, &issues, "PRIVATE-TOKEN: guest\r\n").status, 200);
}

#[test]
fn api_26_lists_of_the_instance_are_ones_own_unless_asked() {
    let server = FakeGitlab::start();
    server.edit(|model| {
        let project = model.add_project("g/p");
        model.add_item(project, Kind::Issue, "of ada");
    });
    assert!(get(&server, "/issues").rows().is_empty());
    assert_eq!(get(&server, "/issues?scope=all").rows().len(), 1);
}

#[test]
fn api_24_61_a_moved_issue_is_closed_and_points_to_its_copy() {
    let server = FakeGitlab::start();
    let (a, b, iid) = server.edit(|model| {
        let (a, b) = (model.add_project("g/a"), model.add_project("g/b"));
        let iid = model.add_item(a, Kind::Issue, "travels");
        let thread = model.add_note(a, Kind::Issue, iid, "bo", "hello");
        model.reply(a, Kind::Issue, iid, &thread, "cy", "and hello");
        (a, b, iid)
    });
    let copy = server.edit(|model| model.move_issue(a, iid, b));
    let (old, new) = (
        get(&server, &format!("/projects/{a}/issues/{iid}")).json(),
        get(&server, &format!("/projects/{b}/issues/{copy}")).json(),
    );
    assert_eq!((old["state"].as_str(), &old["moved_to_id"]), (Some("closed"), &new["id"]));
    assert_eq!((new["state"].as_str(), new["user_notes_count"].as_i64()), (Some("opened"), Some(2)));
    assert_ne!(old["id"], new["id"]);
    server.edit(|model| model.project(b).access = Some(Access::Public));
    let old = get(&server, &format!("/projects/{a}/issues/{iid}")).json();
    assert!(old["moved_to_id"].is_null(), "unknown to those who may not read there");
    let next = server.edit(|model| {
        model.delete_item(a, Kind::Issue, iid);
        model.add_item(a, Kind::Issue, "the next")
    });
    assert_eq!(next, iid + 1, "a number is never given again");
    assert_eq!(get(&server, &format!("/projects/{a}/issues?iids[]={iid}&iids[]={next}")).iids(), [next]);
}

#[test]
fn api_22_25_42_what_changes_rows_without_moving_their_time() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/p");
        model.project(project).labels.push(routes::label(1, "bug"));
        let now = model.now;
        model.project(project).milestones.push(routes::milestone(1, "v1", now));
        let iid = model.add_item(project, Kind::Issue, "one");
        model.set_milestone(project, Kind::Issue, iid, Some("v1"));
        model.set_labels(project, Kind::Issue, iid, &["bug"]);
        project
    });
    let row = || get(&server, &format!("/projects/{project}/issues/1")).json();
    let before = row();
    let thread = server.edit(|model| {
        model.advance(3_600_000);
        model.rename_label(project, "bug", "defect");
        model.rename_milestone(project, "v1", "v1.0");
        // Before the hour: within the minute of the creation nothing would move anyhow.
        let now = model.now;
        model.item(project, Kind::Issue, 1).updated_at = now;
        let thread = model.add_note(project, Kind::Issue, 1, "bo", "first");
        model.reply(project, Kind::Issue, 1, &thread, "cy", "second");
        model.add_system_note(project, Kind::Issue, 1, "changed the description");
        thread
    });
    let renamed = row();
    assert_eq!(
        (renamed["labels"].clone(), renamed["milestone"]["title"].as_str()),
        (json!(["defect"]), Some("v1.0"))
    );
    assert_eq!(renamed["user_notes_count"], 2, "what GitLab says does not count");
    assert_ne!(before["updated_at"], renamed["updated_at"]);
    server.edit(|model| {
        model.advance(3_600_000);
        model.delete_note(project, Kind::Issue, 1, &thread, 1);
        model.delete_label(project, "defect");
    });
    let after = row();
    assert_eq!((after["user_notes_count"].as_i64(), after["labels"].clone()), (Some(1), json!([])));
    assert_eq!(after["updated_at"], renamed["updated_at"]);
    server.edit(|model| model.delete_note(project, Kind::Issue, 1, &thread, 0));
    assert_eq!(get(&server, &format!("/projects/{project}/issues/1/discussions/{thread}")).status, 404);
    assert_eq!(get(&server, &format!("/projects/{project}/labels")).rows().len(), 0);
}

#[test]
fn api_74_features_that_are_off_refuse_as_gitlab_refuses() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/p");
        model.add_item(project, Kind::Issue, "one");
        model.add_item(project, Kind::MergeRequest, "one");
        project
    });
    let status = |rest: &str| get(&server, &format!("/projects/{project}/{rest}")).status;
    server.edit(|model| model.set_feature(project, Kind::MergeRequest, false));
    assert_eq!((status("merge_requests"), status("merge_requests/1"), status("milestones")), (403, 403, 200));
    server.edit(|model| model.set_feature(project, Kind::Issue, false));
    assert_eq!((status("issues"), status("issues/1"), status("milestones")), (200, 404, 403));
    assert!(get(&server, &format!("/projects/{project}/issues")).rows().is_empty());
    server.edit(|model| model.set_feature(project, Kind::Issue, true));
    assert_eq!(status("issues/1"), 200);
}

#[test]
fn api_37_41_44_threads_of_changes_are_resolved_and_listed_as_notes_too() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/p");
        model.add_item(project, Kind::MergeRequest, "one");
        let position = json!({"position_type": "text", "old_path": null, "new_path": "a.rs", "new_line": 3, "old_line": null});
        let thread = model.add_diff_note(project, 1, "bo", "why?", position);
        model.advance(1000);
        model.reply(project, Kind::MergeRequest, 1, &thread, "cy", "because");
        model.resolve(project, Kind::MergeRequest, 1, &thread, true);
        project
    });
    let list = format!("/projects/{project}/merge_requests/1");
    let thread = get(&server, &format!("{list}/discussions")).rows().remove(0);
    assert_eq!(
        (thread["individual_note"].as_bool(), thread["notes"].as_array().unwrap().len()),
        (Some(false), 2)
    );
    for note in thread["notes"].as_array().unwrap() {
        assert_eq!((note["type"].as_str(), note["resolved"].as_bool()), (Some("DiffNote"), Some(true)));
        assert_eq!(note["resolved_by"]["username"], "ada");
    }
    let bodies = |query: &str| -> Vec<String> {
        get(&server, &format!("{list}/notes{query}"))
            .rows()
            .iter()
            .map(|row| row["body"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        (bodies(""), bodies("?sort=asc")),
        (vec!["because".to_owned(), "why?".to_owned()], vec!["why?".to_owned(), "because".to_owned()])
    );
}

#[test]
fn api_69_70_relations_hold_what_may_be_seen() {
    let server = FakeGitlab::start();
    let (a, b) = server.edit(|model| {
        let (a, b) = (model.add_project("g/a"), model.add_project("g/b"));
        for project in [a, a, b] {
            model.add_item(project, Kind::Issue, "issue");
        }
        model.add_item(a, Kind::MergeRequest, "change");
        model.link((a, 1), (a, 2), "blocks");
        model.link((a, 1), (b, 1), "relates_to");
        model.closes((a, 1), (a, 2));
        model.mentions((a, 1), (a, 1));
        model.related.external.insert((a, 1), vec![json!({"id": "JIRA-1", "title": "elsewhere"})]);
        (a, b)
    });
    let rows = |rest: &str| get(&server, &format!("/projects/{a}/{rest}")).rows();
    let links = rows("issues/1/links");
    assert_eq!(
        links.iter().map(|row| row["link_type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["blocks", "relates_to"]
    );
    assert_eq!(rows("issues/2/links")[0]["link_type"], "is_blocked_by");
    assert_eq!((rows("issues/2/closed_by").len(), rows("issues/1/closed_by").len()), (1, 0));
    assert_eq!(rows("issues/1/related_merge_requests").len(), 1);
    let closed = rows("merge_requests/1/closes_issues");
    assert_eq!((closed.len(), closed[1]["id"].as_str(), closed[1].get("iid")), (2, Some("JIRA-1"), None));
    assert_eq!(get(&server, &format!("/projects/{a}/merge_requests/1/related_issues")).status, 404);
    server.edit(|model| {
        model.project(b).access = Some(Access::Public);
        model.edit_item(a, Kind::MergeRequest, 1, |row| row["target_branch"] = json!("stable"));
    });
    assert_eq!((rows("issues/1/links").len(), rows("merge_requests/1/closes_issues").len()), (1, 0));
    server.edit(|model| model.delete_item(a, Kind::Issue, 2));
    assert!(rows("issues/1/links").is_empty());
}

#[test]
fn api_76_77_limits_are_told_in_every_form() {
    for (told, present) in [
        (Told::Full, &["retry-after", "ratelimit-reset", "ratelimit-resettime"][..]),
        (Told::RetryAfter, &["retry-after"]),
        (Told::Reset, &["ratelimit-reset"]),
        (Told::ResetTime, &["ratelimit-resettime"]),
        (Told::Plain, &[]),
        (Told::Json, &[]),
        (Told::Html, &[]),
    ] {
        let server = FakeGitlab::start();
        server.set(|settings| settings.rate = Some(RateLimit::new(2, Duration::from_secs(3600), told)));
        let first = get(&server, "/version");
        assert_eq!((first.status, first.header("ratelimit-remaining").is_some()), (200, told == Told::Full));
        get(&server, "/version");
        let refused = get(&server, "/version");
        assert_eq!(refused.status, 429);
        let told_by = ["retry-after", "ratelimit-reset", "ratelimit-resettime"];
        let found: Vec<&str> = told_by.into_iter().filter(|name| refused.header(name).is_some()).collect();
        assert_eq!(found, present, "{told:?}");
        assert_eq!(server.state().settings.rate.as_ref().map(|limit| limit.n_refused), Some(1));
    }
    let server = FakeGitlab::start();
    server.set(|settings| {
        settings.rate = Some(RateLimit::new(1, Duration::from_millis(1), Told::Plain));
        settings.rate_headers = false;
    });
    assert_eq!(get(&server, "/version").status, 200);
    std::thread::park_timeout(Duration::from_millis(5));
    assert_eq!(get(&server, "/version").status, 200, "a new window");
}

#[test]
fn api_31_79_80_85_what_stands_in_front_of_a_server() {
    let server = FakeGitlab::start();
    server.edit(|model| {
        let project = model.add_project("g/p");
        model.add_item(project, Kind::Issue, "one");
    });
    server.set(|settings| settings.decodes_slashes = true);
    assert_eq!(get(&server, "/projects/g%2Fp").status, 404);
    server.set(|settings| settings.decodes_slashes = false);
    server.plan(Fault::always("/issues", Trouble::TooHeavy(50)));
    assert_eq!(get(&server, "/projects/g%2Fp/issues?per_page=100").status, 500);
    assert_eq!(get(&server, "/projects/g%2Fp/issues?per_page=50").status, 200);
    server.plan(Fault::times("/labels", 1, Trouble::Header("x-page".to_owned(), None)));
    assert!(get(&server, "/projects/g%2Fp/labels").header("x-page").is_none());
    server.plan(Fault::times("/labels", 1, Trouble::Deliver(Delivery::Trickle(Duration::from_millis(5)))));
    let begun = Instant::now();
    let whole = get(&server, "/projects/g%2Fp/labels");
    assert!(begun.elapsed() >= Duration::from_millis(5));
    assert_eq!(whole.rows().len(), 0);
    server.set(|settings| settings.to_https = true);
    let moved = get(&server, "/version");
    assert_eq!(moved.status, 301);
    assert!(moved.header("location").is_some_and(|to| to.starts_with("https://127.0.0.1:")));
}

#[test]
fn states_change_and_groups_go_with_all_that_is_in_them() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/sub/p");
        model.add_item(project, Kind::Issue, "one");
        model.add_item(project, Kind::MergeRequest, "one");
        model.set_state(project, Kind::Issue, 1, "closed");
        model.set_state(project, Kind::MergeRequest, 1, "merged");
        project
    });
    let states = |list: &str| {
        let rows = get(&server, &format!("/projects/{project}/{list}")).rows();
        (rows[0]["state"].clone(), rows[0]["closed_at"].is_null(), rows[0]["merged_at"].is_string())
    };
    assert_eq!(states("issues"), (json!("closed"), false, false));
    assert_eq!(states("merge_requests"), (json!("merged"), true, true));
    assert_eq!(get(&server, &format!("/projects/{project}/issues?state=opened")).rows().len(), 0);
    server.edit(|model| {
        let group = model.group_id("g").unwrap();
        model.delete_group(group);
    });
    assert_eq!(get(&server, "/groups/g%2Fsub").status, 404);
    assert_eq!(get(&server, &format!("/projects/{project}")).status, 404);
}

#[test]
fn labels_of_groups_are_labels_of_projects_and_come_with_details_when_asked() {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/sub/p");
        let group = model.group_id("g").unwrap();
        model.group(group).labels.push(routes::label(9, "of the group"));
        model.project(project).labels.push(routes::label(1, "own"));
        let iid = model.add_item(project, Kind::Issue, "one");
        model.set_labels(project, Kind::Issue, iid, &["own"]);
        project
    });
    assert_eq!(get(&server, &format!("/projects/{project}/labels")).rows().len(), 2);
    let issues = format!("/projects/{project}/issues?labels=own");
    assert_eq!(get(&server, &issues).rows()[0]["labels"], json!(["own"]));
    assert_eq!(get(&server, &format!("{issues}&with_labels_details=true")).rows()[0]["labels"][0]["id"], 1);
    assert!(get(&server, &format!("/projects/{project}/issues?labels=other")).rows().is_empty());
    assert!(get(&server, &format!("{issues}&view=simple")).rows()[0].get("labels").is_none());
}
