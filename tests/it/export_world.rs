//! A database in a temporary directory, and the ingest step run on it without the runner.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on panics, one that is skipped says so"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lore::config::{Config, ExportConfig, SourceConfig};
use lore::engine::cancel::Cancel;
use lore::engine::ctx::{RunOptions, StepCtx};
use lore::engine::progress::{Progress, ProgressMode};
use lore::engine::step::{Step as _, StepReport};
use lore::error::Result;
use lore::steps::ingest::Ingest;
use lore::steps::reconcile::Reconcile;
use lore::store::{OpenOptions, Store};

/// The world of one test.
pub struct World {
    /// Removed at the end.
    _dir: tempfile::TempDir,
    /// The database.
    pub store: Store,
    /// Sources.
    pub config: Config,
    /// Asks for a stop.
    pub cancel: Cancel,
    runtime: tokio::runtime::Runtime,
}

impl World {
    /// An empty database and no source.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { _dir: dir, store, config: Config::default(), cancel: Cancel::new(), runtime }
    }

    /// The same with one export as source `main`, project `group/project`.
    pub fn of(path: &Path) -> Self {
        let mut world = Self::new();
        world.add("main", path);
        world
    }

    /// Adds an export as a source.
    pub fn add(&mut self, name: &str, path: &Path) {
        let config = ExportConfig {
            path: path.to_owned(),
            project: "group/project".to_owned(),
            web_url: Some("https://git.example/group/project".to_owned()),
        };
        self.config.sources.insert(name.to_owned(), SourceConfig::GitlabExport(config));
    }

    /// Runs the step.
    pub fn ingest(&self, source: Option<&str>, full: bool) -> Result<StepReport> {
        let ctx = StepCtx {
            store: &self.store,
            config: &self.config,
            vars: &|_| None,
            runtime: self.runtime.handle().clone(),
            cancel: self.cancel.clone(),
            deadline: None,
            options: RunOptions { full, ..RunOptions::default() },
            progress: Progress::new("ingest", ProgressMode::Silent),
            shared: lore::engine::shared::Shared::default(),
        };
        Ingest { source: source.map(str::to_owned) }.run(&ctx)
    }

    /// Runs `reconcile`.
    pub fn reconcile(&self, step: &Reconcile) -> Result<StepReport> {
        let ctx = StepCtx {
            store: &self.store,
            config: &self.config,
            vars: &|_| None,
            runtime: self.runtime.handle().clone(),
            cancel: self.cancel.clone(),
            deadline: None,
            options: RunOptions::default(),
            progress: Progress::new("reconcile", ProgressMode::Silent),
            shared: lore::engine::shared::Shared::default(),
        };
        step.run(&ctx)
    }

    /// Runs the step and returns its counts.
    pub fn counts(&self, source: Option<&str>, full: bool) -> BTreeMap<&'static str, i64> {
        self.ingest(source, full).unwrap().counts
    }

    /// A connection of the test's own.
    pub fn sql(&self) -> rusqlite::Connection {
        #[expect(clippy::disallowed_methods, reason = "a test looks at the file from outside")]
        rusqlite::Connection::open(self.store.path()).unwrap()
    }

    /// One number.
    pub fn number(&self, sql: &str) -> i64 {
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Rows of one text column.
    pub fn texts(&self, sql: &str) -> Vec<String> {
        let connection = self.sql();
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Everything that an ingest writes, without the times at which it wrote.
    pub fn dump(&self) -> Vec<String> {
        let connection = self.sql();
        let mut lines = Vec::new();
        for table in ["projects", "labels", "milestones", "issues", "merge_requests", "discussions", "notes"]
        {
            let columns: Vec<String> = connection
                .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
                .unwrap()
                .query_map([], |row| row.get::<_, String>(0))
                .unwrap()
                .map(rusqlite::Result::unwrap)
                .filter(|name| {
                    let ours = name == "synced_at" || name == "saved_at";
                    // Written by us on this table, by GitLab on the others.
                    let row_time = table == "projects" && (name == "created_at" || name == "updated_at");
                    !ours && !row_time
                })
                .collect();
            let list =
                columns.iter().map(|name| format!("quote({name})")).collect::<Vec<_>>().join("||'|'||");
            let sql = format!("SELECT '{table}|'||{list} FROM {table} ORDER BY id");
            let mut statement = connection.prepare(&sql).unwrap();
            lines.extend(
                statement.query_map([], |row| row.get::<_, String>(0)).unwrap().map(rusqlite::Result::unwrap),
            );
        }
        lines
    }
}

/// The directory with real exports, when it is there.
pub fn shared() -> Option<PathBuf> {
    #[expect(clippy::disallowed_methods, reason = "where the real data is, is a matter of the machine")]
    let named = std::env::var("LORE_SHARED").ok().map(PathBuf::from);
    let dir = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"));
    if dir.join("gitlab").is_dir() {
        return Some(dir);
    }
    eprintln!("no real data at {}: skipped (set LORE_SHARED)", dir.display());
    None
}

/// A fixture of this repository.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export").join(name)
}

/// Writes a `.tar.gz` with the given members.
pub fn write_archive(path: &Path, members: &[(&str, &[u8])]) {
    let file = std::fs::File::create(path).unwrap();
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
    for (name, content) in members {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap();
}
