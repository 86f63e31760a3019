//! The embedder that needs no server: all-MiniLM-L6-v2 in 8-bit integers, inside the binary.
//!
//! [`Builtin::load`] reads the headers of the packed model (`models/`), which is part of the
//! executable and is paged in as it is used. One text gives the same vector, bit for bit, on
//! every processor, alone or in any batch, with any number of threads.

mod classes;
mod float;
mod kernels;
mod model;
mod pack;
#[cfg(test)]
mod tests;
mod wordpiece;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::kernels::Kernel;
use self::model::{Model, Scratch};
use self::pack::Pack;
use self::wordpiece::{END, START, Token, Vocabulary};
use crate::error::Result;

/// Tokens that a thread takes at once, at least (as far as there are any): enough for the
/// weights, read once for all of them, not to be what takes the time.
const GROUP_TOKENS: usize = 192;

/// The packed model, where products can read it by whole cache lines.
static MODEL: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../models/minilm-l6-int8.bin"));

#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

/// The loaded model.
#[derive(Debug)]
pub struct Builtin {
    kernel: Kernel,
    vocabulary: Vocabulary,
    model: Model,
}

impl Builtin {
    /// Length of a vector.
    pub const DIMS: usize = 384;
    /// Name of the model; a change of the weights or of the tokens changes it.
    pub const MODEL: &str = crate::config::BUILTIN_MODEL;
    /// Tokens of a text that count; two of them are the marks at its ends, what follows is cut.
    pub const MAX_TOKENS: usize = 256;
    /// Tokens of a text that count, without the marks: what [`Self::count_tokens`] may be.
    pub const MAX_TEXT_TOKENS: usize = Self::MAX_TOKENS - 2;

    /// The model with the fastest kernel of this processor; read once a process.
    pub fn load() -> Result<&'static Self> {
        static LOADED: OnceLock<Builtin> = OnceLock::new();
        if let Some(loaded) = LOADED.get() {
            return Ok(loaded);
        }
        let read = Self::with_kernel(Kernel::best())?;
        Ok(LOADED.get_or_init(|| read))
    }

    /// The model with a kernel of one's choice: for comparisons.
    pub fn with_kernel(kernel: Kernel) -> Result<Self> {
        let pack = Pack::read(&MODEL.0)?;
        Ok(Self { kernel, vocabulary: Vocabulary::read(&pack)?, model: Model::read(&pack)? })
    }

    /// Name of the kernel in use.
    pub fn kernel_name(&self) -> &'static str {
        self.kernel.name()
    }

    /// Vectors of unit length, one a text, in the order of the texts; on `n_threads` threads
    /// (at least one). Of a text only the first [`Self::MAX_TOKENS`] tokens count.
    pub fn embed(&self, texts: &[&str], n_threads: usize) -> Vec<Vec<f32>> {
        let ids: Vec<Vec<u16>> = texts.iter().map(|text| self.ids(text)).collect();
        let groups = groups(&ids);
        let n_threads = n_threads.clamp(1, groups.len().max(1));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut scratch = Scratch::default();
            let mut done = Vec::new();
            while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
                let ids = &ids[group.clone()];
                let lens: Vec<usize> = ids.iter().map(Vec::len).collect();
                let vectors = self.model.forward(self.kernel, &ids.concat(), &lens, &mut scratch);
                done.push((group.start, vectors));
            }
            done
        };
        let mut done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..n_threads).map(|_| scope.spawn(work)).collect();
            let mut done = work();
            for other in others {
                match other.join() {
                    Ok(theirs) => done.extend(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_by_key(|(start, _)| *start);
        done.into_iter().flat_map(|(_, vectors)| vectors).collect()
    }

    /// Vector of a query: the same as that of a text, since this model takes no prefixes.
    pub fn embed_query(&self, query: &str) -> Vec<f32> {
        let ids = self.ids(query);
        let len = ids.len();
        let vectors = self.model.forward(self.kernel, &ids, &[len], &mut Scratch::default());
        vectors.into_iter().flatten().collect()
    }

    /// Number of tokens of a text, without the two marks, however long it is.
    pub fn count_tokens(&self, text: &str) -> usize {
        let mut n_tokens = 0;
        self.vocabulary.each_token(text, |_| {
            n_tokens += 1;
            true
        });
        n_tokens
    }

    /// Where each token of a text stands in it, in bytes, at character boundaries.
    ///
    /// Several tokens can share one character, and bytes between tokens belong to none.
    pub fn token_spans(&self, text: &str) -> Vec<Range<usize>> {
        self.tokens(text).into_iter().map(|token| token.span).collect()
    }

    /// Parts of a text of at most `max_tokens` tokens, each starting about `overlap` tokens
    /// before the end of the one before; cut between words, unless one word alone is too long.
    ///
    /// Together they cover all tokens; a text without tokens has no parts.
    pub fn split(&self, text: &str, max_tokens: usize, overlap: usize) -> Vec<Range<usize>> {
        let tokens = self.tokens(text);
        let max_tokens = max_tokens.max(1);
        let mut parts = Vec::new();
        let mut from = 0;
        while from < tokens.len() {
            let limit = (from + max_tokens).min(tokens.len());
            let to = word_start_before(&tokens, from + 1, limit).unwrap_or(limit);
            parts.push(tokens[from].span.start..tokens[to - 1].span.end);
            if to == tokens.len() {
                break;
            }
            let back = to.saturating_sub(overlap).max(from + 1);
            from = (back..to).find(|at| tokens[*at].starts_word).unwrap_or(to);
        }
        parts
    }

    fn tokens(&self, text: &str) -> Vec<Token> {
        let mut tokens = Vec::new();
        self.vocabulary.each_token(text, |token| {
            tokens.push(token);
            true
        });
        tokens
    }

    /// Ids of a text with both marks, cut to what the model can take.
    fn ids(&self, text: &str) -> Vec<u16> {
        let mut ids = vec![START];
        self.vocabulary.each_token(text, |token| {
            ids.push(token.id);
            ids.len() <= Self::MAX_TEXT_TOKENS
        });
        ids.push(END);
        ids
    }
}

/// Last place in `lowest..=limit` where the tokens can be cut without cutting a word.
fn word_start_before(tokens: &[Token], lowest: usize, limit: usize) -> Option<usize> {
    (lowest..=limit).rev().find(|at| tokens.get(*at).is_none_or(|token| token.starts_word))
}

/// Neighbouring texts that are worked on together.
fn groups(ids: &[Vec<u16>]) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut start, mut n_tokens) = (0, 0);
    for (at, ids) in ids.iter().enumerate() {
        n_tokens += ids.len();
        if n_tokens >= GROUP_TOKENS {
            groups.push(start..at + 1);
            (start, n_tokens) = (at + 1, 0);
        }
    }
    if start < ids.len() {
        groups.push(start..ids.len());
    }
    groups
}
