//! Databases that benches make once and keep, and the clock that they measure with.
#![allow(dead_code, clippy::allow_attributes, reason = "each bench uses what it needs")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the path of a database under `target/bench-data` (or `LORE_BENCH_DATA`), made by
/// `make` at another path when it is not there yet: one that was not finished is not used.
pub fn made_once(name: &str, make: impl FnOnce(&Path)) -> PathBuf {
    let directory = std::env::var_os("LORE_BENCH_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench-data"), PathBuf::from);
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    if path.exists() {
        return path;
    }
    let unfinished = directory.join(format!("{name}.unfinished"));
    for suffix in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{suffix}", unfinished.display())));
    }
    println!("making {} …", path.display());
    make(&unfinished);
    std::fs::rename(&unfinished, &path).unwrap();
    path
}

/// CPU time of this thread.
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of this process.
pub fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
