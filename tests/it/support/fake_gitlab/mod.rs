//! A GitLab server of our own: a model with a clock, permissions and faults, or a replay of
//! recorded exchanges.
//!
//! It speaks HTTP/1.1 over plain sockets, so that a fault can also be a truncated body, a
//! silence or a broken connection.
//!
//! Needs nothing of the crate under test, so that unit tests and tests of the binary share it.

pub mod edits;
pub mod faults;
pub mod groups;
pub mod http;
pub mod limits;
pub mod lists;
pub mod load;
pub mod model;
pub mod notes;
pub mod pages;
pub mod related;
pub mod replay;
pub mod routes;
pub mod rows;
pub mod settings;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faults::Fault;
use http::{HttpServer, Reply, Request};
use model::Model;
use replay::Replay;
pub use settings::{Access, Paging, Settings};

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Path and query.
    pub target: String,
    /// Whether it carried a token.
    pub has_token: bool,
    /// Status of the answer; 0 when the connection was broken.
    pub status: u16,
}

/// Everything behind the sockets.
#[derive(Debug, Default)]
pub struct State {
    /// Projects and their items.
    pub model: Model,
    /// How the server behaves.
    pub settings: Settings,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What was asked.
    pub log: Vec<Logged>,
    /// Set: recorded exchanges are answered instead of the model.
    pub replay: Option<Replay>,
}

/// A running server. Stops when dropped.
#[derive(Debug)]
pub struct FakeGitlab {
    state: Arc<Mutex<State>>,
    http: HttpServer,
}

impl FakeGitlab {
    /// Starts a server with an empty model.
    pub fn start() -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let http = HttpServer::start(move |request, authority| {
            answer(&mut shared.lock().unwrap_or_else(PoisonError::into_inner), request, authority)
        });
        Self { state, http }
    }

    /// Starts a server that answers recorded exchanges, one JSON object a line with
    /// `method`, `url`, `status`, `headers` and `body`.
    pub fn replay(lines: &str) -> Self {
        let server = Self::start();
        server.state().replay = Some(Replay::parse(lines));
        server
    }

    /// The address to configure.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.http.authority(), self.state().settings.prefix)
    }

    /// The state, locked: requests wait meanwhile.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the model.
    pub fn edit<T>(&self, change: impl FnOnce(&mut Model) -> T) -> T {
        change(&mut self.state().model)
    }

    /// Changes how the server behaves.
    pub fn set(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.state().settings);
    }

    /// Plans a fault.
    pub fn plan(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// Takes what was asked since the last call.
    pub fn take_log(&self) -> Vec<Logged> {
        std::mem::take(&mut self.state().log)
    }
}

fn answer(state: &mut State, request: &Request, authority: &str) -> Reply {
    let reply = match faults::before(state, request) {
        Some(reply) => reply,
        None => {
            let reply = match &mut state.replay {
                Some(replay) => replay.answer(request),
                None => routes::answer(&state.model, &mut state.settings, request, authority),
            };
            faults::after(state, request, reply)
        }
    };
    let status = if reply.is_reset() { 0 } else { reply.status };
    let has_token = request.header("private-token").is_some() || request.header("authorization").is_some();
    state.log.push(Logged { target: request.target.clone(), has_token, status });
    reply
}
