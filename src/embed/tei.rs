//! Hugging Face's text-embeddings-inference: `/embed`, and `/info` for model and limits.

use std::time::Duration;

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use super::http::{Failed, Server};
use super::provider::{CallError, Seen};
use crate::error::{Error, ErrorKind, Result};

/// A server; it has one model.
#[derive(Debug)]
pub struct Tei {
    pub(super) server: Server,
}

#[derive(Serialize)]
struct Request<'a> {
    inputs: &'a [String],
    truncate: bool,
    normalize: bool,
}

#[derive(Deserialize)]
struct Info {
    #[serde(default)]
    model_id: Option<String>,
    #[serde(default)]
    max_client_batch_size: Option<usize>,
    #[serde(default)]
    max_batch_tokens: Option<usize>,
}

impl Tei {
    /// Speaks to `server`.
    pub fn new(server: Server) -> Self {
        Self { server }
    }

    fn path(&self, end: &str) -> String {
        let base = self.server.path();
        let base = base.strip_suffix("/embed").unwrap_or(base);
        format!("{base}/{end}")
    }

    /// Asks for the model and the limits.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn look(&self) -> Result<Seen> {
        match self.server.get::<Info>(&self.path("info")).await {
            Ok(info) => Ok(Seen {
                model: info.model_id,
                max_items: info.max_client_batch_size,
                max_tokens: info.max_batch_tokens,
                notes: Vec::new(),
            }),
            Err(Failed::Status {
                status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, ..
            }) => Ok(Seen {
                notes: vec!["the server does not tell its limits (/info)".to_owned()],
                ..Seen::default()
            }),
            Err(failed) => Err(match self.server.meaning(failed, "") {
                CallError::Fatal(error) | CallError::Busy { error, .. } | CallError::Unreachable(error) => {
                    error
                }
                CallError::Refused(text) => Error::new(ErrorKind::EmbeddingUnavailable, text),
            }),
        }
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
        let request = Request { inputs: texts, truncate: false, normalize: true };
        let body = serde_json::to_vec(&request).map_err(|error| {
            CallError::Fatal(Error::internal("cannot write a request as JSON").because(error))
        })?;
        self.server
            .post(&self.path("embed"), body, timeout)
            .await
            .map_err(|failed| self.server.meaning(failed, "the served one"))
    }
}
