//! Servers with OpenAI's interface: `/v1/embeddings`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::http::Server;
use super::provider::CallError;
use crate::error::{Error, ErrorKind};

/// A server and the model that it is asked for.
#[derive(Debug)]
pub struct OpenAi {
    pub(super) server: Server,
    model: String,
    dims: Option<usize>,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl OpenAi {
    /// Speaks to `server` about `model`. `dims` is sent only where it is given: most servers
    /// refuse it.
    pub fn new(server: Server, model: &str, dims: Option<usize>) -> Self {
        Self { server, model: model.to_owned(), dims }
    }

    /// Asks for the vectors of texts.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(
        &self,
        texts: &[String],
        timeout: Option<Duration>,
    ) -> std::result::Result<Vec<Vec<f32>>, CallError> {
        let request =
            Request { model: &self.model, input: texts, encoding_format: "float", dimensions: self.dims };
        let body = serde_json::to_vec(&request).map_err(|error| {
            CallError::Fatal(Error::internal("cannot write a request as JSON").because(error))
        })?;
        let answer: Answer = self
            .server
            .post(&path(self.server.path()), body, timeout)
            .await
            .map_err(|failed| self.server.meaning(failed, &self.model))?;
        in_order(answer.data, texts.len()).map_err(|what| {
            CallError::Fatal(
                Error::new(
                    ErrorKind::EmbeddingFailed,
                    format!("{} answers {what}: its vectors cannot be told apart", self.server.shown()),
                )
                .hint("the server does not follow the interface; a newer version may"),
            )
        })
    }
}

/// Path of the endpoint, for a base with or without the version.
fn path(base: &str) -> String {
    let base = base.strip_suffix("/embeddings").unwrap_or(base);
    let last = base.rsplit_once('/').map_or("", |(_, last)| last);
    let has_version = last
        .strip_prefix('v')
        .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()));
    if has_version { format!("{base}/embeddings") } else { format!("{base}/v1/embeddings") }
}

/// Puts the vectors into the order of the texts.
fn in_order(items: Vec<Item>, n: usize) -> Result<Vec<Vec<f32>>, String> {
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; n];
    for item in items {
        let index = item.index.ok_or("a vector without its index")?;
        let slot = vectors.get_mut(index).ok_or_else(|| format!("index {index} for {n} texts"))?;
        if slot.replace(item.embedding).is_some() {
            return Err(format!("index {index} twice"));
        }
    }
    let found: Option<Vec<Vec<f32>>> = vectors.into_iter().collect();
    found.ok_or_else(|| format!("fewer vectors than the {n} texts"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_16_every_spelling_of_the_base_leads_to_one_endpoint() {
        for (base, expected) in [
            ("", "/v1/embeddings"),
            ("/v1", "/v1/embeddings"),
            ("/openai/v1", "/openai/v1/embeddings"),
            ("/openai", "/openai/v1/embeddings"),
            ("/v1/embeddings", "/v1/embeddings"),
            ("/api/v3", "/api/v3/embeddings"),
            ("/vision", "/vision/v1/embeddings"),
        ] {
            assert_eq!(path(base), expected, "{base}");
        }
    }

    fn item(index: Option<usize>, value: f32) -> Item {
        Item { index, embedding: vec![value] }
    }

    #[test]
    fn a2_04_the_index_decides_and_a_broken_one_rejects_the_answer() {
        let shuffled = vec![item(Some(2), 2.0), item(Some(0), 0.0), item(Some(1), 1.0)];
        assert_eq!(in_order(shuffled, 3).unwrap(), [[0.0], [1.0], [2.0]]);
        for broken in [
            vec![item(Some(0), 0.0), item(Some(0), 1.0)],
            vec![item(Some(0), 0.0), item(Some(2), 1.0)],
            vec![item(Some(0), 0.0), item(None, 1.0)],
            vec![item(Some(0), 0.0)],
        ] {
            assert!(in_order(broken, 2).is_err());
        }
    }
}
