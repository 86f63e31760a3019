//! Checks what a service answers: count, length, values. Pure.

use super::TextResult;
use super::identity::{Target, known_dims};
use crate::error::{Error, ErrorKind};

/// What is wrong with a whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It does not answer these texts; asked for fewer, the service may.
    Refused(String),
    /// Its vectors have another length than those stored.
    Dims {
        /// Length of the answer's vectors.
        got: usize,
        /// Length of the stored ones; 0 when there are none.
        expected: usize,
    },
}

/// Checks an answer to `n` texts and brings its vectors to unit length. A vector that is no
/// direction is its own text's failure.
///
/// # Errors
/// When the answer as a whole cannot be used.
pub fn check(vectors: Vec<Vec<f32>>, n: usize, expected: Option<usize>) -> Result<Vec<TextResult>, Fault> {
    if vectors.len() != n {
        return Err(Fault::Refused(format!("the service answered {} vectors for {n} texts", vectors.len())));
    }
    let got = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != got) {
        return Err(Fault::Refused("the service answered vectors of different lengths".to_owned()));
    }
    if n > 0 && (got == 0 || expected.is_some_and(|expected| expected != got)) {
        return Err(Fault::Dims { got, expected: expected.unwrap_or(0) });
    }
    Ok(vectors.into_iter().map(normalise).collect())
}

/// Brings a vector to unit length.
fn normalise(mut vector: Vec<f32>) -> TextResult {
    let norm = vector.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err("the vector holds values that are no numbers".to_owned());
    }
    if norm < 1e-12 {
        return Err("the vector is zero".to_owned());
    }
    for value in &mut vector {
        *value = (f64::from(*value) / norm) as f32;
    }
    Ok(vector)
}

/// The error for vectors without dimensions.
pub(super) fn no_dims(target: &Target, expected: usize) -> Error {
    let expected = if expected > 0 { Some(expected) } else { known_dims(&target.model) };
    let expected = expected.map_or_else(|| "at least one".to_owned(), |expected| expected.to_string());
    Error::new(
        ErrorKind::EmbeddingFailed,
        format!("the embedding service answers with 0 dimensions, expected {expected}"),
    )
    .hint(format!("is {} a model for embeddings, and loaded whole? look at the server's log", target.model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a1_11_vectors_of_any_length_become_unit_vectors() {
        let results = check(vec![vec![3.0, 4.0], vec![0.0, 1e-3]], 2, None).unwrap();
        assert_eq!(results, [Ok(vec![0.6, 0.8]), Ok(vec![0.0, 1.0])]);
        let large = check(vec![vec![1e30, 1e30]], 1, None).unwrap();
        assert!((large[0].as_ref().unwrap()[0] - std::f32::consts::FRAC_1_SQRT_2).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_direction_fails_alone() {
        let results = check(vec![vec![1.0, 0.0], vec![0.0, 0.0], vec![f32::NAN, 1.0]], 3, Some(2)).unwrap();
        assert!(results[0].is_ok() && results[1].is_err() && results[2].is_err());
    }

    #[test]
    fn counts_and_lengths_are_checked_before_anything_is_paired() {
        assert!(matches!(check(vec![vec![1.0]], 2, None), Err(Fault::Refused(_))));
        assert!(matches!(check(vec![], 1, None), Err(Fault::Refused(_))));
        assert!(matches!(check(vec![vec![1.0], vec![1.0, 2.0]], 2, None), Err(Fault::Refused(_))));
        assert_eq!(check(vec![vec![1.0; 3]], 1, Some(4)), Err(Fault::Dims { got: 3, expected: 4 }));
        assert_eq!(check(vec![vec![], vec![]], 2, None), Err(Fault::Dims { got: 0, expected: 0 }));
    }
}
