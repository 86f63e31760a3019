//! Makes vectors of texts, whoever does it: every answer is checked, one bad text never
//! fails its neighbours, and a server that is busy or refuses large requests gets fewer and
//! smaller ones.

pub mod answer;
pub mod breaker;
#[cfg(feature = "builtin-embedder")]
pub mod builtin;
mod http;
pub mod identity;
mod limits;
pub mod ollama;
pub mod openai;
pub mod provider;
pub mod tei;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::backoff::{self, Backoff};
use crate::config::EmbeddingConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::traffic::StatsView;
use answer::Fault;
use http::Server;
use identity::Target;
use provider::{CallError, Provider};

use limits::Adaptive;
pub use limits::BatchLimits;

/// Waits between tries of a request to a busy server.
const BUSY: Backoff = Backoff { base: Duration::from_millis(500), max: Duration::from_secs(30) };

/// Tries of one request to a busy server.
const BUSY_TRIES: u32 = 8;

/// Tries of one request to a server that cannot be reached.
const REACH_TRIES: u32 = 2;

/// A harmless text: when even this is refused, it is not the text's fault.
const PLAIN_TEXT: &str = "hello world";

/// The vector of a text, of unit length, or why there is none.
pub type TextResult = std::result::Result<Vec<f32>, String>;

/// Why texts could not be embedded at all.
#[derive(Debug)]
pub enum Failure {
    /// The vectors have another length than those stored.
    Dims {
        /// Length of the vectors of the answer.
        got: usize,
        /// Length of the vectors stored.
        expected: usize,
    },
    /// Everything else.
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Failure {
    /// The error that is shown.
    pub fn into_error(self) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Dims { got, expected } => Error::new(
                ErrorKind::EmbeddingFailed,
                format!("the embedding service answers with {got} dimensions, expected {expected}"),
            )
            .hint("the model changed: `lore embed` builds a new index beside the old one")
            .hint("or correct `model` or `dims` in [embedding]"),
        }
    }
}

/// Makes vectors with one model of one provider.
#[derive(Debug)]
pub struct Embedder {
    provider: Provider,
    target: Target,
    adaptive: Mutex<Adaptive>,
    query_timeout: Duration,
}

/// What a look at the service showed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Health {
    /// The model that is used.
    pub model: String,
    /// What could not be looked at, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What a comparison of answers showed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Probe {
    /// Length of the vectors.
    pub dims: usize,
    /// Smallest cosine between a text's vector in a batch and alone. Below 0.99 the server
    /// mixes up the texts of a batch.
    pub batch_similarity: f64,
}

impl Embedder {
    /// Makes the embedder that the configuration asks for.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address or model that cannot be used,
    /// [`ErrorKind::TokenNotSet`] for a token that is not set.
    pub fn new(config: &EmbeddingConfig, vars: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        Self::for_target(Target::of_config(config)?, config, vars)
    }

    /// Makes an embedder for a target that may differ from the configuration's: queries are
    /// answered from the old index while a new one is built.
    ///
    /// # Errors
    /// As [`Embedder::new`].
    pub fn for_target(
        target: Target,
        config: &EmbeddingConfig,
        vars: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let provider = Provider::new(&target, config, vars)?;
        let adaptive = Mutex::new(Adaptive::new(config, target.dims));
        Ok(Self { provider, target, adaptive, query_timeout: config.query_timeout })
    }

    /// What the vectors are made with.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The service's address without secrets, to be kept with an index.
    pub fn endpoint(&self) -> Option<String> {
        self.provider.server().map(Server::shown)
    }

    /// What the requests came to so far; all zero when nobody has to be asked.
    pub fn stats(&self) -> StatsView {
        self.provider.server().map_or_else(StatsView::default, |server| server.stats().view())
    }

    /// Tokens of a text: counted by the model where it is at hand, else estimated.
    pub fn count_tokens(&self, text: &str) -> usize {
        self.provider.count_tokens(text)
    }

    /// Bounds of a batch, as learned so far.
    pub fn limits(&self) -> BatchLimits {
        self.adaptive().limits
    }

    /// Requests that may be under way, as learned so far: one until the first answer.
    pub fn concurrency(&self) -> usize {
        self.adaptive().concurrency()
    }

    /// Length of the vectors, once it is known.
    pub fn dims(&self) -> Option<usize> {
        self.adaptive().dims
    }

    /// Says how long stored vectors are.
    pub fn expect_dims(&self, dims: Option<usize>) {
        self.adaptive().dims = dims;
    }

    fn adaptive(&self) -> std::sync::MutexGuard<'_, Adaptive> {
        self.adaptive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether the service is there and has the model, and learns its limits.
    ///
    /// # Errors
    /// [`ErrorKind::EmbeddingUnavailable`], [`ErrorKind::EmbeddingModelNotFound`],
    /// [`ErrorKind::Auth`].
    pub async fn check(&mut self) -> Result<Health> {
        let seen = self.provider.look().await?;
        if let Some(items) = seen.max_items {
            self.adaptive().lower_items(items);
        }
        if let Some(tokens) = seen.max_tokens {
            self.adaptive().lower_tokens(tokens);
        }
        if let Some(model) = seen.model
            && self.target.model.is_empty()
        {
            self.target.set_model(model);
        }
        if self.target.model.is_empty() {
            return Err(Error::config("[embedding]: the server does not tell its model; set `model`"));
        }
        Ok(Health { model: self.target.model.clone(), notes: seen.notes })
    }

    /// Embeds passages. The answer has one result for each text, in order.
    ///
    /// # Errors
    /// When the service as a whole fails; then no text is to blame.
    pub async fn embed(
        &self,
        texts: &[String],
        deadline: Option<Instant>,
    ) -> std::result::Result<Vec<TextResult>, Failure> {
        let texts: Vec<String> =
            texts.iter().map(|text| format!("{}{text}", self.target.document_prefix)).collect();
        let mut results: Vec<Option<TextResult>> = vec![None; texts.len()];
        // Halves of refused requests; the flag says that a half answers for both halves'
        // common request: when neither holds a bad text, the request was too large.
        let mut ranges = vec![(0, texts.len())];
        let mut refused: Vec<(usize, usize)> = Vec::new();
        while let Some((start, end)) = ranges.pop() {
            let Some(part) = texts.get(start..end).filter(|part| !part.is_empty()) else { continue };
            if part.len() > 1 && !self.limits().allow(part) {
                split(&mut ranges, start, end);
                continue;
            }
            match self.call(part, deadline).await? {
                Ok(answers) => {
                    // Not one good vector, and never one before: is it the service?
                    if let Some(Err(why)) = answers.first()
                        && answers.iter().all(std::result::Result::is_err)
                    {
                        self.blame(why, deadline).await?;
                    }
                    for (slot, answer) in results.iter_mut().skip(start).zip(answers) {
                        *slot = Some(answer);
                    }
                }
                Err(text) if part.len() > 1 => {
                    tracing::debug!(texts = part.len(), "the embedding service refused a request: {text}");
                    if let Some(most) = limits::allowed_items(&text) {
                        self.adaptive().lower_items(most);
                    } else {
                        refused.push((start, end));
                    }
                    split(&mut ranges, start, end);
                }
                Err(text) => {
                    self.blame(&text, deadline).await?;
                    if let Some(slot) = results.get_mut(start) {
                        *slot = Some(Err(text));
                    }
                }
            }
        }
        self.learn(&texts, &refused, &results);
        Ok(results.into_iter().map(|result| result.unwrap_or_else(|| Err("no answer".to_owned()))).collect())
    }

    /// A request whose texts all passed in smaller ones was too large.
    fn learn(&self, texts: &[String], refused: &[(usize, usize)], results: &[Option<TextResult>]) {
        for (start, end) in refused {
            let (Some(part), Some(results)) = (texts.get(*start..*end), results.get(*start..*end)) else {
                continue;
            };
            if results.iter().all(|result| matches!(result, Some(Ok(_)))) {
                self.adaptive().lower_below(part);
            }
        }
    }

    /// Makes sure that a refusal, or a vector without use, is the text's fault: a service that
    /// never embedded anything is asked for a plain text first.
    async fn blame(&self, fault: &str, deadline: Option<Instant>) -> std::result::Result<(), Failure> {
        if self.adaptive().has_answered {
            return Ok(());
        }
        let plain = [PLAIN_TEXT.to_owned()];
        match self.call(&plain, deadline).await? {
            Ok(results) => match results.into_iter().find_map(std::result::Result::err) {
                None => Ok(()),
                Some(why) => Err(Error::new(
                    ErrorKind::EmbeddingFailed,
                    format!("{} answers vectors that are of no use: {why}", self.provider.name()),
                )
                .hint("look at the server's log, and whether the model is one for embeddings, loaded whole")
                .into()),
            },
            Err(_) => Err(Error::new(
                ErrorKind::EmbeddingFailed,
                format!("{} refuses every text: {fault}", self.provider.name()),
            )
            .hint("look at the server's log, and whether the model is one for embeddings")
            .into()),
        }
    }

    /// One request, tried again while the service is busy. The inner error is what the
    /// service says against these texts.
    async fn call(
        &self,
        texts: &[String],
        deadline: Option<Instant>,
    ) -> std::result::Result<std::result::Result<Vec<TextResult>, String>, Failure> {
        let mut tries = 0;
        loop {
            let error = match self.provider.call(texts, None).await {
                Ok(vectors) => match answer::check(vectors, texts.len(), self.dims()) {
                    Ok(results) => {
                        self.adaptive().answered(&results);
                        return Ok(Ok(results));
                    }
                    Err(Fault::Refused(text)) => return Ok(Err(text)),
                    Err(Fault::Dims { got: 0, expected }) => {
                        return Err(answer::no_dims(&self.target, expected).into());
                    }
                    Err(Fault::Dims { got, expected }) => return Err(Failure::Dims { got, expected }),
                },
                Err(error) => error,
            };
            tries += 1;
            let (wait_ms, most, error) = match error {
                CallError::Fatal(error) => return Err(error.into()),
                CallError::Refused(text) => return Ok(Err(text)),
                CallError::Busy { wait_ms, error } => {
                    self.adaptive().slow_down();
                    (wait_ms, BUSY_TRIES, error)
                }
                CallError::Unreachable(error) => (None, REACH_TRIES, error),
            };
            let asked_to_wait = wait_ms.is_some();
            let wait = BUSY.delay(tries, backoff::random());
            let wait = wait.max(Duration::from_millis(wait_ms.unwrap_or(0)));
            let too_late = deadline.is_some_and(|deadline| Instant::now() + wait >= deadline);
            if tries >= most || too_late {
                return Err(error.into());
            }
            tracing::debug!(
                tries,
                wait_ms = wait.as_millis() as u64,
                "the embedding service is busy: {error}"
            );
            if let Some(server) = self.provider.server() {
                server.stats().retry();
                if asked_to_wait {
                    let now = Instant::now();
                    server.stats().waits(now, now + wait);
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Embeds a query: one try, within the query's own time.
    ///
    /// # Errors
    /// [`ErrorKind::EmbeddingUnavailable`] when the service does not answer in time or is
    /// busy, and those of [`Embedder::embed`].
    pub async fn embed_query(&self, text: &str) -> Result<Vec<f32>> {
        let texts = [format!("{}{text}", self.target.query_prefix)];
        // The limit is kept here, whatever the provider waits for.
        let call = self.provider.call(&texts, Some(self.query_timeout + Duration::from_secs(1)));
        let answer = tokio::time::timeout(self.query_timeout, call).await.map_err(|_| {
            Error::new(
                ErrorKind::EmbeddingUnavailable,
                format!(
                    "{} did not answer within {:.1} s",
                    self.provider.name(),
                    self.query_timeout.as_secs_f64()
                ),
            )
            .hint("the first request after a pause loads the model; `query_timeout` in [embedding] is the limit")
        })?;
        let refused = |text: String| {
            Error::new(
                ErrorKind::EmbeddingFailed,
                format!("{} refuses the query: {text}", self.provider.name()),
            )
        };
        let vectors = answer.map_err(|error| match error {
            CallError::Fatal(error) | CallError::Busy { error, .. } | CallError::Unreachable(error) => error,
            CallError::Refused(text) => refused(text),
        })?;
        let expected = self.dims();
        let mut results = answer::check(vectors, 1, expected).map_err(|fault| match fault {
            Fault::Refused(text) => refused(text),
            Fault::Dims { got, expected } => Failure::Dims { got, expected }.into_error(),
        })?;
        results.pop().unwrap_or_else(|| Err("no answer".to_owned())).map_err(refused)
    }

    /// Compares the answer to a batch with the answers to its texts alone.
    ///
    /// # Errors
    /// Those of [`Embedder::embed`].
    pub async fn probe(&self) -> Result<Probe> {
        let texts = ["printer paper jam", "kerberos ticket expired", "invoice rounding"].map(str::to_owned);
        let embed = async |texts: &[String]| -> Result<Vec<Vec<f32>>> {
            let results = self.embed(texts, None).await.map_err(Failure::into_error)?;
            let vectors: std::result::Result<Vec<_>, String> = results.into_iter().collect();
            vectors.map_err(|text| Error::new(ErrorKind::EmbeddingFailed, text))
        };
        let batch = embed(&texts).await?;
        let mut probe = Probe { dims: batch.first().map_or(0, Vec::len), batch_similarity: 1.0 };
        for (text, in_batch) in texts.chunks(1).zip(&batch) {
            let alone = embed(text).await?;
            let cosine: f32 =
                alone.iter().flatten().zip(in_batch).map(|(alone, in_batch)| alone * in_batch).sum();
            probe.batch_similarity = probe.batch_similarity.min(f64::from(cosine));
        }
        Ok(probe)
    }
}

/// Puts both halves of a range on the stack, the first on top.
fn split(ranges: &mut Vec<(usize, usize)>, start: usize, end: usize) {
    let middle = start + (end - start).div_ceil(2);
    ranges.push((middle, end));
    ranges.push((start, middle));
}
