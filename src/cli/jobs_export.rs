//! `lore jobs export`: writes what starts the scheduled jobs, in the words of a scheduler.
//!
//! The schedules live in the job files; manifests that are made from them cannot drift. The
//! files in `deploy/` that carry schedules are this command's output, and a test says so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use super::{App, job_files};
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::job::Job;
use crate::job::schedule::Schedule;

mod text;

/// Write the files that make a scheduler start the jobs that have a schedule.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// Names of jobs or paths of job files; default: every job that has a schedule
    jobs: Vec<String>,
    /// What the files are for
    #[arg(long, value_enum, value_name = "FORM")]
    format: Format,
    /// Time zone of the schedules, a name of the tz database
    #[arg(long, default_value = "Etc/UTC", value_name = "ZONE")]
    time_zone: String,
    /// Write the files into this directory instead of printing them
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// A scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// CronJobs
    Kubernetes,
    /// Timers that start lore@JOB.service
    Systemd,
    /// A pipeline for scheduled pipelines
    GitlabCi,
    /// A workflow
    GithubActions,
}

/// A job as a scheduler sees it.
#[derive(Debug)]
struct Scheduled {
    name: String,
    description: String,
    cron: String,
    schedule: Schedule,
    /// Time that a run may take, the wait for the lock included, seconds.
    deadline_s: u64,
    /// How long a run waits for the lock; none: it is skipped when the lock is held.
    lock_wait: Option<Duration>,
}

#[derive(Serialize)]
struct Exported {
    files: Vec<ExportedFile>,
}

#[derive(Serialize)]
struct ExportedFile {
    name: String,
    text: String,
}

/// A run whose job names no timeout may take this long.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
/// Wait for the lock of jobs that are too rare to be skipped.
const LOCK_WAIT: Duration = Duration::from_secs(3600);
/// Jobs that start at least this often are skipped when the lock is held: the next start is near.
const OFTEN: Duration = Duration::from_secs(3600);
/// Time to start and to end, seconds.
const MARGIN_S: u64 = 300;

/// Runs `lore jobs export`.
///
/// # Errors
/// When a job is not found, is invalid or has no schedule, or a file cannot be written.
pub(super) fn run(args: &ExportArgs, app: &mut App) -> Result<()> {
    check_zone(&args.time_zone, &ZONES.map(Path::new))?;
    let jobs = scheduled(args, app)?;
    let files = match args.format {
        Format::Kubernetes => vec![("cronjobs.yaml".to_owned(), text::kubernetes(&jobs, &args.time_zone))],
        Format::Systemd => text::systemd(&jobs, &args.time_zone),
        Format::GitlabCi => vec![("gitlab-ci.yml".to_owned(), text::gitlab_ci(&jobs))],
        Format::GithubActions => {
            refuse_zone(&args.time_zone)?;
            vec![("github-actions.yml".to_owned(), text::github_actions(&jobs))]
        }
    };
    let files: Vec<ExportedFile> =
        files.into_iter().map(|(name, text)| ExportedFile { name, text }).collect();
    if let Some(dir) = &args.output {
        let dir = app.world.current_dir.join(dir);
        std::fs::create_dir_all(&dir).map_err(|error| {
            io_error(format!("create directory {}", dir.display()), error)
                .hint("name a directory that you may write with --output, or leave it out to print the files")
        })?;
        for file in &files {
            let path = dir.join(&file.name);
            std::fs::write(&path, &file.text)
                .map_err(|error| io_error(format!("write {}", path.display()), error))?;
        }
    }
    let written = args.output.is_some();
    let exported = Exported { files };
    app.reply(&exported, |out| {
        let several = exported.files.len() > 1;
        for file in &exported.files {
            if written {
                out.line(&file.name)?;
                continue;
            }
            if several {
                out.line(format!("# {}", file.name))?;
            }
            out.line(file.text.trim_end())?;
        }
        Ok(())
    })
}

fn scheduled(args: &ExportArgs, app: &App) -> Result<Vec<Scheduled>> {
    if args.jobs.is_empty() {
        let mut jobs = Vec::new();
        for found in job_files::all(app)? {
            jobs.extend(one(&found.parse(&[])?)?);
        }
        return Ok(jobs);
    }
    let wanted = |name: &String| {
        let job = job_files::one(app, name)?.parse(&[])?;
        one(&job)?.ok_or_else(|| {
            Error::new(ErrorKind::Config, format!("job {} has no schedule", job.name))
                .hint("add one to its file, for example schedule = \"*/15 * * * *\"")
        })
    };
    args.jobs.iter().map(wanted).collect()
}

fn one(job: &Job) -> Result<Option<Scheduled>> {
    let Some(cron) = &job.schedule else { return Ok(None) };
    let schedule = Schedule::parse(cron).map_err(|error| {
        Error::new(ErrorKind::Config, format!("job {}: schedule: {}", job.name, error.message))
    })?;
    let gap = schedule.longest_gap().ok_or_else(|| {
        Error::new(ErrorKind::Config, format!("job {}: its schedule {cron:?} never comes", job.name))
    })?;
    let lock_wait = (gap > OFTEN).then_some(LOCK_WAIT);
    let timeout = job.timeout.unwrap_or(DEFAULT_TIMEOUT) + lock_wait.unwrap_or_default();
    Ok(Some(Scheduled {
        name: job.name.clone(),
        description: job.description.clone().unwrap_or_else(|| format!("lore run {}", job.name)),
        cron: cron.split_whitespace().collect::<Vec<_>>().join(" "),
        schedule,
        deadline_s: timeout.as_secs() + MARGIN_S,
        lock_wait,
    }))
}

/// Where systems keep the tz database.
const ZONES: [&str; 2] = ["/usr/share/zoneinfo", "/usr/lib/zoneinfo"];

/// A zone goes into files unquoted, and a scheduler that does not know it starts nothing. Where
/// a tz database is at hand it says what is known, `Etc/UTC` is everywhere.
fn check_zone(zone: &str, databases: &[&Path]) -> Result<()> {
    let named = !zone.is_empty() && zone.chars().all(|c| c.is_ascii_alphanumeric() || "/_+-".contains(c));
    let known = |database: &&Path| zone == "Etc/UTC" || database.join(zone).is_file();
    let database = databases.iter().find(|database| database.join("Etc/UTC").is_file());
    let valid = named && !zone.starts_with('/') && database.is_none_or(known);
    if valid {
        return Ok(());
    }
    Err(Error::usage(format!("--time-zone {zone}: no name of the tz database"))
        .hint("for example Europe/Dublin or Etc/UTC"))
}

fn refuse_zone(zone: &str) -> Result<()> {
    if matches!(zone, "Etc/UTC" | "UTC") {
        return Ok(());
    }
    Err(Error::usage(format!("--time-zone {zone}: GitHub Actions knows UTC only"))
        .hint("leave --time-zone out and write the schedules of the job files in UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_one_that_the_tz_database_has_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        for zones in ["Europe", "Etc"] {
            std::fs::create_dir(dir.path().join(zones)).unwrap();
        }
        std::fs::write(dir.path().join("Etc/UTC"), "TZif2").unwrap();
        std::fs::write(dir.path().join("Europe/Dublin"), "TZif2").unwrap();
        let known = |zone: &str, databases: &[&Path]| check_zone(zone, databases).is_ok();
        let (here, none) = (dir.path(), dir.path().join("none"));
        for zone in ["Etc/UTC", "Europe/Dublin"] {
            assert!(known(zone, &[&none, here]) && known(zone, &[&none]), "{zone}");
        }
        assert!(!known("Nope/Zone", &[&none, here]) && known("Nope/Zone", &[&none]));
        for zone in ["", "Europe", "Europe/Dublin; x", "/etc/passwd"] {
            assert!(!known(zone, &[here]), "{zone}");
        }
    }
}
