//! The providers: who is asked, how, and what their refusals mean.

use std::time::Duration;

#[cfg(feature = "builtin-embedder")]
use super::builtin::Builtin;
use super::http::Server;
#[cfg(feature = "builtin-embedder")]
use super::identity::BUILTIN_MODEL;
use super::identity::Target;
use super::{ollama, openai, tei};
use crate::config::{EmbeddingConfig, EmbeddingProvider};
use crate::content::chunk::estimate_tokens;
use crate::error::{Error, Result};

/// Why a request brought no vectors.
#[derive(Debug)]
pub enum CallError {
    /// The service does not answer these texts together, or one of them.
    Refused(String),
    /// The service is there and asks to wait.
    Busy {
        /// For how long, milliseconds, when it says.
        wait_ms: Option<u64>,
        /// What to report when it stays so.
        error: Error,
    },
    /// No connection, or one that broke.
    Unreachable(Error),
    /// Asking again does not help.
    Fatal(Error),
}

impl CallError {
    /// What went wrong, as text.
    pub fn message(&self) -> String {
        match self {
            Self::Refused(text) => text.clone(),
            Self::Busy { error, .. } | Self::Unreachable(error) | Self::Fatal(error) => error.full_message(),
        }
    }
}

/// What a look at a service showed.
#[derive(Debug, Default)]
pub struct Seen {
    /// The model that is served, when the service has one.
    pub model: Option<String>,
    /// Texts in a request at most.
    pub max_items: Option<usize>,
    /// Tokens in a request at most.
    pub max_tokens: Option<usize>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// One that makes vectors.
#[derive(Debug)]
pub enum Provider {
    /// The model in this binary.
    #[cfg(feature = "builtin-embedder")]
    Builtin,
    /// An Ollama server.
    Ollama(ollama::Ollama),
    /// A server with OpenAI's interface.
    OpenAi(openai::OpenAi),
    /// A server of text-embeddings-inference.
    Tei(tei::Tei),
}

impl Provider {
    /// Makes the provider of a target.
    ///
    /// # Errors
    /// [`crate::error::ErrorKind::Config`] for an address that cannot be used or a provider
    /// that this binary has not, [`crate::error::ErrorKind::TokenNotSet`] for a token that is
    /// not set.
    pub fn new(
        target: &Target,
        config: &EmbeddingConfig,
        vars: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let server = |default: &str| {
            // A token is for the configured service, not for the one of an older index.
            let is_configured = target.provider == config.provider && target.url == config.url;
            let token = config.token.as_ref().filter(|_| is_configured);
            let token = token.map(|token| token.read("embedding.token", vars)).transpose()?;
            Server::new(target.url.as_deref().unwrap_or(default), token, config)
        };
        match target.provider {
            #[cfg(feature = "builtin-embedder")]
            EmbeddingProvider::Builtin if target.model == BUILTIN_MODEL => Ok(Self::Builtin),
            #[cfg(feature = "builtin-embedder")]
            EmbeddingProvider::Builtin => Err(Error::config(format!(
                "embedding.model: this binary has {BUILTIN_MODEL}, not {}",
                target.model
            ))
            .hint("leave `model` out, or set `provider` to the service that has it")),
            #[cfg(not(feature = "builtin-embedder"))]
            EmbeddingProvider::Builtin => {
                Err(Error::config("this binary was built without its own embedding model")
                    .hint("set [embedding] provider to \"ollama\", \"openai\" or \"tei\""))
            }
            EmbeddingProvider::Ollama => {
                Ok(Self::Ollama(ollama::Ollama::new(server("http://localhost:11434")?, &target.model)))
            }
            EmbeddingProvider::Openai => {
                let dims = target.dims.filter(|_| target.model.starts_with("text-embedding-3"));
                Ok(Self::OpenAi(openai::OpenAi::new(server("https://api.openai.com")?, &target.model, dims)))
            }
            EmbeddingProvider::Tei => Ok(Self::Tei(tei::Tei::new(server("http://localhost:8080")?))),
        }
    }

    /// Whom messages name.
    pub fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "builtin-embedder")]
            Self::Builtin => "the builtin model",
            Self::Ollama(_) => "Ollama",
            Self::OpenAi(_) => "the embedding server",
            Self::Tei(_) => "text-embeddings-inference",
        }
    }

    /// Tokens of a text, counted or estimated.
    pub fn count_tokens(&self, text: &str) -> usize {
        match self {
            #[cfg(feature = "builtin-embedder")]
            Self::Builtin => {
                Builtin::load().map_or_else(|_| estimate_tokens(text), |model| model.count_tokens(text))
            }
            Self::Ollama(_) | Self::OpenAi(_) | Self::Tei(_) => estimate_tokens(text),
        }
    }

    /// The server that is asked, unless the vectors are made in this process.
    pub fn server(&self) -> Option<&Server> {
        match self {
            #[cfg(feature = "builtin-embedder")]
            Self::Builtin => None,
            Self::Ollama(ollama) => Some(&ollama.server),
            Self::OpenAi(openai) => Some(&openai.server),
            Self::Tei(tei) => Some(&tei.server),
        }
    }

    /// Looks at the service without embedding anything.
    ///
    /// # Errors
    /// When it cannot be reached, refuses the token, or has not the model.
    pub async fn look(&self) -> Result<Seen> {
        match self {
            #[cfg(feature = "builtin-embedder")]
            Self::Builtin => Builtin::load().map(|_| Seen::default()),
            Self::Ollama(ollama) => ollama.look().await,
            Self::OpenAi(_) => Ok(Seen::default()),
            Self::Tei(tei) => tei.look().await,
        }
    }

    /// Asks for the vectors of texts, once.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(
        &self,
        texts: &[String],
        timeout: Option<Duration>,
    ) -> std::result::Result<Vec<Vec<f32>>, CallError> {
        match self {
            #[cfg(feature = "builtin-embedder")]
            Self::Builtin => call_builtin(texts.to_vec()).await,
            Self::Ollama(ollama) => ollama.call(texts, timeout).await,
            Self::OpenAi(openai) => openai.call(texts, timeout).await,
            Self::Tei(tei) => tei.call(texts, timeout).await,
        }
    }
}

/// Embeds in this process, on a thread for work that blocks. One thread a request: as many
/// requests are under way as threads are wanted.
#[cfg(feature = "builtin-embedder")]
async fn call_builtin(texts: Vec<String>) -> std::result::Result<Vec<Vec<f32>>, CallError> {
    let model = Builtin::load().map_err(CallError::Fatal)?;
    let work = move || {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        model.embed(&texts, 1)
    };
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| CallError::Fatal(Error::internal("the builtin model broke off").because(error)))
}
