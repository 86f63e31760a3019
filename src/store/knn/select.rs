//! Keeps the nearest of many, in one pass and in little room. Pure.

/// A code that may be among the nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// Bits that differ.
    pub distance: u16,
    /// The passage.
    pub chunk_id: i64,
    /// The document.
    pub document_id: i64,
    /// Where its code was put aside.
    pub slot: usize,
}

/// The nearest `wanted` candidates of a stream; ties at the edge go by chunk id.
#[derive(Debug)]
pub struct Nearest {
    wanted: usize,
    /// How many kept candidates have each distance.
    counts: Vec<usize>,
    /// Kept candidates at or below the threshold.
    within: usize,
    threshold: u16,
    kept: Vec<Candidate>,
}

impl Nearest {
    /// Keeps `wanted` candidates of codes with `bits` bits.
    pub fn new(wanted: usize, bits: usize) -> Self {
        Self {
            wanted: wanted.max(1),
            counts: vec![0; bits + 1],
            within: 0,
            threshold: u16::try_from(bits).unwrap_or(u16::MAX),
            kept: Vec::new(),
        }
    }

    /// Greatest distance that can still be among the nearest.
    pub fn threshold(&self) -> u16 {
        self.threshold
    }

    /// Adds a candidate.
    pub fn add(&mut self, candidate: Candidate) {
        if candidate.distance > self.threshold {
            return;
        }
        if let Some(count) = self.counts.get_mut(usize::from(candidate.distance)) {
            *count += 1;
            self.within += 1;
            self.kept.push(candidate);
        }
    }

    /// Lowers the threshold as far as the candidates seen allow. Called now and then.
    pub fn tighten(&mut self) {
        while self.threshold > 0 {
            let at = self.counts.get(usize::from(self.threshold)).copied().unwrap_or(0);
            if self.within - at < self.wanted {
                break;
            }
            self.within -= at;
            self.threshold -= 1;
        }
        if self.kept.len() > 8 * self.wanted {
            let threshold = self.threshold;
            self.kept.retain(|candidate| candidate.distance <= threshold);
        }
    }

    /// The nearest, nearest first.
    pub fn finish(mut self) -> Vec<Candidate> {
        self.tighten();
        let threshold = self.threshold;
        self.kept.retain(|candidate| candidate.distance <= threshold);
        self.kept.sort_unstable();
        self.kept.truncate(self.wanted);
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_nearest_are_those_of_a_full_sort(
            distances in prop::collection::vec(0_u16..=64, 0..500), wanted in 1_usize..60, every in 1_usize..50
        ) {
            let mut nearest = Nearest::new(wanted, 64);
            let mut all = Vec::new();
            for (idx, distance) in distances.into_iter().enumerate() {
                let id = idx as i64;
                let candidate = Candidate { distance, chunk_id: id * 7 % 501, document_id: id, slot: idx };
                all.push(candidate);
                nearest.add(candidate);
                if idx % every == 0 {
                    nearest.tighten();
                }
            }
            all.sort_unstable();
            all.truncate(wanted);
            prop_assert_eq!(nearest.finish(), all);
        }
    }
}
