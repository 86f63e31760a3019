//! `lore doctor`: looks at everything that a run needs, and says what to do about what is amiss.
//!
//! Changes nothing: the database is opened for reading, servers are only asked. Works while a
//! run holds the lock.

mod embedder;
mod place;
mod reranker;
mod server;
mod source;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::App;
use crate::clock;
use crate::config::RerankProvider;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::gitlab::diagnose::{Finding, Level};

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Look at the database, the sources and the embedding service.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// Look at this source only, and not at the embedding service and the reranker
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Ask no server
    #[arg(long)]
    offline: bool,
}

/// A look at one thing.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    status: Level,
    message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    advice: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip)]
    kind: Option<ErrorKind>,
}

/// All of them.
#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
    ok: usize,
    warnings: usize,
    failures: usize,
}

/// The checks while they are made.
#[derive(Debug, Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, name: impl Into<String>, finding: Finding) {
        let Finding { level, text, advice, kind } = finding;
        self.0.push(Check {
            name: name.into(),
            status: level,
            message: text,
            advice,
            code: kind.map(ErrorKind::code),
            kind,
        });
    }

    fn fail(&mut self, name: impl Into<String>, error: &Error) {
        self.add(name, failure(error));
    }
}

/// An error as a finding.
fn failure(error: &Error) -> Finding {
    Finding {
        level: Level::Fail,
        text: error.full_message(),
        advice: error.hints().to_vec(),
        kind: Some(error.kind()),
    }
}

/// Runs `lore doctor`.
///
/// # Errors
/// The kind of the first check that failed, with all checks as its details.
pub fn run(args: &DoctorArgs, app: &mut App) -> Result<()> {
    let mut checks = Checks::default();
    let config = match app.loaded() {
        Ok(loaded) => loaded.config.clone(),
        Err(error) => {
            // Nothing else can be looked at: nobody knows where it is.
            checks.fail("configuration", &error);
            return reply(app, checks);
        }
    };
    if let Some(wanted) = args.source.as_ref().filter(|wanted| !config.sources.contains_key(*wanted)) {
        let known: Vec<&str> = config.sources.keys().map(String::as_str).collect();
        return Err(Error::usage(format!("there is no source {wanted:?}")).hint(format!(
            "known sources: {}",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") }
        )));
    }
    checks.add("configuration", Finding::ok("can be read"));
    let store = place::look(app, &config, &mut checks);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| io_error("start the network runtime", error))?;
    if config.sources.is_empty() {
        checks.add(
            "sources",
            Finding::warn(
                "none is configured",
                "`lore config init` writes a starter file; `lore run demo` needs none",
            ),
        );
    }
    for (name, source) in &config.sources {
        if args.source.as_ref().is_none_or(|wanted| wanted == name) {
            let vars = |name: &str| app.var(name);
            let look = source::Look { name, store: store.as_ref(), vars: &vars, offline: args.offline };
            runtime.block_on(look.at(source, &mut checks));
        }
    }
    if let (Some(store), None) = (&store, &args.source) {
        source::streams(store, &mut checks);
    }
    if args.source.is_none() {
        let is_remote = config.embedding.provider.as_str() != "builtin";
        if args.offline && is_remote {
            checks.add("embedding", Finding::ok("not asked (--offline)"));
        } else {
            let finding = runtime.block_on(embedder::look(app, &config.embedding, store.as_ref()));
            checks.add("embedding", finding);
        }
        if config.rerank.provider == RerankProvider::None {
            // Nothing to look at, and nothing amiss.
        } else if args.offline {
            checks.add("reranker", Finding::ok("not asked (--offline)"));
        } else {
            checks.add("reranker", runtime.block_on(reranker::look(app, &config.rerank)));
        }
    }
    runtime.shutdown_background();
    reply(app, checks)
}

fn reply(app: &mut App, Checks(checks): Checks) -> Result<()> {
    let mut counts: BTreeMap<Level, usize> = BTreeMap::new();
    for check in &checks {
        *counts.entry(check.status).or_default() += 1;
    }
    let count = |level: Level| counts.get(&level).copied().unwrap_or_default();
    let (ok, warnings, failures) = (count(Level::Ok), count(Level::Warn), count(Level::Fail));
    let report = Report { checks, ok, warnings, failures };
    let first = report.checks.iter().find(|check| check.kind.is_some());
    let error = first.map(|first| {
        let kind = first.kind.unwrap_or(ErrorKind::Internal);
        let message = if failures == 1 {
            format!("{}: {}", first.name, first.message)
        } else {
            format!("{failures} checks failed, first {}: {}", first.name, first.message)
        };
        first.advice.iter().fold(Error::new(kind, message), |error, advice| error.hint(advice.clone()))
    });
    if let (Some(error), true) = (&error, app.globals.json) {
        let details = serde_json::to_value(&report)
            .map_err(|error| Error::internal("encode the checks").because(error))?;
        let told = Error::new(error.kind(), error.full_message()).details(details);
        return Err(error.hints().iter().fold(told, |told, hint| told.hint(hint.clone())));
    }
    app.reply(&report, |out| {
        for check in &report.checks {
            let mark = match check.status {
                Level::Ok => out.paint("32", "ok  "),
                Level::Warn => out.paint("33", "warn"),
                Level::Fail => out.paint("31", "fail"),
            };
            out.line(format!("{mark}  {}: {}", check.name, check.message))?;
            for advice in &check.advice {
                out.line(format!("      {advice}"))?;
            }
        }
        out.line(format!("{ok} ok, {warnings} to look at, {failures} failed"))
    })?;
    error.map_or(Ok(()), Err)
}

/// The time by our own clock.
fn now() -> clock::Millis {
    clock::now_ms()
}
