//! The command line: arguments, dispatch, and what every command shares.
//!
//! Results go to standard output, everything else to standard error. With `--json` standard
//! output holds exactly one JSON document, also when the command fails.

mod answers;
mod app;
mod args;
mod backup;
mod completions;
mod config;
mod docs;
mod doctor;
mod graph_text;
mod job_files;
mod jobs;
mod jobs_export;
mod lock;
mod mcp;
mod metrics;
mod observe;
mod plan;
mod printable;
mod query;
mod reference;
mod run;
mod runs;
mod shortcuts;
mod show;
mod status;

pub use app::{App, Human};

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Everything that a process gets from its surroundings. `main` fills it from the operating
/// system; nothing below reads the environment, the terminal or the working directory.
pub struct World {
    /// Arguments, the program's name first.
    pub args: Vec<OsString>,
    /// Environment variables that are valid Unicode.
    pub vars: BTreeMap<String, String>,
    /// Working directory.
    pub current_dir: PathBuf,
    /// Results.
    pub out: Box<dyn Write + Send>,
    /// Everything else.
    pub err: Box<dyn Write + Send>,
    /// Whether `out` is a terminal.
    pub out_is_terminal: bool,
    /// Whether `err` is a terminal.
    pub err_is_terminal: bool,
    /// Columns of the terminal behind `out`, when it is one.
    pub columns: Option<usize>,
}

/// Runs one command; returns the exit code of the process.
pub fn run(world: World) -> u8 {
    args::dispatch(world)
}
