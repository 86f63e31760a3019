//! Posts JSON to a service and reads JSON, with errors that say which service and what to do.

use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::Value;

use super::Failed;
use crate::error::{Error, ErrorKind, Result};
use crate::secret::Secret;
use crate::service::{self, Broken};
use crate::traffic::StatsView;

/// A service.
#[derive(Debug)]
pub(super) struct Client {
    client: service::Client,
    /// How it is called in messages.
    what: &'static str,
    /// Key of its address in the configuration.
    key: &'static str,
}

impl Client {
    /// Makes a client of the service at `base`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an address or certificate file that cannot be used.
    pub(super) fn new(
        (what, key): (&'static str, &'static str),
        base: &str,
        token: Option<Secret>,
        ca_file: Option<&Path>,
    ) -> Result<Self> {
        let client = service::Client::new((key, "http://localhost:8080"), base, token, ca_file)?;
        Ok(Self { client, what, key })
    }

    /// The address without secrets.
    pub(super) fn shown(&self) -> String {
        self.client.shown()
    }

    /// Counts of the requests so far.
    pub(super) fn stats(&self) -> StatsView {
        self.client.stats().view()
    }

    /// Path of the address.
    pub(super) fn path(&self) -> &str {
        self.client.path()
    }

    /// An answer that cannot be used.
    pub(super) fn useless(&self, why: &str) -> Failed {
        Failed::Useless(
            Error::new(ErrorKind::Network, format!("{} at {} {why}", self.what, self.shown()))
                .hint(format!("check `{}` and what listens there", self.key)),
        )
    }

    /// Posts a body; the status is given where it says that the body was not accepted.
    ///
    /// # Errors
    /// See [`Failed`]; with the status of a refusal.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        timeout: Duration,
    ) -> std::result::Result<Value, (Failed, Option<StatusCode>)> {
        let body = Some(body.to_string().into_bytes());
        let reply = match self.client.send(path, body, timeout).await {
            Ok(reply) => reply,
            Err(Broken::Late) => return Err((self.late(timeout), None)),
            Err(Broken::Lost(error)) => return Err((self.lost(error), None)),
            Err(Broken::Cut(error)) => return Err((self.cut(error), None)),
            Err(broken @ Broken::Endless) => return Err((self.useless(&format!("gives {broken}")), None)),
        };
        if !reply.status.is_success() {
            let said = self.client.clean(&reply.message());
            return Err((self.refused(reply.status, &said), Some(reply.status)));
        }
        serde_json::from_slice(&reply.bytes).map_err(|error| {
            let what = if reply.is_page() { "a web page".to_owned() } else { format!("no JSON ({error})") };
            (self.useless(&format!("answers with {what} ({})", reply.told(&self.client))), None)
        })
    }

    fn refused(&self, status: StatusCode, said: &str) -> Failed {
        let message = format!("{} at {} answers {status}: {said}", self.what, self.shown());
        let error = |kind| Error::new(kind, message.clone());
        match status.as_u16() {
            401 | 403 => {
                Failed::Useless(error(ErrorKind::Auth).hint("check the token that is configured for it"))
            }
            404 | 405 => Failed::Useless(
                error(ErrorKind::Network).hint(format!("check `{}`: the endpoint is not there", self.key)),
            ),
            429 => Failed::Down(error(ErrorKind::RateLimited).hint("ask again later")),
            500..=599 => Failed::Down(error(ErrorKind::Network).hint("look at the log of the service")),
            _ => Failed::Useless(error(ErrorKind::Network)),
        }
    }

    fn lost(&self, error: reqwest::Error) -> Failed {
        Failed::Down(
            Error::new(ErrorKind::Network, format!("cannot reach {} at {}", self.what, self.shown()))
                .because(error)
                .hint(format!("start it, or correct `{}`", self.key)),
        )
    }

    fn cut(&self, error: reqwest::Error) -> Failed {
        Failed::Down(
            Error::new(
                ErrorKind::Network,
                format!("the answer of {} at {} broke off", self.what, self.shown()),
            )
            .because(error)
            .hint("look at the log of the service, and of a proxy in between"),
        )
    }

    /// No answer in time.
    pub(super) fn late(&self, timeout: Duration) -> Failed {
        let seconds = timeout.as_secs_f64();
        Failed::Late(
            Error::new(
                ErrorKind::Network,
                format!("{} at {} did not answer within {seconds:.1} s", self.what, self.shown()),
            )
            .hint("raise its timeout, or give it less to do"),
        )
    }
}
