//! The form of an answer for people.

use std::io;

use unicode_width::UnicodeWidthChar;

use super::super::Human;
use super::{Highlight, explain, json};
use crate::clock;
use crate::content::SourceType;
use crate::search::snippet::printable;
use crate::search::{Answer, Hit, Request};
use crate::store::search::facets::Facets;

pub(super) const INDENT: &str = "    ";

/// Writes an answer.
pub(super) fn write(
    out: &mut Human<'_>,
    request: &Request,
    answer: &Answer,
    highlight: Highlight,
    explain: bool,
) -> io::Result<()> {
    if answer.corpus == 0 && request.scope.projects.is_some() {
        out.line("Nothing is indexed inside this scope.")?;
    } else if answer.corpus == 0 {
        out.line("No data indexed yet.")?;
        out.line("Run `lore run sync` to bring your projects in, or `lore run demo` for sample data.")?;
    } else if answer.total.count == 0 {
        nothing(out, request, answer)?;
    } else if answer.hits.is_empty() {
        out.line(format!("No results beyond {}; there are {}.", request.offset, total(answer)))?;
    } else {
        out.line(format!("Found {} ({} search)", total(answer), answer.mode.as_str()))?;
        let best = answer.hits.iter().map(|hit| hit.relevance).fold(0.0, f64::max);
        if best < LOOSE && request.offset == 0 {
            out.line(format!(
                "Nothing close among them: the best is related by {best:.2}, of 1; below {LOOSE} is most likely a miss."
            ))?;
        }
        out.line("")?;
        for (number, hit) in (request.offset + 1..).zip(&answer.hits) {
            write_hit(out, number, hit, highlight, explain)?;
        }
        let next = request.offset + answer.hits.len();
        if next < answer.total.count || !answer.total.exact {
            out.line(format!("More: --offset {next}"))?;
        }
    }
    if let Some(facets) = &answer.facets {
        write_facets(out, facets)?;
    }
    if explain {
        explain::answer(out, answer)?;
    }
    Ok(())
}

/// Relevance of the best result below which a question most likely has no answer: measured, see
/// docs/quality.md, "Recognising a miss".
const LOOSE: f64 = 0.35;

/// Characters of a question that are repeated.
const SHOWN_CHARS: usize = 200;

/// Values that are written of a facet.
const FACET_VALUES: usize = 8;

fn write_facets(out: &mut Human<'_>, facets: &Facets) -> io::Result<()> {
    for (name, facet) in [
        ("project", &facets.project),
        ("type", &facets.source_type),
        ("label", &facets.label),
        ("author", &facets.author),
        ("month", &facets.month),
    ] {
        if facet.values.is_empty() {
            continue;
        }
        let mut values: Vec<String> = facet
            .values
            .iter()
            .take(FACET_VALUES)
            .map(|value| format!("{} ({})", printable(&value.value), value.count))
            .collect();
        let more = facet.values.len().saturating_sub(FACET_VALUES) + facet.more;
        if more > 0 {
            values.push(format!("and {more} more"));
        }
        let width = out.columns.unwrap_or(usize::MAX).saturating_sub(9).max(20);
        for (at, line) in wrap(&values.join(", "), width).into_iter().enumerate() {
            let name = out.paint("1", &format!("{:<9}", if at == 0 { name } else { "" }));
            out.line(format!("{name}{line}"))?;
        }
    }
    out.line("")
}

fn total(answer: &Answer) -> String {
    let more = if answer.total.exact { "" } else { "at least " };
    let plural = if answer.total.count == 1 { "" } else { "s" };
    format!("{more}{} result{plural}", answer.total.count)
}

fn write_hit(
    out: &mut Human<'_>,
    number: usize,
    hit: &Hit,
    highlight: Highlight,
    explain: bool,
) -> io::Result<()> {
    let document = &hit.document;
    let kind = match document.source_type {
        SourceType::Issue => "Issue",
        SourceType::MergeRequest => "MR",
        SourceType::Discussion => "Discussion",
    };
    let title = printable(document.title.as_deref().unwrap_or("(untitled)"));
    let width = out.columns.unwrap_or(usize::MAX).saturating_sub(INDENT.len()).max(20);
    let head = format!(
        "[{number}] {} {} - {} ({:.2})",
        out.paint("36", kind),
        json::reference(hit),
        out.paint("1", &title),
        hit.score
    );
    for (at, line) in wrap(&head, width).into_iter().enumerate() {
        out.line(format!("{}{line}", if at == 0 { "" } else { INDENT }))?;
    }
    let mut facts = Vec::new();
    if let Some(author) = &document.author {
        facts.push(format!("@{}", printable(author)));
    }
    if let Some(date) = document.updated_at.or(document.created_at) {
        facts.push(clock::day(date));
    }
    facts.push(document.state.clone());
    if !document.labels.is_empty() {
        facts.push(printable(&document.labels.join(", ")));
    }
    for line in wrap(&facts.join(" · "), width) {
        out.line(format!("{INDENT}{line}"))?;
    }
    for line in wrap(&json::snippet(hit, highlight), width) {
        out.line(format!("{INDENT}{line}"))?;
    }
    // A mention says little; that it was moved, or what closed it, says where to go on.
    for related in hit.related.iter().filter(|related| !related.phrase.starts_with("mention")) {
        let title = printable(related.title.as_deref().unwrap_or_default());
        for line in wrap(&format!("{} {} {title}", related.phrase, related.reference), width) {
            out.line(format!("{INDENT}{line}"))?;
        }
    }
    if let Some(url) = &document.url {
        out.line(format!("{INDENT}{}", out.paint("2", &printable(url))))?;
    }
    if explain {
        explain::result(out, hit)?;
    }
    out.line("")
}

/// Nothing was found: says what was tried, and what to let go.
fn nothing(out: &mut Human<'_>, request: &Request, answer: &Answer) -> io::Result<()> {
    let asked = request.like.as_deref().unwrap_or(&request.text);
    let shown: String = asked.chars().take(SHOWN_CHARS).collect();
    let cut = if shown.len() < asked.len() { " …" } else { "" };
    out.line(format!("No results for {:?}{cut} among {} documents.", printable(&shown), answer.corpus))?;
    let absent: Vec<&str> =
        answer.terms.iter().filter(|term| term.documents == 0).map(|term| term.text.as_str()).collect();
    if !absent.is_empty() {
        out.line(format!("In no document: {}", printable(&absent.join(", "))))?;
    }
    for loosened in &answer.loosened {
        let plural = if loosened.documents == 1 { "" } else { "s" };
        out.line(format!(
            "Without {}: {} document{plural}",
            printable(&loosened.without),
            loosened.documents
        ))?;
    }
    if request.min_score.is_some() {
        out.line("--min-score leaves out what scores lower.")?;
    }
    if answer.loosened.is_empty() && absent.is_empty() {
        out.line("Try fewer words, a beginning with * (`auth*`), or fewer filters.")?;
    }
    Ok(())
}

/// Wraps a text at spaces, and a word that is wider than a line where the line ends; escape
/// sequences take no room.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let size = visible_width(word);
        if used > 0 && used + 1 + size > width {
            lines.push(String::new());
            used = 0;
        }
        if used > 0
            && let Some(line) = lines.last_mut()
        {
            line.push(' ');
            used += 1;
        }
        let mut in_escape = false;
        for c in word.chars() {
            let room = if in_escape || c == '\u{1b}' { 0 } else { c.width().unwrap_or(0) };
            in_escape = if in_escape { c != 'm' } else { c == '\u{1b}' };
            if used + room > width {
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
            used += room;
        }
    }
    lines
}

pub(super) fn visible_width(text: &str) -> usize {
    let mut in_escape = false;
    text.chars()
        .map(|c| {
            if in_escape {
                in_escape = c != 'm';
                0
            } else if c == '\u{1b}' {
                in_escape = true;
                0
            } else {
                c.width().unwrap_or(0)
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_by_what_is_visible() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("\u{1b}[1mone\u{1b}[22m two three", 7), ["\u{1b}[1mone\u{1b}[22m two", "three"]);
        assert_eq!(wrap("日本語 日本語", 7), ["日本語", "日本語"]);
        assert_eq!(wrap("", 7), [""]);
        assert_eq!(
            wrap("a abcdefghij \u{1b}[1m日本語語\u{1b}[22m", 7),
            ["a", "abcdefg", "hij", "\u{1b}[1m日本語", "語\u{1b}[22m"]
        );
    }
}
