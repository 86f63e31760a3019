//! Projects, items, notes, and how GitLab moves `updated_at` when they change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::faults::Trouble;

/// GitLab leaves `updated_at` alone when it is younger than this.
const TOUCH_INTERVAL_MS: i64 = 60_000;

/// Which of the two number sequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `#12`
    Issue,
    /// `!12`
    MergeRequest,
}

impl Kind {
    /// Name of the list.
    pub const fn list(self) -> &'static str {
        match self {
            Self::Issue => "issues",
            Self::MergeRequest => "merge_requests",
        }
    }

    const fn noteable(self) -> &'static str {
        match self {
            Self::Issue => "Issue",
            Self::MergeRequest => "MergeRequest",
        }
    }
}

/// An item: its row as it is listed, and its discussions.
#[derive(Debug, Clone, Default)]
pub struct Item {
    /// The row; `updated_at` and `user_notes_count` are kept beside it.
    pub row: Value,
    /// Milliseconds since the epoch.
    pub updated_at: i64,
    /// As `…/discussions` lists them.
    pub discussions: Vec<Value>,
    /// Ids of discussions that the token may not see.
    pub hidden: BTreeSet<String>,
    /// Whether its `updated_at` in the row is written from `updated_at`.
    pub keeps_row: bool,
}

/// A project.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// Path now.
    pub path: String,
    /// Paths before.
    pub old_paths: Vec<String>,
    /// Its own fields.
    pub row: Value,
    /// Rows of labels.
    pub labels: Vec<Value>,
    /// Rows of milestones.
    pub milestones: Vec<Value>,
    /// Items by kind and number.
    pub items: BTreeMap<(Kind, i64), Item>,
    /// Streams that are refused, with their status. `project` is the project itself.
    pub denied: BTreeMap<String, u16>,
}

/// Everything that the server knows.
#[derive(Debug)]
pub struct Model {
    /// The server's clock, milliseconds since the epoch.
    pub now: i64,
    /// Projects by id.
    pub projects: BTreeMap<i64, Project>,
    pub(super) pending: Option<Trouble>,
    next_id: i64,
}

impl Default for Model {
    fn default() -> Self {
        // 2026-03-01T12:00:00Z
        Self { now: 1_772_366_400_000, projects: BTreeMap::new(), pending: None, next_id: 100 }
    }
}

/// Formats a time as GitLab does.
pub fn time(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms)
        .unwrap_or_default()
        .to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// A user as they appear in rows.
pub fn user(name: &str) -> Value {
    json!({"id": name.len(), "username": name, "name": format!("{name} the user"), "state": "active",
           "avatar_url": null, "web_url": format!("https://gitlab.example.com/{name}")})
}

impl Model {
    /// Moves the clock.
    pub fn advance(&mut self, ms: i64) {
        self.now += ms;
    }

    fn id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a project; returns its id.
    pub fn add_project(&mut self, path: &str) -> i64 {
        let id = self.id();
        let name = path.rsplit('/').next().unwrap_or(path);
        let row = json!({"name": name, "archived": false, "issues_enabled": true, "merge_requests_enabled": true,
                         "issues_access_level": "enabled", "merge_requests_access_level": "enabled",
                         "created_at": time(self.now), "default_branch": null});
        self.projects.insert(id, Project { path: path.to_owned(), row, ..Project::default() });
        id
    }

    /// A project.
    pub fn project(&mut self, id: i64) -> &mut Project {
        self.projects.get_mut(&id).unwrap_or_else(|| panic!("there is no project {id}"))
    }

    /// An item.
    pub fn item(&mut self, project: i64, kind: Kind, iid: i64) -> &mut Item {
        self.project(project)
            .items
            .get_mut(&(kind, iid))
            .unwrap_or_else(|| panic!("there is no {kind:?} {iid}"))
    }

    /// Renames a project: the old path redirects.
    pub fn rename_project(&mut self, id: i64, path: &str) {
        let project = self.project(id);
        let old = std::mem::replace(&mut project.path, path.to_owned());
        project.old_paths.push(old);
    }

    /// Adds an item that is new now; returns its number.
    pub fn add_item(&mut self, project: i64, kind: Kind, title: &str) -> i64 {
        let (id, now) = (self.id(), self.now);
        let path = self.project(project).path.clone();
        let items = &self.project(project).items;
        let iid =
            items.keys().filter(|(other, _)| *other == kind).map(|(_, iid)| *iid).max().unwrap_or(0) + 1;
        let list = kind.list();
        let mut row = json!({
            "id": id, "iid": iid, "project_id": project, "title": title, "description": format!("About {title}."),
            "state": "opened", "created_at": time(now), "closed_at": null, "labels": [], "milestone": null,
            "assignees": [], "assignee": null, "author": user("ada"), "user_notes_count": 0,
            "web_url": format!("https://gitlab.example.com/{path}/-/{list}/{iid}"),
        });
        match kind {
            Kind::Issue => {
                row["type"] = json!("ISSUE");
                row["issue_type"] = json!("issue");
                row["confidential"] = json!(false);
                row["moved_to_id"] = Value::Null;
            }
            Kind::MergeRequest => {
                row["source_branch"] = json!(format!("branch-{iid}"));
                row["target_branch"] = json!("main");
                row["draft"] = json!(false);
                row["merged_at"] = Value::Null;
            }
        }
        self.project(project).items.insert((kind, iid), Item { row, updated_at: now, ..Item::default() });
        iid
    }

    /// Adds an item from a row of the API, with its own times and numbers.
    pub fn load_item(&mut self, project: i64, kind: Kind, row: Value) {
        let number = |key: &str| row.get(key).and_then(Value::as_i64).unwrap_or(0);
        let iid = number("iid");
        let updated_at = row
            .get("updated_at")
            .and_then(Value::as_str)
            .and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok())
            .map_or(self.now, |time| time.timestamp_millis());
        let item = Item { row, updated_at, keeps_row: true, ..Item::default() };
        self.project(project).items.insert((kind, iid), item);
    }

    /// Edits an item: its row changes and `updated_at` moves.
    pub fn edit_item(&mut self, project: i64, kind: Kind, iid: i64, change: impl FnOnce(&mut Value)) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        change(&mut item.row);
        item.updated_at = now;
    }

    /// Sets labels: `updated_at` moves only when it is older than a minute.
    pub fn set_labels(&mut self, project: i64, kind: Kind, iid: i64, labels: &[&str]) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        item.row["labels"] = json!(labels);
        touch(item, now);
    }

    /// Takes an item away. No trace of it stays.
    pub fn delete_item(&mut self, project: i64, kind: Kind, iid: i64) {
        self.project(project).items.remove(&(kind, iid));
    }

    /// Adds a comment as a discussion of its own; returns the discussion's id.
    pub fn add_note(&mut self, project: i64, kind: Kind, iid: i64, author: &str, body: &str) -> String {
        let discussion = format!("{:040x}", self.id());
        let note = self.new_note(kind, author, body);
        let now = self.now;
        let item = self.item(project, kind, iid);
        item.discussions.push(json!({"id": discussion, "individual_note": true, "notes": [note]}));
        bump_count(item, 1);
        touch(item, now);
        discussion
    }

    /// Adds a reply to a discussion.
    pub fn reply(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str, author: &str, body: &str) {
        let mut note = self.new_note(kind, author, body);
        note["type"] = json!("DiscussionNote");
        let now = self.now;
        let item = self.item(project, kind, iid);
        let thread = find(item, discussion);
        thread["individual_note"] = json!(false);
        if let Some(notes) = thread["notes"].as_array_mut() {
            notes.push(note);
        }
        bump_count(item, 1);
        touch(item, now);
    }

    /// Edits the first note of a discussion.
    pub fn edit_note(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str, body: &str) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        let thread = find(item, discussion);
        thread["notes"][0]["body"] = json!(body);
        thread["notes"][0]["updated_at"] = json!(time(now));
        touch(item, now);
    }

    /// Deletes a discussion: the count changes, `updated_at` does not.
    pub fn delete_discussion(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str) {
        let item = self.item(project, kind, iid);
        item.discussions.retain(|known| known["id"] != json!(discussion));
        bump_count(item, -1);
    }

    /// Hides a discussion after the page was cut.
    pub fn hide_discussion(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str) {
        self.item(project, kind, iid).hidden.insert(discussion.to_owned());
    }

    fn new_note(&mut self, kind: Kind, author: &str, body: &str) -> Value {
        json!({
            "id": self.id(), "type": null, "body": body, "attachment": null, "author": user(author),
            "created_at": time(self.now), "updated_at": time(self.now), "system": false,
            "noteable_type": kind.noteable(), "noteable_iid": null, "resolvable": false,
            "confidential": false, "internal": false,
        })
    }

    /// Edits the item that was updated least recently.
    pub(super) fn touch_oldest(&mut self, project: i64, kind: Kind) {
        self.now += 1000;
        let now = self.now;
        let items = &mut self.project(project).items;
        let oldest = items.iter_mut().filter(|((other, _), _)| *other == kind).map(|(_, item)| item);
        // Of several, the one that the list starts with.
        let place = |item: &&mut Item| (item.updated_at, -item.row["id"].as_i64().unwrap_or(0));
        if let Some(item) = oldest.min_by_key(place) {
            item.updated_at = now;
        }
    }
}

impl Item {
    /// The row as it is listed.
    pub fn listed(&self) -> Value {
        let mut row = self.row.clone();
        if !self.keeps_row {
            row["updated_at"] = json!(time(self.updated_at));
        }
        row
    }
}

fn find<'a>(item: &'a mut Item, discussion: &str) -> &'a mut Value {
    item.discussions
        .iter_mut()
        .find(|known| known["id"] == json!(discussion))
        .unwrap_or_else(|| panic!("there is no discussion {discussion}"))
}

fn touch(item: &mut Item, now: i64) {
    if now - item.updated_at > TOUCH_INTERVAL_MS {
        item.updated_at = now;
    }
}

fn bump_count(item: &mut Item, by: i64) {
    let count = item.row.get("user_notes_count").and_then(Value::as_i64).unwrap_or(0);
    item.row["user_notes_count"] = json!(count + by);
}
