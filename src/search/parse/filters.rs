//! Filters in the text of a query: which token is one, and what is done with one that cannot be
//! read.

use super::super::wanted::OPERATORS;
use super::Reader;
use crate::clock::Millis;
use crate::diagnostic::nearest;
use crate::error::{Error, Result};

/// Letters of a name in front of a colon from which a slip in it is told: short ones are near
/// everything.
const MIN_NAME: usize = 4;

impl Reader {
    /// Reads a filter; whether it was one.
    pub(super) fn filter(&mut self, bare: &str, quoted: Option<&str>, now: Millis) -> Result<bool> {
        let unsigned = bare.strip_prefix(['-', '+']).unwrap_or(bare);
        let Some((name, value)) = unsigned.split_once(':') else { return Ok(false) };
        let name = name.to_lowercase();
        if !self.has_filters {
            return Ok(false);
        }
        if !OPERATORS.contains(&name.as_str()) {
            self.maybe_meant(&name, value);
            return Ok(false);
        }
        let value = quoted.filter(|_| value.is_empty()).unwrap_or(value);
        if value.trim().is_empty() {
            if quoted.is_some() {
                return Err(
                    Error::usage(format!("{name}: is empty")).hint("give it a value, or leave it out")
                );
            }
            return Ok(false);
        }
        let mut wanted = self.query.wanted.clone();
        let set = if bare.starts_with('-') {
            wanted.set_not(&name, value, &format!("-{name}:"), now)
        } else {
            wanted.set(&name, value, &format!("{name}:"), now)
        };
        match set {
            Ok(()) => self.query.wanted = wanted,
            Err(error) if self.is_pasted => {
                self.query.warnings.push(format!("read as text: {}", error.full_message()));
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Says so when a text reads like a filter with a slip in its name.
    fn maybe_meant(&mut self, name: &str, value: &str) {
        let is_name = name.len() >= MIN_NAME && name.chars().all(|c| c.is_ascii_lowercase());
        if self.is_pasted || !is_name || !value.starts_with(char::is_alphanumeric) {
            return;
        }
        if let Some(near) = nearest(name, OPERATORS.iter().copied()) {
            self.query
                .warnings
                .push(format!("{name}: is no filter and was read as text; did you mean {near}:?"));
        }
    }
}
