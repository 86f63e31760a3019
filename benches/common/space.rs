//! Vectors that lie as those of texts do: in clusters whose sizes follow Zipf's law. Inside a
//! cluster they differ in 24 directions of its own and a little in all others, since texts
//! lie in far fewer dimensions than their vectors have.

use lore::store::embeddings::{ChunkVector, NewChunk};

/// Length of the vectors.
pub const DIMS: usize = 384;
const CLUSTERS: usize = 3_000;

/// A passage with a vector.
pub fn chunk(vector: Vec<f32>) -> NewChunk {
    NewChunk { hash: [0; 16], is_title: false, char_start: 0, char_end: 0, vector: ChunkVector::New(vector) }
}

/// SplitMix64: the same numbers everywhere.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 24) as f32
    }

    /// About normally distributed.
    pub fn normal(&mut self) -> f32 {
        (0..6).map(|_| self.unit()).sum::<f32>() - 3.0
    }
}

/// Texts on one subject lie near each other, and all texts share a direction.
pub struct Space {
    centres: Vec<Vec<f32>>,
    directions: Vec<Vec<f32>>,
    cumulated: Vec<f32>,
}

impl Space {
    pub fn new() -> Self {
        let mut random = Random(1);
        let mean: Vec<f32> = (0..DIMS).map(|_| 0.4 * random.normal()).collect();
        let centres =
            (0..CLUSTERS).map(|_| mean.iter().map(|mean| mean + random.normal()).collect()).collect();
        let directions = (0..4_096).map(|_| (0..DIMS).map(|_| random.normal()).collect()).collect();
        let mut sum = 0.0;
        let cumulated = (1..=CLUSTERS)
            .map(|rank| {
                sum += 1.0 / rank as f32;
                sum
            })
            .collect();
        Self { centres, directions, cumulated }
    }

    pub fn vector(&self, random: &mut Random) -> Vec<f32> {
        let total = self.cumulated.last().copied().unwrap();
        let at = random.unit() * total;
        let cluster = self.cumulated.partition_point(|sum| *sum < at).min(CLUSTERS - 1);
        let mut vector: Vec<f32> =
            self.centres[cluster].iter().map(|centre| centre + 0.15 * random.normal()).collect();
        for n in 0..24 {
            let weight = 0.25 * random.normal();
            let direction = &self.directions[(cluster * 131 + n * 17) % self.directions.len()];
            for (value, part) in vector.iter_mut().zip(direction) {
                *value += weight * part;
            }
        }
        let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter().map(|value| value / norm).collect()
    }
}
