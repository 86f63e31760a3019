//! What happens to items and projects beside being edited: closed, moved, deleted, renamed.

use serde_json::{Value, json};

use super::model::{Item, Kind, Model, time, user};

impl Model {
    /// Sets labels: `updated_at` moves only when it is older than a minute.
    pub fn set_labels(&mut self, project: i64, kind: Kind, iid: i64, labels: &[&str]) {
        let now = self.now;
        let item = self.item(project, kind, iid);
        item.row["labels"] = json!(labels);
        item.touch(now);
    }

    /// Closes an item (a merge request can also be `merged`), or opens it again.
    pub fn set_state(&mut self, project: i64, kind: Kind, iid: i64, state: &str) {
        let closed_at = if state == "opened" { Value::Null } else { json!(time(self.now)) };
        self.edit_item(project, kind, iid, |row| {
            row["state"] = json!(state);
            match state {
                "merged" => {
                    row["merged_at"] = closed_at;
                    row["merge_user"] = user("ada");
                }
                _ => {
                    row["closed_by"] = if state == "opened" { Value::Null } else { user("ada") };
                    row["closed_at"] = closed_at;
                }
            }
        });
    }

    /// Makes an issue confidential, or public again.
    pub fn set_confidential(&mut self, project: i64, iid: i64, confidential: bool) {
        self.edit_item(project, Kind::Issue, iid, |row| row["confidential"] = json!(confidential));
    }

    /// Takes an item away. No trace of it stays, and its number is not given again.
    pub fn delete_item(&mut self, project: i64, kind: Kind, iid: i64) {
        let project_row = self.project(project);
        let last = project_row.last_iid.entry(kind).or_default();
        *last = (*last).max(iid);
        project_row.items.remove(&(kind, iid));
        self.related.forget(project, kind, iid);
    }

    /// Moves an issue to another project: the original is closed and points to the copy, which
    /// has its text, labels and notes under new ids. Returns the copy's number.
    pub fn move_issue(&mut self, project: i64, iid: i64, to: i64) -> i64 {
        let old = self.item(project, Kind::Issue, iid).clone();
        let (from_path, to_path) = (self.project(project).path.clone(), self.project(to).path.clone());
        let title = old.text("title").unwrap_or_default().to_owned();
        let new_iid = self.add_item(to, Kind::Issue, &title);
        let mut discussions = old.discussions.clone();
        for discussion in &mut discussions {
            discussion["id"] = json!(format!("{:040x}", self.id()));
            for note in discussion["notes"].as_array_mut().into_iter().flatten() {
                note["id"] = json!(self.id());
                note["project_id"] = json!(to);
            }
        }
        let now = self.now;
        let copy = self.item(to, Kind::Issue, new_iid);
        for field in [
            "description",
            "labels",
            "confidential",
            "author",
            "user_notes_count",
            "created_at",
            "type",
            "issue_type",
        ] {
            copy.row[field] = old.row[field].clone();
        }
        copy.discussions = discussions;
        copy.hidden.clear();
        let copy_id = copy.id();
        self.add_system_note(to, Kind::Issue, new_iid, &format!("moved from {from_path}#{iid}"));
        self.add_system_note(project, Kind::Issue, iid, &format!("moved to {to_path}#{new_iid}"));
        self.edit_item(project, Kind::Issue, iid, |row| {
            row["state"] = json!("closed");
            row["closed_at"] = json!(time(now));
            row["closed_by"] = user("ada");
            row["moved_to_id"] = json!(copy_id);
        });
        new_iid
    }

    /// Renames a label: rows of items name it anew, and their `updated_at` does not move.
    pub fn rename_label(&mut self, project: i64, from: &str, to: &str) {
        let project = self.project(project);
        for label in project.labels.iter_mut().filter(|label| label["name"] == json!(from)) {
            label["name"] = json!(to);
        }
        let rename = |item: &mut Item| {
            for name in item.row["labels"].as_array_mut().into_iter().flatten() {
                if *name == json!(from) {
                    *name = json!(to);
                }
            }
        };
        project.items.values_mut().for_each(rename);
    }

    /// Deletes a label: rows of items lose it, and their `updated_at` does not move.
    pub fn delete_label(&mut self, project: i64, name: &str) {
        let project = self.project(project);
        project.labels.retain(|label| label["name"] != json!(name));
        for item in project.items.values_mut() {
            if let Some(names) = item.row["labels"].as_array_mut() {
                names.retain(|known| *known != json!(name));
            }
        }
    }

    /// Renames a milestone: rows of items name it anew, and their `updated_at` does not move.
    pub fn rename_milestone(&mut self, project: i64, from: &str, to: &str) {
        let now = self.now;
        let project = self.project(project);
        for milestone in project.milestones.iter_mut().filter(|row| row["title"] == json!(from)) {
            milestone["title"] = json!(to);
            milestone["updated_at"] = json!(time(now));
        }
        for item in project.items.values_mut().filter(|item| item.row["milestone"]["title"] == json!(from)) {
            item.row["milestone"]["title"] = json!(to);
        }
    }

    /// Sets the milestone of an item.
    pub fn set_milestone(&mut self, project: i64, kind: Kind, iid: i64, title: Option<&str>) {
        let row = self.project(project).milestones.iter().find(|row| row["title"].as_str() == title).cloned();
        self.edit_item(project, kind, iid, |item| item["milestone"] = row.unwrap_or(Value::Null));
    }

    /// Renames or transfers a project: the old path redirects (16.7 and later).
    pub fn rename_project(&mut self, id: i64, path: &str) {
        self.ensure_groups(path);
        let project = self.project(id);
        let old = std::mem::replace(&mut project.path, path.to_owned());
        project.old_paths.push(old.clone());
        for ((kind, iid), item) in &mut project.items {
            for field in ["web_url"] {
                if let Some(url) = item.row[field].as_str() {
                    item.row[field] = json!(url.replacen(&format!("/{old}/-/"), &format!("/{path}/-/"), 1));
                }
            }
            if item.row["references"].is_object() {
                item.row["references"]["full"] = json!(format!("{path}{}{iid}", kind.sigil()));
            }
        }
    }

    /// Takes a project away.
    pub fn delete_project(&mut self, id: i64) {
        self.projects.remove(&id);
    }

    /// Marks a project for deletion: it stays readable.
    pub fn mark_for_deletion(&mut self, id: i64) {
        let day = time(self.now).chars().take(10).collect::<String>();
        let row = &mut self.project(id).row;
        row["marked_for_deletion_at"] = json!(day);
        row["marked_for_deletion_on"] = json!(day);
    }

    /// Archives a project, or brings it back.
    pub fn set_archived(&mut self, id: i64, archived: bool) {
        self.project(id).row["archived"] = json!(archived);
    }

    /// Switches issues or merge requests on or off. Switched off, the list of merge requests
    /// is refused with 403, the list of issues is empty, and milestones are refused when
    /// issues are off.
    pub fn set_feature(&mut self, id: i64, kind: Kind, on: bool) {
        let list = kind.list();
        let row = &mut self.project(id).row;
        row[format!("{list}_access_level")] = json!(if on { "enabled" } else { "disabled" });
        row[format!("{list}_enabled")] = json!(on);
    }
}
