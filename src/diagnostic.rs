//! Problems of a text: where they are, what is wrong, what was probably meant.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;
use unicode_width::UnicodeWidthChar;

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The text cannot be used.
    Error,
    /// The text can be used, but probably does not say what was meant.
    Warning,
}

impl Severity {
    /// The word that reports begin with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file, or what else the text came from.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Column behind the last character that is meant, on the same line.
    pub end_column: usize,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub suggestion: Option<String>,
    /// The line, without its end.
    pub source: String,
}

impl Diagnostic {
    /// Adds what to do about it.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = Some(suggestion.into());
        self
    }

    /// Adds a guess at what was meant by `word`, when one of `known` is near.
    #[must_use]
    pub fn guess<'a>(mut self, word: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        if let Some(near) = nearest(word, known) {
            self.suggestion = Some(format!("did you mean `{near}`?"));
        }
        self
    }

    /// Makes it a warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// `file:line:column`
    pub fn place(&self) -> String {
        format!("{}:{}:{}", self.file, self.line, self.column)
    }

    /// One line: place, severity, message, suggestion.
    pub fn short(&self) -> String {
        let suggestion = self.suggestion.as_ref().map(|text| format!("; {text}")).unwrap_or_default();
        format!("{}: {}: {}{suggestion}", self.place(), self.severity.as_str(), self.message)
    }

    /// For people: the message, the place, the line with a caret under what is meant.
    pub fn render(&self) -> String {
        let gutter = " ".repeat(self.line.to_string().len());
        let mut out = format!("{}: {}\n", self.severity.as_str(), self.message);
        let mut shown = String::new();
        let mut before = 0;
        let mut marked = 0;
        for (idx, c) in self.source.chars().enumerate() {
            // Tabs and control characters would move the caret, or do worse to a terminal.
            let (c, width) = match c {
                '\t' => (' ', 1),
                c if c.is_control() => ('\u{fffd}', 1),
                c => (c, c.width().unwrap_or(0)),
            };
            shown.push(c);
            if idx + 1 < self.column {
                before += width;
            } else if idx + 1 < self.end_column {
                marked += width;
            }
        }
        // A place behind the end of the line is marked too.
        before += self.column.saturating_sub(1).saturating_sub(self.source.chars().count());
        let mark = "^".repeat(marked.max(1));
        let suggestion = self.suggestion.as_ref().map(|text| format!(" {text}")).unwrap_or_default();
        let lines = writeln!(out, "{gutter}--> {}", self.place())
            .and_then(|()| writeln!(out, "{gutter} |"))
            .and_then(|()| writeln!(out, "{} | {shown}", self.line))
            .and_then(|()| writeln!(out, "{gutter} | {}{mark}{suggestion}", " ".repeat(before)));
        debug_assert!(lines.is_ok(), "writing to a String cannot fail");
        out
    }

    /// A GitHub Actions workflow command.
    pub fn github(&self) -> String {
        let suggestion = self.suggestion.as_ref().map(|text| format!(" ({text})")).unwrap_or_default();
        format!(
            "::{} file={},line={},col={},endColumn={}::{}",
            self.severity.as_str(),
            escape(&self.file, true),
            self.line,
            self.column,
            self.end_column,
            escape(&format!("{}{suggestion}", self.message), false),
        )
    }
}

/// Escapes a value of a workflow command.
fn escape(text: &str, property: bool) -> String {
    let text = text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    if property { text.replace(':', "%3A").replace(',', "%2C") } else { text }
}

/// A text that problems are reported in.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The file, or what else the text came from.
    pub file: Cow<'a, str>,
    /// The text without its byte order mark.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// Names a text. A byte order mark in front is dropped: no column counts it.
    pub fn new(file: impl Into<Cow<'a, str>>, text: &'a str) -> Self {
        Self { file: file.into(), text: text.strip_prefix('\u{feff}').unwrap_or(text) }
    }

    /// Makes an error about the bytes `span` of the text; places outside of it mean its end.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> Diagnostic {
        let before = prefix(self.text, span.start);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() + 1;
        let rest = self.text.get(line_start..).unwrap_or_default();
        let source = rest.split('\n').next().unwrap_or_default();
        let source = source.strip_suffix('\r').unwrap_or(source);
        let column = prefix(rest, before.len() - line_start).chars().count() + 1;
        let end = prefix(source, span.end.saturating_sub(line_start)).chars().count() + 1;
        Diagnostic {
            file: self.file.clone().into_owned(),
            line,
            column,
            end_column: end.max(column + 1),
            severity: Severity::Error,
            message: message.into(),
            suggestion: None,
            source: without_secret(source),
        }
    }
}

/// Words in a line after which a secret may stand, and what a URL with a password holds.
const SECRET_WORDS: [&str; 7] = ["token", "password", "passwd", "secret", "api_key", "apikey", "private_key"];

/// A line as it may be shown: what may be a secret in the wrong place is cut off.
fn without_secret(line: &str) -> String {
    let lower = line.to_ascii_lowercase();
    let named = SECRET_WORDS.iter().filter_map(|word| lower.find(word)).min();
    let in_url = lower.find("://").filter(|at| lower.get(*at..).is_some_and(|rest| rest.contains('@')));
    let Some(first) = [named, in_url].into_iter().flatten().min() else { return line.to_owned() };
    // The name of the key stays: behind it begins the value.
    let value = lower
        .get(first..)
        .and_then(|rest| rest.find(['=', '"', '\'', ':']))
        .map_or(lower.len(), |at| first + at + 1);
    match line.get(..value) {
        Some(kept) if value < line.len() => format!("{kept} …"),
        _ => line.to_owned(),
    }
}

/// The first `len` bytes of a text, cut back to a character.
fn prefix(text: &str, len: usize) -> &str {
    let mut len = len.min(text.len());
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    text.get(..len).unwrap_or_default()
}

/// Names in a suggestion at most: a longer list is no help.
const LISTED: usize = 20;

/// Lists names for a suggestion, the first of them when there are many.
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names.iter().take(LISTED).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(LISTED) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

/// Returns the known word that `word` was probably meant to be.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', '.', ' '], "_");
    let word = plain(word);
    // One slip in three characters; a guess that is further off confuses.
    let allowed = (word.chars().count() / 3).clamp(1, 4);
    known
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters_and_lines_survive_crlf_and_bom() {
        let text = "\u{feff}a = 1\r\nüß = \"日本\" # x\r\nlast";
        let source = Source::new("f.toml", text);
        let at = source.text.find('#').unwrap();
        let diagnostic = source.error(at..at + 1, "no");
        assert_eq!(diagnostic.place(), "f.toml:2:11");
        assert_eq!(diagnostic.source, "üß = \"日本\" # x");
        assert_eq!(
            diagnostic.render(),
            "error: no\n --> f.toml:2:11\n  |\n2 | üß = \"日本\" # x\n  |             ^\n"
        );
        assert_eq!(source.error(0..1, "no").place(), "f.toml:1:1");
        assert_eq!(source.error(9_999..9_999, "no").place(), "f.toml:3:5");
    }

    #[test]
    fn a6_11_a_secret_in_the_wrong_place_is_not_shown() {
        for line in [
            "token = \"S3CR3T\"",
            "with = { source = \"demo\", private_token = 'S3CR3T' }",
            "\"API_KEY\" = \"S3CR3T\"",
            "url = \"https://user:S3CR3T@host/\"",
            "url = \"https://host/?private_token=S3CR3T\"",
            "password=S3CR3T",
        ] {
            let shown = Source::new("f", line).error(0..line.len(), "no");
            assert!(!shown.source.contains("S3CR3T"), "{}", shown.source);
            assert!(!shown.render().contains("S3CR3T"));
        }
        let plain = "needs = [\"ingest\"] # ://";
        assert_eq!(Source::new("f", plain).error(0..1, "no").source, plain);
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        assert!(list(names.iter().map(String::as_str)).ends_with("18, 19 and 5 more"));
        assert_eq!(list(["a", "b"]), "a, b");
    }

    #[test]
    fn a_span_over_several_lines_marks_the_first() {
        let source = Source::new("f", "abc = [\n 1,\n]\n");
        let diagnostic = source.error(6..13, "no");
        assert_eq!((diagnostic.column, diagnostic.end_column), (7, 8));
    }

    #[test]
    fn workflow_commands_are_escaped() {
        let source = Source::new("a,b:c.toml", "x");
        let line = source.error(0..1, "50%\nnext").github();
        assert_eq!(line, "::error file=a%2Cb%3Ac.toml,line=1,col=1,endColumn=2::50%25%0Anext");
    }

    #[test]
    fn guesses_are_near_or_absent() {
        let known = ["retry", "timeout", "allow_failure", "needs"];
        assert_eq!(nearest("retrys", known), Some("retry"));
        assert_eq!(nearest("allow-failure", known), Some("allow_failure"));
        assert_eq!(nearest("TimeOut", known), Some("timeout"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let source = Source::new("f", "a\u{1b}[31m\tb");
        assert!(!source.error(0..1, "no").render().contains('\u{1b}'));
    }
}
