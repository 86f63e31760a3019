//! The part of a document that is handed on to a reader outside: a reranker, a language model.

use super::lexical::Needles;
use super::snippet;
use crate::store::search::Hydrated;

/// The title and the best passage of a document, at most `chars` characters of both. Empty
/// when the document holds nothing.
pub(super) fn of(
    document: &Hydrated,
    span: Option<(usize, usize)>,
    needles: &Needles,
    chars: usize,
) -> String {
    let title = document.title.as_deref().unwrap_or_default().trim();
    let title: String = snippet::printable(title).chars().take(chars).collect();
    let room = chars.saturating_sub(title.chars().count() + 1);
    let text = best(document, span, needles, room);
    match (title.is_empty(), text.is_empty()) {
        (false, false) => format!("{title}\n{text}"),
        (true, _) => text,
        (_, true) => title,
    }
}

/// The best passage of a document's text and threads; where no word of the query stands, the
/// one nearest in meaning, else the beginning.
pub(super) fn best(
    document: &Hydrated,
    span: Option<(usize, usize)>,
    needles: &Needles,
    chars: usize,
) -> String {
    if chars == 0 {
        return String::new();
    }
    let (mut text, mut density) = snippet::excerpt(&document.body, needles, chars);
    if !document.thread.is_empty() {
        let (other, dense) = snippet::excerpt(&document.thread, needles, chars);
        if dense > density || text.is_empty() {
            (text, density) = (other, dense);
        }
    }
    match span.filter(|_| density == 0) {
        Some((from, _)) if document.body.chars().nth(chars).is_some() => {
            let from = from.saturating_sub(document.body_start);
            let rest: String = document.body.chars().skip(from).collect();
            snippet::excerpt(&rest, &Needles::default(), chars).0
        }
        Some(_) | None => text,
    }
}
