//! SQL that reads what documents are made of, a batch at a time: a handful of statements
//! for any number of dirty entries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::queues::DirtyEntry;
use super::{ReadTx, tables};
use crate::clock::Millis;
use crate::content::hash::{Hash, Hasher};
use crate::content::render::RENDER_VERSION;
use crate::content::source::{ItemSource, NoteSource, ProjectSource, Source};
use crate::content::{Author, ItemRef, ItemType, SourceType};
use crate::error::{Error, Result};

/// What can be told of a dirty source without reading its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glance {
    /// Hash over the hashes of all that its document is made of.
    pub source_hash: Hash,
    /// When the item last changed; nothing for discussions.
    pub updated_at: Option<Millis>,
}

/// Looks at the sources of dirty entries; nothing where a source is gone.
///
/// # Errors
/// SQLite's.
pub fn glance(tx: &ReadTx<'_>, entries: &[DirtyEntry]) -> Result<Vec<Option<Glance>>> {
    let mut glances = vec![None; entries.len()];
    let mut projects = Projects::default();
    for item_type in ItemType::ALL {
        let (places, ids) = of_type(entries, item_type.into());
        if ids.is_empty() {
            continue;
        }
        let (table, column) = (tables::of_item(item_type), tables::item_column(item_type));
        let moved = match item_type {
            ItemType::Issue => "i.moved_to_gitlab_id",
            ItemType::MergeRequest => "NULL",
        };
        let mut threads: BTreeMap<usize, Vec<Hash>> = BTreeMap::new();
        let mut statement = tx.sql().prepare_cached(&format!(
            "SELECT j.key, d.content_hash FROM json_each(?1) j CROSS JOIN discussions d ON d.{column} = j.value"
        ))?;
        let mut rows = statement.query([json_ids(&ids)])?;
        while let Some(row) = rows.next()? {
            threads.entry(key(row)?).or_default().push(row.get(1)?);
        }
        let mut statement = tx.sql().prepare_cached(&format!(
            "SELECT j.key, i.project_id, i.content_hash, i.updated_at, {moved}
               FROM json_each(?1) j CROSS JOIN {table} i ON i.id = j.value"
        ))?;
        let mut rows = statement.query([json_ids(&ids)])?;
        while let Some(row) = rows.next()? {
            let key = key(row)?;
            let mut hashes = threads.remove(&key).unwrap_or_default();
            hashes.sort_unstable();
            let project = projects.get(tx, row.get(1)?)?;
            let moved_to = match row.get::<_, Option<i64>>(4)? {
                Some(gitlab_id) => moved_to(tx, project.id, gitlab_id)?,
                None => None,
            };
            let source_hash = source_hash(&project, bytes(row, 2)?, &hashes, moved_to.as_ref());
            glances[places[key]] = Some(Glance { source_hash, updated_at: Some(row.get(3)?) });
        }
    }
    let (places, ids) = of_type(entries, SourceType::Discussion);
    if !ids.is_empty() {
        for item_type in ItemType::ALL {
            let (table, column) = (tables::of_item(item_type), tables::item_column(item_type));
            let mut statement = tx.sql().prepare_cached(&format!(
                "SELECT j.key, i.project_id, i.content_hash, d.content_hash
                   FROM json_each(?1) j CROSS JOIN discussions d ON d.id = j.value CROSS JOIN {table} i ON i.id = d.{column}"
            ))?;
            let mut rows = statement.query([json_ids(&ids)])?;
            while let Some(row) = rows.next()? {
                let project = projects.get(tx, row.get(1)?)?;
                let source_hash = source_hash(&project, bytes(row, 2)?, &[row.get(3)?], None);
                glances[places[key(row)?]] = Some(Glance { source_hash, updated_at: None });
            }
        }
    }
    Ok(glances)
}

fn source_hash(
    project: &ProjectSource,
    item_hash: &[u8],
    discussion_hashes: &[Hash],
    moved_to: Option<&ItemRef>,
) -> Hash {
    let mut hasher = Hasher::new();
    hasher
        .number(Some(RENDER_VERSION))
        .number(Some(project.id))
        .text(&project.path)
        .maybe(project.web_url.as_deref())
        .bytes(item_hash);
    for hash in discussion_hashes {
        hasher.bytes(hash);
    }
    // Where it was moved to shows once that is stored.
    if let Some(ItemRef { project_path, item_type: _, iid }) = moved_to {
        hasher.text(project_path).number(Some(*iid));
    }
    hasher.finish()
}

/// What came of reading one source: nothing when it is gone, a message when what is stored
/// of it cannot be understood.
pub type ReadSource = Result<Option<Source>, String>;

/// Reads the sources of dirty entries, in their order.
///
/// # Errors
/// SQLite's. A row that cannot be understood fails its own entry alone.
pub fn read_sources(tx: &ReadTx<'_>, entries: &[DirtyEntry]) -> Result<Vec<ReadSource>> {
    let mut out: Vec<ReadSource> = vec![Ok(None); entries.len()];
    let mut projects = Projects::default();
    for item_type in ItemType::ALL {
        let (places, ids) = of_type(entries, item_type.into());
        let mut notes = item_notes(tx, item_type, &ids)?;
        for (key, item) in
            items(tx, item_type, &ids, Description::Read, &mut projects)?.into_iter().enumerate()
        {
            out[places[key]] = item.and_then(|item| {
                let notes = notes.remove(&key).unwrap_or_else(|| Ok(Vec::new()))?;
                Ok(item.map(|item| Source::Item { item, notes }))
            });
        }
    }
    read_discussions(tx, entries, &mut projects, &mut out)?;
    Ok(out)
}

fn read_discussions(
    tx: &ReadTx<'_>,
    entries: &[DirtyEntry],
    projects: &mut Projects,
    out: &mut [ReadSource],
) -> Result<()> {
    let (places, ids) = of_type(entries, SourceType::Discussion);
    if ids.is_empty() {
        return Ok(());
    }
    let mut notes = discussion_notes(tx, &ids)?;
    for item_type in ItemType::ALL {
        let column = tables::item_column(item_type);
        let parents: Vec<(usize, i64)> = tx
            .sql()
            .prepare_cached(&format!(
                "SELECT j.key, d.{column} FROM json_each(?1) j CROSS JOIN discussions d ON d.id = j.value
                  WHERE d.{column} IS NOT NULL"
            ))?
            .query_map([json_ids(&ids)], |row| Ok((key(row)?, row.get(1)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let parent_ids: Vec<i64> =
            parents.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().into_iter().collect();
        let found = items(tx, item_type, &parent_ids, Description::Skip, projects)?;
        for (key, parent_id) in parents {
            let Ok(at) = parent_ids.binary_search(&parent_id) else { continue };
            out[places[key]] = found[at].clone().and_then(|item| {
                let notes = notes.remove(&key).unwrap_or_else(|| Ok(Vec::new()))?;
                Ok(item.map(|item| Source::Discussion { id: ids[key], item, notes }))
            });
        }
    }
    Ok(())
}

/// Whether the description, which can be a megabyte, is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Description {
    Read,
    Skip,
}

fn items(
    tx: &ReadTx<'_>,
    item_type: ItemType,
    ids: &[i64],
    description: Description,
    projects: &mut Projects,
) -> Result<Vec<Result<Option<Arc<ItemSource>>, String>>> {
    let mut out = vec![Ok(None); ids.len()];
    if ids.is_empty() {
        return Ok(out);
    }
    let sql = match item_type {
        ItemType::Issue => {
            "SELECT j.key, i.id, i.iid, i.project_id, i.title, i.state, 0, i.confidential, i.author_username, i.author_name,
                    i.assignee_usernames, i.label_names, i.milestone_title, NULL, NULL, i.web_url, i.created_at, i.updated_at,
                    i.moved_to_gitlab_id, CASE WHEN ?2 THEN i.description END
               FROM json_each(?1) j CROSS JOIN issues i ON i.id = j.value"
        }
        ItemType::MergeRequest => {
            "SELECT j.key, i.id, i.iid, i.project_id, i.title, i.state, i.draft, 0, i.author_username, i.author_name,
                    i.assignee_usernames, i.label_names, i.milestone_title, i.source_branch, i.target_branch, i.web_url,
                    i.created_at, i.updated_at, NULL, CASE WHEN ?2 THEN i.description END
               FROM json_each(?1) j CROSS JOIN merge_requests i ON i.id = j.value"
        }
    };
    let mut statement = tx.sql().prepare_cached(sql)?;
    let mut rows = statement.query((json_ids(ids), description == Description::Read))?;
    while let Some(row) = rows.next()? {
        let project = projects.get(tx, row.get(3)?)?;
        let moved_to = match row.get::<_, Option<i64>>(18)? {
            Some(gitlab_id) => moved_to(tx, project.id, gitlab_id)?,
            None => None,
        };
        out[key(row)?] = item(row, item_type, project, moved_to)
            .map(|item| Some(Arc::new(item)))
            .map_err(|error| error.to_string());
    }
    Ok(out)
}

fn item(
    row: &Row<'_>,
    item_type: ItemType,
    project: Arc<ProjectSource>,
    moved_to: Option<ItemRef>,
) -> Result<ItemSource> {
    Ok(ItemSource {
        id: row.get(1)?,
        item_type,
        iid: row.get(2)?,
        project,
        title: row.get(4)?,
        state: row.get(5)?,
        is_draft: row.get(6)?,
        is_confidential: row.get(7)?,
        author: Author { username: row.get(8)?, name: row.get(9)? },
        assignees: list(row, 10)?,
        labels: list(row, 11)?,
        milestone: row.get(12)?,
        source_branch: row.get(13)?,
        target_branch: row.get(14)?,
        web_url: row.get(15)?,
        created_at: row.get(16)?,
        updated_at: row.get(17)?,
        moved_to,
        description: row.get(19)?,
    })
}

fn list(row: &Row<'_>, index: usize) -> Result<Vec<String>> {
    let json = row.get_ref(index)?.as_str().map_err(rusqlite::Error::from)?;
    if json == "[]" {
        return Ok(Vec::new());
    }
    serde_json::from_str(json).map_err(|error| Error::internal("read a list of names").because(error))
}

/// Finds the copy of a moved issue among the projects of the same source.
fn moved_to(tx: &ReadTx<'_>, project_id: i64, gitlab_id: i64) -> Result<Option<ItemRef>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT p.path, i.iid FROM projects own CROSS JOIN projects p ON p.source_name = own.source_name
           CROSS JOIN issues i ON i.project_id = p.id AND i.gitlab_id = ?2 WHERE own.id = ?1 LIMIT 1",
    )?;
    let mut rows = statement.query((project_id, gitlab_id))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(ItemRef { project_path: row.get(0)?, item_type: ItemType::Issue, iid: row.get(1)? }))
}

type Notes = BTreeMap<usize, Result<Vec<NoteSource>, String>>;

const NOTE_COLUMNS: &str =
    "n.position, n.gitlab_id, n.is_system, n.is_internal, n.author_username, n.author_name,
    n.created_at, n.updated_at, n.old_path, n.new_path, n.body";

/// The notes of all discussions of items, the oldest discussion first.
fn item_notes(tx: &ReadTx<'_>, item_type: ItemType, ids: &[i64]) -> Result<Notes> {
    if ids.is_empty() {
        return Ok(Notes::new());
    }
    let column = tables::item_column(item_type);
    // Ordered here and not by SQLite, whose sorter would carry the texts along.
    let sql = format!(
        "SELECT j.key, coalesce(d.first_note_at, 0), d.id, {NOTE_COLUMNS} FROM json_each(?1) j
           CROSS JOIN discussions d ON d.{column} = j.value CROSS JOIN notes n ON n.discussion_id = d.id"
    );
    notes(tx, &sql, ids)
}

/// The notes of discussions.
fn discussion_notes(tx: &ReadTx<'_>, ids: &[i64]) -> Result<Notes> {
    let sql = format!(
        "SELECT j.key, 0, 0, {NOTE_COLUMNS} FROM json_each(?1) j CROSS JOIN notes n ON n.discussion_id = j.value"
    );
    notes(tx, &sql, ids)
}

type Keyed = Vec<((Millis, i64, i64), NoteSource)>;

fn notes(tx: &ReadTx<'_>, sql: &str, ids: &[i64]) -> Result<Notes> {
    let mut keyed: BTreeMap<usize, Result<Keyed, String>> = BTreeMap::new();
    let mut statement = tx.sql().prepare_cached(sql)?;
    let mut rows = statement.query([json_ids(ids)])?;
    while let Some(row) = rows.next()? {
        let of_source = keyed.entry(key(row)?).or_insert_with(|| Ok(Vec::new()));
        match (of_source.as_mut(), note(row)) {
            (Ok(list), Ok(note)) => list.push(note),
            (Ok(_), Err(error)) => *of_source = Err(Error::from(error).to_string()),
            (Err(_), _) => {}
        }
    }
    Ok(keyed
        .into_iter()
        .map(|(key, list)| {
            let sorted = list.map(|mut list| {
                list.sort_by_key(|(order, _)| *order);
                list.into_iter().map(|(_, note)| note).collect()
            });
            (key, sorted)
        })
        .collect())
}

fn note(row: &Row<'_>) -> rusqlite::Result<((Millis, i64, i64), NoteSource)> {
    let note = NoteSource {
        gitlab_id: row.get(4)?,
        is_system: row.get(5)?,
        is_internal: row.get(6)?,
        author: Author { username: row.get(7)?, name: row.get(8)? },
        created_at: row.get(9)?,
        updated_at: row.get(10)?,
        old_path: row.get(11)?,
        new_path: row.get(12)?,
        body: row.get(13)?,
    };
    Ok(((row.get(1)?, row.get(2)?, row.get(3)?), note))
}

/// Projects of a batch, each read once.
#[derive(Default)]
struct Projects(BTreeMap<i64, Arc<ProjectSource>>);

impl Projects {
    fn get(&mut self, tx: &ReadTx<'_>, id: i64) -> Result<Arc<ProjectSource>> {
        if let Some(known) = self.0.get(&id) {
            return Ok(Arc::clone(known));
        }
        let project = tx
            .sql()
            .prepare_cached("SELECT id, path, web_url FROM projects WHERE id = ?1")?
            .query_row([id], |row| {
                Ok(ProjectSource { id: row.get(0)?, path: row.get(1)?, web_url: row.get(2)? })
            })?;
        let project = Arc::new(project);
        self.0.insert(id, Arc::clone(&project));
        Ok(project)
    }
}

/// The entries of one type: their places in the batch, and their ids.
pub(super) fn of_type(entries: &[DirtyEntry], source_type: SourceType) -> (Vec<usize>, Vec<i64>) {
    entries
        .iter()
        .enumerate()
        .filter(|(_, entry)| entry.source_type == source_type)
        .map(|(place, entry)| (place, entry.source_id))
        .unzip()
}

/// A list of ids as the JSON array that `json_each` takes.
pub(super) fn json_ids(ids: &[i64]) -> String {
    let mut json = String::with_capacity(ids.len() * 8 + 2);
    json.push('[');
    for (index, id) in ids.iter().enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(&id.to_string());
    }
    json.push(']');
    json
}

/// The place in a `json_each` array, the first column of every statement here.
pub(super) fn key(row: &Row<'_>) -> rusqlite::Result<usize> {
    Ok(row.get::<_, u32>(0)? as usize)
}

fn bytes<'a>(row: &'a Row<'_>, index: usize) -> Result<&'a [u8]> {
    match row.get_ref(index)? {
        ValueRef::Blob(bytes) => Ok(bytes),
        other => Err(Error::internal(format!("a hash is stored as {}", other.data_type()))),
    }
}
