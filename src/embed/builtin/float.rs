//! The float part of the forward pass, as loops that compile to vector instructions.
//!
//! Sums run in a fixed number of lanes and nothing is fused, so that every kernel gives the
//! same bits.

use super::kernels::Work;

/// Lanes of every sum, whatever the width of the machine's registers.
const LANES: usize = 16;
/// Adding and taking off 1.5 · 2²³ rounds to an integer, which then stands in the low bits.
const ROUND: f32 = 12_582_912.0;
/// What BERT adds to a variance before dividing by its root.
const EPSILON: f32 = 1e-12;
/// Floats of one head.
pub(super) const HEAD: usize = 32;
/// Queries that one tile of the attention takes together.
const QUERIES: usize = 6;

/// Scale and smallest value of each row of bytes: a value is `byte · scale + low`.
#[derive(Debug, Default)]
pub(super) struct Quantised {
    pub bytes: Vec<u8>,
    pub scales: Vec<f32>,
    pub lows: Vec<f32>,
}

/// Rows of `x` to bytes, each column multiplied by its factor first.
pub(super) struct Quantise<'a> {
    pub x: &'a [f32],
    pub factors: &'a [f32],
    pub out: &'a mut Quantised,
}

impl Work for Quantise<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { x, factors, out } = self;
        let width = factors.len();
        out.bytes.resize(x.len(), 0);
        out.scales.clear();
        out.lows.clear();
        for (row, bytes) in x.chunks_exact(width).zip(out.bytes.chunks_exact_mut(width)) {
            let mut low = [f32::MAX; LANES];
            let mut high = [f32::MIN; LANES];
            for (values, factors) in row.chunks_exact(LANES).zip(factors.chunks_exact(LANES)) {
                for lane in 0..LANES {
                    let value = values[lane] * factors[lane];
                    low[lane] = if value < low[lane] { value } else { low[lane] };
                    high[lane] = if value > high[lane] { value } else { high[lane] };
                }
            }
            let low = low.into_iter().fold(f32::MAX, f32::min);
            let high = high.into_iter().fold(f32::MIN, f32::max);
            let scale = if high > low { (high - low) / 255.0 } else { 1.0 };
            let inverse = 1.0 / scale;
            for ((byte, value), factor) in bytes.iter_mut().zip(row).zip(factors) {
                *byte = (((value * factor - low) * inverse) + ROUND).to_bits() as u8;
            }
            out.scales.push(scale);
            out.lows.push(low);
        }
    }
}

/// What turns the sums of a product back into floats.
#[derive(Clone, Copy)]
pub(super) struct Outputs<'a> {
    /// Scale of each output's weights.
    pub scales: &'a [f32],
    /// Sum of each output's weights.
    pub totals: &'a [f32],
    pub bias: &'a [f32],
}

/// Value of output `at`, given the sum of its products and the row's scale and smallest value.
#[inline(always)]
fn value_of(sum: i32, at: usize, scale: f32, low: f32, outputs: &Outputs<'_>) -> f32 {
    outputs.scales[at] * (scale * sum as f32 + low * outputs.totals[at]) + outputs.bias[at]
}

/// What happens to the values of a product.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Linear,
    Gelu,
}

/// Sums to values.
pub(super) struct Dequantise<'a> {
    pub sums: &'a [i32],
    pub inputs: &'a Quantised,
    pub outputs: Outputs<'a>,
    pub activation: Activation,
    pub out: &'a mut [f32],
}

impl Work for Dequantise<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { sums, inputs, outputs, activation, out } = self;
        let width = outputs.bias.len();
        let outputs = exact(outputs, width);
        for (row, (sums, out)) in sums.chunks_exact(width).zip(out.chunks_exact_mut(width)).enumerate() {
            let (scale, low) = (inputs.scales[row], inputs.lows[row]);
            match activation {
                Activation::Linear => {
                    for at in 0..width {
                        out[at] = value_of(sums[at], at, scale, low, &outputs);
                    }
                }
                Activation::Gelu => {
                    for at in 0..width {
                        out[at] = gelu(value_of(sums[at], at, scale, low, &outputs));
                    }
                }
            }
        }
    }
}

/// Sums to values, added to what `x` holds, and the rows of that normalised.
pub(super) struct AddNorm<'a> {
    pub sums: &'a [i32],
    pub inputs: &'a Quantised,
    pub outputs: Outputs<'a>,
    pub norm: &'a [f32],
    pub x: &'a mut [f32],
}

impl Work for AddNorm<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { sums, inputs, outputs, norm, x } = self;
        let width = outputs.bias.len();
        let outputs = exact(outputs, width);
        for (row, (sums, x)) in sums.chunks_exact(width).zip(x.chunks_exact_mut(width)).enumerate() {
            let (scale, low) = (inputs.scales[row], inputs.lows[row]);
            for at in 0..width {
                x[at] += value_of(sums[at], at, scale, low, &outputs);
            }
            normalise(x, norm);
        }
    }
}

/// Rows normalised to mean 0 and variance 1, then scaled and shifted.
pub(super) struct Norm<'a> {
    pub norm: &'a [f32],
    pub x: &'a mut [f32],
}

impl Work for Norm<'_> {
    #[inline(always)]
    fn run(self) {
        for row in self.x.chunks_exact_mut(self.norm.len() / 2) {
            normalise(row, self.norm);
        }
    }
}

/// Attention among the tokens of one text.
pub(super) struct Attention<'a> {
    /// Rows of queries (already divided by √d), keys and values.
    pub qkv: &'a [f32],
    /// Rows of what the heads found, side by side.
    pub out: &'a mut [f32],
    pub n_heads: usize,
    /// Room for one head: keys by column, and the scores of one tile.
    pub keys: &'a mut Vec<f32>,
    pub scores: &'a mut Vec<f32>,
}

impl Work for Attention<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { qkv, out, n_heads, keys, scores } = self;
        let hidden = n_heads * HEAD;
        let stride = 3 * hidden;
        let n_tokens = qkv.len() / stride;
        let padded = n_tokens.next_multiple_of(LANES);
        keys.resize(HEAD * padded, 0.0);
        scores.resize(QUERIES * padded, 0.0);
        for head in 0..n_heads {
            keys.fill(0.0);
            for (token, row) in qkv.chunks_exact(stride).enumerate() {
                for (at, value) in row[hidden + head * HEAD..][..HEAD].iter().enumerate() {
                    keys[at * padded + token] = *value;
                }
            }
            for first in (0..n_tokens).step_by(QUERIES) {
                // A tile at the end repeats the last query; the copies are not stored.
                let token_of = |query: usize| (first + query).min(n_tokens - 1);
                let queries: [&[f32]; QUERIES] =
                    std::array::from_fn(|query| &qkv[token_of(query) * stride + head * HEAD..][..HEAD]);
                for column in (0..padded).step_by(LANES) {
                    let tile = tile(queries, &keys[column..], padded, HEAD);
                    for (query, values) in tile.iter().enumerate() {
                        scores[query * padded + column..][..LANES].copy_from_slice(values);
                    }
                }
                let mut inverses = [0.0; QUERIES];
                for (row, inverse) in scores.chunks_exact_mut(padded).zip(&mut inverses) {
                    *inverse = 1.0 / exponentials(row, n_tokens);
                }
                let rows: [&[f32]; QUERIES] =
                    std::array::from_fn(|query| &scores[query * padded..][..n_tokens]);
                for part in (0..HEAD).step_by(LANES) {
                    let values = &qkv[2 * hidden + head * HEAD + part..];
                    let tile = tile(rows, values, stride, n_tokens);
                    for (query, values) in tile.iter().enumerate().take(n_tokens - first) {
                        let out = &mut out[(first + query) * hidden + head * HEAD + part..][..LANES];
                        for (out, value) in out.iter_mut().zip(values) {
                            *out = value * inverses[query];
                        }
                    }
                }
            }
        }
    }
}

/// Mean of the rows, with unit length.
pub(super) fn pool(x: &[f32], width: usize) -> Vec<f32> {
    let mut mean = vec![0.0; width];
    for row in x.chunks_exact(width) {
        for (mean, value) in mean.iter_mut().zip(row) {
            *mean += value;
        }
    }
    let length = sum_by(&mean, |value| value * value).sqrt();
    let inverse = if length > 0.0 { 1.0 / length } else { 0.0 };
    for value in &mut mean {
        *value *= inverse;
    }
    mean
}

/// The same slices, all of one length: so the loops over them need no further checks.
#[inline(always)]
fn exact(outputs: Outputs<'_>, width: usize) -> Outputs<'_> {
    let Outputs { scales, totals, bias } = outputs;
    Outputs { scales: &scales[..width], totals: &totals[..width], bias: &bias[..width] }
}

/// Σ a[row][step] · b[step · stride + lane], for a few rows and one register of lanes.
#[inline(always)]
fn tile(a: [&[f32]; QUERIES], b: &[f32], stride: usize, n_steps: usize) -> [[f32; LANES]; QUERIES] {
    let mut sums = [[0.0; LANES]; QUERIES];
    for step in 0..n_steps {
        let b = &b[step * stride..][..LANES];
        for row in 0..QUERIES {
            let factor = a[row][step];
            for lane in 0..LANES {
                sums[row][lane] += factor * b[lane];
            }
        }
    }
    sums
}

/// Replaces scores by their exponentials (less the greatest), padding by 0; returns the sum.
#[inline(always)]
fn exponentials(row: &mut [f32], n_tokens: usize) -> f32 {
    row[n_tokens..].fill(f32::MIN);
    let mut most = [f32::MIN; LANES];
    for values in row.chunks_exact(LANES) {
        for lane in 0..LANES {
            most[lane] = if values[lane] > most[lane] { values[lane] } else { most[lane] };
        }
    }
    let greatest = most.into_iter().fold(f32::MIN, f32::max);
    for value in &mut *row {
        *value = exp(*value - greatest);
    }
    row[n_tokens..].fill(0.0);
    sum_by(row, |value| value)
}

#[inline(always)]
fn normalise(row: &mut [f32], norm: &[f32]) {
    let width = row.len();
    let (weight, bias) = (&norm[..width], &norm[width..2 * width]);
    let mean = sum_by(row, |value| value) / width as f32;
    let variance = sum_by(row, |value| (value - mean) * (value - mean)) / width as f32;
    let inverse = 1.0 / (variance + EPSILON).sqrt();
    for at in 0..width {
        row[at] = (row[at] - mean) * inverse * weight[at] + bias[at];
    }
}

/// Sum over a row whose length is a multiple of the lanes, in an order that does not depend on
/// the machine.
#[inline(always)]
fn sum_by(row: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    for values in row.chunks_exact(LANES) {
        for lane in 0..LANES {
            sums[lane] += term(values[lane]);
        }
    }
    sums.into_iter().sum()
}

/// x · Φ(x), with the error function by formula 7.1.26 of Abramowitz and Stegun (error below
/// 1.5 · 10⁻⁷).
#[inline(always)]
fn gelu(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let series =
        t * (0.254_829_6 + t * (-0.284_496_74 + t * (1.421_413_7 + t * (-1.453_152 + t * 1.061_405_4))));
    let tail = x * (0.5 * series * exp(-z * z));
    if x < 0.0 { tail } else { x - tail }
}

/// e to the power of x, for x ≤ 0; relative error below 3 · 10⁻⁷.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    // ln 2 in two parts, the first with few bits, so that the subtraction is exact.
    let rest = x - whole * 0.693_359_4 + whole * 2.121_944_4e-4;
    let series = 1.0
        + rest
            * (1.0
                + rest
                    * (0.5
                        + rest
                            * (1.0 / 6.0
                                + rest * (1.0 / 24.0 + rest * (1.0 / 120.0 + rest * (1.0 / 720.0))))));
    let power = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    series * f32::from_bits(power)
}

#[cfg(test)]
mod tests {
    use super::{exp, gelu};

    #[test]
    fn the_exponential_is_close_to_the_exact_one() {
        for step in 0..=8700 {
            let x = -(step as f32) / 100.0;
            let want = f64::from(x).exp();
            assert!((f64::from(exp(x)) / want - 1.0).abs() < 5e-7, "{x}: {} {want}", exp(x));
        }
    }

    #[test]
    fn gelu_is_close_to_known_values() {
        // x · Φ(x) from tables of the normal distribution.
        for (x, want) in [
            (0.0, 0.0),
            (1.0, 0.841_344_8),
            (-1.0, -0.158_655_25),
            (2.0, 1.954_499_7),
            (-3.0, -0.004_049_694),
            (0.5, 0.345_731_23),
            (20.0, 20.0),
            (-20.0, 0.0),
        ] {
            assert!((gelu(x) - want).abs() < 1e-6, "{x}: {} {want}", gelu(x));
        }
    }
}
