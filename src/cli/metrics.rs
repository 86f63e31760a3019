//! `lore metrics`: prints, writes, pushes or serves the metrics of the database.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use super::{App, job_files};
use crate::engine::cancel::Cancel;
use crate::engine::signals;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::job::schedule::Schedule;
use crate::store::Store;
use crate::telemetry::metrics::{self, Known, KnownGraph, push, serve, textfile};

/// Print the metrics, or write, push or serve them.
#[derive(Debug, clap::Args)]
pub struct MetricsArgs {
    /// Write to this file, for the textfile collector of node_exporter
    #[arg(long, value_name = "PATH")]
    textfile: Option<PathBuf>,
    /// Push to the Pushgateway at this address
    #[arg(long, value_name = "URL")]
    push: Option<String>,
    /// Name of the group on the Pushgateway; default: `[metrics] push_group`
    #[arg(long, value_name = "NAME", requires = "push")]
    push_group: Option<String>,
    /// Serve at this address, HOST:PORT, until stopped
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["textfile", "push"])]
    listen: Option<String>,
}

#[derive(Debug, Serialize)]
struct MetricsAnswer {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    textfile: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_group: Option<String>,
}

/// Runs `lore metrics`.
///
/// # Errors
/// When the text cannot be written, pushed or served. A database that cannot be read is no
/// error: the metrics say so.
pub fn run(args: &MetricsArgs, app: &mut App) -> Result<()> {
    let known = known(app)?;
    if let Some(address) = &args.listen {
        return listen(address, known, app);
    }
    let text = metrics::gather(opener(app)?, &known)?;
    let mut answer = MetricsAnswer { text: None, textfile: None, push_group: None };
    if let Some(path) = &args.textfile {
        textfile::write(&app.world.current_dir.join(path), &text)?;
        answer.textfile = Some(path.clone());
    }
    if let Some(gateway) = &args.push {
        let group = args.push_group.clone().unwrap_or_else(|| {
            app.config().map_or_else(|_| String::new(), |config| config.metrics.push_group.clone())
        });
        let runtime = runtime()?;
        runtime.block_on(push::push(gateway, &group, text.clone()))?;
        answer.push_group = Some(group);
    }
    if answer.textfile.is_none() && answer.push_group.is_none() {
        answer.text = Some(text);
    }
    app.reply(&answer, |out| match &answer.text {
        Some(text) => out.line(text.trim_end()),
        None => Ok(()),
    })
}

fn listen(address: &str, known: Known, app: &mut App) -> Result<()> {
    let cancel = Cancel::new();
    signals::install(&cancel)?;
    let open = opener(app)?;
    let gather: Arc<serve::Gather> = Arc::new(move || metrics::gather(&open, &known));
    let runtime = runtime()?;
    let stop = cancel.clone();
    let bound = |local| tracing::info!(%local, "metrics are served");
    let served =
        runtime.block_on(serve::serve(address, gather, bound, async move { stop.cancelled().await }));
    // A scrape under way is not waited for.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    served
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| io_error("start the network runtime", error))
}

/// Returns what opens the database for reading; each gather opens it anew, so that a file
/// that was replaced or appeared later is seen, and nothing is held open between scrapes.
pub(super) fn opener(app: &App) -> Result<impl Fn() -> Result<Store> + Send + Sync + 'static> {
    let path = app.database_path()?;
    let options = app.open_options()?;
    Ok(move || Store::open_read_only(&path, options))
}

/// The jobs and sources that are meant to be seen before they first run.
pub(super) fn known(app: &App) -> Result<Known> {
    let config = app.config()?;
    let mut graphs = Vec::new();
    for found in job_files::all(app)? {
        let job = match found.parse(&[]) {
            Ok(job) => job,
            Err(error) => {
                tracing::warn!(job = %found.name, error.code = error.kind().code(), "a job file is left out of the metrics: it is invalid");
                continue;
            }
        };
        let wanted = match &config.metrics.jobs {
            Some(names) => names.contains(&job.name),
            None => job.schedule.is_some(),
        };
        if wanted {
            graphs.push(KnownGraph {
                steps: job.steps.iter().map(|step| step.id.clone()).collect(),
                period_s: job.schedule.as_deref().and_then(period_s),
                name: job.name,
            });
        }
    }
    if let Some(missing) =
        config.metrics.jobs.iter().flatten().find(|name| !graphs.iter().any(|graph| graph.name == **name))
    {
        return Err(Error::new(
            ErrorKind::Config,
            format!("metrics.jobs names {missing:?}, which is no job"),
        )
        .hint("`lore jobs list` lists the jobs"));
    }
    Ok(Known { graphs, sources: config.sources.keys().cloned().collect() })
}

fn period_s(schedule: &str) -> Option<u64> {
    Schedule::parse(schedule).ok()?.longest_gap().map(|gap| gap.as_secs())
}
