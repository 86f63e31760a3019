//! Bounds the length of documents, in characters, at the boundaries between notes.

use std::ops::Range;

/// Most characters of a document: about 8,000 tokens at four characters each.
pub const MAX_CONTENT_CHARS: usize = 32_000;

/// Ends a text that was cut.
const CUT_MARK: &str = "\n[truncated]";

/// Stands between two notes.
const SEPARATOR: &str = "\n\n";

/// Why a document is shorter than its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TruncationReason {
    /// Notes in the middle were left out.
    TokenLimitMiddleDrop,
    /// The description, or the only note, was cut.
    SingleNoteOversized,
    /// First and last note do not fit together: only the first is kept, cut if need be.
    FirstLastOversized,
}

impl TruncationReason {
    /// Name in the database and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TokenLimitMiddleDrop => "token_limit_middle_drop",
            Self::SingleNoteOversized => "single_note_oversized",
            Self::FirstLastOversized => "first_last_oversized",
        }
    }
}

/// A text within its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncated {
    /// What is left.
    pub text: String,
    /// Set when something was left out.
    pub reason: Option<TruncationReason>,
}

/// Whether the place where notes were left out is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omission {
    /// As `[... N notes omitted for length ...]`.
    Shown,
    /// Not at all: for text that is only searched.
    Silent,
}

/// Returns the text whole when it has at most `max_chars` characters, else its beginning
/// followed by `[truncated]`, within the limit.
pub fn cut_text(text: &str, max_chars: usize) -> Truncated {
    if fits(text, max_chars) {
        return Truncated { text: text.to_owned(), reason: None };
    }
    Truncated { text: cut(text, max_chars), reason: Some(TruncationReason::SingleNoteOversized) }
}

/// Joins notes by empty lines within `max_chars` characters.
///
/// Notes are never cut in the middle, unless one alone is too long: notes between the first
/// and the last are left out, as few as possible, taking from both ends in turn.
pub fn join_notes(notes: &[String], max_chars: usize, omission: Omission) -> Truncated {
    let lengths: Vec<usize> = notes.iter().map(|note| note.chars().count()).collect();
    let gaps = notes.len().saturating_sub(1) * SEPARATOR.len();
    if lengths.iter().sum::<usize>() + gaps <= max_chars {
        return Truncated { text: notes.join(SEPARATOR), reason: None };
    }
    let [first, .., _last] = notes else {
        // One note: none, or all that fits, was returned above.
        return cut_text(notes.first().map_or("", String::as_str), max_chars);
    };
    // The widest marker that can be needed, so that adding a note never changes the room.
    let room = max_chars.checked_sub(marker(notes.len(), omission).chars().count());
    match room.and_then(|room| middle_to_drop(&lengths, room)) {
        Some(dropped) => {
            let (head, tail) = (&notes[..dropped.start], &notes[dropped.end..]);
            let marker = marker(dropped.len(), omission);
            Truncated {
                text: format!("{}{marker}{}", head.join(SEPARATOR), tail.join(SEPARATOR)),
                reason: Some(TruncationReason::TokenLimitMiddleDrop),
            }
        }
        None => Truncated {
            text: first_alone(first, notes.len() - 1, max_chars, omission),
            reason: Some(TruncationReason::FirstLastOversized),
        },
    }
}

/// Finds the notes to leave out so that the others have at most `room` characters; nothing
/// when first and last do not fit together.
fn middle_to_drop(lengths: &[usize], room: usize) -> Option<Range<usize>> {
    let (mut start, mut end) = (1, lengths.len().checked_sub(1)?);
    let mut used = lengths.first()? + lengths.last()?;
    if used > room {
        return None;
    }
    let mut fits = |index: usize, end_reached: bool| {
        let with_it = used + lengths[index] + SEPARATOR.len();
        let fits = !end_reached && with_it <= room;
        if fits {
            used = with_it;
        }
        fits
    };
    // The last one in the middle always goes: all together were too long.
    while end - start > 1 {
        let front = fits(start, false);
        start += usize::from(front);
        let back = fits(end - 1, end - start <= 1);
        end -= usize::from(back);
        if !front && !back {
            break;
        }
    }
    Some(start..end)
}

fn marker(omitted: usize, omission: Omission) -> String {
    match omission {
        Omission::Shown => format!("\n\n[... {omitted} notes omitted for length ...]\n\n"),
        Omission::Silent => SEPARATOR.to_owned(),
    }
}

/// The first note, with the omission of all others shown when there is room for it.
fn first_alone(first: &str, omitted: usize, max_chars: usize, omission: Omission) -> String {
    let tail = match omission {
        Omission::Shown => marker(omitted, omission).trim_end().to_owned(),
        Omission::Silent => String::new(),
    };
    match max_chars.checked_sub(tail.chars().count()) {
        Some(room) if room > CUT_MARK.len() => {
            let kept = if fits(first, room) { first.to_owned() } else { cut(first, room) };
            kept + &tail
        }
        Some(_) | None => cut(first, max_chars),
    }
}

/// Whether a text has at most `max_chars` characters; most are settled without counting.
fn fits(text: &str, max_chars: usize) -> bool {
    text.len() <= max_chars || text.chars().count() <= max_chars
}

/// Cuts a text that is too long.
fn cut(text: &str, max_chars: usize) -> String {
    let mark = if CUT_MARK.len() <= max_chars { CUT_MARK } else { "" };
    let mut kept: String = text.chars().take(max_chars - mark.len()).collect();
    kept.push_str(mark);
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(notes: &[String], max_chars: usize) -> Truncated {
        join_notes(notes, max_chars, Omission::Shown)
    }

    #[test]
    fn a5_17_exactly_the_limit_is_not_cut_and_one_more_is() {
        let text = "a".repeat(MAX_CONTENT_CHARS);
        assert_eq!(cut_text(&text, MAX_CONTENT_CHARS), Truncated { text: text.clone(), reason: None });
        let cut = cut_text(&(text + "b"), MAX_CONTENT_CHARS);
        assert_eq!(cut.text.chars().count(), MAX_CONTENT_CHARS);
        assert!(cut.text.ends_with("[truncated]"));
        assert_eq!(cut.reason, Some(TruncationReason::SingleNoteOversized));
    }

    #[test]
    fn a4_16_a_limit_in_the_middle_of_multi_byte_text_cuts_between_characters() {
        let text = "a".repeat(31_999) + "日本";
        let cut = cut_text(&text, MAX_CONTENT_CHARS);
        assert_eq!(cut.text.chars().count(), MAX_CONTENT_CHARS);
        let fits = "a".repeat(31_999) + "日";
        assert_eq!(cut_text(&fits, MAX_CONTENT_CHARS).reason, None, "characters count, not bytes");
    }

    #[test]
    fn a5_17_notes_in_the_middle_are_left_out_visibly() {
        let notes: Vec<String> = (0..30).map(|n| format!("note{n} {}", "x".repeat(2_000))).collect();
        let out = shown(&notes, MAX_CONTENT_CHARS);
        assert_eq!(out.reason, Some(TruncationReason::TokenLimitMiddleDrop));
        assert!(out.text.starts_with("note0 ") && out.text.contains("note29 "));
        assert!(out.text.contains("\n\n[... 15 notes omitted for length ...]\n\n"), "as many as fit stay");
        assert!(out.text.chars().count() <= MAX_CONTENT_CHARS);
    }

    #[test]
    fn first_and_last_that_do_not_fit_leave_the_first() {
        let notes = ["f".repeat(60), "m".into(), "l".repeat(60)];
        let out = shown(&notes, 110);
        assert_eq!(out.reason, Some(TruncationReason::FirstLastOversized));
        assert_eq!(out.text, format!("{}\n\n[... 2 notes omitted for length ...]", "f".repeat(60)));
        let out = shown(&["f".repeat(200), "l".into()], 100);
        assert!(out.text.contains("[truncated]\n\n[... 1 notes omitted"), "{}", out.text);
        assert_eq!(out.text.chars().count(), 100);
    }

    #[test]
    fn one_note_alone_is_cut() {
        let out = shown(&["x".repeat(500)], 100);
        assert_eq!(out.reason, Some(TruncationReason::SingleNoteOversized));
        assert_eq!(shown(&[], 10), Truncated { text: String::new(), reason: None });
    }

    #[test]
    fn silent_omission_leaves_no_words_behind() {
        let notes: Vec<String> = (0..9).map(|n| format!("{n}{}", "x".repeat(20))).collect();
        let out = join_notes(&notes, 100, Omission::Silent);
        assert!(!out.text.contains("omitted") && out.text.starts_with('0') && out.text.contains('8'));
    }

    proptest! {
        #[test]
        fn never_over_the_limit_and_nothing_lost_without_a_reason(
            notes in prop::collection::vec(".{0,80}", 0..12),
            max_chars in 0_usize..400,
        ) {
            for omission in [Omission::Shown, Omission::Silent] {
                let out = join_notes(&notes, max_chars, omission);
                prop_assert!(out.text.chars().count() <= max_chars);
                prop_assert_eq!(&out, &join_notes(&notes, max_chars, omission));
                match out.reason {
                    None => prop_assert_eq!(&out.text, &notes.join("\n\n")),
                    Some(TruncationReason::TokenLimitMiddleDrop) => {
                        prop_assert!(out.text.starts_with(notes.first().unwrap()));
                        prop_assert!(out.text.ends_with(notes.last().unwrap()));
                    }
                    Some(_) => {}
                }
            }
        }

        #[test]
        fn a_cut_text_is_its_own_cut(text in ".{0,300}", max_chars in 0_usize..300) {
            let once = cut_text(&text, max_chars);
            prop_assert!(once.text.chars().count() <= max_chars);
            prop_assert_eq!(&cut_text(&once.text, max_chars).text, &once.text);
        }
    }
}
