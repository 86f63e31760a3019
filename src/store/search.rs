//! All SQL of queries: filters into bitsets, ranked search, what is shown of a document.
//!
//! Everything works on one consistent state and never looks into the wide rows of
//! `documents` before the hits are known.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{OptionalExtension, params, params_from_iter};

use super::ReadTx;
use super::embeddings::size;
use super::rank::{self, parameters};
use crate::clock::Millis;
use crate::content::filter::{Bitset, Filter, PathFilter};
use crate::content::{ItemType, SourceType};
use crate::error::{Error, ErrorKind, Result};

pub mod facets;
pub mod graph;
pub mod hints;
mod items;
mod names;

pub use super::rank::{SATURATION, idf};
pub use items::{ItemKey, documents_of, items, numbered};
pub use names::{frequency_in, labels, usernames, visible_count};

/// A project, as filters and references name it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownProject {
    /// Local id.
    pub id: i64,
    /// Full path.
    pub path: String,
    /// Host of its pages, as addresses have it; absent when it is not known.
    pub host: Option<String>,
    /// Paths that it had before.
    pub aliases: Vec<String>,
}

/// Host and port of an address.
fn host_of(url: &str) -> Option<String> {
    let authority = url.split_once("://")?.1.split('/').next()?;
    let host = authority.rsplit('@').next()?.to_lowercase();
    (!host.is_empty()).then_some(host)
}

/// All projects, by path.
///
/// # Errors
/// Those of SQLite.
pub fn projects(tx: &ReadTx<'_>) -> Result<Vec<KnownProject>> {
    let mut aliases: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    let mut statement =
        tx.sql().prepare_cached("SELECT project_id, path FROM project_aliases ORDER BY path")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        aliases.entry(row.get(0)?).or_default().push(row.get(1)?);
    }
    let mut statement =
        tx.sql().prepare_cached("SELECT id, path, web_url FROM projects ORDER BY path, id")?;
    let rows = statement.query_map([], |row| {
        let id = row.get(0)?;
        let url: Option<String> = row.get(2)?;
        let host = url.as_deref().and_then(host_of);
        Ok(KnownProject { id, path: row.get(1)?, host, aliases: aliases.remove(&id).unwrap_or_default() })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What ranking must know of the whole index.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Corpus {
    /// Number of documents.
    pub documents: i64,
    /// Number of issues and merge requests.
    pub items: i64,
    /// Words of title, text, threads and terms, over all documents.
    pub tokens: [i64; rank::COLUMNS],
}

impl Corpus {
    /// Weighted words of an issue or merge request with its threads on average, when it can be
    /// told.
    ///
    /// Discussions are short and many. Against an average that they pull down every item looks
    /// long, so items are compared with items. The words of the discussions are told by the
    /// words of the threads, which are the same texts.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    pub fn item_length(&self, weights: &[f64; rank::COLUMNS]) -> Option<f64> {
        let [title, text, thread, terms] = self.tokens;
        let sum = |tokens: [i64; rank::COLUMNS]| -> f64 {
            tokens.iter().zip(weights).map(|(tokens, weight)| *tokens as f64 * weight).sum()
        };
        let of_items = sum([title, (text - thread).max(0), thread, terms]);
        (self.items > 0 && self.items < self.documents)
            .then(|| of_items / self.items as f64)
            .filter(|length| *length > sum(self.tokens) / self.documents as f64)
    }
}

/// Reads the size of the index; the two counts look at the pages of an index only.
///
/// # Errors
/// Those of SQLite.
pub fn corpus(tx: &ReadTx<'_>) -> Result<Corpus> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT lore_documents(documents_fts), (SELECT count(*) FROM issues) + (SELECT count(*) FROM merge_requests),
                lore_tokens(documents_fts, 0), lore_tokens(documents_fts, 1),
                lore_tokens(documents_fts, 2), lore_tokens(documents_fts, 3)
           FROM documents_fts LIMIT 1",
    )?;
    let row = |row: &rusqlite::Row<'_>| {
        let tokens = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
        Ok(Corpus { documents: row.get(0)?, items: row.get(1)?, tokens })
    };
    Ok(statement.query_row([], row).optional()?.unwrap_or_default())
}

/// Number of documents that match an expression of FTS5, counted up to `cap`.
///
/// # Errors
/// Those of SQLite.
pub fn frequency(tx: &ReadTx<'_>, expression: &str, cap: i64) -> Result<i64> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT count(*) FROM (SELECT 1 FROM documents_fts WHERE documents_fts MATCH ?1 LIMIT ?2)",
    )?;
    Ok(statement.query_row(params![expression, cap], |row| row.get(0))?)
}

/// The documents that match an expression of FTS5.
///
/// # Errors
/// Those of SQLite.
pub fn matching(tx: &ReadTx<'_>, expression: &str) -> Result<Bitset> {
    ids(
        tx,
        "SELECT lore_ids(rowid) FROM documents_fts WHERE documents_fts MATCH ?1",
        &[Value::from(expression.to_owned())],
    )
}

/// What a query collects with `lore_ids`.
fn ids(tx: &ReadTx<'_>, sql: &str, values: &[Value]) -> Result<Bitset> {
    debug_assert!(sql.starts_with("SELECT lore_ids("), "a set is collected inside of SQLite: {sql}");
    let mut statement = tx.sql().prepare_cached(sql)?;
    Ok(Bitset::from_bytes(statement.query_row(params_from_iter(values), |row| row.get(0))?))
}

/// Documents that a filter lets through; none when it lets everything through.
///
/// One query over a covering index for each predicate, then set operations: a join with the
/// wide rows of `documents` takes 3 to 20 times as long.
///
/// # Errors
/// Those of SQLite.
pub fn compile(tx: &ReadTx<'_>, filter: &Filter) -> Result<Option<Bitset>> {
    let mut allowed: Option<Bitset> = None;
    let mut keep = |set: Bitset| match &mut allowed {
        Some(allowed) => allowed.intersect(&set),
        None => allowed = Some(set),
    };
    for (sql, values) in predicates(filter) {
        keep(ids(tx, &sql, &values)?);
    }
    for not in &filter.not {
        let unrestricted = Filter { include_restricted: true, not: Vec::new(), ..not.clone() };
        // A condition that says nothing leaves nothing out.
        let Some(denied) = compile(tx, &unrestricted)? else { continue };
        let mut rest = match allowed {
            Some(allowed) => allowed,
            None => everything(tx)?,
        };
        rest.subtract(&denied);
        allowed = Some(rest);
    }
    if !filter.include_restricted {
        let denied = ids(
            tx,
            "SELECT lore_ids(id) FROM documents INDEXED BY idx_documents_restricted WHERE is_confidential = 1 OR is_internal = 1",
            &[],
        )?;
        if !denied.is_empty() {
            let mut rest = match allowed {
                Some(allowed) => allowed,
                None => everything(tx)?,
            };
            rest.subtract(&denied);
            allowed = Some(rest);
        }
    }
    Ok(allowed)
}

/// A set that holds every document, and ids that do not exist.
///
/// # Errors
/// Those of SQLite.
pub fn everything(tx: &ReadTx<'_>) -> Result<Bitset> {
    let mut statement = tx.sql().prepare_cached("SELECT COALESCE(max(id), 0) FROM documents")?;
    let last: i64 = statement.query_row([], |row| row.get(0))?;
    Ok(Bitset::up_to(last))
}

/// The queries of a filter; each gives ids of documents from an index alone.
fn predicates(filter: &Filter) -> Vec<(String, Vec<Value>)> {
    let mut out = Vec::new();
    let wide = filter.projects.is_some() || filter.draft.is_some() || filter.confidential.is_some();
    let mut columns = Columns::default();
    if let Some(projects) = &filter.projects {
        columns.any_of("project_id", projects.iter().copied().map(Value::from));
    }
    if !filter.types.is_empty() {
        columns.any_of("source_type", filter.types.iter().map(|kind| Value::from(kind.as_str().to_owned())));
    }
    if !filter.authors.is_empty() {
        columns.any_of("author_username", filter.authors.iter().cloned().map(Value::from));
    }
    if !filter.states.is_empty() {
        columns.any_of("state", filter.states.iter().cloned().map(Value::from));
    }
    for (name, flag) in [("is_draft", filter.draft), ("is_confidential", filter.confidential)] {
        if let Some(flag) = flag {
            columns.compare(name, "=", Value::from(i64::from(flag)));
        }
    }
    if let Some(from) = filter.updated_from {
        columns.compare("updated_at", ">=", Value::from(from));
    }
    if let Some(from) = filter.created_from {
        columns.compare("created_at", ">=", Value::from(from));
    }
    if let Some(to) = filter.created_to {
        columns.compare("created_at", "<", Value::from(to));
    }
    out.extend(if wide { columns.together() } else { columns.apart() });
    if let Some(milestone) = &filter.milestone {
        out.push((
            "SELECT lore_ids(id) FROM documents INDEXED BY idx_documents_milestone WHERE milestone_title = ?"
                .to_owned(),
            vec![Value::from(milestone.clone())],
        ));
    }
    for labels in &filter.labels {
        let marks = vec!["?"; labels.len()].join(", ");
        out.push((
            format!("SELECT lore_ids(document_id) FROM document_labels WHERE label_name IN ({marks})"),
            labels.iter().cloned().map(Value::from).collect(),
        ));
    }
    if !filter.assignees.is_empty() {
        let marks = vec!["?"; filter.assignees.len()].join(", ");
        out.push((
            format!("SELECT lore_ids(document_id) FROM document_assignees WHERE username IN ({marks})"),
            filter.assignees.iter().cloned().map(Value::from).collect(),
        ));
    }
    for path in &filter.paths {
        out.push(match path {
            PathFilter::Exact(path) => (
                "SELECT lore_ids(document_id) FROM document_paths WHERE path = ?".to_owned(),
                vec![Value::from(path.clone())],
            ),
            // All that begins with "dir/" lies between "dir/" and "dir0": '0' follows '/'.
            PathFilter::Below(directory) => (
                "SELECT lore_ids(document_id) FROM document_paths WHERE path >= ? AND path < ?".to_owned(),
                vec![
                    Value::from(directory.clone()),
                    Value::from(format!("{}0", directory.strip_suffix('/').unwrap_or(directory))),
                ],
            ),
            PathFilter::Like(pattern) => (
                "SELECT lore_ids(document_id) FROM document_paths WHERE path GLOB ?".to_owned(),
                vec![Value::from(pattern.replace("**/", "*").replace('[', "[[]"))],
            ),
        });
    }
    out
}

/// Conditions on columns of the wide covering index.
#[derive(Default)]
struct Columns(Vec<(String, Vec<Value>)>);

impl Columns {
    fn any_of(&mut self, column: &str, values: impl Iterator<Item = Value>) {
        let values: Vec<Value> = values.collect();
        let marks = vec!["?"; values.len()].join(", ");
        self.0.push((format!("{column} IN ({marks})"), values));
    }

    fn compare(&mut self, column: &str, operator: &str, value: Value) {
        self.0.push((format!("{column} {operator} ?"), vec![value]));
    }

    /// One scan of the wide index.
    fn together(self) -> Vec<(String, Vec<Value>)> {
        let (conditions, values): (Vec<_>, Vec<_>) = self.0.into_iter().unzip();
        let sql = format!(
            "SELECT lore_ids(id) FROM documents INDEXED BY idx_documents_filter WHERE {}",
            conditions.join(" AND ")
        );
        vec![(sql, values.concat())]
    }

    /// One range of a narrow index each.
    fn apart(self) -> Vec<(String, Vec<Value>)> {
        let query = |condition: String| format!("SELECT lore_ids(id) FROM documents WHERE {condition}");
        self.0.into_iter().map(|(condition, values)| (query(condition), values)).collect()
    }
}

/// A ranked full-text search.
#[derive(Debug, Clone, Copy)]
pub struct Ranked<'a> {
    /// Expression of FTS5.
    pub expression: &'a str,
    /// Weights of title, text, threads and terms.
    pub weights: [f64; rank::COLUMNS],
    /// Weighted length of a document to compare with; absent: the average of all.
    pub average_length: Option<f64>,
    /// Of each phrase of the expression, in its order: documents that hold it, and a factor.
    /// Absent: counted by SQLite, every factor 1.
    pub phrases: Option<&'a [(f64, f64)]>,
    /// Documents that may be answered; absent: all.
    pub allowed: Option<&'a Bitset>,
    /// Hits at most.
    pub limit: usize,
}

/// A document and its BM25 score: greater is better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// Document.
    pub id: i64,
    /// Score.
    pub score: f64,
}

/// Runs a ranked search; the best first, ties by id.
///
/// # Errors
/// [`ErrorKind::Usage`] with FTS5's message when it refuses the expression.
pub fn ranked(tx: &ReadTx<'_>, search: &Ranked<'_>) -> Result<Vec<Scored>> {
    let parameters = parameters(&search.weights, search.average_length, search.phrases);
    let limit = i64::try_from(search.limit).unwrap_or(i64::MAX);
    let scored = |row: &rusqlite::Row<'_>| Ok(Scored { id: row.get(0)?, score: -row.get::<_, f64>(1)? });
    let rows: rusqlite::Result<Vec<Scored>> = match search.allowed {
        None => tx
            .sql()
            .prepare_cached(
                "SELECT rowid, lore_bm25(documents_fts, ?2) AS score FROM documents_fts
                  WHERE documents_fts MATCH ?1 ORDER BY score, rowid LIMIT ?3",
            )?
            .query_map(params![search.expression, parameters, limit], scored)?
            .collect(),
        Some(allowed) => tx
            .sql()
            .prepare_cached(
                "SELECT rowid, lore_bm25(documents_fts, ?2) AS score FROM documents_fts
                  WHERE documents_fts MATCH ?1 AND lore_allow(rowid, ?4) ORDER BY score, rowid LIMIT ?3",
            )?
            .query_map(params![search.expression, parameters, limit, allowed.as_bytes()], scored)?
            .collect(),
    };
    rows.map_err(explain_expression)
}

/// FTS5 reports a bad expression as a plain SQL error.
fn explain_expression(error: rusqlite::Error) -> Error {
    match &error {
        rusqlite::Error::SqliteFailure(code, Some(message)) if code.extended_code == rusqlite::ffi::SQLITE_ERROR => {
            Error::new(ErrorKind::Usage, format!("FTS5 refuses the query: {message}"))
                .hint("leave --fts-mode raw out: the safe mode takes any text")
                .hint("in FTS5's syntax, words with other characters than letters and digits stand in double quotes")
        }
        _ => error.into(),
    }
}

/// The documents that were updated last.
///
/// # Errors
/// Those of SQLite.
pub fn newest(tx: &ReadTx<'_>, allowed: Option<&Bitset>, limit: usize) -> Result<Vec<i64>> {
    let everything = everything(tx)?;
    let bits = allowed.unwrap_or(&everything).as_bytes();
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = tx.sql().prepare_cached(
        "SELECT id FROM documents INDEXED BY idx_documents_updated
          WHERE lore_allow(id, ?1) ORDER BY updated_at DESC, id DESC LIMIT ?2",
    )?;
    let rows = statement.query_map(params![bits, limit], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What is shown of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Hydrated {
    /// Document.
    pub id: i64,
    /// What it is made of.
    pub source_type: SourceType,
    /// The item it belongs to.
    pub item_type: ItemType,
    /// Number of the item.
    pub iid: i64,
    /// Title of the document, or of the item that is discussed.
    pub title: Option<String>,
    /// Address.
    pub url: Option<String>,
    /// Full path of the project.
    pub project_path: String,
    /// Username.
    pub author: Option<String>,
    /// Creation.
    pub created_at: Option<Millis>,
    /// Last change.
    pub updated_at: Option<Millis>,
    /// State of the item.
    pub state: String,
    /// Labels, by name.
    pub labels: Vec<String>,
    /// Files touched, by name.
    pub paths: Vec<String>,
    /// Characters of the header in front of the text.
    pub body_start: usize,
    /// Text without the header.
    pub body: String,
    /// Text of the item's threads.
    pub thread: String,
}

/// Reads all that is shown of documents, in the order of `ids`, in one query.
///
/// # Errors
/// Those of SQLite.
pub fn hydrate(tx: &ReadTx<'_>, ids: &[i64]) -> Result<Vec<Hydrated>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT d.id, d.source_type, d.item_type, d.item_iid, d.url, d.author_username, d.created_at,
                d.updated_at, d.state, p.path, substr(d.content_text, d.body_start + 1), d.thread_text,
                COALESCE(d.title, (SELECT o.title FROM documents AS o
                                    WHERE o.source_type = d.item_type AND o.source_id = d.item_id
                                      AND o.is_confidential <= d.is_confidential)),
                (SELECT json_group_array(label_name ORDER BY label_name) FROM document_labels WHERE document_id = d.id),
                (SELECT json_group_array(path ORDER BY path) FROM document_paths WHERE document_id = d.id),
                d.body_start
           FROM json_each(?1) AS j CROSS JOIN documents AS d ON d.id = j.value
           JOIN projects AS p ON p.id = d.project_id
          ORDER BY j.key",
    )?;
    let mut rows = statement.query([json_list(ids)])?;
    let mut out = Vec::new();
    while let Some(row) = rows.next()? {
        let (source_type, item_type): (String, String) = (row.get(1)?, row.get(2)?);
        out.push(Hydrated {
            id: row.get(0)?,
            source_type: SourceType::parse(&source_type).ok_or_else(|| unknown_type(&source_type))?,
            item_type: ItemType::parse(&item_type).ok_or_else(|| unknown_type(&item_type))?,
            iid: row.get(3)?,
            url: row.get(4)?,
            author: row.get(5)?,
            created_at: row.get(6)?,
            updated_at: row.get(7)?,
            state: row.get(8)?,
            project_path: row.get(9)?,
            body_start: size(row, 15)?,
            body: row.get(10)?,
            thread: row.get(11)?,
            title: row.get(12)?,
            labels: string_list(&row.get::<_, String>(13)?),
            paths: string_list(&row.get::<_, String>(14)?),
        });
    }
    Ok(out)
}

fn unknown_type(text: &str) -> Error {
    Error::internal(format!("a document of the unknown type {text:?} is stored"))
}

fn json_list(ids: &[i64]) -> String {
    serde_json::Value::from(ids).to_string()
}

/// A list that SQLite's `json_group_array` made of texts.
fn string_list(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_default()
}

#[cfg(test)]
mod tests;
