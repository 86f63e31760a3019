//! SQL of vocabulary hints: names of what may be seen.

use rusqlite::params;

use crate::content::filter::Bitset;
use crate::error::Result;
use crate::store::ReadTx;

/// A name that is stored.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Known {
    /// The operator that would take it: `label`, `author`, `milestone`, `path`.
    pub operator: &'static str,
    /// The name.
    pub name: String,
}

/// The labels, authors, milestones and paths of visible documents that are named by one of
/// `words` (in lower case). Paths are named by their last part too.
///
/// # Errors
/// Those of SQLite.
pub fn named(tx: &ReadTx<'_>, words: &[String], visible: &Bitset) -> Result<Vec<Known>> {
    let words = serde_json::Value::from(words).to_string();
    let mut out = Vec::new();
    for (operator, sql) in [
        (
            "label",
            "SELECT DISTINCT label_name FROM document_labels
              WHERE (lower(label_name) IN (SELECT value FROM json_each(?1))
                     OR lower(substr(label_name, instr(label_name, '::') + 2)) IN (SELECT value FROM json_each(?1)))
                AND lore_allow(document_id, ?2) ORDER BY label_name LIMIT 8",
        ),
        (
            "author",
            "SELECT DISTINCT author_username FROM documents INDEXED BY idx_documents_author
              WHERE lower(author_username) IN (SELECT value FROM json_each(?1))
                AND lore_allow(id, ?2) ORDER BY author_username LIMIT 8",
        ),
        (
            "milestone",
            "SELECT DISTINCT milestone_title FROM documents INDEXED BY idx_documents_milestone
              WHERE milestone_title IS NOT NULL AND lower(milestone_title) IN (SELECT value FROM json_each(?1))
                AND lore_allow(id, ?2) ORDER BY milestone_title LIMIT 8",
        ),
        (
            "path",
            "SELECT DISTINCT path FROM document_paths
              WHERE (lower(path) IN (SELECT value FROM json_each(?1))
                     OR lower(replace(path, rtrim(path, replace(path, '/', '')), '')) IN (SELECT value FROM json_each(?1)))
                AND lore_allow(document_id, ?2) ORDER BY path LIMIT 8",
        ),
    ] {
        let mut statement = tx.sql().prepare_cached(sql)?;
        let rows = statement.query_map(params![words, visible.as_bytes()], |row| row.get::<_, String>(0))?;
        for name in rows {
            out.push(Known { operator, name: name? });
        }
    }
    Ok(out)
}
