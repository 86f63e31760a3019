//! What a later run makes of an earlier one: `--resume` and `--skip-if-fresh`.

use serde_json::Value;

use crate::support::binary::Bench;
use crate::support::dump::execute;

fn outcomes(answer: &Value) -> Vec<(&str, &str)> {
    let steps = answer["steps"].as_array().unwrap();
    steps.iter().map(|step| (step["step"].as_str().unwrap(), step["outcome"].as_str().unwrap())).collect()
}

#[test]
fn a_run_that_is_continued_twice_repeats_nothing_that_succeeded() {
    let bench = Bench::demo();
    // A fault that only the check sees, so that the last step keeps failing.
    execute(
        &bench.database(),
        "INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at)
           SELECT id, 'Issue', 44444, 0 FROM projects",
    );
    bench.write(
        "job.toml",
        "[steps.ingest]\nwith = { source = \"demo\" }\n[steps.regenerate-docs]\nneeds = [\"ingest\"]\n\
         [steps.integrity-check]\nneeds = [\"regenerate-docs\"]\n",
    );
    bench.lore(["run", "job.toml", "--quiet"]).fails(22);
    for _ in 0..2 {
        let answer = bench.lore(["run", "job.toml", "--resume", "--json"]);
        assert_eq!(answer.code, 22, "{}", answer.stderr);
        let details = answer.json()["error"]["details"].take();
        assert_eq!(
            outcomes(&details),
            [("ingest", "skipped"), ("regenerate-docs", "skipped"), ("integrity-check", "failed")]
        );
    }
    execute(&bench.database(), "DELETE FROM pending_discussion_fetches");
    bench.lore(["run", "job.toml", "--resume", "--quiet"]).ok();
    bench.lore(["run", "job.toml", "--resume", "--quiet"]).fails(2);
}

#[test]
fn what_needs_a_step_that_is_run_again_is_run_again() {
    let bench = Bench::demo();
    let fault = "INSERT INTO pending_discussion_fetches(project_id, noteable_type, noteable_iid, queued_at)
                   SELECT id, 'Issue', 44444, 0 FROM projects";
    execute(&bench.database(), fault);
    bench.write(
        "job.toml",
        "[steps.optimize-fts]\n[steps.integrity-check]\n[steps.regenerate-docs]\nneeds = [\"integrity-check\"]\n\
         when = \"always\"\n[steps.prune]\nneeds = [\"regenerate-docs\", \"optimize-fts\"]\n",
    );
    let states = |answer: &Value| {
        let all = outcomes(answer).into_iter().map(|(step, outcome)| format!("{step} {outcome}"));
        all.collect::<Vec<_>>().join(", ")
    };
    bench.lore(["run", "job.toml", "--quiet"]).fails(22);
    let answer = bench.lore(["run", "job.toml", "--resume", "--json"]);
    assert_eq!(answer.code, 22, "{}", answer.stderr);
    assert_eq!(
        states(&answer.json()["error"]["details"]),
        "optimize-fts skipped, integrity-check failed, regenerate-docs succeeded, prune succeeded"
    );
    execute(&bench.database(), "DELETE FROM pending_discussion_fetches");
    // Killed after the check: what needs it was done before it, and counts no longer.
    let mut command =
        bench.command(["run", "job.toml", "--resume", "--skip", "regenerate-docs,prune", "--quiet"]);
    assert!(command.output().unwrap().status.success());
    execute(&bench.database(), "UPDATE runs SET state = 'abandoned' WHERE id = (SELECT max(id) FROM runs)");
    let answer = bench.lore(["run", "job.toml", "--resume", "--json"]).data();
    assert_eq!(
        states(&answer),
        "optimize-fts skipped, integrity-check skipped, regenerate-docs succeeded, prune succeeded"
    );
    assert!(answer.to_string().contains("succeeded in the run that this one continues"), "{answer}");
}

#[test]
fn a_run_of_some_steps_does_not_make_a_job_fresh() {
    let bench = Bench::new();
    let fresh = ["run", "demo", "--skip-if-fresh", "1h", "--json"];
    bench.lore(["run", "demo", "--only", "ingest", "--quiet"]).ok();
    let answer = bench.lore(fresh).data();
    assert_eq!(answer["state"], "succeeded", "{answer}");
    let answer = bench.lore(fresh).data();
    assert_eq!(answer["state"], "skipped", "{answer}");
}
