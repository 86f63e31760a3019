//! The integration tests: the compiled binary from outside, and the shape of the tree.
#![expect(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the rules of the library; a test fails by panicking and reads its surroundings"
)]

/// The forms of an answer of `lore query`.
mod answers;
mod answers_schema;
/// Copies of the database.
mod backup;
/// `lore config`: places, precedence, secrets.
mod config;
/// Locks that are held, databases that another process has to itself.
mod contention;
/// The binary killed, stopped, contended.
mod crash;
/// What is in `deploy/`, and the tools that read it.
mod deploy;
/// The generated reference is up to date.
mod docs;
/// `lore doctor` against servers that are not as they should be.
mod doctor;
/// Documents of awkward texts.
mod documents;
/// Awkward bodies on their whole way.
mod edge_cases;
/// The embed step by the compiled binary.
mod embed;
/// The sample that is built in.
mod export_demo;
/// Exports that lack what an earlier one had.
mod export_gone;
/// The ingest step on export archives.
mod export_ingest;
/// Real and converted exports, when they are on this machine.
mod export_real;
/// A database and the ingest step, without the runner.
mod export_world;
/// Seeds of the fuzz targets.
mod fuzz_seeds;
/// Numbers of requests, certificates, proxies.
mod gentle;
/// A corpus over REST and the archive of the same data.
mod gitlab_corpus;
/// docs/gitlab.md names a test for every fact.
mod gitlab_docs;
/// The GitLab server of our own does what GitLab does.
mod gitlab_model;
/// More of it: groups, permissions, moves, limits, keyset paging.
mod gitlab_model_more;
/// It agrees with recorded exchanges.
mod gitlab_recorded;
/// Surroundings that do not help.
mod hostile;
/// The index changes hands while questions are asked.
mod identities;
/// The container image.
mod image;
/// `lore jobs`: finding, checking, drawing; the shipped jobs.
mod jobs;
/// Kept answers, links and history, and how they are pruned.
mod kept;
/// Bounds, and what is at them.
mod limits;
/// Literals over real projects, when they are on this machine.
mod literals;
/// `lore mcp`: the tools of agents.
mod mcp;
/// Answers by meaning, and without it.
mod meaning;
/// `lore metrics` and what real servers make of it.
mod metrics;
/// Entries that kill the process.
mod poison;
/// Answers to the committed questions are as good as they were.
mod quality;
/// `lore query` and `lore show` on the sample project.
mod query;
/// Groups and deletions from end to end.
mod reconcile;
/// What `docs/reliability.md` claims, and the doors of the database.
mod reliability;
/// Reranking and taking questions apart, by services of our own.
mod rerank;
/// `--resume` and `--skip-if-fresh`.
mod resume;
/// docs/seeds.md names a test for each behaviour.
mod seed_rows;
mod seeds_docs;
/// Every kind of step, stopped by a signal; a clock that jumps.
mod signals;
/// The table of smoke tests.
mod smoke;
/// The rows about embeddings of that table.
mod smoke_meaning;
/// Runs killed, stopped and crossed at random.
mod soak;
/// What the tests share.
mod support;
/// A GitLab server and the binary: sync, its failures and exit codes.
mod sync;
/// Layers, sizes, heads of the source files.
mod tidy;
/// Traces, log lines and pings of a run.
mod traces;
