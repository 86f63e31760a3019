//! The forward pass: token ids to one vector a text.
//!
//! Texts are laid end to end without padding. All but the attention works on tokens, whichever
//! text they are of, in blocks small enough that what passes between two steps stays in the
//! processor's cache.

use super::float::{
    Activation, AddNorm, Attention, Dequantise, HEAD, Norm, Outputs, Quantise, Quantised, pool,
};
use super::kernels::{Kernel, Weights};
use super::pack::{Pack, Sizes};
use crate::error::{Error, Result};

/// Tokens that go through a linear map together, at most; a multiple of the kernels' tiles.
const BLOCK_TOKENS: usize = 96;
/// What a block's size is rounded up to: the rows of the widest tile.
const TILE_TOKENS: usize = 6;

/// The weights: bytes stay where they are, floats are read once.
#[derive(Debug)]
pub(super) struct Model {
    sizes: Sizes,
    words: &'static [u8],
    word_scales: Vec<f32>,
    positions: Vec<f32>,
    norm: Vec<f32>,
    layers: Vec<Layer>,
}

#[derive(Debug)]
struct Layer {
    qkv: Linear,
    out: Linear,
    norm1: Vec<f32>,
    up: Linear,
    down: Linear,
    norm2: Vec<f32>,
}

/// A linear map with quantised weights.
#[derive(Debug)]
struct Linear {
    packed: &'static [u8],
    /// Factor of each input before it is quantised.
    factors: Vec<f32>,
    scales: Vec<f32>,
    sums: Vec<i32>,
    totals: Vec<f32>,
    bias: Vec<f32>,
}

/// Room for the values of one thread, kept from group to group.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    x: Vec<f32>,
    quantised: Quantised,
    sums: Vec<i32>,
    qkv: Vec<f32>,
    context: Vec<f32>,
    inner: Vec<f32>,
    keys: Vec<f32>,
    scores: Vec<f32>,
}

impl Model {
    pub(super) fn read(pack: &Pack) -> Result<Self> {
        let sizes = pack.sizes;
        let Sizes { hidden, n_layers, n_heads, inner, n_pieces, n_positions } = sizes;
        if hidden != n_heads * HEAD {
            return Err(Error::internal(format!(
                "read the builtin model: {n_heads} heads do not make {hidden} values"
            )));
        }
        let layers = (0..n_layers).map(|number| {
            Ok(Layer {
                qkv: Linear::read(pack, &format!("{number}.qkv"), hidden, 3 * hidden)?,
                out: Linear::read(pack, &format!("{number}.out"), hidden, hidden)?,
                norm1: pack.floats(&format!("{number}.norm1"), 2 * hidden)?,
                up: Linear::read(pack, &format!("{number}.up"), hidden, inner)?,
                down: Linear::read(pack, &format!("{number}.down"), inner, hidden)?,
                norm2: pack.floats(&format!("{number}.norm2"), 2 * hidden)?,
            })
        });
        Ok(Self {
            sizes,
            words: pack.section("words.weights", Some(n_pieces * hidden))?,
            word_scales: pack.floats("words.scales", n_pieces)?,
            positions: pack.floats("positions", n_positions * hidden)?,
            norm: pack.floats("norm", 2 * hidden)?,
            layers: layers.collect::<Result<_>>()?,
        })
    }

    /// Vectors of texts whose ids lie end to end, each as many as `lens` says (at most the
    /// number of positions).
    pub(super) fn forward(
        &self,
        kernel: Kernel,
        ids: &[u16],
        lens: &[usize],
        scratch: &mut Scratch,
    ) -> Vec<Vec<f32>> {
        let hidden = self.sizes.hidden;
        self.look_up(ids, lens, &mut scratch.x);
        kernel.run(Norm { norm: &self.norm, x: &mut scratch.x });
        let block = block_tokens(ids.len());
        for layer in &self.layers {
            layer.attend(kernel, block, self.sizes, lens, scratch);
            layer.think(kernel, block, self.sizes, scratch);
        }
        each_text(lens, hidden).map(|part| pool(&scratch.x[part], hidden)).collect()
    }

    /// Sum of the vectors of piece and position of each token.
    fn look_up(&self, ids: &[u16], lens: &[usize], x: &mut Vec<f32>) {
        let hidden = self.sizes.hidden;
        x.clear();
        let mut ids = ids.iter();
        for len in lens {
            for (id, position) in ids.by_ref().take(*len).zip(self.positions.chunks_exact(hidden)) {
                let id = usize::from(*id);
                let word = &self.words[id * hidden..][..hidden];
                let scale = self.word_scales[id];
                x.extend(word.iter().zip(position).map(|(w, p)| f32::from(w.cast_signed()) * scale + p));
            }
        }
    }
}

impl Layer {
    /// Attention, added to `x`.
    fn attend(&self, kernel: Kernel, block: usize, sizes: Sizes, lens: &[usize], scratch: &mut Scratch) {
        let hidden = sizes.hidden;
        let Scratch { x, quantised, sums, qkv, context, keys, scores, .. } = scratch;
        qkv.resize(x.len() * 3, 0.0);
        context.resize(x.len(), 0.0);
        for (x, out) in x.chunks(block * hidden).zip(qkv.chunks_mut(block * 3 * hidden)) {
            self.qkv.sums_of(kernel, x, quantised, sums);
            let outputs = self.qkv.outputs();
            kernel.run(Dequantise { sums, inputs: quantised, outputs, activation: Activation::Linear, out });
        }
        for part in each_text(lens, hidden) {
            let qkv = &qkv[part.start * 3..part.end * 3];
            kernel.run(Attention { qkv, out: &mut context[part], n_heads: sizes.n_heads, keys, scores });
        }
        for (context, x) in context.chunks(block * hidden).zip(x.chunks_mut(block * hidden)) {
            self.out.sums_of(kernel, context, quantised, sums);
            kernel.run(AddNorm {
                sums,
                inputs: quantised,
                outputs: self.out.outputs(),
                norm: &self.norm1,
                x,
            });
        }
    }

    /// The two maps over the wider inner layer, added to `x`.
    fn think(&self, kernel: Kernel, block: usize, sizes: Sizes, scratch: &mut Scratch) {
        let Scratch { x, quantised, sums, inner, .. } = scratch;
        for x in x.chunks_mut(block * sizes.hidden) {
            self.up.sums_of(kernel, x, quantised, sums);
            inner.resize(sums.len(), 0.0);
            let outputs = self.up.outputs();
            kernel.run(Dequantise {
                sums,
                inputs: quantised,
                outputs,
                activation: Activation::Gelu,
                out: inner,
            });
            self.down.sums_of(kernel, inner, quantised, sums);
            kernel.run(AddNorm {
                sums,
                inputs: quantised,
                outputs: self.down.outputs(),
                norm: &self.norm2,
                x,
            });
        }
    }
}

impl Linear {
    fn read(pack: &Pack, name: &str, inputs: usize, outputs: usize) -> Result<Self> {
        let packed = pack.section(&format!("{name}.weights"), Some(inputs * outputs))?;
        let mut factors = pack.floats(&format!("{name}.floats"), inputs + 3 * outputs)?;
        let mut scales = factors.split_off(inputs);
        let mut totals = scales.split_off(outputs);
        let bias = totals.split_off(outputs);
        let sums = totals.iter().map(|total| *total as i32).collect();
        Ok(Self { packed, factors, scales, sums, totals, bias })
    }

    /// Quantises rows of `x` and multiplies them with the weights.
    fn sums_of(&self, kernel: Kernel, x: &[f32], quantised: &mut Quantised, sums: &mut Vec<i32>) {
        let (inputs, outputs) = (self.factors.len(), self.bias.len());
        kernel.run(Quantise { x, factors: &self.factors, out: quantised });
        sums.resize(x.len() / inputs * outputs, 0);
        kernel.products(
            &quantised.bytes,
            Weights { packed: self.packed, sums: &self.sums, inputs, outputs },
            sums,
        );
    }

    fn outputs(&self) -> Outputs<'_> {
        Outputs { scales: &self.scales, totals: &self.totals, bias: &self.bias }
    }
}

/// Where the values of each text are, `width` a token.
fn each_text(lens: &[usize], width: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    lens.iter().scan(0, move |at, len| {
        let start = *at;
        *at += len * width;
        Some(start..*at)
    })
}

/// Tokens of a block, so that all blocks are of nearly one size.
fn block_tokens(n_tokens: usize) -> usize {
    let n_blocks = n_tokens.div_ceil(BLOCK_TOKENS).max(1);
    n_tokens.div_ceil(n_blocks).next_multiple_of(TILE_TOKENS).max(TILE_TOKENS)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_TOKENS, block_tokens, each_text};

    #[test]
    fn blocks_are_of_nearly_one_size_and_never_too_large() {
        assert_eq!([0, 1, 6, 7, 96, 97, 100, 192, 193].map(block_tokens), [6, 6, 6, 12, 96, 54, 54, 96, 66]);
        assert!((0..1000).all(|n_tokens| block_tokens(n_tokens) <= BLOCK_TOKENS));
    }

    #[test]
    fn texts_lie_end_to_end() {
        assert_eq!(each_text(&[2, 0, 3], 10).collect::<Vec<_>>(), [0..20, 20..20, 20..50]);
    }
}
