//! Products by the dot-product instructions of x86: 512 bits wide (AVX-512 VNNI), and 256 bits
//! wide for processors that have them without AVX-512 (AVX-VNNI).

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_dpbusd_avx_epi32, _mm256_loadu_si256, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm512_dpbusd_epi32, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_si512,
    _mm512_storeu_si512,
};

use super::{BLOCK, GROUP, Weights, Work};

/// Rows of one register tile: 6 × 4 sums, 4 weights and an input fill the 32 registers.
const ROWS: usize = 6;
/// Blocks of 16 outputs of one tile.
const WIDE: usize = 4;

/// # Safety
/// The processor must have AVX-512 F, BW, VL and VNNI.
#[expect(unsafe_code, reason = "instructions beyond the target's baseline")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
pub(super) unsafe fn products512(x: &[u8], weights: Weights<'_>, out: &mut [i32]) {
    let n_rows = weights.check(x, out);
    let n_blocks = weights.outputs / BLOCK;
    let mut block = 0;
    while block < n_blocks {
        let width = if n_blocks - block >= WIDE { WIDE } else { 1 };
        let mut row = 0;
        while row < n_rows {
            let rows = (n_rows - row).min(ROWS);
            // SAFETY: `check` has compared the lengths; rows row..row+rows and blocks
            // block..block+width exist.
            unsafe {
                match (width, rows) {
                    (WIDE, 1) => tile512::<1, WIDE>(x, weights, out, row, block),
                    (WIDE, 2) => tile512::<2, WIDE>(x, weights, out, row, block),
                    (WIDE, 3) => tile512::<3, WIDE>(x, weights, out, row, block),
                    (WIDE, 4) => tile512::<4, WIDE>(x, weights, out, row, block),
                    (WIDE, 5) => tile512::<5, WIDE>(x, weights, out, row, block),
                    (WIDE, ROWS) => tile512::<ROWS, WIDE>(x, weights, out, row, block),
                    (_, 1) => tile512::<1, 1>(x, weights, out, row, block),
                    (_, 2) => tile512::<2, 1>(x, weights, out, row, block),
                    (_, 3) => tile512::<3, 1>(x, weights, out, row, block),
                    (_, 4) => tile512::<4, 1>(x, weights, out, row, block),
                    (_, 5) => tile512::<5, 1>(x, weights, out, row, block),
                    (_, _) => tile512::<ROWS, 1>(x, weights, out, row, block),
                }
            }
            row += rows;
        }
        block += width;
    }
}

/// # Safety
/// As [`products512`]; `R` rows from `row` and `B` blocks from `block` must exist.
#[expect(unsafe_code, reason = "raw loads and stores in the innermost loop")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
#[inline]
unsafe fn tile512<const R: usize, const B: usize>(
    x: &[u8],
    weights: Weights<'_>,
    out: &mut [i32],
    row: usize,
    block: usize,
) {
    let Weights { packed, inputs, outputs, .. } = weights;
    // SAFETY: inputs are read at (row + r) · inputs + g · 4, four bytes each, with row + r below
    // the number of rows and g below inputs / 4; weights at ((block + b) · inputs + g · 4) · 16,
    // 64 bytes each, with block + b below outputs / 16; sums are written at
    // (row + r) · outputs + (block + b) · 16, sixteen each. The caller vouches for row and block.
    unsafe {
        let x = x.as_ptr().add(row * inputs);
        let w = packed.as_ptr().add(block * inputs * BLOCK);
        let mut sums = [[_mm512_setzero_si512(); B]; R];
        let mut at = 0;
        while at < inputs {
            let mut columns = [_mm512_setzero_si512(); B];
            for (b, column) in columns.iter_mut().enumerate() {
                *column = _mm512_loadu_si512(w.add((b * inputs + at) * BLOCK).cast::<__m512i>());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let input = _mm512_set1_epi32(x.add(r * inputs + at).cast::<i32>().read_unaligned());
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = _mm512_dpbusd_epi32(*sum, input, column);
                }
            }
            at += GROUP;
        }
        let out = out.as_mut_ptr().add(row * outputs + block * BLOCK);
        for (r, sums) in sums.iter().enumerate() {
            for (b, sum) in sums.iter().enumerate() {
                _mm512_storeu_si512(out.add(r * outputs + b * BLOCK).cast::<__m512i>(), *sum);
            }
        }
    }
}

/// # Safety
/// The processor must have AVX2 and AVX-VNNI.
#[expect(unsafe_code, reason = "instructions beyond the target's baseline")]
#[target_feature(enable = "avx2,avxvnni")]
pub(super) unsafe fn products256(x: &[u8], weights: Weights<'_>, out: &mut [i32]) {
    let n_rows = weights.check(x, out);
    for block in 0..weights.outputs / BLOCK {
        let mut row = 0;
        while row < n_rows {
            let rows = (n_rows - row).min(4);
            // SAFETY: `check` has compared the lengths; rows row..row+rows and the block exist.
            unsafe {
                match rows {
                    1 => tile256::<1>(x, weights, out, row, block),
                    2 => tile256::<2>(x, weights, out, row, block),
                    3 => tile256::<3>(x, weights, out, row, block),
                    _ => tile256::<4>(x, weights, out, row, block),
                }
            }
            row += rows;
        }
    }
}

/// # Safety
/// As [`products256`]; `R` rows from `row` and the block must exist.
#[expect(unsafe_code, reason = "raw loads and stores in the innermost loop")]
#[target_feature(enable = "avx2,avxvnni")]
#[inline]
unsafe fn tile256<const R: usize>(x: &[u8], weights: Weights<'_>, out: &mut [i32], row: usize, block: usize) {
    let Weights { packed, inputs, outputs, .. } = weights;
    // SAFETY: as in `tile512`, with a block read and written as two halves of eight outputs.
    unsafe {
        let x = x.as_ptr().add(row * inputs);
        let w = packed.as_ptr().add(block * inputs * BLOCK);
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        let mut at = 0;
        while at < inputs {
            let low = _mm256_loadu_si256(w.add(at * BLOCK).cast::<__m256i>());
            let high = _mm256_loadu_si256(w.add(at * BLOCK + 32).cast::<__m256i>());
            for (r, sums) in sums.iter_mut().enumerate() {
                let input = _mm256_set1_epi32(x.add(r * inputs + at).cast::<i32>().read_unaligned());
                sums[0] = _mm256_dpbusd_avx_epi32(sums[0], input, low);
                sums[1] = _mm256_dpbusd_avx_epi32(sums[1], input, high);
            }
            at += GROUP;
        }
        let out = out.as_mut_ptr().add(row * outputs + block * BLOCK);
        for (r, sums) in sums.iter().enumerate() {
            _mm256_storeu_si256(out.add(r * outputs).cast::<__m256i>(), sums[0]);
            _mm256_storeu_si256(out.add(r * outputs + 8).cast::<__m256i>(), sums[1]);
        }
    }
}

/// Runs float work compiled for AVX-512.
///
/// # Safety
/// As [`products512`].
#[expect(unsafe_code, reason = "instructions beyond the target's baseline")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2")]
pub(super) unsafe fn run512(work: impl Work) {
    work.run();
}
