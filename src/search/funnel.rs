//! The stages of a query at work, on one consistent state of the database.

use std::collections::BTreeMap;

use super::filter::{self, Known};
use super::lexical::{self, Needles};
use super::like::Like;
use super::meaning::Meaning;
use super::parse::Query;
use super::rank::{self, Ranking};
use super::rerank::{Passages, RerankReport};
use super::stage::Stages;
use super::wanted::Wanted;
use super::words::is_cjk;
use super::{Answer, Explain, Hit, Mode, Neighbour, Related, Request, Total};
use super::{passage, snippet};
use crate::config::RerankConfig;
use crate::content::filter::{Bitset, Filter};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::embeddings::chunk_span;
use crate::store::search::graph::{Sight, links, names};
use crate::store::search::{self as sql, Hydrated};

/// Related items that are told with a result.
const RELATED: usize = 3;

/// The stages at work.
pub(super) struct Funnel<'a> {
    pub(super) tx: &'a ReadTx<'a>,
    pub(super) request: &'a Request,
    pub(super) query: Query,
    pub(super) stages: Stages,
    pub(super) warnings: Vec<String>,
    pub(super) corpus: sql::Corpus,
    pub(super) known: Known,
    pub(super) filter: Filter,
    /// What may be answered; absent: everything.
    pub(super) allowed: Option<Bitset>,
    /// What may be seen, wanted or not; absent: everything.
    pub(super) visible: Option<Bitset>,
    /// Documents that may be seen.
    pub(super) seen: i64,
    /// Whether no further document is found by words.
    pub(super) words_exhausted: bool,
}

/// A query between two looks at the database.
pub(super) struct Ranked {
    pub(super) query: Query,
    pub(super) stages: Stages,
    pub(super) warnings: Vec<String>,
    pub(super) plan: lexical::Plan,
    pub(super) ranking: Ranking,
    pub(super) mode: Mode,
    /// What a reranker is to read.
    pub(super) passages: Passages,
    corpus: sql::Corpus,
    known: Known,
    filter: Filter,
    allowed: Option<Bitset>,
    visible: Option<Bitset>,
    seen: i64,
    words_exhausted: bool,
}

impl Ranked {
    /// Goes on on a later state of the database: what may no longer be seen goes.
    ///
    /// # Errors
    /// Those of the database.
    pub(super) fn wake<'a>(mut self, tx: &'a ReadTx<'a>, request: &'a Request) -> Result<(Funnel<'a>, Rest)> {
        let now_allowed = sql::compile(tx, &self.filter)?;
        if let Some(now_allowed) = &now_allowed {
            self.ranking.entries.retain(|entry| now_allowed.contains(entry.id));
        }
        match (&mut self.allowed, now_allowed) {
            (Some(allowed), Some(now)) => allowed.intersect(&now),
            (None, Some(now)) => self.allowed = Some(now),
            (Some(_) | None, None) => {}
        }
        Ok(self.go_on(tx, request))
    }

    /// Goes on on the same state of the database.
    pub(super) fn go_on<'a>(self, tx: &'a ReadTx<'a>, request: &'a Request) -> (Funnel<'a>, Rest) {
        let funnel = Funnel {
            tx,
            request,
            query: self.query,
            stages: self.stages,
            warnings: self.warnings,
            corpus: self.corpus,
            known: self.known,
            filter: self.filter,
            allowed: self.allowed,
            visible: self.visible,
            seen: self.seen,
            words_exhausted: self.words_exhausted,
        };
        (funnel, Rest { plan: self.plan, ranking: self.ranking, mode: self.mode })
    }
}

/// What is left to be shown.
pub(super) struct Rest {
    pub(super) plan: lexical::Plan,
    pub(super) ranking: Ranking,
    pub(super) mode: Mode,
}

impl<'a> Funnel<'a> {
    /// SCOPE: what may be seen and is wanted.
    ///
    /// # Errors
    /// Those of [`filter::resolve`] and of the database.
    pub(super) fn new(
        tx: &'a ReadTx<'a>,
        request: &'a Request,
        query: Query,
        like: Option<&Like>,
        mut stages: Stages,
    ) -> Result<Self> {
        let mut warnings = query.warnings.clone();
        let (corpus, known, filter, allowed, visible, seen) = stages.time("scope", |_| {
            let corpus = sql::corpus(tx)?;
            let known = known(tx, request, &query)?;
            let filter = filter::resolve(&query.wanted, &request.scope, &known, &mut warnings)?;
            let access = filter::access(&request.scope, &known);
            let visible = sql::compile(tx, &access)?;
            let seen = sql::visible_count(tx, &access, visible.as_ref(), corpus.documents)?;
            let mut allowed = if filter == access { visible.clone() } else { sql::compile(tx, &filter)? };
            if let Some(like) = like {
                // What results are to be like is none itself.
                let mut others = match allowed {
                    Some(allowed) => allowed,
                    None => sql::everything(tx)?,
                };
                others.subtract(&Bitset::from_ids(like.documents.iter().copied()));
                allowed = Some(others);
            }
            Ok((corpus, known, filter, allowed, visible, seen))
        })?;
        Ok(Self {
            tx,
            request,
            query,
            stages,
            warnings,
            corpus,
            known,
            filter,
            allowed,
            visible,
            seen,
            words_exhausted: true,
        })
    }

    /// Finds and orders: everything up to RERANK.
    ///
    /// # Errors
    /// Those of the database.
    pub(super) fn rank(mut self, meaning: &Meaning, reranker: Option<&RerankConfig>) -> Result<Ranked> {
        let plan = self.plan()?;
        let pinned = self.literal(&plan)?;
        if self.query.wanted.in_title && self.query.meaning.chars().any(is_cjk) {
            self.warnings.push(
                "in:title finds a part of a title in a script without spaces only where it stands apart; without in:title it is found anywhere"
                    .to_owned(),
            );
        }
        let mode = if meaning.found.is_some() { self.request.mode } else { Mode::Lexical };
        let mut ranking = match &meaning.found {
            Some(found) => self.fused(&plan, &pinned, found, meaning)?,
            None => {
                let ranking = self.by_words(&plan, &pinned)?;
                self.without_meaning(meaning);
                ranking
            }
        };
        self.refine(&mut ranking)?;
        let passages = match reranker {
            Some(config) => self.passages(&ranking, &plan.needles, config)?,
            None => Passages::default(),
        };
        Ok(Ranked {
            passages,
            query: self.query,
            stages: self.stages,
            warnings: self.warnings,
            plan,
            ranking,
            mode,
            corpus: self.corpus,
            known: self.known,
            filter: self.filter,
            allowed: self.allowed,
            visible: self.visible,
            seen: self.seen,
            words_exhausted: self.words_exhausted,
        })
    }

    /// Penalties, and what is shown: everything after RERANK.
    ///
    /// # Errors
    /// Those of the database.
    pub(super) fn present(mut self, rest: Rest, rerank: RerankReport) -> Result<Answer> {
        let Rest { plan, mut ranking, mode } = rest;
        self.penalise(&mut ranking)?;
        let wanted = self.request.offset.saturating_add(self.request.limit).saturating_add(1);
        let head = ranking.entries.len();
        self.deepen(&plan, &mut ranking, wanted)?;
        self.say_where_the_head_ends(head, &ranking);
        let (page, total) = self.stages.time("page", |_| Ok(page(self.request, &ranking)))?;
        let ids: Vec<i64> = page.iter().map(|entry| entry.id).collect();
        let tx = self.tx;
        let sight = self.sight()?;
        let (documents, spans, related, parents) = self.stages.time("hydrate", |_| {
            let mut spans = BTreeMap::new();
            for entry in &page {
                if let Some(span) = entry.chunk_id.map(|id| chunk_span(tx, id)).transpose()?.flatten() {
                    spans.insert(entry.id, span);
                }
            }
            let mut related = BTreeMap::new();
            for (id, item) in sql::items(tx, &ids)? {
                let sight = Sight { visible: &sight.0, allowed: &sight.1 };
                let links = links(tx, item, sight, RELATED)?;
                related.insert(id, links.into_iter().map(Related::of).collect::<Vec<_>>());
            }
            let parents: Vec<i64> =
                page.iter().filter_map(|entry| entry.hop.as_ref()).map(|hop| hop.from).collect();
            let parents: BTreeMap<i64, String> =
                names(tx, &parents)?.into_iter().map(|(id, item)| (id, item.to_string())).collect();
            Ok((sql::hydrate(tx, &ids)?, spans, related, parents))
        })?;
        let facets = self.facets(&plan, &ranking, mode)?;
        let hints = self.hints()?;
        let total = match &facets {
            // Everything was counted.
            Some(facets) if self.request.min_score.is_none() && mode != Mode::Semantic => {
                Total { count: facets.total.max(total.count), exact: true }
            }
            Some(_) | None => total,
        };
        let chars = self.request.options.passage_chars;
        let hits = self.stages.time("snippet", |_| {
            Ok(documents
                .into_iter()
                .filter_map(|document| {
                    let entry = page.iter().find(|entry| entry.id == document.id)?;
                    let span = spans.get(&document.id).copied();
                    let related = related.get(&document.id).cloned().unwrap_or_default();
                    let parent = entry.hop.as_ref().and_then(|hop| parents.get(&hop.from)).cloned();
                    Some(Hit { related, ..hit(document, entry, span, &plan.needles, parent, chars) })
                })
                .collect::<Vec<_>>())
        })?;
        let loosened =
            if total.count == 0 && self.corpus.documents > 0 { self.loosen()? } else { Vec::new() };
        let is_telling = self.request.options.explain || total.count == 0;
        let terms = self.told_terms(plan.terms, is_telling)?;
        Ok(Answer {
            mode,
            rerank,
            total,
            hits,
            corpus: self.seen,
            terms,
            facets,
            hints,
            loosened,
            warnings: self.warnings,
            stages: self.stages.into_vec(),
        })
    }

    /// What may be seen and what may be answered, as sets.
    pub(super) fn sight(&self) -> Result<(Bitset, Bitset)> {
        let all = sql::everything(self.tx)?;
        Ok((self.visible.clone().unwrap_or_else(|| all.clone()), self.allowed.clone().unwrap_or(all)))
    }
}

/// What names may mean: read only as far as the query has such names.
fn known(tx: &ReadTx<'_>, request: &Request, query: &Query) -> Result<Known> {
    let projects = sql::projects(tx)?;
    let wanted = &query.wanted;
    let names_none = |of: fn(&Wanted) -> bool| wanted.with_not().all(of);
    let labels = if names_none(|wanted| wanted.labels.is_empty()) {
        Vec::new()
    } else {
        let visible = projects.iter().filter(|project| request.scope.allows(&project.path));
        sql::labels(tx, &visible.map(|project| project.id).collect::<Vec<_>>())?
    };
    let is_nobody = |wanted: &Wanted| wanted.authors.is_empty() && wanted.assignee.is_none();
    let users = if names_none(is_nobody) { Vec::new() } else { sql::usernames(tx)? };
    Ok(Known { projects, labels, users })
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

/// SNIPPET: the better passage of the text and the threads; without a word of the query, the
/// passage whose meaning is nearest.
fn hit(
    document: Hydrated,
    entry: &rank::Entry,
    span: Option<(usize, usize)>,
    needles: &Needles,
    parent: Option<String>,
    passage_chars: Option<usize>,
) -> Hit {
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
        neighbour_of: entry.hop.as_ref().zip(parent).map(|(hop, name)| Neighbour {
            name,
            phrase: hop.phrase,
            depth: hop.depth,
        }),
        factors: entry.factors.clone(),
        reranked: entry.reranked,
    };
    let passage = passage_chars.map(|chars| passage::best(&document, span, needles, chars));
    Hit {
        document,
        score: entry.score,
        relevance: entry.relevance,
        snippet,
        passage,
        related: Vec::new(),
        explain,
    }
}
