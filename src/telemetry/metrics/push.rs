//! Pushes the exposition to a Pushgateway.

use std::time::Duration;

use url::Url;

use super::exposition::CONTENT_TYPE;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::redact_url;

/// Longest time that a push may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where a push goes: `URL/metrics/job/GROUP`.
///
/// The group is fixed, without host or run: nothing on a Pushgateway expires, and a group
/// for each pod would stay for ever.
///
/// # Errors
/// [`ErrorKind::Config`] when the URL is none, or the group is empty: an empty value in a
/// grouping key breaks the gateway for everybody.
pub fn push_url(gateway: &str, group: &str) -> Result<Url> {
    let bad = |why: String| {
        Error::config(format!("push metrics: {why}"))
            .hint("give the address of the Pushgateway, for example http://pushgateway:9091")
    };
    let mut url = Url::parse(gateway).map_err(|error| bad(format!("not a URL: {error}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(bad("not an http or https URL".to_owned()));
    }
    if group.is_empty() {
        return Err(bad("the group is empty".to_owned()));
    }
    url.set_query(None);
    url.set_fragment(None);
    url.path_segments_mut()
        .map_err(|()| bad("the URL cannot have a path".to_owned()))?
        .pop_if_empty()
        .extend(["metrics", "job", group]);
    Ok(url)
}

/// Pushes: PUT replaces what the group holds.
///
/// # Errors
/// [`ErrorKind::Network`] when the gateway cannot be reached or refuses the push.
pub async fn push(gateway: &str, group: &str, text: String) -> Result<()> {
    let url = push_url(gateway, group)?;
    let shown = redact_url(&url);
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .user_agent(concat!("lore/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Error::internal("make an HTTP client").because(error.without_url()))?;
    let failed = |error: reqwest::Error| {
        Error::new(ErrorKind::Network, format!("push metrics to {shown}"))
            .because(error.without_url())
            .hint("check the address of the Pushgateway and whether it runs")
    };
    let answer =
        client.put(url).header("content-type", CONTENT_TYPE).body(text).send().await.map_err(failed)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = said(&answer.text().await.unwrap_or_default());
    Err(Error::new(ErrorKind::Network, format!("push metrics to {shown}: answered {status}{said}"))
        .hint("is that the address of a Pushgateway, and of no other server or proxy?"))
}

/// What an answer says, on one line; a page for people says nothing.
fn said(body: &str) -> String {
    let text: String = body.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.starts_with('<') {
        return " with a web page".to_owned();
    }
    if text.is_empty() { text } else { format!(": {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_named_and_a_message_is_shown_on_one_line() {
        assert_eq!(said("\n <!doctype html>\n<h1>404</h1>"), " with a web page");
        assert_eq!(said("text format\n parsing \u{1b}[31merror"), ": text format parsing [31merror");
        assert_eq!(said(" "), "");
    }
}
