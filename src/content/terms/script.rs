//! Scripts that are written without spaces, and letters that the tokenizer does not fold.

/// Whether words of a script are separated by spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// As in English: a run is a word.
    Spaced,
    /// As in Chinese: a run is a sentence.
    Unspaced,
}

/// Splits a word where its script changes. Marks stay with what they follow.
pub(super) fn runs(word: &str) -> Vec<(Script, &str)> {
    let mut runs: Vec<(Script, &str)> = Vec::new();
    let mut start = 0;
    let mut current: Option<Script> = None;
    for (at, c) in word.char_indices() {
        let script = match current {
            Some(script) if is_mark(c) => script,
            _ if is_unspaced(c) => Script::Unspaced,
            _ => Script::Spaced,
        };
        if let Some(before) = current.filter(|before| *before != script) {
            runs.extend(word.get(start..at).map(|run| (before, run)));
            start = at;
        }
        current = Some(script);
    }
    if let Some(script) = current {
        runs.extend(word.get(start..).map(|run| (script, run)));
    }
    runs
}

/// Letters of Han, Kana, Bopomofo, Hangul, Thai, Lao, Myanmar and Khmer.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{0E01}'..='\u{0E30}' | '\u{0E32}' | '\u{0E33}' | '\u{0E40}'..='\u{0E46}'
        | '\u{0E81}'..='\u{0EB0}' | '\u{0EB2}' | '\u{0EB3}' | '\u{0EC0}'..='\u{0EC6}'
        | '\u{1000}'..='\u{102A}' | '\u{1100}'..='\u{11FF}' | '\u{1780}'..='\u{17B3}'
        | '\u{2E80}'..='\u{2FDF}' | '\u{3005}'..='\u{3007}' | '\u{3021}'..='\u{3029}'
        | '\u{3041}'..='\u{3096}' | '\u{309D}'..='\u{309F}' | '\u{30A1}'..='\u{30FA}' | '\u{30FC}'..='\u{30FF}'
        | '\u{3105}'..='\u{312F}' | '\u{3131}'..='\u{318E}' | '\u{31F0}'..='\u{31FF}'
        | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7A3}' | '\u{F900}'..='\u{FAFF}'
        | '\u{FF66}'..='\u{FF9F}' | '\u{20000}'..='\u{2FA1F}' | '\u{30000}'..='\u{323AF}')
}

/// Signs of these scripts that the tokenizer takes for separators.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{0E31}' | '\u{0E34}'..='\u{0E3A}' | '\u{0E47}'..='\u{0E4E}'
        | '\u{0EB1}' | '\u{0EB4}'..='\u{0EBC}' | '\u{0EC8}'..='\u{0ECE}'
        | '\u{102B}'..='\u{103E}' | '\u{17B4}'..='\u{17D3}' | '\u{3099}' | '\u{309A}')
}

/// What a letter is spelt with where its form is not at hand. The tokenizer folds accents
/// (`é`); a stroke or a ligature is another letter to it.
pub(super) fn fold(c: char) -> Option<&'static str> {
    Some(match c {
        'ø' | 'Ø' | 'ǿ' | 'Ǿ' => "o",
        'ł' | 'Ł' => "l",
        'đ' | 'Đ' | 'ð' | 'Ð' => "d",
        'ħ' | 'Ħ' => "h",
        'ŧ' | 'Ŧ' => "t",
        'ı' => "i",
        'ß' | 'ẞ' => "ss",
        'æ' | 'Æ' | 'ǽ' | 'Ǽ' => "ae",
        'œ' | 'Œ' => "oe",
        'þ' | 'Þ' => "th",
        'ŋ' | 'Ŋ' => "ng",
        'ĳ' | 'Ĳ' => "ij",
        'ﬀ' => "ff",
        'ﬁ' => "fi",
        'ﬂ' => "fl",
        'ﬃ' => "ffi",
        'ﬄ' => "ffl",
        _ => return None,
    })
}

/// The ASCII form of a full-width letter or digit, any other character as it is.
pub(super) fn narrow(c: char) -> char {
    match c {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(c) - 0xFEE0).unwrap_or(c),
        _ => c,
    }
}
