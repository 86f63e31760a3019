//! The client: one request with its retries, one page, one whole list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tracing::Instrument as _;
use url::Url;

use super::RequestError;
use super::address::Address;
use super::answer::{self, Answer, Verdict};
use super::pace::Pace;
use super::paging::{self, PER_PAGE};
use crate::backoff::{self, Backoff};
use crate::clock::{self, Millis};
use crate::config::GitlabConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::{Secret, redact_url};
use crate::traffic::{Stats, StatsView};

/// Longest wait between two attempts of one request.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Longest pause that a server may ask for before the request is given up.
const MAX_PAUSE: Duration = Duration::from_secs(15 * 60);
/// How often one request may be rate limited.
const MAX_RATE_LIMITED: u32 = 10;
/// Largest body that is read.
const MAX_BODY: usize = 256 << 20;
/// Redirects that one request follows.
const MAX_REDIRECTS: u32 = 5;
/// Pages of one list: far beyond any real one, so that a server that never ends is noticed.
const MAX_PAGES: usize = 100_000;

/// A client of one server's API. Cheap to share: clones work on the same limits.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: reqwest::Client,
    address: Address,
    token: Option<Secret>,
    pace: Pace,
    slots: Semaphore,
    backoff: Backoff,
    max_attempts: u32,
    deadline: Option<Instant>,
    stats: Stats,
    /// Set after a request exhausted its attempts: the next ones are tried once, until one
    /// is answered, so that a server that is down is not waited for by every stream anew.
    is_down: AtomicBool,
    /// The step that the requests are made for: tasks of the runtime do not know it.
    span: tracing::Span,
}

/// Reads a body; an error means that it arrived damaged.
type Read<T> = fn(&[u8]) -> serde_json::Result<T>;

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// Its rows, as the server sent them.
    pub rows: Vec<Box<RawValue>>,
    /// Where the next page is.
    pub next: Option<Url>,
    /// The server's clock.
    pub server_time: Option<Millis>,
    /// How many rows the whole list has, when the server tells it.
    pub total: Option<u64>,
}

impl Client {
    /// Makes a client. `deadline` is when the step must have ended: no wait goes beyond it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the address, a limit, the token's form or the file of
    /// certificates is not usable.
    pub fn new(config: &GitlabConfig, token: Option<Secret>, deadline: Option<Instant>) -> Result<Self> {
        let address = Address::parse(&config.url)?;
        let rate = config.requests_per_second;
        if !rate.is_finite() || rate <= 0.0 {
            return Err(Error::config("requests_per_second must be above 0"));
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = &token {
            let mut value = HeaderValue::from_str(token.expose()).map_err(|_| {
                Error::config("the token holds characters that no token has")
                    .hint("check for a wrong or truncated secret")
            })?;
            value.set_sensitive(true);
            headers.insert("private-token", value);
        }
        headers.insert("accept", HeaderValue::from_static("application/json"));
        Ok(Self(Arc::new(Inner {
            http: http_client(config, &address, headers)?,
            token,
            pace: Pace::new(rate, Instant::now()),
            slots: Semaphore::new(config.concurrency.max(1)),
            backoff: Backoff { base: config.retry_wait, max: MAX_BACKOFF },
            max_attempts: config.retries.saturating_add(1),
            deadline,
            stats: Stats::default(),
            is_down: AtomicBool::new(false),
            span: tracing::Span::current(),
            address,
        })))
    }

    /// The server's address.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// What the requests came to so far.
    pub fn stats(&self) -> StatsView {
        self.0.stats.view()
    }

    /// Makes the URL of a list, with the largest page.
    pub fn list_url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let per_page = PER_PAGE.to_string();
        let mut pairs = query.to_vec();
        pairs.push(("per_page", &per_page));
        self.0.address.url(segments, &pairs)
    }

    /// Reads one object.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn object(&self, url: &Url) -> Result<Box<RawValue>, RequestError> {
        let (object, _) = self
            .get(url, |body| {
                let object: Box<RawValue> = serde_json::from_slice(body)?;
                if object.get().starts_with('{') {
                    Ok(object)
                } else {
                    Err(serde::de::Error::custom("expected an object"))
                }
            })
            .await?;
        Ok(object)
    }

    /// Reads one page of a list.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn page(&self, url: &Url) -> Result<Page, RequestError> {
        let (rows, headers) =
            self.get(url, |body| serde_json::from_slice::<Vec<Box<RawValue>>>(body)).await?;
        let next = paging::next_page(&self.0.address, url, &headers, rows.len());
        if next.as_ref() == Some(url) {
            return Err(same_page(url).into());
        }
        Ok(Page { next, server_time: answer::server_time(&headers), total: paging::total(&headers), rows })
    }

    /// Reads a whole list, page after page.
    ///
    /// # Errors
    /// See [`RequestError`]; also when the server leads back to a page that was read.
    pub async fn list(&self, url: &Url) -> Result<Vec<Box<RawValue>>, RequestError> {
        let mut rows = Vec::new();
        let mut seen = BTreeSet::new();
        let mut next = Some(url.clone());
        while let Some(url) = next {
            if !seen.insert(url.to_string()) || seen.len() > MAX_PAGES {
                return Err(same_page(&url).into());
            }
            let page = self.page(&url).await?;
            rows.extend(page.rows);
            next = page.next;
        }
        Ok(rows)
    }

    /// Sends one GET with its retries and gives the body to `read`. A body that `read`
    /// cannot read counts as damaged on the way and is asked for again.
    async fn get<T>(&self, url: &Url, read: Read<T>) -> Result<(T, HeaderMap), RequestError> {
        let mut url = url.clone();
        let (mut failures, mut rate_limited, mut redirects) = (0, 0, 0);
        loop {
            let (error, wait) = match self.attempt(&url, read).await {
                Attempt::Done(value, headers) => return Ok((value, headers)),
                Attempt::Moved(location) => {
                    redirects += 1;
                    let next = self.0.address.redirect(&url, &location)?;
                    if redirects > MAX_REDIRECTS {
                        let shown = redact_url(&url);
                        return Err(Error::config(format!("GET {shown} redirects without end")).into());
                    }
                    url = next;
                    continue;
                }
                Attempt::Refused(error) => return Err(error),
                Attempt::Limited(error, wait) => {
                    rate_limited += 1;
                    let wait = wait.unwrap_or_else(|| self.spread(rate_limited));
                    if rate_limited > MAX_RATE_LIMITED || wait > MAX_PAUSE {
                        return Err(asked_to_wait(error, wait));
                    }
                    self.0.stats.waited(wait);
                    (asked_to_wait(error, wait), wait)
                }
                Attempt::Failed(error, wait) => {
                    failures += 1;
                    if failures >= self.0.max_attempts || self.0.is_down.load(Ordering::Relaxed) {
                        self.0.is_down.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                    let own = self.spread(failures);
                    (error, wait.map_or(own, |wait| wait.clamp(own, MAX_PAUSE)))
                }
            };
            if self.0.deadline.is_some_and(|deadline| Instant::now() + wait >= deadline) {
                return Err(error);
            }
            self.0.stats.retry();
            tracing::debug!(wait_ms = wait.as_millis() as u64, error = %error.error, "request is sent again");
            tokio::time::sleep(wait).await;
        }
    }

    /// The wait after `failures` failures, half to one and a half of the schedule's: clients
    /// that failed together must not come back together.
    fn spread(&self, failures: u32) -> Duration {
        let exact = self.0.backoff.delay(failures, 0.5);
        exact.mul_f64(0.5 + backoff::random())
    }

    async fn attempt<T>(&self, url: &Url, read: Read<T>) -> Attempt<T> {
        let inner = &self.0;
        self.wait_for_turn().await;
        let Ok(_slot) = inner.slots.acquire().await else {
            return Attempt::Refused(Error::internal("the request slots are closed").into());
        };
        inner.stats.request();
        let what = format!("GET {}", redact_url(url));
        let route = inner.address.route(url);
        let span = tracing::info_span!(
            parent: &inner.span,
            "http",
            otel.name = format!("GET {route}"),
            otel.kind = "client",
            http.request.method = "GET",
            http.response.status_code = tracing::field::Empty,
            error.message = tracing::field::Empty,
            server.address = url.host_str(),
            url.path = url.path(),
            url.template = route,
        );
        let got = exchange(&inner.http, url, &what).instrument(span.clone()).await;
        inner.stats.note(got.as_ref().ok().map(|(status, ..)| *status));
        let (status, headers, body) = match got {
            Ok(got) => got,
            Err(error) => {
                span.record("error.message", error.full_message());
                return Attempt::Failed(RequestError::from(error), None);
            }
        };
        span.record("http.response.status_code", status);
        if status < 500 {
            inner.is_down.store(false, Ordering::Relaxed);
        }
        let answer = Answer {
            what: &what,
            status,
            headers: &headers,
            body: &body,
            secret: inner.token.as_ref().map(Secret::expose),
            now: clock::now_ms(),
        };
        match answer::judge(&answer) {
            Verdict::Read => match read(&body) {
                Ok(value) => Attempt::Done(value, headers),
                Err(error) if answer.is_html() => Attempt::Refused(answer.unreadable(&error)),
                Err(error) => Attempt::Failed(answer.unreadable(&error), None),
            },
            Verdict::Redirect(location) => Attempt::Moved(location),
            Verdict::Refuse(error) => Attempt::Refused(error),
            Verdict::Retry { error, wait, rate_limited: true } => {
                if let Some(wait) = wait {
                    inner.pace.hold(Instant::now(), wait.min(MAX_PAUSE));
                }
                Attempt::Limited(error, wait)
            }
            Verdict::Retry { error, wait, rate_limited: false } => Attempt::Failed(error, wait),
        }
    }

    async fn wait_for_turn(&self) {
        let now = Instant::now();
        let held = self.0.pace.held(now);
        let wait = self.0.pace.take(now);
        self.0.stats.waited(held);
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

/// What one attempt came to.
enum Attempt<T> {
    Done(T, HeaderMap),
    Moved(String),
    Refused(RequestError),
    Limited(RequestError, Option<Duration>),
    Failed(RequestError, Option<Duration>),
}

fn asked_to_wait(mut error: RequestError, wait: Duration) -> RequestError {
    error.error = error.error.retry_after_ms(i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
    error
}

fn same_page(url: &Url) -> Error {
    Error::new(
        ErrorKind::Network,
        format!("GET {} leads back to a page that was read already", redact_url(url)),
    )
    .hint("a proxy may rewrite or drop the query of paging links")
}

/// Sends one request and reads the whole answer.
async fn exchange(http: &reqwest::Client, url: &Url, what: &str) -> Result<(u16, HeaderMap, Vec<u8>)> {
    let failed = |error: reqwest::Error| network_error(what, error);
    let mut response = http.get(url.clone()).send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let headers = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_BODY {
            let error = Error::new(ErrorKind::Network, format!("{what} answered more than {MAX_BODY} bytes"));
            return Err(error);
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, headers, body))
}

fn network_error(what: &str, error: reqwest::Error) -> Error {
    // The URL of the error may hold what must not be shown; `what` names it already.
    let error = error.without_url();
    let state = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "cannot connect"
    } else {
        "the connection broke off"
    };
    let certificate = {
        let mut text = String::new();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text.contains("certificate")
    };
    let out = Error::new(ErrorKind::Network, format!("{what}: {state}")).because(error);
    if certificate {
        out.hint("for a private certificate authority set ca_file of the source to its PEM file")
    } else {
        out.hint("check url of the source, the network and proxy variables (HTTPS_PROXY, NO_PROXY)")
    }
}

fn http_client(config: &GitlabConfig, address: &Address, headers: HeaderMap) -> Result<reqwest::Client> {
    let extra = match &config.ca_file {
        Some(path) => {
            let place = format!("ca_file {}", path.display());
            let pem = std::fs::read(path)
                .map_err(|error| Error::config(format!("cannot read {place}")).because(error))?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
                Error::config(format!("{place} holds no usable certificate")).because(error)
            })?;
            if bundle.is_empty() {
                return Err(Error::config(format!("{place} holds no certificate")));
            }
            bundle
        }
        None => Vec::new(),
    };
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("lore/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers.clone())
            // Redirects are followed by hand: the token must not reach another host.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .timeout(config.timeout)
            .connect_timeout(config.timeout.min(Duration::from_secs(15)));
        if address.is_loopback() { builder.no_proxy() } else { builder }
    };
    if address.is_loopback() && address.is_plain() {
        // No proxy, no TLS: the system's certificates need not be read.
        return builder().tls_certs_only(extra).build().map_err(tls_error);
    }
    let built = match builder().tls_certs_merge(extra.clone()).build() {
        // A machine without certificates of its own can still use the ones it is given, or
        // no TLS at all.
        Err(_) if address.is_plain() || !extra.is_empty() => builder().tls_certs_only(extra).build(),
        built => built,
    };
    built.map_err(tls_error)
}

fn tls_error(error: reqwest::Error) -> Error {
    Error::config("cannot set up TLS")
        .because(error.without_url())
        .hint("install the system's certificates (ca-certificates), or set ca_file of the source")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        let config: GitlabConfig = toml::from_str("url = \"http://127.0.0.1:1\"").unwrap();
        Client::new(&config, None, None).unwrap()
    }

    #[test]
    fn a6_18_waits_grow_are_capped_and_spread() {
        let client = client();
        for (failures, base_ms) in [(1, 1_000), (2, 2_000), (4, 8_000), (10, 30_000), (40, 30_000)] {
            let waits: BTreeSet<u128> = (0..50).map(|_| client.spread(failures).as_millis()).collect();
            assert!(waits.len() > 25, "{waits:?}");
            assert!(waits.iter().all(|wait| (base_ms / 2..=base_ms * 3 / 2).contains(wait)), "{waits:?}");
        }
    }

    #[test]
    fn limits_and_tokens_that_cannot_work_are_refused() {
        for text in
            ["url = \"http://h\"\nrequests_per_second = 0.0", "url = \"http://h\"\nca_file = \"/no/such\""]
        {
            let config: GitlabConfig = toml::from_str(text).unwrap();
            assert_eq!(Client::new(&config, None, None).unwrap_err().kind(), ErrorKind::Config);
        }
        let config: GitlabConfig = toml::from_str("url = \"http://h\"").unwrap();
        let token = Secret::new("S3CR3T\u{1}".to_owned());
        let error = Client::new(&config, Some(token), None).unwrap_err();
        assert!(!format!("{error:?}").contains("S3CR3T"), "{error:?}");
    }
}
