use std::collections::BTreeSet;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;

use super::*;
use crate::store::embeddings::tests::{new_identity, unit};
use crate::store::embeddings::{ChunkVector, NewChunk};
use crate::store::{OpenOptions, open};

/// A database of five documents, each with a vector.
fn filled() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    store
        .write(|tx| {
            tx.sql().execute_batch(
                "INSERT INTO projects(id, source_name, path, created_at, updated_at) VALUES (1, 's', 'g/p', 0, 0);",
            )?;
            let identity = embeddings::create(tx, &new_identity("h", 8), 0)?;
            for id in 1..=5 {
                tx.sql().execute(
                    "INSERT INTO issues(id, project_id, gitlab_id, iid, state, created_at, updated_at, content_hash, synced_at, title)
                     VALUES (?1, 1, ?1, ?1, 'opened', 0, 0, x'00', 0, 't')",
                    [id],
                )?;
                let text = format!("kerberos ticket {id}");
                tx.sql().execute(
                    "INSERT INTO documents(id, source_type, source_id, project_id, item_type, item_id, item_iid, state, content_hash, content_text, title)
                     VALUES (?1, 'issue', ?1, 1, 'issue', ?1, ?1, 'opened', ?2, ?3, 't')",
                    (id, hash::text_hash(&text), &text),
                )?;
                let chunk = NewChunk {
                    hash: [u8::try_from(id).unwrap(); 16],
                    is_title: false,
                    char_start: 0,
                    char_end: 1,
                    vector: ChunkVector::New(unit(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, id as f32])),
                };
                embeddings::write_document(tx, &identity, (id, &hash::text_hash(&text)), &[chunk], false, 1)?;
            }
            Ok(())
        })
        .unwrap();
    (dir, store)
}

/// Changes the file as a program would that keeps none of our rules.
fn tamper(path: &Path, sql: &str) {
    let raw = open::open_writer(path, OpenOptions::default()).unwrap();
    raw.execute_batch(
        "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA recursive_triggers = OFF;",
    )
    .unwrap();
    raw.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// A fault that is planted, what is found of it, and what a repair says that it did.
struct Plant {
    /// The fault.
    sql: &'static str,
    /// Findings by check, all of them.
    found: &'static [(&'static str, usize)],
    /// Of chunks and vectors: which of their checks.
    vectors: &'static [&'static str],
    /// Counts of the repair.
    repaired: &'static [(&'static str, usize)],
}

const fn plant(
    sql: &'static str,
    found: &'static [(&'static str, usize)],
    repaired: &'static [(&'static str, usize)],
) -> Plant {
    Plant { sql, found, vectors: &[], repaired }
}

const fn vector_plant(
    sql: &'static str,
    found: &'static [(&'static str, usize)],
    vectors: &'static [&'static str],
    repaired: &'static [(&'static str, usize)],
) -> Plant {
    Plant { sql, found, vectors, repaired }
}

const PLANTS: &[Plant] = &[
    // The full-text index.
    plant(
        "INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
           VALUES ('delete', 3, 't', 'kerberos ticket 3', '', '')",
        &[("fts_missing", 1), ("fts_content", 1)],
        &[("missing_fts_repopulated", 1), ("wrong_fts_replaced", 0)],
    ),
    plant(
        "INSERT INTO documents_fts(rowid, title, content_text, thread_text, terms_text) VALUES (99, '', 'ghost', '', '')",
        &[("fts_extra", 1), ("fts_content", 1)],
        &[("missing_fts_repopulated", 0), ("wrong_fts_replaced", 1)],
    ),
    // All counts agree, the words do not.
    plant(
        "INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
           VALUES ('delete', 3, 't', 'kerberos ticket 3', '', '');
         INSERT INTO documents_fts(rowid, title, content_text, thread_text, terms_text) VALUES (3, 't', 'invoice rounding', '', '')",
        &[("fts_content", 1)],
        &[("wrong_fts_replaced", 1)],
    ),
    // Documents and their sources.
    plant(
        "DROP TRIGGER issues_ad; DELETE FROM issues WHERE id = 2",
        &[("document_orphan", 1)],
        &[("orphaned_documents_deleted", 1)],
    ),
    plant(
        "PRAGMA foreign_keys = ON; DELETE FROM documents WHERE id = 4",
        &[("document_missing", 1)],
        &[("documents_requeued", 1)],
    ),
    plant(
        "INSERT INTO document_labels VALUES (77, 'bug');
         INSERT INTO document_paths VALUES (77, 'src/a.rs');
         INSERT INTO document_assignees VALUES (77, 'bo');
         INSERT INTO document_refs VALUES (77, 'closes', 'issue', 'g/p', 1, 'text')",
        &[("document_parts_orphan", 4)],
        &[("orphaned_parts_deleted", 4)],
    ),
    plant(
        "INSERT INTO item_links VALUES (1, 'issue', 77, 'blocks', 'issue', 'g/p', 1), (1, 'merge_request', 1, 'closes', 'issue', 'g/p', 1),
           (1, 'issue', 1, 'blocks', 'issue', 'g/p', 2);
         INSERT INTO link_looks(project_id, item_type, item_iid) VALUES (1, 'issue', 77), (1, 'issue', 1);
         INSERT INTO item_strikes VALUES (1, 'issue', 77, 1, 'run 1', 0, 0), (1, 'issue', 2, 1, 'run 1', 0, 0);
         INSERT INTO tombstones VALUES (1, 'issue', 3, 3, 0, 'not found'), (1, 'issue', 99, 99, 0, 'not found')",
        &[("item_parts_orphan", 5)],
        &[("orphaned_parts_deleted", 5)],
    ),
    // Queues.
    plant(
        "INSERT INTO dirty_sources(source_type, source_id, queued_at) VALUES ('discussion', 55, 0);
         INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at) VALUES (1, 'Issue', 44, 0)",
        &[("queue_orphan", 2)],
        &[("queue_entries_deleted", 2)],
    ),
    plant(
        "INSERT INTO dirty_sources(source_type, source_id, queued_at, attempt_count) VALUES ('issue', 1, 0, -1);
         INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at, attempt_count)
           VALUES (1, 'Issue', 1, 0, -3)",
        &[("queue_attempts", 2)],
        &[("queue_entries_deleted", 2)],
    ),
    // Failures without a time, and a time without a failure.
    plant(
        "INSERT INTO dirty_sources(source_type, source_id, queued_at, attempt_count) VALUES ('issue', 1, 0, 2);
         INSERT INTO dirty_sources(source_type, source_id, queued_at, last_attempt_at) VALUES ('issue', 2, 0, 9)",
        &[("queue_attempts", 2)],
        &[("queue_entries_deleted", 2)],
    ),
    // References between tables, in old tables and new ones.
    plant(
        "INSERT INTO tombstones(project_id, item_type, iid, gitlab_id, deleted_at, reason) VALUES (99, 'issue', 1, 1, 0, 'r');
         INSERT INTO group_projects(source_name, group_path, project_id) VALUES ('s', 'g', 99);
         INSERT INTO project_states(project_id, state, since) VALUES (99, 'missing', 0);
         INSERT INTO labels(project_id, name) VALUES (99, 'bug')",
        &[("foreign_keys", 4)],
        &[("dangling_rows_deleted", 4), ("not_repairable", 0)],
    ),
    plant(
        "INSERT INTO runs(id, uuid, job, job_hash, state, started_at, finished_at, token, owner, version, resumed_from)
           VALUES (7, 'u', 'sync', 'h', 'failed', 0, 1, 1, 'o', '0', 99)",
        &[("foreign_keys", 1)],
        &[("dangling_rows_deleted", 1)],
    ),
    // Runs.
    plant(
        "INSERT INTO runs(id, uuid, job, job_hash, state, started_at, token, owner, version) VALUES (7, 'u', 'sync', 'h', 'running', 0, 1, 'o', '0');
         INSERT INTO step_attempts(run_id, step, attempt, kind, state, started_at) VALUES (7, 'a', 1, 'ingest', 'running', 0)",
        &[("run_stuck", 1)],
        &[("runs_closed", 1)],
    ),
    // Vectors: nobody's.
    vector_plant(
        "INSERT INTO chunk_vectors(chunk_id, vector) VALUES (77, x'0000')",
        &[("foreign_keys", 1), ("embedding_orphan", 1)],
        &["vectors_orphaned"],
        &[],
    ),
    vector_plant(
        "DELETE FROM chunked_documents WHERE document_id = 2",
        &[("embedding_orphan", 1)],
        &["chunks_orphaned"],
        &[("orphaned_embeddings_deleted", 1)],
    ),
    vector_plant(
        "INSERT INTO chunk_codes_1(chunk_id, document_id, code) VALUES (77, 5, vec_bit(zeroblob(8)))",
        &[("embedding_orphan", 1)],
        &["codes_orphaned"],
        &[("orphaned_embeddings_deleted", 1)],
    ),
    // A chunk of an identity that is not there: its code is another's.
    vector_plant(
        "UPDATE chunks SET identity_id = 44 WHERE document_id = 3",
        &[("foreign_keys", 1), ("embedding_orphan", 2), ("embedding_stale", 1)],
        &["chunks_orphaned", "codes_orphaned", "chunks_miscounted"],
        &[],
    ),
    // Vectors: missing or wrong.
    vector_plant(
        "DELETE FROM chunk_vectors WHERE chunk_id = (SELECT id FROM chunks WHERE document_id = 2)",
        &[("embedding_stale", 1)],
        &["vectors_missing"],
        &[("stale_embeddings_cleared", 1)],
    ),
    vector_plant(
        "UPDATE chunk_vectors SET vector = x'00010203' WHERE chunk_id = (SELECT id FROM chunks WHERE document_id = 2)",
        &[("embedding_stale", 1)],
        &["vectors_wrong_dimension"],
        &[("stale_embeddings_cleared", 1)],
    ),
    vector_plant(
        "UPDATE chunks SET attempt_count = 1, last_error = 'e', last_attempt_at = 0 WHERE document_id = 2",
        &[("embedding_stale", 1)],
        &["vectors_of_failed_chunks"],
        &[],
    ),
    vector_plant(
        "UPDATE chunked_documents SET chunk_count = 4 WHERE document_id = 2",
        &[("embedding_stale", 1)],
        &["chunks_miscounted"],
        &[("stale_embeddings_cleared", 1)],
    ),
    vector_plant(
        "UPDATE chunked_documents SET content_hash = 'of another text' WHERE document_id = 2",
        &[("embedding_stale", 1)],
        &["embeddings_stale"],
        &[("stale_embeddings_cleared", 1)],
    ),
    vector_plant(
        "UPDATE chunk_vectors SET vector = zeroblob(length(vector))
          WHERE chunk_id = (SELECT id FROM chunks WHERE document_id = 2)",
        &[("embedding_stale", 1)],
        &["vectors_useless"],
        &[("stale_embeddings_cleared", 1)],
    ),
    // 7E00: not a number.
    vector_plant(
        "UPDATE chunk_vectors SET vector = x'007E0000000000000000000000000000'
          WHERE chunk_id = (SELECT id FROM chunks WHERE document_id = 2)",
        &[("embedding_stale", 1)],
        &["vectors_useless"],
        &[("stale_embeddings_cleared", 1)],
    ),
    vector_plant(
        "DELETE FROM chunk_codes_1 WHERE chunk_id = (SELECT id FROM chunks WHERE document_id = 2)",
        &[("embedding_stale", 1)],
        &["codes_missing"],
        &[],
    ),
    vector_plant(
        "DROP TRIGGER chunk_codes_1_ad; DROP TABLE chunk_codes_1",
        &[("embedding_stale", 1)],
        &["codes_missing"],
        &[],
    ),
];

/// Checks whose faults are planted by tests of their own below.
const ELSEWHERE: &[&str] = &["pages", "document_hash"];

#[test]
fn a3_22_every_fault_that_is_claimed_to_be_found_is_found_repaired_and_gone() {
    let mut problems = Vec::new();
    let (mut checks, mut vector_checks) = (BTreeSet::new(), BTreeSet::new());
    for Plant { sql, found: expected, vectors, repaired } in PLANTS {
        let (dir, store) = filled();
        assert_eq!(check(&store, &Cancel::new()).unwrap().counts, BTreeMap::new(), "clean before: {sql}");
        drop(store);
        let path = dir.path().join("lore.db");
        tamper(&path, sql);
        let store = Store::open(&path, OpenOptions::default()).unwrap();
        let found = check(&store, &Cancel::new()).unwrap();
        if found.counts != expected.iter().copied().collect() {
            problems.push(format!("{sql}:\n  found {:?}\n  {:?}", found.counts, found.findings));
        }
        let of_vectors: BTreeSet<&str> = found
            .findings
            .iter()
            .filter(|finding| finding.check.starts_with("embedding_"))
            .map(|finding| finding.subject.as_str())
            .collect();
        if of_vectors != vectors.iter().copied().collect() {
            problems.push(format!("{sql}:\n  found of vectors {of_vectors:?}"));
        }
        if found.total() == 0 {
            continue;
        }
        checks.extend(found.counts.keys().copied());
        vector_checks.extend(vectors.iter().copied());
        assert_eq!(findings_error(&found).kind(), ErrorKind::IntegrityFindings);
        let planned = plan(&found);
        let done = store.write(|tx| repair(tx, &found, 1)).unwrap();
        assert_eq!(planned.not_repairable, 0, "{sql}");
        let done = serde_json::to_value(done).unwrap();
        for (name, n) in *repaired {
            if done[*name] != *n {
                problems.push(format!("{sql}:\n  {name} is not {n} in {done}"));
            }
        }
        let after = check(&store, &Cancel::new()).unwrap();
        if after.total() > 0 {
            problems.push(format!("{sql}:\n  not clean after the repair: {:?}", after.findings));
        }
        let again = serde_json::to_value(store.write(|tx| repair(tx, &after, 2)).unwrap()).unwrap();
        if again.as_object().unwrap().values().any(|n| *n != 0) {
            problems.push(format!("{sql}:\n  a second repair did {again}"));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    checks.extend(ELSEWHERE);
    assert_eq!(checks, CHECKS.iter().map(|check| check.name).collect(), "every check has its fault");
    assert_eq!(vector_checks, embeddings::check_names().into_iter().collect(), "and every one of vectors");
}

#[test]
fn a_text_that_is_not_its_hashs_is_made_again() {
    let (_dir, store) = filled();
    store
        .write(|tx| {
            Ok(tx.sql().execute("UPDATE documents SET content_text = 'edited by hand' WHERE id = 2", [])?)
        })
        .unwrap();
    let found = check(&store, &Cancel::new()).unwrap();
    assert_eq!(found.counts, BTreeMap::from([("document_hash", 1)]));
    let done = store.write(|tx| repair(tx, &found, 1)).unwrap();
    assert_eq!(done.documents_requeued, 1);
    let queued = store.read(|tx| crate::store::queues::ready_dirty(tx, 1, 10)).unwrap();
    assert_eq!(queued.len(), 1, "clean once regenerate-docs has run");
}

#[test]
fn damaged_pages_are_found_and_left_to_a_backup() {
    let (dir, store) = filled();
    let (page, size): (i64, i64) = store
        .read(|tx| {
            let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'idx_documents_truncated'";
            Ok((
                tx.sql().query_row(root, [], |row| row.get(0))?,
                tx.sql().query_row("PRAGMA page_size", [], |row| row.get(0))?,
            ))
        })
        .unwrap();
    drop(store);
    let path = dir.path().join("lore.db");
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(u64::try_from((page - 1) * size).unwrap())).unwrap();
    file.write_all(&[0xFF; 64]).unwrap();
    drop(file);
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    let found = check(&store, &Cancel::new()).unwrap();
    assert!(found.count("pages") > 0, "{found:?}");
    assert!(plan(&found).not_repairable > 0);
    assert!(findings_error(&found).to_string().contains("pages"));
}

#[test]
fn every_check_has_a_name_of_its_own() {
    for (idx, check) in CHECKS.iter().enumerate() {
        assert!(CHECKS.iter().skip(idx + 1).all(|other| other.name != check.name));
        assert!(!check.meaning.is_empty());
    }
}
