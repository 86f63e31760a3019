//! GRAPH: what the best results refer to, and what refers to them.
//!
//! Every step obeys the filter: a reference counts when the document that holds it may be
//! seen, and leads to what may be answered. What may not be answered is no bridge either.

use std::collections::BTreeMap;

use super::adjust::{Boosts, Hop};
use super::rank::Entry;
use crate::content::refs::RefKind;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::search::graph::{Sight, links};
use crate::store::search::{self as sql, ItemKey};

/// Results from which neighbours are looked for, unless told otherwise.
///
/// Measured: twice as many parents and neighbours lost 0.4 % of nDCG@10 where references are
/// noise.
pub const PARENTS: usize = 5;

/// Neighbours of one item, unless told otherwise.
pub const NEIGHBOURS: usize = 3;

/// Items from which a further step is taken.
const FRONTIER: usize = 30;

/// Greatest number of steps.
pub const MAX_DEPTH: usize = 3;

/// A result or a neighbour from which a step is taken.
struct Parent {
    id: i64,
    item: ItemKey,
    score: f64,
    relevance: f64,
}

/// What an item is known by among the results.
type Key = (bool, i64);

/// Adds the neighbours of the first entries, and lifts those that are there already. With
/// `grouped` an item is one entry. Returns the number of items added or lifted.
///
/// # Errors
/// Those of SQLite.
pub(super) fn expand(
    tx: &ReadTx<'_>,
    entries: &mut Vec<Entry>,
    grouped: bool,
    sight: Sight<'_>,
    depth: usize,
    boosts: &Boosts,
) -> Result<usize> {
    let ids: Vec<i64> = entries.iter().map(|entry| entry.id).collect();
    let items: BTreeMap<i64, ItemKey> = sql::items(tx, &ids)?.into_iter().collect();
    let key = |item: &ItemKey, id: i64| -> Key {
        if grouped { (item.merge_request, item.item_id) } else { (false, id) }
    };
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Some(item) = items.get(&entry.id) {
            places.entry(key(item, entry.id)).or_insert(at);
        }
    }
    let mut frontier: Vec<Parent> = Vec::new();
    for entry in entries.iter() {
        let Some(item) = items.get(&entry.id).copied() else { continue };
        if frontier.len() < boosts.parents && !frontier.iter().any(|parent| is_same(parent.item, item)) {
            frontier.push(Parent { id: entry.id, item, score: entry.score, relevance: entry.relevance });
        }
    }
    let mut touched = 0;
    for step in 1..=depth.min(MAX_DEPTH) {
        let mut next = Vec::new();
        for parent in &frontier {
            for link in links(tx, parent.item, sight, boosts.neighbours)? {
                // What an item became is that item.
                let became = link.kind == RefKind::Moved && !link.incoming;
                let share = if became { 1.0 } else { boosts.neighbour };
                let score = parent.score * share;
                let hop = Hop { from: parent.id, phrase: link.seen_from_there(), depth: step };
                let item = link.key;
                match places.get(&key(&item, link.document_id)) {
                    Some(at) => {
                        if let Some(entry) = entries.get_mut(*at)
                            && !entry.pinned
                            && entry.score < score
                        {
                            entry.score = score;
                            entry.relevance = entry.relevance.max(parent.relevance * share);
                            entry.hop = Some(hop);
                            touched += 1;
                        }
                    }
                    None if score > 0.0 => {
                        places.insert(key(&item, link.document_id), entries.len());
                        let relevance = parent.relevance * share;
                        entries.push(Entry {
                            id: link.document_id,
                            score,
                            relevance,
                            hop: Some(hop),
                            ..Entry::default()
                        });
                        next.push(Parent { id: link.document_id, item, score, relevance });
                        touched += 1;
                    }
                    None => {}
                }
            }
        }
        next.truncate(FRONTIER);
        frontier = next;
    }
    Ok(touched)
}

fn is_same(a: ItemKey, b: ItemKey) -> bool {
    (a.merge_request, a.item_id) == (b.merge_request, b.item_id)
}
