//! Products with AVX2: bytes widened to 16 bits, so that no pair of products can saturate.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi32, _mm256_cvtepi8_epi16, _mm256_hadd_epi32,
    _mm256_madd_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256,
};

use super::{BLOCK, GROUP, Weights, Work};

/// Rows of one register tile.
const ROWS: usize = 4;
/// Outputs of one register tile: half a block.
const HALF: usize = BLOCK / 2;

/// # Safety
/// The processor must have AVX2.
#[expect(unsafe_code, reason = "instructions beyond the target's baseline")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn products(x: &[u8], weights: Weights<'_>, out: &mut [i32]) {
    let n_rows = weights.check(x, out);
    let mut widened = vec![0_i16; ROWS * weights.inputs];
    let mut row = 0;
    while row < n_rows {
        let rows = (n_rows - row).min(ROWS);
        let bytes = &x[row * weights.inputs..(row + rows) * weights.inputs];
        for (wide, byte) in widened.iter_mut().zip(bytes) {
            *wide = i16::from(*byte);
        }
        for half in 0..weights.outputs / HALF {
            // SAFETY: `check` has compared the lengths; `widened` holds `rows` rows; rows
            // row..row+rows and the half block exist.
            unsafe {
                match rows {
                    1 => tile::<1>(&widened, weights, out, row, half),
                    2 => tile::<2>(&widened, weights, out, row, half),
                    3 => tile::<3>(&widened, weights, out, row, half),
                    _ => tile::<ROWS>(&widened, weights, out, row, half),
                }
            }
        }
        row += rows;
    }
}

/// # Safety
/// As [`products`]; `x` must hold `R` widened rows, and rows row..row+R and half block `half`
/// must exist in `out` and in the weights.
#[expect(unsafe_code, reason = "raw loads and stores in the innermost loop")]
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn tile<const R: usize>(x: &[i16], weights: Weights<'_>, out: &mut [i32], row: usize, half: usize) {
    let Weights { packed, inputs, outputs, .. } = weights;
    // SAFETY: inputs are read at r · inputs + g · 4, four of 16 bits each, with r < R and g below
    // inputs / 4; weights at (half / 2) · inputs · 16 + g · 64 + (half % 2) · 32, 32 bytes each;
    // sums are written at (row + r) · outputs + half · 8, eight each. The caller vouches for
    // row and half.
    unsafe {
        let x = x.as_ptr();
        let w = packed.as_ptr().add(half / 2 * inputs * BLOCK + half % 2 * HALF * GROUP);
        // Of each output two partial sums lie side by side until the end.
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        let mut at = 0;
        while at < inputs {
            let column = w.add(at * BLOCK);
            let low = _mm256_cvtepi8_epi16(_mm_loadu_si128(column.cast::<__m128i>()));
            let high = _mm256_cvtepi8_epi16(_mm_loadu_si128(column.add(16).cast::<__m128i>()));
            for (r, sums) in sums.iter_mut().enumerate() {
                let input = _mm256_set1_epi64x(x.add(r * inputs + at).cast::<i64>().read_unaligned());
                sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(input, low));
                sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(input, high));
            }
            at += GROUP;
        }
        let out = out.as_mut_ptr().add(row * outputs + half * HALF);
        for (r, sums) in sums.iter().enumerate() {
            // The addition of neighbours leaves outputs 0 1 4 5 2 3 6 7: swap the middle pairs.
            let whole = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_hadd_epi32(sums[0], sums[1]));
            _mm256_storeu_si256(out.add(r * outputs).cast::<__m256i>(), whole);
        }
    }
}

/// Runs float work compiled for AVX2.
///
/// # Safety
/// As [`products`].
#[expect(unsafe_code, reason = "instructions beyond the target's baseline")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn run(work: impl Work) {
    work.run();
}
