//! `lore jobs`: list, show, check and draw jobs; print the schema of their files.

use std::fmt::Write as _;

use clap::{Subcommand, ValueEnum};
use serde::Serialize;

use super::job_files::{self, count};
use super::{App, graph_text, jobs_export};
use crate::diagnostic::Diagnostic;
use crate::duration::duration_text;
use crate::error::{Error, Result};
use crate::job::{self, Job, JobStep, Override, schema};

/// List, show, check and draw jobs.
#[derive(Debug, clap::Args)]
pub struct JobsArgs {
    #[command(subcommand)]
    command: JobsCommand,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// List jobs: those of the jobs directory, then those compiled in
    #[command(
        after_help = "Examples:\n  lore jobs list\n  lore jobs list --json | jq -r '.data.jobs[].name'"
    )]
    List,
    /// Show a job with every default filled in
    #[command(
        after_help = "Examples:\n  lore jobs show sync\n  lore jobs show sync --set fetch-discussions.limit=50\n  lore jobs show ./nightly.toml > resolved.toml"
    )]
    Show(ShowArgs),
    /// Check job files offline and report every problem at once
    #[command(
        after_help = "Exits with 3 when a file has errors; warnings are shown and allowed.\n\nExamples:\n  lore jobs check                      every job\n  lore jobs check sync ./nightly.toml\n  lore jobs check --format github      annotations of a pull request"
    )]
    Check(CheckArgs),
    /// Draw the graph of a job
    #[command(
        after_help = "Examples:\n  lore jobs graph sync\n  lore jobs graph sync --format mermaid\n  lore jobs graph sync --format dot | dot -Tsvg > sync.svg"
    )]
    Graph(GraphArgs),
    /// Write what makes a scheduler start the jobs: CronJobs, timers, pipelines
    #[command(
        after_help = "Examples:\n  lore jobs export --format kubernetes | kubectl apply -f -\n  lore jobs export --format systemd --output /etc/systemd/system --time-zone Europe/Dublin\n  lore jobs export sync --format gitlab-ci > .gitlab-ci.yml"
    )]
    Export(jobs_export::ExportArgs),
    /// Print the JSON Schema of job files, for editors and CI
    #[command(
        after_help = "Examples:\n  lore jobs schema > jobs.schema.json\n  # first line of a job file, for editors:\n  #:schema ./jobs.schema.json"
    )]
    Schema,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Name of a job, or path of a job file
    job: String,
    /// Set a parameter of a step; the value is TOML, else text
    #[arg(long, value_name = "STEP.KEY=VALUE")]
    set: Vec<Override>,
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Names of jobs or paths of job files; default: every job
    jobs: Vec<String>,
    /// Form of the report
    #[arg(long, value_enum, default_value_t = CheckFormat::Text, value_name = "FORM")]
    format: CheckFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CheckFormat {
    /// The line of each problem with a mark under it
    Text,
    /// One JSON document
    Json,
    /// Workflow commands of GitHub Actions
    Github,
}

#[derive(Debug, clap::Args)]
struct GraphArgs {
    /// Name of a job, or path of a job file
    job: String,
    /// Form of the graph
    #[arg(long, value_enum, default_value_t = graph_text::Format::Text, value_name = "FORM")]
    format: graph_text::Format,
}

/// Runs `lore jobs`.
///
/// # Errors
/// When a job is not found or invalid.
pub fn run(args: &JobsArgs, app: &mut App) -> Result<()> {
    match &args.command {
        JobsCommand::List => list(app),
        JobsCommand::Show(args) => show(args, app),
        JobsCommand::Check(args) => check(args, app),
        JobsCommand::Graph(args) => graph_text::show(&find(app, &args.job, &[])?, args.format, app),
        JobsCommand::Export(args) => jobs_export::run(args, app),
        JobsCommand::Schema => {
            let schema = schema::json_schema(crate::steps::ALL);
            let text = pretty(&schema)?;
            app.reply(&schema, |out| out.line(text))
        }
    }
}

/// Finds a job by name or path and reads it.
///
/// # Errors
/// When there is none, or its file is invalid.
pub fn find(app: &App, name: &str, overrides: &[Override]) -> Result<Job> {
    job_files::one(app, name)?.parse(overrides)
}

fn pretty(value: &impl Serialize) -> Result<String> {
    serde_json::to_string_pretty(value).map_err(|error| Error::internal("encode the answer").because(error))
}

#[derive(Serialize)]
struct JobList {
    jobs: Vec<ListedJob>,
}

#[derive(Serialize)]
struct ListedJob {
    name: String,
    description: Option<String>,
    schedule: Option<String>,
    steps: Vec<String>,
    origin: String,
    valid: bool,
}

fn list(app: &mut App) -> Result<()> {
    let mut jobs = Vec::new();
    for found in job_files::all(app)? {
        let job = job::parse(&found.file, &found.text, crate::steps::ALL, &[]).ok();
        jobs.push(ListedJob {
            name: found.name,
            origin: found.origin.to_string(),
            valid: job.is_some(),
            steps: job.iter().flat_map(|job| &job.steps).map(|step| step.id.clone()).collect(),
            description: job.as_ref().and_then(|job| job.description.clone()),
            schedule: job.and_then(|job| job.schedule),
        });
    }
    let list = JobList { jobs };
    app.reply(&list, |out| {
        let width = |column: fn(&ListedJob) -> usize| list.jobs.iter().map(column).max().unwrap_or(0);
        let names = width(|job| job.name.chars().count());
        let schedules = width(|job| job.schedule.as_deref().unwrap_or("").chars().count());
        let origins = width(|job| job.origin.chars().count());
        for job in &list.jobs {
            let name = out.paint("1", &format!("{:<names$}", job.name));
            let schedule = job.schedule.as_deref().unwrap_or_default();
            let what = if job.valid {
                job.description.clone().unwrap_or_default()
            } else {
                out.paint("31", &format!("invalid: see `lore jobs check {}`", job.name))
            };
            let line = format!("{name}  {schedule:<schedules$}  {:<origins$}  {what}", job.origin);
            out.line(line.trim_end())?;
        }
        Ok(())
    })
}

/// A job with its defaults, as shown.
#[derive(Serialize)]
struct Resolved<'a> {
    name: &'a str,
    description: Option<&'a str>,
    schedule: Option<&'a str>,
    timeout: Option<String>,
    max_parallel: usize,
    full: bool,
    origin: String,
    hash: &'a str,
    steps: Vec<ResolvedStep<'a>>,
}

#[derive(Serialize)]
struct ResolvedStep<'a> {
    name: &'a str,
    uses: &'a str,
    needs: &'a [String],
    when: String,
    timeout: Option<String>,
    retry: ResolvedRetry,
    allow_failure: bool,
    with: serde_json::Value,
}

#[derive(Serialize)]
struct ResolvedRetry {
    max_attempts: u32,
    base: String,
    max: String,
}

impl<'a> Resolved<'a> {
    fn of(job: &'a Job) -> Self {
        Self {
            name: &job.name,
            description: job.description.as_deref(),
            schedule: job.schedule.as_deref(),
            timeout: job.timeout.map(duration_text::format),
            max_parallel: job.max_parallel,
            full: job.full,
            origin: job.origin.to_string(),
            hash: &job.hash,
            steps: job.steps.iter().map(ResolvedStep::of).collect(),
        }
    }

    /// The job as a job file that says everything.
    fn to_toml(&self) -> String {
        let mut out = format!("# {}, hash {}\n", self.origin, self.hash);
        let text = |text: &str| toml::Value::from(text).to_string();
        let mut line = |key: &str, value: String| {
            let written = writeln!(out, "{key} = {value}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        };
        line("name", text(self.name));
        for (key, value) in [("description", self.description), ("schedule", self.schedule)] {
            if let Some(value) = value {
                line(key, text(value));
            }
        }
        if let Some(timeout) = &self.timeout {
            line("timeout", text(timeout));
        }
        line("max_parallel", self.max_parallel.to_string());
        line("full", self.full.to_string());
        for step in &self.steps {
            let names: Vec<String> = step.needs.iter().map(|need| text(need)).collect();
            let retry = &step.retry;
            out.push_str(&format!("\n[steps.{}]\n", step.name));
            let mut line = |key: &str, value: String| {
                let written = writeln!(out, "{key} = {value}");
                debug_assert!(written.is_ok(), "writing to a String cannot fail");
            };
            line("uses", text(step.uses));
            line("needs", format!("[{}]", names.join(", ")));
            line("when", text(&step.when));
            if let Some(timeout) = &step.timeout {
                line("timeout", text(timeout));
            }
            let (base, max) = (text(&retry.base), text(&retry.max));
            line("retry", format!("{{ max_attempts = {}, base = {base}, max = {max} }}", retry.max_attempts));
            line("allow_failure", step.allow_failure.to_string());
            line("with", inline_toml(&step.with));
        }
        out
    }
}

impl<'a> ResolvedStep<'a> {
    fn of(step: &'a JobStep) -> Self {
        Self {
            name: &step.id,
            uses: step.kind,
            needs: &step.needs,
            when: step.when.to_string(),
            timeout: step.timeout.map(duration_text::format),
            retry: ResolvedRetry {
                max_attempts: step.retry.max_attempts,
                base: duration_text::format(step.retry.backoff.base),
                max: duration_text::format(step.retry.backoff.max),
            },
            allow_failure: step.allow_failure,
            with: step.params.params(),
        }
    }
}

/// Writes a JSON value as a TOML value on one line; what is null is left out.
pub(super) fn inline_toml(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => toml::Value::from(text.as_str()).to_string(),
        Value::Array(list) => {
            let items: Vec<String> = list.iter().filter(|item| !item.is_null()).map(inline_toml).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(object) => {
            let items: Vec<String> = object
                .iter()
                .filter(|(_, item)| !item.is_null())
                .map(|(key, item)| {
                    let bare = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
                    let key = if bare && !key.is_empty() {
                        key.clone()
                    } else {
                        toml::Value::from(key.as_str()).to_string()
                    };
                    format!("{key} = {}", inline_toml(item))
                })
                .collect();
            if items.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", items.join(", ")) }
        }
    }
}

fn show(args: &ShowArgs, app: &mut App) -> Result<()> {
    let job = find(app, &args.job, &args.set)?;
    let resolved = Resolved::of(&job);
    app.reply(&resolved, |out| out.line(resolved.to_toml().trim_end()))
}

#[derive(Serialize)]
struct CheckReport {
    checked: usize,
    errors: usize,
    warnings: usize,
    diagnostics: Vec<Diagnostic>,
}

fn check(args: &CheckArgs, app: &mut App) -> Result<()> {
    let found = if args.jobs.is_empty() {
        job_files::all(app)?
    } else {
        args.jobs.iter().map(|name| job_files::one(app, name)).collect::<Result<_>>()?
    };
    let mut report = CheckReport { checked: found.len(), errors: 0, warnings: 0, diagnostics: Vec::new() };
    let mut invalid = 0;
    for found in &found {
        let checked = job::check(&found.file, &found.text, crate::steps::ALL, &[]);
        invalid += usize::from(checked.job.is_none());
        report.diagnostics.extend(checked.diagnostics);
    }
    report.errors = report.diagnostics.iter().filter(|found| found.is_error()).count();
    report.warnings = report.diagnostics.len() - report.errors;
    if report.errors == 0 || !app.globals.json {
        let json = if args.format == CheckFormat::Json { pretty(&report)? } else { String::new() };
        app.reply(&report, |out| match args.format {
            CheckFormat::Json => out.line(&json),
            CheckFormat::Github => report.diagnostics.iter().try_for_each(|found| out.line(found.github())),
            CheckFormat::Text => {
                report.diagnostics.iter().try_for_each(|found| out.line(found.render()))?;
                if report.errors == 0 {
                    let warnings = match report.warnings {
                        0 => String::new(),
                        n => format!(", {}", count(n, "warning")),
                    };
                    out.line(format!("{} checked, no errors{warnings}", count(report.checked, "job")))?;
                }
                Ok(())
            }
        })?;
    }
    if report.errors == 0 {
        return Ok(());
    }
    let details =
        serde_json::to_value(&report).map_err(|error| Error::internal("encode the report").because(error))?;
    Err(Error::config(format!(
        "{} in {invalid} of {}",
        count(report.errors, "error"),
        count(report.checked, "job file")
    ))
    .hint("every key is described in docs/jobs.md; `lore jobs schema` prints the schema for editors")
    .details(details))
}
