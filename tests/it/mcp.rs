//! `lore mcp`: the tools of agents, by lines of our own and by a client of somebody else.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::binary::Bench;
use crate::support::dump::open;
use crate::support::fake_embedder::{FakeEmbedder, Faults as EmbedderFaults};
use crate::support::fake_reranker::{FakeReranker, Faults as RerankerFaults};
use crate::support::tools;

/// A server that we speak to line by line.
struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Session {
    /// Starts a server and greets it.
    fn new(bench: &Bench, args: &[&str]) -> Self {
        let mut session = Self::silent(bench, args);
        let hello = session.ask(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "test", "version": "0" },
            }),
        );
        assert_eq!(hello["result"]["serverInfo"]["name"], "lore", "{hello}");
        assert!(hello["result"]["capabilities"]["tools"].is_object(), "{hello}");
        assert!(hello["result"]["instructions"].as_str().unwrap().contains("cite"), "{hello}");
        session.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        session
    }

    fn silent(bench: &Bench, args: &[&str]) -> Self {
        let mut child = bench
            .command([&["mcp"], args].concat())
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, last_id: 0 }
    }

    /// Writes a line.
    fn say(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).unwrap();
    }

    /// Reads a line.
    #[track_caller]
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
        assert_eq!(answer["jsonrpc"], "2.0", "{answer}");
        answer
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        let answer = self.hear();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Calls a tool; returns whether it failed, and its text.
    #[track_caller]
    fn call(&mut self, tool: &str, arguments: &Value) -> (bool, String) {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let result = &answer["result"];
        let content = result["content"].as_array().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!((content.len(), &content[0]["type"]), (1, &json!("text")), "{answer}");
        let text = content[0]["text"].as_str().unwrap().to_owned();
        assert!(text.chars().count() <= 32_000, "{} characters", text.chars().count());
        (result["isError"] == true, text)
    }

    /// Calls a tool that succeeds.
    #[track_caller]
    fn data(&mut self, tool: &str, arguments: &Value) -> Value {
        let (failed, text) = self.call(tool, arguments);
        assert!(!failed, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Calls a tool that fails; returns what it says.
    #[track_caller]
    fn fails(&mut self, tool: &str, arguments: &Value) -> String {
        let (failed, text) = self.call(tool, arguments);
        assert!(failed, "{text}");
        assert!(text.starts_with("error: "), "{text}");
        text
    }

    /// Ends the input; returns the exit code.
    fn end(mut self) -> Option<i32> {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_line(&mut rest).unwrap();
        assert_eq!(rest, "", "nothing is said at the end");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Two projects; in each an open issue, a confidential one and a note inside, all about a
/// walrus.
fn two_projects() -> Bench {
    let bench = Bench::new();
    let mut config = String::new();
    for project in ["app", "vault"] {
        let issue = |iid: i64, title: &str, confidential: bool| {
            let at = format!("2024-01-0{iid}T00:00:00Z");
            let note = |id: i64, text: &str, internal: bool| {
                json!({
                    "id": iid * 10 + id, "note": text, "author_id": 1, "created_at": at, "updated_at": at,
                    "system": false, "internal": internal, "noteable_type": "Issue",
                    "discussion_id": format!("{:040x}", iid * 100 + id), "author": { "name": "Ann" },
                })
            };
            json!({
                "iid": iid, "title": title, "description": format!("the walrus of {project}. See group/vault#1."),
                "state": "opened", "author_id": 1, "created_at": at, "updated_at": at,
                "confidential": confidential, "label_links": [],
                "notes": [note(1, &format!("a walrus note in {project}"), false),
                          note(2, &format!("INTERNAL walrus of {project}"), true)],
            })
            .to_string()
        };
        let issues = [
            issue(1, &format!("Walrus of {project}"), false),
            issue(2, &format!("SECRET walrus of {project}"), true),
        ];
        bench.write(&format!("{project}/tree/project.json"), "{}");
        bench.write(&format!("{project}/tree/project/issues.ndjson"), &issues.join("\n"));
        config.push_str(&format!(
            "[sources.{project}]\nkind = \"gitlab-export\"\npath = \"{project}\"\nproject = \"group/{project}\"\n"
        ));
    }
    config.push_str("[scopes.app]\nprojects = [\"group/app\"]\n[scopes.trusted]\nprojects = [\"*\"]\ninclude_confidential = true\n");
    bench.write("lore.toml", &config);
    bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    bench
}

#[test]
fn the_tools_are_listed_with_what_an_agent_must_know() {
    let bench = Bench::demo();
    let mut session = Session::new(&bench, &[]);
    let listed = session.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["search", "get_thread", "similar", "status"]);
    for tool in tools {
        assert!(tool["description"].as_str().unwrap().len() > 60, "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
    }
    assert_eq!(session.end(), Some(0));
}

#[test]
fn each_tool_answers_as_the_command_line_does() {
    let bench = Bench::demo();
    let mut session = Session::new(&bench, &[]);
    let found = session.data("search", &json!({ "query": "upload", "mode": "lexical", "limit": 5 }));
    let told = bench.lore(["query", "upload", "--mode", "lexical", "--limit", "5", "--json"]).data();
    let references = |answer: &Value| {
        let results = answer["results"].as_array().unwrap();
        results
            .iter()
            .map(|result| (result["reference"].clone(), result["score"].clone()))
            .collect::<Vec<_>>()
    };
    assert!(!references(&found).is_empty());
    assert_eq!(references(&found), references(&told));
    for result in found["results"].as_array().unwrap() {
        assert!(result["url"].is_string() && result["title"].is_string() && result["snippet"].is_string());
    }

    let pages: Vec<_> = [0, 2]
        .iter()
        .flat_map(|offset| {
            references(&session.data("search", &json!({ "query": "upload", "limit": 2, "offset": offset })))
        })
        .collect();
    assert_eq!(pages, references(&session.data("search", &json!({ "query": "upload", "limit": 4 }))));

    let filtered =
        session.data("search", &json!({ "query": "upload", "types": ["mr"], "passage_chars": 500 }));
    for result in filtered["results"].as_array().unwrap() {
        assert_eq!(result["source_type"], "merge_request", "{result}");
        assert!(result["passage"].is_string(), "{result}");
    }

    let whole = bench.lore(["show", "#1", "--color", "never"]).ok();
    let (mut offset, mut read) = (json!(0), String::new());
    while !offset.is_null() {
        let part =
            session.data("get_thread", &json!({ "reference": "#1", "offset": offset, "max_chars": 300 }));
        read.push_str(part["text"].as_str().unwrap());
        assert!(part["reference"].as_str().unwrap().ends_with("#1"), "{part}");
        offset = part["next_offset"].clone();
    }
    assert_eq!(read, whole);

    let like = session.data("similar", &json!({ "reference": "#1", "limit": 3 }));
    let told = bench.lore(["query", "--like", "#1", "--limit", "3", "--json"]).data();
    assert_eq!(references(&like), references(&told));
    let like =
        session.data("similar", &json!({ "text": "Import: -is:closed \"folder that is full of photos" }));
    assert_eq!(like["results"][0]["reference"], session_first(&bench), "{like}");

    let status = session.data("status", &json!({}));
    let told = bench.lore(["query", "upload", "--json"]).json();
    assert_eq!(status["documents"], told["meta"]["documents_indexed"], "{status}");
    assert_eq!(status["queues"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["last_runs"][0]["job"], "demo", "{status}");
    assert!(status["newest_document_at"].is_string(), "{status}");
    assert_eq!(session.end(), Some(0));
}

/// Reference of the issue that the sample's first issue is.
fn session_first(bench: &Bench) -> Value {
    bench.lore(["show", "#1", "--json"]).data()["reference"].clone()
}

#[test]
fn what_is_wrong_is_told_and_the_next_call_is_answered() {
    let bench = Bench::demo();
    let mut session = Session::new(&bench, &[]);
    let unknown = session.ask("tools/call", &json!({ "name": "delete_all", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("get_thread"), "{unknown}");
    let unknown = session.ask("tools/destroy", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");

    for (tool, arguments, said) in [
        ("search", json!({}), "error: "),
        ("search", json!({ "query": "x", "types": ["epic"] }), "issue, mr, discussion"),
        ("search", json!({ "query": "x", "created_after": "someday" }), "2024-01-31"),
        ("search", json!({ "query": "x", "labels": [" "] }), "labels"),
        ("search", json!({ "query": "x", "limit": 0 }), "limit"),
        ("search", json!({ "query": "x", "limit": "many" }), "many"),
        ("search", json!({ "query": "x", "fields": ["title"] }), "fields"),
        ("search", json!({ "query": "x".repeat(3_000_000) }), "characters"),
        ("get_thread", json!({}), "reference"),
        ("get_thread", json!({ "reference": "the login bug" }), "group/project#12"),
        ("get_thread", json!({ "reference": "#9999" }), "not stored"),
        ("similar", json!({}), "reference or text"),
        ("similar", json!({ "reference": "#1", "text": "x" }), "reference or text"),
        ("status", json!({ "verbose": true }), "verbose"),
    ] {
        let text = session.fails(tool, &arguments);
        assert!(text.contains(said), "{tool}: {text}");
    }
    let (deep, long) = ("[".repeat(1_000) + &"]".repeat(1_000), "x".repeat(5 << 20));
    for line in ["{", "not json", "{\"jsonrpc\":\"2.0\",\"id\":", "\u{0}\u{1}", &deep, &long] {
        session.say(line);
        let answer = session.hear();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().len() < 300, "{answer}");
    }
    for line in ["", " ", "\r"] {
        session.say(line);
    }
    session.say("[1, 2]");
    assert_eq!(session.hear()["error"]["code"], -32600);
    assert!(
        session.data("search", &json!({ "query": "upload", "limit": 1000 }))["warnings"]
            .to_string()
            .contains("lowered")
    );
    assert_eq!(session.end(), Some(0));
}

#[test]
fn a_scope_is_fixed_at_the_start_and_no_argument_widens_it() {
    let bench = two_projects();
    let attempts = [
        ("search", json!({ "query": "walrus" })),
        ("search", json!({ "query": "walrus project:group/vault" })),
        ("search", json!({ "query": "walrus", "projects": ["group/vault"] })),
        ("search", json!({ "query": "walrus", "projects": ["group/*"] })),
        ("search", json!({ "query": "walrus is:confidential" })),
        ("search", json!({ "query": "group/vault#1" })),
        ("search", json!({ "query": "#2", "limit": 50, "passage_chars": 2000 })),
        ("search", json!({ "query": "walrus", "scope": "trusted" })),
        ("search", json!({ "query": "walrus", "include_confidential": true })),
        ("get_thread", json!({ "reference": "group/vault#1" })),
        ("get_thread", json!({ "reference": "group/app#2" })),
        ("get_thread", json!({ "reference": "group/app#1", "system_notes": true })),
        ("get_thread", json!({ "reference": "group/app#1", "scope": "trusted" })),
        ("similar", json!({ "reference": "group/vault#1" })),
        ("similar", json!({ "reference": "group/app#1", "projects": ["group/vault"] })),
        ("similar", json!({ "text": "walrus of vault, SECRET, INTERNAL project:group/vault" })),
        ("status", json!({})),
    ];
    let mut session = Session::new(&bench, &["--scope", "app"]);
    for (tool, arguments) in &attempts {
        let (_, text) = session.call(tool, arguments);
        let asked = arguments.to_string();
        // The first line of the description may be shown: it names the other project itself.
        let text = text.replace("See group/vault#1", "").replace("the walrus of app. ", "");
        for hidden in ["Walrus of vault", "walrus of vault", "note in vault", "SECRET", "INTERNAL w"] {
            assert!(asked.contains(hidden) || !text.contains(hidden), "{tool} {asked}: {text}");
        }
        assert!(!text.contains("\"reference\":\"group/vault"), "{tool} {asked}: {text}");
    }
    let status = session.data("status", &json!({}));
    assert_eq!(status["projects"], json!(["group/app"]));
    assert!(status.get("queues").is_none() && status["documents"].as_i64().unwrap() < 4, "{status}");
    assert_eq!(session.end(), Some(0));

    // Without a scope all projects are seen, but nothing confidential; with the permission, all.
    let mut session = Session::new(&bench, &[]);
    let found = session.data("search", &json!({ "query": "walrus" })).to_string();
    assert!(found.contains("Walrus of vault") && !found.contains("SECRET"), "{found}");
    let mut session = Session::new(&bench, &["--scope", "trusted"]);
    let found = session.data("search", &json!({ "query": "walrus" })).to_string();
    assert!(found.contains("SECRET walrus of vault"), "{found}");
    let narrowed =
        session.data("search", &json!({ "query": "walrus", "projects": ["group/app"] })).to_string();
    assert!(
        narrowed.contains("SECRET walrus of app") && !narrowed.contains("alrus of vault\""),
        "{narrowed}"
    );

    for args in [
        &["mcp", "--scope", "nobody"][..],
        &["mcp", "--scope", "app", "--include-confidential"],
        &["mcp", "--scope", "nobody", "--json"],
    ] {
        let output = bench.lore(args);
        assert_eq!(output.stdout, "", "standard output belongs to the protocol");
        output.fails(2);
    }
}

#[test]
fn nothing_is_written_and_a_lock_or_a_missing_database_is_no_obstacle() {
    let mut bench = Bench::new();
    bench.var("LORE__METRICS__QUERIES", "true");
    let mut session = Session::new(&bench, &[]);
    let text = session.fails("search", &json!({ "query": "upload" }));
    assert!(text.contains("there is no database") && text.contains("hint: "), "{text}");
    assert!(!bench.database().exists(), "it is not made");

    bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
    assert!(!session.data("search", &json!({ "query": "upload" }))["results"].as_array().unwrap().is_empty());
    let database = open(&bench.database());
    database.execute("UPDATE app_lock SET owner = 'x', heartbeat_at = 9e15, lease_ms = 60000", []).unwrap();
    let state = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let before = (state("PRAGMA data_version"), state("SELECT count(*) FROM counters"));
    assert_eq!(session.data("status", &json!({}))["run_under_way"], true);
    for (tool, arguments) in [
        ("search", json!({ "query": "upload" })),
        ("search", json!({ "query": "upload fails", "mode": "lexical" })),
        ("similar", json!({ "reference": "#1" })),
        ("get_thread", json!({ "reference": "#1" })),
    ] {
        session.data(tool, &arguments);
    }
    assert_eq!((state("PRAGMA data_version"), state("SELECT count(*) FROM counters")), before);

    // An older schema is told, and answered from as soon as it is brought up to date.
    let version = state("PRAGMA user_version");
    database.pragma_update(None, "user_version", version - 1).unwrap();
    let text = session.fails("search", &json!({ "query": "upload" }));
    assert!(text.contains("schema version"), "{text}");
    database.pragma_update(None, "user_version", version).unwrap();
    session.data("search", &json!({ "query": "upload" }));
    assert_eq!(session.end(), Some(0));
}

#[test]
fn it_ends_with_its_input_and_with_a_signal_and_answers_what_was_asked_before() {
    let bench = Bench::demo();
    // No greeting at all.
    assert_eq!(Session::silent(&bench, &[]).end(), Some(0));

    let mut session = Session::new(&bench, &[]);
    session.say(
        &json!({ "jsonrpc": "2.0", "id": "last", "method": "tools/call",
                 "params": { "name": "search", "arguments": { "query": "upload" } } })
        .to_string(),
    );
    drop(session.input.take());
    assert_eq!(session.hear()["id"], "last");
    assert_eq!(session.child.wait().unwrap().code(), Some(0));

    let mut session = Session::new(&bench, &[]);
    let pid = rustix::process::Pid::from_child(&session.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(session.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_an_issue_became_is_told_to_those_alone_who_may_see_it() {
    let bench = two_projects();
    open(&bench.database())
        .execute_batch(
            "UPDATE issues SET moved_to_gitlab_id = 77 WHERE iid = 1; UPDATE issues SET gitlab_id = 77 WHERE iid = 2",
        )
        .unwrap();
    let shown = |more: &[&str]| bench.lore([&["show", "group/app#1"], more].concat()).ok();
    assert!(shown(&["--include-confidential"]).contains("Moved to: group/app#2"));
    assert!(!shown(&[]).contains("#2") && !shown(&["--scope", "app"]).contains("Moved to"));
    let mut session = Session::new(&bench, &["--scope", "app"]);
    let text = session.data("get_thread", &json!({ "reference": "group/app#1" })).to_string();
    assert!(!text.contains("#2"), "{text}");
}

#[test]
fn a_last_line_without_its_end_is_answered_too() {
    let bench = Bench::demo();
    let mut session = Session::new(&bench, &[]);
    let last = json!({ "jsonrpc": "2.0", "id": "last", "method": "ping" }).to_string();
    session.input.as_mut().unwrap().write_all(last.as_bytes()).unwrap();
    drop(session.input.take());
    assert_eq!(session.hear()["id"], "last");
    assert_eq!(session.child.wait().unwrap().code(), Some(0));
}

#[test]
fn services_that_fail_are_left_alone_by_the_calls_that_follow() {
    let (embedder, reranker) =
        (FakeEmbedder::new(EmbedderFaults::default()), FakeReranker::new(RerankerFaults::default()));
    let mut bench = Bench::demo();
    bench
        .var("LORE__EMBEDDING__PROVIDER", "ollama")
        .var("LORE__EMBEDDING__URL", &embedder.url())
        .var("LORE__EMBEDDING__QUERY_TIMEOUT", "30s")
        .var("LORE__RERANK__PROVIDER", "tei")
        .var("LORE__RERANK__URL", &reranker.url())
        .var("LORE__RERANK__TIMEOUT", "30s");
    bench.lore(["run", "embed", "--quiet"]).ok();
    embedder.forget();
    embedder.change(|faults| faults.web_page = true);
    reranker.change(|faults| faults.status = Some(503));
    // One that answers, if not as it should, need not be left alone.
    let mut session = Session::new(&bench, &[]);
    for _ in 0..3 {
        let answer = session.data("search", &json!({ "query": "upload fails" }));
        assert!(answer["warnings"][0].as_str().unwrap().contains("a web page"), "{answer}");
    }
    assert_eq!(reranker.asked().len(), 2);

    embedder.forget();
    embedder.change(|faults| (faults.web_page, faults.busy) = (false, usize::MAX));
    let mut session = Session::new(&bench, &[]);
    let mut warnings = Vec::new();
    for _ in 0..4 {
        let answer = session.data("search", &json!({ "query": "upload fails" }));
        assert!(!answer["results"].as_array().unwrap().is_empty());
        warnings = answer["warnings"].as_array().unwrap().clone();
    }
    assert_eq!((embedder.asked().len(), reranker.asked().len()), (2, 2));
    let told = |what: &str| warnings.iter().any(|warning| warning.as_str().unwrap().contains(what));
    assert!(told("left alone for another") && told("not reranked"), "{warnings:?}");
    let text = session.fails("search", &json!({ "query": "upload fails", "mode": "semantic" }));
    assert!(text.contains("left alone"), "{text}");
    // Another process does not know: nothing was written.
    let state = open(&bench.database());
    let kept: i64 = state.query_row("SELECT count(*) FROM circuit_breakers", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, 0);
    assert_eq!(session.end(), Some(0));
}

/// What a client of the protocol's own authors does with the server.
const CLIENT: &str = r##"
import asyncio, json, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.argv[1], args=["mcp"], env=dict(os.environ))
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            hello = await session.initialize()
            tools = await session.list_tools()
            print(json.dumps([tool.name for tool in tools.tools]))
            for name, arguments in [
                ("search", {"query": "upload", "limit": 3}),
                ("get_thread", {"reference": "#1"}),
                ("similar", {"reference": "#1"}),
                ("status", {}),
                ("get_thread", {"reference": "#9999"}),
            ]:
                answer = (await session.call_tool(name, arguments)).model_dump(by_alias=True, mode="json")
                assert len(answer["content"]) == 1, answer
                print(json.dumps([bool(answer["isError"]), answer["content"][0]["text"]]))

asyncio.run(main())
"##;

#[test]
fn the_protocols_own_client_is_served() {
    let Some(python) = tools::find("python3") else { return };
    if !tools::has_module(&python, "mcp") {
        return;
    }
    let bench = Bench::demo();
    let script = bench.write("client.py", CLIENT);
    let mut command = Command::new(python);
    command
        .args([script.as_os_str(), env!("CARGO_BIN_EXE_lore").as_ref()])
        .env("LORE__DATABASE__PATH", bench.database())
        .env("HOME", bench.path())
        .current_dir(bench.path());
    let (ok, said) = tools::run(&mut command, "");
    assert!(ok, "{said}");
    let lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(lines.len(), 6, "{said}");
    assert_eq!(lines[0], json!(["search", "get_thread", "similar", "status"]));
    for (line, key) in lines[1..5].iter().zip(["results", "text", "results", "documents"]) {
        assert_eq!(line[0], false, "{line}");
        let answer: Value = serde_json::from_str(line[1].as_str().unwrap()).unwrap();
        assert!(!answer[key].is_null(), "{line}");
    }
    assert_eq!(lines[5][0], true);
    assert!(lines[5][1].as_str().unwrap().starts_with("error: #9999 is not stored"), "{}", lines[5]);
}
