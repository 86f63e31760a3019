//! The model server itself: that it does what GitLab does, since the other tests believe it.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::support::fake_gitlab::faults::{Fault, Trouble};
use crate::support::fake_gitlab::http::Delivery;
use crate::support::fake_gitlab::model::Kind;
use crate::support::fake_gitlab::{FakeGitlab, Paging, routes};

/// What came back on one connection.
#[derive(Debug, Default)]
pub(crate) struct Got {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Got {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn rows(&self) -> Vec<Value> {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// Relations that the `Link` header names.
    pub fn relations(&self) -> Vec<String> {
        let link = self.header("link").unwrap_or_default();
        link.split("rel=\"").skip(1).filter_map(|part| Some(part.split_once('"')?.0.to_owned())).collect()
    }

    pub fn iids(&self) -> Vec<i64> {
        self.rows().iter().filter_map(|row| row["iid"].as_i64()).collect()
    }
}

/// Asks with the right token.
pub(crate) fn get(server: &FakeGitlab, target: &str) -> Got {
    request(server, target, "PRIVATE-TOKEN: test-token\r\n")
}

/// Asks with these header lines.
pub(crate) fn request(server: &FakeGitlab, target: &str, headers: &str) -> Got {
    let url = server.url();
    let (authority, prefix) =
        url.strip_prefix("http://").map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
    let slash = if prefix.is_empty() { "" } else { "/" };
    let head = format!("GET {slash}{prefix}/api/v4{target} HTTP/1.1\r\nHost: {authority}\r\n{headers}\r\n");
    let mut text = Vec::new();
    let sent = TcpStream::connect(authority).and_then(|mut stream| {
        stream.write_all(head.as_bytes())?;
        stream.shutdown(std::net::Shutdown::Write)?;
        stream.read_to_end(&mut text)
    });
    if sent.is_err() || text.is_empty() {
        return Got::default();
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    Got {
        status: status.unwrap_or(0),
        headers: lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    }
}

/// A server with `n` issues, all of one time.
fn server(n: i64) -> (FakeGitlab, i64) {
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("group/project");
        for number in 1..=n {
            model.add_item(project, Kind::Issue, &format!("Issue {number}"));
        }
        project
    });
    (server, project)
}

fn updated_at(server: &FakeGitlab, project: i64, iid: i64) -> i64 {
    server.edit(|model| model.item(project, Kind::Issue, iid).updated_at)
}

#[test]
fn api_1_2_3_4_pages_are_told_as_gitlab_tells_them() {
    let (server, project) = server(45);
    let first = get(&server, &format!("/projects/{project}/issues?scope=all"));
    assert_eq!((first.status, first.rows().len()), (200, 20), "20 unless asked otherwise");
    assert_eq!(first.header("x-next-page"), Some("2"));
    assert_eq!(first.header("x-prev-page"), Some(""));
    assert_eq!(first.header("x-total"), Some("45"));
    let last = get(&server, &format!("/projects/{project}/issues?page=3&per_page=20"));
    assert_eq!((last.rows().len(), last.header("x-next-page")), (5, Some("")));
    for (paging, link, total) in
        [(Paging::NoTotal, true, false), (Paging::LinkOnly, true, false), (Paging::None, false, false)]
    {
        server.set(|settings| settings.paging = paging);
        let page = get(&server, &format!("/projects/{project}/issues?per_page=20"));
        assert_eq!(page.header("link").is_some_and(|link| link.contains("rel=\"next\"")), link, "{paging:?}");
        assert_eq!(page.header("x-total").is_some(), total, "{paging:?}");
    }
}

#[test]
fn api_10_a_large_offset_is_refused() {
    let (server, project) = server(3);
    server.set(|settings| settings.max_offset = 200);
    let refused = get(&server, &format!("/projects/{project}/issues?per_page=100&page=3"));
    assert_eq!(refused.status, 405);
    assert!(refused.body.contains("Offset pagination has a maximum allowed offset of 200"));
}

#[test]
fn api_14_18_updated_after_is_inclusive_and_ties_come_in_descending_order_of_id() {
    let (server, project) = server(3);
    let list = format!("/projects/{project}/issues?order_by=updated_at&sort=asc");
    assert_eq!(get(&server, &list).iids(), [3, 2, 1]);
    let now = server.edit(|model| {
        model.advance(1000);
        model.edit_item(project, Kind::Issue, 2, |row| row["title"] = json!("edited"));
        chrono_text(model.now)
    });
    assert_eq!(get(&server, &format!("{list}&updated_after={now}")).iids(), [2]);
    let bad = get(&server, &format!("{list}&updated_after=soon"));
    assert_eq!((bad.status, bad.body.as_str()), (400, "{\"error\":\"updated_after is invalid\"}"));
}

fn chrono_text(ms: i64) -> String {
    crate::support::fake_gitlab::model::time(ms)
}

#[test]
fn api_20_21_22_what_moves_the_time_of_an_item_and_what_does_not() {
    let (server, project) = server(1);
    let note = |text: &str| server.edit(|model| model.add_note(project, Kind::Issue, 1, "bo", text));
    let begun = updated_at(&server, project, 1);
    server.edit(|model| model.advance(30_000));
    let thread = note("within the minute");
    server.edit(|model| model.set_labels(project, Kind::Issue, 1, &["bug"]));
    assert_eq!(updated_at(&server, project, 1), begun);
    server.edit(|model| {
        model.advance(31_000);
        model.edit_note(project, Kind::Issue, 1, &thread, "edited");
    });
    let touched = updated_at(&server, project, 1);
    assert_eq!(touched, begun + 61_000);
    server.edit(|model| {
        model.advance(3_600_000);
        model.delete_discussion(project, Kind::Issue, 1, &thread);
    });
    assert_eq!(updated_at(&server, project, 1), touched, "a deleted note moves nothing");
    let row = get(&server, &format!("/projects/{project}/issues")).rows();
    assert_eq!((row[0]["user_notes_count"].as_i64(), row[0]["labels"].clone()), (Some(0), json!(["bug"])));
}

#[test]
fn api_8_hidden_discussions_leave_short_pages() {
    let (server, project) = server(1);
    server.edit(|model| {
        let hidden = model.add_note(project, Kind::Issue, 1, "bo", "hidden");
        model.hide_discussion(project, Kind::Issue, 1, &hidden);
        model.add_note(project, Kind::Issue, 1, "bo", "shown");
    });
    let page = get(&server, &format!("/projects/{project}/issues/1/discussions?per_page=1"));
    assert_eq!((page.rows().len(), page.header("x-next-page")), (0, Some("2")));
}

#[test]
fn api_33_39_73_75_refusals() {
    let (server, project) = server(2);
    let wrong = "PRIVATE-TOKEN: wrong\r\n";
    assert_eq!(request(&server, "/projects/group%2Fproject", wrong).status, 401);
    assert_eq!(request(&server, "/projects/group%2Fproject", "").status, 404, "private, to nobody");
    assert_eq!(get(&server, "/projects/group%2Fother").status, 404);
    server.edit(|model| {
        model.delete_item(project, Kind::Issue, 1);
        model.rename_project(project, "group/new.name");
        model.project(project).denied.insert("milestones".to_owned(), 403);
    });
    assert_eq!(get(&server, &format!("/projects/{project}/issues/1/discussions")).status, 404);
    assert_eq!(get(&server, &format!("/projects/{project}/milestones")).status, 403);
    let moved = get(&server, "/projects/group%2Fproject/issues");
    assert_eq!(moved.status, 301);
    assert!(moved.header("location").is_some_and(|to| to.ends_with(&format!("/projects/{project}/issues"))));
    assert!(!moved.body.starts_with('{'), "plain text: {}", moved.body);
    assert_eq!(get(&server, "/projects/group%2Fnew%2Ename").status, 200);
}

#[test]
fn rows_of_the_api_can_be_loaded_as_they_are() {
    let (server, project) = server(0);
    let row = json!({"id": 7, "iid": 7, "updated_at": "2020-01-01T00:00:00.000+02:00", "odd": [1]});
    server.edit(|model| {
        model.load_item(project, Kind::Issue, row.clone());
        model.project(project).labels.push(routes::label(1, "kind::Bug"));
        let now = model.now;
        model.project(project).milestones.push(routes::milestone(1, "v1", now));
    });
    assert_eq!(get(&server, &format!("/projects/{project}/issues")).rows(), [row]);
    assert_eq!(get(&server, &format!("/projects/{project}/labels")).rows()[0]["name"], "kind::Bug");
    assert_eq!(get(&server, &format!("/projects/{project}/milestones")).rows()[0]["title"], "v1");
}

#[test]
fn faults_hit_as_often_as_planned() {
    let (server, project) = server(3);
    let list = format!("/projects/{project}/issues");
    let whole = get(&server, &list).body;
    for (trouble, is_as_planned) in [
        (Trouble::EmptyList, (|got: &Got, _: &str| got.body == "[]") as fn(&Got, &str) -> bool),
        (Trouble::Deliver(Delivery::Halved), |got, whole| got.body.len() == whole.len() / 2),
        (Trouble::Deliver(Delivery::Truncated), |got, whole| {
            got.body.len() == whole.len() / 2
                && got.header("content-length") == Some(&whole.len().to_string())
        }),
        (Trouble::Deliver(Delivery::Reset), |got, _| got.status == 0),
        (Trouble::Replace("Issue 2".to_owned(), "broken".to_owned()), |got, _| got.body.contains("broken")),
        (Trouble::NextIsSelf, |got, _| got.header("link").is_some_and(|link| link.contains("rel=\"next\""))),
    ] {
        server.plan(Fault::times("/issues", 1, trouble.clone()).after(1));
        assert_eq!(get(&server, &list).body, whole, "the first is spared");
        assert!(is_as_planned(&get(&server, &list), &whole), "{trouble:?}");
        assert_eq!(get(&server, &list).body, whole, "{trouble:?}: once is enough");
        server.heal();
    }
    server.plan(Fault::times("/issues", 1, Trouble::TouchOldest { project, kind: Kind::Issue }));
    let order = format!("{list}?order_by=updated_at&sort=asc");
    assert_eq!(get(&server, &order).iids(), [3, 2, 1]);
    assert_eq!(get(&server, &order).iids().len(), 3);
    assert_ne!(get(&server, &order).iids(), [3, 2, 1], "one moved to the end");
}

#[test]
fn a_folder_of_rows_fills_a_project() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("labels.ndjson", "{\"id\":1,\"name\":\"bug\"}\n");
    write(
        "issues.ndjson.gz",
        "{\"id\":7,\"iid\":3,\"updated_at\":\"2020-01-01T00:00:00Z\"}\n{\"id\":8,\"iid\":4}\n",
    );
    write(
        "issue_discussions.ndjson.gz",
        "{\"iid\":3,\"discussions\":[{\"id\":\"a\",\"notes\":[{\"id\":1},{\"id\":2}]}]}\n",
    );
    let server = FakeGitlab::start();
    let (project, loaded) = server.edit(|model| {
        let project = model.add_project("g/p");
        (project, model.load_folder(project, dir.path(), 1))
    });
    assert_eq!((loaded.items, loaded.notes), (1, 2));
    assert_eq!(get(&server, &format!("/projects/{project}/issues")).iids(), [3]);
    assert_eq!(get(&server, &format!("/projects/{project}/issues/3/discussions")).rows().len(), 1);
    let new = server.edit(|model| model.add_item(project, Kind::Issue, "later"));
    assert_eq!(new, 4);
}
