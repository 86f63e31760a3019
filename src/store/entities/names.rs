//! Renamed labels and milestones: items show their names, and GitLab moves no `updated_at`
//! when a name changes, so items and documents are brought up to date from here.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::OptionalExtension;

use super::items::json_list;
use crate::clock::Millis;
use crate::content::hash::Hasher;
use crate::content::{ItemType, Label, Milestone};
use crate::error::{Error, Result};
use crate::store::queues::{mark_all_sql, mark_dirty};
use crate::store::{ReadTx, WriteTx, tables};

/// Names that changed: the old one and the new one.
type Renames = BTreeMap<String, String>;

/// Renames the stored labels that have another name now, and what shows them. Returns how
/// many labels there were.
pub(super) fn rename_labels(
    tx: &WriteTx<'_>,
    project_id: i64,
    labels: &[Label],
    now: Millis,
) -> Result<usize> {
    let stored = names_by_id(tx, "labels", "name", project_id)?;
    let mut renames = Renames::new();
    let mut rows = Vec::new();
    for label in labels {
        let Some((row_id, old)) = label.gitlab_id.and_then(|id| stored.get(&id)) else { continue };
        if *old != label.name {
            renames.insert(old.clone(), label.name.clone());
            rows.push((*row_id, label.name.as_str()));
        }
    }
    // In two steps: two labels may have exchanged their names.
    for (row_id, _) in &rows {
        tx.sql()
            .prepare_cached("UPDATE labels SET name = 'renamed' || char(1) || id WHERE id = ?1")?
            .execute([row_id])?;
    }
    for (row_id, name) in &rows {
        tx.sql()
            .prepare_cached("DELETE FROM labels WHERE project_id = ?1 AND name = ?2")?
            .execute((project_id, name))?;
        tx.sql().prepare_cached("UPDATE labels SET name = ?2 WHERE id = ?1")?.execute((row_id, name))?;
    }
    if renames.is_empty() {
        return Ok(0);
    }
    for item_type in ItemType::ALL {
        let table = tables::of_item(item_type);
        let affected: Vec<(i64, String)> = tx
            .sql()
            .prepare_cached(&format!(
                "SELECT id, label_names FROM {table} i WHERE project_id = ?1 AND EXISTS (
                   SELECT 1 FROM json_each(i.label_names) l JOIN json_each(?2) old ON old.value = l.value)"
            ))?
            .query_map((project_id, json_list(&renames.keys().cloned().collect::<Vec<_>>())?), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (id, names) in affected {
            let names: Vec<String> = serde_json::from_str(&names)
                .map_err(|error| Error::internal("read a list of labels").because(error))?;
            let names: BTreeSet<String> =
                names.into_iter().map(|name| renames.get(&name).cloned().unwrap_or(name)).collect();
            let names = json_list(&names.into_iter().collect::<Vec<_>>())?;
            rewrite(tx, item_type, id, "label_names", &names, now)?;
        }
    }
    Ok(rows.len())
}

/// Renames what shows milestones that have another title now. Called before the milestones
/// themselves are written.
pub(super) fn rename_milestones(
    tx: &WriteTx<'_>,
    project_id: i64,
    milestones: &[Milestone],
    now: Millis,
) -> Result<()> {
    let stored = names_by_id(tx, "milestones", "title", project_id)?;
    let mut renames = Renames::new();
    for milestone in milestones {
        let Some((_, old)) = stored.get(&milestone.gitlab_id) else { continue };
        // A title that two milestones share says nothing about which one an item shows.
        let shared = stored.values().filter(|(_, title)| title == old).count() > 1;
        if *old != milestone.title && !shared {
            renames.insert(old.clone(), milestone.title.clone());
        }
    }
    if renames.is_empty() {
        return Ok(());
    }
    for item_type in ItemType::ALL {
        let affected: Vec<(i64, String)> = tx
            .sql()
            .prepare_cached(&format!(
                "SELECT id, milestone_title FROM {} WHERE project_id = ?1 AND milestone_title IN (SELECT value FROM json_each(?2))",
                tables::of_item(item_type)
            ))?
            .query_map((project_id, json_list(&renames.keys().cloned().collect::<Vec<_>>())?), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<rusqlite::Result<_>>()?;
        for (id, title) in affected {
            if let Some(new) = renames.get(&title) {
                rewrite(tx, item_type, id, "milestone_title", new, now)?;
            }
        }
    }
    Ok(())
}

/// Marks the issues that were moved to an issue: their documents name it, by its path and
/// number, once it is stored.
///
/// # Errors
/// SQLite's.
pub fn mark_moved_to(tx: &WriteTx<'_>, project_id: i64, gitlab_id: i64, now: Millis) -> Result<()> {
    let select = "SELECT 'issue', i.id, ?1 FROM issues i JOIN projects p ON p.id = i.project_id
                   WHERE i.moved_to_gitlab_id = ?2
                     AND p.source_name = (SELECT source_name FROM projects WHERE id = ?3)";
    tx.sql().prepare_cached(&mark_all_sql(select))?.execute((now, gitlab_id, project_id))?;
    Ok(())
}

/// Row id and name of the rows of a project that have an id on the instance.
fn names_by_id(
    tx: &ReadTx<'_>,
    table: &str,
    column: &str,
    project_id: i64,
) -> Result<BTreeMap<i64, (i64, String)>> {
    let mut statement = tx.sql().prepare_cached(&format!(
        "SELECT gitlab_id, id, {column} FROM {table} WHERE project_id = ?1 AND gitlab_id IS NOT NULL"
    ))?;
    let rows = statement.query_map([project_id], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Writes one column of an item and marks its documents. Its hash becomes one that no record
/// of the source has: when the row comes again, it is compared in full.
fn rewrite(
    tx: &WriteTx<'_>,
    item_type: ItemType,
    id: i64,
    column: &str,
    value: &str,
    now: Millis,
) -> Result<()> {
    let table = tables::of_item(item_type);
    let hash: Option<Vec<u8>> = tx
        .sql()
        .prepare_cached(&format!("SELECT content_hash FROM {table} WHERE id = ?1"))?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let Some(hash) = hash else { return Ok(()) };
    let hash = Hasher::new().bytes(&hash).text(column).text(value).finish();
    tx.sql()
        .prepare_cached(&format!("UPDATE {table} SET {column} = ?2, content_hash = ?3 WHERE id = ?1"))?
        .execute((id, value, hash))?;
    mark_dirty(tx, item_type.into(), id, now)?;
    let column = tables::item_column(item_type);
    let select = format!("SELECT 'discussion', id, ?1 FROM discussions WHERE {column} = ?2");
    tx.sql().prepare_cached(&mark_all_sql(&select))?.execute((now, id))?;
    Ok(())
}
