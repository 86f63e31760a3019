//! `lore config`: the values in force, a check of them, a file to start from.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde::Serialize;

use super::jobs::inline_toml;
use super::{App, reference};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::secret::SecretRef;

/// Show, check and begin the configuration.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show the values in force and where each came from; secrets as references only
    #[command(
        after_help = "Examples:\n  lore config show\n  LORE__LOCK__LEASE=90s lore config show | grep lease\n  lore config show --json | jq .data.origins"
    )]
    Show,
    /// Check files, variables and secrets, and report every problem at once
    #[command(
        after_help = "Exits with 3 when a value is wrong and with 4 when a secret is not set.\n\nExamples:\n  lore config check\n  lore config check --config /etc/lore/lore.toml"
    )]
    Check,
    /// Print a commented file to start from
    #[command(
        after_help = "Examples:\n  lore config init > lore.toml\n  lore config init --output /etc/lore/lore.toml"
    )]
    Init(InitArgs),
}

#[derive(Debug, clap::Args)]
struct InitArgs {
    /// Write to this file, which must not exist yet
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs `lore config`.
///
/// # Errors
/// When the configuration is invalid, a secret is not set, or a file cannot be written.
pub fn run(args: &ConfigArgs, app: &mut App) -> Result<()> {
    match &args.command {
        ConfigCommand::Show => show(app),
        ConfigCommand::Check => check(app),
        ConfigCommand::Init(args) => init(args, app),
    }
}

#[derive(Serialize)]
struct Shown {
    config: Config,
    database_path: Option<String>,
    files: Vec<String>,
    origins: BTreeMap<String, String>,
}

fn show(app: &mut App) -> Result<()> {
    let loaded = app.loaded()?.clone();
    let shown = Shown {
        // No place for it is an error of the commands that need one.
        database_path: app.database_path().ok().map(|path| path.display().to_string()),
        files: loaded.files.iter().map(|file| file.display().to_string()).collect(),
        origins: loaded.origins,
        config: loaded.config,
    };
    let value = serde_json::to_value(&shown.config)
        .map_err(|error| Error::internal("encode the configuration").because(error))?;
    app.reply(&shown, |out| {
        match shown.files.as_slice() {
            [] => out.line("# no configuration file was found; `lore config init` prints one")?,
            files => files.iter().try_for_each(|file| out.line(format!("# {file}")))?,
        }
        if let Some(path) = &shown.database_path {
            out.line(format!("# database: {path}"))?;
        }
        for line in toml_lines(&value, &shown.origins) {
            let origin =
                line.origin.map(|origin| out.paint("2", &format!("  # {origin}"))).unwrap_or_default();
            out.line(format!("{}{origin}", line.text))?;
        }
        Ok(())
    })
}

struct Line<'a> {
    text: String,
    origin: Option<&'a str>,
}

/// Writes a tree as TOML: two levels of tables for maps of tables, the rest inline.
fn toml_lines<'a>(value: &serde_json::Value, origins: &'a BTreeMap<String, String>) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (section, inner) in value.as_object().into_iter().flatten() {
        if matches!(section.as_str(), "sources" | "scopes") {
            for (name, inner) in inner.as_object().into_iter().flatten() {
                table(&format!("{section}.{name}"), inner, origins, &mut lines);
            }
        } else {
            table(section, inner, origins, &mut lines);
        }
    }
    lines
}

fn table<'a>(
    path: &str,
    value: &serde_json::Value,
    origins: &'a BTreeMap<String, String>,
    lines: &mut Vec<Line<'a>>,
) {
    lines.push(Line { text: String::new(), origin: None });
    lines.push(Line { text: format!("[{path}]"), origin: None });
    for (key, value) in value.as_object().into_iter().flatten() {
        let whole = format!("{path}.{key}");
        let inside = format!("{whole}.");
        let origin = origins.get(&whole).or_else(|| {
            origins.iter().find(|(known, _)| known.starts_with(&inside)).map(|(_, origin)| origin)
        });
        lines.push(Line {
            text: format!("{key} = {}", inline_toml(value)),
            origin: origin.map(String::as_str),
        });
    }
}

#[derive(Serialize)]
struct CheckReport {
    files: Vec<String>,
    sources: Vec<String>,
    secrets: Vec<CheckedSecret>,
}

#[derive(Serialize)]
struct CheckedSecret {
    key: String,
    /// Where it is kept.
    reference: SecretRef,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

fn check(app: &mut App) -> Result<()> {
    let loaded = app.loaded()?;
    let mut secrets = Vec::new();
    for (key, reference) in loaded.config.secrets() {
        let problem = reference.read(&key, |name| app.var(name)).err().map(|error| {
            let origin =
                loaded.origins.iter().find(|(path, _)| path.starts_with(&key)).map(|(_, at)| at.as_str());
            format!("{} ({})", error.full_message(), origin.unwrap_or("default"))
        });
        secrets.push(CheckedSecret { key, reference: reference.clone(), ok: problem.is_none(), problem });
    }
    let report = CheckReport {
        files: loaded.files.iter().map(|file| file.display().to_string()).collect(),
        sources: loaded.config.sources.keys().cloned().collect(),
        secrets,
    };
    let problems: Vec<&str> = report.secrets.iter().filter_map(|secret| secret.problem.as_deref()).collect();
    if !problems.is_empty() {
        let details = serde_json::to_value(&report)
            .map_err(|error| Error::internal("encode the report").because(error))?;
        return Err(Error::new(ErrorKind::TokenNotSet, problems.join("\n"))
            .hint("set it where the job runs, or change the reference in the configuration")
            .details(details));
    }
    app.reply(&report, |out| {
        match report.files.as_slice() {
            [] => out.line("No configuration file was found: defaults and variables hold.")?,
            files => files.iter().try_for_each(|file| out.line(format!("read {file}")))?,
        }
        for secret in &report.secrets {
            out.line(format!("{} is set", secret.key))?;
        }
        let sources = match report.sources.as_slice() {
            [] => "no sources (`lore run demo` needs none)".to_owned(),
            sources => format!("sources: {}", sources.join(", ")),
        };
        out.line(format!("The configuration is valid; {sources}"))
    })
}

#[derive(Serialize)]
struct Started {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    text: String,
}

fn init(args: &InitArgs, app: &mut App) -> Result<()> {
    let text = reference::starter();
    let file = args.output.as_ref().map(|file| app.world.current_dir.join(file));
    if let Some(path) = &file {
        write_new(path, &text)?;
    }
    let started = Started { file: file.map(|file| file.display().to_string()), text };
    app.reply(&started, |out| match &started.file {
        Some(file) => {
            out.line(format!("Wrote {file}. Next: switch a source on in it, then `lore config check`."))
        }
        None => out.line(started.text.trim_end()),
    })
}

/// Writes a file that must not exist.
fn write_new(path: &Path, text: &str) -> Result<()> {
    let doing = || format!("write {}", path.display());
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| {
        let exists = error.kind() == std::io::ErrorKind::AlreadyExists;
        let error = io_error(doing(), error);
        if exists { error.hint("it is not overwritten: name another file, or move it away") } else { error }
    })?;
    file.write_all(text.as_bytes()).map_err(|error| io_error(doing(), error))
}
