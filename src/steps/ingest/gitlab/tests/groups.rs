//! Groups as sources, and projects that are renamed, marked, moved away or refused.

use super::*;

/// A source `main` of groups.
fn world(groups: &[&str], more: &str) -> World {
    let mut world = World::new(&["x/y"]);
    world.config = config_of(&world.server.url(), groups, more);
    world
}

fn config_of(url: &str, groups: &[&str], more: &str) -> Config {
    toml::from_str(&format!(
        "[sources.main]\nkind = \"gitlab\"\nurl = {url:?}\ntoken = {{ env = \"TOKEN\" }}\ngroups = {groups:?}\n{more}\n\
         requests_per_second = 100000.0\nretries = 2\nretry_wait = \"1ms\"\ntimeout = \"2s\""
    ))
    .unwrap()
}

/// Projects with one issue each.
fn fill(world: &World, paths: &[&str]) -> Vec<i64> {
    world.server.edit(|model| {
        let ids = paths
            .iter()
            .map(|path| {
                let id = model.add_project(path);
                model.add_item(id, Kind::Issue, &format!("An issue of {path}"));
                id
            })
            .collect();
        model.advance(3_600_000);
        ids
    })
}

fn stored(world: &World) -> Vec<String> {
    world.column(
        "SELECT p.path || ' ' || count(i.id) FROM projects p LEFT JOIN issues i ON i.project_id = p.id GROUP BY p.id ORDER BY p.path",
    )
}

#[test]
fn api_27_a_group_is_listed_with_its_subgroups_page_by_page() {
    let all: Vec<String> = (0..25).map(|n| format!("group/sub{}/p{n}", n % 3)).collect();
    let paths: Vec<&str> = all.iter().map(String::as_str).chain(["group/direct", "other/p"]).collect();
    let world = world(&["group"], "");
    fill(&world, &paths);
    world.server.set(|settings| settings.max_per_page = 10);
    let report = world.ingest();
    assert_eq!((report.count("projects"), world.issues()), (26, 26));
    let listed: Vec<String> =
        targets(&world).into_iter().filter(|target| target.contains("/groups/")).collect();
    assert_eq!(listed.len(), 3, "{listed:?}");
    for part in ["include_subgroups=true", "with_shared=false", "per_page=100", "order_by=id", "sort=asc"] {
        assert!(listed[0].contains(part), "{listed:?}");
    }
    // A quiet run: the list of the group, and four streams a project.
    world.server.set(|settings| settings.max_per_page = 100);
    world.ingest();
    world.server.take_log();
    world.ingest();
    assert_eq!(targets(&world).len(), 1 + 4 * 26);
}

#[test]
fn patterns_subgroups_and_archived_projects_choose_what_is_read() {
    let paths = ["group/app", "group/lib/a", "group/lib/b", "group/attic/old"];
    for (more, expected) in [
        ("", &["group/app", "group/attic/old", "group/lib/a"][..]),
        ("include_archived = true", &["group/app", "group/attic/old", "group/lib/a", "group/lib/b"]),
        ("include_subgroups = false", &["group/app"]),
        ("include = [\"group/lib/*\"]", &["group/lib/a"]),
        ("exclude = [\"group/attic/*\", \"group/app\"]", &["group/lib/a"]),
        ("include = [\"*\"]\nexclude = [\"group/lib/*\"]", &["group/app", "group/attic/old"]),
    ] {
        let world = world(&["group"], more);
        let ids = fill(&world, &paths);
        world.server.edit(|model| model.set_archived(ids[2], true));
        world.ingest();
        assert_eq!(world.column("SELECT path FROM projects ORDER BY path"), expected, "{more}");
    }
}

#[test]
fn a_project_that_is_named_and_in_two_groups_is_read_once() {
    let world = world(&["group", "group/sub"], "projects = [\"group/sub/p\"]");
    fill(&world, &["group/sub/p"]);
    assert_eq!(world.ingest().count("projects"), 1);
    let asked = targets(&world).iter().filter(|target| target.contains("/issues?")).count();
    assert_eq!(asked, 1);
}

#[test]
fn api_33_bugs_35_a_transferred_project_keeps_its_row_and_takes_the_new_path() {
    let world = world(&["group"], "");
    let ids = fill(&world, &["group/a", "group/b"]);
    world.ingest();
    let before = world.column("SELECT id FROM projects ORDER BY id");
    world.server.edit(|model| {
        model.rename_project(ids[0], "group/sub/renamed");
        // And another takes the path that is free now.
        model.add_project("group/a");
    });
    world.ingest();
    assert_eq!(stored(&world), ["group/a 0", "group/b 1", "group/sub/renamed 1"]);
    assert_eq!(world.column("SELECT id FROM projects WHERE path <> 'group/a' ORDER BY id"), before);
}

#[test]
fn two_projects_that_exchange_their_paths_keep_their_items() {
    let world = world(&["group"], "");
    let ids = fill(&world, &["group/a", "group/b"]);
    world.ingest();
    world.server.edit(|model| {
        model.rename_project(ids[0], "group/b");
        model.rename_project(ids[1], "group/a");
        model.project(ids[0]).old_paths.clear();
        model.project(ids[1]).old_paths.clear();
    });
    world.ingest();
    assert_eq!(
        world.column(
            "SELECT p.path || ': ' || i.title FROM projects p JOIN issues i ON i.project_id = p.id ORDER BY 1"
        ),
        ["group/a: An issue of group/b", "group/b: An issue of group/a"]
    );
}

#[test]
fn bugs_35_a_named_project_that_an_old_server_knows_by_its_id_alone_is_found_again() {
    let world = World::new(&["group/old"]);
    let ids = fill(&world, &["group/old"]);
    world.ingest();
    world.server.edit(|model| {
        model.rename_project(ids[0], "group/new");
        // Before 16.7 the old path is not found.
        model.project(ids[0]).old_paths.clear();
    });
    for _ in 0..3 {
        let report = world.ingest();
        assert_eq!((report.count("projects"), report.failing), (1, 0));
        assert!(report.warnings.iter().any(|text| text.contains("group/new now")), "{:?}", report.warnings);
        assert_eq!(stored(&world), ["group/new 1"]);
    }
}

#[test]
fn api_35_a_project_marked_for_deletion_is_not_read_and_nothing_is_deleted() {
    for by_name in [false, true] {
        let world = world(&["group"], "");
        let ids = fill(&world, &["group/a", "group/b"]);
        world.sync();
        let mark = |model: &mut crate::fake_gitlab::model::Model| {
            if by_name {
                model.rename_project(ids[0], &format!("group/a-deletion_scheduled-{}", ids[0]));
            } else {
                model.mark_for_deletion(ids[0]);
            }
            model.add_item(ids[0], Kind::Issue, "one more");
        };
        world.server.edit(mark);
        world.server.take_log();
        let report = world.ingest();
        assert_eq!((report.count("projects"), report.count("projects_marked_for_deletion")), (1, 1));
        assert!(report.warnings[0].contains("group/a is marked for deletion"), "{:?}", report.warnings);
        assert!(targets(&world).iter().all(|target| !target.contains(&format!("projects/{}", ids[0]))));
        assert_eq!(stored(&world), ["group/a 1", "group/b 1"]);
        assert_eq!(world.column("SELECT state FROM project_states"), ["marked_for_deletion"]);
        // Restored.
        world.server.edit(|model| {
            model.project(ids[0]).row["marked_for_deletion_on"] = serde_json::Value::Null;
            model.project(ids[0]).row["marked_for_deletion_at"] = serde_json::Value::Null;
            model.project(ids[0]).path = "group/a".to_owned();
        });
        world.ingest();
        assert_eq!(stored(&world), ["group/a 2", "group/b 1"]);
        assert_eq!(world.column("SELECT state FROM project_states").len(), 0);
    }
}

#[test]
fn a_project_that_vanishes_from_its_group_is_shown_and_kept() {
    let world = world(&["group"], "");
    let ids = fill(&world, &["group/a", "group/b"]);
    world.ingest();
    world.server.edit(|model| model.rename_project(ids[0], "elsewhere/a"));
    let report = world.ingest();
    assert_eq!(report.count("projects_vanished"), 1);
    assert!(
        report.warnings.iter().any(|text| text.contains("no longer lists group/a")),
        "{:?}",
        report.warnings
    );
    assert_eq!(stored(&world), ["group/a 1", "group/b 1"]);
    let odd = world.store.read(crate::store::groups::odd_projects).unwrap();
    assert_eq!((odd[0].project_path.as_str(), odd[0].state.as_str()), ("group/a", "not_listed"));
    assert_eq!(world.ingest().count("projects_vanished"), 0, "told once");
    world.server.edit(|model| model.rename_project(ids[0], "group/a"));
    world.ingest();
    assert_eq!(world.store.read(crate::store::groups::odd_projects).unwrap(), []);
}

#[test]
fn a_group_that_cannot_be_read_fails_alone_and_its_projects_are_still_read() {
    for (status, waits) in [(403, true), (404, true), (502, false)] {
        let world = world(&["one", "two"], "");
        let ids = fill(&world, &["one/a", "two/b"]);
        world.ingest();
        world.server.plan(Fault::always("/groups/one/", faults::html(status)));
        world.server.edit(|model| {
            for id in &ids {
                model.add_item(*id, Kind::Issue, "news");
            }
        });
        let report = world.ingest();
        assert_eq!(stored(&world), ["one/a 2", "two/b 2"], "{status}");
        assert_eq!((report.count("projects"), report.failing), (2, 1), "{status}: {:?}", report.warnings);
        let failures = world.store.read(crate::store::groups::failures).unwrap();
        assert_eq!((failures.len(), failures[0].group.as_str()), (1, "one"));
        // What is refused is not asked again at once; what broke on the way is.
        world.server.take_log();
        assert_eq!(world.ingest().failing, 1);
        assert_eq!(targets(&world).iter().all(|target| !target.contains("/groups/one/")), waits, "{status}");
        world.server.heal();
        let world = World { options: RunOptions { retry_failed: true, ..RunOptions::default() }, ..world };
        assert_eq!(world.ingest().failing, 0);
        assert_eq!(world.store.read(crate::store::groups::failures).unwrap(), []);
    }
}

#[test]
fn groups_of_which_none_can_be_read_fail_the_source() {
    let world = world(&["no", "such"], "");
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceNotFound);
    assert!(error.to_string().contains("group no") && error.to_string().contains("group such"), "{error}");
}

#[test]
fn bugs_46_a_group_without_projects_and_a_project_without_rows_are_visible() {
    let world = world(&["group"], "");
    world.server.edit(|model| {
        model.add_group("group");
    });
    let report = world.ingest();
    assert!(report.warnings[0].contains("lists no project"), "{:?}", report.warnings);
    world.server.edit(|model| {
        let id = model.add_project("group/p");
        model.project(id).row["open_issues_count"] = 7.into();
    });
    world.server.plan(Fault::always("/issues?", Trouble::EmptyList));
    let report = world.ingest();
    assert!(report.warnings[0].contains("counts 7 open issues and lists none"), "{:?}", report.warnings);
}
