//! How fast documents are made: processor time of 20,000 synthetic sources.
//!
//! Also of the real issues of `rust-2k`, with the sizes that come of them, when
//! `LORE_SHARED` names the directory that holds them. Processor time and not wall time: it
//! is what a busy machine disturbs least, and one thread does all the work.
#![expect(clippy::print_stderr, reason = "it reports to whoever runs it")]
#![expect(clippy::expect_used, reason = "a benchmark that cannot run has nothing to report")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lore::config::Config;
use lore::content::{Author, Discussion, Issue, ItemType, MergeRequest, Note, Project, SourceType};
use lore::engine::cancel::Cancel;
use lore::engine::ctx::{RunOptions, StepCtx};
use lore::engine::progress::{Progress, ProgressMode};
use lore::engine::step::{Step, StepReport};
use lore::steps::regenerate_docs::RegenerateDocs;
use lore::store::{OpenOptions, Store, WriteTx, documents as store_documents, entities, queues};

/// Sources: a third issues and merge requests, two thirds discussions of two notes.
const ITEMS: i64 = 6_667;

fn regenerate(store: &Store, full: bool) -> StepReport {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let config = Config::default();
    let ctx = StepCtx {
        store,
        config: &config,
        vars: &|_| None,
        runtime: runtime.handle().clone(),
        cancel: Cancel::new(),
        deadline: None,
        options: RunOptions { full, ..RunOptions::default() },
        progress: Progress::new("regenerate-docs", ProgressMode::Silent),
        shared: lore::engine::shared::Shared::default(),
    };
    RegenerateDocs::default().run(&ctx).expect("documents")
}

/// Text of a log-normal-like length around a thousand bytes, half words, some names,
/// numbers and references.
struct Text(u64);

impl Text {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn make(&mut self, words: u64) -> String {
        const WORDS: &[&str] = &[
            "the", "of", "a", "in", "error", "when", "build", "fails", "with", "server", "token", "request",
            "is", "not", "cache", "index", "after", "update", "user", "cannot", "login", "page", "timeout",
            "while", "reading", "from",
        ];
        let mut text = String::new();
        for n in 0..words {
            let pick = self.next();
            match pick % 40 {
                0 => text.push_str(&format!("handleRequest{}", pick % 977)),
                1 => text.push_str(&format!("#{}", pick % 5_000 + 1)),
                2 => text.push_str(&format!("{:x}", pick % 0xFFFF_FFFF)),
                3 => text.push_str(&format!("module_{}.rs", pick % 499)),
                4..=14 => text.push_str(&format!("w{:x}", (pick >> 8) % 30_011)),
                _ => text.push_str(WORDS[usize::try_from(pick >> 8).unwrap_or(0) % WORDS.len()]),
            }
            text.push(if n % 17 == 16 { '\n' } else { ' ' });
        }
        text
    }
}

fn fill(store: &Store) {
    let mut text = Text(0x9E37_79B9_7F4A_7C15);
    let project = Project {
        path: "group/app".into(),
        web_url: Some("https://gitlab.example.com/group/app".into()),
        ..Project::default()
    };
    let project_id = store.write(|tx| entities::upsert_project(tx, "main", &project, 1)).expect("a project");
    let iids: Vec<i64> = (1..=ITEMS).collect();
    for part in iids.chunks(500) {
        store
            .write(|tx| part.iter().try_for_each(|iid| fill_item(tx, project_id, *iid, &mut text)))
            .expect("sources");
    }
}

fn fill_item(tx: &WriteTx<'_>, project_id: i64, iid: i64, text: &mut Text) -> lore::error::Result<()> {
    let author = Author { username: Some(format!("user{}", iid % 97)), name: None };
    let title = text.make(8);
    let words = 40 + text.next() % 220;
    let description = Some(text.make(words));
    let labels = vec![format!("label{}", iid % 13), format!("team{}", iid % 5)];
    let web_url = Some(format!("https://gitlab.example.com/group/app/-/issues/{iid}"));
    let (item_type, id) = if iid % 4 == 0 {
        let merge_request = MergeRequest {
            gitlab_id: iid,
            iid,
            title,
            description,
            state: "merged".into(),
            author,
            labels,
            web_url,
            source_branch: Some("topic".into()),
            target_branch: Some("main".into()),
            ..MergeRequest::default()
        };
        (ItemType::MergeRequest, entities::upsert_merge_request(tx, project_id, &merge_request, 1)?.id)
    } else {
        let issue = Issue {
            gitlab_id: iid,
            iid,
            title,
            description,
            state: "opened".into(),
            issue_type: "issue".into(),
            author,
            labels,
            web_url,
            ..Issue::default()
        };
        (ItemType::Issue, entities::upsert_issue(tx, project_id, &issue, 1)?.id)
    };
    let discussions: Vec<Discussion> = (0..2)
        .map(|n| Discussion {
            gitlab_id: format!("{iid}-{n}"),
            individual_note: false,
            notes: (0..2)
                .map(|m| Note {
                    gitlab_id: iid * 10 + n * 2 + m,
                    author: Author { username: Some(format!("user{}", m % 7)), name: None },
                    body: text.make(60),
                    created_at: 1_700_000_000_000 + n,
                    updated_at: 1_700_000_000_000 + n,
                    ..Note::default()
                })
                .collect(),
        })
        .collect();
    entities::replace_discussions(tx, project_id, item_type, id, &discussions, 1)?;
    Ok(())
}

fn open(path: &Path) -> Store {
    Store::open(path, OpenOptions::default()).expect("a database")
}

fn seed(store: &Store) {
    for source_type in SourceType::ALL {
        store.write(|tx| queues::seed_dirty(tx, source_type, 0, 1_000_000, 1)).expect("a queue");
    }
}

fn documents(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory");
    let template = dir.path().join("template.db");
    {
        let store = open(&template);
        fill(&store);
    }
    let fresh = || {
        let path = dir.path().join("run.db");
        for suffix in ["", "-wal", "-shm"] {
            let _gone = std::fs::remove_file(dir.path().join(format!("run.db{suffix}")));
        }
        std::fs::copy(&template, &path).expect("a copy");
        open(&path)
    };
    let mut group = criterion.benchmark_group("documents");
    group.sample_size(10).warm_up_time(Duration::from_millis(1)).measurement_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(ITEMS.unsigned_abs() * 3));

    group.bench_function("regenerate", |bencher| {
        bencher.iter_custom(|n| {
            (0..n)
                .map(|_| {
                    let store = fresh();
                    timed(|| regenerate(&store, false).count("regenerated"))
                })
                .sum()
        });
    });
    let store = fresh();
    regenerate(&store, false);
    group.bench_function("unchanged", |bencher| {
        bencher.iter_custom(|n| {
            (0..n)
                .map(|_| {
                    seed(&store);
                    timed(|| regenerate(&store, false).count("unchanged"))
                })
                .sum()
        });
    });
    group.bench_function("unchanged_full", |bencher| {
        bencher.iter_custom(|n| (0..n).map(|_| timed(|| regenerate(&store, true).count("unchanged"))).sum());
    });
    group.finish();
}

fn timed(work: impl FnOnce() -> i64) -> Duration {
    let started = processor_time();
    let n = work();
    let elapsed = processor_time() - started;
    assert_eq!(n, ITEMS * 3);
    elapsed
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Prints what documents of real text cost.
fn real_data(_criterion: &mut Criterion) {
    let Some(corpus) = std::env::var_os("LORE_SHARED")
        .map(|shared| PathBuf::from(shared).join("gitlab/corpus/rust-2k"))
        .filter(|corpus| corpus.is_dir())
    else {
        eprintln!("rust-2k: LORE_SHARED is not set, skipped");
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("real.db");
    let store = open(&path);
    load(&store, &corpus);
    let before = std::fs::metadata(&path).map_or(0, |file| file.len());
    let started = processor_time();
    let report = regenerate(&store, false);
    let elapsed = (processor_time() - started).as_secs_f64();
    let sizes = store.read(store_documents::text_bytes).expect("sizes");
    drop(store);
    let after = std::fs::metadata(&path).map_or(0, |file| file.len());
    eprintln!(
        "rust-2k: {:?} in {elapsed:.2} s, {sizes:?}, database {before} -> {after} bytes",
        report.counts
    );
}

fn lines(corpus: &Path, name: &str) -> Vec<serde_json::Value> {
    let file = std::fs::File::open(corpus.join(name)).expect("a file of the corpus");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::MultiGzDecoder::new(file), &mut text).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn load(store: &Store, corpus: &Path) {
    let text = |value: &serde_json::Value, name: &str| value[name].as_str().map(str::to_owned);
    let number = |value: &serde_json::Value, name: &str| value[name].as_i64().unwrap_or_default();
    let time = |value: &serde_json::Value, name: &str| value[name].as_str().and_then(lore::clock::parse_time);
    let author =
        |value: &serde_json::Value| Author { username: text(&value["author"], "username"), name: None };
    let labels = |value: &serde_json::Value| -> Vec<String> {
        value["labels"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|label| label.as_str().map(str::to_owned))
            .collect()
    };
    let project = Project { path: "rust-lang/rust".into(), ..Project::default() };
    let project_id = store.write(|tx| entities::upsert_project(tx, "real", &project, 1)).expect("a project");
    let mut ids: BTreeMap<(ItemType, i64), i64> = BTreeMap::new();
    store
        .write(|tx| {
            for value in lines(corpus, "issues.ndjson.gz") {
                let issue = Issue {
                    gitlab_id: number(&value, "id"),
                    iid: number(&value, "iid"),
                    title: text(&value, "title").unwrap_or_default(),
                    description: text(&value, "description"),
                    state: text(&value, "state").unwrap_or_default(),
                    issue_type: "issue".into(),
                    author: author(&value),
                    labels: labels(&value),
                    web_url: text(&value, "web_url"),
                    created_at: time(&value, "created_at").unwrap_or_default(),
                    updated_at: time(&value, "updated_at").unwrap_or_default(),
                    ..Issue::default()
                };
                ids.insert(
                    (ItemType::Issue, issue.iid),
                    entities::upsert_issue(tx, project_id, &issue, 1)?.id,
                );
            }
            for value in lines(corpus, "merge_requests.ndjson.gz") {
                let merge_request = MergeRequest {
                    gitlab_id: number(&value, "id"),
                    iid: number(&value, "iid"),
                    title: text(&value, "title").unwrap_or_default(),
                    description: text(&value, "description"),
                    state: text(&value, "state").unwrap_or_default(),
                    author: author(&value),
                    labels: labels(&value),
                    web_url: text(&value, "web_url"),
                    created_at: time(&value, "created_at").unwrap_or_default(),
                    updated_at: time(&value, "updated_at").unwrap_or_default(),
                    ..MergeRequest::default()
                };
                let id = entities::upsert_merge_request(tx, project_id, &merge_request, 1)?.id;
                ids.insert((ItemType::MergeRequest, merge_request.iid), id);
            }
            Ok(())
        })
        .expect("items");
    for (item_type, name) in [
        (ItemType::Issue, "issue_discussions.ndjson.gz"),
        (ItemType::MergeRequest, "mr_discussions.ndjson.gz"),
    ] {
        store
            .write(|tx| {
                for line in lines(corpus, name) {
                    let Some(id) = ids.get(&(item_type, number(&line, "iid"))) else { continue };
                    let discussions: Vec<Discussion> = line["discussions"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|value| Discussion {
                            gitlab_id: text(value, "id").unwrap_or_default(),
                            individual_note: value["individual_note"] == true,
                            notes: value["notes"]
                                .as_array()
                                .into_iter()
                                .flatten()
                                .map(|note| Note {
                                    gitlab_id: number(note, "id"),
                                    system: note["system"] == true,
                                    author: author(note),
                                    body: text(note, "body").unwrap_or_default(),
                                    created_at: time(note, "created_at").unwrap_or_default(),
                                    updated_at: time(note, "updated_at").unwrap_or_default(),
                                    ..Note::default()
                                })
                                .collect(),
                        })
                        .collect();
                    entities::replace_discussions(tx, project_id, item_type, *id, &discussions, 1)?;
                }
                Ok(())
            })
            .expect("discussions");
    }
}

criterion_group!(benches, documents, real_data);
criterion_main!(benches);
