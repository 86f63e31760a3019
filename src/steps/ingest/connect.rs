//! How steps reach a server: with its token, and on the budget that the whole run shares.

use std::time::Instant;

use crate::config::GitlabConfig;
use crate::engine::ctx::StepCtx;
use crate::error::Result;
use crate::gitlab::{Client, Patience};

/// Makes the client of a source.
///
/// # Errors
/// [`TokenNotSet`](crate::error::ErrorKind::TokenNotSet) and those of [`Client::sharing`].
pub(in crate::steps) fn connect(ctx: &StepCtx<'_>, name: &str, config: &GitlabConfig) -> Result<Client> {
    let token = match &config.token {
        Some(reference) => Some(reference.read(&format!("sources.{name}.token"), ctx.vars)?),
        None => None,
    };
    let patience = Patience { deadline: ctx.deadline, longest: ctx.shared.longest_wait() };
    let budget = ctx.shared.get(name, || Client::budget(config, Instant::now()));
    Client::sharing(config, token, patience, budget).map_err(|error| error.context(format!("source {name}")))
}
