//! The integration tests: the compiled binary from outside, and the shape of the tree.

/// The binary killed, stopped, contended.
mod crash;
/// What the tests share.
mod support;
/// `lore config`: places, precedence, secrets.
mod config;
/// The generated reference is up to date.
mod docs;
/// `lore jobs`: finding, checking, drawing; the shipped jobs.
mod jobs;
/// Layers, sizes, heads of the source files.
mod tidy;
