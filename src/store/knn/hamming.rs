//! Distances between bit codes: how many bits of two vectors' signs differ.

/// The bits of a vector: bit `n % 8` of byte `n / 8` is set where component `n` is positive.
/// Padded to whole words of 64 bits.
pub fn code(vector: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; code_bytes(vector.len())];
    for (chunk, byte) in vector.chunks(8).zip(&mut bytes) {
        for (bit, value) in chunk.iter().enumerate() {
            *byte |= u8::from(*value > 0.0) << bit;
        }
    }
    bytes
}

/// Length of the code of a vector with `dims` components.
pub fn code_bytes(dims: usize) -> usize {
    dims.div_ceil(64) * 8
}

/// Instructions that count bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// What every processor can do.
    Scalar,
    /// x86-64 with POPCNT.
    #[cfg(target_arch = "x86_64")]
    Popcnt,
    /// x86-64 with AVX-512 and VPOPCNTDQ.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// ARM with NEON.
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// The kernels that this processor can run, slowest first.
    pub fn available() -> Vec<Self> {
        let mut kernels = vec![Self::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("popcnt") {
                kernels.push(Self::Popcnt);
            }
            if std::arch::is_x86_feature_detected!("avx512f")
                && std::arch::is_x86_feature_detected!("avx512vpopcntdq")
            {
                kernels.push(Self::Avx512);
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            kernels.push(Self::Neon);
        }
        kernels
    }

    /// The fastest one.
    pub fn best() -> Self {
        static BEST: std::sync::OnceLock<Kernel> = std::sync::OnceLock::new();
        *BEST.get_or_init(|| Self::available().last().copied().unwrap_or(Self::Scalar))
    }

    /// Writes the distance of `query` to each code of `codes` into `out`.
    ///
    /// `codes` holds as many codes of `query`'s length as `out` has places; what is missing
    /// or too much is left alone.
    pub fn distances(self, query: &[u64], codes: &[u8], out: &mut [u16]) {
        if query.is_empty() {
            out.fill(0);
            return;
        }
        match self {
            Self::Scalar => scalar(query, codes, out),
            #[cfg(target_arch = "x86_64")]
            Self::Popcnt => {
                // SAFETY: only made by `available`, which detected the feature.
                #[expect(unsafe_code, reason = "run-time choice of instructions")]
                unsafe {
                    popcnt(query, codes, out);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                // SAFETY: only made by `available`, which detected the features.
                #[expect(unsafe_code, reason = "run-time choice of instructions")]
                unsafe {
                    avx512(query, codes, out);
                }
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => {
                // SAFETY: only made by `available`, which detected the feature.
                #[expect(unsafe_code, reason = "run-time choice of instructions")]
                unsafe {
                    neon(query, codes, out);
                }
            }
        }
    }
}

/// Estimates the dot product of a vector with those that codes were made of: better than the
/// distance of two codes, since it knows how much each component of the query weighs.
#[derive(Debug)]
pub struct Estimate {
    /// For each byte of a code, the sum that each of its values stands for.
    sums: Vec<[f32; 256]>,
}

impl Estimate {
    /// Prepares the sums for a query.
    pub fn new(vector: &[f32]) -> Self {
        let sums = vector
            .chunks(8)
            .map(|part| {
                let mut sums = [-part.iter().sum::<f32>(); 256];
                for value in 1..256_usize {
                    let rest = sums.get(value & (value - 1)).copied().unwrap_or_default();
                    let bit = part.get(value.trailing_zeros() as usize).copied().unwrap_or_default();
                    if let Some(sum) = sums.get_mut(value) {
                        *sum = rest + 2.0 * bit;
                    }
                }
                sums
            })
            .collect();
        Self { sums }
    }

    /// The estimate for a code, in a unit of its own.
    pub fn of(&self, code: &[u8]) -> f32 {
        self.sums
            .iter()
            .zip(code)
            .map(|(sums, byte)| sums.get(usize::from(*byte)).copied().unwrap_or_default())
            .sum()
    }
}

/// A code as words, for [`Kernel::distances`].
pub fn words(code: &[u8]) -> Vec<u64> {
    let (words, _) = code.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

#[inline(always)]
fn each_code(query: &[u64], codes: &[u8], out: &mut [u16]) {
    for (code, distance) in codes.chunks_exact(query.len() * 8).zip(out) {
        let (words, _) = code.as_chunks::<8>();
        let bits: u32 = words
            .iter()
            .zip(query)
            .map(|(word, query)| (u64::from_le_bytes(*word) ^ query).count_ones())
            .sum();
        *distance = bits as u16;
    }
}

fn scalar(query: &[u64], codes: &[u8], out: &mut [u16]) {
    each_code(query, codes, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn popcnt(query: &[u64], codes: &[u8], out: &mut [u16]) {
    // The lengths of common models, so that the inner loop is unrolled.
    match query.len() {
        6 => each_code(query.first_chunk::<6>().map_or(query, |query| query), codes, out),
        12 => each_code(query.first_chunk::<12>().map_or(query, |query| query), codes, out),
        _ => each_code(query, codes, out),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vpopcntdq")]
fn avx512(query: &[u64], codes: &[u8], out: &mut [u16]) {
    use std::arch::x86_64::*;
    let mask = |words: usize| -> u8 { if words >= 8 { 0xFF } else { (1_u8 << words) - 1 } };
    // One register holds 8 words; a code of 6 words is one masked load.
    if query.len() <= 8 {
        let lanes = mask(query.len());
        // SAFETY: the mask keeps the load inside `query`; no alignment is asked.
        #[expect(unsafe_code, reason = "loads of vector registers take pointers")]
        let wanted = unsafe { _mm512_maskz_loadu_epi64(lanes, query.as_ptr().cast()) };
        for (code, distance) in codes.chunks_exact(query.len() * 8).zip(out) {
            // SAFETY: the mask keeps the load inside `code`, which holds `query.len()` words.
            #[expect(unsafe_code, reason = "loads of vector registers take pointers")]
            let code = unsafe { _mm512_maskz_loadu_epi64(lanes, code.as_ptr().cast()) };
            let bits = _mm512_popcnt_epi64(_mm512_xor_si512(code, wanted));
            *distance = _mm512_reduce_add_epi64(bits) as u16;
        }
        return;
    }
    for (code, distance) in codes.chunks_exact(query.len() * 8).zip(out) {
        let mut bits = _mm512_setzero_si512();
        for (query, code) in query.chunks(8).zip(code.chunks(64)) {
            let lanes = mask(query.len());
            // SAFETY: the mask keeps both loads inside their slices of `query.len()` words.
            #[expect(unsafe_code, reason = "loads of vector registers take pointers")]
            let (wanted, code) = unsafe {
                (
                    _mm512_maskz_loadu_epi64(lanes, query.as_ptr().cast()),
                    _mm512_maskz_loadu_epi64(lanes, code.as_ptr().cast()),
                )
            };
            bits = _mm512_add_epi64(bits, _mm512_popcnt_epi64(_mm512_xor_si512(code, wanted)));
        }
        *distance = _mm512_reduce_add_epi64(bits) as u16;
    }
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn neon(query: &[u64], codes: &[u8], out: &mut [u16]) {
    use std::arch::aarch64::*;
    for (code, distance) in codes.chunks_exact(query.len() * 8).zip(out) {
        let (words, _) = code.as_chunks::<8>();
        let mut bits = 0_u32;
        for (word, query) in words.iter().zip(query) {
            let differing = vcreate_u8(u64::from_le_bytes(*word) ^ query);
            bits += u32::from(vaddv_u8(vcnt_u8(differing)));
        }
        *distance = bits as u16;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_code_holds_the_signs() {
        let code = code(&[1.0, -1.0, 0.5, 0.0, -0.5, 2.0, 1.0, 1.0, 3.0]);
        assert_eq!(code, [0b1110_0101, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(code_bytes(384), 48);
    }

    proptest! {
        #[test]
        fn an_estimate_is_the_product_with_the_signs(pairs in prop::collection::vec((-1.0_f32..1.0, -1.0_f32..1.0), 1..80)) {
            let (query, vector): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let exact: f32 = query.iter().zip(&vector).map(|(q, v)| if *v > 0.0 { *q } else { -q }).sum();
            prop_assert!((Estimate::new(&query).of(&code(&vector)) - exact).abs() < 1e-3);
        }

        #[test]
        fn every_kernel_counts_the_same(
            width in 1_usize..20, seed in prop::collection::vec(any::<u64>(), 1..200)
        ) {
            let query: Vec<u64> = (0..width).map(|idx| seed[idx % seed.len()].rotate_left(idx as u32)).collect();
            let codes: Vec<u8> = seed.iter().flat_map(|word| word.to_le_bytes()).collect();
            let n = codes.len() / (width * 8);
            let mut expected = vec![0; n];
            for (code, distance) in codes.chunks_exact(width * 8).zip(&mut expected) {
                let query: Vec<u8> = query.iter().flat_map(|word| word.to_le_bytes()).collect();
                *distance = code.iter().zip(&query).map(|(a, b)| (a ^ b).count_ones() as u16).sum();
            }
            for kernel in Kernel::available() {
                let mut out = vec![0; n];
                kernel.distances(&query, &codes, &mut out);
                prop_assert_eq!(&out, &expected, "{:?}", kernel);
            }
        }
    }
}
