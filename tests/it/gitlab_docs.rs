//! `docs/gitlab.md` names a test for every fact, report and case, and every test that it
//! names exists and carries the number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The tables: heading, prefixes of test names, and the numbers that must be there.
const TABLES: &[(&str, &[&str], &[u32])] = &[
    ("## Facts", &["api"], &range::<94>()),
    ("## Reports", &["bug", "bugs"], &range::<46>()),
    ("## Cases", &["a5"], &[1, 3, 4, 5, 7, 9, 11, 12, 14, 15, 17, 19, 20]),
];

/// 1 to N.
const fn range<const N: usize>() -> [u32; N] {
    let mut numbers = [0; N];
    let mut n = 0;
    while n < N {
        numbers[n] = n as u32 + 1;
        n += 1;
    }
    numbers
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Names of all test functions.
pub fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    sources(&root.join("tests"), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut is_test = false;
        for line in text.lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let Some(rest) = line.strip_prefix("fn ") {
                if is_test {
                    names.insert(rest.split(['(', '<']).next().unwrap().to_owned());
                }
                is_test = false;
            }
        }
    }
    names
}

/// Numbers that a name carries under one of the prefixes: `a5_01_bugs_1_2_x` has 1 and 2
/// under `bugs`.
fn numbers(name: &str, prefixes: &[&str]) -> BTreeSet<u32> {
    let mut numbers = BTreeSet::new();
    let mut is_ours = false;
    for word in name.split('_') {
        match word.parse() {
            Ok(number) if is_ours => _ = numbers.insert(number),
            Ok(_) => {}
            Err(_) => is_ours = prefixes.contains(&word),
        }
    }
    numbers
}

/// Rows of the table below a heading: number, the row's other cells.
fn rows<'a>(text: &'a str, heading: &str) -> BTreeMap<u32, Vec<&'a str>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(heading));
    lines.next().unwrap_or_else(|| panic!("docs/gitlab.md has no {heading:?}"));
    lines
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.split(" | ").map(str::trim);
            let number = cells.next()?.trim_start_matches("A5-").parse().ok()?;
            Some((number, cells.collect()))
        })
        .collect()
}

#[test]
fn every_fact_report_and_case_has_a_test_that_carries_its_number_or_a_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gitlab.md");
    let text = std::fs::read_to_string(path).unwrap();
    let tests = tests();
    let mut problems = Vec::new();
    for (heading, prefixes, wanted) in TABLES {
        let rows = rows(&text, heading);
        for number in wanted.iter().filter(|number| !rows.contains_key(number)) {
            problems.push(format!("{heading} {number}: no row"));
        }
        for (number, cells) in rows {
            let named: Vec<&str> =
                cells.last().copied().unwrap_or_default().split('`').skip(1).step_by(2).collect();
            for name in named.iter().filter(|name| !tests.contains(**name)) {
                problems.push(format!("{heading} {number}: there is no test {name}"));
            }
            let is_proven = named.iter().any(|name| numbers(name, prefixes).contains(&number));
            let has_reason =
                cells.last().is_some_and(|cell| cell.starts_with("does not apply: ") && cell.len() > 30);
            if cells.len() != 3 || !(is_proven || has_reason) {
                problems.push(format!("{heading} {number}: neither a test with its number nor a reason"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn numbers_of_a_name_are_those_behind_its_prefix() {
    let of = |name: &str, prefix: &str| numbers(name, &[prefix]).into_iter().collect::<Vec<_>>();
    assert_eq!(of("a5_01_a5_03_bugs_1_2_every_7_ways", "bugs"), [1, 2]);
    assert_eq!(of("a5_01_a5_03_bugs_1_2_every_7_ways", "a5"), [1, 3]);
    assert_eq!(of("api_86_both_layouts", "bug"), [0; 0]);
}
