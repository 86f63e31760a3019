//! A limit on requests per window of real time, told in any of the ways servers have.

use std::time::{Duration, Instant};

use super::http::Reply;

/// How a refused request is told when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// `Retry-After`, `RateLimit-Reset` and `RateLimit-ResetTime`; the counters on every answer.
    Full,
    /// `Retry-After` alone.
    RetryAfter,
    /// `RateLimit-Reset` (unix seconds) alone.
    Reset,
    /// `RateLimit-ResetTime` (a date) alone.
    ResetTime,
    /// A plain text, no header.
    Plain,
    /// JSON without headers, as limits inside the application send it.
    Json,
    /// An HTML page without headers, as a proxy sends it.
    Html,
}

/// A limit on requests.
#[derive(Debug, Clone)]
pub struct RateLimit {
    /// Requests that are answered per window.
    pub requests: usize,
    /// The window, in real time: it begins with the first request after the last one ended.
    pub window: Duration,
    /// How it is told.
    pub told: Told,
    begun: Option<Instant>,
    n_seen: usize,
    /// Requests that were refused so far.
    pub n_refused: usize,
}

impl RateLimit {
    /// A limit of `requests` per `window`.
    pub fn new(requests: usize, window: Duration, told: Told) -> Self {
        Self { requests, window, told, begun: None, n_seen: 0, n_refused: 0 }
    }

    /// Counts a request; returns the answer when it is one too many. `now_ms` is the server's
    /// clock, which the headers are written by.
    pub fn count(&mut self, now_ms: i64) -> Option<Reply> {
        let now = Instant::now();
        if self.begun.is_none_or(|begun| now.duration_since(begun) >= self.window) {
            (self.begun, self.n_seen) = (Some(now), 0);
        }
        self.n_seen += 1;
        if self.n_seen <= self.requests {
            return None;
        }
        self.n_refused += 1;
        let seconds = self.seconds_left(now);
        let until = now_ms / 1000 + i64::try_from(seconds).unwrap_or(0);
        let plain = Reply::text(429, "text/plain", "Retry later\n");
        Some(match self.told {
            Told::Full => self.tell(plain.with("Retry-After", seconds.to_string()), now_ms),
            Told::RetryAfter => plain.with("Retry-After", seconds.to_string()),
            Told::Reset => plain.with("RateLimit-Reset", until.to_string()),
            Told::ResetTime => plain.with("RateLimit-ResetTime", http_date(until * 1000)),
            Told::Plain => plain,
            Told::Json => Reply::json(
                429,
                &serde_json::json!({"message": {"error": "This endpoint has been requested too many times. Try again later."}}),
            ),
            Told::Html => Reply::text(
                429,
                "text/html",
                "<!DOCTYPE html>\n<html><body>Too many requests HTMLBODY</body></html>",
            ),
        })
    }

    /// Adds the counters to an answer, when this limit tells them.
    pub fn tell(&self, reply: Reply, now_ms: i64) -> Reply {
        if self.told != Told::Full {
            return reply;
        }
        let until = now_ms / 1000 + i64::try_from(self.seconds_left(Instant::now())).unwrap_or(0);
        reply
            .with("RateLimit-Limit", self.requests.to_string())
            .with("RateLimit-Name", "throttle_authenticated_api")
            .with("RateLimit-Observed", self.n_seen.to_string())
            .with("RateLimit-Remaining", self.requests.saturating_sub(self.n_seen).to_string())
            .with("RateLimit-Reset", until.to_string())
            .with("RateLimit-ResetTime", http_date(until * 1000))
    }

    /// Whole seconds until the window ends, at least one.
    fn seconds_left(&self, now: Instant) -> u64 {
        let spent = self.begun.map_or(Duration::ZERO, |begun| now.duration_since(begun));
        let left = self.window.saturating_sub(spent);
        (left.as_secs() + u64::from(left.subsec_nanos() > 0)).max(1)
    }
}

/// A time as HTTP writes it.
pub fn http_date(ms: i64) -> String {
    let date = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
    date.format("%a, %d %b %Y %H:%M:%S GMT").to_string()
}
