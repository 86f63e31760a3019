//! Time. The only module that reads a clock; everything else is given `now`.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

/// Milliseconds since the Unix epoch, UTC.
pub type Millis = i64;

/// Reads the wall clock.
pub fn now_ms() -> Millis {
    // Not by the libraries of time: they panic when a board without a battery says 1969.
    millis_of(rustix::time::clock_gettime(rustix::time::ClockId::Realtime))
        .saturating_add(crate::fault::clock_error_ms())
}

fn millis_of(time: rustix::time::Timespec) -> Millis {
    time.tv_sec.saturating_mul(1000).saturating_add(time.tv_nsec / 1_000_000)
}

/// Time since boot, suspension included, so that a machine that slept knows it.
///
/// Source: `CLOCK_BOOTTIME` on Linux; elsewhere the monotonic clock.
pub fn since_boot() -> Duration {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Formats milliseconds as RFC 3339 in UTC with milliseconds, for example
/// `2026-01-02T03:04:05.006Z`. Out-of-range values come out as the epoch's limits would:
/// as their number.
pub fn rfc3339(ms: Millis) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms)
        .map_or_else(|| ms.to_string(), |time| time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// Formats the day of a time, `YYYY-MM-DD` in UTC.
pub fn day(ms: Millis) -> String {
    DateTime::<Utc>::from_timestamp_millis(ms)
        .map_or_else(|| ms.to_string(), |time| time.format("%Y-%m-%d").to_string())
}

/// Parses an RFC 3339 time (any offset, any fraction) or a plain `YYYY-MM-DD` day,
/// which means midnight UTC. Returns milliseconds, rounded down.
pub fn parse_time(text: &str) -> Option<Millis> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_millis());
    }
    // GitLab's older answers and exports write "2016-06-14 15:02:08 UTC".
    for format in ["%Y-%m-%d %H:%M:%S%.f UTC", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"] {
        if let Ok(time) = chrono::NaiveDateTime::parse_from_str(text, format) {
            return Some(time.and_utc().timestamp_millis());
        }
    }
    let day = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(day.and_hms_opt(0, 0, 0)?.and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_the_epoch_is_a_time_too() {
        let time = rustix::time::Timespec { tv_sec: -3600, tv_nsec: 250_000_000 };
        assert_eq!(millis_of(time), -3_599_750);
        assert_eq!(rfc3339(millis_of(time)), "1969-12-31T23:00:00.250Z");
        assert!(now_ms() > 1_700_000_000_000);
    }

    #[test]
    fn parses_every_form_that_gitlab_writes() {
        let want = 1_475_341_322_000;
        assert_eq!(parse_time("2016-10-01T17:02:02Z"), Some(want));
        assert_eq!(parse_time("2016-10-01T17:02:02.000Z"), Some(want));
        assert_eq!(parse_time("2016-10-01T19:02:02+02:00"), Some(want));
        assert_eq!(parse_time("2016-10-01 17:02:02 UTC"), Some(want));
        assert_eq!(parse_time("1970-01-02"), Some(86_400_000));
        assert_eq!(parse_time("yesterday"), None);
        assert_eq!(parse_time("2016-13-01"), None);
    }

    #[test]
    fn formats_round_trip() {
        let text = "2026-01-02T03:04:05.006Z";
        assert_eq!(parse_time(text).map(rfc3339).as_deref(), Some(text));
        assert_eq!(day(86_400_000), "1970-01-02");
    }
}
