//! Passes requests on to a server of our own: behind TLS, behind a proxy, or slowly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// Answers the requests of one connection by asking `upstream` (host and port). `target` maps
/// what stands in the request line to the path that is asked there; nothing refuses it.
pub fn relay(stream: &mut (impl Read + Write), upstream: &str, target: impl Fn(&str) -> Option<String>) {
    let mut pending = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") else {
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => pending.extend_from_slice(buffer.get(..n).unwrap_or_default()),
                _ => return,
            }
            continue;
        };
        let head: Vec<u8> = pending.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head).into_owned();
        let answer = pass_on(&head, upstream, &target)
            .unwrap_or_else(|| b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec());
        if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

/// Asks upstream once; returns the whole answer.
fn pass_on(head: &str, upstream: &str, target: impl Fn(&str) -> Option<String>) -> Option<Vec<u8>> {
    let (first, rest) = head.split_once("\r\n")?;
    let mut words = first.split(' ');
    let (method, asked) = (words.next()?, words.next()?);
    let request = format!("{method} {} HTTP/1.1\r\n{rest}", target(asked)?);
    let mut server = TcpStream::connect(upstream).ok()?;
    server.write_all(request.as_bytes()).ok()?;
    let mut reader = BufReader::new(server);
    let (mut answer, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        answer.extend_from_slice(line.as_bytes());
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    answer.extend_from_slice(&body);
    Some(answer)
}
