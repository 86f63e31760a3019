//! The lines of the protocol: what is no message is answered as one that cannot be parsed, so
//! that a client learns of it. The SDK would say nothing.

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::bounds::clip;

/// Bytes of a line at most.
pub const MAX_LINE: usize = 4 << 20;

/// Bytes under way between us and the SDK.
const PIPE: usize = 64 << 10;

/// Lines that wait to be written.
const WAITING: usize = 64;

/// JSON-RPC's code for what cannot be parsed.
const PARSE_ERROR: i32 = -32_700;

/// Both streams with a guard in between.
pub(super) struct Guarded {
    /// What the SDK reads and writes.
    pub(super) streams: (DuplexStream, DuplexStream),
    /// Ends with the input; to be stopped when nothing is to be read any more.
    pub(super) reading: JoinHandle<()>,
    /// Ends when everything is written.
    pub(super) writing: JoinHandle<()>,
}

impl Guarded {
    /// Puts a guard between the streams and the SDK.
    pub(super) fn new(
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (to_sdk, sdk_input) = tokio::io::duplex(PIPE);
        let (sdk_output, from_sdk) = tokio::io::duplex(PIPE);
        let (lines, queue) = mpsc::channel(WAITING);
        let reading = tokio::spawn(read(BufReader::new(input), to_sdk, lines.clone()));
        tokio::spawn(pass_on(BufReader::new(from_sdk), lines));
        let writing = tokio::spawn(write(queue, output));
        Self { streams: (sdk_input, sdk_output), reading, writing }
    }
}

/// Hands lines that are JSON on, and answers the others.
async fn read(
    mut input: impl AsyncBufRead + Unpin,
    mut to_sdk: impl AsyncWrite + Unpin,
    lines: mpsc::Sender<Vec<u8>>,
) {
    loop {
        let fault = match line(&mut input).await {
            Line::Whole(mut line) => match fault(&line) {
                None => {
                    line.push(b'\n');
                    if to_sdk.write_all(&line).await.is_err() {
                        return;
                    }
                    continue;
                }
                Some(fault) => fault,
            },
            Line::Empty => continue,
            Line::TooLong => format!("a line of more than {} MiB", MAX_LINE >> 20),
            Line::End => return,
        };
        let mut answer = json!({
            "jsonrpc": "2.0",
            "id": null,
            "error": { "code": PARSE_ERROR, "message": format!("no message: {fault}") },
        })
        .to_string()
        .into_bytes();
        answer.push(b'\n');
        if lines.send(answer).await.is_err() {
            return;
        }
    }
}

/// Why a line is no message.
fn fault(line: &[u8]) -> Option<String> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let error = serde_json::from_slice::<Value>(line).err()?;
    Some(clip(&error.to_string(), 200))
}

enum Line {
    Whole(Vec<u8>),
    Empty,
    TooLong,
    End,
}

/// The next line, without its end. The last one may have none. Of one that is too long nothing
/// is kept.
async fn line(input: &mut (impl AsyncBufRead + Unpin)) -> Line {
    let (mut line, mut too_long, mut any) = (Vec::new(), false, false);
    loop {
        // An input that breaks off has ended.
        let Ok(part) = input.fill_buf().await else { return Line::End };
        if part.is_empty() && !any {
            return Line::End;
        }
        any = true;
        let end = part.iter().position(|byte| *byte == b'\n');
        let is_last = end.is_some() || part.is_empty();
        let taken = part.split_at(end.unwrap_or(part.len())).0;
        too_long |= line.len() + taken.len() > MAX_LINE;
        if too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(taken);
        }
        let used = taken.len() + usize::from(end.is_some());
        input.consume(used);
        if is_last {
            return match (too_long, line.trim_ascii().is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::Empty,
                (false, false) => Line::Whole(line),
            };
        }
    }
}

/// Takes the SDK's lines whole, so that ours never stand inside of one.
async fn pass_on(mut from_sdk: impl AsyncBufRead + Unpin, lines: mpsc::Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        match from_sdk.read_until(b'\n', &mut line).await {
            Ok(n) if n > 0 => {}
            Ok(_) | Err(_) => return,
        }
        if lines.send(line).await.is_err() {
            return;
        }
    }
}

async fn write(mut queue: mpsc::Receiver<Vec<u8>>, mut output: impl AsyncWrite + Unpin) {
    while let Some(line) = queue.recv().await {
        // A client that no longer listens: dropping the queue ends the others.
        if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines_of(text: &[u8]) -> Vec<String> {
        let mut input = BufReader::with_capacity(7, text);
        let mut out = Vec::new();
        loop {
            out.push(match line(&mut input).await {
                Line::Whole(line) => String::from_utf8(line).unwrap(),
                Line::Empty => "empty".to_owned(),
                Line::TooLong => "too long".to_owned(),
                Line::End => return out,
            });
        }
    }

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_and_the_long_are_dropped() {
        assert_eq!(lines_of(b"").await, Vec::<String>::new());
        assert_eq!(lines_of(b"{\"a\": 1}\r\n\n \nlast").await, ["{\"a\": 1}\r", "empty", "empty", "last"]);
        let mut long = vec![b'x'; MAX_LINE];
        long.extend_from_slice(b"\ny");
        assert_eq!(lines_of(&long).await.last().unwrap(), "y");
        long.insert(0, b'x');
        assert_eq!(lines_of(&long).await, ["too long", "y"]);
        assert_eq!(lines_of(&vec![b'x'; MAX_LINE + 1]).await, ["too long"]);
    }

    #[test]
    fn what_is_no_json_says_why() {
        for text in ["{", "{\"a\": 1} {", "no", "\"\\ud800\"", &"[".repeat(1_000)] {
            assert!(fault(text.as_bytes()).is_some(), "{text}");
        }
        assert!(fault(b"\xff").is_some());
        assert_eq!(fault("\u{feff}{\"id\": 1}\r".as_bytes()), None);
    }
}
