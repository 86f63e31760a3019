//! The step kinds. Each is one file and one line of [`ALL`].

pub mod backup;
pub mod embed;
pub mod fetch_discussions;
pub mod fetch_links;
pub mod ingest;
pub mod integrity_check;
pub mod metrics;
pub mod optimize_fts;
pub mod prune;
pub mod rebuild;
pub mod reconcile;
pub mod regenerate_docs;
pub mod repair;

use crate::engine::step::StepDef;

/// Every kind of step that a job file can name, in the order in which lists show them.
pub static ALL: &[StepDef] = &[
    StepDef::of::<ingest::Ingest>(),
    StepDef::of::<fetch_discussions::FetchDiscussions>(),
    StepDef::of::<fetch_links::FetchLinks>(),
    StepDef::of::<rebuild::Rebuild>(),
    StepDef::of::<regenerate_docs::RegenerateDocs>(),
    StepDef::of::<embed::Embed>(),
    StepDef::of::<optimize_fts::OptimizeFts>(),
    StepDef::of::<integrity_check::IntegrityCheck>(),
    StepDef::of::<repair::Repair>(),
    StepDef::of::<backup::Backup>(),
    StepDef::of::<reconcile::Reconcile>(),
    StepDef::of::<prune::Prune>(),
    StepDef::of::<metrics::Metrics>(),
];

/// Finds a kind by its name in job files.
pub fn find(kind: &str) -> Option<&'static StepDef> {
    ALL.iter().find(|step| step.kind == kind)
}

#[cfg(test)]
mod tests;
