//! SQL of documents: what is stored of them, writing a batch, deleting.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::named_params;

use super::fts;
use super::links;
use super::queues::DirtyEntry;
use super::sources::{json_ids, key as place, of_type};
use super::{ReadTx, WriteTx};
use crate::clock::Millis;
use crate::content::hash::Hash;
use crate::content::refs::Reference;
use crate::content::truncate::TruncationReason;
use crate::content::{Document, SourceType};
use crate::error::Result;

/// What is compared of a stored document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// Id of the document.
    pub id: i64,
    /// When its source last changed.
    pub updated_at: Option<Millis>,
    source_hash: Vec<u8>,
    content_hash: String,
    labels_hash: String,
    paths_hash: String,
    meta_hash: String,
}

impl StoredDocument {
    /// Whether it was made of a source with this hash.
    pub fn is_made_of(&self, source_hash: &Hash) -> bool {
        self.source_hash == source_hash
    }

    /// Whether it holds what `document` holds, `updated_at` left out.
    pub fn holds(&self, document: &Document) -> bool {
        self.content_hash == document.content_hash
            && self.labels_hash == document.labels_hash
            && self.paths_hash == document.paths_hash
            && self.meta_hash == document.meta_hash
    }
}

/// Returns what is stored for dirty entries, in their order.
///
/// # Errors
/// SQLite's.
pub fn stored(tx: &ReadTx<'_>, entries: &[DirtyEntry]) -> Result<Vec<Option<StoredDocument>>> {
    let mut out = vec![None; entries.len()];
    for source_type in SourceType::ALL {
        let (places, ids) = of_type(entries, source_type);
        for (key, document) in stored_of_type(tx, source_type, &ids)? {
            out[places[key]] = Some(document);
        }
    }
    Ok(out)
}

fn stored_of_type(
    tx: &ReadTx<'_>,
    source_type: SourceType,
    source_ids: &[i64],
) -> Result<Vec<(usize, StoredDocument)>> {
    if source_ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut statement = tx.sql().prepare_cached(
        "SELECT j.key, d.id, d.updated_at, d.source_hash, d.content_hash, d.labels_hash, d.paths_hash, d.meta_hash
           FROM json_each(?2) j CROSS JOIN documents d ON d.source_type = ?1 AND d.source_id = j.value",
    )?;
    let rows = statement.query_map((source_type.as_str(), json_ids(source_ids)), |row| {
        let document = StoredDocument {
            id: row.get(1)?,
            updated_at: row.get(2)?,
            source_hash: row.get(3)?,
            content_hash: row.get(4)?,
            labels_hash: row.get(5)?,
            paths_hash: row.get(6)?,
            meta_hash: row.get(7)?,
        };
        Ok((place(row)?, document))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Notes that a document is up to date: the source it was made of, and the time of it. The
/// index does not see this.
///
/// # Errors
/// SQLite's.
pub fn touch(tx: &WriteTx<'_>, id: i64, source_hash: &Hash, updated_at: Option<Millis>) -> Result<()> {
    tx.sql()
        .prepare_cached(
            "UPDATE documents SET source_hash = ?2, updated_at = coalesce(?3, updated_at)
              WHERE id = ?1 AND (source_hash <> ?2 OR updated_at IS NOT coalesce(?3, updated_at))",
        )?
        .execute((id, source_hash, updated_at))?;
    Ok(())
}

/// A document to be written, with the hash of what it was made of.
#[derive(Debug, Clone, Copy)]
pub struct NewDocument<'a> {
    /// The document.
    pub document: &'a Document,
    /// Hash over the hashes of all that it was made of.
    pub source_hash: &'a Hash,
}

/// Writes documents, new or changed, with their labels, paths, assignees, references and
/// token counts.
///
/// One statement writes the whole batch: FTS5 flushes what it holds in memory at each
/// statement, and with one statement a document it would write each one's index alone.
///
/// # Errors
/// SQLite's; then the batch is to be rolled back.
pub fn write_documents(tx: &WriteTx<'_>, documents: &[NewDocument<'_>]) -> Result<()> {
    if documents.is_empty() {
        return Ok(());
    }
    let mut known: BTreeMap<(SourceType, i64), StoredDocument> = stored_by_source(tx, documents)?;
    // In the order of their ids, new ones last: FTS5 wants rising ids within a batch.
    let mut order: Vec<(Option<i64>, &NewDocument<'_>)> =
        documents.iter().map(|new| (known.get(&key(new.document)).map(|stored| stored.id), new)).collect();
    order.sort_by_key(|(id, _)| (id.is_none(), *id));
    stage(tx, &order)?;
    tx.sql().prepare_cached(MERGE)?.execute([])?;

    let ids: BTreeMap<(SourceType, i64), i64> =
        stored_by_source(tx, documents)?.into_iter().map(|(key, stored)| (key, stored.id)).collect();
    for NewDocument { document, .. } in documents {
        if let Some(id) = ids.get(&key(document)) {
            write_lists(tx, *id, document, known.remove(&key(document)).as_ref())?;
        }
    }
    fts::update_lengths(tx, &ids.into_values().collect::<Vec<_>>())
}

fn key(document: &Document) -> (SourceType, i64) {
    (document.source_type, document.source_id)
}

fn stored_by_source(
    tx: &ReadTx<'_>,
    documents: &[NewDocument<'_>],
) -> Result<BTreeMap<(SourceType, i64), StoredDocument>> {
    let mut out = BTreeMap::new();
    for source_type in SourceType::ALL {
        let ids: Vec<i64> = documents
            .iter()
            .filter(|new| new.document.source_type == source_type)
            .map(|new| new.document.source_id)
            .collect();
        for (key, stored) in stored_of_type(tx, source_type, &ids)? {
            out.insert((source_type, ids[key]), stored);
        }
    }
    Ok(out)
}

const CREATE_STAGE: &str = "CREATE TEMP TABLE IF NOT EXISTS document_stage (
    place INTEGER PRIMARY KEY, id INTEGER, source_type TEXT, source_id INTEGER, project_id INTEGER, item_type TEXT,
    item_id INTEGER, item_iid INTEGER, author_username TEXT, created_at INTEGER, updated_at INTEGER, state TEXT,
    is_draft INTEGER, is_confidential INTEGER, is_internal INTEGER, milestone_title TEXT, label_names TEXT, url TEXT,
    source_hash BLOB, content_hash TEXT, labels_hash TEXT, paths_hash TEXT, meta_hash TEXT, is_truncated INTEGER,
    truncated_reason TEXT, body_start INTEGER, title TEXT, terms_text TEXT, content_text TEXT, thread_text TEXT)";

const MERGE: &str = "INSERT INTO documents(id, source_type, source_id, project_id, item_type, item_id, item_iid,
    author_username, created_at, updated_at, state, is_draft, is_confidential, is_internal, milestone_title, label_names,
    url, source_hash, content_hash, labels_hash, paths_hash, meta_hash, is_truncated, truncated_reason, body_start, title,
    terms_text, content_text, thread_text)
  SELECT id, source_type, source_id, project_id, item_type, item_id, item_iid, author_username, created_at, updated_at,
    state, is_draft, is_confidential, is_internal, milestone_title, label_names, url, source_hash, content_hash,
    labels_hash, paths_hash, meta_hash, is_truncated, truncated_reason, body_start, title, terms_text, content_text,
    thread_text FROM temp.document_stage WHERE true ORDER BY place
  ON CONFLICT(id) DO UPDATE SET
    project_id = excluded.project_id, item_type = excluded.item_type, item_id = excluded.item_id,
    item_iid = excluded.item_iid, author_username = excluded.author_username, created_at = excluded.created_at,
    updated_at = excluded.updated_at, state = excluded.state, is_draft = excluded.is_draft,
    is_confidential = excluded.is_confidential, is_internal = excluded.is_internal,
    milestone_title = excluded.milestone_title, label_names = excluded.label_names, url = excluded.url,
    source_hash = excluded.source_hash, content_hash = excluded.content_hash, labels_hash = excluded.labels_hash,
    paths_hash = excluded.paths_hash, meta_hash = excluded.meta_hash, is_truncated = excluded.is_truncated,
    truncated_reason = excluded.truncated_reason, body_start = excluded.body_start, title = excluded.title,
    terms_text = excluded.terms_text, content_text = excluded.content_text, thread_text = excluded.thread_text";

fn stage(tx: &WriteTx<'_>, documents: &[(Option<i64>, &NewDocument<'_>)]) -> Result<()> {
    tx.sql().execute_batch(CREATE_STAGE)?;
    tx.sql().execute_batch("DELETE FROM temp.document_stage")?;
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO temp.document_stage(id, source_type, source_id, project_id, item_type, item_id, item_iid,
            author_username, created_at, updated_at, state, is_draft, is_confidential, is_internal, milestone_title,
            label_names, url, source_hash, content_hash, labels_hash, paths_hash, meta_hash, is_truncated,
            truncated_reason, body_start, title, terms_text, content_text, thread_text)
         VALUES (:id, :source_type, :source_id, :project_id, :item_type, :item_id, :item_iid, :author_username,
            :created_at, :updated_at, :state, :is_draft, :is_confidential, :is_internal, :milestone_title, :label_names,
            :url, :source_hash, :content_hash, :labels_hash, :paths_hash, :meta_hash, :is_truncated, :truncated_reason,
            :body_start, :title, :terms_text, :content_text, :thread_text)",
    )?;
    for (id, NewDocument { document, source_hash }) in documents {
        statement.execute(named_params! {
            ":id": id,
            ":source_type": document.source_type.as_str(),
            ":source_id": document.source_id,
            ":project_id": document.project_id,
            ":item_type": document.item_type.as_str(),
            ":item_id": document.item_id,
            ":item_iid": document.item_iid,
            ":author_username": document.author_username,
            ":created_at": document.created_at,
            ":updated_at": document.updated_at,
            ":state": document.state,
            ":is_draft": document.is_draft,
            ":is_confidential": document.is_confidential,
            ":is_internal": document.is_internal,
            ":milestone_title": document.milestone_title,
            ":label_names": serde_json::Value::from(document.labels.as_slice()).to_string(),
            ":url": document.url,
            ":source_hash": source_hash,
            ":content_hash": document.content_hash,
            ":labels_hash": document.labels_hash,
            ":paths_hash": document.paths_hash,
            ":meta_hash": document.meta_hash,
            ":is_truncated": document.truncated.is_some(),
            ":truncated_reason": document.truncated.map(TruncationReason::as_str),
            ":body_start": i64::try_from(document.body_start).unwrap_or(0),
            ":title": document.title,
            ":terms_text": document.terms_text,
            ":content_text": document.content_text,
            ":thread_text": document.thread_text,
        })?;
    }
    Ok(())
}

/// Writes the lists of a document that differ from what is stored.
fn write_lists(
    tx: &WriteTx<'_>,
    id: i64,
    document: &Document,
    before: Option<&StoredDocument>,
) -> Result<()> {
    let differs =
        |hash: fn(&StoredDocument) -> &str, now: &str| before.is_none_or(|stored| hash(stored) != now);
    if differs(|stored| &stored.labels_hash, &document.labels_hash) {
        replace_list(tx, "document_labels", "label_name", id, before.is_some(), &document.labels)?;
    }
    if differs(|stored| &stored.paths_hash, &document.paths_hash) {
        replace_list(tx, "document_paths", "path", id, before.is_some(), &document.paths)?;
    }
    if differs(|stored| &stored.meta_hash, &document.meta_hash) {
        replace_list(tx, "document_assignees", "username", id, before.is_some(), &document.assignees)?;
        replace_refs(tx, id, before.is_some(), &document.refs)?;
        if document.source_type != SourceType::Discussion {
            links::apply(tx, id)?;
        }
    }
    Ok(())
}

fn replace_list(
    tx: &WriteTx<'_>,
    table: &str,
    column: &str,
    id: i64,
    was_stored: bool,
    values: &[String],
) -> Result<()> {
    let wanted: BTreeSet<&str> = values.iter().map(String::as_str).collect();
    if was_stored {
        let mut statement =
            tx.sql().prepare_cached(&format!("SELECT {column} FROM {table} WHERE document_id = ?1"))?;
        let stored: BTreeSet<String> =
            statement.query_map([id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        if stored.len() == wanted.len() && stored.iter().all(|value| wanted.contains(value.as_str())) {
            return Ok(());
        }
        tx.sql().prepare_cached(&format!("DELETE FROM {table} WHERE document_id = ?1"))?.execute([id])?;
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let mut statement =
        tx.sql().prepare_cached(&format!("INSERT INTO {table}(document_id, {column}) VALUES (?1, ?2)"))?;
    for value in wanted {
        statement.execute((id, value))?;
    }
    Ok(())
}

fn replace_refs(tx: &WriteTx<'_>, id: i64, was_stored: bool, refs: &BTreeSet<Reference>) -> Result<()> {
    if was_stored {
        let mut statement = tx.sql().prepare_cached(
            "SELECT kind, target_type, target_path, target_iid FROM document_refs WHERE document_id = ?1 AND origin = 'text'",
        )?;
        let stored: BTreeSet<(String, String, String, i64)> = statement
            .query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let wanted: BTreeSet<(String, String, String, i64)> = refs
            .iter()
            .map(|Reference { kind, target }| {
                let (kind, target_type) = (kind.as_str().to_owned(), target.item_type.as_str().to_owned());
                (kind, target_type, target.project_path.clone(), target.iid)
            })
            .collect();
        if stored == wanted {
            return Ok(());
        }
        tx.sql().prepare_cached("DELETE FROM document_refs WHERE document_id = ?1")?.execute([id])?;
    }
    if refs.is_empty() {
        return Ok(());
    }
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO document_refs(document_id, kind, target_type, target_path, target_iid) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for Reference { kind, target } in refs {
        statement.execute((
            id,
            kind.as_str(),
            target.item_type.as_str(),
            &target.project_path,
            target.iid,
        ))?;
    }
    Ok(())
}

/// Deletes documents; the cascade takes their rows everywhere else along.
///
/// # Errors
/// SQLite's.
pub fn delete_documents(tx: &WriteTx<'_>, ids: &[i64]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    tx.sql()
        .prepare_cached("DELETE FROM documents WHERE id IN (SELECT value FROM json_each(?1))")?
        .execute([json_ids(ids)])?;
    fts::clear_lengths(tx, ids)
}

/// Bytes of the texts of all documents, and of the index over them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextBytes {
    /// Headers and texts.
    pub content: i64,
    /// Threads of items.
    pub threads: i64,
    /// Synthetic search terms.
    pub terms: i64,
    /// The full-text index.
    pub index: i64,
}

/// Adds up how much text there is; reads no text.
///
/// # Errors
/// SQLite's.
pub fn text_bytes(tx: &ReadTx<'_>) -> Result<TextBytes> {
    let (content, threads, terms) = tx
        .sql()
        .prepare_cached(
            "SELECT coalesce(sum(octet_length(content_text)), 0), coalesce(sum(octet_length(thread_text)), 0),
                    coalesce(sum(octet_length(terms_text)), 0) FROM documents",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let index = tx
        .sql()
        .prepare_cached("SELECT coalesce(sum(octet_length(block)), 0) FROM documents_fts_data")?
        .query_row([], |row| row.get(0))?;
    Ok(TextBytes { content, threads, terms, index })
}

#[cfg(test)]
pub(crate) mod tests;
