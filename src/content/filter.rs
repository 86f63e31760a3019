//! What a query may see and wants to see: one filter, compiled once by the store into a set
//! of document ids that every retriever shares.

use super::entities::SourceType;
use crate::clock::Millis;

/// Conditions on documents; all of them must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Local ids of the projects; absent: all. An empty list matches nothing.
    pub projects: Option<Vec<i64>>,
    /// Any of these types; empty: all.
    pub types: Vec<SourceType>,
    /// Any of these authors (usernames); empty: all.
    pub authors: Vec<String>,
    /// One of each of these sets of labels.
    pub labels: Vec<Vec<String>>,
    /// All of these paths.
    pub paths: Vec<PathFilter>,
    /// Any of these states of the item; empty: all.
    pub states: Vec<String>,
    /// Title of the milestone.
    pub milestone: Option<String>,
    /// Any of these assignees (usernames); empty: all.
    pub assignees: Vec<String>,
    /// Created at or after.
    pub created_from: Option<Millis>,
    /// Created before.
    pub created_to: Option<Millis>,
    /// Updated at or after.
    pub updated_from: Option<Millis>,
    /// Drafts only, or none.
    pub draft: Option<bool>,
    /// Confidential items only, or none.
    pub confidential: Option<bool>,
    /// Whether confidential items and internal notes may be seen at all.
    pub include_restricted: bool,
    /// What is left out: documents on which all conditions of one of these hold. They restrict
    /// only: what they say of confidential items does not count.
    pub not: Vec<Self>,
}

/// A condition on the paths that a document touches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathFilter {
    /// This file.
    Exact(String),
    /// Everything below this directory; ends with `/`.
    Below(String),
    /// Everything that reads like this: `*` stands for any characters, `?` for one.
    Like(String),
}

impl PathFilter {
    /// Reads a path as people write it: with a trailing `/` it names a directory, with `*` or
    /// `?` whatever reads so.
    pub fn parse(text: &str) -> Self {
        let text = text.trim().trim_start_matches("./");
        if text.contains(['*', '?']) {
            // A directory is meant with all that is below it.
            let below = if text.ends_with('/') { "*" } else { "" };
            Self::Like(format!("{text}{below}"))
        } else if text.ends_with('/') {
            Self::Below(text.to_owned())
        } else {
            Self::Exact(text.to_owned())
        }
    }

    /// As it could be typed.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Exact(text) | Self::Below(text) | Self::Like(text) => text,
        }
    }
}

/// A set of document ids, one bit each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bitset {
    bytes: Vec<u8>,
}

impl Bitset {
    /// The set of `ids`; negative ids do not exist and are left out.
    pub fn from_ids(ids: impl IntoIterator<Item = i64>) -> Self {
        let mut set = Self::default();
        for id in ids {
            set.insert(id);
        }
        set
    }

    /// The set of all ids up to `last`, and a few beyond it.
    pub fn up_to(last: i64) -> Self {
        Self { bytes: vec![u8::MAX; usize::try_from(last).map_or(0, |last| last / 8 + 1)] }
    }

    /// The set that [`Bitset::as_bytes`] gave.
    pub const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// The bits, lowest id first, as [`Bitset::from_bytes`] takes them.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Adds an id.
    pub fn insert(&mut self, id: i64) {
        let Ok(id) = usize::try_from(id) else { return };
        let byte = id / 8;
        if byte >= self.bytes.len() {
            self.bytes.resize((byte + 1).next_power_of_two(), 0);
        }
        if let Some(slot) = self.bytes.get_mut(byte) {
            *slot |= 1 << (id % 8);
        }
    }

    /// Whether an id is in the set.
    pub fn contains(&self, id: i64) -> bool {
        usize::try_from(id)
            .is_ok_and(|id| self.bytes.get(id / 8).is_some_and(|byte| byte >> (id % 8) & 1 == 1))
    }

    /// Keeps what is in `other` too.
    pub fn intersect(&mut self, other: &Self) {
        self.bytes.truncate(other.bytes.len());
        for (mine, theirs) in self.bytes.iter_mut().zip(&other.bytes) {
            *mine &= theirs;
        }
    }

    /// Adds everything of `other`.
    pub fn unite(&mut self, other: &Self) {
        if self.bytes.len() < other.bytes.len() {
            self.bytes.resize(other.bytes.len(), 0);
        }
        for (mine, theirs) in self.bytes.iter_mut().zip(&other.bytes) {
            *mine |= theirs;
        }
    }

    /// Removes everything of `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.bytes.iter_mut().zip(&other.bytes) {
            *mine &= !theirs;
        }
    }

    /// Number of ids.
    pub fn len(&self) -> usize {
        self.bytes.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    /// Whether no id is in the set.
    pub fn is_empty(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }

    /// The set as bytes: id `n` is bit `n % 8` of byte `n / 8`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    fn ids(set: &Bitset) -> BTreeSet<i64> {
        (0..600).filter(|id| set.contains(*id)).collect()
    }

    proptest! {
        #[test]
        fn sets_behave_like_sets(
            left in prop::collection::btree_set(0_i64..500, 0..40),
            right in prop::collection::btree_set(0_i64..500, 0..40),
        ) {
            let (a, b) = (Bitset::from_ids(left.iter().copied()), Bitset::from_ids(right.iter().copied()));
            prop_assert_eq!(ids(&a), left.clone());
            prop_assert_eq!(a.len(), left.len());
            let mut both = a.clone();
            both.intersect(&b);
            prop_assert_eq!(ids(&both), left.intersection(&right).copied().collect());
            let mut any = a.clone();
            any.unite(&b);
            prop_assert_eq!(ids(&any), left.union(&right).copied().collect());
            let mut less = a;
            less.subtract(&b);
            prop_assert_eq!(ids(&less), left.difference(&right).copied().collect());
        }
    }

    #[test]
    fn negative_ids_are_never_members() {
        let set = Bitset::from_ids([-1, 0, 7]);
        assert!(!set.contains(-1));
        assert!(set.contains(0) && set.contains(7) && !set.contains(8));
        assert_eq!(set.as_bytes(), &[0b1000_0001]);
    }

    #[test]
    fn a_trailing_slash_names_a_directory() {
        assert_eq!(PathFilter::parse("src/"), PathFilter::Below("src/".to_owned()));
        assert_eq!(PathFilter::parse("./src/a_b%.rs"), PathFilter::Exact("src/a_b%.rs".to_owned()));
        assert_eq!(PathFilter::parse("pages/[id].tsx"), PathFilter::Exact("pages/[id].tsx".to_owned()));
        assert_eq!(PathFilter::parse("src/**/*.rs"), PathFilter::Like("src/**/*.rs".to_owned()));
        assert_eq!(PathFilter::parse("*/tests/"), PathFilter::Like("*/tests/*".to_owned()));
    }
}
