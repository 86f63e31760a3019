//! A question made of a stored item: what else is like it?

use std::collections::BTreeSet;

use super::filter::Scope;
use super::parse::Query;
use super::reference;
use super::words::{is_stop_word, words};
use crate::error::{Error, ErrorKind, Result};
use crate::store::ReadTx;
use crate::store::search::{self as sql, Hydrated};

/// Different words of the text among which the rarest are looked for.
const MAX_WORDS: usize = 300;

/// Characters of a word: longer ones are no words.
const MAX_WORD_CHARS: usize = 64;

/// The item that results are to be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Like {
    /// Its whole reference.
    pub(super) name: String,
    /// Its own document.
    pub(super) document_id: i64,
    /// All its documents: they are no results.
    pub(super) documents: Vec<i64>,
}

/// Makes a question of an item: its title, and its text as far as it is rare.
///
/// # Errors
/// Those of [`reference::read`] and [`reference::find`].
pub(super) fn read(tx: &ReadTx<'_>, text: &str, scope: &Scope) -> Result<(Query, Like)> {
    let reference = reference::read(text)?;
    let candidate = reference::find(tx, &reference, text, scope)?;
    let name = reference::name(reference.item_type, &candidate);
    let documents = sql::documents_of(tx, reference.item_type, candidate.item_id)?;
    let own = documents.first().copied();
    let hydrated = match own {
        Some(id) => sql::hydrate(tx, &[id])?.pop(),
        None => None,
    };
    let (Some(document_id), Some(document)) = (own, hydrated) else {
        return Err(Error::new(ErrorKind::ReferenceNotFound, format!("{name} has no document yet"))
            .hint("run `lore generate-docs`"));
    };
    Ok((question(&document), Like { name, document_id, documents }))
}

/// The words of the title, twice, and those of the text.
fn question(document: &Hydrated) -> Query {
    let title = document.title.as_deref().unwrap_or_default();
    let usable = |word: &&str| word.chars().nth(MAX_WORD_CHARS).is_none() && word.chars().nth(1).is_some();
    let in_title: Vec<String> = words(title).filter(usable).map(str::to_lowercase).collect();
    let mut seen: BTreeSet<String> = in_title.iter().cloned().collect();
    let in_text = words(&document.body)
        .filter(usable)
        .map(str::to_lowercase)
        .filter(|word| !is_stop_word(word) && seen.insert(word.clone()))
        .take(MAX_WORDS);
    let mut all: Vec<String> = in_title.iter().chain(&in_title).cloned().collect();
    let first_line = all.len();
    all.extend(in_text);
    Query { words: all, first_line, ..Query::default() }
}
