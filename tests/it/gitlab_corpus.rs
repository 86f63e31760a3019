//! Two ways to the same documents: a corpus loaded into the server and synced over REST, and
//! the export archive of the same data.
//!
//! `LORE_CORPUS_WHOLE=1` compares everything; otherwise items are left out for time.

use std::collections::BTreeMap;

use rusqlite::Connection;

use crate::gitlab_recorded::shared;
use crate::support::binary::Bench;
use crate::support::dump::open;
use crate::support::fake_gitlab::FakeGitlab;

/// A document of an item or of a discussion, by what both ways name alike.
type Documents = BTreeMap<(String, String, i64), Vec<String>>;

fn documents(connection: &Connection, up_to: i64) -> Documents {
    let mut statement = connection
        .prepare(
            "SELECT source_type, item_type, item_iid, content_text || char(10) || 'STATE ' || state || ' LABELS ' || label_names
                    || ' CONFIDENTIAL ' || is_confidential || ' INTERNAL ' || is_internal || ' CREATED ' || coalesce(created_at, '-')
                    || ' THREAD ' || coalesce(thread_text, '')
               FROM documents WHERE item_iid <= ?1",
        )
        .unwrap();
    let mut found = Documents::new();
    let rows = statement
        .query_map([up_to], |row| Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get::<_, String>(3)?)))
        .unwrap();
    for row in rows {
        let (key, text) = row.unwrap();
        found.entry(key).or_default().push(text);
    }
    found.values_mut().for_each(|texts| texts.sort());
    found
}

/// The lines that only one of two texts has.
fn differing_lines(rest: &str, export: &str) -> Vec<String> {
    let (rest, export): (Vec<&str>, Vec<&str>) = (rest.lines().collect(), export.lines().collect());
    let only = |sign: char, a: &[&str], b: &[&str]| -> Vec<String> {
        a.iter().filter(|line| !b.contains(line)).map(|line| format!("{sign} {line}")).collect()
    };
    let mut lines = only('<', &rest, &export);
    lines.extend(only('>', &export, &rest));
    lines
}

/// Whether two texts differ in author lines alone, `@login (day):`, for the same day: over
/// REST a note has the login of its time, an archive has one login per person.
fn is_other_login(lines: &[String]) -> bool {
    let days = |sign: &str| -> Vec<String> {
        let ours = lines.iter().filter_map(|line| line.strip_prefix(sign));
        ours.filter_map(|line| Some(line.strip_prefix(" @")?.split_once(" (")?.1.to_owned())).collect()
    };
    let (rest, archive) = (days("<"), days(">"));
    !rest.is_empty() && rest == archive && rest.len() * 2 == lines.len()
}

fn compare(folder: &str, archive: &str, path: &str) {
    let Some(dir) = shared(&format!("gitlab/corpus/{folder}")) else { return };
    #[expect(clippy::disallowed_methods, reason = "how much to test")]
    let whole = std::env::var("LORE_CORPUS_WHOLE").is_ok();
    let max = if whole { usize::MAX } else { 60 };
    let server = FakeGitlab::start();
    let loaded = server.edit(|model| {
        let project = model.add_project(path);
        model.project(project).row["web_url"] = format!("https://gitlab.example.com/{path}").into();
        let loaded = model.load_folder(project, &dir, max);
        model.now = 1_790_000_000_000;
        loaded
    });
    let mut bench = Bench::new();
    bench.var("GITLAB_TOKEN", "test-token");
    bench.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab\"\nurl = {:?}\ntoken = {{ env = \"GITLAB_TOKEN\" }}\nprojects = [{path:?}]\n\
             requests_per_second = 100000.0\n",
            server.url()
        ),
    );
    for _ in 0..loaded.items.div_ceil(1000) {
        bench.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    }
    let requests = server.take_log().len();
    let other = Bench::new();
    other.write(
        "lore.toml",
        &format!(
            "[sources.main]\nkind = \"gitlab-export\"\npath = {:?}\nproject = {path:?}\nweb_url = \"https://gitlab.example.com/{path}\"\n",
            dir.join(archive)
        ),
    );
    other.lore(["run", "sync", "--skip", "embed", "--quiet"]).ok();
    let rest = documents(&open(&bench.database()), i64::MAX);
    let mut export = documents(&open(&other.database()), i64::MAX);
    if !whole {
        // The archive cannot be cut: what was not loaded is left out of the comparison.
        let known: Vec<(String, i64)> =
            rest.keys().filter(|key| key.0 != "discussion").map(|key| (key.1.clone(), key.2)).collect();
        export.retain(|key, _| known.contains(&(key.1.clone(), key.2)));
    }
    let (n_rest, n_export) = (count(&rest), count(&export));
    let (mut n_logins, mut differences) = (0, Vec::<String>::new());
    for key in rest.keys().chain(export.keys()).collect::<std::collections::BTreeSet<_>>() {
        let (a, b) =
            (rest.get(key).cloned().unwrap_or_default(), export.get(key).cloned().unwrap_or_default());
        if a.len() != b.len() {
            differences.push(format!("{key:?}: {} documents over REST, {} of the archive", a.len(), b.len()));
        }
        for (a, b) in a.iter().zip(&b).filter(|(a, b)| a != b) {
            let lines = differing_lines(a, b);
            if is_other_login(&lines) {
                n_logins += 1;
            } else {
                differences.push(format!("{key:?}: {lines:?}"));
            }
        }
    }
    eprintln!(
        "{folder}: {} items, {} notes, {requests} requests; {n_rest} documents over REST, {n_export} of the archive, {} differences, {n_logins} other logins",
        loaded.items,
        loaded.notes,
        differences.len()
    );
    assert!(
        n_rest > 100 && requests <= loaded.items * 11 / 10 + 100,
        "{n_rest} documents, {requests} requests"
    );
    assert!(n_logins <= n_rest / 1000, "{n_logins} other logins");
    let shown: Vec<&String> = differences.iter().take(20).collect();
    assert!(differences.is_empty(), "{} differences: {shown:#?}", differences.len());
}

fn count(documents: &Documents) -> usize {
    documents.values().map(Vec::len).sum()
}

#[test]
fn api_86_88_rest_and_export_make_the_same_documents_of_rust_2k() {
    compare("rust-2k", "rust-2k-gitlab-export.tar.gz", "rust-lang/rust-2k");
}

#[test]
fn api_86_88_rest_and_export_make_the_same_documents_of_bitcoin_core_gui() {
    compare("bitcoin-core__gui", "gui-gitlab-export.tar.gz", "bitcoin-core/gui");
}
