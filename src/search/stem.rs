//! Porter's stemmer (M. F. Porter, "An algorithm for suffix stripping", 1980) with the
//! departures that FTS5's `porter` tokenizer makes, and the folding of letters before it.
//!
//! Snippets and prefix queries must know which words of a text the index takes for the same
//! word. The index itself is the oracle of the tests.

/// Words longer than this are indexed as they are, in bytes.
const MAX_WORD: usize = 64;

/// The form under which the index knows a word: folded, then stemmed.
pub fn index_form(word: &str) -> String {
    stem(fold(word))
}

/// Lower case without the diacritics of Latin letters, as `unicode61 remove_diacritics 2`
/// folds them. Letters that are no letter plus mark (ø, ł, ß, đ) stay what they are.
pub fn fold(word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return word.to_owned();
    }
    word.chars()
        .filter(|c| !is_mark(*c))
        .flat_map(char::to_lowercase)
        .filter(|c| !is_mark(*c))
        .map(base_letter)
        .collect()
}

/// Whether a character is a combining mark that the index takes as part of a word.
pub fn is_mark(c: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&c)
}

/// The letter under the diacritics, for the letters of Latin scripts.
fn base_letter(c: char) -> char {
    match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' | 'ǎ' | 'ạ'..='ặ' => 'a',
        'ç' | 'ć' | 'ĉ' | 'ċ' | 'č' => 'c',
        'ď' => 'd',
        'è'..='ë' | 'ē' | 'ĕ' | 'ė' | 'ę' | 'ě' | 'ẹ'..='ệ' => 'e',
        'ĝ' | 'ğ' | 'ġ' | 'ģ' => 'g',
        'ĥ' => 'h',
        'ì'..='ï' | 'ĩ' | 'ī' | 'ĭ' | 'į' | 'ǐ' | 'ỉ' | 'ị' => 'i',
        'ĵ' => 'j',
        'ķ' => 'k',
        'ĺ' | 'ļ' | 'ľ' => 'l',
        'ñ' | 'ń' | 'ņ' | 'ň' => 'n',
        'ò'..='ö' | 'ō' | 'ŏ' | 'ő' | 'ơ' | 'ǒ' | 'ọ'..='ợ' => 'o',
        'ŕ' | 'ŗ' | 'ř' => 'r',
        'ś' | 'ŝ' | 'ş' | 'š' | 'ș' => 's',
        'ţ' | 'ť' | 'ț' => 't',
        'ù'..='ü' | 'ũ' | 'ū' | 'ŭ' | 'ů' | 'ű' | 'ų' | 'ư' | 'ǔ' | 'ụ'..='ự' => 'u',
        'ŵ' => 'w',
        'ý' | 'ÿ' | 'ŷ' | 'ỳ'..='ỹ' => 'y',
        'ź' | 'ż' | 'ž' => 'z',
        other => other,
    }
}

/// When a rule applies to what is left of the suffix.
#[derive(Clone, Copy)]
enum When {
    MeasureAbove0,
    MeasureAbove1,
    MeasureAbove1AfterSOrT,
}

type Rule = (&'static [u8], &'static [u8], When);

const STEP_2: &[Rule] = &[
    (b"ational", b"ate", When::MeasureAbove0),
    (b"tional", b"tion", When::MeasureAbove0),
    (b"enci", b"ence", When::MeasureAbove0),
    (b"anci", b"ance", When::MeasureAbove0),
    (b"izer", b"ize", When::MeasureAbove0),
    (b"logi", b"log", When::MeasureAbove0),
    (b"bli", b"ble", When::MeasureAbove0),
    (b"alli", b"al", When::MeasureAbove0),
    (b"entli", b"ent", When::MeasureAbove0),
    (b"eli", b"e", When::MeasureAbove0),
    (b"ousli", b"ous", When::MeasureAbove0),
    (b"ization", b"ize", When::MeasureAbove0),
    (b"ation", b"ate", When::MeasureAbove0),
    (b"ator", b"ate", When::MeasureAbove0),
    (b"alism", b"al", When::MeasureAbove0),
    (b"iveness", b"ive", When::MeasureAbove0),
    (b"fulness", b"ful", When::MeasureAbove0),
    (b"ousness", b"ous", When::MeasureAbove0),
    (b"aliti", b"al", When::MeasureAbove0),
    (b"iviti", b"ive", When::MeasureAbove0),
    (b"biliti", b"ble", When::MeasureAbove0),
];

const STEP_3: &[Rule] = &[
    (b"ical", b"ic", When::MeasureAbove0),
    (b"ness", b"", When::MeasureAbove0),
    (b"icate", b"ic", When::MeasureAbove0),
    (b"iciti", b"ic", When::MeasureAbove0),
    (b"ful", b"", When::MeasureAbove0),
    (b"ative", b"", When::MeasureAbove0),
    (b"alize", b"al", When::MeasureAbove0),
];

const STEP_4: &[Rule] = &[
    (b"al", b"", When::MeasureAbove1),
    (b"ance", b"", When::MeasureAbove1),
    (b"ence", b"", When::MeasureAbove1),
    (b"er", b"", When::MeasureAbove1),
    (b"ic", b"", When::MeasureAbove1),
    (b"able", b"", When::MeasureAbove1),
    (b"ible", b"", When::MeasureAbove1),
    (b"ant", b"", When::MeasureAbove1),
    (b"ement", b"", When::MeasureAbove1),
    (b"ment", b"", When::MeasureAbove1),
    (b"ent", b"", When::MeasureAbove1),
    (b"ion", b"", When::MeasureAbove1AfterSOrT),
    (b"ou", b"", When::MeasureAbove1),
    (b"ism", b"", When::MeasureAbove1),
    (b"ate", b"", When::MeasureAbove1),
    (b"iti", b"", When::MeasureAbove1),
    (b"ous", b"", When::MeasureAbove1),
    (b"ive", b"", When::MeasureAbove1),
    (b"ize", b"", When::MeasureAbove1),
];

/// Stems a folded word.
pub fn stem(word: String) -> String {
    if word.len() > MAX_WORD || word.len() < 3 {
        return word;
    }
    let mut bytes = word.into_bytes();
    plurals(&mut bytes);
    past_and_progressive(&mut bytes);
    if bytes.ends_with(b"y") && has_vowel(front(&bytes, 1)) {
        bytes.pop();
        bytes.push(b'i');
    }
    for rules in [STEP_2, STEP_3, STEP_4] {
        apply(&mut bytes, rules);
    }
    if bytes.ends_with(b"e") {
        let rest = front(&bytes, 1);
        if measure(rest) > 1 || (measure(rest) == 1 && !ends_short(rest)) {
            bytes.pop();
        }
    }
    if bytes.ends_with(b"ll") && measure(front(&bytes, 1)) > 1 {
        bytes.pop();
    }
    // Every rule replaces ASCII by ASCII, so the bytes are still valid.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Step 1a.
fn plurals(bytes: &mut Vec<u8>) {
    let n = bytes.len();
    if !bytes.ends_with(b"s") {
        return;
    }
    if bytes.ends_with(b"es") {
        let cut =
            if (n > 4 && bytes.ends_with(b"sses")) || (n > 3 && bytes.ends_with(b"ies")) { 2 } else { 1 };
        bytes.truncate(n - cut);
    } else if !bytes.ends_with(b"ss") {
        bytes.truncate(n - 1);
    }
}

/// Step 1b.
fn past_and_progressive(bytes: &mut Vec<u8>) {
    let n = bytes.len();
    if n > 3 && bytes.ends_with(b"eed") {
        if measure(front(bytes, 3)) > 0 {
            bytes.truncate(n - 1);
        }
        return;
    }
    let suffix = if n > 2 && bytes.ends_with(b"ed") {
        2
    } else if n > 3 && bytes.ends_with(b"ing") {
        3
    } else {
        return;
    };
    if !has_vowel(front(bytes, suffix)) {
        return;
    }
    bytes.truncate(n - suffix);
    let n = bytes.len();
    if n > 2 && (bytes.ends_with(b"at") || bytes.ends_with(b"bl") || bytes.ends_with(b"iz")) {
        bytes.push(b'e');
        return;
    }
    let Some(last) = bytes.last().copied() else { return };
    let doubled = n > 1 && bytes.get(n - 2) == Some(&last);
    if doubled && !is_vowel(last, false) && !matches!(last, b'l' | b's' | b'z') {
        bytes.pop();
    } else if measure(bytes) == 1 && ends_short(bytes) {
        bytes.push(b'e');
    }
}

fn apply(bytes: &mut Vec<u8>, rules: &[Rule]) {
    let Some((suffix, output, when)) =
        rules.iter().find(|(suffix, _, _)| bytes.len() > suffix.len() && bytes.ends_with(suffix))
    else {
        return;
    };
    let rest = front(bytes, suffix.len());
    let applies = match when {
        When::MeasureAbove0 => measure(rest) > 0,
        When::MeasureAbove1 => measure(rest) > 1,
        When::MeasureAbove1AfterSOrT => matches!(rest.last(), Some(b's' | b't')) && measure(rest) > 1,
    };
    if applies {
        bytes.truncate(bytes.len() - suffix.len());
        bytes.extend_from_slice(output);
    }
}

/// All but the last `n` bytes.
fn front(bytes: &[u8], n: usize) -> &[u8] {
    bytes.get(..bytes.len().saturating_sub(n)).unwrap_or_default()
}

fn is_vowel(byte: u8, y_counts: bool) -> bool {
    matches!(byte, b'a' | b'e' | b'i' | b'o' | b'u') || (y_counts && byte == b'y')
}

/// Each byte as consonant (true) or vowel: a `y` after a consonant is a vowel.
fn consonants(bytes: &[u8]) -> impl Iterator<Item = bool> {
    bytes.iter().scan(false, |consonant, byte| {
        *consonant = !is_vowel(*byte, *consonant);
        Some(*consonant)
    })
}

/// The number of vowel-consonant sequences, Porter's m.
fn measure(bytes: &[u8]) -> usize {
    let mut after_vowel = false;
    let mut count = 0;
    for consonant in consonants(bytes) {
        if consonant && after_vowel {
            count += 1;
        }
        after_vowel = !consonant;
    }
    count
}

fn has_vowel(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().any(|(at, byte)| is_vowel(*byte, at > 0))
}

/// Porter's *o: ends consonant, vowel, consonant, and the last is not w, x or y.
fn ends_short(bytes: &[u8]) -> bool {
    if matches!(bytes.last(), None | Some(b'w' | b'x' | b'y')) {
        return false;
    }
    let shape: Vec<bool> = consonants(bytes).collect();
    shape.ends_with(&[true, false, true])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_of_the_paper_come_out() {
        for (word, want) in [
            ("caresses", "caress"),
            ("ponies", "poni"),
            ("galleries", "galleri"),
            ("gallery", "galleri"),
            ("running", "run"),
            ("sanitize", "sanit"),
            ("authentication", "authent"),
            ("agreed", "agre"),
            ("hopping", "hop"),
            ("filing", "file"),
            ("controlling", "control"),
            ("happy", "happi"),
            ("sky", "sky"),
            ("is", "is"),
        ] {
            assert_eq!(index_form(word), want, "{word}");
        }
    }

    #[test]
    fn letters_fold_as_far_as_the_index_folds() {
        assert_eq!(fold("Müller"), "muller");
        assert_eq!(fold("Mu\u{308}ller"), "muller");
        assert_eq!(fold("ÉCOLE"), "ecole");
        assert_eq!(fold("Økland"), "økland");
    }
}
