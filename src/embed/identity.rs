//! What vectors belong to: provider, model, chunking and prefixes. Pure.

use crate::config::{EmbeddingConfig, EmbeddingProvider};
use crate::content::chunk::Limits;
use crate::content::hash::{Hasher, hex};
use crate::error::{Error, Result};

/// The model in this binary.
#[cfg(feature = "builtin-embedder")]
pub const BUILTIN_MODEL: &str = super::builtin::Builtin::MODEL;
/// The model that this binary was built without.
#[cfg(not(feature = "builtin-embedder"))]
pub const BUILTIN_MODEL: &str = "";

/// Tokens of a passage for the builtin model, which sees 254 with the title in front.
const BUILTIN_TOKENS: usize = 190;

/// Who makes vectors, with which model, of which texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Who.
    pub provider: EmbeddingProvider,
    /// Address of the service; absent: the provider's usual one.
    pub url: Option<String>,
    /// The model, exactly as the service names it; empty: the service tells.
    pub model: String,
    /// Length of the vectors, when it is known beforehand.
    pub dims: Option<usize>,
    /// In front of queries.
    pub query_prefix: String,
    /// In front of passages.
    pub document_prefix: String,
    /// How documents are cut.
    pub limits: Limits,
    wanted_query_prefix: Option<String>,
    wanted_document_prefix: Option<String>,
}

impl Target {
    /// What the configuration asks for.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Config`] for dimensions that no model has.
    pub fn of_config(config: &EmbeddingConfig) -> Result<Self> {
        if config.dims.is_some_and(|dims| dims == 0 || dims > 8_192) {
            return Err(Error::config("embedding.dims: a number from 1 to 8192"));
        }
        let default = match config.provider {
            EmbeddingProvider::Builtin => BUILTIN_MODEL,
            EmbeddingProvider::Ollama => "nomic-embed-text",
            EmbeddingProvider::Openai => "text-embedding-3-small",
            EmbeddingProvider::Tei => "",
        };
        let mut target = Self {
            provider: config.provider,
            url: config.url.clone(),
            model: String::new(),
            dims: config.dims,
            query_prefix: String::new(),
            document_prefix: String::new(),
            limits: Limits::of_tokens(match config.provider {
                EmbeddingProvider::Builtin => config.chunk_tokens.min(BUILTIN_TOKENS),
                EmbeddingProvider::Ollama | EmbeddingProvider::Openai | EmbeddingProvider::Tei => {
                    config.chunk_tokens
                }
            }),
            wanted_query_prefix: config.query_prefix.clone(),
            wanted_document_prefix: config.document_prefix.clone(),
        };
        target.set_model(config.model.clone().unwrap_or_else(|| default.to_owned()));
        Ok(target)
    }

    /// What an existing index was made with, so that queries are embedded alike.
    pub fn of_index(
        provider: EmbeddingProvider,
        model: &str,
        dims: usize,
        url: Option<&str>,
        query_prefix: &str,
        document_prefix: &str,
    ) -> Self {
        Self {
            provider,
            url: url.map(str::to_owned),
            model: model.to_owned(),
            dims: Some(dims),
            query_prefix: query_prefix.to_owned(),
            document_prefix: document_prefix.to_owned(),
            limits: Limits::of_tokens(EmbeddingConfig::default().chunk_tokens),
            wanted_query_prefix: Some(query_prefix.to_owned()),
            wanted_document_prefix: Some(document_prefix.to_owned()),
        }
    }

    /// Sets the model and, where the configuration is silent, what it was trained with.
    pub fn set_model(&mut self, model: String) {
        let (query, document) = trained_prefixes(&model);
        self.query_prefix = self.wanted_query_prefix.clone().unwrap_or_else(|| query.to_owned());
        self.document_prefix = self.wanted_document_prefix.clone().unwrap_or_else(|| document.to_owned());
        self.model = model;
    }

    /// Name of the way documents are cut, and of what counts their tokens.
    pub fn chunking(&self) -> String {
        let counter = match self.provider {
            EmbeddingProvider::Builtin => "model",
            EmbeddingProvider::Ollama | EmbeddingProvider::Openai | EmbeddingProvider::Tei => "estimate",
        };
        format!("{} {counter}", self.limits.name())
    }

    /// Hash of all that makes vectors comparable, but their length.
    pub fn hash(&self) -> String {
        let mut hasher = Hasher::new();
        hasher
            .text(self.provider.as_str())
            .text(canonical_model(self.provider, &self.model))
            .text(&self.chunking())
            .text(&self.query_prefix)
            .text(&self.document_prefix);
        hex(&hasher.finish())
    }
}

/// A model's name in one spelling: for Ollama, `name` is `name:latest`.
pub fn canonical_model(provider: EmbeddingProvider, model: &str) -> &str {
    match provider {
        EmbeddingProvider::Ollama => model.strip_suffix(":latest").unwrap_or(model),
        EmbeddingProvider::Builtin | EmbeddingProvider::Openai | EmbeddingProvider::Tei => model,
    }
}

/// What a model was trained to see in front of queries and passages. Only where leaving it
/// out is known to hurt: everywhere else nothing is added.
fn trained_prefixes(model: &str) -> (&'static str, &'static str) {
    if base_name(model).starts_with("nomic-embed-text") {
        return ("search_query: ", "search_document: ");
    }
    ("", "")
}

/// Dimensions of common models, for messages; what a server answers counts.
pub fn known_dims(model: &str) -> Option<usize> {
    let name = base_name(model);
    let (name, _) = name.split_once(':').unwrap_or((name, ""));
    match name {
        "nomic-embed-text" | "nomic-embed-text-v1.5" | "embeddinggemma" => Some(768),
        "mxbai-embed-large" | "bge-m3" | "bge-large-en-v1.5" => Some(1024),
        "all-minilm" | "all-MiniLM-L6-v2" | "bge-small-en-v1.5" => Some(384),
        "text-embedding-3-small" | "text-embedding-ada-002" => Some(1536),
        "text-embedding-3-large" => Some(3072),
        _ => None,
    }
}

fn base_name(model: &str) -> &str {
    model.rsplit_once('/').map_or(model, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(change: impl FnOnce(&mut EmbeddingConfig)) -> Target {
        let mut config =
            EmbeddingConfig { provider: EmbeddingProvider::Ollama, ..EmbeddingConfig::default() };
        change(&mut config);
        Target::of_config(&config).unwrap()
    }

    fn hash_of_model(model: &str) -> String {
        target(|config| config.model = Some(model.to_owned())).hash()
    }

    #[test]
    fn a1_12_latest_is_the_same_model_and_any_other_tag_is_not() {
        assert_eq!(hash_of_model("nomic-embed-text"), hash_of_model("nomic-embed-text:latest"));
        assert_ne!(hash_of_model("nomic-embed-text"), hash_of_model("nomic-embed-text:v1.5"));
        assert_ne!(hash_of_model("nomic-embed"), hash_of_model("nomic-embed-text"));
    }

    #[test]
    fn a1_22_only_nomic_models_get_prefixes_and_a_changed_prefix_is_another_identity() {
        let nomic = target(|_| ());
        assert_eq!(
            (nomic.query_prefix.as_str(), nomic.document_prefix.as_str()),
            ("search_query: ", "search_document: ")
        );
        let other = target(|config| config.model = Some("mxbai-embed-large".to_owned()));
        assert_eq!((other.query_prefix.as_str(), other.document_prefix.as_str()), ("", ""));
        let without = target(|config| {
            config.query_prefix = Some(String::new());
            config.document_prefix = Some(String::new());
        });
        assert_eq!(without.document_prefix, "");
        assert_ne!(without.hash(), nomic.hash());
    }

    #[test]
    fn chunking_and_provider_are_part_of_the_identity_and_the_address_is_not() {
        let base = target(|_| ()).hash();
        assert_ne!(target(|config| config.chunk_tokens = 100).hash(), base);
        assert_ne!(target(|config| config.provider = EmbeddingProvider::Tei).hash(), base);
        assert_eq!(target(|config| config.url = Some("http://elsewhere".to_owned())).hash(), base);
    }

    #[test]
    fn an_index_is_asked_as_it_was_made() {
        let target = Target::of_index(EmbeddingProvider::Ollama, "nomic-embed-text", 768, None, "", "");
        assert_eq!(target.query_prefix, "");
    }
}
