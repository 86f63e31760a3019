//! What is done to the fused list: LITERAL's bonus, GRAPH, BOOST, and the penalties after
//! RERANK. All of it works on the same list whatever page is asked for.

use std::collections::BTreeMap;

use super::funnel::Funnel;
use super::lexical::Term;
use super::literal::holds;
use super::rank::Ranking;
use super::stage::Status;
use super::{Group, adjust, filter, graph};
use crate::error::Result;
use crate::store::search::graph::{Facts, Sight, facts, incoming_counts, moved, texts};
use crate::store::search::{self as sql, ItemKey};

/// Entries that are looked at for being hubs.
const HUBS_AMONG: usize = 50;

impl Funnel<'_> {
    /// Whether the results have no order but that of time.
    fn is_listing(&self) -> bool {
        self.query.filter_only(self.request.raw)
    }

    /// LITERAL's bonus, GRAPH and BOOST.
    pub(super) fn refine(&mut self, ranking: &mut Ranking) -> Result<()> {
        let (tx, request) = (self.tx, self.request);
        if !self.is_listing() && self.query.pins_bind() {
            self.verbatim(ranking)?;
        }
        let options = &request.options;
        if options.depth == 0 {
            self.stages.note("graph", Status::Disabled);
        } else if self.is_listing() || request.raw || self.query.wanted.in_title || ranking.entries.is_empty()
        {
            self.stages.note("graph", Status::Skipped);
        } else {
            let (visible, _) = self.sight()?;
            let allowed = match self.binding()? {
                Some(allowed) => allowed,
                None => sql::everything(tx)?,
            };
            let sight = Sight { visible: &visible, allowed: &allowed };
            let grouped = request.group == Group::Item;
            self.stages.time("graph", |status| {
                let boosts = &request.settings.boosts;
                let touched = graph::expand(tx, &mut ranking.entries, grouped, sight, options.depth, boosts)?;
                if touched == 0 {
                    *status = Status::Skipped;
                }
                Ok(())
            })?;
        }
        let boosts = &request.settings.boosts;
        if self.is_listing() || !(boosts.by_state || boosts.half_life.is_some()) {
            let status = if self.is_listing() { Status::Skipped } else { Status::Disabled };
            self.stages.note("boost", status);
        } else {
            let facts = self.facts(ranking, "boost")?;
            adjust::boost(&mut ranking.entries, &facts, boosts, request.now);
        }
        if !self.is_listing() {
            adjust::settle(&mut ranking.entries);
        }
        Ok(())
    }

    /// Lifts what holds the literals of the query letter by letter.
    fn verbatim(&mut self, ranking: &mut Ranking) -> Result<()> {
        let (tx, pins) = (self.tx, &self.query.pins);
        let ids: Vec<i64> = ranking.entries.iter().map(|entry| entry.id).collect();
        let held = self.stages.time("literal", |_| {
            let mut held = BTreeMap::new();
            texts(tx, &ids, |id, parts| {
                held.insert(id, holds(pins, &parts));
            })?;
            Ok(held)
        })?;
        adjust::literals(&mut ranking.entries, &held);
        Ok(())
    }

    fn facts(&mut self, ranking: &Ranking, stage: &'static str) -> Result<BTreeMap<i64, Facts>> {
        let tx = self.tx;
        let ids: Vec<i64> = ranking.entries.iter().map(|entry| entry.id).collect();
        self.stages.time(stage, |_| Ok(facts(tx, &ids)?.into_iter().collect()))
    }

    /// Penalties and bonuses after RERANK: home, hubs, moved items.
    pub(super) fn penalise(&mut self, ranking: &mut Ranking) -> Result<()> {
        if self.is_listing() || ranking.entries.is_empty() {
            self.stages.note("penalties", Status::Skipped);
            return Ok(());
        }
        let (tx, request) = (self.tx, self.request);
        let boosts = &request.settings.boosts;
        if let Some(home) = &request.options.home {
            let facts = self.facts(ranking, "penalties")?;
            adjust::home(&mut ranking.entries, &facts, boosts.away, |path| {
                home.iter().any(|pattern| filter::matches(pattern, path))
            });
        }
        let (visible, allowed) = self.sight()?;
        self.stages.time("penalties", |_| {
            let sight = Sight { visible: &visible, allowed: &allowed };
            let ids: Vec<i64> = ranking.entries.iter().map(|entry| entry.id).collect();
            if (boosts.hub - 1.0).abs() > f64::EPSILON {
                let first: Vec<i64> = ids.iter().copied().take(HUBS_AMONG).collect();
                let counts = incoming_counts(tx, &first, &visible, boosts.hub_least)?;
                adjust::hubs(&mut ranking.entries, &counts.into_iter().collect(), boosts);
            }
            let pairs = moved(tx, &ids, sight)?;
            if !pairs.is_empty() {
                let all: Vec<i64> = ids.iter().copied().chain(pairs.iter().map(|(_, copy)| *copy)).collect();
                let items: BTreeMap<i64, ItemKey> = sql::items(tx, &all)?.into_iter().collect();
                let key = |id: i64| items.get(&id).map(|item| (item.merge_request, item.item_id));
                let place = |id: i64| ids.iter().position(|known| key(*known) == key(id));
                let originals = ids.iter().enumerate();
                let places: Vec<(usize, usize)> = originals
                    .flat_map(|(at, id)| {
                        pairs.iter().filter(move |(from, _)| from == id).map(move |pair| (at, pair.1))
                    })
                    .filter_map(|(at, copy)| Some((at, place(copy)?)))
                    .collect();
                adjust::below_copies(&mut ranking.entries, &places, boosts.moved);
            }
            adjust::settle(&mut ranking.entries);
            Ok(())
        })
    }

    /// The words of the query with the documents that hold them, as far as these may be
    /// seen. Counting takes its time: only when it is told.
    pub(super) fn told_terms(&self, terms: Vec<Term>, is_telling: bool) -> Result<Vec<Term>> {
        if !is_telling {
            return Ok(Vec::new());
        }
        let Some(visible) = &self.visible else { return Ok(terms) };
        let mut told = Vec::new();
        for mut term in terms {
            term.documents = sql::frequency_in(self.tx, &term.expression, visible)?;
            term.used &= term.documents > 0;
            // A derived term is told when something holds it.
            if term.used || !term.is_derived {
                told.push(term);
            }
        }
        Ok(told)
    }
}
