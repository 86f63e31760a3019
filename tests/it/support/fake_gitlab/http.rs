//! HTTP/1.1 over plain sockets: just enough, and able to misbehave.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Method in capitals.
    pub method: String,
    /// Path and query as sent.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

impl Request {
    /// Value of a header; the name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Path without query, as sent.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Decoded pairs of the query.
    pub fn query(&self) -> Vec<(String, String)> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query);
        query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
            })
            .collect()
    }

    /// One value of the query.
    pub fn param(&self, name: &str) -> Option<String> {
        self.query().into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }
}

/// Decodes percent signs.
pub fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: Vec<u8> = rest.by_ref().take(2).collect();
            let code =
                std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(code.unwrap_or(b'?'));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Delivery {
    /// As it should be.
    #[default]
    Whole,
    /// The length is told, but only half of the body is sent.
    Truncated,
    /// Half of the body, with a length that fits.
    Halved,
    /// The connection breaks before the answer.
    Reset,
    /// The answer comes late.
    Late(Duration),
    /// The answer comes in pieces, the given time apart.
    Trickle(Duration),
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Headers beside length and connection.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// How it is sent.
    pub delivery: Delivery,
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: u16, value: &serde_json::Value) -> Self {
        Self {
            status,
            headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body: value.to_string().into_bytes(),
            delivery: Delivery::Whole,
        }
    }

    /// An answer of another type.
    pub fn text(status: u16, content_type: &str, body: &str) -> Self {
        Self {
            status,
            headers: vec![("Content-Type".to_owned(), content_type.to_owned())],
            body: body.as_bytes().to_vec(),
            delivery: Delivery::Whole,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Whether nothing is sent.
    pub fn is_reset(&self) -> bool {
        self.delivery == Delivery::Reset
    }
}

/// A server on a free port of the loopback interface. Stops when dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    stopped: Arc<AtomicBool>,
}

impl HttpServer {
    /// Starts it; `handler` is given the request and our authority, `127.0.0.1:port`.
    pub fn start(handler: impl Fn(&Request, &str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("bind: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("address: {error}"));
        let stopped = Arc::new(AtomicBool::new(false));
        let (seen, handler) = (Arc::clone(&stopped), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if seen.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (handler, seen) = (Arc::clone(&handler), Arc::clone(&seen));
                std::thread::spawn(move || serve(&stream, &address.to_string(), handler.as_ref(), &seen));
            }
        });
        Self { address, stopped }
    }

    /// Host and port.
    pub fn authority(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread; when it is gone already there is nothing to wake.
        drop(TcpStream::connect(self.address));
    }
}

fn serve(
    stream: &TcpStream,
    authority: &str,
    handler: &(dyn Fn(&Request, &str) -> Reply + Send + Sync),
    stopped: &AtomicBool,
) {
    // Not so on a stream that cannot be set up this way: it is only slower.
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        if stopped.load(Ordering::SeqCst) {
            return;
        }
        let reply = handler(&request, authority);
        if !send(stream, &reply) {
            return;
        }
    }
}

fn read_request(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = Request { method, target, headers, body: Vec::new() };
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// Sends an answer; returns whether the connection goes on.
fn send(mut stream: &TcpStream, reply: &Reply) -> bool {
    let half = reply.body.get(..reply.body.len() / 2).unwrap_or_default();
    let (length, body) = match reply.delivery {
        Delivery::Reset => return false,
        Delivery::Whole => (reply.body.len(), reply.body.as_slice()),
        Delivery::Late(wait) => {
            std::thread::park_timeout(wait);
            (reply.body.len(), reply.body.as_slice())
        }
        Delivery::Trickle(_) => (reply.body.len(), half),
        Delivery::Truncated => (reply.body.len(), half),
        Delivery::Halved => (half.len(), half),
    };
    let mut head = format!("HTTP/1.1 {} Status\r\nContent-Length: {length}\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    // In one piece: a second small packet would wait for the acknowledgement of the first.
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    let mut sent = stream.write_all(&bytes);
    if let Delivery::Trickle(pause) = reply.delivery {
        let rest = reply.body.get(half.len()..).unwrap_or_default();
        for piece in rest.chunks(rest.len().div_ceil(4).max(1)) {
            std::thread::park_timeout(pause);
            sent = sent.and_then(|()| stream.write_all(piece));
        }
    }
    sent.is_ok() && reply.delivery != Delivery::Truncated
}
