//! The tools that agents call, over the Model Context Protocol.
//!
//! What a tool does comes from outside ([`Tools`]): the same functions that answer on the
//! command line. Here is what is special about agents: arguments with descriptions that a
//! model can follow, answers that fit into a model's context, and errors that a model can act
//! on. A tool has no argument that widens what may be seen.

pub mod arguments;
pub mod bounds;
mod lines;
mod server;

use serde_json::Value;

use crate::error::Result;
use arguments::{GetThread, Search, Similar, Status};

pub use server::serve;

/// What the tools do. Called on a thread that may block, several at once.
pub trait Tools: Send + Sync + 'static {
    /// Asks the index.
    ///
    /// # Errors
    /// What the agent is told.
    fn search(&self, arguments: Search) -> Result<Value>;

    /// A stored thread as text, a part at a time.
    ///
    /// # Errors
    /// What the agent is told.
    fn get_thread(&self, arguments: GetThread) -> Result<Value>;

    /// What is like an item or a text.
    ///
    /// # Errors
    /// What the agent is told.
    fn similar(&self, arguments: Similar) -> Result<Value>;

    /// How fresh and how complete the index is.
    ///
    /// # Errors
    /// What the agent is told.
    fn status(&self, arguments: Status) -> Result<Value>;
}
