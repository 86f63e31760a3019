//! The first pass: what the archive holds, and what its items point at.

use std::io::Read as _;

use serde::Deserialize;

use super::container::{LEGACY_PROJECT, Member, OnError, TREE_PROJECT};
use super::guard::read_error;
use super::legacy::{self, Parts};
use super::wire::{WireLabel, WireMember, WireMilestone, parse};
use super::{BadLine, Export, Limits, Relation, Users, lines, tree_relation};
use crate::content::{Label, Milestone};
use crate::engine::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of `tree/project.json` that are read at most.
const PROJECT_BYTES: u64 = 16 << 20;

/// How an export is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `tree/project.json` and `tree/project/*.ndjson`.
    Tree,
    /// One `project.json`.
    Legacy,
}

/// What the first pass learned.
#[derive(Debug, Clone)]
pub struct Survey {
    /// How the export is laid out.
    pub layout: Layout,
    /// SHA-256 of the archive, or of the members that are read, hexadecimal.
    pub digest: String,
    /// User names of the project's members.
    pub users: Users,
    /// The project's labels.
    pub labels: Vec<Label>,
    /// The project's milestones.
    pub milestones: Vec<Milestone>,
    /// Whether the project is archived.
    pub archived: bool,
    /// Lines that may hold an issue.
    pub issues: u64,
    /// Lines that may hold a merge request.
    pub merge_requests: u64,
    /// Lines about members, labels or milestones that cannot be used.
    pub bad: Vec<BadLine>,
}

/// What is learned of one layout; an archive may hold both.
#[derive(Debug, Default)]
struct Learned {
    seen: bool,
    users: Users,
    labels: Vec<Label>,
    milestones: Vec<Milestone>,
    archived: bool,
    issues: u64,
    merge_requests: u64,
    bad: Vec<BadLine>,
}

impl Learned {
    fn count(&mut self, relation: Relation) {
        match relation {
            Relation::Issues => self.issues += 1,
            Relation::MergeRequests => self.merge_requests += 1,
        }
    }

    /// Uses one line about a member, a label or a milestone.
    fn learn(&mut self, kind: &str, place: &str, json: &[u8]) {
        let problem = match kind {
            "project_members" => parse::<WireMember>(json).map(|member| {
                if let Some((id, name)) = member.user() {
                    self.users.insert(id, name);
                }
            }),
            "labels" => parse::<WireLabel>(json).map(|label| self.labels.extend(label.label())),
            "milestones" => {
                parse::<WireMilestone>(json).map(|milestone| self.milestones.extend(milestone.milestone()))
            }
            _ => Ok(()),
        };
        if let Err(problem) = problem {
            self.bad.push(BadLine { place: place.to_owned(), problem });
        }
    }
}

pub(super) fn survey(export: &Export, limits: &Limits, cancel: &Cancel) -> Result<Survey> {
    let (mut tree, mut legacy) = (Learned::default(), Learned::default());
    let digest = export.walk(limits, cancel, OnError::LookOn, &mut |member| match member.name.as_str() {
        LEGACY_PROJECT => survey_legacy(member, limits, &mut legacy),
        name if name.starts_with("tree/") => survey_tree(member, limits, &mut tree),
        _ => Ok(()),
    })?;
    let (layout, learned) = if tree.seen {
        (Layout::Tree, tree)
    } else if legacy.seen {
        (Layout::Legacy, legacy)
    } else {
        return Err(Error::new(
            ErrorKind::Io,
            format!("read export {}: neither tree/project.json nor project.json in it", export.origin()),
        )
        .hint("is this a GitLab project export? Group exports and backups are something else"));
    };
    let Learned { seen: _, users, labels, milestones, archived, issues, merge_requests, bad } = learned;
    Ok(Survey { layout, digest, users, labels, milestones, archived, issues, merge_requests, bad })
}

fn survey_tree(member: &mut Member<'_>, limits: &Limits, learned: &mut Learned) -> Result<()> {
    #[derive(Deserialize)]
    struct WireProject {
        archived: Option<bool>,
    }
    if member.name == TREE_PROJECT {
        learned.seen = true;
        let mut json = Vec::new();
        let doing = format!("read {} of {}", member.name, member.origin);
        (&mut member.content)
            .take(PROJECT_BYTES)
            .read_to_end(&mut json)
            .map_err(|error| read_error(doing, error))?;
        match parse::<WireProject>(&json) {
            Ok(project) => learned.archived = project.archived.unwrap_or(false),
            Err(problem) => learned.bad.push(BadLine { place: member.name.clone(), problem }),
        }
        return Ok(());
    }
    let Some(kind) = member.name.strip_prefix("tree/project/").and_then(|name| name.strip_suffix(".ndjson"))
    else {
        return Ok(());
    };
    match (kind, tree_relation(&member.name)) {
        (_, Some(relation)) => {
            learned.seen = true;
            lines::each(member, limits, &mut |_, _| {
                learned.count(relation);
                Ok(())
            })
        }
        ("project_members" | "labels" | "milestones", None) => {
            let kind = kind.to_owned();
            lines::each(member, limits, &mut |place, line| {
                learned.learn(&kind, place, line);
                Ok(())
            })
        }
        (_, None) => Ok(()),
    }
}

fn survey_legacy(member: &mut Member<'_>, limits: &Limits, learned: &mut Learned) -> Result<()> {
    struct Survey<'a> {
        name: String,
        learned: &'a mut Learned,
    }
    impl Parts for Survey<'_> {
        fn wants(&self, key: &str) -> bool {
            matches!(key, "project_members" | "labels" | "milestones") || legacy::relation(key).is_some()
        }
        fn element(&mut self, key: &str, index: u64, json: &str) -> Result<()> {
            match legacy::relation(key) {
                Some(relation) => self.learned.count(relation),
                None => {
                    let place = format!("{}: {key}[{index}]", self.name);
                    self.learned.learn(key, &place, json.as_bytes());
                }
            }
            Ok(())
        }
        fn flag(&mut self, _key: &str, value: bool) {
            self.learned.archived = value;
        }
    }
    learned.seen = true;
    let name = member.name.clone();
    legacy::each(member, limits, &mut Survey { name, learned })
}
