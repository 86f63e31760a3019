//! Tests of jobs: fixtures with their expected diagnostics, the graph, the decision table.
//!
//! A fixture ends with what checking it must say, one comment a line:
//! `#! LINE:COLUMN severity: message; suggestion`.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::graph::{self, Selection};
use super::state::{Conclusion, Decision, Outcome, RunOutcome, SkipReason, decide, run_outcome};
use super::when::{self, Facts, Queue};
use super::*;
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::ErrorKind;

/// Parameters that fixtures use: one of each shape.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Fetch {
    limit: Option<u32>,
    source: Option<String>,
    mode: Mode,
    #[serde(with = "crate::duration::maybe_duration_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pause: Option<Duration>,
    nested: Nested,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Fast,
    Thorough,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Nested {
    depth: u8,
    label: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Embed {
    model: String,
    #[serde(default)]
    batch: u16,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Plain {}

macro_rules! kind {
    ($type:ty, $kind:literal, $example:literal) => {
        impl Step for $type {
            const KIND: &'static str = $kind;
            const SUMMARY: &'static str = "a kind of the tests";
            const EXAMPLE: &'static str = $example;

            fn run(&self, _ctx: &StepCtx<'_>) -> Result<StepReport> {
                Ok(StepReport::default())
            }
        }
    };
}
kind!(Fetch, "fetch", "{ limit = 5 }");
kind!(Embed, "embed", "{ model = \"m\" }");
kind!(Plain, "plain", "{}");

const KINDS: &[StepDef] = &[StepDef::of::<Fetch>(), StepDef::of::<Embed>(), StepDef::of::<Plain>()];

fn check_text(text: &str) -> Checked {
    check("job.toml", text, KINDS, &[])
}

fn job(text: &str) -> Job {
    parse("job.toml", text, KINDS, &[]).unwrap_or_else(|found| panic!("{}", lines(&found).join("\n")))
}

fn lines(found: &[Diagnostic]) -> Vec<String> {
    found.iter().map(Diagnostic::short).collect()
}

fn set(text: &str, overrides: &[&str]) -> Checked {
    let overrides: Vec<Override> = overrides.iter().map(|text| text.parse().unwrap()).collect();
    check("job.toml", text, KINDS, &overrides)
}

#[test]
fn every_fixture_says_what_is_expected_of_it() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/jobs");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{files:?}");
    let mut wrong = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let want: Vec<String> = text
            .lines()
            .filter_map(|line| line.strip_prefix("#! "))
            .map(|line| format!("{name}:{line}"))
            .collect();
        // A fixture without expectations expects no diagnostics, which is wrong for one.
        let checked = check(&name, &text, KINDS, &[]);
        // The place comes as `file:line:column: severity: …`, the comment without the colon.
        let got: Vec<String> = checked
            .diagnostics
            .iter()
            .map(|found| {
                found.short().replacen(&format!("{}: ", found.place()), &format!("{} ", found.place()), 1)
            })
            .collect();
        if got != want {
            wrong.push(format!("{name}\n  want {want:#?}\n  got {got:#?}"));
        }
        let errors = checked.diagnostics.iter().any(Diagnostic::is_error);
        assert_eq!(checked.job.is_none(), errors, "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a6_10_every_mistake_is_named_with_place_and_near_match() {
    let text = "retrys = 3\ntimeout = \"5 minuts\"\n[job.sycn]\n[steps.a]\nuses = \"plain\"\nneeds = [\"b\"]\n\
                [steps.b]\nuses = \"plain\"\nneeds = [\"a\", \"embd\"]\n[steps.embed]\nwith = { model = \"m\" }\n";
    let found = check("jobs.toml", text, KINDS, &[]).diagnostics;
    let found = lines(&found);
    for want in [
        "jobs.toml:1:1: error: unknown key `retrys` in a job file; known: ",
        "jobs.toml:2:11: error: invalid duration \"5 minuts\", expected a duration like",
        "jobs.toml:3:2: error: unknown key `job` in a job file; did you mean `steps`?",
        "jobs.toml:9:10: error: steps need each other: a -> b -> a",
        "jobs.toml:9:15: error: there is no step `embd`; did you mean `embed`?",
    ] {
        assert!(found.iter().any(|line| line.starts_with(want)), "{want}\n{found:#?}");
    }
    assert_eq!(found.len(), 5, "{found:#?}");
}

#[test]
fn crlf_and_byte_order_mark_do_not_move_a_place() {
    let unix = "name = \"job\"\n# ü\n[steps.plain]\nneeds = [\"é\", \"plain\"]\n";
    let windows = format!("\u{feff}{}", unix.replace('\n', "\r\n"));
    let places = |text: &str| lines(&check_text(text).diagnostics);
    assert_eq!(places(unix), places(&windows));
    assert_eq!(
        places(unix),
        [
            "job.toml:4:10: error: there is no step `é`; steps: plain",
            "job.toml:4:15: error: step `plain` needs itself"
        ]
    );
}

#[test]
fn a_resolved_job_has_its_defaults() {
    let job = job("[defaults]\ntimeout = \"3m\"\nretry = { max_attempts = 5 }\n\
                   [steps.z]\nuses = \"plain\"\n[steps.fetch]\nneeds = [\"z\"]\nretry = { base = \"9s\" }\n\
                   timeout = \"1m\"\nwith.limit = 7\n");
    assert_eq!(job.name, "job");
    assert_eq!(job.max_parallel, 2);
    let ids: Vec<&str> = job.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["z", "fetch"], "the order of the file");
    assert_eq!(job.steps[0].timeout, Some(Duration::from_secs(180)));
    assert_eq!(job.steps[1].timeout, Some(Duration::from_secs(60)));
    assert_eq!(job.steps[1].retry.max_attempts, 5);
    assert_eq!(job.steps[1].retry.backoff.base, Duration::from_secs(9));
    assert_eq!(job.steps[1].params.params()["limit"], 7);
}

#[test]
fn the_hash_follows_meaning_not_looks() {
    let base = "[steps.plain]\n[steps.fetch]\nneeds = [\"plain\"]\nwith = { limit = 5 }\n";
    let looks = "description = \"x\" # why\nschedule = \"0 0 * * *\"\n[steps.plain]\n\n[steps.fetch]\n\
                 needs = [ 'plain', ]\n[steps.fetch.with]\nlimit = 0x5\n";
    assert_eq!(job(base).hash, job(looks).hash);
    assert_eq!(job(base).hash.len(), 64);
    for other in [
        base.replace('5', "6"),
        base.replace("needs", "when = \"always\"\nneeds"),
        format!("timeout = \"1h\"\n{base}"),
        format!("full = true\n{base}"),
    ] {
        assert_ne!(job(base).hash, job(&other).hash, "{other}");
    }
    let overridden = set(base, &["fetch.limit=6"]).job.unwrap();
    assert_eq!(overridden.hash, job(&base.replace('5', "6")).hash, "an override counts like the file");
}

#[test]
fn overrides_are_typed_by_the_parameters() {
    let text = "[steps.fetch]\nwith = { limit = 5, nested = { depth = 1 } }\n";
    let params = |overrides: &[&str]| set(text, overrides).job.unwrap().steps[0].params.params();
    assert_eq!(params(&["fetch.limit=9"])["limit"], 9);
    assert_eq!(params(&["fetch.source=main"])["source"], "main");
    assert_eq!(params(&["fetch.source = \"main\""])["source"], "main");
    assert_eq!(params(&["fetch.source=42"])["source"], "42", "text, because the parameter is one");
    assert_eq!(params(&["fetch.source=2026-01-01"])["source"], "2026-01-01");
    assert_eq!(params(&["fetch.pause=5m"])["pause"], "5m");
    assert_eq!(params(&["fetch.nested.depth=3"])["nested"]["depth"], 3);
    assert_eq!(params(&["fetch.nested.label=7", "fetch.nested.depth=2"])["nested"]["label"], "7");
    assert_eq!(params(&["fetch.limit=1", "fetch.limit=2"])["limit"], 2, "the last one wins");
    assert_eq!(params(&["fetch.source=a=b"])["source"], "a=b");
    assert_eq!(params(&["fetch.source="])["source"], "");
    assert_eq!(params(&["fetch.source=1\ny = 2"])["source"], "1\ny = 2", "no second key is smuggled in");
}

#[test]
fn a_wrong_override_names_the_flag() {
    let text = "[steps.fetch]\n[steps.embed]\nwith = { model = \"m\" }\n";
    let says = |given: &str| lines(&set(text, &[given]).diagnostics).join("\n");
    assert_eq!(says("fetch.limit=many"), "--set:1:13: error: invalid type: string \"many\", expected u32");
    assert_eq!(
        says("fetch.limt=3"),
        "--set:1:7: error: fetch has no parameter `limt`; did you mean `limit`?"
    );
    assert_eq!(says("fetsh.limit=3"), "--set:1:1: error: there is no step `fetsh`; did you mean `fetch`?");
    assert_eq!(
        says("fetch.mode=thorogh"),
        "--set:1:12: error: unknown variant `thorogh`, expected `fast` or `thorough`; did you mean `thorough`?"
    );
    assert!(says("fetch.source.x=3").contains("invalid type: map"), "{}", says("fetch.source.x=3"));
    for bad in ["fetch", "fetch=1", ".limit=1", "fetch.=1", "fetch..x=1"] {
        assert_eq!(bad.parse::<Override>().unwrap_err().kind(), ErrorKind::Usage, "{bad}");
    }
}

#[test]
fn a_wrong_value_does_not_hide_the_next() {
    let found = check_text(
        "[steps.embed]\nwith = { model = 3, batch = \"x\", colour = 1 }\n[steps.e2]\nuses = \"embed\"\n\
         [steps.fetch]\nwith = { nested = { depth = 300, colour = 2 }, mode = \"slow\" }\n",
    );
    let found = lines(&found.diagnostics);
    assert_eq!(found.len(), 7, "{found:#?}");
    assert!(
        found[0].starts_with("job.toml:2:18: error: invalid type: integer `3`, expected a string"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("job.toml:2:29: error: invalid type: string \"x\", expected u16"),
        "{found:#?}"
    );
    assert!(found[2].starts_with("job.toml:2:34: error: embed has no parameter `colour`"), "{found:#?}");
    assert!(found[3].starts_with("job.toml:3:8: error: embed needs the parameter `model`"), "{found:#?}");
}

#[test]
fn shipped_jobs_are_named_like_their_files() {
    for (name, text) in shipped::JOBS {
        let parsed = toml::de::DeTable::parse(text).unwrap();
        assert_eq!(parsed.get_ref().get("name").and_then(|value| value.get_ref().as_str()), Some(*name));
    }
}

#[test]
fn the_schema_refers_to_nothing_that_is_absent() {
    fn refs<'v>(value: &'v serde_json::Value, found: &mut Vec<&'v str>) {
        match value {
            serde_json::Value::Object(object) => {
                for (key, value) in object {
                    match value.as_str() {
                        Some(target) if key == "$ref" => found.push(target),
                        _ => refs(value, found),
                    }
                }
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| refs(value, found)),
            _ => {}
        }
    }
    let schema = schema::json_schema(KINDS);
    let mut found = Vec::new();
    refs(&schema, &mut found);
    assert!(found.contains(&"#/$defs/with-fetch.Mode"), "{found:?}");
    for target in found {
        assert!(schema.pointer(target.trim_start_matches('#')).is_some(), "{target}");
    }
}

struct Numbers(BTreeMap<&'static str, i64>);

impl Facts for Numbers {
    fn queue_depth(&self, queue: Queue) -> i64 {
        self.0.get(queue.name()).copied().unwrap_or(0)
    }
    fn failing(&self, queue: Queue) -> i64 {
        self.queue_depth(queue) / 10
    }
    fn documents(&self) -> i64 {
        self.0.get("documents").copied().unwrap_or(0)
    }
}

#[test]
fn conditions_are_evaluated_with_the_usual_precedence() {
    let facts = Numbers(BTreeMap::from([("dirty_sources", 25), ("documents", 7)]));
    for (text, want) in [
        ("queue_depth('dirty_sources') == 25", true),
        ("queue_depth('dirty_sources') != 25", false),
        ("failing('dirty_sources')>=2", true),
        ("queue_depth('pending_discussion_fetches') > 0", false),
        ("documents() < 7 || documents() > 6", true),
        ("documents() <= 7 && !(documents() == 7)", false),
        ("1 == 1 || 1 == 2 && 1 == 2", true),
        ("!1 == 2", true),
        ("-1 < 0 && 1_000 > 999", true),
        ("success() && documents() == 7", true),
        ("failure() || documents() == 8", false),
        ("always()", true),
    ] {
        let When::Condition(condition) = when::parse(text).unwrap() else { panic!("{text}") };
        assert_eq!(condition.eval(&facts, when::NeedsState::Satisfied), want, "{text}");
    }
    assert!(!when::parse("always() && 1 == 1").unwrap().reads_facts());
    assert!(when::parse("1 == documents()").unwrap().reads_facts());
}

#[test]
fn mistakes_in_conditions_are_placed() {
    for (text, at, words) in [
        ("queue_depth('dirty_source') == 0", 12, "unknown queue"),
        ("queue_dept('dirty_sources') == 0", 0, "unknown function"),
        ("queue_depth('dirty_sources') = 0", 29, "unexpected `=`"),
        ("queue_depth('dirty_sources')", 28, "ends here"),
        ("queue_depth() == 0", 12, "expected the name of a queue"),
        ("queue_depth('dirty_sources' == 0", 28, "expected `)`"),
        ("always", 0, ""),
        ("sometimes", 0, "unknown function"),
        ("documents() == always()", 15, "cannot be compared"),
        ("always() == 1", 9, "unexpected comparison"),
        ("documents() == 99999999999999999999", 15, "not an integer"),
        ("documents() == 'x", 15, "without a closing"),
        ("documents() == 1 ü", 17, "unexpected `ü`"),
        ("documents() == 1 €", 17, "unexpected character"),
        ("", 0, "ends here"),
        ("(documents() == 1", 17, "expected `)`"),
    ] {
        match when::parse(text) {
            Err(error) => {
                assert_eq!(error.span.start, at, "{text}: {}", error.message);
                assert!(error.message.contains(words), "{text}: {}", error.message);
            }
            Ok(_) => assert_eq!(text, "always"),
        }
    }
    let deep = format!("{}1 == 1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(when::parse(&deep).unwrap_err().message.contains("nested"));
    assert!(when::parse(&"!".repeat(10_000)).is_err());
}

#[test]
fn skip_fail_and_cancel_travel_by_rule() {
    let failed = || Outcome::Failed(ErrorKind::Network);
    let blocked = || Outcome::Skipped(SkipReason::NeedFailed("x".to_owned()));
    let own_skip = || Outcome::Skipped(SkipReason::ConditionFalse("1 == 2".to_owned()));
    let need_failed = || Decision::Skip(SkipReason::NeedFailed("a".to_owned()));
    let nothing_failed = || Decision::Skip(SkipReason::NothingFailed);
    let is_false = |text: &str| Decision::Skip(SkipReason::ConditionFalse(text.to_owned()));
    // when, outcome of the need, whether the need may fail, decision
    let table: Vec<(&str, Option<Outcome>, bool, Decision)> = vec![
        ("success", None, false, Decision::Wait),
        ("always", None, false, Decision::Wait),
        ("success", Some(Outcome::Succeeded), false, Decision::Run),
        ("success", Some(failed()), false, need_failed()),
        ("success", Some(failed()), true, Decision::Run),
        ("success", Some(Outcome::TimedOut), false, need_failed()),
        ("success", Some(Outcome::TimedOut), true, Decision::Run),
        ("success", Some(own_skip()), false, Decision::Run),
        ("success", Some(Outcome::Skipped(SkipReason::NotSelected)), false, Decision::Run),
        ("success", Some(Outcome::Skipped(SkipReason::DoneBefore)), false, Decision::Run),
        ("success", Some(Outcome::Skipped(SkipReason::NothingFailed)), false, Decision::Run),
        ("success", Some(Outcome::Skipped(SkipReason::NothingToDo("no".into()))), false, Decision::Run),
        ("success", Some(blocked()), false, need_failed()),
        ("success", Some(blocked()), true, need_failed()),
        ("success", Some(Outcome::Cancelled), false, need_failed()),
        ("always", Some(failed()), false, Decision::Run),
        ("always", Some(blocked()), false, Decision::Run),
        ("always", Some(Outcome::Cancelled), false, Decision::Run),
        ("always", Some(Outcome::TimedOut), false, Decision::Run),
        ("failure", Some(failed()), false, Decision::Run),
        ("failure", Some(failed()), true, Decision::Skip(SkipReason::FailureAllowed("a".to_owned()))),
        ("success", Some(Outcome::Skipped(SkipReason::FailureAllowed("x".to_owned()))), false, Decision::Run),
        ("failure", Some(blocked()), false, Decision::Run),
        ("failure", Some(own_skip()), false, nothing_failed()),
        ("failure", Some(Outcome::Succeeded), false, nothing_failed()),
        ("1 == 1", Some(Outcome::Succeeded), false, Decision::Run),
        ("1 == 2", Some(Outcome::Succeeded), false, is_false("1 == 2")),
        ("1 == 1", Some(failed()), false, need_failed()),
        ("always() && 1 == 1", Some(failed()), false, Decision::Run),
        ("failure() && 1 == 1", Some(failed()), false, Decision::Run),
        ("failure() && 1 == 1", Some(Outcome::Succeeded), false, is_false("failure() && 1 == 1")),
        ("success() || 1 == 1", Some(failed()), false, Decision::Run),
    ];
    for (when, outcome, allow_failure, want) in table {
        let text = format!(
            "[steps.a]\nuses = \"plain\"\nallow_failure = {allow_failure}\n\
             [steps.b]\nuses = \"plain\"\nneeds = [\"a\"]\nwhen = \"{when}\"\n"
        );
        let job = job(&text);
        let facts = Numbers(BTreeMap::new());
        let got = decide(&job, &job.steps[1], |_| outcome.as_ref(), &facts);
        assert_eq!(got, want, "{when} after {outcome:?}, allowed: {allow_failure}");
    }
    assert_eq!(failed().conclusion(true), Conclusion::Satisfied);
    assert_eq!(Outcome::Cancelled.conclusion(true), Conclusion::Cancelled);
}

#[test]
fn a_step_without_needs_runs_unless_it_waits_for_failures() {
    let facts = Numbers(BTreeMap::new());
    for (when, want) in [
        ("success", Decision::Run),
        ("always", Decision::Run),
        ("failure", Decision::Skip(SkipReason::NothingFailed)),
    ] {
        let job = job(&format!("[steps.plain]\nwhen = \"{when}\"\n"));
        assert_eq!(decide(&job, &job.steps[0], |_| None, &facts), want);
    }
}

#[test]
fn the_outcome_of_a_run_follows_its_steps() {
    let ok = Some(Outcome::Succeeded);
    let failed = |kind| Some(Outcome::Failed(kind));
    let skipped = Some(Outcome::Skipped(SkipReason::NeedFailed("a".to_owned())));
    let end = |steps: &[(&Option<Outcome>, bool)], stop| {
        run_outcome(steps.iter().map(|(outcome, allowed)| (outcome.as_ref(), *allowed)), stop)
    };
    let network = failed(ErrorKind::Network);
    let auth = failed(ErrorKind::Auth);
    let is = |failure, allowed_failures| RunOutcome { failure, allowed_failures };
    assert_eq!(end(&[(&ok, false), (&ok, false)], None), is(None, 0));
    assert_eq!(end(&[(&network, true), (&ok, false)], None), is(None, 1));
    assert_eq!(end(&[(&network, false), (&skipped, false)], None), is(Some(ErrorKind::Network), 0));
    assert_eq!(end(&[(&network, false), (&network, false)], None), is(Some(ErrorKind::Network), 0));
    assert_eq!(end(&[(&network, false), (&auth, false)], None), is(Some(ErrorKind::RunFailed), 0));
    assert_eq!(end(&[(&network, false), (&auth, true)], None), is(Some(ErrorKind::Network), 1));
    assert_eq!(end(&[(&Some(Outcome::TimedOut), false)], None), is(Some(ErrorKind::RunFailed), 0));
    let cancelled = Some(Outcome::Cancelled);
    let term = Some(ErrorKind::Terminated);
    assert_eq!(end(&[(&ok, false), (&cancelled, false)], term), is(term, 0));
    assert_eq!(end(&[(&ok, false), (&None, false)], term), is(term, 0));
    assert_eq!(end(&[(&ok, false), (&ok, false)], term), is(None, 0), "the signal came after the work");
    assert_eq!(end(&[(&network, false), (&ok, false)], term), is(Some(ErrorKind::Network), 0));
    let fenced = Some(ErrorKind::Fenced);
    assert_eq!(end(&[(&network, false), (&ok, false)], fenced), is(fenced, 0));
    assert_eq!(end(&[(&ok, false), (&cancelled, false)], None), is(Some(ErrorKind::RunFailed), 0));
}

fn diamond() -> Job {
    job("[steps.d]\nuses = \"plain\"\nneeds = [\"b\", \"c\"]\n[steps.c]\nuses = \"plain\"\nneeds = [\"a\"]\n\
         [steps.b]\nuses = \"plain\"\nneeds = [\"a\"]\n[steps.a]\nuses = \"plain\"\n[steps.e]\nuses = \"plain\"\n")
}

#[test]
fn waves_keep_the_order_of_the_file() {
    let job = diamond();
    let names =
        |places: &[usize]| places.iter().map(|at| job.steps[*at].id.clone()).collect::<Vec<_>>().concat();
    let waves: Vec<String> = job.waves().iter().map(|wave| names(wave)).collect();
    assert_eq!(waves, ["ae", "cb", "d"]);
    assert_eq!(names(&job.order()), "acbde");
}

#[test]
fn selections_take_what_they_name() {
    let job = diamond();
    let pick = |only: &[&str], from: &[&str], skip: &[&str]| {
        let own = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let selected = job.select(&Selection { only: own(only), from: own(from), skip: own(skip) })?;
        let ids = job.steps.iter().zip(selected).filter(|(_, on)| *on).map(|(step, _)| step.id.clone());
        Ok::<String, Error>(ids.collect::<Vec<_>>().concat())
    };
    assert_eq!(pick(&[], &[], &[]).unwrap(), "dcbae");
    assert_eq!(pick(&["b", "e"], &[], &[]).unwrap(), "be");
    assert_eq!(pick(&[], &["b"], &[]).unwrap(), "db");
    assert_eq!(pick(&[], &["a"], &["c"]).unwrap(), "dba");
    assert_eq!(pick(&["e"], &["c"], &[]).unwrap(), "dce");
    let error = pick(&["bb"], &[], &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(pick(&["b"], &[], &["b"]).is_err(), "nothing is left");
}

/// A graph without cycle: each step may need earlier ones of a hidden order.
fn dag() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (1_usize..24).prop_flat_map(|size| {
        let edges = proptest::collection::vec((0..size, 0..size), 0..size * 2);
        (edges, Just(size), Just((0..size).collect::<Vec<_>>()).prop_shuffle()).prop_map(
            |(edges, size, place)| {
                let mut needs = vec![Vec::new(); size];
                for (a, b) in edges {
                    let (from, to) = (a.max(b), a.min(b));
                    if from != to && !needs[place[from]].contains(&place[to]) {
                        needs[place[from]].push(place[to]);
                    }
                }
                needs
            },
        )
    })
}

proptest! {
    #[test]
    fn an_order_respects_every_need(needs in dag()) {
        let order = graph::order(&needs).unwrap();
        let mut place = vec![0; needs.len()];
        for (at, step) in order.iter().enumerate() {
            place[*step] = at;
        }
        prop_assert_eq!(order.len(), needs.len());
        for (step, needs) in needs.iter().enumerate() {
            for need in needs {
                prop_assert!(place[*need] < place[step]);
            }
        }
        prop_assert!(graph::cycles(&needs).is_empty());
    }

    #[test]
    fn a_cycle_is_always_found(needs in dag(), from in 0_usize..24, to in 0_usize..24) {
        let mut needs = needs;
        let (from, to) = (from % needs.len(), to % needs.len());
        prop_assume!(from != to);
        // Close a circle: from needs to, and to needs from.
        for (step, need) in [(from, to), (to, from)] {
            if !needs[step].contains(&need) {
                needs[step].push(need);
            }
        }
        prop_assert!(graph::order(&needs).is_none());
        let cycles = graph::cycles(&needs);
        prop_assert!(!cycles.is_empty());
        for cycle in cycles {
            for (at, step) in cycle.iter().enumerate() {
                let next = cycle[(at + 1) % cycle.len()];
                prop_assert!(needs[*step].contains(&next));
            }
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[ -~\n\\[\\]\"'.=ü日\u{feff}\r\t]{0,200}") {
        let checked = check_text(&text);
        for found in &checked.diagnostics {
            prop_assert!(!found.render().is_empty());
        }
    }

    #[test]
    fn no_condition_makes_the_parser_panic(text in "[a-z()'=<>!&|0-9_ ü-]{0,60}") {
        if let Err(error) = when::parse(&text) {
            prop_assert!(error.span.start <= text.len());
        }
    }
}

#[test]
fn what_needs_a_step_that_runs_again_is_not_done() {
    let job = job(
        "[steps.a]\nuses = \"plain\"\n[steps.b]\nuses = \"plain\"\nneeds = [\"a\"]\nwhen = \"always\"\n\
         [steps.c]\nuses = \"plain\"\nneeds = [\"b\"]\n[steps.d]\nuses = \"plain\"\n[steps.e]\nuses = \"plain\"\nneeds = [\"c\", \"d\"]\n",
    );
    let done = |succeeded: &[&str]| {
        let succeeded: BTreeSet<String> = succeeded.iter().map(|id| (*id).to_owned()).collect();
        job.done(&succeeded).into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(done(&["a", "b", "c", "d", "e"]), "a b c d e");
    assert_eq!(done(&["b", "c", "d", "e"]), "d");
    assert_eq!(done(&["a", "c", "d", "e"]), "a d");
    assert_eq!(done(&["a", "b", "c", "e", "gone"]), "a b c");
    assert_eq!(done(&[]), "");
}
