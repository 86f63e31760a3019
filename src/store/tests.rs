use super::*;

fn temporary() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    (dir, store)
}

#[test]
fn a_failed_write_leaves_nothing() {
    let (_dir, store) = temporary();
    let error = store
        .write(|tx| {
            tx.sql().execute("INSERT INTO counters(name, value) VALUES ('x', 1)", [])?;
            Err::<(), _>(Error::internal("on purpose"))
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    let n: i64 = store
        .read(|tx| Ok(tx.sql().query_row("SELECT count(*) FROM counters", [], |row| row.get(0))?))
        .unwrap();
    assert_eq!(n, 0);
}

#[test]
fn a_write_with_a_foreign_token_is_fenced() {
    let (_dir, store) = temporary();
    store.set_fence(Some(Fence { owner: "somebody".to_owned(), token: 7 }));
    let error = store.write(|_| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[test]
fn a_long_statement_is_interrupted_when_the_lock_is_lost() {
    let (_dir, store) = temporary();
    let cancel = Cancel::new();
    cancel.cancel(crate::engine::cancel::StopReason::LockLost);
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    let error = store
        .read_until(&cancel, |tx| Ok(tx.sql().query_row(endless, [], |row| row.get::<_, i64>(0))?))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fenced);
}

#[test]
fn a_database_of_a_newer_lore_is_refused() {
    let (dir, store) = temporary();
    let path = dir.path().join("lore.db");
    store.write(|tx| Ok(tx.sql().pragma_update(None, "user_version", 9_999)?)).unwrap();
    drop(store);
    for error in [
        Store::open(&path, OpenOptions::default()).unwrap_err(),
        Store::open_read_only(&path, OpenOptions::default()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::DatabaseVersion);
        assert!(error.to_string().contains("9999"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn the_database_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let (dir, _store) = temporary();
    let mode = std::fs::metadata(dir.path().join("lore.db")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn cascades_take_documents_and_queue_rows_along() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            tx.sql().execute_batch(
                "INSERT INTO projects(id, source_name, path, created_at, updated_at) VALUES (1, 's', 'g/p', 0, 0);
                 INSERT INTO issues(id, project_id, gitlab_id, iid, state, created_at, updated_at, content_hash, synced_at, title)
                   VALUES (5, 1, 50, 2, 'opened', 0, 0, x'00', 0, 'kerberos');
                 INSERT INTO discussions(id, project_id, noteable_type, issue_id, gitlab_discussion_id, content_hash)
                   VALUES (6, 1, 'Issue', 5, 'd', x'00');
                 INSERT INTO documents(source_type, source_id, project_id, item_type, item_id, item_iid, state, content_hash, content_text)
                   VALUES ('issue', 5, 1, 'issue', 5, 2, 'opened', 'h', 'kerberos'),
                          ('discussion', 6, 1, 'issue', 5, 2, 'opened', 'h', 'ticket expired');
                 INSERT INTO dirty_sources(source_type, source_id, queued_at) VALUES ('issue', 5, 0), ('discussion', 6, 0);
                 INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at) VALUES (1, 'Issue', 2, 0);
                 DELETE FROM issues WHERE id = 5;",
            )?;
            Ok(())
        })
        .unwrap();
    store
        .read(|tx| {
            for table in [
                "documents",
                "documents_fts_docsize",
                "discussions",
                "dirty_sources",
                "pending_discussion_fetches",
            ] {
                let n: i64 =
                    tx.sql().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))?;
                assert_eq!(n, 0, "{table}");
            }
            Ok(())
        })
        .unwrap();
    store
        .write(|tx| {
            tx.sql().execute(
                "INSERT INTO documents_fts(documents_fts, rank) VALUES ('integrity-check', 1)",
                [],
            )?;
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_filled_database_of_version_2_is_upgraded_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lore.db");
    let old = open::open_writer(&path, OpenOptions::default()).unwrap();
    for migration in
        [include_str!("../../migrations/0001_init.sql"), include_str!("../../migrations/0002_embeddings.sql")]
    {
        old.execute_batch(migration).unwrap();
    }
    let text = "kerberos ticket";
    old.execute_batch(&format!(
        "INSERT INTO projects(id, source_name, gitlab_id, path, created_at, updated_at) VALUES (1, 's', 9, 'g/p', 0, 0);
         INSERT INTO issues(id, project_id, gitlab_id, iid, state, created_at, updated_at, content_hash, synced_at, title)
           VALUES (5, 1, 50, 2, 'opened', 0, 0, x'00', 0, 't'), (6, 1, 51, 20, 'opened', 0, 0, x'00', 0, 't');
         INSERT INTO discussions(id, project_id, noteable_type, issue_id, gitlab_discussion_id, content_hash)
           VALUES (6, 1, 'Issue', 5, 'd', x'00');
         INSERT INTO documents(id, source_type, source_id, project_id, item_type, item_id, item_iid, state, content_hash, content_text, title)
           VALUES (3, 'issue', 5, 1, 'issue', 5, 2, 'opened', '{hash}', '{text}', 't'),
                  (4, 'issue', 6, 1, 'issue', 6, 20, 'opened', '{hash}', '{text}', 't');
         INSERT INTO document_refs VALUES (3, 'mentions', 'issue', 'g/p', 7), (3, 'closes', 'issue', 'g/p', 7),
           (4, 'moved', 'merge_request', 'other/q', 8);
         INSERT INTO raw_payloads(project_id, resource_type, resource_key, encoding, payload, payload_hash, fetched_at)
           VALUES (1, 'issue', '2', 'identity', x'00', x'00', 0), (1, 'issue', '20', 'identity', x'00', x'00', 0),
                  (1, 'discussion', 'Issue/2/d', 'identity', x'00', x'00', 0), (1, 'discussion', 'Issue/20/d', 'identity', x'00', x'00', 0);
         PRAGMA user_version = 2;",
        hash = crate::content::hash::text_hash(text),
    ))
    .unwrap();
    drop(old);
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    let refs = |store: &Store| -> Vec<String> {
        let sql =
            "SELECT document_id || kind || target_path || target_iid || origin FROM document_refs ORDER BY 1";
        store
            .read(|tx| {
                let mut statement = tx.sql().prepare(sql)?;
                let rows = statement.query_map([], |row| row.get(0))?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            })
            .unwrap()
    };
    assert_eq!(refs(&store), ["3closesg/p7text", "3mentionsg/p7text", "4movedother/q8text"]);
    // The first opening may have queued documents to be made again; nothing is damaged.
    assert_eq!(integrity::check(&store, &Cancel::new()).unwrap().counts, std::collections::BTreeMap::new());
    // What is new works on what is old: references and payloads go with their item alone.
    store.write(|tx| Ok(tx.sql().execute_batch("DELETE FROM issues WHERE id = 5")?)).unwrap();
    assert_eq!(refs(&store), ["4movedother/q8text"]);
    let keys: String = store
        .read(|tx| {
            let sql =
                "SELECT group_concat(resource_key) FROM (SELECT resource_key FROM raw_payloads ORDER BY 1)";
            Ok(tx.sql().query_row(sql, [], |row| row.get(0))?)
        })
        .unwrap();
    assert_eq!(keys, "20,Issue/20/d");
    assert_eq!(integrity::check(&store, &Cancel::new()).unwrap().total(), 0);
}
