//! SQL of documents as they are embedded: which, from what, and the result.

use std::collections::BTreeSet;

use rusqlite::{OptionalExtension, named_params};
use serde::Serialize;

use super::{Identity, codes_table, number, size};
use crate::backoff::{self, QUEUE};
use crate::clock::Millis;
use crate::error::{Error, Result};
use crate::store::knn::{half, hamming};
use crate::store::queues::MAX_ATTEMPTS;
use crate::store::{ReadTx, WriteTx};

/// Longest error text that is kept with a chunk, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// SHA-256 of the text of a chunk, cut to 16 bytes.
pub type ChunkHash = [u8; 16];

/// A document that is to be embedded, with what is known of it.
#[derive(Debug, Clone)]
pub struct ToEmbed {
    /// The document.
    pub document_id: i64,
    /// Hash of the text that was read.
    pub content_hash: String,
    /// Its own title; discussions have none.
    pub title: Option<String>,
    /// Title of the item it is, or is a discussion of.
    pub heading: Option<String>,
    /// The whole text, header included.
    pub content_text: String,
    /// Characters of the header.
    pub body_start: usize,
    /// Its chunks as they are stored now.
    pub known: Vec<KnownChunk>,
}

/// A chunk that is stored already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownChunk {
    /// Its id.
    pub id: i64,
    /// Hash of its text.
    pub hash: ChunkHash,
    /// Failures so far; 0: it has its vector.
    pub attempt_count: i64,
    /// Whether a failed one may be tried now.
    pub is_ready: bool,
}

/// What became of a chunk.
#[derive(Debug, Clone)]
pub enum ChunkVector {
    /// It is stored already, with the same text.
    Keep(i64),
    /// Its vector, of unit length.
    New(Vec<f32>),
    /// It could not be embedded.
    Failed {
        /// Why.
        error: String,
        /// Failures of the same text before.
        earlier: i64,
    },
}

/// A chunk as it is to be stored.
#[derive(Debug, Clone)]
pub struct NewChunk {
    /// Hash of its text.
    pub hash: ChunkHash,
    /// Whether it is the title alone.
    pub is_title: bool,
    /// Where it begins in the document's text, in characters.
    pub char_start: usize,
    /// Where it ends.
    pub char_end: usize,
    /// Its vector, or why there is none.
    pub vector: ChunkVector,
}

/// What became of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Its chunks are those given.
    Stored,
    /// Its text changed meanwhile; nothing was written, it is still pending.
    Changed,
    /// It was deleted meanwhile.
    Gone,
}

/// Ids of the documents that have to be embedded for an identity: new ones, those whose
/// text changed, and those with a failed chunk that may be tried again. In order.
///
/// # Errors
/// SQLite's.
pub fn pending(tx: &ReadTx<'_>, identity_id: i64, now: Millis) -> Result<Vec<i64>> {
    // The small indexes are read; the documents themselves are wide.
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id FROM documents d
          WHERE NOT EXISTS (SELECT 1 FROM chunked_documents c
                             WHERE c.document_id = d.id AND c.identity_id = ?1 AND c.is_stale = 0)
         UNION
         SELECT document_id FROM chunks
          WHERE identity_id = ?1 AND last_error IS NOT NULL AND quarantined_at IS NULL
            AND (next_attempt_at IS NULL OR next_attempt_at <= ?2)
          ORDER BY 1",
    )?;
    let rows = statement.query_map((identity_id, now), |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Lets every failed chunk be tried now, quarantined ones too. Returns how many.
///
/// # Errors
/// SQLite's.
pub fn retry_failed(tx: &WriteTx<'_>) -> Result<usize> {
    Ok(tx
        .sql()
        .prepare_cached(
            "UPDATE chunks SET next_attempt_at = NULL, quarantined_at = NULL WHERE last_error IS NOT NULL",
        )?
        .execute([])?)
}

/// Reads a document and its chunks.
///
/// # Errors
/// SQLite's.
pub fn read_document(
    tx: &ReadTx<'_>,
    identity_id: i64,
    document_id: i64,
    now: Millis,
) -> Result<Option<ToEmbed>> {
    let found = tx
        .sql()
        .prepare_cached(
            "SELECT d.content_hash, d.title, d.content_text, d.body_start,
                    CASE d.item_type WHEN 'issue' THEN (SELECT i.title FROM issues i WHERE i.id = d.item_id)
                                     ELSE (SELECT m.title FROM merge_requests m WHERE m.id = d.item_id) END
               FROM documents d WHERE d.id = ?1",
        )?
        .query_row([document_id], |row| {
            let title: Option<String> = row.get(1)?;
            let of_item: Option<String> = row.get(4)?;
            Ok(ToEmbed {
                document_id,
                content_hash: row.get(0)?,
                heading: title.clone().or(of_item),
                title,
                content_text: row.get(2)?,
                body_start: size(row, 3)?,
                known: Vec::new(),
            })
        })
        .optional()?;
    let Some(mut document) = found else { return Ok(None) };
    let mut statement = tx.sql().prepare_cached(
        "SELECT id, content_hash, attempt_count,
                quarantined_at IS NULL AND (next_attempt_at IS NULL OR next_attempt_at <= ?3)
           FROM chunks WHERE document_id = ?1 AND identity_id = ?2 ORDER BY ordinal",
    )?;
    let known = statement.query_map((document_id, identity_id, now), |row| {
        Ok(KnownChunk {
            id: row.get(0)?,
            hash: row.get(1)?,
            attempt_count: row.get(2)?,
            is_ready: row.get(3)?,
        })
    })?;
    document.known = known.collect::<rusqlite::Result<_>>()?;
    Ok(Some(document))
}

/// Stores the chunks of a document in place of those it had, provided its text is still
/// the one that was read.
///
/// # Errors
/// SQLite's, and a vector of another length than the identity's.
pub fn write_document(
    tx: &WriteTx<'_>,
    identity: &Identity,
    (document_id, content_hash): (i64, &str),
    chunks: &[NewChunk],
    is_truncated: bool,
    now: Millis,
) -> Result<Written> {
    let sql = tx.sql();
    let current: Option<String> = sql
        .prepare_cached("SELECT content_hash FROM documents WHERE id = ?1")?
        .query_row([document_id], |row| row.get(0))
        .optional()?;
    match current {
        None => return Ok(Written::Gone),
        Some(current) if current != content_hash => return Ok(Written::Changed),
        Some(_) => {}
    }
    let keep: BTreeSet<i64> = chunks
        .iter()
        .filter_map(|chunk| match chunk.vector {
            ChunkVector::Keep(id) => Some(id),
            ChunkVector::New(_) | ChunkVector::Failed { .. } => None,
        })
        .collect();
    if !make_room(tx, identity.id, document_id, &keep)? {
        return Ok(Written::Changed);
    }
    for (ordinal, chunk) in (0_i64..).zip(chunks) {
        write_chunk(tx, identity, document_id, ordinal, chunk, now)?;
    }
    sql.prepare_cached(
        "INSERT INTO chunked_documents(document_id, identity_id, content_hash, chunk_count, is_truncated, embedded_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT(document_id, identity_id) DO UPDATE SET content_hash = excluded.content_hash,
           chunk_count = excluded.chunk_count, is_truncated = excluded.is_truncated, is_stale = 0,
           embedded_at = excluded.embedded_at",
    )?
    .execute((document_id, identity.id, content_hash, number(chunks.len()), is_truncated, now))?;
    Ok(Written::Stored)
}

/// Deletes the document's chunks but those to keep, and moves these out of the way.
/// Returns false when one to keep is gone.
fn make_room(tx: &WriteTx<'_>, identity_id: i64, document_id: i64, keep: &BTreeSet<i64>) -> Result<bool> {
    let mut statement =
        tx.sql().prepare_cached("SELECT id FROM chunks WHERE document_id = ?1 AND identity_id = ?2")?;
    let present: BTreeSet<i64> = statement
        .query_map((document_id, identity_id), |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    if !keep.is_subset(&present) {
        return Ok(false);
    }
    for id in present.difference(keep) {
        tx.sql().prepare_cached("DELETE FROM chunks WHERE id = ?1")?.execute([id])?;
    }
    if !keep.is_empty() {
        tx.sql()
            .prepare_cached("UPDATE chunks SET ordinal = -1 - ordinal WHERE document_id = ?1 AND identity_id = ?2 AND ordinal >= 0")?
            .execute((document_id, identity_id))?;
    }
    Ok(true)
}

fn write_chunk(
    tx: &WriteTx<'_>,
    identity: &Identity,
    document_id: i64,
    ordinal: i64,
    chunk: &NewChunk,
    now: Millis,
) -> Result<()> {
    let sql = tx.sql();
    let failure = match &chunk.vector {
        ChunkVector::Keep(id) => {
            sql.prepare_cached(
                "UPDATE chunks SET ordinal = ?2, char_start = ?3, char_end = ?4, is_title = ?5 WHERE id = ?1",
            )?
            .execute((
                id,
                ordinal,
                number(chunk.char_start),
                number(chunk.char_end),
                chunk.is_title,
            ))?;
            return Ok(());
        }
        ChunkVector::New(_) => None,
        ChunkVector::Failed { error, earlier } => Some((error, earlier + 1)),
    };
    let attempts = failure.map_or(0, |(_, attempts)| attempts);
    let error: Option<String> = failure.map(|(error, _)| error.chars().take(MAX_ERROR_CHARS).collect());
    let next = failure
        .map(|_| QUEUE.next_attempt_at(now, u32::try_from(attempts).unwrap_or(u32::MAX), backoff::random()));
    sql.prepare_cached(
        "INSERT INTO chunks(document_id, identity_id, ordinal, is_title, char_start, char_end, content_hash,
                            attempt_count, last_attempt_at, last_error, next_attempt_at, quarantined_at)
         VALUES (:document, :identity, :ordinal, :is_title, :start, :end, :hash, :attempts, :now, :error, :next, :quarantined)",
    )?
    .execute(named_params! {
        ":document": document_id, ":identity": identity.id, ":ordinal": ordinal, ":is_title": chunk.is_title,
        ":start": number(chunk.char_start), ":end": number(chunk.char_end), ":hash": chunk.hash, ":attempts": attempts,
        ":now": now, ":error": error, ":next": next,
        ":quarantined": (attempts >= MAX_ATTEMPTS).then_some(now),
    })?;
    if let ChunkVector::New(vector) = &chunk.vector {
        if vector.len() != identity.dims {
            return Err(Error::internal(format!(
                "a vector of {} dimensions was to be stored among those of {}",
                vector.len(),
                identity.dims
            )));
        }
        let chunk_id = sql.last_insert_rowid();
        sql.prepare_cached("INSERT INTO chunk_vectors(chunk_id, vector) VALUES (?1, ?2)")?
            .execute((chunk_id, half::encode(vector)))?;
        insert_code(tx, identity.id, chunk_id, document_id, &hamming::code(vector))?;
    }
    Ok(())
}

/// Adds a code. The table takes no REPLACE and no UPSERT; ids are never reused, so that a
/// code is only ever inserted and deleted.
pub(super) fn insert_code(
    tx: &WriteTx<'_>,
    identity_id: i64,
    chunk_id: i64,
    document_id: i64,
    code: &[u8],
) -> Result<()> {
    let table = codes_table(identity_id);
    tx.sql()
        .prepare_cached(&format!(
            "INSERT INTO {table}(chunk_id, document_id, code) VALUES (?1, ?2, vec_bit(?3))"
        ))?
        .execute((chunk_id, document_id, code))?;
    Ok(())
}

/// Where a passage stands in its document's text, in characters; nothing for a title.
///
/// # Errors
/// SQLite's.
pub fn chunk_span(tx: &ReadTx<'_>, chunk_id: i64) -> Result<Option<(usize, usize)>> {
    Ok(tx
        .sql()
        .prepare_cached("SELECT char_start, char_end FROM chunks WHERE id = ?1 AND is_title = 0")?
        .query_row([chunk_id], |row| Ok((size(row, 0)?, size(row, 1)?)))
        .optional()?)
}

/// A passage that could not be embedded, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailingChunk {
    /// Its document.
    pub document_id: i64,
    /// Its place in the document.
    pub ordinal: i64,
    /// Failures so far.
    pub attempt_count: i64,
    /// What the service said last.
    pub error: String,
    /// When it is tried again.
    pub next_attempt_at: Option<Millis>,
    /// Whether it is left alone.
    pub quarantined: bool,
}

/// Returns passages that could not be embedded for what is in use, most failures first.
///
/// # Errors
/// SQLite's.
pub fn failing(tx: &ReadTx<'_>, limit: i64) -> Result<Vec<FailingChunk>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT c.document_id, c.ordinal, c.attempt_count, c.last_error, c.next_attempt_at, c.quarantined_at IS NOT NULL
           FROM chunks c JOIN embedding_identities i ON i.id = c.identity_id AND i.state <> 'retired'
          WHERE c.last_error IS NOT NULL ORDER BY c.attempt_count DESC, c.document_id, c.ordinal LIMIT ?1",
    )?;
    let rows = statement.query_map([limit], |row| {
        Ok(FailingChunk {
            document_id: row.get(0)?,
            ordinal: row.get(1)?,
            attempt_count: row.get(2)?,
            error: row.get(3)?,
            next_attempt_at: row.get(4)?,
            quarantined: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
