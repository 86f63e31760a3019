//! RERANK: a reranker reads the passages of the first results. No read of the database is held
//! open while it is waited for; what it does not say in time is not waited for.

use std::time::{Duration, Instant};

use super::ask::{Assist, Outcome, guarded};
use super::funnel::{Funnel, Ranked};
use super::lexical::Needles;
use super::rank::Ranking;
use super::stage::Status;
use super::{Request, adjust, passage};
use crate::assist::rerank::Reranker;
use crate::config::{RerankConfig, RerankProvider};
use crate::error::Result;
use crate::store::Store;
use crate::store::embeddings::chunk_span;
use crate::store::search as sql;
use crate::traffic::StatsView;

/// Characters of a query that are sent.
const QUERY_CHARS: usize = 1_000;

/// What became of reranking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerankReport {
    /// How it ended.
    pub status: Status,
    /// Who was to rerank.
    pub provider: &'static str,
    /// Texts that were sent.
    pub sent: usize,
    /// Texts that were scored.
    pub scored: usize,
    /// Why the fused order stands.
    pub error: Option<String>,
}

impl RerankReport {
    /// Nothing was done, and nothing is wrong.
    pub(super) const fn none(status: Status, provider: &'static str) -> Self {
        Self { status, provider, sent: 0, scored: 0, error: None }
    }
}

/// What a reranker is to read: one text for each of the first results, empty when there is
/// nothing to be read.
#[derive(Debug, Default)]
pub(super) struct Passages {
    query: String,
    texts: Vec<String>,
}

impl Funnel<'_> {
    /// The passages of the first results that are not named.
    ///
    /// # Errors
    /// Those of SQLite.
    pub(super) fn passages(
        &self,
        ranking: &Ranking,
        needles: &Needles,
        config: &RerankConfig,
    ) -> Result<Passages> {
        let query = if self.query.meaning.is_empty() {
            let title = self.query.words.get(..self.query.first_line / 2).unwrap_or_default();
            title.join(" ")
        } else {
            self.query.meaning.clone()
        };
        let query: String = query.chars().take(QUERY_CHARS).collect();
        if self.query.filter_only(self.request.raw) || query.trim().is_empty() {
            return Ok(Passages::default());
        }
        let head: Vec<_> = ranking.entries.iter().filter(|entry| !entry.pinned).take(config.top_k).collect();
        let ids: Vec<i64> = head.iter().map(|entry| entry.id).collect();
        let documents = sql::hydrate(self.tx, &ids)?;
        let mut texts = Vec::new();
        for entry in head {
            let Some(document) = documents.iter().find(|document| document.id == entry.id) else {
                texts.push(String::new());
                continue;
            };
            let span = entry.chunk_id.map(|id| chunk_span(self.tx, id)).transpose()?.flatten();
            texts.push(passage::of(document, span, needles, config.max_chars));
        }
        Ok(Passages { query, texts })
    }
}

/// Asks the reranker, and puts its answer into the list.
///
/// # Errors
/// Those of the database; what the service does wrong is told in the report and in a warning.
pub(super) fn rerank(
    store: &Store,
    assist: Option<&Assist<'_>>,
    request: &Request,
    ranked: &mut Ranked,
) -> Result<RerankReport> {
    let report = ask(store, assist, request, ranked)?;
    let (report, elapsed, requests) = report;
    ranked.stages.note("rerank", report.status);
    ranked.stages.add("rerank", elapsed);
    ranked.stages.sent("rerank", requests);
    if let Some(error) = &report.error {
        ranked.warnings.push(format!("not reranked, the fused order stands: {error}"));
    }
    Ok(report)
}

fn ask(
    store: &Store,
    assist: Option<&Assist<'_>>,
    request: &Request,
    ranked: &mut Ranked,
) -> Result<(RerankReport, Duration, StatsView)> {
    let started = Instant::now();
    let config = assist.map(|assist| assist.rerank).filter(|_| request.options.rerank);
    let (Some(assist), Some(config)) = (assist, config) else {
        return Ok((RerankReport::none(Status::Disabled, "none"), Duration::ZERO, StatsView::default()));
    };
    let provider = config.provider.as_str();
    if config.provider == RerankProvider::None {
        return Ok((RerankReport::none(Status::Disabled, provider), Duration::ZERO, StatsView::default()));
    }
    let Passages { query, texts } = std::mem::take(&mut ranked.passages);
    let places: Vec<usize> =
        texts.iter().enumerate().filter(|(_, text)| !text.trim().is_empty()).map(|(at, _)| at).collect();
    if places.len() < 2 {
        return Ok((RerankReport::none(Status::Skipped, provider), started.elapsed(), StatsView::default()));
    }
    let sent: Vec<String> = places.iter().filter_map(|at| texts.get(*at)).cloned().collect();
    let failed = |status, error: String| RerankReport {
        error: Some(error),
        sent: sent.len(),
        ..RerankReport::none(status, provider)
    };
    let reranker = match Reranker::of_config(config, assist.vars) {
        Ok(Some(reranker)) => reranker,
        Ok(None) => {
            return Ok((
                RerankReport::none(Status::Disabled, provider),
                Duration::ZERO,
                StatsView::default(),
            ));
        }
        Err(error) => {
            return Ok((
                failed(Status::Error, error.full_message()),
                started.elapsed(),
                StatsView::default(),
            ));
        }
    };
    let name = format!("rerank {}", reranker.endpoint());
    let limits = (request.now, config.timeout);
    let report = match guarded(store, assist, &name, limits, reranker.scores(&query, &sent))? {
        Outcome::Done(scores) => {
            let mut by_place = vec![None; texts.len()];
            for (at, score) in places.iter().zip(&scores) {
                if let Some(slot) = by_place.get_mut(*at) {
                    *slot = *score;
                }
            }
            let scored = scores.iter().flatten().count();
            adjust::rerank(&mut ranked.ranking.entries, &by_place, config.weight);
            let status = if scored < sent.len() { Status::Degraded } else { Status::Ok };
            RerankReport { status, provider, sent: sent.len(), scored, error: None }
        }
        Outcome::Failed(status, error) => failed(status, error.full_message()),
    };
    Ok((report, started.elapsed(), reranker.stats()))
}
