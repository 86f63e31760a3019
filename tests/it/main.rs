//! The integration tests: the compiled binary from outside, and the shape of the tree.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the rules of the library; a test fails by panicking and reads its surroundings"
)]

/// `lore config`: places, precedence, secrets.
mod config;
/// The binary killed, stopped, contended.
mod crash;
/// The generated reference is up to date.
mod docs;
/// Documents of awkward texts.
mod documents;
/// The embed step by the compiled binary.
mod embed;
/// The sample that is built in.
mod export_demo;
/// The ingest step on export archives.
mod export_ingest;
/// Real and converted exports, when they are on this machine.
mod export_real;
/// A database and the ingest step, without the runner.
mod export_world;
/// The GitLab server of our own does what GitLab does.
mod gitlab_model;
/// `lore jobs`: finding, checking, drawing; the shipped jobs.
mod jobs;
mod meaning;
/// `lore query` and `lore show` on the sample project.
mod query;
/// What the tests share.
mod support;
/// A GitLab server and the binary: sync, its failures and exit codes.
mod sync;
/// Layers, sizes, heads of the source files.
mod tidy;
