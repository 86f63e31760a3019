//! Words of a text as the index sees them, and which of them say nothing.

use super::stem::is_mark;

/// Splits a text into words: runs of letters and digits with their combining marks.
/// Underscores separate, as they do in the index.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_word_char(c)).filter(|word| word.chars().any(char::is_alphanumeric))
}

/// Whether a character is part of a word.
pub fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || is_mark(c)
}

/// Whether a character belongs to a script that is written without spaces.
pub fn is_cjk(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9d}' | '\u{20000}'..='\u{3134f}'
        | '\u{0e00}'..='\u{0e7f}')
}

/// Whether a word is so common in English that it tells nothing about what is meant.
pub fn is_stop_word(word: &str) -> bool {
    let lower = word.to_lowercase();
    STOP_WORDS.binary_search(&lower.as_str()).is_ok()
}

/// Sorted.
const STOP_WORDS: &[&str] = &[
    "a", "about", "after", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been",
    "before", "being", "but", "by", "can", "could", "did", "do", "does", "doing", "don", "during", "each",
    "else", "for", "from", "had", "has", "have", "having", "he", "her", "here", "him", "his", "how", "i",
    "if", "in", "into", "is", "it", "its", "just", "ll", "may", "me", "might", "more", "most", "must", "my",
    "no", "nor", "of", "on", "only", "or", "other", "our", "ours", "out", "over", "own", "re", "s", "same",
    "shall", "she", "should", "so", "some", "such", "t", "than", "that", "the", "their", "them", "then",
    "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up", "ve", "very",
    "was", "we", "were", "what", "when", "where", "which", "while", "who", "whom", "whose", "why", "will",
    "with", "would", "you", "your", "yours",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_words_are_sorted_for_the_search() {
        assert!(STOP_WORDS.is_sorted());
        assert!(
            is_stop_word("The") && is_stop_word("with") && !is_stop_word("not") && !is_stop_word("crash")
        );
    }

    #[test]
    fn words_split_where_the_index_splits() {
        assert_eq!(
            words("atomic_write_json: HTTP-502, don't").collect::<Vec<_>>(),
            ["atomic", "write", "json", "HTTP", "502", "don", "t"]
        );
        assert_eq!(words("Mu\u{308}ller ++ \u{301}").collect::<Vec<_>>(), ["Mu\u{308}ller"]);
    }
}
