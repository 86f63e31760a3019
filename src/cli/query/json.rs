//! The JSON form of an answer. The types are the source of docs/answers.schema.json.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Highlight;
use crate::clock;
use crate::content::ItemRef;
use crate::error::{Error, Result};
use crate::search::adjust::{self, Change};
use crate::search::{self, Answer, Hit, Request};
use crate::store::search::facets;

/// Fields of a result, in their order.
pub(super) const FIELDS: &[&str] = &[
    "document_id",
    "source_type",
    "title",
    "url",
    "project_path",
    "author",
    "created_at",
    "updated_at",
    "score",
    "relevance",
    "rerank_score",
    "snippet",
    "highlights",
    "labels",
    "paths",
    "iid",
    "state",
    "reference",
    "related",
    "explain",
];

/// `group/project#12`.
pub(super) fn reference(hit: &Hit) -> String {
    let document = &hit.document;
    let item = ItemRef {
        project_path: document.project_path.clone(),
        item_type: document.item_type,
        iid: document.iid,
    };
    item.to_string()
}

/// A snippet in the form that was asked for.
pub(super) fn snippet(hit: &Hit, highlight: Highlight) -> String {
    match highlight {
        Highlight::Ansi => hit.snippet.ansi(),
        Highlight::Mark => hit.snippet.html(),
        Highlight::None => hit.snippet.text.clone(),
    }
}

/// What was found.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Data {
    /// The question, as it was asked.
    query: String,
    /// Instead of a question: the item that results are to be like.
    like: Option<String>,
    /// How it was looked for in the end.
    #[schemars(extend("enum" = ["hybrid", "lexical", "semantic"]))]
    mode: &'static str,
    /// How many results there are; `meta.total_relation` says whether it is exact.
    total_results: usize,
    /// This page of them, the best first.
    results: Vec<Found>,
    /// With --facets: how all results are spread.
    facets: Option<Facets>,
    /// What was done otherwise than asked.
    warnings: Vec<String>,
    /// Without results: filters that stand in the way.
    suggestions: Vec<Suggestion>,
}

/// A result. With --fields only those that were asked for.
#[derive(Serialize, JsonSchema)]
pub(super) struct Found {
    document_id: i64,
    #[schemars(extend("enum" = ["issue", "merge_request", "discussion"]))]
    source_type: &'static str,
    title: Option<String>,
    url: Option<String>,
    project_path: String,
    /// Username.
    author: Option<String>,
    /// RFC 3339, in UTC.
    created_at: Option<String>,
    /// RFC 3339, in UTC.
    updated_at: Option<String>,
    /// Relative to the best result, which has 1; what --min-score speaks of.
    score: f64,
    /// Absolute, 0 to 1. When that of the best result is below 0.35, the question most likely has
    /// no answer; above 0.5 it has one.
    relevance: f64,
    /// Score of the reranker, as it came.
    rerank_score: Option<f64>,
    /// The passage that answers; plain text unless --highlight says otherwise.
    snippet: String,
    /// Hits in a plain snippet as pairs of character offsets: from, and to (not included).
    highlights: Vec<(usize, usize)>,
    labels: Vec<String>,
    /// Files that it touches.
    paths: Vec<String>,
    /// Number inside the project, of the item that a discussion belongs to.
    iid: i64,
    #[schemars(extend("enum" = ["opened", "closed", "merged", "locked"]))]
    state: String,
    /// `group/project#12`, `group/project!34`
    reference: String,
    /// Items that it refers to or that refer to it, the most telling first.
    related: Vec<Related>,
    /// With --explain: where it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<Explain>,
}

/// An item related to a result.
#[derive(Serialize, JsonSchema)]
struct Related {
    reference: String,
    /// What the result has to do with it: `closed by`, `moved to`.
    relation: &'static str,
    title: Option<String>,
}

/// Where a result came from.
#[derive(Serialize, JsonSchema)]
struct Explain {
    /// Place among the documents found by words, from 1.
    fts_rank: Option<usize>,
    /// BM25 score, greater is better.
    bm25: Option<f64>,
    /// Place among the documents found by meaning, from 1.
    vector_rank: Option<usize>,
    /// Cosine of the question and the nearest passage.
    cosine: Option<f64>,
    /// The nearest passage, in characters of the document's text.
    chunk: Option<Chunk>,
    /// What the ranks alone would be worth in reciprocal rank fusion (k = 60).
    rrf_score: Option<f64>,
    /// What words and meaning gave to the fused score, and the sum.
    fused: Option<Fused>,
    /// Named in the question by its number or address.
    pinned: bool,
    /// Words of the question that it holds.
    matched_terms: BTreeSet<String>,
    /// The result that it is a neighbour of, when that decided.
    neighbour_of: Option<Neighbour>,
    /// What changed the score after fusion, in order.
    factors: Vec<Factor>,
}

#[derive(Serialize, JsonSchema)]
struct Chunk {
    char_start: usize,
    char_end: usize,
}

#[derive(Serialize, JsonSchema)]
struct Fused {
    lexical: f64,
    vector: f64,
    sum: f64,
}

#[derive(Serialize, JsonSchema)]
struct Neighbour {
    reference: String,
    relation: &'static str,
    /// Steps from a result that was found otherwise.
    depth: usize,
}

/// A change of a score.
#[derive(Serialize, JsonSchema)]
struct Factor {
    name: &'static str,
    #[schemars(extend("enum" = ["times", "plus", "at_most"]))]
    change: &'static str,
    value: f64,
}

/// How all results are spread.
#[derive(Serialize, JsonSchema)]
struct Facets {
    /// Results that were counted.
    total: usize,
    project: Facet,
    r#type: Facet,
    label: Facet,
    author: Facet,
    /// `2024-01`, by creation.
    month: Facet,
}

#[derive(Serialize, JsonSchema)]
struct Facet {
    /// The commonest first.
    values: Vec<Count>,
    /// Further values.
    more: usize,
}

#[derive(Serialize, JsonSchema)]
struct Count {
    value: String,
    count: usize,
}

/// A filter without which there would be results.
#[derive(Serialize, JsonSchema)]
struct Suggestion {
    /// The filter, as it could be typed.
    without: String,
    /// Documents that match without it.
    documents: usize,
}

/// How the answer came to be.
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct Meta {
    /// The stages in their order.
    pipeline: Vec<Stage>,
    rerank: Rerank,
    /// What `score` and --min-score speak of.
    score: &'static str,
    /// `eq`: `total_results` is exact; `gte`: there are at least so many.
    #[schemars(extend("enum" = ["eq", "gte"]))]
    total_relation: &'static str,
    limit: usize,
    offset: usize,
    has_more: bool,
    /// Documents in the index that may be seen.
    documents_indexed: i64,
    /// With --explain: what the words of the question are names of.
    hints: Vec<String>,
    /// With --explain, or without results: the words and what became of them.
    terms: Vec<Term>,
}

#[derive(Serialize, JsonSchema)]
struct Stage {
    name: &'static str,
    #[schemars(extend("enum" = ["ok", "degraded", "timeout", "error", "circuit_open", "disabled", "skipped"]))]
    status: &'static str,
    elapsed_ms: f64,
}

/// What became of reranking.
#[derive(Serialize, JsonSchema)]
struct Rerank {
    #[schemars(extend("enum" = ["ok", "degraded", "timeout", "error", "circuit_open", "disabled", "skipped"]))]
    status: &'static str,
    #[schemars(extend("enum" = ["none", "tei", "cohere"]))]
    provider: &'static str,
    /// Texts that were sent.
    sent: usize,
    /// Texts that were scored.
    scored: usize,
    /// Why the fused order stands.
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Term {
    text: String,
    /// Documents that hold it and may be seen.
    documents: i64,
    /// Whether it was searched for.
    used: bool,
}

/// The answer's `data`.
pub(in crate::cli) fn data(
    request: &Request,
    answer: &Answer,
    highlight: Highlight,
    explain: bool,
    fields: &[String],
) -> Result<Value> {
    let data = Data {
        query: request.text.clone(),
        like: request.like.clone(),
        mode: answer.mode.as_str(),
        total_results: answer.total.count,
        results: answer.hits.iter().map(|hit| found(hit, highlight, explain)).collect(),
        facets: answer.facets.as_ref().map(facets),
        warnings: answer.warnings.clone(),
        suggestions: answer
            .loosened
            .iter()
            .map(|it| Suggestion { without: it.without.clone(), documents: it.documents })
            .collect(),
    };
    let mut data = value(&data)?;
    for result in data.get_mut("results").and_then(Value::as_array_mut).into_iter().flatten() {
        choose(result, fields);
    }
    Ok(data)
}

/// Keeps the fields that are wanted; all without a choice.
fn choose(result: &mut Value, fields: &[String]) {
    if let Value::Object(result) = result
        && !fields.is_empty()
    {
        result.retain(|name, _| fields.iter().any(|field| field.trim() == name));
    }
}

/// One result with the fields that are wanted.
pub(super) fn chosen(hit: &Hit, highlight: Highlight, explain: bool, fields: &[String]) -> Result<Value> {
    let mut result = value(&found(hit, highlight, explain))?;
    choose(&mut result, fields);
    Ok(result)
}

fn value(of: &impl Serialize) -> Result<Value> {
    serde_json::to_value(of).map_err(|error| Error::internal("write an answer as JSON").because(error))
}

fn found(hit: &Hit, highlight: Highlight, explain: bool) -> Found {
    let document = &hit.document;
    // Offsets are characters of the plain text; with marks in it they would point elsewhere.
    let offsets = if highlight == Highlight::None { hit.snippet.highlights.clone() } else { Vec::new() };
    let related = hit.related.iter().map(|related| Related {
        reference: related.reference.clone(),
        relation: related.phrase,
        title: related.title.clone(),
    });
    Found {
        document_id: document.id,
        source_type: document.source_type.as_str(),
        title: document.title.clone(),
        url: document.url.clone(),
        project_path: document.project_path.clone(),
        author: document.author.clone(),
        created_at: document.created_at.map(clock::rfc3339),
        updated_at: document.updated_at.map(clock::rfc3339),
        score: rounded(hit.score),
        relevance: rounded(hit.relevance),
        rerank_score: hit.explain.reranked,
        snippet: snippet(hit, highlight),
        highlights: offsets,
        labels: document.labels.clone(),
        paths: document.paths.clone(),
        iid: document.iid,
        state: document.state.clone(),
        reference: reference(hit),
        related: related.collect(),
        explain: explain.then(|| explained(&hit.explain)),
    }
}

fn explained(explain: &search::Explain) -> Explain {
    Explain {
        fts_rank: explain.fts_rank,
        bm25: explain.bm25,
        vector_rank: explain.vector_rank,
        cosine: explain.cosine.map(rounded),
        chunk: explain.chunk.map(|(char_start, char_end)| Chunk { char_start, char_end }),
        rrf_score: rrf(explain),
        fused: explain.fused.map(|fused| Fused {
            lexical: rounded(fused.lexical),
            vector: rounded(fused.vector),
            sum: rounded(fused.sum),
        }),
        pinned: explain.pinned,
        matched_terms: explain.matched.clone(),
        neighbour_of: explain.neighbour_of.as_ref().map(|of| Neighbour {
            reference: of.name.clone(),
            relation: of.phrase,
            depth: of.depth,
        }),
        factors: explain.factors.iter().map(factor).collect(),
    }
}

fn facets(facets: &facets::Facets) -> Facets {
    let facet = |facet: &facets::Facet| {
        let values = facet.values.iter().map(|it| Count { value: it.value.clone(), count: it.count });
        Facet { values: values.collect(), more: facet.more }
    };
    Facets {
        total: facets.total,
        project: facet(&facets.project),
        r#type: facet(&facets.source_type),
        label: facet(&facets.label),
        author: facet(&facets.author),
        month: facet(&facets.month),
    }
}

fn factor(factor: &adjust::Factor) -> Factor {
    let (change, value) = match factor.change {
        Change::Times(value) => ("times", value),
        Change::Plus(value) => ("plus", value),
        Change::AtMost(value) => ("at_most", value),
    };
    Factor { name: factor.name, change, value: rounded(value) }
}

/// What the ranks alone would be worth in reciprocal rank fusion (k = 60).
pub(super) fn rrf(explain: &search::Explain) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
    let worth = |rank: usize| 1.0 / (60.0 + rank as f64);
    match (explain.fts_rank.map(worth), explain.vector_rank.map(worth)) {
        (None, None) => None,
        (lexical, vector) => Some(lexical.unwrap_or(0.0) + vector.unwrap_or(0.0)),
    }
}

/// Six decimals are enough to tell results apart.
fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// The answer's `meta`.
pub(super) fn meta(request: &Request, answer: &Answer) -> Result<Map<String, Value>> {
    let stages = answer.stages.iter().map(|stage| Stage {
        name: stage.name,
        status: stage.status.as_str(),
        elapsed_ms: (stage.elapsed.as_secs_f64() * 1e6).round() / 1e3,
    });
    let shown = request.offset.saturating_add(answer.hits.len());
    let meta = Meta {
        pipeline: stages.collect(),
        rerank: Rerank {
            status: answer.rerank.status.as_str(),
            provider: answer.rerank.provider,
            sent: answer.rerank.sent,
            scored: answer.rerank.scored,
            error: answer.rerank.error.clone(),
        },
        score: "relative to the best result",
        total_relation: if answer.total.exact { "eq" } else { "gte" },
        limit: request.limit,
        offset: request.offset,
        has_more: shown < answer.total.count,
        documents_indexed: answer.corpus,
        hints: answer.hints.iter().map(|hint| format!("{}:{}", hint.operator, hint.name)).collect(),
        terms: answer
            .terms
            .iter()
            .map(|term| Term { text: term.text.clone(), documents: term.documents, used: term.used })
            .collect(),
    };
    let Value::Object(meta) = value(&meta)? else { return Err(Error::internal("an answer is no object")) };
    Ok(meta)
}
