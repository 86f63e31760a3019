//! Which process keeps a database from being written, as far as the kernel tells.
//!
//! SQLite locks bytes of its files with POSIX locks, and Linux lists these in `/proc/locks`.
//! Asking the file itself would cost this process its own locks: closing any descriptor of a
//! file gives up all locks that the process holds on it.

use std::path::Path;

/// Byte of the shared-memory file that the writer of a write-ahead log locks.
/// Source: SQLite, `wal.c`, `WAL_WRITE_LOCK` behind the 120 bytes that `unixShmLock` begins at.
const WAL_WRITE_BYTE: u64 = 120;

/// First of the bytes of the database file that are locked (`PENDING_BYTE` of SQLite's `os.h`).
const PENDING_BYTE: u64 = 0x4000_0000;

/// A process that holds a lock which others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blocker {
    /// Its number, in this process's namespace.
    pub pid: i64,
    name: Option<String>,
    is_stopped: bool,
    /// Whether it is another process of this program.
    pub is_lore: bool,
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "process {}", self.pid)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        if self.is_stopped { f.write_str(", which is stopped") } else { Ok(()) }
    }
}

impl Blocker {
    /// What to do about it.
    pub fn hint(&self) -> String {
        if self.is_stopped {
            format!(
                "`kill -CONT {0}` lets it go on, `kill -9 {0}` ends it; the database stays whole",
                self.pid
            )
        } else {
            format!("see what process {} is doing, or try again later", self.pid)
        }
    }
}

/// Finds the process that holds the write lock of a database, or has it to itself. Nothing
/// when there is none, when it lives in another pid namespace, or where `/proc` does not tell.
pub(super) fn find(database: &Path) -> Option<Blocker> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let mut shared_memory = database.as_os_str().to_owned();
    shared_memory.push("-shm");
    let pid = [(Path::new(&shared_memory), WAL_WRITE_BYTE), (database, PENDING_BYTE)]
        .into_iter()
        .find_map(|(file, byte)| holder(&locks, inode(file)?, byte))?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().to_owned()).unwrap_or_default();
    let name = name_of(&pid.to_string());
    let is_other = u32::try_from(pid).is_ok_and(|pid| pid != std::process::id());
    let is_lore = is_other && name.is_some() && name == name_of("self");
    Some(Blocker { pid, name, is_stopped: state.starts_with(['T', 't']), is_lore })
}

fn name_of(process: &str) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(unix)]
fn inode(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().map(|metadata| std::os::unix::fs::MetadataExt::ino(&metadata))
}

#[cfg(not(unix))]
fn inode(_file: &Path) -> Option<u64> {
    None
}

/// The process that has an exclusive lock on a range of the file which ends at or behind `byte`
/// and, in shared memory, covers it. Source of the format: proc(5), `/proc/locks`.
fn holder(locks: &str, inode: u64, byte: u64) -> Option<i64> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // One that waits has an arrow in the second field, and so one field more.
        let [_, "POSIX", _, "WRITE", pid, file, from, to] = fields[..] else { return None };
        let (_, number) = file.rsplit_once(':')?;
        let to = if to == "EOF" { u64::MAX } else { to.parse().ok()? };
        let is_it = number.parse() == Ok(inode)
            && if byte == PENDING_BYTE { to >= byte } else { (from.parse().ok()?..=to).contains(&byte) };
        pid.parse().ok().filter(|pid| is_it && *pid > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCKS: &str = "1: POSIX  ADVISORY  READ 900 fe:01:77 123 123\n\
                         1: -> POSIX  ADVISORY  WRITE 901 fe:01:77 120 120\n\
                         2: FLOCK  ADVISORY  WRITE 902 fe:01:77 0 EOF\n\
                         3: POSIX  ADVISORY  WRITE 903 fe:01:78 120 120\n\
                         4: POSIX  ADVISORY  WRITE 904 fe:01:77 120 121\n\
                         5: POSIX  ADVISORY  WRITE -1 fe:01:79 120 120\n\
                         6: POSIX  ADVISORY  WRITE 905 fe:01:80 1073741826 1073742335\n";

    #[test]
    fn the_holder_of_the_write_lock_is_found_in_the_kernels_list() {
        assert_eq!(holder(LOCKS, 77, WAL_WRITE_BYTE), Some(904), "neither readers nor those that wait");
        assert_eq!(holder(LOCKS, 77, PENDING_BYTE), None);
        assert_eq!(holder(LOCKS, 79, WAL_WRITE_BYTE), None, "one of another namespace has no number here");
        assert_eq!(holder(LOCKS, 80, PENDING_BYTE), Some(905));
        assert_eq!(holder("gibberish\n\n1: POSIX", 77, WAL_WRITE_BYTE), None);
    }
}
