use super::*;
use crate::engine::cancel::StopReason;
use crate::store::fixtures::{self, Doc};

/// A database of several steps' worth of pages.
fn filled() -> (tempfile::TempDir, PathBuf) {
    let (dir, store) = fixtures::store();
    for n in 0..60 {
        let body = "kerberos ticket ".repeat(8_000);
        store.write(|tx| fixtures::insert(tx, &Doc::issue(n, &format!("title {n}"), &body))).unwrap();
    }
    let path = store.path().to_owned();
    (dir, path)
}

fn documents(path: &Path) -> i64 {
    let store = Store::open_read_only(path, OpenOptions::default()).unwrap();
    store.read(|tx| Ok(tx.sql().query_row("SELECT count(*) FROM documents", [], |row| row.get(0))?)).unwrap()
}

fn plain(source: &Path, target: &Path) -> Result<Copied> {
    copy(source, target, Existing::Keep, OpenOptions::default(), &Cancel::new(), &mut |_, _| {})
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("lore.db") && !name.starts_with("test.db"))
        .collect();
    names.sort();
    names
}

fn fence(store: &Store) -> Fence {
    store
        .write(|tx| {
            tx.sql().execute("UPDATE app_lock SET owner = 'me', token = token + 5, lease_ms = 60000", [])?;
            let token = tx.sql().query_row("SELECT token FROM app_lock", [], |row| row.get(0))?;
            Ok(Fence { owner: "me".to_owned(), token })
        })
        .unwrap()
}

#[test]
fn a_copy_is_the_state_of_its_beginning_whoever_writes_meanwhile() {
    let (dir, source) = filled();
    let store = Store::open(&source, OpenOptions::default()).unwrap();
    let target = dir.path().join("copy.db");
    let mut steps = 0;
    let mut write = |_, _| {
        steps += 1;
        store.write(|tx| fixtures::insert(tx, &Doc::issue(1000 + steps, "late", "late"))).unwrap();
    };
    let copied =
        copy(&source, &target, Existing::Keep, OpenOptions::default(), &Cancel::new(), &mut write).unwrap();
    assert!(steps >= 2, "{steps} steps: the copy is not cut into pieces");
    assert_eq!((copied.documents, documents(&target)), (60, 60));
    assert_eq!(documents(&source), 60 + steps);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&target).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(files(dir.path()), ["copy.db"], "no log and nothing unfinished beside it");
}

#[test]
fn a_copy_stays_unless_it_is_to_be_replaced_and_never_replaces_the_database() {
    let (dir, source) = filled();
    let target = dir.path().join("copy.db");
    std::fs::write(&target, "mine").unwrap();
    assert_eq!(plain(&source, &target).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(std::fs::read(&target).unwrap(), b"mine");
    let replace = |target: &Path| {
        copy(&source, target, Existing::Replace, OpenOptions::default(), &Cancel::new(), &mut |_, _| {})
    };
    assert_eq!(replace(&target).unwrap().documents, 60);
    assert_eq!(replace(&source).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(documents(&source), 60);
}

#[test]
fn a_copy_that_is_stopped_leaves_nothing() {
    let (dir, source) = filled();
    let cancel = Cancel::new();
    let mut stop = |_, _| cancel.cancel(StopReason::Terminated);
    let target = dir.path().join("copy.db");
    let stopped = copy(&source, &target, Existing::Keep, OpenOptions::default(), &cancel, &mut stop);
    assert!(stopped.is_err());
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn damage_and_what_is_not_ours_are_seen_before_anything_is_replaced() {
    let (dir, source) = filled();
    let backup = dir.path().join("copy.db");
    plain(&source, &backup).unwrap();
    let whole = std::fs::read(&backup).unwrap();
    let kind = |bytes: &[u8]| {
        std::fs::write(&backup, bytes).unwrap();
        verify(&backup, OpenOptions::default()).map_err(|error| error.kind())
    };
    assert_eq!(kind(&whole).unwrap().documents, 60);
    let mut damaged = whole.clone();
    for page in 1..whole.len() / 4096 {
        damaged[page * 4096..page * 4096 + 8].fill(0xA5);
    }
    assert_eq!(kind(&damaged).unwrap_err(), ErrorKind::IntegrityFindings);
    assert_eq!(kind(&whole[..whole.len() / 2]).unwrap_err(), ErrorKind::IntegrityFindings);
    assert_eq!(
        kind(b"no database at all, but long enough for a header".repeat(4).as_slice()).unwrap_err(),
        ErrorKind::DatabaseVersion
    );
    assert_eq!(kind(b"").unwrap_err(), ErrorKind::DatabaseVersion);
    let mut newer = whole;
    // The user version of SQLite's file header: four bytes at offset 60.
    newer[60..64].copy_from_slice(&9_999_u32.to_be_bytes());
    assert_eq!(kind(&newer).unwrap_err(), ErrorKind::DatabaseVersion);
}

#[test]
fn a_restore_replaces_all_at_once_and_fences_whoever_held_the_lock_before() {
    let (dir, path) = filled();
    let backup = dir.path().join("copy.db");
    plain(&path, &backup).unwrap();
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    let reader = Store::open_read_only(&path, OpenOptions::default()).unwrap();
    store.write(|tx| Ok(tx.sql().execute("DELETE FROM documents WHERE id > 5", [])?)).unwrap();
    let old = fence(&store);
    store.set_fence(Some(old.clone()));
    let count = |tx: &crate::store::ReadTx<'_>| -> Result<i64> {
        Ok(tx.sql().query_row("SELECT count(*) FROM documents", [], |row| row.get(0))?)
    };
    let mut seen = Vec::new();
    let mut look = |_, _| seen.push(reader.read(count).unwrap());
    let copied = restore_into(&store, &old, &backup, &Cancel::new(), &mut look).unwrap();
    assert_eq!(copied.documents, 60);
    assert!(seen.len() >= 2 && seen.iter().all(|n| *n == 5), "readers see the old state: {seen:?}");
    assert_eq!(reader.read(count).unwrap(), 60);
    let refused = store.write(|tx| Ok(tx.sql().execute("DELETE FROM documents", [])?)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    let (owner, token): (Option<String>, i64) = reader
        .read(|tx| {
            Ok(tx
                .sql()
                .query_row("SELECT owner, token FROM app_lock", [], |row| Ok((row.get(0)?, row.get(1)?)))?)
        })
        .unwrap();
    assert_eq!((owner, token), (None, old.token), "free, and the next token is higher than every one before");
}

#[test]
fn a_restore_without_the_lock_or_stopped_half_way_changes_nothing() {
    let (dir, path) = filled();
    let backup = dir.path().join("copy.db");
    plain(&path, &backup).unwrap();
    let store = Store::open(&path, OpenOptions::default()).unwrap();
    store.write(|tx| Ok(tx.sql().execute("DELETE FROM documents WHERE id > 5", [])?)).unwrap();
    let held = fence(&store);
    let lost = Fence { token: held.token - 1, ..held.clone() };
    store.set_fence(Some(lost.clone()));
    let refused = restore_into(&store, &lost, &backup, &Cancel::new(), &mut |_, _| {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Fenced);
    store.set_fence(Some(held.clone()));
    let cancel = Cancel::new();
    let mut stop = |_, _| cancel.cancel(StopReason::Terminated);
    assert!(restore_into(&store, &held, &backup, &cancel, &mut stop).is_err());
    assert_eq!(documents(&path), 5);
    store.write(|_| Ok(())).unwrap();
    assert_eq!(files(dir.path()), ["copy.db"]);
}

#[test]
fn a_disk_that_is_too_small_is_told_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(open::refuse_full_disk(dir.path(), u64::MAX).unwrap_err().kind(), ErrorKind::DiskFull);
    open::refuse_full_disk(dir.path(), 1).unwrap();
}

#[test]
fn what_a_killed_copy_left_is_removed_and_nothing_that_is_held_or_young() {
    let (dir, source) = filled();
    let make = |name: &str, is_old: bool| {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        if is_old {
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        file
    };
    make(".lore-backup-killed.partial", true);
    make(".lore-backup-killed.partial-journal", true);
    make(".lore-backup-young.partial", false);
    let held = make(".lore-backup-held.partial", true);
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    make(".lore-backup-notes.txt", true);
    plain(&source, &dir.path().join("copy.db")).unwrap();
    assert_eq!(
        files(dir.path()),
        [".lore-backup-held.partial", ".lore-backup-notes.txt", ".lore-backup-young.partial", "copy.db"]
    );
}
