//! Synthetic search terms: what the tokenizer `porter unicode61` loses, put back as words
//! that it keeps.
//!
//! | text | is one token, or several | also indexed as |
//! |---|---|---|
//! | `getUserById` | `getuserbyid` | `userbyid byid get user` |
//! | `-DWITH_SSL` | `dwith` `ssl` | `withssl` |
//! | `C++`, `C#`, `.NET` | `c`, `c`, `net` | `cplusplus`, `csharp`, `dotnet` |
//! | `v1.2.3`, `go1.21` | `v1` `2` `3` | `1.2.3`, `1.21` |
//! | `Økland`, `Straße` | as written | `okland`, `strasse` |
//! | `公寓大廈` | itself | `公寓 寓大 大廈 廈` |
//!
//! Plain words have no terms, so that the terms of a document are a small part of its size.
//! [`query_terms`] is the other half: it says what to look for in place of a query's token.

mod script;

use std::borrow::Cow;
use std::collections::HashSet;

use script::{Script, fold};

/// Most terms of one document.
pub const MAX_TERMS: usize = 4_000;

/// Longest word that is taken apart, in bytes: longer ones are data, not names.
const MAX_WORD: usize = 64;

/// Longest token of a query that is looked into, in bytes.
const MAX_QUERY_TOKEN: usize = 512;

/// Most parts of a name.
const MAX_PARTS: usize = 8;

/// Shortest part of a name that is indexed on its own.
const MIN_PART: usize = 3;

/// Returns the terms of a text: each once, in the order of their first appearance,
/// separated by spaces, at most [`MAX_TERMS`].
pub fn document_terms(text: &str) -> String {
    let mut terms = Terms::default();
    terms.add(text);
    terms.into_text()
}

/// Returns what a query's token is to be replaced by, all of it required together; empty
/// when the token alone is what to look for.
///
/// A token matches a document that holds the token itself *or* all of these terms. A term
/// may hold a period (`1.2.3`): quoted, it is a phrase. One character of a script without
/// spaces (`猫`) comes back as itself: look for it as a prefix, since the terms hold pairs.
pub fn query_terms(token: &str) -> Vec<String> {
    if token.len() > MAX_QUERY_TOKEN {
        return Vec::new();
    }
    let words: Vec<Word<'_>> = words(token).collect();
    let symbols: Vec<String> = words.iter().filter_map(|word| symbol(token, word)).collect();
    if !symbols.is_empty() {
        return symbols;
    }
    if !token.is_ascii() {
        return foreign_query_terms(&words);
    }
    let separators =
        token.trim_matches(|c: char| !c.is_alphanumeric()).chars().filter(|c| !c.is_alphanumeric());
    let is_name = token.len() <= MAX_WORD && separators.clone().all(|c| matches!(c, '_' | '-' | '.'));
    match words.as_slice() {
        [] => Vec::new(),
        [only] => camel_parts(only.text).unwrap_or_default(),
        [first, ..] => {
            if let Some(version) = version(token, first) {
                return vec![version];
            }
            let only_digits = words.iter().all(|word| word.text.bytes().all(|byte| byte.is_ascii_digit()));
            if !is_name || only_digits {
                return Vec::new();
            }
            vec![words.iter().map(|word| word.text.to_ascii_lowercase()).collect()]
        }
    }
}

/// Terms of a query's token that is not ASCII.
fn foreign_query_terms(words: &[Word<'_>]) -> Vec<String> {
    let mut terms = Terms::default();
    for word in words {
        match script::runs(word.text).as_slice() {
            [(Script::Spaced, text)] => terms.push(folded(text)),
            runs => {
                for (script, run) in runs {
                    match script {
                        Script::Spaced => terms.push(folded(run)),
                        Script::Unspaced => pairs(run, |pair| terms.push(Cow::Owned(pair))),
                    }
                }
            }
        }
    }
    // The token as it is would say the same.
    if terms.list.len() == 1 && words.len() == 1 && words[0].text.to_lowercase() == terms.list[0] {
        let is_unspaced = terms.list[0].chars().any(script::is_unspaced);
        return if is_unspaced { terms.list } else { Vec::new() };
    }
    terms.list
}

/// Collects terms.
#[derive(Debug, Default)]
pub struct Terms {
    list: Vec<String>,
    known: HashSet<String>,
}

impl Terms {
    /// Adds the terms of a text.
    pub fn add(&mut self, text: &str) {
        for word in words(text) {
            if self.list.len() >= MAX_TERMS {
                return;
            }
            self.add_word(text, &word);
        }
    }

    /// The terms, separated by spaces.
    pub fn into_text(self) -> String {
        self.list.join(" ")
    }

    fn add_word(&mut self, text: &str, word: &Word<'_>) {
        if let Some(term) = symbol(text, word) {
            self.push(Cow::Owned(term));
        }
        if let Some(term) = version(text, word) {
            self.push(Cow::Owned(term));
        }
        if let Some(term) = defined_name(text, word) {
            self.push(Cow::Owned(term));
        }
        if !word.is_ascii {
            self.add_foreign(word.text);
        } else if word.has_inner_capital {
            self.add_name(word.text);
        }
    }

    /// Adds the parts and the ends of a name in camel case.
    fn add_name(&mut self, name: &str) {
        let Some(parts) = camel_parts(name) else { return };
        for start in 1..parts.len() {
            let end: String = parts[start..].concat();
            if end.len() >= MIN_PART {
                self.push(Cow::Owned(end));
            }
        }
        for part in parts.iter().take(parts.len() - 1).filter(|part| part.len() >= MIN_PART) {
            self.push(Cow::Borrowed(part));
        }
    }

    fn add_foreign(&mut self, word: &str) {
        let runs = script::runs(word);
        let is_mixed = runs.len() > 1;
        for (script, run) in runs {
            match script {
                Script::Unspaced => {
                    pairs(run, |pair| self.push(Cow::Owned(pair)));
                    self.push(Cow::Owned(last_char(run).unwrap_or_default()));
                }
                Script::Spaced => {
                    let lowered = folded(run);
                    if is_mixed || *lowered != *run.to_lowercase() {
                        self.push(lowered);
                    }
                    if run.is_ascii() {
                        self.add_name(run);
                    }
                }
            }
        }
    }

    fn push(&mut self, term: Cow<'_, str>) {
        if self.list.len() < MAX_TERMS && !term.is_empty() && !self.known.contains(&*term) {
            self.known.insert(term.clone().into_owned());
            self.list.push(term.into_owned());
        }
    }
}

/// Lower-cases a word and replaces the letters that the tokenizer does not fold.
fn folded(word: &str) -> Cow<'_, str> {
    let mut out = String::with_capacity(word.len());
    for c in word.chars() {
        match fold(c) {
            Some(letters) => out.push_str(letters),
            None => out.extend(script::narrow(c).to_lowercase()),
        }
    }
    Cow::Owned(out)
}

/// Calls `each` with every two neighbours of a run, or with its only character.
fn pairs(run: &str, mut each: impl FnMut(String)) {
    let mut chars = run.chars().filter(|c| !script::is_mark(*c));
    let Some(mut previous) = chars.next() else { return };
    let mut is_alone = true;
    for c in chars {
        each([previous, c].iter().collect());
        (previous, is_alone) = (c, false);
    }
    if is_alone {
        each(previous.to_string());
    }
}

/// The last character of a run: with it, every character starts a term of a document.
fn last_char(run: &str) -> Option<String> {
    run.chars().rfind(|c| !script::is_mark(*c)).map(String::from)
}

/// A run of letters and digits: what the tokenizer makes one token of.
struct Word<'a> {
    start: usize,
    text: &'a str,
    is_ascii: bool,
    /// An ASCII capital that is not its first letter.
    has_inner_capital: bool,
}

fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        // Almost all text is ASCII: bytes first, characters where they are needed.
        loop {
            match bytes.get(at)? {
                byte if byte.is_ascii_alphanumeric() => break,
                byte if byte.is_ascii() => at += 1,
                _ => {
                    let c = text.get(at..)?.chars().next()?;
                    if is_word_char(c) {
                        break;
                    }
                    at += c.len_utf8();
                }
            }
        }
        let start = at;
        let (mut is_ascii, mut has_inner_capital) = (true, false);
        while let Some(byte) = bytes.get(at) {
            if byte.is_ascii_alphanumeric() {
                has_inner_capital |= at > start && byte.is_ascii_uppercase();
                at += 1;
            } else if byte.is_ascii() {
                break;
            } else {
                let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) else { break };
                if !is_word_char(c) && !script::is_mark(c) {
                    break;
                }
                is_ascii = false;
                at += c.len_utf8();
            }
        }
        Some(Word { start, text: text.get(start..at)?, is_ascii, has_inner_capital })
    })
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() && !script::is_mark(c)
}

/// Names whose last signs the tokenizer drops.
fn symbol(text: &str, word: &Word<'_>) -> Option<String> {
    if word.text.len() > 7 {
        return None;
    }
    let bytes = text.as_bytes();
    let end = word.start + word.text.len();
    let is = |name: &str| word.text.eq_ignore_ascii_case(name);
    let before = |back: usize| word.start.checked_sub(back).and_then(|at| bytes.get(at)).copied();
    let follows = bytes.get(end..).unwrap_or_default();
    if follows.starts_with(b"++")
        && ["c", "g", "vc", "libc", "libstdc", "notepad"].iter().any(|name| is(name))
    {
        return Some(word.text.to_ascii_lowercase() + "plusplus");
    }
    if follows.starts_with(b"#") && ["c", "f", "j", "q"].iter().any(|name| is(name)) {
        return Some(word.text.to_ascii_lowercase() + "sharp");
    }
    let after_period = before(1) == Some(b'.');
    let stands_alone = !before(2).is_some_and(|byte| byte.is_ascii_alphanumeric());
    (after_period && (word.text == "NET" || (is("net") && stands_alone))).then(|| "dotnet".to_owned())
}

/// The number of a version that letters stand in front of: `1.2.3` of `v1.2.3`.
fn version(text: &str, word: &Word<'_>) -> Option<String> {
    let bytes = text.as_bytes();
    let end = word.start + word.text.len();
    if bytes.get(end) != Some(&b'.') || !bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let letters = word.text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let digits = word.text.get(letters..)?;
    if letters == 0 || letters > 12 || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let tail = bytes
        .get(end..)?
        .iter()
        .take(40)
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'.')
        .count();
    Some(format!("{digits}{}", text.get(end..end + tail)?.trim_end_matches('.')))
}

/// The name that a compiler is told to define: `withssl` of `-DWITH_SSL`.
fn defined_name(text: &str, word: &Word<'_>) -> Option<String> {
    let rest = word.text.strip_prefix(['D', 'U'])?;
    let bytes = text.as_bytes();
    let flag = word.start.checked_sub(1)?;
    let is_flag = bytes[flag] == b'-'
        && !flag.checked_sub(1).is_some_and(|at| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'-');
    if !is_flag || !(rest.starts_with(|c: char| c.is_ascii_uppercase()) || rest.is_empty()) {
        return None;
    }
    let from = word.start + 1;
    let length = bytes
        .get(from..)?
        .iter()
        .take(MAX_WORD)
        .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
        .count();
    let name: String = text.get(from..from + length)?.split('_').map(str::to_ascii_lowercase).collect();
    (name.len() >= MIN_PART).then_some(name)
}

/// Splits a name in camel case, lower-cased. Nothing when it has one part, or looks like
/// encoded data.
fn camel_parts(name: &str) -> Option<Vec<String>> {
    if name.len() > MAX_WORD || !name.is_ascii() {
        return None;
    }
    let bytes = name.as_bytes();
    let is_upper = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_uppercase);
    let is_lower = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_lowercase);
    let mut parts = Vec::new();
    let mut start = 0;
    for at in 1..bytes.len() {
        // `userId`, `utf8String`; and `HTTPServer`, but not the plural `URLs`.
        let after_small = is_upper(at) && !is_upper(at - 1);
        let ends_acronym = is_upper(at) && is_upper(at - 1) && is_lower(at + 1) && is_lower(at + 2);
        if after_small || ends_acronym {
            parts.push(name.get(start..at)?.to_ascii_lowercase());
            start = at;
        }
    }
    parts.push(name.get(start..)?.to_ascii_lowercase());
    let numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()).count();
    let is_name = (2..=MAX_PARTS).contains(&parts.len()) && name.len() * 2 >= parts.len() * 5 && numbers <= 2;
    is_name.then_some(parts)
}

#[cfg(test)]
mod tests;
