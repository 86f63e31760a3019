//! What happens to scores after fusion: bonuses, boosts, penalties, the reranker's word. Pure.
//!
//! Each change is kept with the entry, so that an explanation can show how the score came to
//! be. Sorting is stable: what scores the same keeps the order that fusion gave it, which is
//! total.

use std::collections::BTreeMap;

use super::rank::Entry;
use crate::clock::Millis;
use crate::store::search::graph::Facts;

/// Passes over chains of moved items.
const CHAIN: usize = 4;

/// A change of a score.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// Why.
    pub name: &'static str,
    /// How.
    pub change: Change,
}

/// How a score is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Multiplied.
    Times(f64),
    /// Added to.
    Plus(f64),
    /// Lowered to what this much of another result's score is, if it was higher.
    AtMost(f64),
}

/// The neighbour of a result that brought it in, or lifted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Document that stands for the neighbour.
    pub from: i64,
    /// What it has to do with the neighbour: `closed by`, `mentions`.
    pub phrase: &'static str,
    /// Steps from a result that was found.
    pub depth: usize,
}

/// Coefficients of boosts and penalties; 1 changes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Boosts {
    /// Share of its parent's score that a neighbour gets.
    pub neighbour: f64,
    /// Results from which neighbours are looked for.
    pub parents: usize,
    /// Neighbours of one item.
    pub neighbours: usize,
    /// For items that many others refer to.
    pub hub: f64,
    /// References from other items that make a hub.
    pub hub_least: usize,
    /// Whether the state of an item counts.
    pub by_state: bool,
    /// Open.
    pub active: f64,
    /// Draft or blocked.
    pub pending: f64,
    /// Closed.
    pub stale: f64,
    /// Age, in milliseconds since the last change, at which a score is halved.
    pub half_life: Option<Millis>,
    /// Outside of the home projects.
    pub away: f64,
    /// Share of its copy's score that a moved item has at most.
    pub moved: f64,
}

impl Entry {
    fn times(&mut self, name: &'static str, factor: f64) {
        if (factor - 1.0).abs() > f64::EPSILON {
            self.score *= factor;
            self.factors.push(Factor { name, change: Change::Times(factor) });
        }
    }
}

/// Adds to what holds a literal of the query letter by letter.
pub(super) fn literals(entries: &mut [Entry], held: &BTreeMap<i64, f64>) {
    for entry in entries.iter_mut().filter(|entry| !entry.pinned) {
        if let Some(bonus) = held.get(&entry.id).copied().filter(|bonus| *bonus > 0.0) {
            entry.score += bonus;
            entry.relevance = entry.relevance.max(bonus.min(1.0));
            entry.factors.push(Factor { name: "literal", change: Change::Plus(bonus) });
        }
    }
}

/// BOOST: by state and age.
pub(super) fn boost(entries: &mut [Entry], facts: &BTreeMap<i64, Facts>, boosts: &Boosts, now: Millis) {
    for entry in entries.iter_mut().filter(|entry| !entry.pinned) {
        let Some(facts) = facts.get(&entry.id) else { continue };
        if boosts.by_state {
            let (name, factor) = match facts.state.as_str() {
                "opened" if facts.waits => ("pending", boosts.pending),
                "opened" => ("active", boosts.active),
                "closed" => ("stale", boosts.stale),
                // Merged: neither under way nor given up.
                _ => ("merged", 1.0),
            };
            entry.times(name, factor);
        }
        if let (Some(half_life), Some(updated_at)) = (boosts.half_life.filter(|it| *it > 0), facts.updated_at)
        {
            #[expect(clippy::cast_precision_loss, reason = "times are far below 2^52")]
            let halves = now.saturating_sub(updated_at).max(0) as f64 / half_life as f64;
            entry.times("recency", 0.5_f64.powf(halves));
        }
    }
}

/// The penalty of what lies outside of the home projects.
pub(super) fn home(
    entries: &mut [Entry],
    facts: &BTreeMap<i64, Facts>,
    away: f64,
    is_home: impl Fn(&str) -> bool,
) {
    for entry in entries.iter_mut().filter(|entry| !entry.pinned) {
        if facts.get(&entry.id).is_some_and(|facts| !is_home(&facts.project_path)) {
            entry.times("away", away);
        }
    }
}

/// The bonus of items that many refer to.
pub(super) fn hubs(entries: &mut [Entry], counts: &BTreeMap<i64, usize>, boosts: &Boosts) {
    for entry in entries.iter_mut().filter(|entry| !entry.pinned) {
        if counts.get(&entry.id).is_some_and(|count| *count >= boosts.hub_least) {
            entry.times("hub", boosts.hub);
        }
    }
}

/// What was moved stands below what it became, whatever else speaks for it. `moved` holds
/// places in `entries`: of the original, and of the copy.
pub(super) fn below_copies(entries: &mut [Entry], moved: &[(usize, usize)], share: f64) {
    for _ in 0..CHAIN {
        let mut changed = false;
        for (original, copy) in moved.iter().filter(|(original, copy)| original != copy) {
            let Some(most) =
                entries.get(*copy).map(|copy| if copy.pinned { 1.0 } else { copy.score } * share)
            else {
                continue;
            };
            let Some(entry) = entries.get_mut(*original).filter(|entry| !entry.pinned) else { continue };
            if entry.score > most {
                entry.score = most;
                entry.factors.retain(|factor| factor.name != "moved");
                entry.factors.push(Factor { name: "moved", change: Change::AtMost(share) });
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

/// Puts what is named first and the rest by falling score, the best of which becomes 1.
pub(super) fn settle(entries: &mut [Entry]) {
    let key = |entry: &Entry| if entry.pinned { f64::INFINITY } else { entry.score };
    entries.sort_by(|a, b| key(b).total_cmp(&key(a)));
    let best = entries.iter().find(|entry| !entry.pinned).map_or(0.0, |entry| entry.score);
    if best > 0.0 {
        for entry in entries.iter_mut().filter(|entry| !entry.pinned) {
            entry.score = (entry.score / best).clamp(0.0, 1.0);
        }
    }
}

/// Scores of a reranker on a scale from 0 to 1, whatever theirs is: the best gets 1, the worst
/// 0, and what lies between keeps its distance. What has no score, or none that is a number,
/// gets none.
pub(super) fn normalised(scores: &[Option<f64>]) -> Vec<Option<f64>> {
    let finite = || scores.iter().flatten().copied().filter(|score| score.is_finite());
    let (least, most) =
        finite().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)));
    // Halved first: the distance of two great numbers may be none that can be held.
    let range = most / 2.0 - least / 2.0;
    scores
        .iter()
        .map(|score| {
            let score = score.filter(|score| score.is_finite())?;
            Some(if range > 0.0 { ((score / 2.0 - least / 2.0) / range).clamp(0.0, 1.0) } else { 0.5 })
        })
        .collect()
}

/// RERANK: mixes the reranker's scores into the first results that are not named, in their
/// order; `scores` has one for each of them. Those without a score keep their place. What
/// follows stays below.
pub(super) fn rerank(entries: &mut Vec<Entry>, scores: &[Option<f64>], weight: f64) {
    let first = entries.iter().take_while(|entry| entry.pinned).count();
    let head_len = scores.len().min(entries.len() - first);
    let mut tail = entries.split_off(first + head_len);
    let head = entries.split_off(first);
    let best = head.iter().map(|entry| entry.score).fold(0.0_f64, f64::max);
    let normal = normalised(scores.get(..head_len).unwrap_or_default());
    let mut scored = Vec::new();
    let mut places: Vec<Option<Entry>> = Vec::new();
    for ((mut entry, score), normal) in head.into_iter().zip(scores).zip(normal) {
        let fusion = if best > 0.0 { entry.score / best } else { 0.0 };
        if let (Some(normal), Some(score)) = (normal, score) {
            entry.score = (1.0 - weight) * fusion + weight * normal;
            entry.reranked = Some(*score);
            scored.push(entry);
            places.push(None);
        } else {
            entry.score = fusion;
            places.push(Some(entry));
        }
    }
    scored.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut scored = scored.into_iter();
    let mut least = f64::INFINITY;
    for place in places {
        if let Some(mut entry) = place.or_else(|| scored.next()) {
            entry.score = entry.score.min(least);
            least = entry.score;
            entries.push(entry);
        }
    }
    let most = tail.iter().map(|entry| entry.score).fold(0.0_f64, f64::max);
    if most > least && most > 0.0 {
        for entry in &mut tail {
            // Rounding must not lift it above.
            entry.score = (entry.score * (least / most)).min(least);
        }
    }
    entries.append(&mut tail);
}

#[cfg(test)]
mod tests;
