//! `docs/reliability.md` names a test for every case, and every test that it names exists.
//! The places where the database is written past the usual door are listed here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Cases of the list.
const CASES: u32 = 48;

#[test]
fn every_case_names_tests_that_exist_or_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let text = std::fs::read_to_string(path).unwrap();
    let tests = crate::gitlab_docs::tests();
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split(" | ").collect();
        let Ok(number) = cells[0].parse::<u32>() else { continue };
        if !seen.insert(number) {
            problems.push(format!("{number}: twice"));
        }
        let [_, case, behaviour, shown] = cells[..] else {
            problems.push(format!("{number}: {} cells", cells.len()));
            continue;
        };
        if case.is_empty() || behaviour.is_empty() {
            problems.push(format!("{number}: an empty cell"));
        }
        if let Some(reason) = shown.strip_prefix("— ") {
            if reason.len() < 20 {
                problems.push(format!("{number}: no reason"));
            }
            continue;
        }
        let named: Vec<&str> = shown.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            problems.push(format!("{number}: neither a test nor a reason"));
        }
        for name in named.iter().filter(|name| !tests.contains(**name)) {
            problems.push(format!("{number}: there is no test {name}"));
        }
    }
    for number in (1..=CASES).filter(|number| !seen.contains(number)) {
        problems.push(format!("{number}: no row"));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The guards of the second table.
const GUARDS: &[&str] = &[
    "token check",
    "hash compare at commit",
    "cursor in the same transaction",
    "backoff",
    "fuse",
    "dims check",
    "scope filter",
    "NaN check",
    "truncation boundary",
    "generation",
];

#[test]
fn every_guard_names_the_tests_that_fail_without_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reliability.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, guards) = text.split_once("\n## Guards").expect("a chapter about the guards");
    let tests = crate::gitlab_docs::tests();
    let mut seen = BTreeSet::new();
    for line in guards.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split(" | ").collect();
        let [guard, place, held_by] = cells[..] else { panic!("three cells: {line}") };
        if guard == "guard" {
            continue;
        }
        assert!(GUARDS.contains(&guard), "{guard}: is in no list");
        assert!(seen.insert(guard), "{guard}: twice");
        let file = place.split('`').nth(1).expect("a file");
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{guard}: there is no {file}");
        let named: Vec<&str> = held_by.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{guard}: no test");
        for name in named {
            assert!(tests.contains(name), "{guard}: there is no test {name}");
        }
    }
    assert_eq!(seen.len(), GUARDS.len(), "{seen:?}");
}

/// What opens a way to write, or takes a connection that may.
const WAYS: &[&str] = &[
    "open_writer(",
    "SQLITE_OPEN_READ_WRITE",
    "TransactionBehavior::Immediate",
    "TransactionBehavior::Exclusive",
    "unchecked_transaction(",
    ".transaction(",
    ".savepoint(",
    "Backup::new(",
    "BEGIN IMMEDIATE",
];

/// Every place in `src` that has one of the ways, how often, and why it may.
const DOORS: &[(&str, &str, usize, &str)] = &[
    ("store/mod.rs", "open_writer(", 1, "the connection behind the door"),
    ("store/mod.rs", "TransactionBehavior::Immediate", 1, "the door: checks the token first"),
    ("store/open.rs", "open_writer(", 1, "what opens it"),
    ("store/open.rs", "SQLITE_OPEN_READ_WRITE", 1, "what opens it"),
    (
        "store/open.rs",
        "TransactionBehavior::Immediate",
        1,
        "migration: before any lock, refused while one is held",
    ),
    ("store/lock.rs", "open_writer(", 1, "the heartbeat: its statement has owner and token in its WHERE"),
    ("store/metrics.rs", "open_writer(", 1, "counters of queries, which hold no lock"),
    ("store/metrics.rs", "TransactionBehavior::Immediate", 1, "counters of queries, which hold no lock"),
    ("store/backup.rs", "SQLITE_OPEN_READ_WRITE", 2, "a copy that nobody else knows yet"),
    ("store/backup.rs", "unchecked_transaction(", 1, "pins what is read for a copy; writes nothing"),
    ("store/backup.rs", "Backup::new(", 1, "into a private copy, or over the database with the lock held"),
];

/// Functions that execute statements on a bare connection instead of a transaction's, and why.
const BARE: &[(&str, &str, &str)] = &[
    ("store/backup.rs", "free_lock", "the lock row of a private copy"),
    ("store/fts.rs", "fill_lengths", "part of a migration, in its transaction"),
    ("store/fts.rs", "write_block", "called by that, and inside the door"),
    ("store/integrity.rs", "fts_agrees", "called inside the door; a comparison that is spelled INSERT"),
    ("store/lock.rs", "beat", "owner and token are in its WHERE"),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "tests") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs" && name != "fixtures.rs")
        {
            found.push(path);
        }
    }
}

/// The code of a file without its tests and comments.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines =
        text.get(..end).unwrap_or_default().lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn every_write_goes_through_the_door_that_checks_the_token() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 100);
    let (mut ways, mut bare) = (BTreeMap::new(), BTreeSet::new());
    for path in files {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let code = code(&path);
        for way in WAYS {
            let n = code.matches(way).count();
            if n > 0 {
                ways.insert((name.clone(), (*way).to_owned()), n);
            }
        }
        for function in
            code.split("\nfn ").chain(code.split("\npub(super) fn ")).chain(code.split("\npub fn ")).skip(1)
        {
            let (head, rest) = function.split_once('{').unwrap_or_default();
            let body = rest.split("\n}\n").next().unwrap_or_default();
            if head.contains("Connection")
                && (body.contains(".execute(") || body.contains("execute_batch("))
                && ["INSERT", "UPDATE", "DELETE", "DROP"].iter().any(|word| body.contains(word))
            {
                bare.insert((name.clone(), head.split(['(', '<']).next().unwrap_or_default().to_owned()));
            }
        }
    }
    let listed: BTreeMap<_, _> =
        DOORS.iter().map(|(file, way, n, _)| (((*file).to_owned(), (*way).to_owned()), *n)).collect();
    assert_eq!(ways, listed, "a way to write that is not listed here, or one that is gone");
    let listed: BTreeSet<_> =
        BARE.iter().map(|(file, function, _)| ((*file).to_owned(), (*function).to_owned())).collect();
    assert_eq!(bare, listed, "a function that writes outside of a transaction of the store");
}
