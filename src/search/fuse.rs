//! Fuses ranked lists of documents into one. Pure.
//!
//! Every order is total: equal scores are ordered by document id, so that the same lists
//! always give the same answer, in whatever order they are handed over.

use std::collections::BTreeMap;

/// How lists are fused.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// Reciprocal rank fusion: a document gains `weight / (k + rank)` from each list.
    Rrf {
        /// Larger: the ranks further down count for more. At least 0.
        k: f64,
    },
    /// Scores of each list are spread over 0 to 1, weighted and added.
    MinMax,
    /// Scores of each list are divided by its best, weighted and added: 0 stays 0.
    Share,
    /// Scores of each list are counted from its worst in its standard deviations, weighted and
    /// added: what stands out from its list counts for more than the first among equals.
    Deviations,
}

/// One retriever's answer.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    /// Name in explanations.
    pub name: &'static str,
    /// How much it counts; 0 or less: not at all.
    pub weight: f64,
    /// Documents and scores, higher is better, in any order.
    pub hits: &'a [(i64, f64)],
    /// Hits below this score are left out before fusion.
    pub min_score: Option<f64>,
    /// Places of the list. Where hits are fewer, no others exist, and for
    /// [`Method::Deviations`] the places that are left have the score `floor`.
    pub places: usize,
    /// Score of what was not found, at most.
    pub floor: f64,
}

/// A document in the fused list.
#[derive(Debug, Clone, PartialEq)]
pub struct Fused {
    /// The document.
    pub document_id: i64,
    /// Sum of what the lists gave it.
    pub score: f64,
    /// The score divided by the best one: 1.0 for the first.
    pub relative: f64,
    /// Rank in each list, counted from 1, in the order of the buckets.
    pub ranks: Vec<Option<usize>>,
    /// Score in each list.
    pub scores: Vec<Option<f64>>,
    /// What each list gave to the score.
    pub parts: Vec<f64>,
}

/// Fuses lists. A document that a list holds twice counts once, with its better score;
/// scores that are no numbers are left out.
pub fn fuse(buckets: &[Bucket<'_>], method: Method) -> Vec<Fused> {
    let mut fused: BTreeMap<i64, Fused> = BTreeMap::new();
    for (bucket_idx, bucket) in buckets.iter().enumerate() {
        let hits = ranked(bucket);
        let best = hits.first().map_or(0.0, |hit| hit.1);
        let worst = hits.last().map_or(0.0, |hit| hit.1);
        let spread = Spread::of(&hits, bucket);
        for (idx, (document_id, score)) in hits.into_iter().enumerate() {
            let gain = match method {
                Method::Rrf { k } => 1.0 / (k.max(0.0) + (idx + 1) as f64),
                Method::MinMax if best > worst => (score - worst) / (best - worst),
                Method::MinMax => 1.0,
                Method::Share if best > 0.0 => (score / best).max(0.0),
                Method::Share => 1.0,
                Method::Deviations => spread.gain(score),
            };
            let entry = fused.entry(document_id).or_insert_with(|| Fused {
                document_id,
                score: 0.0,
                relative: 0.0,
                ranks: vec![None; buckets.len()],
                scores: vec![None; buckets.len()],
                parts: vec![0.0; buckets.len()],
            });
            entry.score += bucket.weight * gain;
            if let Some(part) = entry.parts.get_mut(bucket_idx) {
                *part = bucket.weight * gain;
            }
            if let (Some(rank), Some(seen)) =
                (entry.ranks.get_mut(bucket_idx), entry.scores.get_mut(bucket_idx))
            {
                (*rank, *seen) = (Some(idx + 1), Some(score));
            }
        }
    }
    let mut list: Vec<Fused> = fused.into_values().collect();
    list.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.document_id.cmp(&b.document_id)));
    let best = list.first().map_or(0.0, |first| first.score);
    for item in &mut list {
        item.relative = if best > 0.0 { item.score / best } else { 0.0 };
    }
    list
}

/// How the scores of a list lie.
struct Spread {
    worst: f64,
    deviation: f64,
}

impl Spread {
    fn of(hits: &[(i64, f64)], bucket: &Bucket<'_>) -> Self {
        let empty = bucket.places.saturating_sub(hits.len());
        let last = hits.last().map_or(0.0, |hit| hit.1);
        let worst = if empty > 0 { last.min(bucket.floor) } else { last };
        // From the worst on: places that are left add nothing to either sum.
        let n = (hits.len() + empty).max(1) as f64;
        let mean = hits.iter().map(|hit| hit.1 - worst).sum::<f64>() / n;
        let square = hits.iter().map(|hit| (hit.1 - worst).powi(2)).sum::<f64>() / n;
        Self { worst, deviation: (square - mean * mean).max(0.0).sqrt() }
    }

    fn gain(&self, score: f64) -> f64 {
        let gain = (score - self.worst) / self.deviation;
        if gain.is_finite() { gain } else { 1.0 }
    }
}

/// The hits of a bucket that count, best first, each document once.
fn ranked(bucket: &Bucket<'_>) -> Vec<(i64, f64)> {
    if bucket.weight <= 0.0 || !bucket.weight.is_finite() {
        return Vec::new();
    }
    let mut best: BTreeMap<i64, f64> = BTreeMap::new();
    for (document_id, score) in bucket.hits {
        if !score.is_finite() || bucket.min_score.is_some_and(|floor| *score < floor) {
            continue;
        }
        let seen = best.entry(*document_id).or_insert(*score);
        *seen = seen.max(*score);
    }
    let mut hits: Vec<(i64, f64)> = best.into_iter().collect();
    hits.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    hits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RRF: Method = Method::Rrf { k: 60.0 };

    fn bucket<'a>(name: &'static str, weight: f64, hits: &'a [(i64, f64)]) -> Bucket<'a> {
        Bucket { name, weight, hits, min_score: None, places: 0, floor: 0.0 }
    }

    fn ids(list: &[Fused]) -> Vec<i64> {
        list.iter().map(|item| item.document_id).collect()
    }

    #[test]
    fn a_document_in_both_lists_comes_first_and_ties_go_by_id() {
        let list =
            fuse(&[bucket("a", 1.0, &[(9, 3.0), (5, 2.0)]), bucket("b", 1.0, &[(7, 0.9), (5, 0.8)])], RRF);
        assert_eq!(ids(&list), [5, 7, 9]);
        assert_eq!(list[0].ranks, [Some(2), Some(2)]);
        assert_eq!(list[1].ranks, [None, Some(1)]);
        assert!((list[0].relative - 1.0).abs() < 1e-12);
        assert!((list[1].score - 1.0 / 61.0).abs() < 1e-12);
    }

    #[test]
    fn the_score_aware_mix_keeps_a_lead_that_ranks_would_lose() {
        let lexical = [(1, 30.0), (2, 10.0), (3, 9.0)];
        let vector = [(2, 0.61), (3, 0.60), (1, 0.59)];
        let mix = fuse(&[bucket("lexical", 0.7, &lexical), bucket("vector", 0.3, &vector)], Method::MinMax);
        assert_eq!(ids(&mix)[0], 1);
        assert!((mix[0].score - 0.7).abs() < 1e-12);
        let ranks = fuse(&[bucket("lexical", 1.0, &lexical), bucket("vector", 1.0, &vector)], RRF);
        assert_eq!(ids(&ranks)[0], 2);
    }

    #[test]
    fn what_stands_out_of_its_list_counts_for_more_than_the_first_among_equals() {
        let flat = [(1, 0.52), (2, 0.51), (3, 0.50), (4, 0.49), (5, 0.48)];
        // The only document of a hundred that holds a word stands out, the only one of one does not.
        let only = |places| {
            let buckets = [bucket("a", 0.5, &flat), Bucket { places, ..bucket("b", 0.5, &[(5, 3.0)]) }];
            ids(&fuse(&buckets, Method::Deviations))[0]
        };
        assert_eq!((only(100), only(1)), (5, 1));
    }

    #[test]
    fn weak_hits_leave_before_fusion_and_nothing_is_counted_twice() {
        let hits = [(1, 0.9), (1, 0.7), (2, 0.2), (3, f64::NAN)];
        let floor = Bucket { min_score: Some(0.5), ..bucket("v", 1.0, &hits) };
        let list = fuse(&[floor], RRF);
        assert_eq!(ids(&list), [1]);
        assert!((list[0].score - 1.0 / 61.0).abs() < 1e-12);
    }

    #[test]
    fn empty_lists_and_weightless_lists_give_nothing() {
        assert!(fuse(&[], RRF).is_empty());
        assert!(
            fuse(&[bucket("a", 0.0, &[(1, 1.0)]), bucket("b", f64::NAN, &[(1, 1.0)])], Method::MinMax)
                .is_empty()
        );
    }

    fn hits() -> impl Strategy<Value = Vec<(i64, f64)>> {
        prop::collection::vec((1_i64..40, (0_u8..12).prop_map(f64::from)), 0..40)
    }

    fn method() -> impl Strategy<Value = Method> {
        prop_oneof![
            (0.0_f64..100.0).prop_map(|k| Method::Rrf { k }),
            Just(Method::MinMax),
            Just(Method::Share),
            Just(Method::Deviations)
        ]
    }

    proptest! {
        #[test]
        fn the_order_in_which_hits_come_does_not_matter(
            (a, a2) in hits().prop_flat_map(|hits| (Just(hits.clone()), Just(hits).prop_shuffle())),
            (b, b2) in hits().prop_flat_map(|hits| (Just(hits.clone()), Just(hits).prop_shuffle())),
            method in method(),
        ) {
            let one = fuse(&[bucket("a", 0.7, &a), bucket("b", 0.3, &b)], method);
            let two = fuse(&[bucket("a", 0.7, &a2), bucket("b", 0.3, &b2)], method);
            prop_assert_eq!(&one, &two);
            let mut seen: Vec<i64> = ids(&one);
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), one.len());
        }

        #[test]
        fn a_better_rank_everywhere_never_loses(a in hits(), b in hits(), method in method()) {
            let list = fuse(&[bucket("a", 1.0, &a), bucket("b", 2.0, &b)], method);
            for (i, first) in list.iter().enumerate() {
                for second in list.iter().skip(i + 1) {
                    let beaten = first.ranks.iter().zip(&second.ranks).all(|pair| match pair {
                        (Some(first), Some(second)) => second < first,
                        (None, Some(_)) => true,
                        (None, None) => true,
                        (Some(_), None) => false,
                    });
                    // Dominated in every list, by scores that differ: it may not stand above.
                    let better = first.scores.iter().zip(&second.scores).any(|pair| match pair {
                        (Some(first), Some(second)) => second > first,
                        (None, Some(_)) => matches!(method, Method::Rrf { .. }),
                        (_, None) => false,
                    });
                    prop_assert!(!(beaten && better), "{first:?} above {second:?}");
                }
            }
        }

        #[test]
        fn relative_scores_fall_from_one(a in hits(), b in hits(), method in method()) {
            let list = fuse(&[bucket("a", 1.0, &a), bucket("b", 1.0, &b)], method);
            if let Some(first) = list.first().filter(|first| first.score > 0.0) {
                prop_assert!((first.relative - 1.0).abs() < 1e-12);
            }
            for pair in list.windows(2) {
                prop_assert!(pair[0].relative >= pair[1].relative && pair[1].relative >= 0.0);
            }
        }
    }
}
