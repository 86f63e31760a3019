//! Services that a query may ask beside the embedder: a reranker, and a model that takes a
//! question apart. Both may be absent, slow or wrong; the query goes on without them.

pub mod extract;
mod http;
pub mod rerank;

use crate::error::Error;

/// Why a service gave nothing.
#[derive(Debug)]
pub enum Failed {
    /// No answer in time.
    Late(Error),
    /// No connection, or a server that cannot answer now.
    Down(Error),
    /// An answer that says no, or says nothing of use. Asking it again changes nothing.
    Useless(Error),
}

impl Failed {
    /// What to tell.
    pub fn into_error(self) -> Error {
        match self {
            Self::Late(error) | Self::Down(error) | Self::Useless(error) => error,
        }
    }

    /// What to tell, in short.
    fn message(&self) -> String {
        match self {
            Self::Late(error) | Self::Down(error) | Self::Useless(error) => error.to_string(),
        }
    }

    /// Whether the service should be left alone when this happens again.
    pub const fn is_outage(&self) -> bool {
        match self {
            Self::Late(_) | Self::Down(_) => true,
            Self::Useless(_) => false,
        }
    }
}

/// Path of an endpoint for a base address with or without the version, or with the endpoint.
fn versioned(base: &str, endpoint: &str) -> String {
    let base = base.trim_end_matches('/');
    if base.ends_with(&format!("/{endpoint}")) {
        return base.to_owned();
    }
    let last = base.rsplit_once('/').map_or("", |(_, last)| last);
    let has_version = last
        .strip_prefix('v')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    if has_version { format!("{base}/{endpoint}") } else { format!("{base}/v1/{endpoint}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a2_16_every_spelling_of_the_base_leads_to_one_endpoint() {
        for (base, expected) in [
            ("", "/v1/rerank"),
            ("/", "/v1/rerank"),
            ("/v1", "/v1/rerank"),
            ("/v1/", "/v1/rerank"),
            ("/v2", "/v2/rerank"),
            ("/openai/v1", "/openai/v1/rerank"),
            ("/v1/rerank", "/v1/rerank"),
            ("/vision", "/vision/v1/rerank"),
        ] {
            assert_eq!(versioned(base, "rerank"), expected, "{base}");
        }
    }
}
