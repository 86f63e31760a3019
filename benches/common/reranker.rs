//! A reranker of our own, with text-embeddings-inference's `/rerank`, on a port of this machine: the
//! real client asks it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lore::search::{stem, words};
use serde_json::{Value, json};

/// How texts are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judge {
    /// By the words of the question that they hold, the rare among these texts for more.
    Words,
    /// By what is known of the answers, wrong about every fifth text.
    Errs,
}

#[derive(Debug)]
struct State {
    judge: Judge,
    /// Titles of the answers to the question under way.
    answers: Mutex<Vec<String>>,
    answered: AtomicUsize,
}

/// The server. It ends with the process.
#[derive(Debug)]
pub struct Reranker {
    address: SocketAddr,
    state: Arc<State>,
}

impl Reranker {
    /// Starts a server.
    pub fn start(judge: Judge) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State { judge, answers: Mutex::new(Vec::new()), answered: AtomicUsize::new(0) });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is no matter.
                drop(serve(stream, &shared));
            }
        });
        Self { address, state }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Tells the titles of the answers to the next question.
    pub fn knows(&self, answers: Vec<String>) {
        *self.state.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    /// Requests answered so far.
    pub fn answered(&self) -> usize {
        self.state.answered.load(Ordering::Relaxed)
    }
}

fn serve(stream: TcpStream, state: &State) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answer = scores(&body, state).to_string();
    state.answered.fetch_add(1, Ordering::Relaxed);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
        answer.len()
    )
}

fn forms(text: &str) -> BTreeSet<String> {
    words::words(text).filter(|word| !words::is_stop_word(word)).map(stem::index_form).collect()
}

fn scores(body: &Value, state: &State) -> Value {
    let texts: Vec<&str> = body["texts"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let question = forms(body["query"].as_str().unwrap_or_default());
    let held: Vec<BTreeSet<String>> = texts.iter().map(|text| forms(text)).collect();
    let rarity = |word: &String| {
        let holding = held.iter().filter(|forms| forms.contains(word)).count();
        (1.0 + texts.len() as f64 / (1.0 + holding as f64)).ln()
    };
    let answers = state.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let of_text = |(index, text): (usize, &&str)| {
        let words = question.intersection(&held[index]).map(rarity).sum::<f64>()
            / question.iter().map(rarity).sum::<f64>().max(1e-9);
        let score = match state.judge {
            Judge::Words => words,
            Judge::Errs => {
                let is_answer = answers.iter().any(|title| text.starts_with(title.as_str()));
                let is_wrong =
                    text.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte)) % 5 == 0;
                0.2 * words + if is_answer != is_wrong { 0.8 } else { 0.0 }
            }
        };
        json!({ "index": index, "score": score })
    };
    texts.iter().enumerate().map(of_text).collect()
}
