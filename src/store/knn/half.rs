//! Half-precision floats: how vectors are kept, and the dot product that ranks them.
//!
//! A unit vector loses less than 0.05 % of each component to the format, far below what
//! separates two neighbours, and takes half the room.

/// Encodes a vector, little-endian.
pub fn encode(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|value| from_f32(*value).to_le_bytes()).collect()
}

/// Decodes a vector.
pub fn decode(bytes: &[u8]) -> Vec<f32> {
    let (pairs, _) = bytes.as_chunks::<2>();
    pairs.iter().map(|pair| to_f32(u16::from_le_bytes(*pair))).collect()
}

/// Whether an encoded vector points somewhere: all its values are numbers, and one is not zero.
pub fn is_direction(bytes: &[u8]) -> bool {
    let (pairs, _) = bytes.as_chunks::<2>();
    let values = || pairs.iter().map(|pair| u16::from_le_bytes(*pair) & 0x7FFF);
    // An exponent of ones only is infinity, or no number.
    values().all(|value| value < 0x7C00) && values().any(|value| value != 0)
}

/// Dot product of a vector with an encoded one of the same length.
pub fn dot(vector: &[f32], encoded: &[u8]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("f16c")
        && std::arch::is_x86_feature_detected!("fma")
    {
        // SAFETY: the features were detected on this processor.
        #[expect(unsafe_code, reason = "run-time choice of instructions")]
        return unsafe { dot_avx2(vector, encoded) };
    }
    dot_scalar(vector, encoded)
}

/// The dot product that every processor can do, and the twin that tests compare with.
fn dot_scalar(vector: &[f32], encoded: &[u8]) -> f32 {
    let (pairs, _) = encoded.as_chunks::<2>();
    vector.iter().zip(pairs).map(|(value, pair)| value * to_f32(u16::from_le_bytes(*pair))).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c,fma")]
fn dot_avx2(vector: &[f32], encoded: &[u8]) -> f32 {
    use std::arch::x86_64::*;
    let (left, left_rest) = vector.as_chunks::<8>();
    let (right, right_rest) = encoded.as_chunks::<16>();
    let mut sum = _mm256_setzero_ps();
    for (a, b) in left.iter().zip(right) {
        // SAFETY: both references are to as many bytes as are loaded; no alignment is asked.
        #[expect(unsafe_code, reason = "loads of vector registers take pointers")]
        let (a, b) = unsafe { (_mm256_loadu_ps(a.as_ptr()), _mm_loadu_si128(b.as_ptr().cast())) };
        sum = _mm256_fmadd_ps(a, _mm256_cvtph_ps(b), sum);
    }
    let halves = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
    let quarters = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
    let total = _mm_add_ss(quarters, _mm_shuffle_ps::<1>(quarters, quarters));
    _mm_cvtss_f32(total) + dot_scalar(left_rest, right_rest)
}

/// Rounds to the nearest half-precision float, ties to even.
fn from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude >= 0x4780_0000 {
        // Too large, infinite or no number.
        return sign | if magnitude > 0x7F80_0000 { 0x7E00 } else { 0x7C00 };
    }
    if magnitude < 0x3880_0000 {
        // Below the smallest normal half: fixed point in steps of 2^-24, rounded by the adder.
        let rounded = f32::from_bits(magnitude) + f32::from_bits(0x3F00_0000);
        return sign | (rounded.to_bits() - 0x3F00_0000) as u16;
    }
    let odd = (magnitude >> 13) & 1;
    let rounded = magnitude - 0x3800_0000 + 0x0FFF + odd;
    sign | (rounded >> 13) as u16
}

fn to_f32(half: u16) -> f32 {
    let sign = u32::from(half & 0x8000) << 16;
    let exponent = u32::from(half >> 10) & 0x1F;
    let fraction = u32::from(half & 0x3FF);
    let magnitude = match exponent {
        0 => (fraction as f32 / 16_777_216.0).to_bits(),
        0x1F => 0x7F80_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_half_comes_back_as_itself() {
        for half in 0..=u16::MAX {
            let value = to_f32(half);
            if !value.is_nan() {
                assert_eq!(from_f32(value), half, "{half:#x} is {value}");
            }
        }
    }

    #[test]
    fn what_points_nowhere_is_told_apart() {
        assert!(is_direction(&encode(&[0.0, -0.5])));
        for vector in [&[0.0, -0.0][..], &[1.0, f32::NAN], &[1.0, f32::NEG_INFINITY], &[]] {
            assert!(!is_direction(&encode(vector)), "{vector:?}");
        }
    }

    #[test]
    fn rounding_goes_to_the_nearest_and_to_even_on_ties() {
        assert_eq!(from_f32(1.0), 0x3C00);
        assert_eq!(from_f32(1.0 + 1.0 / 2048.0), 0x3C00, "tie to even");
        assert_eq!(from_f32(1.0 + 3.0 / 2048.0), 0x3C02, "tie to even");
        assert_eq!(from_f32(65520.0), 0x7C00);
        assert_eq!(from_f32(f32::NAN), 0x7E00);
        assert_eq!(from_f32(2.0_f32.powi(-25)), 0, "tie to even");
        assert_eq!(from_f32(-(2.0_f32.powi(-24))), 0x8001);
    }

    proptest! {
        #[test]
        fn kernels_agree_and_are_near_the_exact_product(
            pairs in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 0..70)
        ) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let encoded = encode(&b);
            let exact: f32 = a.iter().zip(&b).map(|(a, b)| a * b).sum();
            prop_assert!((dot(&a, &encoded) - dot_scalar(&a, &encoded)).abs() < 1e-4);
            prop_assert!((dot_scalar(&a, &encoded) - exact).abs() < 0.001 * (a.len() as f32 + 1.0));
            prop_assert_eq!(decode(&encoded).len(), b.len());
        }
    }
}
