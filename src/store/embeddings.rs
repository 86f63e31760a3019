//! SQL of chunks and vectors, of what they belong to, and of what is kept about embedding
//! services.

mod check;
mod coverage;
mod documents;
mod identities;
mod memo;

#[cfg(test)]
pub(crate) use check::names as check_names;
pub use check::{VectorFinding, findings, rebuild_codes, repair};
pub use coverage::{Coverage, coverage};
pub use documents::{
    ChunkHash, ChunkVector, FailingChunk, KnownChunk, NewChunk, ToEmbed, Written, chunk_span, failing,
    pending, read_document, retry_failed, write_document,
};
pub use identities::{
    Identity, IdentityState, NewIdentity, active, create, drop_retired, live, newest, retire_other_builds,
    settle,
};
pub use memo::{
    Circuit, MAX_CACHED_QUERIES, cached_query, circuit, close_circuit, remember_query, set_circuit,
};

/// Name of the table that holds the bit codes of an identity.
pub(super) fn codes_table(identity_id: i64) -> String {
    format!("chunk_codes_{identity_id}")
}

/// A size as SQLite takes it.
fn number(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// A size as SQLite gives it.
pub(super) fn size<I: rusqlite::RowIndex>(row: &rusqlite::Row<'_>, column: I) -> rusqlite::Result<usize> {
    row.get::<_, u32>(column).map(|size| size as usize)
}

#[cfg(test)]
pub(crate) mod tests;
