//! What is fuzzed: each function takes any bytes and asserts what must hold for all of them.
//!
//! Shared by the fuzz targets (`tests/fuzz`) and by the tests, which replay the seeds.

use std::collections::BTreeSet;
use std::path::Path;

use lore::config::{self, Places};
use lore::content::chunk::{self, Limits, Source};
use lore::content::refs::{RefContext, RefText, collect_refs};
use lore::content::truncate::{self, Omission};
use lore::content::{ItemType, prose, terms};
use lore::engine::cancel::Cancel;
use lore::error::{Error, ErrorKind};
use lore::export::{self, Export};
use lore::gitlab::wire;
use lore::search::lexical::Needles;
use lore::search::{parse, snippet, stem, wanted::Wanted};
use serde_json::value::RawValue;

/// A target: its name, which is that of its folder of seeds, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 7] = [
    ("config", configuration),
    ("export", exported),
    ("gitlab_json", gitlab_json),
    ("job_file", job_file),
    ("query", query),
    ("snippet", snippet_of),
    ("text", text),
];

/// An error about input is the user's to read: never an internal one, and it says something.
fn explained(error: &Error) {
    assert_ne!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(!error.to_string().trim().is_empty());
}

/// The text of a query.
pub fn query(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match parse::parse(&text, Wanted::default(), 1_767_225_600_000) {
        Ok(query) => {
            // Reading what was read for meaning must not fail either.
            if let Err(error) = parse::parse(&query.meaning, Wanted::default(), 1_767_225_600_000) {
                explained(&error);
            }
        }
        Err(error) => explained(&error),
    }
}

/// The text of a job file.
pub fn job_file(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let checked = lore::job::check("fuzz.toml", text, lore::steps::ALL, &[]);
    let has_error = checked.diagnostics.iter().any(|found| found.is_error());
    assert_eq!(checked.job.is_none(), has_error, "a job exactly when there is no error: {text:?}");
}

/// The text of a configuration file.
pub fn configuration(data: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("lore.toml");
    std::fs::write(&path, data).expect("a file");
    let places =
        Places { explicit: Some(path), current_dir: dir.path().to_owned(), vars: Default::default() };
    if let Err(error) = config::load(&places) {
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

/// A project export: the first byte says what the rest is.
pub fn exported(data: &[u8]) {
    let Some((form, rest)) = data.split_first() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let name = match form {
        b'a' => "export.tar",
        b'z' => "export.tar.gz",
        b'l' => "project.json",
        _ => "tree/project/issues.ndjson",
    };
    let path = dir.path().join(name);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    std::fs::write(&path, rest).expect("a file");
    if name.starts_with("tree") {
        std::fs::write(dir.path().join("tree/project.json"), "{}").expect("a file");
    }
    let place: &Path = if name.starts_with("export") { &path } else { dir.path() };
    let limits = export::Limits { line_bytes: 1 << 20, unpacked_bytes: 8 << 20 };
    let cancel = Cancel::new();
    let read = || -> lore::error::Result<()> {
        let export = Export::open(place)?;
        let survey = export.survey(&limits, &cancel)?;
        export.items(&survey, Some("https://h/g/p"), &limits, &cancel, &mut |_| Ok(()))
    };
    if let Err(error) = read() {
        explained(&error);
    }
}

/// One JSON value of GitLab's API, read as every kind of row.
pub fn gitlab_json(data: &[u8]) {
    let Ok(raw) = serde_json::from_slice::<Box<RawValue>>(data) else { return };
    let reasons = [
        wire::project(&raw).err(),
        wire::label(&raw).err(),
        wire::milestone(&raw).err(),
        wire::issue(&raw).err(),
        wire::merge_request(&raw).err(),
        wire::discussion(&raw).err(),
        wire::note(&raw).err(),
    ];
    for bad in reasons.into_iter().flatten() {
        assert!(!bad.reason.trim().is_empty());
    }
    if let Ok(issue) = wire::issue(&raw) {
        assert!(!issue.title.contains('\0'), "SQLite cannot keep it");
    }
}

/// The first line is what is looked for, the rest where.
pub fn snippet_of(data: &[u8]) {
    let all = String::from_utf8_lossy(data);
    let (words, text) = all.split_once('\n').unwrap_or(("a", &all));
    let mut needles = Needles::default();
    for word in words.split_whitespace() {
        needles.stems.insert(stem::index_form(word), word.to_owned());
        needles.prefixes.insert(stem::fold(word));
        needles.runs.insert(word.to_owned());
    }
    let found = snippet::build(text, &needles);
    let length = found.text.chars().count();
    assert!(length <= snippet::LENGTH + 2, "{length}");
    assert!(!found.text.chars().any(char::is_control), "{:?}", found.text);
    let mut end = 0;
    for (from, to) in &found.highlights {
        assert!(end <= *from && from < to && *to <= length, "{:?}", found.highlights);
        end = *to;
    }
    let html = found.html().replace("<mark>", "").replace("</mark>", "");
    assert!(!html.contains(['<', '>']), "{html:?}");
}

/// A description or note: references, search terms, cuts, passages.
pub fn text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let context = RefContext {
        project_path: "group/project",
        project_url: Some("https://h/group/project"),
        own: (ItemType::Issue, 1),
    };
    let mut found = BTreeSet::new();
    for role in [RefText::Description, RefText::Comment, RefText::System] {
        collect_refs(&text, role, context, &mut found);
    }
    assert!(found.iter().all(|reference| reference.target.iid > 0), "{found:?}");
    assert_eq!(prose::without_code(&text).len(), text.len(), "offsets stay");
    let _terms = terms::document_terms(&text);
    let notes: Vec<String> = text.split("\n\n").map(str::to_owned).collect();
    for limit in [80, 300] {
        let cut = truncate::join_notes(&notes, limit, Omission::Shown);
        assert!(cut.text.chars().count() <= limit, "{limit}: {:?}", cut.text);
        assert!(truncate::cut_text(&text, limit).text.chars().count() <= limit);
    }
    let limits = Limits::of_tokens(40);
    let source = Source { title: Some("title"), heading: Some("title"), body: &text, body_start: 0 };
    for chunk in chunk::chunk(&source, &limits, &chunk::estimate_tokens).chunks {
        assert!(!chunk.text.is_empty());
    }
}
