//! Nearest neighbours: which documents' passages are nearest to a query's vector, among
//! those that a filter allows.
//!
//! Three ways to one answer. A filter that leaves few documents: the exact distances of all
//! their passages. Otherwise one pass over the bit codes, the filter applied inside the
//! pass, and exact distances of the nearest codes. The pass reads the blobs in which
//! sqlite-vec keeps the codes; when these do not look as expected (another version), its own
//! search is asked instead, slower and with the same answer.

pub mod half;
pub mod hamming;
mod select;

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};

use super::ReadTx;
use super::embeddings::{Identity, codes_table, size};
use crate::error::{Error, ErrorKind, Result};
use hamming::Kernel;
use select::{Candidate, Nearest};

/// Version of sqlite-vec whose blobs are read.
const KNOWN_VERSION: &str = "v0.1.9";

/// Allowed documents up to which every passage is compared exactly.
const FEW_DOCUMENTS: usize = 200;

/// Candidates below which an answer may miss a neighbour among 100,000 real vectors.
const MIN_CANDIDATES: usize = 500;

/// How many times as many codes as candidates are looked at more closely.
const WIDER: usize = 4;

/// Documents that one search returns at most.
pub const MAX_LIMIT: usize = 10_000;

/// Passages that stand for all others.
const BACKGROUND: i64 = 256;

/// Greatest `k` that sqlite-vec accepts.
const VEC0_MAX_K: usize = 4_096;

/// A search.
#[derive(Debug, Clone, Copy)]
pub struct NearestQuery<'a> {
    /// Whose vectors are searched.
    pub identity: &'a Identity,
    /// The query's vector, of unit length.
    pub vector: &'a [f32],
    /// Documents that may be returned, id `n` as bit `n % 8` of byte `n / 8`; absent: all.
    pub allowed: Option<&'a [u8]>,
    /// Documents to return, at most [`MAX_LIMIT`].
    pub limit: usize,
}

/// A document that was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VectorHit {
    /// The document.
    pub document_id: i64,
    /// Its nearest passage.
    pub chunk_id: i64,
    /// Cosine of the two vectors, -1 to 1.
    pub similarity: f64,
}

/// How an answer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Every passage of the allowed documents was compared.
    Exact,
    /// The codes were scanned, the nearest compared.
    Scan,
    /// sqlite-vec scanned the codes, the nearest were compared.
    Fallback,
}

/// The answer to a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbours {
    /// Nearest first; equally near ones by document id. A document is there once.
    pub hits: Vec<VectorHit>,
    /// How they were found.
    pub way: Way,
    /// Passages that were compared exactly.
    pub compared: usize,
}

/// Finds the documents nearest to a vector.
///
/// # Errors
/// [`ErrorKind::EmbeddingFailed`] when the vector has not the identity's length or is not a
/// direction, and SQLite's.
pub fn nearest(tx: &ReadTx<'_>, query: &NearestQuery<'_>) -> Result<Neighbours> {
    check(query)?;
    let limit = query.limit.min(MAX_LIMIT);
    let allowed = query.allowed.map(few_ids);
    if limit == 0 || matches!(&allowed, Some(Few::All(ids)) if ids.is_empty()) {
        return Ok(Neighbours { hits: Vec::new(), way: Way::Exact, compared: 0 });
    }
    if let Some(Few::All(ids)) = allowed {
        let compared = compare_documents(tx, query, &ids)?;
        let n = compared.len();
        return Ok(Neighbours { hits: collapse(compared, limit), way: Way::Exact, compared: n });
    }
    let mut wanted = candidates_for(code_count(tx, query.identity)?, limit);
    loop {
        let (candidates, way) = match scan(tx, query, wanted)? {
            Some(candidates) => (candidates, Way::Scan),
            None => (ask_sqlite_vec(tx, query, wanted)?, Way::Fallback),
        };
        let n = candidates.len();
        let hits = collapse(compare(tx, query, candidates)?, limit);
        // Many near passages of few documents: look deeper, a filter must not lose documents.
        let is_all = n < wanted || (way == Way::Fallback && wanted >= VEC0_MAX_K);
        if hits.len() >= limit || is_all {
            return Ok(Neighbours { hits, way, compared: n });
        }
        wanted *= 4;
    }
}

fn check(query: &NearestQuery<'_>) -> Result<()> {
    let (got, wanted) = (query.vector.len(), query.identity.dims);
    if got != wanted {
        return Err(Error::new(
            ErrorKind::EmbeddingFailed,
            format!("the query's vector has {got} dimensions, the index has {wanted}"),
        )
        .hint("the embedding model changed: `lore embed` builds the index for it"));
    }
    let norm: f32 = query.vector.iter().map(|value| value * value).sum();
    if norm.is_finite() && norm > 0.0 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::EmbeddingFailed,
        "the query's vector is zero or holds values that are no numbers",
    ))
}

/// Candidates to compare exactly: more when there are more codes, and enough for documents
/// with several passages each.
fn candidates_for(codes: usize, limit: usize) -> usize {
    (MIN_CANDIDATES + codes / 2_000).min(4 * MIN_CANDIDATES).max(3 * limit)
}

/// The ids of a set, when they are few.
enum Few {
    All(Vec<i64>),
    TooMany,
}

fn few_ids(set: &[u8]) -> Few {
    let mut ids = Vec::new();
    for (base, byte) in (0_i64..).step_by(8).zip(set) {
        let mut rest = *byte;
        while rest != 0 {
            if ids.len() == FEW_DOCUMENTS {
                return Few::TooMany;
            }
            ids.push(base + i64::from(rest.trailing_zeros()));
            rest &= rest - 1;
        }
    }
    Few::All(ids)
}

fn contains(set: &[u8], id: i64) -> bool {
    usize::try_from(id).is_ok_and(|id| set.get(id / 8).is_some_and(|byte| byte >> (id % 8) & 1 == 1))
}

/// Places for codes in the blocks of an identity: an upper bound of their number.
fn code_count(tx: &ReadTx<'_>, identity: &Identity) -> Result<usize> {
    let blocks: Option<usize> = tx
        .sql()
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")?
        .query_row([format!("{}_chunks", codes_table(identity.id))], |row| size(row, 0))
        .optional()?;
    Ok(blocks.unwrap_or(0) * 1024)
}

/// Scans the codes for candidates. Returns nothing when the blobs are not laid out as they
/// are known to be.
fn scan(tx: &ReadTx<'_>, query: &NearestQuery<'_>, wanted: usize) -> Result<Option<Vec<Candidate>>> {
    let Some((candidates, codes)) = nearest_codes(tx, query, wanted.saturating_mul(WIDER))? else {
        return Ok(None);
    };
    if candidates.len() <= wanted {
        return Ok(Some(candidates));
    }
    // Reading a vector costs most: of the nearest codes only the most promising are read.
    let estimate = hamming::Estimate::new(query.vector);
    let bytes = hamming::code_bytes(query.vector.len());
    let mut ranked: Vec<(f32, Candidate)> = candidates
        .into_iter()
        .map(|it| (estimate.of(codes.get(it.slot * bytes..).unwrap_or_default()), it))
        .collect();
    ranked.select_nth_unstable_by(wanted, |a, b| b.0.total_cmp(&a.0).then(a.1.chunk_id.cmp(&b.1.chunk_id)));
    ranked.truncate(wanted);
    Ok(Some(ranked.into_iter().map(|(_, candidate)| candidate).collect()))
}

/// The nearest codes, and the codes that were put aside on the way.
type NearestCodes = (Vec<Candidate>, Vec<u8>);

fn nearest_codes(tx: &ReadTx<'_>, query: &NearestQuery<'_>, wanted: usize) -> Result<Option<NearestCodes>> {
    let table = codes_table(query.identity.id);
    if !is_known_layout(tx, &table)? {
        return Ok(None);
    }
    let code = hamming::code(query.vector);
    let words = hamming::words(&code);
    let kernel = Kernel::best();
    let mut nearest = Nearest::new(wanted, code.len() * 8);
    let mut statement = tx.sql().prepare_cached(&format!(
        "SELECT c.size, c.validity, c.rowids, m.data, v.vectors
           FROM {table}_chunks c CROSS JOIN {table}_metadatachunks00 m ON m._rowid_ = c.chunk_id
           CROSS JOIN {table}_vector_chunks00 v ON v._rowid_ = c.chunk_id"
    ))?;
    let mut rows = statement.query([])?;
    let mut distances = Vec::new();
    let mut aside: Vec<u8> = Vec::new();
    while let Some(row) = rows.next()? {
        let size = size(row, 0)?;
        let blob = |idx| -> Result<&[u8]> { Ok(row.get_ref(idx)?.as_blob().unwrap_or_default()) };
        let (validity, rowids, documents, codes) = (blob(1)?, blob(2)?, blob(3)?, blob(4)?);
        let fits = validity.len() * 8 == size
            && rowids.len() == size * 8
            && documents.len() == size * 8
            && codes.len() == size * code.len();
        if !fits {
            return Ok(None);
        }
        distances.resize(size, 0);
        kernel.distances(&words, codes, &mut distances);
        let (rowids, _) = rowids.as_chunks::<8>();
        let (documents, _) = documents.as_chunks::<8>();
        for (idx, distance) in distances.iter().enumerate() {
            if *distance > nearest.threshold() {
                continue;
            }
            let is_valid = validity.get(idx / 8).is_some_and(|byte| byte >> (idx % 8) & 1 == 1);
            let (Some(rowid), Some(document)) = (rowids.get(idx), documents.get(idx)) else { continue };
            let document_id = i64::from_le_bytes(*document);
            if !is_valid || query.allowed.is_some_and(|allowed| !contains(allowed, document_id)) {
                continue;
            }
            let at = idx * code.len();
            let slot = aside.len() / code.len();
            aside.extend_from_slice(codes.get(at..at + code.len()).unwrap_or_default());
            nearest.add(Candidate {
                distance: *distance,
                chunk_id: i64::from_le_bytes(*rowid),
                document_id,
                slot,
            });
        }
        nearest.tighten();
    }
    Ok(Some((nearest.finish(), aside)))
}

/// Whether the blobs are those of the sqlite-vec that is linked, and that one is known.
fn is_known_layout(tx: &ReadTx<'_>, table: &str) -> Result<bool> {
    let (linked, made): (String, Option<String>) = tx
        .sql()
        .prepare_cached(&format!(
            "SELECT vec_version(), (SELECT value FROM {table}_info WHERE key = 'CREATE_VERSION')"
        ))?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(linked == KNOWN_VERSION && made.as_deref() == Some(KNOWN_VERSION))
}

/// Asks sqlite-vec for the nearest codes, the filter inside its search.
fn ask_sqlite_vec(tx: &ReadTx<'_>, query: &NearestQuery<'_>, wanted: usize) -> Result<Vec<Candidate>> {
    let table = codes_table(query.identity.id);
    let code = hamming::code(query.vector);
    let k = i64::try_from(wanted.min(VEC0_MAX_K)).unwrap_or(1);
    let filter = query.allowed.map(|set| {
        let ids: Vec<String> = (0_i64..)
            .step_by(8)
            .zip(set)
            .flat_map(|(base, byte)| {
                (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| base + bit)
            })
            .map(|id| id.to_string())
            .collect();
        format!("[{}]", ids.join(","))
    });
    let condition = if filter.is_some() {
        "AND document_id IN (SELECT value FROM json_each(?3))"
    } else {
        "AND ?3 IS NULL"
    };
    let mut statement = tx.sql().prepare_cached(&format!(
        "SELECT distance, chunk_id, document_id FROM {table} WHERE code MATCH vec_bit(?1) AND k = ?2 {condition}"
    ))?;
    let rows = statement.query_map(params![code, k, filter], |row| {
        let distance: f64 = row.get(0)?;
        Ok(Candidate { distance: distance as u16, chunk_id: row.get(1)?, document_id: row.get(2)?, slot: 0 })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How near passages are to a vector that have nothing to do with it: the mean over the
/// first ones of the index. Models differ: with some every cosine is above one half.
///
/// # Errors
/// SQLite's.
pub fn background(tx: &ReadTx<'_>, identity: &Identity, vector: &[f32]) -> Result<f64> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT v.vector FROM chunks c CROSS JOIN chunk_vectors v ON v.chunk_id = c.id
          WHERE c.identity_id = ?1 ORDER BY c.id LIMIT ?2",
    )?;
    let mut rows = statement.query((identity.id, BACKGROUND))?;
    let (mut sum, mut n) = (0.0, 0.0);
    while let Some(row) = rows.next()? {
        sum += f64::from(half::dot(vector, row.get_ref(0)?.as_blob().unwrap_or_default()));
        n += 1.0;
    }
    Ok(if n > 0.0 { (sum / n).clamp(0.0, 0.95) } else { 0.0 })
}

/// The first vectors of a document: its title's, then those of its passages.
///
/// # Errors
/// SQLite's.
pub fn vectors_of(
    tx: &ReadTx<'_>,
    identity: &Identity,
    document_id: i64,
    limit: i64,
) -> Result<Vec<Vec<f32>>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT v.vector FROM chunks c CROSS JOIN chunk_vectors v ON v.chunk_id = c.id
          WHERE c.document_id = ?1 AND c.identity_id = ?2 ORDER BY c.ordinal LIMIT ?3",
    )?;
    let rows = statement.query_map((document_id, identity.id, limit), |row| row.get::<_, Vec<u8>>(0))?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.iter().map(|bytes| half::decode(bytes)).collect())
}

/// Cosines of a vector and some passages; nothing for a passage that is gone.
///
/// # Errors
/// SQLite's.
pub fn similarities(tx: &ReadTx<'_>, vector: &[f32], chunk_ids: &[i64]) -> Result<Vec<Option<f64>>> {
    let mut statement = tx.sql().prepare_cached("SELECT vector FROM chunk_vectors WHERE chunk_id = ?1")?;
    let mut found = Vec::with_capacity(chunk_ids.len());
    for chunk_id in chunk_ids {
        let mut rows = statement.query([chunk_id])?;
        found.push(match rows.next()? {
            Some(row) => Some(f64::from(half::dot(vector, row.get_ref(0)?.as_blob().unwrap_or_default()))),
            None => None,
        });
    }
    Ok(found)
}

/// Exact similarities of candidates.
fn compare(
    tx: &ReadTx<'_>,
    query: &NearestQuery<'_>,
    mut candidates: Vec<Candidate>,
) -> Result<Vec<VectorHit>> {
    // In the order of the table: neighbours share pages.
    candidates.sort_unstable_by_key(|candidate| candidate.chunk_id);
    let mut statement = tx.sql().prepare_cached("SELECT vector FROM chunk_vectors WHERE chunk_id = ?1")?;
    let mut hits = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let mut rows = statement.query([candidate.chunk_id])?;
        let Some(row) = rows.next()? else { continue };
        let similarity = similarity(query, row.get_ref(0)?.as_blob().unwrap_or_default());
        hits.push(VectorHit { document_id: candidate.document_id, chunk_id: candidate.chunk_id, similarity });
    }
    Ok(hits)
}

/// Exact similarities of every passage of some documents.
fn compare_documents(tx: &ReadTx<'_>, query: &NearestQuery<'_>, ids: &[i64]) -> Result<Vec<VectorHit>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT c.id, v.vector FROM chunks c CROSS JOIN chunk_vectors v ON v.chunk_id = c.id
          WHERE c.document_id = ?1 AND c.identity_id = ?2",
    )?;
    let mut hits = Vec::new();
    for document_id in ids {
        let mut rows = statement.query((document_id, query.identity.id))?;
        while let Some(row) = rows.next()? {
            let similarity = similarity(query, row.get_ref(1)?.as_blob().unwrap_or_default());
            hits.push(VectorHit { document_id: *document_id, chunk_id: row.get(0)?, similarity });
        }
    }
    Ok(hits)
}

fn similarity(query: &NearestQuery<'_>, encoded: &[u8]) -> f64 {
    f64::from(half::dot(query.vector, encoded)).clamp(-1.0, 1.0)
}

/// Keeps the nearest passage of each document, and the nearest documents.
fn collapse(hits: Vec<VectorHit>, limit: usize) -> Vec<VectorHit> {
    let mut best: BTreeMap<i64, VectorHit> = BTreeMap::new();
    for hit in hits {
        let seen = best.entry(hit.document_id).or_insert(hit);
        if (hit.similarity, -hit.chunk_id) > (seen.similarity, -seen.chunk_id) {
            *seen = hit;
        }
    }
    let mut hits: Vec<VectorHit> = best.into_values().collect();
    hits.sort_by(|a, b| b.similarity.total_cmp(&a.similarity).then(a.document_id.cmp(&b.document_id)));
    hits.truncate(limit);
    hits
}

#[cfg(test)]
mod tests;
