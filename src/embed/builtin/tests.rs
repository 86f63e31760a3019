//! The whole embedder against fixtures that models/reference.py made with other software.

use std::path::Path;

use serde::Deserialize;
use sha2::Digest;

use super::{Builtin, Kernel, groups};

#[derive(Deserialize)]
struct Row {
    text: String,
    ids: Vec<u16>,
}

fn rows() -> Vec<Row> {
    include_str!("../../../tests/fixtures/embed/tokens.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Vectors of the first 200 rows, from a float forward pass.
fn reference() -> Vec<Vec<f32>> {
    let bytes = include_bytes!("../../../tests/fixtures/embed/vectors.f16");
    let floats: Vec<f32> =
        bytes.chunks_exact(2).map(|half| half_to_float(u16::from_le_bytes([half[0], half[1]]))).collect();
    floats.chunks_exact(Builtin::DIMS).map(<[f32]>::to_vec).collect()
}

/// A half float; the fixture has neither infinities nor NaN.
fn half_to_float(half: u16) -> f32 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(half >> 10 & 0x1F), f32::from(half & 0x3FF));
    if exponent == 0 {
        sign * fraction * 2.0_f32.powi(-24)
    } else {
        sign * (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15)
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn builtin() -> &'static Builtin {
    Builtin::load().unwrap()
}

#[test]
fn token_ids_equal_those_of_the_reference_tokenizer() {
    let rows = rows();
    assert!(rows.len() >= 300);
    let mut wrong = Vec::new();
    for Row { text, ids } in rows {
        let mut got = vec![super::START];
        got.extend(builtin().tokens(&text).iter().map(|token| token.id));
        got.push(super::END);
        assert_eq!(builtin().count_tokens(&text), got.len() - 2);
        if got != ids {
            wrong.push(format!("{text:?}\n got {got:?}\nwant {ids:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} texts differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// All texts on the fastest kernel; unoptimised, the others take only what ends in seconds.
#[test]
fn vectors_of_every_kernel_are_close_to_the_float_reference() {
    let (rows, reference) = (rows(), reference());
    assert_eq!(reference.len(), 200);
    for kernel in Kernel::available() {
        let builtin = Builtin::with_kernel(kernel).unwrap();
        let limit = match (cfg!(debug_assertions), kernel == Kernel::best()) {
            (false, _) => usize::MAX,
            (true, true) => 40,
            (true, false) => 10,
        };
        let picked: Vec<usize> = (0..200).filter(|at| rows[*at].ids.len() <= limit).collect();
        let picked = if limit == 10 { &picked[..picked.len().min(8)] } else { &picked[..] };
        let texts: Vec<&str> = picked.iter().map(|at| rows[*at].text.as_str()).collect();
        let vectors = builtin.embed(&texts, 2);
        let mut cosines = Vec::new();
        for (at, vector) in picked.iter().zip(&vectors) {
            assert_eq!(vector.len(), Builtin::DIMS);
            assert!((cosine(vector, vector).sqrt() - 1.0).abs() < 1e-5);
            cosines.push(cosine(vector, &reference[*at]));
        }
        let lowest = cosines.iter().copied().fold(1.0, f32::min);
        let mean = cosines.iter().sum::<f32>() / cosines.len() as f32;
        let name = kernel.name();
        println!("{name}: {} texts, cosine {lowest:.5} at least, {mean:.5} on average", cosines.len());
        assert!(lowest >= 0.99, "{name}: {lowest}");
    }
}

#[test]
fn every_kernel_gives_the_same_bits() {
    let texts =
        ["session token expires early", "日本語 mixed with English", "", "fn main() { println!(\"é\"); }"];
    let want = builtin().embed(&texts, 1);
    for kernel in Kernel::available() {
        assert_eq!(Builtin::with_kernel(kernel).unwrap().embed(&texts, 1), want, "{}", kernel.name());
    }
}

#[test]
fn a_vector_does_not_depend_on_the_batch_or_the_threads() {
    let texts: Vec<String> =
        (0..12).map(|n| format!("text number {n} {}", "and so on ".repeat(n * n / 3))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = builtin().embed(&texts, 3);
    assert_eq!(together.len(), texts.len());
    assert_eq!(together, builtin().embed(&texts, 1));
    for (text, vector) in texts.iter().zip(&together) {
        assert_eq!(builtin().embed_query(text), *vector);
    }
}

#[test]
fn no_texts_have_no_vectors_and_an_empty_text_has_one() {
    assert!(builtin().embed(&[], 2).is_empty());
    let vectors = builtin().embed(&["", "  \n"], 0);
    assert_eq!(vectors[0], vectors[1]);
    assert!((cosine(&vectors[0], &vectors[0]) - 1.0).abs() < 1e-5);
}

#[test]
fn what_follows_the_last_token_that_counts_changes_nothing() {
    let long = "word ".repeat(Builtin::MAX_TEXT_TOKENS);
    assert_eq!(builtin().ids(&long).len(), Builtin::MAX_TOKENS);
    assert_eq!(builtin().ids(&format!("{long} and more")), builtin().ids(&long));
    assert_eq!(builtin().count_tokens(&format!("{long} and more")), Builtin::MAX_TEXT_TOKENS + 2);
}

#[test]
fn names_of_special_tokens_are_plain_text() {
    assert!(!builtin().ids("a [SEP] b [CLS]")[1..].iter().rev().skip(1).any(|id| *id == super::END));
    assert_eq!(builtin().count_tokens("[SEP]"), 3);
}

#[test]
fn spans_stand_at_character_boundaries_and_in_order() {
    for Row { text, .. } in rows() {
        let mut last = 0;
        for span in builtin().token_spans(&text) {
            assert!(text.get(span.clone()).is_some_and(|part| !part.is_empty()), "{text:?} {span:?}");
            assert!(span.start >= last, "{text:?} {span:?}");
            last = span.start;
        }
    }
    let text = "Ünaffordable 日本!";
    let words: Vec<&str> =
        builtin().token_spans(text).into_iter().filter_map(|span| text.get(span)).collect();
    assert_eq!(words.concat(), "Ünaffordable日本!");
}

#[test]
fn parts_fit_cover_all_tokens_and_overlap() {
    for Row { text, .. } in rows() {
        let spans = builtin().token_spans(&text);
        for (max_tokens, overlap) in [(1, 0), (7, 2), (50, 8), (5, 9)] {
            let parts = builtin().split(&text, max_tokens, overlap);
            let mut covered = 0;
            for part in &parts {
                let inside: Vec<usize> = (0..spans.len())
                    .filter(|at| spans[*at].start >= part.start && spans[*at].end <= part.end)
                    .collect();
                assert!(inside.first().is_some_and(|first| *first <= covered), "{text:?} {part:?}");
                covered = covered.max(inside[inside.len() - 1] + 1);
                // Characters that decompose into several tokens cannot be cut.
                assert!(!text.is_ascii() || inside.len() <= max_tokens, "{text:?} {part:?}");
            }
            assert_eq!(covered, spans.len(), "{text:?}");
        }
    }
    let text = "one two three four five six";
    let parts: Vec<&str> =
        builtin().split(text, 3, 1).into_iter().filter_map(|part| text.get(part)).collect();
    assert_eq!(parts, ["one two three", "three four five", "five six"]);
}

#[test]
fn groups_hold_whole_texts_and_enough_tokens() {
    let ids: Vec<Vec<u16>> = [100, 92, 300, 10, 20].map(|len| vec![1; len]).to_vec();
    assert_eq!(groups(&ids), [0..2, 2..3, 3..5]);
    assert!(groups(&[]).is_empty());
}

/// The model's name is part of what vectors are known by: new weights need a new one.
#[test]
fn the_packed_model_is_the_one_that_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("models");
    let checksum: String =
        sha2::Sha256::digest(&super::MODEL.0).iter().map(|byte| format!("{byte:02x}")).collect();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains(&checksum), "models/README.md does not name {checksum}");
    assert!(readme.contains(Builtin::MODEL));
}
