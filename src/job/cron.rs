//! Checks the five fields of a cron schedule. lore does not schedule: the text goes into
//! generated manifests, where a mistake would be found late.

use std::ops::Range;

/// What is wrong with a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError {
    /// Bytes of the text that are meant.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
}

struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of the month", min: 1, max: 31, names: &[] },
    Field { name: "month", min: 1, max: 12, names: &MONTHS },
    Field { name: "day of the week", min: 0, max: 7, names: &DAYS },
];

/// Checks a schedule: minute, hour, day of the month, month, day of the week, each `*`, a
/// value, a range, any of them with a step, or a list of those. Months and days may be names.
///
/// # Errors
/// The first problem, with the bytes that it is about.
pub fn check(text: &str) -> Result<(), CronError> {
    let mut parts: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for part in text.split(char::is_whitespace) {
        if !part.is_empty() {
            parts.push((at, part));
        }
        // `split` by single white-space characters; the longest is three bytes.
        at += part.len();
        at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
    }
    if let Some((start, word)) = parts.first()
        && word.starts_with('@')
    {
        return Err(CronError {
            span: *start..*start + word.len(),
            message: format!("`{word}` is not understood by every scheduler, write its five fields"),
        });
    }
    if parts.len() != FIELDS.len() {
        return Err(CronError {
            span: 0..text.len(),
            message: format!(
                "a schedule has 5 fields (minute, hour, day of the month, month, day of the week), this one has {}",
                parts.len()
            ),
        });
    }
    for (field, (start, part)) in FIELDS.iter().zip(parts) {
        let mut start = start;
        for item in part.split(',') {
            field
                .check(item)
                .map_err(|message| CronError { span: start..start + item.len().max(1), message })?;
            start += item.len() + 1;
        }
    }
    Ok(())
}

/// Returns the values that the field number `place` of a checked schedule names, sorted.
pub(super) fn expand(place: usize, text: &str, min: u32, max: u32) -> Vec<u32> {
    let Some(field) = FIELDS.get(place) else { return Vec::new() };
    let mut values: Vec<u32> = text.split(',').flat_map(|item| field.expand(item, min, max)).collect();
    values.sort_unstable();
    values.dedup();
    values
}

impl Field {
    fn expand(&self, item: &str, min: u32, max: u32) -> Vec<u32> {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let step = step.parse().unwrap_or(1_usize).max(1);
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (min, max),
            Some((from, to)) => (self.value(from).unwrap_or(min), self.value(to).unwrap_or(max)),
            None => {
                let from = self.value(range).unwrap_or(min);
                // `5/10` means from 5 on.
                (from, if item.contains('/') { max } else { from })
            }
        };
        (from..=to).step_by(step).collect()
    }

    fn check(&self, item: &str) -> Result<(), String> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        if let Some(step) = step {
            let valid = step.parse().is_ok_and(|step: u32| (1..=self.max).contains(&step));
            if !valid {
                return Err(format!("`{step}` is no step of the {}, expected 1 to {}", self.name, self.max));
            }
        }
        if range == "*" {
            return Ok(());
        }
        let Some((from, to)) = range.split_once('-') else {
            return self.value(range).map(drop);
        };
        let (from, to) = (self.value(from)?, self.value(to)?);
        if from > to {
            return Err(format!("the range `{range}` of the {} runs backwards", self.name));
        }
        Ok(())
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let name = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match name {
            Some(place) => u32::try_from(place).ok().map(|place| place + self.min),
            // `parse` would take a sign.
            None if text.chars().all(|c| c.is_ascii_digit()) => text.parse().ok(),
            None => None,
        };
        value.filter(|value| (self.min..=self.max).contains(value)).ok_or_else(|| {
            let names = if self.names.is_empty() { "" } else { " or a name of three letters" };
            format!("`{text}` is no {}, expected {} to {}{names}", self.name, self.min, self.max)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_schedules_are_accepted() {
        for text in
            ["*/15 * * * *", "0 3 * * 1-5", "0 0 1,15 jan-MAR sun", "5/10 0-23/2 31 12 7", "  1 2\t3 4 5 "]
        {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn mistakes_are_placed() {
        for (text, span, words) in [
            ("* * * *", 0..7, "has 4"),
            ("", 0..0, "has 0"),
            ("@daily", 0..6, "five fields"),
            ("60 * * * *", 0..2, "0 to 59"),
            ("*  24 * * *", 3..5, "hour"),
            ("* * 0 * *", 4..5, "1 to 31"),
            ("* * * jin *", 6..9, "month"),
            ("* * * * 1,8", 10..11, "0 to 7"),
            ("*/0 * * * *", 0..3, "step"),
            ("5-1 * * * *", 0..3, "backwards"),
            ("+5 * * * *", 0..2, "minute"),
            ("1, * * * *", 2..3, "minute"),
            ("? * * * *", 0..1, "minute"),
        ] {
            let error = check(text).unwrap_err();
            assert_eq!(error.span, span, "{text}: {}", error.message);
            assert!(error.message.contains(words), "{text}: {}", error.message);
        }
    }
}
