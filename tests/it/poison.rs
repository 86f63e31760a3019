//! An entry of a queue that kills the process that works on it.

use std::os::unix::process::ExitStatusExt;

use crate::support::binary::Bench;
use crate::support::dump::number;
use crate::support::fake_embedder::{FakeEmbedder, Faults};

/// Deaths until the entry is known: two unsuspecting, two with nothing else under way.
const DEATHS: usize = 4;

/// What of a run's content says that all others are done, and how many these are.
struct Done {
    sql: &'static str,
    others: i64,
}

fn dies(bench: &Bench, plan: &str) -> bool {
    dies_with(bench, plan, &["run", "sync", "--quiet"])
}

fn dies_with(bench: &Bench, plan: &str, args: &[&str]) -> bool {
    let mut command = bench.command(args);
    let output = command.env("LORE_FAULT_ITEM", plan).output().unwrap();
    let is_killed = output.status.signal() == Some(9);
    assert!(is_killed || output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    is_killed
}

#[test]
fn an_entry_that_kills_the_process_is_found_and_quarantined() {
    let cases = [
        (
            "regenerate-docs=Issue about kerberos 7",
            Done { sql: "SELECT count(*) FROM documents", others: 59 },
        ),
        ("fetch-discussions=group/project#7", Done { sql: "SELECT count(*) FROM discussions", others: 29 }),
        (
            "embed=MergeRequest about kerberos 2",
            Done {
                sql: "SELECT count(DISTINCT document_id) FROM chunks WHERE last_error IS NULL",
                others: 59,
            },
        ),
    ];
    for (plan, done) in cases {
        let server = crate::sync::server();
        let embedder = FakeEmbedder::new(Faults::default());
        let mut bench = crate::sync::bench(&server);
        bench
            .var("LORE__EMBEDDING__PROVIDER", "ollama")
            .var("LORE__EMBEDDING__URL", &embedder.url())
            .var("LORE__EMBEDDING__MODEL", "nomic-embed-text");
        let mut deaths = 0;
        while dies(&bench, plan) {
            deaths += 1;
            assert!(deaths <= DEATHS, "{plan}: not found after {deaths} deaths");
            if deaths == DEATHS {
                let n = number(&bench.database(), done.sql);
                assert!(n >= done.others, "{plan}: {n} others are done before the suspect is tried again");
            }
        }
        assert_eq!(deaths, DEATHS, "{plan}");
        assert_eq!(number(&bench.database(), done.sql), done.others, "{plan}: all others are done");
        let status = bench.lore(["status"]).ok();
        assert!(status.contains("the process died twice"), "{plan}: {status}");
        assert!(status.contains("quarantined"), "{plan}: {status}");
        bench.lore(["status", "--check"]).ok();
        assert_eq!(number(&bench.database(), "SELECT count(*) FROM suspects"), 0, "{plan}");
        assert!(!dies(&bench, plan), "{plan}: it is left alone");
        // Released too early, it costs one more process, and not four.
        assert!(dies_with(&bench, plan, &["run", "sync", "--quiet", "--retry-failed"]), "{plan}: released");
        assert!(!dies(&bench, plan), "{plan}: known at once");
        assert!(bench.lore(["status"]).ok().contains("quarantined"), "{plan}");
        // The cause is gone.
        bench.lore(["run", "sync", "--quiet", "--retry-failed"]).ok();
        assert!(number(&bench.database(), done.sql) > done.others, "{plan}: released");
        assert!(!bench.lore(["status"]).ok().contains("the process died twice"), "{plan}");
    }
}

#[test]
fn a_step_that_lives_is_careful_no_longer() {
    let bench = Bench::demo();
    // Two runs that died in the step.
    crate::support::dump::execute(
        &bench.database(),
        "INSERT INTO dirty_sources(source_type, source_id, queued_at) SELECT 'issue', id, 0 FROM issues;
         UPDATE step_attempts SET state = 'abandoned', conclusion = 'failed' WHERE kind = 'regenerate-docs';
         INSERT INTO runs(id, uuid, job, job_hash, state, started_at, finished_at, token, owner, version)
           SELECT 77, 'u', job, job_hash, 'abandoned', started_at, finished_at, token, owner, version FROM runs LIMIT 1;
         INSERT INTO step_attempts(run_id, step, attempt, kind, state, conclusion, started_at, finished_at)
           VALUES (77, 'x', 1, 'regenerate-docs', 'abandoned', 'failed', 0, 0);",
    );
    let told = bench.lore(["run", "demo", "--skip", "embed"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    assert!(told.stderr.contains("one entry at a time"), "{}", told.stderr);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM dirty_sources"), 0);
    assert_eq!(number(&bench.database(), "SELECT count(*) FROM suspects"), 0);
    let told = bench.lore(["run", "demo", "--skip", "embed"]);
    assert!(!told.stderr.contains("one entry at a time"), "a run that lived ends it: {}", told.stderr);
}
