//! SQL of projects, items, labels, milestones, discussions and raw payloads.
//!
//! Every function that changes content marks the documents that show it as dirty in the same
//! transaction, and only when the content changed: hashes are compared, not times.

mod discussions;
mod items;
mod names;
mod raw;
mod rebuild;

use rusqlite::{OptionalExtension, named_params};

use super::queues;
use super::{ReadTx, WriteTx};
use crate::clock::Millis;
use crate::content::{Label, Milestone, Project};
use crate::error::{Error, ErrorKind, Result};

pub use discussions::{ReplacedDiscussions, merge_discussions, replace_discussions};
pub use items::{Change, Upserted, item_id, upsert_issue, upsert_merge_request};
pub use names::mark_moved_to;
pub use raw::{Payload, forget_discussions, payload_sizes, payloads, prune_oldest, prune_orphans, save_raw};
pub use rebuild::{Rebuilt, notes_count, rebuild};

/// A stored project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredProject {
    /// Id in this database.
    pub id: i64,
    /// `[sources.NAME]` it comes from.
    pub source_name: String,
    /// Id on the instance.
    pub gitlab_id: Option<i64>,
    /// Full path with namespace.
    pub path: String,
    /// Address of its page.
    pub web_url: Option<String>,
}

/// Stores a project; returns its id. A project that is known by its GitLab id keeps its row
/// when it was renamed or moved.
///
/// # Errors
/// SQLite's.
pub fn upsert_project(tx: &WriteTx<'_>, source_name: &str, project: &Project, now: Millis) -> Result<i64> {
    let by_id: Option<i64> = match project.gitlab_id {
        Some(gitlab_id) => tx
            .sql()
            .prepare_cached("SELECT id FROM projects WHERE source_name = ?1 AND gitlab_id = ?2")?
            .query_row((source_name, gitlab_id), |row| row.get(0))
            .optional()?,
        None => None,
    };
    let by_path: Option<(i64, Option<i64>)> = tx
        .sql()
        .prepare_cached("SELECT id, gitlab_id FROM projects WHERE source_name = ?1 AND path = ?2")?
        .query_row((source_name, &project.path), |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let known = match (by_id, by_path) {
        (Some(id), Some((other, _))) if other != id => {
            // Another project sits on the path this one has now: that one was moved or
            // deleted. Its data stays under a path that says so until it is seen again.
            let parked = format!("{}#moved-{other}", project.path);
            tx.sql().execute(
                "UPDATE projects SET path = ?2, updated_at = ?3 WHERE id = ?1",
                (other, parked, now),
            )?;
            Some(id)
        }
        (Some(id), _) => Some(id),
        (None, Some((id, gitlab_id))) if gitlab_id.is_none() || project.gitlab_id.is_none() => Some(id),
        (None, Some((other, _))) => {
            let parked = format!("{}#replaced-{other}", project.path);
            tx.sql().execute(
                "UPDATE projects SET path = ?2, updated_at = ?3 WHERE id = ?1",
                (other, parked, now),
            )?;
            None
        }
        (None, None) => None,
    };
    let Some(id) = known else {
        tx.sql()
            .prepare_cached(
                "INSERT INTO projects(source_name, gitlab_id, path, name, web_url, archived, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7)",
            )?
            .execute((
                source_name,
                project.gitlab_id,
                &project.path,
                &project.name,
                &project.web_url,
                project.archived,
                now,
            ))?;
        return Ok(tx.sql().last_insert_rowid());
    };
    let changed = tx
        .sql()
        .prepare_cached(
            "UPDATE projects SET gitlab_id = coalesce(:gitlab_id, gitlab_id), path = :path, name = :name,
                    web_url = :web_url, archived = :archived, updated_at = :now
              WHERE id = :id AND (gitlab_id IS NOT coalesce(:gitlab_id, gitlab_id) OR path <> :path
                    OR name IS NOT :name OR web_url IS NOT :web_url OR archived <> :archived)",
        )?
        .execute(named_params! {
            ":gitlab_id": project.gitlab_id,
            ":path": project.path,
            ":name": project.name,
            ":web_url": project.web_url,
            ":archived": project.archived,
            ":now": now,
            ":id": id,
        })?;
    if changed > 0 {
        // Documents show the project's path and address.
        mark_project_dirty(tx, id, now)?;
    }
    Ok(id)
}

fn mark_project_dirty(tx: &WriteTx<'_>, project_id: i64, now: Millis) -> Result<()> {
    for (source_type, table) in
        [("issue", "issues"), ("merge_request", "merge_requests"), ("discussion", "discussions")]
    {
        let select = format!("SELECT '{source_type}', id, ?1 FROM {table} WHERE project_id = ?2");
        tx.sql().execute(&queues::mark_all_sql(&select), (now, project_id))?;
    }
    // Issues that were moved here name the path too.
    let select =
        "SELECT 'issue', i.id, ?1 FROM projects own CROSS JOIN issues copy ON copy.project_id = own.id
                    CROSS JOIN issues i ON i.moved_to_gitlab_id = copy.gitlab_id
                    JOIN projects p ON p.id = i.project_id AND p.source_name = own.source_name
                   WHERE own.id = ?2 AND i.moved_to_gitlab_id IS NOT NULL";
    tx.sql().execute(&queues::mark_all_sql(select), (now, project_id))?;
    Ok(())
}

pub(in crate::store) fn stored_project(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredProject> {
    Ok(StoredProject {
        id: row.get("id")?,
        source_name: row.get("source_name")?,
        gitlab_id: row.get("gitlab_id")?,
        path: row.get("path")?,
        web_url: row.get("web_url")?,
    })
}

/// Finds a project of a source by its path.
///
/// # Errors
/// SQLite's.
pub fn project(tx: &ReadTx<'_>, source_name: &str, path: &str) -> Result<Option<StoredProject>> {
    Ok(tx
        .sql()
        .prepare_cached(
            "SELECT id, source_name, gitlab_id, path, web_url FROM projects WHERE source_name = ?1 AND path = ?2",
        )?
        .query_row((source_name, path), stored_project)
        .optional()?)
}

/// Finds a project of a source by its id on the instance.
///
/// # Errors
/// SQLite's.
pub fn project_by_gitlab_id(
    tx: &ReadTx<'_>,
    source_name: &str,
    gitlab_id: i64,
) -> Result<Option<StoredProject>> {
    Ok(tx
        .sql()
        .prepare_cached(
            "SELECT id, source_name, gitlab_id, path, web_url FROM projects WHERE source_name = ?1 AND gitlab_id = ?2",
        )?
        .query_row((source_name, gitlab_id), stored_project)
        .optional()?)
}

/// Returns all projects of a source, by their ids.
///
/// # Errors
/// SQLite's.
pub fn projects_of(tx: &ReadTx<'_>, source_name: &str) -> Result<Vec<StoredProject>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT id, source_name, gitlab_id, path, web_url FROM projects WHERE source_name = ?1 ORDER BY id",
    )?;
    let rows = statement.query_map([source_name], stored_project)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns a project by its id.
///
/// # Errors
/// [`ErrorKind::Internal`] when there is none, and SQLite's.
pub fn project_by_id(tx: &ReadTx<'_>, id: i64) -> Result<StoredProject> {
    tx.sql()
        .prepare_cached("SELECT id, source_name, gitlab_id, path, web_url FROM projects WHERE id = ?1")?
        .query_row([id], stored_project)
        .optional()?
        .ok_or_else(|| Error::new(ErrorKind::Internal, format!("project {id} is not stored")))
}

/// Stores the labels of a project; returns how many rows changed. A label that is known by
/// its GitLab id is renamed, and items that have it with it.
///
/// # Errors
/// SQLite's.
pub fn upsert_labels(tx: &WriteTx<'_>, project_id: i64, labels: &[Label], now: Millis) -> Result<usize> {
    if labels.is_empty() {
        return Ok(0);
    }
    let renamed = names::rename_labels(tx, project_id, labels, now)?;
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO labels(project_id, gitlab_id, name, color, description) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT(project_id, name) DO UPDATE SET gitlab_id = coalesce(excluded.gitlab_id, gitlab_id),
           color = excluded.color, description = excluded.description
         WHERE gitlab_id IS NOT coalesce(excluded.gitlab_id, gitlab_id) OR color IS NOT excluded.color
           OR description IS NOT excluded.description",
    )?;
    let mut changed = renamed;
    for label in labels {
        changed += statement.execute((
            project_id,
            label.gitlab_id,
            &label.name,
            &label.color,
            &label.description,
        ))?;
    }
    Ok(changed)
}

/// Stores the milestones of a project; returns how many rows changed. Items that show one by
/// its old title are renamed with it.
///
/// # Errors
/// SQLite's.
pub fn upsert_milestones(
    tx: &WriteTx<'_>,
    project_id: i64,
    milestones: &[Milestone],
    now: Millis,
) -> Result<usize> {
    if milestones.is_empty() {
        return Ok(0);
    }
    names::rename_milestones(tx, project_id, milestones, now)?;
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO milestones(project_id, gitlab_id, iid, title, description, state, due_date, web_url)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT(project_id, gitlab_id) DO UPDATE SET iid = excluded.iid, title = excluded.title,
           description = excluded.description, state = excluded.state, due_date = excluded.due_date,
           web_url = excluded.web_url
         WHERE iid IS NOT excluded.iid OR title <> excluded.title OR description IS NOT excluded.description
           OR state IS NOT excluded.state OR due_date IS NOT excluded.due_date OR web_url IS NOT excluded.web_url",
    )?;
    let mut changed = 0;
    for milestone in milestones {
        changed += statement.execute((
            project_id,
            milestone.gitlab_id,
            milestone.iid,
            &milestone.title,
            &milestone.description,
            &milestone.state,
            &milestone.due_date,
            &milestone.web_url,
        ))?;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests;
