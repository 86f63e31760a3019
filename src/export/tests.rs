//! Tests of the reader: both layouts, odd fields, and what it refuses.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::*;
use crate::content::{Author, DiffPosition};
use crate::engine::cancel::StopReason;
use crate::error::ErrorKind;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export").join(name)
}

fn read_with(export: &Export, limits: &Limits) -> Result<(Survey, Vec<Read>)> {
    let cancel = Cancel::new();
    let survey = export.survey(limits, &cancel)?;
    let mut found = Vec::new();
    export.items(&survey, Some("https://git.example/g/p/"), limits, &cancel, &mut |read| {
        found.push(read);
        Ok(())
    })?;
    Ok((survey, found))
}

fn read(export: &Export) -> Result<(Survey, Vec<Read>)> {
    read_with(export, &Limits::default())
}

fn items(found: Vec<Read>) -> Vec<Item> {
    found
        .into_iter()
        .map(|read| match read {
            Read::Item(item) => *item,
            Read::Bad(bad) => panic!("bad line: {bad}"),
        })
        .collect()
}

fn issue(items: &[Item], iid: i64) -> (&Issue, &Item) {
    items
        .iter()
        .find_map(|item| match &item.entity {
            Entity::Issue(issue) if issue.iid == iid => Some((&**issue, item)),
            Entity::Issue(_) | Entity::MergeRequest(_) => None,
        })
        .unwrap()
}

fn merge_request(items: &[Item], iid: i64) -> (&MergeRequest, &Item) {
    items
        .iter()
        .find_map(|item| match &item.entity {
            Entity::MergeRequest(found) if found.iid == iid => Some((&**found, item)),
            Entity::Issue(_) | Entity::MergeRequest(_) => None,
        })
        .unwrap()
}

/// One member of a test archive.
enum Entry<'a> {
    File(&'a str, &'a [u8]),
    Special(tar::EntryType, &'a str, &'a str),
}

fn tar_bytes(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        let (name, content) = match entry {
            Entry::File(name, content) => {
                header.set_entry_type(tar::EntryType::Regular);
                (*name, *content)
            }
            Entry::Special(kind, name, target) => {
                header.set_entry_type(*kind);
                if !target.is_empty() {
                    header.set_link_name(target).unwrap();
                }
                (*name, &[] as &[u8])
            }
        };
        header.set_size(content.len() as u64);
        // Written as bytes: the builder itself refuses what is tested here.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn on_disk(bytes: &[u8]) -> (tempfile::TempDir, Export) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("export.tar.gz");
    std::fs::write(&path, bytes).unwrap();
    let export = Export::open(&path).unwrap();
    (dir, export)
}

const PROJECT: Entry<'static> = Entry::File("tree/project.json", b"{\"archived\":false}");

#[test]
fn api_86_both_layouts_read_alike() {
    let (tree, from_tree) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let (legacy, from_legacy) = read(&Export::open(&fixture("legacy")).unwrap()).unwrap();
    let bare = Export::open(&fixture("legacy/project.json")).unwrap();
    let (_, from_file) = read(&bare).unwrap();
    assert_eq!((tree.layout, legacy.layout), (Layout::Tree, Layout::Legacy));
    assert_eq!((tree.issues, tree.merge_requests), (3, 2));
    assert_eq!((legacy.issues, legacy.merge_requests), (3, 2));
    assert!(tree.archived && legacy.archived);
    assert_eq!(tree.labels, legacy.labels);
    assert_eq!(tree.milestones, legacy.milestones);
    assert_eq!(tree.users, legacy.users);
    let plain = |found: Vec<Read>| -> Vec<Item> {
        items(found).into_iter().map(|item| Item { bytes: 0, ..item }).collect()
    };
    let from_tree = plain(from_tree);
    assert_eq!(from_tree, plain(from_legacy));
    assert_eq!(from_tree, plain(from_file));
}

#[test]
fn api_86_a_member_name_may_start_with_dot_slash_and_a_tar_needs_no_gzip() {
    let legacy = std::fs::read(fixture("legacy/project.json")).unwrap();
    let tar = tar_bytes(&[
        Entry::Special(tar::EntryType::Directory, "./", ""),
        Entry::File("./VERSION", b"0.2.3\n"),
        Entry::File("./project.json", &legacy),
    ]);
    for bytes in [tar.clone(), gzip(&tar)] {
        let (_dir, export) = on_disk(&bytes);
        let (survey, found) = read(&export).unwrap();
        assert_eq!(survey.layout, Layout::Legacy);
        assert_eq!(items(found).len(), 5);
    }
}

#[test]
fn api_87_the_project_comes_from_the_configuration() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    assert_eq!(issue(&items, 2).0.web_url.as_deref(), Some("https://git.example/g/p/-/issues/2"));
    assert_eq!(
        merge_request(&items, 2).0.web_url.as_deref(),
        Some("https://git.example/g/p/-/merge_requests/2")
    );
}

#[test]
fn api_88_user_names_come_from_the_members_and_may_be_unknown() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    let (first, item) = issue(&items, 1);
    assert_eq!(first.author.username.as_deref(), Some("ada"));
    assert_eq!(first.author.name.as_deref(), Some("Ada"), "taken from the notes of the same person");
    let notes = &item.discussions[0].notes;
    assert_eq!(notes[1].author, Author { username: Some("grace".into()), name: Some("Grace".into()) });
    let (second, _) = issue(&items, 2);
    assert_eq!(second.author, Author { username: None, name: Some("Someone Else".into()) });
}

#[test]
fn a5_05_an_author_can_be_null() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    assert_eq!(issue(&items, 3).0.author, Author::default());
}

#[test]
fn api_89_a5_19_confidential_items_and_internal_notes_keep_their_flags() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    let (first, item) = issue(&items, 1);
    assert!(first.confidential);
    let notes: Vec<&crate::content::Note> =
        item.discussions.iter().flat_map(|discussion| &discussion.notes).collect();
    let flags: Vec<(i64, bool, bool)> =
        notes.iter().map(|note| (note.gitlab_id, note.internal, note.system)).collect();
    assert_eq!(
        flags,
        [
            (101, false, false),
            (103, false, false),
            (104, true, false),
            (105, true, false),
            (106, false, false),
            (102, false, true)
        ]
    );
}

#[test]
fn api_90_the_tail_of_an_import_names_an_unknown_author_and_stays_in_the_text() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    let (_, item) = issue(&items, 1);
    let note = item
        .discussions
        .iter()
        .flat_map(|discussion| &discussion.notes)
        .find(|note| note.gitlab_id == 106)
        .unwrap();
    assert_eq!(note.author, Author { username: None, name: Some("User 0".into()) });
    assert!(note.body.contains("*By User 9 on"));
}

#[test]
fn api_91_labels_types_assignees_and_spacing_may_be_odd() {
    let (survey, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    let (first, item) = issue(&items, 1);
    assert_eq!(first.labels, ["A project label", "group label"]);
    assert_eq!(item.labels.len(), 3, "with their repeats");
    assert_eq!(
        survey.labels.iter().map(|label| label.name.as_str()).collect::<Vec<_>>(),
        ["A project label", "unused"]
    );
    assert_eq!(first.assignees, ["ada", "grace"]);
    assert_eq!(first.milestone.as_deref(), Some("group milestone"));
    assert_eq!(first.issue_type, "task");
    assert_eq!(issue(&items, 2).0.issue_type, "invalid_type");
    assert_eq!(issue(&items, 2).0.state, "closed", "told by closed_at alone");
    assert_eq!(issue(&items, 3).0.issue_type, "test_case");
    assert_eq!(issue(&items, 3).0.closed_at, None);
}

#[test]
fn api_92_a_position_is_an_object_or_a_text_or_unusable() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    let (merge_request, item) = merge_request(&items, 2);
    assert!(merge_request.draft);
    assert_eq!(merge_request.assignees, ["ada"]);
    assert_eq!(merge_request.merged_at, crate::clock::parse_time("2020-02-02T09:00:00Z"));
    let positions: Vec<_> =
        item.discussions.iter().map(|discussion| discussion.notes[0].position.clone()).collect();
    let text = |old: Option<&str>, new: &str, old_line, new_line| {
        Some(DiffPosition {
            position_type: Some("text".into()),
            old_path: old.map(Into::into),
            new_path: Some(new.into()),
            old_line,
            new_line,
        })
    };
    assert_eq!(
        positions,
        [
            text(None, "src/a.rs", None, Some(7)),
            text(Some("src/b.rs"), "src/c.rs", Some(3), Some(4)),
            None,
            None
        ]
    );
    let first = &item.discussions[0].notes[0];
    assert!(first.resolvable && first.resolved);
    assert_eq!(first.resolved_by.as_deref(), Some("grace"));
    assert!(!item.discussions[3].notes[0].resolvable, "an unknown type is kept and not judged");
}

#[test]
fn a_note_without_discussion_is_one_of_its_own_under_a_stable_id() {
    let ids = || -> Vec<(String, bool, usize)> {
        let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
        let items = items(found);
        let (_, item) = issue(&items, 1);
        item.discussions
            .iter()
            .map(|discussion| {
                (discussion.gitlab_id.clone(), discussion.individual_note, discussion.notes.len())
            })
            .collect()
    };
    let found = ids();
    assert_eq!(found, ids());
    let shapes: Vec<(bool, usize)> = found.iter().map(|(_, single, n)| (*single, *n)).collect();
    assert_eq!(shapes, [(false, 2), (true, 1), (true, 1), (true, 1), (true, 1)]);
    assert!(found.iter().all(|(id, ..)| id.len() == 40 && id.chars().all(|c| c.is_ascii_hexdigit())));
}

#[test]
fn texts_lose_nul_and_half_characters_and_nothing_else() {
    let (_, found) = read(&Export::open(&fixture("tree")).unwrap()).unwrap();
    let items = items(found);
    let description = issue(&items, 1).0.description.clone().unwrap();
    assert!(description.starts_with("NUL  in the middle, half a pair \u{fffd}"), "{description:?}");
    assert!(description.ends_with(" here"));
}

#[test]
fn api_93_hostile_members_refuse_the_whole_archive_by_name() {
    use tar::EntryType;
    let cases: [(Entry<'_>, &str); 8] = [
        (Entry::Special(EntryType::Symlink, "uploads/a", "/etc/passwd"), "a symbolic link"),
        (Entry::Special(EntryType::Link, "uploads/a", "/etc/passwd"), "a hard link"),
        (Entry::Special(EntryType::Char, "uploads/a", ""), "a device"),
        (Entry::Special(EntryType::Block, "uploads/a", ""), "a device"),
        (Entry::Special(EntryType::Fifo, "uploads/a", ""), "a named pipe"),
        (Entry::File("../uploads/a", b"x"), "outside the archive"),
        (Entry::File("uploads/../../a", b"x"), "outside the archive"),
        (Entry::File("/uploads/a", b"x"), "outside the archive"),
    ];
    for (hostile, problem) in cases {
        // Behind a member that cannot be parsed: the hostile one is what has to be told.
        let tar = tar_bytes(&[Entry::File("project.json", b"\x1f\x8bnonsense"), PROJECT, hostile]);
        let (_dir, export) = on_disk(&gzip(&tar));
        let error = read(&export).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let message = error.to_string();
        assert!(message.contains("uploads/a") || message.contains("../a"), "{message}");
        assert!(message.contains(problem), "{message}");
        assert!(!error.hints().is_empty());
    }
}

#[cfg(unix)]
#[test]
fn api_93_a_link_in_a_directory_is_refused_too() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("tree/project")).unwrap();
    std::fs::write(dir.path().join("tree/project.json"), "{}").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("tree/project/issues.ndjson")).unwrap();
    let error = read(&Export::open(dir.path()).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[test]
fn api_93_the_unpacked_size_is_bounded() {
    let filler = vec![b' '; 300_000];
    let tar = tar_bytes(&[PROJECT, Entry::File("project.bundle", &filler)]);
    let limits = Limits { unpacked_bytes: 200_000, ..Limits::default() };
    for bytes in [tar.clone(), gzip(&tar)] {
        let (_dir, export) = on_disk(&bytes);
        let error = read_with(&export, &limits).unwrap_err();
        assert!(error.to_string().contains("more than 200000 bytes unpacked"), "{error}");
    }
}

#[test]
fn api_93_a_name_of_many_megabytes_is_not_read_into_memory() {
    let name = vec![b'a'; 6 << 20];
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::GNULongName);
    header.set_size(name.len() as u64);
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, name.as_slice()).unwrap();
    let (_dir, export) = on_disk(&gzip(&builder.into_inner().unwrap()));
    let error = read(&export).unwrap_err();
    assert!(error.to_string().contains("headers of more than"), "{error}");
}

#[test]
fn api_94_a_line_over_the_limit_names_file_and_line() {
    let long = format!("{{\"iid\":1}}\n{{\"iid\":2,\"description\":\"{}\"}}\n", "x".repeat(5_000));
    let limits = Limits { line_bytes: 1_000, ..Limits::default() };
    let tar = tar_bytes(&[PROJECT, Entry::File("tree/project/issues.ndjson", long.as_bytes())]);
    let (_dir, export) = on_disk(&gzip(&tar));
    let error = read_with(&export, &limits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("tree/project/issues.ndjson:2"), "{error}");
    let legacy = format!("{{\"issues\":[{{\"iid\":2,\"description\":\"{}\"}}]}}", "x".repeat(500_000));
    let (_dir, export) = on_disk(&gzip(&tar_bytes(&[Entry::File("project.json", legacy.as_bytes())])));
    let error = read_with(&export, &limits).unwrap_err();
    assert!(error.to_string().contains("longer than 1000 bytes"), "{error}");
}

#[test]
fn api_94_diffs_and_events_of_any_size_are_skipped() {
    let diff = "+\\u0000 line\\n".repeat(200_000);
    let line = format!(
        "{{\"iid\":1,\"title\":\"t\",\"state\":\"opened\",\"merge_request_diff\":{{\"merge_request_diff_files\":[{{\"utf8_diff\":\"{diff}\"}}]}},\"notes\":[]}}\n"
    );
    let tar = tar_bytes(&[PROJECT, Entry::File("tree/project/merge_requests.ndjson", line.as_bytes())]);
    let (_dir, export) = on_disk(&gzip(&tar));
    let (_, found) = read(&export).unwrap();
    assert_eq!(items(found).len(), 1);
}

#[test]
fn a_bad_line_is_named_and_the_others_go_on() {
    let lines = "{\"iid\":1,\"title\":\"a\"}\nnot json\n{\"title\":\"no number\"}\n{\"iid\":4,\"notes\":7}\n{\"iid\":5}\n";
    let tar = tar_bytes(&[
        PROJECT,
        Entry::File("tree/project/labels.ndjson", b"[1]\n"),
        Entry::File("tree/project/issues.ndjson", lines.as_bytes()),
    ]);
    let (_dir, export) = on_disk(&gzip(&tar));
    let (survey, found) = read(&export).unwrap();
    assert_eq!(survey.bad.len(), 1);
    assert!(survey.bad[0].place.ends_with("labels.ndjson:1"));
    let (mut good, mut bad) = (0, Vec::new());
    for read in found {
        match read {
            Read::Item(_) => good += 1,
            Read::Bad(line) => bad.push(line.to_string()),
        }
    }
    assert_eq!(good, 2);
    assert_eq!(bad.len(), 3);
    assert!(bad[0].starts_with("tree/project/issues.ndjson:2: "), "{bad:?}");
    assert!(bad[1].starts_with("tree/project/issues.ndjson:3: missing field `iid`"), "{bad:?}");
}

#[test]
fn a_damaged_or_foreign_file_is_told_apart() {
    let whole = gzip(&tar_bytes(&[PROJECT, Entry::File("project.bundle", &[7; 50_000])]));
    let (_dir, export) = on_disk(&whole[..whole.len() / 2]);
    let error = read(&export).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.hints().iter().any(|hint| hint.contains("damaged")), "{error}");

    let (_dir, export) = on_disk(&gzip(&tar_bytes(&[Entry::File("group.json", b"{}")])));
    let error = read(&export).unwrap_err();
    assert!(error.to_string().contains("neither tree/project.json nor project.json"), "{error}");

    let (_dir, export) = on_disk(&gzip(&tar_bytes(&[Entry::File("project.json", b"{\"issues\":[{}")])));
    assert_eq!(read(&export).unwrap_err().kind(), ErrorKind::Io);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("picture.png");
    std::fs::write(&path, b"\x89PNG").unwrap();
    let error = Export::open(&path).unwrap_err();
    assert!(error.to_string().contains("neither a tar archive"), "{error}");
    let error = Export::open(&dir.path().join("missing.tar.gz")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn a_stop_ends_the_reading_with_its_reason() {
    let (_dir, export) = on_disk(&gzip(&tar_bytes(&[PROJECT])));
    let cancel = Cancel::new();
    cancel.cancel(StopReason::Terminated);
    let error = export.survey(&Limits::default(), &cancel).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Terminated);
}

#[test]
fn an_error_of_the_sink_comes_out_unchanged() {
    for name in ["tree", "legacy"] {
        let export = Export::open(&fixture(name)).unwrap();
        let cancel = Cancel::new();
        let survey = export.survey(&Limits::default(), &cancel).unwrap();
        let mut calls = 0;
        let error = export
            .items(&survey, None, &Limits::default(), &cancel, &mut |_| {
                calls += 1;
                Err(crate::error::Error::new(ErrorKind::Fenced, "on purpose"))
            })
            .unwrap_err();
        assert_eq!((error.kind(), calls), (ErrorKind::Fenced, 1));
    }
}

#[test]
fn the_sample_is_whole_and_shows_everything() {
    let (survey, found) = read(&demo::export()).unwrap();
    assert!(survey.bad.is_empty());
    let items = items(found);
    assert!(items.len() >= 80);
    let threads = items.iter().flat_map(|item| &item.discussions);
    let notes: Vec<_> = threads.clone().flat_map(|thread| &thread.notes).collect();
    assert!(items.len() + threads.filter(|thread| !thread.notes[0].system).count() >= 200);
    assert!(notes.iter().any(|note| note.internal));
    assert!(notes.iter().any(|note| note.system));
    assert!(notes.iter().any(|note| note.position.is_some() && note.resolved));
    let issues = items.iter().filter_map(|item| match &item.entity {
        Entity::Issue(issue) => Some(issue),
        Entity::MergeRequest(_) => None,
    });
    let issues: Vec<_> = issues.collect();
    assert!(issues.iter().any(|issue| issue.confidential));
    assert!(issues.iter().any(|issue| issue.issue_type == "incident"));
    for language in ["日本語", "Vorschaubilder"] {
        assert!(issues.iter().any(|issue| issue.title.contains(language)), "{language}");
    }
}
