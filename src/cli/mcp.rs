//! `lore mcp`: the index as tools for agents, on standard input and output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Value, json};

use super::query::{Highlight, ScopeArgs, json as answers};
use super::{App, Human, show};
use crate::clock;
use crate::config::Config;
use crate::engine::cancel::Cancel;
use crate::engine::signals;
use crate::error::{Error, Result, io_error};
use crate::mcp::arguments::{GetThread, Mode as ModeArgument, Search, Similar, Status, plain_words};
use crate::mcp::{Tools, bounds, serve};
use crate::search::filter::{self, Known, Scope};
use crate::search::meaning::Service;
use crate::search::memory::ProcessMemory;
use crate::search::wanted::{OPERATORS, Wanted};
use crate::search::{self, Assist, Group, Mode, Options, Request, Settings};
use crate::store::search as sql;
use crate::store::{OpenOptions, Store, cursors, embeddings, lock, queues, runs};

/// Results of an answer unless told otherwise.
const LIMIT: u32 = 10;

/// Results of an answer at most.
const MAX_LIMIT: u32 = 50;

/// Characters of a passage at most.
const MAX_PASSAGE: u32 = 2_000;

/// Newest runs among which each job's last one is looked for.
const RUNS: i64 = 200;

/// What an agent is told of a result.
const FIELDS: [&str; 14] = [
    "reference",
    "title",
    "url",
    "source_type",
    "state",
    "author",
    "created_at",
    "updated_at",
    "labels",
    "score",
    "relevance",
    "rerank_score",
    "snippet",
    "related",
];

/// Answer the tools of an agent.
#[derive(Debug, clap::Args)]
pub struct McpArgs {
    #[command(flatten)]
    scope: ScopeArgs,
}

/// Runs `lore mcp` until its input ends or a signal comes.
///
/// # Errors
/// Those of the configuration, [`ErrorKind::Usage`](crate::error::ErrorKind::Usage) for an unknown scope, and those of
/// [`serve`]. A database that is not there is no error: the tools say so.
pub fn run(args: &McpArgs, app: &mut App) -> Result<()> {
    // Standard output belongs to the protocol: what goes wrong before it is told elsewhere.
    app.globals.json = false;
    let library = Library {
        config: app.config()?.clone(),
        vars: app.world.vars.clone(),
        database: app.database_path()?,
        options: app.open_options()?,
        scope: args.scope.resolve(app)?,
        memory: ProcessMemory::default(),
    };
    let cancel = Cancel::new();
    signals::install(&cancel)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        // Two of them are the streams.
        .max_blocking_threads(10)
        .enable_all()
        .build()
        .map_err(|error| io_error("start the protocol's runtime", error))?;
    let stop = async move { cancel.cancelled().await };
    let served = runtime.block_on(serve(library, tokio::io::stdin(), tokio::io::stdout(), stop));
    // A read of standard input cannot be ended.
    runtime.shutdown_background();
    served
}

/// The index as it may be seen. The database is opened anew for each call: it may appear, be
/// migrated or be replaced at any time.
struct Library {
    config: Config,
    vars: BTreeMap<String, String>,
    database: PathBuf,
    options: OpenOptions,
    scope: Scope,
    /// Nothing is written: which service failed is known as long as this process lives.
    memory: ProcessMemory,
}

impl Library {
    fn open(&self) -> Result<Store> {
        Store::open_read_only(&self.database, self.options)
    }

    fn request(&self, text: String, flags: Wanted, (limit, offset): (Option<u32>, u32)) -> Result<Request> {
        if limit == Some(0) {
            return Err(Error::usage("limit must be at least 1"));
        }
        let home = &self.config.query.home;
        Ok(Request {
            text,
            like: None,
            flags,
            mode: Mode::Hybrid,
            raw: false,
            group: Group::Item,
            limit: limit.unwrap_or(LIMIT).min(MAX_LIMIT) as usize,
            offset: offset as usize,
            min_score: None,
            scope: self.scope.clone(),
            settings: Settings::of_config(&self.config.query),
            now: clock::now_ms(),
            options: Options { home: (!home.is_empty()).then(|| home.clone()), ..Options::default() },
        })
    }

    /// Answers as `lore query` does, but writes nothing.
    fn answer(&self, request: &Request, limit: Option<u32>) -> Result<Value> {
        let store = self.open()?;
        let vars = |name: &str| self.vars.get(name).cloned();
        let memory = &self.memory;
        let service = Service { config: &self.config.embedding, vars: &vars, memory };
        let assist = Assist { rerank: &self.config.rerank, query: &self.config.query, vars: &vars, memory };
        let mut answer = search::answer_through(&store, Some(&service), Some(&assist), request)?;
        if limit.is_some_and(|limit| limit > MAX_LIMIT) {
            answer.warnings.push(format!("limit is lowered to {MAX_LIMIT}; use offset for more"));
        }
        let fields = FIELDS.map(str::to_owned);
        let Value::Object(mut data) = answers::data(request, &answer, Highlight::None, false, &fields)?
        else {
            return Err(Error::internal("an answer is no object"));
        };
        data.retain(|name, _| !matches!(name.as_str(), "facets" | "like"));
        if let Some(Value::Array(results)) = data.get_mut("results") {
            for (result, hit) in results.iter_mut().zip(&answer.hits) {
                if let (Value::Object(result), Some(passage)) = (result, &hit.passage) {
                    result.insert("passage".to_owned(), passage.as_str().into());
                }
            }
        }
        let kept = bounds::fit(&mut data, "results");
        if kept < answer.hits.len()
            && let Some(Value::Array(warnings)) = data.get_mut("warnings")
        {
            warnings.truncate(20);
            warnings.push("more results would make the answer too long: go on at next_offset".into());
        }
        let next = request.offset.saturating_add(kept);
        data.insert("total_is_exact".to_owned(), answer.total.exact.into());
        data.insert("next_offset".to_owned(), (kept > 0 && next < answer.total.count).then_some(next).into());
        Ok(Value::Object(data))
    }
}

/// Filters of the tools' arguments: the argument's name, the filter's, and its values.
fn wanted(filters: &[(&str, &str, &[String])]) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    for (argument, name, values) in filters {
        for value in *values {
            if value.trim().is_empty() {
                return Err(Error::usage(format!("{argument} holds an empty value")).hint("leave it out"));
            }
            wanted.set(name, value, argument, clock::now_ms())?;
        }
    }
    Ok(wanted)
}

impl Tools for Library {
    fn search(&self, arguments: Search) -> Result<Value> {
        let one = |value: &Option<String>| value.iter().cloned().collect::<Vec<_>>();
        let flags = wanted(&[
            ("types", "type", &arguments.types),
            ("projects", "project", &arguments.projects),
            ("authors", "author", &arguments.authors),
            ("labels", "label", &arguments.labels),
            ("paths", "path", &arguments.paths),
            ("states", "state", &arguments.states),
            ("milestone", "milestone", &one(&arguments.milestone)),
            ("assignee", "assignee", &one(&arguments.assignee)),
            ("created_after", "after", &one(&arguments.created_after)),
            ("created_before", "before", &one(&arguments.created_before)),
            ("updated_after", "updated", &one(&arguments.updated_after)),
        ])?;
        let mut request = self.request(arguments.query, flags, (arguments.limit, arguments.offset))?;
        request.mode = match arguments.mode {
            ModeArgument::Hybrid => Mode::Hybrid,
            ModeArgument::Lexical => Mode::Lexical,
            ModeArgument::Semantic => Mode::Semantic,
        };
        let passage = arguments.passage_chars.min(MAX_PASSAGE) as usize;
        request.options.passage_chars = (passage > 0).then_some(passage);
        self.answer(&request, arguments.limit)
    }

    fn get_thread(&self, arguments: GetThread) -> Result<Value> {
        let store = self.open()?;
        let thread = show::read(&store, &arguments.reference, arguments.system_notes, &self.scope)?;
        let mut text = Vec::new();
        show::write(&mut Human::plain(&mut text), &thread)
            .map_err(|error| io_error("write the thread", error))?;
        let text = String::from_utf8_lossy(&text);
        let chars = arguments.max_chars.map_or(bounds::PART, |chars| chars as usize);
        let chars = chars.clamp(bounds::MIN_PART, bounds::MAX_PART);
        let offset = usize::try_from(arguments.offset).unwrap_or(usize::MAX);
        let (part, next, total) = bounds::part(&text, offset, chars);
        Ok(json!({
            "reference": bounds::clip(&thread.reference, 500),
            "title": bounds::clip(&thread.title, 1_000),
            "state": bounds::clip(&thread.state, 100),
            "url": thread.url.as_deref().map(|url| bounds::clip(url, 1_000)),
            "text": part,
            "offset": arguments.offset,
            "next_offset": next,
            "total_chars": total,
        }))
    }

    fn similar(&self, arguments: Similar) -> Result<Value> {
        let text = match (&arguments.reference, &arguments.text) {
            (Some(_), None) => String::new(),
            (None, Some(text)) => plain_words(text, OPERATORS),
            (Some(_), Some(_)) | (None, None) => {
                return Err(Error::usage("give either reference or text"));
            }
        };
        let flags = wanted(&[
            ("types", "type", &arguments.types),
            ("projects", "project", &arguments.projects),
            ("states", "state", &arguments.states),
        ])?;
        let mut request = self.request(text, flags, (arguments.limit, arguments.offset))?;
        request.like = arguments.reference;
        self.answer(&request, arguments.limit)
    }

    fn status(&self, Status {}: Status) -> Result<Value> {
        let store = self.open()?;
        let now = clock::now_ms();
        let mut status = store.read(|tx| {
            let known = Known { projects: sql::projects(tx)?, ..Known::default() };
            let access = filter::access(&self.scope, &known);
            let visible = sql::compile(tx, &access)?;
            let documents = sql::visible_count(tx, &access, visible.as_ref(), sql::corpus(tx)?.documents)?;
            let newest = sql::hydrate(tx, &sql::newest(tx, visible.as_ref(), 1)?)?;
            let newest = newest.first().and_then(|document| document.updated_at.or(document.created_at));
            let projects: Vec<&str> = known
                .projects
                .iter()
                .map(|project| project.path.as_str())
                .filter(|path| self.scope.allows(path))
                .collect();
            let coverage = embeddings::coverage(tx)?;
            let mut seen = BTreeSet::new();
            let last_runs: Vec<Value> = runs::newest(tx, None, RUNS)?
                .into_iter()
                .filter(|run| seen.insert(run.job.clone()))
                .map(|run| {
                    json!({
                        "job": run.job,
                        "state": run.state,
                        "started_at": clock::rfc3339(run.started_at),
                        "finished_at": run.finished_at.map(clock::rfc3339),
                    })
                })
                .collect();
            let mut status = json!({
                "now": clock::rfc3339(now),
                "documents": documents,
                "newest_document_at": newest.map(clock::rfc3339),
                "projects": projects,
                "project_count": projects.len(),
                "confidential_is_shown": self.scope.include_restricted,
                "embeddings": {
                    "coverage_pct": coverage.coverage_pct,
                    "model": coverage.identity.map(|identity| identity.model),
                },
                "run_under_way": lock::state(tx)?.owner.is_some(),
                "last_runs": last_runs,
            });
            // These count what lies outside of a scope too.
            if self.scope.projects.is_none() {
                status["queues"] = queues::depths(tx, now)?
                    .into_iter()
                    .map(|queue| {
                        json!({
                            "queue": queue.queue,
                            "waiting": queue.depth,
                            "failing": queue.failed,
                            "given_up": queue.quarantined,
                        })
                    })
                    .collect();
                status["failing_streams"] = cursors::stream_failures(tx)?.len().into();
            }
            Ok(status)
        })?;
        if let Some(status) = status.as_object_mut() {
            bounds::fit(status, "projects");
        }
        Ok(status)
    }
}
