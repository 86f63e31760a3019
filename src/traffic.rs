//! What the requests to a service came to.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

/// Counts of requests to one service. Shared by everything that sends them.
#[derive(Debug, Default)]
pub struct Stats {
    requests: AtomicI64,
    retries: AtomicI64,
    rate_limit_wait_ms: AtomicI64,
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

    /// Adds a pause that the server asked for.
    pub fn waited(&self, wait: Duration) {
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        self.rate_limit_wait_ms.fetch_add(wait_ms, Ordering::Relaxed);
    }

    /// Looks at the counts.
    pub fn view(&self) -> StatsView {
        StatsView {
            requests: self.requests.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            rate_limit_wait_ms: self.rate_limit_wait_ms.load(Ordering::Relaxed),
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
    /// Time spent in pauses that the server asked for.
    pub rate_limit_wait_ms: i64,
    /// Answers by class, in the order of [`StatusClass::ALL`].
    pub answers: [u32; StatusClass::ALL.len()],
}
