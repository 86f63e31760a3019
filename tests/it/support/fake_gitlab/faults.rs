//! What goes wrong, where, and how often.

use super::State;
use super::http::{Delivery, Reply, Request};
use super::model::Kind;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// This answer instead.
    Answer(Reply),
    /// The right answer, delivered badly.
    Deliver(Delivery),
    /// `200 []`.
    EmptyList,
    /// The right answer; right after it the item that is least recently updated is edited,
    /// so that it moves to the end of the list and all others move up.
    TouchOldest {
        /// Project.
        project: i64,
        /// Which list.
        kind: Kind,
    },
    /// The right answer, with the given text replaced in the body.
    Replace(String, String),
    /// The right answer with a `next` link to itself.
    NextIsSelf,
    /// 500 for pages of more rows than this, as when the server's own time limit ends a
    /// request for heavy items.
    TooHeavy(usize),
    /// 500 for every answer that holds one of these, as when the server fails at making a row.
    Poison(Vec<String>),
    /// The right answer, whose header of this name is set, or removed when there is no value.
    Header(String, Option<String>),
}

/// A planned fault.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Requests whose target holds this.
    pub target: String,
    /// The first ones that are spared.
    pub after: usize,
    /// How many are hit then; `usize::MAX` for ever.
    pub times: usize,
    /// What happens.
    pub trouble: Trouble,
}

impl Fault {
    /// A fault of every request whose target holds `target`.
    pub fn always(target: &str, trouble: Trouble) -> Self {
        Self { target: target.to_owned(), after: 0, times: usize::MAX, trouble }
    }

    /// A fault of the first `times` such requests.
    pub fn times(target: &str, times: usize, trouble: Trouble) -> Self {
        Self { target: target.to_owned(), after: 0, times, trouble }
    }

    /// Spares the first `after` such requests.
    #[must_use]
    pub fn after(mut self, after: usize) -> Self {
        self.after = after;
        self
    }
}

/// An answer that fails with an HTML page, as a proxy sends it.
pub fn html(status: u16) -> Trouble {
    Trouble::Answer(Reply::text(
        status,
        "text/html; charset=utf-8",
        "<!DOCTYPE html>\n<html><head><title>GitLab is not responding</title></head><body>HTMLBODY</body></html>",
    ))
}

/// An answer that fails with GitLab's JSON.
pub fn json(status: u16, message: &str) -> Trouble {
    Trouble::Answer(Reply::json(status, &serde_json::json!({ "message": message })))
}

/// Finds the fault of a request and counts it; returns the answer that replaces the right one.
pub fn before(state: &mut State, request: &Request) -> Option<Reply> {
    match due(state, request)? {
        Trouble::Answer(reply) => Some(reply),
        Trouble::EmptyList => Some(Reply::json(200, &serde_json::json!([]))),
        Trouble::Deliver(Delivery::Reset) => Some(Reply { delivery: Delivery::Reset, ..Reply::default() }),
        Trouble::TooHeavy(max) => {
            let per_page =
                request.param("per_page").and_then(|text| text.parse::<usize>().ok()).unwrap_or(20);
            let body = serde_json::json!({"message": "500 Internal Server Error"});
            (per_page > max).then(|| Reply::json(500, &body))
        }
        later @ (Trouble::Deliver(_)
        | Trouble::Header(..)
        | Trouble::TouchOldest { .. }
        | Trouble::Poison(_)
        | Trouble::Replace(..)
        | Trouble::NextIsSelf) => {
            state.model.pending = Some(later);
            None
        }
    }
}

/// Applies what is left of a fault to the right answer.
pub fn after(state: &mut State, request: &Request, mut reply: Reply) -> Reply {
    match state.model.pending.take() {
        Some(Trouble::Deliver(delivery)) => reply.delivery = delivery,
        Some(Trouble::TouchOldest { project, kind }) => state.model.touch_oldest(project, kind),
        Some(Trouble::Poison(texts)) => {
            let body = String::from_utf8_lossy(&reply.body);
            if texts.iter().any(|text| body.contains(text.as_str())) {
                reply = Reply::json(500, &serde_json::json!({"message": "500 Internal Server Error"}));
            }
        }
        Some(Trouble::Replace(from, to)) => {
            reply.body = String::from_utf8_lossy(&reply.body).replace(&from, &to).into_bytes();
        }
        Some(Trouble::NextIsSelf) => {
            reply.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("link"));
            reply = reply.with("Link", format!("<http://x{}>; rel=\"next\"", request.target));
        }
        Some(Trouble::Header(name, value)) => {
            reply.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
            if let Some(value) = value {
                reply = reply.with(&name, value);
            }
        }
        Some(Trouble::Answer(_) | Trouble::EmptyList | Trouble::TooHeavy(_)) | None => {}
    }
    reply
}

fn due(state: &mut State, request: &Request) -> Option<Trouble> {
    for fault in &mut state.faults {
        if !request.target.contains(&fault.target) || fault.times == 0 {
            continue;
        }
        if fault.after > 0 {
            fault.after -= 1;
            continue;
        }
        if fault.times != usize::MAX {
            fault.times -= 1;
        }
        return Some(fault.trouble.clone());
    }
    None
}
