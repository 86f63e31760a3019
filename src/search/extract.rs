//! PARSE by a language model, when it is configured: it takes the free text apart; operators,
//! quoted phrases and references stay what lore's own rules read.

use std::time::Instant;

use super::Request;
use super::ask::{Assist, Outcome, guarded};
use super::parse::{self, Query};
use super::stage::{Stages, Status};
use crate::assist::extract::Extractor;
use crate::config::NerFallback;
use crate::error::{Error, Result};
use crate::store::Store;

/// The query with the tokens of the extractor, as far as there is one and it answers.
///
/// # Errors
/// Those of the database; with `propagate` those of the extractor; with `empty_on_fail`
/// [`NoUsableTokens`](crate::error::ErrorKind::NoUsableTokens) when nothing is left.
pub(super) fn tokens(
    store: &Store,
    assist: Option<&Assist<'_>>,
    request: &Request,
    query: Query,
    stages: &mut Stages,
) -> Result<Query> {
    let Some(assist) = assist else { return Ok(query) };
    if request.raw || request.like.is_some() || query.meaning.is_empty() {
        return Ok(query);
    }
    let started = Instant::now();
    let extractor = match Extractor::of_config(assist.query, assist.vars) {
        Ok(Some(extractor)) => extractor,
        Ok(None) => return Ok(query),
        Err(error) => return fall_back(assist.query.ner_fallback, query, error),
    };
    let name = format!("extract {}", extractor.endpoint());
    let limits = (request.now, assist.query.ner_timeout);
    let (status, out) = match guarded(store, assist, &name, limits, extractor.tokens(&query.meaning))? {
        Outcome::Done(tokens) => {
            let out = parse::with_tokens(query.clone(), &tokens.keywords, &tokens.literals);
            // Nothing of use is as good as no answer.
            let out = if out.has_text() || !out.references.is_empty() { out } else { query };
            (Status::Ok, Ok(out))
        }
        Outcome::Failed(status, error) => (status, fall_back(assist.query.ner_fallback, query, error)),
    };
    stages.note("extract", status);
    stages.add("extract", started.elapsed());
    stages.sent("extract", extractor.stats());
    out
}

/// What is done when the extractor fails.
fn fall_back(fallback: NerFallback, mut query: Query, error: Error) -> Result<Query> {
    match fallback {
        NerFallback::UseHeuristic => {
            query
                .warnings
                .push(format!("the question was taken apart by lore's own rules: {}", error.full_message()));
            Ok(query)
        }
        NerFallback::EmptyOnFail => {
            let message = format!("the question was not taken apart: {}", error.full_message());
            query.warnings.push(message.clone());
            parse::without_tokens(query).map_err(|empty| empty.context(message))
        }
        NerFallback::Propagate => Err(error.context("take the question apart")),
    }
}
