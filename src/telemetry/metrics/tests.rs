use std::collections::BTreeSet;

use super::catalogue::LABELS;
use super::*;
use crate::store::OpenOptions;
use crate::store::metrics::{Persisted, add};

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    (dir, store)
}

fn sync() -> Known {
    Known {
        graphs: vec![KnownGraph {
            name: "sync".to_owned(),
            steps: vec!["ingest".to_owned()],
            period_s: Some(900),
        }],
        sources: vec!["main".to_owned()],
    }
}

fn text(store: Store, known: &Known) -> String {
    gather(|| Ok(store), known).unwrap()
}

#[test]
fn names_and_labels_keep_the_rules() {
    for metric in Metric::ALL {
        let name = metric.name();
        assert!(name.starts_with("lore_"), "{name}");
        assert_eq!(Metric::ALL.iter().filter(|other| other.name() == name).count(), 1, "{name}");
        assert!(metric.help().ends_with('.') && !metric.help().contains('\n'), "{name}");
        for label in metric.labels() {
            assert!(!["job", "instance", "le", "quantile"].contains(label), "{name}");
            assert!(LABELS.iter().any(|(known, _)| known == label), "{name}: label {label} has no meaning");
        }
    }
    let used: BTreeSet<&str> = Metric::ALL.iter().flat_map(|metric| metric.labels()).copied().collect();
    let explained: Vec<&str> = LABELS.iter().map(|(label, _)| *label).collect();
    assert_eq!(explained, used.into_iter().collect::<Vec<_>>());
}

#[test]
fn a_job_that_never_ran_is_there_with_zeros() {
    let (_dir, store) = store();
    let text = text(store, &sync());
    for line in [
        "lore_graph_last_success_timestamp_seconds{graph=\"sync\"} 0",
        "lore_graph_schedule_period_seconds{graph=\"sync\"} 900",
        "lore_graph_runs_total{graph=\"sync\",outcome=\"failed\"} 0",
        "lore_step_failures_total{graph=\"sync\",reason=\"NETWORK\",step=\"ingest\"} 0",
        "lore_source_synced_timestamp_seconds{source=\"main\"} 0",
        "lore_exporter_database_readable 1",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
    }
}

#[test]
fn every_metric_that_needs_no_run_is_in_an_empty_database_and_nothing_else_is() {
    let (_dir, store) = store();
    let text = text(store, &sync());
    let types: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let wanted: BTreeSet<&str> = Metric::ALL
        .iter()
        .filter(|metric| !matches!(metric, Metric::StepDuration | Metric::StepItems))
        .map(|metric| metric.name())
        .collect();
    assert_eq!(types, wanted);
    assert!(!text.contains("otel") && !text.contains("target_info") && !text.contains("NaN"), "{text}");
    assert!(text.ends_with('\n'));
}

#[test]
fn counters_come_from_the_database() {
    let (_dir, store) = store();
    store.write(|tx| add(tx, Persisted::Runs, &["sync", "succeeded"], 4.0)).unwrap();
    store.write(|tx| add(tx, Persisted::RateLimitWait, &["gitlab"], 1.5)).unwrap();
    let text = text(store, &sync());
    assert!(text.contains("lore_graph_runs_total{graph=\"sync\",outcome=\"succeeded\"} 4\n"), "{text}");
    assert!(text.contains("lore_rate_limit_wait_seconds_total{service=\"gitlab\"} 1.5\n"), "{text}");
    assert!(text.contains("# TYPE lore_graph_runs_total counter\n"), "{text}");
}

#[test]
fn a_database_that_cannot_be_read_is_a_value() {
    let missing = std::path::Path::new("/nonexistent/lore.db");
    let text = gather(|| Store::open_read_only(missing, OpenOptions::default()), &sync()).unwrap();
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(values.len(), 2, "{text}");
    assert_eq!(values[1], "lore_exporter_database_readable 0");
}

#[test]
fn label_values_are_escaped() {
    let (_dir, store) = store();
    store.write(|tx| add(tx, Persisted::StepRetries, &["a\"b\\c\nd", "x"], 1.0)).unwrap();
    let text = text(store, &Known::default());
    assert!(text.contains(r#"lore_step_retries_total{graph="a\"b\\c\nd",step="x"} 1"#), "{text}");
}

#[test]
fn a_push_goes_to_a_fixed_group_that_is_never_empty() {
    let url =
        |gateway, group| push::push_url(gateway, group).map(String::from).map_err(|error| error.to_string());
    assert_eq!(url("http://pg:9091", "lore_sync").unwrap(), "http://pg:9091/metrics/job/lore_sync");
    assert_eq!(url("http://pg:9091/sub/?x=1", "a/b").unwrap(), "http://pg:9091/sub/metrics/job/a%2Fb");
    assert!(url("http://pg:9091", "").is_err());
    assert!(url("pg:9091", "lore").is_err());
    assert!(url("nonsense", "lore").is_err());
}

#[cfg(unix)]
#[test]
fn a_textfile_is_replaced_whole_and_readable_by_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lore.prom");
    textfile::write(&path, "a 1\n").unwrap();
    textfile::write(&path, "a 2\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a 2\n");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let error = textfile::write(&dir.path().join("no/such/lore.prom"), "a 1\n").unwrap_err();
    assert!(error.to_string().contains("lore.prom"), "{error}");
}

#[test]
fn query_durations_are_a_histogram_that_only_grows() {
    use std::time::Duration;

    use crate::store::metrics::Answered;
    let (_dir, store) = store();
    let answered = |ms| Answered {
        mode: "hybrid",
        took: Duration::from_millis(ms),
        is_empty: ms == 30,
        requests: &[],
        failed_stages: if ms == 7_000 { &["vector"] } else { &[] },
    };
    for ms in [1, 5, 30, 7_000] {
        crate::store::metrics::count_query(&store, answered(ms)).unwrap();
    }
    let text = text(store, &Known::default());
    for line in [
        "# TYPE lore_query_duration_seconds histogram",
        "lore_query_duration_seconds_bucket{mode=\"hybrid\",le=\"0.005\"} 2",
        "lore_query_duration_seconds_bucket{mode=\"hybrid\",le=\"0.025\"} 2",
        "lore_query_duration_seconds_bucket{mode=\"hybrid\",le=\"0.05\"} 3",
        "lore_query_duration_seconds_bucket{mode=\"hybrid\",le=\"5\"} 3",
        "lore_query_duration_seconds_bucket{mode=\"hybrid\",le=\"+Inf\"} 4",
        "lore_query_duration_seconds_sum{mode=\"hybrid\"} 7.036",
        "lore_query_duration_seconds_count{mode=\"hybrid\"} 4",
        "lore_query_duration_seconds_count{mode=\"lexical\"} 0",
        "lore_queries_empty_total{mode=\"hybrid\"} 1",
        "lore_queries_empty_total{mode=\"lexical\"} 0",
        "lore_queries_degraded_total{stage=\"vector\"} 1",
        "lore_queries_degraded_total{stage=\"rerank\"} 0",
    ] {
        assert!(text.lines().any(|have| have == line), "{line} is missing in\n{text}");
    }
}
