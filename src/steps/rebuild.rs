//! `rebuild`: reads again, without any network, what GitLab sent before.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::content::ItemType;
use crate::engine::ctx::StepCtx;
use crate::engine::step::{Step, StepReport};
use crate::error::Result;
use crate::gitlab::wire;
use crate::store::entities::{self, Payload, Rebuilt, StoredProject};

/// Packed bytes that are unpacked at once, at most.
const BATCH_BYTES: usize = 1 << 20;

/// Parses every kept answer of GitLab again and stores what comes out differently: after a
/// fix of the parser, or when the parsed rows were damaged. Asks no server.
///
/// An entity that comes out as it is stored is not written, so a rebuild of a healthy
/// database changes nothing. What changed is queued for `regenerate-docs`. Projects that were
/// read from export archives keep no answers: read the archive again with
/// `lore run sync --full`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rebuild {
    /// Answers read per transaction. Default 200.
    #[schemars(range(min = 1, max = 5000))]
    pub batch: usize,
}

impl Default for Rebuild {
    fn default() -> Self {
        Self { batch: 200 }
    }
}

impl Step for Rebuild {
    const KIND: &'static str = "rebuild";
    const SUMMARY: &'static str = "parses the kept answers of GitLab again, without the network";
    const EXAMPLE: &'static str = "{ batch = 200 }";

    fn run(&self, ctx: &StepCtx<'_>) -> Result<StepReport> {
        let (total, _) = ctx.read(entities::payload_sizes)?;
        if total == 0 {
            return Ok(StepReport::skipped(
                "no answers are kept (they come with GitLab servers, unless raw_payloads = \"none\")",
            ));
        }
        let mut report = StepReport::default();
        for name in ["payloads", "rebuilt", "unchanged"] {
            report.add(name, 0);
        }
        let mut projects: BTreeMap<i64, StoredProject> = BTreeMap::new();
        let mut last = 0;
        loop {
            ctx.check()?;
            let payloads = ctx.read(|tx| entities::payloads(tx, last, self.batch.max(1), BATCH_BYTES))?;
            let Some(newest) = payloads.last() else { break };
            last = newest.id;
            let n = i64::try_from(payloads.len()).unwrap_or(i64::MAX);
            let mut parsed = Vec::new();
            for payload in &payloads {
                match parse(payload) {
                    Ok(entity) => parsed.push((payload.project_id, entity)),
                    Err(reason) => {
                        report.failing += 1;
                        report.add("bad_payloads", 1);
                        report.warn(format!("{} {}: {reason}", payload.resource_type, payload.resource_key));
                    }
                }
            }
            for (project_id, _) in &parsed {
                if !projects.contains_key(project_id) {
                    projects.insert(*project_id, ctx.read(|tx| entities::project_by_id(tx, *project_id))?);
                }
            }
            let now = ctx.now();
            let rebuilt = ctx.write(|tx| {
                let mut n = 0;
                for (project_id, entity) in &parsed {
                    if let Some(project) = projects.get(project_id) {
                        n += i64::from(entities::rebuild(tx, project, entity, now)?);
                    }
                }
                Ok(n)
            })?;
            report.add("payloads", n);
            report.add("rebuilt", rebuilt);
            report.add("unchanged", i64::try_from(parsed.len()).unwrap_or(i64::MAX) - rebuilt);
            let done = u64::try_from(report.count("payloads")).unwrap_or(0);
            ctx.progress.set("answers", done, u64::try_from(total).ok());
        }
        ctx.progress.finish();
        Ok(report)
    }
}

/// Reads a payload as ingest read it.
fn parse(payload: &Payload) -> Result<Rebuilt, String> {
    let body = payload.body.as_ref().map_err(Clone::clone)?;
    let raw: Box<RawValue> =
        serde_json::from_slice(body).map_err(|error| format!("it is not JSON: {error}"))?;
    match payload.resource_type.as_str() {
        "issue" => wire::issue(&raw).map(|issue| Rebuilt::Issue(Box::new(issue))).map_err(|bad| bad.reason),
        "merge_request" => wire::merge_request(&raw)
            .map(|request| Rebuilt::MergeRequest(Box::new(request)))
            .map_err(|bad| bad.reason),
        "discussion" => {
            let (item_type, iid) =
                discussion_key(&payload.resource_key).ok_or("its key names no item".to_owned())?;
            let (discussion, _) = wire::discussion(&raw).map_err(|bad| bad.reason)?;
            Ok(Rebuilt::Discussion { item_type, iid, discussion: Box::new(discussion) })
        }
        other => Err(format!("nothing is known of payloads of type {other:?}")),
    }
}

/// Reads `Issue/12/<discussion id>`.
fn discussion_key(key: &str) -> Option<(ItemType, i64)> {
    let mut parts = key.splitn(3, '/');
    let noteable = parts.next()?;
    let item_type = ItemType::ALL.into_iter().find(|known| known.noteable_type() == noteable)?;
    Some((item_type, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_discussions_are_read_back() {
        assert_eq!(discussion_key("Issue/12/ab/cd"), Some((ItemType::Issue, 12)));
        assert_eq!(discussion_key("MergeRequest/3/ab"), Some((ItemType::MergeRequest, 3)));
        assert_eq!(discussion_key("Epic/3/ab"), None);
        assert_eq!(discussion_key("Issue/x/ab"), None);
    }
}
