//! Exponential backoff with jitter: the one implementation for queues, streams and steps.

use std::time::Duration;

/// A backoff schedule: `base · 2^(attempt − 1)`, at most `max`, ± 10 % jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure.
    pub base: Duration,
    /// Longest wait before jitter.
    pub max: Duration,
}

/// The schedule of both queues: one second doubled per failure, one hour at most.
pub const QUEUE: Backoff = Backoff { base: Duration::from_secs(2), max: Duration::from_secs(3600) };

/// The schedule of what is refused rather than failing (no access, switched off, gone): one
/// hour doubled each time, one day at most.
pub const REFUSED: Backoff = Backoff { base: Duration::from_secs(3600), max: Duration::from_secs(24 * 3600) };

impl Backoff {
    /// Returns the wait before the next attempt after `failures` failures (1 or more).
    ///
    /// `random` is a number in `0.0..1.0`; callers pass [`random`], tests a constant.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(30);
        let wait = self.base.saturating_mul(1_u32 << doublings).min(self.max);
        wait.mul_f64(0.9 + 0.2 * random.clamp(0.0, 1.0))
    }

    /// Returns the time of the next attempt, milliseconds since the epoch.
    pub fn next_attempt_at(&self, now_ms: i64, failures: u32, random: f64) -> i64 {
        let wait = i64::try_from(self.delay(failures, random).as_millis()).unwrap_or(i64::MAX);
        now_ms.saturating_add(wait)
    }
}

/// Returns a random number in `0.0..1.0`.
///
/// Taken from a fresh UUID: jitter needs no better generator, and this one needs no crate.
pub fn random() -> f64 {
    let bits = uuid::Uuid::new_v4().as_u128() as u64;
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_the_cap_and_stays() {
        let seconds: Vec<u64> = [1, 2, 3, 4, 12, 13, 40, u32::MAX]
            .iter()
            .map(|failures| QUEUE.delay(*failures, 0.5).as_secs())
            .collect();
        assert_eq!(seconds, [2, 4, 8, 16, 3600, 3600, 3600, 3600]);
    }

    #[test]
    fn jitter_stays_within_ten_percent() {
        for step in 0..=10 {
            let delay = QUEUE.delay(4, f64::from(step) / 10.0).as_secs_f64();
            assert!((14.4..=17.6).contains(&delay), "{delay}");
        }
        assert!((0.0..1.0).contains(&random()));
    }
}
