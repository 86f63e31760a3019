//! How large and how many requests may be: what the configuration allows, less what the
//! service refused. Pure.

use crate::config::EmbeddingConfig;
use crate::content::chunk::estimate_tokens;

use super::TextResult;

/// Bounds of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Texts.
    pub items: usize,
    /// Characters.
    pub chars: usize,
    /// Tokens, estimated.
    pub tokens: usize,
}

impl BatchLimits {
    /// Whether these texts may be sent together.
    pub fn allow(&self, texts: &[String]) -> bool {
        texts.len() <= self.items
            && texts.iter().map(|text| text.chars().count()).sum::<usize>() <= self.chars
            && texts.iter().map(|text| estimate_tokens(text)).sum::<usize>() <= self.tokens
    }
}

/// What is known of a service by now.
#[derive(Debug)]
pub(super) struct Adaptive {
    pub limits: BatchLimits,
    /// Length of the vectors.
    pub dims: Option<usize>,
    /// Whether it ever embedded a text.
    pub has_answered: bool,
    most: usize,
    concurrency: usize,
    /// Answers since the concurrency was changed.
    calm: usize,
}

impl Adaptive {
    pub fn new(config: &EmbeddingConfig, dims: Option<usize>) -> Self {
        let most = config.concurrency.clamp(1, 64);
        Self {
            limits: BatchLimits {
                items: config.batch.clamp(1, 2_048),
                chars: config.batch_chars.max(1),
                tokens: config.batch_tokens.max(1),
            },
            dims,
            has_answered: false,
            most,
            concurrency: most,
            calm: 0,
        }
    }

    /// One request until the first answer: what it teaches spares the others.
    pub fn concurrency(&self) -> usize {
        if self.has_answered { self.concurrency } else { 1 }
    }

    /// A request was answered.
    pub fn answered(&mut self, results: &[TextResult]) {
        if let Some(Ok(vector)) = results.iter().find(|result| result.is_ok()) {
            self.has_answered = true;
            self.dims.get_or_insert(vector.len());
        }
        self.calm += 1;
        if self.calm >= 16 && self.concurrency < self.most {
            self.concurrency += 1;
            self.calm = 0;
        }
    }

    /// The service is busy: half as many requests.
    pub fn slow_down(&mut self) {
        self.concurrency = (self.concurrency / 2).max(1);
        self.calm = 0;
    }

    /// Never again more than `items` texts in a request.
    pub fn lower_items(&mut self, items: usize) {
        self.limits.items = self.limits.items.min(items.max(1));
    }

    /// Never again more than about `tokens` tokens in a request.
    pub fn lower_tokens(&mut self, tokens: usize) {
        self.limits.tokens = self.limits.tokens.min(tokens.max(1));
    }

    /// A request of these texts was too large, though none of them is.
    pub fn lower_below(&mut self, texts: &[String]) {
        self.lower_items(texts.len().div_ceil(2));
        let chars: usize = texts.iter().map(|text| text.chars().count()).sum();
        self.limits.chars = self.limits.chars.min(chars.saturating_sub(1).max(1));
    }
}

/// The number of texts that a refusal says are allowed, as text-embeddings-inference writes:
/// `batch size 100 > maximum allowed batch size 32`.
pub(super) fn allowed_items(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let (_, rest) = lower.split_once("maximum allowed batch size")?;
    let digits: String =
        rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().ok().filter(|items| *items > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_names_the_limit_is_understood() {
        assert_eq!(allowed_items("batch size 100 > maximum allowed batch size 32"), Some(32));
        assert_eq!(allowed_items("`batch size` 3 > Maximum allowed batch size: 2."), Some(2));
        assert_eq!(allowed_items("the input length exceeds the context length"), None);
    }

    #[test]
    fn requests_grow_in_number_after_the_first_answer_and_after_calm() {
        let config = EmbeddingConfig { concurrency: 4, ..EmbeddingConfig::default() };
        let mut adaptive = Adaptive::new(&config, None);
        assert_eq!(adaptive.concurrency(), 1);
        adaptive.answered(&[Err("no".to_owned())]);
        assert_eq!((adaptive.concurrency(), adaptive.dims), (1, None));
        adaptive.answered(&[Ok(vec![1.0, 0.0])]);
        assert_eq!((adaptive.concurrency(), adaptive.dims), (4, Some(2)));
        adaptive.slow_down();
        adaptive.slow_down();
        adaptive.slow_down();
        assert_eq!(adaptive.concurrency(), 1);
        for _ in 0..16 {
            adaptive.answered(&[]);
        }
        assert_eq!(adaptive.concurrency(), 2);
    }

    #[test]
    fn a_too_large_request_lowers_the_limits() {
        let mut adaptive = Adaptive::new(&EmbeddingConfig::default(), None);
        let texts: Vec<String> = (0..20).map(|n| format!("text {n:03}")).collect();
        assert!(adaptive.limits.allow(&texts));
        adaptive.lower_below(&texts);
        assert_eq!((adaptive.limits.items, adaptive.limits.chars), (10, 159));
        assert!(!adaptive.limits.allow(&texts));
    }
}
