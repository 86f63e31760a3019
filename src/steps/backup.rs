//! `backup`: a checked copy of the database, and no more copies than wanted.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{self, Millis};
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::{Result, io_error};
use crate::store::backup::{self, Existing};

/// Copies the database to a new file, checks the copy, and removes the oldest copies.
///
/// Queries and other processes go on meanwhile. Files are named after the database and the time,
/// for example `lore-20260131T023000Z.db`; only files named like that are ever removed, and only
/// after the new copy is whole. A directory on the database's own volume does not survive the loss of that volume.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backup {
    /// Directory of the copies. Default: `backups` beside the database.
    #[schemars(length(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<PathBuf>,
    /// Copies that are kept, the new one included; at least 1.
    #[schemars(range(min = 1))]
    #[serde(deserialize_with = "at_least_one")]
    pub keep: usize,
}

impl Default for Backup {
    fn default() -> Self {
        Self { dir: None, keep: 7 }
    }
}

fn at_least_one<'de, D: serde::Deserializer<'de>>(from: D) -> std::result::Result<usize, D::Error> {
    let keep = usize::deserialize(from)?;
    if keep == 0 {
        return Err(serde::de::Error::custom("at least 1: the copy that is made is one"));
    }
    Ok(keep)
}

impl Step for Backup {
    const KIND: &'static str = "backup";
    const SUMMARY: &'static str = "copies the database to a new file and checks the copy";
    const EXAMPLE: &'static str = "{ keep = 3 }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let database = ctx.store.path();
        let directory = match &self.dir {
            Some(dir) => dir.clone(),
            None => database.with_file_name("backups"),
        };
        let stem = database.file_stem().map_or_else(|| "lore".into(), |stem| stem.to_string_lossy());
        let target = directory.join(file_name(&stem, ctx.now()));
        if target.exists() {
            return Ok(StepReport::skipped(format!("{} was made this second", target.display())));
        }
        ctx.check()?;
        let mut told = |done, total| ctx.progress.set("pages", done, Some(total));
        let copied =
            backup::copy(database, &target, Existing::Keep, ctx.store.options(), &ctx.cancel, &mut told)?;
        ctx.progress.finish();
        let mut report = StepReport::default();
        report.add("documents", copied.documents);
        report.add("bytes", i64::try_from(copied.bytes).unwrap_or(i64::MAX));
        for old in too_old(&names(&directory)?, &stem, self.keep) {
            let path = directory.join(&old);
            match std::fs::remove_file(&path) {
                Ok(()) => report.add("removed", 1),
                Err(error) => report.warn(format!("{} cannot be removed: {error}", path.display())),
            }
        }
        Ok(report)
    }
}

/// Name of a copy made at `now`, sortable by time.
fn file_name(stem: &str, now: Millis) -> String {
    let time: String = clock::rfc3339(now).chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
    format!("{stem}-{time}Z.db")
}

/// Copies of this database beyond the newest `keep`, by their names.
fn too_old(names: &[String], stem: &str, keep: usize) -> Vec<String> {
    let mut copies: Vec<&String> = names.iter().filter(|name| is_copy(name, stem)).collect();
    copies.sort_unstable();
    let n = copies.len().saturating_sub(keep);
    copies.into_iter().take(n).cloned().collect()
}

/// Whether a file was made by [`file_name`]: nothing else is ever removed.
fn is_copy(name: &str, stem: &str) -> bool {
    let Some(time) = name
        .strip_prefix(stem)
        .and_then(|rest| rest.strip_prefix('-'))
        .and_then(|rest| rest.strip_suffix("Z.db"))
    else {
        return false;
    };
    time.chars().count() == 15
        && time.chars().enumerate().all(|(at, c)| if at == 8 { c == 'T' } else { c.is_ascii_digit() })
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let failed = |error| io_error(format!("list {}", directory.display()), error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_named_like_a_copy_are_counted_and_the_oldest_go() {
        let name = file_name("lore", 1_769_826_600_123);
        assert_eq!(name, "lore-20260131T023000Z.db");
        let names: Vec<String> = [
            "lore-20260131T023000Z.db",
            "lore-20260129T023000Z.db",
            "lore-20260130T023000Z.db",
            "lore-20260128T023000Z.db-journal",
            "lore-before-the-upgrade.db",
            "lore-2026013xT023000Z.db",
            "other-20250101T000000Z.db",
            "lore.db",
        ]
        .map(str::to_owned)
        .to_vec();
        assert_eq!(too_old(&names, "lore", 2), ["lore-20260129T023000Z.db"]);
        assert_eq!(too_old(&names, "lore", 3), Vec::<String>::new());
        assert_eq!(too_old(&names, "other", 1), Vec::<String>::new());
    }
}
