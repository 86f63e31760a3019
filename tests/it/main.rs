//! The integration tests: the compiled binary from outside, and the shape of the tree.

/// The binary killed, stopped, contended.
mod crash;
/// What the tests share.
pub mod support;
/// A GitLab server and the binary: sync, its failures and exit codes.
mod sync;
/// Layers, sizes, heads of the source files.
mod tidy;
