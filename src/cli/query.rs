//! `lore query`: asks the index.

mod context;
mod explain;
mod human;
pub(super) mod json;

use std::io::Write as _;

use clap::ValueEnum;

use super::App;
use crate::clock;
use crate::config::RerankProvider;
use crate::diagnostic::nearest;
use crate::error::{Error, ErrorKind, Result};
use crate::search::filter::Scope;
use crate::search::meaning::Service;
use crate::search::wanted::Wanted;
use crate::search::{self, Assist, Group, MAX_LIMIT, Mode, Options, Request, Settings};
use crate::store::Store;

/// Ask the index.
#[derive(Debug, clap::Args)]
pub struct QueryArgs {
    /// What to look for: words, "a phrase", +must, -mustnot, begin*, #12, !34, and filters
    /// like label:bug is:open author:ann project:group/app type:mr path:src/ path:*.rs after:7d
    /// in:title; -label:bug leaves out
    #[arg(allow_hyphen_values = true, value_name = "TEXT")]
    text: Option<String>,
    /// Words that were not quoted together.
    #[arg(value_name = "TEXT", hide = true)]
    more: Vec<String>,
    /// Instead of TEXT: what is like this item, similar threads and likely duplicates
    #[arg(long, value_name = "REF", conflicts_with = "text")]
    like: Option<String>,
    /// How to look
    #[arg(long, value_enum, ignore_case = true, default_value_t = ModeArg::Hybrid)]
    mode: ModeArg,
    /// Only this type: issue, mr or discussion; repeat for any of several
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only by this author; repeat for any of several
    #[arg(long, value_name = "USERNAME")]
    author: Vec<String>,
    /// Only in this project: its path, the last part of it, or group/*; repeat for any of several
    #[arg(long, value_name = "PROJECT")]
    project: Vec<String>,
    /// Only with this label; repeat for all of several
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Only what touches this file, or with a trailing / anything below this directory
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// Only in this state: open, closed, merged or locked; repeat for any of several
    #[arg(long, value_name = "STATE")]
    state: Vec<String>,
    /// Only of this milestone
    #[arg(long, value_name = "TITLE")]
    milestone: Option<String>,
    /// Only assigned to this user
    #[arg(long, value_name = "USERNAME")]
    assignee: Option<String>,
    /// Only created since: a day, a time, or an age like 7d or 2w
    #[arg(long, value_name = "WHEN")]
    after: Option<String>,
    /// Only created before
    #[arg(long, value_name = "WHEN")]
    before: Option<String>,
    /// Only updated since
    #[arg(long, value_name = "WHEN")]
    updated_after: Option<String>,
    /// Results at most, 1 to 100
    #[arg(long, value_name = "N", default_value = "20", value_parser = positive, allow_negative_numbers = true)]
    limit: u64,
    /// Results to pass over; far down, beyond `query.candidates`, the order is that of the
    /// words alone
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    offset: u32,
    /// Steps from the best results to what they refer to or what refers to them, 0 to 3
    #[arg(long, visible_alias = "expand", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(0..=3), allow_negative_numbers = true)]
    depth: u8,
    /// What lies outside of this project, group/* or scope of the configuration counts less;
    /// repeat for several
    #[arg(long, value_name = "PROJECT")]
    home: Vec<String>,
    /// Ask the configured reranker; it is asked unless told otherwise
    #[arg(long, overrides_with = "no_rerank")]
    rerank: bool,
    /// Ask no reranker
    #[arg(long)]
    no_rerank: bool,
    /// Show where each result came from and what each stage took
    #[arg(long)]
    explain: bool,
    /// How to read the text: safe takes anything, raw is FTS5's own syntax
    #[arg(long, value_enum, default_value_t = FtsMode::Safe, value_name = "MODE")]
    fts_mode: FtsMode,
    /// What counts as one result: an item with its discussions, or each document
    #[arg(long, value_enum, default_value_t = GroupArg::Item)]
    group: GroupArg,
    /// Only results with at least this score, 0 to 1, as shown
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    min_score: Option<f64>,
    /// How hits are marked in snippets: ansi, mark (HTML), none; default: ansi when coloured
    #[arg(long, value_enum)]
    highlight: Option<Highlight>,
    #[command(flatten)]
    scope: ScopeArgs,
    /// Count all results by project, type, label, author and month
    #[arg(long)]
    facets: bool,
    /// Form of the answer: text, json (as --json), ndjson (a result a line), context (passages
    /// with numbered sources, for a language model)
    #[arg(long, value_enum, value_name = "FORM")]
    format: Option<Format>,
    /// With --format context: tokens at most, estimated
    #[arg(long, value_name = "N", default_value_t = context::DEFAULT_TOKENS, allow_negative_numbers = true)]
    max_tokens: usize,
    /// With --json and ndjson: only these fields of each result
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    fields: Vec<String>,
}

/// What may be seen.
#[derive(Debug, clap::Args)]
pub(super) struct ScopeArgs {
    /// Answer inside this scope of the configuration only
    #[arg(long, value_name = "NAME")]
    scope: Option<String>,
    /// Answer confidential items and internal notes too
    #[arg(long)]
    include_confidential: bool,
}

impl ScopeArgs {
    /// The scope that the configuration gives the name.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an unknown scope, or one that is asked to be widened.
    pub(super) fn resolve(&self, app: &App) -> Result<Scope> {
        let config = app.config()?;
        let Some(name) = &self.scope else {
            let include_restricted = self.include_confidential || config.query.include_confidential;
            return Ok(Scope { projects: None, include_restricted });
        };
        let Some(scope) = config.scopes.get(name) else {
            let known: Vec<&str> = config.scopes.keys().map(String::as_str).collect();
            let hint = if known.is_empty() {
                "the configuration has no [scopes.NAME]".to_owned()
            } else {
                format!("known scopes: {}", known.join(", "))
            };
            return Err(Error::usage(format!("there is no scope {name:?}")).hint(hint));
        };
        if self.include_confidential && !scope.include_confidential {
            return Err(Error::usage(format!("the scope {name:?} does not show confidential content"))
                .hint("leave --include-confidential out, or name another scope"));
        }
        Ok(Scope { projects: Some(scope.projects.clone()), include_restricted: scope.include_confidential })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModeArg {
    /// By words and by meaning
    Hybrid,
    /// By words
    #[value(alias = "fts")]
    Lexical,
    /// By meaning
    #[value(alias = "vector")]
    Semantic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FtsMode {
    /// Any text is valid
    Safe,
    /// FTS5's own query syntax
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GroupArg {
    /// An item with its discussions
    Item,
    /// Each document
    None,
}

/// How hits are marked in a snippet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Highlight {
    /// Bold, for terminals
    Ansi,
    /// HTML with `<mark>`; everything else is escaped
    Mark,
    /// Plain text
    None,
}

/// Form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// A JSON object a line, one for each result
    Ndjson,
    /// Passages with their sources
    Context,
}

fn positive(text: &str) -> std::result::Result<u64, String> {
    match text.parse::<u64>() {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) if *error.kind() == std::num::IntErrorKind::PosOverflow => {
            Err("it is too large".to_owned())
        }
        Err(_) => Err("it must be a whole number, at least 1".to_owned()),
    }
}

impl QueryArgs {
    /// The text, whether it was quoted as a whole or not.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a word that is a misspelt flag: it would silently be searched for.
    fn text(&self) -> Result<String> {
        let first = self.text.as_deref().unwrap_or_default();
        if let Some(flag) = first.strip_prefix("--").filter(|rest| !rest.contains(char::is_whitespace)) {
            let command = <Self as clap::Args>::augment_args(clap::Command::new("query"));
            let known: Vec<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
            if let Some(near) = nearest(flag, known.iter().copied()) {
                return Err(Error::usage(format!("there is no flag --{flag}; did you mean --{near}?"))
                    .hint(format!("to search for it, quote it inside the text: '\"--{flag}\"'")));
            }
        }
        let words: Vec<&str> = std::iter::once(first).chain(self.more.iter().map(String::as_str)).collect();
        Ok(words.join(" "))
    }

    fn wanted(&self, now: clock::Millis) -> Result<Wanted> {
        let mut wanted = Wanted::default();
        let one = |value: &Option<String>| value.iter().cloned().collect::<Vec<_>>();
        for (name, flag, values) in [
            ("type", "--type", self.types.clone()),
            ("author", "--author", self.author.clone()),
            ("project", "--project", self.project.clone()),
            ("label", "--label", self.label.clone()),
            ("path", "--path", self.path.clone()),
            ("state", "--state", self.state.clone()),
            ("milestone", "--milestone", one(&self.milestone)),
            ("assignee", "--assignee", one(&self.assignee)),
            ("after", "--after", one(&self.after)),
            ("before", "--before", one(&self.before)),
            ("updated", "--updated-after", one(&self.updated_after)),
        ] {
            for value in values {
                if value.trim().is_empty() {
                    return Err(Error::usage(format!("{flag} is empty")));
                }
                wanted.set(name, &value, flag, now)?;
            }
        }
        Ok(wanted)
    }

    /// The home projects: those of the flags, else those of the configuration. A name that is
    /// that of a scope means its projects.
    fn home(&self, app: &App) -> Result<Option<Vec<String>>> {
        let config = app.config()?;
        let patterns: Vec<String> = self
            .home
            .iter()
            .flat_map(|name| match config.scopes.get(name) {
                Some(scope) => scope.projects.clone(),
                None => vec![name.trim_matches('/').to_owned()],
            })
            .collect();
        let patterns = if patterns.is_empty() { config.query.home.clone() } else { patterns };
        Ok((!patterns.is_empty()).then_some(patterns))
    }

    fn request(&self, app: &App) -> Result<Request> {
        let now = clock::now_ms();
        let query = &app.config()?.query;
        let min_score = self.min_score;
        if min_score.is_some_and(|score| !(0.0..=1.0).contains(&score)) {
            return Err(Error::usage("--min-score must lie between 0 and 1"));
        }
        Ok(Request {
            text: self.text()?,
            like: self.like.clone(),
            flags: self.wanted(now)?,
            mode: match self.mode {
                ModeArg::Hybrid => Mode::Hybrid,
                ModeArg::Lexical => Mode::Lexical,
                ModeArg::Semantic => Mode::Semantic,
            },
            raw: self.fts_mode == FtsMode::Raw,
            group: match self.group {
                GroupArg::Item => Group::Item,
                GroupArg::None => Group::None,
            },
            limit: usize::try_from(self.limit).unwrap_or(usize::MAX).min(MAX_LIMIT),
            offset: self.offset as usize,
            min_score,
            scope: self.scope.resolve(app)?,
            settings: Settings::of_config(query),
            now,
            options: Options {
                depth: usize::from(self.depth),
                home: self.home(app)?,
                explain: self.explain,
                rerank: !self.no_rerank || self.rerank,
                facets: self.facets,
                passage_chars: (self.format == Some(Format::Context))
                    .then(|| context::passage_chars(self.max_tokens)),
            },
        })
    }
}

/// Runs `lore query`.
///
/// # Errors
/// Those of [`search::answer`], and [`ErrorKind::InvalidEnumValue`] for an unknown field.
pub fn run(args: &QueryArgs, app: &mut App) -> Result<()> {
    let unknown = args.fields.iter().find(|field| !json::FIELDS.contains(&field.trim()));
    if let Some(field) = unknown {
        return Err(Error::new(ErrorKind::InvalidEnumValue, format!("--fields cannot hold {field:?}"))
            .hint(format!("fields: {}", json::FIELDS.join(", "))));
    }
    match args.format {
        Some(Format::Json) => app.globals.json = true,
        Some(Format::Text | Format::Ndjson | Format::Context) if app.globals.json => {
            if app.world.args.iter().any(|arg| arg == "--json" || arg == "--robot") {
                return Err(Error::usage("--json and another --format were both asked for")
                    .hint("leave one of them out"));
            }
            // The environment asked for JSON (LORE_ROBOT=1), the flag for something else.
            app.globals.json = false;
        }
        Some(Format::Text | Format::Ndjson | Format::Context) | None => {}
    }
    if args.format == Some(Format::Context) && args.max_tokens < context::LEAST_TOKENS {
        return Err(Error::usage(format!("--max-tokens must be at least {}", context::LEAST_TOKENS)));
    }
    let request = args.request(app)?;
    let store = app.open_read_only()?;
    let (path, options) = (app.database_path()?, app.memory_options()?);
    let service = Service {
        config: &app.config()?.embedding,
        vars: &|name| app.var(name),
        memory: &|| Store::open(&path, options),
    };
    let assist = Assist {
        rerank: &app.config()?.rerank,
        query: &app.config()?.query,
        vars: &|name| app.var(name),
        memory: &|| Store::open(&path, options),
    };
    let mut answer = search::answer_through(&store, Some(&service), Some(&assist), &request)?;
    if args.rerank && app.config()?.rerank.provider == RerankProvider::None {
        answer.warnings.push("no reranker is configured: set `provider` and `url` in [rerank]".to_owned());
    }
    if args.limit > request.limit as u64 {
        answer
            .warnings
            .push(format!("--limit {} is lowered to {MAX_LIMIT}; use --offset for more", args.limit));
    }
    let highlight = args.highlight.unwrap_or(if app.globals.color && !app.globals.json {
        Highlight::Ansi
    } else {
        Highlight::None
    });
    let data = json::data(&request, &answer, highlight, args.explain, &args.fields)?;
    let meta = json::meta(&request, &answer)?;
    if !app.globals.json && !app.globals.quiet {
        for warning in &answer.warnings {
            // Warnings are no part of the answer: when they cannot be written it still can.
            drop(writeln!(app.world.err, "warning: {}", search::snippet::printable(warning)));
        }
    }
    match args.format {
        Some(Format::Ndjson) => {
            let highlight = args.highlight.unwrap_or(Highlight::None);
            let mut lines = Vec::new();
            for hit in &answer.hits {
                let result = json::chosen(hit, highlight, args.explain, &args.fields)?;
                lines.extend_from_slice(result.to_string().as_bytes());
                lines.push(b'\n');
            }
            app.reply_with_text(&lines)?;
        }
        Some(Format::Context) => {
            let pack = context::pack(&request, &answer, args.max_tokens);
            app.reply_with_text(pack.as_bytes())?;
        }
        Some(Format::Text | Format::Json) | None => {
            let write =
                |out: &mut super::Human<'_>| human::write(out, &request, &answer, highlight, args.explain);
            app.reply_with_meta(&data, meta, write)?;
        }
    }
    super::observe::query(app, &store, &answer);
    Ok(())
}
