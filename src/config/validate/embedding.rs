//! `[embedding]`: what the commands that embed would refuse, or bend without a word.

use url::Url;

use super::{Found, MAX_CONCURRENCY, check_path, check_secret};
use crate::config::{BUILTIN_MODEL, EmbeddingConfig, EmbeddingProvider};

/// Most dimensions of a vector.
const MAX_DIMS: usize = 8_192;
/// Most texts of one request.
const MAX_BATCH: usize = 2_048;

pub(super) fn check(config: &EmbeddingConfig, found: &mut Found) {
    if let Some(url) = &config.url {
        check_address(url, found);
    }
    if config.provider == EmbeddingProvider::Builtin
        && config.model.as_deref().is_some_and(|model| model != BUILTIN_MODEL)
    {
        found.add("embedding.model", format!("`builtin` has one model, {BUILTIN_MODEL}"));
        found.suggest("leave `model` out, or set `provider` to the service that has it");
    }
    check_secret("embedding.token", config.token.as_ref(), found);
    check_path("embedding.ca_file", config.ca_file.as_deref(), found);
    let ranges = [
        ("dims", config.dims.unwrap_or(1), 1, MAX_DIMS),
        ("chunk_tokens", config.chunk_tokens, 32, 2_000),
        ("batch", config.batch, 1, MAX_BATCH),
        ("concurrency", config.concurrency, 1, MAX_CONCURRENCY),
        ("batch_chars", config.batch_chars, 1, usize::MAX),
        ("batch_tokens", config.batch_tokens, 1, usize::MAX),
    ];
    for (key, value, least, most) in ranges {
        let expected =
            if most == usize::MAX { format!("{least} or more") } else { format!("{least} to {most}") };
        found.check(
            (least..=most).contains(&value),
            format!("embedding.{key}"),
            format!("{value} is out of range, expected {expected}"),
        );
    }
    for (key, time) in [("timeout", config.timeout), ("query_timeout", config.query_timeout)] {
        found.check(!time.is_zero(), format!("embedding.{key}"), "a timeout of zero lets no request succeed");
    }
}

/// Checks the address of the service. One with a key in its query is in use; nothing of it
/// is repeated.
fn check_address(text: &str, found: &mut Found) {
    let problem = match Url::parse(text.trim()) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => return,
        Ok(_) => "not an http or https address".to_owned(),
        Err(error) => format!("not a URL: {error}"),
    };
    found.add("embedding.url", problem);
    found.suggest("for example http://localhost:11434");
}
