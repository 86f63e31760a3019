//! `ingest`: brings what changed at the sources into the database.

pub(in crate::steps) mod connect;
pub mod export;
pub mod gitlab;
pub(in crate::steps) mod servers;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Config, SourceConfig};
use crate::diagnostic::nearest;
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Error, ErrorKind, Result};
use crate::export::demo;

/// Reads the sources and stores what is new or changed: projects, labels, milestones,
/// issues, merge requests and, from export archives, their discussions.
///
/// Everything that changed is queued for `regenerate-docs`, and discussions that have to
/// be fetched from a server for `fetch-discussions`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ingest {
    /// Name of one source, `[sources.NAME]`. Default: every configured source. `demo`
    /// names the sample that is built in, unless the configuration has a source of that name.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Step for Ingest {
    const KIND: &'static str = "ingest";
    const SUMMARY: &'static str = "reads the sources and stores what changed";
    const EXAMPLE: &'static str = "{ source = \"demo\" }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let targets = targets(ctx.config, self.source.as_deref())?;
        let mut report = StepReport::default();
        let mut failures = Vec::new();
        for target in &targets {
            let Err(error) = target.ingest(ctx, &mut report) else { continue };
            // A stop, a lost lock or a broken database is no matter of this source.
            ctx.check()?;
            if !is_about_source(error.kind()) {
                return Err(error);
            }
            let error = error.context(format!("ingest source {:?}", target.name));
            if targets.len() > 1 {
                // The runner logs the step's own error, which is this one when it is alone.
                tracing::error!(source = target.name, error = %error, "a source failed");
            }
            report.failing += 1;
            report.warn(error.to_string());
            report.add("sources_failed", 1);
            failures.push(error);
        }
        if failures.is_empty() { Ok(report) } else { Err(failed(failures, targets.len(), &report)) }
    }
}

/// A source to ingest.
struct Target<'a> {
    name: &'a str,
    source: Source<'a>,
}

enum Source<'a> {
    Configured(&'a SourceConfig),
    Demo,
}

impl Target<'_> {
    fn ingest(&self, ctx: &StepCtx<'_>, report: &mut StepReport) -> Result<()> {
        match self.source {
            Source::Configured(SourceConfig::Gitlab(config)) => {
                gitlab::ingest(ctx, self.name, config, report)
            }
            Source::Configured(SourceConfig::GitlabExport(config)) => {
                export::ingest(ctx, self.name, config, report)
            }
            Source::Demo => export::ingest_demo(ctx, report),
        }
    }
}

/// Decides what to ingest.
fn targets<'a>(config: &'a Config, wanted: Option<&'a str>) -> Result<Vec<Target<'a>>> {
    let configured =
        |(name, source): (&'a String, &'a SourceConfig)| Target { name, source: Source::Configured(source) };
    let Some(wanted) = wanted else {
        if config.sources.is_empty() {
            return Err(Error::config("no source is configured")
                .hint(
                    "`lore config init` writes a starter file; describe a source under [sources.NAME] in it",
                )
                .hint("`lore run demo` shows lore on a sample, without any configuration"));
        }
        return Ok(config.sources.iter().map(configured).collect());
    };
    match config.sources.get_key_value(wanted) {
        Some(found) => Ok(vec![configured(found)]),
        None if wanted == demo::SOURCE => Ok(vec![Target { name: demo::SOURCE, source: Source::Demo }]),
        None => Err(unknown_source(config, wanted)),
    }
}

/// The error of a step that names a source which is not configured.
pub(super) fn unknown_source(config: &Config, wanted: &str) -> Error {
    let known: Vec<&str> = config.sources.keys().map(String::as_str).chain([demo::SOURCE]).collect();
    let error = Error::config(format!("there is no source {wanted:?}"));
    let error = match nearest(wanted, known.iter().copied()) {
        Some(name) => error.hint(format!("did you mean {name:?}?")),
        None => error,
    };
    error.hint(format!("known sources: {}", known.join(", ")))
}

/// Whether an error says something about one source, so that the others may go on.
pub(super) fn is_about_source(kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::Config
        | ErrorKind::TokenNotSet
        | ErrorKind::Auth
        | ErrorKind::SourceNotFound
        | ErrorKind::RateLimited
        | ErrorKind::Network
        | ErrorKind::Io
        | ErrorKind::Internal
        | ErrorKind::RunFailed => true,
        ErrorKind::Usage
        | ErrorKind::NoUsableTokens
        | ErrorKind::DatabaseBusy
        | ErrorKind::Database
        | ErrorKind::DatabaseVersion
        | ErrorKind::InvalidEnumValue
        | ErrorKind::EmbeddingUnavailable
        | ErrorKind::EmbeddingModelNotFound
        | ErrorKind::EmbeddingFailed
        | ErrorKind::ReferenceNotFound
        | ErrorKind::ItemsFailing
        | ErrorKind::IntegrityFindings
        | ErrorKind::DiskFull
        | ErrorKind::Locked
        | ErrorKind::Fenced
        | ErrorKind::Interrupted
        | ErrorKind::Terminated => false,
    }
}

/// The step's error when sources could not be read: the common kind, or that there are several.
/// What the others brought is stored, and told in the details.
fn failed(mut failures: Vec<Error>, n_sources: usize, report: &StepReport) -> Error {
    if n_sources == 1
        && let Some(only) = failures.pop()
    {
        return only;
    }
    let kinds: Vec<ErrorKind> = failures.iter().map(Error::kind).collect();
    let kind = match kinds.as_slice() {
        [first, rest @ ..] if rest.iter().all(|kind| kind == first) => *first,
        _ => ErrorKind::RunFailed,
    };
    let messages: Vec<String> = failures.iter().map(Error::full_message).collect();
    let what = if failures.len() == n_sources {
        "no source could be read".to_owned()
    } else {
        format!("{} of {n_sources} sources could not be read; the others were", failures.len())
    };
    let mut error = Error::new(kind, format!("{what}: {}", messages.join("; ")));
    for hint in failures.iter().flat_map(|failure| failure.hints()) {
        if !error.hints().contains(hint) {
            error = error.hint(hint.clone());
        }
    }
    error = match failures.iter().filter_map(Error::retry_after).max() {
        Some(wait) => error.retry_after_ms(wait),
        None => error,
    };
    match serde_json::to_value(report) {
        Ok(report) => error.details(report),
        Err(_) => error,
    }
}
