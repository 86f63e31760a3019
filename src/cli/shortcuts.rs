//! `lore sync`, `lore generate-docs`, `lore embed`, `lore status --check`: shortcuts for jobs, on the same
//! path as `lore run`.

use serde_json::{Value, json};

use super::run::{self, RunAnswer, RunFlags};
use super::{App, job_files};
use crate::engine::run::StepSummary;
use crate::error::{Error, Result};
use crate::job::{self, Job};
use crate::steps;
use crate::store::{integrity, status};

/// Bring the index up to date: the job `sync`, with its counts summed up.
#[derive(Debug, clap::Args)]
pub struct SyncArgs {
    /// Do not embed documents
    #[arg(long)]
    no_embed: bool,
    /// Do not make documents; implies --no-embed
    #[arg(long)]
    no_docs: bool,
    #[command(flatten)]
    flags: RunFlags,
}

/// Make documents of what was ingested: one step, `regenerate-docs`.
#[derive(Debug, clap::Args)]
pub struct GenerateDocsArgs {
    #[command(flatten)]
    flags: RunFlags,
}

/// Make vectors of new and changed documents: one step, `embed`.
#[derive(Debug, clap::Args)]
pub struct EmbedArgs {
    #[command(flatten)]
    flags: RunFlags,
}

const EMBED: &str = include_str!("../../jobs/embed.toml");

const GENERATE_DOCS: &str = "name = \"generate-docs\"\n[steps.regenerate-docs]\n";

const CHECK: &str = "name = \"integrity-check\"\n[steps.integrity-check]\n";

const CHECK_AND_REPAIR: &str = r#"
name = "repair"
[steps.repair]
[steps.regenerate-docs]
needs = ["repair"]
[steps.integrity-check]
needs = ["regenerate-docs"]
"#;

const PLAN_REPAIR: &str = r#"
name = "repair-plan"
[steps.repair]
with = { dry_run = true }
"#;

/// Reads a job that is part of the program.
fn built_in(text: &str) -> Result<Job> {
    job::parse("built in", text, steps::ALL, &[]).map_err(|problems| {
        let messages: Vec<String> = problems.into_iter().map(|problem| problem.message).collect();
        Error::internal(format!("a built-in job is invalid: {}", messages.join("; ")))
    })
}

/// Reads a job of one of the shortcuts, with what `--set` changes in it.
///
/// # Errors
/// Those of the overrides.
fn shortcut(name: &str, text: &str, flags: &RunFlags) -> Result<Job> {
    job_files::built_in(name, text).parse(&flags.set)
}

/// Returns a count of a step of the answer, 0 when it did not run.
fn count(answer: &RunAnswer, step: &str, names: &[&str]) -> i64 {
    let report = answer.step(step).map(|step| &step.report);
    names.iter().map(|name| report.map_or(0, |report| report.count(name))).sum()
}

/// Answers with `data`, or fails with the run's error and `data` as its details.
fn answer_with(
    app: &mut App,
    answer: &RunAnswer,
    error: Option<Error>,
    data: &Value,
    lines: &[String],
) -> Result<()> {
    if let Some(error) = error {
        return Err(run::with_answer(error, answer)?);
    }
    app.reply(data, |out| {
        if let Some(reason) = answer.skip_reason() {
            return out.line(format!("Skipped: {reason}"));
        }
        lines.iter().try_for_each(|line| out.line(line))
    })
}

/// Runs `lore sync`.
///
/// # Errors
/// Those of the run.
pub fn sync(args: &SyncArgs, app: &mut App) -> Result<()> {
    let job = super::jobs::find(app, "sync", &args.flags.set)?;
    let mut flags = args.flags.clone();
    for (left_out, kinds) in [
        (args.no_embed || args.no_docs, &["embed"][..]),
        (args.no_docs, &["regenerate-docs", "optimize-fts"]),
    ] {
        if left_out {
            flags.skip.extend(
                job.steps.iter().filter(|step| kinds.contains(&step.kind)).map(|step| step.id.clone()),
            );
        }
    }
    if flags.dry_run {
        return run::run_job(&job, &flags, app);
    }
    let (answer, error) = run::execute(&job, &flags, app)?;
    let of_kind = |kind: &str| -> Vec<String> {
        job.steps.iter().filter(|step| step.kind == kind).map(|step| step.id.clone()).collect()
    };
    let sum = |kind: &str, names: &[&str]| -> i64 {
        of_kind(kind).iter().map(|step| count(&answer, step, names)).sum()
    };
    let counts = [
        ("issues_updated", sum("ingest", &["issues_new", "issues_changed"])),
        ("mrs_updated", sum("ingest", &["merge_requests_new", "merge_requests_changed"])),
        (
            "discussions_fetched",
            sum("ingest", &["discussions_new", "discussions_changed"])
                + sum("fetch-discussions", &["discussions_new", "discussions_changed"]),
        ),
        ("documents_regenerated", sum("regenerate-docs", &["regenerated"])),
        ("documents_embedded", sum("embed", &["embedded"])),
    ];
    let mut data =
        serde_json::to_value(&answer).map_err(|error| Error::internal("encode the answer").because(error))?;
    let mut lines = vec!["Sync complete:".to_owned()];
    for (name, n) in counts {
        if let Some(object) = data.as_object_mut() {
            object.insert(name.to_owned(), json!(n));
        }
        lines.push(format!("  {:<24}{n:>8}", format!("{}:", name.replace('_', " "))));
    }
    answer_with(app, &answer, error, &data, &lines)
}

/// Runs `lore generate-docs`.
///
/// # Errors
/// Those of the run.
pub fn generate_docs(args: &GenerateDocsArgs, app: &mut App) -> Result<()> {
    let job = shortcut("generate-docs", GENERATE_DOCS, &args.flags)?;
    if args.flags.dry_run {
        return run::run_job(&job, &args.flags, app);
    }
    let (answer, error) = run::execute(&job, &args.flags, app)?;
    let documents = app.open_read_only()?.read(status::documents)?;
    let n = |name: &str| count(&answer, "regenerate-docs", &[name]);
    let (regenerated, unchanged, deleted, errored) =
        (n("regenerated"), n("unchanged"), n("deleted"), n("errored"));
    let data = json!({
        "run_id": answer.run_id(),
        "issues": documents.issues,
        "mrs": documents.mrs,
        "discussions": documents.discussions,
        "total": documents.total,
        "truncated": documents.truncated,
        "regenerated": regenerated,
        "skipped": unchanged,
        "deleted": deleted,
        "errored": errored,
    });
    let lines = [
        format!("{regenerated} documents made, {unchanged} unchanged, {deleted} deleted, {errored} failed"),
        format!(
            "{} documents now: {} issues, {} merge requests, {} discussions ({} cut at the length limit)",
            documents.total, documents.issues, documents.mrs, documents.discussions, documents.truncated
        ),
    ];
    answer_with(app, &answer, error, &data, &lines)
}

/// Runs `lore embed`.
///
/// # Errors
/// Those of the run.
pub fn embed(args: &EmbedArgs, app: &mut App) -> Result<()> {
    let job = shortcut("embed", EMBED, &args.flags)?;
    if args.flags.dry_run {
        return run::run_job(&job, &args.flags, app);
    }
    let (answer, error) = run::execute(&job, &args.flags, app)?;
    let n = |name: &str| count(&answer, "embed", &[name]);
    let (embedded, failed, skipped) = (n("embedded"), n("failed"), n("skipped"));
    let data = json!({
        "run_id": answer.run_id(),
        "embedded": embedded,
        "failed": failed,
        "skipped": skipped,
        "chunks": n("chunks"),
        "warnings": answer.step("embed").map(|step| step.report.warnings.clone()).unwrap_or_default(),
    });
    let mut lines = vec![format!(
        "{embedded} documents embedded ({} passages), {skipped} skipped, {failed} failed",
        n("chunks")
    )];
    if let Some(step) = answer.step("embed") {
        lines.extend(step.report.warnings.iter().cloned());
    }
    answer_with(app, &answer, error, &data, &lines)
}

/// Findings of a check that are listed for people.
const FINDINGS_SHOWN: usize = 20;

/// What `lore status --check` does beside looking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckMode {
    /// Looks.
    Check,
    /// Repairs and looks again.
    Repair,
    /// Shows what a repair would do.
    PlanRepair,
}

/// Runs the integrity check, and the repair when it is asked for. Returns what to add to the
/// status, lines for people, and the error that findings are.
///
/// # Errors
/// Those of the lock and of the database.
pub(super) fn check(mode: CheckMode, app: &App) -> Result<(Value, Vec<String>, Option<Error>)> {
    let text = match mode {
        CheckMode::Check => CHECK,
        CheckMode::Repair => CHECK_AND_REPAIR,
        CheckMode::PlanRepair => PLAN_REPAIR,
    };
    let (answer, error) = run::execute(&built_in(text)?, &RunFlags::default(), app)?;
    let mut lines = Vec::new();
    let mut value = json!({ "ok": error.is_none(), "run_id": answer.run_id() });
    if let Some(checked) = answer.step("integrity-check") {
        // A step that failed has no report: what it found is in the database.
        let details = match &checked.error {
            Some(_) => app.open_read_only()?.read(integrity::kept_findings)?,
            None => checked.report.warnings.clone(),
        };
        let found = checked.error.clone().unwrap_or_else(|| "no findings".to_owned());
        lines.push(format!("Integrity   {found}"));
        lines.extend(details.iter().take(FINDINGS_SHOWN).map(|detail| format!("  {detail}")));
        if details.len() > FINDINGS_SHOWN {
            lines.push(format!("  … and {} more: --json has them", details.len() - FINDINGS_SHOWN));
        }
        value["check"] = step_value(checked, &details);
    }
    if let Some(repaired) = answer.step("repair") {
        value["repair"] = json!(repaired.report.counts);
        let planned = if mode == CheckMode::PlanRepair { "Would do" } else { "Repaired" };
        for (name, n) in repaired.report.counts.iter().filter(|(name, n)| **n > 0 && **name != "findings") {
            lines.push(format!("{planned:<11} {}: {n}", name.replace('_', " ")));
        }
        if repaired.report.count("findings") == 0 {
            lines.push(format!("{planned:<11} nothing"));
        }
    }
    Ok((value, lines, error))
}

fn step_value(step: &StepSummary, details: &[String]) -> Value {
    json!({
        "findings": step.report.count("findings").max(i64::try_from(details.len()).unwrap_or(i64::MAX)),
        "details": details,
        "error": step.error,
    })
}
