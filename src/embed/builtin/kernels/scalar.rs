//! The product written plainly: what every other kernel must equal, and what runs where no other can.

use super::{BLOCK, GROUP, Weights};

pub(super) fn products(x: &[u8], weights: Weights<'_>, out: &mut [i32]) {
    for (row, out) in x.chunks_exact(weights.inputs).zip(out.chunks_exact_mut(weights.outputs)) {
        let blocks = weights.packed.chunks_exact(weights.inputs * BLOCK);
        for (block, out) in blocks.zip(out.chunks_exact_mut(BLOCK)) {
            let mut sums = [0_i32; BLOCK];
            for (inputs, group) in row.chunks_exact(GROUP).zip(block.chunks_exact(BLOCK * GROUP)) {
                for (sum, weights) in sums.iter_mut().zip(group.chunks_exact(GROUP)) {
                    for (input, weight) in inputs.iter().zip(weights) {
                        *sum += i32::from(*input) * i32::from(weight.cast_signed());
                    }
                }
            }
            out.copy_from_slice(&sums);
        }
    }
}
