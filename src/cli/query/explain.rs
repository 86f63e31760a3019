//! An explanation as a table that a person can read.

use std::io;

use super::super::Human;
use super::human::{INDENT, visible_width, wrap};
use super::json;
use crate::search::adjust::Change;
use crate::search::snippet::printable;
use crate::search::{Answer, Hit};

/// Width of the columns: what, rank, found.
const COLUMNS: [usize; 3] = [11, 6, 34];

/// One line of the table of a result: where from, the rank there, what was found, what it gives.
fn row(out: &mut Human<'_>, cells: [&str; 4]) -> io::Result<()> {
    let mut line = String::from(INDENT);
    for (cell, width) in cells.iter().zip(COLUMNS) {
        line.push_str(cell);
        line.extend(std::iter::repeat_n(' ', width.saturating_sub(visible_width(cell)).max(1)));
    }
    line.push_str(cells[3]);
    let line = line.trim_end();
    match out.columns.filter(|columns| visible_width(line) > *columns) {
        Some(columns) => wrap(line, columns).iter().try_for_each(|line| out.line(out.paint("2", line))),
        None => out.line(out.paint("2", line)),
    }
}

/// Where a result came from, and every factor of its score.
pub(super) fn result(out: &mut Human<'_>, hit: &Hit) -> io::Result<()> {
    let explain = &hit.explain;
    let rank = |rank: Option<usize>| rank.map_or_else(|| "-".to_owned(), |rank| format!("#{rank}"));
    let rrf = json::rrf(explain).map_or_else(|| "-".to_owned(), |rrf| format!("{rrf:.4}"));
    let ranks =
        format!("{INDENT}Vector: {}, FTS: {}, RRF: {rrf}", rank(explain.vector_rank), rank(explain.fts_rank));
    out.line(out.paint("2", &ranks))?;
    row(out, ["from", "rank", "found", "gives"])?;
    let bm25 = explain.bm25.map_or_else(|| "not by words".to_owned(), |bm25| format!("bm25 {bm25:.3}"));
    let part = |part: Option<f64>| part.map_or_else(String::new, |part| format!("{part:.3}"));
    row(out, ["words", &rank(explain.fts_rank), &bm25, &part(explain.fused.map(|fused| fused.lexical))])?;
    let cosine =
        explain.cosine.map_or_else(|| "not by meaning".to_owned(), |cosine| format!("cosine {cosine:.3}"));
    row(
        out,
        ["meaning", &rank(explain.vector_rank), &cosine, &part(explain.fused.map(|fused| fused.vector))],
    )?;
    if explain.pinned {
        row(out, ["named", "", "by the query", "first"])?;
    }
    if let Some(of) = &explain.neighbour_of {
        row(out, ["graph", "", &format!("{} {} (step {})", of.phrase, printable(&of.name), of.depth), ""])?;
    }
    for factor in &explain.factors {
        let change = match factor.change {
            Change::Times(value) => format!("x {value:.3}"),
            Change::Plus(value) => format!("+ {value:.3}"),
            Change::AtMost(value) => format!("at most {value:.3} of its copy"),
        };
        row(out, [factor.name, "", "", &change])?;
    }
    if let Some(score) = explain.reranked {
        row(out, ["reranker", "", &format!("score {score:.4}"), ""])?;
    }
    let absolute = format!("relevance {:.2}", hit.relevance);
    row(out, ["score", "", &absolute, &format!("{:.3}", hit.score)])?;
    let matched: Vec<&str> = explain.matched.iter().map(String::as_str).collect();
    if !matched.is_empty() {
        row(out, ["holds", "", &printable(&matched.join(", ")), ""])?;
    }
    Ok(())
}

/// What each stage took and how it ended, and what became of the words.
pub(super) fn answer(out: &mut Human<'_>, answer: &Answer) -> io::Result<()> {
    out.line(out.paint("2", &format!("{:<11}{:<14}{:>10}", "stage", "status", "ms")))?;
    for stage in &answer.stages {
        let ms = stage.elapsed.as_secs_f64() * 1e3;
        out.line(out.paint("2", &format!("{:<11}{:<14}{ms:>10.3}", stage.name, stage.status.as_str())))?;
    }
    if let Some(error) = &answer.rerank.error {
        out.line(out.paint("2", &format!("rerank: {}", printable(error))))?;
    }
    for hint in &answer.hints {
        let line = format!("names a {}: {}:{}", hint.operator, hint.operator, printable(&hint.name));
        out.line(out.paint("2", &line))?;
    }
    if !answer.terms.is_empty() {
        out.line(out.paint("2", &format!("{:<25}{:>10}", "word", "documents")))?;
    }
    for term in &answer.terms {
        let used = if term.used { "" } else { "  left out" };
        let text = printable(&term.text);
        let room = " ".repeat(24_usize.saturating_sub(visible_width(&text)));
        out.line(out.paint("2", &format!("{text}{room} {:>10}{used}", term.documents)))?;
    }
    Ok(())
}
