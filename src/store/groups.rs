//! SQL of groups as sources: which projects they hold, groups that cannot be listed, paths
//! under which projects were known, and projects that are not as usual upstream.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, ToSql};
use serde::Serialize;

use super::entities::{StoredProject, stored_project};
use super::{ReadTx, WriteTx, cursors};
use crate::clock::Millis;
use crate::error::{Error, Result};

/// A group that could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupFailure {
    /// `[sources.NAME]`.
    pub source: String,
    /// Full path of the group.
    pub group: String,
    /// Failures in a row.
    pub attempt_count: i64,
    /// When it may be tried again; absent: with the next run.
    pub next_attempt_at: Option<Millis>,
    /// Kind of the last error.
    pub error_kind: String,
    /// The last error.
    pub error: String,
}

fn failure(row: &rusqlite::Row<'_>) -> rusqlite::Result<GroupFailure> {
    Ok(GroupFailure {
        source: row.get(0)?,
        group: row.get(1)?,
        attempt_count: row.get(2)?,
        next_attempt_at: row.get(3)?,
        error_kind: row.get(4)?,
        error: row.get(5)?,
    })
}

const FAILURES: &str = "SELECT source_name, group_path, attempt_count, next_attempt_at, error_kind, last_error FROM group_failures";

/// Returns the groups that could not be listed.
///
/// # Errors
/// SQLite's.
pub fn failures(tx: &ReadTx<'_>) -> Result<Vec<GroupFailure>> {
    let mut statement = tx.sql().prepare_cached(&format!("{FAILURES} ORDER BY source_name, group_path"))?;
    let rows = statement.query_map([], failure)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the failure of a group that is not to be tried yet.
///
/// # Errors
/// SQLite's.
pub fn waiting(tx: &ReadTx<'_>, source: &str, group: &str, now: Millis) -> Result<Option<GroupFailure>> {
    let sql = format!("{FAILURES} WHERE source_name = ?1 AND group_path = ?2 AND next_attempt_at > ?3");
    Ok(tx.sql().prepare_cached(&sql)?.query_row((source, group, now), failure).optional()?)
}

/// Records that a group could not be listed.
///
/// # Errors
/// SQLite's.
pub fn record_failure(tx: &WriteTx<'_>, source: &str, group: &str, error: &Error, now: Millis) -> Result<()> {
    let key: [(&str, &dyn ToSql); 2] = [("source_name", &source), ("group_path", &group)];
    cursors::record_failure(tx, "group_failures", key, error, now)
}

/// Forgets the failures of a group that was listed.
///
/// # Errors
/// SQLite's.
pub fn clear_failure(tx: &WriteTx<'_>, source: &str, group: &str) -> Result<()> {
    tx.sql()
        .prepare_cached("DELETE FROM group_failures WHERE source_name = ?1 AND group_path = ?2")?
        .execute((source, group))?;
    Ok(())
}

/// Takes over what a whole listing of a group said: `present` are the local ids of its
/// projects. Returns the paths of those that were listed before and are not any more.
///
/// # Errors
/// SQLite's.
pub fn note_members(
    tx: &WriteTx<'_>,
    source: &str,
    group: &str,
    present: &[i64],
    now: Millis,
) -> Result<Vec<String>> {
    let mut known: BTreeMap<i64, (Option<Millis>, String)> = tx
        .sql()
        .prepare_cached(
            "SELECT g.project_id, g.missing_since, p.path FROM group_projects g JOIN projects p ON p.id = g.project_id
              WHERE g.source_name = ?1 AND g.group_path = ?2",
        )?
        .query_map((source, group), |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<rusqlite::Result<_>>()?;
    for id in present {
        if known.remove(id).is_some_and(|(missing_since, _)| missing_since.is_none()) {
            continue;
        }
        tx.sql()
            .prepare_cached(
                "INSERT INTO group_projects(source_name, group_path, project_id) VALUES (?1, ?2, ?3)
                 ON CONFLICT(source_name, group_path, project_id) DO UPDATE SET missing_since = NULL",
            )?
            .execute((source, group, id))?;
    }
    let mut vanished = Vec::new();
    for (id, (missing_since, path)) in known {
        if missing_since.is_none() {
            tx.sql()
                .prepare_cached(
                    "UPDATE group_projects SET missing_since = ?4
                      WHERE source_name = ?1 AND group_path = ?2 AND project_id = ?3",
                )?
                .execute((source, group, id, now))?;
            vanished.push(path);
        }
    }
    vanished.sort();
    Ok(vanished)
}

/// Forgets that a group holds projects: they are listed, but not chosen.
///
/// # Errors
/// SQLite's.
pub fn forget_members(tx: &WriteTx<'_>, source: &str, group: &str, project_ids: &[i64]) -> Result<()> {
    let mut statement = tx.sql().prepare_cached(
        "DELETE FROM group_projects WHERE source_name = ?1 AND group_path = ?2 AND project_id = ?3",
    )?;
    for id in project_ids {
        statement.execute((source, group, id))?;
    }
    Ok(())
}

/// Returns the projects that a group held when it was last listed.
///
/// # Errors
/// SQLite's.
pub fn members(tx: &ReadTx<'_>, source: &str, group: &str) -> Result<Vec<StoredProject>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT p.id, p.source_name, p.gitlab_id, p.path, p.web_url FROM group_projects g JOIN projects p ON p.id = g.project_id
          WHERE g.source_name = ?1 AND g.group_path = ?2 AND g.missing_since IS NULL ORDER BY p.id",
    )?;
    let rows = statement.query_map((source, group), stored_project)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Finds the project that a path of the configuration stood for before it was renamed.
///
/// # Errors
/// SQLite's.
pub fn alias(tx: &ReadTx<'_>, source: &str, path: &str) -> Result<Option<StoredProject>> {
    Ok(tx
        .sql()
        .prepare_cached(
            "SELECT p.id, p.source_name, p.gitlab_id, p.path, p.web_url FROM project_aliases a JOIN projects p ON p.id = a.project_id
              WHERE a.source_name = ?1 AND a.path = ?2",
        )?
        .query_row((source, path), stored_project)
        .optional()?)
}

/// Remembers which project a path of the configuration stands for.
///
/// # Errors
/// SQLite's.
pub fn set_alias(tx: &WriteTx<'_>, source: &str, path: &str, project_id: i64) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO project_aliases(source_name, path, project_id) VALUES (?1, ?2, ?3)
             ON CONFLICT(source_name, path) DO UPDATE SET project_id = excluded.project_id
             WHERE project_id <> excluded.project_id",
        )?
        .execute((source, path, project_id))?;
    Ok(())
}

/// How a project stands upstream when it is not as usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectState {
    /// GitLab will delete it in some days.
    MarkedForDeletion,
    /// A run found it missing.
    Missing,
    /// It was deleted here too; its row remains.
    Deleted,
}

impl ProjectState {
    /// Name in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MarkedForDeletion => "marked_for_deletion",
            Self::Missing => "missing",
            Self::Deleted => "deleted",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [Self::MarkedForDeletion, Self::Missing, Self::Deleted].into_iter().find(|it| it.as_str() == name)
    }
}

/// Returns how a project stands, when it is not as usual.
///
/// # Errors
/// SQLite's.
pub fn state(tx: &ReadTx<'_>, project_id: i64) -> Result<Option<ProjectState>> {
    let name: Option<String> = tx
        .sql()
        .prepare_cached("SELECT state FROM project_states WHERE project_id = ?1")?
        .query_row([project_id], |row| row.get(0))
        .optional()?;
    Ok(name.and_then(|name| ProjectState::parse(&name)))
}

/// Notes how a project stands; strikes against it are forgotten.
///
/// # Errors
/// SQLite's.
pub fn set_state(tx: &WriteTx<'_>, project_id: i64, state: ProjectState, now: Millis) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO project_states(project_id, state, since) VALUES (?1, ?2, ?3)
             ON CONFLICT(project_id) DO UPDATE SET state = excluded.state, since = excluded.since, strikes = 0, proof = NULL
             WHERE state <> excluded.state",
        )?
        .execute((project_id, state.as_str(), now))?;
    Ok(())
}

/// Notes that a project is as usual. Returns how it stood before.
///
/// # Errors
/// SQLite's.
pub fn clear_state(tx: &WriteTx<'_>, project_id: i64) -> Result<Option<ProjectState>> {
    let before = state(tx, project_id)?;
    if before.is_some() {
        tx.sql().prepare_cached("DELETE FROM project_states WHERE project_id = ?1")?.execute([project_id])?;
    }
    Ok(before)
}

/// Notes that a run found a project missing; a run counts once. Returns the strikes so far.
///
/// # Errors
/// SQLite's.
pub fn strike_project(tx: &WriteTx<'_>, project_id: i64, proof: &str, now: Millis) -> Result<i64> {
    Ok(tx
        .sql()
        .prepare_cached(
            "INSERT INTO project_states(project_id, state, since, strikes, proof) VALUES (?1, 'missing', ?2, 1, ?3)
             ON CONFLICT(project_id) DO UPDATE SET
               strikes = CASE WHEN state <> 'missing' THEN 1 WHEN proof IS excluded.proof THEN strikes ELSE strikes + 1 END,
               since = CASE WHEN state = 'missing' THEN since ELSE excluded.since END,
               state = 'missing', proof = excluded.proof
             RETURNING strikes",
        )?
        .query_row((project_id, now, proof), |row| row.get(0))?)
}

/// A project that is not as usual upstream, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OddProject {
    /// `[sources.NAME]`.
    pub source: String,
    /// Its path.
    pub project_path: String,
    /// `marked_for_deletion`, `missing`, `deleted`, or `not_listed` when its group does not
    /// list it any more.
    pub state: String,
    /// Since when.
    pub since: Millis,
}

/// Returns the projects that are not as usual upstream.
///
/// # Errors
/// SQLite's.
pub fn odd_projects(tx: &ReadTx<'_>) -> Result<Vec<OddProject>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT p.source_name, p.path, s.state, s.since FROM project_states s JOIN projects p ON p.id = s.project_id
         UNION ALL
         SELECT p.source_name, p.path, 'not_listed', min(g.missing_since)
           FROM group_projects g JOIN projects p ON p.id = g.project_id
          WHERE g.missing_since IS NOT NULL AND p.id NOT IN (SELECT project_id FROM project_states)
          GROUP BY p.id
         HAVING NOT EXISTS (SELECT 1 FROM group_projects o WHERE o.project_id = p.id AND o.missing_since IS NULL)
          ORDER BY 1, 2",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(OddProject {
            source: row.get(0)?,
            project_path: row.get(1)?,
            state: row.get(2)?,
            since: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
