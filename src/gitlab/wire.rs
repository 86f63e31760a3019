//! Rows as the REST API sends them, read tolerantly into entities.
//!
//! A row must name itself (`id`, `iid`, `updated_at`); everything else may be missing, null,
//! of an unknown value or of a wrong type, and then counts as absent. Unknown keys are
//! ignored. U+0000 is removed from every text: SQLite stores it, but what reads C strings
//! stops there, and GitLab itself refuses it.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::clock::{self, Millis};
use crate::content::{
    Author, DiffPosition, Discussion, Issue, Label, MergeRequest, Milestone, Note, Project,
};

/// A row that cannot become an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// The number it has, when that could be read.
    pub iid: Option<i64>,
    /// What is wrong with it. Holds nothing of its text.
    pub reason: String,
}

/// A project, and which of its streams are switched off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// The project.
    pub project: Project,
    /// Issues are switched off.
    pub issues_off: bool,
    /// Merge requests are switched off.
    pub merge_requests_off: bool,
    /// It is to be deleted in some days; until then it can be read and restored.
    pub is_marked_for_deletion: bool,
    /// Open issues, as the project counts them.
    pub open_issues: Option<i64>,
    /// Access level of the token's user: 10 guest, 20 reporter, …; 0 none. Not told in lists.
    pub access_level: Option<i64>,
}

/// Reads a project.
///
/// # Errors
/// When it has no id or no path.
pub fn project(raw: &RawValue) -> Result<ProjectRow, BadRow> {
    let row = object(raw)?;
    let row = Fields(&row);
    let off = |level: &str, flag: &str| match row.text(level) {
        Some(level) => level == "disabled",
        None => row.flag(flag) == Some(false),
    };
    let (id, path) = (row.need_number("id")?, row.need_text("path_with_namespace")?);
    let is_marked_for_deletion = row.text("marked_for_deletion_on").is_some()
        || row.text("marked_for_deletion_at").is_some()
        || is_name_of_deletion(&path, id);
    Ok(ProjectRow {
        is_marked_for_deletion,
        open_issues: row.number("open_issues_count"),
        access_level: row.object("permissions").map(|permissions| {
            let level = |key| permissions.object(key).and_then(|access| access.number("access_level"));
            level("project_access").max(level("group_access")).unwrap_or(0)
        }),
        issues_off: off("issues_access_level", "issues_enabled"),
        merge_requests_off: off("merge_requests_access_level", "merge_requests_enabled"),
        project: Project {
            gitlab_id: Some(id),
            path,
            name: row.text("name"),
            web_url: row.text("web_url").map(|url| url.trim_end_matches('/').to_owned()),
            archived: row.flag("archived").unwrap_or(false),
        },
    })
}

/// Whether a project's path is what GitLab renames a project to that it is about to delete:
/// `name-deleted-ID`, on newer servers `name-deletion_scheduled-ID`.
fn is_name_of_deletion(path: &str, id: i64) -> bool {
    ["deleted", "deletion_scheduled"].iter().any(|word| path.ends_with(&format!("-{word}-{id}")))
}

/// Reads a label.
///
/// # Errors
/// When it has no name.
pub fn label(raw: &RawValue) -> Result<Label, BadRow> {
    let row = object(raw)?;
    let row = Fields(&row);
    Ok(Label {
        gitlab_id: row.number("id"),
        name: row.need_text("name")?,
        color: row.text("color"),
        description: row.text("description"),
    })
}

/// Reads a milestone.
///
/// # Errors
/// When it has no id.
pub fn milestone(raw: &RawValue) -> Result<Milestone, BadRow> {
    let row = object(raw)?;
    let row = Fields(&row);
    Ok(Milestone {
        gitlab_id: row.need_number("id")?,
        iid: row.number("iid"),
        title: row.text("title").unwrap_or_default(),
        description: row.text("description"),
        state: row.text("state"),
        due_date: row.text("due_date"),
        web_url: row.text("web_url"),
    })
}

/// Reads an issue or another work item that is listed among the issues.
///
/// # Errors
/// When it has no id, no iid or no usable `updated_at`.
pub fn issue(raw: &RawValue) -> Result<Issue, BadRow> {
    let row = object(raw)?;
    let row = Fields(&row);
    let updated_at = row.need_time("updated_at")?;
    Ok(Issue {
        gitlab_id: row.need_number("id")?,
        iid: row.need_number("iid")?,
        title: row.text("title").unwrap_or_default(),
        description: row.text("description"),
        state: row.text("state").unwrap_or_else(|| "opened".to_owned()),
        issue_type: row
            .text("issue_type")
            .or_else(|| row.text("type").map(|name| name.to_lowercase()))
            .unwrap_or_else(|| "issue".to_owned()),
        confidential: row.flag("confidential").unwrap_or(false),
        author: row.author("author"),
        assignees: row.assignees(),
        labels: row.labels(),
        milestone: row.object("milestone").and_then(|milestone| milestone.text("title")),
        web_url: row.text("web_url"),
        created_at: row.time("created_at").unwrap_or(updated_at),
        updated_at,
        closed_at: row.time("closed_at"),
        due_date: row.text("due_date"),
        user_notes_count: row.number("user_notes_count"),
        moved_to_gitlab_id: row.number("moved_to_id"),
    })
}

/// Reads a merge request.
///
/// # Errors
/// When it has no id, no iid or no usable `updated_at`.
pub fn merge_request(raw: &RawValue) -> Result<MergeRequest, BadRow> {
    let row = object(raw)?;
    let row = Fields(&row);
    let updated_at = row.need_time("updated_at")?;
    Ok(MergeRequest {
        gitlab_id: row.need_number("id")?,
        iid: row.need_number("iid")?,
        title: row.text("title").unwrap_or_default(),
        description: row.text("description"),
        state: row.text("state").unwrap_or_else(|| "opened".to_owned()),
        draft: row.flag("draft").or_else(|| row.flag("work_in_progress")).unwrap_or(false),
        author: row.author("author"),
        assignees: row.assignees(),
        labels: row.labels(),
        milestone: row.object("milestone").and_then(|milestone| milestone.text("title")),
        source_branch: row.text("source_branch"),
        target_branch: row.text("target_branch"),
        web_url: row.text("web_url"),
        created_at: row.time("created_at").unwrap_or(updated_at),
        updated_at,
        merged_at: row.time("merged_at"),
        closed_at: row.time("closed_at"),
        user_notes_count: row.number("user_notes_count"),
    })
}

/// Reads a discussion with its notes. Notes that cannot be read are left out and counted in
/// the second part of the result.
///
/// # Errors
/// When it has no id.
pub fn discussion(raw: &RawValue) -> Result<(Discussion, Vec<BadRow>), BadRow> {
    let row = object(raw)?;
    let row = Fields(&row);
    let gitlab_id = row.need_text("id")?;
    let mut bad = Vec::new();
    let mut notes = Vec::new();
    for note in row.array("notes") {
        let read = match note.as_object() {
            Some(fields) => note_of(Fields(fields)),
            None => Err(BadRow { iid: None, reason: "a note is not an object".to_owned() }),
        };
        match read {
            Ok(note) => notes.push(note),
            Err(error) => bad.push(error),
        }
    }
    let individual_note = row.flag("individual_note").unwrap_or(notes.len() == 1);
    Ok((Discussion { gitlab_id, individual_note, notes }, bad))
}

/// Reads a note.
///
/// # Errors
/// When it has no id or no time.
pub fn note(raw: &RawValue) -> Result<Note, BadRow> {
    let row = object(raw)?;
    note_of(Fields(&row))
}

fn note_of(row: Fields<'_>) -> Result<Note, BadRow> {
    let created_at = match row.time("created_at") {
        Some(time) => time,
        None => row.need_time("updated_at")?,
    };
    let resolvable = row.flag("resolvable").unwrap_or(false);
    Ok(Note {
        gitlab_id: row.need_number("id")?,
        note_type: row.text("type"),
        system: row.flag("system").unwrap_or(false),
        internal: row.flag("internal").or_else(|| row.flag("confidential")).unwrap_or(false),
        author: row.author("author"),
        body: row.text("body").or_else(|| row.text("note")).unwrap_or_default(),
        created_at,
        updated_at: row.time("updated_at").unwrap_or(created_at),
        resolvable,
        resolved: row.flag("resolved").unwrap_or(false),
        // An object by GitLab's code, a text by its schema.
        resolved_by: match row.object("resolved_by") {
            Some(user) => author_of(user).username.or_else(|| author_of(user).name),
            None => row.text("resolved_by"),
        },
        position: row.object("position").map(position),
    })
}

fn position(row: Fields<'_>) -> DiffPosition {
    let end = row.object("line_range").and_then(|range| range.object("end"));
    let line = |name: &str| row.number(name).or_else(|| end.and_then(|end| end.number(name)));
    let (mut old_line, mut new_line) = (row.number("old_line"), row.number("new_line"));
    if old_line.is_none() && new_line.is_none() {
        (old_line, new_line) = (line("old_line"), line("new_line"));
    }
    DiffPosition {
        position_type: row.text("position_type"),
        old_path: row.text("old_path"),
        new_path: row.text("new_path"),
        old_line,
        new_line,
    }
}

/// Removes U+0000.
pub fn without_nul(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "") } else { text.to_owned() }
}

fn object(raw: &RawValue) -> Result<Map<String, Value>, BadRow> {
    serde_json::from_str(raw.get()).map_err(|error| BadRow {
        iid: None,
        // serde's text names types and places only, except for texts, which it quotes.
        reason: if raw.get().trim_start().starts_with('{') {
            format!("the row cannot be read at column {}", error.column())
        } else {
            "the row is not an object".to_owned()
        },
    })
}

/// The fields of a row.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// A text without U+0000; numbers come out as text.
    fn text(self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(without_nul(text)),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn number(self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.trim().parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn flag(self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    fn time(self, name: &str) -> Option<Millis> {
        clock::parse_time(self.0.get(name)?.as_str()?)
    }

    fn object(self, name: &str) -> Option<Self> {
        self.0.get(name)?.as_object().map(Fields)
    }

    fn array(self, name: &str) -> &'a [Value] {
        self.0.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn author(self, name: &str) -> Author {
        self.object(name).map_or_else(Author::default, author_of)
    }

    fn assignees(self) -> Vec<String> {
        let mut users: Vec<Author> = self
            .array("assignees")
            .iter()
            .filter_map(Value::as_object)
            .map(|user| author_of(Fields(user)))
            .collect();
        if users.is_empty() {
            users.push(self.author("assignee"));
        }
        sorted(users.into_iter().filter_map(|user| user.username.or(user.name)))
    }

    fn labels(self) -> Vec<String> {
        sorted(self.array("labels").iter().filter_map(|label| match label {
            Value::String(name) => Some(without_nul(name)),
            Value::Object(fields) => Fields(fields).text("name"),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        }))
    }

    fn bad(self, reason: String) -> BadRow {
        BadRow { iid: self.number("iid"), reason }
    }

    fn need_number(self, name: &str) -> Result<i64, BadRow> {
        self.number(name).ok_or_else(|| self.bad(format!("{name} is missing or not a number")))
    }

    fn need_text(self, name: &str) -> Result<String, BadRow> {
        self.text(name)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| self.bad(format!("{name} is missing or not a text")))
    }

    fn need_time(self, name: &str) -> Result<Millis, BadRow> {
        self.time(name).ok_or_else(|| self.bad(format!("{name} is missing or not a time")))
    }
}

/// A name of nothing but asterisks is masked: the login name stands in for it.
fn author_of(user: Fields<'_>) -> Author {
    let present = |text: String| (!text.trim().is_empty()).then_some(text);
    let username = user.text("username").and_then(present);
    let name = user
        .text("name")
        .and_then(present)
        .filter(|name| name.chars().any(|c| c != '*'))
        .or_else(|| username.clone());
    Author { username, name }
}

fn sorted(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
