//! Ollama: `/api/embed`, and `/api/tags` for what it has.

use std::time::Duration;

use reqwest::StatusCode;
use serde::{Deserialize, Serialize};

use super::http::{Failed, Server, no_model};
use super::provider::{CallError, Seen};
use crate::error::{Error, Result};

/// An Ollama server and the model that it is asked for.
#[derive(Debug)]
pub struct Ollama {
    pub(super) server: Server,
    model: String,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
    /// A text that does not fit is to be refused: what is cut silently cannot be found.
    truncate: bool,
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    embeddings: Option<Vec<Vec<f32>>>,
}

#[derive(Deserialize)]
struct Tags {
    #[serde(default)]
    models: Vec<Tag>,
}

#[derive(Deserialize)]
struct Tag {
    name: String,
}

impl Ollama {
    /// Speaks to `server` about `model`, which is sent exactly as it is given.
    pub fn new(server: Server, model: &str) -> Self {
        Self { server, model: model.to_owned() }
    }

    fn path(&self, end: &str) -> String {
        let base = self.server.path();
        let base = base.strip_suffix("/embed").unwrap_or(base);
        let base = base.strip_suffix("/api").unwrap_or(base);
        format!("{base}/api/{end}")
    }

    /// Looks whether the server has the model.
    ///
    /// # Errors
    /// When it cannot be reached or has not.
    pub async fn look(&self) -> Result<Seen> {
        match self.server.get::<Tags>(&self.path("tags")).await {
            Ok(tags) if tags.models.iter().any(|tag| is_same_model(&self.model, &tag.name)) => {
                Ok(Seen::default())
            }
            Ok(tags) => {
                let mut names: Vec<&str> = tags.models.iter().map(|tag| tag.name.as_str()).collect();
                names.sort_unstable();
                names.truncate(10);
                let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(no_model(&self.model, &format!("it has {has}")))
            }
            // A proxy may pass only what is needed to embed.
            Err(Failed::Status {
                status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, ..
            }) => Ok(Seen {
                notes: vec!["the server does not list its models (/api/tags)".to_owned()],
                ..Seen::default()
            }),
            Err(failed) => Err(match self.server.meaning(failed, &self.model) {
                CallError::Fatal(error) | CallError::Busy { error, .. } | CallError::Unreachable(error) => {
                    error
                }
                CallError::Refused(text) => Error::new(crate::error::ErrorKind::EmbeddingUnavailable, text),
            }),
        }
    }

    /// Asks for the vectors of texts.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(
        &self,
        texts: &[String],
        timeout: Option<Duration>,
    ) -> std::result::Result<Vec<Vec<f32>>, CallError> {
        let request = Request { model: &self.model, input: texts, truncate: false };
        let body = serde_json::to_vec(&request).map_err(|error| {
            CallError::Fatal(Error::internal("cannot write a request as JSON").because(error))
        })?;
        let answer: Answer = self
            .server
            .post(&self.path("embed"), body, timeout)
            .await
            .map_err(|failed| self.server.meaning(failed, &self.model))?;
        // Some versions leave the key out when there is nothing to say.
        Ok(answer.embeddings.unwrap_or_default())
    }
}

/// Whether two names mean one model: a name without a tag has the tag `latest`.
pub fn is_same_model(left: &str, right: &str) -> bool {
    fn whole(name: &str) -> (&str, &str) {
        match name.rsplit_once(':') {
            // A colon before a slash belongs to a host's port.
            Some((base, tag)) if !tag.contains('/') => (base, tag),
            Some(_) | None => (name, "latest"),
        }
    }
    whole(left) == whole(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EmbeddingConfig;

    #[test]
    fn a1_12_names_match_with_and_without_latest_and_never_by_prefix() {
        assert!(is_same_model("nomic-embed-text", "nomic-embed-text:latest"));
        assert!(is_same_model("nomic-embed-text:v1.5", "nomic-embed-text:v1.5"));
        assert!(!is_same_model("nomic-embed-text", "nomic-embed-text:v1.5"));
        assert!(!is_same_model("nomic-embed", "nomic-embed-text:latest"));
        assert!(is_same_model("host:5000/m", "host:5000/m:latest"));
    }

    #[test]
    fn a1_15_path_prefixes_are_kept() {
        for (base, path) in [
            ("http://h", "/api/embed"),
            ("http://h/", "/api/embed"),
            ("http://h/ollama", "/ollama/api/embed"),
            ("http://h/ollama/", "/ollama/api/embed"),
            ("http://h/api", "/api/embed"),
            ("http://h/x/api/embed", "/x/api/embed"),
        ] {
            let server = Server::new(base, None, &EmbeddingConfig::default()).unwrap();
            assert_eq!(Ollama::new(server, "m").path("embed"), path, "{base}");
        }
    }
}
