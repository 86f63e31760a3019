//! Real servers and validators of the operator's side. A test that needs one which is not
//! installed says so and ends; CI installs all of them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::binary::nap;

/// Programs that cannot be installed everywhere: tests that need them may be skipped.
const OPTIONAL: [&str; 2] = ["kubectl", "unshare"];

/// Finds a program on the search path; says that the test is skipped when there is none.
/// With `LORE_TEST_TOOLS=required` a missing program is a failure.
pub fn find(program: &str) -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "tools are found as a shell finds them")]
    let (path, required) = (
        std::env::var("PATH").unwrap_or_default(),
        std::env::var("LORE_TEST_TOOLS").is_ok_and(|value| value == "required"),
    );
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file());
    if found.is_none() {
        assert!(!required || OPTIONAL.contains(&program), "{program} is not installed");
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Whether a Python has a module; as [`find`] when it has not.
pub fn has_module(python: &Path, module: &str) -> bool {
    let (found, _) = run(Command::new(python).args(["-c", &format!("import {module}")]), "");
    #[expect(clippy::disallowed_methods, reason = "as the programs above")]
    let required = std::env::var("LORE_TEST_TOOLS").is_ok_and(|value| value == "required");
    assert!(found || !required, "the Python module {module} is not installed");
    if !found {
        eprintln!("skipped: the Python module {module} is not installed");
    }
    found
}

/// Runs a program on a text; returns whether it succeeded and everything it said.
pub fn run(command: &mut Command, input: &str) -> (bool, String) {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

/// Waits until `ready` holds, at most a minute: these servers start slowly on a busy machine.
#[track_caller]
pub fn patiently(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < Duration::from_secs(60), "waited a minute for {what}");
        nap(Duration::from_millis(20));
    }
}

/// A port that nobody listens on.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A server of somebody else, killed when it is dropped.
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: String,
}

impl Server {
    /// Starts a server that listens on the port that it is told, and waits until it does.
    pub fn start(program: &Path, dir: &Path, args: impl FnOnce(&str) -> Vec<String>) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let child = Command::new(program)
            .args(args(&address))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, address };
        patiently("a server to listen", || TcpStream::connect(&server.address).is_ok());
        server
    }

    /// GETs a path; returns status and body.
    pub fn get(&self, path: &str) -> (u16, String) {
        request(&self.address, "GET", path, "")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends one HTTP request; returns status and body.
pub fn request(address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

/// Percent-encodes a query.
pub fn encode(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
