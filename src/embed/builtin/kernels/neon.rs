//! Products with NEON, which every 64-bit ARM processor has.
//!
//! NEON multiplies signed bytes with signed bytes only, so the inputs are taken as x − 128 and
//! 128 · Σw is added at the end.

use std::arch::aarch64::{
    int8x16_t, int32x4_t, vaddq_s32, vdupq_n_s32, vget_low_s8, vld1q_s8, vld1q_s32, vmull_high_s8, vmull_s8,
    vpadalq_s16, vpaddq_s32, vreinterpretq_s8_s32, vshlq_n_s32, vst1q_s32,
};

use super::{BLOCK, GROUP, Weights};

/// Rows of one register tile.
const ROWS: usize = 4;
/// Outputs of one register: a quarter of a block.
const QUARTER: usize = 4;
/// Flips the sign bit of four bytes: from 0..=255 to −128..=127.
const FLIP: i32 = 0x8080_8080_u32.cast_signed();

#[expect(unsafe_code, reason = "the tiles read and write by pointer")]
pub(super) fn products(x: &[u8], weights: Weights<'_>, out: &mut [i32]) {
    let n_rows = weights.check(x, out);
    for quarter in (0..weights.outputs / QUARTER).step_by(2) {
        let mut row = 0;
        while row < n_rows {
            let rows = (n_rows - row).min(ROWS);
            // SAFETY: NEON is part of the baseline of aarch64; `check` has compared the lengths;
            // rows row..row+rows exist, and so do two quarters from an even one.
            unsafe {
                match rows {
                    1 => tile::<1>(x, weights, out, row, quarter),
                    2 => tile::<2>(x, weights, out, row, quarter),
                    3 => tile::<3>(x, weights, out, row, quarter),
                    _ => tile::<ROWS>(x, weights, out, row, quarter),
                }
            }
            row += rows;
        }
    }
}

/// # Safety
/// Rows row..row+R and the two quarters of a block from `quarter` (even) must exist.
#[expect(unsafe_code, reason = "raw loads and stores in the innermost loop")]
#[inline]
unsafe fn tile<const R: usize>(x: &[u8], weights: Weights<'_>, out: &mut [i32], row: usize, quarter: usize) {
    let Weights { packed, sums: totals, inputs, outputs } = weights;
    // SAFETY: inputs are read at (row + r) · inputs + g · 4, four bytes each, with g below
    // inputs / 4; weights at (quarter / 4) · inputs · 16 + g · 64 + (quarter % 4) · 16, 32 bytes
    // each, which end inside the group of 64 because quarter is even; sums are written and the
    // totals read at quarter · 4, eight each. The caller vouches for row and quarter.
    unsafe {
        let x = x.as_ptr().add(row * inputs);
        let w = packed.as_ptr().add(quarter / 4 * inputs * BLOCK + quarter % 4 * QUARTER * GROUP);
        // Of each output two partial sums lie side by side until the end.
        let mut sums = [[vdupq_n_s32(0); 4]; R];
        let mut at = 0;
        while at < inputs {
            let column = w.add(at * BLOCK).cast::<i8>();
            let (first, second) = (vld1q_s8(column), vld1q_s8(column.add(16)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let bytes = x.add(r * inputs + at).cast::<i32>().read_unaligned();
                let input = vreinterpretq_s8_s32(vdupq_n_s32(bytes ^ FLIP));
                [sums[0], sums[1]] = accumulate(sums[0], sums[1], input, first);
                [sums[2], sums[3]] = accumulate(sums[2], sums[3], input, second);
            }
            at += GROUP;
        }
        let out = out.as_mut_ptr().add(row * outputs + quarter * QUARTER);
        let totals = totals.as_ptr().add(quarter * QUARTER);
        let shift = [vshlq_n_s32::<7>(vld1q_s32(totals)), vshlq_n_s32::<7>(vld1q_s32(totals.add(QUARTER)))];
        for (r, sums) in sums.iter().enumerate() {
            let out = out.add(r * outputs);
            vst1q_s32(out, vaddq_s32(vpaddq_s32(sums[0], sums[1]), shift[0]));
            vst1q_s32(out.add(QUARTER), vaddq_s32(vpaddq_s32(sums[2], sums[3]), shift[1]));
        }
    }
}

/// Adds the products of sixteen pairs of bytes: outputs 0 and 1 to `low`, 2 and 3 to `high`. One
/// product is at most 128 · 127, so it fits 16 bits, and the pairs are added as 32 bits.
#[expect(unsafe_code, reason = "intrinsics that some supported compilers declare unsafe")]
#[inline]
unsafe fn accumulate(low: int32x4_t, high: int32x4_t, input: int8x16_t, column: int8x16_t) -> [int32x4_t; 2] {
    // SAFETY: NEON is part of the baseline of aarch64.
    unsafe {
        [
            vpadalq_s16(low, vmull_s8(vget_low_s8(input), vget_low_s8(column))),
            vpadalq_s16(high, vmull_high_s8(input, column)),
        ]
    }
}
