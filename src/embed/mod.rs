//! Turning texts into vectors.

#[cfg(feature = "builtin-embedder")]
pub mod builtin;
