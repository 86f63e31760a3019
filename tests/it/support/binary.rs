//! Runs the compiled `lore` in a directory of its own, with no environment but what is given.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A directory with a database of its own.
pub struct Bench {
    dir: tempfile::TempDir,
    vars: BTreeMap<String, String>,
}

/// How a process ended.
#[must_use = "check the code or the output"]
#[derive(Debug)]
pub struct Output {
    /// Exit code; the negative signal number for a process that was killed.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Asserts success; returns standard output.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self.stdout
    }

    /// Asserts an exit code; returns standard error.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self.stderr
    }

    /// Parses standard output as exactly one JSON document.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let mut documents = serde_json::Deserializer::from_str(&self.stdout).into_iter();
        let first = documents.next().unwrap_or_else(|| panic!("no JSON; stderr: {}", self.stderr)).unwrap();
        assert!(documents.next().is_none(), "more than one document: {}", self.stdout);
        first
    }

    /// Asserts success with `--json`; returns `data`.
    #[track_caller]
    pub fn data(self) -> serde_json::Value {
        let mut answer = self.json();
        assert_eq!(self.code, 0, "{answer}\nstderr: {}", self.stderr);
        assert_eq!(answer["ok"], true, "{answer}");
        answer["data"].take()
    }
}

impl Bench {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), vars: BTreeMap::new() }
    }

    /// A bench with the sample project indexed, without vectors: the builtin model is slow in
    /// a build for tests.
    pub fn demo() -> Self {
        let bench = Self::new();
        bench.lore(["run", "demo", "--skip", "embed", "--quiet"]).ok();
        bench
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path().join("lore.db")
    }

    /// Writes a file below the directory.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Sets an environment variable for all later commands.
    pub fn var(&mut self, name: &str, value: &str) -> &mut Self {
        self.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The command, not yet run.
    pub fn command<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lore"));
        command
            .args(args)
            .env_clear()
            .env("HOME", self.path())
            .env("LORE__DATABASE__PATH", self.database())
            .envs(&self.vars)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub fn lore<I, S>(&self, args: I) -> Output
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        output(self.command(args).output().unwrap())
    }

    /// Starts a command.
    pub fn spawn<I, S>(&self, args: I) -> Running
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        Running(self.command(args).spawn().unwrap())
    }
}

fn output(output: std::process::Output) -> Output {
    Output {
        code: code_of(output.status),
        stdout: String::from_utf8(output.stdout).expect("standard output is UTF-8"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn code_of(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}

/// A process under way; killed when it is dropped.
pub struct Running(Child);

impl Running {
    /// Number of the process.
    pub fn id(&self) -> i64 {
        i64::from(self.0.id())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Sends a signal, unless it has ended.
    pub fn signal_if_running(&mut self, signal: rustix::process::Signal) {
        if self.is_running() {
            self.signal(signal);
        }
    }

    /// Waits for the end, at most `limit`.
    #[track_caller]
    pub fn wait(mut self, limit: Duration) -> Output {
        let begun = Instant::now();
        let mut stdout = self.0.stdout.take().unwrap();
        let mut stderr = self.0.stderr.take().unwrap();
        // Read on threads: a full pipe would keep the process from ending.
        let out = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        });
        let err = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).map(|_| bytes)
        });
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < limit, "still running after {limit:?}");
            nap(Duration::from_millis(5));
        };
        Output {
            code: code_of(status),
            stdout: String::from_utf8(out.join().unwrap().unwrap()).unwrap(),
            stderr: String::from_utf8_lossy(&err.join().unwrap().unwrap()).into_owned(),
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}

/// Waits until `ready` holds, at most ten seconds.
#[track_caller]
pub fn until(what: &str, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < Duration::from_secs(10), "waited ten seconds for {what}");
        nap(Duration::from_millis(5));
    }
}

/// Sleeps. The one place where a test does: it looks at another process from outside.
pub fn nap(time: Duration) {
    std::thread::park_timeout(time);
}
