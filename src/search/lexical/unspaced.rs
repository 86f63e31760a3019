//! Texts in scripts that are written without spaces: the index holds pairs of their characters.

use std::collections::BTreeSet;

use super::{Builder, Count, Part, Term, as_number, quoted};
use crate::content::terms;
use crate::error::Result;
use crate::search::words::is_cjk;

/// Pairs of characters that are a word, and have to be there together; more are a sentence.
const TOGETHER: usize = 4;

/// Pairs of a sentence that are looked for.
const MAX_PAIRS: usize = 48;

/// What a pair of a sentence counts.
const PAIR: f64 = 0.5;

/// Characters of a token that terms are made of: a text without spaces is one token.
const MAX_TOKEN_CHARS: usize = 80;

/// The beginning of a token in a script without spaces, the whole of any other.
pub(super) fn readable(token: &str) -> &str {
    let end = token.char_indices().nth(MAX_TOKEN_CHARS).map(|(at, _)| at);
    end.filter(|_| token.chars().any(is_cjk)).and_then(|end| token.get(..end)).unwrap_or(token)
}

/// Whether the terms of a token are so many that it is no word.
pub(super) fn is_sentence(terms: &[String]) -> bool {
    terms.len() > TOGETHER && terms.iter().all(|text| text.chars().all(is_cjk))
}

/// Terms of one token, all of them. The index holds pairs: a single character is the beginning
/// of some.
pub(super) fn all_of(texts: &[String]) -> String {
    let part = |text: &String| {
        let single = text.chars().nth(1).is_none() && text.chars().all(is_cjk);
        format!("{}{}", quoted(text), if single { "*" } else { "" })
    };
    format!("({})", texts.iter().map(part).collect::<Vec<_>>().join(" AND "))
}

/// Words one after the other. The index has a run of a script without spaces as one word: a part
/// of it is found by its pairs, wherever it stands.
pub(super) fn phrase_expression(text: &str) -> (String, Vec<f64>) {
    if !text.chars().any(is_cjk) {
        return (quoted(text), vec![1.0]);
    }
    let mut parts = Vec::new();
    let mut size = 0;
    for word in text.split(' ') {
        let texts = if word.chars().any(is_cjk) { terms::query_terms(word) } else { Vec::new() };
        size += 1 + texts.len();
        parts.push(match texts.as_slice() {
            [] => quoted(word),
            texts => format!("({} OR {})", quoted(word), all_of(texts)),
        });
    }
    let share = 1.0 / as_number(i64::try_from(size).unwrap_or(i64::MAX));
    (format!("({})", parts.join(" AND ")), vec![share; size])
}

impl Builder {
    /// A sentence of a script without spaces: its pairs are alternatives, as words are. Each
    /// character stands in two of them.
    pub(super) fn sentence(&mut self, pairs: Vec<String>, count: &mut Count<'_>) -> Result<()> {
        let mut found: Vec<(String, i64)> = Vec::new();
        let distinct: BTreeSet<String> = pairs.into_iter().collect();
        for pair in distinct.into_iter().take(MAX_PAIRS) {
            let expression = quoted(&pair);
            let documents = count(&expression, self.corpus + 1)?;
            self.weigh(documents, PAIR);
            if documents > 0 {
                self.plan.needles.runs.insert(pair);
                found.push((expression, documents));
            }
        }
        for (expression, documents) in found {
            self.plan.terms.push(Term {
                text: expression.trim_matches('"').to_owned(),
                documents,
                used: true,
                expression: expression.clone(),
                is_derived: true,
            });
            self.optional.push(Part { expression, phrases: vec![(as_number(documents), PAIR)] });
        }
        Ok(())
    }
}
