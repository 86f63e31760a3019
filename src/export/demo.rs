//! The sample export that is built in: a small fictional product with its issues, merge
//! requests and discussions, so that the first run needs nothing but the binary.

use super::Export;
use crate::config::ExportConfig;

/// Name of the source that means the sample when the configuration does not define it.
pub const SOURCE: &str = "demo";

/// Path of the fictional project.
pub const PROJECT: &str = "sample/photon";

/// Address of the fictional project; `.example` resolves nowhere.
pub const WEB_URL: &str = "https://gitlab.example/sample/photon";

const MEMBERS: &[(&str, &str)] = &[
    ("tree/project.json", include_str!("../../jobs/demo-data/tree/project.json")),
    (
        "tree/project/project_members.ndjson",
        include_str!("../../jobs/demo-data/tree/project/project_members.ndjson"),
    ),
    ("tree/project/labels.ndjson", include_str!("../../jobs/demo-data/tree/project/labels.ndjson")),
    ("tree/project/milestones.ndjson", include_str!("../../jobs/demo-data/tree/project/milestones.ndjson")),
    ("tree/project/issues.ndjson", include_str!("../../jobs/demo-data/tree/project/issues.ndjson")),
    (
        "tree/project/merge_requests.ndjson",
        include_str!("../../jobs/demo-data/tree/project/merge_requests.ndjson"),
    ),
];

/// The sample, ready to be read.
pub fn export() -> Export {
    Export::embedded("the built-in sample", MEMBERS)
}

/// The sample as a source.
pub fn config() -> ExportConfig {
    ExportConfig { path: "(built in)".into(), project: PROJECT.to_owned(), web_url: Some(WEB_URL.to_owned()) }
}
