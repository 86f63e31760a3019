//! One exchange with the server: the HTTP client, its certificates, and what its failures mean.

use std::time::Duration;

use reqwest::header::HeaderMap;
use url::Url;

use super::address::Address;
use crate::config::GitlabConfig;
use crate::error::{Error, ErrorKind, Result};

/// Largest body that is read.
const MAX_BODY: usize = 256 << 20;

/// What to do when there is no connection.
pub(super) const UNREACHED_HINT: &str =
    "check url of the source, the network and proxy variables (HTTPS_PROXY, NO_PROXY)";

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Where an exchange broke off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// No connection came about.
    Connect,
    /// The answer did not come in time, or was too large: a smaller page may pass.
    Slow,
    /// The connection broke.
    Midway,
}

/// An exchange that brought no answer.
#[derive(Debug)]
pub(super) struct Broken {
    /// Where it broke off.
    pub at: Stage,
    /// What to report.
    pub error: Error,
}

/// Sends one request and reads the whole answer.
pub(super) async fn exchange(
    http: &reqwest::Client,
    url: &Url,
    what: &str,
) -> Result<(u16, HeaderMap, Vec<u8>), Broken> {
    let failed = |error: reqwest::Error| Broken {
        at: match (error.is_connect(), error.is_timeout()) {
            (true, _) => Stage::Connect,
            (false, true) => Stage::Slow,
            (false, false) => Stage::Midway,
        },
        error: network_error(what, error),
    };
    let mut response = http.get(url.clone()).send().await.map_err(failed)?;
    let status = response.status().as_u16();
    let headers = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_BODY {
            let error = Error::new(ErrorKind::Network, format!("{what} answered more than {MAX_BODY} bytes"));
            return Err(Broken { at: Stage::Slow, error });
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, headers, body))
}

fn network_error(what: &str, error: reqwest::Error) -> Error {
    // The URL of the error may hold what must not be shown; `what` names it already.
    let error = error.without_url();
    let state = if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "cannot connect"
    } else {
        "the connection broke off"
    };
    let certificate = {
        let mut text = String::new();
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text.contains("certificate")
    };
    let out = Error::new(ErrorKind::Network, format!("{what}: {state}")).because(error);
    if certificate {
        out.hint("for a private certificate authority set ca_file of the source to its PEM file")
    } else {
        out.hint(UNREACHED_HINT)
    }
}

pub(super) fn http_client(
    config: &GitlabConfig,
    address: &Address,
    headers: HeaderMap,
) -> Result<reqwest::Client> {
    let extra = match &config.ca_file {
        Some(path) => {
            let place = format!("ca_file {}", path.display());
            let pem = std::fs::read(path)
                .map_err(|error| Error::config(format!("cannot read {place}")).because(error))?;
            let bundle = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| {
                Error::config(format!("{place} holds no usable certificate")).because(error)
            })?;
            if bundle.is_empty() {
                return Err(Error::config(format!("{place} holds no certificate")));
            }
            bundle
        }
        None => Vec::new(),
    };
    let builder = || {
        let builder = reqwest::Client::builder()
            .user_agent(concat!("lore/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers.clone())
            // Redirects are followed by hand: the token must not reach another host.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .timeout(config.timeout)
            .connect_timeout(config.timeout.min(CONNECT_TIMEOUT));
        if address.is_loopback() { builder.no_proxy() } else { builder }
    };
    if address.is_loopback() && address.is_plain() {
        // No proxy, no TLS: the system's certificates need not be read.
        return builder().tls_certs_only(extra).build().map_err(tls_error);
    }
    let built = match builder().tls_certs_merge(extra.clone()).build() {
        // A machine without certificates of its own can still use the ones it is given, or
        // no TLS at all.
        Err(_) if address.is_plain() || !extra.is_empty() => builder().tls_certs_only(extra).build(),
        built => built,
    };
    built.map_err(tls_error)
}

fn tls_error(error: reqwest::Error) -> Error {
    Error::config("cannot set up TLS")
        .because(error.without_url())
        .hint("install the system's certificates (ca-certificates), or set ca_file of the source")
}
