//! Reads a member line by line, each line bounded.

use std::io::{BufRead, BufReader};

use super::Limits;
use super::container::Member;
use super::guard::read_error;
use crate::error::{Error, ErrorKind, Result};

/// A line buffer that grew beyond this is given back after the line, in bytes.
const KEEP_BUFFER: usize = 4 << 20;

/// What editors of other systems put in front of a text.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Size of the read buffer, in bytes.
const READ_BUFFER: usize = 128 << 10;

/// Calls `use_line` with the place (`member:line`) and the bytes of every line that is not blank.
///
/// # Errors
/// Those of `use_line`, of reading, and of a line over the limit.
pub(super) fn each(
    member: &mut Member<'_>,
    limits: &Limits,
    use_line: &mut dyn FnMut(&str, &[u8]) -> Result<()>,
) -> Result<()> {
    let origin = format!("read {} of {}", member.name, member.origin);
    let mut reader = BufReader::with_capacity(READ_BUFFER, &mut member.content);
    let mut line = Vec::new();
    let mut number = 0_u64;
    loop {
        line.clear();
        if line.capacity() > KEEP_BUFFER {
            line.shrink_to(KEEP_BUFFER);
        }
        number += 1;
        let place = format!("{}:{number}", member.name);
        if !next_line(&mut reader, limits.line_bytes, &mut line)
            .map_err(|error| read_error(&origin, error))?
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Io,
                    format!("{origin}: line {number} ({place}) is longer than {} bytes", limits.line_bytes),
                )
                .hint("no issue or merge request of GitLab is that large: check where the export comes from")
            })?
        {
            return Ok(());
        }
        let text = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(&line);
        let text = text.trim_ascii();
        if !text.is_empty() {
            use_line(&place, text)?;
        }
    }
}

/// Reads one line without its end. Returns false at the end of the member, nothing when the
/// line exceeds `limit`.
fn next_line(reader: &mut impl BufRead, limit: u64, line: &mut Vec<u8>) -> std::io::Result<Option<bool>> {
    let mut any = false;
    loop {
        let buffer = match reader.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        if buffer.is_empty() {
            return Ok(Some(any));
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let (part, used) = match end {
            Some(end) => (buffer.get(..end).unwrap_or_default(), end + 1),
            None => (buffer, buffer.len()),
        };
        if line.len() as u64 + part.len() as u64 > limit {
            return Ok(None);
        }
        line.extend_from_slice(part);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_needs_no_end_and_a_long_one_is_refused() {
        let mut reader = BufReader::with_capacity(3, "ab\n\ncdef".as_bytes());
        let mut lines = Vec::new();
        loop {
            let mut line = Vec::new();
            match next_line(&mut reader, 4, &mut line).unwrap() {
                Some(true) => lines.push(String::from_utf8(line).unwrap()),
                Some(false) => break,
                None => panic!("no line is longer than four bytes"),
            }
        }
        assert_eq!(lines, ["ab", "", "cdef"]);
        let mut reader = BufReader::with_capacity(3, "abcde\n".as_bytes());
        assert_eq!(next_line(&mut reader, 4, &mut Vec::new()).unwrap(), None);
    }
}
