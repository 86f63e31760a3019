//! Projects and their items, and how GitLab moves `updated_at` when they change.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::faults::Trouble;
use super::groups::Group;
use super::related::Related;
use super::settings::Access;

/// GitLab leaves `updated_at` alone when it is younger than this.
pub const TOUCH_INTERVAL_MS: i64 = 60_000;

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

    /// What notes call it.
    pub const fn noteable(self) -> &'static str {
        match self {
            Self::Issue => "Issue",
            Self::MergeRequest => "MergeRequest",
        }
    }

    /// The sign in front of its number.
    pub const fn sigil(self) -> char {
        match self {
            Self::Issue => '#',
            Self::MergeRequest => '!',
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
    /// Microseconds beyond, which the server compares by and the API does not show: 0 to 999.
    pub micros: i64,
    /// As `…/discussions` lists them.
    pub discussions: Vec<Value>,
    /// Ids of discussions that the token may not see.
    pub hidden: BTreeSet<String>,
    /// Whether its `updated_at` in the row is left as it was loaded.
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
    /// What the token may do here, when it is not what it may do elsewhere.
    pub access: Option<Access>,
    /// The greatest number given so far: numbers are never given twice.
    pub(super) last_iid: BTreeMap<Kind, i64>,
}

/// Everything that the server knows.
#[derive(Debug)]
pub struct Model {
    /// The server's clock, milliseconds since the epoch.
    pub now: i64,
    /// Projects by id.
    pub projects: BTreeMap<i64, Project>,
    /// Groups by id.
    pub groups: BTreeMap<i64, Group>,
    /// Links between items.
    pub related: Related,
    /// Users whose notes are hidden although they count.
    pub banned: BTreeSet<String>,
    pub(super) pending: Option<Trouble>,
    next_id: i64,
    pub(super) next_group_id: i64,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            // 2026-03-01T12:00:00Z
            now: 1_772_366_400_000,
            projects: BTreeMap::new(),
            groups: BTreeMap::new(),
            related: Related::default(),
            banned: BTreeSet::new(),
            pending: None,
            next_id: 100,
            next_group_id: 9000,
        }
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

    pub(super) fn id(&mut self) -> i64 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds a project, and the groups that its path names; returns its id.
    pub fn add_project(&mut self, path: &str) -> i64 {
        let id = self.id();
        let name = path.rsplit('/').next().unwrap_or(path);
        let row = json!({"name": name, "description": null, "archived": false, "visibility": "private",
                         "issues_enabled": true, "merge_requests_enabled": true,
                         "issues_access_level": "enabled", "merge_requests_access_level": "enabled",
                         "created_at": time(self.now), "last_activity_at": time(self.now),
                         "default_branch": "main", "empty_repo": false, "open_issues_count": 0,
                         "marked_for_deletion_at": null, "marked_for_deletion_on": null});
        self.ensure_groups(path);
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

    /// Adds an item that is new now; returns its number.
    pub fn add_item(&mut self, project: i64, kind: Kind, title: &str) -> i64 {
        let (id, now) = (self.id(), self.now);
        let path = self.project(project).path.clone();
        let iid = self.project(project).take_iid(kind);
        let list = kind.list();
        let full = format!("{path}{}{iid}", kind.sigil());
        let mut row = json!({
            "id": id, "iid": iid, "project_id": project, "title": title, "description": format!("About {title}."),
            "state": "opened", "created_at": time(now), "closed_at": null, "closed_by": null, "labels": [],
            "milestone": null, "assignees": [], "assignee": null, "author": user("ada"), "user_notes_count": 0,
            "discussion_locked": null,
            "references": {"short": format!("{}{iid}", kind.sigil()), "relative": format!("{}{iid}", kind.sigil()), "full": full},
            "web_url": format!("https://gitlab.example.com/{path}/-/{list}/{iid}"),
        });
        match kind {
            Kind::Issue => {
                row["type"] = json!("ISSUE");
                row["issue_type"] = json!("issue");
                row["confidential"] = json!(false);
                row["moved_to_id"] = Value::Null;
                row["due_date"] = Value::Null;
            }
            Kind::MergeRequest => {
                row["source_branch"] = json!(format!("branch-{iid}"));
                row["target_branch"] = json!("main");
                row["draft"] = json!(false);
                row["merged_at"] = Value::Null;
                row["merge_user"] = Value::Null;
            }
        }
        self.project(project).items.insert((kind, iid), Item { row, updated_at: now, ..Item::default() });
        iid
    }

    /// Adds an item from a row of the API, with its own times and numbers.
    pub fn load_item(&mut self, project: i64, kind: Kind, row: Value) {
        let number = |key: &str| row.get(key).and_then(Value::as_i64).unwrap_or(0);
        let (id, iid) = (number("id"), number("iid"));
        let updated_at = row
            .get("updated_at")
            .and_then(Value::as_str)
            .and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok())
            .map_or(self.now, |time| time.timestamp_millis());
        let item = Item { row, updated_at, keeps_row: true, ..Item::default() };
        self.next_id = self.next_id.max(id);
        self.project(project).items.insert((kind, iid), item);
    }

    /// Edits an item: its row changes and `updated_at` moves.
    pub fn edit_item(&mut self, project: i64, kind: Kind, iid: i64, change: impl FnOnce(&mut Value)) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        change(&mut item.row);
        item.moved_to(now);
    }

    /// Edits the item that was updated least recently.
    pub(super) fn touch_oldest(&mut self, project: i64, kind: Kind) {
        self.now += 1000;
        let now = self.now;
        let items = &mut self.project(project).items;
        let oldest = items.iter_mut().filter(|((other, _), _)| *other == kind).map(|(_, item)| item);
        // Of several, the one that the list starts with.
        let place = |item: &&mut Item| (item.updated_at, -item.id());
        if let Some(item) = oldest.min_by_key(place) {
            item.moved_to(now);
        }
    }
}

impl Project {
    /// Gives the next number of a sequence.
    fn take_iid(&mut self, kind: Kind) -> i64 {
        let present = self.items.keys().filter(|(other, _)| *other == kind).map(|(_, iid)| *iid).max();
        let last = self.last_iid.entry(kind).or_default();
        *last = (*last).max(present.unwrap_or(0)) + 1;
        *last
    }

    /// Whether a field of its row holds this text.
    pub fn says(&self, field: &str, text: &str) -> bool {
        self.row.get(field).and_then(Value::as_str) == Some(text)
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

    /// Id on the instance.
    pub fn id(&self) -> i64 {
        self.row.get("id").and_then(Value::as_i64).unwrap_or(0)
    }

    /// A text of its row.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.row.get(field).and_then(Value::as_str)
    }

    /// Sets `updated_at`.
    pub(super) fn moved_to(&mut self, now: i64) {
        self.updated_at = now;
        self.micros = 0;
        self.keeps_row = false;
    }

    /// Sets `updated_at` when it is older than a minute.
    pub(super) fn touch(&mut self, now: i64) {
        if now - self.updated_at > TOUCH_INTERVAL_MS {
            self.moved_to(now);
        }
    }

    /// Changes the count of notes that people wrote.
    pub(super) fn count_notes(&mut self, by: i64) {
        let count = self.row.get("user_notes_count").and_then(Value::as_i64).unwrap_or(0);
        self.row["user_notes_count"] = json!((count + by).max(0));
    }
}
