//! What people do on the server.

use serde_json::json;

use crate::fake_gitlab::model::{Kind, Model};
use crate::fake_gitlab::{Access, routes};

/// A project and an item of it, by a number that is taken modulo what there is.
pub(super) type At = (u8, u8);

/// One thing that somebody does.
#[derive(Debug, Clone)]
pub(super) enum Edit {
    /// Nothing, for some milliseconds.
    Wait(i64),
    /// A new issue or merge request.
    Add(u8, bool),
    Title(At),
    Labels(At, u8),
    /// Closes or opens.
    State(At),
    /// Confidential or not.
    Confidential(At),
    Note(At),
    InternalNote(At),
    SystemNote(At),
    Reply(At, u8),
    ChangeNote(At, u8),
    DeleteNote(At, u8, u8),
    Resolve(At, u8, bool),
    /// Moves an issue to the other project.
    Move(At),
    DeleteItem(At),
    RenameLabel(u8, u8),
    RenameProject(u8),
    /// Switches issues or merge requests on or off.
    Feature(u8, bool, bool),
    /// What the token may do: 0 nothing, 1 as a guest, else all.
    Access(u8, u8),
}

impl Edit {
    /// Whether the next incremental sync can see it. Deletions move no time, and what a lowered
    /// token did not see is behind the cursor when it does.
    pub fn shows(&self) -> bool {
        !matches!(self, Self::DeleteNote(..) | Self::DeleteItem(_) | Self::Access(_, 1))
    }
}

const LABELS: &[&str] = &["bug", "kind::feature", "needs triage"];

/// Carries it out; `n` is a number that no text had before.
pub(super) fn apply(model: &mut Model, edit: &Edit, n: usize) {
    let projects: Vec<i64> = model.projects.keys().copied().collect();
    let project_of = |place: u8| projects[usize::from(place) % projects.len()];
    let chosen = |model: &Model, (project, item): At| {
        let project = project_of(project);
        let items: Vec<(Kind, i64)> = model.projects[&project].items.keys().copied().collect();
        let (kind, iid) = *items.get(usize::from(item) % items.len().max(1))?;
        Some((project, kind, iid))
    };
    // A discussion that a person began.
    let thread = |model: &mut Model, at: At, n: u8| {
        let (project, kind, iid) = chosen(model, at)?;
        let item = model.item(project, kind, iid);
        let spoken: Vec<String> = item
            .discussions
            .iter()
            .filter(|row| row["notes"][0]["system"] == json!(false))
            .filter_map(|row| row["id"].as_str().map(str::to_owned))
            .collect();
        let id = spoken.get(usize::from(n) % spoken.len().max(1))?.clone();
        Some((project, kind, iid, id))
    };
    match edit {
        Edit::Wait(ms) => model.advance(*ms),
        Edit::Add(project, is_issue) => {
            let kind = if *is_issue { Kind::Issue } else { Kind::MergeRequest };
            model.add_item(project_of(*project), kind, &format!("title {n}."));
        }
        Edit::Title(at) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                model.edit_item(project, kind, iid, |row| row["title"] = json!(format!("title {n}.")));
            }
        }
        Edit::Labels(at, which) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                let known: Vec<String> = model
                    .project(project)
                    .labels
                    .iter()
                    .filter_map(|row| row["name"].as_str().map(str::to_owned))
                    .collect();
                let names: Vec<&str> = known
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| which & (1 << place) != 0)
                    .map(|(_, name)| name.as_str())
                    .collect();
                model.set_labels(project, kind, iid, &names);
            }
        }
        Edit::State(at) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                let is_open = model.item(project, kind, iid).text("state") == Some("opened");
                model.set_state(project, kind, iid, if is_open { "closed" } else { "opened" });
            }
        }
        Edit::Confidential(at) => {
            if let Some((project, Kind::Issue, iid)) = chosen(model, *at) {
                let is = model.item(project, Kind::Issue, iid).row["confidential"] == json!(true);
                model.set_confidential(project, iid, !is);
            }
        }
        Edit::Note(at) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                model.add_note(project, kind, iid, "bo", &format!("note {n}."));
            }
        }
        Edit::InternalNote(at) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                model.add_internal_note(project, kind, iid, "bo", &format!("note {n}."));
            }
        }
        Edit::SystemNote(at) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                model.add_system_note(project, kind, iid, "changed the description");
            }
        }
        Edit::Reply(at, which) => {
            if let Some((project, kind, iid, id)) = thread(model, *at, *which) {
                model.reply(project, kind, iid, &id, "cy", &format!("note {n}."));
            }
        }
        Edit::ChangeNote(at, which) => {
            if let Some((project, kind, iid, id)) = thread(model, *at, *which) {
                model.edit_note(project, kind, iid, &id, &format!("note {n}."));
            }
        }
        Edit::DeleteNote(at, which, place) => {
            if let Some((project, kind, iid, id)) = thread(model, *at, *which) {
                model.delete_note(project, kind, iid, &id, usize::from(place % 3));
            }
        }
        Edit::Resolve(at, which, on) => {
            if let Some((project, kind, iid, id)) = thread(model, *at, *which) {
                model.resolve(project, kind, iid, &id, *on);
            }
        }
        Edit::Move(at) => {
            if let Some((project, Kind::Issue, iid)) = chosen(model, *at)
                && let Some(to) = projects.iter().find(|other| **other != project)
                && model.item(project, Kind::Issue, iid).row["moved_to_id"].is_null()
            {
                model.move_issue(project, iid, *to);
            }
        }
        Edit::DeleteItem(at) => {
            if let Some((project, kind, iid)) = chosen(model, *at) {
                model.delete_item(project, kind, iid);
            }
        }
        Edit::RenameLabel(project, which) => {
            let project = project_of(*project);
            let labels = &model.project(project).labels;
            let name = labels[usize::from(*which) % labels.len()]["name"].as_str().map(str::to_owned);
            if let Some(name) = name {
                model.rename_label(project, &name, &format!("renamed {n}"));
            }
        }
        Edit::RenameProject(project) => {
            model.rename_project(project_of(*project), &format!("group/renamed-{n}"));
        }
        Edit::Feature(project, is_issue, on) => {
            let kind = if *is_issue { Kind::Issue } else { Kind::MergeRequest };
            model.set_feature(project_of(*project), kind, *on);
        }
        Edit::Access(project, level) => {
            let access = [Some(Access::Public), Some(Access::Guest), None][usize::from(*level)];
            model.project(project_of(*project)).access = access;
        }
    }
}

/// Gives every label its row, and the token all rights.
pub(super) fn restore(model: &mut Model) {
    let projects: Vec<i64> = model.projects.keys().copied().collect();
    for id in projects {
        model.project(id).access = None;
        for kind in [Kind::Issue, Kind::MergeRequest] {
            model.set_feature(id, kind, true);
        }
    }
}

/// Begins with the given number of projects.
pub(super) fn begin(model: &mut Model, n_projects: usize) -> Vec<String> {
    (0..n_projects)
        .map(|n| {
            let path = format!("group/project-{n}");
            let id = model.add_project(&path);
            for (place, name) in (1..).zip(LABELS) {
                model.project(id).labels.push(routes::label(place, name));
            }
            path
        })
        .collect()
}
