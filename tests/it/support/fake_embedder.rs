//! An embedding server of our own: Ollama's, OpenAI's and text-embeddings-inference's
//! interfaces, with the faults that real ones have.
//!
//! A text's vector is its hashed bag of words, so that a test can tell whose vector it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::fake_gitlab::http::{Delivery, HttpServer, Reply, Request};

/// How the server misbehaves. The default is a good server.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Length of the vectors; 0: 64.
    pub dims: usize,
    /// A model whose vectors have another length.
    pub dims_of: Option<(&'static str, usize)>,
    /// A longer text fails its whole request, in characters.
    pub max_chars: Option<usize>,
    /// As `max_chars`, in tokens: a word or a punctuation character each.
    pub max_tokens: Option<usize>,
    /// Only so many characters of a text are embedded, silently.
    pub silent_cut: Option<usize>,
    /// A request with this word fails: its vector would hold NaN.
    pub nan: Option<&'static str>,
    /// Texts with this word get a vector of zeros; "" is in every text.
    pub zero: Option<&'static str>,
    /// Every vector is empty.
    pub empty_vectors: bool,
    /// OpenAI: items in reverse order, with the right index.
    pub shuffle: bool,
    /// OpenAI: no index.
    pub no_index: bool,
    /// Ollama: vectors moved by one.
    pub rotate: bool,
    /// Texts in a request at most (413), with the limit in the message.
    pub max_batch: Option<usize>,
    /// As `max_batch`, without a number in the message.
    pub max_batch_silent: Option<usize>,
    /// Characters / 4 in a request at most (400).
    pub max_request_tokens: Option<usize>,
    /// Requests that are answered with 503 first.
    pub busy: usize,
    /// Requests that are answered with 429 first.
    pub limited: usize,
    /// `Retry-After` of these.
    pub retry_after: Option<&'static str>,
    /// How late one answer comes.
    pub slow: Option<Duration>,
    /// Requests for vectors before the one that is answered late.
    pub slow_after: usize,
    /// Ollama: the models that are listed.
    pub tags: Option<Vec<&'static str>>,
    /// Path in front of every endpoint.
    pub prefix: &'static str,
    /// Length of the vectors' arrow; 0: 1.
    pub norm: f32,
    /// Every answer with vectors ends in the middle.
    pub truncated: bool,
    /// Every answer is a web page with status 200.
    pub web_page: bool,
    /// Every request is refused with 401, and the credentials echoed.
    pub refuse_token: bool,
    /// Every request fails with 500.
    pub broken: bool,
    /// text-embeddings-inference: what `/info` says.
    pub info: Option<Value>,
}

/// A request for vectors as it arrived.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Path.
    pub path: String,
    /// The model asked for.
    pub model: String,
    /// The texts.
    pub texts: Vec<String>,
    /// Status of the answer.
    pub status: u16,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    asked: Vec<Asked>,
    paths: Vec<String>,
    slowed: bool,
}

/// The server.
#[derive(Debug)]
pub struct FakeEmbedder {
    server: HttpServer,
    state: Arc<Mutex<State>>,
}

impl FakeEmbedder {
    /// Starts a server.
    pub fn new(faults: Faults) -> Self {
        let state = Arc::new(Mutex::new(State { faults, ..State::default() }));
        let seen = Arc::clone(&state);
        let server = HttpServer::start(move |request, _| answer(&mut lock(&seen), request));
        Self { server, state }
    }

    /// Its address, with the path prefix.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.server.authority(), lock(&self.state).faults.prefix)
    }

    /// Changes how it behaves.
    pub fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut lock(&self.state).faults);
    }

    /// Forgets what was asked.
    pub fn forget(&self) {
        let mut state = lock(&self.state);
        state.asked.clear();
        state.paths.clear();
        state.slowed = false;
    }

    /// Requests for vectors so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.state).asked.clone()
    }

    /// Every path that was asked, in order.
    pub fn paths(&self) -> Vec<String> {
        lock(&self.state).paths.clone()
    }

    /// The texts that were embedded, in the order of the requests.
    pub fn texts(&self) -> Vec<String> {
        self.asked().into_iter().filter(|asked| asked.status == 200).flat_map(|asked| asked.texts).collect()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The vector of a text: unit length.
pub fn vector_of(text: &str, dims: usize) -> Vec<f32> {
    let text = text
        .strip_prefix("search_document: ")
        .or_else(|| text.strip_prefix("search_query: "))
        .unwrap_or(text);
    let mut vector = vec![0.0_f32; dims];
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        for byte in word.to_lowercase().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        // Eight places a word: words that meet in one place differ in the others.
        for turn in 0..8 {
            hash = hash.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(turn);
            let place = usize::try_from(hash >> 33).unwrap_or(0) % dims;
            vector[place] += if hash & 0x10_0000 == 0 { 1.0 } else { -1.0 };
        }
    }
    let norm = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    if norm == 0.0 {
        vector[0] = 1.0;
        return vector;
    }
    vector.iter().map(|value| value / norm).collect()
}

fn answer(state: &mut State, request: &Request) -> Reply {
    let faults = state.faults.clone();
    state.paths.push(request.path().to_owned());
    if faults.web_page {
        return Reply::text(200, "text/html", "<!DOCTYPE html><html><title>Sign in</title></html>");
    }
    if faults.refuse_token {
        let token = request.header("authorization").unwrap_or_default();
        return Reply::json(
            401,
            &json!({ "error": { "message": format!("bad credentials {token} at {}", request.target) } }),
        );
    }
    let Some(path) = request.path().strip_prefix(faults.prefix) else {
        return Reply::text(404, "text/plain", "404 page not found");
    };
    match path {
        "/api/tags" => {
            let tags = faults.tags.unwrap_or_else(|| vec!["nomic-embed-text:latest"]);
            let models: Vec<Value> = tags.iter().map(|name| json!({ "name": name, "model": name })).collect();
            Reply::json(200, &json!({ "models": models }))
        }
        "/info" => faults
            .info
            .map_or_else(|| Reply::text(404, "text/plain", "not found"), |info| Reply::json(200, &info)),
        "/api/embed" | "/v1/embeddings" | "/openai/v1/embeddings" | "/embed" => embed(state, path, request),
        _ => Reply::text(404, "text/plain", "404 page not found"),
    }
}

fn embed(state: &mut State, path: &str, request: &Request) -> Reply {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let input = if path == "/embed" { &body["inputs"] } else { &body["input"] };
    let texts: Vec<String> = input
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap_or_default().to_owned())
        .collect();
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let faults = &mut state.faults;
    let refusal = refusal(faults, &texts);
    let mut reply = refusal.unwrap_or_else(|| vectors(faults, path, &model, &texts));
    if let Some(wait) = faults.slow.filter(|_| !state.slowed && state.asked.len() >= faults.slow_after) {
        state.slowed = true;
        reply.delivery = Delivery::Late(wait);
    }
    if faults.truncated {
        reply.delivery = Delivery::Truncated;
    }
    state.asked.push(Asked { path: request.path().to_owned(), model, texts, status: reply.status });
    reply
}

fn refusal(faults: &mut Faults, texts: &[String]) -> Option<Reply> {
    let chars = |text: &String| text.chars().count();
    let tokens = |text: &String| {
        text.split_whitespace().count() + text.chars().filter(|c| c.is_ascii_punctuation()).count()
    };
    let error = |status: u16, text: &str| Some(Reply::json(status, &json!({ "error": text })));
    let later = |status: u16, text: &str, faults: &Faults| {
        let reply = Reply::json(status, &json!({ "error": text }));
        Some(match faults.retry_after {
            Some(after) => reply.with("Retry-After", after),
            None => reply,
        })
    };
    if faults.busy > 0 {
        faults.busy -= 1;
        return later(503, "server busy, please try again. maximum pending requests exceeded", faults);
    }
    if faults.limited > 0 {
        faults.limited -= 1;
        return later(429, "rate limit reached", faults);
    }
    if faults.broken {
        return error(500, "llama runner process has terminated");
    }
    if let Some(most) = faults.max_batch.filter(|most| texts.len() > *most) {
        let text = format!("batch size {} > maximum allowed batch size {most}", texts.len());
        return error(413, &text);
    }
    if faults.max_batch_silent.is_some_and(|most| texts.len() > most) {
        return error(413, "payload too large");
    }
    let sum: usize = texts.iter().map(|text| chars(text) / 4).sum();
    if let Some(most) = faults.max_request_tokens.filter(|most| sum > *most) {
        return error(400, &format!("Requested {sum} tokens, max {most} tokens per request"));
    }
    let too_long = faults.max_chars.is_some_and(|most| texts.iter().any(|text| chars(text) > most))
        || faults.max_tokens.is_some_and(|most| texts.iter().any(|text| tokens(text) > most));
    if too_long {
        return error(400, "the input length exceeds the context length");
    }
    if faults.nan.is_some_and(|word| texts.iter().any(|text| text.contains(word))) {
        return error(500, "failed to encode response: json: unsupported value: NaN");
    }
    None
}

fn vectors(faults: &Faults, path: &str, model: &str, texts: &[String]) -> Reply {
    let dims = match faults.dims_of {
        Some((name, dims)) if name == model => dims,
        Some(_) | None if faults.dims == 0 => 64,
        Some(_) | None => faults.dims,
    };
    let norm = if faults.norm == 0.0 { 1.0 } else { faults.norm };
    let mut vectors: Vec<Vec<f32>> = texts
        .iter()
        .map(|text| {
            let text: String = text.chars().take(faults.silent_cut.unwrap_or(usize::MAX)).collect();
            let norm = if faults.zero.is_some_and(|word| text.contains(word)) { 0.0 } else { norm };
            vector_of(&text, dims).into_iter().map(|value| value * norm).collect()
        })
        .collect();
    if faults.empty_vectors {
        vectors.iter_mut().for_each(Vec::clear);
    }
    if faults.rotate && !vectors.is_empty() {
        vectors.rotate_left(1);
    }
    match path {
        "/api/embed" => Reply::json(200, &json!({ "model": "m", "embeddings": vectors })),
        "/embed" => Reply::json(200, &json!(vectors)),
        _ => {
            let mut data: Vec<Value> = vectors
                .into_iter()
                .enumerate()
                .map(|(index, vector)| {
                    if faults.no_index {
                        json!({ "embedding": vector })
                    } else {
                        json!({ "index": index, "embedding": vector })
                    }
                })
                .collect();
            if faults.shuffle {
                data.reverse();
            }
            Reply::json(200, &json!({ "object": "list", "data": data }))
        }
    }
}
