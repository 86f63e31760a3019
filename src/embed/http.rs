//! Requests to an embedding server, and what its answers mean.

use std::time::Duration;

use reqwest::StatusCode;
use serde::de::DeserializeOwned;

use super::provider::CallError;
use crate::config::EmbeddingConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::Secret;
use crate::service::{Broken, Client};
use crate::traffic::Stats;

/// A server and how it is spoken to.
#[derive(Debug)]
pub struct Server {
    client: Client,
    timeout: Duration,
}

/// A failed request, before a provider says what it means.
#[derive(Debug)]
pub enum Failed {
    /// No answer.
    Transport(CallError),
    /// An answer that says no.
    Status {
        /// Its status.
        status: StatusCode,
        /// Its text, without secrets.
        text: String,
        /// How long it asks to wait, milliseconds.
        wait_ms: Option<u64>,
    },
}

impl Server {
    /// Makes a client of the server at `base`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address or certificate file that cannot be used.
    pub fn new(base: &str, token: Option<Secret>, config: &EmbeddingConfig) -> Result<Self> {
        let at = ("embedding.url", "http://localhost:11434");
        let client = Client::new(at, base, token, config.ca_file.as_deref())?;
        Ok(Self { client, timeout: config.timeout })
    }

    /// The address without secrets.
    pub fn shown(&self) -> String {
        self.client.shown()
    }

    /// Path of the address, without the slash at its end.
    pub fn path(&self) -> &str {
        self.client.path()
    }

    /// Counts of the requests so far.
    pub fn stats(&self) -> &Stats {
        self.client.stats()
    }

    /// Gets an answer as JSON.
    ///
    /// # Errors
    /// See [`Failed`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> std::result::Result<T, Failed> {
        // A look at the service must not take as long as a model may take to load.
        self.send(path, None, Duration::from_secs(10)).await
    }

    /// Posts JSON and gets an answer as JSON. `timeout` replaces the configured one.
    ///
    /// # Errors
    /// See [`Failed`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Vec<u8>,
        timeout: Option<Duration>,
    ) -> std::result::Result<T, Failed> {
        self.send(path, Some(body), timeout.unwrap_or(self.timeout)).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        timeout: Duration,
    ) -> std::result::Result<T, Failed> {
        let reply = self.client.send(path, body, timeout).await;
        let reply = reply.map_err(|broken| Failed::Transport(self.transport(broken, timeout)))?;
        if !reply.status.is_success() {
            let text = self.client.clean(&reply.message());
            return Err(Failed::Status { status: reply.status, text, wait_ms: reply.wait_ms });
        }
        serde_json::from_slice(&reply.bytes).map_err(|error| {
            let page = reply.is_page();
            let what = if page { "a web page".to_owned() } else { format!("something unexpected ({error})") };
            let error = Error::new(
                ErrorKind::EmbeddingFailed,
                format!(
                    "{} answers with {what} instead of vectors ({})",
                    self.client.shown_at(path),
                    reply.told(&self.client)
                ),
            )
            .hint("check `url` and `provider` in [embedding]; a proxy in between may answer for the service");
            Failed::Transport(if page {
                CallError::Fatal(error)
            } else {
                CallError::Refused(error.full_message())
            })
        })
    }

    fn transport(&self, broken: Broken, timeout: Duration) -> CallError {
        let shown = self.shown();
        match broken {
            // Asking again would make the server load its model again.
            Broken::Late => CallError::Fatal(
                Error::new(
                    ErrorKind::EmbeddingUnavailable,
                    format!("{shown} did not answer within {} s", timeout.as_secs()),
                )
                .hint("raise `timeout` in [embedding] when the model takes longer to load"),
            ),
            Broken::Lost(error) => CallError::Unreachable(
                Error::new(
                    ErrorKind::EmbeddingUnavailable,
                    format!("cannot reach the embedding service at {shown}"),
                )
                .because(error)
                .hint("start it (for Ollama: `ollama serve`), or correct `url` in [embedding]"),
            ),
            Broken::Cut(error) => CallError::Unreachable(
                Error::new(
                    ErrorKind::EmbeddingUnavailable,
                    format!("the answer of the embedding service at {shown} broke off"),
                )
                .because(error)
                .hint("the service, or a proxy in between, ended in the middle of an answer: see its log")
                .hint("a lower `batch` in [embedding] makes answers shorter"),
            ),
            Broken::Endless => CallError::Refused(format!("{shown} gives {broken}")),
        }
    }

    /// What a failed request for vectors means, when the provider has no better reading.
    pub fn meaning(&self, failed: Failed, model: &str) -> CallError {
        let (status, text, wait_ms) = match failed {
            Failed::Transport(error) => return error,
            Failed::Status { status, text, wait_ms } => (status, text, wait_ms),
        };
        let shown = self.shown();
        let said = format!("{shown} answers {status}: {text}");
        let fatal = |kind, hint: &str| CallError::Fatal(Error::new(kind, said.clone()).hint(hint));
        match status.as_u16() {
            401 | 403 => fatal(ErrorKind::Auth, "check `token` in [embedding]"),
            404 if text.to_ascii_lowercase().contains("model") => CallError::Fatal(no_model(model, &said)),
            404 | 405 | 300..=399 => fatal(
                ErrorKind::EmbeddingFailed,
                "there is no embedding service under this address; check `url` and `provider` in [embedding]",
            ),
            429 => {
                let mut error = Error::new(ErrorKind::RateLimited, said)
                    .hint("lower `concurrency` in [embedding], or run again later: what is done is kept");
                if let Some(wait) = wait_ms.and_then(|wait| i64::try_from(wait).ok()) {
                    error = error.retry_after_ms(wait);
                }
                CallError::Busy { wait_ms, error }
            }
            408 | 502..=504 => CallError::Busy {
                wait_ms,
                error: Error::new(ErrorKind::EmbeddingUnavailable, said)
                    .hint("the service is overloaded or starting; run again later: what is done is kept"),
            },
            // 400, 413, 422 and 500: one text, or too many of them.
            _ => CallError::Refused(format!("{status}: {text}")),
        }
    }
}

/// The error for a model that the service has not.
pub(super) fn no_model(model: &str, said: &str) -> Error {
    Error::new(
        ErrorKind::EmbeddingModelNotFound,
        format!("the embedding service has no model {model}: {said}"),
    )
    .hint(format!("for Ollama: `ollama pull {model}`"))
    .hint("or set `model` in [embedding] to one that it has")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_11_what_a_server_echoes_holds_no_secret() {
        let config = EmbeddingConfig::default();
        let token = Some(Secret::new("S3CR3T-TOKEN".to_owned()));
        let server = Server::new("http://user:S3CR3T-PASS@h:1/p?key=S3CR3T-KEY", token, &config).unwrap();
        let status = |code: u16| Failed::Status {
            status: StatusCode::from_u16(code).unwrap(),
            text: server.client.clean("bad key S3CR3T-TOKEN, S3CR3T-PASS, S3CR3T-KEY\n"),
            wait_ms: None,
        };
        for code in [400, 401, 404, 429, 500, 503] {
            let shown = format!("{:?}", server.meaning(status(code), "m"));
            assert!(!shown.contains("S3CR3T"), "{shown}");
        }
        assert!(!format!("{server:?}").contains("S3CR3T"));
        let CallError::Fatal(error) = server.meaning(status(401), "m") else { panic!("401 is final") };
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
}
