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
