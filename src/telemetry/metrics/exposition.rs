//! Encodes samples as Prometheus text, through OpenTelemetry's instruments.

use std::collections::BTreeMap;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::{Encoder, Registry, TextEncoder};

use super::catalogue::{Kind, Metric};
use super::samples::Sample;
use crate::error::{Error, Result};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the samples as Prometheus text. Every call works on a registry of its own: a
/// series that is gone from the samples is gone from the text.
///
/// # Errors
/// [`ErrorKind::Internal`](crate::error::ErrorKind::Internal) when the text cannot be made
/// or lacks a metric: a scrape that silently shows less is worse than one that fails.
pub fn encode(samples: &[Sample]) -> Result<String> {
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter()
        .with_registry(registry.clone())
        .without_target_info()
        // Units are part of our names; a unit given to an instrument would be added again.
        .without_units()
        .scope_info_enabled(false)
        .build()
        .map_err(|error| Error::internal("make the metrics exporter").because(error))?;
    // Must outlive the encoding: a provider that is gone leaves the registry empty.
    let provider = SdkMeterProvider::builder().with_reader(exporter).build();
    let mut by_metric: BTreeMap<Metric, Vec<(Vec<KeyValue>, f64)>> = BTreeMap::new();
    for sample in samples {
        let labels = sample.metric.labels().iter().zip(&sample.labels);
        let attributes = labels.map(|(name, value)| KeyValue::new(*name, value.clone())).collect();
        by_metric.entry(sample.metric).or_default().push((attributes, sample.value));
    }
    let meter = provider.meter("lore");
    let wanted: Vec<Metric> = by_metric.keys().copied().collect();
    for (metric, series) in by_metric {
        observe(&meter, metric, series);
    }
    let families = registry.gather();
    if let Some(missing) =
        wanted.iter().find(|metric| !families.iter().any(|family| family.name() == metric.name()))
    {
        return Err(Error::internal(format!("metric {} is missing from the exposition", missing.name())));
    }
    let mut text = Vec::new();
    TextEncoder::new()
        .encode(&families, &mut text)
        .map_err(|error| Error::internal("encode the metrics").because(error))?;
    drop(provider);
    String::from_utf8(text).map_err(|error| Error::internal("encode the metrics").because(error))
}

fn observe(meter: &opentelemetry::metrics::Meter, metric: Metric, series: Vec<(Vec<KeyValue>, f64)>) {
    match metric.kind() {
        Kind::Gauge => {
            meter
                .f64_observable_gauge(metric.name())
                .with_description(metric.help())
                .with_callback(move |observer| {
                    for (attributes, value) in &series {
                        observer.observe(*value, attributes);
                    }
                })
                .build();
        }
        Kind::Counter => {
            // The exporter adds `_total`, also to a name that has it.
            let name = metric.name().strip_suffix("_total").unwrap_or(metric.name());
            meter
                .f64_observable_counter(name)
                .with_description(metric.help())
                .with_callback(move |observer| {
                    for (attributes, value) in &series {
                        observer.observe(*value, attributes);
                    }
                })
                .build();
        }
    }
}
