//! Reads a query as people type it. Total: any text gives a query, or an error that says
//! what is accepted; never a syntax error of the index.
//!
//! Free words are alternatives. `"a phrase"`, `+word` and `word*` must match, `-word` must
//! not. `label:bug` and its kin are filters, `-label:bug` leaves out; an unknown `name:value` is
//! text. A token after a dash that reads as an option of a command (`-DWITH_SSL`) or as a number
//! (`code -4`) is text, and so is `-word` when nothing else is asked for. What is pasted (a log, a trace) is read as text:
//! filters stand in its first line only, and those that cannot be read are words.

mod filters;

use std::collections::BTreeSet;

use super::literal::{self, Reference};
use super::tokens::{Token, is_invisible, plainly, tokens};
use super::wanted::Wanted;
use super::words::{is_cjk, is_stop_word, is_word_char, words};
use crate::clock::Millis;
use crate::content::{ItemType, SourceType};
use crate::error::{Error, ErrorKind, Result};

/// Distinct words that one query may hold; more are left out with a warning.
pub const MAX_WORDS: usize = 64;

/// Words beyond which a query is prose: quotation marks and signs in it are punctuation.
const PROSE: usize = 12;

/// Words beside literals up to which a query is about the literals.
const FREE_WORDS: usize = 3;

/// Characters of a query that are read.
const MAX_CHARS: usize = 65_536;

/// Bytes of a query after which no more is embedded: models see the beginning only.
const MAX_MEANING: usize = 4_000;

/// Characters of one word: longer ones are no words, and no document is found by them.
const MAX_WORD_CHARS: usize = 256;

/// A query that was read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Query {
    /// Alternatives, in order, repeats kept, stop words among them.
    pub words: Vec<String>,
    /// How many of `words` stand in the first line.
    pub first_line: usize,
    /// Alternatives of several words that were written as one.
    pub literals: Vec<String>,
    /// Alternatives that are the beginning of a commit hash.
    pub hashes: Vec<String>,
    /// What must match.
    pub required: Vec<Clause>,
    /// What must not match.
    pub excluded: Vec<Clause>,
    /// Items that are named.
    pub references: Vec<Reference>,
    /// A number alone may name an item: it does where no text holds the number.
    pub maybe: Vec<Reference>,
    /// What is meant letter by letter, as it was written: hashes, codes, versions, paths,
    /// ticket keys, identifiers, quoted texts.
    pub pins: Vec<String>,
    /// Words beside these and the references that are no stop words.
    pub free_words: usize,
    /// Filters.
    pub wanted: Wanted,
    /// The tokens as they were written, without operators, for terms that are made of them.
    pub tokens: Vec<String>,
    /// What is asked, without operators and what must not match: for the embedding model.
    pub meaning: String,
    /// What was read otherwise than it was written.
    pub warnings: Vec<String>,
}

/// Something that matches or does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clause {
    /// A word, or several one after the other.
    Phrase(String),
    /// Words that begin so.
    Prefix(String),
}

impl Query {
    /// Whether there is text to search for.
    pub fn has_text(&self) -> bool {
        !(self.words.is_empty()
            && self.literals.is_empty()
            && self.hashes.is_empty()
            && self.required.is_empty())
    }

    /// Whether nothing but filters is asked for.
    pub fn filter_only(&self, raw: bool) -> bool {
        !raw && !self.has_text() && self.references.is_empty()
    }

    /// Whether what is meant letter by letter is what the query is about.
    pub fn pins_bind(&self) -> bool {
        !self.pins.is_empty() && self.free_words <= FREE_WORDS
    }

    /// Whether all that is asked for are items and commits, by their names.
    pub fn names_only(&self) -> bool {
        self.required.is_empty()
            && self.tokens.iter().all(|token| literal::reference(token).is_some() || literal::is_hash(token))
    }
}

/// Reads a query. `flags` are the conditions given beside the text.
///
/// # Errors
/// [`ErrorKind::NoUsableTokens`] when there is neither a word nor a filter;
/// [`ErrorKind::InvalidEnumValue`] or [`ErrorKind::Usage`] for a bad value of an operator.
pub fn parse(text: &str, flags: Wanted, now: Millis) -> Result<Query> {
    let mut flags = flags;
    let fence = std::mem::take(&mut flags.projects);
    let mut reader = Reader { query: Query { wanted: flags, ..Query::default() }, ..Reader::default() };
    let cut: String = text.chars().take(MAX_CHARS).collect();
    if cut.len() < text.len() {
        reader.query.warnings.push(format!("only the first {MAX_CHARS} characters of the query were read"));
    }
    reader.is_pasted = cut.split_whitespace().nth(PROSE).is_some();
    for (line, tokens) in cut.lines().filter(|line| !line.trim().is_empty()).map(tokens).enumerate() {
        reader.has_filters = line == 0 || !reader.is_pasted;
        for token in tokens {
            reader.token(&token, now)?;
        }
        if line == 0 {
            reader.query.first_line = reader.query.words.len();
        }
    }
    let wanted = &mut reader.query.wanted;
    if wanted.projects.is_empty() {
        wanted.projects = fence;
    } else {
        wanted.within = fence;
    }
    reader.finish()
}

/// The query with other free tokens than its own: keywords, and literals that are meant letter
/// by letter. What binds, what is named and the filters stay; no token is read as an operator.
pub fn with_tokens(query: Query, keywords: &[String], literals: &[String]) -> Query {
    let mut reader = Reader { query: emptied(query), ..Reader::default() };
    for text in keywords.iter().chain(literals) {
        for token in text.split_whitespace() {
            reader.add_token(token);
            reader.plain(token);
        }
    }
    for literal in literals {
        let is_new = !reader.query.pins.contains(literal);
        if is_new && words(literal).next().is_some() {
            reader.push_once(|query| &mut query.pins, literal.trim());
        }
    }
    reader.query.first_line = reader.query.words.len();
    reader.query
}

/// The query without its free tokens.
///
/// # Errors
/// [`ErrorKind::NoUsableTokens`] when nothing is left.
pub fn without_tokens(query: Query) -> Result<Query> {
    let query = emptied(query);
    if !query.has_text() && query.references.is_empty() && query.wanted.is_empty() {
        return Err(no_usable_tokens());
    }
    Ok(query)
}

fn emptied(query: Query) -> Query {
    Query {
        words: Vec::new(),
        first_line: 0,
        literals: Vec::new(),
        hashes: Vec::new(),
        pins: Vec::new(),
        free_words: 0,
        tokens: Vec::new(),
        ..query
    }
}

fn no_usable_tokens() -> Error {
    Error::new(ErrorKind::NoUsableTokens, "the query holds no word to search for")
        .hint("ask with words, a quoted phrase, a reference like #12, or a filter like is:open")
}

#[derive(Default)]
struct Reader {
    query: Query,
    seen: BTreeSet<String>,
    left_out: usize,
    too_long: bool,
    /// Words after a dash, in case nothing else is asked for.
    dashed: Vec<String>,
    /// Whether the query is longer than what people type.
    is_pasted: bool,
    /// Whether filters may stand in the line that is read.
    has_filters: bool,
}

impl Reader {
    fn token(&mut self, token: &Token, now: Millis) -> Result<()> {
        let bare = token.bare.trim_matches(is_invisible);
        if self.filter(bare, token.quoted.as_deref(), now)? {
            return Ok(());
        }
        if let Some(quoted) = &token.quoted {
            self.add_text(bare);
            self.add_text(quoted);
            if bare != "-" && words(quoted).next().is_some() {
                self.push_once(|query| &mut query.pins, quoted.trim());
            }
            match bare {
                "-" => self.exclude(quoted),
                "+" | "" => self.require(quoted),
                _ => {
                    self.plain(bare);
                    self.require(quoted);
                }
            }
            return Ok(());
        }
        if let Some(rest) = bare.strip_prefix('+').filter(|rest| rest.starts_with(is_word_char)) {
            self.add_text(rest);
            self.require(rest);
            return Ok(());
        }
        if let Some(rest) = bare.strip_prefix('-').filter(|rest| !literal::is_option(rest)) {
            self.exclude(rest);
            return Ok(());
        }
        self.add_text(bare);
        self.plain(bare);
        let bared = plainly(bare);
        if bared != bare {
            self.add_token(&bared);
            self.plain(&bared);
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) {
        for token in text.split_whitespace() {
            let meaning = &mut self.query.meaning;
            if meaning.len() < MAX_MEANING {
                if !meaning.is_empty() {
                    meaning.push(' ');
                }
                meaning.push_str(token);
            }
            self.add_token(token);
        }
    }

    fn add_token(&mut self, token: &str) {
        let tokens = &mut self.query.tokens;
        if tokens.len() < MAX_WORDS && !tokens.iter().any(|known| known == token) {
            tokens.push(token.to_owned());
        }
    }

    /// `text*` is a prefix, anything else a phrase; nothing when there is no word in it.
    fn clause(&mut self, text: &str) -> Option<Clause> {
        let prefix = text.strip_suffix('*').filter(|front| front.ends_with(is_word_char));
        let body = prefix.unwrap_or(text);
        let parts: Vec<&str> = words(body).take(MAX_WORDS).collect();
        if parts.is_empty() || parts.iter().any(|part| part.chars().nth(MAX_WORD_CHARS).is_some()) {
            self.too_long |= !parts.is_empty();
            return None;
        }
        let joined = parts.join(" ");
        Some(if prefix.is_some() { Clause::Prefix(joined) } else { Clause::Phrase(joined) })
    }

    fn require(&mut self, text: &str) {
        let Some(clause) = self.clause(text) else { return };
        if self.query.required.len() < MAX_WORDS && !self.query.required.contains(&clause) {
            self.query.required.push(clause);
        }
    }

    fn exclude(&mut self, text: &str) {
        let Some(clause) = self.clause(text) else { return };
        if self.query.excluded.len() < MAX_WORDS && !self.query.excluded.contains(&clause) {
            self.query.excluded.push(clause);
            self.dashed.push(text.to_owned());
        }
    }

    /// Free text: its words, and what it is when it is a literal.
    fn plain(&mut self, token: &str) {
        let inner = token.trim_matches(|c: char| {
            matches!(c, '.' | ',' | ';' | '?' | '(' | ')' | '\'' | '`' | '*' | '<' | '>')
        });
        let inner = literal::without_range(inner.trim_end_matches(['!', ':']));
        let is_one = words(inner).nth(1).is_none() || inner.chars().all(|c| is_word_char(c) || c == '_');
        if token.ends_with('*') && !token.ends_with("**") && is_one {
            return self.require(token);
        }
        if let Some(reference) = literal::reference(inner) {
            return self.reference(inner, reference);
        }
        if literal::is_pin(inner) {
            self.push_once(|query| &mut query.pins, inner);
        } else {
            self.query.free_words += words(inner).filter(|word| !is_stop_word(word)).count();
        }
        if literal::is_hash(inner) {
            self.push_once(|query| &mut query.hashes, inner);
            return;
        }
        if literal::is_digits_of_hash(inner) {
            self.push_once(|query| &mut query.hashes, inner);
        }
        if let Some(numbers) = literal::version(inner) {
            let joined = words(numbers).collect::<Vec<_>>().join(" ");
            self.push_once(|query| &mut query.literals, &joined);
            self.push_once(|query| &mut query.literals, &format!("v{joined}"));
            return;
        }
        let compound = literal::is_compound(inner);
        if compound {
            let joined = words(inner).take(MAX_WORDS).collect::<Vec<_>>().join(" ");
            if !joined.split(' ').any(|part| part.chars().nth(MAX_WORD_CHARS).is_some()) {
                self.push_once(|query| &mut query.literals, &joined);
            }
        }
        for word in words(token) {
            if compound && word.chars().nth(1).is_none() {
                continue;
            }
            self.word(word);
        }
    }

    fn reference(&mut self, token: &str, reference: Reference) {
        let iid = reference.iid.to_string();
        if reference.project.is_none() {
            self.word(&iid);
        } else {
            let parts: Vec<&str> = words(token).collect();
            let tail = if token.contains("://") { parts.get(parts.len().saturating_sub(2)..) } else { None };
            let joined = tail.unwrap_or(&parts).join(" ");
            self.push_once(|query| &mut query.literals, &joined);
        }
        if self.query.references.len() < MAX_WORDS && !self.query.references.contains(&reference) {
            self.query.references.push(reference);
        }
    }

    fn push_once(&mut self, list: impl Fn(&mut Query) -> &mut Vec<String>, text: &str) {
        let list = list(&mut self.query);
        if list.len() < MAX_WORDS && !list.iter().any(|known| known == text) {
            list.push(text.to_owned());
        }
    }

    fn word(&mut self, word: &str) {
        if let Some((end, _)) = word.char_indices().nth(MAX_WORD_CHARS) {
            // A text without spaces is no word that is too long.
            if let Some(front) = word.get(..end).filter(|_| word.chars().all(is_cjk)) {
                return self.word(front);
            }
            self.too_long = true;
            return;
        }
        let lower = word.to_lowercase();
        if !self.seen.contains(&lower) {
            if self.seen.len() >= MAX_WORDS {
                self.left_out += 1;
                return;
            }
            self.seen.insert(lower.clone());
        }
        if self.query.words.len() < MAX_WORDS * 16 {
            self.query.words.push(lower);
        }
    }

    /// Signs bind in a short query. In a text of many words they are part of the prose.
    fn read_as_prose(&mut self) {
        let clauses = self.query.required.iter().chain(&self.query.excluded);
        let in_clauses: usize =
            clauses.map(|(Clause::Phrase(text) | Clause::Prefix(text))| words(text).count()).sum();
        let binding = !(self.query.required.is_empty() && self.query.excluded.is_empty());
        if !binding || self.query.words.len() + in_clauses <= PROSE {
            return;
        }
        self.query.warnings.push(
            "the query is long and was read as prose: quoted phrases, +words and -words do not bind"
                .to_owned(),
        );
        let required = std::mem::take(&mut self.query.required);
        for clause in required.iter().chain(&std::mem::take(&mut self.query.excluded)) {
            let (Clause::Phrase(text) | Clause::Prefix(text)) = clause;
            if text.contains(' ') {
                self.push_once(|query| &mut query.literals, text);
            }
            for word in words(text) {
                self.word(word);
            }
        }
    }

    /// `issue 12` and `mr 34` name an item; `12` alone may.
    fn name_by_number(&mut self) {
        let words: Vec<&str> = self.query.tokens.iter().map(String::as_str).collect();
        let (kind, number) = match words.as_slice() {
            [number] => (None, *number),
            [kind, number] => match SourceType::parse_alias(kind.trim_end_matches(':')) {
                Some(SourceType::Issue) => (Some(ItemType::Issue), *number),
                Some(SourceType::MergeRequest) => (Some(ItemType::MergeRequest), *number),
                Some(SourceType::Discussion) | None => return,
            },
            _ => return,
        };
        let is_number = number.chars().all(|c| c.is_ascii_digit());
        let Some(iid) = number.parse().ok().filter(|_| is_number) else { return };
        let named = |item_type| Reference { project: None, host: None, item_type, iid };
        match kind {
            Some(item_type) => self.query.references.push(named(item_type)),
            None => self.query.maybe = vec![named(ItemType::Issue), named(ItemType::MergeRequest)],
        }
    }

    fn finish(mut self) -> Result<Query> {
        self.read_as_prose();
        self.name_by_number();
        let nothing_else = !self.query.has_text() && self.query.wanted.is_empty();
        if nothing_else && !self.query.excluded.is_empty() {
            self.query.excluded.clear();
            self.query.warnings.push(
                "nothing but what to leave out was asked for: read as words to look for; a filter beside them (is:open) leaves them out"
                    .to_owned(),
            );
            for text in std::mem::take(&mut self.dashed) {
                self.add_text(&text);
                self.plain(&text);
            }
        }
        if self.left_out > 0 {
            self.query.warnings.push(format!(
                "the query holds more than {MAX_WORDS} different words: the others were left out"
            ));
        }
        if self.too_long {
            self.query.warnings.push(format!("words of more than {MAX_WORD_CHARS} characters were left out"));
        }
        let is_nothing = !self.query.has_text() && self.query.references.is_empty();
        if is_nothing && self.query.wanted.is_empty() {
            return Err(no_usable_tokens());
        }
        if is_nothing && !self.query.meaning.is_empty() {
            // Everything that the filters let through would look like an answer.
            return Err(no_usable_tokens().hint("leave the text out to list what the filters let through"));
        }
        Ok(self.query)
    }
}

#[cfg(test)]
mod tests;
