//! What is told of a whole answer: facets, and names that the words of the query are.

use std::collections::BTreeSet;

use super::Mode;
use super::funnel::Funnel;
use super::lexical::Plan;
use super::rank::Ranking;
use super::retrieve::excluded;
use super::words::is_stop_word;
use crate::content::filter::Bitset;
use crate::error::Result;
use crate::store::search::facets::{Facets, facets};
use crate::store::search::hints::{Known, named};
use crate::store::search::{self as sql};

impl Funnel<'_> {
    /// Facets over everything that the query finds, whatever page is asked for. With a least
    /// score, over what scores so much.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn facets(&mut self, plan: &Plan, ranking: &Ranking, mode: Mode) -> Result<Option<Facets>> {
        if !self.request.options.facets {
            return Ok(None);
        }
        let (tx, request) = (self.tx, self.request);
        let least = request.min_score.unwrap_or(f64::NEG_INFINITY);
        let mut set = Bitset::from_ids(
            ranking.entries.iter().filter(|entry| entry.score >= least).map(|entry| entry.id),
        );
        if request.min_score.is_none() && mode != Mode::Semantic {
            let mut found = match &plan.expression {
                Some(expression) => sql::matching(tx, expression)?,
                None => Bitset::default(),
            };
            if self.query.filter_only(request.raw) {
                found = sql::everything(tx)?;
                if let Some(excluded) = excluded(tx, &self.query)? {
                    found.subtract(&excluded);
                }
            }
            if let Some(allowed) = &self.allowed {
                found.intersect(allowed);
            }
            set.unite(&found);
        }
        let by_item = request.group == super::Group::Item;
        self.stages.time("facets", |_| facets(tx, &set, by_item).map(Some))
    }

    /// Names of visible projects, labels, users, milestones and paths that the query's words
    /// are: the filters that one might mean. They change nothing; asked for with explanations.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn hints(&mut self) -> Result<Vec<Known>> {
        if !self.request.options.explain {
            return Ok(Vec::new());
        }
        let words = self.query.words.iter().filter(|word| !is_stop_word(word)).cloned();
        let tokens = self.query.tokens.iter().chain(&self.query.pins).map(|token| {
            token.trim_matches(|c: char| matches!(c, '.' | ',' | ';' | '?' | '!' | '(' | ')')).to_lowercase()
        });
        let words: BTreeSet<String> =
            words.chain(tokens).filter(|word| word.chars().nth(1).is_some() && !is_stop_word(word)).collect();
        let words: Vec<String> = words.into_iter().collect();
        if words.is_empty() {
            return Ok(Vec::new());
        }
        let (tx, scope, known) = (self.tx, &self.request.scope, &self.known);
        let (visible, _) = self.sight()?;
        self.stages.time("vocabulary", |_| {
            let mut out = Vec::new();
            for project in known.projects.iter().filter(|project| scope.allows(&project.path)) {
                let path = project.path.to_lowercase();
                let last = path.rsplit('/').next().unwrap_or_default();
                if words.iter().any(|word| *word == path || word == last) {
                    out.push(Known { operator: "project", name: project.path.clone() });
                }
            }
            out.extend(named(tx, &words, &visible)?);
            Ok(out)
        })
    }
}
