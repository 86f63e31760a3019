//! Reads a cron schedule: how long it can stay silent, and the same times in the words of
//! systemd. Pure; lore itself starts nothing.

use std::time::Duration;

use super::cron::{self, CronError};

/// A schedule, its fields expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    minutes: Vec<u32>,
    hours: Vec<u32>,
    days: Option<Vec<u32>>,
    months: Option<Vec<u32>>,
    /// 0 is Sunday.
    weekdays: Option<Vec<u32>>,
}

const DAY_MINUTES: u64 = 24 * 60;
const DAY_NAMES: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
/// Days that are walked to find the longest gap: every weekday meets every date, leap days
/// included.
const WALKED_DAYS: u32 = 28 * 366;

impl Schedule {
    /// Reads five cron fields.
    ///
    /// # Errors
    /// As [`cron::check`].
    pub fn parse(text: &str) -> Result<Self, CronError> {
        cron::check(text)?;
        let fields: Vec<&str> = text.split_whitespace().collect();
        let field = |idx: usize| fields.get(idx).copied().unwrap_or("*");
        let restricted = |idx: usize, min: u32, max: u32| {
            // `*/2` starts with a star: cron takes it as a star when it combines the days.
            (field(idx) != "*").then(|| cron::expand(idx, field(idx), min, max))
        };
        let mut weekdays = restricted(4, 0, 7);
        if let Some(weekdays) = &mut weekdays {
            // 7 is Sunday too.
            for day in weekdays.iter_mut() {
                *day %= 7;
            }
            weekdays.sort_unstable();
            weekdays.dedup();
        }
        Ok(Self {
            minutes: cron::expand(0, field(0), 0, 59),
            hours: cron::expand(1, field(1), 0, 23),
            days: restricted(2, 1, 31),
            months: restricted(3, 1, 12),
            weekdays,
        })
    }

    /// The longest time between two starts, clock changes not counted; nothing when it never
    /// starts (30 February).
    pub fn longest_gap(&self) -> Option<Duration> {
        let (first, last) = (self.minute_of_day(false)?, self.minute_of_day(true)?);
        let mut date = chrono::NaiveDate::from_ymd_opt(2000, 1, 1)?;
        let mut previous: Option<u64> = None;
        let mut longest = self.longest_within_a_day();
        for number in 0..u64::from(WALKED_DAYS) {
            if self.matches(date) {
                if let Some(previous) = previous {
                    longest = longest.max(number * DAY_MINUTES + first - previous);
                }
                previous = Some(number * DAY_MINUTES + last);
            }
            date = date.succ_opt()?;
        }
        previous.map(|_| Duration::from_secs(longest * 60))
    }

    fn minute_of_day(&self, last: bool) -> Option<u64> {
        let pick = |values: &[u32]| if last { values.last().copied() } else { values.first().copied() };
        Some(u64::from(pick(&self.hours)?) * 60 + u64::from(pick(&self.minutes)?))
    }

    fn longest_within_a_day(&self) -> u64 {
        let mut times =
            self.hours.iter().flat_map(|hour| self.minutes.iter().map(move |minute| hour * 60 + minute));
        let Some(mut previous) = times.next() else { return 0 };
        let mut longest = 0;
        for time in times {
            longest = longest.max(time - previous);
            previous = time;
        }
        u64::from(longest)
    }

    fn matches(&self, date: chrono::NaiveDate) -> bool {
        use chrono::Datelike as _;
        let has = |values: &Option<Vec<u32>>, value: u32| {
            values.as_ref().is_none_or(|values| values.contains(&value))
        };
        let weekday = date.weekday().num_days_from_sunday();
        let day = match (&self.days, &self.weekdays) {
            // Both restricted: either is enough, as cron has it.
            (Some(days), Some(weekdays)) => days.contains(&date.day()) || weekdays.contains(&weekday),
            (_, _) => has(&self.days, date.day()) && has(&self.weekdays, weekday),
        };
        day && has(&self.months, date.month())
    }

    /// The same times as `OnCalendar=` lines of systemd, in `zone`: two when the schedule
    /// restricts the day of the month as well as the day of the week.
    pub fn on_calendar(&self, zone: &str) -> Vec<String> {
        let list =
            |values: &[u32]| values.iter().map(|value| format!("{value:02}")).collect::<Vec<_>>().join(",");
        let or_star =
            |values: &Option<Vec<u32>>| values.as_ref().map_or_else(|| "*".to_owned(), |values| list(values));
        let whole = |values: &[u32], n: usize| if values.len() == n { "*".to_owned() } else { list(values) };
        let time = format!("{}:{}:00", whole(&self.hours, 24), whole(&self.minutes, 60));
        let months = or_star(&self.months);
        let by_date = format!("*-{months}-{} {time} {zone}", or_star(&self.days));
        let by_weekday = self.weekdays.as_ref().map(|weekdays| {
            let names: Vec<&str> =
                weekdays.iter().filter_map(|day| DAY_NAMES.get(*day as usize).copied()).collect();
            format!("{} *-{months}-* {time} {zone}", names.join(","))
        });
        match (by_weekday, &self.days) {
            (None, _) => vec![by_date],
            (Some(by_weekday), None) => vec![by_weekday],
            (Some(by_weekday), Some(_)) => vec![by_date, by_weekday],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap_minutes(text: &str) -> u64 {
        Schedule::parse(text).unwrap().longest_gap().unwrap().as_secs() / 60
    }

    #[test]
    fn the_longest_gap_is_the_one_between_the_rarest_starts() {
        for (text, minutes) in [
            ("*/15 * * * *", 15),
            ("* * * * *", 1),
            ("30 2 * * *", DAY_MINUTES),
            ("0 3 * * 0", 7 * DAY_MINUTES),
            ("0 3 * * 7", 7 * DAY_MINUTES),
            ("0 9-17 * * mon-fri", 64 * 60),
            ("0 8,20 * * *", 12 * 60),
            ("0 0 1 * *", 31 * DAY_MINUTES),
            ("0 0 1 jan *", 366 * DAY_MINUTES),
            // Either the 1st or a Sunday.
            ("0 0 1 * sun", 7 * DAY_MINUTES),
        ] {
            assert_eq!(gap_minutes(text), minutes, "{text}");
        }
        assert_eq!(Schedule::parse("0 0 30 2 *").unwrap().longest_gap(), None);
    }

    #[test]
    fn systemd_is_told_the_same_times() {
        for (text, calendar) in [
            ("*/15 * * * *", vec!["*-*-* *:00,15,30,45:00 UTC"]),
            ("30 2 * * *", vec!["*-*-* 02:30:00 UTC"]),
            ("0 3 * * 0", vec!["Sun *-*-* 03:00:00 UTC"]),
            ("0 0 1 * mon-wed", vec!["*-*-01 00:00:00 UTC", "Mon,Tue,Wed *-*-* 00:00:00 UTC"]),
            ("* * * 6 *", vec!["*-06-* *:*:00 UTC"]),
        ] {
            assert_eq!(Schedule::parse(text).unwrap().on_calendar("UTC"), calendar, "{text}");
        }
    }
}
