//! Cuts a document into passages that fit an embedding model.
//!
//! The title alone is one passage; the text is cut into pieces of bounded size with the
//! title in front of each. A piece ends where the text pauses (paragraph, line or sentence,
//! word) and begins a little before the end of the last one, so that nothing is understood
//! only across a cut. No piece begins or ends inside a character.

/// Bounds of passages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of text in a passage, the title in front not counted.
    pub tokens: usize,
    /// Tokens of the title in front.
    pub title_tokens: usize,
    /// Passages of one document; the rest of its text has none.
    pub max_chunks: usize,
}

impl Limits {
    /// Bounds for passages of `tokens` tokens.
    pub fn of_tokens(tokens: usize) -> Self {
        Self { tokens: tokens.clamp(32, 2_000), title_tokens: (tokens / 3).clamp(16, 60), max_chunks: 128 }
    }

    /// Tokens that a passage repeats of the one before.
    pub fn overlap(&self) -> usize {
        self.tokens * 15 / 100
    }

    /// Name of this way of cutting: another name means that every document is cut again.
    pub fn name(&self) -> String {
        format!("v1:title+{}/{}/{}x{}", self.tokens, self.overlap(), self.title_tokens, self.max_chunks)
    }
}

/// A document as it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The document's own title: one passage for itself.
    pub title: Option<&'a str>,
    /// What stands in front of each passage: the title, or that of the item discussed.
    pub heading: Option<&'a str>,
    /// The text without its header.
    pub body: &'a str,
    /// Characters of the header: positions count from the start of the whole text.
    pub body_start: usize,
}

/// A passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What is embedded.
    pub text: String,
    /// Whether this is the title alone; then it has no place in the text.
    pub is_title: bool,
    /// Where it begins in the document's text, in characters.
    pub char_start: usize,
    /// Where it ends, in characters.
    pub char_end: usize,
}

/// The passages of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunked {
    /// In the order of the text, the title first.
    pub chunks: Vec<Chunk>,
    /// Whether the end of the text was left out.
    pub is_truncated: bool,
}

/// How much the text pauses after a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Pause {
    /// Inside a word that is too long for one piece.
    None,
    Word,
    /// End of a sentence or line.
    Sentence,
    Paragraph,
}

/// A word, or a part of a very long one.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start_byte: usize,
    end_byte: usize,
    start_char: usize,
    end_char: usize,
    tokens: usize,
    pause: Pause,
}

/// Longest piece in characters: longer words are cut.
const MAX_PIECE_CHARS: usize = 48;

/// Cuts a document. `count` returns the tokens of a word, as the model counts or as it is
/// estimated; it is taken to add up.
pub fn chunk(source: &Source<'_>, limits: &Limits, count: &dyn Fn(&str) -> usize) -> Chunked {
    let mut out = Chunked::default();
    if let Some(title) = source.title.map(str::trim).filter(|title| !title.is_empty()) {
        let text = head(title, limits.tokens, count).to_owned();
        out.chunks.push(Chunk { text, is_title: true, char_start: 0, char_end: 0 });
    }
    let heading = source.heading.map_or("", |heading| head(heading.trim(), limits.title_tokens, count));
    let pieces = pieces(source.body, limits.tokens, count);
    let mut start = 0;
    while start < pieces.len() {
        if out.chunks.len() >= limits.max_chunks {
            out.is_truncated = true;
            break;
        }
        let end = end_of(&pieces, start, limits.tokens);
        if let (Some(first), Some(last)) = (pieces.get(start), pieces.get(end - 1)) {
            let passage = source.body.get(first.start_byte..last.end_byte).unwrap_or_default();
            let text = if heading.is_empty() { passage.to_owned() } else { format!("{heading}\n{passage}") };
            out.chunks.push(Chunk {
                text,
                is_title: false,
                char_start: source.body_start + first.start_char,
                char_end: source.body_start + last.end_char,
            });
        }
        if end >= pieces.len() {
            break;
        }
        start = next_start(&pieces, start, end, limits.overlap());
    }
    out
}

/// Estimates the tokens of a text for a model whose tokenizer is not at hand.
///
/// Rather too many than too few: punctuation and characters outside ASCII count one each,
/// as models with small vocabularies cut code and other scripts.
pub fn estimate_tokens(text: &str) -> usize {
    let mut tokens = 0;
    let (mut letters, mut has_digit) = (0_usize, false);
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            letters += 1;
            has_digit |= c.is_ascii_digit();
            continue;
        }
        tokens += run_tokens(letters, has_digit) + usize::from(!c.is_whitespace());
        (letters, has_digit) = (0, false);
    }
    tokens + run_tokens(letters, has_digit)
}

fn run_tokens(letters: usize, has_digit: bool) -> usize {
    if has_digit { letters.div_ceil(2) } else { letters.div_ceil(4) }
}

/// The beginning of a text that has at most `limit` tokens, cut after a word.
fn head<'a>(text: &'a str, limit: usize, count: &dyn Fn(&str) -> usize) -> &'a str {
    let pieces = pieces(text, limit, count);
    let mut tokens = 0;
    let mut end = 0;
    for (idx, piece) in pieces.iter().enumerate() {
        tokens += piece.tokens;
        if tokens > limit && idx > 0 {
            break;
        }
        end = piece.end_byte;
    }
    text.get(..end).unwrap_or_default()
}

/// Splits a text at white space, and very long words inside.
fn pieces(text: &str, limit: usize, count: &dyn Fn(&str) -> usize) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let largest = (limit / 4).max(1);
    let (mut newlines, mut gap_seen) = (0, false);
    let mut word_start: Option<(usize, usize)> = None;
    let mut at_char = 0;
    let mut add = |from: (usize, usize), to: (usize, usize)| {
        let word = text.get(from.0..to.0).unwrap_or_default();
        split_word(word, from, largest, count, &mut pieces);
        if let Some(last) = pieces.last_mut() {
            last.pause = if ends_sentence(word) { Pause::Sentence } else { Pause::Word };
        }
        pieces.len()
    };
    let mut pauses: Vec<(usize, Pause)> = Vec::new();
    let mut n = 0;
    for (at_byte, c) in text.char_indices() {
        if c.is_whitespace() {
            if let Some(from) = word_start.take() {
                n = add(from, (at_byte, at_char));
                (newlines, gap_seen) = (0, true);
            }
            newlines += usize::from(c == '\n');
        } else if word_start.is_none() {
            if gap_seen && newlines > 0 {
                pauses.push((n, if newlines > 1 { Pause::Paragraph } else { Pause::Sentence }));
            }
            word_start = Some((at_byte, at_char));
        }
        at_char += 1;
    }
    if let Some(from) = word_start {
        add(from, (text.len(), at_char));
    }
    for (after, pause) in pauses {
        if let Some(piece) = after.checked_sub(1).and_then(|idx| pieces.get_mut(idx)) {
            piece.pause = piece.pause.max(pause);
        }
    }
    pieces
}

/// Adds a word as one piece, or as several when it is long or has many tokens.
fn split_word(
    word: &str,
    from: (usize, usize),
    largest: usize,
    count: &dyn Fn(&str) -> usize,
    pieces: &mut Vec<Piece>,
) {
    let chars = word.chars().count();
    let tokens = count(word).max(1);
    if chars <= 1 || (chars <= MAX_PIECE_CHARS && tokens <= largest) {
        pieces.push(Piece {
            start_byte: from.0,
            end_byte: from.0 + word.len(),
            start_char: from.1,
            end_char: from.1 + chars,
            tokens,
            pause: Pause::None,
        });
        return;
    }
    // Halving keeps this linear in the word's length, whatever the counter does.
    let half = chars / 2;
    let cut = word.char_indices().nth(half).map_or(word.len(), |(at, _)| at);
    let (left, right) = word.split_at(cut);
    split_word(left, from, largest, count, pieces);
    split_word(right, (from.0 + cut, from.1 + half), largest, count, pieces);
}

fn ends_sentence(word: &str) -> bool {
    word.trim_end_matches(['"', '\'', ')', ']', '»', '”', '’', '*', '`'])
        .ends_with(['.', '!', '?', ';', ':', '。', '！', '？', '；'])
}

/// Where a passage that begins at `start` ends: as late as it may, but at the strongest
/// pause of its later half.
fn end_of(pieces: &[Piece], start: usize, limit: usize) -> usize {
    let floor = limit * 55 / 100;
    let mut tokens = 0;
    let mut best: Option<(Pause, usize)> = None;
    for (idx, piece) in pieces.iter().enumerate().skip(start) {
        if idx > start && tokens + piece.tokens > limit {
            return best.map_or(idx, |(_, end)| end);
        }
        tokens += piece.tokens;
        if tokens >= floor && best.is_none_or(|(pause, _)| piece.pause >= pause) {
            best = Some((piece.pause, idx + 1));
        }
    }
    pieces.len()
}

/// Where the passage after `start..end` begins: `overlap` tokens before the end, at the
/// first sentence there, else at the first word.
fn next_start(pieces: &[Piece], start: usize, end: usize, overlap: usize) -> usize {
    let mut next = end;
    let mut tokens = 0;
    while next > start + 1 {
        let Some(piece) = pieces.get(next - 1) else { break };
        if tokens + piece.tokens > overlap {
            break;
        }
        tokens += piece.tokens;
        next -= 1;
    }
    let begins_after = |pause: Pause| {
        (next..end).find(|idx| {
            idx.checked_sub(1).and_then(|before| pieces.get(before)).is_some_and(|piece| piece.pause >= pause)
        })
    };
    begins_after(Pause::Sentence).or_else(|| begins_after(Pause::Word)).unwrap_or(end)
}

#[cfg(test)]
mod tests;
