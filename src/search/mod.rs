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

mod feedback;
pub mod filter;
mod funnel;
pub mod fuse;
pub mod lexical;
mod like;
pub mod literal;
pub mod meaning;
pub mod parse;
pub mod rank;
pub mod reference;
pub mod snippet;
pub mod stage;
pub mod stem;
pub mod wanted;
pub mod words;

use std::collections::BTreeSet;

use crate::clock::Millis;
use crate::config::{FusionMethod, QueryConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::store::search::Hydrated;

use filter::Scope;
use funnel::Funnel;
use fuse::Method;
use like::Like;
use meaning::{Meaning, Service};
use parse::Query;
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
    /// How far the first results move the vector of a long question; 0: not at all.
    pub feedback: f64,
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
                FusionMethod::Share => Method::Share,
                FusionMethod::Minmax => Method::MinMax,
                FusionMethod::Rrf => Method::Rrf { k: config.rrf_k },
            },
            lexical_weight: config.lexical_weight.clamp(0.0, 1.0),
            feedback: FEEDBACK,
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
    // The index may be replaced while the query is embedded; then it is embedded once more.
    for is_last in [false, true] {
        let mut stages = Stages::default();
        let (query, like) = stages.time("parse", |_| read_query(store, request))?;
        let meaning = find_meaning(store, service, request, &query, like.as_ref())?;
        let answer = store.read(|tx| {
            if !is_last && !meaning.is_current(tx)? {
                return Ok(None);
            }
            Funnel::new(tx, request, query, like.as_ref(), stages)?.run(meaning).map(Some)
        })?;
        if let Some(answer) = answer {
            return Ok(answer);
        }
    }
    Err(Error::internal("a query was given up"))
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
