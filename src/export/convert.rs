//! Makes entities of the lines of an export. Pure: one line in, one item out.

use std::collections::BTreeMap;

use super::wire::{
    WireAssignee, WireAuthor, WireIssue, WireLabelLink, WireMergeRequest, WireMilestone, WireNote, filled,
    parse, text, time, username,
};
use super::{BadLine, Entity, Item, Read, Relation, Users};
use crate::content::hash::{Hasher, hex};
use crate::content::{Author, Discussion, Issue, ItemType, Label, MergeRequest, Milestone, Note};

/// What a line needs to become an item.
pub(super) struct Converter<'a> {
    /// User names of members.
    pub(super) users: &'a Users,
    /// Address of the project, without a trailing slash.
    pub(super) web_url: Option<&'a str>,
}

impl Converter<'_> {
    /// Reads one line.
    pub(super) fn read(&self, relation: Relation, place: &str, json: &[u8]) -> Read {
        let item = match relation {
            Relation::Issues => parse(json).map(|wire| self.issue(wire)),
            Relation::MergeRequests => parse(json).map(|wire| self.merge_request(wire)),
        };
        match item {
            Ok(item) => Read::Item(Box::new(Item { bytes: json.len() as u64, ..item })),
            Err(problem) => Read::Bad(BadLine { place: place.to_owned(), problem }),
        }
    }

    fn issue(&self, wire: WireIssue) -> Item {
        let notes = wire.notes.unwrap_or_default();
        let author = self.item_author(wire.author, wire.author_id, &notes);
        let closed_at = time(wire.closed_at.as_ref());
        let (created_at, updated_at) =
            times(time(wire.created_at.as_ref()), time(wire.updated_at.as_ref()), &notes);
        let (labels, label_names) = labels(wire.label_links);
        let (milestone, milestone_title) = milestone(wire.milestone);
        let work_item = wire.work_item_type;
        let (base_type, type_name) =
            work_item.map_or((None, None), |kind| (filled(kind.base_type), filled(kind.name)));
        let issue_type = base_type
            .or_else(|| filled(wire.issue_type))
            .or_else(|| type_name.map(|name| name.to_lowercase().replace(' ', "_")))
            .unwrap_or_else(|| "issue".to_owned());
        let issue = Issue {
            gitlab_id: wire.id.unwrap_or(-wire.iid),
            iid: wire.iid,
            title: text(wire.title).unwrap_or_default(),
            description: text(wire.description),
            state: state(filled(wire.state), wire.state_id, closed_at.is_some()),
            issue_type,
            confidential: wire.confidential.unwrap_or(false),
            author,
            assignees: self.assignees(wire.issue_assignees, wire.assignee_id),
            labels: label_names,
            milestone: milestone_title,
            web_url: self.web_url.map(|url| format!("{url}/-/issues/{}", wire.iid)),
            created_at,
            updated_at,
            closed_at,
            due_date: filled(wire.due_date),
            user_notes_count: None,
            moved_to_gitlab_id: wire.moved_to_id,
        };
        Item {
            entity: Entity::Issue(Box::new(issue)),
            discussions: self.discussions(ItemType::Issue, notes, created_at),
            labels,
            milestone,
            bytes: 0,
        }
    }

    fn merge_request(&self, wire: WireMergeRequest) -> Item {
        let notes = wire.notes.unwrap_or_default();
        let author = self.item_author(wire.author, wire.author_id, &notes);
        let (created_at, updated_at) =
            times(time(wire.created_at.as_ref()), time(wire.updated_at.as_ref()), &notes);
        let (labels, label_names) = labels(wire.label_links);
        let (milestone, milestone_title) = milestone(wire.milestone);
        let metrics = wire.metrics;
        let measured = |field: fn(&super::wire::WireMetrics) -> Option<&super::wire::Text>| {
            metrics.as_ref().and_then(|metrics| time(field(metrics)))
        };
        let merged_at =
            time(wire.merged_at.as_ref()).or_else(|| measured(|metrics| metrics.merged_at.as_ref()));
        let closed_at =
            time(wire.closed_at.as_ref()).or_else(|| measured(|metrics| metrics.latest_closed_at.as_ref()));
        let known = filled(wire.state);
        let state = match (known, merged_at) {
            (None, Some(_)) if wire.state_id.is_none() => "merged".to_owned(),
            (known, _) => state(known, wire.state_id, closed_at.is_some()),
        };
        let title = text(wire.title).unwrap_or_default();
        let merge_request = MergeRequest {
            gitlab_id: wire.id.unwrap_or(-wire.iid),
            iid: wire.iid,
            draft: wire.draft.or(wire.work_in_progress).unwrap_or_else(|| is_draft_title(&title)),
            title,
            description: text(wire.description),
            author,
            assignees: self.assignees(wire.merge_request_assignees, wire.assignee_id),
            labels: label_names,
            milestone: milestone_title,
            source_branch: filled(wire.source_branch),
            target_branch: filled(wire.target_branch),
            web_url: self.web_url.map(|url| format!("{url}/-/merge_requests/{}", wire.iid)),
            created_at,
            updated_at,
            merged_at: merged_at.filter(|_| state == "merged"),
            closed_at: closed_at.filter(|_| state == "closed"),
            user_notes_count: None,
            state,
        };
        Item {
            entity: Entity::MergeRequest(Box::new(merge_request)),
            discussions: self.discussions(ItemType::MergeRequest, notes, created_at),
            labels,
            milestone,
            bytes: 0,
        }
    }

    /// The author of an item. Items carry an id alone; the name is on the notes that the
    /// same person wrote below it, when there are any.
    fn item_author(&self, author: Option<WireAuthor>, id: Option<i64>, notes: &[WireNote]) -> Author {
        let mut found = self.author(author, id);
        if found.name.is_none() && id.is_some() {
            found.name = notes
                .iter()
                .filter(|note| note.author_id == id)
                .find_map(|note| filled(note.author.as_ref()?.name.clone()));
        }
        found
    }

    fn author(&self, author: Option<WireAuthor>, id: Option<i64>) -> Author {
        let (name, written) =
            author.map_or((None, None), |author| (filled(author.name), filled(author.username)));
        Author { username: username(self.users, id).or(written), name }
    }

    /// User names of assignees; people who are not members have none in an export.
    fn assignees(&self, assignees: Option<Vec<WireAssignee>>, old: Option<i64>) -> Vec<String> {
        let ids = assignees.unwrap_or_default().into_iter().map(|assignee| assignee.user_id).chain([old]);
        sorted(ids.filter_map(|id| username(self.users, id)).collect())
    }

    /// Groups notes into discussions, in the order of their first notes. A note that tells no
    /// discussion is one of its own, under an id made of its number.
    fn discussions(&self, item_type: ItemType, wire: Vec<WireNote>, fallback: i64) -> Vec<Discussion> {
        let mut notes: Vec<(Option<String>, Note)> = wire
            .into_iter()
            .map(|mut note| (filled(note.discussion_id.take()), self.note(item_type, note, fallback)))
            .collect();
        notes.sort_by_key(|(_, note)| (note.created_at, note.gitlab_id));
        let mut discussions: Vec<Discussion> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (idx, (id, note)) in notes.into_iter().enumerate() {
            let id = id.unwrap_or_else(|| synthetic_id(item_type, &note, idx));
            let place = *places.entry(id.clone()).or_insert(discussions.len());
            match discussions.get_mut(place) {
                Some(discussion) => discussion.notes.push(note),
                None => {
                    discussions.push(Discussion { gitlab_id: id, individual_note: false, notes: vec![note] });
                }
            }
        }
        for discussion in &mut discussions {
            // A thread is told by its notes' type; a plain comment and a system note have none.
            discussion.individual_note =
                matches!(discussion.notes.as_slice(), [only] if only.note_type.is_none());
        }
        discussions
    }

    fn note(&self, item_type: ItemType, wire: WireNote, fallback: i64) -> Note {
        let body = text(wire.note).unwrap_or_default();
        let mut author = self.author(wire.author, wire.author_id);
        if author == Author::default() {
            author.name = imported_author(&body).map(str::to_owned);
        }
        let (created, updated) = (time(wire.created_at.as_ref()), time(wire.updated_at.as_ref()));
        let created_at = created.or(updated).unwrap_or(fallback);
        let note_type = filled(wire.note_type);
        let system = wire.system.unwrap_or(false);
        let resolved = wire.resolved_at.is_some();
        let is_thread = matches!(note_type.as_deref(), Some("DiffNote" | "DiscussionNote"));
        Note {
            gitlab_id: wire.id.unwrap_or_default(),
            system,
            internal: wire.internal.or(wire.confidential).unwrap_or(false),
            author,
            body,
            created_at,
            updated_at: updated.unwrap_or(created_at),
            resolvable: resolved || (is_thread && !system && item_type == ItemType::MergeRequest),
            resolved,
            resolved_by: username(self.users, wire.resolved_by_id).filter(|_| resolved),
            position: wire.position,
            note_type,
        }
    }
}

/// The name in the first tail that an import without known users left behind:
/// `*By User 0 on 2016-10-18T16:50:03 (imported from GitLab project)*`. Repeated imports
/// append more tails, so the first one names who wrote the text. The tail stays in the text.
fn imported_author(body: &str) -> Option<&str> {
    let (_, tail) = body.split_once("*By ")?;
    let (line, _) = tail.split_once(" (imported from GitLab project)*")?;
    let (name, _) = line.rsplit_once(" on ")?;
    (!name.is_empty() && !name.contains('\n')).then_some(name)
}

/// A stable id of 40 hexadecimal digits for a note that tells no discussion.
fn synthetic_id(item_type: ItemType, note: &Note, idx: usize) -> String {
    let mut hasher = Hasher::new();
    hasher.text("note without discussion").text(item_type.as_str()).number(Some(note.gitlab_id));
    if note.gitlab_id == 0 {
        hasher.number(Some(note.created_at)).number(i64::try_from(idx).ok());
    }
    hex(&hasher.finish()).chars().take(40).collect()
}

/// Very old exports have a number for the state, or nothing.
fn state(known: Option<String>, number: Option<i64>, is_closed: bool) -> String {
    known.unwrap_or_else(|| {
        match number {
            Some(1) => "opened",
            Some(2) => "closed",
            Some(3) => "merged",
            Some(4) => "locked",
            Some(_) | None if is_closed => "closed",
            Some(_) | None => "opened",
        }
        .to_owned()
    })
}

/// Times of an item; one that is missing is taken from what is there.
fn times(created: Option<i64>, updated: Option<i64>, notes: &[WireNote]) -> (i64, i64) {
    let first_note = || notes.iter().filter_map(|note| time(note.created_at.as_ref())).min();
    let created = created.or(updated).or_else(first_note).unwrap_or_default();
    (created, updated.unwrap_or(created))
}

fn is_draft_title(title: &str) -> bool {
    let title = title.trim_start().to_lowercase();
    ["draft:", "[draft]", "(draft)", "wip:", "[wip]"].iter().any(|mark| title.starts_with(mark))
}

fn labels(links: Option<Vec<WireLabelLink>>) -> (Vec<Label>, Vec<String>) {
    let labels: Vec<Label> =
        links.unwrap_or_default().into_iter().filter_map(|link| link.label?.label()).collect();
    let names = sorted(labels.iter().map(|label| label.name.clone()).collect());
    (labels, names)
}

fn milestone(wire: Option<WireMilestone>) -> (Option<Milestone>, Option<String>) {
    let Some(wire) = wire else { return (None, None) };
    let title = wire.title();
    (wire.milestone(), title)
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}
