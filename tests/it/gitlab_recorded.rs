//! The model server against recorded exchanges of gitlab.com: the same requests get the same
//! status, the same headers that matter, and rows with the same keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::gitlab_model::{Got, get, request};
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

/// Headers about paging that both must have or lack. `x-total` and its kin depend on how
/// many rows there are, and are compared by value where the whole list is known.
const PAGING: &[&str] = &["link", "x-page", "x-per-page", "x-next-page", "x-prev-page"];

/// What the model can express of a recorded request.
fn can_express(exchange: &Exchange) -> bool {
    match exchange.segments().as_slice() {
        ["version" | "user"] => true,
        ["projects", _] => true,
        ["projects", _, "issues" | "merge_requests" | "labels" | "milestones"] => {
            // Filters of no concern here.
            ["assignee_id", "author_id", "search", "milestone", "view"]
                .iter()
                .all(|name| exchange.param(name).is_none())
        }
        ["projects", _, "issues" | "merge_requests", _] => true,
        ["projects", _, "issues" | "merge_requests", _, "notes" | "discussions"] => true,
        ["projects", _, "issues" | "merge_requests", _, "notes", _] => exchange.status == 200,
        _ => false,
    }
}

/// Puts the recorded rows into the model.
fn load(server: &FakeGitlab, exchanges: &[&Exchange]) {
    // Ids of projects by every way in which they were asked for.
    let mut ids: BTreeMap<String, i64> = BTreeMap::new();
    server.edit(|model| {
        for exchange in exchanges.iter().filter(|exchange| exchange.status == 200) {
            let ["projects", wanted] = exchange.segments()[..] else { continue };
            let (Some(id), Some(path)) =
                (exchange.body["id"].as_i64(), exchange.body["path_with_namespace"].as_str())
            else {
                continue;
            };
            ids.insert(wanted.to_owned(), id);
            let made = model.add_project(path);
            let mut project = model.projects.remove(&made).unwrap();
            project.row = exchange.body.clone();
            model.projects.insert(id, project);
        }
        for exchange in exchanges.iter().filter(|exchange| exchange.status == 200) {
            let segments = exchange.segments();
            let ["projects", wanted, rest @ ..] = segments.as_slice() else { continue };
            let Some(id) = ids.get(*wanted).copied().or_else(|| wanted.parse().ok()) else { continue };
            if !model.projects.contains_key(&id) {
                let made = model.add_project(&format!("recorded/p{id}"));
                let project = model.projects.remove(&made).unwrap();
                model.projects.insert(id, project);
            }
            let kind = if rest.first() == Some(&"issues") { Kind::Issue } else { Kind::MergeRequest };
            match rest {
                ["labels"] => model.project(id).labels = exchange.rows().to_vec(),
                ["milestones"] => model.project(id).milestones = exchange.rows().to_vec(),
                ["issues" | "merge_requests"] | ["issues" | "merge_requests", _] => {
                    for row in exchange.rows() {
                        let iid = row["iid"].as_i64().unwrap_or(0);
                        if !model.project(id).items.contains_key(&(kind, iid)) {
                            model.load_item(id, kind, row.clone());
                        }
                    }
                }
                [_, iid, list @ ("notes" | "discussions"), ..] => {
                    let iid: i64 = iid.parse().unwrap();
                    if !model.project(id).items.contains_key(&(kind, iid)) {
                        model.load_item(id, kind, json!({"id": iid, "iid": iid, "state": "opened"}));
                    }
                    let item = model.item(id, kind, iid);
                    for row in exchange.rows() {
                        if *list == "discussions" {
                            item.discussions.push(row.clone());
                        } else if !item.discussions.iter().any(|known| known["notes"][0]["id"] == row["id"]) {
                            item.discussions.push(json!({"id": row["id"].to_string(), "notes": [row]}));
                        }
                    }
                }
                _ => {}
            }
        }
    });
}

/// Compares an answer with the recorded one; returns what differs.
fn difference(exchange: &Exchange, got: &Got) -> Option<String> {
    if got.status != exchange.status {
        return Some(format!("status {} instead of {}", got.status, exchange.status));
    }
    if exchange.body.is_array() {
        let has = |name: &str| exchange.headers.contains_key(name);
        for name in
            PAGING.iter().filter(|name| has("x-page") && has(name) != got.header_names().contains(**name))
        {
            return Some(format!("header {name}"));
        }
        let n_full = exchange.headers.get("x-total").and_then(|n| n.parse::<usize>().ok());
        if n_full == Some(exchange.rows().len()) && got.rows().len() == exchange.rows().len() {
            for name in ["x-total", "x-total-pages", "x-next-page", "x-prev-page", "x-page", "x-per-page"] {
                if exchange.headers.get(name).map(String::as_str) != got.header(name) {
                    return Some(format!("{name}: {:?}", got.header(name)));
                }
            }
            let link = exchange.headers.get("link").map(String::as_str).unwrap_or_default();
            let relations: Vec<&str> =
                link.split("rel=\"").skip(1).filter_map(|part| Some(part.split_once('"')?.0)).collect();
            if relations != got.relations() {
                return Some(format!("relations {:?} instead of {relations:?}", got.relations()));
            }
            let ids = |rows: &[Value]| rows.iter().map(|row| row["id"].clone()).collect::<Vec<_>>();
            if ids(exchange.rows()) != ids(&got.rows()) {
                return Some("order".to_owned());
            }
        }
    }
    let got_rows = match got.json() {
        Value::Array(rows) => rows,
        row => vec![row],
    };
    // Of an item that was recorded more than once the first row is in the model: a later
    // recording may have keys of a later version, but not the other way round by much.
    let twins = exchange.rows().iter().filter(|row| row.get("id").is_some());
    let n_twins = twins.filter(|row| got_rows.iter().any(|twin| keys(twin).is_superset(&keys(row)))).count();
    if exchange.status == 200
        && exchange.rows().first().is_some_and(|row| row.get("id").is_some())
        && n_twins == 0
    {
        return Some("no row has the recorded keys".to_owned());
    }
    match exchange.status {
        200 => None,
        _ if keys(&exchange.body) == keys(&got.json()) => None,
        _ => Some(format!("keys {:?} instead of {:?}", keys(&got.json()), keys(&exchange.body))),
    }
}

#[test]
fn the_model_answers_recorded_requests_as_gitlab_did() {
    let Some(all) = exchanges() else { return };
    let expressed: Vec<&Exchange> = all.iter().filter(|exchange| can_express(exchange)).collect();
    let server = FakeGitlab::start();
    load(&server, &expressed);
    let (mut n_same, mut differences) = (0, Vec::new());
    for exchange in &expressed {
        // An answer without a token was recorded where there is a 401.
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
    assert!(differences.is_empty(), "{n_same} agree, these do not:\n{}", differences.join("\n"));
    assert!(n_same >= 290, "{n_same} of {} exchanges", all.len());
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
