//! JSON over HTTP with a service that is configured: an embedder, a reranker, a model.
//!
//! What an answer means is said by whoever asks; here is what all have in common: one address
//! with its token, a time limit, a bound on what is read, counts, spans, and texts without
//! secrets.

use std::path::Path;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Method, StatusCode};
use tracing::Instrument as _;
use url::Url;

use crate::clock;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::secret::{Secret, redact_url};
use crate::traffic::Stats;

/// Longest part of an answer that is shown, in characters.
const SHOWN_CHARS: usize = 300;

/// Characters that show what an answer is when it is not what it should be.
const FIRST_CHARS: usize = 80;

/// Bytes of an answer at most: more than two thousand vectors of a thousand numbers written as
/// text. What is decoded of an answer takes memory too, so there is no room for more.
const MAX_BODY: usize = 64 << 20;

/// A service and how it is spoken to.
pub struct Client {
    client: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    stats: Stats,
    /// What the requests are made for: tasks of the runtime do not know it.
    span: tracing::Span,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.shown()).finish_non_exhaustive()
    }
}

/// A request that brought no answer.
#[derive(Debug)]
pub enum Broken {
    /// None came in time.
    Late,
    /// No connection. The error names no address.
    Lost(reqwest::Error),
    /// The service answered, and the answer broke off.
    Cut(reqwest::Error),
    /// The answer is longer than any that is of use.
    Endless,
}

/// An answer, whatever it says.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// How long it asks to wait, milliseconds.
    pub wait_ms: Option<u64>,
    /// What it says it is.
    pub form: Option<String>,
    /// What it holds.
    pub bytes: Vec<u8>,
}

impl Client {
    /// Makes a client of the service at `base`, which is the value of `key` in the configuration
    /// and could be `example`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address or certificate file that cannot be used.
    pub fn new(
        (key, example): (&str, &str),
        base: &str,
        token: Option<Secret>,
        ca_file: Option<&Path>,
    ) -> Result<Self> {
        let base = Url::parse(base.trim())
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or_else(|| {
                Error::config(format!("{key}: not an http or https address"))
                    .hint(format!("for example {example}"))
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
        Ok(Self { client, base, token, stats: Stats::default(), span: tracing::Span::current() })
    }

    /// The address without secrets.
    pub fn shown(&self) -> String {
        redact_url(&self.base)
    }

    /// The address of an endpoint, without secrets.
    pub fn shown_at(&self, path: &str) -> String {
        redact_url(&self.at(path))
    }

    /// Path of the address, without the slash at its end.
    pub fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }

    /// Counts of the requests so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The path is set on the whole address: a query in it (a key) stays where it is.
    fn at(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(path);
        url
    }

    /// Sends a request, with a body as JSON if there is one, and reads the whole answer.
    ///
    /// # Errors
    /// See [`Broken`].
    pub async fn send(
        &self,
        path: &str,
        body: Option<Vec<u8>>,
        timeout: Duration,
    ) -> std::result::Result<Reply, Broken> {
        let url = self.at(path);
        let method = if body.is_some() { Method::POST } else { Method::GET };
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
        let mut request = self.client.request(method, url).timeout(timeout);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let mut asked = Asked { stats: &self.stats, status: None };
        self.stats.request();
        let reply = read(request, &span).instrument(span.clone()).await;
        match &reply {
            Ok(reply) => asked.status = Some(reply.status.as_u16()),
            Err(broken) => {
                span.record("error.message", broken.to_string());
            }
        }
        reply
    }

    /// Removes secrets and control characters from what a server wrote, and cuts it.
    pub fn clean(&self, text: &str) -> String {
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

async fn read(request: reqwest::RequestBuilder, span: &tracing::Span) -> std::result::Result<Reply, Broken> {
    let broken = |error: reqwest::Error| {
        let is_late = error.is_timeout() && !error.is_connect();
        if is_late { Broken::Late } else { Broken::Lost(error.without_url()) }
    };
    let mut response = request.send().await.map_err(broken)?;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    let wait_ms = retry_after(response.headers(), clock::now_ms());
    let form = response.headers().get(CONTENT_TYPE);
    let form = form.map(|form| String::from_utf8_lossy(form.as_bytes()).into_owned());
    let mut bytes = Vec::new();
    let cut = |error: reqwest::Error| match broken(error) {
        Broken::Lost(error) => Broken::Cut(error),
        other => other,
    };
    while let Some(chunk) = response.chunk().await.map_err(cut)? {
        if bytes.len() + chunk.len() > MAX_BODY {
            return Err(Broken::Endless);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Reply { status, wait_ms, form, bytes })
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => f.write_str("no answer in time"),
            Self::Lost(error) => error.fmt(f),
            Self::Cut(error) => write!(f, "the answer broke off: {error}"),
            Self::Endless => write!(f, "an answer of more than {} MiB", MAX_BODY >> 20),
        }
    }
}

impl Reply {
    /// Whether it is a page for people: that of a proxy, or of a login.
    pub fn is_page(&self) -> bool {
        self.bytes.trim_ascii_start().first() == Some(&b'<')
    }

    /// Its message: the usual fields of an error, else the text.
    pub fn message(&self) -> String {
        if self.is_page() {
            return "a web page".to_owned();
        }
        let json: Option<serde_json::Value> = serde_json::from_slice(&self.bytes).ok();
        let found = json.as_ref().and_then(|json| {
            let error = json.get("error").or_else(|| json.get("message"))?;
            error.as_str().or_else(|| error.get("message")?.as_str())
        });
        found.map_or_else(|| String::from_utf8_lossy(&self.bytes).into_owned(), str::to_owned)
    }

    /// What it is, when it is not what it should be: status, form and beginning.
    pub fn told(&self, client: &Client) -> String {
        let begins: String = String::from_utf8_lossy(&self.bytes).chars().take(FIRST_CHARS).collect();
        let form = self.form.as_ref().map_or_else(String::new, |form| format!(", {}", client.clean(form)));
        format!("status {}{form}: {:?}", self.status.as_u16(), client.clean(&begins))
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

/// How long an answer asks to wait, milliseconds.
fn retry_after(headers: &HeaderMap, now_ms: i64) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.is_finite() && seconds >= 0.0).then_some((seconds.min(86_400.0) * 1000.0) as u64);
    }
    let at = chrono::DateTime::parse_from_rfc2822(text).ok()?.timestamp_millis();
    Some(u64::try_from(at.saturating_sub(now_ms)).unwrap_or(0))
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

    fn reply(bytes: &[u8]) -> Reply {
        Reply { status: StatusCode::OK, wait_ms: None, form: None, bytes: bytes.to_vec() }
    }

    #[test]
    fn messages_are_found_in_the_usual_fields() {
        assert_eq!(reply(br#"{"error":"too long"}"#).message(), "too long");
        assert_eq!(reply(br#"{"error":{"message":"too long"}}"#).message(), "too long");
        assert_eq!(reply(br#"{"message":"too long"}"#).message(), "too long");
        assert_eq!(reply(br#"{"detail":"x"}"#).message(), r#"{"detail":"x"}"#);
        assert_eq!(reply(b" <!doctype html><h1>502</h1>").message(), "a web page");
        assert_eq!(reply(b"plain").message(), "plain");
    }

    #[test]
    fn an_answer_without_end_is_given_up_before_it_fills_the_memory() {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let mut sent = 0;
            let mut piece: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[";
            let zeros = vec![b'0'; 1 << 20];
            while stream.write_all(piece).is_ok() {
                sent += piece.len();
                piece = &zeros;
            }
            sent
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = Client::new(("x.url", "http://h"), &base, None, None).unwrap();
        let timeout = Duration::from_secs(60);
        let broken = runtime.block_on(client.send("/embed", Some(b"{}".to_vec()), timeout)).unwrap_err();
        assert!(matches!(broken, Broken::Endless), "{broken}");
        assert_eq!(broken.to_string(), "an answer of more than 64 MiB");
        drop(client);
        drop(runtime);
        // What lies in the buffers of the system comes on top.
        let sent = server.join().unwrap();
        assert!(sent > MAX_BODY && sent < MAX_BODY + (32 << 20), "{sent} bytes were taken");
    }

    #[test]
    fn a6_11_what_is_shown_holds_no_secret() {
        let token = Some(Secret::new("S3CR3T-TOKEN".to_owned()));
        let at = ("x.url", "http://h");
        let client = Client::new(at, "http://user:S3CR3T-PASS@h:1/p?key=S3CR3T-KEY", token, None).unwrap();
        let said = client.clean("bad key S3CR3T-TOKEN, S3CR3T-PASS,\u{1b}[31m S3CR3T-KEY\n");
        assert!(!said.contains("S3CR3T") && !said.contains(char::is_control), "{said}");
        let told = reply(b"S3CR3T-TOKEN").told(&client);
        for text in [told, format!("{client:?}"), client.shown(), client.shown_at("/v1/x")] {
            assert!(!text.contains("S3CR3T"), "{text}");
        }
        assert_eq!(client.shown_at("/v1/x"), "http://h:1/v1/x");
        let error = Client::new(at, "ftp://h", None, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
