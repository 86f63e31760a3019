//! Writes the exposition to a file for node_exporter's textfile collector.
//!
//! The collector reads whenever it is scraped: it must never see half a file, and it runs
//! as another user.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use crate::error::{Error, Result, io_error};

/// Replaces the file at `path` by `text`, whole or not at all.
///
/// # Errors
/// When the file cannot be written; then the old one stays and nothing is left beside it.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let name = path.file_name().ok_or_else(|| {
        Error::usage(format!("--textfile {}: not the path of a file", path.display()))
            .hint("name a file in the directory of the textfile collector, for example /var/lib/node_exporter/lore.prom")
    })?;
    // Not ending in .prom, so that the collector does not read it; the process id keeps two
    // writers apart.
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let written = replace(&temporary, path, text);
    if written.is_err() && temporary.exists() {
        // The first error is the one to report.
        drop(std::fs::remove_file(&temporary));
    }
    written.map_err(|error| io_error(format!("write metrics to {}", path.display()), error))
}

fn replace(temporary: &Path, path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(temporary)?;
    file.write_all(text.as_bytes())?;
    #[cfg(unix)]
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(temporary, path)?;
    // Makes the new name last through a power cut; not every file system can.
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
        && let Ok(directory) = File::open(directory)
    {
        drop(directory.sync_all());
    }
    Ok(())
}
