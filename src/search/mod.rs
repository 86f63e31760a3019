//! Answers a query: one funnel of stages, each timed, each with a status.
//!
//! ```text
//! PARSE → SCOPE → LITERAL ┐
//!                 LEXICAL ├→ FUSE → GRAPH → BOOST → RERANK → PENALTIES → PAGE → HYDRATE → SNIPPET
//!                 VECTOR  ┘
//! ```
//!
//! The filter is compiled once, into a set of document ids that every retriever obeys; no
//! stage adds a document that is not in it. A retriever hands on a *bucket*: documents in
//! its order, each once. What comes after FUSE works on the same list whatever page is asked
//! for, so that pages never overlap.

pub mod adjust;
mod ask;
mod extract;
mod feedback;
pub mod filter;
mod funnel;
pub mod fuse;
pub mod graph;
pub mod lexical;
mod like;
pub mod literal;
pub mod meaning;
pub mod memory;
mod overview;
pub mod parse;
mod passage;
pub mod rank;
pub mod reference;
mod refine;
pub mod rerank;
mod retrieve;
pub mod snippet;
pub mod stage;
pub mod stem;
mod tokens;
pub mod wanted;
pub mod words;

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::config::{FusionMethod, QueryConfig, RerankProvider};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::store::search::Hydrated;
use crate::store::search::facets::Facets;
use crate::store::search::graph::Link;
use crate::store::search::hints::Known;

use adjust::{Boosts, Factor};
pub use ask::Assist;
use filter::Scope;
use funnel::Funnel;
use fuse::Method;
use like::Like;
use meaning::{Meaning, Service};
use parse::Query;
use rerank::RerankReport;
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

/// How much the share of the words moves with what they reach, unless told otherwise
/// (docs/quality.md).
pub const COVERAGE: f64 = 2.0;

/// How far the first results move the vector of a long question, unless told otherwise.
pub const FEEDBACK: f64 = 1.0;

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
    /// What a discussion's nearness counts when it stands for its item.
    pub discussion_meaning: f64,
    /// How the lists of the retrievers become one.
    pub fusion: Method,
    /// Share of the words in a fused score; the rest is that of the meaning.
    pub lexical_weight: f64,
    /// How much that share moves with what the words reach; 0: not at all.
    pub coverage: f64,
    /// How far the first results move the vector of a long question; 0: not at all.
    pub feedback: f64,
    /// Coefficients of boosts and penalties.
    pub boosts: Boosts,
}

impl Settings {
    /// What the configuration says.
    pub fn of_config(config: &QueryConfig) -> Self {
        Self {
            weights: [config.title_weight, config.text_weight, config.thread_weight, config.terms_weight],
            candidates: config.candidates.clamp(1, 10_000),
            discussion: DISCUSSION_FACTOR,
            discussion_meaning: 1.0,
            fusion: match config.fusion {
                FusionMethod::Deviations => Method::Deviations,
                FusionMethod::Share => Method::Share,
                FusionMethod::Minmax => Method::MinMax,
                FusionMethod::Rrf => Method::Rrf { k: config.rrf_k },
            },
            lexical_weight: config.lexical_weight.clamp(0.0, 1.0),
            coverage: COVERAGE,
            feedback: FEEDBACK,
            boosts: Boosts {
                neighbour: config.graph_factor,
                parents: graph::PARENTS,
                neighbours: graph::NEIGHBOURS,
                hub: config.hub_factor,
                hub_least: config.hub_references,
                by_state: config.state_boosts,
                active: config.active_factor,
                pending: config.pending_factor,
                stale: config.stale_factor,
                half_life: config
                    .recency_half_life
                    .map(|it| Millis::try_from(it.as_millis()).unwrap_or(Millis::MAX)),
                away: config.away_factor,
                moved: config.moved_factor,
            },
        }
    }
}

/// A question.
#[derive(Debug, Clone)]
pub struct Request {
    /// As it was typed.
    pub text: String,
    /// Instead of a text: the item that results are to be like.
    pub like: Option<String>,
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
    /// What is not asked of every query.
    pub options: Options,
}

/// What is not asked of every query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Steps from the best results to their neighbours, at most [`graph::MAX_DEPTH`].
    pub depth: usize,
    /// Projects that are home, as patterns: what lies outside counts less.
    pub home: Option<Vec<String>>,
    /// Whether the answer says how it came to be.
    pub explain: bool,
    /// Whether a reranker is asked, if there is one.
    pub rerank: bool,
    /// Whether facets are counted.
    pub facets: bool,
    /// Characters of the passage that each result brings along; absent: none.
    pub passage_chars: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { depth: 1, home: None, explain: false, rerank: true, facets: false, passage_chars: None }
    }
}

/// A result.
#[derive(Debug, Clone)]
pub struct Hit {
    /// What is shown of the document.
    pub document: Hydrated,
    /// Relative to the best result, which has 1.
    pub score: f64,
    /// Absolute, 0 to 1: the greater of the share of the best score that any document could
    /// reach by words, and of how much nearer its meaning is than that of any passage.
    pub relevance: f64,
    /// The passage that answers.
    pub snippet: Snippet,
    /// A longer passage, when it was asked for.
    pub passage: Option<String>,
    /// Items that it refers to or that refer to it, the most telling first.
    pub related: Vec<Related>,
    /// Where it came from.
    pub explain: Explain,
}

/// An item related to a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Related {
    /// Its whole reference.
    pub reference: String,
    /// What the result has to do with it: `closed by`, `moved to`.
    pub phrase: &'static str,
    /// Its title.
    pub title: Option<String>,
}

impl Related {
    fn of(link: Link) -> Self {
        Self { reference: link.item.to_string(), phrase: link.phrase(), title: link.title }
    }
}

/// The neighbour through which a result was found, or lifted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its whole reference.
    pub name: String,
    /// What the result has to do with it.
    pub phrase: &'static str,
    /// Steps from a result that was found otherwise.
    pub depth: usize,
}

/// Where a result came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Explain {
    /// Place among the documents found by words, from 1.
    pub fts_rank: Option<usize>,
    /// BM25 score, greater is better.
    pub bm25: Option<f64>,
    /// Place among the documents found by meaning, from 1.
    pub vector_rank: Option<usize>,
    /// Cosine of the query and the nearest passage.
    pub cosine: Option<f64>,
    /// What words and meaning gave to the fused score, and the sum; absent without fusion.
    pub fused: Option<rank::Fusion>,
    /// The nearest passage, in characters of the document's text.
    pub chunk: Option<(usize, usize)>,
    /// Named in the query by its number or address.
    pub pinned: bool,
    /// Words of the query that it holds.
    pub matched: BTreeSet<String>,
    /// The result that it is a neighbour of, when that decided.
    pub neighbour_of: Option<Neighbour>,
    /// What changed the score after fusion, in order.
    pub factors: Vec<Factor>,
    /// Score of the reranker, as it came.
    pub reranked: Option<f64>,
}

/// How many results there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Number.
    pub count: usize,
    /// Whether it is exact; otherwise there are at least so many.
    pub exact: bool,
}

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
    /// What became of reranking.
    pub rerank: RerankReport,
    /// How many results there are.
    pub total: Total,
    /// This page of them.
    pub hits: Vec<Hit>,
    /// Documents in the index that may be seen.
    pub corpus: i64,
    /// Words of the query and what became of them: with explanations, or without results.
    pub terms: Vec<lexical::Term>,
    /// How all results are spread, when it was asked for.
    pub facets: Option<Facets>,
    /// With explanations: what the words of the query are names of.
    pub hints: Vec<Known>,
    /// Without results: the filters that stand in the way, the most telling first.
    pub loosened: Vec<Loosened>,
    /// What was done otherwise than asked.
    pub warnings: Vec<String>,
    /// The stages in their order.
    pub stages: Vec<Stage>,
}

/// Answers a question by words alone, on one consistent state of the database.
///
/// # Errors
/// Those of [`parse::parse`] and [`filter::resolve`], [`ErrorKind::Usage`] for a raw
/// expression that FTS5 refuses, [`ErrorKind::EmbeddingFailed`] for a semantic search,
/// [`ErrorKind::ReferenceNotFound`] for an unknown item to be like, and those of the database.
pub fn answer(store: &Store, request: &Request) -> Result<Answer> {
    answer_with(store, None, request)
}

/// Answers a question by words and meaning. The service is asked before the database is
/// read: no read is held open while the network is waited for.
///
/// # Errors
/// As [`answer`]; a semantic search also fails as the embedding service fails.
pub fn answer_with(store: &Store, service: Option<&Service<'_>>, request: &Request) -> Result<Answer> {
    answer_through(store, service, None, request)
}

/// As [`answer_with`], with what `assist` adds: a reranker, and a model that takes the question
/// apart. Without them, or when they fail, the answer is the one without them.
///
/// # Errors
/// As [`answer_with`]; with `query.ner_fallback = "propagate"` also as the extractor fails.
pub fn answer_through(
    store: &Store,
    service: Option<&Service<'_>>,
    assist: Option<&Assist<'_>>,
    request: &Request,
) -> Result<Answer> {
    let mut asked = Stages::default();
    let (query, like) = asked.time("parse", |_| read_query(store, request))?;
    let query = extract::tokens(store, assist, request, query, &mut asked)?;
    let reranker = assist
        .map(|assist| assist.rerank)
        .filter(|config| request.options.rerank && config.provider != RerankProvider::None);
    // The index may be replaced while the query is embedded; then it is embedded once more.
    for is_last in [false, true] {
        let meaning = find_meaning(store, service, request, &query, like.as_ref())?;
        let done = store.read(|tx| {
            if !is_last && !meaning.is_current(tx)? {
                return Ok(None);
            }
            let (query, stages) = (query.clone(), asked.clone());
            let mut ranked =
                Funnel::new(tx, request, query, like.as_ref(), stages)?.rank(&meaning, reranker)?;
            if reranker.is_some() {
                return Ok(Some(Step::Waits(Box::new(ranked))));
            }
            let report = rerank::rerank(store, assist, request, &mut ranked)?;
            let (funnel, rest) = ranked.go_on(tx, request);
            Ok(Some(Step::Done(Box::new(funnel.present(rest, report)?))))
        })?;
        match done {
            Some(Step::Done(answer)) => return Ok(*answer),
            Some(Step::Waits(mut ranked)) => {
                let report = rerank::rerank(store, assist, request, &mut ranked)?;
                return store.read(|tx| {
                    let (funnel, rest) = ranked.wake(tx, request)?;
                    funnel.present(rest, report)
                });
            }
            None => {}
        }
    }
    Err(Error::internal("a query was given up"))
}

/// How far one look at the database led.
enum Step {
    Done(Box<Answer>),
    /// The network is asked before the next look.
    Waits(Box<funnel::Ranked>),
}

fn read_query(store: &Store, request: &Request) -> Result<(Query, Option<Like>)> {
    if let Some(reference) = &request.like {
        let (query, like) = store.read(|tx| like::read(tx, reference, &request.scope))?;
        return Ok((Query { wanted: request.flags.clone(), ..query }, Some(like)));
    }
    if request.raw {
        return Ok((Query { wanted: request.flags.clone(), ..Query::default() }, None));
    }
    Ok((parse::parse(&request.text, request.flags.clone(), request.now)?, None))
}

/// The vectors to search with, or why there are none. A semantic search needs them.
fn find_meaning(
    store: &Store,
    service: Option<&Service<'_>>,
    request: &Request,
    query: &Query,
    like: Option<&Like>,
) -> Result<Meaning> {
    if request.mode == Mode::Lexical {
        return Ok(Meaning::none(Status::Skipped));
    }
    let has_meaning = like.is_some() || (query.has_text() && !query.names_only());
    if request.mode == Mode::Hybrid && (request.raw || !has_meaning || query.wanted.in_title) {
        return Ok(Meaning::none(Status::Skipped));
    }
    let mut meaning = match (like, service) {
        (Some(like), _) => meaning::of_item(store, like)?,
        (None, Some(service)) => meaning::of_query(store, service, &query.meaning, request.now)?,
        (None, None) => Meaning::none(Status::Disabled),
    };
    if request.mode == Mode::Semantic {
        if request.raw {
            return Err(Error::usage("--fts-mode raw has words only: it cannot be asked by meaning"));
        }
        if !has_meaning {
            return Err(Error::new(ErrorKind::NoUsableTokens, "the query holds no text to be understood")
                .hint("add words, or leave --mode semantic out"));
        }
        if let Some(error) = meaning.error.take() {
            return Err(error);
        }
        if meaning.found.is_none() {
            return Err(meaning::not_embedded().hint("or ask by words: --mode lexical"));
        }
    }
    Ok(meaning)
}

#[cfg(test)]
mod tests;
