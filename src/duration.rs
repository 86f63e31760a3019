//! Durations as people write them in configuration and job files.

/// Durations as people write them: `500ms`, `30s`, `10m`, `20h`, `14d`, `2w`, or several in a row.
pub mod duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// What a duration looks like, for error messages.
    pub const FORM: &str = "a duration like \"500ms\", \"30s\", \"10m\", \"20h\", \"14d\" or \"1h30m\"";

    /// Parses a duration. Returns nothing when the text is not one or is out of range.
    pub fn parse(text: &str) -> Option<Duration> {
        let mut rest = text.trim();
        if rest.is_empty() {
            return None;
        }
        let mut total = Duration::ZERO;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit())?;
            let (number, tail) = rest.split_at_checked(digits)?;
            let number: u64 = number.parse().ok()?;
            let unit_end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at_checked(unit_end)?;
            let unit_ms: u64 = match unit.trim() {
                "ms" => 1,
                "s" => 1_000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                "w" => 604_800_000,
                _ => return None,
            };
            total = total.checked_add(Duration::from_millis(number.checked_mul(unit_ms)?))?;
            rest = tail;
        }
        // Times are computed in signed milliseconds; ten thousand years are enough.
        (total.as_secs() < 315_360_000_000).then_some(total)
    }

    /// Formats a duration so that [`parse`] reads it back.
    pub fn format(duration: Duration) -> String {
        let mut ms = duration.as_millis();
        if ms == 0 {
            return "0s".to_owned();
        }
        let mut text = String::new();
        for (unit_ms, unit) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
            if ms >= unit_ms {
                text.push_str(&format!("{}{unit}", ms / unit_ms));
                ms %= unit_ms;
            }
        }
        text
    }

    /// Serde: writes [`format()`].
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format(*duration))
    }

    /// Serde: reads [`parse()`].
    ///
    /// # Errors
    /// When the value is not a duration text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("invalid duration {text:?}, expected {FORM}")))
    }
}

/// Like [`duration_text`], for a duration that may be absent.
pub mod maybe_duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::duration_text::{FORM, format, parse};

    /// Serde: writes the text, or nothing.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_some(&format(*duration)),
            None => serializer.serialize_none(),
        }
    }

    /// Serde: reads the text, or nothing.
    ///
    /// # Errors
    /// When the value is not a duration text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else {
            return Ok(None);
        };
        parse(&text)
            .map(Some)
            .ok_or_else(|| serde::de::Error::custom(format!("invalid duration {text:?}, expected {FORM}")))
    }
}

#[cfg(test)]
mod tests {
    use super::duration_text::{format, parse};
    use std::time::Duration;

    #[test]
    fn durations_parse_and_format() {
        assert_eq!(parse("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse("2w"), Some(Duration::from_secs(1_209_600)));
        for bad in ["", "5", "5 minuts", "m5", "-5s", "1.5h", "99999999999999999999s", "5x"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        for text in ["1d2h3m4s5ms", "45m", "0s"] {
            assert_eq!(parse(text).map(format).as_deref(), Some(text));
        }
    }
}
