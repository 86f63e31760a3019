//! Groups with their subgroups: they follow from the paths of projects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::model::{Model, Project, time};

/// A group.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Full path.
    pub path: String,
    /// Its own fields.
    pub row: Value,
    /// Its labels, which are labels of every project below.
    pub labels: Vec<Value>,
    /// Projects of other groups that are shared with it: they are listed among its own
    /// unless `with_shared=false`.
    pub shared: BTreeSet<i64>,
    /// Lists that are refused, with their status. `group` is the group itself.
    pub denied: BTreeMap<String, u16>,
}

impl Model {
    /// Makes sure that every group above `path` exists.
    pub(super) fn ensure_groups(&mut self, path: &str) {
        let mut parts: Vec<&str> = path.split('/').collect();
        parts.pop();
        for n in 1..=parts.len() {
            self.add_group(&parts.iter().take(n).copied().collect::<Vec<_>>().join("/"));
        }
    }

    /// Adds a group unless it is there; returns its id.
    pub fn add_group(&mut self, path: &str) -> i64 {
        if let Some(id) = self.group_id(path) {
            return id;
        }
        self.next_group_id += 1;
        let id = self.next_group_id;
        let name = path.rsplit('/').next().unwrap_or(path);
        let row =
            json!({"name": name, "description": "", "visibility": "private", "created_at": time(self.now)});
        self.groups.insert(id, Group { path: path.to_owned(), row, ..Group::default() });
        id
    }

    /// Id of a group.
    pub fn group_id(&self, path: &str) -> Option<i64> {
        self.groups.iter().find(|(_, group)| group.path == path).map(|(id, _)| *id)
    }

    /// A group.
    pub fn group(&mut self, id: i64) -> &mut Group {
        self.groups.get_mut(&id).unwrap_or_else(|| panic!("there is no group {id}"))
    }

    /// Renames or moves a group, and with it all projects and groups below.
    pub fn rename_group(&mut self, id: i64, path: &str) {
        let old = format!("{}/", self.group(id).path);
        let new = format!("{path}/");
        self.group(id).path = path.to_owned();
        for group in self.groups.values_mut() {
            if let Some(rest) = group.path.strip_prefix(&old) {
                group.path = format!("{new}{rest}");
            }
        }
        let below: Vec<(i64, String)> = self
            .projects
            .iter()
            .filter_map(|(id, project)| Some((*id, project.path.strip_prefix(&old)?.to_owned())))
            .collect();
        for (id, rest) in below {
            self.rename_project(id, &format!("{new}{rest}"));
        }
    }

    /// Deletes a group with everything below.
    pub fn delete_group(&mut self, id: i64) {
        let path = self.group(id).path.clone();
        let below = format!("{path}/");
        self.groups.retain(|_, group| group.path != path && !group.path.starts_with(&below));
        self.projects.retain(|_, project| !project.path.starts_with(&below));
    }

    /// Id of the group that a path lies in, when there is one.
    pub(super) fn parent_of(&self, path: &str) -> Option<i64> {
        self.group_id(path.rsplit_once('/')?.0)
    }

    /// Labels that the groups above give a project.
    pub(super) fn group_labels(&self, project: &Project) -> Vec<Value> {
        let above =
            self.groups.values().filter(|group| project.path.starts_with(&format!("{}/", group.path)));
        above.flat_map(|group| group.labels.iter().cloned()).collect()
    }
}
