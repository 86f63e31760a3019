//! What the integration tests share.

/// Runs the compiled binary.
pub mod binary;
/// Collections with questions and judgements.
pub mod collection;
/// The logical content of a database.
pub mod dump;
/// An embedding server of our own.
pub mod fake_embedder;
/// A GitLab server of our own.
pub mod fake_gitlab;
/// A reranker and a chat model of our own.
pub mod fake_reranker;
/// Passes requests on to a server of our own.
pub mod relay;
/// Real servers and validators of the operator's side, when they are installed.
pub mod tools;
