//! The sources: files that can be read, streams that fail, and servers.

use super::server::Server;
use super::{Checks, failure};
use crate::config::{ExportConfig, SourceConfig};
use crate::export::Export;
use crate::gitlab::diagnose::Finding;
use crate::store::Store;
use crate::store::cursors;

/// What a source is looked at with.
pub(super) struct Look<'a> {
    /// Name of the source.
    pub name: &'a str,
    /// The database, when it can be read.
    pub store: Option<&'a Store>,
    /// Environment variables, for secrets.
    pub vars: &'a dyn Fn(&str) -> Option<String>,
    /// Ask no server.
    pub offline: bool,
}

impl Look<'_> {
    /// Looks at one source.
    pub(super) async fn at(&self, source: &SourceConfig, checks: &mut Checks) {
        match source {
            SourceConfig::Gitlab(config) => Server { look: self, config }.look_at(checks).await,
            SourceConfig::GitlabExport(config) => checks.add(self.label("export"), export(config)),
        }
    }

    /// Name of a check of this source.
    pub(super) fn label(&self, what: &str) -> String {
        format!("{} {what}", self.name)
    }
}

fn export(config: &ExportConfig) -> Finding {
    match Export::open(&config.path).and_then(|export| export.stamp()) {
        Ok(_) => Finding::ok(format!("{} can be read", config.path.display())),
        Err(error) => failure(&error),
    }
}

/// Streams that the last runs could not read.
pub(super) fn streams(store: &Store, checks: &mut Checks) {
    match store.read(cursors::stream_failures) {
        Ok(failures) if failures.is_empty() => checks.add("streams", Finding::ok("none is failing")),
        Ok(failures) => {
            for failure in failures {
                checks.add(
                    format!("stream {} {}", failure.project_path, failure.stream),
                    Finding::warn(
                        format!("failed {} times: {}", failure.attempt_count, failure.error),
                        "what is stored is kept; it is tried again by the next runs",
                    ),
                );
            }
        }
        Err(error) => checks.fail("streams", &error),
    }
}
