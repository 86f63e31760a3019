//! The REST v4 client: addresses, paging, retries, and the tolerant reading of rows.
//!
//! Nothing here writes to the database. The client works for one source; the steps ask it
//! for pages and give the rows to [`wire`], which turns each into an entity or into the
//! reason why it cannot be one. What a status, a header or a broken body means is decided
//! by pure functions in [`answer`] and [`paging`].
//!
//! Everything of one run that asks the same server shares one [`Budget`].

pub mod address;
pub mod answer;
pub mod client;
pub mod diagnose;
pub mod pace;
pub mod paging;
pub mod related;
mod transport;
pub mod walk;
pub mod wire;

pub use address::Address;
pub use client::{Client, Look, Page};
pub use pace::{Budget, Patience};

use crate::error::Error;

/// A request that brought nothing usable. Turns into its [`Error`] where the status does
/// not matter.
#[derive(Debug)]
pub struct RequestError {
    /// Status of the answer, when there was one.
    pub status: Option<u16>,
    /// What to report.
    pub error: Error,
}

impl RequestError {
    /// Whether the server says that the thing is not there, or may not be seen.
    pub fn is_missing(&self) -> bool {
        matches!(self.status, Some(404 | 410))
    }

    /// Whether the server refuses the thing to this token, or has the feature switched off.
    pub fn is_forbidden(&self) -> bool {
        self.status == Some(403)
    }
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Self {
        error.error
    }
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self { status: None, error }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::shared as shared_file;
