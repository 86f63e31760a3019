//! SQL of `lore show`: a stored item with its threads.

use rusqlite::{OptionalExtension, params};

use super::ReadTx;
use crate::clock::Millis;
use crate::content::ItemType;
use crate::error::Result;

/// An item that a reference may mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Local id of the issue or merge request.
    pub item_id: i64,
    /// Local id of the project.
    pub project_id: i64,
    /// Full path of the project.
    pub project_path: String,
    /// Number in the project.
    pub iid: i64,
    /// One line.
    pub title: String,
    /// Whether only members of the project may see it.
    pub confidential: bool,
}

/// An item as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// One line.
    pub title: String,
    /// Markdown.
    pub description: Option<String>,
    /// State.
    pub state: String,
    /// Username.
    pub author: Option<String>,
    /// Creation.
    pub created_at: Millis,
    /// Last change.
    pub updated_at: Millis,
    /// Address.
    pub url: Option<String>,
    /// Milestone.
    pub milestone: Option<String>,
    /// Names of labels.
    pub labels: Vec<String>,
    /// Usernames.
    pub assignees: Vec<String>,
    /// Whether it is a draft.
    pub draft: bool,
    /// Source and target branch of a merge request.
    pub branches: Option<(String, String)>,
}

/// A note of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredNote {
    /// Local id of its discussion.
    pub discussion_id: i64,
    /// Username, or the name when there is none.
    pub author: Option<String>,
    /// Creation.
    pub created_at: Millis,
    /// Written by GitLab.
    pub system: bool,
    /// Only for members of the project.
    pub internal: bool,
    /// Whether the thread was settled.
    pub resolved: bool,
    /// File and line that it is about.
    pub position: Option<(String, Option<i64>)>,
    /// Markdown.
    pub body: String,
}

/// Items with a number, over all projects, by path.
///
/// # Errors
/// Those of SQLite.
pub fn candidates(tx: &ReadTx<'_>, item_type: ItemType, iid: i64) -> Result<Vec<Candidate>> {
    let sql = match item_type {
        ItemType::Issue => {
            "SELECT i.id, p.path, i.iid, i.title, i.confidential, p.id FROM projects AS p
               CROSS JOIN issues AS i ON i.project_id = p.id AND i.iid = ?1 ORDER BY p.path, i.id"
        }
        ItemType::MergeRequest => {
            "SELECT m.id, p.path, m.iid, m.title, 0, p.id FROM projects AS p
               CROSS JOIN merge_requests AS m ON m.project_id = p.id AND m.iid = ?1 ORDER BY p.path, m.id"
        }
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement.query_map([iid], candidate)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Items of a project whose numbers are nearest to `iid`.
///
/// # Errors
/// Those of SQLite.
pub fn nearest(
    tx: &ReadTx<'_>,
    project_path: &str,
    item_type: ItemType,
    iid: i64,
    limit: i64,
) -> Result<Vec<Candidate>> {
    let sql = match item_type {
        ItemType::Issue => {
            "SELECT i.id, p.path, i.iid, i.title, i.confidential, p.id FROM projects AS p
               JOIN issues AS i ON i.project_id = p.id
              WHERE p.path = ?1 AND i.confidential = 0 ORDER BY abs(i.iid - ?2), i.iid LIMIT ?3"
        }
        ItemType::MergeRequest => {
            "SELECT m.id, p.path, m.iid, m.title, 0, p.id FROM projects AS p
               JOIN merge_requests AS m ON m.project_id = p.id
              WHERE p.path = ?1 ORDER BY abs(m.iid - ?2), m.iid LIMIT ?3"
        }
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement.query_map(params![project_path, iid, limit], candidate)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn candidate(row: &rusqlite::Row<'_>) -> rusqlite::Result<Candidate> {
    Ok(Candidate {
        item_id: row.get(0)?,
        project_path: row.get(1)?,
        iid: row.get(2)?,
        title: row.get(3)?,
        confidential: row.get(4)?,
        project_id: row.get(5)?,
    })
}

/// Finds the copy of an issue that was moved, when it is stored.
///
/// # Errors
/// Those of SQLite.
pub fn moved_to(tx: &ReadTx<'_>, item_type: ItemType, item_id: i64) -> Result<Option<Candidate>> {
    match item_type {
        ItemType::MergeRequest => return Ok(None),
        ItemType::Issue => {}
    }
    let mut statement = tx.sql().prepare_cached(
        "SELECT c.id, p.path, c.iid, c.title, c.confidential, p.id FROM issues i JOIN projects own ON own.id = i.project_id
           CROSS JOIN projects p ON p.source_name = own.source_name
           CROSS JOIN issues c ON c.project_id = p.id AND c.gitlab_id = i.moved_to_gitlab_id
          WHERE i.id = ?1 AND i.moved_to_gitlab_id IS NOT NULL LIMIT 1",
    )?;
    Ok(statement.query_row([item_id], candidate).optional()?)
}

/// Reads an item.
///
/// # Errors
/// Those of SQLite, also when it is not there.
pub fn item(tx: &ReadTx<'_>, item_type: ItemType, item_id: i64) -> Result<Item> {
    let sql = match item_type {
        ItemType::Issue => {
            "SELECT title, description, state, COALESCE(author_username, author_name), created_at, updated_at,
                    web_url, milestone_title, label_names, assignee_usernames, 0, NULL, NULL
               FROM issues WHERE id = ?1"
        }
        ItemType::MergeRequest => {
            "SELECT title, description, state, COALESCE(author_username, author_name), created_at, updated_at,
                    web_url, milestone_title, label_names, assignee_usernames, draft, source_branch, target_branch
               FROM merge_requests WHERE id = ?1"
        }
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    Ok(statement.query_row([item_id], |row| {
        let branches: (Option<String>, Option<String>) = (row.get(11)?, row.get(12)?);
        Ok(Item {
            title: row.get(0)?,
            description: row.get(1)?,
            state: row.get(2)?,
            author: row.get(3)?,
            created_at: row.get(4)?,
            updated_at: row.get(5)?,
            url: row.get(6)?,
            milestone: row.get(7)?,
            labels: serde_json::from_str(&row.get::<_, String>(8)?).unwrap_or_default(),
            assignees: serde_json::from_str(&row.get::<_, String>(9)?).unwrap_or_default(),
            draft: row.get(10)?,
            branches: branches.0.zip(branches.1),
        })
    })?)
}

/// Notes of an item, thread by thread, each in the order of writing.
///
/// # Errors
/// Those of SQLite.
pub fn notes(tx: &ReadTx<'_>, item_type: ItemType, item_id: i64) -> Result<Vec<StoredNote>> {
    let sql = match item_type {
        ItemType::Issue => {
            "SELECT d.id, COALESCE(n.author_username, n.author_name), n.created_at, n.is_system, n.is_internal,
                    n.resolved, COALESCE(n.new_path, n.old_path), COALESCE(n.new_line, n.old_line), n.body
               FROM discussions AS d JOIN notes AS n ON n.discussion_id = d.id
              WHERE d.issue_id = ?1 ORDER BY d.first_note_at, d.id, n.position"
        }
        ItemType::MergeRequest => {
            "SELECT d.id, COALESCE(n.author_username, n.author_name), n.created_at, n.is_system, n.is_internal,
                    n.resolved, COALESCE(n.new_path, n.old_path), COALESCE(n.new_line, n.old_line), n.body
               FROM discussions AS d JOIN notes AS n ON n.discussion_id = d.id
              WHERE d.merge_request_id = ?1 ORDER BY d.first_note_at, d.id, n.position"
        }
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let rows = statement.query_map([item_id], |row| {
        let (path, line): (Option<String>, Option<i64>) = (row.get(6)?, row.get(7)?);
        Ok(StoredNote {
            discussion_id: row.get(0)?,
            author: row.get(1)?,
            created_at: row.get(2)?,
            system: row.get(3)?,
            internal: row.get(4)?,
            resolved: row.get(5)?,
            position: path.map(|path| (path, line)),
            body: row.get(8)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
