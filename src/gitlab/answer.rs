//! What an answer means: decided from status, headers and body, without doing anything.

use std::time::Duration;

use chrono::DateTime;
use reqwest::header::HeaderMap;

use super::RequestError;
use super::pace::Quota;
use crate::clock::Millis;
use crate::error::{Error, ErrorKind};

/// Characters of a foreign text that are shown at most.
const EXCERPT_CHARS: usize = 80;
/// Characters of a JSON message that are shown at most.
const MESSAGE_CHARS: usize = 200;

/// What to do with an answer.
#[derive(Debug)]
pub enum Verdict {
    /// Read its body.
    Read,
    /// Ask again elsewhere.
    Redirect(String),
    /// Ask again later.
    Retry {
        /// What to report when no attempt is left.
        error: RequestError,
        /// How long the server wants us to wait.
        wait: Option<Duration>,
        /// Whether we asked too often.
        rate_limited: bool,
    },
    /// Give up.
    Refuse(RequestError),
}

/// One answer, as far as it is judged.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// What was asked, without query: `GET https://host/api/v4/projects/5`.
    pub what: &'a str,
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its body.
    pub body: &'a [u8],
    /// The token, to keep it out of messages when a server echoes it.
    pub secret: Option<&'a str>,
    /// Our wall clock.
    pub now: Millis,
}

/// Decides what to do with an answer.
pub fn judge(answer: &Answer<'_>) -> Verdict {
    match answer.status {
        200..=299 => Verdict::Read,
        301 | 302 | 303 | 307 | 308 => {
            match answer.headers.get("location").and_then(|value| value.to_str().ok()) {
                Some(location) => Verdict::Redirect(location.to_owned()),
                None => Verdict::Refuse(answer.refusal(ErrorKind::SourceNotFound)),
            }
        }
        401 => Verdict::Refuse(answer.refusal(ErrorKind::Auth).hinted(
            "check that the token is the right one, not expired and not revoked, and has the scope read_api",
        )),
        403 if json_text(answer.body, "error").as_deref() == Some("insufficient_scope") => {
            // Not a feature that is off: nothing will work with this token.
            let refusal = answer.refusal(ErrorKind::Auth);
            Verdict::Refuse(
                RequestError { status: Some(401), ..refusal }.hinted("give the token the scope read_api"),
            )
        }
        403 => Verdict::Refuse(
            answer
                .refusal(ErrorKind::SourceNotFound)
                .hinted("the token's user may not see this, or the feature is switched off in the project"),
        ),
        404 => Verdict::Refuse(answer.refusal(ErrorKind::SourceNotFound).hinted(
            "check the path, whether the token's user is a member, and that no proxy decodes %2F in paths",
        )),
        429 => Verdict::Retry {
            error: answer.refusal(ErrorKind::RateLimited),
            wait: rate_limit_wait(answer.headers, answer.now),
            rate_limited: true,
        },
        408 | 425 | 500..=599 => Verdict::Retry {
            error: answer.refusal(ErrorKind::Network),
            wait: retry_after(answer.headers, answer.now),
            rate_limited: false,
        },
        _ => Verdict::Refuse(answer.refusal(ErrorKind::SourceNotFound)),
    }
}

impl Answer<'_> {
    fn refusal(&self, kind: ErrorKind) -> RequestError {
        let name = match self.status {
            429 => "429, rate limited".to_owned(),
            status => reqwest::StatusCode::from_u16(status)
                .ok()
                .and_then(|code| code.canonical_reason())
                .map_or_else(|| status.to_string(), |reason| format!("{status} {reason}")),
        };
        let said = self.said().map(|text| format!(": {text}")).unwrap_or_default();
        RequestError {
            status: Some(self.status),
            error: Error::new(kind, format!("{} answered {name}{said}", self.what)),
        }
    }

    /// Reports a body that cannot be read as the JSON that was asked for.
    pub fn unreadable(&self, error: &serde_json::Error) -> RequestError {
        let what = self.what;
        let status = Some(self.status);
        if self.is_html() {
            let error = Error::new(
                ErrorKind::Network,
                format!("{what} answered {} with an HTML page instead of JSON", self.status),
            )
            .hint("check that url of the source is the address of GitLab itself, and that no login page or proxy stands in front of it");
            return RequestError { status, error };
        }
        // serde's text names a place in the body, never the body.
        let message = format!(
            "{what} answered {} with a body of {} bytes ({}) that is not the JSON that was asked for: {error}",
            self.status,
            self.body.len(),
            self.content_type(),
        );
        RequestError { status, error: Error::new(ErrorKind::Network, message) }
    }

    /// Whether the body is an HTML page, whatever its header says.
    pub fn is_html(&self) -> bool {
        let head: String = String::from_utf8_lossy(self.body.get(..64).unwrap_or(self.body)).to_lowercase();
        let head = head.trim_start();
        self.content_type().contains("html") || head.starts_with("<!doctype") || head.starts_with("<html")
    }

    fn content_type(&self) -> String {
        self.headers
            .get("content-type")
            .and_then(|value| value.to_str().ok())
            .map_or_else(|| "no content type".to_owned(), |text| plain(text, EXCERPT_CHARS))
    }

    /// What the body says, short and without the token.
    fn said(&self) -> Option<String> {
        if self.body.is_empty() {
            return None;
        }
        if self.is_html() {
            return Some("an HTML page".to_owned());
        }
        let message =
            ["error_description", "message", "error"].iter().find_map(|key| json_text(self.body, key));
        let (text, max) = match message {
            Some(text) => (text, MESSAGE_CHARS),
            None => (String::from_utf8_lossy(self.body).into_owned(), EXCERPT_CHARS),
        };
        // Before the cut: half of a token is not found any more, and is still a secret.
        let text = match self.secret {
            Some(secret) if !secret.is_empty() => text.replace(secret, "…"),
            Some(_) | None => text,
        };
        let text = plain(&text, max);
        (!text.is_empty()).then_some(text)
    }
}

impl RequestError {
    fn hinted(mut self, hint: &str) -> Self {
        self.error = self.error.hint(hint);
        self
    }
}

/// Cuts a foreign text to `max` characters on one line.
fn plain(text: &str, max: usize) -> String {
    let mut out: String =
        text.trim().chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().chars().nth(max).is_some() {
        out.push('…');
    }
    out
}

/// Returns a key of a JSON object as text; lists and objects come out as JSON.
fn json_text(body: &[u8], key: &str) -> Option<String> {
    match serde_json::from_slice::<serde_json::Value>(body).ok()?.get(key)? {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// Reads a header of the server's limits, with and without `X-` in front.
fn limit_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name).or_else(|| headers.get(format!("x-{name}")))?;
    value.to_str().ok().map(str::trim)
}

/// What an answer says is left of the server's limit; nothing when it does not say.
pub fn quota(headers: &HeaderMap, now: Millis) -> Option<Quota> {
    Some(Quota {
        remaining: limit_header(headers, "ratelimit-remaining")?.parse().ok()?,
        limit: limit_header(headers, "ratelimit-limit").and_then(|limit| limit.parse().ok()),
        reset: reset_wait(headers, now),
    })
}

/// How long a 429 asks to wait: `Retry-After`, else the time until the limit's reset;
/// nothing when no header says anything of use.
fn rate_limit_wait(headers: &HeaderMap, now: Millis) -> Option<Duration> {
    retry_after(headers, now).or_else(|| reset_wait(headers, now))
}

/// Time until the limit's reset: `RateLimit-Reset`, else `RateLimit-ResetTime`.
fn reset_wait(headers: &HeaderMap, now: Millis) -> Option<Duration> {
    let text = |name: &str| limit_header(headers, name);
    let by_number = || {
        let reset: i64 = text("ratelimit-reset")?.parse().ok()?;
        // A time in seconds since the epoch, or, in newer drafts, seconds from now.
        let until = if reset > 1_000_000_000 {
            reset.checked_mul(1000)?
        } else {
            server_time(headers).unwrap_or(now) + reset.checked_mul(1000)?
        };
        wait_until(until, headers, now)
    };
    by_number().or_else(|| wait_until(http_date(text("ratelimit-resettime")?)?, headers, now))
}

/// `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: Millis) -> Option<Duration> {
    let text = headers.get("retry-after")?.to_str().ok()?.trim();
    match text.parse::<u64>() {
        Ok(0) => None,
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => wait_until(http_date(text)?, headers, now),
    }
}

/// Waits are measured against the server's own clock when it tells it.
fn wait_until(until: Millis, headers: &HeaderMap, now: Millis) -> Option<Duration> {
    let wait = until.saturating_sub(server_time(headers).unwrap_or(now));
    u64::try_from(wait).ok().filter(|wait| *wait > 0).map(Duration::from_millis)
}

/// The server's clock: its `Date` header.
pub fn server_time(headers: &HeaderMap) -> Option<Millis> {
    http_date(headers.get("date")?.to_str().ok()?)
}

fn http_date(text: &str) -> Option<Millis> {
    DateTime::parse_from_rfc2822(text.trim()).ok().map(|time| time.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};

    const NOW: Millis = 1_609_844_370_000; // 2021-01-05T10:59:30Z

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| {
                (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    fn refusal(status: u16, list: &[(&str, &str)], body: &str) -> RequestError {
        let headers = headers(list);
        let answer = Answer {
            what: "GET https://host/api/v4/projects/5",
            status,
            headers: &headers,
            body: body.as_bytes(),
            secret: Some("glpat-S3CR3T"),
            now: NOW,
        };
        match judge(&answer) {
            Verdict::Refuse(error) | Verdict::Retry { error, .. } => error,
            other @ (Verdict::Read | Verdict::Redirect(_)) => panic!("{other:?}"),
        }
    }

    fn wait_of(list: &[(&str, &str)]) -> Option<u64> {
        rate_limit_wait(&headers(list), NOW).map(|wait| wait.as_secs())
    }

    #[test]
    fn bugs_27_every_form_of_a_rate_limit_is_understood() {
        assert_eq!(wait_of(&[("Retry-After", "30"), ("RateLimit-Reset", "1609844400")]), Some(30));
        assert_eq!(wait_of(&[("Retry-After", "Tue, 05 Jan 2021 11:00:00 GMT")]), Some(30));
        assert_eq!(wait_of(&[("RateLimit-Reset", "1609844400")]), Some(30));
        assert_eq!(wait_of(&[("RateLimit-Reset", "12")]), Some(12));
        assert_eq!(wait_of(&[("RateLimit-ResetTime", "Tue, 05 Jan 2021 11:00:00 GMT")]), Some(30));
        assert_eq!(wait_of(&[("X-RateLimit-Reset", "1609844400")]), Some(30));
        let skewed = [("Date", "Tue, 05 Jan 2021 10:00:00 GMT"), ("RateLimit-Reset", "1609840830")];
        assert_eq!(wait_of(&skewed), Some(30), "measured by the server's clock");
        for useless in [
            &[][..],
            &[("Retry-After", "0")],
            &[("Retry-After", "soon")],
            &[("RateLimit-Reset", "1609844000")],
            &[("RateLimit-Reset", "99999999999999999999")],
        ] {
            assert_eq!(wait_of(useless), None, "{useless:?}");
        }
    }

    #[test]
    fn api_77_what_is_left_of_the_limit_is_read_in_both_spellings() {
        let of = |list: &[(&str, &str)]| quota(&headers(list), NOW);
        let left = Quota { remaining: 7, limit: Some(600), reset: Some(Duration::from_secs(30)) };
        for prefix in ["RateLimit-", "X-RateLimit-", "x-ratelimit-"] {
            let names = ["Remaining", "Limit", "Reset"].map(|name| format!("{prefix}{name}"));
            let list =
                [(names[0].as_str(), "7"), (names[1].as_str(), "600"), (names[2].as_str(), "1609844400")];
            assert_eq!(of(&list), Some(left), "{prefix}");
        }
        let alone = Quota { remaining: 0, limit: None, reset: None };
        assert_eq!(of(&[("RateLimit-Remaining", "0")]), Some(alone));
        assert_eq!(of(&[("RateLimit-Limit", "600")]), None);
        assert_eq!(of(&[("RateLimit-Remaining", "many")]), None);
    }

    #[test]
    fn a5_04_bugs_26_an_html_body_is_never_shown() {
        let html = "<!DOCTYPE html>\n<html><body>S3CR3T page</body></html>";
        for status in [404, 429, 500, 502, 503, 520] {
            for list in [&[("content-type", "text/html")][..], &[("content-type", "application/json")]] {
                let message = refusal(status, list, html).error.to_string();
                assert!(
                    message.contains(&status.to_string()) && message.contains("an HTML page"),
                    "{message}"
                );
                assert!(!message.contains("DOCTYPE") && !message.contains("S3CR3T"), "{message}");
            }
        }
        assert!(refusal(429, &[], html).error.to_string().contains("rate limited"));
    }

    #[test]
    fn bugs_17_28_what_the_server_says_is_passed_on_short_and_without_the_token() {
        let message = |body: &str| refusal(400, &[], body).error.to_string();
        assert!(message("{\"error\":\"updated_after is invalid\"}").ends_with(": updated_after is invalid"));
        assert!(message("{\"message\":{\"name\":[\"taken\"]}}").contains("taken"));
        assert!(!message("{\"message\":\"bad glpat-S3CR3T\"}").contains("S3CR3T"));
        for front in [70, 190] {
            let text = format!("{}glpat-S3CR3T", "x".repeat(front));
            for body in [serde_json::json!({ "message": text }).to_string(), text] {
                assert!(!message(&body).contains("glpat"), "cut inside the token: {body}");
            }
        }
        let long = message(&"日本\u{1b}".repeat(100));
        assert!(long.contains("日本 日本") && long.ends_with('…') && long.chars().count() < 160, "{long}");
        let not_found = refusal(404, &[], "404 page not found");
        assert!(not_found.is_missing());
        assert!(not_found.error.hints()[0].contains("%2F"));
    }

    #[test]
    fn a6_18_only_what_may_pass_is_tried_again() {
        let verdict = |status: u16| {
            let headers = HeaderMap::new();
            let answer =
                Answer { what: "GET x", status, headers: &headers, body: b"", secret: None, now: NOW };
            judge(&answer)
        };
        for status in [408, 425, 429, 500, 502, 503, 504, 520, 530] {
            assert!(matches!(verdict(status), Verdict::Retry { .. }), "{status}");
        }
        for status in [400, 401, 403, 404, 405, 409, 410, 418, 422, 300, 304] {
            assert!(matches!(verdict(status), Verdict::Refuse(_)), "{status}");
        }
        for (status, kind) in [
            (401, ErrorKind::Auth),
            (403, ErrorKind::SourceNotFound),
            (404, ErrorKind::SourceNotFound),
            (429, ErrorKind::RateLimited),
            (503, ErrorKind::Network),
        ] {
            assert_eq!(refusal(status, &[], "").error.kind(), kind);
        }
        let scope = refusal(403, &[], "{\"error\":\"insufficient_scope\",\"scope\":\"api\"}");
        assert_eq!(scope.error.kind(), ErrorKind::Auth);
    }
}
