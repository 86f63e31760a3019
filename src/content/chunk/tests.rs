use proptest::prelude::*;

use super::*;

fn source(body: &str) -> Source<'_> {
    Source { title: Some("Printer jams"), heading: Some("Printer jams"), body, body_start: 0 }
}

fn cut(body: &str, tokens: usize) -> Chunked {
    chunk(&source(body), &Limits::of_tokens(tokens), &estimate_tokens)
}

fn passage(chunk: &Chunk) -> &str {
    chunk.text.split_once('\n').map_or("", |(_, passage)| passage)
}

#[test]
fn a_short_document_is_its_title_and_one_passage_with_the_title_in_front() {
    let chunked = cut("Paper is stuck.", 180);
    let texts: Vec<_> = chunked.chunks.iter().map(|chunk| (chunk.text.as_str(), chunk.is_title)).collect();
    assert_eq!(texts, [("Printer jams", true), ("Printer jams\nPaper is stuck.", false)]);
    assert!(!chunked.is_truncated);
}

#[test]
fn blank_documents_have_no_passages() {
    let blank = Source { title: Some("  "), heading: None, body: " \n\t ", body_start: 7 };
    assert_eq!(chunk(&blank, &Limits::of_tokens(180), &estimate_tokens), Chunked::default());
}

#[test]
fn passages_end_at_paragraphs_when_one_is_near() {
    let paragraph = "one two three four five six seven eight nine ten. ".repeat(3);
    let body = format!("{paragraph}\n\n{paragraph}\n\n{paragraph}\n\n{paragraph}");
    for chunk in cut(&body, 64).chunks.iter().skip(1) {
        assert!(passage(chunk).ends_with('.'), "{:?}", chunk.text);
    }
}

#[test]
fn a1_04_the_end_of_a_long_text_is_in_a_passage() {
    let body = format!("{}\n\nkerberos ticket expired", "word ".repeat(6_000));
    let chunked = cut(&body, 180);
    assert!(!chunked.is_truncated);
    assert!(chunked.chunks.last().unwrap().text.ends_with("kerberos ticket expired"));
    assert!(chunked.chunks.iter().all(|chunk| chunk.text.chars().count() < 1_200));
}

#[test]
fn very_long_texts_are_bounded_and_marked() {
    let chunked = cut(&"!? ".repeat(100_000), 32);
    assert!(chunked.is_truncated);
    assert_eq!(chunked.chunks.len(), 128);
}

#[test]
fn positions_are_characters_of_the_whole_text() {
    let text = "Kopf\nÄpfel und Öl";
    let source = Source { title: None, heading: None, body: "Äpfel und Öl", body_start: 5 };
    let chunked = chunk(&source, &Limits::of_tokens(180), &estimate_tokens);
    let only = &chunked.chunks[0];
    let at: String = text.chars().skip(only.char_start).take(only.char_end - only.char_start).collect();
    assert_eq!((at.as_str(), only.text.as_str()), ("Äpfel und Öl", "Äpfel und Öl"));
}

#[test]
fn dense_text_is_estimated_high() {
    assert!(estimate_tokens("${{ x }}: =") >= 8);
    assert_eq!(estimate_tokens("管理"), 2);
    assert!(estimate_tokens("deadbeef0123") >= 6);
    assert_eq!(estimate_tokens(" \n "), 0);
}

fn texts() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            6 => "[a-zA-Z]{1,12}",
            1 => "[.!?,;:]{1,3}",
            2 => prop::sample::select(vec![" ", "\n", "\n\n", "\t", "\u{a0}", ". "]).prop_map(str::to_owned),
            1 => "[\u{4e00}-\u{4e80}]{1,40}",
            1 => "[0-9a-f]{20,200}",
            1 => "\\PC{0,6}",
        ],
        0..400,
    )
    .prop_map(|parts| parts.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_character_is_in_a_passage_and_every_passage_is_what_stands_there(
        body in texts(), tokens in 32_usize..200, offset in 0_usize..50,
    ) {
        let mut limits = Limits::of_tokens(tokens);
        limits.max_chunks = usize::MAX;
        let source = Source { title: None, heading: Some("H"), body: &body, body_start: offset };
        let chunked = chunk(&source, &limits, &estimate_tokens);
        prop_assert!(!chunked.is_truncated);
        let chars: Vec<char> = body.chars().collect();
        let mut covered = vec![false; chars.len()];
        let mut last = (0, 0);
        for chunk in &chunked.chunks {
            let (start, end) = (chunk.char_start - offset, chunk.char_end - offset);
            let text: String = chars[start..end].iter().collect();
            prop_assert_eq!(&chunk.text, &format!("H\n{text}"));
            prop_assert!(start < end && (start, end) > last);
            covered[start..end].fill(true);
            last = (start, end);
        }
        for (idx, c) in chars.iter().enumerate() {
            prop_assert!(covered[idx] || c.is_whitespace(), "character {idx} {c:?} is in no passage");
        }
        prop_assert_eq!(chunk(&source, &limits, &estimate_tokens), chunked);
    }

    #[test]
    fn passages_keep_their_size_and_share_a_little(body in texts(), tokens in 32_usize..200) {
        let mut limits = Limits::of_tokens(tokens);
        limits.max_chunks = usize::MAX;
        // A counter that adds up over characters, as the contract asks.
        let count = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
        let chunked = chunk(&Source { title: None, heading: None, body: &body, body_start: 0 }, &limits, &count);
        let n = chunked.chunks.len();
        for (idx, chunk) in chunked.chunks.iter().enumerate() {
            prop_assert!(count(&chunk.text) <= limits.tokens);
            prop_assert!(idx + 1 == n || count(&chunk.text) >= limits.tokens / 2);
        }
        for pair in chunked.chunks.windows(2) {
            let shared: String = body.chars().skip(pair[1].char_start).take(pair[0].char_end.saturating_sub(pair[1].char_start)).collect();
            prop_assert!(count(&shared) <= limits.overlap());
        }
    }
}
