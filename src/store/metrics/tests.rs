use super::*;
use crate::error::Error;
use crate::store::OpenOptions;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    (dir, store)
}

#[test]
fn labels_survive_the_characters_that_separate_them() {
    let keys = ["graph", "step"];
    for values in [["sync", "embed"], ["a,b=c", "%2C"], ["", "ü"]] {
        let text = encode_labels(&keys, &values);
        assert_eq!(decode_labels(&keys, &text).unwrap(), values, "{text}");
    }
    assert_eq!(decode_labels(&["graph"], "other=1"), None);
    assert_eq!(decode_labels(&[], ""), Some(Vec::new()));
}

#[test]
fn label_names_are_sorted_and_names_are_unique() {
    for which in Persisted::ALL {
        assert!(which.labels().is_sorted(), "{which:?}");
        assert_eq!(Persisted::ALL.iter().filter(|other| other.name() == which.name()).count(), 1);
    }
}

#[test]
fn a_counter_never_falls() {
    let (_dir, store) = store();
    for n in [2.0, -1.0, f64::NAN, 0.5] {
        store.write(|tx| add(tx, Persisted::RateLimitWait, &["gitlab"], n)).unwrap();
    }
    let values = store.read(persisted).unwrap();
    assert_eq!(values.len(), 1);
    assert!((values[0].value - 2.5).abs() < 1e-9, "{values:?}");
}

#[test]
fn pending_counts_are_written_once_by_the_next_commit_and_kept_by_a_failed_one() {
    let (_dir, store) = store();
    store.count(Persisted::Requests, &["gitlab", "2xx"], 3.0);
    let failed: Result<()> = store.write(|_| Err(Error::internal("planned")));
    assert!(failed.is_err());
    assert_eq!(store.read(persisted).unwrap(), []);
    store.write(|_| Ok(())).unwrap();
    store.write(|_| Ok(())).unwrap();
    let values = store.read(persisted).unwrap();
    assert!((values[0].value - 3.0).abs() < 1e-9, "{values:?}");
}

#[test]
fn an_integrity_check_with_findings_does_not_move_the_time_of_the_last_good_one() {
    let (_dir, store) = store();
    store.write(|tx| note_integrity_check(tx, true, 1_000)).unwrap();
    store.write(|tx| note_integrity_check(tx, false, 2_000)).unwrap();
    let values = store.read(persisted).unwrap();
    let value = |which| values.iter().find(|value| value.which == which).unwrap().value;
    assert!((value(Persisted::IntegrityChecked) - 2.0).abs() < 1e-9);
    assert!((value(Persisted::IntegrityOk) - 1.0).abs() < 1e-9);
}
