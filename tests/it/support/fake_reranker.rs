//! A reranker and a chat model of our own: text-embeddings-inference's `/rerank`, Cohere's
//! `/v1/rerank` and OpenAI's `/v1/chat/completions`, with the faults that real ones have.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::fake_gitlab::http::{Delivery, HttpServer, Reply, Request};

/// On which scale scores are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// 0 to 1.
    #[default]
    Unit,
    /// -10 to 10.
    Logits,
    /// 0 to 0.003.
    Small,
}

/// How the server judges and misbehaves. The default is a good server.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Words by which texts are judged: a text that holds the first is the best.
    pub favour: Vec<&'static str>,
    /// Scale of the scores.
    pub scale: Scale,
    /// An empty text has the score `null`.
    pub null_for_empty: bool,
    /// An empty text fails the whole request.
    pub refuse_empty: bool,
    /// A longer text fails the whole request, in characters.
    pub max_chars: Option<usize>,
    /// Texts in a request at most.
    pub max_batch: Option<usize>,
    /// Every request fails with this status.
    pub status: Option<u16>,
    /// How late every answer comes.
    pub slow: Option<Duration>,
    /// Every answer is a web page with status 200.
    pub web_page: bool,
    /// Two scores are for the same text.
    pub double_index: bool,
    /// The text at this place has no score.
    pub silent_about: Option<usize>,
    /// What the chat model says.
    pub says: Option<String>,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Path.
    pub path: String,
    /// Body.
    pub body: Value,
    /// The token, as sent.
    pub authorization: Option<String>,
}

impl Asked {
    /// The texts to be judged.
    pub fn texts(&self) -> Vec<String> {
        let list = self.body["texts"].as_array().or(self.body["documents"].as_array());
        list.into_iter().flatten().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
    }
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    asked: Vec<Asked>,
}

/// The server.
#[derive(Debug)]
pub struct FakeReranker {
    server: HttpServer,
    state: Arc<Mutex<State>>,
}

impl FakeReranker {
    /// Starts a server.
    pub fn new(faults: Faults) -> Self {
        let state = Arc::new(Mutex::new(State { faults, asked: Vec::new() }));
        let seen = Arc::clone(&state);
        let server = HttpServer::start(move |request, _| answer(&mut lock(&seen), request));
        Self { server, state }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.authority())
    }

    /// Changes how it behaves.
    pub fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.state).faults);
    }

    /// Requests so far; forgets them.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut lock(&self.state).asked)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(state: &mut State, request: &Request) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let asked = Asked {
        path: request.path().to_owned(),
        body,
        authorization: request.header("authorization").map(str::to_owned),
    };
    state.asked.push(asked.clone());
    let faults = &state.faults;
    let mut reply = reply(faults, &asked);
    if let Some(wait) = faults.slow {
        reply.delivery = Delivery::Late(wait);
    }
    reply
}

fn reply(faults: &Faults, asked: &Asked) -> Reply {
    if faults.web_page {
        return Reply::text(200, "text/html", "<!DOCTYPE html><title>Sign in</title>");
    }
    if let Some(status) = faults.status {
        let token = asked.authorization.clone().unwrap_or_default();
        return Reply::json(status, &json!({ "error": format!("no, {token}") }));
    }
    if asked.path == "/v1/chat/completions" {
        let content = faults.says.clone().unwrap_or_else(|| "I would rather not".to_owned());
        let message = json!({ "role": "assistant", "content": content });
        return Reply::json(200, &json!({ "choices": [{ "index": 0, "message": message }] }));
    }
    let texts = asked.texts();
    if faults.max_batch.is_some_and(|most| texts.len() > most) {
        let said = format!("batch size {} > maximum allowed batch size {:?}", texts.len(), faults.max_batch);
        return Reply::json(413, &json!({ "error": said, "error_type": "Validation" }));
    }
    let too_long = faults.max_chars.is_some_and(|most| texts.iter().any(|text| text.chars().count() > most));
    if too_long || (faults.refuse_empty && texts.iter().any(|text| text.trim().is_empty())) {
        return Reply::json(422, &json!({ "error": "Input validation error", "error_type": "Validation" }));
    }
    let place = |text: &str| {
        let lower = text.to_lowercase();
        faults.favour.iter().position(|word| lower.contains(word)).unwrap_or(faults.favour.len())
    };
    let mut scored: Vec<(usize, Value)> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let share = 1.0 - place(text) as f64 / faults.favour.len().max(1) as f64;
            let score = match faults.scale {
                Scale::Unit => share,
                Scale::Logits => share * 20.0 - 10.0,
                Scale::Small => share * 0.003,
            };
            let is_null = faults.null_for_empty && text.trim().is_empty();
            (index, if is_null { Value::Null } else { score.into() })
        })
        .filter(|(index, _)| faults.silent_about != Some(*index))
        .collect();
    // Real servers answer by falling score.
    scored.sort_by(|a, b| b.1.as_f64().unwrap_or(-99.0).total_cmp(&a.1.as_f64().unwrap_or(-99.0)));
    if faults.double_index
        && let Some(first) = scored.first_mut()
    {
        first.0 = usize::from(first.0 == 0);
    }
    match asked.path.as_str() {
        "/rerank" => {
            let list: Vec<Value> =
                scored.into_iter().map(|(index, score)| json!({ "index": index, "score": score })).collect();
            Reply::json(200, &Value::Array(list))
        }
        "/v1/rerank" => {
            let list: Vec<Value> = scored
                .into_iter()
                .map(|(index, score)| json!({ "index": index, "relevance_score": score }))
                .collect();
            Reply::json(200, &json!({ "id": "x", "results": list }))
        }
        _ => Reply::text(404, "text/plain", "404 page not found"),
    }
}
