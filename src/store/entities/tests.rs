use super::*;
use crate::content::{Author, Discussion, Issue, ItemType, MergeRequest, Note, SourceType};
use crate::store::queues::mark_dirty;
use crate::store::{OpenOptions, Store, queues};

fn temporary() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    (dir, store)
}

fn project(path: &str, gitlab_id: Option<i64>) -> Project {
    Project { gitlab_id, path: path.to_owned(), ..Project::default() }
}

fn issue(iid: i64, title: &str) -> Issue {
    Issue {
        gitlab_id: 100 + iid,
        iid,
        title: title.to_owned(),
        state: "opened".to_owned(),
        issue_type: "issue".to_owned(),
        updated_at: 10,
        user_notes_count: Some(1),
        ..Issue::default()
    }
}

fn discussion(id: &str, body: &str) -> Discussion {
    let note = Note {
        gitlab_id: 1,
        body: body.to_owned(),
        author: Author { username: Some("mira".to_owned()), name: None },
        ..Note::default()
    };
    Discussion { gitlab_id: id.to_owned(), individual_note: true, notes: vec![note] }
}

fn drain(tx: &WriteTx<'_>) -> Result<Vec<(SourceType, i64)>> {
    let entries = queues::ready_dirty(tx, 0, 100)?;
    for entry in &entries {
        assert!(queues::complete_dirty(tx, entry)?);
    }
    let mut keys: Vec<_> = entries.into_iter().map(|entry| (entry.source_type, entry.source_id)).collect();
    keys.sort();
    Ok(keys)
}

#[test]
fn only_changed_content_is_written_and_marked() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            let project_id = upsert_project(tx, "s", &project("g/p", Some(1)), 1)?;
            let first = upsert_issue(tx, project_id, &issue(1, "printer jam"), 1)?;
            assert_eq!((first.change, first.discussions_stale), (Change::New, true));
            assert_eq!(drain(tx)?, [(SourceType::Issue, first.id)]);

            let same = upsert_issue(tx, project_id, &issue(1, "printer jam"), 2)?;
            assert_eq!((same.change, same.discussions_stale), (Change::Unchanged, false));
            let mut touched = issue(1, "printer jam");
            touched.updated_at = 11;
            let moved = upsert_issue(tx, project_id, &touched, 3)?;
            assert_eq!((moved.change, moved.discussions_stale), (Change::Touched, true));
            assert_eq!(drain(tx)?, []);

            touched.user_notes_count = Some(0);
            let note_gone = upsert_issue(tx, project_id, &touched, 4)?;
            assert_eq!((note_gone.change, note_gone.discussions_stale), (Change::Changed, true));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_new_title_reaches_the_documents_of_the_threads() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            let project_id = upsert_project(tx, "s", &project("g/p", None), 1)?;
            let item = upsert_issue(tx, project_id, &issue(1, "old"), 1)?;
            replace_discussions(tx, project_id, ItemType::Issue, item.id, &[discussion("d1", "hello")], 1)?;
            drain(tx)?;
            let mut text_only = issue(1, "old");
            text_only.description = Some("more".to_owned());
            upsert_issue(tx, project_id, &text_only, 2)?;
            assert_eq!(drain(tx)?.len(), 1, "a description is shown by its own document alone");
            upsert_issue(tx, project_id, &issue(1, "new"), 3)?;
            assert_eq!(drain(tx)?.len(), 2);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a5_14_issue_and_merge_request_of_one_number_do_not_collide() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            let a = upsert_project(tx, "s", &project("g/a", Some(1)), 1)?;
            let b = upsert_project(tx, "s", &project("g/b", Some(2)), 1)?;
            upsert_issue(tx, a, &issue(2, "issue two"), 1)?;
            upsert_issue(tx, b, &issue(2, "issue two of b"), 1)?;
            let merge_request =
                MergeRequest { iid: 2, gitlab_id: 7, title: "mr two".to_owned(), ..Default::default() };
            upsert_merge_request(tx, a, &merge_request, 1)?;
            assert_eq!(drain(tx)?.len(), 3);
            Ok(())
        })
        .unwrap();
}

#[test]
fn replacing_discussions_removes_what_is_gone_and_keeps_what_is_equal() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            let project_id = upsert_project(tx, "s", &project("g/p", None), 1)?;
            let item = upsert_issue(tx, project_id, &issue(1, "t"), 1)?;
            let all =
                [discussion("a", "1"), discussion("b", "2"), discussion("c", "3"), discussion("a", "1")];
            let first = replace_discussions(tx, project_id, ItemType::Issue, item.id, &all, 1)?;
            assert_eq!((first.new, first.notes), (3, 3));
            drain(tx)?;
            let next = [discussion("a", "1"), discussion("b", "2, edited")];
            let second = replace_discussions(tx, project_id, ItemType::Issue, item.id, &next, 2)?;
            assert_eq!(
                second,
                ReplacedDiscussions { new: 0, changed: 1, unchanged: 1, removed: 1, notes: 1 }
            );
            let third = replace_discussions(tx, project_id, ItemType::Issue, item.id, &next, 3)?;
            assert_eq!(third.unchanged, 2);
            assert_eq!(drain(tx)?.len(), 2, "the edited thread and its issue");
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_renamed_project_keeps_its_row_and_its_documents_are_made_again() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            let id = upsert_project(tx, "s", &project("g/old", Some(5)), 1)?;
            upsert_issue(tx, id, &issue(1, "t"), 1)?;
            drain(tx)?;
            assert_eq!(upsert_project(tx, "s", &project("g/new", Some(5)), 2)?, id);
            assert_eq!(drain(tx)?.len(), 1);
            let other = upsert_project(tx, "s", &project("g/old", Some(6)), 3)?;
            assert_ne!(other, id);
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_mark_that_arrives_meanwhile_is_not_lost() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            mark_dirty(tx, SourceType::Issue, 1, 1)?;
            let read = queues::ready_dirty(tx, 1, 10)?;
            mark_dirty(tx, SourceType::Issue, 1, 2)?;
            assert!(!queues::complete_dirty(tx, &read[0])?);
            queues::fail_dirty(tx, &read[0], "late", 3)?;
            let again = queues::ready_dirty(tx, 3, 10)?;
            assert_eq!((again[0].generation, again[0].attempt_count), (2, 0));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_fetch_that_is_queued_again_meanwhile_is_not_lost() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            let project_id = upsert_project(tx, "s", &project("g/p", Some(1)), 1)?;
            queues::queue_discussions(tx, project_id, ItemType::Issue, 7, 1)?;
            let read = queues::ready_fetches(tx, "s", 1, 10)?;
            queues::queue_discussions(tx, project_id, ItemType::Issue, 7, 2)?;
            assert!(!queues::complete_fetch(tx, &read[0])?);
            queues::fail_fetch(tx, &read[0], "late", 3)?;
            let again = queues::ready_fetches(tx, "s", 3, 10)?;
            assert_eq!((again[0].generation, again[0].attempt_count), (2, 0));
            assert!(queues::complete_fetch(tx, &again[0])?);
            Ok(())
        })
        .unwrap();
}

#[test]
fn failures_back_off_then_quarantine_and_new_content_resets_both() {
    let (_dir, store) = temporary();
    store
        .write(|tx| {
            mark_dirty(tx, SourceType::Issue, 1, 0)?;
            let mut now = 0;
            for attempt in 0..queues::MAX_ATTEMPTS {
                let ready = queues::ready_dirty(tx, now, 10)?;
                assert_eq!(ready.len(), 1, "attempt {attempt}");
                queues::fail_dirty(tx, &ready[0], &"日本".repeat(400), now)?;
                assert_eq!(queues::ready_dirty(tx, now, 10)?, [], "backs off");
                now += 2 * 3_600_000;
            }
            assert_eq!(queues::ready_dirty(tx, now, 10)?, [], "quarantined");
            let depth = &queues::depths(tx, now)?[0];
            assert_eq!((depth.depth, depth.ready, depth.failed, depth.quarantined), (1, 0, 1, 1));
            assert_eq!(queues::retry_failed(tx)?, 1);
            let ready = queues::ready_dirty(tx, now, 10)?;
            queues::fail_dirty(tx, &ready[0], "again", now)?;
            assert_eq!(queues::depths(tx, now)?[0].quarantined, 1);
            mark_dirty(tx, SourceType::Issue, 1, now)?;
            assert_eq!(queues::ready_dirty(tx, now, 10)?[0].attempt_count, 0);
            Ok(())
        })
        .unwrap();
}
