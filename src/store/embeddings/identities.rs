//! SQL of embedding identities: made, answered from, replaced, dropped.

use rusqlite::{OptionalExtension, Row, named_params};
use serde::Serialize;

use super::{codes_table, coverage, number, size};
use crate::clock::Millis;
use crate::error::{Error, Result};
use crate::store::knn::hamming;
use crate::store::{ReadTx, WriteTx};

/// Codes in one block of the scan.
const BLOCK: usize = 1024;

/// How an identity is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IdentityState {
    /// Being filled beside the active one.
    Building,
    /// Queries are answered from it.
    Active,
    /// To be dropped.
    Retired,
}

impl IdentityState {
    fn parse(text: &str) -> Result<Self> {
        match text {
            "building" => Ok(Self::Building),
            "active" => Ok(Self::Active),
            "retired" => Ok(Self::Retired),
            other => Err(Error::internal(format!("unknown state {other:?} of an embedding identity"))),
        }
    }
}

/// What vectors belong to. Vectors of different identities never mix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// Id in this database.
    pub id: i64,
    /// Hash of everything but the dimensions, the endpoint and the state.
    pub hash: String,
    /// Who embeds.
    pub provider: String,
    /// The model, with its tag.
    pub model: String,
    /// Length of the vectors.
    pub dims: usize,
    /// How texts are cut.
    pub chunking: String,
    /// In front of queries.
    pub query_prefix: String,
    /// In front of passages.
    pub document_prefix: String,
    /// Address of the service; holds no secret.
    pub endpoint: Option<String>,
    /// How it is used.
    pub state: IdentityState,
}

/// An identity to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewIdentity<'a> {
    /// See [`Identity::hash`].
    pub hash: &'a str,
    /// Who embeds.
    pub provider: &'a str,
    /// The model, with its tag.
    pub model: &'a str,
    /// Length of the vectors.
    pub dims: usize,
    /// How texts are cut.
    pub chunking: &'a str,
    /// In front of queries.
    pub query_prefix: &'a str,
    /// In front of passages.
    pub document_prefix: &'a str,
    /// Address of the service, without secrets.
    pub endpoint: Option<&'a str>,
}

const COLUMNS: &str =
    "id, hash, provider, model, dims, chunking, query_prefix, document_prefix, endpoint, state";

fn from_row(row: &Row<'_>) -> rusqlite::Result<(Identity, String)> {
    let identity = Identity {
        id: row.get("id")?,
        hash: row.get("hash")?,
        provider: row.get("provider")?,
        model: row.get("model")?,
        dims: size(row, "dims")?,
        chunking: row.get("chunking")?,
        query_prefix: row.get("query_prefix")?,
        document_prefix: row.get("document_prefix")?,
        endpoint: row.get("endpoint")?,
        state: IdentityState::Retired,
    };
    Ok((identity, row.get("state")?))
}

fn find(
    tx: &ReadTx<'_>,
    condition: &str,
    params: &[(&str, &dyn rusqlite::ToSql)],
) -> Result<Option<Identity>> {
    let sql =
        format!("SELECT {COLUMNS} FROM embedding_identities WHERE {condition} ORDER BY id DESC LIMIT 1");
    let found = tx.sql().prepare_cached(&sql)?.query_row(params, from_row).optional()?;
    found
        .map(|(identity, state)| Ok(Identity { state: IdentityState::parse(&state)?, ..identity }))
        .transpose()
}

/// The identity that queries are answered from.
///
/// # Errors
/// SQLite's.
pub fn active(tx: &ReadTx<'_>) -> Result<Option<Identity>> {
    find(tx, "state = 'active'", &[])
}

/// The newest identity of `hash` that is filled or being filled, with `dims` when given.
///
/// # Errors
/// SQLite's.
pub fn live(tx: &ReadTx<'_>, hash: &str, dims: Option<usize>) -> Result<Option<Identity>> {
    find(
        tx,
        "state <> 'retired' AND hash = :hash AND (:dims IS NULL OR dims = :dims)",
        named_params! { ":hash": hash, ":dims": dims.map(number) },
    )
}

/// The identity that was made last and is not retired: the one being built, if there is one.
///
/// # Errors
/// SQLite's.
pub fn newest(tx: &ReadTx<'_>) -> Result<Option<Identity>> {
    find(tx, "state <> 'retired'", &[])
}

/// Makes an identity with its table of codes. It is active at once when there is none yet.
///
/// # Errors
/// SQLite's.
pub fn create(tx: &WriteTx<'_>, new: &NewIdentity<'_>, now: Millis) -> Result<Identity> {
    tx.sql()
        .prepare_cached(
            "INSERT INTO embedding_identities(hash, provider, model, dims, chunking, query_prefix, document_prefix, endpoint, state, created_at, activated_at)
             SELECT :hash, :provider, :model, :dims, :chunking, :query_prefix, :document_prefix, :endpoint,
                    iif(has_active, 'building', 'active'), :now, iif(has_active, NULL, :now)
               FROM (SELECT EXISTS (SELECT 1 FROM embedding_identities WHERE state = 'active') AS has_active)",
        )?
        .execute(named_params! {
            ":hash": new.hash, ":provider": new.provider, ":model": new.model, ":dims": number(new.dims),
            ":chunking": new.chunking, ":query_prefix": new.query_prefix,
            ":document_prefix": new.document_prefix, ":endpoint": new.endpoint, ":now": now,
        })?;
    let id = tx.sql().last_insert_rowid();
    create_codes(tx, id, new.dims)?;
    live(tx, new.hash, Some(new.dims))?
        .ok_or_else(|| Error::internal("an embedding identity is gone right after it was made"))
}

/// Makes the table of codes and the trigger that keeps it in step with the chunks.
pub(super) fn create_codes(tx: &WriteTx<'_>, identity_id: i64, dims: usize) -> Result<()> {
    let table = codes_table(identity_id);
    let bits = hamming::code_bytes(dims) * 8;
    tx.sql().execute_batch(&format!(
        "CREATE VIRTUAL TABLE {table} USING vec0(
           chunk_id INTEGER PRIMARY KEY, document_id INTEGER, code BIT[{bits}], chunk_size = {BLOCK});
         CREATE TRIGGER {table}_ad AFTER DELETE ON chunks WHEN old.identity_id = {identity_id} BEGIN
           DELETE FROM {table} WHERE chunk_id = old.id;
         END;"
    ))?;
    Ok(())
}

/// Retires what is being built for another configuration than `keep`'s. Returns how many.
///
/// # Errors
/// SQLite's.
pub fn retire_other_builds(tx: &WriteTx<'_>, keep: i64, now: Millis) -> Result<usize> {
    Ok(tx
        .sql()
        .prepare_cached("UPDATE embedding_identities SET state = 'retired', retired_at = ?2 WHERE state = 'building' AND id <> ?1")?
        .execute((keep, now))?)
}

/// Lets queries be answered from `identity` once it covers what the active one covers, or
/// once everything was tried and it covers nearly that. Returns whether it is active now.
///
/// # Errors
/// SQLite's.
pub fn settle(tx: &WriteTx<'_>, identity: &Identity, now: Millis) -> Result<bool> {
    let Some(old) = active(tx)? else {
        activate(tx, identity.id, now)?;
        return Ok(true);
    };
    if old.id == identity.id {
        return Ok(true);
    }
    let (new, old) = (coverage::of_identity(tx, identity.id)?, coverage::of_identity(tx, old.id)?);
    // Texts that no try can embed must not keep the old index for ever.
    let tried = new.pending == 0 && 2 * new.embedded >= old.embedded;
    if new.embedded < old.embedded && !tried {
        return Ok(false);
    }
    activate(tx, identity.id, now)?;
    Ok(true)
}

fn activate(tx: &WriteTx<'_>, id: i64, now: Millis) -> Result<()> {
    tx.sql().execute(
        "UPDATE embedding_identities SET state = 'retired', retired_at = ?1 WHERE state = 'active'",
        [now],
    )?;
    tx.sql().execute(
        "UPDATE embedding_identities SET state = 'active', activated_at = ?1 WHERE id = ?2",
        (now, id),
    )?;
    Ok(())
}

/// Drops at most `limit` chunks of retired identities, then the identities. Returns whether
/// something is left to drop.
///
/// # Errors
/// SQLite's.
pub fn drop_retired(tx: &WriteTx<'_>, limit: i64) -> Result<bool> {
    let retired: Option<i64> = tx
        .sql()
        .prepare_cached("SELECT min(id) FROM embedding_identities WHERE state = 'retired'")?
        .query_row([], |row| row.get(0))?;
    let Some(id) = retired else { return Ok(false) };
    let table = codes_table(id);
    // The codes go first and at once: deleting them one by one would cost the most.
    tx.sql().execute_batch(&format!("DROP TRIGGER IF EXISTS {table}_ad; DROP TABLE IF EXISTS {table};"))?;
    let mut changed = tx
        .sql()
        .prepare_cached(
            "DELETE FROM chunks WHERE id IN (SELECT id FROM chunks WHERE identity_id = ?1 LIMIT ?2)",
        )?
        .execute((id, limit))?;
    if changed == 0 {
        changed = tx
            .sql()
            .prepare_cached("DELETE FROM chunked_documents WHERE (document_id, identity_id) IN (SELECT document_id, identity_id FROM chunked_documents WHERE identity_id = ?1 LIMIT ?2)")?
            .execute((id, limit))?;
    }
    if changed == 0 {
        tx.sql().execute("DELETE FROM embedding_identities WHERE id = ?1", [id])?;
    }
    Ok(true)
}
