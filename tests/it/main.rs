//! The integration tests: the compiled binary from outside, and the shape of the tree.

/// Layers, sizes, heads of the source files.
mod tidy;
