//! What every command shares: configuration, database, and the two forms of an answer.

use std::cell::OnceCell;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::World;
use super::args::LogFormat;
use super::printable::printable;
use crate::config::{self, Config, Loaded, Places};
use crate::error::{Error, Result, io_error};
use crate::store::{OpenOptions, Store};

/// Version of the JSON answers; grows when a field changes its meaning or goes away.
pub const JSON_SCHEMA: u32 = 1;

/// Options that every command understands.
#[derive(Debug, Clone, Default)]
pub struct Globals {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--database`
    pub database: Option<PathBuf>,
    /// `--jobs-dir`
    pub jobs_dir: Option<PathBuf>,
    /// `--json`, `--robot`, `LORE_ROBOT=1`
    pub json: bool,
    /// `--quiet`
    pub quiet: bool,
    /// Form of log lines.
    pub log_format: LogFormat,
    /// Whether human output is coloured.
    pub color: bool,
}

/// A command at work.
pub struct App {
    /// The surroundings.
    pub world: World,
    /// Options that every command understands.
    pub globals: Globals,
    started: Instant,
    loaded: OnceCell<Loaded>,
}

/// Writes the human form of an answer.
pub struct Human<'a> {
    out: &'a mut dyn Write,
    /// Whether to colour.
    pub color: bool,
    /// Columns to wrap at; none when the output is no terminal.
    pub columns: Option<usize>,
}

impl<'a> Human<'a> {
    /// Writes plain text, not wrapped.
    pub fn plain(out: &'a mut dyn Write) -> Self {
        Self { out, color: false, columns: None }
    }
}

impl Human<'_> {
    /// Writes one line.
    ///
    /// # Errors
    /// Those of the output.
    pub fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        writeln!(self.out, "{}", printable(text.as_ref(), self.color))
    }

    /// Returns `text` in an ANSI style (`"1"` bold, `"2"` dim, `"36"` cyan, …), or as it is.
    pub fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\u{1b}[{style}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

impl App {
    /// Makes the application.
    pub fn new(world: World, globals: Globals) -> Self {
        Self { world, globals, started: Instant::now(), loaded: OnceCell::new() }
    }

    /// The configuration with where each value came from; loaded at the first call.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::error::ErrorKind::Config) when it is invalid.
    pub fn loaded(&self) -> Result<&Loaded> {
        if let Some(loaded) = self.loaded.get() {
            return Ok(loaded);
        }
        let loaded = config::load(&Places {
            explicit: self.globals.config.clone(),
            current_dir: self.world.current_dir.clone(),
            vars: self.world.vars.clone(),
        })?;
        Ok(self.loaded.get_or_init(|| loaded))
    }

    /// The configuration.
    ///
    /// # Errors
    /// As [`App::loaded`].
    pub fn config(&self) -> Result<&Config> {
        Ok(&self.loaded()?.config)
    }

    /// Path of the database: `--database`, else the configuration, else the data directory.
    ///
    /// # Errors
    /// When there is no place for it: no path is given and no home directory is known.
    pub fn database_path(&self) -> Result<PathBuf> {
        if let Some(path) = &self.globals.database {
            return Ok(self.world.current_dir.join(path));
        }
        if let Some(path) = &self.config()?.database.path {
            return Ok(self.world.current_dir.join(path));
        }
        let vars = &self.world.vars;
        let set = |name: &str| vars.get(name).filter(|value| !value.is_empty());
        // A relative one is to be ignored, says the specification of base directories.
        let place = |name: &str| set(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let data = place("XDG_DATA_HOME").or_else(|| {
            let home = place("HOME")?;
            // A container without a passwd entry has HOME=/, which nobody can write to.
            (home != std::path::Path::new("/")).then(|| home.join(".local/share"))
        });
        data.map(|data| data.join("lore/lore.db")).ok_or_else(|| {
            Error::config("no place for the database: neither --database, [database] path nor XDG_DATA_HOME is set, and HOME is not set or is /")
                .hint("name a file on a writable volume: --database /data/lore.db or LORE__DATABASE__PATH=/data/lore.db")
        })
    }

    pub(super) fn open_options(&self) -> Result<OpenOptions> {
        let database = &self.config()?.database;
        Ok(OpenOptions { allow_network_fs: database.allow_network_fs, busy_timeout: database.busy_timeout })
    }

    /// Options for a write that is not worth waiting for.
    ///
    /// # Errors
    /// As [`App::loaded`].
    pub fn memory_options(&self) -> Result<OpenOptions> {
        Ok(OpenOptions { busy_timeout: Duration::from_millis(50), ..self.open_options()? })
    }

    /// Opens the database for reading.
    ///
    /// # Errors
    /// Those of [`Store::open_read_only`].
    pub fn open_read_only(&self) -> Result<Store> {
        Store::open_read_only(&self.database_path()?, self.open_options()?)
    }

    /// Opens the database for writing; creates and migrates it when needed.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub fn open(&self) -> Result<Store> {
        Store::open(&self.database_path()?, self.open_options()?)
    }

    /// Opens the database for writing; it must exist.
    ///
    /// # Errors
    /// Those of [`Store::open_existing`].
    pub fn open_existing(&self) -> Result<Store> {
        Store::open_existing(&self.database_path()?, self.open_options()?)
    }

    /// Looks an environment variable up.
    pub fn var(&self, name: &str) -> Option<String> {
        self.world.vars.get(name).cloned()
    }

    /// Milliseconds since the command began.
    pub fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Writes the answer: `data` as JSON, or what `human` writes.
    ///
    /// # Errors
    /// [`ErrorKind::Io`](crate::error::ErrorKind::Io) when the output cannot be written.
    pub fn reply<T: Serialize>(
        &mut self,
        data: &T,
        human: impl FnOnce(&mut Human<'_>) -> io::Result<()>,
    ) -> Result<()> {
        self.reply_with_meta(data, serde_json::Map::new(), human)
    }

    /// Like [`App::reply`], with more fields in `meta`.
    ///
    /// # Errors
    /// As [`App::reply`].
    pub fn reply_with_meta<T: Serialize>(
        &mut self,
        data: &T,
        meta: serde_json::Map<String, serde_json::Value>,
        human: impl FnOnce(&mut Human<'_>) -> io::Result<()>,
    ) -> Result<()> {
        let written = if self.globals.json {
            let document = serde_json::json!({ "ok": true, "data": data, "meta": self.meta(meta) });
            self.write_document(&document)
        } else {
            let mut human_out =
                Human { out: &mut self.world.out, color: self.globals.color, columns: self.world.columns };
            human(&mut human_out).and_then(|()| self.world.out.flush())
        };
        self::written(written)
    }

    /// Writes text that is an answer in itself: a script, a page.
    ///
    /// # Errors
    /// As [`App::reply`].
    pub fn reply_with_text(&mut self, text: &[u8]) -> Result<()> {
        let out = &mut self.world.out;
        written(out.write_all(text).and_then(|()| out.flush()))
    }

    /// Reports a failed command: JSON on standard output, text on standard error.
    pub fn report_error(&mut self, error: &Error) {
        let written = if self.globals.json {
            let document = serde_json::json!({
                "ok": false,
                "error": {
                    "code": error.kind().code(),
                    "message": error.full_message(),
                    "suggestion": error.hints().first(),
                    "suggestions": error.hints(),
                    "details": error.details_value(),
                },
                "meta": self.meta(serde_json::Map::new()),
            });
            self.write_document(&document)
        } else {
            write_error(&mut self.world.err, error)
        };
        if written.is_err() && self.globals.json {
            // Nobody reads the document; what is left is the other stream and the exit code.
            drop(write_error(&mut self.world.err, error));
        }
    }

    fn meta(&self, mut meta: serde_json::Map<String, serde_json::Value>) -> serde_json::Value {
        meta.insert("elapsed_ms".to_owned(), self.elapsed_ms().into());
        meta.insert("schema".to_owned(), JSON_SCHEMA.into());
        meta.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
        serde_json::Value::Object(meta)
    }

    fn write_document(&mut self, document: &serde_json::Value) -> io::Result<()> {
        let out = &mut self.world.out;
        if self.world.out_is_terminal {
            serde_json::to_writer_pretty(&mut *out, document)?;
        } else {
            serde_json::to_writer(&mut *out, document)?;
        }
        writeln!(out)?;
        out.flush()
    }
}

/// Judges how writing an answer ended.
pub(super) fn written(outcome: io::Result<()>) -> Result<()> {
    match outcome {
        // The reader went away (`lore query x | head -1`): it has what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| io_error("write the answer", error)),
    }
}

/// Writes an error for people: the message, then its hints.
pub fn write_error(err: &mut dyn Write, error: &Error) -> io::Result<()> {
    writeln!(err, "error: {}", printable(&error.full_message(), false))?;
    for hint in error.hints() {
        writeln!(err, "hint: {}", printable(hint, false))?;
    }
    err.flush()
}
