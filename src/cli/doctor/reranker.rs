//! Whether the reranker answers in time, and whether it can tell an answer from something else.

use std::time::{Duration, Instant};

use super::{App, failure};
use crate::assist::rerank::Reranker;
use crate::config::RerankConfig;
use crate::error::ErrorKind;
use crate::gitlab::diagnose::Finding;

/// Longest wait: the first request may load the model.
const PATIENCE: Duration = Duration::from_secs(60);

/// A question, then texts of which only the second one answers it.
const QUESTION: &str = "how is a forgotten password reset?";
const TEXTS: [&str; 3] = [
    "The lighthouse was painted white and red.",
    "To reset a password that was forgotten, follow the link in the mail.",
    "Rain is expected in the afternoon.",
];

/// Asks the configured reranker once, as a query does but with more patience.
pub(super) async fn look(app: &App, config: &RerankConfig) -> Finding {
    let patient = RerankConfig { timeout: PATIENCE.max(config.timeout), ..config.clone() };
    let reranker = match Reranker::of_config(&patient, &|name| app.var(name)) {
        Ok(Some(reranker)) => reranker,
        Ok(None) => return Finding::ok("none is configured"),
        Err(error) => return failure(&error),
    };
    let what = format!("{} at {}", config.provider.as_str(), reranker.endpoint());
    let started = Instant::now();
    let texts = TEXTS.map(str::to_owned);
    let asked = reranker.scores(QUESTION, &texts);
    let scores = match tokio::time::timeout(patient.timeout, asked).await {
        Ok(Ok(scores)) => scores,
        Ok(Err(failed)) => return failure(&failed.into_error()),
        Err(_) => {
            return Finding::fail(
                ErrorKind::Network,
                format!("{what}: no answer within {} s", patient.timeout.as_secs()),
                "look at the service's log; the first request loads its model",
            );
        }
    };
    judge(&what, &scores, started.elapsed(), config.timeout)
}

fn judge(what: &str, scores: &[Option<f64>], took: Duration, timeout: Duration) -> Finding {
    let &[Some(first), Some(answer), Some(last)] = scores else {
        return Finding::warn(
            format!("{what}: a text was given no score"),
            "results without a score keep their place; see the service's log",
        );
    };
    if answer <= first.max(last) {
        return Finding::warn(
            format!("{what}: the text that answers a question is not scored best"),
            "check that the service serves a model that reranks, and `model` in [rerank]",
        );
    }
    if took > timeout {
        return Finding::warn(
            format!(
                "{what}: three texts took {:.1} s, queries wait {:.1} s",
                took.as_secs_f64(),
                timeout.as_secs_f64()
            ),
            "raise `timeout` in [rerank]; the first request after a start may be slower",
        );
    }
    Finding::ok(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitlab::diagnose::Level;

    #[test]
    fn scores_that_say_nothing_are_found_out() {
        let second = Duration::from_secs(1);
        let level = |scores: &[Option<f64>], took| judge("x", scores, took, second).level;
        assert_eq!(level(&[Some(-9.0), Some(-1.0), Some(-8.0)], Duration::ZERO), Level::Ok);
        assert_eq!(level(&[Some(-9.0), Some(-1.0), Some(-8.0)], 2 * second), Level::Warn);
        assert_eq!(level(&[Some(0.5), Some(0.5), Some(0.5)], Duration::ZERO), Level::Warn);
        assert_eq!(level(&[Some(0.1), None, Some(0.1)], Duration::ZERO), Level::Warn);
    }
}
