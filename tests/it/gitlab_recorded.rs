//! The model server against recorded exchanges of gitlab.com: the same requests get the same
//! status, the same headers that matter, and rows with the same keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::gitlab_model::{Got, get, request};
use crate::support::fake_gitlab::http::decode;
use crate::support::fake_gitlab::model::{Kind, user};
use crate::support::fake_gitlab::{FakeGitlab, routes};

/// The folder of recorded data, when it is there.
pub(crate) fn shared(path: &str) -> Option<std::path::PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "says where test data is")]
    let root =
        std::env::var("LORE_SHARED").unwrap_or_else(|_| format!("{}/../shared", env!("CARGO_MANIFEST_DIR")));
    let found = std::path::Path::new(&root).join(path);
    if found.exists() {
        return Some(found);
    }
    eprintln!("skipped: there is no {}", found.display());
    None
}

/// One recorded exchange.
struct Exchange {
    target: String,
    status: u16,
    headers: BTreeMap<String, String>,
    body: Value,
}

impl Exchange {
    fn segments(&self) -> Vec<&str> {
        self.target.split('?').next().unwrap_or_default().split('/').skip(1).collect()
    }

    fn rows(&self) -> &[Value] {
        self.body.as_array().map_or(std::slice::from_ref(&self.body), Vec::as_slice)
    }

    fn param(&self, name: &str) -> Option<&str> {
        let query = self.target.split_once('?')?.1;
        query
            .split('&')
            .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name).map(|(_, value)| value))
    }
}

fn exchanges() -> Option<Vec<Exchange>> {
    let text = std::fs::read_to_string(shared("gitlab/rest/exchanges.ndjson")?).unwrap();
    let read = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let target = row["url"].as_str()?.split_once("/api/v4")?.1.to_owned();
        (row["method"] == "GET").then(|| Exchange {
            target,
            status: u16::try_from(row["status"].as_u64().unwrap()).unwrap(),
            headers: row["headers"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, value)| {
                    (name.to_ascii_lowercase(), value.as_str().unwrap_or_default().to_owned())
                })
                .collect(),
            body: row["body"].clone(),
        })
    };
    Some(text.lines().filter_map(read).collect())
}

fn keys(row: &Value) -> BTreeSet<String> {
    row.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect()
}

/// What the model can express of a recorded request.
fn can_express(exchange: &Exchange) -> bool {
    matches!(
        exchange.segments().as_slice(),
        ["version" | "user"]
            | ["projects", _]
            | ["projects", _, "issues" | "merge_requests" | "labels" | "milestones"]
            | ["projects", _, "issues" | "merge_requests", _]
            | ["projects", _, "issues" | "merge_requests", _, "notes" | "discussions"]
            | ["projects", _, "issues" | "merge_requests", _, "notes", _]
    )
}

/// Gives the model what GitLab had when it was asked: the rows of the answer, and as many
/// others before and behind them as its headers tell of.
fn recall(server: &FakeGitlab, exchange: &Exchange) {
    let segments = exchange.segments();
    let ["projects", wanted, rest @ ..] = segments.as_slice() else { return };
    if exchange.status == 404 && rest.is_empty() {
        return;
    }
    let number = |name: &str| exchange.headers.get(name).and_then(|text| text.parse::<usize>().ok());
    let rows = exchange.rows().to_vec();
    let (page, per_page) = (number("x-page").unwrap_or(1), number("x-per-page").unwrap_or(100));
    let n_before = (page - 1) * per_page;
    let more = number("x-next-page").map_or(0, |_| 1);
    let n_behind = number("x-total").map_or(more, |total| total.saturating_sub(n_before + rows.len()));
    let descending = exchange.param("sort") != Some("asc");
    // Like a row of the page, only earlier or later.
    let like = |n: usize, row: &Value| {
        let mut row = row.clone();
        let is_before = n < n_before;
        let year = if is_before == descending { 2040 } else { 1990 };
        for field in ["created_at", "updated_at"] {
            row[field] = json!(format!("{year}-01-01T00:00:{:02}.000Z", n % 60));
        }
        row["id"] = json!(5_000_000_000_i64 + i64::try_from(n).unwrap());
        row["iid"] = json!(100_000 + n);
        row
    };
    let others: Vec<Value> =
        rows.first().map(|row| (0..n_before + n_behind).map(|n| like(n, row)).collect()).unwrap_or_default();
    server.edit(|model| {
        let id: i64 = wanted.parse().unwrap_or(4711);
        let path = decode(wanted);
        let made = model.add_project(if path.contains('/') { &path } else { "recorded/project" });
        let mut project = model.projects.remove(&made).unwrap();
        if rest.is_empty() {
            project.row = exchange.body.clone();
            let now_at = exchange.body["path_with_namespace"].as_str().unwrap_or(&project.path).to_owned();
            project.path = now_at;
        }
        let id = exchange.body["id"].as_i64().filter(|_| rest.is_empty()).unwrap_or(id);
        model.projects.insert(id, project);
        let kind = if rest.first() == Some(&"issues") { Kind::Issue } else { Kind::MergeRequest };
        match rest {
            ["labels"] => model.project(id).labels = rows,
            ["milestones"] => model.project(id).milestones = rows,
            ["issues" | "merge_requests"] => {
                for row in rows.into_iter().chain(others) {
                    model.load_item(id, kind, row);
                }
            }
            [_, iid] if exchange.status == 200 => {
                assert_eq!(exchange.body["iid"].to_string(), *iid);
                model.load_item(id, kind, exchange.body.clone());
            }
            [_, iid, list, ..] => {
                let iid: i64 = iid.parse().unwrap();
                model.load_item(id, kind, json!({"id": iid, "iid": iid, "state": "opened"}));
                let threads = if *list == "discussions" {
                    rows
                } else {
                    let all = rows.into_iter().chain(others);
                    all.map(|note| json!({"id": note["id"].to_string(), "notes": [note]})).collect()
                };
                model.item(id, kind, iid).discussions = threads;
            }
            _ => {}
        }
    });
}

/// Compares an answer with the recorded one; returns what differs.
fn difference(exchange: &Exchange, got: &Got) -> Option<String> {
    if got.status != exchange.status {
        return Some(format!("status {} instead of {}", got.status, exchange.status));
    }
    let is_own = matches!(exchange.segments()[..], ["version" | "user"]);
    if exchange.status != 200 {
        let (recorded, ours) = (keys(&exchange.body), keys(&got.json()));
        return (recorded != ours).then(|| format!("keys {ours:?} instead of {recorded:?}"));
    }
    let Value::Array(rows) = &exchange.body else {
        let (recorded, ours) = (keys(&exchange.body), keys(&got.json()));
        // The model's own rows have fewer keys, but none of their own making.
        let is_fine = if is_own { ours.is_subset(&recorded) } else { recorded.is_subset(&ours) };
        return (!is_fine)
            .then(|| format!("keys {:?}", recorded.symmetric_difference(&ours).collect::<Vec<_>>()));
    };
    // Lists of old recordings lost their paging headers.
    if exchange.headers.contains_key("x-page") {
        for name in ["x-page", "x-per-page", "x-next-page", "x-prev-page", "x-total", "x-total-pages"] {
            if exchange.headers.get(name).map(String::as_str) != got.header(name) {
                return Some(format!(
                    "{name} {:?} instead of {:?}",
                    got.header(name),
                    exchange.headers.get(name)
                ));
            }
        }
        let link = exchange.headers.get("link").map(String::as_str).unwrap_or_default();
        let relations: Vec<&str> =
            link.split("rel=\"").skip(1).filter_map(|part| Some(part.split_once('"')?.0)).collect();
        if relations != got.relations() {
            return Some(format!("relations {:?} instead of {relations:?}", got.relations()));
        }
    }
    let ours = got.rows();
    let ids = |rows: &[Value]| rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
    if ids(rows) != ids(&ours) {
        return Some(format!("rows {:?} instead of {:?}", ids(&ours), ids(rows)));
    }
    let differing = rows.iter().zip(&ours).find(|(row, own)| keys(row) != keys(own));
    differing.map(|(row, own)| {
        format!("keys {:?}", keys(row).symmetric_difference(&keys(own)).collect::<Vec<_>>())
    })
}

#[test]
fn the_model_answers_recorded_requests_as_gitlab_did() {
    let Some(all) = exchanges() else { return };
    let expressed: Vec<&Exchange> = all.iter().filter(|exchange| can_express(exchange)).collect();
    let (mut n_same, mut differences) = (0, Vec::new());
    for exchange in &expressed {
        let server = FakeGitlab::start();
        recall(&server, exchange);
        let got = if exchange.status == 401 {
            request(&server, &exchange.target, "PRIVATE-TOKEN: wrong\r\n")
        } else {
            get(&server, &exchange.target)
        };
        match difference(exchange, &got) {
            None => n_same += 1,
            Some(text) => differences.push(format!("{}: {text}", exchange.target)),
        }
    }
    eprintln!("{n_same} of {} recorded answers are the same, {} were compared", all.len(), expressed.len());
    assert!(differences.is_empty(), "{n_same} agree, these do not:\n{}", differences.join("\n"));
    assert!(n_same >= 280, "{n_same} of {} exchanges", all.len());
}

#[test]
fn rows_of_the_model_have_no_key_that_gitlab_does_not_send() {
    let Some(all) = exchanges() else { return };
    let mut recorded: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for exchange in all.iter().filter(|exchange| exchange.status == 200) {
        let segments = exchange.segments();
        let name = match segments.as_slice() {
            ["projects", _] => "project",
            ["projects", _, "issues"] | ["projects", _, "issues", _] => "issue",
            ["projects", _, "merge_requests"] | ["projects", _, "merge_requests", _] => "merge request",
            ["projects", _, "labels"] => "label",
            ["projects", _, "milestones"] => "milestone",
            ["projects", _, _, _, "notes"] => "note",
            ["projects", _, _, _, "discussions"] => "discussion",
            ["groups", _] => "group",
            ["version"] => "version",
            ["user"] => "user",
            _ => continue,
        };
        for row in exchange.rows() {
            recorded.entry(name).or_default().extend(keys(row));
            for note in row["notes"].as_array().into_iter().flatten().filter(|_| name == "discussion") {
                recorded.entry("note").or_default().extend(keys(note));
            }
        }
    }
    let server = FakeGitlab::start();
    let project = server.edit(|model| {
        let project = model.add_project("g/p");
        model.add_item(project, Kind::Issue, "one");
        model.add_item(project, Kind::MergeRequest, "one");
        model.add_note(project, Kind::Issue, 1, "bo", "hello");
        model.project(project).labels.push(routes::label(1, "bug"));
        let now = model.now;
        model.project(project).milestones.push(routes::milestone(1, "v1", now));
        project
    });
    let first = |target: &str| {
        let got = get(&server, target).json();
        got.as_array().and_then(|rows| rows.first()).cloned().unwrap_or(got)
    };
    let issues = format!("/projects/{project}/issues");
    let notes = first(&format!("{issues}/1/discussions"));
    for (name, row) in [
        ("project", first(&format!("/projects/{project}"))),
        ("issue", first(&issues)),
        ("merge request", first(&format!("/projects/{project}/merge_requests"))),
        ("label", first(&format!("/projects/{project}/labels"))),
        ("milestone", first(&format!("/projects/{project}/milestones"))),
        ("note", notes["notes"][0].clone()),
        ("discussion", notes.clone()),
        ("group", first("/groups/g")),
        ("version", first("/version")),
        ("user", user("ada")),
    ] {
        let invented: Vec<String> = keys(&row).difference(&recorded[name]).cloned().collect();
        assert!(invented.is_empty(), "{name}: {invented:?}");
    }
}
