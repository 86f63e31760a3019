//! Documents for tests, written without the pipeline that makes them.

use rusqlite::params;

use super::{OpenOptions, Store, WriteTx};
use crate::content::{ItemType, SourceType};
use crate::error::Result;

/// A document and the item it belongs to.
#[derive(Debug, Clone)]
pub struct Doc {
    pub project: i64,
    pub source_type: SourceType,
    pub item_type: ItemType,
    pub iid: i64,
    pub title: Option<String>,
    pub body: String,
    pub thread: String,
    pub terms: String,
    pub author: Option<String>,
    pub state: String,
    pub labels: Vec<String>,
    pub paths: Vec<String>,
    pub assignees: Vec<String>,
    pub milestone: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub draft: bool,
    pub confidential: bool,
    pub internal: bool,
}

impl Doc {
    pub fn issue(iid: i64, title: &str, body: &str) -> Self {
        Self {
            project: 1,
            source_type: SourceType::Issue,
            item_type: ItemType::Issue,
            iid,
            title: Some(title.to_owned()),
            body: body.to_owned(),
            thread: String::new(),
            terms: String::new(),
            author: None,
            state: "opened".to_owned(),
            labels: Vec::new(),
            paths: Vec::new(),
            assignees: Vec::new(),
            milestone: None,
            created_at: iid * 1_000,
            updated_at: iid * 1_000,
            draft: false,
            confidential: false,
            internal: false,
        }
    }

    pub fn merge_request(iid: i64, title: &str, body: &str) -> Self {
        Self {
            source_type: SourceType::MergeRequest,
            item_type: ItemType::MergeRequest,
            ..Self::issue(iid, title, body)
        }
    }

    pub fn discussion(of: &Self, body: &str) -> Self {
        Self {
            source_type: SourceType::Discussion,
            title: None,
            ..Self { body: body.to_owned(), ..of.clone() }
        }
    }
}

/// A database with the projects 1 `group/app`, 2 `group/lib` and 3 `other/app`.
pub fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    store
        .write(|tx| {
            for (id, path) in [(1, "group/app"), (2, "group/lib"), (3, "other/app")] {
                tx.sql().execute(
                    "INSERT INTO projects(id, source_name, path, created_at, updated_at) VALUES (?1, 's', ?2, 0, 0)",
                    params![id, path],
                )?;
            }
            Ok(())
        })
        .unwrap();
    (dir, store)
}

/// A database with these documents; their ids count from 1.
pub fn with(docs: &[Doc]) -> (tempfile::TempDir, Store) {
    let (dir, store) = store();
    store.write(|tx| docs.iter().try_for_each(|doc| insert(tx, doc).map(drop))).unwrap();
    (dir, store)
}

/// Writes a document, with its item when it is not there; returns the document's id.
pub fn insert(tx: &WriteTx<'_>, doc: &Doc) -> Result<i64> {
    let sql = tx.sql();
    let labels = serde_json::to_string(&doc.labels).unwrap();
    match doc.item_type {
        ItemType::Issue => sql.execute(
            "INSERT INTO issues(project_id, gitlab_id, iid, state, confidential, created_at, updated_at, content_hash, synced_at, title, description, label_names, author_username)
             VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6, x'00', 0, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
            params![doc.project, doc.iid, doc.state, doc.confidential, doc.created_at, doc.updated_at, doc.title.clone().unwrap_or_default(), doc.body, labels, doc.author],
        )?,
        ItemType::MergeRequest => sql.execute(
            "INSERT INTO merge_requests(project_id, gitlab_id, iid, state, created_at, updated_at, content_hash, synced_at, title, description, label_names, author_username)
             VALUES (?1, ?2, ?2, ?3, ?4, ?5, x'00', 0, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
            params![doc.project, doc.iid, doc.state, doc.created_at, doc.updated_at, doc.title.clone().unwrap_or_default(), doc.body, labels, doc.author],
        )?,
    };
    let table = match doc.item_type {
        ItemType::Issue => "issues",
        ItemType::MergeRequest => "merge_requests",
    };
    let item_id: i64 = sql.query_row(
        &format!("SELECT id FROM {table} WHERE project_id = ?1 AND iid = ?2"),
        params![doc.project, doc.iid],
        |row| row.get(0),
    )?;
    let source_id = match doc.source_type {
        SourceType::Discussion => {
            sql.query_row("SELECT count(*) + 1 FROM documents", [], |row| row.get(0))?
        }
        SourceType::Issue | SourceType::MergeRequest => item_id,
    };
    let header = "[[Header]] of every document\n";
    sql.execute(
        "INSERT INTO documents(source_type, source_id, project_id, item_type, item_id, item_iid, author_username, created_at, updated_at,
            state, is_draft, is_confidential, is_internal, milestone_title, url, content_hash, body_start, title, terms_text, content_text, thread_text)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, 'h', ?16, ?17, ?18, ?19, ?20)",
        params![
            doc.source_type.as_str(), source_id, doc.project, doc.item_type.as_str(), item_id, doc.iid, doc.author,
            doc.created_at, doc.updated_at, doc.state, doc.draft, doc.confidential, doc.internal, doc.milestone,
            format!("https://example.org/{}", doc.iid), i64::try_from(header.chars().count()).unwrap(), doc.title, doc.terms,
            format!("{header}{}", doc.body), doc.thread,
        ],
    )?;
    let id = sql.last_insert_rowid();
    for label in &doc.labels {
        sql.execute("INSERT INTO document_labels VALUES (?1, ?2)", params![id, label])?;
    }
    for path in &doc.paths {
        sql.execute("INSERT INTO document_paths VALUES (?1, ?2)", params![id, path])?;
    }
    for name in &doc.assignees {
        sql.execute("INSERT INTO document_assignees VALUES (?1, ?2)", params![id, name])?;
    }
    Ok(id)
}

/// Writes a reference of a document.
pub fn refer(tx: &WriteTx<'_>, id: i64, kind: &str, target: &str, path: &str, iid: i64) -> Result<()> {
    let values = params![id, kind, target, path, iid];
    tx.sql().execute("INSERT OR IGNORE INTO document_refs(document_id, kind, target_type, target_path, target_iid) VALUES (?1, ?2, ?3, ?4, ?5)", values)?;
    Ok(())
}

/// Fills `document_lengths` from FTS5's own counts.
pub fn store_lengths(tx: &WriteTx<'_>) -> Result<()> {
    let sizes: Vec<(i64, Vec<u8>)> = tx
        .sql()
        .prepare("SELECT id, sz FROM documents_fts_docsize")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut blocks = std::collections::BTreeMap::<i64, Vec<u8>>::new();
    for (id, size) in sizes {
        let at = usize::try_from(id % 1024).unwrap() * 8;
        let block = blocks.entry(id / 1024).or_insert_with(|| vec![0; 8192]);
        for (column, count) in varints(&size).into_iter().enumerate() {
            let count = u16::try_from(count).unwrap_or(u16::MAX);
            block[at + 2 * column..at + 2 * column + 2].copy_from_slice(&count.to_le_bytes());
        }
    }
    for (block, lengths) in blocks {
        tx.sql()
            .execute("INSERT OR REPLACE INTO document_lengths VALUES (?1, ?2)", params![block, lengths])?;
    }
    Ok(())
}

/// SQLite's varints.
fn varints(bytes: &[u8]) -> Vec<u64> {
    let (mut all, mut value) = (Vec::new(), 0_u64);
    for byte in bytes {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            all.push(std::mem::take(&mut value));
        }
    }
    all
}

/// Runs SQL that a test needs.
pub fn execute(store: &Store, sql: &str) {
    store.write(|tx| Ok(tx.sql().execute_batch(sql)?)).unwrap();
}

/// The forms under which the index knows words.
pub fn index_forms(store: &Store, words: &[String]) -> Vec<String> {
    store
        .write(|tx| {
            tx.sql().execute_batch(
                "CREATE VIRTUAL TABLE temp.forms USING fts5(word, tokenize = 'porter unicode61 remove_diacritics 2');
                 CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab(temp, forms, instance);",
            )?;
            for (id, word) in (1..).zip(words) {
                tx.sql().execute("INSERT INTO temp.forms(rowid, word) VALUES (?1, ?2)", params![id, word])?;
            }
            let mut statement = tx.sql().prepare("SELECT term FROM temp.vocabulary ORDER BY doc")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .unwrap()
}
