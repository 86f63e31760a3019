//! The retrievers of a query: LITERAL, LEXICAL, VECTOR, and FUSE.

use std::collections::BTreeMap;

use super::feedback;
use super::funnel::Funnel;
use super::fuse::Method;
use super::lexical::{self, Needles};
use super::meaning::{self, Found, Meaning};
use super::parse::Query;
use super::rank::{Lists, Meant, Ranking};
use super::stage::Status;
use super::{Group, Loosened, Mode, Request};
use super::{filter, stem, words};
use crate::content::filter::Bitset;
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::search::{self as sql, ItemKey};

/// Filters that are tried without at most: each is a search of its own.
const MAX_LOOSENED: usize = 16;

/// Results of the list that is boosted, reranked and expanded, at least.
const MIN_HEAD: usize = 50;

impl Funnel<'_> {
    /// Says why words alone answer.
    pub(super) fn without_meaning(&mut self, meaning: &Meaning) {
        self.stages.note("vector", meaning.status);
        self.stages.add("vector", meaning.elapsed);
        self.stages.sent("vector", meaning.requests);
        self.stages.note("fuse", Status::Skipped);
        if let Some(error) = &meaning.error {
            let hints: Vec<&str> = error.hints().iter().map(String::as_str).collect();
            let hints = if hints.is_empty() { String::new() } else { format!(" ({})", hints.join("; ")) };
            self.warnings.push(format!("answered by words alone: {}{hints}", error.full_message()));
        } else if meaning.status == Status::Disabled {
            self.warnings
                .push("no embeddings are stored: answered by words alone (run `lore embed`)".to_owned());
        }
    }

    /// VECTOR and FUSE. Both lists are as deep as the configuration says, whatever page is
    /// asked for.
    pub(super) fn fused(
        &mut self,
        plan: &lexical::Plan,
        pinned: &[i64],
        found: &Found,
        meaning: &Meaning,
    ) -> Result<Ranking> {
        let depth = self.request.settings.candidates;
        let by_words = self.request.mode == Mode::Hybrid;
        let lexical = if by_words {
            self.lexical_once(plan, &[], depth)?
        } else {
            self.stages.note("lexical", Status::Skipped);
            Ranking { entries: Vec::new(), exhausted: true }
        };
        self.words_exhausted = lexical.exhausted;
        let allowed = self.binding()?;
        let tx = self.tx;
        let (mut hits, exhausted) =
            self.stages.time("vector", |_| meaning::nearest(tx, found, allowed.as_ref(), depth))?;
        self.stages.add("vector", meaning.elapsed);
        self.stages.sent("vector", meaning.requests);
        let (request, corpus) = (self.request, self.corpus);
        self.stages.time("fuse", |_| {
            let ids: Vec<i64> = pinned
                .iter()
                .copied()
                .chain(lexical.entries.iter().map(|entry| entry.id))
                .chain(hits.iter().map(|hit| hit.id))
                .collect();
            let items: Option<BTreeMap<i64, ItemKey>> = match request.group {
                Group::Item => Some(sql::items(tx, &ids)?.into_iter().collect()),
                Group::None => None,
            };
            let existing = match request.group {
                Group::Item => corpus.items,
                Group::None => corpus.documents,
            };
            let existing = usize::try_from(existing).unwrap_or(usize::MAX);
            let fuse = |hits: &[Meant]| {
                Ranking::fused(&Lists {
                    pinned,
                    lexical: &lexical,
                    vector: hits,
                    items: items.as_ref(),
                    discussion: request.settings.discussion_meaning,
                    // Without words there is nothing to be put on one scale with.
                    method: if by_words { request.settings.fusion } else { Method::Share },
                    lexical_weight: if by_words { request.settings.lexical_weight } else { 0.0 },
                    coverage: request.settings.coverage,
                    places: depth.min(existing),
                    unrelated: meaning::UNRELATED,
                    exhausted,
                })
            };
            let ranking = fuse(&hits);
            let strength = feedback::strength(&request.text, request.settings.feedback);
            if !by_words || strength <= 0.0 {
                return Ok(ranking);
            }
            let leaders = ranking.entries.iter().filter_map(|entry| Some((entry.id, entry.fused?.sum)));
            let leaders: Vec<(i64, f64)> = leaders.take(feedback::LEADERS).collect();
            feedback::apply(tx, found, &leaders, strength, &mut hits)?;
            Ok(fuse(&hits))
        })
    }

    /// Adds results by words that are deeper than the list, for a page far down.
    pub(super) fn deepen(
        &mut self,
        plan: &lexical::Plan,
        ranking: &mut Ranking,
        wanted: usize,
    ) -> Result<()> {
        let is_short = ranking.entries.len() < wanted;
        if !is_short || self.words_exhausted || self.request.mode == Mode::Semantic {
            return Ok(());
        }
        let deeper = self.lexical(plan, &[], wanted.saturating_add(ranking.entries.len()))?;
        let by_meaning_too = ranking.entries.iter().any(|entry| entry.fused.is_some());
        let least = ranking.entries.iter().map(|entry| entry.score).fold(1.0, f64::min);
        let items: Option<BTreeMap<i64, ItemKey>> = match self.request.group {
            Group::Item => {
                let known = ranking.entries.iter().map(|entry| entry.id);
                let ids: Vec<i64> = known.chain(deeper.entries.iter().map(|entry| entry.id)).collect();
                Some(sql::items(self.tx, &ids)?.into_iter().collect())
            }
            Group::None => None,
        };
        // Of two lists only the words go deeper: the end of the other is not known.
        ranking.exhausted = deeper.exhausted && (!by_meaning_too || ranking.exhausted);
        ranking.extend(deeper, items.as_ref(), if by_meaning_too { 0.0 } else { least });
        Ok(())
    }

    /// The list that is fused, boosted, reranked and expanded is the same whatever page is asked
    /// for, and has an end: a page beyond it says so.
    pub(super) fn say_where_the_head_ends(&mut self, head: usize, ranking: &Ranking) {
        let last = self.request.offset.saturating_add(self.request.limit).min(ranking.entries.len());
        if last <= head || self.query.filter_only(self.request.raw) {
            return;
        }
        self.warnings.push(format!(
            "results after the first {head} are ordered by their words alone: meaning, boosts, penalties and reranking reach as far as `candidates` in [query]"
        ));
    }

    /// Documents that may be found in another way than by words: what must or must not match
    /// binds there too.
    pub(super) fn binding(&self) -> Result<Option<Bitset>> {
        let (tx, query) = (self.tx, &self.query);
        let mut allowed = self.allowed.clone();
        for clause in &query.required {
            let holding = sql::matching(tx, &lexical::clause_expression(clause).0)?;
            match &mut allowed {
                Some(allowed) => allowed.intersect(&holding),
                None => allowed = Some(holding),
            }
        }
        if let Some(excluded) = excluded(tx, query)? {
            let mut rest = match allowed {
                Some(allowed) => allowed,
                None => sql::everything(tx)?,
            };
            rest.subtract(&excluded);
            allowed = Some(rest);
        }
        Ok(allowed)
    }

    /// The expression and its weights.
    pub(super) fn plan(&mut self) -> Result<lexical::Plan> {
        let (tx, corpus, query) = (self.tx, self.corpus.documents, &self.query);
        if self.request.raw {
            return Ok(raw_plan(&self.request.text));
        }
        self.stages.time("terms", |_| {
            lexical::plan(query, corpus, &mut |expression, cap| sql::frequency(tx, expression, cap))
        })
    }

    /// LITERAL: items that are named come first.
    pub(super) fn literal(&mut self, plan: &lexical::Plan) -> Result<Vec<i64>> {
        if self.query.references.is_empty() && !self.query.maybe.is_empty() && !self.is_held(plan)? {
            self.query.references = std::mem::take(&mut self.query.maybe);
        }
        if self.query.references.is_empty() {
            self.stages.note("literal", Status::Skipped);
            return Ok(Vec::new());
        }
        let (tx, references, allowed) = (self.tx, &self.query.references, &self.allowed);
        let (known, scope) = (&self.known.projects, &self.request.scope);
        self.stages.time("literal", |_| {
            let mut ids = Vec::new();
            for reference in references {
                let visible = known.iter().filter(|project| scope.allows(&project.path));
                let meant = reference.projects(visible);
                for (id, project_id) in sql::numbered(tx, reference.item_type, reference.iid)? {
                    let seen = allowed.as_ref().is_none_or(|allowed| allowed.contains(id));
                    if seen && meant.contains(&project_id) && !ids.contains(&id) {
                        ids.push(id);
                    }
                }
            }
            Ok(ids)
        })
    }

    /// Whether anything that may be answered is found by words. What is hidden must not decide.
    fn is_held(&self, plan: &lexical::Plan) -> Result<bool> {
        let Some(expression) = &plan.expression else { return Ok(false) };
        let mut found = sql::matching(self.tx, expression)?;
        if let Some(allowed) = &self.allowed {
            found.intersect(allowed);
        }
        Ok(!found.is_empty())
    }

    /// LEXICAL: the list that the later stages work on, the same whatever page is asked for.
    pub(super) fn by_words(&mut self, plan: &lexical::Plan, pinned: &[i64]) -> Result<Ranking> {
        let ranking = self.lexical(plan, pinned, MIN_HEAD)?;
        self.words_exhausted = ranking.exhausted;
        Ok(ranking)
    }

    /// LEXICAL, deep enough for the page that is asked for.
    fn lexical(&mut self, plan: &lexical::Plan, pinned: &[i64], wanted: usize) -> Result<Ranking> {
        let mut depth = self.request.settings.candidates.max(wanted.saturating_mul(2));
        loop {
            let ranking = self.lexical_once(plan, pinned, depth)?;
            if ranking.exhausted || ranking.entries.len() >= wanted {
                return Ok(ranking);
            }
            depth = depth.saturating_mul(4);
        }
    }

    /// LEXICAL at one depth.
    fn lexical_once(&mut self, plan: &lexical::Plan, pinned: &[i64], depth: usize) -> Result<Ranking> {
        let Self { tx, request, query, allowed, corpus, .. } = self;
        let average_length = average_length(request, *corpus);
        let (tx, allowed) = (*tx, allowed.as_ref());
        let filter_only = query.filter_only(request.raw);
        self.stages.time("lexical", |_| {
            let found = if filter_only {
                let mut remaining = None;
                if let Some(excluded) = excluded(tx, query)? {
                    let mut all = match allowed {
                        Some(allowed) => allowed.clone(),
                        None => sql::everything(tx)?,
                    };
                    all.subtract(&excluded);
                    remaining = Some(all);
                }
                let ids = sql::newest(tx, remaining.as_ref().or(allowed), depth)?;
                ids.into_iter().map(|id| sql::Scored { id, score: 0.0 }).collect()
            } else {
                match &plan.expression {
                    Some(expression) => sql::ranked(
                        tx,
                        &sql::Ranked {
                            expression,
                            weights: request.settings.weights,
                            average_length,
                            phrases: (!request.raw).then_some(plan.phrases.as_slice()),
                            allowed,
                            limit: depth,
                        },
                    )?,
                    None => Vec::new(),
                }
            };
            let exhausted = found.len() < depth;
            let all_ids: Vec<i64> = pinned.iter().copied().chain(found.iter().map(|hit| hit.id)).collect();
            let items = match request.group {
                Group::Item => Some(sql::items(tx, &all_ids)?),
                Group::None => None,
            };
            Ok(Ranking::new(
                pinned,
                &found,
                plan.mass,
                items.as_deref(),
                request.settings.discussion,
                exhausted,
            ))
        })
    }

    /// How many documents there would be without each of the filters.
    pub(super) fn loosen(&mut self) -> Result<Vec<Loosened>> {
        let mut out = Vec::new();
        for (without, wanted) in self.query.wanted.each_left_out().into_iter().take(MAX_LOOSENED) {
            let filter = filter::resolve(&wanted, &self.request.scope, &self.known, &mut Vec::new())?;
            if filter == self.filter && wanted.in_title == self.query.wanted.in_title {
                continue;
            }
            let allowed = sql::compile(self.tx, &filter)?;
            let query = Query { wanted, ..self.query.clone() };
            let documents = self.count(&query, allowed.as_ref())?;
            if documents > 0 {
                out.push(Loosened { without, documents });
            }
        }
        out.sort_by(|a, b| b.documents.cmp(&a.documents).then_with(|| a.without.cmp(&b.without)));
        Ok(out)
    }

    /// Matching documents, counted up to a bound.
    fn count(&self, query: &Query, allowed: Option<&Bitset>) -> Result<usize> {
        const ENOUGH: usize = 1_000;
        let tx = self.tx;
        if !self.request.raw && !query.has_text() {
            return Ok(sql::newest(tx, allowed, ENOUGH)?.len());
        }
        let plan = if self.request.raw {
            raw_plan(&self.request.text)
        } else {
            lexical::plan(query, self.corpus.documents, &mut |expression, cap| {
                sql::frequency(tx, expression, cap)
            })?
        };
        let Some(expression) = &plan.expression else { return Ok(0) };
        let search = sql::Ranked {
            expression,
            weights: self.request.settings.weights,
            average_length: None,
            phrases: (!self.request.raw).then_some(plan.phrases.as_slice()),
            allowed,
            limit: ENOUGH,
        };
        Ok(sql::ranked(tx, &search)?.len())
    }
}

/// Items are compared with items; documents with all documents.
fn average_length(request: &Request, corpus: sql::Corpus) -> Option<f64> {
    match request.group {
        Group::Item => corpus.item_length(&request.settings.weights),
        Group::None => None,
    }
}

fn raw_plan(text: &str) -> lexical::Plan {
    let mut needles = Needles::default();
    for word in words::words(text).filter(|word| !matches!(*word, "AND" | "OR" | "NOT" | "NEAR")) {
        needles.stems.entry(stem::index_form(word)).or_insert_with(|| word.to_owned());
    }
    lexical::Plan { expression: Some(text.trim().to_owned()), needles, ..lexical::Plan::default() }
}

/// Documents that hold what must not be there.
pub(super) fn excluded(tx: &ReadTx<'_>, query: &Query) -> Result<Option<Bitset>> {
    let mut all: Option<Bitset> = None;
    for clause in &query.excluded {
        let set = sql::matching(tx, &lexical::clause_expression(clause).0)?;
        match &mut all {
            Some(all) => all.unite(&set),
            None => all = Some(set),
        }
    }
    Ok(all)
}
