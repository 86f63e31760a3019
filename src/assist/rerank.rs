//! Rerankers: text-embeddings-inference's `/rerank`, and `/v1/rerank` as Cohere and Jina have it.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::Client;
use super::{Failed, versioned};
use crate::config::{RerankConfig, RerankProvider};
use crate::error::{Error, Result};
use crate::traffic::StatsView;

/// Texts in one request: the default limit of text-embeddings-inference.
const BATCH: usize = 32;

/// Characters below which a text that is refused is not cut further.
const SHORTEST: usize = 200;

/// A reranker.
#[derive(Debug)]
pub struct Reranker {
    client: Client,
    provider: RerankProvider,
    model: Option<String>,
    timeout: Duration,
}

impl Reranker {
    /// The reranker of a configuration; none when there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::error::ErrorKind::Config) for an address that cannot be
    /// used, [`ErrorKind::TokenNotSet`](crate::error::ErrorKind::TokenNotSet) for a token that
    /// is not set.
    pub fn of_config(config: &RerankConfig, vars: &dyn Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        if config.provider == RerankProvider::None {
            return Ok(None);
        }
        let url = config.url.as_deref().ok_or_else(|| Error::config("rerank.url: no address is given"))?;
        let token = config.token.as_ref().map(|token| token.read("rerank.token", vars)).transpose()?;
        let client = Client::new(("the reranker", "rerank.url"), url, token, config.ca_file.as_deref())?;
        Ok(Some(Self {
            client,
            provider: config.provider,
            model: config.model.clone(),
            timeout: config.timeout,
        }))
    }

    /// Its address without secrets.
    pub fn endpoint(&self) -> String {
        self.client.shown()
    }

    /// Counts of the requests so far.
    pub fn stats(&self) -> StatsView {
        self.client.stats()
    }

    /// Asks how well each text answers the query; texts without a score are those that the
    /// service is silent about. Texts that are too many for a request go in two; those that are
    /// refused as too long are cut once.
    ///
    /// # Errors
    /// See [`Failed`].
    pub async fn scores(&self, query: &str, texts: &[String]) -> Result<Vec<Option<f64>>, Failed> {
        let deadline = Instant::now() + self.timeout;
        let mut out = Vec::with_capacity(texts.len());
        let mut left: Vec<&[String]> = texts.chunks(BATCH).rev().collect();
        while let Some(batch) = left.pop() {
            let refusal = match self.call(query, batch, deadline).await {
                Ok(scores) => {
                    out.extend(scores);
                    continue;
                }
                Err(refused) => refused,
            };
            let failed = match refusal {
                (failed, Refusal::Final) => return Err(failed),
                (_, Refusal::TooMany) if batch.len() > 1 => {
                    left.extend(halves(batch).into_iter().rev());
                    continue;
                }
                (failed, Refusal::TooMany | Refusal::TooLong) => failed,
            };
            let longest = batch.iter().map(|text| text.chars().count()).max().unwrap_or(0);
            if longest <= SHORTEST {
                return Err(failed);
            }
            let shorter: Vec<String> =
                batch.iter().map(|text| text.chars().take((longest / 2).max(SHORTEST)).collect()).collect();
            out.extend(self.call(query, &shorter, deadline).await.map_err(|(failed, _)| failed)?);
        }
        if out.iter().all(Option::is_none) {
            return Err(self.client.useless("gives no text a score"));
        }
        Ok(out)
    }

    /// One request; with an error, what may help.
    async fn call(
        &self,
        query: &str,
        texts: &[String],
        deadline: Instant,
    ) -> Result<Vec<Option<f64>>, (Failed, Refusal)> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err((self.client.late(self.timeout), Refusal::Final));
        }
        let base = self.client.path();
        let (path, body) = match self.provider {
            RerankProvider::Cohere => {
                let mut body = json!({ "query": query, "documents": texts, "top_n": texts.len() });
                if let Some(model) = &self.model {
                    body["model"] = model.as_str().into();
                }
                (versioned(base, "rerank"), body)
            }
            RerankProvider::Tei | RerankProvider::None => {
                let base = base.strip_suffix("/rerank").unwrap_or(base);
                let body = json!({ "query": query, "texts": texts, "raw_scores": false, "truncate": true });
                (format!("{base}/rerank"), body)
            }
        };
        let answer = self.client.post(&path, &body, left).await.map_err(|(failed, status)| {
            let is_size = status.is_some_and(|status| matches!(status.as_u16(), 400 | 413 | 422));
            // "batch size 20 > maximum allowed batch size 8"
            let refusal = match (is_size, failed.message().contains("batch")) {
                (false, _) => Refusal::Final,
                (true, true) => Refusal::TooMany,
                (true, false) => Refusal::TooLong,
            };
            (failed, refusal)
        })?;
        read(&answer, texts.len()).map_err(|why| (self.client.useless(&why), Refusal::Final))
    }
}

/// What may help when a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// Nothing.
    Final,
    /// Fewer texts.
    TooMany,
    /// Shorter texts.
    TooLong,
}

fn halves<T>(list: &[T]) -> [&[T]; 2] {
    let (one, two) = list.split_at(list.len().div_ceil(2));
    [one, two]
}

/// Reads scores by the index of their text. Scores of other texts than were sent, or two of
/// one, make the whole answer worthless: nobody knows whose the others are.
fn read(answer: &Value, n: usize) -> Result<Vec<Option<f64>>, String> {
    let list = [answer, &answer["results"], &answer["data"]].into_iter().find_map(Value::as_array);
    let list = list.ok_or_else(|| "answers without a list of scores".to_owned())?;
    let mut scores: Vec<Option<Option<f64>>> = vec![None; n];
    for item in list {
        let index = item["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let index = index.ok_or_else(|| "gives a score without the index of its text".to_owned())?;
        let slot = scores.get_mut(index).ok_or_else(|| format!("gives a score to text {index} of {n}"))?;
        let score = [&item["score"], &item["relevance_score"]].into_iter().find_map(Value::as_f64);
        if slot.replace(score.filter(|score| score.is_finite())).is_some() {
            return Err(format!("gives text {index} two scores"));
        }
    }
    Ok(scores.into_iter().map(Option::flatten).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_08_the_index_decides_and_a_broken_one_rejects_the_answer() {
        let tei =
            json!([{ "index": 1, "score": 0.9 }, { "index": 2, "score": -3 }, { "index": 0, "score": null }]);
        assert_eq!(read(&tei, 3).unwrap(), [None, Some(0.9), Some(-3.0)]);
        let cohere = json!({ "results": [{ "index": 1, "relevance_score": 0.5 }] });
        assert_eq!(read(&cohere, 2).unwrap(), [None, Some(0.5)]);
        let voyage = json!({ "data": [{ "index": 0, "relevance_score": 0.5 }] });
        assert_eq!(read(&voyage, 1).unwrap(), [Some(0.5)]);
        for broken in [
            json!([{ "index": 3, "score": 1 }]),
            json!([{ "index": 0, "score": 1 }, { "index": 0, "score": 2 }]),
            json!([{ "score": 1 }]),
            json!([{ "index": -1, "score": 1 }]),
            json!({ "message": "no" }),
            json!("text"),
        ] {
            assert!(read(&broken, 3).is_err(), "{broken}");
        }
    }
}
