//! `lore jobs` (frame).

use super::App;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{self, Job, Override};

/// Finds a job by name or path.
///
/// # Errors
/// When there is none, or its file is invalid.
pub fn find(app: &App, name: &str, overrides: &[Override]) -> Result<Job> {
    let path = app.world.current_dir.join(name);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::new(ErrorKind::Config, format!("read {name}")).because(error))?;
    job::parse(name, &text, crate::steps::ALL, overrides)
        .map_err(|_| Error::config(format!("job file {name} is invalid")))
}
