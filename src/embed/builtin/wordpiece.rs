//! WordPiece as BERT (uncased) does it: text to token ids, each with its place in the text.
//!
//! Controls vanish, words end at white space, punctuation and ideographs are words of their
//! own, accents are stripped, letters lowered; then the longest piece of the vocabulary that
//! starts the word is taken, and again from there. A word with a part that is no piece, or of
//! more than 100 characters, is one unknown token. The names of special tokens (`[SEP]`) are
//! ordinary text here: what a user writes cannot forge a mark.

use std::ops::Range;

use unicode_normalization::char::decompose_canonical;

use super::classes::{DROPPED, MARK, PUNCTUATION, SPACE};
use super::pack::{Pack, u32_at};
use crate::error::Result;

/// Id of what is in no vocabulary.
pub(super) const UNKNOWN: u16 = 100;
/// Id of the mark that starts every text.
pub(super) const START: u16 = 101;
/// Id of the mark that ends every text.
pub(super) const END: u16 = 102;

/// Characters of the longest word that is looked up.
const LONGEST_WORD: usize = 100;
/// Slots of the vocabulary's index: a power of two.
const SLOTS: usize = 1 << 16;
/// What an unused slot holds.
const FREE: u16 = u16::MAX;

/// One token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub id: u16,
    /// Bytes of the text it stands for; starts and ends at character boundaries.
    pub span: Range<usize>,
    /// Whether a word starts with it.
    pub starts_word: bool,
}

/// The pieces, as slices of the packed model.
#[derive(Debug)]
pub(super) struct Vocabulary {
    pieces: &'static [u8],
    offsets: &'static [u8],
    index: &'static [u8],
}

impl Vocabulary {
    pub(super) fn read(pack: &Pack) -> Result<Self> {
        Ok(Self {
            pieces: pack.section("vocab.pieces", None)?,
            offsets: pack.section("vocab.offsets", Some((pack.sizes.n_pieces + 1) * 4))?,
            index: pack.section("vocab.index", Some(SLOTS * 2))?,
        })
    }

    /// Calls `take` with the tokens of a text, in order, until it returns false.
    pub(super) fn each_token(&self, text: &str, mut take: impl FnMut(Token) -> bool) {
        let mut word = Word::default();
        for (at, char) in text.char_indices() {
            let span = at..at + char.len_utf8();
            if is_dropped(char) {
                continue;
            }
            if is_ideograph(char) {
                if !self.finish(&mut word, &mut take) {
                    return;
                }
                let mut alone = Word::default();
                push_plain(&mut alone, char, &span);
                if !self.finish(&mut alone, &mut take) {
                    return;
                }
                continue;
            }
            if char.is_ascii() {
                if !self.feed(&mut word, char.to_ascii_lowercase(), &span, &mut take) {
                    return;
                }
                continue;
            }
            let mut goes_on = true;
            decompose_canonical(char, |part| {
                if goes_on && !contains(&MARK, part) {
                    for lower in part.to_lowercase() {
                        goes_on = goes_on && self.feed(&mut word, lower, &span, &mut take);
                    }
                }
            });
            if !goes_on {
                return;
            }
        }
        self.finish(&mut word, &mut take);
    }

    /// Adds one normalised character: to the word, or as its end.
    fn feed(
        &self,
        word: &mut Word,
        char: char,
        span: &Range<usize>,
        take: &mut impl FnMut(Token) -> bool,
    ) -> bool {
        if is_space(char) {
            return self.finish(word, take);
        }
        if is_punctuation(char) {
            if !self.finish(word, take) {
                return false;
            }
            word.push(char, span);
            return self.finish(word, take);
        }
        word.push(char, span);
        true
    }

    /// Cuts the word into pieces, and empties it.
    fn finish(&self, word: &mut Word, take: &mut impl FnMut(Token) -> bool) -> bool {
        let (Some(first), Some(last)) = (word.spans.first(), word.spans.last()) else {
            return true;
        };
        let whole = first.start..last.end;
        let goes_on = if word.spans.len() > LONGEST_WORD || !self.cut(word) {
            take(Token { id: UNKNOWN, span: whole, starts_word: true })
        } else {
            let mut from = 0;
            word.pieces.iter().all(|(id, to)| {
                let span = word.spans[from].start..word.spans[*to - 1].end;
                let token = Token { id: *id, span, starts_word: from == 0 };
                from = *to;
                take(token)
            })
        };
        word.clear();
        goes_on
    }

    /// Finds the pieces of a word; false if some part of it is no piece.
    fn cut(&self, word: &mut Word) -> bool {
        word.pieces.clear();
        let n_chars = word.spans.len();
        let mut from = 0;
        while from < n_chars {
            let start = word.starts[from];
            let mut hash = if from == 0 { Hash::new() } else { Hash::new().add(b"##") };
            word.hashes.clear();
            for to in from..n_chars {
                let end = word.end_of(to);
                hash = hash.add(&word.text.as_bytes()[word.starts[to]..end]);
                word.hashes.push(hash);
            }
            let longest = (from..n_chars).rev().find_map(|to| {
                let piece = &word.text.as_bytes()[start..word.end_of(to)];
                self.find(word.hashes[to - from], piece, from > 0).map(|id| (id, to + 1))
            });
            let Some((id, to)) = longest else {
                return false;
            };
            word.pieces.push((id, to));
            from = to;
        }
        true
    }

    fn find(&self, hash: Hash, piece: &[u8], continues: bool) -> Option<u16> {
        let mut slot = hash.slot();
        loop {
            let id = u16::from_le_bytes(*self.index.get(slot * 2..)?.first_chunk()?);
            if id == FREE {
                return None;
            }
            let mut found = self.piece(id)?;
            if continues {
                found = found.strip_prefix(b"##").unwrap_or_default();
            }
            if found == piece {
                return Some(id);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    fn piece(&self, id: u16) -> Option<&'static [u8]> {
        let at = usize::from(id) * 4;
        let (start, end) = (u32_at(self.offsets, at)?, u32_at(self.offsets, at + 4)?);
        self.pieces.get(start as usize..end as usize)
    }
}

/// A word on its way: normalised text, and where each character of it comes from.
#[derive(Debug, Default)]
struct Word {
    text: String,
    /// Start of each character in `text`.
    starts: Vec<usize>,
    /// Bytes of the source that each character comes from.
    spans: Vec<Range<usize>>,
    /// Room for `cut`: hash of the text from the piece's start to each character's end.
    hashes: Vec<Hash>,
    /// Result of `cut`: ids, and the number of characters up to their ends.
    pieces: Vec<(u16, usize)>,
}

impl Word {
    fn push(&mut self, char: char, span: &Range<usize>) {
        self.starts.push(self.text.len());
        self.text.push(char);
        self.spans.push(span.clone());
    }

    fn end_of(&self, char_idx: usize) -> usize {
        self.starts.get(char_idx + 1).copied().unwrap_or(self.text.len())
    }

    fn clear(&mut self) {
        self.text.clear();
        self.starts.clear();
        self.spans.clear();
    }
}

/// An ideograph is decomposed and lowered like all else, but is never joined to its neighbours.
fn push_plain(word: &mut Word, char: char, span: &Range<usize>) {
    decompose_canonical(char, |part| word.push(part, span));
}

/// FNV-1a of 32 bits, which grows byte by byte: one pass hashes every start of a word.
#[derive(Debug, Clone, Copy)]
struct Hash(u32);

impl Hash {
    fn new() -> Self {
        Self(0x811C_9DC5)
    }

    fn add(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)))
    }

    fn slot(self) -> usize {
        (self.0 ^ (self.0 >> 16)) as usize % SLOTS
    }
}

fn is_dropped(char: char) -> bool {
    if char.is_ascii() {
        char.is_ascii_control() && !matches!(char, '\t' | '\n' | '\r')
    } else {
        contains(&DROPPED, char)
    }
}

fn is_space(char: char) -> bool {
    if char.is_ascii() { matches!(char, ' ' | '\t' | '\n' | '\r') } else { contains(&SPACE, char) }
}

fn is_punctuation(char: char) -> bool {
    if char.is_ascii() { char.is_ascii_punctuation() } else { contains(&PUNCTUATION, char) }
}

/// The blocks of ideographs that BERT knows of.
fn is_ideograph(char: char) -> bool {
    matches!(u32::from(char),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F
        | 0x2B740..=0x2B81F | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

fn contains(ranges: &[(u32, u32)], char: char) -> bool {
    let code = u32::from(char);
    let after = ranges.partition_point(|(start, _)| *start <= code);
    after.checked_sub(1).and_then(|at| ranges.get(at)).is_some_and(|(_, end)| code <= *end)
}
