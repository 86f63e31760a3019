//! One place that configuration comes from: a file or the environment, as a tree that
//! remembers where each key stands.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use figment::providers::Serialized;
use figment::value::{Dict, Value};
use figment::{Figment, Profile};
use toml::de::{DeTable, DeValue};

use crate::diagnostic::{Diagnostic, Source};

/// Separates sections in names of environment variables.
const SEPARATOR: &str = "__";

/// A tree of values and where each stands.
#[derive(Debug, Clone)]
pub(super) struct Layer {
    /// The file as messages name it; `environment` for variables.
    pub(super) name: String,
    /// The values.
    pub(super) dict: Dict,
    place: Place,
    spots: BTreeMap<String, Spot>,
}

#[derive(Debug, Clone)]
enum Place {
    File { text: String },
    Environment,
}

#[derive(Debug, Clone)]
enum Spot {
    Text { key: Range<usize>, value: Range<usize> },
    Variable { name: String, raw: String },
}

/// Which part of a setting a problem is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Key,
    Value,
}

/// Whether a setting may hold a secret, by mistake or inside a URL: its value is not shown.
fn is_sensitive(path: &str) -> bool {
    path.split('.').any(|key| matches!(key, "token" | "url" | "web_url"))
}

/// Whether a setting is a path of the file system, relative to the file that names it.
fn is_path(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    matches!(
        path.as_slice(),
        ["database", "path"]
            | ["jobs", "dir"]
            | ["metrics", "textfile"]
            | ["sources", _, "path" | "ca_file"]
            | [.., "token", "file"]
            | ["tracing", "headers", _, "file"]
            | ["notify", _, _, "file"]
    )
}

impl Layer {
    /// Reads the text of a file. Syntax errors are added to `found`; what is readable is kept.
    pub(super) fn file(name: String, text: String, dir: &Path, found: &mut Vec<Diagnostic>) -> Self {
        let source = Source::new(name.as_str(), &text);
        let (root, errors) = DeTable::parse_recoverable(source.text);
        for error in errors {
            let mut problem =
                source.error(error.span().unwrap_or_default(), format!("syntax: {}", error.message()));
            // A line that cannot be read may hold a token.
            problem.source = String::new();
            found.push(problem);
        }
        let mut reading = Reading { source: &source, dir, spots: BTreeMap::new(), found };
        let dict = reading.table(root.get_ref(), &mut Vec::new());
        let spots = reading.spots;
        let text = source.text.to_owned();
        Self { name, dict, place: Place::File { text }, spots }
    }

    /// Collects the variables that begin with `prefix`. `known` are the layers below: their
    /// names of sources and scopes are found again whatever their case.
    pub(super) fn environment(
        vars: &BTreeMap<String, String>,
        prefix: &str,
        dir: &Path,
        known: &[Self],
    ) -> Self {
        let mut layer = Self {
            name: "environment".to_owned(),
            dict: Dict::new(),
            place: Place::Environment,
            spots: BTreeMap::new(),
        };
        for (variable, raw) in vars {
            let Some(rest) = variable.strip_prefix(prefix) else { continue };
            // Templates of containers and CI set what they do not know to nothing.
            if raw.is_empty() {
                continue;
            }
            let mut path: Vec<String> = rest.split(SEPARATOR).map(str::to_lowercase).collect();
            if let [section, name, ..] = path.as_mut_slice()
                && let Some(written) = known.iter().find_map(|layer| layer.name_like(section, name))
            {
                *name = written;
            }
            let mut value = env_value(raw);
            if is_path(&path) {
                value = Value::from(dir.join(raw).display().to_string());
            } else if let (Value::Dict(_, inner), Some("token")) =
                (&mut value, path.last().map(String::as_str))
                && let Some(Value::String(_, file)) = inner.get_mut("file")
            {
                *file = dir.join(&*file).display().to_string();
            }
            layer.put(&path, value);
            let spot = Spot::Variable { name: variable.clone(), raw: raw.clone() };
            layer.spots.insert(path.join("."), spot);
        }
        layer
    }

    fn name_like(&self, section: &str, name: &str) -> Option<String> {
        let plain = |text: &str| text.to_lowercase().replace('-', "_");
        let Some(Value::Dict(_, section)) = self.dict.get(section) else { return None };
        section.keys().find(|key| plain(key) == plain(name)).cloned()
    }

    fn put(&mut self, path: &[String], value: Value) {
        let Some((last, parents)) = path.split_last() else { return };
        let mut at = &mut self.dict;
        for parent in parents {
            let slot = at.entry(parent.clone()).or_insert_with(|| Value::from(Dict::new()));
            if !matches!(slot, Value::Dict(..)) {
                *slot = Value::from(Dict::new());
            }
            let Value::Dict(_, inner) = slot else { return };
            at = inner;
        }
        at.insert(last.clone(), value);
    }

    /// Whether the layer sets the value at `path`, or something inside of it.
    pub(super) fn sets(&self, path: &str) -> bool {
        self.find(path).is_some()
    }

    /// The value at `path`.
    pub(super) fn find(&self, path: &str) -> Option<&Value> {
        let mut keys = path.split('.');
        let mut value = self.dict.get(keys.next()?)?;
        for key in keys {
            let Value::Dict(_, inner) = value else { return None };
            value = inner.get(key)?;
        }
        Some(value)
    }

    /// Removes the value at `path`; false when there was none.
    pub(super) fn remove(&mut self, path: &str) -> bool {
        let keys: Vec<&str> = path.split('.').collect();
        let Some((last, parents)) = keys.split_last() else { return false };
        let mut at = &mut self.dict;
        for parent in parents {
            let Some(Value::Dict(_, inner)) = at.get_mut(*parent) else { return false };
            at = inner;
        }
        at.remove(*last).is_some()
    }

    /// Takes a variable's value as text, when it was taken as something else: `123` may be
    /// a name. False when there is nothing to change.
    pub(super) fn as_text(&mut self, path: &str) -> bool {
        let Some(Spot::Variable { raw, .. }) = self.spots.get(path) else { return false };
        let raw = raw.clone();
        if matches!(self.find(path), None | Some(Value::String(..))) {
            return false;
        }
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        self.put(&path, Value::from(raw));
        true
    }

    /// A problem with the setting at `path`, or with the nearest thing above it.
    pub(super) fn problem(&self, path: &str, part: Part, message: impl Into<String>) -> Diagnostic {
        // A section that only variables with longer names set has no place of its own.
        let below = || {
            let inside = format!("{path}.");
            self.spots.iter().find(|(known, _)| known.starts_with(&inside)).map(|(_, spot)| spot)
        };
        let mut at = path;
        let spot = loop {
            if let Some(spot) = self.spots.get(at) {
                break Some(spot);
            }
            match at.rsplit_once('.') {
                Some((above, _)) => at = above,
                None => break below(),
            }
        };
        match (&self.place, spot) {
            (Place::File { text }, Some(Spot::Text { key, value })) => {
                let span = if part == Part::Key || at != path { key } else { value };
                let source = Source::new(self.name.as_str(), text);
                let mut problem = source.error(span.clone(), message);
                // What an unknown key holds may be anything.
                if part == Part::Key || is_sensitive(path) || may_hold_secret(&problem.source) {
                    hide(&mut problem);
                }
                problem
            }
            (Place::Environment, Some(Spot::Variable { name, .. })) => {
                Source::new(self.name.as_str(), name).error(0..name.len(), message)
            }
            (Place::File { text }, _) => Source::new(self.name.as_str(), text).error(0..0, message),
            (Place::Environment, _) => Source::new(self.name.as_str(), "").error(0..0, message),
        }
    }

    /// Where each value of the layer was written: `file:line`, or the variable.
    pub(super) fn origins(&self) -> BTreeMap<String, String> {
        fn leaves(dict: &Dict, above: &str, found: &mut Vec<String>) {
            for (key, value) in dict {
                let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
                match value {
                    Value::Dict(_, inner) if !inner.is_empty() => leaves(inner, &path, found),
                    _ => found.push(path),
                }
            }
        }
        let mut paths = Vec::new();
        leaves(&self.dict, "", &mut paths);
        let origin = |path: String| {
            let problem = self.problem(&path, Part::Key, "");
            let origin = match self.place {
                Place::File { .. } => format!("{}:{}", self.name, problem.line),
                Place::Environment => problem.source,
            };
            (path, origin)
        };
        paths.into_iter().map(origin).collect()
    }
}

/// Leaves of the line only what stands in front of the value. The column stays true.
fn hide(problem: &mut Diagnostic) {
    let key: String = problem.source.chars().take_while(|c| *c != '=' && *c != '{').collect();
    problem.source = format!("{} = …", key.trim_end());
}

/// Whether a line may hold a secret in a place where none belongs.
fn may_hold_secret(line: &str) -> bool {
    let line = line.to_lowercase();
    ["token", "secret", "password", "@"].iter().any(|word| line.contains(word))
}

/// A variable's value: TOML when it is some, else text.
fn env_value(raw: &str) -> Value {
    let document = format!("x = {raw}");
    let Ok(parsed) = DeTable::parse(&document) else { return Value::from(raw) };
    let table = parsed.into_inner();
    let value = table.get("x").filter(|_| table.len() == 1).map(|value| plain_value(value.get_ref()));
    value.unwrap_or_else(|| Value::from(raw))
}

fn plain_value(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(number.to_string()),
        },
        DeValue::Float(number) => match number.as_str().parse::<f64>() {
            Ok(number) => Value::from(number),
            Err(_) => Value::from(number.as_str()),
        },
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Array(list) => {
            Value::from(list.iter().map(|item| plain_value(item.get_ref())).collect::<Vec<_>>())
        }
        DeValue::Table(table) => Value::from(
            table
                .iter()
                .map(|(key, value)| (key.get_ref().to_string(), plain_value(value.get_ref())))
                .collect::<Dict>(),
        ),
    }
}

struct Reading<'a> {
    source: &'a Source<'a>,
    dir: &'a Path,
    spots: BTreeMap<String, Spot>,
    found: &'a mut Vec<Diagnostic>,
}

impl Reading<'_> {
    fn table(&mut self, table: &DeTable<'_>, above: &mut Vec<String>) -> Dict {
        let mut dict = Dict::new();
        for (key, value) in table {
            let name = key.get_ref().to_string();
            above.push(name.clone());
            let path = above.join(".");
            if name.contains('.') || name.is_empty() {
                let problem = self.source.error(key.span(), "a name here has no dot and is not empty");
                self.found.push(problem);
            }
            self.spots.insert(path, Spot::Text { key: key.span(), value: value.span() });
            let converted = match value.get_ref() {
                DeValue::Table(inner) => Some(Value::from(self.table(inner, above))),
                DeValue::String(text) if is_path(above) && !text.is_empty() => {
                    Some(Value::from(self.dir.join(text.as_ref()).display().to_string()))
                }
                // What the parser puts where it found nothing readable is reported already.
                _ if value.span().is_empty() => None,
                other => Some(plain_value(other)),
            };
            above.pop();
            if let Some(converted) = converted {
                dict.insert(name, converted);
            }
        }
        dict
    }
}

/// Merges layers, weakest first.
pub(super) fn merge<'a>(layers: impl IntoIterator<Item = &'a Dict>) -> Figment {
    layers
        .into_iter()
        .fold(Figment::new(), |merged, dict| merged.merge(Serialized::from(dict, Profile::Default)))
}

/// The usual files, weakest first, whether they exist or not.
pub(super) fn usual_files(vars: &BTreeMap<String, String>, current_dir: &Path) -> Vec<PathBuf> {
    let set = |name: &str| vars.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let mut files = vec![PathBuf::from("/etc/lore/lore.toml")];
    files.extend(home.map(|home| home.join("lore/lore.toml")));
    files.push(current_dir.join("lore.toml"));
    files
}
