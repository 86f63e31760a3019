//! What must hold across tables, written once.
//!
//! Each check comes with its meaning, how it is found and how it is repaired. Used by the `integrity-check` and `repair` steps, by
//! `lore status --check`, and by tests after every scenario.

mod repair;

use std::collections::BTreeMap;

use rusqlite::Connection;
use serde::Serialize;

use super::{ReadTx, Store, WriteTx, embeddings, metrics};
use crate::clock::Millis;
use crate::content::hash;
use crate::engine::cancel::Cancel;
use crate::error::{Error, ErrorKind, Result};

pub use repair::{Repaired, plan, repair};

/// Findings that are kept of one check; the rest is counted.
const KEPT_PER_CHECK: usize = 100;

/// What helps a file whose pages are damaged.
pub const LOST: &str = "damaged pages cannot be repaired: bring a backup back with `lore restore FILE --force`, or move \
                        the file away and run `lore run sync` anew";

/// Name of the check of the file's pages.
const PAGES: &str = "pages";

/// How the subjects of a finding are put right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Build the full-text index again from the documents.
    RebuildFts,
    /// Make the documents again from their sources.
    Regenerate,
    /// Delete the rows that nothing refers to.
    Delete,
    /// Close the runs whose process is gone.
    CloseRuns,
    /// Delete vectors that are nobody's, and have the texts without theirs embedded again.
    Embed,
    /// Nothing in the database helps: restore a backup.
    Restore,
}

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Name in findings, metrics and the reference.
    pub name: &'static str,
    /// What holds when there is no finding.
    pub meaning: &'static str,
    /// How a finding is put right.
    pub remedy: Remedy,
    /// How findings are looked for.
    method: Method,
}

#[derive(Debug, Clone, Copy)]
enum Method {
    /// A query that returns the subject of each finding, and a detail.
    Query(&'static str),
    /// `PRAGMA integrity_check`.
    Pages,
    /// FTS5's own comparison of index and content.
    FtsContent,
    /// Hashes of documents against their text.
    Hashes,
    /// Chunks and vectors: those that are nobody's, or those that are missing or wrong.
    Vectors {
        /// Which of the two.
        orphans: bool,
    },
}

/// All checks, in the order in which they run.
pub const CHECKS: &[Check] = &[
    Check {
        name: PAGES,
        meaning: "every page of the file is well formed (PRAGMA integrity_check)",
        remedy: Remedy::Restore,
        method: Method::Pages,
    },
    Check {
        name: "foreign_keys",
        meaning: "every reference between tables leads somewhere (PRAGMA foreign_key_check)",
        remedy: Remedy::Delete,
        method: Method::Query(
            "SELECT \"table\" || ' row ' || coalesce(rowid, '?'), 'refers to a missing row of ' || \"parent\"
               FROM pragma_foreign_key_check
              WHERE \"table\" NOT IN ('document_labels', 'document_paths', 'document_assignees', 'document_refs')",
        ),
    },
    Check {
        name: "fts_missing",
        meaning: "every document is in the full-text index",
        remedy: Remedy::RebuildFts,
        method: Method::Query(
            "SELECT 'document ' || id, source_type || ' ' || source_id FROM documents d
              WHERE NOT EXISTS (SELECT 1 FROM documents_fts_docsize s WHERE s.id = d.id)",
        ),
    },
    Check {
        name: "fts_extra",
        meaning: "the full-text index holds nothing but documents",
        remedy: Remedy::RebuildFts,
        method: Method::Query(
            "SELECT 'document ' || id, 'only in the index' FROM documents_fts_docsize s
              WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.id = s.id)",
        ),
    },
    Check {
        name: "fts_content",
        meaning: "the full-text index says what the documents say (FTS5 integrity-check, rank 1)",
        remedy: Remedy::RebuildFts,
        method: Method::FtsContent,
    },
    Check {
        name: "document_hash",
        meaning: "the hash of every document is that of its text",
        remedy: Remedy::Regenerate,
        method: Method::Hashes,
    },
    Check {
        name: "document_missing",
        meaning: "every issue, merge request and discussion has its document or is queued for it",
        remedy: Remedy::Regenerate,
        method: Method::Query(
            "SELECT 'issue ' || id, 'has no document' FROM issues s
              WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_type = 'issue' AND d.source_id = s.id)
                AND NOT EXISTS (SELECT 1 FROM dirty_sources q WHERE q.source_type = 'issue' AND q.source_id = s.id)
             UNION ALL
             SELECT 'merge_request ' || id, 'has no document' FROM merge_requests s
              WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_type = 'merge_request' AND d.source_id = s.id)
                AND NOT EXISTS (SELECT 1 FROM dirty_sources q WHERE q.source_type = 'merge_request' AND q.source_id = s.id)
             UNION ALL
             SELECT 'discussion ' || id, 'has no document' FROM discussions s
              WHERE EXISTS (SELECT 1 FROM notes n WHERE n.discussion_id = s.id AND n.is_system = 0)
                AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_type = 'discussion' AND d.source_id = s.id)
                AND NOT EXISTS (SELECT 1 FROM dirty_sources q WHERE q.source_type = 'discussion' AND q.source_id = s.id)",
        ),
    },
    Check {
        name: "document_orphan",
        meaning: "every document has its source",
        remedy: Remedy::Delete,
        method: Method::Query(
            "SELECT 'document ' || id, source_type || ' ' || source_id || ' is gone' FROM documents d
              WHERE CASE d.source_type
                      WHEN 'issue' THEN NOT EXISTS (SELECT 1 FROM issues s WHERE s.id = d.source_id)
                      WHEN 'merge_request' THEN NOT EXISTS (SELECT 1 FROM merge_requests s WHERE s.id = d.source_id)
                      ELSE NOT EXISTS (SELECT 1 FROM discussions s WHERE s.id = d.source_id) END",
        ),
    },
    Check {
        name: "document_parts_orphan",
        meaning: "labels, paths, assignees and references belong to a document",
        remedy: Remedy::Delete,
        method: Method::Query(
            "SELECT 'label of document ' || document_id, label_name FROM document_labels
              WHERE document_id NOT IN (SELECT id FROM documents)
             UNION ALL SELECT 'path of document ' || document_id, path FROM document_paths
              WHERE document_id NOT IN (SELECT id FROM documents)
             UNION ALL SELECT 'assignee of document ' || document_id, username FROM document_assignees
              WHERE document_id NOT IN (SELECT id FROM documents)
             UNION ALL SELECT 'reference of document ' || document_id, target_path || ' ' || target_iid FROM document_refs
              WHERE document_id NOT IN (SELECT id FROM documents)",
        ),
    },
    Check {
        name: "item_parts_orphan",
        meaning: "links and strikes belong to an item that is stored, a tombstone to one that is not",
        remedy: Remedy::Delete,
        method: Method::Query(
            "WITH items(project_id, item_type, iid) AS (
               SELECT project_id, 'issue', iid FROM issues UNION ALL SELECT project_id, 'merge_request', iid FROM merge_requests)
             SELECT what || ' of ' || item_type || ' ' || iid, CASE what WHEN 'tombstone' THEN 'the item is stored' ELSE 'the item is not stored' END
               FROM (SELECT 'link' AS what, project_id, item_type, item_iid AS iid FROM item_links
                     UNION ALL SELECT 'look at links', project_id, item_type, item_iid FROM link_looks
                     UNION ALL SELECT 'strike', project_id, item_type, iid FROM item_strikes
                     UNION ALL SELECT 'tombstone', project_id, item_type, iid FROM tombstones) t
              WHERE ((project_id, item_type, iid) IN items) = (what = 'tombstone')",
        ),
    },
    Check {
        name: "queue_orphan",
        meaning: "every queue entry stands for something that is stored",
        remedy: Remedy::Delete,
        method: Method::Query(
            "SELECT 'dirty_sources ' || source_type || ' ' || source_id, 'its source is gone' FROM dirty_sources q
              WHERE CASE q.source_type
                      WHEN 'issue' THEN NOT EXISTS (SELECT 1 FROM issues s WHERE s.id = q.source_id)
                      WHEN 'merge_request' THEN NOT EXISTS (SELECT 1 FROM merge_requests s WHERE s.id = q.source_id)
                      ELSE NOT EXISTS (SELECT 1 FROM discussions s WHERE s.id = q.source_id) END
                AND NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_type = q.source_type AND d.source_id = q.source_id)
             UNION ALL
             SELECT 'pending_discussion_fetches ' || project_id || ' ' || noteable_type || ' ' || noteable_iid, 'its item is gone'
               FROM pending_discussion_fetches q
              WHERE CASE q.noteable_type
                      WHEN 'Issue' THEN NOT EXISTS (SELECT 1 FROM issues s WHERE s.project_id = q.project_id AND s.iid = q.noteable_iid)
                      ELSE NOT EXISTS (SELECT 1 FROM merge_requests s WHERE s.project_id = q.project_id AND s.iid = q.noteable_iid) END",
        ),
    },
    Check {
        name: "queue_attempts",
        meaning: "no queue entry has a negative number of attempts, or attempts without a time",
        remedy: Remedy::Delete,
        method: Method::Query(
            "SELECT 'dirty_sources ' || source_type || ' ' || source_id, 'attempts ' || attempt_count FROM dirty_sources
              WHERE attempt_count < 0 OR (attempt_count = 0) <> (last_attempt_at IS NULL)
             UNION ALL
             SELECT 'pending_discussion_fetches ' || project_id || ' ' || noteable_type || ' ' || noteable_iid, 'attempts ' || attempt_count
               FROM pending_discussion_fetches WHERE attempt_count < 0 OR (attempt_count = 0) <> (last_attempt_at IS NULL)",
        ),
    },
    Check {
        name: "embedding_orphan",
        meaning: "a chunk is a document's, a vector a chunk's",
        remedy: Remedy::Embed,
        method: Method::Vectors { orphans: true },
    },
    Check {
        name: "embedding_stale",
        meaning: "a chunk that is not recorded as failed has its vector, of its identity's length, of numbers that are not all zero, of the document's text, and can be found",
        remedy: Remedy::Embed,
        method: Method::Vectors { orphans: false },
    },
    Check {
        name: "run_stuck",
        meaning: "a run that is under way holds the lock",
        remedy: Remedy::CloseRuns,
        method: Method::Query(
            "SELECT 'run ' || id, 'state running, but the lock is not its' FROM runs r
              WHERE state = 'running'
                AND NOT EXISTS (SELECT 1 FROM app_lock l WHERE l.owner IS NOT NULL AND l.run_id = r.id)",
        ),
    },
];

/// Something that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// What it is about.
    pub subject: String,
    /// What is wrong with it.
    pub detail: String,
}

impl Finding {
    /// The finding on one line.
    pub fn line(&self) -> String {
        format!("{}: {}: {}", self.check, self.subject, self.detail)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// What the checks found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Findings {
    /// Findings by check; checks without one are absent.
    pub counts: BTreeMap<&'static str, usize>,
    /// The first findings of each check.
    pub findings: Vec<Finding>,
}

impl Findings {
    /// Number of all findings.
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// Number of findings of a check.
    pub fn count(&self, check: &str) -> usize {
        self.counts.get(check).copied().unwrap_or(0)
    }

    /// Whether a repair builds the full-text index again.
    pub fn rebuilds_index(&self) -> bool {
        CHECKS.iter().any(|check| check.remedy == Remedy::RebuildFts && self.count(check.name) > 0)
    }

    fn add(&mut self, check: &'static str, subject: String, detail: String) {
        let n = self.counts.entry(check).or_default();
        *n += 1;
        if *n <= KEPT_PER_CHECK {
            self.findings.push(Finding { check, subject, detail });
        }
    }
}

/// Runs every check. Changes nothing.
///
/// # Errors
/// SQLite's, except for damage: that is what is looked for; and the reason of a stop.
pub fn check(store: &Store, cancel: &Cancel) -> Result<Findings> {
    let mut found = Findings::default();
    store.read_until(cancel, |tx| {
        for check in CHECKS {
            cancel.check()?;
            let ran = match check.method {
                Method::Query(sql) => run_query(tx, check.name, sql, &mut found),
                Method::Pages => check_pages(tx, check.name, &mut found),
                Method::Hashes => check_hashes(tx, check.name, &mut found),
                Method::Vectors { orphans } => check_vectors(tx, check.name, orphans, &mut found),
                Method::FtsContent => Ok(()),
            };
            keep_damage(check.name, ran, &mut found)?;
        }
        Ok(())
    })?;
    for check in CHECKS.iter().filter(|check| matches!(check.method, Method::FtsContent)) {
        let ran = check_fts_content(store, cancel, check.name, &mut found);
        keep_damage(check.name, ran, &mut found)?;
    }
    Ok(found)
}

/// Looks at the pages of the file alone, reading only.
///
/// # Errors
/// SQLite's, except for damage.
pub fn check_pages_only(store: &Store) -> Result<Findings> {
    let mut found = Findings::default();
    store.read(|tx| {
        let ran = check_pages(tx, PAGES, &mut found);
        keep_damage(PAGES, ran, &mut found)
    })?;
    Ok(found)
}

/// A check that meets damaged pages cannot run to its end: that is a finding too.
fn keep_damage(check: &'static str, ran: Result<()>, found: &mut Findings) -> Result<()> {
    match ran {
        Err(error) if error.kind() == ErrorKind::Database => {
            found.add(PAGES, format!("check {check}"), format!("cannot run to its end: {error}"));
            Ok(())
        }
        other => other,
    }
}

fn run_query(tx: &ReadTx<'_>, name: &'static str, sql: &str, found: &mut Findings) -> Result<()> {
    let mut statement = tx.sql().prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        found.add(name, row.get(0)?, row.get(1)?);
    }
    Ok(())
}

fn check_vectors(tx: &ReadTx<'_>, name: &'static str, orphans: bool, found: &mut Findings) -> Result<()> {
    for finding in embeddings::findings(tx)?.into_iter().filter(|finding| finding.is_orphan == orphans) {
        let more = usize::try_from(finding.count - 1).unwrap_or(0);
        found.add(name, finding.check.to_owned(), format!("{} {}", finding.count, finding.meaning));
        *found.counts.entry(name).or_default() += more;
    }
    Ok(())
}

fn check_pages(tx: &ReadTx<'_>, name: &'static str, found: &mut Findings) -> Result<()> {
    let mut statement = tx.sql().prepare_cached("PRAGMA integrity_check(100)")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let line: String = row.get(0)?;
        // The index over the external content is compared by a check of its own.
        if line != "ok" && !line.contains("documents_fts") {
            found.add(name, "database file".to_owned(), line);
        }
    }
    Ok(())
}

fn check_hashes(tx: &ReadTx<'_>, name: &'static str, found: &mut Findings) -> Result<()> {
    let mut statement = tx
        .sql()
        .prepare_cached("SELECT source_type, source_id, content_hash, content_text FROM documents")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (stored, text) = (row.get_ref(2)?.as_str().ok(), row.get_ref(3)?.as_str().ok());
        let agrees = text.zip(stored).is_some_and(|(text, stored)| hash::text_hash(text) == stored);
        if !agrees {
            let (source_type, source_id): (String, i64) = (row.get(0)?, row.get(1)?);
            found.add(
                name,
                format!("{source_type} {source_id}"),
                "its text differs from its hash".to_owned(),
            );
        }
    }
    Ok(())
}

/// The command is written as an INSERT, so it needs a write transaction; it changes nothing.
fn check_fts_content(store: &Store, cancel: &Cancel, name: &'static str, found: &mut Findings) -> Result<()> {
    let agrees = store.write_long(cancel, |tx| match fts_agrees(tx.sql()) {
        Ok(()) => Ok(true),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(false),
        Err(error) => Err(error.into()),
    })?;
    if !agrees {
        found.add(name, "documents_fts".to_owned(), "index and documents differ".to_owned());
    }
    Ok(())
}

fn fts_agrees(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO documents_fts(documents_fts, rank) VALUES ('integrity-check', 1)")?
        .execute([])
        .map(drop)
}

/// Keeps what was found, in place of what was found before.
///
/// # Errors
/// SQLite's.
pub fn save_findings(tx: &WriteTx<'_>, found: &Findings, now: Millis) -> Result<()> {
    tx.sql().execute("DELETE FROM integrity_findings", [])?;
    let mut statement = tx.sql().prepare_cached(
        "INSERT INTO integrity_findings(check_name, subject, detail, found_at) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT(check_name, subject) DO NOTHING",
    )?;
    for finding in &found.findings {
        statement.execute((finding.check, &finding.subject, &finding.detail, now))?;
    }
    metrics::note_integrity_check(tx, found.total() == 0, now)
}

/// What the last check found, as `check: subject: detail`: the first of each check.
///
/// # Errors
/// SQLite's.
pub fn kept_findings(tx: &ReadTx<'_>) -> Result<Vec<String>> {
    let mut statement = tx.sql().prepare_cached(
        "SELECT check_name || ': ' || subject || ': ' || detail FROM integrity_findings ORDER BY check_name, subject",
    )?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The error of a check that found something.
pub fn findings_error(found: &Findings) -> Error {
    let list: Vec<String> = found.counts.iter().map(|(check, n)| format!("{check}: {n}")).collect();
    let repairable =
        CHECKS.iter().any(|check| check.remedy != Remedy::Restore && found.count(check.name) > 0);
    let lost = CHECKS.iter().any(|check| check.remedy == Remedy::Restore && found.count(check.name) > 0);
    let mut message = format!("the integrity check found {} problems ({})", found.total(), list.join(", "));
    if let Some(first) = found.findings.first() {
        message.push_str(&format!("; the first: {}", first.line()));
    }
    let mut error = Error::new(ErrorKind::IntegrityFindings, message);
    if repairable {
        error = error.hint(
            "repair with `lore run repair` or `lore status --check --repair`; --dry-run shows the plan",
        );
    }
    if lost {
        error = error.hint(LOST);
    }
    error
}

#[cfg(test)]
mod tests;
