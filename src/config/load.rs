//! Finds and reads the configuration: files, then environment; the last one wins.
//!
//! Every problem is reported, not only the first. figment merges the layers and reads the
//! types; which key stands at which line is remembered by [`super::layers`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use figment::error::Kind;
use figment::value::{Dict, Value};
use serde::de::DeserializeOwned;

use super::layers::{self, Layer, Part};
use super::{Config, ExportConfig, GitlabConfig, SourceConfig, known, validate};
use crate::diagnostic::{Diagnostic, nearest};
use crate::error::{Error, ErrorKind, Result, io_error};

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
    /// The resolved values. Relative paths of a file are joined to the file's directory,
    /// those of a variable to the working directory.
    pub config: Config,
    /// Files that were read, weakest first.
    pub files: Vec<PathBuf>,
    /// Where each value that is not a default came from: key path to `file:line` or variable.
    pub origins: BTreeMap<String, String>,
    /// Directory of the strongest file that was read, else the working directory.
    pub base_dir: PathBuf,
}

/// Reads the configuration.
///
/// # Errors
/// [`ErrorKind::Config`] with every problem: a file that cannot be read or parsed, unknown
/// keys (with the nearest known one), wrong types, values out of range.
pub fn load(places: &Places) -> Result<Loaded> {
    let mut found = Vec::new();
    let (files, mut layers) = read_files(places, &mut found)?;
    let environment = Layer::environment(&places.vars, ENV_PREFIX, &places.current_dir, &layers);
    layers.push(environment);
    let mut origins = BTreeMap::new();
    for layer in &layers {
        let own = layer.origins();
        // A secret that is given anew hides the old reference whole.
        origins.retain(|path: &String, _| {
            !path.split_once(".token").is_some_and(|(source, _)| layer.sets(&format!("{source}.token")))
        });
        origins.extend(own);
    }
    let mut reader = Reader { layers, found, reported: Vec::new() };
    let config = reader.config();
    reader.validate(&config);
    let mut found = reader.found;
    found.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    found.dedup();
    if found.iter().any(Diagnostic::is_error) {
        return Err(invalid(&found));
    }
    let base_dir = files.last().and_then(|file| file.parent()).unwrap_or(&places.current_dir).to_owned();
    Ok(Loaded { config, files, origins, base_dir })
}

fn read_files(places: &Places, found: &mut Vec<Diagnostic>) -> Result<(Vec<PathBuf>, Vec<Layer>)> {
    let candidates = match &places.explicit {
        Some(file) => vec![places.current_dir.join(file)],
        None => layers::usual_files(&places.vars, &places.current_dir),
    };
    let mut files = Vec::new();
    let mut layers = Vec::new();
    for path in candidates {
        let shown = path.strip_prefix(&places.current_dir).unwrap_or(&path).display().to_string();
        let bytes = match crate::bounded::read(&path) {
            Ok(bytes) => bytes,
            Err(error)
                if places.explicit.is_none()
                    && matches!(
                        error.kind(),
                        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                    ) =>
            {
                continue;
            }
            Err(error) => {
                let error =
                    io_error(format!("read configuration {shown}"), error).with_kind(ErrorKind::Config);
                return Err(match places.explicit {
                    Some(_) => error.hint(
                        "--config names a file that must exist; `lore config init` prints one to start from",
                    ),
                    None => error,
                });
            }
        };
        let text = String::from_utf8(bytes).map_err(|_| {
            Error::config(format!("configuration {shown} is not UTF-8")).hint("save it as UTF-8")
        })?;
        let dir = path.parent().unwrap_or(Path::new("/"));
        layers.push(Layer::file(shown, text, dir, found));
        files.push(path);
    }
    Ok((files, layers))
}

fn invalid(found: &[Diagnostic]) -> Error {
    let text: String = found.iter().map(|found| format!("\n\n{}", found.render().trim_end())).collect();
    let count = found.iter().filter(|found| found.is_error()).count();
    let plural = if count == 1 { "" } else { "s" };
    Error::config(format!("the configuration is invalid: {count} error{plural}{text}"))
        .hint("every key is described in docs/config.md and by `lore config init`")
        .details(serde_json::json!({ "diagnostics": found }))
}

struct Reader {
    layers: Vec<Layer>,
    found: Vec<Diagnostic>,
    /// Paths of what was reported: their values are gone and are not judged again.
    reported: Vec<String>,
}

impl Reader {
    fn config(&mut self) -> Config {
        self.secrets();
        self.unknown_keys();
        let mut config: Config = self
            .extract("", |layers| {
                let rest: Vec<Dict> = layers.iter().map(|layer| without(&layer.dict, "sources")).collect();
                layers::merge(&rest).extract().map_err(Box::new)
            })
            .unwrap_or_default();
        for name in self.source_names() {
            let path = format!("sources.{name}");
            let source = match self.kind_of(&name).as_deref() {
                Some("gitlab") => self.source::<GitlabConfig>(&path).map(SourceConfig::Gitlab),
                Some("gitlab-export") => self.source::<ExportConfig>(&path).map(SourceConfig::GitlabExport),
                Some(_) | None => None,
            };
            if let Some(source) = source {
                config.sources.insert(name, source);
            }
        }
        config
    }

    /// Reads a source, its `kind` left out.
    fn source<T: DeserializeOwned>(&mut self, path: &str) -> Option<T> {
        self.extract(path, |layers| {
            let own = |layer: &Layer| match layer.find(path) {
                Some(Value::Dict(_, inner)) => without(inner, "kind"),
                _ => Dict::new(),
            };
            layers::merge(&layers.iter().map(own).collect::<Vec<_>>()).extract().map_err(Box::new)
        })
    }

    /// Reads a part of the tree again and again, reporting and removing what is wrong, until
    /// it can be read. Nothing when something that is needed is missing.
    fn extract<T>(
        &mut self,
        at: &str,
        read: impl Fn(&[Layer]) -> std::result::Result<T, Box<figment::Error>>,
    ) -> Option<T> {
        let mut removed: Vec<String> = Vec::new();
        loop {
            let error = match read(&self.layers) {
                Ok(value) => return Some(value),
                Err(error) => error,
            };
            let inner = error.path.join(".");
            let path = match (at.is_empty(), inner.is_empty()) {
                (true, _) => inner,
                (false, true) => at.to_owned(),
                (false, false) => format!("{at}.{inner}"),
            };
            if let Kind::MissingField(field) = &error.kind {
                let field = format!("{path}.{field}");
                if !removed.contains(&field) {
                    self.report(&field, Part::Value, format!("`{field}` is not set"), None);
                }
                // Without the table that lacks it the rest can be read, and judged too.
                let mut gone = false;
                for layer in self.layers.iter_mut().filter(|layer| path != at && layer.sets(&path)) {
                    gone |= layer.remove(&path);
                }
                if gone {
                    continue;
                }
                return None;
            }
            let strongest = self.layers.iter().rposition(|layer| layer.sets(&path));
            if let Some(layer) = strongest.and_then(|at| self.layers.get_mut(at))
                && layer.as_text(&path)
            {
                continue;
            }
            let suggestion = match &error.kind {
                Kind::UnknownVariant(word, known) => {
                    nearest(word, known.iter().copied()).map(|near| format!("did you mean `{near}`?"))
                }
                _ => None,
            };
            self.report(&path, Part::Value, error.kind.to_string(), suggestion);
            let mut gone = false;
            for layer in self.layers.iter_mut().filter(|layer| path != at && layer.sets(&path)) {
                gone |= layer.remove(&path);
            }
            if !gone {
                return None;
            }
            removed.push(path);
        }
    }

    /// Reports a problem where the strongest layer sets the value.
    fn report(&mut self, path: &str, part: Part, message: impl Into<String>, suggestion: Option<String>) {
        let mut at = path;
        let layer = loop {
            if let Some(layer) = self.layers.iter().rev().find(|layer| layer.sets(at)) {
                break Some(layer);
            }
            match at.rsplit_once('.') {
                Some((above, _)) => at = above,
                None => break self.layers.first(),
            }
        };
        self.reported.push(path.to_owned());
        let Some(layer) = layer else { return };
        let mut problem = layer.problem(path, part, message);
        problem.suggestion = suggestion;
        self.found.push(problem);
    }

    fn source_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for layer in &self.layers {
            if let Some(Value::Dict(_, sources)) = layer.dict.get("sources") {
                names.extend(sources.keys().cloned());
            }
        }
        names.sort();
        names.dedup();
        names
    }

    /// Names that any layer has in the table at `path`.
    fn keys_below(&self, path: &str) -> BTreeSet<String> {
        let tables = self.layers.iter().filter_map(|layer| layer.find(path)?.as_dict());
        tables.flat_map(|table| table.keys().cloned()).collect()
    }

    fn kind_of(&self, source: &str) -> Option<String> {
        let path = format!("sources.{source}.kind");
        let kind = self.layers.iter().rev().find_map(|layer| layer.find(&path))?;
        kind.as_str().map(str::to_owned)
    }

    /// A secret is a reference. A stronger one replaces a weaker one whole; a text in its
    /// place is refused without being shown.
    fn secrets(&mut self) {
        let mut paths: Vec<String> =
            self.source_names().into_iter().map(|name| format!("sources.{name}.token")).collect();
        paths.extend(["embedding.token", "rerank.token", "query.ner_token"].map(str::to_owned));
        paths.extend(
            self.keys_below("tracing.headers").into_iter().map(|name| format!("tracing.headers.{name}")),
        );
        for job in self.keys_below("notify") {
            paths.extend(["ping", "start", "success", "fail"].map(|event| format!("notify.{job}.{event}")));
        }
        for path in paths {
            let setting: Vec<usize> = (0..self.layers.len())
                .filter(|at| self.layers.get(*at).is_some_and(|layer| layer.sets(&path)))
                .collect();
            let Some((strongest, weaker)) = setting.split_last() else { continue };
            for at in weaker {
                if let Some(layer) = self.layers.get_mut(*at) {
                    layer.remove(&path);
                }
            }
            let Some(layer) = self.layers.get_mut(*strongest) else { continue };
            let text = match layer.find(&path) {
                Some(Value::Dict(..)) | None => continue,
                Some(Value::String(_, text)) => text.clone(),
                Some(_) => String::new(),
            };
            let suggestion = match variable_of(&text) {
                Some(name) => format!("values are not expanded: write {{ env = \"{name}\" }}"),
                None => "write { env = \"NAME\" } or { file = \"/path\" }".to_owned(),
            };
            let problem = layer
                .problem(&path, Part::Value, "a secret is not written here, only where it is kept")
                .suggest(suggestion);
            layer.remove(&path);
            self.found.push(problem);
            self.reported.push(path);
        }
    }

    fn unknown_keys(&mut self) {
        let mut problems: Vec<(usize, known::Unknown)> = Vec::new();
        for (at, layer) in self.layers.iter().enumerate() {
            let kind_of = |source: &str| self.kind_of(source);
            problems
                .extend(known::unknown_keys(&layer.dict, &kind_of).into_iter().map(|problem| (at, problem)));
        }
        for (at, unknown) in problems {
            let Some(layer) = self.layers.get_mut(at) else { continue };
            let mut problem = layer.problem(&unknown.path, Part::Key, unknown.message);
            problem.suggestion = unknown.suggestion;
            layer.remove(&unknown.path);
            self.found.push(problem);
            self.reported.push(unknown.path);
        }
        for name in self.source_names() {
            let path = format!("sources.{name}");
            let kinds = known::SOURCE_KINDS;
            match self.kind_of(&name).as_deref() {
                Some(kind) if kinds.contains(&kind) => {}
                Some(kind) => {
                    let suggestion = match nearest(kind, kinds) {
                        Some(near) => format!("did you mean \"{near}\"?"),
                        None => format!("known: {}", kinds.join(", ")),
                    };
                    let message = format!("unknown kind of source {kind:?}");
                    self.report(&format!("{path}.kind"), Part::Value, message, Some(suggestion));
                }
                None => {
                    let message = format!("source {name} has no `kind`, one of {}", kinds.join(", "));
                    self.report(&format!("{path}.kind"), Part::Key, message, None);
                }
            }
        }
    }

    fn validate(&mut self, config: &Config) {
        for problem in validate::problems(config) {
            let inside = format!("{}.", problem.path);
            if self.reported.iter().any(|path| *path == problem.path || path.starts_with(&inside)) {
                continue;
            }
            self.report(&problem.path, Part::Value, problem.message, problem.suggestion);
        }
    }
}

/// The name in `${NAME}` or `$NAME`, when that is all a text holds.
fn variable_of(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix('$')?;
    let name = name.strip_prefix('{').map_or(Some(name), |name| name.strip_suffix('}'))?;
    let name = name.split(":-").next()?;
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain.then_some(name)
}

fn without(dict: &Dict, key: &str) -> Dict {
    let mut rest = dict.clone();
    rest.remove(key);
    rest
}
