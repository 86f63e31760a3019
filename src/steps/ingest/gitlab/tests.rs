//! Ingest and fetch-discussions against a server of our own.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

mod ahead;
mod changes;
mod groups;

use super::*;
use crate::config::Config;
use crate::engine::cancel::{Cancel, StopReason};
use crate::engine::ctx::RunOptions;
use crate::engine::progress::{Progress, ProgressMode};
use crate::engine::step::Step;
use crate::fake_gitlab::faults::{self, Fault, Trouble};
use crate::fake_gitlab::http::{Delivery, Reply};
use crate::fake_gitlab::model::Kind;
use crate::fake_gitlab::{FakeGitlab, Paging, routes};
use crate::steps::fetch_discussions::FetchDiscussions;
use crate::store::{OpenOptions, Store, queues};

/// A server, a database, and what connects them.
pub(crate) struct World {
    _dir: tempfile::TempDir,
    pub store: Store,
    pub server: FakeGitlab,
    pub config: Config,
    pub options: RunOptions,
    pub cancel: Cancel,
    pub deadline: Option<Instant>,
    runtime: tokio::runtime::Runtime,
}

impl World {
    /// A source `main` of the given projects.
    pub fn new(projects: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
        let server = FakeGitlab::start();
        let config = config(&server.url(), projects);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        Self {
            _dir: dir,
            store,
            server,
            config,
            options: RunOptions::default(),
            cancel: Cancel::new(),
            deadline: None,
            runtime,
        }
    }

    /// A world with one project of `n` issues, a second apart.
    pub fn with_issues(n: i64) -> (Self, i64) {
        let world = Self::new(&["group/project"]);
        let project = world.server.edit(|model| {
            let project = model.add_project("group/project");
            for number in 1..=n {
                model.add_item(project, Kind::Issue, &format!("Issue {number}"));
                model.advance(1000);
            }
            model.advance(3_600_000);
            project
        });
        (world, project)
    }

    pub fn step(&self, run: impl FnOnce(&StepCtx<'_>) -> Result<StepReport>) -> Result<StepReport> {
        run(&StepCtx {
            store: &self.store,
            config: &self.config,
            vars: &|name| (name == "TOKEN").then(|| "test-token".to_owned()),
            runtime: self.runtime.handle().clone(),
            cancel: self.cancel.clone(),
            deadline: self.deadline,
            options: self.options,
            progress: Progress::new("test", ProgressMode::Silent),
            shared: crate::engine::shared::Shared::default(),
        })
    }

    pub fn try_ingest(&self) -> Result<StepReport> {
        self.step(|ctx| {
            let mut report = StepReport::default();
            let crate::config::SourceConfig::Gitlab(config) = &self.config.sources["main"] else {
                panic!("main is a GitLab source")
            };
            ingest(ctx, "main", config, &mut report)?;
            Ok(report)
        })
    }

    pub fn ingest(&self) -> StepReport {
        self.try_ingest().unwrap()
    }

    pub fn try_fetch(&self) -> Result<StepReport> {
        self.step(|ctx| FetchDiscussions::default().run(ctx))
    }

    pub fn fetch(&self) -> StepReport {
        self.try_fetch().unwrap()
    }

    pub fn sync(&self) -> (StepReport, StepReport) {
        (self.ingest(), self.fetch())
    }

    /// Runs a query that answers one number.
    pub fn number(&self, sql: &str) -> i64 {
        self.column(sql).first().map_or(0, |text| text.parse().unwrap())
    }

    /// Runs a query and returns its first column as text.
    pub fn column(&self, sql: &str) -> Vec<String> {
        #[expect(clippy::disallowed_methods, reason = "tests look at the tables")]
        let connection = rusqlite::Connection::open(self.store.path()).unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement
            .query_map([], |row| {
                Ok(match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Null => "NULL".to_owned(),
                    rusqlite::types::ValueRef::Integer(n) => n.to_string(),
                    rusqlite::types::ValueRef::Real(n) => n.to_string(),
                    rusqlite::types::ValueRef::Text(text) | rusqlite::types::ValueRef::Blob(text) => {
                        String::from_utf8_lossy(text).into_owned()
                    }
                })
            })
            .unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    }

    pub fn issues(&self) -> i64 {
        self.number("SELECT count(*) FROM issues")
    }

    fn queued(&self) -> i64 {
        self.number("SELECT count(*) FROM pending_discussion_fetches")
    }

    fn dirty(&self) -> i64 {
        self.number("SELECT count(*) FROM dirty_sources")
    }

    fn clear_dirty(&self) {
        for entry in self.store.read(|tx| queues::ready_dirty(tx, i64::MAX, 100_000)).unwrap() {
            self.store.write(|tx| queues::complete_dirty(tx, &entry)).unwrap();
        }
    }
}

fn config(url: &str, projects: &[&str]) -> Config {
    toml::from_str(&format!(
        "[sources.main]\nkind = \"gitlab\"\nurl = {url:?}\ntoken = {{ env = \"TOKEN\" }}\nprojects = {projects:?}\n\
         requests_per_second = 100000.0\nretries = 2\nretry_wait = \"1ms\"\ntimeout = \"2s\""
    ))
    .unwrap()
}

fn targets(world: &World) -> Vec<String> {
    world.server.take_log().into_iter().map(|logged| logged.target).collect()
}

// ---------------------------------------------------------------- paging

#[test]
fn a5_01_a5_03_bugs_1_2_8_13_every_way_of_paging_reads_all_rows() {
    for paging in [Paging::Full, Paging::NoTotal, Paging::LinkOnly] {
        let (world, _) = World::with_issues(45);
        world.server.set(|settings| {
            settings.max_per_page = 20;
            settings.paging = paging;
        });
        world.ingest();
        assert_eq!(world.issues(), 45, "{paging:?}");
    }
}

#[test]
fn without_paging_headers_full_pages_are_followed() {
    let (world, _) = World::with_issues(230);
    world.server.set(|settings| settings.paging = Paging::None);
    world.ingest();
    assert_eq!(world.issues(), 230);
}

#[test]
fn bugs_9_10_labels_and_discussions_are_paged_too() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| {
        for number in 0..250 {
            model.project(project).labels.push(routes::label(number, &format!("label {number}")));
            model.add_note(project, Kind::Issue, 1, "bo", &format!("note {number}"));
        }
    });
    let (_, fetched) = world.sync();
    assert_eq!(world.number("SELECT count(*) FROM labels"), 250);
    assert_eq!(world.number("SELECT count(*) FROM notes"), 250);
    assert_eq!(fetched.count("requests"), 3);
    assert!(targets(&world).iter().all(|target| !target.contains('?') || target.contains("per_page=100")));
}

#[test]
fn bugs_11_32_33_a_sub_path_and_a_foreign_link_authority_change_nothing() {
    for foreign in [None, Some("https://internal.example"), Some("http://127.0.0.1:1/gitlab")] {
        let (mut world, _) = World::with_issues(250);
        world.server.set(|settings| {
            settings.prefix = "/gitlab".to_owned();
            settings.foreign_authority = foreign.map(str::to_owned);
        });
        // One time for all: the list is paged by `Link`.
        world.server.edit(|model| {
            let now = model.now;
            for project in model.projects.values_mut() {
                project.items.values_mut().for_each(|item| item.updated_at = now);
            }
        });
        for suffix in ["", "/", "/api/v4"] {
            world.config = config(&format!("{}{suffix}", world.server.url()), &["group/project"]);
            world.ingest();
            assert_eq!(world.issues(), 250, "{foreign:?}");
        }
        assert!(world.server.take_log().iter().all(|logged| logged.target.starts_with("/gitlab/api/v4/")));
    }
}

#[test]
fn a5_07_items_of_one_and_the_same_time_are_all_read_and_the_run_ends() {
    let (world, project) = World::with_issues(250);
    world.server.edit(|model| {
        let now = model.now;
        model.project(project).items.values_mut().for_each(|item| item.updated_at = now);
    });
    world.ingest();
    assert_eq!(world.issues(), 250);
    world.server.take_log();
    assert_eq!(world.ingest().count("issues_new"), 0);
    assert!(targets(&world).len() <= 7);
}

#[test]
fn a5_09_bugs_12_an_item_that_moves_while_the_list_is_read_costs_no_other() {
    let (world, project) = World::with_issues(45);
    world.server.set(|settings| settings.max_per_page = 20);
    let moves = Trouble::TouchOldest { project, kind: Kind::Issue };
    world.server.plan(Fault::times("/issues?", 3, moves));
    world.ingest();
    assert_eq!(world.issues(), 45);
    world.server.heal();
    world.ingest();
    assert_eq!(world.issues(), 45);
}

#[test]
fn a5_09_an_item_that_moves_among_items_of_one_time_costs_no_other() {
    let (world, project) = World::with_issues(250);
    world.server.edit(|model| {
        let now = model.now;
        model.project(project).items.values_mut().for_each(|item| item.updated_at = now);
    });
    world.server.plan(Fault::times("/issues?", 2, Trouble::TouchOldest { project, kind: Kind::Issue }));
    world.ingest();
    assert_eq!(world.issues(), 250);
}

#[test]
fn bugs_6_every_page_is_asked_from_the_rows_that_were_stored() {
    let (world, _) = World::with_issues(45);
    world.server.set(|settings| settings.max_per_page = 20);
    world.server.plan(Fault::times("/issues?", 3, faults::html(503)).after(1));
    world.ingest();
    assert_eq!(world.issues(), 20, "the second page failed three times");
    assert_eq!(world.number("SELECT updated_at FROM cursors WHERE stream = 'issues'"), {
        world.number("SELECT max(updated_at) FROM issues")
    });
    assert_eq!(world.column("SELECT stream FROM stream_failures"), ["issues"]);
    assert_eq!(world.ingest().count("issues_new"), 25);
    assert_eq!(world.number("SELECT count(*) FROM stream_failures"), 0);
}

#[test]
fn bugs_7_the_offset_limit_is_never_reached() {
    let (world, _) = World::with_issues(450);
    world.server.set(|settings| settings.max_offset = 100);
    world.ingest();
    assert_eq!(world.issues(), 450);
}

#[test]
fn a_page_that_leads_to_itself_ends_with_an_error() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| model.add_item(project, Kind::MergeRequest, "one"));
    world.server.plan(Fault::always("/issues?", Trouble::NextIsSelf));
    let report = world.ingest();
    assert_eq!(report.failing, 1);
    assert!(report.warnings[0].contains("read already"), "{:?}", report.warnings);
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 1);
}

#[test]
fn a_short_page_of_discussions_is_not_the_last() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| {
        let ids: Vec<String> =
            (0..150).map(|n| model.add_note(project, Kind::Issue, 1, "bo", &format!("n {n}"))).collect();
        for id in ids.iter().take(100) {
            model.hide_discussion(project, Kind::Issue, 1, id);
        }
    });
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 50);
}

// ---------------------------------------------------------------- cursor and time

#[test]
fn a_quiet_project_costs_one_request_per_stream_and_writes_nothing() {
    let (world, project) = World::with_issues(30);
    world.server.edit(|model| {
        model.add_item(project, Kind::MergeRequest, "A change");
        model.project(project).labels.push(routes::label(1, "bug"));
        let now = model.now;
        model.project(project).milestones.push(routes::milestone(1, "v1", now));
        model.advance(3_600_000);
    });
    world.sync();
    world.clear_dirty();
    world.sync();
    world.server.take_log();
    let before = world.number("PRAGMA data_version") + world.number("SELECT sum(saved_at) FROM cursors");
    let synced = world.number("SELECT sum(synced_at) FROM issues");
    let (report, fetched) = world.sync();
    assert_eq!(targets(&world).len(), 5, "project, labels, milestones, issues, merge requests");
    assert_eq!(
        report.count("issues_new") + report.count("issues_changed") + report.count("labels_changed"),
        0
    );
    assert_eq!(report.count("issues_unchanged"), 30, "the overlap is read again");
    assert_eq!(fetched.count("items_fetched"), 0);
    assert_eq!((world.dirty(), world.queued()), (0, 0));
    assert_eq!(
        before,
        world.number("PRAGMA data_version") + world.number("SELECT sum(saved_at) FROM cursors")
    );
    assert_eq!(synced, world.number("SELECT sum(synced_at) FROM issues"));
}

#[test]
fn bugs_14_only_what_changed_is_asked_for() {
    let (world, project) = World::with_issues(30);
    world.sync();
    world.server.edit(|model| {
        model.edit_item(project, Kind::Issue, 3, |row| row["title"] = "Renamed".into());
        model.advance(600_000);
    });
    world.server.take_log();
    let report = world.ingest();
    assert_eq!((report.count("issues_new"), report.count("issues_changed")), (0, 1));
    let asked = targets(&world).into_iter().find(|target| target.contains("/issues?")).unwrap();
    for part in
        ["scope=all", "state=all", "order_by=updated_at", "sort=asc", "updated_after=2026-", "Z&per_page=100"]
    {
        assert!(asked.contains(part), "{asked}");
    }
    assert_eq!(world.queued(), 1);
}

#[test]
fn bugs_19_a_note_that_moves_no_time_is_found_by_the_next_run() {
    let (world, project) = World::with_issues(3);
    world.sync();
    let thread = world.server.edit(|model| {
        let id = model.add_note(project, Kind::Issue, 2, "bo", "first");
        model.advance(10_000);
        id
    });
    world.sync();
    // Within the minute: neither the time nor, for an edit, the count moves.
    let before = world.number("SELECT updated_at FROM issues WHERE iid = 2");
    world.server.edit(|model| {
        model.edit_note(project, Kind::Issue, 2, &thread, "first, edited");
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.number("SELECT updated_at FROM issues WHERE iid = 2"), before);
    assert_eq!(world.column("SELECT body FROM notes"), ["first, edited"]);
    // It is looked at once more, not for ever.
    world.server.take_log();
    world.sync();
    assert!(targets(&world).iter().all(|target| !target.contains("discussions")));
}

#[test]
fn bugs_20_a_deleted_note_disappears_with_the_daily_look() {
    let (world, project) = World::with_issues(3);
    let thread = world.server.edit(|model| {
        model.add_note(project, Kind::Issue, 1, "bo", "stays");
        let id = model.add_note(project, Kind::Issue, 1, "bo", "goes");
        model.advance(3_600_000);
        // Something newer, far beyond the overlap.
        model.add_item(project, Kind::Issue, "newest");
        model.advance(3_600_000);
        id
    });
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 2);
    world.server.edit(|model| model.delete_discussion(project, Kind::Issue, 1, &thread));
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 2, "nothing tells of it");
    world.server.edit(|model| model.advance(86_400_000));
    world.sync();
    assert_eq!(world.column("SELECT body FROM notes"), ["stays"]);
    world.server.take_log();
    world.sync();
    assert!(targets(&world).iter().all(|target| !target.contains("discussions")), "once a day");
}

#[test]
fn bugs_20_a_changed_count_of_notes_is_noticed_within_the_overlap() {
    let (world, project) = World::with_issues(1);
    let thread = world.server.edit(|model| {
        let id = model.add_note(project, Kind::Issue, 1, "bo", "goes");
        model.advance(3_600_000);
        id
    });
    world.sync();
    world.server.edit(|model| model.delete_discussion(project, Kind::Issue, 1, &thread));
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 0);
}

#[test]
fn a_full_run_reads_and_queues_everything_again() {
    let (mut world, _) = World::with_issues(30);
    world.sync();
    world.options.full = true;
    let report = world.ingest();
    assert_eq!((report.count("issues_unchanged"), report.count("issues_new")), (30, 0));
    assert_eq!(world.queued(), 30);
}

// ---------------------------------------------------------------- isolation

#[test]
fn bugs_21_22_23_25_a_refused_stream_stops_nothing_else() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        model.add_item(project, Kind::MergeRequest, "A change");
        model.project(project).denied.insert("milestones".to_owned(), 403);
        model.project(project).denied.insert("merge_requests".to_owned(), 403);
    });
    let report = world.ingest();
    assert_eq!(world.issues(), 3);
    assert_eq!(report.failing, 1, "merge requests; milestones are tolerated");
    assert_eq!(report.count("retries"), 0, "a 403 is not tried again");
    assert_eq!(
        world.column("SELECT stream || ' ' || error_kind FROM stream_failures"),
        ["merge_requests SOURCE_NOT_FOUND"]
    );
    world.server.edit(|model| {
        model.project(project).denied.clear();
    });
    let world = World { options: RunOptions { retry_failed: true, ..RunOptions::default() }, ..world };
    assert_eq!(world.ingest().failing, 0);
    assert_eq!(world.number("SELECT count(*) FROM stream_failures"), 0);
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 1);
}

#[test]
fn bugs_22_a_stream_that_is_switched_off_is_not_asked() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        model.project(project).row["merge_requests_access_level"] = "disabled".into();
        model.project(project).denied.insert("merge_requests".to_owned(), 403);
    });
    let report = world.ingest();
    assert_eq!((report.failing, report.count("streams_off")), (0, 1));
    assert!(targets(&world).iter().all(|target| !target.contains("merge_requests?")));
}

#[test]
fn bugs_28_one_missing_project_does_not_stop_the_others() {
    let (mut world, _) = World::with_issues(3);
    world.config = config(&world.server.url(), &["no/such", "group/project"]);
    let report = world.ingest();
    assert_eq!(world.issues(), 3);
    assert_eq!(report.failing, 1);
    assert!(
        report.warnings[0].contains("no/such") && report.warnings[0].contains("404"),
        "{:?}",
        report.warnings
    );
}

#[test]
fn a6_06_a_source_of_which_every_project_fails_fails() {
    let mut world = World::new(&["no/such", "nor/this"]);
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SourceNotFound);
    assert!(error.to_string().contains("no/such") && error.to_string().contains("nor/this"), "{error}");
    world.config = config("http://127.0.0.1:1", &["no/such", "nor/this"]);
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert!(error.to_string().contains("cannot connect"), "{error}");
}

#[test]
fn a_refused_token_stops_the_source_at_once() {
    let (mut world, _) = World::with_issues(3);
    world.config = config(&world.server.url(), &["a/b", "c/d", "group/project"]);
    world.server.set(|settings| settings.token = Some("another".to_owned()));
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
    assert_eq!(world.server.take_log().len(), 1);
}

#[test]
fn a5_11_bugs_46_nothing_is_deleted_because_it_was_not_listed() {
    let (mut world, _) = World::with_issues(45);
    world.server.set(|settings| settings.max_per_page = 20);
    world.sync();
    world.options.full = true;
    world.server.plan(Fault::always("/issues?", faults::html(503)).after(1));
    let report = world.ingest();
    assert_eq!((world.issues(), report.failing), (45, 1));
    world.server.heal();
    world.server.plan(Fault::always("/issues?", Trouble::EmptyList));
    for full in [true, false] {
        world.options.full = full;
        let report = world.ingest();
        assert_eq!(world.issues(), 45);
        assert!(report.warnings.iter().any(|warning| warning.contains("empty")), "{:?}", report.warnings);
    }
}

#[test]
fn bugs_35_a_renamed_project_keeps_its_row() {
    let (world, project) = World::with_issues(3);
    world.ingest();
    world.server.edit(|model| model.rename_project(project, "group/renamed"));
    world.ingest();
    assert_eq!(world.column("SELECT path FROM projects"), ["group/renamed"]);
    // The configured path is unknown here now: the server's redirect leads to the id.
    world.ingest();
    assert_eq!(world.column("SELECT path FROM projects"), ["group/renamed"]);
    assert_eq!(world.issues(), 3);
}

#[test]
fn bugs_31_deep_paths_with_dots_are_asked_as_one_segment() {
    let world = World::new(&["group/sub.1/sub2/project"]);
    world.server.edit(|model| model.add_project("group/sub.1/sub2/project"));
    world.ingest();
    assert!(targets(&world)[0].ends_with("/projects/group%2Fsub%2E1%2Fsub2%2Fproject"));
}

#[test]
fn a5_14_bugs_29_30_an_issue_and_a_merge_request_of_one_number_are_two() {
    let world = World::new(&["g/a", "g/b"]);
    world.server.edit(|model| {
        for path in ["g/a", "g/b"] {
            let project = model.add_project(path);
            for kind in [Kind::Issue, Kind::MergeRequest] {
                for n in [1, 2] {
                    let iid = model.add_item(project, kind, &format!("iid {n} of {path}"));
                    model.add_note(project, kind, iid, "bo", &format!("{kind:?} {n} {path}"));
                }
            }
        }
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.issues(), 4);
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 4);
    assert_eq!(
        world.number(
            "SELECT count(*) FROM notes n JOIN discussions d ON d.id = n.discussion_id
               JOIN projects p ON p.id = d.project_id
               LEFT JOIN issues i ON i.id = d.issue_id LEFT JOIN merge_requests m ON m.id = d.merge_request_id
              WHERE n.body = d.noteable_type || ' ' || coalesce(i.iid, m.iid) || ' ' || p.path"
        ),
        8
    );
}

// ---------------------------------------------------------------- faults

#[test]
fn a5_04_bugs_26_27_rate_limits_are_waited_for() {
    let plain = Reply::text(429, "text/plain", "Retry later");
    for reply in [
        plain.clone(),
        plain.clone().with("Retry-After", "1"),
        Reply::text(429, "text/html", "<!DOCTYPE html><html>too many</html>"),
        Reply::json(429, &serde_json::json!({"message": {"error": "too many times"}})),
    ] {
        let (world, _) = World::with_issues(3);
        world.server.plan(Fault::times("/issues?", 2, Trouble::Answer(reply)));
        let report = world.ingest();
        assert_eq!((world.issues(), report.failing), (3, 0));
        assert_eq!(report.count("retries"), 2);
        assert!(report.count("rate_limit_wait_ms") > 0);
    }
}

#[test]
fn a5_04_a_wait_beyond_the_deadline_is_reported_as_rate_limited() {
    let (mut world, _) = World::with_issues(3);
    let html = Reply::text(429, "text/html", "<!DOCTYPE html>").with("Retry-After", "3600");
    world.server.plan(Fault::always("/issues?", Trouble::Answer(html)));
    for deadline in [None, Some(Instant::now() + Duration::from_secs(5))] {
        world.deadline = deadline;
        let error = world.try_ingest().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert_eq!(error.retry_after(), Some(3_600_000));
        assert!(!error.to_string().contains("DOCTYPE"), "{error}");
    }
}

#[test]
fn a6_18_bugs_26_transient_faults_are_tried_again_and_then_given_up() {
    let empty = Reply::text(200, "application/json", "");
    for trouble in [
        faults::html(502),
        faults::json(500, "500 Internal Server Error"),
        Trouble::Answer(empty),
        Trouble::Deliver(Delivery::Reset),
        Trouble::Deliver(Delivery::Truncated),
        Trouble::Deliver(Delivery::Halved),
    ] {
        let (world, _) = World::with_issues(3);
        world.server.plan(Fault::times("/issues?", 2, trouble.clone()));
        let report = world.ingest();
        assert_eq!((world.issues(), report.failing, report.count("retries")), (3, 0, 2), "{trouble:?}");
        world.server.plan(Fault::always("/issues?", trouble.clone()));
        world.server.take_log();
        let report = world.ingest();
        assert_eq!(report.failing, 1, "{trouble:?}");
        assert!(!report.warnings[0].contains("HTMLBODY"), "{:?}", report.warnings);
        let asked = targets(&world).iter().filter(|target| target.contains("/issues?")).count();
        let is_heavy = !matches!(trouble, Trouble::Deliver(Delivery::Reset | Delivery::Truncated));
        // api_80: twice in each of five sizes, and the last one as often as any request.
        assert_eq!(asked, if is_heavy { 11 } else { 3 }, "{trouble:?}");
    }
}

#[test]
fn a_server_that_keeps_silent_is_given_up() {
    let (mut world, _) = World::with_issues(3);
    let text = toml::to_string(&world.config).unwrap().replace("timeout = \"2s\"", "timeout = \"100ms\"");
    world.config = toml::from_str(&text).unwrap();
    world.server.plan(Fault::always("/issues?", Trouble::Deliver(Delivery::Late(Duration::from_secs(3)))));
    let report = world.ingest();
    assert_eq!(report.failing, 1);
    assert!(report.warnings[0].contains("no answer in time"), "{:?}", report.warnings);
}

#[test]
fn bugs_26_a_login_page_with_status_200_is_named_as_such() {
    let (world, _) = World::with_issues(3);
    world.server.plan(Fault::always("/issues?", faults::html(200)));
    let report = world.ingest();
    assert!(report.warnings[0].contains("an HTML page instead of JSON"), "{:?}", report.warnings);
    assert_eq!(report.count("retries"), 0);
}

#[test]
fn bugs_38_one_odd_row_does_not_cost_the_page() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        let row = serde_json::json!({"id": 77, "iid": 50, "title": "no time", "updated_at": "soon"});
        model.load_item(project, Kind::Issue, row);
    });
    let report = world.ingest();
    assert_eq!(world.issues(), 3);
    assert_eq!((report.count("bad_rows"), report.failing), (1, 1));
    assert!(report.warnings[0].contains("issue 50"), "{:?}", report.warnings);
    assert_eq!(world.number("SELECT count(*) FROM raw_payloads WHERE resource_key = '50'"), 1);
}

#[test]
fn a_discussion_that_cannot_be_read_is_not_taken_as_deleted() {
    let (world, project) = World::with_issues(1);
    world.server.edit(|model| {
        model.add_note(project, Kind::Issue, 1, "bo", "the first");
        model.add_note(project, Kind::Issue, 1, "bo", "the second");
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 2);
    world.server.edit(|model| {
        model.edit_item(project, Kind::Issue, 1, |row| row["title"] = "another".into());
        let item = model.item(project, Kind::Issue, 1);
        item.discussions[0]["id"] = serde_json::Value::Null;
        item.discussions[1]["notes"][0]["body"] = "the second, edited".into();
        model.advance(3_600_000);
    });
    let (_, report) = world.sync();
    assert_eq!((report.count("bad_rows"), report.count("discussions_removed")), (1, 0));
    assert_eq!(world.column("SELECT body FROM notes ORDER BY body"), ["the first", "the second, edited"]);
    world.server.edit(|model| {
        model.edit_item(project, Kind::Issue, 1, |row| row["title"] = "a third".into());
        model.item(project, Kind::Issue, 1).discussions.remove(0);
        model.advance(3_600_000);
    });
    let (_, report) = world.sync();
    assert_eq!(report.count("discussions_removed"), 1, "a whole list that lacks it is another matter");
}

#[test]
fn a5_05_bugs_42_43_null_authors_and_nul_are_stored() {
    let (world, project) = World::with_issues(2);
    world.server.edit(|model| {
        model.edit_item(project, Kind::Issue, 1, |row| {
            row["author"] = serde_json::Value::Null;
            row["description"] = "a\u{0}b".into();
        });
        model.add_note(project, Kind::Issue, 1, "bo", "x\u{0}y");
        model.item(project, Kind::Issue, 1).discussions[0]["notes"][0]["author"] = serde_json::Value::Null;
        model.edit_item(project, Kind::Issue, 2, |row| {
            row["author"] = serde_json::json!({"id": 0, "username": "ghost1"});
        });
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.column("SELECT author_username FROM issues ORDER BY iid"), ["NULL", "ghost1"]);
    assert_eq!(world.column("SELECT description FROM issues WHERE iid = 1"), ["ab"]);
    assert_eq!(world.column("SELECT body FROM notes"), ["xy"]);
}

#[test]
fn a6_11_the_token_shows_nowhere_even_when_the_server_echoes_it() {
    let (world, _) = World::with_issues(3);
    world.server.plan(Fault::always("/issues?", faults::json(400, "bad token test-token")));
    world.server.plan(Fault::always("/labels?", faults::json(500, "test-token")));
    let report = world.ingest();
    let shown = format!("{report:?}{:?}", world.column("SELECT last_error FROM stream_failures"));
    assert!(shown.contains("bad token …"), "{shown}");
    assert!(!shown.contains("test-token"), "{shown}");
    let mut world = world;
    world.config =
        config(&world.server.url().replace("http://", "http://user:test-token@"), &["group/project"]);
    let error = world.try_ingest().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(!format!("{error:?}").contains("test-token"));
}

#[test]
fn the_token_is_sent_to_no_other_host() {
    let (world, project) = World::with_issues(3);
    let other = FakeGitlab::start();
    let there = Reply::text(302, "text/plain", "moved").with(
        "Location",
        format!("{}/api/v4/projects/{project}/issues", other.url().replace("127.0.0.1", "localhost")),
    );
    world.server.plan(Fault::always("/issues?", Trouble::Answer(there)));
    let report = world.ingest();
    assert!(report.warnings[0].contains("another host"), "{:?}", report.warnings);
    assert!(other.take_log().is_empty());
}

// ---------------------------------------------------------------- discussions

#[test]
fn discussions_are_replaced_only_after_all_pages_arrived() {
    let (world, project) = World::with_issues(2);
    world.server.edit(|model| {
        for n in 0..150 {
            model.add_note(project, Kind::Issue, 1, "bo", &format!("note {n}"));
        }
        model.add_note(project, Kind::Issue, 2, "bo", "other");
        model.advance(3_600_000);
    });
    world.sync();
    assert_eq!(world.number("SELECT count(*) FROM notes"), 151);
    world.clear_dirty();
    world.server.edit(|model| {
        for iid in [1, 2] {
            model.edit_item(project, Kind::Issue, iid, |row| row["title"] = "t".into());
        }
        let threads = &mut model.item(project, Kind::Issue, 1).discussions;
        threads.remove(0);
    });
    world.server.plan(Fault::always("page=2&", faults::json(503, "503 Service Unavailable")));
    let (_, fetched) = world.sync();
    assert_eq!((fetched.failing, fetched.count("items_fetched")), (1, 1));
    assert_eq!(world.number("SELECT count(*) FROM notes"), 151, "nothing of the first item is removed");
    assert_eq!(
        world.column("SELECT noteable_iid || ' ' || attempt_count FROM pending_discussion_fetches"),
        ["1 1"]
    );
    world.server.heal();
    assert_eq!(world.fetch().count("items_fetched"), 0, "it waits");
    world.store.write(queues::retry_failed).unwrap();
    let fetched = world.fetch();
    assert_eq!((fetched.count("discussions_removed"), fetched.count("discussions_unchanged")), (1, 149));
    assert_eq!(world.number("SELECT count(*) FROM notes"), 150);
}

#[test]
fn bugs_24_a_missing_item_is_kept_and_stops_nothing() {
    let (world, project) = World::with_issues(3);
    world.server.edit(|model| {
        model.add_note(project, Kind::Issue, 2, "bo", "kept");
        model.add_note(project, Kind::Issue, 3, "bo", "kept");
    });
    world.ingest();
    world.server.edit(|model| model.delete_item(project, Kind::Issue, 2));
    let fetched = world.fetch();
    assert_eq!((fetched.count("items_fetched"), fetched.failing), (2, 1));
    assert_eq!(world.issues(), 3);
    let error = world.column("SELECT last_error FROM pending_discussion_fetches");
    assert!(error[0].contains("404") && error[0].contains("kept here"), "{error:?}");
}

#[test]
fn an_outage_costs_no_item_an_attempt() {
    let (world, _) = World::with_issues(30);
    world.ingest();
    world.server.plan(Fault::always("discussions", faults::html(503)));
    let error = world.try_fetch().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network);
    assert_eq!(world.number("SELECT count(*) FROM pending_discussion_fetches WHERE attempt_count > 0"), 0);
    world.server.heal();
    assert_eq!(world.fetch().count("items_fetched"), 30);
}

#[test]
fn one_item_that_always_fails_does_not_block_the_rest() {
    for status in [500, 503] {
        let (world, _) = World::with_issues(30);
        world.ingest();
        world.server.plan(Fault::always("/issues/7/discussions", faults::html(status)));
        let fetched = world.fetch();
        assert_eq!((fetched.count("items_fetched"), fetched.failing), (29, 1), "{status}");
        assert_eq!(world.column("SELECT noteable_iid FROM pending_discussion_fetches"), ["7"]);
    }
}

#[test]
fn a_refused_token_stops_fetching_and_changes_nothing() {
    let (world, _) = World::with_issues(30);
    world.ingest();
    world.server.set(|settings| settings.token = Some("another".to_owned()));
    assert_eq!(world.try_fetch().unwrap_err().kind(), ErrorKind::Auth);
    assert_eq!(world.number("SELECT count(*) FROM pending_discussion_fetches WHERE attempt_count > 0"), 0);
}

#[test]
fn a_stop_is_prompt_and_resumable() {
    let (world, _) = World::with_issues(30);
    world.ingest();
    world.server.plan(
        Fault::always("discussions", Trouble::Deliver(Delivery::Late(Duration::from_millis(200)))).after(5),
    );
    let cancel = world.cancel.clone();
    let stopper = std::thread::spawn(move || {
        std::thread::park_timeout(Duration::from_millis(100));
        cancel.cancel(StopReason::Terminated);
    });
    assert_eq!(world.try_fetch().unwrap_err().kind(), ErrorKind::Terminated);
    stopper.join().unwrap();
    let left = world.queued();
    assert!(left > 0 && left < 30, "{left}");
    world.server.heal();
    let world = World { cancel: Cancel::new(), ..world };
    assert_eq!(world.fetch().count("items_fetched"), left);
}

#[test]
fn the_limit_bounds_one_run() {
    let (world, _) = World::with_issues(30);
    world.ingest();
    let step = FetchDiscussions { limit: 12, ..FetchDiscussions::default() };
    assert_eq!(world.step(|ctx| step.run(ctx)).unwrap().count("items_fetched"), 12);
    assert_eq!(world.queued(), 18);
}

#[test]
fn without_a_server_there_is_nothing_to_fetch() {
    let mut world = World::new(&[]);
    world.config =
        toml::from_str("[sources.x]\nkind = \"gitlab-export\"\npath = \"x\"\nproject = \"g/p\"").unwrap();
    assert!(world.fetch().skipped.is_some());
    let step = FetchDiscussions { source: Some("y".to_owned()), ..FetchDiscussions::default() };
    assert_eq!(world.step(|ctx| step.run(ctx)).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn syncing_twice_is_syncing_once() {
    let (world, project) = World::with_issues(12);
    world.server.edit(|model| {
        for iid in 1..=12 {
            let id = model.add_note(project, Kind::Issue, iid, "bo", "hello");
            model.reply(project, Kind::Issue, iid, &id, "cy", "and hello");
        }
        model.advance(3_600_000);
    });
    let dump = |world: &World| -> BTreeMap<&str, Vec<String>> {
        [
            "issues",
            "discussions",
            "notes",
            "cursors",
            "raw_payloads",
            "dirty_sources",
            "pending_discussion_fetches",
        ]
        .into_iter()
        .map(|table| {
            (
                table,
                world.column(&format!(
                    "SELECT count(*) || ':' || total(rowid_sum) FROM (SELECT {} AS rowid_sum FROM {table})",
                    match table {
                        "cursors" => "saved_at",
                        "dirty_sources" => "source_id + generation",
                        "pending_discussion_fetches" => "noteable_iid",
                        _ => "id",
                    }
                )),
            )
        })
        .collect()
    };
    world.sync();
    let once = dump(&world);
    world.sync();
    assert_eq!(dump(&world), once);
    assert_eq!(world.number("SELECT count(*) FROM notes"), 24);
}

// ---------------------------------------------------------------- recorded and real data

#[test]
fn recorded_answers_of_gitlab_com_are_ingested_without_a_bad_row() {
    let Some(file) = crate::gitlab::shared_file("gitlab/rest/exchanges.ndjson") else { return };
    let lines = std::fs::read_to_string(file).unwrap();
    let projects = ["packit-service/ogr-tests", "forgejo/test_repo", "troyengel/archbuild"];
    let mut world = World::new(&projects);
    world.server = FakeGitlab::replay(&lines);
    world.server.set(|settings| settings.token = None);
    world.config = config(&world.server.url(), &projects);
    let report = world.ingest();
    assert_eq!(report.count("bad_rows"), 0, "{:?}", report.warnings);
    assert_eq!(report.count("projects"), 3);
    // The same requests once more, by hand: what was answered is what is stored.
    let mut replay = crate::fake_gitlab::replay::Replay::parse(&lines);
    let mut listed: BTreeMap<&str, std::collections::BTreeSet<i64>> = BTreeMap::new();
    for target in targets(&world) {
        let request = crate::fake_gitlab::http::Request {
            method: "GET".to_owned(),
            target: target.clone(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        let reply = replay.answer(&request);
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&reply.body).unwrap_or_default();
        for name in ["issues", "merge_requests", "labels", "milestones"] {
            if target.contains(&format!("/{name}?")) && reply.status == 200 {
                listed.entry(name).or_default().extend(rows.iter().filter_map(|row| row["id"].as_i64()));
            }
        }
    }
    for (name, ids) in listed {
        assert_eq!(
            world.number(&format!("SELECT count(*) FROM {name}")),
            i64::try_from(ids.len()).unwrap(),
            "{name}"
        );
    }
    assert!(world.number("SELECT count(*) FROM merge_requests") >= 85, "five recorded pages were followed");
    let fetched = world.fetch();
    assert_eq!(fetched.count("bad_rows"), 0);
    assert_eq!(
        world.number(
            "SELECT count(*) FROM notes n JOIN discussions d ON d.id = n.discussion_id JOIN issues i ON i.id = d.issue_id
              WHERE i.iid = 2"
        ),
        2
    );
}

/// Rows of a file of one JSON object a line, gzipped or not.
fn rows(path: &std::path::Path) -> Vec<serde_json::Value> {
    use std::io::Read;
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_real_corpus_is_synced_whole() {
    let Some(dir) = crate::gitlab::shared_file("gitlab/corpus/bitcoin-core__gui") else { return };
    let world = World::new(&["bitcoin-core/gui"]);
    let (mut n_notes, mut n_items) = (0, 0);
    world.server.edit(|model| {
        let project = model.add_project("bitcoin-core/gui");
        model.project(project).labels = rows(&dir.join("labels.ndjson"));
        model.project(project).milestones = rows(&dir.join("milestones.ndjson"));
        for (kind, list, threads) in [
            (Kind::Issue, "issues.ndjson.gz", "issue_discussions.ndjson.gz"),
            (Kind::MergeRequest, "merge_requests.ndjson.gz", "mr_discussions.ndjson.gz"),
        ] {
            for row in rows(&dir.join(list)) {
                model.load_item(project, kind, row);
                n_items += 1;
            }
            for line in rows(&dir.join(threads)) {
                let threads = line["discussions"].as_array().unwrap().clone();
                n_notes +=
                    threads.iter().map(|thread| thread["notes"].as_array().unwrap().len()).sum::<usize>();
                model.item(project, kind, line["iid"].as_i64().unwrap()).discussions = threads;
            }
        }
    });
    let (report, fetched) = world.sync();
    assert_eq!((report.count("bad_rows"), fetched.count("bad_rows")), (0, 0));
    assert_eq!(world.issues(), 341);
    assert_eq!(world.number("SELECT count(*) FROM merge_requests"), 537);
    assert_eq!(world.number("SELECT count(*) FROM milestones"), 14);
    assert_eq!(fetched.count("items_fetched"), n_items);
    assert_eq!(world.number("SELECT count(*) FROM notes"), i64::try_from(n_notes).unwrap());
    assert_eq!(world.number("SELECT count(*) FROM notes WHERE new_path IS NOT NULL"), 2308);
    let requests = report.count("requests") + fetched.count("requests");
    assert!(requests <= n_items + 30, "{requests} requests for {n_items} items");
}
