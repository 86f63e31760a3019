//! When a service that keeps failing is left alone for a while. Pure: the state is kept in
//! the database, so that the next process knows what this one learned.

use crate::clock::Millis;

/// Failures in a row after which a service is left alone.
pub const THRESHOLD: i64 = 2;

/// How long it is left alone, milliseconds.
pub const OPEN_MS: Millis = 60_000;

/// Name under which a service's failures are kept.
pub fn name(endpoint: &str) -> String {
    format!("embedding {endpoint}")
}

/// Milliseconds until the service may be asked again; nothing when it may be asked now.
pub fn closed_for(open_until: Option<Millis>, now: Millis) -> Option<Millis> {
    // A clock that was set back must not keep a circuit open for longer than it was opened for.
    open_until.map(|until| until.saturating_sub(now)).filter(|left| *left > 0 && *left <= OPEN_MS)
}

/// The state after one more failure: failures in a row, and until when the service is left
/// alone. Once it was left alone, one try decides.
pub fn after_failure(failures: i64, now: Millis) -> (i64, Option<Millis>) {
    let failures = failures.saturating_add(1);
    (failures, (failures >= THRESHOLD).then_some(now.saturating_add(OPEN_MS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_failures_open_for_a_minute_and_the_next_try_decides() {
        let (failures, open_until) = after_failure(0, 1_000);
        assert_eq!((failures, open_until), (1, None));
        let (failures, open_until) = after_failure(failures, 2_000);
        assert_eq!((failures, open_until), (2, Some(62_000)));
        assert_eq!(closed_for(open_until, 2_000), Some(60_000));
        assert_eq!(closed_for(open_until, 62_000), None);
        assert_eq!(after_failure(failures, 62_001).1, Some(122_001));
        assert_eq!(closed_for(Some(10_000_000), 0), None, "the clock was set back");
    }
}
