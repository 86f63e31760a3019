//! The client: one request with its retries, one page, one whole list.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::value::RawValue;
use tracing::Instrument as _;
use url::Url;

use super::RequestError;
use super::address::Address;
use super::answer::{self, Answer, Verdict};
use super::pace::{Budget, Patience};
use super::paging::{self, PageSize};
use super::transport::{self, Stage};
use crate::backoff::{self, Backoff};
use crate::clock::{self, Millis};
use crate::config::GitlabConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::{Secret, redact_url};
use crate::traffic::{Stats, StatsView};

/// Longest wait between two attempts of one request.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// Longest pause that a server may ask for when no job says otherwise.
const LONGEST_WAIT: Duration = Duration::from_secs(15 * 60);
/// Failures of one page in one size before a smaller one is asked for.
const FAILURES_PER_SIZE: u32 = 2;
/// How often one request may be rate limited.
const MAX_RATE_LIMITED: u32 = 10;
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
    budget: Arc<Budget>,
    backoff: Backoff,
    max_attempts: u32,
    patience: Patience,
    stats: Stats,
    page_size: PageSize,
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

/// One answer as it came, whatever it says.
#[derive(Debug)]
pub struct Look {
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Vec<u8>,
    what: String,
}

impl Look {
    /// The answer as it is judged; `secret` is kept out of messages.
    pub fn answer<'a>(&'a self, secret: Option<&'a str>, now: Millis) -> Answer<'a> {
        Answer {
            what: &self.what,
            status: self.status,
            headers: &self.headers,
            body: &self.body,
            secret,
            now,
        }
    }

    /// Reads the body; nothing when it is something else.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        if (200..300).contains(&self.status) { serde_json::from_slice(&self.body).ok() } else { None }
    }
}

impl Client {
    /// Asks once and hands out whatever comes: for looking at a server, not for reading it.
    ///
    /// # Errors
    /// [`ErrorKind::Network`] when no answer comes.
    pub async fn look(&self, url: &Url) -> Result<Look> {
        let what = format!("GET {}", redact_url(url));
        let (status, headers, body) =
            transport::exchange(&self.0.http, url, &what).await.map_err(|broken| broken.error)?;
        Ok(Look { status, headers, body, what })
    }

    /// Makes a client with a budget of its own. `deadline` is when the step must have ended.
    ///
    /// # Errors
    /// As [`Client::sharing`].
    pub fn new(config: &GitlabConfig, token: Option<Secret>, deadline: Option<Instant>) -> Result<Self> {
        let patience = Patience { deadline, longest: LONGEST_WAIT };
        Self::sharing(config, token, patience, Arc::new(Self::budget(config, Instant::now())))
    }

    /// The budget that a source's configuration asks for.
    pub fn budget(config: &GitlabConfig, now: Instant) -> Budget {
        let rate = config.requests_per_second;
        Budget::new(if rate.is_finite() && rate > 0.0 { rate } else { 1.0 }, config.concurrency, now)
    }

    /// Makes a client that shares its budget with others.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when the address, a limit, the token's form or the file of
    /// certificates is not usable.
    pub fn sharing(
        config: &GitlabConfig,
        token: Option<Secret>,
        patience: Patience,
        budget: Arc<Budget>,
    ) -> Result<Self> {
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
            http: transport::http_client(config, &address, headers)?,
            token,
            budget,
            backoff: Backoff { base: config.retry_wait, max: MAX_BACKOFF },
            max_attempts: config.retries.saturating_add(1),
            patience,
            stats: Stats::default(),
            page_size: PageSize::default(),
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

    /// Makes the URL of a list, with the largest page that the server brings in time.
    pub fn list_url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let per_page = self.0.page_size.get().to_string();
        let mut pairs = query.to_vec();
        pairs.push(("per_page", &per_page));
        self.0.address.url(segments, &pairs)
    }

    /// Reads one object.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub async fn object(&self, url: &Url) -> Result<Box<RawValue>, RequestError> {
        let (object, ..) = self
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
        let asked = paging::per_page(url);
        let (rows, headers, url) =
            self.get(url, |body| serde_json::from_slice::<Vec<Box<RawValue>>>(body)).await?;
        if let (Some(asked), Some(got)) = (asked, paging::per_page(&url)) {
            self.0.page_size.arrived(asked, got);
        }
        let next = paging::next_page(&self.0.address, &url, &headers, rows.len());
        if next.as_ref() == Some(&url) {
            return Err(same_page(&url).into());
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
    /// cannot read counts as damaged on the way and is asked for again. Also returns the URL
    /// that was answered: a redirect, or a smaller page, is another one.
    async fn get<T>(&self, url: &Url, read: Read<T>) -> Result<(T, HeaderMap, Url), RequestError> {
        let mut url = url.clone();
        let (mut failures, mut rate_limited, mut redirects) = (0, 0, 0);
        loop {
            let (error, wait) = match self.attempt(&url, read).await {
                Attempt::Done(value, headers) => return Ok((value, headers, url)),
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
                    let now = Instant::now();
                    if rate_limited > MAX_RATE_LIMITED || self.0.patience.is_exceeded(now, now + wait) {
                        return Err(asked_to_wait(error, wait));
                    }
                    // Everybody waits, and counts it, before the next turn.
                    self.0.budget.hold(now, wait);
                    self.0.stats.retry();
                    tracing::debug!(wait_ms = wait.as_millis() as u64, error = %error.error, "rate limited");
                    continue;
                }
                Attempt::Failed(error, cause) => {
                    failures += 1;
                    let wait = self.spread(failures);
                    let smaller = (cause == Cause::Heavy && failures >= FAILURES_PER_SIZE)
                        .then(|| paging::smaller(&url))
                        .flatten();
                    let is_down = self.0.is_down.load(Ordering::Relaxed);
                    if let (Some(smaller), false) = (smaller, is_down) {
                        tracing::debug!(error = %error.error, "a smaller page is asked for");
                        url = smaller;
                        failures = 0;
                    } else if failures >= self.0.max_attempts || is_down || cause == Cause::GivenUp {
                        self.0.is_down.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                    if cause == Cause::Unreached && !self.0.budget.unreached(Instant::now(), wait) {
                        return Err(error);
                    }
                    (error, wait)
                }
            };
            if self.0.patience.deadline.is_some_and(|deadline| Instant::now() + wait >= deadline) {
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
        let what = format!("GET {}", redact_url(url));
        let route = inner.address.route(url);
        if inner.budget.is_given_up(Instant::now()) {
            let error = Error::new(ErrorKind::Network, format!("{what}: cannot connect, as a moment ago"));
            return Attempt::Failed(error.hint(transport::UNREACHED_HINT).into(), Cause::GivenUp);
        }
        let _slot = inner.budget.slot().await;
        if let Err(error) = self.wait_for_turn(&what).await {
            return Attempt::Refused(error);
        }
        inner.stats.request();
        let span = tracing::debug_span!(
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
        let got = transport::exchange(&inner.http, url, &what).instrument(span.clone()).await;
        inner.stats.note(got.as_ref().ok().map(|(status, ..)| *status));
        let (status, headers, body) = match got {
            Ok(got) => got,
            Err(transport::Broken { at, error }) => {
                span.record("error.message", error.full_message());
                let cause = match at {
                    Stage::Connect => Cause::Unreached,
                    Stage::Slow => Cause::Heavy,
                    Stage::Midway => Cause::Other,
                };
                return Attempt::Failed(RequestError::from(error), cause);
            }
        };
        span.record("http.response.status_code", status);
        inner.budget.reached();
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
        let verdict = answer::judge(&answer);
        self.learn(&answer, &verdict);
        match verdict {
            Verdict::Read => match read(&body) {
                Ok(value) => Attempt::Done(value, headers),
                Err(error) if answer.is_html() => Attempt::Refused(answer.unreadable(&error)),
                Err(error) => Attempt::Failed(answer.unreadable(&error), Cause::Heavy),
            },
            Verdict::Redirect(location) => Attempt::Moved(location),
            Verdict::Refuse(error) => Attempt::Refused(error),
            Verdict::Retry { error, wait, rate_limited: true } => Attempt::Limited(error, wait),
            Verdict::Retry { error, wait: Some(wait), rate_limited: false } => {
                // It says when it will be back, for everybody.
                Attempt::Limited(error, Some(wait))
            }
            Verdict::Retry { error, wait: None, rate_limited: false } => {
                let is_heavy = matches!(status, 500 | 502 | 504 | 524);
                Attempt::Failed(error, if is_heavy { Cause::Heavy } else { Cause::Other })
            }
        }
    }

    /// What an answer says about the server's limits.
    fn learn(&self, answer: &Answer<'_>, verdict: &Verdict) {
        let budget = &self.0.budget;
        if let Some(quota) = answer::quota(answer.headers, answer.now) {
            budget.learn(Instant::now(), quota);
        }
        match verdict {
            Verdict::Retry { .. } if matches!(answer.status, 429 | 503) => budget.refused(Instant::now()),
            Verdict::Read => budget.served(),
            Verdict::Retry { .. } | Verdict::Redirect(_) | Verdict::Refuse(_) => {}
        }
    }

    /// Waits until the budget lets a request start.
    async fn wait_for_turn(&self, what: &str) -> Result<(), RequestError> {
        let Inner { budget, patience, stats, .. } = &*self.0;
        loop {
            let now = Instant::now();
            let turn = budget.take(now);
            if turn.is_asked {
                if patience.is_exceeded(now, turn.at) {
                    return Err(no_patience(what, turn.at.saturating_duration_since(now)));
                }
                stats.waits(now, turn.at);
            }
            tokio::time::sleep_until(turn.at.into()).await;
            // A pause that the server asked for meanwhile counts for those who waited too.
            if budget.held(Instant::now()).is_none() {
                return Ok(());
            }
        }
    }
}

/// What one attempt came to.
enum Attempt<T> {
    Done(T, HeaderMap),
    Moved(String),
    Refused(RequestError),
    Limited(RequestError, Option<Duration>),
    Failed(RequestError, Cause),
}

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// No connection came about.
    Unreached,
    /// The same, a moment ago: it was not tried.
    GivenUp,
    /// The server could not bring the answer: a smaller one may pass.
    Heavy,
    /// Anything else.
    Other,
}

fn no_patience(what: &str, wait: Duration) -> RequestError {
    let message = format!("{what} would wait {:.0} s for the server's rate limit", wait.as_secs_f64());
    asked_to_wait(Error::new(ErrorKind::RateLimited, message).into(), wait)
}

/// The error of a wait that is too long: later than the deadline, or more than `retry.max`.
fn asked_to_wait(error: RequestError, wait: Duration) -> RequestError {
    let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    let error_out = error.error.with_kind(ErrorKind::RateLimited).retry_after_ms(wait_ms).hint(
        "the next run goes on where this one ended; lower requests_per_second of the source, or raise the step's timeout and retry.max",
    );
    RequestError { error: error_out, ..error }
}

fn same_page(url: &Url) -> Error {
    Error::new(
        ErrorKind::Network,
        format!("GET {} leads back to a page that was read already", redact_url(url)),
    )
    .hint("a proxy may rewrite or drop the query of paging links")
}

#[cfg(test)]
mod tests;
