//! The reference of the metrics, `docs/metrics.md`.

use super::catalogue::{Kind, LABELS, Metric};

/// Returns the reference as Markdown.
pub fn markdown() -> String {
    let mut text = String::from(
        "<!-- Made from src/telemetry/metrics/catalogue.rs by `just gen`; do not edit. -->\n\n# Metrics\n\n\
         `lore metrics` reads the database and prints all of them; `--textfile PATH` writes them to a file for\n\
         node_exporter, `--push URL` to a Pushgateway, `--listen ADDR` serves them. The three ways show the same\n\
         values: counters are kept in the database and grow across processes. Times are Unix seconds, 0 means never.\n\n\
         | metric | kind | labels | meaning |\n|---|---|---|---|\n",
    );
    for metric in Metric::ALL {
        let kind = match metric.kind() {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<String> = metric.labels().iter().map(|label| format!("`{label}`")).collect();
        text.push_str(&format!(
            "| `{}` | {kind} | {} | {} |\n",
            metric.name(),
            labels.join(", "),
            metric.help()
        ));
    }
    text.push_str("\n## Labels\n\nNo label holds an id, a URL or a project: the number of series is bounded by jobs, steps and sources.\n\n| label | values |\n|---|---|\n");
    for (label, values) in LABELS {
        text.push_str(&format!("| `{label}` | {values} |\n"));
    }
    text
}
