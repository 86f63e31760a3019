//! From the hits of the retrievers to one list of results. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::adjust::{Factor, Hop};
use super::fuse::{self, Bucket, Method};
use crate::store::search::{ItemKey, Scored};

/// BM25 score of a raw expression, whose greatest score is not known, that counts as half
/// relevant.
const RAW_HALF: f64 = 8.0;

/// One result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Entry {
    /// The document that stands for it.
    pub(super) id: i64,
    /// Relative to the best.
    pub(super) score: f64,
    /// Absolute, 0 to 1.
    pub(super) relevance: f64,
    /// Place among the hits by words, from 1.
    pub(super) fts_rank: Option<usize>,
    /// BM25 score.
    pub(super) bm25: Option<f64>,
    /// Named by the query.
    pub(super) pinned: bool,
    /// Place among the hits by meaning, from 1.
    pub(super) vector_rank: Option<usize>,
    /// Cosine of the query and the nearest passage.
    pub(super) cosine: Option<f64>,
    /// The nearest passage.
    pub(super) chunk_id: Option<i64>,
    /// What each list gave.
    pub(super) fused: Option<Fusion>,
    /// The item that it is a neighbour of, when that counts for more than what was found.
    pub(super) hop: Option<Hop>,
    /// What changed the score afterwards, in order.
    pub(super) factors: Vec<Factor>,
    /// What the reranker said.
    pub(super) reranked: Option<f64>,
}

/// What the lists gave to a fused score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fusion {
    /// By words.
    pub lexical: f64,
    /// By meaning.
    pub vector: f64,
    /// The sum, before it is divided by the best.
    pub sum: f64,
}

/// A document found by meaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Meant {
    pub(super) id: i64,
    pub(super) chunk_id: i64,
    pub(super) cosine: f64,
    /// The cosine on a scale on which 0 is unrelated, whatever the model.
    pub(super) relevance: f64,
    /// What is fused: the relevance, or what [`super::feedback`] made of it.
    pub(super) score: f64,
}

/// What is fused.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lists<'a> {
    pub(super) pinned: &'a [i64],
    /// Results by words, none of them pinned.
    pub(super) lexical: &'a Ranking,
    /// Documents by meaning, the nearest first.
    pub(super) vector: &'a [Meant],
    /// With items: what belongs together.
    pub(super) items: Option<&'a BTreeMap<i64, ItemKey>>,
    /// What a discussion's nearness counts when it stands for its item.
    pub(super) discussion: f64,
    pub(super) method: Method,
    /// Share of the words.
    pub(super) lexical_weight: f64,
    /// How much that moves with what they reach.
    pub(super) coverage: f64,
    /// Places of a list that holds all there is.
    pub(super) places: usize,
    /// Score of documents that are not found by meaning, at most.
    pub(super) unrelated: f64,
    /// Whether there are no further hits by meaning.
    pub(super) exhausted: bool,
}

/// Results in their order, each item or document once.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ranking {
    pub(super) entries: Vec<Entry>,
    /// Whether no further result exists.
    pub(super) exhausted: bool,
}

impl Ranking {
    /// Orders the hits: those that are named first, then by score.
    ///
    /// With `items` the hits of an item are one result, and its best hit stands for it, where
    /// a discussion counts `discussion` times its score. Only results whose place no further
    /// hit can change are kept, so that a longer list of hits begins with the same results and
    /// pages never overlap.
    pub(super) fn new(
        pinned: &[i64],
        found: &[Scored],
        mass: f64,
        items: Option<&[(i64, ItemKey)]>,
        discussion: f64,
        exhausted: bool,
    ) -> Self {
        let items: Option<BTreeMap<i64, ItemKey>> = items.map(|items| items.iter().copied().collect());
        let places: BTreeMap<i64, (usize, f64)> =
            found.iter().enumerate().map(|(at, hit)| (hit.id, (at + 1, hit.score))).collect();
        let least = found.last().filter(|_| !exhausted).map_or(f64::NEG_INFINITY, |hit| hit.score);
        let factor = |id: i64| match items.as_ref().and_then(|items| items.get(&id)) {
            Some(item) if item.is_discussion => discussion,
            Some(_) | None => 1.0,
        };
        let mut ordered: Vec<Scored> =
            found.iter().map(|hit| Scored { score: hit.score * factor(hit.id), ..*hit }).collect();
        // Stable: the newest first stay so when nothing has a score.
        ordered.sort_by(|a, b| b.score.total_cmp(&a.score));
        let settled = ordered.iter().take_while(|hit| hit.score >= least).count();
        ordered.truncate(settled);
        let best = ordered.first().map_or(0.0, |hit| hit.score);
        let mut seen_items = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut entries = Vec::new();
        let in_order = pinned.iter().map(|id| (*id, true)).chain(ordered.iter().map(|hit| (hit.id, false)));
        for (id, is_pinned) in in_order {
            let fresh = match &items {
                Some(items) => {
                    items.get(&id).is_some_and(|item| seen_items.insert((item.merge_request, item.item_id)))
                }
                None => true,
            };
            if !fresh || !seen.insert(id) {
                continue;
            }
            let place = places.get(&id).copied();
            let bm25 = place.map(|(_, score)| score);
            let weighted = bm25.unwrap_or(0.0) * factor(id);
            entries.push(Entry {
                id,
                score: if is_pinned { 1.0 } else { relative(weighted, best) },
                relevance: if is_pinned { 1.0 } else { relevance(bm25.unwrap_or(0.0), mass) },
                fts_rank: place.map(|(rank, _)| rank),
                bm25,
                pinned: is_pinned,
                ..Entry::default()
            });
        }
        Self { entries, exhausted }
    }

    /// One list of results by words and of documents by meaning.
    ///
    /// Both lists have the same depth whatever page is asked for, so that every page is cut
    /// out of the same list. With `items` an item is one result, for which the document
    /// stands that was found by words, else the nearest one.
    pub(super) fn fused(lists: &Lists<'_>) -> Self {
        let key_of = |id: i64| {
            lists.items.and_then(|items| items.get(&id)).map(|item| (item.merge_request, item.item_id))
        };
        // An item is known by its smallest document: ties are ordered by it.
        let mut smallest: BTreeMap<(bool, i64), i64> = BTreeMap::new();
        let all = lists.pinned.iter().copied();
        let all = all.chain(lists.lexical.entries.iter().map(|entry| entry.id));
        for id in all.chain(lists.vector.iter().map(|hit| hit.id)) {
            if let Some(key) = key_of(id) {
                let known = smallest.entry(key).or_insert(id);
                *known = id.min(*known);
            }
        }
        let name = |id: i64| key_of(id).and_then(|key| smallest.get(&key).copied()).unwrap_or(id);
        let mut by_words: BTreeMap<i64, &Entry> = BTreeMap::new();
        for entry in &lists.lexical.entries {
            by_words.entry(name(entry.id)).or_insert(entry);
        }
        let mut by_meaning: BTreeMap<i64, (&Meant, f64)> = BTreeMap::new();
        for hit in lists.vector {
            let is_discussion =
                lists.items.and_then(|items| items.get(&hit.id)).is_some_and(|item| item.is_discussion);
            let score = hit.score * if is_discussion { lists.discussion } else { 1.0 };
            let best = by_meaning.entry(name(hit.id)).or_insert((hit, score));
            if score > best.1 {
                *best = (hit, score);
            }
        }
        let meant: Vec<(i64, f64)> = by_meaning.iter().map(|(name, (_, score))| (*name, *score)).collect();
        let worded: Vec<(i64, f64)> =
            lists.lexical.entries.iter().map(|entry| (name(entry.id), entry.score)).collect();
        let covered = lists.lexical.entries.iter().map(|entry| entry.relevance).fold(0.0, f64::max);
        let words = share_of_words(lists.lexical_weight, covered, lists.coverage);
        let places = |is_all| if is_all { lists.places } else { 0 };
        let buckets = [
            Bucket {
                name: "lexical",
                weight: words,
                hits: &worded,
                min_score: None,
                places: places(lists.lexical.exhausted),
                floor: 0.0,
            },
            Bucket {
                name: "vector",
                weight: 1.0 - words,
                hits: &meant,
                min_score: None,
                places: places(lists.exhausted),
                floor: lists.unrelated,
            },
        ];
        let fused = fuse::fuse(&buckets, lists.method);
        let mut entries: Vec<Entry> = Vec::new();
        let mut pinned = Vec::new();
        for id in lists.pinned {
            if !pinned.contains(&name(*id)) {
                pinned.push(name(*id));
                entries.push(Entry { id: *id, score: 1.0, relevance: 1.0, pinned: true, ..Entry::default() });
            }
        }
        for item in fused {
            let word = by_words.get(&item.document_id);
            let hit = by_meaning.get(&item.document_id).map(|(hit, _)| *hit);
            let place = |at: usize| item.ranks.get(at).copied().flatten();
            let part = |at: usize| item.parts.get(at).copied().unwrap_or(0.0);
            let id = word.map(|entry| entry.id).or(hit.map(|hit| hit.id)).unwrap_or(item.document_id);
            let by_words = word.map_or(0.0, |entry| entry.relevance);
            let by_meaning = hit.map_or(0.0, |hit| hit.relevance);
            let found = Entry {
                id,
                score: item.relative,
                relevance: by_words.max(by_meaning),
                fts_rank: word.and_then(|entry| entry.fts_rank),
                bm25: word.and_then(|entry| entry.bm25),
                pinned: false,
                vector_rank: place(1),
                cosine: hit.map(|hit| hit.cosine),
                // A passage has its place in its own document only.
                chunk_id: hit.filter(|hit| hit.id == id).map(|hit| hit.chunk_id),
                fused: Some(Fusion { lexical: part(0), vector: part(1), sum: item.score }),
                ..Entry::default()
            };
            match pinned.iter().position(|name| *name == item.document_id) {
                Some(at) => {
                    if let Some(entry) = entries.get_mut(at) {
                        let chunk_id = found.chunk_id.filter(|_| hit.is_some_and(|hit| hit.id == entry.id));
                        *entry = Entry {
                            id: entry.id,
                            score: 1.0,
                            relevance: 1.0,
                            pinned: true,
                            chunk_id,
                            ..found
                        };
                    }
                }
                None => entries.push(found),
            }
        }
        Self { entries, exhausted: lists.lexical.exhausted && lists.exhausted }
    }

    /// Adds results by words that were too deep for the list; none of them scores more than
    /// `ceiling`.
    pub(super) fn extend(&mut self, deeper: Self, items: Option<&BTreeMap<i64, ItemKey>>, ceiling: f64) {
        let key = |id: i64| match items.and_then(|items| items.get(&id)) {
            Some(item) => (i64::from(item.merge_request), item.item_id),
            None => (-1, id),
        };
        let mut known: BTreeSet<(i64, i64)> = self.entries.iter().map(|entry| key(entry.id)).collect();
        for entry in deeper.entries {
            if known.insert(key(entry.id)) {
                self.entries.push(Entry { score: entry.score.min(ceiling), ..entry });
            }
        }
    }
}

/// Share of the words in a fused score: the configured one when the best document by words
/// reaches half of the score that is possible; less when no document holds what the query
/// asks for in these words, and more when one holds nearly all. 0 and 1 stay what they are.
fn share_of_words(configured: f64, covered: f64, coverage: f64) -> f64 {
    let odds = (coverage * (covered - 0.5)).exp();
    let share = configured * odds / (configured * odds + (1.0 - configured));
    if share.is_finite() { share } else { configured }
}

/// Share of the best score. A list without scores (the newest first) has 1 everywhere.
fn relative(score: f64, best: f64) -> f64 {
    if best > 0.0 { (score / best).clamp(0.0, 1.0) } else { 1.0 }
}

/// Share of the greatest score that is possible: low when rare words of the query are
/// missing, whatever the other results are.
fn relevance(score: f64, mass: f64) -> f64 {
    if mass > 0.0 { (score / mass).clamp(0.0, 1.0) } else { score.max(0.0) / (score.max(0.0) + RAW_HALF) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(scores: &[(i64, f64)]) -> Vec<Scored> {
        scores.iter().map(|(id, score)| Scored { id: *id, score: *score }).collect()
    }

    #[test]
    fn an_item_is_one_result_and_its_best_hit_stands_for_it() {
        let item = |item_id| ItemKey { merge_request: false, item_id, is_discussion: false };
        let items = [(1, item(10)), (2, item(20)), (3, item(10)), (4, item(20))];
        let found = hits(&[(3, 4.0), (2, 2.0), (1, 1.0), (4, 0.5)]);
        let ranking = Ranking::new(&[], &found, 8.0, Some(&items), 0.5, true);
        let ids: Vec<i64> = ranking.entries.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [3, 2]);
        assert_eq!(ranking.entries[0].score, 1.0);
        assert_eq!(ranking.entries[0].relevance, 0.5);
        assert_eq!(ranking.entries[1].score, 0.5);
        assert_eq!(Ranking::new(&[], &found, 8.0, None, 0.5, true).entries.len(), 4);
    }

    #[test]
    fn a_discussion_counts_less_and_only_settled_places_are_given() {
        let item = |item_id, is_discussion| ItemKey { merge_request: false, item_id, is_discussion };
        let items = [(1, item(10, true)), (2, item(20, false)), (3, item(30, true)), (4, item(10, false))];
        let found = hits(&[(1, 8.0), (2, 5.0), (3, 4.5), (4, 3.0)]);
        let ids = |found: &[Scored], exhausted| {
            let ranking = Ranking::new(&[], found, 9.0, Some(&items), 0.5, exhausted);
            ranking.entries.iter().map(|entry| entry.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(&found, true), [2, 1, 3]);
        assert_eq!(ids(&found[..3], false), [2], "a further hit may score 4.5");
        assert_eq!(ids(&found, false), [2, 1], "a further hit may score 3");
    }

    #[test]
    fn what_is_named_comes_first_and_once() {
        let found = hits(&[(3, 4.0), (2, 2.0)]);
        let ranking = Ranking::new(&[2, 9], &found, 8.0, None, 0.5, true);
        let ids: Vec<i64> = ranking.entries.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [2, 9, 3]);
        assert_eq!(ranking.entries[0].fts_rank, Some(2));
        assert_eq!(ranking.entries[1].fts_rank, None);
        assert!(ranking.entries.is_sorted_by(|a, b| a.score >= b.score));
    }

    fn meant(hits: &[(i64, f64)]) -> Vec<Meant> {
        hits.iter()
            .map(|(id, relevance)| Meant {
                id: *id,
                chunk_id: id * 10,
                cosine: *relevance,
                relevance: *relevance,
                score: *relevance,
            })
            .collect()
    }

    fn fuse_all(
        pinned: &[i64],
        lexical: &Ranking,
        vector: &[Meant],
        items: &BTreeMap<i64, ItemKey>,
    ) -> Ranking {
        Ranking::fused(&Lists {
            pinned,
            lexical,
            vector,
            items: (!items.is_empty()).then_some(items),
            discussion: 1.0,
            method: Method::MinMax,
            lexical_weight: 0.7,
            coverage: 2.0,
            places: 0,
            unrelated: 0.0,
            exhausted: true,
        })
    }

    #[test]
    fn words_count_by_what_they_reach_and_the_extremes_stay() {
        assert!((share_of_words(0.6, 0.5, 2.0) - 0.6).abs() < 1e-12);
        assert!(share_of_words(0.6, 0.1, 2.0) < 0.45 && share_of_words(0.6, 1.0, 2.0) > 0.75);
        for covered in [0.0, 0.3, 1.0] {
            assert_eq!((share_of_words(0.0, covered, 2.0), share_of_words(1.0, covered, 2.0)), (0.0, 1.0));
        }
    }

    #[test]
    fn a4_04_an_item_that_both_lists_hold_through_different_documents_is_one_result() {
        let item = |item_id, is_discussion| ItemKey { merge_request: false, item_id, is_discussion };
        let items = BTreeMap::from([
            (1, item(10, false)),
            (2, item(10, true)),
            (3, item(20, false)),
            (4, item(30, false)),
        ]);
        let all: Vec<(i64, ItemKey)> = items.iter().map(|(id, item)| (*id, *item)).collect();
        let lexical = Ranking::new(&[], &hits(&[(1, 6.0), (3, 2.0)]), 8.0, Some(&all), 0.5, true);
        let ranking = fuse_all(&[], &lexical, &meant(&[(4, 0.9), (2, 0.8), (1, 0.3)]), &items);
        let ids: Vec<i64> = ranking.entries.iter().map(|entry| entry.id).collect();
        assert_eq!(ids, [1, 4, 3]);
        let first = &ranking.entries[0];
        assert_eq!((first.fts_rank, first.vector_rank, first.cosine), (Some(1), Some(2), Some(0.8)));
        assert_eq!(first.chunk_id, None, "the nearest passage is in another document");
        assert_eq!(ranking.entries[1].chunk_id, Some(40));
        assert_eq!(first.score, 1.0);
        assert_eq!(first.relevance, 0.8, "the greater of 6/8 and 0.8");
        assert_eq!(ranking.entries[1].fts_rank, None);
        let parts = first.fused.unwrap();
        assert!((parts.lexical + parts.vector - parts.sum).abs() < 1e-12);
    }

    #[test]
    fn what_is_named_stays_first_and_deeper_results_follow_once() {
        let none = BTreeMap::new();
        let lexical = Ranking::new(&[], &hits(&[(5, 6.0), (7, 2.0)]), 8.0, None, 0.5, false);
        let mut ranking = fuse_all(&[7, 9], &lexical, &meant(&[(7, 0.9), (5, 0.2)]), &none);
        let ids = |ranking: &Ranking| ranking.entries.iter().map(|entry| entry.id).collect::<Vec<_>>();
        assert_eq!(ids(&ranking), [7, 9, 5]);
        assert_eq!((ranking.entries[0].vector_rank, ranking.entries[0].pinned), (Some(1), true));
        assert!(!ranking.exhausted);
        let deeper = Ranking::new(&[], &hits(&[(5, 6.0), (7, 2.0), (8, 1.0)]), 8.0, None, 0.5, true);
        ranking.extend(deeper, None, 0.0);
        assert_eq!(ids(&ranking), [7, 9, 5, 8]);
        assert!(ranking.entries.is_sorted_by(|a, b| a.score >= b.score));
    }
}
