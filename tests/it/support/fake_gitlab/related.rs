//! Links between items, and which merge requests close which issues.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::model::{Kind, Model};

/// A project and a number in it.
pub type Place = (i64, i64);

/// How items are related.
#[derive(Debug, Clone, Default)]
pub struct Related {
    /// Links of issues: id, from, to, type as seen from `from`.
    pub links: Vec<(i64, Place, Place, String)>,
    /// Merge requests and the issues that they will close.
    pub closes: BTreeSet<(Place, Place)>,
    /// Issues and the merge requests that mention them.
    pub mentions: BTreeSet<(Place, Place)>,
    /// Issues of other trackers that merge requests close: id and title alone.
    pub external: BTreeMap<Place, Vec<Value>>,
}

impl Related {
    /// Forgets a deleted item.
    pub(super) fn forget(&mut self, project: i64, kind: Kind, iid: i64) {
        let gone = (project, iid);
        match kind {
            Kind::Issue => {
                self.links.retain(|(_, from, to, _)| *from != gone && *to != gone);
                self.closes.retain(|(_, issue)| *issue != gone);
                self.mentions.retain(|(issue, _)| *issue != gone);
            }
            Kind::MergeRequest => {
                self.closes.retain(|(request, _)| *request != gone);
                self.mentions.retain(|(_, request)| *request != gone);
                self.external.remove(&gone);
            }
        }
    }
}

impl Model {
    /// Links two issues; `link_type` is `relates_to`, `blocks` or `is_blocked_by`.
    pub fn link(&mut self, from: Place, to: Place, link_type: &str) {
        let id = self.id();
        self.related.links.push((id, from, to, link_type.to_owned()));
    }

    /// Lets a merge request close an issue, which it then also mentions.
    pub fn closes(&mut self, request: Place, issue: Place) {
        self.related.closes.insert((request, issue));
        self.related.mentions.insert((issue, request));
    }

    /// Lets a merge request mention an issue.
    pub fn mentions(&mut self, request: Place, issue: Place) {
        self.related.mentions.insert((issue, request));
    }

    fn row(&self, kind: Kind, place: Place) -> Option<Value> {
        Some(self.projects.get(&place.0)?.items.get(&(kind, place.1))?.listed())
    }

    /// Rows of `…/issues/:iid/links`.
    pub(super) fn linked(&self, place: Place) -> Vec<(i64, Value)> {
        let link = |(id, from, to, link_type): &(i64, Place, Place, String)| {
            let (other, seen_as) = if *from == place {
                (*to, link_type.as_str())
            } else if *to == place {
                let inverse = match link_type.as_str() {
                    "blocks" => "is_blocked_by",
                    "is_blocked_by" => "blocks",
                    other => other,
                };
                (*from, inverse)
            } else {
                return None;
            };
            let mut row = self.row(Kind::Issue, other)?;
            row["issue_link_id"] = json!(id);
            row["link_type"] = json!(seen_as);
            Some((other.0, row))
        };
        self.related.links.iter().filter_map(link).collect()
    }

    /// Rows of `…/issues/:iid/closed_by`.
    pub(super) fn closed_by(&self, issue: Place) -> Vec<(i64, Value)> {
        let closing = self.related.closes.iter().filter(|(_, closed)| *closed == issue);
        closing
            .filter_map(|(request, _)| Some((request.0, self.row(Kind::MergeRequest, *request)?)))
            .collect()
    }

    /// Rows of `…/issues/:iid/related_merge_requests`.
    pub(super) fn related_requests(&self, issue: Place) -> Vec<(i64, Value)> {
        let mentioning = self.related.mentions.iter().filter(|(mentioned, _)| *mentioned == issue);
        mentioning
            .filter_map(|(_, request)| Some((request.0, self.row(Kind::MergeRequest, *request)?)))
            .collect()
    }

    /// Rows of `…/merge_requests/:iid/closes_issues`: none when it targets another branch than
    /// the default one; those of other trackers hold an id and a title alone.
    pub(super) fn closes_issues(&self, request: Place) -> Vec<(i64, Value)> {
        let Some(project) = self.projects.get(&request.0) else { return Vec::new() };
        let Some(row) = project.items.get(&(Kind::MergeRequest, request.1)) else { return Vec::new() };
        if row.row["target_branch"] != project.row["default_branch"] {
            return Vec::new();
        }
        let closed = self.related.closes.iter().filter(|(closing, _)| *closing == request);
        let own = closed.filter_map(|(_, issue)| Some((issue.0, self.row(Kind::Issue, *issue)?)));
        let foreign = self.related.external.get(&request).into_iter().flatten();
        own.chain(foreign.map(|row| (request.0, row.clone()))).collect()
    }
}
