//! `lore doctor`: what it says about surroundings that are, and are not, as they should be.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::binary::Bench;
use crate::support::dump;
use crate::support::fake_embedder::{FakeEmbedder, Faults};
use crate::support::fake_gitlab::http::{HttpServer, Reply, Request};
use crate::support::fake_reranker::{FakeReranker, Faults as Rerank};

const TOKEN: &str = "glpat-S3CR3TVALUE";

/// What GitLab answers when all is well.
fn healthy(request: &Request) -> Reply {
    let path = request.path();
    if request.header("private-token") != Some(TOKEN) {
        return Reply::json(401, &json!({"message": "401 Unauthorized"}));
    }
    match path {
        "/api/v4/version" => Reply::json(200, &json!({"version": "17.4.1-ee", "revision": "abc"})),
        "/api/v4/personal_access_tokens/self" => {
            Reply::json(200, &json!({"name": "lore", "scopes": ["read_api"], "expires_at": "2999-01-01"}))
        }
        "/api/v4/user" => Reply::json(200, &json!({"username": "project_5_bot_1a", "bot": true})),
        "/api/v4/projects/group%2Fproject" | "/api/v4/projects/5" => Reply::json(200, &project()),
        "/api/v4/projects" => Reply::json(200, &json!([project()])),
        _ => Reply::json(404, &json!({"message": "404 Not Found"})),
    }
}

fn project() -> Value {
    json!({"id": 5, "path_with_namespace": "group/project", "name": "project",
           "issues_access_level": "enabled", "merge_requests_access_level": "disabled"})
}

/// A bench with the sample indexed, whose configuration names a server at `url`.
fn bench(url: &str) -> Bench {
    let mut bench = Bench::demo();
    bench.var("GITLAB_TOKEN", TOKEN);
    configure(&bench, url, "");
    bench
}

fn configure(bench: &Bench, url: &str, more: &str) {
    // A model of our own takes seconds to load without optimisation.
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {url:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\n\
             projects = [\"group/project\"]\n{more}\n[embedding]\nprovider = \"ollama\"\nurl = \"http://127.0.0.1:9\"\n"
        ),
    );
}

fn server(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> (HttpServer, Bench) {
    let server = HttpServer::start(move |request, _| handler(request));
    let bench = bench(&format!("http://{}", server.authority()));
    (server, bench)
}

/// The checks as `name: status`, and the whole text of one.
struct Told {
    code: i32,
    checks: Vec<Value>,
}

impl Told {
    fn by(bench: &Bench, args: &[&str]) -> Self {
        let output = bench.lore([&["doctor", "--json"], args].concat());
        assert!(!output.stdout.contains("S3CR3T") && !output.stderr.contains("S3CR3T"), "{output:?}");
        let answer = output.json();
        let report = if output.code == 0 { &answer["data"] } else { &answer["error"]["details"] };
        Self { code: output.code, checks: report["checks"].as_array().unwrap().clone() }
    }

    fn check(&self, name: &str) -> &Value {
        self.checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no {name} in {:?}", self.checks))
    }

    #[track_caller]
    fn shows(&self, name: &str, status: &str, text: &str) {
        let check = self.check(name);
        assert_eq!(check["status"], status, "{check}");
        assert!(check["message"].as_str().unwrap().contains(text), "{check}");
        assert_eq!(check["advice"].is_null(), status == "ok", "what to do: {check}");
    }
}

#[test]
fn api_36_82_a_server_as_it_should_be_passes_every_check() {
    let (_server, bench) = server(healthy);
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 0);
    assert!(told.checks.iter().all(|check| check["status"] == "ok"), "{:?}", told.checks);
    told.shows("main token", "ok", "access token");
    told.shows("main server", "ok", "GitLab 17.4.1-ee");
    told.shows("main scopes", "ok", "project access token of project_5_bot_1a has read_api");
    told.shows("main expiry", "ok", "2999-01-01");
    told.shows("main project group/project", "ok", "switched off in the project: merge requests");
    let shown = bench.lore(["doctor", "--source", "main"]).ok();
    assert!(shown.contains("ok    main server: GitLab 17.4.1-ee"), "{shown}");
}

#[test]
fn it_works_while_a_run_holds_the_lock_and_changes_nothing() {
    let (_server, bench) = server(healthy);
    dump::execute(
        &bench.database(),
        "UPDATE app_lock SET owner = 'somebody', token = token + 1, job = 'sync', host = 'elsewhere',
                acquired_at = unixepoch('now') * 1000, heartbeat_at = unixepoch('now') * 1000",
    );
    let before = dump::dump(&bench.database());
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 0);
    told.shows("lock", "ok", "held by job sync");
    assert!(dump::dump(&bench.database()) == before);
}

#[test]
fn a_server_that_is_not_there_and_a_token_that_is_not_set() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut bench = bench(&format!("http://127.0.0.1:{port}"));
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 8);
    told.shows("main server", "fail", "cannot connect");
    told.shows("database", "ok", "schema");
    bench.var("GITLAB_TOKEN", "");
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 4);
    told.shows("main token", "fail", "GITLAB_TOKEN");
}

#[test]
fn api_73_82_tokens_that_are_refused_of_another_kind_or_without_scope() {
    let (_server, mut bench) = server(|request| match request.path() {
        "/api/v4/personal_access_tokens/self" => {
            Reply::json(200, &json!({"scopes": ["read_user"], "expires_at": "2020-01-01"}))
        }
        _ => healthy(request),
    });
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 5);
    told.shows("main scopes", "fail", "lacks the scope read_api");
    told.shows("main expiry", "fail", "expired on 2020-01-01");
    bench.var("GITLAB_TOKEN", "gldt-S3CR3TOTHER");
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 5);
    told.shows("main token", "fail", "deploy token");
    told.shows("main server", "fail", "401");
}

#[test]
fn bugs_28_api_31_a_proxy_that_decodes_slashes_is_recognised() {
    let html = || Reply::text(404, "text/html", "<html>nginx</html>");
    let (_first, bench) = server(move |request| match request.path() {
        "/api/v4/projects/group%2Fproject" => html(),
        _ => healthy(request),
    });
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 3);
    told.shows("main project group/project", "fail", "found by its number, not by its path");
    assert!(told.check("main project group/project")["advice"][0].as_str().unwrap().contains("nocanon"));
    let (_second, bench) = server(move |request| match request.path() {
        "/api/v4/projects/group%2Fproject" => html(),
        "/api/v4/projects" => Reply::json(200, &json!([])),
        _ => healthy(request),
    });
    Told::by(&bench, &["--source", "main"]).shows("main project group/project", "fail", "HTML page");
    let (_third, bench) = server(|request| match request.path() {
        "/api/v4/projects/group%2Fproject" => Reply::json(404, &json!({"message": "404 Project Not Found"})),
        "/api/v4/projects" => Reply::json(200, &json!([])),
        _ => healthy(request),
    });
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 6, "simply not there");
}

#[test]
fn api_33_85_redirects_are_explained() {
    let (_plain, bench) = server(|request| {
        Reply::text(301, "text/html", "moved")
            .with("Location", format!("https://127.0.0.1{}", request.target))
    });
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 3);
    told.shows("main server", "fail", "redirects http to https");
    let (_renamed, bench) = server(|request| match request.path() {
        "/api/v4/projects/group%2Fproject" => {
            Reply::text(302, "text/plain", "moved").with("Location", "/api/v4/projects/5")
        }
        "/api/v4/projects/5" => {
            let mut row = project();
            row["path_with_namespace"] = "group/renamed".into();
            Reply::json(200, &row)
        }
        _ => healthy(request),
    });
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 0, "it works still");
    told.shows("main project group/project", "warn", "renamed or moved to group/renamed");
}

#[test]
fn another_server_than_gitlab_is_named_as_such() {
    let (_server, bench) = server(|_| Reply::text(200, "text/html", "<!DOCTYPE html><title>Sign in</title>"));
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 3);
    told.shows("main server", "fail", "an HTML page instead of JSON");
    let (_server, bench) = server(|_| Reply::json(404, &json!({"error": "nothing here"})));
    Told::by(&bench, &["--source", "main"]).shows("main server", "fail", "no GitLab API");
}

#[test]
fn api_19_a_clock_that_differs_is_a_warning() {
    let (_server, bench) = server(|request| healthy(request).with("Date", "Tue, 05 Jan 2021 11:00:00 GMT"));
    let told = Told::by(&bench, &["--source", "main"]);
    assert_eq!(told.code, 0);
    told.shows("main clock", "warn", "ahead of the server's");
}

#[test]
fn exports_streams_and_a_missing_database_are_looked_at_without_a_server() {
    let (_server, bench) = server(healthy);
    dump::execute(
        &bench.database(),
        "INSERT INTO stream_failures(project_id, stream, attempt_count, last_attempt_at, error_kind, last_error)
         SELECT id, 'labels', 3, 0, 'NETWORK', 'the server sleeps' FROM projects LIMIT 1",
    );
    configure(
        &bench,
        "http://127.0.0.1:9",
        "[sources.file]\nkind = \"gitlab-export\"\npath = \"no/such.tar.gz\"\nproject = \"a/b\"",
    );
    let told = Told::by(&bench, &["--offline"]);
    assert_eq!(told.code, 12);
    told.shows("file export", "fail", "no/such.tar.gz");
    told.shows("main server", "ok", "--offline");
    told.shows("embedding", "ok", "--offline");
    let stream =
        told.checks.iter().find(|check| check["name"].as_str().unwrap().starts_with("stream ")).unwrap();
    assert!(
        stream["status"] == "warn" && stream["message"].as_str().unwrap().contains("the server sleeps"),
        "{stream}"
    );
    let empty = Bench::new();
    let told = Told::by(&empty, &["--offline", "--database", "elsewhere/none.db"]);
    assert_eq!(told.code, 0);
    told.shows("database", "warn", "there is none");
    told.shows("sources", "warn", "none is configured");
    assert!(!empty.path().join("elsewhere").exists(), "nothing is made");
}

#[test]
fn a2_an_embedding_service_that_mixes_up_its_batches_is_found_out() {
    for (faults, code, text) in [
        (Faults::default(), 0, "64 dimensions"),
        (Faults { rotate: true, ..Faults::default() }, 16, "another vector in a batch"),
    ] {
        let service = FakeEmbedder::new(faults);
        let bench = Bench::new();
        bench.write("lore.toml", &format!("[embedding]\nprovider = \"ollama\"\nurl = {:?}\n", service.url()));
        let told = Told::by(&bench, &[]);
        assert_eq!(told.code, code, "{:?}", told.checks);
        told.shows("embedding", if code == 0 { "ok" } else { "fail" }, text);
    }
    let bench = Bench::new();
    bench.write("lore.toml", "[embedding]\nprovider = \"ollama\"\nurl = \"http://127.0.0.1:9\"\n");
    let told = Told::by(&bench, &[]);
    assert_eq!(told.code, 14);
}

#[test]
fn a_reranker_is_asked_and_one_that_is_down_refuses_or_scores_nonsense_is_found_out() {
    let server = FakeReranker::new(Rerank::default());
    let bench = Bench::new();
    let url = server.url();
    bench.write(
        "lore.toml",
        &format!("[embedding]\nprovider = \"builtin\"\n[rerank]\nprovider = \"tei\"\nurl = {url:?}\n"),
    );
    for (faults, status, text) in [
        (Rerank { favour: vec!["reset"], ..Rerank::default() }, "ok", "tei at"),
        (Rerank { favour: vec!["lighthouse"], ..Rerank::default() }, "warn", "not scored best"),
        (Rerank { favour: vec!["reset"], silent_about: Some(0), ..Rerank::default() }, "warn", "no score"),
        (Rerank { status: Some(401), ..Rerank::default() }, "fail", "401"),
        (Rerank { web_page: true, ..Rerank::default() }, "fail", "a web page"),
    ] {
        server.change(|now| *now = faults);
        Told::by(&bench, &[]).shows("reranker", status, text);
    }
    Told::by(&bench, &["--offline"]).shows("reranker", "ok", "--offline");
    bench.write("lore.toml", "[rerank]\nprovider = \"tei\"\nurl = \"http://127.0.0.1:9\"\n");
    Told::by(&bench, &[]).shows("reranker", "fail", "cannot reach");
}

#[test]
fn a_configuration_that_cannot_be_read_is_the_one_finding() {
    let bench = Bench::new();
    bench.write("lore.toml", "[sources.main]\nkind = \"gitlab\"\nurll = \"x\"\n");
    let told = Told::by(&bench, &[]);
    assert_eq!(told.code, 3);
    assert_eq!(told.checks.len(), 1);
}
