//! What keeps arguments and answers short enough.

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Characters of an answer at most, as JSON.
pub const MAX_ANSWER: usize = 32_000;

/// Characters of all arguments of a call at most, as JSON.
pub const MAX_ARGUMENTS: usize = 40_000;

/// Characters of one string in an answer at most.
const MAX_STRING: usize = 2_500;

/// Elements of one list in an answer at most.
const MAX_LIST: usize = 100;

/// Characters of a part of a thread.
pub const PART: usize = 12_000;

/// Characters of a part of a thread at most. Escaped as JSON it may be longer, see [`part`].
pub const MAX_PART: usize = 24_000;

/// Characters of a part of a thread at least.
pub const MIN_PART: usize = 200;

/// Refuses arguments that nobody writes by hand.
///
/// # Errors
/// [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) for more than [`MAX_ARGUMENTS`].
pub fn check_size(arguments: &Map<String, Value>) -> Result<()> {
    let chars: usize =
        arguments.iter().map(|(name, value)| name.chars().count() + value.to_string().chars().count()).sum();
    if chars > MAX_ARGUMENTS {
        return Err(Error::usage(format!("the arguments have {chars} characters, at most {MAX_ARGUMENTS}"))
            .hint("ask with fewer words"));
    }
    Ok(())
}

/// A text of at most `chars` characters.
pub fn clip(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Cuts long strings and long lists.
pub fn clip_all(value: &mut Value) {
    match value {
        Value::String(text) => *text = clip(text, MAX_STRING),
        Value::Array(list) => {
            list.truncate(MAX_LIST);
            list.iter_mut().for_each(clip_all);
        }
        Value::Object(map) => map.values_mut().for_each(clip_all),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes results off the end until the answer fits; returns how many are left.
pub fn fit(answer: &mut Map<String, Value>, list: &str) -> usize {
    answer.values_mut().for_each(clip_all);
    let size = |value: &Value| value.to_string().chars().count() + 1;
    let Some(Value::Array(results)) = answer.get(list).cloned() else { return 0 };
    answer.insert(list.to_owned(), Value::Array(Vec::new()));
    // What is added to the answer later is small.
    let mut left = MAX_ANSWER.saturating_sub(size(&Value::Object(answer.clone())) + 200);
    let mut kept = Vec::new();
    for result in results {
        let Some(rest) = left.checked_sub(size(&result)) else { break };
        left = rest;
        kept.push(result);
    }
    let n = kept.len();
    answer.insert(list.to_owned(), Value::Array(kept));
    n
}

/// The part of a text from a character on, at most `chars` long and no longer than an answer
/// may be, with the character that follows it and the length of the text.
pub fn part(text: &str, offset: usize, chars: usize) -> (String, Option<usize>, usize) {
    let total = text.chars().count();
    // Room for title, address and the rest of the answer.
    let mut room = MAX_ANSWER - 6_000;
    let mut out = String::new();
    let mut taken = 0;
    for c in text.chars().skip(offset).take(chars) {
        let escaped = match c {
            '"' | '\\' | '\n' | '\t' | '\r' => 2,
            c if c.is_control() => 6,
            _ => 1,
        };
        let Some(rest) = room.checked_sub(escaped) else { break };
        room = rest;
        out.push(c);
        taken += 1;
    }
    let next = offset.saturating_add(taken);
    (out, (next < total && taken > 0).then_some(next), total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_parts_of_a_text_are_the_text_and_each_fits() {
        for text in ["", "short", &"é\"\n日".repeat(20_000), &"\\".repeat(70_000)] {
            for chars in [MIN_PART, PART, MAX_PART] {
                let (mut offset, mut all) = (0, String::new());
                loop {
                    let (piece, next, total) = part(text, offset, chars);
                    assert_eq!(total, text.chars().count());
                    assert!(json!(piece).to_string().chars().count() < MAX_ANSWER - 5_000);
                    all.push_str(&piece);
                    let Some(next) = next else { break };
                    assert!(next > offset);
                    offset = next;
                }
                assert!(all == text);
            }
        }
        assert_eq!(part("abc", 99, 10), (String::new(), None, 3));
        assert_eq!(part("abc", usize::MAX, 10), (String::new(), None, 3));
    }

    #[test]
    fn results_go_from_the_end_until_an_answer_fits() {
        for size in [10, 1_000, 99_999] {
            let results: Vec<Value> = (0..60).map(|n| json!({ "n": n, "text": "x".repeat(size) })).collect();
            let mut answer =
                json!({ "results": results, "more": "y".repeat(size) }).as_object().unwrap().clone();
            let kept = fit(&mut answer, "results");
            let list = answer["results"].as_array().unwrap();
            assert_eq!((list.len(), list[0]["n"].as_i64()), (kept, Some(0)));
            assert!(kept > 5 && (size > 10 || kept == 60), "{size}: {kept}");
            assert!(Value::Object(answer).to_string().chars().count() <= MAX_ANSWER);
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(clip("日本語", 3), "日本語");
        assert_eq!(clip("日本語", 2), "日…");
        assert_eq!(clip("", 0), "");
    }
}
