//! The database, where it lies, and its lock.

use super::{Checks, now};
use crate::cli::App;
use crate::cli::lock as lock_command;
use crate::config::Config;
use crate::error::ErrorKind;
use crate::gitlab::diagnose::Finding;
use crate::store::lock::{self, LockState};
use crate::store::{SCHEMA_VERSION, Store, open, status};

/// Below this a run is likely to end with a full disk.
const LEAST_FREE: u64 = 64 << 20;

/// Below this somebody should look.
const LOW_FREE: u64 = 1 << 30;

/// Looks at the database; returns it when it can be read.
pub(super) fn look(app: &App, config: &Config, checks: &mut Checks) -> Option<Store> {
    let path = match app.database_path() {
        Ok(path) => path,
        Err(error) => {
            checks.fail("database", &error);
            return None;
        }
    };
    let store = if path.exists() {
        match app.open_read_only() {
            Ok(store) => {
                let size = status::file_sizes(&store).database;
                checks.add(
                    "database",
                    Finding::ok(format!("{}, schema {SCHEMA_VERSION}, {}", path.display(), megabytes(size))),
                );
                Some(store)
            }
            Err(error) => {
                checks.fail("database", &error);
                None
            }
        }
    } else {
        checks.add(
            "database",
            Finding::warn(
                format!("there is none at {} yet", path.display()),
                "the first `lore run` makes it",
            ),
        );
        None
    };
    match open::network_fs_at(&path) {
        Ok(None) => checks.add("file system", Finding::ok("local")),
        Ok(Some(name)) => checks.add("file system", network_fs(name, config.database.allow_network_fs)),
        Err(error) => checks.fail("file system", &error),
    }
    if !open::is_writable(&path) {
        checks.add(
            "directory",
            Finding::fail(
                ErrorKind::Io,
                "the database's directory cannot be written",
                "SQLite needs it even for reading (write-ahead log): mount it read-write, or query a copy",
            ),
        );
    }
    match open::free_bytes(&path) {
        Ok(free) => {
            let size = store.as_ref().map_or(0, |store| status::file_sizes(store).database);
            checks.add("disk", disk(free, size));
        }
        Err(error) => checks.fail("disk", &error),
    }
    if let Some(store) = &store {
        match store.read(lock::state) {
            Ok(state) => checks.add("lock", held(&state, now())),
            Err(error) => checks.fail("lock", &error),
        }
    }
    store
}

fn megabytes(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let megabytes = bytes as f64 / 1e6;
    format!("{megabytes:.1} MB")
}

fn network_fs(name: &str, is_allowed: bool) -> Finding {
    let text = format!("the database is on a network file system ({name})");
    if is_allowed {
        return Finding::warn(
            text,
            "allowed by allow_network_fs: back up often, and never from two machines",
        );
    }
    Finding::fail(ErrorKind::Io, text, "use a local disk or a ReadWriteOncePod volume")
}

fn disk(free: u64, database: u64) -> Finding {
    let text = format!("{} free", megabytes(free));
    if free < LEAST_FREE {
        return Finding::fail(ErrorKind::DiskFull, text, "make room on the file system of the database");
    }
    if free < LOW_FREE.min(database) {
        return Finding::warn(
            format!("{text}, less than the database takes"),
            "make room: rebuilding the index or a copy for a backup takes as much again",
        );
    }
    Finding::ok(text)
}

fn held(state: &LockState, now: i64) -> Finding {
    if state.owner.is_none() {
        return Finding::ok("free");
    }
    let text = lock_command::describe(state, now).join("; ");
    let silent = state.heartbeat_at.map_or(0, |at| now.saturating_sub(at));
    if silent > state.lease_ms {
        return Finding::warn(
            text,
            "its holder is silent for longer than its lease: the next run takes the lock over",
        );
    }
    Finding::ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitlab::diagnose::Level;

    #[test]
    fn little_room_is_a_warning_and_none_is_a_failure() {
        assert_eq!(disk(10 << 30, 5 << 30).level, Level::Ok);
        assert_eq!(disk(500 << 20, 5 << 30).level, Level::Warn);
        assert_eq!(disk(500 << 20, 10 << 20).level, Level::Ok);
        assert_eq!(disk(1 << 20, 0).kind, Some(ErrorKind::DiskFull));
    }

    #[test]
    fn a3_25_a_network_file_system_fails_unless_it_is_allowed() {
        assert_eq!(network_fs("NFS", false).kind, Some(ErrorKind::Io));
        assert_eq!(network_fs("NFS", true).level, Level::Warn);
    }
}
