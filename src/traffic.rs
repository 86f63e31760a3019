//! What the requests to a service came to.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Counts of requests to one service. Shared by everything that sends them.
#[derive(Debug, Default)]
pub struct Stats {
    requests: AtomicI64,
    retries: AtomicI64,
    waited: Mutex<Waited>,
    answers: [AtomicU32; StatusClass::ALL.len()],
}

impl Stats {
    /// Counts a request.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that is sent again.
    pub fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a wait that the server asked for. Requests that wait at the same time count once.
    pub fn waits(&self, from: Instant, until: Instant) {
        self.waited.lock().unwrap_or_else(PoisonError::into_inner).add(from, until);
    }

    /// Looks at the counts.
    pub fn view(&self) -> StatsView {
        StatsView {
            requests: self.requests.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            rate_limit_wait_ms: {
                let waited = self.waited.lock().unwrap_or_else(PoisonError::into_inner);
                i64::try_from(waited.total.as_millis()).unwrap_or(i64::MAX)
            },
            answers: self.answers.each_ref().map(|answers| answers.load(Ordering::Relaxed)),
        }
    }

    /// Counts an answer, or that none came.
    pub fn note(&self, status: Option<u16>) {
        let class = StatusClass::of(status);
        for (known, answers) in StatusClass::ALL.iter().zip(&self.answers) {
            if *known == class {
                answers.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The time that is covered by waits, which may overlap.
#[derive(Debug, Default)]
struct Waited {
    total: Duration,
    /// End of the latest wait.
    until: Option<Instant>,
}

impl Waited {
    fn add(&mut self, from: Instant, until: Instant) {
        let from = self.until.map_or(from, |covered| covered.max(from));
        self.total += until.saturating_duration_since(from);
        self.until = Some(self.until.map_or(until, |covered| covered.max(until)));
    }
}

/// Classes of answers, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusClass {
    /// 200 to 299.
    Success,
    /// 300 to 399.
    Redirect,
    /// 400 to 499.
    ClientError,
    /// 500 and above.
    ServerError,
    /// No answer: the connection failed.
    None,
}

impl StatusClass {
    /// All classes.
    pub const ALL: [Self; 5] =
        [Self::Success, Self::Redirect, Self::ClientError, Self::ServerError, Self::None];

    /// Name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirect => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::None => "none",
        }
    }

    fn of(status: Option<u16>) -> Self {
        match status {
            None => Self::None,
            Some(..300) => Self::Success,
            Some(300..400) => Self::Redirect,
            Some(400..500) => Self::ClientError,
            Some(500..) => Self::ServerError,
        }
    }
}

/// A look at [`Stats`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatsView {
    /// Requests sent, retries included.
    pub requests: i64,
    /// Requests that were sent again.
    pub retries: i64,
    /// Time spent waiting because of the server's limits.
    pub rate_limit_wait_ms: i64,
    /// Answers by class, in the order of [`StatusClass::ALL`].
    pub answers: [u32; StatusClass::ALL.len()],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_at_the_same_time_count_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut waited = Waited::default();
        for (from, until) in [(0, 10), (1, 10), (5, 12), (20, 21), (20, 20)] {
            waited.add(at(from), at(until));
        }
        assert_eq!(waited.total, Duration::from_secs(13));
    }
}
