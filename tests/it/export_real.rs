//! Real and converted exports, when they are on this machine: what is stored is what the
//! files hold, counted independently.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use crate::export_world::{World, shared, write_archive};

/// What an export holds, counted by parsing everything.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    issues: usize,
    merge_requests: usize,
    notes: usize,
    system_notes: usize,
    diff_notes: usize,
    discussions: usize,
}

impl Held {
    fn add(&mut self, item: &Value) {
        let mut threads = BTreeSet::new();
        for note in item["notes"].as_array().into_iter().flatten() {
            self.notes += 1;
            self.system_notes += usize::from(note["system"] == true);
            self.diff_notes += usize::from(note["position"].is_object());
            match note["discussion_id"].as_str() {
                Some(id) => _ = threads.insert(id.to_owned()),
                None => self.discussions += 1,
            }
        }
        self.discussions += threads.len();
    }

    fn of_members(members: &BTreeMap<String, Vec<u8>>) -> Self {
        let mut held = Self::default();
        let lines = |name: &str| -> Vec<Value> {
            let text =
                members.get(name).map(|bytes| String::from_utf8(bytes.clone()).unwrap()).unwrap_or_default();
            text.lines()
                .filter(|line| !line.trim().is_empty())
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        };
        let (issues, merge_requests) = match members.get("project.json") {
            Some(json) => {
                let project: Value = serde_json::from_slice(json).unwrap();
                let array = |key: &str| project[key].as_array().cloned().unwrap_or_default();
                (array("issues"), array("merge_requests"))
            }
            None => (lines("tree/project/issues.ndjson"), lines("tree/project/merge_requests.ndjson")),
        };
        held.issues = issues.len();
        held.merge_requests = merge_requests.len();
        for item in issues.iter().chain(&merge_requests) {
            held.add(item);
        }
        held
    }

    fn stored(world: &World) -> Self {
        let count = |sql: &str| usize::try_from(world.number(sql)).unwrap();
        Self {
            issues: count("SELECT count(*) FROM issues"),
            merge_requests: count("SELECT count(*) FROM merge_requests"),
            notes: count("SELECT count(*) FROM notes"),
            system_notes: count("SELECT count(*) FROM notes WHERE is_system"),
            diff_notes: count(
                "SELECT count(*) FROM notes WHERE new_path IS NOT NULL OR old_path IS NOT NULL",
            ),
            discussions: count("SELECT count(*) FROM discussions"),
        }
    }
}

fn unpack(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()));
    let mut members = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_string_lossy().trim_start_matches("./").to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        members.insert(name, content);
    }
    members
}

fn read_tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    ["issues", "merge_requests"]
        .into_iter()
        .map(|kind| format!("tree/project/{kind}.ndjson"))
        .filter_map(|name| Some((name.clone(), std::fs::read(root.join(name)).ok()?)))
        .collect()
}

/// Ingests `path` and compares; returns the world and what it holds.
fn compare(path: &Path, held: Held) -> (World, Held) {
    let world = World::of(path);
    let report = world.ingest(None, false).unwrap();
    assert_eq!((report.failing, report.count("bad_lines")), (0, 0), "{:?}", report.warnings);
    assert_eq!(Held::stored(&world), held, "{}", path.display());
    (world, held)
}

#[test]
fn archives_of_gitlab_itself_are_stored_whole() {
    let Some(shared) = shared() else { return };
    let archives = shared.join("gitlab/exports/archives");
    let path = archives.join("project_export.tar.gz");
    let (world, held) = compare(&path, Held::of_members(&unpack(&path)));
    assert_eq!((held.issues, held.merge_requests, held.notes), (10, 9, 152));
    assert!(
        world.number("SELECT count(*) FROM notes WHERE body LIKE '%(imported from GitLab project)*'") > 0
    );
    let path = archives.join("test_project_export.tar.gz");
    let (_, held) = compare(&path, Held::of_members(&unpack(&path)));
    assert!(held.issues >= 1);
}

#[test]
fn the_archive_with_a_link_is_refused_and_nothing_is_written() {
    let Some(shared) = shared() else { return };
    let world = World::of(&shared.join("gitlab/exports/archives/symlink_export.tar.gz"));
    let error = world.ingest(None, false).unwrap_err();
    assert_eq!(error.kind(), lore::error::ErrorKind::Io);
    assert!(error.to_string().contains("uploads/link.gitignore"), "{error}");
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(world.dump().is_empty());
}

#[test]
fn legacy_project_files_are_stored_whole() {
    let Some(shared) = shared() else { return };
    let root = shared.join("gitlab/exports/gitlab_11.10_project_json");
    for name in ["project.json", "project.group.json", "project.light.json", "project.milestone-iid.json"] {
        let json = std::fs::read(root.join(name)).unwrap();
        let held = || Held::of_members(&BTreeMap::from([("project.json".to_owned(), json.clone())]));
        let (_, found) = compare(&root.join(name), held());
        assert!(found.issues > 0, "{name}");
    }
    let json = std::fs::read(root.join("project.json")).unwrap();
    compare(&root, Held::of_members(&BTreeMap::from([("project.json".to_owned(), json)])));
}

#[test]
fn trees_of_gitlabs_own_fixtures_are_stored_whole() {
    let Some(shared) = shared() else { return };
    for name in ["gitlabhq_complex", "gitlabhq_group", "gitlabhq_designs"] {
        let root = shared.join("gitlab/exports").join(name);
        let (world, held) = compare(&root, Held::of_members(&read_tree(&root)));
        if name == "gitlabhq_complex" {
            assert_eq!((held.issues, held.merge_requests), (12, 9));
            assert_eq!(
                world.texts("SELECT issue_type FROM issues WHERE iid IN (2, 3, 5, 7, 11) ORDER BY iid"),
                ["incident", "task", "task", "invalid_type", "task"]
            );
            assert_eq!(
                world.texts("SELECT assignee_usernames FROM issues WHERE iid = 10"),
                ["[\"bernard_willms\",\"emmet.schamberger\",\"saul_will\"]"]
            );
        }
    }
}

#[test]
fn the_large_corpora_are_stored_whole() {
    let Some(shared) = shared() else { return };
    for (path, items) in [
        ("rust-2k/rust-2k-gitlab-export.tar.gz", (874, 1_124, 16_520)),
        ("bitcoin-core__gui/gui-gitlab-export.tar.gz", (341, 537, 8_920)),
    ] {
        let path = shared.join("gitlab/corpus").join(path);
        let (world, held) = compare(&path, Held::of_members(&unpack(&path)));
        assert_eq!((held.issues, held.merge_requests, held.notes - held.system_notes), items);
        assert_eq!(world.number("SELECT count(*) FROM issues WHERE author_username IS NULL"), 0);
        let counts = world.counts(None, true);
        assert_eq!(
            counts["issues_unchanged"] + counts["merge_requests_unchanged"],
            i64::try_from(items.0 + items.1).unwrap()
        );
        assert_eq!(counts["discussions_new"] + counts["discussions_changed"], 0);
    }
}

#[test]
fn every_edge_case_body_survives_the_ingest() {
    let Some(shared) = shared() else { return };
    let text = std::fs::read_to_string(shared.join("gitlab/corpus/edge_cases.ndjson")).unwrap();
    let bodies: Vec<Option<String>> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["body"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(bodies.len(), 143);
    let issues: String = bodies
        .iter()
        .enumerate()
        .map(|(idx, body)| {
            let issue = serde_json::json!({"id": idx + 1, "iid": idx + 1, "title": "edge", "description": body,
                "state": "opened", "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z",
                "notes": [{"id": idx + 1, "note": body, "created_at": "2024-01-01T00:00:00Z"}]});
            format!("{issue}\n")
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("edge.tar.gz");
    write_archive(
        &path,
        &[("tree/project.json", b"{}".as_slice()), ("tree/project/issues.ndjson", issues.as_bytes())],
    );
    let world = World::of(&path);
    assert_eq!(world.ingest(None, false).unwrap().failing, 0);
    let want: Vec<Option<String>> =
        bodies.into_iter().map(|body| body.map(|text| text.replace('\0', ""))).collect();
    let stored: Vec<Option<String>> = world
        .sql()
        .prepare("SELECT description FROM issues ORDER BY iid")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    assert_eq!(stored, want);
    let notes = world.texts("SELECT body FROM notes ORDER BY gitlab_id");
    assert_eq!(notes, want.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>());
}
