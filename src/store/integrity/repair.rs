//! Repairs what the integrity check finds: planned from findings, applied in one transaction.

use serde::Serialize;

use super::{CHECKS, Findings, Remedy};
use crate::clock::Millis;
use crate::content::hash;
use crate::error::Result;
use crate::store::{WriteTx, embeddings, fts, queues};

/// What a repair did, or would do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Vectors without a document.
    pub orphaned_embeddings_deleted: usize,
    /// Vectors of an older text.
    pub stale_embeddings_cleared: usize,
    /// Documents that were missing in the full-text index.
    pub missing_fts_repopulated: usize,
    /// Entries of the full-text index that were wrong or no document's.
    pub wrong_fts_replaced: usize,
    /// Sources whose document is to be made again.
    pub documents_requeued: usize,
    /// Documents without a source.
    pub orphaned_documents_deleted: usize,
    /// Labels, paths, assignees and references without a document; links and strikes without
    /// an item, tombstones of one that is there.
    pub orphaned_parts_deleted: usize,
    /// Rows whose parent is gone, as they would have gone with it.
    pub dangling_rows_deleted: usize,
    /// Queue entries without a source, or with impossible counts.
    pub queue_entries_deleted: usize,
    /// Runs whose process is gone.
    pub runs_closed: usize,
    /// Findings that only a backup can put right.
    pub not_repairable: usize,
}

/// Plans a repair from what was found.
pub fn plan(found: &Findings) -> Repaired {
    let not_repairable = CHECKS
        .iter()
        .filter(|check| check.remedy == Remedy::Restore)
        .map(|check| found.count(check.name))
        .sum();
    Repaired {
        missing_fts_repopulated: found.count("fts_missing"),
        wrong_fts_replaced: found.count("fts_extra")
            + if found.count("fts_missing") + found.count("fts_extra") == 0 {
                found.count("fts_content")
            } else {
                0
            },
        documents_requeued: found.count("document_missing") + found.count("document_hash"),
        orphaned_documents_deleted: found.count("document_orphan"),
        orphaned_parts_deleted: found.count("document_parts_orphan") + found.count("item_parts_orphan"),
        dangling_rows_deleted: found.count("foreign_keys"),
        queue_entries_deleted: found.count("queue_orphan") + found.count("queue_attempts"),
        runs_closed: found.count("run_stuck"),
        orphaned_embeddings_deleted: found.count("embedding_orphan"),
        stale_embeddings_cleared: found.count("embedding_stale"),
        not_repairable,
    }
}

/// Repairs what a check finds now, in one transaction. Doing it twice changes nothing more.
///
/// # Errors
/// SQLite's; then nothing was changed.
pub fn repair(tx: &WriteTx<'_>, found: &Findings, now: Millis) -> Result<Repaired> {
    let sql = tx.sql();
    let mut done = plan(found);
    // Parts and orphans go first: a rebuild then indexes what stays.
    done.orphaned_parts_deleted = 0;
    for table in ["document_labels", "document_paths", "document_assignees", "document_refs"] {
        done.orphaned_parts_deleted += sql.execute(
            &format!("DELETE FROM {table} WHERE document_id NOT IN (SELECT id FROM documents)"),
            [],
        )?;
    }
    for (table, iid, is_there) in [
        ("item_links", "item_iid", "NOT"),
        ("link_looks", "item_iid", "NOT"),
        ("item_strikes", "iid", "NOT"),
        ("tombstones", "iid", ""),
    ] {
        done.orphaned_parts_deleted += sql.execute(
            &format!(
                "DELETE FROM {table} WHERE {is_there} CASE item_type
                   WHEN 'issue' THEN EXISTS (SELECT 1 FROM issues s WHERE s.project_id = {table}.project_id AND s.iid = {table}.{iid})
                   ELSE EXISTS (SELECT 1 FROM merge_requests s WHERE s.project_id = {table}.project_id AND s.iid = {table}.{iid}) END"
            ),
            [],
        )?;
    }
    if found.rebuilds_index() {
        // The delete trigger tells the index old values; on a wrong index that does harm.
        fts::rebuild(tx)?;
    }
    done.dangling_rows_deleted = delete_dangling(tx)?;
    done.orphaned_documents_deleted = sql.execute(
        "DELETE FROM documents WHERE (source_type = 'issue' AND source_id NOT IN (SELECT id FROM issues))
            OR (source_type = 'merge_request' AND source_id NOT IN (SELECT id FROM merge_requests))
            OR (source_type = 'discussion' AND source_id NOT IN (SELECT id FROM discussions))",
        [],
    )?;
    done.queue_entries_deleted = sql.execute(
        "DELETE FROM dirty_sources WHERE attempt_count < 0 OR (attempt_count = 0) <> (last_attempt_at IS NULL)
            OR (source_type = 'issue' AND source_id NOT IN (SELECT id FROM issues))
            OR (source_type = 'merge_request' AND source_id NOT IN (SELECT id FROM merge_requests))
            OR (source_type = 'discussion' AND source_id NOT IN (SELECT id FROM discussions))",
        [],
    )? + sql.execute(
        "DELETE FROM pending_discussion_fetches AS q
          WHERE attempt_count < 0 OR (attempt_count = 0) <> (last_attempt_at IS NULL)
             OR (noteable_type = 'Issue' AND NOT EXISTS (SELECT 1 FROM issues s WHERE s.project_id = q.project_id AND s.iid = q.noteable_iid))
             OR (noteable_type = 'MergeRequest' AND NOT EXISTS (SELECT 1 FROM merge_requests s WHERE s.project_id = q.project_id AND s.iid = q.noteable_iid))",
        [],
    )?;
    // After the documents that are gone took theirs with them.
    let vectors = embeddings::repair(tx)?;
    if done.orphaned_embeddings_deleted > 0 {
        done.orphaned_embeddings_deleted = usize::try_from(vectors.orphaned_embeddings_deleted).unwrap_or(0);
    }
    if done.stale_embeddings_cleared > 0 {
        done.stale_embeddings_cleared = usize::try_from(vectors.stale_embeddings_cleared).unwrap_or(0);
    }
    done.documents_requeued = requeue(tx, found, now)?;
    done.runs_closed = sql.execute(
        "UPDATE runs SET state = 'abandoned', finished_at = ?1, error = 'its process died without a word'
          WHERE state = 'running' AND NOT EXISTS (SELECT 1 FROM app_lock l WHERE l.owner IS NOT NULL AND l.run_id = runs.id)",
        [now],
    )?;
    sql.execute(
        "UPDATE step_attempts SET state = 'abandoned', conclusion = 'failed', finished_at = ?1
          WHERE state = 'running' AND run_id IN (SELECT id FROM runs WHERE state = 'abandoned')",
        [now],
    )?;
    Ok(done)
}

/// Longest chain of tables that refer to each other: a row that goes may leave others behind.
const LONGEST_CHAIN: usize = 8;

/// Does to rows whose parent is gone what the schema says should have been done when it went.
fn delete_dangling(tx: &WriteTx<'_>) -> Result<usize> {
    let mut n = 0;
    for _ in 0..LONGEST_CHAIN {
        let mut statement = tx.sql().prepare(
            "SELECT DISTINCT c.\"table\", f.\"from\", f.\"table\", coalesce(f.\"to\", 'rowid'), f.on_delete = 'SET NULL'
               FROM pragma_foreign_key_check c JOIN pragma_foreign_key_list(c.\"table\") f ON f.id = c.fkid",
        )?;
        let broken = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
            .collect::<rusqlite::Result<Vec<(String, String, String, String, bool)>>>()?;
        if broken.is_empty() {
            break;
        }
        for (table, column, parent, key, keeps_row) in broken {
            let act = if keeps_row {
                format!("UPDATE \"{table}\" SET \"{column}\" = NULL")
            } else {
                format!("DELETE FROM \"{table}\"")
            };
            n += tx.sql().execute(
                &format!(
                    "{act} WHERE \"{column}\" IS NOT NULL
                        AND NOT EXISTS (SELECT 1 FROM \"{parent}\" p WHERE p.\"{key}\" = \"{table}\".\"{column}\")"
                ),
                [],
            )?;
        }
    }
    Ok(n)
}

/// Queues every source without a document, and every document whose hash is not its text's.
fn requeue(tx: &WriteTx<'_>, found: &Findings, now: Millis) -> Result<usize> {
    let mut n = 0;
    if found.count("document_missing") > 0 {
        for (source_type, table) in
            [("issue", "issues"), ("merge_request", "merge_requests"), ("discussion", "discussions")]
        {
            let select = format!(
                "SELECT '{source_type}', id, ?1 FROM {table} s
                  WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.source_type = '{source_type}' AND d.source_id = s.id)
                    AND NOT EXISTS (SELECT 1 FROM dirty_sources q WHERE q.source_type = '{source_type}' AND q.source_id = s.id){}",
                if source_type == "discussion" {
                    " AND EXISTS (SELECT 1 FROM notes n WHERE n.discussion_id = s.id AND n.is_system = 0)"
                } else {
                    ""
                }
            );
            n += tx.sql().execute(&queues::mark_all_sql(&select), [now])?;
        }
    }
    if found.count("document_hash") > 0 {
        let mut wrong = Vec::new();
        let mut statement =
            tx.sql().prepare_cached("SELECT id, content_hash, content_text FROM documents")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(2)?;
            let stored: String = row.get(1)?;
            if hash::text_hash(&text) != stored {
                wrong.push(row.get::<_, i64>(0)?);
            }
        }
        for id in wrong {
            // An impossible hash makes the regeneration write the document again.
            tx.sql().execute(
                "UPDATE documents SET content_hash = '', meta_hash = '', source_hash = x'' WHERE id = ?1",
                [id],
            )?;
            n += tx.sql().execute(
                &queues::mark_all_sql("SELECT source_type, source_id, ?1 FROM documents WHERE id = ?2"),
                (now, id),
            )?;
        }
    }
    Ok(n)
}
