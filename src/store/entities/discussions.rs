//! SQL of discussions and notes.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::named_params;

use crate::clock::Millis;
use crate::content::hash::Hash;
use crate::content::{Discussion, ItemType, Note, SourceType};
use crate::error::Result;
use crate::store::queues::mark_dirty;
use crate::store::{WriteTx, tables};

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
    store_discussions(tx, project_id, item_type, item_id, discussions, Absent::Delete, now)
}

/// Stores those discussions of one item that could be read. The others that are stored stay:
/// what cannot be read is not gone.
///
/// # Errors
/// SQLite's.
pub fn merge_discussions(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    item_id: i64,
    discussions: &[Discussion],
    now: Millis,
) -> Result<ReplacedDiscussions> {
    store_discussions(tx, project_id, item_type, item_id, discussions, Absent::Keep, now)
}

/// What becomes of stored discussions that are not among the given ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    Delete,
    Keep,
}

fn store_discussions(
    tx: &WriteTx<'_>,
    project_id: i64,
    item_type: ItemType,
    item_id: i64,
    discussions: &[Discussion],
    absent: Absent,
    now: Millis,
) -> Result<ReplacedDiscussions> {
    let column = tables::item_column(item_type);
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
    if absent == Absent::Keep {
        stored.clear();
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
    let column = tables::item_column(item_type);
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
