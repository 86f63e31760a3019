//! Posts JSON to a service and reads JSON, with errors that say which service and what to do.

use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;
use tracing::Instrument as _;
use url::Url;

use super::Failed;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::secret::{Secret, redact_url};
use crate::traffic::{Stats, StatsView};

/// Longest part of an answer that is shown, in characters.
const SHOWN_CHARS: usize = 300;

/// A service.
pub(super) struct Client {
    client: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    /// How it is called in messages.
    what: &'static str,
    /// Key of its address in the configuration.
    key: &'static str,
    stats: Stats,
    /// What the requests are made for: tasks of the runtime do not know it.
    span: tracing::Span,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.shown()).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client of the service at `base`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address or certificate file that cannot be used.
    pub(super) fn new(
        (what, key): (&'static str, &'static str),
        base: &str,
        token: Option<Secret>,
        ca_file: Option<&Path>,
    ) -> Result<Self> {
        let base = Url::parse(base.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                Error::config(format!("{key}: not an http or https address"))
                    .hint("for example http://localhost:8080")
            })?;
        let mut builder = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("lore/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = ca_file {
            let pem = std::fs::read(path).map_err(|error| {
                io_error(format!("read {}", path.display()), error).with_kind(ErrorKind::Config)
            })?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
                Error::config(format!("{} holds no certificates", path.display()))
                    .because(error.without_url())
            })?;
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let client = builder
            .build()
            .map_err(|error| Error::internal("make an HTTP client").because(error.without_url()))?;
        let (stats, span) = (Stats::default(), tracing::Span::current());
        Ok(Self { client, base, token, what, key, stats, span })
    }

    /// The address without secrets.
    pub(super) fn shown(&self) -> String {
        redact_url(&self.base)
    }

    /// Counts of the requests so far.
    pub(super) fn stats(&self) -> StatsView {
        self.stats.view()
    }

    /// Path of the address.
    pub(super) fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }

    /// An answer that cannot be used.
    pub(super) fn useless(&self, why: &str) -> Failed {
        Failed::Useless(
            Error::new(ErrorKind::Network, format!("{} at {} {why}", self.what, self.shown()))
                .hint(format!("check `{}` and what listens there", self.key)),
        )
    }

    /// Posts a body; the status is given where it says that the body was not accepted.
    ///
    /// # Errors
    /// See [`Failed`]; with the status of a refusal.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        timeout: Duration,
    ) -> std::result::Result<Value, (Failed, Option<StatusCode>)> {
        let mut url = self.base.clone();
        url.set_path(path);
        let span = tracing::debug_span!(
            parent: &self.span,
            "http",
            otel.name = format!("POST {path}"),
            otel.kind = "client",
            http.request.method = "POST",
            http.response.status_code = tracing::field::Empty,
            error.message = tracing::field::Empty,
            server.address = url.host_str(),
            url.path = path,
            url.template = path,
        );
        let mut request = self
            .client
            .post(url)
            .timeout(timeout)
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string());
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        let transport = |error: reqwest::Error| {
            let failed = self.transport(error, timeout);
            span.record("error.message", failed.message());
            (failed, None)
        };
        let mut asked = Asked { stats: &self.stats, status: None };
        self.stats.request();
        let response = request.send().instrument(span.clone()).await.map_err(transport)?;
        let status = response.status();
        span.record("http.response.status_code", status.as_u16());
        let bytes = response.bytes().instrument(span.clone()).await.map_err(transport)?;
        asked.status = Some(status.as_u16());
        drop(asked);
        let is_page = bytes.trim_ascii_start().first() == Some(&b'<');
        if !status.is_success() {
            let said =
                if is_page { "a web page".to_owned() } else { self.clean(&String::from_utf8_lossy(&bytes)) };
            return Err((self.refused(status, &said), Some(status)));
        }
        serde_json::from_slice(&bytes).map_err(|error| {
            let begins = self.clean(&String::from_utf8_lossy(&bytes).chars().take(80).collect::<String>());
            let what = if is_page { "a web page".to_owned() } else { format!("no JSON ({error})") };
            (self.useless(&format!("answers with {what} (status {}: {begins:?})", status.as_u16())), None)
        })
    }

    fn refused(&self, status: StatusCode, said: &str) -> Failed {
        let message = format!("{} at {} answers {status}: {said}", self.what, self.shown());
        let error = |kind| Error::new(kind, message.clone());
        match status.as_u16() {
            401 | 403 => {
                Failed::Useless(error(ErrorKind::Auth).hint("check the token that is configured for it"))
            }
            404 | 405 => Failed::Useless(
                error(ErrorKind::Network).hint(format!("check `{}`: the endpoint is not there", self.key)),
            ),
            429 => Failed::Down(error(ErrorKind::RateLimited).hint("ask again later")),
            500..=599 => Failed::Down(error(ErrorKind::Network).hint("look at the log of the service")),
            _ => Failed::Useless(error(ErrorKind::Network)),
        }
    }

    fn transport(&self, error: reqwest::Error, timeout: Duration) -> Failed {
        let (what, shown) = (self.what, self.shown());
        if error.is_timeout() {
            return Failed::Late(late(what, &shown, timeout));
        }
        Failed::Down(
            Error::new(ErrorKind::Network, format!("cannot reach {what} at {shown}"))
                .because(error.without_url())
                .hint(format!("start it, or correct `{}`", self.key)),
        )
    }

    /// No answer in time.
    pub(super) fn late(&self, timeout: Duration) -> Failed {
        Failed::Late(late(self.what, &self.shown(), timeout))
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
}

/// A request under way: it counts as without an answer when it is given up.
struct Asked<'a> {
    stats: &'a Stats,
    status: Option<u16>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.stats.note(self.status);
    }
}

fn late(what: &str, shown: &str, timeout: Duration) -> Error {
    Error::new(
        ErrorKind::Network,
        format!("{what} at {shown} did not answer within {:.1} s", timeout.as_secs_f64()),
    )
    .hint("raise its timeout, or give it less to do")
}
