//! Finds and reads the configuration: files, then environment; the last one wins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::providers::{Env, Format, Toml};

use super::Config;
use crate::error::{Error, ErrorKind, Result};

/// Prefix of environment variables that set configuration values.
pub const ENV_PREFIX: &str = "LORE__";

/// Where a configuration is looked for.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `--config`: must exist and replaces the files in the usual places.
    pub explicit: Option<PathBuf>,
    /// Working directory.
    pub current_dir: PathBuf,
    /// Environment variables.
    pub vars: BTreeMap<String, String>,
}

/// A configuration and where its values came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The resolved values.
    pub config: Config,
    /// Files that were read, weakest first.
    pub files: Vec<PathBuf>,
    /// Where each value that is not a default came from: key path to file or variable.
    pub origins: BTreeMap<String, String>,
    /// Directory that relative paths of the configuration are relative to.
    pub base_dir: PathBuf,
}

/// Reads the configuration.
///
/// # Errors
/// [`ErrorKind::Config`] for a file that cannot be read or parsed, an unknown key (with the
/// nearest known one), a wrong type or a value out of range.
pub fn load(places: &Places) -> Result<Loaded> {
    drop(places);
    Err(Error::internal("not built yet"))
}
