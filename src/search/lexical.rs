//! From a query to an expression of FTS5 and the weight of each of its phrases.
//!
//! The words of a query are alternatives: a document need not hold all of them. Stop words
//! are dropped unless nothing else is left, repeats count twice. What must match is joined to
//! them by AND, and repeated once among the alternatives with the weight 0, so that it alone
//! is enough. A long text with a title, its first line, is reduced to that and its rarest words. The
//! cost of a search grows with the documents that hold its words, and the commonest words
//! tell least: they are left out as far as the cost is above a budget.

mod unspaced;

use std::collections::{BTreeMap, BTreeSet};

use super::parse::{Clause, Query};
use super::stem::{fold, index_form, stem};
use super::words::{is_cjk, is_stop_word, words};
use crate::content::terms;
use crate::error::Result;
use crate::store::search::{SATURATION, idf};
use unspaced::{all_of, is_sentence, phrase_expression, readable};

/// Words beyond which a query is a text and is reduced.
const LONG: usize = 24;

/// Words of a long text that are kept beside those of its first line.
const RAREST: usize = 20;

/// Words that stay whatever they cost, unless they are in a fifth of all documents.
const KEPT: usize = 3;

/// Endings that hide the written beginning of a word from the index, because stemming
/// shortens the word to less than that beginning. A prefix may end inside of one.
const ENDINGS: &[&str] = &[
    "e", "ed", "er", "ers", "es", "ing", "ings", "ion", "ions", "y", "ies", "ied", "ate", "ated", "ates",
    "ating", "ation", "ations", "ational", "ator", "ators", "al", "ally", "able", "ably", "ability", "ible",
    "ibility", "ness", "ment", "ments", "ement", "ements", "ive", "ively", "iveness", "ity", "ities", "ize",
    "ized", "izes", "izing", "izer", "izers", "ization", "izations", "ous", "ously", "ousness", "ful",
    "fully", "fulness", "ism", "ent", "ence", "ences", "ently", "ant", "ance", "ances", "ic", "ical",
    "ically", "icate", "alize", "alized", "alism", "ology", "ologies", "ly", "s",
];

/// What a query looks for in a text, for snippets and explanations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needles {
    /// Index forms of words, each with the word that was asked for.
    pub stems: BTreeMap<String, String>,
    /// Folded beginnings of words.
    pub prefixes: BTreeSet<String>,
    /// Runs of scripts without spaces, found anywhere.
    pub runs: BTreeSet<String>,
}

/// A word of the query and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    /// As it was asked for.
    pub text: String,
    /// Documents that hold it; for one that was left out as common, at least so many.
    pub documents: i64,
    /// Whether it is searched for.
    pub used: bool,
    /// What was counted.
    pub expression: String,
    /// Whether it was made of a word and is not one that was written.
    pub is_derived: bool,
}

/// A search that is ready to run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Expression of FTS5; absent when nothing can match.
    pub expression: Option<String>,
    /// Of each phrase of the expression: documents that hold it, and its factor.
    pub phrases: Vec<(f64, f64)>,
    /// What a document would score that holds every word of the query without end.
    pub mass: f64,
    /// The words.
    pub terms: Vec<Term>,
    /// What to highlight.
    pub needles: Needles,
}

/// Counts documents: an expression of FTS5, and the number at which to stop.
pub type Count<'a> = dyn FnMut(&str, i64) -> Result<i64> + 'a;

/// Quotes a text for FTS5.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Prepares the search for a query over `corpus` documents.
///
/// # Errors
/// Those of `count`.
pub fn plan(query: &Query, corpus: i64, count: &mut Count<'_>) -> Result<Plan> {
    let mut builder = Builder { corpus, plan: Plan::default(), required: Vec::new(), optional: Vec::new() };
    for clause in &query.required {
        builder.require(clause, query.wanted.in_title, count)?;
    }
    builder.words(query, count)?;
    builder.literals(query, count)?;
    if !query.wanted.in_title {
        builder.synthetic(query, count)?;
    }
    builder.finish(query, count)
}

/// A part of the expression with the phrases in it.
struct Part {
    expression: String,
    phrases: Vec<(f64, f64)>,
}

impl Part {
    /// An expression that `documents` match, with the factors of its phrases.
    fn new(expression: String, documents: i64, factors: &[f64]) -> Self {
        let documents = as_number(documents);
        Self { expression, phrases: factors.iter().map(|factor| (documents, *factor)).collect() }
    }
}

struct Builder {
    corpus: i64,
    plan: Plan,
    required: Vec<Part>,
    optional: Vec<Part>,
}

/// A distinct word while it is weighed.
struct Word {
    text: String,
    repeats: usize,
    first_line: bool,
    documents: i64,
}

impl Builder {
    /// Adds to the greatest possible score.
    fn weigh(&mut self, documents: i64, factor: f64) {
        self.plan.mass += idf(as_number(self.corpus), as_number(documents)) * factor * SATURATION;
    }

    fn require(&mut self, clause: &Clause, in_title: bool, count: &mut Count<'_>) -> Result<()> {
        let (expression, factors) = clause_expression(clause);
        let counted = if in_title { format!("{{title}} : ({expression})") } else { expression.clone() };
        let documents = count(&counted, self.corpus + 1)?;
        let text = match clause {
            Clause::Phrase(text) => text.clone(),
            Clause::Prefix(text) => format!("{text}*"),
        };
        self.plan.terms.push(Term {
            text,
            documents,
            used: documents > 0,
            expression: counted,
            is_derived: false,
        });
        self.weigh(documents, 1.0);
        self.needles_of(clause);
        self.required.push(Part::new(expression, documents, &factors));
        Ok(())
    }

    fn needles_of(&mut self, clause: &Clause) {
        let (Clause::Phrase(text) | Clause::Prefix(text)) = clause;
        let mut parts: Vec<&str> = words(text).collect();
        if matches!(clause, Clause::Prefix(_))
            && let Some(last) = parts.pop_if(|last| !last.chars().any(is_cjk))
        {
            self.plan.needles.prefixes.insert(fold(last));
        }
        for word in parts {
            self.needle(word);
        }
    }

    fn needle(&mut self, word: &str) {
        if word.chars().any(is_cjk) {
            self.plan.needles.runs.insert(word.to_lowercase());
        }
        self.plan.needles.stems.entry(index_form(word)).or_insert_with(|| word.to_owned());
    }

    /// The free words: distinct, weighed, the dear ones left out.
    fn words(&mut self, query: &Query, count: &mut Count<'_>) -> Result<()> {
        let nothing_else = self.required.is_empty() && query.literals.is_empty() && query.hashes.is_empty();
        let all_stop = query.words.iter().all(|word| is_stop_word(word));
        let keep_stop = nothing_else && all_stop;
        let mut distinct: Vec<Word> = Vec::new();
        let mut places = BTreeMap::new();
        for (at, word) in query.words.iter().enumerate() {
            if is_stop_word(word) && !keep_stop {
                continue;
            }
            let place = *places.entry(index_form(word)).or_insert(distinct.len());
            match distinct.get_mut(place) {
                Some(known) => known.repeats += 1,
                None => distinct.push(Word {
                    text: word.clone(),
                    repeats: 1,
                    first_line: at < query.first_line,
                    documents: 0,
                }),
            }
        }
        let common = (self.corpus / 5).max(2_000) + 1;
        // A text of one line has no title that stands apart: all its words are kept.
        let titled = distinct.len() > LONG && query.first_line < query.words.len();
        for word in &mut distinct {
            word.documents = count(&scoped(query, &quoted(&word.text)), common)?;
        }
        let mut order: Vec<usize> = (0..distinct.len()).collect();
        order.sort_by_key(|at| (distinct.get(*at).map(|word| word.documents), *at));
        let found: Vec<usize> = order
            .iter()
            .copied()
            .filter(|at| distinct.get(*at).is_some_and(|word| word.documents > 0))
            .collect();
        let rare: BTreeSet<usize> =
            found.iter().copied().take(if titled { RAREST } else { found.len() }).collect();
        let mut used: Vec<usize> = found
            .into_iter()
            .filter(|at| {
                rare.contains(at) || (titled && distinct.get(*at).is_some_and(|word| word.first_line))
            })
            .collect();
        self.cut_to_budget(&mut used, &distinct);
        let used: BTreeSet<usize> = used.into_iter().collect();
        for (at, word) in distinct.iter_mut().enumerate() {
            let is_used = used.contains(&at);
            if is_used && word.documents >= common {
                word.documents = count(&scoped(query, &quoted(&word.text)), self.corpus + 1)?;
            }
            self.plan.terms.push(Term {
                text: word.text.clone(),
                documents: word.documents,
                used: is_used,
                expression: scoped(query, &quoted(&word.text)),
                is_derived: false,
            });
            let factor = match (titled, word.first_line, rare.contains(&at)) {
                (true, true, true) => 3,
                (true, true, false) => 2,
                (true, false, _) => 1,
                (false, _, _) => word.repeats,
            };
            #[expect(clippy::cast_precision_loss, reason = "a query holds few words")]
            let factor = factor as f64;
            if is_used {
                self.optional.push(Part {
                    expression: quoted(&word.text),
                    phrases: vec![(as_number(word.documents), factor)],
                });
            }
            if is_used || word.documents == 0 {
                self.weigh(word.documents, factor);
                self.needle(&word.text);
            }
        }
        Ok(())
    }

    /// Leaves the commonest words out while the postings to read are above the budget.
    /// `used` is sorted, the rarest first.
    fn cut_to_budget(&self, used: &mut Vec<usize>, distinct: &[Word]) {
        let budget = (self.corpus * 3 / 10).max(20_000);
        let documents = |at: &usize| distinct.get(*at).map_or(0, |word| word.documents);
        while used.len() > 1 && used.iter().map(documents).sum::<i64>() > budget {
            let dearest = used.last().map_or(0, documents);
            let may_go = dearest > self.corpus / 5 || (used.len() > KEPT && dearest > self.corpus / 20);
            if !may_go {
                return;
            }
            used.pop();
        }
    }

    /// What was written as one: phrases, and beginnings of commit hashes.
    fn literals(&mut self, query: &Query, count: &mut Count<'_>) -> Result<()> {
        let phrases = query.literals.iter().map(|text| (text, phrase_expression(text)));
        let hashes = query.hashes.iter().map(|text| (text, prefix_expression(text)));
        let alone = self.optional.is_empty() && self.required.is_empty();
        for (text, (expression, factors)) in phrases.chain(hashes).collect::<Vec<_>>() {
            let counted = scoped(query, &expression);
            let documents = count(&counted, self.corpus + 1)?;
            self.plan.terms.push(Term {
                text: text.clone(),
                documents,
                used: documents > 0,
                expression: counted,
                is_derived: false,
            });
            if query.hashes.contains(text) {
                self.plan.needles.prefixes.insert(fold(text));
            } else {
                words(text).for_each(|word| self.needle(word));
            }
            if documents > 0 || alone {
                self.weigh(documents, 1.0);
            }
            if documents > 0 {
                self.optional.push(Part::new(expression, documents, &factors));
            }
        }
        Ok(())
    }

    /// Terms that the index holds beside the words: parts of identifiers, pairs of CJK
    /// characters, names that punctuation tells apart. Those of one token belong together.
    fn synthetic(&mut self, query: &Query, count: &mut Count<'_>) -> Result<()> {
        for token in &query.tokens {
            let texts: Vec<String> = terms::query_terms(readable(token))
                .into_iter()
                .filter(|text| words(text).next().is_some())
                .collect();
            if texts.is_empty() {
                continue;
            }
            if is_sentence(&texts) {
                self.sentence(texts, count)?;
                continue;
            }
            let expression = all_of(&texts);
            let documents = count(&expression, self.corpus + 1)?;
            for text in &texts {
                if text.chars().any(is_cjk) {
                    self.plan.needles.runs.insert(text.clone());
                } else {
                    words(text).for_each(|word| self.needle(word));
                }
            }
            if documents == 0 {
                continue;
            }
            self.weigh(documents, 1.0);
            let share = 1.0 / as_number(i64::try_from(texts.len()).unwrap_or(i64::MAX));
            self.plan.terms.push(Term {
                text: texts.join(" "),
                documents,
                used: true,
                expression: expression.clone(),
                is_derived: true,
            });
            self.optional
                .push(Part { expression, phrases: vec![(as_number(documents), share); texts.len()] });
        }
        Ok(())
    }

    fn finish(mut self, query: &Query, count: &mut Count<'_>) -> Result<Plan> {
        let unmet =
            self.required.iter().any(|part| part.phrases.iter().all(|(documents, _)| *documents == 0.0));
        if unmet || (self.required.is_empty() && self.optional.is_empty()) {
            return Ok(self.plan);
        }
        let mut expression = join(&self.required, " AND ");
        let mut phrases: Vec<(f64, f64)> = Vec::new();
        let mut take = |parts: &[Part], factor: f64| {
            phrases.extend(parts.iter().flat_map(|part| &part.phrases).map(|(n, own)| (*n, own * factor)));
        };
        take(&self.required, 1.0);
        if self.required.is_empty() {
            expression = join(&self.optional, " OR ");
            take(&self.optional, 1.0);
        } else if !self.optional.is_empty() {
            let enough = self.required.get(..1).unwrap_or_default();
            expression =
                format!("{expression} AND ({} OR {})", join(&self.optional, " OR "), join(enough, " OR "));
            take(&self.optional, 1.0);
            take(enough, 0.0);
        }
        let mut excluded = Vec::new();
        for clause in &query.excluded {
            let (expression, factors) = clause_expression(clause);
            if count(&scoped(query, &expression), 1)? > 0 {
                excluded.push(Part { expression, phrases: vec![(0.0, 0.0); factors.len()] });
            }
        }
        if !excluded.is_empty() {
            expression = format!("({expression}) NOT ({})", join(&excluded, " OR "));
            take(&excluded, 0.0);
        }
        self.plan.expression = Some(scoped(query, &expression));
        self.plan.phrases = phrases;
        Ok(self.plan)
    }
}

fn join(parts: &[Part], with: &str) -> String {
    parts.iter().map(|part| part.expression.as_str()).collect::<Vec<_>>().join(with)
}

/// Binds an expression to titles when the query is bound to them.
fn scoped(query: &Query, expression: &str) -> String {
    if query.wanted.in_title { format!("{{title}} : ({expression})") } else { expression.to_owned() }
}

/// The expression of a clause and the factors of the phrases in it.
pub fn clause_expression(clause: &Clause) -> (String, Vec<f64>) {
    match clause {
        // Inside a run of such a script everything is a beginning.
        Clause::Prefix(text) if text.rsplit(' ').next().is_some_and(|last| last.chars().any(is_cjk)) => {
            phrase_expression(text)
        }
        Clause::Phrase(text) => phrase_expression(text),
        Clause::Prefix(text) => prefix_expression(text),
    }
}

/// Words that begin with `text`. The index holds stems, which may be shorter than what was
/// written (`sanitize` is kept as `sanit`): its possible endings are asked too, as far as
/// their stems do not begin as the prefix does.
fn prefix_expression(text: &str) -> (String, Vec<f64>) {
    let (front, last) = text.rsplit_once(' ').unwrap_or(("", text));
    let last = fold(last);
    let begins = stem(last.clone());
    let mut forms = BTreeMap::new();
    for word in completions(&last) {
        let form = stem(word.clone());
        if !form.starts_with(&begins) {
            forms.entry(form).or_insert(word);
        }
    }
    let with_front = |word: &str| if front.is_empty() { word.to_owned() } else { format!("{front} {word}") };
    let mut parts = vec![format!("{}*", quoted(&with_front(&last)))];
    parts.extend(forms.values().map(|word| quoted(&with_front(word))));
    let factors = vec![1.0; parts.len()];
    (format!("({})", parts.join(" OR ")), factors)
}

/// Words that the beginning of a word may become with an ending, or with what is missing of
/// an ending that it holds the beginning of.
fn completions(beginning: &str) -> impl Iterator<Item = String> {
    ENDINGS.iter().flat_map(move |ending| {
        ending.char_indices().filter_map(move |(at, _)| {
            let (there, missing) = ending.split_at_checked(at)?;
            beginning.ends_with(there).then(|| format!("{beginning}{missing}"))
        })
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn as_number(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
