//! `[rerank]`, and the words that values of `[query]` may be.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration_text;
use crate::secret::SecretRef;

/// `[rerank]`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RerankConfig {
    /// Who reranks: `none` (default), `tei` (text-embeddings-inference's `/rerank`) or `cohere`
    /// (`/v1/rerank` as Cohere, Jina, vLLM and others have it).
    pub provider: RerankProvider,
    /// Address of the server, with its sub-path when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Model, exactly as the server names it. Needed for `cohere`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Where the server's access token is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretRef>,
    /// First results that are reranked, 2 to 100. Default 20.
    pub top_k: usize,
    /// Share of the reranker in a score, 0 to 1; the rest is that of the fusion. Default 0.7.
    pub weight: f64,
    /// Time after which the fused order stands. Default `3s`.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub timeout: Duration,
    /// Characters of a passage that are sent, title included: 200 to 100,000. Default 1600, about
    /// what fits a model of 512 tokens with the question.
    pub max_chars: usize,
    /// File with certificates to trust beside the usual ones, PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl Default for RerankConfig {
    fn default() -> Self {
        Self {
            provider: RerankProvider::None,
            url: None,
            model: None,
            token: None,
            top_k: 20,
            weight: 0.7,
            timeout: Duration::from_secs(3),
            max_chars: 1_600,
            ca_file: None,
        }
    }
}

/// Who reranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RerankProvider {
    /// Nobody.
    None,
    /// A server of Hugging Face's text-embeddings-inference.
    Tei,
    /// A server with Cohere's interface.
    Cohere,
}

impl RerankProvider {
    /// Name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tei => "tei",
            Self::Cohere => "cohere",
        }
    }
}

/// Who takes a question apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NerBackend {
    /// lore's own rules.
    Heuristic,
    /// A language model.
    Llm,
}

/// What is done when the model does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NerFallback {
    /// lore's own rules take the question apart.
    UseHeuristic,
    /// The question has no free words.
    EmptyOnFail,
    /// The query fails.
    Propagate,
}

/// How ranked lists become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FusionMethod {
    /// Scores are counted from the worst in standard deviations of the list, weighted and added.
    Deviations,
    /// Scores are divided by the best, weighted and added.
    Share,
    /// Scores are spread over 0 to 1, weighted and added.
    Minmax,
    /// Reciprocal ranks, weighted and added.
    Rrf,
}
