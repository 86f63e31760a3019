//! The integration tests: the compiled binary from outside, and the shape of the tree.

/// The binary killed, stopped, contended.
mod crash;
/// What the tests share.
mod support;
/// Layers, sizes, heads of the source files.
mod tidy;
