//! What steps share that ask GitLab servers about one item after another.

use std::collections::BTreeMap;

use tokio::task::JoinSet;

use super::gitlab::is_isolated;
use super::unknown_source;
use crate::config::{GitlabConfig, SourceConfig};
use crate::engine::ctx::StepCtx;
use crate::error::{Error, ErrorKind, Result};
use crate::export::demo;
use crate::gitlab::RequestError;
use crate::store::entities::{self, StoredProject};

/// Items in a row that fail as if the server were down, after which it is taken to be down:
/// the step fails then, and no item pays for it with one of its attempts.
const OUTAGE_AFTER: usize = 3;

/// Returns the sources that are servers: the one that is named, or all of them. None when the
/// named one is an export.
///
/// # Errors
/// A name that no source has.
pub(in crate::steps) fn of_config<'a>(
    ctx: &StepCtx<'a>,
    wanted: Option<&str>,
) -> Result<Vec<(&'a str, &'a GitlabConfig)>> {
    let sources = &ctx.config.sources;
    if let Some(name) = wanted
        && !sources.contains_key(name)
        && name != demo::SOURCE
    {
        return Err(unknown_source(ctx.config, name));
    }
    Ok(sources
        .iter()
        .filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name))
        .filter_map(|(name, source)| match source {
            SourceConfig::Gitlab(config) => Some((name.as_str(), config)),
            SourceConfig::GitlabExport(_) => None,
        })
        .collect())
}

/// Works on one server after another. One that fails does not keep the others waiting, but
/// its error is the step's in the end; what is not about a server ends the step at once.
///
/// # Errors
/// The first of `work`.
pub(in crate::steps) fn each(
    servers: &[(&str, &GitlabConfig)],
    mut work: impl FnMut(&str, &GitlabConfig) -> Result<()>,
) -> Result<()> {
    let mut first = None;
    for (name, config) in servers {
        let Err(error) = work(name, config) else { continue };
        let stays_there = is_isolated(error.kind()) || error.kind() == ErrorKind::Auth;
        let error = error.context(format!("source {name}"));
        if !stays_there {
            return Err(error);
        }
        first.get_or_insert(error);
    }
    first.map_or(Ok(()), Err)
}

/// Projects by local id, each read once.
#[derive(Default)]
pub(in crate::steps) struct Projects(BTreeMap<i64, StoredProject>);

impl Projects {
    /// Returns a stored project.
    ///
    /// # Errors
    /// SQLite's, and an id that is not stored.
    pub(in crate::steps) fn get(&mut self, ctx: &StepCtx<'_>, id: i64) -> Result<StoredProject> {
        if let Some(project) = self.0.get(&id) {
            return Ok(project.clone());
        }
        let project = ctx.read(|tx| entities::project_by_id(tx, id))?;
        self.0.insert(id, project.clone());
        Ok(project)
    }
}

/// Whether a failure looks like the server's rather than the item's. A 500 or a damaged
/// body can be the item's own: heavy threads do that.
pub(in crate::steps) fn is_outage(error: &RequestError) -> bool {
    error.error.kind() == ErrorKind::Network && matches!(error.status, None | Some(502 | 503 | 520..=530))
}

/// Items that failed in a row as if the server were down.
pub(in crate::steps) struct Suspects<T>(Vec<(T, Error)>);

impl<T> Default for Suspects<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Suspects<T> {
    /// Adds an item.
    ///
    /// # Errors
    /// The first one's, when they are so many that it is the server that fails.
    pub(in crate::steps) fn add(&mut self, item: T, error: Error) -> Result<()> {
        self.0.push((item, error));
        if self.0.len() < OUTAGE_AFTER {
            return Ok(());
        }
        let (_, first) = self.0.swap_remove(0);
        Err(first.hint("the items stay queued; run again when the server answers"))
    }

    /// The server answered, so it was the items that failed: returns them, and forgets them.
    pub(in crate::steps) fn acquit_server(&mut self) -> Vec<(T, Error)> {
        std::mem::take(&mut self.0)
    }

    pub(in crate::steps) const fn len(&self) -> usize {
        self.0.len()
    }
}

/// Waits for the next of the requests under way; none may be under way only by mistake.
///
/// # Errors
/// A request that panicked, and what ends the step.
pub(in crate::steps) fn next_done<T: Send + 'static>(ctx: &StepCtx<'_>, tasks: &mut JoinSet<T>) -> Result<T> {
    ctx.block_on(async {
        match tasks.join_next().await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => Err(Error::internal("a request ended early").because(error)),
            None => Err(Error::internal("no request is under way")),
        }
    })
}
