use super::*;
use crate::store::OpenOptions;
use crate::store::runs;

fn temporary() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    (dir, store)
}

fn second(store: &Store) -> Store {
    Store::open(store.path(), OpenOptions::default()).unwrap()
}

const RUN: NewRun<'static> = NewRun { job: "sync", job_hash: "h", options: "{}", resumed_from: None };

fn fast() -> LockConfig {
    LockConfig { heartbeat: Duration::from_millis(20), lease: Duration::from_millis(200) }
}

fn taken(store: &Store) -> Taken {
    match take(store, &RUN, fast(), IfLocked::Fail, &Cancel::new()).unwrap() {
        Outcome::Taken(taken) => taken,
        Outcome::Skipped(held) => panic!("held: {held:?}"),
    }
}

/// Makes the holder look like a process of another machine, which cannot be probed.
fn move_holder_elsewhere(store: &Store) {
    store
        .write(|tx| {
            crate::store::lock::set_boot_id_for_test(tx, "another boot")?;
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_live_holder_keeps_the_lock_and_is_named() {
    let (_dir, store) = temporary();
    let first = taken(&store);
    let _heartbeat = Heartbeat::start(&store, &first.fence, first.run_id, fast(), &Cancel::new()).unwrap();
    let error = take(&second(&store), &RUN, fast(), IfLocked::Fail, &Cancel::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("job sync (run 1)"), "{error}");
    let skipped = take(&second(&store), &RUN, fast(), IfLocked::Skip, &Cancel::new()).unwrap();
    assert!(matches!(skipped, Outcome::Skipped(_)));
    let waited =
        take(&second(&store), &RUN, fast(), IfLocked::Wait(Duration::from_millis(500)), &Cancel::new());
    assert_eq!(waited.unwrap_err().kind(), ErrorKind::Locked, "longer than a lease, but the holder beats");
}

#[test]
fn a6_01_a_silent_holder_of_another_machine_is_replaced_after_its_lease() {
    let (_dir, store) = temporary();
    let first = taken(&store);
    move_holder_elsewhere(&store);
    let other = second(&store);
    let next = take(&other, &RUN, fast(), IfLocked::Wait(Duration::from_secs(10)), &Cancel::new()).unwrap();
    let Outcome::Taken(next) = next else { panic!("not taken") };
    assert_eq!(next.fence.token, first.fence.token + 1);
    assert_eq!(next.abandoned, [first.run_id]);
    let old = store.read(|tx| runs::get(tx, first.run_id)).unwrap();
    assert_eq!(old.state, "abandoned");
    store.set_fence(Some(first.fence.clone()));
    assert_eq!(store.write(|_| Ok(())).unwrap_err().kind(), ErrorKind::Fenced, "the old holder wakes up");
    assert!(!lock::release(&store, &first.fence).unwrap(), "a late release frees nothing");
    assert!(lock::release(&other, &next.fence).unwrap());
}

#[test]
fn a_lost_lock_cancels_the_work() {
    let (_dir, store) = temporary();
    let first = taken(&store);
    let cancel = Cancel::new();
    let _heartbeat = Heartbeat::start(&store, &first.fence, first.run_id, fast(), &cancel).unwrap();
    let broken = lock::break_lock(&second(&store), &first.fence.owner).unwrap();
    assert_eq!(broken.token, first.fence.token);
    for _ in 0..200 {
        if cancel.reason().is_some() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(cancel.reason(), Some(StopReason::LockLost));
}

#[test]
fn breaking_needs_the_owners_name() {
    let (_dir, store) = temporary();
    let first = taken(&store);
    assert_eq!(lock::break_lock(&second(&store), "me").unwrap_err().kind(), ErrorKind::Usage);
    lock::break_lock(&second(&store), &first.fence.owner).unwrap();
    assert_eq!(taken(&second(&store)).fence.token, first.fence.token + 2, "a token is never used twice");
}

#[test]
fn a_request_to_cancel_reaches_the_run() {
    let (_dir, store) = temporary();
    let first = taken(&store);
    let cancel = Cancel::new();
    let _heartbeat = Heartbeat::start(&store, &first.fence, first.run_id, fast(), &cancel).unwrap();
    second(&store).write(|tx| runs::request_cancel(tx, first.run_id, 1)).unwrap();
    for _ in 0..200 {
        if cancel.reason().is_some() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(cancel.reason(), Some(StopReason::Cancelled));
}

#[test]
fn a_replaced_database_stops_the_run() {
    let (dir, store) = temporary();
    let first = taken(&store);
    let cancel = Cancel::new();
    let _heartbeat = Heartbeat::start(&store, &first.fence, first.run_id, fast(), &cancel).unwrap();
    let path = dir.path().join("lore.db");
    std::fs::rename(&path, dir.path().join("old.db")).unwrap();
    std::fs::write(&path, b"").unwrap();
    for _ in 0..200 {
        if cancel.reason().is_some() {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(cancel.reason(), Some(StopReason::DatabaseReplaced));
}

#[test]
fn looking_alive_is_judged_with_care() {
    let held = |at| LockState {
        owner: Some("o".to_owned()),
        token: 1,
        beat: 1,
        acquired_at: Some(0),
        heartbeat_at: at,
        lease_ms: 60_000,
        process: Default::default(),
        job: None,
        run_id: None,
        takeovers: 0,
    };
    assert!(looks_alive(&held(Some(1_000)), 30_000));
    assert!(!looks_alive(&held(Some(1_000)), 90_000));
    assert!(!looks_alive(&held(Some(3_600_000)), 0), "a holder from the future");
    assert!(!looks_alive(&held(None), 0));
}

/// Holds the write lock for `time`, as building the whole index does.
fn hold_write_lock(time: Duration) -> crate::error::Result<()> {
    let until = clock::since_boot() + time;
    while clock::since_boot() < until {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn work_that_cannot_be_cut_keeps_the_lock_when_the_lease_was_extended_before() {
    let (_dir, store) = temporary();
    let taken = taken(&store);
    store.set_fence(Some(taken.fence.clone()));
    let cancel = Cancel::new();
    let _heartbeat = Heartbeat::start(&store, &taken.fence, taken.run_id, fast(), &cancel).unwrap();
    store
        .write_long(&cancel, |tx| {
            assert!(lock::state(tx)?.lease_ms > 60_000, "a taker watches for the long lease");
            hold_write_lock(Duration::from_millis(600))
        })
        .unwrap();
    let lease_ms = || store.read(lock::state).unwrap().lease_ms;
    let until = clock::since_boot() + Duration::from_secs(10);
    while lease_ms() != 200 && clock::since_boot() < until {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    assert_eq!(lease_ms(), 200, "a beat brings the ordinary lease back");
    assert_eq!(cancel.reason(), None, "three leases without a beat");
    // The same without extending it is a lost lock.
    let ended = store.write_until(&cancel, |_| hold_write_lock(Duration::from_millis(600)));
    assert_eq!(cancel.reason(), Some(StopReason::LockLost), "{ended:?}");
}

#[test]
fn a_holder_whose_clock_is_wrong_is_seen_to_beat_and_refuses_at_once() {
    let (_dir, store) = temporary();
    let first = taken(&store);
    move_holder_elsewhere(&store);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                store
                    .write(|tx| crate::store::lock::beat_at_for_test(tx, clock::now_ms() + 86_400_000))
                    .unwrap();
                std::thread::park_timeout(Duration::from_millis(20));
            }
        });
        let other = second(&store);
        let refused = take(&other, &RUN, fast(), IfLocked::Fail, &Cancel::new());
        let skipped = take(&other, &RUN, fast(), IfLocked::Skip, &Cancel::new());
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Locked);
        assert!(matches!(skipped.unwrap(), Outcome::Skipped(held) if held.token == first.fence.token));
    });
}

#[test]
fn a_wait_for_the_lock_is_not_prolonged_by_the_wait_for_a_writer() {
    let (_dir, store) = temporary();
    let patient = OpenOptions { busy_timeout: Duration::from_secs(600), ..OpenOptions::default() };
    let other = Store::open(store.path(), patient).unwrap();
    let begun = clock::since_boot();
    store
        .write(|_| {
            // Ends by itself only because the wait does.
            let waited =
                take(&other, &RUN, fast(), IfLocked::Wait(Duration::from_millis(300)), &Cancel::new());
            assert_eq!(waited.unwrap_err().kind(), ErrorKind::DatabaseBusy);
            Ok(())
        })
        .unwrap();
    assert!(clock::since_boot().saturating_sub(begun) < Duration::from_secs(300));
}
