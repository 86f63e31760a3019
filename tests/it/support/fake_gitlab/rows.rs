//! Rows of projects, groups, labels, milestones and of the server itself.

use serde_json::{Value, json};

use super::groups::Group;
use super::model::{Model, Project, time, user};
use super::settings::{Access, Settings};

/// A label row.
pub fn label(id: i64, name: &str) -> Value {
    json!({"id": id, "name": name, "color": "#ff0000", "description": null, "text_color": "#FFFFFF"})
}

/// A milestone row.
pub fn milestone(id: i64, title: &str, now: i64) -> Value {
    json!({"id": id, "iid": id, "title": title, "description": "", "state": "active", "due_date": null,
           "created_at": time(now), "updated_at": time(now), "web_url": null})
}

/// A project as it is shown to somebody who may do that much there.
pub(super) fn project(model: &Model, id: i64, project: &Project, access: Access) -> Value {
    let mut row = project.row.clone();
    if access > Access::Public && row.get("permissions").is_none() {
        let level = match access {
            Access::Public => 0,
            Access::Guest => 10,
            Access::Reporter => 20,
            Access::Owner => 50,
        };
        let own = json!({"access_level": level, "notification_level": 3});
        row["permissions"] = json!({"project_access": own, "group_access": null});
    }
    let namespace = project.path.rsplit_once('/').map_or("", |(namespace, _)| namespace);
    row["id"] = json!(id);
    row["path"] = json!(project.path.rsplit('/').next());
    row["path_with_namespace"] = json!(project.path);
    row["web_url"] = json!(format!("https://gitlab.example.com/{}", project.path));
    row["namespace"] = json!({"id": model.group_id(namespace), "full_path": namespace, "kind": "group"});
    row
}

/// A group as it is shown.
pub(super) fn group(model: &Model, id: i64, group: &Group) -> Value {
    let mut row = group.row.clone();
    row["id"] = json!(id);
    row["path"] = json!(group.path.rsplit('/').next());
    row["full_path"] = json!(group.path);
    row["parent_id"] = json!(model.parent_of(&group.path));
    row["web_url"] = json!(format!("https://gitlab.example.com/groups/{}", group.path));
    row
}

/// `GET /version`.
pub(super) fn version(settings: &Settings) -> Value {
    json!({"version": settings.version, "revision": "0123abc4567", "enterprise": true,
           "kas": {"enabled": true, "externalUrl": "wss://kas.example.com", "version": settings.version}})
}

/// `GET /user`.
pub(super) fn current_user(settings: &Settings) -> Value {
    user(&settings.username)
}

/// `GET /personal_access_tokens/self`.
pub(super) fn token(settings: &Settings) -> Value {
    json!({"id": 42, "name": "sync", "revoked": false, "active": true, "created_at": "2026-01-01T00:00:00.000Z",
           "scopes": settings.scopes, "user_id": settings.username.len(), "last_used_at": null,
           "expires_at": settings.expires_at})
}

/// A row of `…/discussions` with the notes that may be seen; nothing when none may.
pub(super) fn discussion(model: &Model, row: &Value, access: Access) -> Option<Value> {
    let mut row = row.clone();
    let notes = row.get_mut("notes").and_then(Value::as_array_mut)?;
    notes.retain(|note| may_see_note(model, note, access));
    (!notes.is_empty()).then_some(row)
}

/// Whether a note may be seen.
pub(super) fn may_see_note(model: &Model, note: &Value, access: Access) -> bool {
    let is_internal = note["internal"] == json!(true) || note["confidential"] == json!(true);
    let author = note["author"]["username"].as_str().unwrap_or_default();
    (!is_internal || access >= Access::Reporter) && !model.banned.contains(author)
}
