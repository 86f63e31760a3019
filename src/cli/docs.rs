//! `lore docs DIR` (hidden): writes the generated reference.

use std::path::PathBuf;

use serde::Serialize;

use super::{App, reference};
use crate::error::{Result, io_error};

/// Write the generated reference into a directory.
#[derive(Debug, clap::Args)]
pub struct DocsArgs {
    /// Directory that exists
    dir: PathBuf,
}

#[derive(Serialize)]
struct Written {
    files: Vec<String>,
}

/// Runs `lore docs`.
///
/// # Errors
/// When a file cannot be written.
pub fn run(args: &DocsArgs, app: &mut App) -> Result<()> {
    let dir = app.world.current_dir.join(&args.dir);
    let mut files = Vec::new();
    for (name, text) in reference::files(crate::steps::ALL) {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| io_error(format!("write {}", path.display()), error))?;
        files.push(path.display().to_string());
    }
    let written = Written { files };
    app.reply(&written, |out| written.files.iter().try_for_each(|file| out.line(file)))
}
