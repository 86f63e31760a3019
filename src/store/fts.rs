//! SQL of the full-text index: document lengths, merging, rebuilding.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};

use super::rank::COLUMNS;
use super::sources::json_ids;
use super::{ReadTx, WriteTx, open};
use crate::error::{Error, Result};

/// Documents of one row of `document_lengths`.
pub const LENGTHS_PER_BLOCK: i64 = 1024;

/// Bytes of one document in `document_lengths`: two a column.
const LENGTH_BYTES: usize = 2 * COLUMNS;

/// Bytes of one row of `document_lengths`.
const BLOCK_BYTES: usize = 1024 * LENGTH_BYTES;

/// Tokens of a document in each column, saturating.
type Tokens = [u16; COLUMNS];

/// Stores the token counts of documents that were just written.
///
/// # Errors
/// SQLite's.
pub fn update_lengths(tx: &WriteTx<'_>, ids: &[i64]) -> Result<()> {
    let mut lengths: BTreeMap<i64, Tokens> = ids.iter().map(|id| (*id, Tokens::default())).collect();
    let mut statement = tx.sql().prepare_cached(
        "SELECT s.id, s.sz FROM json_each(?1) j CROSS JOIN documents_fts_docsize s ON s.id = j.value",
    )?;
    let mut rows = statement.query([json_ids(ids)])?;
    while let Some(row) = rows.next()? {
        let size = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        lengths.insert(row.get(0)?, tokens(size));
    }
    patch_lengths(tx, &lengths)
}

/// Forgets the token counts of documents that were just deleted. Ids are never reused, so
/// that a count which is left behind by a cascade harms nobody.
///
/// # Errors
/// SQLite's.
pub fn clear_lengths(tx: &WriteTx<'_>, ids: &[i64]) -> Result<()> {
    patch_lengths(tx, &ids.iter().map(|id| (*id, Tokens::default())).collect())
}

/// Makes all token counts anew.
///
/// # Errors
/// SQLite's.
pub fn rebuild_lengths(tx: &WriteTx<'_>) -> Result<()> {
    fill_lengths(tx.sql())
}

/// As [`rebuild_lengths`], while the schema is brought up to date.
///
/// # Errors
/// SQLite's.
pub(super) fn fill_lengths(sql: &Connection) -> Result<()> {
    sql.execute("DELETE FROM document_lengths", [])?;
    let mut statement = sql.prepare("SELECT id, sz FROM documents_fts_docsize ORDER BY id")?;
    let mut rows = statement.query([])?;
    let mut current: Option<(i64, Vec<u8>)> = None;
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        let block = id / LENGTHS_PER_BLOCK;
        if current.as_ref().is_none_or(|(open, _)| *open != block)
            && let Some((done, bytes)) = current.replace((block, vec![0; BLOCK_BYTES]))
        {
            write_block(sql, done, &bytes)?;
        }
        if let Some((_, bytes)) = &mut current {
            set_length(bytes, id, tokens(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?));
        }
    }
    if let Some((done, bytes)) = current {
        write_block(sql, done, &bytes)?;
    }
    Ok(())
}

fn patch_lengths(tx: &WriteTx<'_>, lengths: &BTreeMap<i64, Tokens>) -> Result<()> {
    let mut blocks: BTreeMap<i64, Vec<(i64, Tokens)>> = BTreeMap::new();
    for (id, length) in lengths {
        blocks.entry(id / LENGTHS_PER_BLOCK).or_default().push((*id, *length));
    }
    for (block, patches) in blocks {
        let stored: Option<Vec<u8>> = tx
            .sql()
            .prepare_cached("SELECT lengths FROM document_lengths WHERE block = ?1")?
            .query_row([block], |row| row.get(0))
            .optional()?;
        let mut bytes = stored.unwrap_or_default();
        bytes.resize(BLOCK_BYTES, 0);
        for (id, length) in patches {
            set_length(&mut bytes, id, length);
        }
        write_block(tx.sql(), block, &bytes)?;
    }
    Ok(())
}

fn set_length(block: &mut [u8], id: i64, length: Tokens) {
    let at = usize::try_from(id % LENGTHS_PER_BLOCK).unwrap_or(0) * LENGTH_BYTES;
    if let Some(place) = block.get_mut(at..at + LENGTH_BYTES) {
        for (byte, value) in place.iter_mut().zip(length.into_iter().flat_map(u16::to_le_bytes)) {
            *byte = value;
        }
    }
}

fn write_block(sql: &Connection, block: i64, bytes: &[u8]) -> Result<()> {
    sql.prepare_cached(
        "INSERT INTO document_lengths(block, lengths) VALUES (?1, ?2)
         ON CONFLICT(block) DO UPDATE SET lengths = excluded.lengths",
    )?
    .execute((block, bytes))?;
    Ok(())
}

/// The token counts of the columns: FTS5 stores one SQLite varint for each.
fn tokens(size: &[u8]) -> Tokens {
    let mut rest = size;
    let mut tokens = Tokens::default();
    for column in &mut tokens {
        let Some((count, read)) = varint(rest) else { break };
        *column = u16::try_from(count).unwrap_or(u16::MAX);
        rest = rest.get(read..).unwrap_or_default();
    }
    tokens
}

/// Reads one SQLite varint: seven bits a byte, the highest first, eight in a ninth byte.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        if index == 8 {
            return Some(((value << 8) | u64::from(*byte), 9));
        }
        value = (value << 7) | u64::from(byte & 0x7F);
        if byte & 0x80 == 0 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Returns the number of segments that the index is spread over.
///
/// # Errors
/// SQLite's, or when the index's structure record is unreadable.
pub fn segments(tx: &ReadTx<'_>) -> Result<i64> {
    let record: Option<Vec<u8>> = tx
        .sql()
        .prepare_cached("SELECT block FROM documents_fts_data WHERE id = 10")?
        .query_row([], |row| row.get(0))
        .optional()?;
    let Some(record) = record else { return Ok(0) };
    segment_count(&record)
        .ok_or_else(|| Error::internal("the full-text index has an unreadable structure record"))
}

/// Parses the structure record: a cookie of four bytes, a mark of the second version, the
/// number of levels, the number of segments.
fn segment_count(record: &[u8]) -> Option<i64> {
    const VERSION_2: &[u8] = &[0xFF, 0, 0, 1];
    let rest = record.get(4..)?;
    let rest = rest.strip_prefix(VERSION_2).unwrap_or(rest);
    let (_levels, read) = varint(rest)?;
    let (segments, _) = varint(rest.get(read..)?)?;
    i64::try_from(segments).ok()
}

/// How a slice of merging starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// Takes all segments together into one level, so that they end as one.
    Begin,
    /// Goes on with what was begun.
    Continue,
}

/// Merges about `pages` pages of the index. Returns false when there is nothing left.
///
/// # Errors
/// SQLite's.
pub fn merge(tx: &WriteTx<'_>, start: Merge, pages: i64) -> Result<bool> {
    let amount = match start {
        Merge::Begin => -pages,
        Merge::Continue => pages,
    };
    let before = tx.sql().total_changes();
    tx.sql()
        .prepare_cached("INSERT INTO documents_fts(documents_fts, rank) VALUES ('merge', ?1)")?
        .execute([amount])?;
    // FTS5's own rule: fewer than two changes mean that no page was written.
    Ok(tx.sql().total_changes() - before >= 2)
}

/// Lets SQLite refresh the statistics that its planner uses, where they are stale.
///
/// # Errors
/// SQLite's.
pub fn refresh_statistics(tx: &WriteTx<'_>) -> Result<()> {
    tx.sql().execute_batch("PRAGMA analysis_limit = 400; PRAGMA optimize;")?;
    Ok(())
}

/// Makes the index and the token counts anew from the documents. Takes minutes on a large
/// database: the caller has extended the lease.
///
/// # Errors
/// SQLite's.
pub fn rebuild(tx: &WriteTx<'_>) -> Result<()> {
    tx.sql().execute("INSERT INTO documents_fts(documents_fts) VALUES ('rebuild')", [])?;
    rebuild_lengths(tx)
}

/// Makes sure that the index fits on the disk a second time, which a rebuild needs until its
/// log is folded back. The index is less than half of a database.
///
/// # Errors
/// [`ErrorKind::DiskFull`](crate::error::ErrorKind::DiskFull) when it does not, and SQLite's.
pub fn refuse_without_room(tx: &ReadTx<'_>, database: &Path) -> Result<()> {
    open::refuse_full_disk(database, open::size_of(tx.sql())? / 2)
        .map_err(|error| error.context("cannot build the full-text index again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_counts_are_varints() {
        assert_eq!(tokens(&[3, 0x81, 0x00, 0, 7]), [3, 128, 0, 7]);
        assert_eq!(tokens(&[]), [0; COLUMNS]);
        assert_eq!(tokens(&[0x84, 0x80, 0x00]), [u16::MAX, 0, 0, 0], "saturates");
        assert_eq!(varint(&[0xFF; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0x80]), None);
    }

    #[test]
    fn both_versions_of_the_structure_record_are_read() {
        assert_eq!(segment_count(&[0, 0, 0, 1, 2, 7, 0]), Some(7));
        assert_eq!(segment_count(&[0, 0, 0, 1, 0xFF, 0, 0, 1, 2, 7, 0]), Some(7));
        assert_eq!(segment_count(&[0, 0]), None);
    }
}
