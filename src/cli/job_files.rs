//! Where jobs are found: files of the jobs directory, then the jobs compiled in.

use std::path::{Path, PathBuf};

use super::App;
use crate::diagnostic::{Diagnostic, nearest};
use crate::error::{Error, ErrorKind, Result, io_error};
use crate::job::{self, Job, Origin, Override, shipped};

/// A job that was found, not read yet.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Name that finds it: that of the file without `.toml`.
    pub(super) name: String,
    /// Where it was found.
    pub(super) origin: Origin,
    /// The file as messages name it.
    pub(super) file: String,
    /// Its text.
    pub(super) text: String,
}

/// A job that is compiled in.
pub(super) fn built_in(name: &str, text: &str) -> Found {
    Found {
        name: name.to_owned(),
        origin: Origin::BuiltIn,
        file: format!("built-in/{name}.toml"),
        text: text.to_owned(),
    }
}

impl Found {
    fn read(app: &App, path: &Path) -> Result<Self> {
        let whole = app.world.current_dir.join(path);
        let bytes = crate::bounded::read(&whole)
            .map_err(|error| io_error(format!("read job file {}", path.display()), error))
            .map_err(|error| {
                error
                    .with_kind(ErrorKind::Config)
                    .hint("name a job file that you may read, or a job by its name")
            })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let line =
                error.as_bytes().iter().take(error.utf8_error().valid_up_to()).filter(|b| **b == b'\n');
            Error::config(format!("job file {}:{} is not UTF-8", path.display(), line.count() + 1))
                .hint("save the file as UTF-8")
        })?;
        let shown = whole.strip_prefix(&app.world.current_dir).unwrap_or(&whole);
        Ok(Self {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            origin: Origin::File(shown.to_owned()),
            file: shown.display().to_string(),
            text,
        })
    }

    /// Reads the job.
    ///
    /// # Errors
    /// Every problem of its file, or of an override.
    pub(super) fn parse(&self, overrides: &[Override]) -> Result<Job> {
        let parsed = job::parse(&self.file, &self.text, crate::steps::ALL, overrides);
        let mut job = parsed.map_err(|found| invalid(&self.file, &found))?;
        job.origin = self.origin.clone();
        Ok(job)
    }
}

/// The jobs directory, when there is one: `--jobs-dir`, `[jobs] dir`, or `jobs` beside the
/// configuration file, or `jobs` in the working directory.
///
/// # Errors
/// When a directory that is named does not exist.
fn directory(app: &App) -> Result<Option<PathBuf>> {
    let named = match &app.globals.jobs_dir {
        Some(dir) => Some((app.world.current_dir.join(dir), "--jobs-dir", ErrorKind::Usage)),
        None => app.config()?.jobs.dir.clone().map(|dir| (dir, "jobs.dir", ErrorKind::Config)),
    };
    if let Some((dir, by, kind)) = named {
        let dir = app.world.current_dir.join(dir);
        if dir.is_dir() {
            return Ok(Some(dir));
        }
        return Err(Error::new(kind, format!("{by} {}: no such directory", dir.display()))
            .hint("name the directory that holds the job files, or leave it out for the jobs compiled in"));
    }
    let beside = app.loaded()?.base_dir.join("jobs");
    let here = app.world.current_dir.join("jobs");
    Ok([beside, here].into_iter().find(|dir| dir.is_dir()))
}

/// Every job: the files of the jobs directory by name, then the compiled-in ones that no
/// file of the same name replaces.
///
/// # Errors
/// When the directory or one of its files cannot be read.
pub(super) fn all(app: &App) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    if let Some(dir) = directory(app)? {
        let reading = |error| io_error(format!("read the jobs directory {}", dir.display()), error);
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(reading)? {
            let path = entry.map_err(reading)?.path();
            if path.extension().is_some_and(|ext| ext == "toml") && path.is_file() {
                paths.push(path);
            }
        }
        paths.sort();
        for path in paths {
            found.push(Found::read(app, &path)?);
        }
    }
    for (name, text) in shipped::JOBS {
        if found.iter().all(|job| job.name != *name) {
            found.push(built_in(name, text));
        }
    }
    Ok(found)
}

/// Finds one job: the path of a file, a name of the jobs directory, a name compiled in.
///
/// # Errors
/// When there is none of that name, with the nearest one.
pub(super) fn one(app: &App, name: &str) -> Result<Found> {
    let is_path = name.contains(['/', '\\']) || Path::new(name).extension().is_some_and(|ext| ext == "toml");
    if is_path {
        return Found::read(app, Path::new(name));
    }
    let dir = directory(app)?;
    if let Some(path) = dir.as_ref().map(|dir| dir.join(format!("{name}.toml"))).filter(|path| path.is_file())
    {
        return Found::read(app, &path);
    }
    if let Some(text) = shipped::text(name) {
        return Ok(built_in(name, text));
    }
    let all = all(app)?;
    let names: Vec<&str> = all.iter().map(|job| job.name.as_str()).collect();
    let place = dir.map_or_else(
        || "there is no jobs directory, and it is not compiled in".to_owned(),
        |dir| {
            format!(
                "it is neither compiled in nor in {}",
                dir.strip_prefix(&app.world.current_dir).unwrap_or(&dir).display()
            )
        },
    );
    let error = Error::config(format!("no job is named {name}: {place}"));
    Err(match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(format!("known: {}; or give the path of a job file", names.join(", "))),
    })
}

/// The error of a job file that has errors: all of them. A wrong `--set` is wrong usage.
pub(super) fn invalid(file: &str, found: &[Diagnostic]) -> Error {
    let errors = found.iter().filter(|found| found.is_error()).count();
    let text: String = found.iter().map(|found| format!("\n\n{}", found.render().trim_end())).collect();
    let of_flags = found.iter().filter(|found| found.is_error()).all(|found| found.file == "--set");
    let message = if of_flags {
        format!("--set does not fit job file {file}{text}")
    } else {
        format!("job file {file} is invalid: {}{text}", count(errors, "error"))
    };
    let kind = if of_flags { ErrorKind::Usage } else { ErrorKind::Config };
    Error::new(kind, message).details(serde_json::json!({ "diagnostics": found }))
}

/// `1 error`, `2 errors`
pub(super) fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
