//! The stages of a query at work, on one consistent state of the database.

use std::collections::BTreeMap;

use super::feedback;
use super::filter::{self, Known};
use super::fuse::Method;
use super::lexical::{self, Needles};
use super::like::Like;
use super::meaning::{self, Found, Meaning};
use super::parse::Query;
use super::rank::{self, Lists, Meant, Ranking};
use super::stage::{Stages, Status};
use super::{Answer, Explain, Group, Hit, Loosened, Mode, Request, Total};
use super::{snippet, stem, words};
use crate::content::filter::{Bitset, Filter};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::embeddings::chunk_span;
use crate::store::search::{self as sql, Hydrated};

/// Filters that are tried without at most: each is a search of its own.
const MAX_LOOSENED: usize = 16;

/// The stages at work.
pub(super) struct Funnel<'a> {
    tx: &'a ReadTx<'a>,
    request: &'a Request,
    query: Query,
    stages: Stages,
    warnings: Vec<String>,
    corpus: sql::Corpus,
    known: Known,
    filter: Filter,
    allowed: Option<Bitset>,
}

impl<'a> Funnel<'a> {
    /// SCOPE: what may be seen and is wanted.
    pub(super) fn new(
        tx: &'a ReadTx<'a>,
        request: &'a Request,
        query: Query,
        like: Option<&Like>,
        mut stages: Stages,
    ) -> Result<Self> {
        let mut warnings = query.warnings.clone();
        let (corpus, known, filter, allowed) = stages.time("scope", |_| {
            let corpus = sql::corpus(tx)?;
            let labels = if query.wanted.labels.is_empty() { Vec::new() } else { sql::labels(tx)? };
            let known = Known { projects: sql::projects(tx)?, labels };
            let filter = filter::resolve(&query.wanted, &request.scope, &known, &mut warnings)?;
            let mut allowed = sql::compile(tx, &filter)?;
            if let Some(like) = like {
                // What results are to be like is none itself.
                let mut others = match allowed {
                    Some(allowed) => allowed,
                    None => sql::everything(tx)?,
                };
                others.subtract(&Bitset::from_ids(like.documents.iter().copied()));
                allowed = Some(others);
            }
            Ok((corpus, known, filter, allowed))
        })?;
        Ok(Self { tx, request, query, stages, warnings, corpus, known, filter, allowed })
    }

    pub(super) fn run(mut self, meaning: Meaning) -> Result<Answer> {
        let plan = self.plan()?;
        let pinned = self.literal()?;
        let wanted = self.request.offset.saturating_add(self.request.limit).saturating_add(1);
        let mode = if meaning.found.is_some() { self.request.mode } else { Mode::Lexical };
        let ranking = match &meaning.found {
            Some(found) => self.fused(&plan, &pinned, wanted, found, &meaning)?,
            None => {
                let ranking = self.lexical(&plan, &pinned, wanted)?;
                self.without_meaning(&meaning);
                ranking
            }
        };
        for name in ["graph", "boost", "rerank"] {
            self.stages.note(name, Status::Disabled);
        }
        let (page, total) = self.stages.time("page", |_| Ok(page(self.request, &ranking)))?;
        let ids: Vec<i64> = page.iter().map(|entry| entry.id).collect();
        let tx = self.tx;
        let (documents, spans) = self.stages.time("hydrate", |_| {
            let mut spans = BTreeMap::new();
            for entry in &page {
                if let Some(span) = entry.chunk_id.map(|id| chunk_span(tx, id)).transpose()?.flatten() {
                    spans.insert(entry.id, span);
                }
            }
            Ok((sql::hydrate(tx, &ids)?, spans))
        })?;
        let hits = self.stages.time("snippet", |_| {
            Ok(documents
                .into_iter()
                .filter_map(|document| {
                    let entry = page.iter().find(|entry| entry.id == document.id)?;
                    let span = spans.get(&document.id).copied();
                    Some(hit(document, entry, span, &plan.needles))
                })
                .collect::<Vec<_>>())
        })?;
        let loosened =
            if total.count == 0 && self.corpus.documents > 0 { self.loosen()? } else { Vec::new() };
        Ok(Answer {
            mode,
            total,
            hits,
            corpus: self.corpus.documents,
            terms: plan.terms,
            loosened,
            warnings: self.warnings,
            stages: self.stages.into_vec(),
        })
    }

    /// Says why words alone answer.
    fn without_meaning(&mut self, meaning: &Meaning) {
        self.stages.note("vector", meaning.status);
        self.stages.add("vector", meaning.elapsed);
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
    /// asked for; results by words that are deeper follow.
    fn fused(
        &mut self,
        plan: &lexical::Plan,
        pinned: &[i64],
        wanted: usize,
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
        let allowed = self.allowed_meanings()?;
        let tx = self.tx;
        let (mut hits, exhausted) =
            self.stages.time("vector", |_| meaning::nearest(tx, found, allowed.as_ref(), depth))?;
        self.stages.add("vector", meaning.elapsed);
        let request = self.request;
        let mut items = BTreeMap::new();
        let mut ranking = self.stages.time("fuse", |_| {
            let ids: Vec<i64> = pinned
                .iter()
                .copied()
                .chain(lexical.entries.iter().map(|entry| entry.id))
                .chain(hits.iter().map(|hit| hit.id))
                .collect();
            if request.group == Group::Item {
                items = sql::items(tx, &ids)?.into_iter().collect();
            }
            let fuse = |hits: &[Meant]| {
                Ranking::fused(&Lists {
                    pinned,
                    lexical: &lexical,
                    vector: hits,
                    items: (request.group == Group::Item).then_some(&items),
                    discussion: request.settings.discussion_meaning,
                    // Without words there is nothing to be put on one scale with.
                    method: if by_words { request.settings.fusion } else { Method::Share },
                    lexical_weight: if by_words { request.settings.lexical_weight } else { 0.0 },
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
        })?;
        if by_words && !lexical.exhausted && ranking.entries.len() < wanted {
            let deeper = self.lexical(plan, &[], wanted.saturating_add(ranking.entries.len()))?;
            let ids: Vec<i64> = deeper.entries.iter().map(|entry| entry.id).collect();
            if request.group == Group::Item {
                items.extend(sql::items(tx, &ids)?);
            }
            ranking.exhausted = deeper.exhausted && exhausted;
            ranking.extend(deeper, (request.group == Group::Item).then_some(&items));
        }
        Ok(ranking)
    }

    /// Documents that may be found by meaning: what must or must not match binds there too.
    fn allowed_meanings(&self) -> Result<Option<Bitset>> {
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
    fn plan(&mut self) -> Result<lexical::Plan> {
        let (tx, corpus, query) = (self.tx, self.corpus.documents, &self.query);
        if self.request.raw {
            return Ok(raw_plan(&self.request.text));
        }
        self.stages.time("terms", |_| {
            lexical::plan(query, corpus, &mut |expression, cap| sql::frequency(tx, expression, cap))
        })
    }

    /// LITERAL: items that are named come first.
    fn literal(&mut self) -> Result<Vec<i64>> {
        if self.query.references.is_empty() {
            self.stages.note("literal", Status::Skipped);
            return Ok(Vec::new());
        }
        let (tx, references, allowed) = (self.tx, &self.query.references, &self.allowed);
        self.stages.time("literal", |_| {
            let mut ids = Vec::new();
            for reference in references {
                for (id, path) in sql::numbered(tx, reference.item_type, reference.iid)? {
                    let seen = allowed.as_ref().is_none_or(|allowed| allowed.contains(id));
                    if seen && reference.may_mean(&path) && !ids.contains(&id) {
                        ids.push(id);
                    }
                }
            }
            Ok(ids)
        })
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
        let filter_only = !request.raw && !query.has_text() && query.references.is_empty();
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
    fn loosen(&mut self) -> Result<Vec<Loosened>> {
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

/// PAGE: the part that is shown, and how many there are in all.
fn page<'r>(request: &Request, ranking: &'r Ranking) -> (Vec<&'r rank::Entry>, Total) {
    let least = request.min_score.unwrap_or(f64::NEG_INFINITY);
    let kept: Vec<&rank::Entry> = ranking.entries.iter().filter(|entry| entry.score >= least).collect();
    // Results come by falling score: once one is too low, no further one is found.
    let exact = ranking.exhausted || kept.len() < ranking.entries.len();
    let total = Total { count: kept.len(), exact };
    (kept.into_iter().skip(request.offset).take(request.limit).collect(), total)
}

/// Items are compared with items; documents with all documents.
fn average_length(request: &Request, corpus: sql::Corpus) -> Option<f64> {
    match request.group {
        Group::Item => corpus.item_length,
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
fn excluded(tx: &ReadTx<'_>, query: &Query) -> Result<Option<Bitset>> {
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

/// SNIPPET: the better passage of the text and the threads; without a word of the query, the
/// passage whose meaning is nearest.
fn hit(document: Hydrated, entry: &rank::Entry, span: Option<(usize, usize)>, needles: &Needles) -> Hit {
    let mut snippet = snippet::build(&document.body, needles);
    let mut matched = std::mem::take(&mut snippet.matched);
    if !document.thread.is_empty() {
        let mut other = snippet::build(&document.thread, needles);
        matched.append(&mut other.matched);
        if other.density > snippet.density {
            snippet = other;
        }
    }
    if let Some((from, to)) = span.filter(|_| snippet.density == 0) {
        let from = from.saturating_sub(document.body_start);
        let to = to.saturating_sub(document.body_start);
        let passage: String = document.body.chars().skip(from).take(to.saturating_sub(from)).collect();
        snippet = snippet::build(&passage, needles);
    }
    matched.extend(snippet::matched(document.title.as_deref().unwrap_or_default(), needles));
    let explain = Explain {
        fts_rank: entry.fts_rank,
        bm25: entry.bm25,
        vector_rank: entry.vector_rank,
        cosine: entry.cosine,
        fused: entry.fused,
        chunk: span,
        pinned: entry.pinned,
        matched,
    };
    Hit { document, score: entry.score, relevance: entry.relevance, snippet, explain }
}
