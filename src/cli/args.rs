//! The arguments of every command, and the dispatch.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use super::app::{App, Globals, write_error};
use super::{
    World, backup, completions, config, docs, doctor, jobs, lock, mcp, metrics, query, run, runs, shortcuts,
    show, status,
};

use crate::error::{ErrorKind, Result};
use crate::telemetry::{self, LogForm};

/// Keeps the memory of a software team searchable.
///
/// lore copies issues, merge requests and their discussions out of GitLab into one SQLite
/// file, indexes them, and answers questions about them. Everything it does is a step of a
/// job; a scheduler of yours starts the jobs.
#[derive(Debug, Parser)]
#[command(
    name = "lore",
    version,
    propagate_version = true,
    after_long_help = exit_code_help(),
    after_help = "Examples:\n  lore run demo                  index the built-in sample project\n  lore query 'session expires'   ask\n  lore run sync                  bring your projects up to date\n  lore status                    queues, coverage, lock, last runs\n\nExit codes: see `lore --help`.",
)]
pub struct Cli {
    #[command(flatten)]
    globals: GlobalArgs,
    #[command(flatten)]
    jobs_dir: run::JobsDirArg,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct GlobalArgs {
    /// Configuration file (must exist); default: ./lore.toml, $XDG_CONFIG_HOME/lore/lore.toml, /etc/lore/lore.toml
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    config: Option<PathBuf>,
    /// Database file
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    database: Option<PathBuf>,
    /// Print one JSON document on standard output, also on failure (also LORE_ROBOT=1)
    #[arg(long, visible_alias = "robot", global = true, help_heading = "Global options")]
    json: bool,
    /// Print errors only on standard error
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Global options")]
    quiet: bool,
    /// Log more; repeat for more still
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    verbose: u8,
    /// Form of log lines on standard error
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Human, help_heading = "Global options")]
    log_format: LogFormat,
    /// When to colour human output (NO_COLOR is honoured)
    #[arg(long, global = true, value_enum, default_value_t = ColorWhen::Auto, help_heading = "Global options")]
    color: ColorWhen,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ColorWhen {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a job: bring the index up to date, or maintain it
    #[command(
        after_help = "Examples:\n  lore run demo                             index the built-in sample project\n  lore run sync                             bring your projects up to date\n  lore run sync --if-locked skip            for schedules that may overlap\n  lore run sync --only regenerate-docs      one step\n  lore run sync --set ingest.source=main    one source\n  lore run sync --full                      read and render everything again\n  lore run sync --resume                    continue the last run\n  lore run sync --dry-run                   show the plan"
    )]
    Run(run::RunArgs),
    /// Bring the index up to date (the job `sync`)
    #[command(
        after_help = "Examples:\n  lore sync\n  lore sync --no-embed\n  lore sync --full --json | jq .data.issues_updated"
    )]
    Sync(shortcuts::SyncArgs),
    /// Make documents of what was ingested
    #[command(
        after_help = "Examples:\n  lore generate-docs            what is queued\n  lore generate-docs --full     everything"
    )]
    GenerateDocs(shortcuts::GenerateDocsArgs),
    /// Make vectors of new and changed documents, for search by meaning
    #[command(
        after_help = "Examples:\n  lore embed                    what is new or changed\n  lore embed --retry-failed     what failed before too, now\n  lore embed --json | jq .data.embedded"
    )]
    Embed(shortcuts::EmbedArgs),
    /// List, show, check and draw jobs
    #[command(
        after_help = "Examples:\n  lore jobs list\n  lore jobs show sync\n  lore jobs check\n  lore jobs graph sync --format mermaid\n  lore jobs schema > jobs.schema.json"
    )]
    Jobs(jobs::JobsArgs),
    /// Ask the index
    #[command(
        visible_alias = "search",
        after_help = "Examples:\n  lore query 'session expires too early'\n  lore query 'login \"session expired\" -saml is:open label:bug'\n  lore query crash --type mr --path src/auth/ --updated-after 2w\n  lore query '#12'                         an item, and what mentions it\n  lore query 'sanitiz*' --explain\n  lore query oauth --json | jq -r '.data.results[].url'\n  lore query 'is:open author:ann'          no words: the newest first\n  lore query 'users are logged out' --mode semantic\n  lore query --like '#12'                  similar threads, likely duplicates"
    )]
    Query(Box<query::QueryArgs>),
    /// Show a stored thread as text
    #[command(
        after_help = "Examples:\n  lore show group/project#12\n  lore show '!34'\n  lore show https://gitlab.example.com/group/project/-/issues/12 --system"
    )]
    Show(show::ShowArgs),
    /// Answer the tools of an agent on standard input and output (Model Context Protocol)
    ///
    /// Tools: search, get_thread, similar, status. Nothing is written, whatever is asked, and no
    /// call can widen what the options below allow to be seen. An answer has at most 32,000
    /// characters. Works while a job runs, and when the database appears later.
    #[command(
        after_help = "Examples:\n  lore mcp\n  lore mcp --scope backend\n  lore mcp --database /srv/lore/lore.db --scope backend\n\nIn the configuration of a client:\n  {\"mcpServers\": {\"lore\": {\"command\": \"lore\", \"args\": [\"mcp\", \"--scope\", \"backend\"]}}}"
    )]
    Mcp(mcp::McpArgs),
    /// Show the history of runs
    #[command(
        after_help = "Examples:\n  lore runs\n  lore runs --job sync --limit 5\n  lore runs show 42\n  lore runs cancel 42"
    )]
    Runs(runs::RunsArgs),
    /// Show lock, queues, documents, index and the last runs
    #[command(
        visible_alias = "stats",
        after_help = "Examples:\n  lore status\n  lore status --json | jq .data.queues"
    )]
    Status(status::StatusArgs),
    /// Show or break the app lock
    #[command(
        after_help = "Examples:\n  lore lock status\n  lore lock break --owner 1c5e6a2e-…   # the owner that `lore lock status` shows"
    )]
    Lock(lock::LockArgs),
    /// Copy the database to a file while it is used
    #[command(
        after_help = "Examples:\n  lore backup /backups/lore-2026-01-31.db\n  lore backup lore.bak --force\n  lore query oauth --database /backups/lore-2026-01-31.db\n\nThe step `backup` does it in a job and keeps the newest few."
    )]
    Backup(backup::BackupArgs),
    /// Bring a backup back
    #[command(
        after_help = "Examples:\n  lore restore /backups/lore-2026-01-31.db\n  lore restore lore.bak --force"
    )]
    Restore(backup::RestoreArgs),
    /// Look at database, sources and embedding service, and say what to do about what is amiss
    #[command(
        after_help = "Examples:\n  lore doctor\n  lore doctor --source main\n  lore doctor --offline\n  lore doctor --json | jq '(.data // .error.details).checks[] | select(.status != \"ok\")'\n\nExits with the code of the first check that fails; warnings do not count."
    )]
    Doctor(doctor::DoctorArgs),
    /// Show, check and begin the configuration
    #[command(
        after_help = "Examples:\n  lore config show\n  lore config check\n  lore config init > lore.toml"
    )]
    Config(config::ConfigArgs),
    /// Write the generated reference (docs/) into a directory
    #[command(hide = true)]
    Docs(docs::DocsArgs),
    /// Print metrics for Prometheus, or write, push or serve them
    #[command(
        after_help = "Examples:\n  lore metrics\n  lore metrics --textfile /var/lib/node_exporter/lore.prom\n  lore metrics --push http://pushgateway:9091\n  lore metrics --listen 0.0.0.0:9469"
    )]
    Metrics(metrics::MetricsArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:\n  lore completions bash > /etc/bash_completion.d/lore")]
    Completions(completions::CompletionsArgs),
    /// Print the manual page
    #[command(after_help = "Examples:\n  lore man | man -l -")]
    Man,
}

fn run_command(command: &Command, app: &mut App) -> Result<()> {
    match command {
        Command::Run(args) => run::run(args, app),
        Command::Sync(args) => shortcuts::sync(args, app),
        Command::GenerateDocs(args) => shortcuts::generate_docs(args, app),
        Command::Embed(args) => shortcuts::embed(args, app),
        Command::Jobs(args) => jobs::run(args, app),
        Command::Query(args) => query::run(args, app),
        Command::Show(args) => show::run(args, app),
        Command::Mcp(args) => mcp::run(args, app),
        Command::Runs(args) => runs::run(args, app),
        Command::Status(args) => status::run(args, app),
        Command::Lock(args) => lock::run(args, app),
        Command::Backup(args) => backup::backup(args, app),
        Command::Restore(args) => backup::restore(args, app),
        Command::Doctor(args) => doctor::run(args, app),
        Command::Config(args) => config::run(args, app),
        Command::Docs(args) => docs::run(args, app),
        Command::Metrics(args) => metrics::run(args, app),
        Command::Completions(args) => completions::completions(args, app),
        Command::Man => completions::man(app),
    }
}

/// Parses the arguments, runs the command, reports its error; returns the exit code.
pub(super) fn dispatch(mut world: World) -> u8 {
    let robot =
        world.vars.get("LORE_ROBOT").is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
    let json = robot || world.args.iter().any(|arg| arg == "--json" || arg == "--robot");
    let cli = match Cli::try_parse_from(&world.args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&mut world, json, &error),
    };
    let color = match cli.globals.color {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => world.out_is_terminal && world.vars.get("NO_COLOR").is_none_or(String::is_empty),
    };
    let globals = Globals {
        config: cli.globals.config,
        database: cli.globals.database,
        jobs_dir: cli.jobs_dir.jobs_dir,
        json: cli.globals.json || robot,
        quiet: cli.globals.quiet,
        log_format: cli.globals.log_format,
        color,
    };
    start_logging(&world, &globals, &cli.command, cli.globals.verbose);
    let mut app = App::new(world, globals);
    match run_command(&cli.command, &mut app) {
        Ok(()) => 0,
        Err(error) => {
            app.report_error(&error);
            error.kind().exit_code()
        }
    }
}

/// Starts logging at the level that the options ask for. A run on a terminal shows bars, so
/// only warnings are logged beside them; a run elsewhere logs what happens.
fn start_logging(world: &World, globals: &Globals, command: &Command, verbose: u8) {
    let form = match globals.log_format {
        LogFormat::Human => LogForm::Human,
        LogFormat::Json => LogForm::Json,
    };
    let runs = matches!(
        command,
        Command::Metrics(_)
            | Command::Run(_)
            | Command::Sync(_)
            | Command::GenerateDocs(_)
            | Command::Embed(_)
    );
    let quiet_by_default = !runs || (world.err_is_terminal && form == LogForm::Human);
    let level = match (globals.quiet, verbose) {
        (true, _) => "error",
        (false, 0) if quiet_by_default => "warn",
        (false, 0) => "info",
        (false, 1) => "info,lore=debug",
        (false, _) => "debug,lore=trace,hyper_util=info,h2=info",
    };
    let asked = world.vars.get("LORE_LOG").filter(|level| !level.is_empty());
    telemetry::start_logging(form, asked.map_or(level, String::as_str));
}

/// Reports arguments that cannot be parsed, or prints the help that was asked for.
fn refuse(world: &mut World, json: bool, error: &clap::Error) -> u8 {
    use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};
    let text = error.render().to_string();
    if !error.use_stderr() {
        let shown = world.out.write_all(text.as_bytes()).and_then(|()| world.out.flush());
        let Err(error) = super::app::written(shown) else { return 0 };
        drop(write_error(&mut world.err, &error));
        return error.kind().exit_code();
    }
    // A value that is missing is reported as an invalid one, also where no list says what it may be.
    let listed = error.get(ContextKind::ValidValue).is_some_and(|known| match known {
        ContextValue::Strings(names) => !names.is_empty(),
        _ => false,
    });
    let kind = if error.kind() == ClapKind::InvalidValue && listed {
        ErrorKind::InvalidEnumValue
    } else {
        ErrorKind::Usage
    };
    // `lore query two words`: the second is one word too many.
    let is_stray = error.kind() == ClapKind::UnknownArgument
        && matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    let hint = if is_stray { "put a text of several words in quotes" } else { "see --help" };
    if json {
        let message = text.trim_start_matches("error: ").trim().to_owned();
        let document = serde_json::json!({
            "ok": false,
            "error": { "code": kind.code(), "message": message, "suggestion": hint, "suggestions": [hint], "details": null },
            "meta": { "elapsed_ms": 0, "schema": super::app::JSON_SCHEMA, "version": env!("CARGO_PKG_VERSION") },
        });
        drop(writeln!(world.out, "{document}").and_then(|()| world.out.flush()));
    } else {
        let mut text = text;
        if is_stray {
            text.push_str(&format!("hint: {hint}\n"));
        }
        drop(world.err.write_all(text.as_bytes()).and_then(|()| world.err.flush()));
    }
    kind.exit_code()
}

/// The table of exit codes for `lore --help`.
fn exit_code_help() -> String {
    let mut text = "Exit codes:\n    0  done\n".to_owned();
    let mut last = None;
    for kind in ErrorKind::ALL {
        if last != Some(kind.exit_code()) {
            let line = writeln!(text, "  {:>3}  {}", kind.exit_code(), kind.meaning());
            debug_assert!(line.is_ok(), "writing to a String cannot fail");
        }
        last = Some(kind.exit_code());
    }
    text.push_str("\nAny other code is a failure.");
    text
}
