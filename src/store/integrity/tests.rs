use super::*;
use crate::store::OpenOptions;

fn filled() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    store
        .write(|tx| {
            tx.sql().execute_batch(
                "INSERT INTO projects(id, source_name, path, created_at, updated_at) VALUES (1, 's', 'g/p', 0, 0);",
            )?;
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
                    (id, hash::text_hash(&text), text),
                )?;
            }
            Ok(())
        })
        .unwrap();
    (dir, store)
}

/// Plants a fault, sees exactly the named findings, repairs, and sees a clean second check.
fn plant(faults: &str, expected: &[(&'static str, usize)], repaired: &[(&str, usize)]) {
    let (_dir, store) = filled();
    assert_eq!(check(&store, &Cancel::new()).unwrap().counts, BTreeMap::new(), "clean before: {faults}");
    store
        .write(|tx| {
            // Some faults cannot be planted past the constraints that forbid them.
            tx.sql().execute_batch(&format!(
                "PRAGMA defer_foreign_keys = ON; PRAGMA ignore_check_constraints = ON; {faults}; PRAGMA ignore_check_constraints = OFF;"
            ))?;
            Ok(())
        })
        .unwrap();
    let found = check(&store, &Cancel::new()).unwrap();
    assert_eq!(found.counts, expected.iter().copied().collect(), "{faults}: {found:?}");
    assert_eq!(findings_error(&found).kind(), ErrorKind::IntegrityFindings);
    let done = store.write(|tx| repair(tx, &found, 1)).unwrap();
    let done = serde_json::to_value(done).unwrap();
    for (name, n) in repaired {
        assert_eq!(done[*name], *n, "{faults}: {name} in {done}");
    }
    assert_eq!(check(&store, &Cancel::new()).unwrap().counts, BTreeMap::new(), "clean after: {faults}");
}

#[test]
fn a3_22_a_missing_index_row_is_found_and_repaired() {
    plant(
        "INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
         VALUES ('delete', 3, 't', 'kerberos ticket 3', '', '')",
        &[("fts_missing", 1), ("fts_content", 1)],
        &[("missing_fts_repopulated", 1), ("wrong_fts_replaced", 0)],
    );
}

#[test]
fn a3_22_an_extra_index_row_is_found_and_repaired() {
    plant(
        "INSERT INTO documents_fts(rowid, title, content_text, thread_text, terms_text) VALUES (99, '', 'ghost', '', '')",
        &[("fts_extra", 1), ("fts_content", 1)],
        &[("missing_fts_repopulated", 0), ("wrong_fts_replaced", 1)],
    );
}

#[test]
fn a3_22_a_stale_index_row_is_found_though_all_counts_agree() {
    plant(
        "INSERT INTO documents_fts(documents_fts, rowid, title, content_text, thread_text, terms_text)
           VALUES ('delete', 3, 't', 'kerberos ticket 3', '', '');
         INSERT INTO documents_fts(rowid, title, content_text, thread_text, terms_text) VALUES (3, 't', 'invoice rounding', '', '')",
        &[("fts_content", 1)],
        &[("wrong_fts_replaced", 1)],
    );
}

#[test]
fn a_document_without_a_source_and_a_source_without_a_document_are_found() {
    plant(
        "DROP TRIGGER issues_ad; DELETE FROM issues WHERE id = 2;
         DELETE FROM documents WHERE id = 4",
        &[("document_orphan", 1), ("document_missing", 1)],
        &[("orphaned_documents_deleted", 1), ("documents_requeued", 1)],
    );
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
fn dangling_parts_of_documents_are_deleted() {
    let (dir, store) = filled();
    drop(store);
    // Foreign keys forbid this; a program that does not switch them on does not care.
    let raw = super::super::open::open_writer(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    raw.execute_batch(
        "PRAGMA foreign_keys = OFF;
         INSERT INTO document_labels VALUES (77, 'bug');
         INSERT INTO document_paths VALUES (77, 'src/a.rs');
         INSERT INTO document_refs VALUES (77, 'closes', 'issue', 'g/p', 1, 'text');",
    )
    .unwrap();
    drop(raw);
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    let found = check(&store, &Cancel::new()).unwrap();
    assert_eq!(found.counts, BTreeMap::from([("document_parts_orphan", 3)]));
    assert_eq!(store.write(|tx| repair(tx, &found, 1)).unwrap().orphaned_parts_deleted, 3);
    assert_eq!(check(&store, &Cancel::new()).unwrap().total(), 0);
}

#[test]
fn links_and_strikes_without_an_item_and_tombstones_of_one_that_is_there_are_deleted() {
    plant(
        "INSERT INTO item_links VALUES (1, 'issue', 77, 'blocks', 'issue', 'g/p', 1), (1, 'merge_request', 1, 'closes', 'issue', 'g/p', 1),
           (1, 'issue', 1, 'blocks', 'issue', 'g/p', 2);
         INSERT INTO link_looks(project_id, item_type, item_iid) VALUES (1, 'issue', 77), (1, 'issue', 1);
         INSERT INTO item_strikes VALUES (1, 'issue', 77, 1, 'run 1', 0, 0), (1, 'issue', 2, 1, 'run 1', 0, 0);
         INSERT INTO tombstones VALUES (1, 'issue', 3, 3, 0, 'not found'), (1, 'issue', 99, 99, 0, 'not found')",
        &[("item_parts_orphan", 5)],
        &[("orphaned_parts_deleted", 5)],
    );
}

#[test]
fn queue_rows_without_a_source_or_with_impossible_counts_are_deleted() {
    plant(
        "INSERT INTO dirty_sources(source_type, source_id, queued_at) VALUES ('discussion', 55, 0);
         INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at) VALUES (1, 'Issue', 44, 0)",
        &[("queue_orphan", 2)],
        &[("queue_entries_deleted", 2)],
    );
    plant(
        "INSERT INTO dirty_sources(source_type, source_id, queued_at, attempt_count) VALUES ('issue', 1, 0, -1)",
        &[("queue_attempts", 1)],
        &[("queue_entries_deleted", 1)],
    );
}

#[test]
fn a_run_without_a_lock_is_closed() {
    plant(
        "INSERT INTO runs(uuid, job, job_hash, state, started_at, token, owner, version) VALUES ('u', 'sync', 'h', 'running', 0, 1, 'o', '0')",
        &[("run_stuck", 1)],
        &[("runs_closed", 1)],
    );
}

#[test]
fn every_check_has_a_name_of_its_own() {
    for (idx, check) in CHECKS.iter().enumerate() {
        assert!(CHECKS.iter().skip(idx + 1).all(|other| other.name != check.name));
        assert!(!check.meaning.is_empty());
    }
}
