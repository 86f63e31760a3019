//! Passages with their sources, for a language model that is to answer from them.

use crate::clock;
use crate::content::chunk::estimate_tokens;
use crate::search::snippet::printable;
use crate::search::{Answer, Hit, Request};

use super::json;

/// Tokens of a pack unless told otherwise.
pub(super) const DEFAULT_TOKENS: usize = 4_000;

/// Fewest tokens: a source with a sentence or two.
pub(super) const LEAST_TOKENS: usize = 100;

/// Characters of one passage: an eighth of the pack, three characters a token.
pub(super) fn passage_chars(max_tokens: usize) -> usize {
    max_tokens.saturating_mul(3).div_euclid(8).clamp(200, 8_000)
}

/// Where a passage is from, on one line.
fn source(number: usize, hit: &Hit) -> String {
    let document = &hit.document;
    let title = printable(document.title.as_deref().unwrap_or("(untitled)"));
    let mut facts = vec![document.source_type.as_str().replace('_', " "), document.state.clone()];
    facts.extend(document.author.iter().map(|author| format!("@{}", printable(author))));
    facts.extend(document.updated_at.or(document.created_at).map(clock::day));
    let url = document.url.as_deref().map(printable).unwrap_or_default();
    format!("[{number}] {} {title} ({}) {url}", json::reference(hit), facts.join(", ")).trim_end().to_owned()
}

/// Writes passages, the best first, as far as they fit; the last one may be cut.
pub(super) fn pack(request: &Request, answer: &Answer, max_tokens: usize) -> String {
    let mut out = String::new();
    let mut left = max_tokens;
    for (number, hit) in (request.offset + 1..).zip(&answer.hits) {
        let head = source(number, hit);
        // An estimate of parts may be a little less than that of the whole.
        let cost = estimate_tokens(&head) + 4;
        if cost >= left {
            break;
        }
        let passage = hit.passage.as_deref().unwrap_or(&hit.snippet.text);
        let body = cut(passage, left - cost);
        left = left.saturating_sub(cost + estimate_tokens(&body));
        out.push_str(&head);
        out.push('\n');
        if !body.is_empty() {
            out.push_str(&body);
            out.push('\n');
        }
        out.push('\n');
    }
    out
}

/// The beginning of a text that has no more tokens than there is room for.
fn cut(text: &str, tokens: usize) -> String {
    if estimate_tokens(text) <= tokens {
        return text.to_owned();
    }
    let all: Vec<char> = text.chars().collect();
    let (mut fits, mut too_long) = (0, all.len());
    while fits + 1 < too_long {
        let middle = usize::midpoint(fits, too_long);
        let part: String = all.iter().take(middle).collect();
        if estimate_tokens(&part) < tokens { fits = middle } else { too_long = middle }
    }
    if fits == 0 {
        return String::new();
    }
    let mut part: String = all.iter().take(fits).collect();
    part.push('…');
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_passage_is_cut_between_characters_and_never_longer_than_its_room() {
        let text = "日本語のテキスト and some words ".repeat(40);
        for tokens in [0, 1, 2, 10, 100, 10_000] {
            let part = cut(&text, tokens);
            assert!(estimate_tokens(&part) <= tokens, "{tokens}: {}", estimate_tokens(&part));
        }
        assert_eq!(cut("short", 100), "short");
    }
}
