//! The JSON form of an answer.

use serde_json::{Map, Value, json};

use super::Highlight;
use crate::clock;
use crate::content::ItemRef;
use crate::error::Result;
use crate::search::adjust::{Change, Factor};
use crate::search::{Answer, Explain, Hit, Request};
use crate::store::search::facets::{Facet, Facets};

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

/// The answer's `data`.
pub(in crate::cli) fn data(
    request: &Request,
    answer: &Answer,
    highlight: Highlight,
    explain: bool,
    fields: &[String],
) -> Result<Value> {
    let results: Vec<Value> =
        answer.hits.iter().map(|hit| Value::Object(chosen(hit, highlight, explain, fields))).collect();
    Ok(json!({
        "query": request.text,
        "like": request.like,
        "mode": answer.mode.as_str(),
        "total_results": answer.total.count,
        "results": results,
        "facets": answer.facets.as_ref().map(facets),
        "warnings": answer.warnings,
        "suggestions": answer.loosened.iter().map(|loosened| json!({
            "without": loosened.without,
            "documents": loosened.documents,
        })).collect::<Vec<_>>(),
    }))
}

/// The fields of a result that are wanted; all without a choice.
pub(super) fn chosen(
    hit: &Hit,
    highlight: Highlight,
    explain: bool,
    fields: &[String],
) -> Map<String, Value> {
    let all = result(hit, highlight, explain);
    match fields {
        [] => all,
        _ => all.into_iter().filter(|(name, _)| fields.iter().any(|field| field.trim() == name)).collect(),
    }
}

fn result(hit: &Hit, highlight: Highlight, explain: bool) -> Map<String, Value> {
    let document = &hit.document;
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    put("document_id", document.id.into());
    put("source_type", document.source_type.as_str().into());
    put("title", document.title.clone().into());
    put("url", document.url.clone().into());
    put("project_path", document.project_path.clone().into());
    put("author", document.author.clone().into());
    put("created_at", document.created_at.map(clock::rfc3339).into());
    put("updated_at", document.updated_at.map(clock::rfc3339).into());
    put("score", rounded(hit.score).into());
    put("relevance", rounded(hit.relevance).into());
    put("rerank_score", hit.explain.reranked.into());
    put("snippet", snippet(hit, highlight).into());
    // Offsets are characters of the plain text; with marks in it they would point elsewhere.
    let offsets = if highlight == Highlight::None { hit.snippet.highlights.as_slice() } else { &[] };
    put("highlights", json!(offsets));
    put("labels", json!(document.labels));
    put("paths", json!(document.paths));
    put("iid", document.iid.into());
    put("state", document.state.clone().into());
    put("reference", reference(hit).into());
    let related = hit.related.iter().map(|related| {
        json!({ "reference": related.reference, "relation": related.phrase, "title": related.title })
    });
    put("related", related.collect::<Vec<_>>().into());
    if explain {
        let explain = &hit.explain;
        put(
            "explain",
            json!({
                "fts_rank": explain.fts_rank,
                "bm25": explain.bm25,
                "vector_rank": explain.vector_rank,
                "cosine": explain.cosine.map(rounded),
                "chunk": explain.chunk.map(|(from, to)| json!({ "char_start": from, "char_end": to })),
                "rrf_score": rrf(explain),
                "fused": explain.fused.map(|fused| json!({
                    "lexical": rounded(fused.lexical),
                    "vector": rounded(fused.vector),
                    "sum": rounded(fused.sum),
                })),
                "pinned": explain.pinned,
                "matched_terms": explain.matched,
                "neighbour_of": explain.neighbour_of.as_ref().map(|of| json!({
                    "reference": of.name,
                    "relation": of.phrase,
                    "depth": of.depth,
                })),
                "factors": explain.factors.iter().map(factor).collect::<Vec<_>>(),
            }),
        );
    }
    out
}

fn facets(facets: &Facets) -> Value {
    let facet = |facet: &Facet| {
        json!({
            "values": facet.values.iter().map(|it| json!({ "value": it.value, "count": it.count })).collect::<Vec<_>>(),
            "more": facet.more,
        })
    };
    json!({
        "total": facets.total,
        "project": facet(&facets.project),
        "type": facet(&facets.source_type),
        "label": facet(&facets.label),
        "author": facet(&facets.author),
        "month": facet(&facets.month),
    })
}

fn factor(factor: &Factor) -> Value {
    let (change, value) = match factor.change {
        Change::Times(value) => ("times", value),
        Change::Plus(value) => ("plus", value),
        Change::AtMost(value) => ("at_most", value),
    };
    json!({ "name": factor.name, "change": change, "value": rounded(value) })
}

/// What the ranks alone would be worth in reciprocal rank fusion (k = 60).
pub(super) fn rrf(explain: &Explain) -> Option<f64> {
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
pub(super) fn meta(request: &Request, answer: &Answer) -> Map<String, Value> {
    let stages: Vec<Value> = answer
        .stages
        .iter()
        .map(|stage| {
            json!({
                "name": stage.name,
                "status": stage.status.as_str(),
                "elapsed_ms": (stage.elapsed.as_secs_f64() * 1e6).round() / 1e3,
            })
        })
        .collect();
    let shown = request.offset.saturating_add(answer.hits.len());
    let Value::Object(meta) = json!({
        "pipeline": stages,
        "rerank": {
            "status": answer.rerank.status.as_str(),
            "provider": answer.rerank.provider,
            "sent": answer.rerank.sent,
            "scored": answer.rerank.scored,
            "error": answer.rerank.error,
        },
        // What `score` and --min-score speak of.
        "score": "relative to the best result",
        "total_relation": if answer.total.exact { "eq" } else { "gte" },
        "limit": request.limit,
        "offset": request.offset,
        "has_more": shown < answer.total.count,
        "documents_indexed": answer.corpus,
        "hints": answer.hints.iter().map(|hint| format!("{}:{}", hint.operator, hint.name)).collect::<Vec<_>>(),
        "terms": answer.terms.iter().map(|term| json!({
            "text": term.text,
            "documents": term.documents,
            "used": term.used,
        })).collect::<Vec<_>>(),
    }) else {
        return Map::new();
    };
    meta
}
