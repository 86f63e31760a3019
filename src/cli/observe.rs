//! What the outside is told about a run: pings, traces, metrics. Nothing here changes how a
//! run ends; the lock is released before any of it is waited for.

use std::time::Duration;

use super::App;
use super::metrics::{known, opener};
use crate::engine::run::RunReport;
use crate::error::{Error, ErrorKind, Result};
use crate::search::Answer;
use crate::store::metrics::{self as counters, Answered, Service};
use crate::store::{Store, runs};
use crate::telemetry::metrics::{self, push, textfile};
use crate::telemetry::notify::{self, Event};
use crate::telemetry::traces::{self, Traces};

/// Longest time that the end of a run waits for pings and the Pushgateway together.
const MAX_WAIT: Duration = Duration::from_secs(6);

/// A run that is observed.
pub(super) struct Observed {
    uuid: String,
    job: String,
    traces: Option<Traces>,
    runtime: Option<tokio::runtime::Runtime>,
    /// The first ping under way: the last one must not overtake it.
    start_ping: Option<tokio::task::JoinHandle<()>>,
}

impl Observed {
    /// Begins: starts the traces and sends the first ping, without waiting for it.
    pub(super) fn begin(app: &App, store: &Store, job: &str, run_id: i64) -> Self {
        let uuid = match store.read(|tx| runs::get(tx, run_id)) {
            Ok(run) => run.uuid,
            Err(error) => {
                tracing::warn!("look up the UUID of the run: {error}");
                uuid::Uuid::new_v4().to_string()
            }
        };
        crate::telemetry::set_trace_id(Some(traces::trace_id(&uuid)));
        let mut observed = Self { uuid, job: job.to_owned(), traces: None, runtime: None, start_ping: None };
        if let Err(error) = observed.start(app) {
            tracing::warn!(
                error.code = error.kind().code(),
                "this run is not observed as configured: {error}"
            );
        }
        observed
    }

    fn start(&mut self, app: &App) -> Result<()> {
        match known(app) {
            Ok(known) => metrics::remember_jobs(known.graphs),
            Err(error) => warn(Err(error)),
        }
        let config = app.config()?;
        let vars = |name: &str| app.var(name);
        if config.metrics.push.is_some() || config.notify.contains_key(&self.job) {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            self.runtime =
                Some(runtime.map_err(|error| Error::internal("start the network runtime").because(error))?);
        }
        self.traces = Traces::start(&config.tracing, &vars, &self.uuid)?;
        if let (Some(runtime), Some(notify)) = (&self.runtime, config.notify.get(&self.job))
            && let Some(url) = notify::address(notify, &self.job, Event::Start, &self.uuid, &vars)?
        {
            let text = format!("job {} begins", self.job);
            self.start_ping = Some(runtime.spawn(async move { warn(notify::ping(url, text).await) }));
        }
        Ok(())
    }

    /// Ends: everything is told, at most for [`MAX_WAIT`] and the time of the traces.
    pub(super) fn end(mut self, app: &App, store: &Store, error: Option<&Error>) {
        if error.is_some_and(|error| error.kind() == ErrorKind::Fenced) {
            warn(counters::count_fenced(store));
        }
        let code = error.map_or(0, |error| error.kind().exit_code());
        warn(self.tell(app, code));
        if let Some(runtime) = self.runtime {
            runtime.shutdown_timeout(Duration::from_millis(100));
        }
        if let Some(traces) = self.traces {
            traces.finish();
        }
    }

    fn tell(&mut self, app: &App, code: u8) -> Result<()> {
        let config = app.config()?;
        let vars = |name: &str| app.var(name);
        let wanted = config.metrics.textfile.is_some() || config.metrics.push.is_some();
        let text = if wanted {
            let text = known(app).and_then(|known| metrics::gather(opener(app)?, &known));
            text.map_err(|error| warn(Err(error))).ok()
        } else {
            None
        };
        if let (Some(path), Some(text)) = (&config.metrics.textfile, &text) {
            warn(textfile::write(path, text));
        }
        let Some(runtime) = &self.runtime else { return Ok(()) };
        let address = match config.notify.get(&self.job) {
            Some(notify) => notify::address(notify, &self.job, Event::End(code), &self.uuid, &vars),
            None => Ok(None),
        };
        let ping = address.unwrap_or_else(|error| {
            warn(Err(error));
            None
        });
        let said = format!("job {} ended with exit code {code}", self.job);
        let start_ping = self.start_ping.take();
        let pinging = async {
            if let Some(start_ping) = start_ping
                && let Err(error) = start_ping.await
            {
                tracing::debug!("the first ping: {error}");
            }
            if let Some(url) = ping {
                warn(notify::ping(url, said).await);
            }
        };
        let pushing = async {
            if let (Some(gateway), Some(text)) = (&config.metrics.push, text) {
                warn(push::push(gateway, &config.metrics.push_group, text).await);
            }
        };
        let both = async { tokio::join!(pinging, pushing) };
        if runtime.block_on(async { tokio::time::timeout(MAX_WAIT, both).await }).is_err() {
            tracing::warn!("pings or metrics were not delivered in time");
        }
        Ok(())
    }
}

/// The span of a run: the root of its trace, and on each of its log lines.
pub(super) fn run_span(run_id: i64, job: &str) -> tracing::Span {
    tracing::info_span!(
        "run",
        run_id,
        job = %job,
        state = tracing::field::Empty,
        error.code = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
    )
}

/// Says in the trace how the run ended.
pub(super) fn record(span: &tracing::Span, ran: &Result<RunReport>) {
    let error = match ran {
        Ok(report) => {
            span.record("state", report.state.as_str());
            report.error.as_ref()
        }
        Err(error) => Some(error),
    };
    if let Some(error) = error {
        span.record("error.code", error.kind().code());
        span.record("otel.status_code", "ERROR");
    }
}

/// Counts a query that was answered; the one who asked has the answer already.
pub(super) fn query(app: &App, store: &Store, answer: &Answer) {
    if !app.config().is_ok_and(|config| config.metrics.queries) {
        return;
    }
    let failed: Vec<&str> =
        answer.stages.iter().filter(|stage| stage.status.is_failure()).map(|stage| stage.name).collect();
    let requests: Vec<_> =
        answer.stages.iter().filter_map(|stage| Some((asked_by(stage.name)?, stage.requests))).collect();
    let answered = Answered {
        mode: answer.mode.as_str(),
        took: Duration::from_millis(app.elapsed_ms()),
        is_empty: answer.hits.is_empty(),
        failed_stages: &failed,
        requests: &requests,
    };
    if let Err(error) = counters::count_query(store, answered) {
        tracing::debug!("the query is not counted: {error}");
    }
}

/// Who is asked by a stage of a query.
fn asked_by(stage: &str) -> Option<Service> {
    [(Service::Embedding, "vector"), (Service::Rerank, "rerank"), (Service::Extract, "extract")]
        .into_iter()
        .find_map(|(service, name)| (name == stage).then_some(service))
}

/// What fails here is logged and goes no further.
fn warn(result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(error.code = error.kind().code(), "the run's result was not told everywhere: {error}");
    }
}
