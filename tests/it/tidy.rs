//! The shape of the source tree: layers, sizes, heads. What a reviewer would say twice is
//! said here once.

use std::path::{Path, PathBuf};

/// Which modules of the crate root each module may name. `engine::x` allows one part only.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("bounded", &[]),
    ("clock", &["fault"]),
    ("duration", &[]),
    ("fault", &[]),
    ("backoff", &[]),
    ("traffic", &[]),
    ("secret", &["bounded", "error"]),
    ("diagnostic", &["error"]),
    ("content", &["clock", "error"]),
    ("config", &["bounded", "clock", "diagnostic", "duration", "error", "secret"]),
    ("job", &["backoff", "clock", "diagnostic", "duration", "engine::step", "error", "content"]),
    (
        "store",
        &[
            "backoff",
            "clock",
            "config",
            "content",
            "engine::cancel",
            "engine::process",
            "error",
            "fault",
            "traffic",
        ],
    ),
    (
        "gitlab",
        &[
            "backoff",
            "clock",
            "config",
            "content",
            "duration",
            "engine::cancel",
            "error",
            "secret",
            "traffic",
        ],
    ),
    ("export", &["clock", "config", "content", "engine::cancel", "error"]),
    ("service", &["clock", "error", "secret", "traffic"]),
    (
        "embed",
        &["backoff", "clock", "config", "content", "engine::cancel", "error", "secret", "service", "traffic"],
    ),
    ("assist", &["config", "error", "secret", "service", "traffic"]),
    ("search", &["assist", "clock", "config", "content", "diagnostic", "embed", "error", "store", "traffic"]),
    ("mcp", &["error"]),
    ("engine", &["backoff", "clock", "config", "error", "fault", "job", "store"]),
    (
        "steps",
        &[
            "backoff",
            "clock",
            "config",
            "content",
            "diagnostic",
            "duration",
            "embed",
            "engine",
            "error",
            "export",
            "fault",
            "gitlab",
            "secret",
            "store",
            "telemetry",
            "traffic",
        ],
    ),
    ("telemetry", &["clock", "config", "error", "secret", "store", "traffic"]),
    ("lib", &["cli"]),
    ("main", &[]),
    ("cli", &["*"]),
];

/// Modules that decide and do nothing: no input or output, no clock, no logging.
const PURE: &[&str] = &[
    "content/",
    "job/",
    "search/parse",
    "search/snippet",
    "search/fuse",
    "backoff",
    "diagnostic",
    "duration",
];

/// Longest source file, in lines before its tests.
const MAX_LINES: usize = 500;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

struct Source {
    /// Path below `src`.
    name: String,
    /// Text up to its inline tests.
    text: String,
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    rust_files(&src)
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&src).unwrap().to_string_lossy().replace('\\', "/");
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            Source { name, text }
        })
        .collect()
}

fn is_test(source: &Source) -> bool {
    source.name.ends_with("/tests.rs") || source.name.contains("/tests/") || source.name.ends_with("tests.rs")
}

fn module_of(name: &str) -> &str {
    let first = name.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first)
}

/// Paths after `crate::` that a file names, brace imports opened.
fn crate_paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (at, _) in line.match_indices("crate::") {
            let rest: String = line
                .get(at + 7..)
                .unwrap_or_default()
                .chars()
                .take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '{'))
                .collect();
            found.push(rest);
        }
    }
    found
}

#[test]
fn modules_use_only_what_their_layer_may() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !is_test(source)) {
        let own = module_of(&source.name);
        let Some((_, allowed)) = LAYERS.iter().find(|(module, _)| *module == own) else {
            wrong.push(format!("{}: module {own} has no layer: add it to LAYERS", source.name));
            continue;
        };
        for path in crate_paths(&source.text) {
            let target = path.split("::").next().unwrap_or_default();
            let fine = target == own
                || allowed.contains(&"*")
                || allowed.iter().any(|layer| path == *layer || path.starts_with(&format!("{layer}::")))
                || (allowed.contains(&target));
            if target.starts_with('{') {
                wrong.push(format!("{}: braces at the crate root hide what is used: {path}", source.name));
            } else if !fine {
                wrong.push(format!("{}: {own} may not use crate::{path}", source.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_is_for_and_stays_readable() {
    let mut wrong = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if !is_test(&source) {
            if !source.text.starts_with("//!") {
                wrong.push(format!("{}: the first line is not a //! sentence", source.name));
            }
            if lines > MAX_LINES {
                wrong.push(format!("{}: {lines} lines, more than {MAX_LINES}: split it", source.name));
            }
        }
        for (line, number) in source.text.lines().zip(1..) {
            if line.ends_with(' ') {
                wrong.push(format!("{}:{number}: trailing space", source.name));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn sql_lives_in_the_store() {
    let statement = ["SELECT ", "INSERT INTO ", "DELETE FROM ", "UPDATE ", "PRAGMA "];
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.name.starts_with("store/") && !is_test(source)) {
        for (line, number) in source.text.lines().zip(1..) {
            let code = line.split("//").next().unwrap_or_default();
            if code.contains('"') && statement.iter().any(|word| code.contains(word)) {
                wrong.push(format!("{}:{number}: SQL outside src/store: {}", source.name, line.trim()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn pure_modules_touch_nothing() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !is_test(source)) {
        let name = &source.name;
        if !PURE.iter().any(|pure| name.starts_with(pure)) {
            continue;
        }
        for word in [
            "std::fs",
            "std::net",
            "std::env",
            "SystemTime",
            "Utc::now",
            "now_ms()",
            "tracing::",
            "std::process",
        ] {
            if source.text.contains(word) {
                wrong.push(format!("{name}: a pure module names {word}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_step_file_and_every_test_file_is_wired_in() {
    let mut wrong = Vec::new();
    let registry = std::fs::read_to_string(root().join("src/steps/mod.rs")).unwrap();
    for path in rust_files(&root().join("src/steps")) {
        let relative = path.strip_prefix(root().join("src/steps")).unwrap();
        let first = relative.iter().next().unwrap().to_string_lossy().replace(".rs", "");
        if first != "mod" && first != "tests" && !registry.contains(&format!("StepDef::of::<{first}::")) {
            wrong.push(format!("steps/{first} is not in ALL"));
        }
    }
    let main = std::fs::read_to_string(root().join("tests/it/main.rs")).unwrap();
    for entry in std::fs::read_dir(root().join("tests/it")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().replace(".rs", "");
        if name != "main" && !main.contains(&format!("mod {name};")) {
            wrong.push(format!("tests/it/{name} is not a module of main.rs"));
        }
    }
    wrong.sort();
    wrong.dedup();
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
        concat!("#[ign", "ore"),
    ];
    let mut wrong = Vec::new();
    for directory in ["src", "tests", "benches"] {
        for path in rust_files(&root().join(directory)) {
            let text = std::fs::read_to_string(&path).unwrap();
            for mark in marks.iter().filter(|mark| text.contains(**mark)) {
                wrong.push(format!("{}: {mark}", path.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
