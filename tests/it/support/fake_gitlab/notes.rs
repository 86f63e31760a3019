//! Discussions and notes: written, edited, resolved, deleted, hidden.

use serde_json::{Value, json};

use super::model::{Item, Kind, Model, time, user};

impl Model {
    /// Adds a comment as a discussion of its own; returns the discussion's id.
    pub fn add_note(&mut self, project: i64, kind: Kind, iid: i64, author: &str, body: &str) -> String {
        let note = self.new_note(project, kind, author, body);
        self.add_discussion(project, kind, iid, note, true)
    }

    /// Adds a comment that only Reporters see; returns the discussion's id.
    pub fn add_internal_note(
        &mut self,
        project: i64,
        kind: Kind,
        iid: i64,
        author: &str,
        body: &str,
    ) -> String {
        let mut note = self.new_note(project, kind, author, body);
        note["internal"] = json!(true);
        note["confidential"] = json!(true);
        self.add_discussion(project, kind, iid, note, true)
    }

    /// Adds what GitLab itself says. It does not count as a note of the item.
    pub fn add_system_note(&mut self, project: i64, kind: Kind, iid: i64, body: &str) -> String {
        let mut note = self.new_note(project, kind, "ada", body);
        note["system"] = json!(true);
        self.add_discussion(project, kind, iid, note, true)
    }

    /// Adds a thread on a line of a file; returns the discussion's id.
    pub fn add_diff_note(
        &mut self,
        project: i64,
        iid: i64,
        author: &str,
        body: &str,
        position: Value,
    ) -> String {
        let mut note = self.new_note(project, Kind::MergeRequest, author, body);
        note["type"] = json!("DiffNote");
        note["resolvable"] = json!(true);
        note["resolved"] = json!(false);
        note["resolved_by"] = Value::Null;
        note["resolved_at"] = Value::Null;
        note["position"] = position;
        self.add_discussion(project, Kind::MergeRequest, iid, note, false)
    }

    fn add_discussion(
        &mut self,
        project: i64,
        kind: Kind,
        iid: i64,
        note: Value,
        is_individual: bool,
    ) -> String {
        let id = format!("{:040x}", self.id());
        let now = self.now;
        let by = i64::from(note["system"] == json!(false));
        let item = self.item(project, kind, iid);
        item.discussions.push(json!({"id": id, "individual_note": is_individual, "notes": [note]}));
        item.count_notes(by);
        item.touch(now);
        id
    }

    /// Adds a reply to a discussion.
    pub fn reply(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str, author: &str, body: &str) {
        let mut note = self.new_note(project, kind, author, body);
        let now = self.now;
        let item = self.item(project, kind, iid);
        let thread = find(item, discussion);
        thread["individual_note"] = json!(false);
        // A comment that is replied to becomes the head of a thread.
        if thread["notes"][0]["type"].is_null() {
            thread["notes"][0]["type"] = json!("DiscussionNote");
        }
        note["type"] = thread["notes"][0]["type"].clone();
        for name in ["internal", "confidential", "position", "resolvable"] {
            if let Some(value) = thread["notes"][0].get(name).cloned() {
                note[name] = value;
            }
        }
        if let Some(notes) = thread["notes"].as_array_mut() {
            notes.push(note);
        }
        item.count_notes(1);
        item.touch(now);
    }

    /// Edits the first note of a discussion.
    pub fn edit_note(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str, body: &str) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        let thread = find(item, discussion);
        thread["notes"][0]["body"] = json!(body);
        thread["notes"][0]["updated_at"] = json!(time(now));
        item.touch(now);
    }

    /// Resolves a discussion, or opens it again.
    pub fn resolve(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str, resolved: bool) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        let by = if resolved { user("ada") } else { Value::Null };
        for note in find(item, discussion)["notes"].as_array_mut().into_iter().flatten() {
            note["resolvable"] = json!(true);
            note["resolved"] = json!(resolved);
            note["resolved_by"] = by.clone();
            note["resolved_at"] = if resolved { json!(time(now)) } else { Value::Null };
        }
        item.touch(now);
    }

    /// Deletes a discussion: the count changes, `updated_at` does not.
    pub fn delete_discussion(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str) {
        let item = self.item(project, kind, iid);
        let written = notes_of(find(item, discussion)).filter(|note| note["system"] != json!(true)).count();
        item.discussions.retain(|known| known["id"] != json!(discussion));
        item.count_notes(-i64::try_from(written).unwrap_or(0));
    }

    /// Deletes one note of a discussion, by its place; the last one takes the discussion away.
    pub fn delete_note(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str, place: usize) {
        let item = self.item(project, kind, iid);
        let Some(notes) = find(item, discussion)["notes"].as_array_mut() else { return };
        if place >= notes.len() {
            return;
        }
        if notes.len() == 1 {
            return self.delete_discussion(project, kind, iid, discussion);
        }
        let gone = notes.remove(place);
        if gone["system"] != json!(true) {
            item.count_notes(-1);
        }
    }

    /// Hides a discussion after the page was cut.
    pub fn hide_discussion(&mut self, project: i64, kind: Kind, iid: i64, discussion: &str) {
        self.item(project, kind, iid).hidden.insert(discussion.to_owned());
    }

    fn new_note(&mut self, project: i64, kind: Kind, author: &str, body: &str) -> Value {
        json!({
            "id": self.id(), "type": null, "body": body, "attachment": null, "author": user(author),
            "created_at": time(self.now), "updated_at": time(self.now), "system": false,
            "noteable_type": kind.noteable(), "noteable_iid": null, "project_id": project, "resolvable": false,
            "confidential": false, "internal": false, "imported": false, "imported_from": "none",
        })
    }
}

/// Notes of a discussion.
pub fn notes_of(discussion: &Value) -> impl Iterator<Item = &Value> {
    discussion["notes"].as_array().into_iter().flatten()
}

fn find<'a>(item: &'a mut Item, discussion: &str) -> &'a mut Value {
    item.discussions
        .iter_mut()
        .find(|known| known["id"] == json!(discussion))
        .unwrap_or_else(|| panic!("there is no discussion {discussion}"))
}
