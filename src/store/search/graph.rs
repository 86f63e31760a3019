//! SQL of references between items, and of what else counts in a ranking.
//!
//! A reference names its target. What stands in a document that may not be seen is no
//! reference: every query here is given the documents whose references count, and those that
//! may be answered.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::{ItemKey, json_list, unknown_type};
use crate::clock::Millis;
use crate::content::filter::Bitset;
use crate::content::refs::RefKind;
use crate::content::{ItemRef, ItemType};
use crate::error::{Error, Result};
use crate::store::ReadTx;

/// Plain mentions of an item that are looked through, the newest first.
const MENTIONS: i64 = 256;

/// A reference between two items, seen from one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Document of the other item.
    pub document_id: i64,
    /// The other item.
    pub key: ItemKey,
    /// How they are related.
    pub kind: RefKind,
    /// Whether the other one refers to this one.
    pub incoming: bool,
    /// Title of the other one.
    pub title: Option<String>,
    /// The other one.
    pub item: ItemRef,
}

impl Link {
    /// How one would say it: `closes`, `closed by`, `moved to` and so on.
    pub const fn phrase(&self) -> &'static str {
        phrase(self.kind, self.incoming)
    }

    /// The same as one would say it of the other item.
    pub const fn seen_from_there(&self) -> &'static str {
        phrase(self.kind, !self.incoming)
    }
}

/// How a reference is called from its two ends.
pub const fn phrase(kind: RefKind, incoming: bool) -> &'static str {
    match (kind, incoming) {
        (RefKind::Mentions, false) => "mentions",
        (RefKind::Mentions, true) => "mentioned by",
        (RefKind::Closes, false) | (RefKind::ClosedBy, true) => "closes",
        (RefKind::Closes, true) | (RefKind::ClosedBy, false) => "closed by",
        (RefKind::Related | RefKind::RelatesTo, _) => "related to",
        (RefKind::Blocks, false) | (RefKind::IsBlockedBy, true) => "blocks",
        (RefKind::Blocks, true) | (RefKind::IsBlockedBy, false) => "blocked by",
        (RefKind::Moved, false) => "moved to",
        (RefKind::Moved, true) => "moved from",
        (RefKind::Duplicates, false) => "duplicate of",
        (RefKind::Duplicates, true) => "duplicated by",
    }
}

/// Which documents count.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Documents whose references count.
    pub visible: &'a Bitset,
    /// Documents that may be answered.
    pub allowed: &'a Bitset,
}

/// The neighbours of an item, at most `limit`: moved, duplicates, closed and related ones
/// before those that are merely mentioned, the newest first.
///
/// # Errors
/// Those of SQLite.
pub fn links(tx: &ReadTx<'_>, item: ItemKey, sight: Sight<'_>, limit: usize) -> Result<Vec<Link>> {
    let mut found = outgoing(tx.sql(), item, sight)?;
    found.extend(incoming(tx.sql(), item, sight, limit)?);
    found.sort_by_key(|(by, link)| (weight(link.kind), Reverse(*by), link.incoming));
    let mut seen = BTreeSet::new();
    found.retain(|(_, link)| seen.insert(link.document_id));
    Ok(found.into_iter().take(limit).map(|(_, link)| link).collect())
}

/// The more it says, the smaller.
const fn weight(kind: RefKind) -> u8 {
    match kind {
        RefKind::Moved => 0,
        RefKind::Duplicates => 1,
        RefKind::Closes | RefKind::ClosedBy => 2,
        RefKind::Related | RefKind::RelatesTo | RefKind::Blocks | RefKind::IsBlockedBy => 3,
        RefKind::Mentions => 4,
    }
}

fn item_type(item: ItemKey) -> ItemType {
    if item.merge_request { ItemType::MergeRequest } else { ItemType::Issue }
}

/// A link, and the document that stands for its age: the later of the two.
type Dated = (i64, Link);

fn outgoing(sql: &Connection, item: ItemKey, sight: Sight<'_>) -> Result<Vec<Dated>> {
    let mut statement = sql.prepare_cached(
        "SELECT t.id, r.kind, t.title, p.path, t.item_type, t.item_iid, t.item_id
           FROM documents AS d
          CROSS JOIN document_refs AS r ON r.document_id = d.id
          CROSS JOIN projects AS p ON p.path = r.target_path
           LEFT JOIN issues AS i ON r.target_type = 'issue' AND i.project_id = p.id AND i.iid = r.target_iid
           LEFT JOIN merge_requests AS m
                  ON r.target_type = 'merge_request' AND m.project_id = p.id AND m.iid = r.target_iid
          CROSS JOIN documents AS t ON t.source_type = r.target_type AND t.source_id = COALESCE(i.id, m.id)
          WHERE d.item_type = ?1 AND d.item_id = ?2 AND lore_allow(d.id, ?3) AND lore_allow(t.id, ?4)
            AND NOT (t.item_type = ?1 AND t.item_id = ?2)",
    )?;
    let (visible, allowed) = (sight.visible.as_bytes(), sight.allowed.as_bytes());
    let mut rows = statement.query(params![item_type(item).as_str(), item.item_id, visible, allowed])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let link = link(row, ref_kind(&row.get::<_, String>(1)?)?, false)?;
        out.push((link.document_id, link));
    }
    Ok(out)
}

/// In steps, each of them one range of an index: joined, SQLite reads whole tables for filters
/// that save nothing. The most telling references first, until they come from `limit` items:
/// what many refer to is not worth looking at all of them.
fn incoming(sql: &Connection, item: ItemKey, sight: Sight<'_>, limit: usize) -> Result<Vec<Dated>> {
    let kind = item_type(item).as_str();
    let place: Option<(String, i64)> = sql
        .prepare_cached(
            "SELECT (SELECT path FROM projects WHERE id = d.project_id), d.item_iid FROM documents AS d
              WHERE d.source_type = ?1 AND d.source_id = ?2",
        )?
        .query_row(params![kind, item.item_id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((path, iid)) = place else { return Ok(Vec::new()) };
    let mut found: Vec<(i64, RefKind)> = Vec::new();
    for query in [
        "SELECT document_id, kind FROM document_refs
          WHERE target_path = ?1 AND target_type = ?2 AND target_iid = ?3 AND kind <> 'mentions'
            AND lore_allow(document_id, ?4) ORDER BY document_id DESC LIMIT ?5",
        "SELECT document_id, kind FROM document_refs
          WHERE target_path = ?1 AND target_type = ?2 AND target_iid = ?3 AND kind = 'mentions'
            AND lore_allow(document_id, ?4) ORDER BY document_id DESC LIMIT ?5",
    ] {
        let mut statement = sql.prepare_cached(query)?;
        let values = params![path, kind, iid, sight.visible.as_bytes(), MENTIONS];
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            found.push((row.get(0)?, ref_kind(&row.get::<_, String>(1)?)?));
        }
    }
    found.sort_by_key(|(id, kind)| (weight(*kind), Reverse(*id)));
    let mut statement = sql.prepare_cached(
        "SELECT t.id, j.key, t.title, p.path, t.item_type, t.item_iid, t.item_id
           FROM json_each(?1) AS j CROSS JOIN documents AS d INDEXED BY idx_documents_key ON d.id = j.value
          CROSS JOIN documents AS t ON t.source_type = d.item_type AND t.source_id = d.item_id
          CROSS JOIN projects AS p ON p.id = t.project_id
          WHERE lore_allow(t.id, ?2) AND NOT (t.item_type = ?3 AND t.item_id = ?4)",
    )?;
    let mut out: Vec<Dated> = Vec::new();
    let mut items = BTreeSet::new();
    for part in found.chunks(limit.max(1).saturating_mul(2)) {
        let ids: Vec<i64> = part.iter().map(|(id, _)| *id).collect();
        let values = params![json_list(&ids), sight.allowed.as_bytes(), kind, item.item_id];
        let mut rows = statement.query(values)?;
        while let Some(row) = rows.next()? {
            let at = usize::try_from(row.get::<_, i64>(1)?).unwrap_or(usize::MAX);
            if let Some((by, kind)) = part.get(at) {
                let link = link(row, *kind, true)?;
                items.insert(link.document_id);
                out.push((*by, link));
            }
        }
        if items.len() >= limit {
            break;
        }
    }
    Ok(out)
}

fn ref_kind(kind: &str) -> Result<RefKind> {
    RefKind::ALL
        .into_iter()
        .find(|known| known.as_str() == kind)
        .ok_or_else(|| Error::internal(format!("a reference of the unknown kind {kind:?} is stored")))
}

fn link(row: &rusqlite::Row<'_>, kind: RefKind, incoming: bool) -> Result<Link> {
    let item_type: String = row.get(4)?;
    let item_type = ItemType::parse(&item_type).ok_or_else(|| unknown_type(&item_type))?;
    Ok(Link {
        document_id: row.get(0)?,
        key: ItemKey {
            merge_request: item_type == ItemType::MergeRequest,
            item_id: row.get(6)?,
            is_discussion: false,
        },
        kind,
        incoming,
        title: row.get(2)?,
        item: ItemRef { project_path: row.get(3)?, item_type, iid: row.get(5)? },
    })
}

/// How many other items refer to the items of documents, counted up to `most`; 0 where they
/// are fewer.
///
/// # Errors
/// Those of SQLite.
pub fn incoming_counts(
    tx: &ReadTx<'_>,
    ids: &[i64],
    visible: &Bitset,
    most: usize,
) -> Result<Vec<(i64, usize)>> {
    // References are counted first, in an index alone: fewer of them are no more items.
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id,
                CASE WHEN (SELECT count(*) FROM (
                   SELECT 1 FROM document_refs AS r
                    WHERE r.target_path = p.path AND r.target_type = d.item_type AND r.target_iid = d.item_iid
                    LIMIT ?3)) < ?3 THEN 0 ELSE
                (SELECT count(*) FROM (
                   SELECT DISTINCT s.item_type, s.item_id FROM document_refs AS r
                    CROSS JOIN documents AS s ON s.id = r.document_id
                    WHERE r.target_path = p.path AND r.target_type = d.item_type AND r.target_iid = d.item_iid
                      AND lore_allow(r.document_id, ?2)
                      AND NOT (s.item_type = d.item_type AND s.item_id = d.item_id)
                    LIMIT ?3)) END
           FROM json_each(?1) AS j CROSS JOIN documents AS d ON d.id = j.value
           JOIN projects AS p ON p.id = d.project_id ORDER BY j.key",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![json_list(ids), visible.as_bytes(), most], |row| {
        Ok((row.get(0)?, usize::try_from(row.get::<_, i64>(1)?).unwrap_or(0)))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Of documents whose item was moved: the document of the item that it became.
///
/// # Errors
/// Those of SQLite.
pub fn moved(tx: &ReadTx<'_>, ids: &[i64], sight: Sight<'_>) -> Result<Vec<(i64, i64)>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT DISTINCT d.id, t.id
           FROM json_each(?1) AS j CROSS JOIN documents AS d INDEXED BY idx_documents_key ON d.id = j.value
          CROSS JOIN documents AS own INDEXED BY sqlite_autoindex_documents_1
             ON own.source_type = d.item_type AND own.source_id = d.item_id
          CROSS JOIN document_refs AS r INDEXED BY idx_document_refs_moved
             ON r.document_id = own.id AND r.kind = 'moved' AND r.target_type = 'issue'
          CROSS JOIN projects AS p ON p.path = r.target_path
          CROSS JOIN issues AS i ON i.project_id = p.id AND i.iid = r.target_iid
          CROSS JOIN documents AS t ON t.source_type = 'issue' AND t.source_id = i.id
          WHERE lore_allow(own.id, ?2) AND lore_allow(t.id, ?3) ORDER BY j.key, t.id",
    )?;
    let values = params![json_list(ids), sight.visible.as_bytes(), sight.allowed.as_bytes()];
    let rows = statement.query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// How the items of documents are called.
///
/// # Errors
/// Those of SQLite.
pub fn names(tx: &ReadTx<'_>, ids: &[i64]) -> Result<Vec<(i64, ItemRef)>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id, p.path, d.item_type, d.item_iid
           FROM json_each(?1) AS j CROSS JOIN documents AS d ON d.id = j.value
           JOIN projects AS p ON p.id = d.project_id ORDER BY j.key",
    )?;
    let mut rows = statement.query([json_list(ids)])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let item_type: String = row.get(2)?;
        let item_type = ItemType::parse(&item_type).ok_or_else(|| unknown_type(&item_type))?;
        out.push((row.get(0)?, ItemRef { project_path: row.get(1)?, item_type, iid: row.get(3)? }));
    }
    Ok(out)
}

/// What boosts and penalties look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// State of the item.
    pub state: String,
    /// Whether it is a draft, or labelled as blocked.
    pub waits: bool,
    /// Last change.
    pub updated_at: Option<Millis>,
    /// Full path of the project.
    pub project_path: String,
}

/// What boosts and penalties look at, of documents.
///
/// # Errors
/// Those of SQLite.
pub fn facts(tx: &ReadTx<'_>, ids: &[i64]) -> Result<Vec<(i64, Facts)>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id, d.state, d.updated_at, p.path,
                d.is_draft = 1 OR EXISTS (
                  SELECT 1 FROM document_labels AS l WHERE l.document_id = d.id
                     AND (l.label_name = 'blocked' COLLATE NOCASE OR l.label_name LIKE '%::blocked'))
           FROM json_each(?1) AS j CROSS JOIN documents AS d ON d.id = j.value
           JOIN projects AS p ON p.id = d.project_id ORDER BY j.key",
    )?;
    let rows = statement.query_map([json_list(ids)], |row| {
        let facts = Facts {
            state: row.get(1)?,
            updated_at: row.get(2)?,
            project_path: row.get(3)?,
            waits: row.get(4)?,
        };
        Ok((row.get(0)?, facts))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Title, text and threads of documents, for looking at them letter by letter.
///
/// # Errors
/// Those of SQLite.
pub fn texts(tx: &ReadTx<'_>, ids: &[i64], mut look: impl FnMut(i64, [&str; 3])) -> Result<()> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id, COALESCE(d.title, ''), d.content_text, d.thread_text
           FROM json_each(?1) AS j CROSS JOIN documents AS d ON d.id = j.value ORDER BY j.key",
    )?;
    let mut rows = statement.query([json_list(ids)])?;
    while let Some(row) = rows.next()? {
        let text = |at: usize| -> Result<&str> {
            row.get_ref(at)?
                .as_str()
                .map_err(|error| Error::internal("a text is stored as something else").because(error))
        };
        look(row.get(0)?, [text(1)?, text(2)?, text(3)?]);
    }
    Ok(())
}
