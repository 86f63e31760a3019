//! Every kernel against the scalar one, on random matrices of odd sizes and on extreme values.

use super::{BLOCK, GROUP, Kernel, Weights};

/// A small generator: the tests need variety, not quality.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}

/// Sum of the weights of each output, by the definition of the layout.
fn sums_of(packed: &[u8], inputs: usize, outputs: usize) -> Vec<i32> {
    (0..outputs)
        .map(|output| {
            (0..inputs)
                .map(|input| {
                    let (block, lane) = (output / BLOCK, output % BLOCK);
                    let group = block * inputs * BLOCK + input / GROUP * BLOCK * GROUP;
                    i32::from(packed[group + lane * GROUP + input % GROUP].cast_signed())
                })
                .sum()
        })
        .collect()
}

fn products(kernel: Kernel, x: &[u8], packed: &[u8], inputs: usize, outputs: usize) -> Vec<i32> {
    let sums = sums_of(packed, inputs, outputs);
    let mut out = vec![-1; x.len() / inputs * outputs];
    kernel.products(x, Weights { packed, sums: &sums, inputs, outputs }, &mut out);
    out
}

#[test]
fn every_kernel_equals_the_scalar_one_on_odd_sizes() {
    let scalar = Kernel::available()[0];
    for rows in [0, 1, 2, 3, 4, 5, 6, 7, 11, 13, 19] {
        for (inputs, outputs) in [(4, 16), (8, 48), (20, 64), (36, 80), (52, 144), (100, 208)] {
            let x = bytes(rows as u64 + 1, rows * inputs);
            let packed = bytes(inputs as u64 + 7, inputs * outputs);
            let want = products(scalar, &x, &packed, inputs, outputs);
            for kernel in Kernel::available() {
                let got = products(kernel, &x, &packed, inputs, outputs);
                assert_eq!(got, want, "{} rows={rows} inputs={inputs} outputs={outputs}", kernel.name());
            }
        }
    }
}

#[test]
fn no_kernel_saturates_on_extreme_values() {
    let (inputs, outputs) = (1536, 16);
    for (input, weight) in [(255, 127_u8), (255, 128), (255, 129), (0, 128), (128, 128)] {
        let x = vec![input; 2 * inputs];
        let packed = vec![weight; inputs * outputs];
        let want = 1536 * i32::from(input) * i32::from(weight.cast_signed());
        for kernel in Kernel::available() {
            let got = products(kernel, &x, &packed, inputs, outputs);
            assert_eq!(got, vec![want; 2 * outputs], "{}", kernel.name());
        }
    }
}

#[test]
fn the_scalar_kernel_is_the_sum_over_the_layout() {
    let (inputs, outputs) = (8, 32);
    let packed = bytes(3, inputs * outputs);
    let ones = vec![1; inputs];
    assert_eq!(
        products(Kernel::available()[0], &ones, &packed, inputs, outputs),
        sums_of(&packed, inputs, outputs)
    );
}

#[test]
#[should_panic(expected = "assertion")]
fn lengths_that_do_not_fit_are_refused() {
    let sums = [0; 16];
    let weights = Weights { packed: &[0; 64], sums: &sums, inputs: 4, outputs: 16 };
    Kernel::best().products(&[0; 8], weights, &mut [0; 16]);
}
