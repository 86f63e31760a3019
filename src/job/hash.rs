//! The hash of a resolved job: what `--resume` compares.

use serde_json::json;
use sha2::{Digest, Sha256};

use super::Job;

/// Hashes everything that decides what a run of the job does. Grows a new version number
/// when what is hashed changes.
pub(super) fn of(job: &Job) -> String {
    let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let steps: Vec<serde_json::Value> = job
        .steps
        .iter()
        .map(|step| {
            json!([
                step.id,
                step.kind,
                step.needs,
                step.when.to_string(),
                step.timeout.map(ms),
                [u64::from(step.retry.max_attempts), ms(step.retry.backoff.base), ms(step.retry.backoff.max)],
                step.allow_failure,
                step.params.params(),
            ])
        })
        .collect();
    let value = json!(["job-v1", job.name, job.timeout.map(ms), job.max_parallel, job.full, steps]);
    let digest = Sha256::digest(value.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
