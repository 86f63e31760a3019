//! Feedback: what a long question finds first tells what it means.
//!
//! The vector of a long question is moved towards those of the best fused results, and the
//! documents found by meaning are ordered anew by it (Rocchio, "Relevance feedback in
//! information retrieval", 1971, with the first results taken for relevant). A short question
//! says exactly what it wants and is left alone: there it does harm (docs/quality.md).

use super::meaning::Found;
use super::rank::Meant;
use super::words;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::knn;

/// Results that are taken for relevant.
pub(super) const LEADERS: usize = 5;

/// Vectors of a result that stand for it: its title's and those of its first passages.
const VECTORS: i64 = 4;

/// Different words up to which a question is short.
const SHORT: f64 = 7.0;

/// So many more words, and the feedback counts in full.
const LONGER: f64 = 8.0;

/// How much the feedback counts for a text, 0 to `most`.
pub(super) fn strength(text: &str, most: f64) -> f64 {
    let mut all: Vec<String> = words::words(text).map(str::to_lowercase).collect();
    all.sort_unstable();
    all.dedup();
    most * ((all.len() as f64 - SHORT) / LONGER).clamp(0.0, 1.0)
}

/// Scores the documents found by meaning anew. `leaders` are documents and their fused scores.
///
/// # Errors
/// SQLite's.
pub(super) fn apply(
    tx: &ReadTx<'_>,
    found: &Found,
    leaders: &[(i64, f64)],
    strength: f64,
    hits: &mut [Meant],
) -> Result<()> {
    let [query] = found.vectors.as_slice() else { return Ok(()) };
    let mut sum = vec![0.0_f32; query.len()];
    for (document_id, score) in leaders {
        let mut mean = vec![0.0_f32; query.len()];
        for vector in knn::vectors_of(tx, &found.identity, *document_id, VECTORS)? {
            add(&mut mean, &vector, 1.0);
        }
        let norm = norm(&mean);
        if norm > 0.0 {
            add(&mut sum, &mean, *score as f32 / norm);
        }
    }
    let length = norm(&sum);
    if length <= 0.0 {
        return Ok(());
    }
    let mut moved = query.clone();
    add(&mut moved, &sum, strength as f32 / length);
    let length = norm(&moved);
    if length <= 0.0 {
        return Ok(());
    }
    moved.iter_mut().for_each(|value| *value /= length);
    let chunks: Vec<i64> = hits.iter().map(|hit| hit.chunk_id).collect();
    for (hit, similarity) in hits.iter_mut().zip(knn::similarities(tx, &moved, &chunks)?) {
        hit.score = similarity.unwrap_or(hit.cosine);
    }
    Ok(())
}

fn add(sum: &mut [f32], vector: &[f32], weight: f32) {
    sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * value);
}

fn norm(vector: &[f32]) -> f32 {
    vector.iter().map(|value| value * value).sum::<f32>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_questions_are_left_alone_and_long_ones_are_not() {
        assert_eq!(strength("upload fails with error 413", 0.6), 0.0);
        assert_eq!(strength("the the the the the the the the the", 0.6), 0.0);
        let long =
            "what is known about the influence of heat on the boundary layer of slender bodies at high speed";
        assert_eq!(strength(long, 0.6), 0.6);
        let middle = strength("why does the server refuse the token after the last update", 0.6);
        assert!(middle > 0.0 && middle < 0.6, "{middle}");
    }
}
