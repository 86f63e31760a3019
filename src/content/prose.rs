//! Tells the prose of a Markdown text from its code: `#3` in a backtrace is no reference.
//!
//! Not a Markdown parser: it knows fences, indented blocks, code spans, comments and
//! `<pre>`/`<code>`, and takes time linear in the text.

use std::collections::HashMap;
use std::ops::Range;

/// Stands for one byte of code. It is no letter, no digit, no space and in no pattern.
const CODE: u8 = 0x01;

/// Returns the text with every byte of code, of code marks and of comments replaced by a
/// control character; line ends and lengths stay, so that offsets agree with the original.
pub fn without_code(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut paragraph: Option<Range<usize>> = None;
    let mut blocks = Blocks::default();
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let range = start..start + line.len();
        start = range.end;
        match blocks.classify(line) {
            Line::Code => {
                mask_spans(&mut bytes, paragraph.take());
                mask(&mut bytes, range);
            }
            Line::Blank => mask_spans(&mut bytes, paragraph.take()),
            Line::Prose => {
                let from = paragraph.map_or(range.start, |open| open.start);
                paragraph = Some(from..range.end);
            }
        }
    }
    mask_spans(&mut bytes, paragraph);
    for (open, close) in [("<!--", "-->"), ("<pre", "</pre>"), ("<code", "</code>")] {
        mask_between(&mut bytes, open.as_bytes(), close.as_bytes());
    }
    // Whole characters were replaced by ASCII: line and span borders are ASCII themselves.
    String::from_utf8(bytes).unwrap_or_default()
}

fn mask(bytes: &mut [u8], range: Range<usize>) {
    for byte in &mut bytes[range] {
        if *byte != b'\n' {
            *byte = CODE;
        }
    }
}

/// Masks from each `open` to the next `close`; an `open` without one masks nothing.
fn mask_between(bytes: &mut [u8], open: &[u8], close: &[u8]) {
    let mut from = 0;
    while let Some(start) = find(bytes, open, from) {
        let Some(end) = find(bytes, close, start + open.len()) else { return };
        from = end + close.len();
        mask(bytes, start..from);
    }
}

fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let first = *needle.first()?;
    let mut at = from;
    while let Some(step) = bytes.get(at..)?.iter().position(|byte| *byte == first) {
        at += step;
        if bytes[at..].len() >= needle.len() && bytes[at..at + needle.len()].eq_ignore_ascii_case(needle) {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// What a line is.
enum Line {
    Prose,
    Blank,
    Code,
}

/// An open fence.
struct Fence {
    mark: char,
    length: usize,
    quote_depth: usize,
}

/// The block structure so far.
#[derive(Default)]
struct Blocks {
    fence: Option<Fence>,
    /// Column at which the text of the innermost list item starts.
    list_column: Option<usize>,
    after_blank: bool,
    in_indented: bool,
    started: bool,
}

impl Blocks {
    fn classify(&mut self, line: &str) -> Line {
        let line = line.trim_end_matches(['\n', '\r']);
        let (quote_depth, inner) = strip_quotes(line);
        if let Some(fence) = &self.fence {
            if quote_depth < fence.quote_depth && !line.trim().is_empty() {
                // The quote that holds the fence ends, and the fence with it.
                self.fence = None;
            } else {
                if closes(fence, inner) {
                    self.fence = None;
                }
                return Line::Code;
            }
        }
        if inner.trim().is_empty() {
            self.after_blank = true;
            return Line::Blank;
        }
        let (column, item_column, rest) = strip_list_marks(inner);
        if let Some((mark, length)) = opens_fence(rest) {
            self.fence = Some(Fence { mark, length, quote_depth });
            self.after_blank = true;
            self.started = true;
            return Line::Code;
        }
        let can_start = self.after_blank || !self.started || self.in_indented;
        let code_column = self.list_column.map_or(4, |text_column| text_column + 4);
        let indented = can_start && column >= code_column;
        if indented {
            self.in_indented = true;
        } else {
            self.in_indented = false;
            if item_column.is_some() {
                self.list_column = item_column;
            } else if self.after_blank
                && self.list_column.is_some_and(|text_column| column < text_column.min(2))
            {
                self.list_column = None;
            }
        }
        self.after_blank = false;
        self.started = true;
        if indented { Line::Code } else { Line::Prose }
    }
}

/// Removes the marks of block quotes; returns how many there were.
fn strip_quotes(line: &str) -> (usize, &str) {
    let (mut depth, mut rest) = (0, line);
    while let Some(inner) = strip_up_to_three_spaces(rest).strip_prefix('>') {
        depth += 1;
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    (depth, rest)
}

fn strip_up_to_three_spaces(line: &str) -> &str {
    let spaces = line.bytes().take(3).take_while(|byte| *byte == b' ').count();
    line.get(spaces..).unwrap_or(line)
}

/// Returns the column of the first text, the column of the text of a list item when the line
/// starts one, and the text after all list marks.
fn strip_list_marks(line: &str) -> (usize, Option<usize>, &str) {
    let (first_column, mut rest) = indentation(line, 0);
    let (mut column, mut item_column) = (first_column, None);
    while let Some(width) = list_mark(rest) {
        let (next, text) = indentation(rest.get(width..).unwrap_or(""), column + width);
        (column, rest) = (next, text);
        item_column = Some(column);
    }
    (first_column, item_column, rest)
}

fn indentation(line: &str, from: usize) -> (usize, &str) {
    let mut column = from;
    for (index, byte) in line.bytes().enumerate() {
        match byte {
            b' ' => column += 1,
            b'\t' => column += 4 - column % 4,
            _ => return (column, line.get(index..).unwrap_or("")),
        }
    }
    (column, "")
}

/// Width of a list mark that is followed by a space.
fn list_mark(text: &str) -> Option<usize> {
    let digits = text.bytes().take(9).take_while(u8::is_ascii_digit).count();
    let mark = text.as_bytes().get(digits)?;
    let is_mark = if digits == 0 { matches!(mark, b'-' | b'*' | b'+') } else { matches!(mark, b'.' | b')') };
    (is_mark && matches!(text.as_bytes().get(digits + 1), Some(b' ' | b'\t'))).then_some(digits + 1)
}

fn opens_fence(text: &str) -> Option<(char, usize)> {
    let mark = text.chars().next().filter(|first| matches!(first, '`' | '~'))?;
    let length = text.chars().take_while(|next| *next == mark).count();
    let info = text.get(length..).unwrap_or("");
    (length >= 3 && !(mark == '`' && info.contains('`'))).then_some((mark, length))
}

fn closes(fence: &Fence, line: &str) -> bool {
    let text = line.trim();
    text.len() >= fence.length && text.chars().all(|next| next == fence.mark)
}

/// Masks the code spans of one paragraph: a run of backticks up to the next run of the same
/// length.
fn mask_spans(bytes: &mut [u8], paragraph: Option<Range<usize>>) {
    let Some(paragraph) = paragraph else { return };
    let runs = backtick_runs(bytes, paragraph);
    // For each run the next one of each length, found from behind in one pass.
    let mut next_of_length: HashMap<usize, usize> = HashMap::new();
    let mut closers = vec![None; runs.len()];
    for (index, run) in runs.iter().enumerate().rev() {
        closers[index] = next_of_length.get(&run.open_length).copied();
        next_of_length.insert(run.range.len(), index);
    }
    let mut index = 0;
    while let Some(run) = runs.get(index) {
        match closers[index].filter(|_| run.open_length > 0) {
            Some(closer) => {
                mask(bytes, run.range.start..runs[closer].range.end);
                index = closer + 1;
            }
            None => index += 1,
        }
    }
}

struct Run {
    range: Range<usize>,
    /// Its length where it opens a span: a backslash in front takes one away.
    open_length: usize,
}

fn backtick_runs(bytes: &[u8], paragraph: Range<usize>) -> Vec<Run> {
    let mut runs = Vec::new();
    let (mut at, mut backslashes) = (paragraph.start, 0_usize);
    while at < paragraph.end {
        match bytes[at] {
            b'`' => {
                let length = bytes[at..paragraph.end].iter().take_while(|byte| **byte == b'`').count();
                runs.push(Run { range: at..at + length, open_length: length - backslashes % 2 });
                at += length;
                backslashes = 0;
            }
            b'\\' => {
                backslashes += 1;
                at += 1;
            }
            _ => {
                backslashes = 0;
                at += 1;
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The words that are left, for comparison.
    fn prose(text: &str) -> String {
        without_code(text).replace('\u{1}', " ").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn fences_end_at_their_own_mark() {
        assert_eq!(prose("a\n```\nb\n~~~\n```\nc"), "a c");
        assert_eq!(prose("a\n~~~~ rust\nb\n~~~\nc\n~~~~\nd"), "a d");
        assert_eq!(prose("a\n```\nb"), "a", "an open fence reaches to the end");
        assert_eq!(prose("- a\n  ```\n  b\n  ```\n  c"), "- a c");
        assert_eq!(prose("> ```\n> b\nc"), "> c".trim_start_matches("> "), "a quote ends its fence");
        assert_eq!(prose("``` a ``` b"), "b", "a code span, not a fence");
    }

    #[test]
    fn indented_blocks_are_code_and_continuation_lines_are_not() {
        assert_eq!(prose("a\n\n    b\n\n    c\nd"), "a d");
        assert_eq!(prose("a\n    b"), "a b", "a paragraph goes on");
        assert_eq!(prose("- a\n\n    b\n\nc"), "- a b c", "text of a list item");
        assert_eq!(prose("- a\n\n      b"), "- a");
        assert_eq!(prose("\tb"), "");
    }

    #[test]
    fn spans_match_by_length_and_stay_in_their_paragraph() {
        assert_eq!(prose("a `b` c"), "a c");
        assert_eq!(prose("a ``b ` c`` d"), "a d");
        assert_eq!(prose("a `b\n\nc` d"), "a `b c` d");
        assert_eq!(prose("a `b\nc` d"), "a d");
        assert_eq!(prose(r"a \`b` c"), r"a \`b` c");
    }

    #[test]
    fn comments_and_code_elements_are_left_out() {
        assert_eq!(prose("a <!-- b\n\nc --> d <pre>e</pre> <code>f</code>"), "a d");
        assert_eq!(prose("a <!-- b"), "a <!-- b");
    }

    #[test]
    fn a_megabyte_of_marks_takes_linear_time() {
        for unit in ["`", "` ``", "<!--", "> ", "```\n", "    a\n\n", "- ", "<pre"] {
            let text = unit.repeat(1_000_000 / unit.len());
            assert_eq!(without_code(&text).len(), text.len());
        }
    }

    proptest! {
        #[test]
        fn lengths_and_line_ends_stay(text in r"[a`~<>!\-\\ \n\t#é日]{0,200}") {
            let masked = without_code(&text);
            prop_assert_eq!(masked.len(), text.len());
            prop_assert_eq!(masked.matches('\n').count(), text.matches('\n').count());
        }
    }
}
