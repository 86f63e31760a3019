//! SQL of projects, items, labels, milestones, discussions and raw payloads.
//!
//! Every function that changes content marks the documents that show it as dirty in the same
//! transaction, and only when the content changed: hashes are compared, not times.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{OptionalExtension, named_params};

use super::queues::{self, mark_dirty};
use super::{ReadTx, WriteTx};
use crate::clock::Millis;
use crate::config::RawPayloads;
use crate::content::hash::{self, Hash, Hasher};
use crate::content::{
    Discussion, Issue, ItemType, Label, MergeRequest, Milestone, Note, Project, SourceType,
};
use crate::error::{Error, ErrorKind, Result, io_error};

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

/// What an upsert came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was not stored before.
    New,
    /// Its content differs.
    Changed,
    /// Only `updated_at` moved.
    Touched,
    /// Nothing differs; nothing was written.
    Unchanged,
}

/// An item after its upsert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upserted {
    /// Id in this database.
    pub id: i64,
    /// What changed.
    pub change: Change,
    /// Whether its discussions may have changed and are to be fetched.
    pub discussions_stale: bool,
}

/// What replacing the discussions of an item came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplacedDiscussions {
    /// Discussions that were not stored before.
    pub new: usize,
    /// Discussions whose content differs.
    pub changed: usize,
    /// Discussions as they were.
    pub unchanged: usize,
    /// Discussions that are gone upstream.
    pub removed: usize,
    /// Notes in the new and changed discussions.
    pub notes: usize,
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
    Ok(())
}

fn stored_project(row: &rusqlite::Row<'_>) -> rusqlite::Result<StoredProject> {
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

/// Returns all projects, by path.
///
/// # Errors
/// SQLite's.
pub fn projects(tx: &ReadTx<'_>) -> Result<Vec<StoredProject>> {
    let mut statement = tx
        .sql()
        .prepare_cached("SELECT id, source_name, gitlab_id, path, web_url FROM projects ORDER BY path, id")?;
    let rows = statement.query_map([], stored_project)?.collect::<rusqlite::Result<_>>()?;
    Ok(rows)
}

/// Counts the issues or merge requests stored of a project.
///
/// # Errors
/// SQLite's.
pub fn count_items(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType) -> Result<i64> {
    let sql = match item_type {
        ItemType::Issue => "SELECT count(*) FROM issues WHERE project_id = ?1",
        ItemType::MergeRequest => "SELECT count(*) FROM merge_requests WHERE project_id = ?1",
    };
    Ok(tx.sql().prepare_cached(sql)?.query_row([project_id], |row| row.get(0))?)
}

/// Stores the labels of a project; returns how many rows changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_labels(tx: &WriteTx<'_>, project_id: i64, labels: &[Label]) -> Result<usize> {
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO labels(project_id, gitlab_id, name, color, description) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT(project_id, name) DO UPDATE SET gitlab_id = coalesce(excluded.gitlab_id, gitlab_id),
           color = excluded.color, description = excluded.description
         WHERE gitlab_id IS NOT coalesce(excluded.gitlab_id, gitlab_id) OR color IS NOT excluded.color
           OR description IS NOT excluded.description",
    )?;
    let mut changed = 0;
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

/// Stores the milestones of a project; returns how many rows changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_milestones(tx: &WriteTx<'_>, project_id: i64, milestones: &[Milestone]) -> Result<usize> {
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

/// The part of an item that its discussions' documents show too.
fn shown_in_threads(parts: &[Option<&str>], confidential: bool) -> Hash {
    let mut hasher = Hasher::new();
    for part in parts {
        hasher.maybe(*part);
    }
    hasher.flag(confidential).finish()
}

/// What is compared of a stored item.
struct StoredItem {
    id: i64,
    content_hash: Vec<u8>,
    updated_at: Millis,
    user_notes_count: Option<i64>,
    shown: Hash,
}

/// Decides what an upsert has to do.
fn compare(
    stored: Option<&StoredItem>,
    hash: &Hash,
    updated_at: Millis,
    notes_count: Option<i64>,
) -> (Change, bool) {
    let Some(stored) = stored else { return (Change::New, true) };
    let moved = stored.updated_at != updated_at;
    if stored.content_hash != hash {
        let notes_differ = notes_count.is_some() && stored.user_notes_count != notes_count;
        (Change::Changed, moved || notes_differ)
    } else if moved {
        (Change::Touched, true)
    } else {
        (Change::Unchanged, false)
    }
}

/// After an item was written: marks its own document, and those of its discussions when
/// they show what changed. A touch alone reaches the document's time directly.
fn mark_after_upsert(
    tx: &WriteTx<'_>,
    item_type: ItemType,
    upserted: Upserted,
    shown_differs: bool,
    updated_at: Millis,
    now: Millis,
) -> Result<()> {
    match upserted.change {
        Change::Unchanged => Ok(()),
        Change::Touched => {
            tx.sql()
                .prepare_cached(
                    "UPDATE documents SET updated_at = ?3 WHERE source_type = ?1 AND source_id = ?2",
                )?
                .execute((item_type.as_str(), upserted.id, updated_at))?;
            Ok(())
        }
        Change::New | Change::Changed => {
            mark_dirty(tx, item_type.into(), upserted.id, now)?;
            if shown_differs {
                let column = discussion_column(item_type);
                let select = format!("SELECT 'discussion', id, ?1 FROM discussions WHERE {column} = ?2");
                tx.sql().prepare_cached(&queues::mark_all_sql(&select))?.execute((now, upserted.id))?;
            }
            Ok(())
        }
    }
}

const fn discussion_column(item_type: ItemType) -> &'static str {
    match item_type {
        ItemType::Issue => "issue_id",
        ItemType::MergeRequest => "merge_request_id",
    }
}

fn json_list(items: &[String]) -> Result<String> {
    serde_json::to_string(items).map_err(|error| Error::internal("encode a list").because(error))
}

/// Stores an issue and marks its documents dirty when its content changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_issue(tx: &WriteTx<'_>, project_id: i64, issue: &Issue, now: Millis) -> Result<Upserted> {
    let hash = issue.content_hash();
    let labels = json_list(&issue.labels)?;
    let assignees = json_list(&issue.assignees)?;
    let stored = tx
        .sql()
        .prepare_cached(
            "SELECT id, content_hash, updated_at, user_notes_count, title, label_names, web_url, state,
                    milestone_title, assignee_usernames, confidential
               FROM issues WHERE project_id = ?1 AND iid = ?2",
        )?
        .query_row((project_id, issue.iid), |row| {
            let text = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str_or_null()?));
            Ok(StoredItem {
                id: row.get(0)?,
                content_hash: row.get(1)?,
                updated_at: row.get(2)?,
                user_notes_count: row.get(3)?,
                shown: shown_in_threads(
                    &[text(4)?, text(5)?, text(6)?, text(7)?, text(8)?, text(9)?],
                    row.get(10)?,
                ),
            })
        })
        .optional()?;
    let (change, discussions_stale) =
        compare(stored.as_ref(), &hash, issue.updated_at, issue.user_notes_count);
    let shown = shown_in_threads(
        &[
            Some(&issue.title),
            Some(&labels),
            issue.web_url.as_deref(),
            Some(&issue.state),
            issue.milestone.as_deref(),
            Some(&assignees),
        ],
        issue.confidential,
    );
    let shown_differs = stored.as_ref().is_some_and(|stored| stored.shown != shown);
    if change != Change::Unchanged {
        tx.sql()
            .prepare_cached(
                "INSERT INTO issues(project_id, gitlab_id, iid, state, issue_type, confidential, author_username,
                        author_name, assignee_usernames, label_names, milestone_title, web_url, created_at, updated_at,
                        closed_at, due_date, user_notes_count, moved_to_gitlab_id, content_hash, synced_at, title, description)
                 VALUES (:project_id, :gitlab_id, :iid, :state, :issue_type, :confidential, :author_username,
                        :author_name, :assignees, :labels, :milestone, :web_url, :created_at, :updated_at,
                        :closed_at, :due_date, :notes_count, :moved_to, :hash, :now, :title, :description)
                 ON CONFLICT(project_id, iid) DO UPDATE SET gitlab_id = excluded.gitlab_id, state = excluded.state,
                        issue_type = excluded.issue_type, confidential = excluded.confidential,
                        author_username = excluded.author_username, author_name = excluded.author_name,
                        assignee_usernames = excluded.assignee_usernames, label_names = excluded.label_names,
                        milestone_title = excluded.milestone_title, web_url = excluded.web_url,
                        created_at = excluded.created_at, updated_at = excluded.updated_at,
                        closed_at = excluded.closed_at, due_date = excluded.due_date,
                        user_notes_count = excluded.user_notes_count, moved_to_gitlab_id = excluded.moved_to_gitlab_id,
                        content_hash = excluded.content_hash, synced_at = excluded.synced_at,
                        title = excluded.title, description = excluded.description",
            )?
            .execute(named_params! {
                ":project_id": project_id,
                ":gitlab_id": issue.gitlab_id,
                ":iid": issue.iid,
                ":state": issue.state,
                ":issue_type": issue.issue_type,
                ":confidential": issue.confidential,
                ":author_username": issue.author.username,
                ":author_name": issue.author.name,
                ":assignees": assignees,
                ":labels": labels,
                ":milestone": issue.milestone,
                ":web_url": issue.web_url,
                ":created_at": issue.created_at,
                ":updated_at": issue.updated_at,
                ":closed_at": issue.closed_at,
                ":due_date": issue.due_date,
                ":notes_count": issue.user_notes_count,
                ":moved_to": issue.moved_to_gitlab_id,
                ":hash": hash,
                ":now": now,
                ":title": issue.title,
                ":description": issue.description,
            })?;
    }
    let id = stored.map_or_else(|| tx.sql().last_insert_rowid(), |stored| stored.id);
    let upserted = Upserted { id, change, discussions_stale };
    mark_after_upsert(tx, ItemType::Issue, upserted, shown_differs, issue.updated_at, now)?;
    Ok(upserted)
}

/// Stores a merge request and marks its documents dirty when its content changed.
///
/// # Errors
/// SQLite's.
pub fn upsert_merge_request(
    tx: &WriteTx<'_>,
    project_id: i64,
    merge_request: &MergeRequest,
    now: Millis,
) -> Result<Upserted> {
    let hash = merge_request.content_hash();
    let labels = json_list(&merge_request.labels)?;
    let assignees = json_list(&merge_request.assignees)?;
    let stored = tx
        .sql()
        .prepare_cached(
            "SELECT id, content_hash, updated_at, user_notes_count, title, label_names, web_url, state,
                    milestone_title, assignee_usernames, draft
               FROM merge_requests WHERE project_id = ?1 AND iid = ?2",
        )?
        .query_row((project_id, merge_request.iid), |row| {
            let text = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str_or_null()?));
            Ok(StoredItem {
                id: row.get(0)?,
                content_hash: row.get(1)?,
                updated_at: row.get(2)?,
                user_notes_count: row.get(3)?,
                shown: shown_in_threads(
                    &[text(4)?, text(5)?, text(6)?, text(7)?, text(8)?, text(9)?],
                    row.get(10)?,
                ),
            })
        })
        .optional()?;
    let (change, discussions_stale) =
        compare(stored.as_ref(), &hash, merge_request.updated_at, merge_request.user_notes_count);
    let shown = shown_in_threads(
        &[
            Some(&merge_request.title),
            Some(&labels),
            merge_request.web_url.as_deref(),
            Some(&merge_request.state),
            merge_request.milestone.as_deref(),
            Some(&assignees),
        ],
        merge_request.draft,
    );
    let shown_differs = stored.as_ref().is_some_and(|stored| stored.shown != shown);
    if change != Change::Unchanged {
        tx.sql()
            .prepare_cached(
                "INSERT INTO merge_requests(project_id, gitlab_id, iid, state, draft, author_username, author_name,
                        assignee_usernames, label_names, milestone_title, source_branch, target_branch, web_url,
                        created_at, updated_at, merged_at, closed_at, user_notes_count, content_hash, synced_at,
                        title, description)
                 VALUES (:project_id, :gitlab_id, :iid, :state, :draft, :author_username, :author_name,
                        :assignees, :labels, :milestone, :source_branch, :target_branch, :web_url,
                        :created_at, :updated_at, :merged_at, :closed_at, :notes_count, :hash, :now,
                        :title, :description)
                 ON CONFLICT(project_id, iid) DO UPDATE SET gitlab_id = excluded.gitlab_id, state = excluded.state,
                        draft = excluded.draft, author_username = excluded.author_username,
                        author_name = excluded.author_name, assignee_usernames = excluded.assignee_usernames,
                        label_names = excluded.label_names, milestone_title = excluded.milestone_title,
                        source_branch = excluded.source_branch, target_branch = excluded.target_branch,
                        web_url = excluded.web_url, created_at = excluded.created_at, updated_at = excluded.updated_at,
                        merged_at = excluded.merged_at, closed_at = excluded.closed_at,
                        user_notes_count = excluded.user_notes_count, content_hash = excluded.content_hash,
                        synced_at = excluded.synced_at, title = excluded.title, description = excluded.description",
            )?
            .execute(named_params! {
                ":project_id": project_id,
                ":gitlab_id": merge_request.gitlab_id,
                ":iid": merge_request.iid,
                ":state": merge_request.state,
                ":draft": merge_request.draft,
                ":author_username": merge_request.author.username,
                ":author_name": merge_request.author.name,
                ":assignees": assignees,
                ":labels": labels,
                ":milestone": merge_request.milestone,
                ":source_branch": merge_request.source_branch,
                ":target_branch": merge_request.target_branch,
                ":web_url": merge_request.web_url,
                ":created_at": merge_request.created_at,
                ":updated_at": merge_request.updated_at,
                ":merged_at": merge_request.merged_at,
                ":closed_at": merge_request.closed_at,
                ":notes_count": merge_request.user_notes_count,
                ":hash": hash,
                ":now": now,
                ":title": merge_request.title,
                ":description": merge_request.description,
            })?;
    }
    let id = stored.map_or_else(|| tx.sql().last_insert_rowid(), |stored| stored.id);
    let upserted = Upserted { id, change, discussions_stale };
    mark_after_upsert(tx, ItemType::MergeRequest, upserted, shown_differs, merge_request.updated_at, now)?;
    Ok(upserted)
}

/// Finds an item by its number.
///
/// # Errors
/// SQLite's.
pub fn item_id(tx: &ReadTx<'_>, project_id: i64, item_type: ItemType, iid: i64) -> Result<Option<i64>> {
    let sql = match item_type {
        ItemType::Issue => "SELECT id FROM issues WHERE project_id = ?1 AND iid = ?2",
        ItemType::MergeRequest => "SELECT id FROM merge_requests WHERE project_id = ?1 AND iid = ?2",
    };
    Ok(tx.sql().prepare_cached(sql)?.query_row((project_id, iid), |row| row.get(0)).optional()?)
}

/// Replaces the discussions of one item by the whole set that the source returned. Called
/// only after every page of it arrived: what is missing from the set is removed.
///
/// # Errors
/// SQLite's.
pub fn replace_discussions(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    item_id: i64,
    discussions: &[Discussion],
    now: Millis,
) -> Result<ReplacedDiscussions> {
    let column = discussion_column(item_type);
    let mut stored: BTreeMap<String, (i64, Vec<u8>)> = tx
        .sql()
        .prepare_cached(&format!(
            "SELECT gitlab_discussion_id, id, content_hash FROM discussions WHERE {column} = ?1"
        ))?
        .query_map([item_id], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?
        .collect::<rusqlite::Result<_>>()?;
    let mut done = ReplacedDiscussions::default();
    // Offset paging over a moving list can deliver a discussion twice.
    let mut seen = BTreeSet::new();
    for discussion in discussions {
        if !seen.insert(discussion.gitlab_id.as_str()) {
            continue;
        }
        let hash = discussion.content_hash();
        let known = stored.remove(&discussion.gitlab_id);
        let discussion_id = match known {
            Some((_, stored_hash)) if stored_hash == hash => {
                done.unchanged += 1;
                continue;
            }
            Some((id, _)) => {
                done.changed += 1;
                update_discussion(tx, id, discussion, &hash)?;
                id
            }
            None => {
                done.new += 1;
                insert_discussion(tx, project_id, item_type, item_id, discussion, &hash)?
            }
        };
        done.notes += insert_notes(tx, discussion_id, &discussion.notes)?;
        mark_dirty(tx, SourceType::Discussion, discussion_id, now)?;
    }
    for (id, _) in stored.into_values() {
        tx.sql().prepare_cached("DELETE FROM discussions WHERE id = ?1")?.execute([id])?;
        done.removed += 1;
    }
    if done.new + done.changed + done.removed > 0 {
        // The item's own document carries the text of its threads.
        mark_dirty(tx, item_type.into(), item_id, now)?;
    }
    Ok(done)
}

struct ThreadFacts {
    resolvable: bool,
    resolved: bool,
    first_note_at: Option<Millis>,
    last_note_at: Option<Millis>,
}

fn thread_facts(notes: &[Note]) -> ThreadFacts {
    let resolvable = notes.iter().any(|note| note.resolvable);
    ThreadFacts {
        resolvable,
        resolved: resolvable && notes.iter().filter(|note| note.resolvable).all(|note| note.resolved),
        first_note_at: notes.iter().map(|note| note.created_at).min(),
        last_note_at: notes.iter().map(|note| note.created_at.max(note.updated_at)).max(),
    }
}

fn insert_discussion(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    item_id: i64,
    discussion: &Discussion,
    hash: &Hash,
) -> Result<i64> {
    let facts = thread_facts(&discussion.notes);
    let column = discussion_column(item_type);
    tx.sql()
        .prepare_cached(&format!(
            "INSERT INTO discussions(project_id, noteable_type, {column}, gitlab_discussion_id, individual_note,
                    resolvable, resolved, first_note_at, last_note_at, content_hash)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        ))?
        .execute((
            project_id,
            item_type.noteable_type(),
            item_id,
            &discussion.gitlab_id,
            discussion.individual_note,
            facts.resolvable,
            facts.resolved,
            facts.first_note_at,
            facts.last_note_at,
            hash,
        ))?;
    Ok(tx.sql().last_insert_rowid())
}

fn update_discussion(tx: &WriteTx<'_>, id: i64, discussion: &Discussion, hash: &Hash) -> Result<()> {
    let facts = thread_facts(&discussion.notes);
    tx.sql()
        .prepare_cached(
            "UPDATE discussions SET individual_note = ?2, resolvable = ?3, resolved = ?4, first_note_at = ?5,
                    last_note_at = ?6, content_hash = ?7 WHERE id = ?1",
        )?
        .execute((
            id,
            discussion.individual_note,
            facts.resolvable,
            facts.resolved,
            facts.first_note_at,
            facts.last_note_at,
            hash,
        ))?;
    tx.sql().prepare_cached("DELETE FROM notes WHERE discussion_id = ?1")?.execute([id])?;
    Ok(())
}

fn insert_notes(tx: &WriteTx<'_>, discussion_id: i64, notes: &[Note]) -> Result<usize> {
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO notes(discussion_id, gitlab_id, position, note_type, is_system, is_internal, author_username,
                author_name, created_at, updated_at, resolvable, resolved, resolved_by, position_type, old_path,
                new_path, old_line, new_line, body)
         VALUES (:discussion_id, :gitlab_id, :position, :note_type, :system, :internal, :author_username,
                :author_name, :created_at, :updated_at, :resolvable, :resolved, :resolved_by, :position_type, :old_path,
                :new_path, :old_line, :new_line, :body)",
    )?;
    for (note, position) in notes.iter().zip(0_i64..) {
        let place = note.position.as_ref();
        statement.execute(named_params! {
            ":discussion_id": discussion_id,
            ":gitlab_id": note.gitlab_id,
            ":position": position,
            ":note_type": note.note_type,
            ":system": note.system,
            ":internal": note.internal,
            ":author_username": note.author.username,
            ":author_name": note.author.name,
            ":created_at": note.created_at,
            ":updated_at": note.updated_at,
            ":resolvable": note.resolvable,
            ":resolved": note.resolved,
            ":resolved_by": note.resolved_by,
            ":position_type": place.and_then(|place| place.position_type.as_deref()),
            ":old_path": place.and_then(|place| place.old_path.as_deref()),
            ":new_path": place.and_then(|place| place.new_path.as_deref()),
            ":old_line": place.and_then(|place| place.old_line),
            ":new_line": place.and_then(|place| place.new_line),
            ":body": note.body,
        })?;
    }
    Ok(notes.len())
}

/// Keeps the payload that a row was parsed from. Does nothing when it is kept already, or
/// when payloads are not to be kept.
///
/// # Errors
/// SQLite's, or when the payload cannot be compressed.
pub fn save_raw(
    tx: &WriteTx<'_>,
    project_id: i64,
    resource_type: &str,
    resource_key: &str,
    payload: &[u8],
    how: RawPayloads,
    now: Millis,
) -> Result<()> {
    match how {
        RawPayloads::None => return Ok(()),
        RawPayloads::Zstd => {}
    }
    let digest = hash::bytes_hash(payload);
    let kept: Option<i64> = tx
        .sql()
        .prepare_cached(
            "SELECT 1 FROM raw_payloads WHERE project_id = ?1 AND resource_type = ?2 AND resource_key = ?3 AND payload_hash = ?4",
        )?
        .query_row((project_id, resource_type, resource_key, digest), |row| row.get(0))
        .optional()?;
    if kept.is_some() {
        return Ok(());
    }
    let packed = zstd::bulk::compress(payload, 3).map_err(|error| io_error("compress a payload", error))?;
    tx.sql()
        .prepare_cached(
            "INSERT INTO raw_payloads(project_id, resource_type, resource_key, encoding, payload, payload_hash, fetched_at)
             VALUES (?1, ?2, ?3, 'zstd', ?4, ?5, ?6)
             ON CONFLICT(project_id, resource_type, resource_key) DO UPDATE SET encoding = excluded.encoding,
               payload = excluded.payload, payload_hash = excluded.payload_hash, fetched_at = excluded.fetched_at",
        )?
        .execute((project_id, resource_type, resource_key, packed, digest, now))?;
    Ok(())
}

#[cfg(test)]
mod tests;
