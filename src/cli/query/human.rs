//! The form of an answer for people.

use std::io;

use unicode_width::UnicodeWidthChar;

use super::super::Human;
use super::{Highlight, json};
use crate::clock;
use crate::content::SourceType;
use crate::search::snippet::printable;
use crate::search::{Answer, Hit, Request};

const INDENT: &str = "    ";

/// Writes an answer.
pub(super) fn write(
    out: &mut Human<'_>,
    request: &Request,
    answer: &Answer,
    highlight: Highlight,
    explain: bool,
) -> io::Result<()> {
    if answer.corpus == 0 {
        out.line("No data indexed yet.")?;
        out.line("Run `lore run sync` to bring your projects in, or `lore run demo` for sample data.")?;
    } else if answer.total.count == 0 {
        nothing(out, request, answer)?;
    } else if answer.hits.is_empty() {
        out.line(format!("No results beyond {}; there are {}.", request.offset, total(answer)))?;
    } else {
        out.line(format!("Found {} ({} search)", total(answer), answer.mode.as_str()))?;
        out.line("")?;
        for (number, hit) in (request.offset + 1..).zip(&answer.hits) {
            write_hit(out, number, hit, highlight, explain)?;
        }
    }
    if explain {
        stages(out, answer)?;
    }
    Ok(())
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
    let head = format!(
        "[{number}] {} {} - {} ({:.2})",
        out.paint("36", kind),
        json::reference(hit),
        out.paint("1", &title),
        hit.score
    );
    out.line(head)?;
    if explain {
        let explain = &hit.explain;
        let rank = explain.fts_rank.map_or_else(|| "-".to_owned(), |rank| format!("#{rank}"));
        let bm25 = explain.bm25.map_or_else(|| "-".to_owned(), |score| format!("{score:.3}"));
        let vector = match (explain.vector_rank, explain.cosine) {
            (Some(rank), Some(cosine)) => format!("#{rank} (cosine {cosine:.3})"),
            (_, _) => "-".to_owned(),
        };
        let pinned = if explain.pinned { ", named by the query" } else { "" };
        let matched: Vec<&str> = explain.matched.iter().map(String::as_str).collect();
        let line = format!(
            "{INDENT}Vector: {vector}, FTS: {rank}, BM25: {bm25}, relevance: {:.2}{pinned}; matched: {}",
            hit.relevance,
            printable(&matched.join(", "))
        );
        out.line(out.paint("2", &line))?;
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
    out.line(format!("{INDENT}{}", facts.join(" · ")))?;
    let width = out.columns.unwrap_or(usize::MAX).saturating_sub(INDENT.len()).max(20);
    for line in wrap(&json::snippet(hit, highlight), width) {
        out.line(format!("{INDENT}{line}"))?;
    }
    if let Some(url) = &document.url {
        out.line(format!("{INDENT}{}", out.paint("2", &printable(url))))?;
    }
    out.line("")
}

/// Nothing was found: says what was tried, and what to let go.
fn nothing(out: &mut Human<'_>, request: &Request, answer: &Answer) -> io::Result<()> {
    let asked = request.like.as_deref().unwrap_or(&request.text);
    out.line(format!("No results for {:?} among {} documents.", printable(asked), answer.corpus))?;
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

fn stages(out: &mut Human<'_>, answer: &Answer) -> io::Result<()> {
    for stage in &answer.stages {
        let line = format!(
            "{:<9} {:<12} {:>9.3} ms",
            stage.name,
            stage.status.as_str(),
            stage.elapsed.as_secs_f64() * 1e3
        );
        out.line(out.paint("2", &line))?;
    }
    for term in &answer.terms {
        let used = if term.used { "" } else { " (left out)" };
        let line = format!("{:<22} {:>7} documents{used}", printable(&term.text), term.documents);
        out.line(out.paint("2", &line))?;
    }
    Ok(())
}

/// Wraps a text at spaces; escape sequences take no room.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let size = visible_width(word);
        if used > 0 && used + 1 + size > width {
            lines.push(String::new());
            used = 0;
        }
        if let Some(line) = lines.last_mut() {
            if used > 0 {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += size;
        }
    }
    lines
}

fn visible_width(text: &str) -> usize {
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
    }
}
