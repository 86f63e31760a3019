//! Recorded answers of gitlab.com, read row by row.

mod facts;

use std::path::PathBuf;

use serde_json::Value;
use serde_json::value::RawValue;

use super::wire;

/// A file of the shared test data, when it is there.
pub(crate) fn shared(path: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "says where test data is")]
    let root = std::env::var("LORE_SHARED")
        .map_or_else(|_| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let file = root.join(path);
    if !file.exists() {
        eprintln!("skipped: there is no {}", file.display());
        return None;
    }
    Some(file)
}

#[derive(serde::Deserialize)]
struct Exchange<'a> {
    method: String,
    url: Option<String>,
    status: u16,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// Rows of every recorded list whose path ends with `name`.
fn recorded(text: &str, name: &str) -> Vec<Box<RawValue>> {
    let mut rows = Vec::new();
    for line in text.lines() {
        let exchange: Exchange<'_> = serde_json::from_str(line).unwrap();
        let path = exchange.url.as_deref().unwrap_or_default().split('?').next().unwrap_or_default();
        if exchange.method == "GET" && exchange.status == 200 && path.ends_with(name) {
            rows.extend(serde_json::from_str::<Vec<Box<RawValue>>>(exchange.body.get()).unwrap());
        }
    }
    assert!(!rows.is_empty(), "{name}");
    rows
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap()
}

#[test]
fn every_recorded_row_is_read_with_its_own_values() {
    let Some(file) = shared("gitlab/rest/exchanges.ndjson") else { return };
    let text = std::fs::read_to_string(file).unwrap();
    let issues = recorded(&text, "/issues");
    for raw in &issues {
        let (row, issue) = (value(raw), wire::issue(raw).unwrap());
        assert_eq!(row["id"], issue.gitlab_id);
        assert_eq!(row["iid"], issue.iid);
        assert_eq!(row["title"], issue.title);
        assert_eq!(row["state"], issue.state);
        assert_eq!(row["author"]["username"].as_str(), issue.author.username.as_deref());
        assert_eq!(row["labels"].as_array().map(Vec::len), Some(issue.labels.len()));
        assert_eq!(row["user_notes_count"].as_i64(), issue.user_notes_count);
    }
    let requests = recorded(&text, "/merge_requests");
    for raw in &requests {
        let (row, request) = (value(raw), wire::merge_request(raw).unwrap());
        assert_eq!(row["id"], request.gitlab_id);
        assert_eq!(row["iid"], request.iid);
        assert_eq!(row["source_branch"].as_str(), request.source_branch.as_deref());
        assert_eq!(row["merged_at"].is_null(), request.merged_at.is_none());
    }
    let discussions = recorded(&text, "/discussions");
    for raw in &discussions {
        let (row, (discussion, bad)) = (value(raw), wire::discussion(raw).unwrap());
        assert_eq!(row["id"], discussion.gitlab_id);
        assert_eq!(row["notes"].as_array().map(Vec::len), Some(discussion.notes.len()));
        assert!(bad.is_empty(), "{bad:?}");
    }
    let notes = recorded(&text, "/notes");
    let mut n_placed = 0;
    for raw in &notes {
        let (row, note) = (value(raw), wire::note(raw).unwrap());
        assert_eq!(row["id"], note.gitlab_id);
        assert_eq!(row["body"], note.body);
        assert_eq!(row["type"].as_str(), note.note_type.as_deref());
        assert_eq!(row.get("position").is_some(), note.position.is_some());
        n_placed += usize::from(note.position.is_some_and(|position| position.new_path.is_some()));
    }
    assert_eq!(recorded(&text, "/labels").iter().filter(|raw| wire::label(raw).is_ok()).count(), 11);
    assert_eq!(recorded(&text, "/milestones").iter().filter(|raw| wire::milestone(raw).is_ok()).count(), 2);
    assert_eq!(
        (issues.len(), requests.len(), discussions.len(), notes.len(), n_placed),
        (201, 211, 26, 190, 2)
    );
}

#[test]
fn every_client_fixture_of_a_discussion_is_read() {
    for path in [
        "gitlab/rest/narkoz-gitlab",
        "gitlab/rest/gitlab4j",
        "gitlab/rest/go-gitlab",
        "gitlab/rest/gitlab_docs_11.10_json",
    ] {
        let Some(dir) = shared(path) else { return };
        for entry in std::fs::read_dir(dir).unwrap() {
            let file = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&file) else { continue };
            let rows = serde_json::from_str::<Vec<Box<RawValue>>>(&text)
                .or_else(|_| serde_json::from_str::<Box<RawValue>>(&text).map(|row| vec![row]))
                .unwrap_or_default();
            for raw in rows {
                // Whatever a row is, it becomes an entity or a reason, never a panic.
                let row = value(&raw);
                if row.get("notes").is_some_and(Value::is_array) && row.get("individual_note").is_some() {
                    let (discussion, bad) = wire::discussion(&raw).unwrap();
                    assert!(bad.is_empty() && !discussion.notes.is_empty(), "{}", file.display());
                }
                let is_item = ["iid", "id", "updated_at", "title"].iter().all(|key| row.get(key).is_some());
                if is_item && row["updated_at"].is_string() {
                    assert!(
                        wire::issue(&raw).is_ok() && wire::merge_request(&raw).is_ok(),
                        "{}",
                        file.display()
                    );
                }
            }
        }
    }
}
