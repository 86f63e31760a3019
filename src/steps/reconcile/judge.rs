//! What the absence of items means, decided from what is stored and what was seen.

use std::collections::BTreeSet;

use crate::store::tombstones::Known;

/// GitLab's access level from which on confidential issues are seen: planner.
const SEES_CONFIDENTIAL: i64 = 15;

/// Items that may go at once, whatever share of the project they are.
const FUSE_ITEMS: usize = 10;

/// Share of a project that may go at once: one in so many.
const FUSE_SHARE: usize = 5;

/// Why missing items are not believed to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::steps) enum Withheld {
    /// All items of the kind are missing at once.
    AllOfKind,
    /// All confidential items are missing at once, or no sign says that the token sees any.
    Confidential,
}

/// What is missing, and what is made of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::steps) struct Verdict {
    /// Items that may be deleted upstream, to be asked for one by one.
    pub(in crate::steps) suspects: Vec<i64>,
    /// Items that look like lost access, with the reason.
    pub(in crate::steps) withheld: Vec<(i64, Withheld)>,
}

/// Judges the items of one kind of a project: `stored` is what is stored, `seen` what the
/// whole list held, `level` the token's access level there.
pub(in crate::steps) fn judge(
    stored: &[Known],
    seen: &BTreeSet<i64>,
    level: Option<i64>,
    allow_mass_delete: bool,
) -> Verdict {
    let is_missing = |known: &&Known| !seen.contains(&known.iid);
    let n_confidential = stored.iter().filter(|known| known.is_confidential).count();
    let n_missing_confidential =
        stored.iter().filter(is_missing).filter(|known| known.is_confidential).count();
    let all_of_kind = seen.is_empty() && stored.len() > 1;
    let all_confidential = n_confidential > 1 && n_missing_confidential == n_confidential;
    let sees_confidential =
        n_missing_confidential < n_confidential || level.is_some_and(|level| level >= SEES_CONFIDENTIAL);
    let mut verdict = Verdict::default();
    for known in stored.iter().filter(is_missing) {
        if allow_mass_delete {
            verdict.suspects.push(known.iid);
        } else if all_of_kind {
            verdict.withheld.push((known.iid, Withheld::AllOfKind));
        } else if known.is_confidential && (all_confidential || !sees_confidential) {
            verdict.withheld.push((known.iid, Withheld::Confidential));
        } else {
            verdict.suspects.push(known.iid);
        }
    }
    verdict
}

/// Whether so many of a project's items are too many to go at once.
pub(super) fn fuse_blows(n_missing: usize, n_stored: usize, allow_mass_delete: bool) -> bool {
    !allow_mass_delete && n_missing > FUSE_ITEMS && n_missing * FUSE_SHARE > n_stored
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(public: &[i64], confidential: &[i64]) -> Vec<Known> {
        let of = |iids: &[i64], is_confidential| {
            iids.iter().map(move |iid| Known { iid: *iid, is_confidential }).collect::<Vec<_>>()
        };
        [of(public, false), of(confidential, true)].concat()
    }

    fn seen(iids: &[i64]) -> BTreeSet<i64> {
        iids.iter().copied().collect()
    }

    #[test]
    fn a_missing_item_is_suspected_and_nothing_else() {
        let verdict = judge(&known(&[1, 2, 3], &[]), &seen(&[1, 3, 9]), None, false);
        assert_eq!(verdict, Verdict { suspects: vec![2], withheld: Vec::new() });
    }

    #[test]
    fn api_62_confidential_items_that_vanish_together_are_withheld() {
        let stored = known(&[1, 2], &[3, 4]);
        let verdict = judge(&stored, &seen(&[1]), Some(40), false);
        assert_eq!(verdict.suspects, [2]);
        assert_eq!(verdict.withheld, [(3, Withheld::Confidential), (4, Withheld::Confidential)]);
        assert_eq!(judge(&stored, &seen(&[1]), Some(40), true).suspects, [2, 3, 4]);
        // One of several that are seen.
        assert_eq!(judge(&stored, &seen(&[1, 2, 4]), Some(0), false).suspects, [3]);
    }

    #[test]
    fn api_62_one_confidential_item_goes_only_when_the_token_would_see_it() {
        let stored = known(&[1], &[2]);
        for (level, is_suspect) in [(None, false), (Some(10), false), (Some(15), true), (Some(50), true)] {
            let verdict = judge(&stored, &seen(&[1]), level, false);
            assert_eq!(verdict.suspects.len(), usize::from(is_suspect), "{level:?}");
        }
    }

    #[test]
    fn all_items_of_a_kind_at_once_are_withheld() {
        let verdict = judge(&known(&[1, 2], &[]), &seen(&[]), Some(50), false);
        assert_eq!(verdict.withheld.len(), 2);
        assert_eq!(judge(&known(&[1], &[]), &seen(&[]), Some(50), false).suspects, [1]);
        assert_eq!(judge(&[], &seen(&[]), None, false), Verdict::default());
    }

    #[test]
    fn the_fuse_blows_above_ten_items_and_a_fifth() {
        assert!(!fuse_blows(10, 10, false));
        assert!(!fuse_blows(11, 55, false));
        assert!(fuse_blows(11, 54, false));
        assert!(!fuse_blows(11, 54, true));
    }
}
