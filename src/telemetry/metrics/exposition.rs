//! Encodes samples as Prometheus text, through OpenTelemetry's instruments.

use std::collections::BTreeMap;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use prometheus::core::{Collector, Desc};
use prometheus::{Encoder, Registry, TextEncoder, proto};

use super::catalogue::{Kind, Metric};
use super::samples::{Buckets, Sample, Value};
use crate::error::{Error, Result};
use crate::store::metrics::QUERY_BUCKETS;

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
    let mut histograms: BTreeMap<Metric, Vec<(&Sample, &Buckets)>> = BTreeMap::new();
    for sample in samples {
        match &sample.value {
            Value::Number(value) => {
                let labels = sample.metric.labels().iter().zip(&sample.labels);
                let attributes = labels.map(|(name, value)| KeyValue::new(*name, value.clone())).collect();
                by_metric.entry(sample.metric).or_default().push((attributes, *value));
            }
            Value::Histogram(buckets) => {
                histograms.entry(sample.metric).or_default().push((sample, buckets));
            }
        }
    }
    let meter = provider.meter("lore");
    let wanted: Vec<Metric> = by_metric.keys().chain(histograms.keys()).copied().collect();
    for (metric, series) in histograms {
        let failed = |error| Error::internal(format!("register metric {}", metric.name())).because(error);
        registry.register(Box::new(Kept::new(metric, &series).map_err(failed)?)).map_err(failed)?;
    }
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
        // Kept ones are registered beside the meter: no instrument takes counts that were
        // added up before.
        Kind::Histogram => {}
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

/// A histogram that was counted elsewhere.
struct Kept {
    desc: Desc,
    family: proto::MetricFamily,
}

impl Kept {
    fn new(metric: Metric, series: &[(&Sample, &Buckets)]) -> prometheus::Result<Self> {
        let names = metric.labels().iter().map(|name| (*name).to_owned()).collect();
        let desc = Desc::new(metric.name().to_owned(), metric.help().to_owned(), names, Default::default())?;
        let mut family = proto::MetricFamily::default();
        family.set_name(metric.name().to_owned());
        family.set_help(metric.help().to_owned());
        family.set_field_type(proto::MetricType::HISTOGRAM);
        family.set_metric(series.iter().map(|(sample, buckets)| one(metric, sample, buckets)).collect());
        Ok(Self { desc, family })
    }
}

fn one(metric: Metric, sample: &Sample, buckets: &Buckets) -> proto::Metric {
    let labels = metric.labels().iter().zip(&sample.labels).map(|(name, value)| {
        let mut label = proto::LabelPair::default();
        label.set_name((*name).to_owned());
        label.set_value(value.clone());
        label
    });
    let bounds = QUERY_BUCKETS.iter().zip(&buckets.cumulative).map(|(bound, count)| {
        let mut bucket = proto::Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(*count);
        bucket
    });
    let mut histogram = proto::Histogram::default();
    histogram.set_bucket(bounds.collect());
    histogram.set_sample_count(buckets.count);
    histogram.set_sample_sum(buckets.sum);
    let mut out = proto::Metric::from_label(labels.collect());
    out.set_histogram(histogram);
    out
}

impl Collector for Kept {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        vec![self.family.clone()]
    }
}
