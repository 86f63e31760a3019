//! The passage of a text that answers a query: the window in which the most of its words
//! stand closest, as plain text with the places of the hits.

use std::collections::{BTreeMap, BTreeSet};

use super::lexical::Needles;
use super::stem::{fold, index_form, is_mark};
use super::words::{is_cjk, is_word_char};

/// Characters of a text that are looked through.
const MAX_SCAN: usize = 65_536;

/// Characters of a snippet, without the marks of omission.
pub const LENGTH: usize = 220;

/// Characters of context in front of the first hit.
const LEAD: usize = 40;

/// A passage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snippet {
    /// Plain text on one line, without control characters.
    pub text: String,
    /// Hits as pairs of character offsets into `text`: from, and to (not included).
    pub highlights: Vec<(usize, usize)>,
    /// The words of the query that the whole text holds.
    pub matched: BTreeSet<String>,
    /// Different words of the query inside the passage.
    pub density: usize,
}

/// A hit in the text: byte offsets and the word of the query.
#[derive(Debug, Clone, Copy)]
struct Hit<'a> {
    from: usize,
    to: usize,
    word: &'a str,
}

/// Cuts the best passage out of a text. Without a hit it is the beginning.
pub fn build(text: &str, needles: &Needles) -> Snippet {
    let scanned = text.char_indices().nth(MAX_SCAN).map_or(text, |(at, _)| text.split_at(at).0);
    let hits = find(scanned, needles);
    let matched = hits.iter().map(|hit| hit.word.to_owned()).collect();
    let (first, density) = densest(&hits, LENGTH - LEAD);
    let start = hits.get(first).map_or(0, |hit| lead_in(scanned, hit.from));
    let window = hits.get(first..).unwrap_or_default();
    let (text, highlights) = write(scanned, start, window);
    Snippet { text, highlights, matched, density }
}

/// The part of a text, at most `chars` characters, in which the most words of the query stand,
/// with its line ends, and how many different ones. What is left out is marked by `…`.
pub fn excerpt(text: &str, needles: &Needles, chars: usize) -> (String, usize) {
    let text = text.trim();
    let is_whole = text.chars().nth(chars).is_none();
    let scanned = text.char_indices().nth(MAX_SCAN).map_or(text, |(at, _)| text.split_at(at).0);
    let hits = find(scanned, needles);
    let (first, density) = densest(&hits, chars.saturating_sub(LEAD).max(1));
    if is_whole || chars < 3 {
        return (clean(text.chars().take(chars)), density);
    }
    let room = chars - 2;
    let start = hits.get(first).map_or(0, |hit| lead_in(scanned, hit.from));
    let before = text.get(..start).map_or(0, |front| front.chars().count());
    // A passage near the end begins earlier, so that it is as long as the others.
    let from = before.min(text.chars().count().saturating_sub(room));
    let mut out = String::new();
    if from > 0 {
        out.push('…');
    }
    out.push_str(clean(text.chars().skip(from).take(room)).trim());
    if text.chars().nth(from + room).is_some() {
        out.push('…');
    }
    (out, density)
}

/// Text without what would steer a terminal, its line ends kept.
fn clean(text: impl Iterator<Item = char>) -> String {
    text.filter(|c| matches!(c, '\n' | '\t') || !is_unprintable(*c)).collect()
}

/// The words of the query that a text holds.
pub fn matched(text: &str, needles: &Needles) -> BTreeSet<String> {
    find(text, needles).into_iter().map(|hit| hit.word.to_owned()).collect()
}

/// All hits in order. Words match by their index form, so a hit is always a whole word.
fn find<'a>(text: &str, needles: &'a Needles) -> Vec<Hit<'a>> {
    let initials: BTreeSet<char> =
        needles.stems.keys().chain(&needles.prefixes).filter_map(|form| form.chars().next()).collect();
    let mut hits = Vec::new();
    let mut known: BTreeMap<&str, Option<&'a str>> = BTreeMap::new();
    for (from, word) in words_at(text) {
        let hit = *known.entry(word).or_insert_with(|| which(word, needles, &initials));
        if let Some(hit) = hit {
            hits.push(Hit { from, to: from + word.len(), word: hit });
        } else if !needles.runs.is_empty() && word.chars().any(is_cjk) {
            run_hits(from, word, needles, &mut hits);
        }
    }
    hits
}

/// The word of the query that a word of the text stands for.
fn which<'a>(word: &str, needles: &'a Needles, initials: &BTreeSet<char>) -> Option<&'a str> {
    let first = word.chars().next()?;
    let may = if first.is_ascii() { initials.contains(&first.to_ascii_lowercase()) } else { true };
    if !may {
        return None;
    }
    if let Some(asked) = needles.stems.get(&index_form(word)) {
        return Some(asked);
    }
    let folded = fold(word);
    needles.prefixes.iter().find(|prefix| folded.starts_with(prefix.as_str())).map(String::as_str)
}

/// Hits inside a run of a script without spaces: they may touch, but never overlap.
fn run_hits<'a>(from: usize, word: &str, needles: &'a Needles, hits: &mut Vec<Hit<'a>>) {
    let mut at = 0;
    while let Some(rest) = word.get(at..).filter(|rest| !rest.is_empty()) {
        let longest =
            needles.runs.iter().filter(|run| rest.starts_with(run.as_str())).max_by_key(|run| run.len());
        if let Some(run) = longest {
            hits.push(Hit { from: from + at, to: from + at + run.len(), word: run });
            at += run.len();
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
}

/// Words with their byte offsets.
fn words_at(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split(|c: char| !is_word_char(c)).filter_map(move |word| {
        let from = at;
        // A separator may take several bytes; it is what lies between two pieces.
        at += word.len();
        at += text.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8);
        (!word.is_empty()).then_some((from, word))
    })
}

/// The hit at which the best window of `room` bytes begins, and how many different words it
/// holds.
fn densest(hits: &[Hit<'_>], room: usize) -> (usize, usize) {
    let mut best = (0, 0, 0);
    let mut inside: BTreeMap<&str, usize> = BTreeMap::new();
    let mut end = 0;
    for (start, first) in hits.iter().enumerate() {
        while let Some(hit) = hits.get(end).filter(|hit| hit.to <= first.from + room) {
            *inside.entry(hit.word).or_default() += 1;
            end += 1;
        }
        if end <= start {
            // A single hit that is longer than the window.
            *inside.entry(first.word).or_default() += 1;
            end = start + 1;
        }
        let (different, all) = (inside.len(), end - start);
        if (different, all) > (best.1, best.2) {
            best = (start, different, all);
        }
        if let Some(count) = inside.get_mut(first.word) {
            *count -= 1;
            if *count == 0 {
                inside.remove(first.word);
            }
        }
    }
    (best.0, best.1)
}

/// Where a passage begins so that a hit stands in some context: at the beginning of a word.
fn lead_in(text: &str, hit: usize) -> usize {
    let before = text.split_at_checked(hit).map_or("", |(before, _)| before);
    let Some((from, _)) = before.char_indices().rev().nth(LEAD) else { return 0 };
    let lead = before.split_at_checked(from).map_or("", |(_, lead)| lead);
    // Without white space in reach the hit itself is where it begins.
    lead.char_indices()
        .find(|(_, c)| c.is_whitespace())
        .map_or(if lead.chars().any(is_cjk) { from } else { hit }, |(at, c)| from + at + c.len_utf8())
}

/// Writes the passage: white space becomes one space, control characters go.
fn write(text: &str, start: usize, hits: &[Hit<'_>]) -> (String, Vec<(usize, usize)>) {
    let mut out = String::new();
    let mut length = 0;
    let mut highlights = Vec::new();
    let mut open: Option<usize> = None;
    let mut hits = hits.iter().peekable();
    let mut space = false;
    let mut last_break = None;
    let mut last_cluster = (0, 0);
    let mut joint = Joint::default();
    let mut whole = true;
    let rest = text.get(start..).unwrap_or_default();
    if start > 0 && !rest.trim().is_empty() {
        out.push('…');
        length += 1;
    }
    let began = length;
    for (at, c) in rest.char_indices().map(|(at, c)| (at + start, c)) {
        if let Some(hit) = hits.peek()
            && at >= hit.to
        {
            if let Some(from) = open.take() {
                highlights.push((from, length));
            }
            hits.next();
        }
        if c.is_whitespace() {
            space = length > began;
            joint = Joint::default();
            continue;
        }
        if is_unprintable(c) {
            continue;
        }
        let joins = joint.joins(c);
        if length >= began + LENGTH {
            whole = false;
            if joins {
                out.truncate(last_cluster.0);
                length = last_cluster.1;
            }
            break;
        }
        if space {
            last_break = Some((out.len(), length));
            out.push(' ');
            length += 1;
            space = false;
        }
        if !joins {
            last_cluster = (out.len(), length);
        }
        if open.is_none() && hits.peek().is_some_and(|hit| hit.from <= at && at < hit.to) {
            open = Some(length);
        }
        out.push(c);
        length += 1;
    }
    if let Some(from) = open {
        highlights.push((from, length));
    }
    if !whole {
        // The last word is cut: drop it, unless it is most of the passage.
        if let Some((bytes, chars)) = last_break.filter(|(_, chars)| *chars + 60 > length) {
            out.truncate(bytes);
            length = chars;
        }
        highlights.retain_mut(|(from, to)| {
            *to = (*to).min(length);
            from < to
        });
        out.push('…');
    }
    (out, highlights)
}

/// What people see as one sign may take several characters.
#[derive(Default)]
struct Joint {
    last: Option<char>,
    is_half_flag: bool,
}

impl Joint {
    /// Whether the next character belongs to what is before it.
    fn joins(&mut self, c: char) -> bool {
        const JOINER: char = '\u{200d}';
        let is_letter_of_flag = matches!(c, '\u{1f1e6}'..='\u{1f1ff}');
        let modifies =
            c == JOINER || is_mark(c) || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
        let joins = self.last.is_some()
            && (modifies || self.last == Some(JOINER) || (is_letter_of_flag && self.is_half_flag));
        self.is_half_flag = is_letter_of_flag && !joins;
        self.last = Some(c);
        joins
    }
}

/// Control characters would steer a terminal; directional ones would reorder its line.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Removes what would steer a terminal from a text that is shown on one line; line ends and
/// tabs become spaces.
pub fn printable(text: &str) -> String {
    let spaced = text.chars().map(|c| if c.is_whitespace() && c.is_control() { ' ' } else { c });
    spaced
        .map(|c| if matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c })
        .filter(|c| !is_unprintable(*c))
        .collect()
}

impl Snippet {
    /// Text with `before` and `after` around each hit, every character put through `escape`.
    fn marked(&self, before: &str, after: &str, escape: impl Fn(char, &mut String)) -> String {
        let mut out = String::with_capacity(self.text.len() + 32);
        let mut marks = self.highlights.iter().peekable();
        for (at, c) in self.text.chars().enumerate() {
            if marks.peek().is_some_and(|(from, _)| *from == at) {
                out.push_str(before);
            }
            escape(c, &mut out);
            if marks.peek().is_some_and(|(_, to)| *to == at + 1) {
                out.push_str(after);
                marks.next();
            }
        }
        out
    }

    /// HTML: hits in `<mark>`, everything else escaped.
    pub fn html(&self) -> String {
        self.marked("<mark>", "</mark>", |c, out| match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        })
    }

    /// For a terminal: hits in bold.
    pub fn ansi(&self) -> String {
        self.marked("\u{1b}[1m", "\u{1b}[22m", |c, out| out.push(c))
    }
}

#[cfg(test)]
mod tests;
