//! lore keeps the memory of a software team searchable.
//!
//! The crate is a library with one door: [`run`] takes a [`World`] (arguments, environment,
//! outputs) and returns an exit code. ARCHITECTURE.md maps the modules and says which way
//! they may use each other.

pub mod assist;
pub mod backoff;
pub mod bounded;
pub mod cli;
pub mod clock;
pub mod config;
pub mod content;
pub mod diagnostic;
pub mod duration;
pub mod embed;
pub mod engine;
pub mod error;
pub mod export;
pub mod fault;
pub mod gitlab;
pub mod job;
pub mod mcp;
pub mod search;
pub mod secret;
pub mod service;
pub mod steps;
pub mod store;
pub mod telemetry;
pub mod traffic;

pub use cli::{World, run};

/// Columns of the terminal behind standard output, when it is one.
pub fn terminal_columns() -> Option<usize> {
    #[cfg(unix)]
    {
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        (size.ws_col > 0).then_some(usize::from(size.ws_col))
    }
    #[cfg(not(unix))]
    None
}

/// A GitLab server for tests, shared with the tests of the binary.
#[cfg(test)]
#[path = "../tests/it/support/fake_gitlab/mod.rs"]
pub mod fake_gitlab;

#[cfg(test)]
#[path = "../tests/it/support/fake_embedder.rs"]
pub mod fake_embedder;
