//! The products of quantised matrices, in the instructions that the processor has.
//!
//! A kernel does one thing: bytes (inputs, 0..=255) times signed bytes (weights), summed in 32
//! bits. The sums are exact, and the float work around them ([`Work`]) is the same source
//! without fused or reordered operations, so that a text has the same vector, bit for bit,
//! whatever kernel made it. All `unsafe` of the embedder is in this folder.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;

/// Outputs that lie side by side in packed weights.
pub(super) const BLOCK: usize = 16;
/// Inputs of one output that lie side by side in packed weights.
pub(super) const GROUP: usize = 4;

/// A way to multiply that this processor has: there is no other way to get one than to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Isa);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Isa {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    AvxVnni,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Kernel {
    /// The kernels that this processor can run, the slowest first.
    pub fn available() -> Vec<Self> {
        let mut isas = vec![Isa::Scalar];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") {
                isas.push(Isa::Avx2);
                if is_x86_feature_detected!("avxvnni") {
                    isas.push(Isa::AvxVnni);
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
                {
                    isas.push(Isa::Avx512Vnni);
                }
            }
        }
        #[cfg(target_arch = "aarch64")]
        isas.push(Isa::Neon);
        isas.into_iter().map(Self).collect()
    }

    /// The fastest kernel that this processor can run.
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self(Isa::Scalar))
    }

    /// Its name, as `lore doctor` and the benchmark print it.
    pub fn name(self) -> &'static str {
        match self.0 {
            Isa::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
        }
    }

    /// Writes x · weightsᵀ: `x` holds rows of `inputs` bytes, `out` rows of `outputs` sums.
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "calls code compiled for more than the baseline")
    )]
    pub(super) fn products(self, x: &[u8], weights: Weights<'_>, out: &mut [i32]) {
        weights.check(x, out);
        match self.0 {
            Isa::Scalar => scalar::products(x, weights, out),
            // SAFETY: this variant is made only after its instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { avx2::products(x, weights, out) },
            // SAFETY: this variant is made only after its instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => unsafe { vnni::products256(x, weights, out) },
            // SAFETY: this variant is made only after its instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => unsafe { vnni::products512(x, weights, out) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::products(x, weights, out),
        }
    }

    /// Does float work, compiled for the kernel's instructions.
    #[cfg_attr(
        target_arch = "x86_64",
        expect(unsafe_code, reason = "calls code compiled for more than the baseline")
    )]
    pub(super) fn run(self, work: impl Work) {
        match self.0 {
            Isa::Scalar => work.run(),
            // SAFETY: this variant is made only after its instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::AvxVnni => unsafe { avx2::run(work) },
            // SAFETY: this variant is made only after its instructions were detected.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => unsafe { vnni::run512(work) },
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => work.run(),
        }
    }
}

/// A loop over floats that the compiler turns into vector instructions by itself.
///
/// `run` and all it calls must be `#[inline(always)]`: only so are they compiled for the
/// instructions of the kernel that runs them.
pub(super) trait Work {
    fn run(self);
}

/// Weights as the pack holds them: blocks of 16 outputs, in each block groups of 4 inputs, in
/// each group the four weights of output 0, of output 1, and so on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights<'a> {
    /// Signed bytes.
    pub packed: &'a [u8],
    /// Sum of the weights of each output.
    pub sums: &'a [i32],
    pub inputs: usize,
    pub outputs: usize,
}

impl Weights<'_> {
    /// Number of rows of `x`.
    ///
    /// # Panics
    /// If a length does not fit the others: the kernels' pointers rely on it.
    fn check(&self, x: &[u8], out: &[i32]) -> usize {
        assert!(self.inputs > 0 && self.inputs.is_multiple_of(GROUP));
        assert!(self.outputs > 0 && self.outputs.is_multiple_of(BLOCK));
        assert_eq!(self.packed.len(), self.inputs * self.outputs);
        assert_eq!(self.sums.len(), self.outputs);
        let n_rows = x.len() / self.inputs;
        assert_eq!(x.len(), n_rows * self.inputs);
        assert_eq!(out.len(), n_rows * self.outputs);
        n_rows
    }
}
