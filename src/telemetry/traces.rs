//! Traces over OTLP/HTTP: a run is the root, step attempts are its children, requests theirs.
//!
//! The trace id of a run is its UUID: the run's row, its log lines, its pings and its trace
//! name each other. Spans are sent in the background; the end of a run waits for a bounded
//! time, and a collector that is down costs the traces, nothing else.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId, TracerProvider as _};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider};
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::Layer;
use tracing_subscriber::{Registry, reload};
use url::Url;

use crate::config::TracingConfig;
use crate::error::{Error, Result};
use crate::secret::redact_url;

/// Longest time that the end of a run waits for a collector.
const MAX_FLUSH: Duration = Duration::from_secs(3);

/// The layer that makes spans, absent until a run is traced.
type Slot = Option<OpenTelemetryLayer<Registry, SdkTracer>>;

static SLOT: OnceLock<reload::Handle<Slot, Registry>> = OnceLock::new();

/// The layer for the subscriber. It makes nothing until [`Traces::start`].
pub(super) fn layer() -> impl Layer<Registry> + Send + Sync {
    let (slot, handle) = reload::Layer::new(Slot::None);
    // The first subscriber serves the process.
    drop(SLOT.set(handle));
    // Our own spans only: those of the exporter's HTTP client would be exported in turn.
    // Requests are spans of the level debug, so that log lines pay nothing for them.
    let targets = ["lore::gitlab", "lore::embed", "lore::assist"].map(|target| (target, LevelFilter::DEBUG));
    slot.with_filter(Targets::new().with_target("lore", LevelFilter::INFO).with_targets(targets))
}

/// Traces that are being made.
#[derive(Debug)]
pub struct Traces {
    provider: SdkTracerProvider,
    timeout: Duration,
    endpoint: String,
}

/// Gives every trace the id of the run.
#[derive(Debug)]
struct RunIds {
    trace_id: TraceId,
    spans: RandomIdGenerator,
}

impl IdGenerator for RunIds {
    fn new_trace_id(&self) -> TraceId {
        self.trace_id
    }

    fn new_span_id(&self) -> SpanId {
        self.spans.new_span_id()
    }
}

/// The trace id of a run: its UUID without the hyphens.
pub fn trace_id(run_uuid: &str) -> String {
    run_uuid.replace('-', "")
}

impl Traces {
    /// Starts making traces; nothing when no collector is configured.
    ///
    /// # Errors
    /// When the address or a header is not usable.
    pub fn start(
        config: &TracingConfig,
        vars: &dyn Fn(&str) -> Option<String>,
        run_uuid: &str,
    ) -> Result<Option<Self>> {
        let (Some(endpoint), Some(slot)) = (&config.endpoint, SLOT.get()) else { return Ok(None) };
        let url = endpoint_url(endpoint)?;
        let mut headers = HashMap::new();
        for (name, reference) in &config.headers {
            let secret = reference.read(&format!("tracing.headers.{name}"), vars)?;
            headers.insert(name.clone(), secret.expose().to_owned());
        }
        let timeout = config.timeout.min(MAX_FLUSH);
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_endpoint(url.as_str())
            .with_timeout(timeout)
            .with_headers(headers)
            .build()
            .map_err(|error| Error::config("tracing.endpoint: cannot make an exporter").because(error))?;
        let trace_id = TraceId::from_hex(&trace_id(run_uuid))
            .map_err(|error| Error::internal("make a trace id of the run's UUID").because(error))?;
        let resource = Resource::builder()
            .with_service_name(config.service_name.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_id_generator(RunIds { trace_id, spans: RandomIdGenerator::default() })
            .with_resource(resource)
            .with_batch_exporter(exporter)
            .build();
        let layer = tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("lore"))
            .with_location(false)
            // Of no use in a batch job, and paid for with every poll of every request.
            .with_threads(false)
            .with_tracked_inactivity(false);
        slot.reload(Some(layer)).map_err(|error| Error::internal("start traces").because(error))?;
        Ok(Some(Self { provider, timeout, endpoint: redact_url(&url) }))
    }

    /// Sends what is left, waiting for a bounded time.
    pub fn finish(self) {
        if let Some(Err(error)) = SLOT.get().map(|slot| slot.reload(None)) {
            tracing::debug!("stop traces: {error}");
        }
        if let Err(error) = self.provider.shutdown_with_timeout(self.timeout) {
            tracing::warn!(endpoint = %self.endpoint, "traces were not sent: {error}");
        }
    }
}

/// The address that spans are posted to: a collector's own address gets the usual path.
fn endpoint_url(endpoint: &str) -> Result<Url> {
    let bad = |why: String| {
        Error::config(format!("tracing.endpoint: {why}")).hint(
            "give the address of an OTLP collector that takes HTTP, for example http://otel-collector:4318",
        )
    };
    let mut url = Url::parse(endpoint).map_err(|error| bad(format!("not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("not an http or https URL".to_owned()));
    }
    if url.path() == "/" {
        url.set_path("/v1/traces");
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_gets_the_usual_path_and_a_path_that_is_given_stays() {
        for (given, wanted) in [
            ("http://c:4318", "http://c:4318/v1/traces"),
            ("http://c:4318/", "http://c:4318/v1/traces"),
            ("https://c/otlp/v1/traces", "https://c/otlp/v1/traces"),
        ] {
            assert_eq!(endpoint_url(given).unwrap().as_str(), wanted);
        }
        assert!(endpoint_url("c:4318").is_err());
        assert!(endpoint_url("collector").is_err());
    }

    #[test]
    fn the_trace_id_of_a_run_is_its_uuid() {
        let id = trace_id("0190a6de-7b3c-4c3e-9d5b-6a1f0e2b3c4d");
        assert_eq!(TraceId::from_hex(&id).unwrap().to_string(), id);
    }
}
