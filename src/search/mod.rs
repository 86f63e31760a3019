//! Answers a query: one funnel of stages, each timed, each with a status.
//!
//! ```text
//! PARSE → SCOPE → LEXICAL ┐
//!                 VECTOR  ├→ FUSE → BOOST → RERANK → PAGE → HYDRATE → SNIPPET
//!                 LITERAL │
//!                 GRAPH   ┘
//! ```
//!
//! The filter is compiled once, into a set of document ids that every retriever obeys; no
//! stage adds a document that is not in it. A retriever hands on a *bucket*: documents in
//! its order, each once. Stages that are not built yet report `disabled`.

pub mod filter;
pub mod fuse;
pub mod lexical;
pub mod literal;
pub mod parse;
mod rank;
pub mod snippet;
pub mod stage;
pub mod stem;
pub mod wanted;
pub mod words;

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::content::filter::{Bitset, Filter};
use crate::error::{Error, ErrorKind, Result};
use crate::store::search::{self as sql, Hydrated};
use crate::store::{ReadTx, Store};

use filter::{Known, Scope};
use lexical::Needles;
use parse::Query;
use rank::Ranking;
use snippet::Snippet;
use stage::{Stage, Stages, Status};
use wanted::Wanted;

/// Results that one page may hold.
pub const MAX_LIMIT: usize = 100;

/// What a discussion's score counts when it stands for its item, unless told otherwise.
///
/// The item's own document holds the text of its discussions too, at a lower weight, and ranks
/// items better than their discussions do.
pub const DISCUSSION_FACTOR: f64 = 0.5;

/// How documents are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By words and by meaning.
    Hybrid,
    /// By words.
    Lexical,
    /// By meaning.
    Semantic,
}

impl Mode {
    /// Name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hybrid => "hybrid",
            Self::Lexical => "lexical",
            Self::Semantic => "semantic",
        }
    }
}

/// What counts as one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// An issue or merge request together with its discussions.
    Item,
    /// Each document.
    None,
}

/// Coefficients of ranking.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Weights of title, text, threads and terms.
    pub weights: [f64; 4],
    /// Candidates that a retriever hands on at least.
    pub candidates: usize,
    /// What a discussion's score counts when it stands for its item.
    pub discussion: f64,
}

/// A question.
#[derive(Debug, Clone)]
pub struct Request {
    /// As it was typed.
    pub text: String,
    /// Conditions given beside the text.
    pub flags: Wanted,
    /// How to look.
    pub mode: Mode,
    /// Whether the text is an expression of FTS5.
    pub raw: bool,
    /// What counts as one result.
    pub group: Group,
    /// Results on this page, at most [`MAX_LIMIT`].
    pub limit: usize,
    /// Results before this page.
    pub offset: usize,
    /// Results with a lower score are left out.
    pub min_score: Option<f64>,
    /// What may be seen.
    pub scope: Scope,
    /// Coefficients.
    pub settings: Settings,
    /// The time of asking.
    pub now: Millis,
}

/// A result.
#[derive(Debug, Clone)]
pub struct Hit {
    /// What is shown of the document.
    pub document: Hydrated,
    /// Relative to the best result, which has 1.
    pub score: f64,
    /// Absolute, 0 to 1: the share of the greatest score that any document could reach.
    pub relevance: f64,
    /// The passage that answers.
    pub snippet: Snippet,
    /// Where it came from.
    pub explain: Explain,
}

/// Where a result came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// Place among the documents found by words, from 1.
    pub fts_rank: Option<usize>,
    /// BM25 score, greater is better.
    pub bm25: Option<f64>,
    /// Named in the query by its number or address.
    pub pinned: bool,
    /// Words of the query that it holds.
    pub matched: BTreeSet<String>,
}

/// How many results there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Number.
    pub count: usize,
    /// Whether it is exact; otherwise there are at least so many.
    pub exact: bool,
}

/// Filters that are tried without at most: each is a search of its own.
const MAX_LOOSENED: usize = 16;

/// A filter without which there would be results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loosened {
    /// The filter, as it could be typed.
    pub without: String,
    /// Documents that match without it.
    pub documents: usize,
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// How it was looked for in the end.
    pub mode: Mode,
    /// How many results there are.
    pub total: Total,
    /// This page of them.
    pub hits: Vec<Hit>,
    /// Documents in the index.
    pub corpus: i64,
    /// Words of the query and what became of them.
    pub terms: Vec<lexical::Term>,
    /// Without results: the filters that stand in the way, the most telling first.
    pub loosened: Vec<Loosened>,
    /// What was done otherwise than asked.
    pub warnings: Vec<String>,
    /// The stages in their order.
    pub stages: Vec<Stage>,
}

/// Answers a question on one consistent state of the database.
///
/// # Errors
/// Those of [`parse::parse`] and [`filter::resolve`], [`ErrorKind::Usage`] for a raw
/// expression that FTS5 refuses, [`ErrorKind::EmbeddingFailed`] for a semantic search
/// without vectors, and those of the database.
pub fn answer(store: &Store, request: &Request) -> Result<Answer> {
    let mut stages = Stages::default();
    let query = stages.time("parse", |_| read_query(request))?;
    if request.mode == Mode::Semantic {
        return Err(Error::new(
            ErrorKind::EmbeddingFailed,
            "no embeddings are stored: nothing can be found by meaning",
        )
        .hint("run `lore embed` first")
        .hint("or ask by words: --mode lexical"));
    }
    store.read(|tx| Funnel::new(tx, request, query, stages)?.run())
}

fn read_query(request: &Request) -> Result<Query> {
    if request.raw {
        return Ok(Query { wanted: request.flags.clone(), ..Query::default() });
    }
    parse::parse(&request.text, request.flags.clone(), request.now)
}

/// The stages at work.
struct Funnel<'a> {
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
    fn new(tx: &'a ReadTx<'a>, request: &'a Request, query: Query, mut stages: Stages) -> Result<Self> {
        let mut warnings = query.warnings.clone();
        let (corpus, known, filter, allowed) = stages.time("scope", |_| {
            let corpus = sql::corpus(tx)?;
            let labels = if query.wanted.labels.is_empty() { Vec::new() } else { sql::labels(tx)? };
            let known = Known { projects: sql::projects(tx)?, labels };
            let filter = filter::resolve(&query.wanted, &request.scope, &known, &mut warnings)?;
            let allowed = sql::compile(tx, &filter)?;
            Ok((corpus, known, filter, allowed))
        })?;
        Ok(Self { tx, request, query, stages, warnings, corpus, known, filter, allowed })
    }

    fn run(mut self) -> Result<Answer> {
        let plan = self.plan()?;
        let pinned = self.literal()?;
        let wanted_depth = self.request.offset.saturating_add(self.request.limit).saturating_add(1);
        let ranking = self.lexical(&plan, &pinned, wanted_depth)?;
        if self.request.mode == Mode::Hybrid {
            self.stages.note("vector", Status::Disabled);
            self.warnings
                .push("no embeddings are stored: answered by words alone (run `lore embed`)".to_owned());
        } else {
            self.stages.note("vector", Status::Skipped);
        }
        for name in ["graph", "fuse", "boost", "rerank"] {
            self.stages.note(name, Status::Disabled);
        }
        let (page, total) = self.stages.time("page", |_| Ok(page(self.request, &ranking)))?;
        let ids: Vec<i64> = page.iter().map(|entry| entry.id).collect();
        let documents = self.stages.time("hydrate", |_| sql::hydrate(self.tx, &ids))?;
        let hits = self.stages.time("snippet", |_| {
            Ok(documents
                .into_iter()
                .filter_map(|document| {
                    let entry = page.iter().find(|entry| entry.id == document.id)?;
                    Some(hit(document, entry, &plan.needles))
                })
                .collect::<Vec<_>>())
        })?;
        let loosened =
            if total.count == 0 && self.corpus.documents > 0 { self.loosen()? } else { Vec::new() };
        Ok(Answer {
            mode: Mode::Lexical,
            total,
            hits,
            corpus: self.corpus.documents,
            terms: plan.terms,
            loosened,
            warnings: self.warnings,
            stages: self.stages.into_vec(),
        })
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
        let Self { tx, request, query, allowed, corpus, .. } = self;
        let average_length = average_length(request, *corpus);
        let (tx, allowed) = (*tx, allowed.as_ref());
        let filter_only = !request.raw && !query.has_text() && query.references.is_empty();
        let excluded = if filter_only { excluded(tx, query)? } else { None };
        let remaining = excluded.as_ref().map(|excluded| {
            let mut all = match allowed {
                Some(allowed) => allowed.clone(),
                None => sql::everything(tx)?,
            };
            all.subtract(excluded);
            Ok::<_, Error>(all)
        });
        let remaining = remaining.transpose()?;
        self.stages.time("lexical", |_| {
            loop {
                let found = if filter_only {
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
                let all_ids: Vec<i64> =
                    pinned.iter().copied().chain(found.iter().map(|hit| hit.id)).collect();
                let items = match request.group {
                    Group::Item => Some(sql::items(tx, &all_ids)?),
                    Group::None => None,
                };
                let ranking = Ranking::new(
                    pinned,
                    &found,
                    plan.mass,
                    items.as_deref(),
                    request.settings.discussion,
                    exhausted,
                );
                if exhausted || ranking.entries.len() >= wanted {
                    return Ok(ranking);
                }
                depth = depth.saturating_mul(4);
            }
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

/// SNIPPET: the better passage of the text and the threads.
fn hit(document: Hydrated, entry: &rank::Entry, needles: &Needles) -> Hit {
    let mut snippet = snippet::build(&document.body, needles);
    let mut matched = std::mem::take(&mut snippet.matched);
    if !document.thread.is_empty() {
        let mut other = snippet::build(&document.thread, needles);
        matched.append(&mut other.matched);
        if other.density > snippet.density {
            snippet = other;
        }
    }
    matched.extend(snippet::matched(document.title.as_deref().unwrap_or_default(), needles));
    let explain = Explain { fts_rank: entry.fts_rank, bm25: entry.bm25, pinned: entry.pinned, matched };
    Hit { document, score: entry.score, relevance: entry.relevance, snippet, explain }
}

#[cfg(test)]
mod tests;
