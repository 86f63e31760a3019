//! Whether the embedding service is there, has its model, gives a text one vector, and answers
//! a query in time.

use std::time::{Duration, Instant};

use super::{App, failure};
use crate::config::EmbeddingConfig;
use crate::embed::{Embedder, Health, Probe};
use crate::error::{Error, ErrorKind};
use crate::gitlab::diagnose::Finding;
use crate::store::Store;
use crate::store::embeddings;
use crate::traffic::StatsView;

/// Longest wait for everything that the service is asked; it may load its model first.
const PATIENCE: Duration = Duration::from_secs(60);

/// Smallest cosine between a text's vector in a batch and alone.
const MIN_SIMILARITY: f64 = 0.99;

/// What a query may be.
const QUESTION: &str = "how is a paper jam of the printer cleared?";

/// Looks at the service.
pub(super) async fn look(app: &App, config: &EmbeddingConfig, store: Option<&Store>) -> Finding {
    let patient = EmbeddingConfig { query_timeout: PATIENCE.max(config.query_timeout), ..config.clone() };
    let mut embedder = match Embedder::new(&patient, &|name| app.var(name)) {
        Ok(embedder) => embedder,
        Err(error) => return failure(&error),
    };
    let ask = async {
        let health = embedder.check().await?;
        let probe = embedder.probe().await?;
        // By now the model is loaded: so long every query waits.
        let asked = Instant::now();
        embedder.embed_query(QUESTION).await?;
        Ok::<_, Error>((health, probe, asked.elapsed()))
    };
    let (health, probe, took) = match tokio::time::timeout(PATIENCE, ask).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => return failure(&error),
        Err(_) => return late(&embedder.stats()),
    };
    let index = store.and_then(|store| store.read(embeddings::active).ok().flatten());
    let what = format!("{} with {}, {} dimensions", config.provider.as_str(), health.model, probe.dims);
    judge(&what, &health, &probe, index.map(|index| index.dims), took, config.query_timeout)
}

/// Not all that was asked was answered in time: by silence, or by answers that ask to wait.
fn late(stats: &StatsView) -> Finding {
    let seconds = PATIENCE.as_secs();
    if stats.retries == 0 {
        return Finding::fail(
            ErrorKind::EmbeddingUnavailable,
            format!("no answer within {seconds} s"),
            "look at the service's log; the first request loads its model",
        );
    }
    Finding::fail(
        ErrorKind::RateLimited,
        format!(
            "answers, but asks to wait: {} of {} requests within {seconds} s had to be sent again (429 or 503)",
            stats.retries, stats.requests
        ),
        "the service's limit is used up, or it is overloaded: see its quota and its log; `concurrency` in [embedding] is what lore asks at once",
    )
}

fn judge(
    what: &str,
    health: &Health,
    probe: &Probe,
    index_dims: Option<usize>,
    took: Duration,
    timeout: Duration,
) -> Finding {
    if probe.batch_similarity < MIN_SIMILARITY {
        return Finding::fail(
            ErrorKind::EmbeddingFailed,
            format!(
                "{what}: a text gets another vector in a batch than alone (cosine {:.3})",
                probe.batch_similarity
            ),
            "the service mixes up the texts of a batch: update it, or set batch = 1 in [embedding]",
        );
    }
    if let Some(dims) = index_dims
        && dims != probe.dims
    {
        return Finding::warn(
            format!("{what}; the index has {dims} dimensions"),
            "`lore embed` builds a new index; until then queries are answered by words",
        );
    }
    if took > timeout {
        return Finding::warn(
            format!(
                "{what}: a query took {:.1} s, and queries wait {:.1} s: they are answered by words only",
                took.as_secs_f64(),
                timeout.as_secs_f64()
            ),
            "raise `query_timeout` in [embedding], or give the service more to compute with",
        );
    }
    if health.notes.is_empty() {
        return Finding::ok(what);
    }
    Finding::warn(format!("{what}; {}", health.notes.join("; ")), "see the service's documentation")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitlab::diagnose::Level;

    #[test]
    fn a_service_that_is_slower_than_queries_wait_is_found_out() {
        let (health, probe) = (Health::default(), Probe { dims: 64, batch_similarity: 1.0 });
        let second = Duration::from_secs(1);
        let judged = |took, dims| judge("x", &health, &probe, dims, took, 3 * second);
        assert_eq!(judged(2 * second, Some(64)).level, Level::Ok);
        let slow = judged(8 * second, None);
        assert_eq!(slow.level, Level::Warn);
        assert!(slow.text.contains("took 8.0 s, and queries wait 3.0 s"), "{}", slow.text);
        assert_eq!(judged(second, Some(65)).level, Level::Warn);
    }

    #[test]
    fn one_that_asks_to_wait_for_ever_is_no_silent_one() {
        let silent = late(&StatsView { requests: 1, ..StatsView::default() });
        assert_eq!(silent.kind, Some(ErrorKind::EmbeddingUnavailable));
        let busy = late(&StatsView { requests: 7, retries: 6, ..StatsView::default() });
        assert_eq!(busy.kind, Some(ErrorKind::RateLimited));
        assert!(busy.text.contains("6 of 7") && !busy.text.contains("loads"), "{}", busy.text);
    }
}
