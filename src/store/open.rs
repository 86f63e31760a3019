//! Opening a database: file mode, file system, pragmas, migrations, version checks.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::clock;
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::fault;

/// The migrations in order; the number of a file is the version it leads to.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_init.sql"),
    include_str!("../../migrations/0002_embeddings.sql"),
    include_str!("../../migrations/0003_sources.sql"),
    include_str!("../../migrations/0004_related.sql"),
    include_str!("../../migrations/0005_suspects.sql"),
    include_str!("../../migrations/0006_query_indexes.sql"),
    include_str!("../../migrations/0007_lengths.sql"),
];

/// The version from which token counts are kept by column; older ones are counted anew.
const LENGTHS_BY_COLUMN: i64 = 7;

/// Version of the schema that this binary reads and writes (`PRAGMA user_version`).
pub const SCHEMA_VERSION: i64 = MIGRATIONS.len() as i64;

/// Prepared statements kept per connection: more than there are in this folder.
const STATEMENT_CACHE: usize = 256;

/// Pause before a database is tried again that another process has to itself.
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How a database is opened.
#[derive(Debug, Clone, Copy)]
pub struct OpenOptions {
    /// Allows a network file system.
    pub allow_network_fs: bool,
    /// How long to wait for another process's write lock.
    pub busy_timeout: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { allow_network_fs: false, busy_timeout: Duration::from_secs(30) }
    }
}

/// Opens the writer's connection, creating the file (mode 0600) and its directory.
pub(super) fn open_writer(path: &Path, options: OpenOptions) -> Result<Connection> {
    refuse_network_fs(path, options)?;
    create_private(path)?;
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(options.busy_timeout)?;
    let begun = clock::since_boot();
    loop {
        // Before the first pragma: the journal mode is kept in the file.
        let ready = refuse_other(&connection, path).and_then(|()| configure(&connection, options));
        let waited = clock::since_boot().saturating_sub(begun);
        match ready {
            Ok(()) => return Ok(connection),
            // SQLite does not wait by itself where two might wait for each other: when several
            // processes make the same database, or one puts its log right.
            Err(error) if error.kind() == ErrorKind::DatabaseBusy && waited < options.busy_timeout => {
                std::thread::park_timeout(BUSY_PAUSE);
            }
            Err(error) => {
                return Err(super::lock::explain_busy(path, None, explain_read_only(path, error)));
            }
        }
    }
}

/// Opens a connection for reading and checks that the schema is this binary's.
pub(super) fn open_reader(path: &Path, options: OpenOptions) -> Result<Connection> {
    look_at(path)?;
    refuse_network_fs(path, options)?;
    let connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.busy_timeout(options.busy_timeout)?;
    refuse_other(&connection, path).map_err(|error| explain_read_only(path, error))?;
    configure_reader(&connection, options).map_err(|error| explain_read_only(path, error))?;
    let version = user_version(&connection).map_err(|error| explain_read_only(path, error))?;
    if version != SCHEMA_VERSION {
        return Err(version_error(path, version));
    }
    Ok(connection)
}

/// Says why there is no database, as far as a look at the file tells.
pub(super) fn look_at(path: &Path) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            Err(Error::new(ErrorKind::Io, format!("open {}: it is a directory", path.display()))
                .hint("--database names a file, for example lore.db in that directory"))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::DatabaseVersion, format!("there is no database at {}", path.display()))
                .hint("run a job first: `lore run demo` for sample data, `lore run sync` for your projects")
                .hint("or name another file with --database"))
        }
        Err(error) => Err(io_error(format!("open {}", path.display()), error)
            .hint("name a file that you may read with --database or LORE__DATABASE__PATH")),
    }
}

pub(super) fn open_file(path: &Path, access: OpenFlags) -> Result<Connection> {
    // Opening a pipe would wait for its other end.
    if std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !it.is_dir()) {
        return Err(Error::new(ErrorKind::Io, format!("{} is no regular file", path.display()))
            .hint("name the database's file with --database or [database] path"));
    }
    register_extensions();
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    #[expect(clippy::disallowed_methods, reason = "the one place that opens a connection")]
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|error| explain_permission(path, Error::from(error)))?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    Ok(connection)
}

/// SQLite says "unable to open database file" of a file that may not be opened: who may is what
/// helps.
fn explain_permission(path: &Path, error: Error) -> Error {
    let refused = std::fs::File::open(path).err().filter(|refusal| {
        error.kind() == ErrorKind::Io && refusal.kind() == std::io::ErrorKind::PermissionDenied
    });
    let Some(refused) = refused else { return error.context(format!("open {}", path.display())) };
    let us = rustix::process::geteuid().as_raw();
    let owner = owner_of(path).map_or_else(String::new, |owner| format!(" it belongs to user {owner},"));
    io_error(format!("open {}", path.display()), refused).hint(
        format!("{owner} this is user {us}: run as its owner, or name another file with --database")
            .trim_start(),
    )
}

fn owner_of(path: &Path) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|metadata| metadata.uid())
}

/// Makes sqlite-vec part of every connection of this process.
fn register_extensions() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        type EntryPoint = unsafe extern "C" fn(
            *mut rusqlite::ffi::sqlite3,
            *mut *mut std::ffi::c_char,
            *const rusqlite::ffi::sqlite3_api_routines,
        ) -> std::ffi::c_int;
        // SAFETY: sqlite3_vec_init has the signature of an SQLite extension entry point; the
        // crate declares it without arguments because it does not depend on SQLite's types.
        #[expect(unsafe_code, reason = "registering a statically linked extension has no safe form")]
        unsafe {
            let entry: EntryPoint = std::mem::transmute(sqlite_vec::sqlite3_vec_init as *const ());
            rusqlite::ffi::sqlite3_auto_extension(Some(entry));
        }
    });
}

/// Creates the file with mode 0600 when it is missing; SQLite gives the same mode to the
/// write-ahead log and the shared-memory file.
fn create_private(path: &Path) -> Result<()> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(directory).map_err(|error| {
            io_error(format!("create directory {}", directory.display()), error)
                .hint("name a file in a writable directory with --database or LORE__DATABASE__PATH")
        })?;
    }
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop).map_err(|error| {
        io_error(format!("open {}", path.display()), error)
            .hint("name a file in a writable directory with --database or LORE__DATABASE__PATH")
    })
}

/// Applies the pragmas of the writer. Each has its reason.
fn configure(connection: &Connection, options: OpenOptions) -> Result<()> {
    connection.busy_timeout(options.busy_timeout)?;
    // Readers and the writer do not block each other.
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // With a write-ahead log a power cut can lose the last commits, never the file; each
    // commit holds rows and cursor together, so what is lost is fetched again.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Folds the log back in time; the file does not stay at its high-water mark.
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    configure_reader(connection, options)?;
    map_file(connection, false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // The statement of the staging table must never touch the disk.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(())
}

/// Whether pages are read in place. A query does, for speed; a run does not: it reads the
/// whole file in its time, and mapped pages count as the memory of its container.
pub(super) fn map_file(connection: &Connection, map: bool) -> Result<()> {
    let size = if map { 2_147_418_112_i64 } else { 0 };
    Ok(connection.pragma_update(None, "mmap_size", size)?)
}

fn configure_reader(connection: &Connection, options: OpenOptions) -> Result<()> {
    connection.busy_timeout(options.busy_timeout)?;
    // Pages are read in place instead of copied; the kernel can take them back.
    map_file(connection, true)?;
    // 16 MiB: enough for the inner nodes of every tree; the rest comes from the mapping.
    connection.pragma_update(None, "cache_size", -16_384)?;
    Ok(())
}

/// Brings the schema up to date, in one IMMEDIATE transaction.
///
/// # Errors
/// [`ErrorKind::DatabaseVersion`] when the database is newer or a migration fails,
/// [`ErrorKind::Locked`] when another process of an older lore is at work.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let version = user_version(connection).map_err(|error| explain_read_only(path, error))?;
    migrate_from(connection, path, version)
}

fn migrate_from(connection: &mut Connection, path: &Path, seen: i64) -> Result<()> {
    if seen == SCHEMA_VERSION {
        return Ok(());
    }
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(|error| super::lock::explain_busy(path, None, error.into()))?;
    refuse_other(&tx, path)?;
    let version = user_version(&tx)?;
    if version == SCHEMA_VERSION {
        // Another process made or migrated it while this one waited, and may be at work.
        return Ok(());
    }
    if version > 0 {
        super::lock::refuse_while_held(&tx, clock::now_ms())?;
    }
    let done = usize::try_from(version).unwrap_or(0);
    for (migration, number) in MIGRATIONS.iter().zip(1..).skip(done) {
        tx.execute_batch(migration).map_err(|error| {
            Error::new(ErrorKind::DatabaseVersion, format!("migration {number} of {}", path.display()))
                .because(error)
                .hint("the database is unchanged; restore a backup or report this")
        })?;
    }
    if (1..LENGTHS_BY_COLUMN).contains(&version) {
        super::fts::fill_lengths(&tx)?;
    }
    tx.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    tx.commit()?;
    Ok(())
}

/// Refuses a file that is not this program's to write, before anything in it is changed: a
/// newer lore's, another program's, or no database at all.
pub(super) fn refuse_other(connection: &Connection, path: &Path) -> Result<()> {
    let read = || -> rusqlite::Result<(i64, i64, bool)> {
        let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        let (tables, ours) = connection.query_row(
            "SELECT count(*), coalesce(max(type = 'table' AND name = 'app_lock'), 0) FROM sqlite_schema",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        Ok((version, tables, ours))
    };
    let what = match read() {
        Ok((_, 0, _)) => return Ok(()),
        Ok((version, _, true)) if version > SCHEMA_VERSION => return Err(version_error(path, version)),
        Ok((version, _, true)) if version > 0 => return Ok(()),
        Ok((_, _, true)) => "holds lore's tables, but no schema version",
        Ok((_, _, false)) => "is an SQLite database of another program",
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => {
            "is no SQLite database"
        }
        Err(error) => return Err(error.into()),
    };
    Err(Error::new(ErrorKind::DatabaseVersion, format!("{} {what}", path.display()))
        .hint("name another file with --database, or restore a backup"))
}

fn user_version(connection: &Connection) -> Result<i64> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

fn version_error(path: &Path, version: i64) -> Error {
    let place = path.display();
    if version > SCHEMA_VERSION {
        Error::new(
            ErrorKind::DatabaseVersion,
            format!("{place} has schema version {version}, this lore knows up to {SCHEMA_VERSION}"),
        )
        .hint("use the newer lore that wrote it")
    } else {
        Error::new(
            ErrorKind::DatabaseVersion,
            format!("{place} has schema version {version}, this lore reads {SCHEMA_VERSION}"),
        )
        .hint("run any job, for example `lore run maintain`: it brings the database up to date")
    }
}

/// A write-ahead log needs its shared-memory file even for reading.
pub(super) fn explain_read_only(path: &Path, error: Error) -> Error {
    if error.kind() == ErrorKind::Database {
        return error.context(format!("read {}", path.display()));
    }
    if error.kind() == ErrorKind::DiskFull {
        return error.context(format!("write {}", path.display()));
    }
    if error.kind() == ErrorKind::Io {
        return error
            .context(format!("read {}", path.display()))
            .hint("a database in WAL mode needs a writable directory even for readers: mount it read-write, or query a copy");
    }
    error
}

/// Refuses file systems on which SQLite's write-ahead log is known to corrupt databases.
fn refuse_network_fs(path: &Path, options: OpenOptions) -> Result<()> {
    if options.allow_network_fs {
        return Ok(());
    }
    let Some(name) = network_fs_at(path)? else { return Ok(()) };
    Err(Error::new(
        ErrorKind::Io,
        format!(
            "{} is on a network file system ({name}), where SQLite databases get corrupted",
            path.display()
        ),
    )
    .hint("use a local disk or a ReadWriteOncePod volume")
    .hint("or, at your own risk, set allow_network_fs = true in [database]"))
}

/// Bytes that are free for us on the file system that holds, or would hold, the database.
///
/// # Errors
/// Those of the file system.
pub fn free_bytes(path: &Path) -> Result<u64> {
    if let Some(said) = fault::free_bytes() {
        return Ok(said);
    }
    let stat = rustix::fs::statvfs(existing(path))
        .map_err(|error| io_error(format!("look at the file system of {}", path.display()), error.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Makes sure that `needed` bytes are free.
///
/// # Errors
/// [`ErrorKind::DiskFull`] when they are not.
pub fn refuse_full_disk(directory: &Path, needed: u64) -> Result<()> {
    let free = free_bytes(directory)?;
    if free >= needed {
        return Ok(());
    }
    const MIB: u64 = 1 << 20;
    Err(Error::new(
        ErrorKind::DiskFull,
        format!(
            "{} MiB are needed in {}, {} MiB are free",
            needed.div_ceil(MIB),
            directory.display(),
            free / MIB
        ),
    )
    .hint("free some space, or name a place on another volume; nothing was written"))
}

/// Size of the state that is copied.
pub(super) fn size_of(connection: &Connection) -> Result<u64> {
    let read = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let bytes = read("PRAGMA page_count")?.saturating_mul(read("PRAGMA page_size")?);
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Whether files can be made in the directory of the database.
pub fn is_writable(path: &Path) -> bool {
    let directory = existing(path.parent().unwrap_or(path));
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

/// The nearest place that exists: nothing is created to find out where it would lie.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|place| place.exists()).unwrap_or_else(|| Path::new("."))
}

/// Names the network file system that the path lies on.
///
/// # Errors
/// Those of the file system.
#[cfg(target_os = "linux")]
pub fn network_fs_at(path: &Path) -> Result<Option<&'static str>> {
    let stat = rustix::fs::statfs(existing(path))
        .map_err(|error| io_error(format!("look at the file system of {}", path.display()), error.into()))?;
    // The kernel's type has another width on some architectures; magic numbers fit 32 bits.
    Ok(network_fs_name((stat.f_type as u64 & 0xFFFF_FFFF) as u32))
}

/// Names the network file system that the path lies on.
///
/// # Errors
/// None here.
#[cfg(not(target_os = "linux"))]
pub fn network_fs_at(_path: &Path) -> Result<Option<&'static str>> {
    Ok(None)
}

/// Names a network file system by its magic number (Linux `statfs(2)`).
pub(crate) fn network_fs_name(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517B => Some("SMB"),
        0xFE53_4D42 => Some("SMB2"),
        0xFF53_4D42 => Some("CIFS"),
        0x00C3_6400 => Some("Ceph"),
        0x0102_1997 => Some("9p"),
        0x5346_414F => Some("AFS"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636F => Some("OCFS2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
