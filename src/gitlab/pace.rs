//! Pacing: how many requests per second are started, and the pause that a server asked for.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Requests that may start at once after a pause without requests.
const BURST: f64 = 5.0;

/// A token bucket, kept as the time at which the next request is due.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// Time between two requests.
    interval: Duration,
    /// When the next request is due at the earliest.
    next: Instant,
}

impl Bucket {
    /// Takes one turn; returns how long to wait for it.
    fn take(&mut self, now: Instant) -> Duration {
        let spare = self.interval.mul_f64(BURST - 1.0);
        let earliest = now.checked_sub(spare).unwrap_or(now);
        let due = self.next.max(earliest);
        self.next = due + self.interval;
        due.saturating_duration_since(now)
    }
}

/// Paces the requests of one source.
#[derive(Debug)]
pub struct Pace {
    bucket: Mutex<Bucket>,
    hold: Mutex<Option<Instant>>,
}

impl Pace {
    /// Makes a pace of `per_second` requests, which is above zero.
    pub fn new(per_second: f64, now: Instant) -> Self {
        let interval = Duration::from_secs_f64((1.0 / per_second).min(3600.0));
        Self { bucket: Mutex::new(Bucket { interval, next: now }), hold: Mutex::new(None) }
    }

    /// Takes one turn; returns how long to wait for it.
    pub fn take(&self, now: Instant) -> Duration {
        let turn = self.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now);
        turn.max(self.held(now))
    }

    /// Starts no request for `wait`: the server asked for it.
    pub fn hold(&self, now: Instant, wait: Duration) {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        *hold = Some(hold.map_or(now + wait, |until| until.max(now + wait)));
    }

    /// How long requests are still held back.
    pub fn held(&self, now: Instant) -> Duration {
        let hold = *self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        hold.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_is_spread() {
        let start = Instant::now();
        let pace = Pace::new(10.0, start);
        let later = start + Duration::from_secs(10);
        let waits: Vec<u128> = (0..8).map(|_| pace.take(later).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 0, 0, 100, 200, 300]);
        let much_later = later + Duration::from_secs(1);
        assert_eq!(pace.take(much_later), Duration::ZERO);
    }

    #[test]
    fn everybody_waits_while_the_server_asked_for_a_pause() {
        let start = Instant::now();
        let pace = Pace::new(1000.0, start);
        pace.hold(start, Duration::from_secs(5));
        pace.hold(start, Duration::from_secs(2));
        assert_eq!(pace.take(start), Duration::from_secs(5));
        assert_eq!(pace.held(start + Duration::from_secs(6)), Duration::ZERO);
    }
}
