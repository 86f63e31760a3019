//! Requests to an embedding server, and what its answers mean.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use tracing::Instrument as _;
use url::Url;

use super::provider::CallError;
use crate::clock;
use crate::config::EmbeddingConfig;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::secret::{Secret, redact_url};
use crate::traffic::Stats;

/// Longest part of an answer that is shown, in characters.
const SHOWN_CHARS: usize = 300;

/// A server and how it is spoken to.
pub struct Server {
    client: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    timeout: Duration,
    stats: Stats,
    /// The step that the requests are made for: tasks of the runtime do not know it.
    span: tracing::Span,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("base", &self.shown()).finish_non_exhaustive()
    }
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
        let base = Url::parse(base.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                Error::config("embedding.url: not an http or https address")
                    .hint("for example http://localhost:11434")
            })?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("lore/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &config.ca_file {
            let pem = std::fs::read(path).map_err(|error| {
                io_error(format!("read {}", path.display()), error).with_kind(ErrorKind::Config)
            })?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
                Error::config(format!("embedding.ca_file: {} holds no certificates", path.display()))
                    .because(error.without_url())
            })?;
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let client = builder
            .build()
            .map_err(|error| Error::internal("cannot make an HTTP client").because(error.without_url()))?;
        Ok(Self {
            client,
            base,
            token,
            timeout: config.timeout,
            stats: Stats::default(),
            span: tracing::Span::current(),
        })
    }

    /// The address without secrets.
    pub fn shown(&self) -> String {
        redact_url(&self.base)
    }

    /// Path of the address, without the slash at its end.
    pub fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }

    /// Counts of the requests so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Gets an answer as JSON.
    ///
    /// # Errors
    /// See [`Failed`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> std::result::Result<T, Failed> {
        self.send(Method::GET, path, None, None).await
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
        self.send(Method::POST, path, Some(body), timeout).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        timeout: Option<Duration>,
    ) -> std::result::Result<T, Failed> {
        // The path is set on the whole address: a query in it (a key) stays where it is.
        let mut url = self.base.clone();
        url.set_path(path);
        // A look at the service must not take as long as a model may take to load.
        let timeout = timeout.unwrap_or(if body.is_some() { self.timeout } else { Duration::from_secs(10) });
        let span = tracing::debug_span!(
            parent: &self.span,
            "http",
            otel.name = format!("{method} {path}"),
            otel.kind = "client",
            http.request.method = %method,
            http.response.status_code = tracing::field::Empty,
            error.message = tracing::field::Empty,
            server.address = url.host_str(),
            url.path = path,
            url.template = path,
        );
        let mut request = self.client.request(method, url.clone()).timeout(timeout);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let transport = |error: reqwest::Error| {
            self.stats.note(None);
            let error = self.transport(error, timeout);
            span.record("error.message", error.message());
            Failed::Transport(error)
        };
        self.stats.request();
        let response = request.send().instrument(span.clone()).await.map_err(transport)?;
        let status = response.status();
        span.record("http.response.status_code", status.as_u16());
        let wait_ms = retry_after(response.headers(), clock::now_ms());
        let form = response
            .headers()
            .get(CONTENT_TYPE)
            .map_or_else(String::new, |form| format!(", {}", String::from_utf8_lossy(form.as_bytes())));
        let bytes = response.bytes().instrument(span.clone()).await.map_err(transport)?;
        self.stats.note(Some(status.as_u16()));
        if !status.is_success() {
            return Err(Failed::Status { status, text: self.clean(&message(&bytes)), wait_ms });
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            let page = is_web_page(&bytes);
            let what = if page { "a web page".to_owned() } else { format!("something unexpected ({error})") };
            let begins: String = String::from_utf8_lossy(&bytes).chars().take(80).collect();
            let error = Error::new(
                ErrorKind::EmbeddingFailed,
                format!(
                    "{} answers with {what} instead of vectors (status {}{form}: {:?})",
                    redact_url(&url),
                    status.as_u16(),
                    self.clean(&begins)
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

    fn transport(&self, error: reqwest::Error, timeout: Duration) -> CallError {
        let shown = self.shown();
        if error.is_timeout() && !error.is_connect() {
            // Asking again would make the server load its model again.
            return CallError::Fatal(
                Error::new(
                    ErrorKind::EmbeddingUnavailable,
                    format!("{shown} did not answer within {} s", timeout.as_secs()),
                )
                .hint("raise `timeout` in [embedding] when the model takes longer to load"),
            );
        }
        CallError::Unreachable(
            Error::new(
                ErrorKind::EmbeddingUnavailable,
                format!("cannot reach the embedding service at {shown}"),
            )
            .because(error.without_url())
            .hint("start it (for Ollama: `ollama serve`), or correct `url` in [embedding]"),
        )
    }

    /// Removes secrets and control characters from what a server wrote, and cuts it.
    fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let in_url =
            [Some(self.base.username()), self.base.password()].into_iter().flatten().map(str::to_owned);
        let in_query = self.base.query_pairs().map(|(_, value)| value.into_owned());
        let token = self.token.iter().map(|token| token.expose().to_owned());
        for secret in in_url.chain(in_query).chain(token).filter(|secret| secret.len() >= 3) {
            text = text.replace(&secret, "…");
        }
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN_CHARS).collect()
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

/// How long an answer asks to wait, milliseconds.
fn retry_after(headers: &HeaderMap, now_ms: i64) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then_some((seconds.min(86_400.0) * 1000.0) as u64);
    }
    let at = chrono::DateTime::parse_from_rfc2822(text).ok()?.timestamp_millis();
    Some(u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0))
}

fn is_web_page(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'<')
}

/// The message of an error's body: the usual JSON fields, else the text.
fn message(bytes: &[u8]) -> String {
    if is_web_page(bytes) {
        return "a web page".to_owned();
    }
    let json: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    let found = json.as_ref().and_then(|json| {
        let error = json.get("error")?;
        error.as_str().or_else(|| error.get("message")?.as_str())
    });
    found.map_or_else(|| String::from_utf8_lossy(bytes).into_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_seconds_and_as_dates() {
        let wait = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, 1_000)
        };
        assert_eq!(wait("2"), Some(2_000));
        assert_eq!(wait("0.5"), Some(500));
        assert_eq!(wait("Thu, 01 Jan 1970 00:00:31 GMT"), Some(30_000));
        assert_eq!(wait("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(wait("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new(), 0), None);
    }

    #[test]
    fn a6_11_what_a_server_echoes_holds_no_secret() {
        let config = EmbeddingConfig::default();
        let token = Some(Secret::new("S3CR3T-TOKEN".to_owned()));
        let server = Server::new("http://user:S3CR3T-PASS@h:1/p?key=S3CR3T-KEY", token, &config).unwrap();
        let status = |code: u16| Failed::Status {
            status: StatusCode::from_u16(code).unwrap(),
            text: server.clean("bad key S3CR3T-TOKEN, S3CR3T-PASS, S3CR3T-KEY\n"),
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

    #[test]
    fn messages_are_found_in_the_usual_fields() {
        assert_eq!(message(br#"{"error":"too long"}"#), "too long");
        assert_eq!(message(br#"{"error":{"message":"too long"}}"#), "too long");
        assert_eq!(message(b" <!doctype html><h1>502</h1>"), "a web page");
        assert_eq!(message(b"plain"), "plain");
    }
}
