//! Pings a check in the style of healthchecks.io when a run begins and ends.
//!
//! A check that is pinged by the job itself notices what metrics cannot: that nothing runs
//! at all. Addresses are secrets; they never reach a log line.

use std::time::Duration;

use url::Url;

use crate::config::NotifyConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::SecretRef;

/// Longest time that a ping may take.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// What there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A run begins.
    Start,
    /// A run ended with this exit code.
    End(u8),
}

impl Event {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End(0) => "success",
            Self::End(_) => "fail",
        }
    }
}

/// Returns the address to ping; nothing when the configuration has none for the event.
///
/// # Errors
/// When the secret is not set or holds no address.
pub fn address(
    config: &NotifyConfig,
    job: &str,
    event: Event,
    run_uuid: &str,
    vars: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Url>> {
    let own = match event {
        Event::Start => &config.start,
        Event::End(0) => &config.success,
        Event::End(_) => &config.fail,
    };
    let (mut url, is_own) = match (own, &config.ping) {
        (Some(own), _) => (read(own, &format!("notify.{job}.{}", event.name()), vars)?, true),
        (None, Some(base)) => (read(base, &format!("notify.{job}.ping"), vars)?, false),
        (None, None) => return Ok(None),
    };
    if !is_own {
        let last = match event {
            Event::Start => "start".to_owned(),
            Event::End(code) => code.to_string(),
        };
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(&last);
        }
    }
    url.query_pairs_mut().append_pair("rid", run_uuid);
    if let Event::End(code) = event {
        url.query_pairs_mut().append_pair("exit_code", &code.to_string());
    }
    Ok(Some(url))
}

fn read(reference: &SecretRef, key: &str, vars: &dyn Fn(&str) -> Option<String>) -> Result<Url> {
    let secret = reference.read(key, vars)?;
    // The parser's error quotes nothing, and neither do we.
    let url = Url::parse(secret.expose()).map_err(|_| Error::config(format!("{key}: not a URL")))?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err(Error::config(format!("{key}: not an http or https URL")))
    }
}

/// Pings.
///
/// # Errors
/// [`ErrorKind::Network`] when the check cannot be reached or refuses the ping; the message
/// names the host only.
pub async fn ping(url: Url, text: String) -> Result<()> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let failed = |why: String| Error::new(ErrorKind::Network, format!("ping {host}: {why}"));
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .user_agent(concat!("lore/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|_| Error::internal("make an HTTP client"))?;
    let answer = client.post(url).body(text).send().await.map_err(|error| {
        let why = if error.is_timeout() { "no answer in time" } else { "cannot connect" };
        failed(why.to_owned())
    })?;
    let status = answer.status();
    if status.is_success() { Ok(()) } else { Err(failed(format!("answered {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str) -> Option<SecretRef> {
        Some(SecretRef { env: Some(name.to_owned()), file: None })
    }

    fn vars(name: &str) -> Option<String> {
        match name {
            "BASE" => Some("https://hc.example/ping/S3CR3T".to_owned()),
            "FAIL" => Some("https://pager.example/hook?key=S3CR3T".to_owned()),
            "BAD" => Some("S3CR3T".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn the_base_address_gets_the_event_and_an_own_address_stays_as_it_is() {
        let config = NotifyConfig { ping: secret("BASE"), fail: secret("FAIL"), ..NotifyConfig::default() };
        let at = |event| address(&config, "sync", event, "u-1", &vars).unwrap().unwrap().to_string();
        assert_eq!(at(Event::Start), "https://hc.example/ping/S3CR3T/start?rid=u-1");
        assert_eq!(at(Event::End(0)), "https://hc.example/ping/S3CR3T/0?rid=u-1&exit_code=0");
        assert_eq!(at(Event::End(8)), "https://pager.example/hook?key=S3CR3T&rid=u-1&exit_code=8");
    }

    #[test]
    fn nothing_is_pinged_without_an_address() {
        let config = NotifyConfig { success: secret("BASE"), ..NotifyConfig::default() };
        assert_eq!(address(&config, "sync", Event::Start, "u", &vars).unwrap(), None);
        assert_eq!(address(&config, "sync", Event::End(1), "u", &vars).unwrap(), None);
    }

    #[test]
    fn an_address_that_is_none_is_not_quoted() {
        let config = NotifyConfig { ping: secret("BAD"), ..NotifyConfig::default() };
        let error = address(&config, "sync", Event::Start, "u", &vars).unwrap_err();
        assert!(!error.full_message().contains("S3CR3T"), "{error}");
        assert!(error.full_message().contains("notify.sync.ping"), "{error}");
    }
}
