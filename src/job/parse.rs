//! Reads a job file: walks the TOML tree with its spans and collects every problem.
//!
//! Not by serde: one error at a time, and spans get lost in tagged enums. Only the `with`
//! tables go through serde, kind by kind (see [`super::with`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, Key};
use super::when::{self, When};
use super::{Checked, Job, JobStep, Origin, Override, Retry, cron, graph, hash};
use crate::diagnostic::{self, Diagnostic, Source, nearest};
use crate::duration::duration_text;
use crate::engine::step::StepDef;

/// Steps of a job at most. Every look at a graph costs up to the square of it.
const MAX_STEPS: usize = 1_000;

/// Reads one text.
pub(super) struct Reader<'a> {
    pub(super) source: Source<'a>,
    pub(super) kinds: &'a [StepDef],
    pub(super) overrides: &'a [Override],
    found: Vec<Diagnostic>,
}

/// A step as far as it could be read.
struct RawStep {
    id: String,
    id_span: Range<usize>,
    needs: Vec<(String, Range<usize>)>,
    step: Option<JobStep>,
}

pub(super) fn check(file: &str, text: &str, kinds: &[StepDef], overrides: &[Override]) -> Checked {
    let mut reader = Reader { source: Source::new(file, text), kinds, overrides, found: Vec::new() };
    let job = reader.job(file);
    let mut diagnostics = reader.found;
    diagnostics.sort_by_key(|found| (found.file != file, found.line, found.column));
    diagnostics.dedup();
    let job = job.filter(|_| !diagnostics.iter().any(Diagnostic::is_error));
    Checked { job, diagnostics }
}

impl<'a> Reader<'a> {
    /// Keeps a problem.
    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        self.found.push(diagnostic);
    }

    fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        let diagnostic = self.source.error(span, message);
        self.found.push(diagnostic);
    }

    fn job(&mut self, file: &str) -> Option<Job> {
        let (root, errors) = DeTable::parse_recoverable(self.source.text);
        for error in errors {
            let at = error.span().unwrap_or_default();
            self.error(at, format!("syntax: {}", error.message()));
        }
        let root = root.into_inner();
        self.unknown_keys(&root, &keys::JOB, "a job file");
        let stem = stem(file);
        let name =
            root.get("name").map_or_else(|| stem.clone(), |value| self.job_name(value, stem.as_deref()));
        let description = root.get("description").and_then(|value| self.text(value));
        let schedule = root.get("schedule").and_then(|value| self.schedule(value));
        let timeout = root.get("timeout").and_then(|value| self.duration(value));
        let max_parallel = root.get("max_parallel").and_then(|value| self.integer(value, 1, 64));
        let full = root.get("full").and_then(|value| self.flag(value));
        let (default_timeout, default_retry) = self.defaults(root.get("defaults"));
        let raw = self.steps(root.get("steps"), default_timeout, default_retry);
        self.check_needs(&raw);
        self.check_overrides(&raw);
        self.check_timeouts(timeout, &root);
        let name = match name {
            Some(name) => name,
            None if root.contains_key("name") => String::new(),
            None => {
                self.error(0..0, "the job has no name: add `name = \"…\"`");
                String::new()
            }
        };
        let count = raw.len();
        let steps: Vec<JobStep> = raw.into_iter().filter_map(|raw| raw.step).collect();
        if steps.len() != count || steps.is_empty() {
            return None;
        }
        let mut job = Job {
            name,
            description,
            schedule,
            timeout,
            max_parallel: max_parallel.and_then(|count| usize::try_from(count).ok()).unwrap_or(2),
            full: full.unwrap_or(false),
            steps,
            hash: String::new(),
            origin: Origin::File(PathBuf::from(file)),
        };
        job.hash = hash::of(&job);
        Some(job)
    }

    fn job_name(&mut self, value: &Spanned<DeValue<'_>>, stem: Option<&str>) -> Option<String> {
        let name = self.text(value)?;
        if !is_name(&name) {
            self.error(
                value.span(),
                format!("`{name}` is no name for a job: use letters, digits, `-` and `_`"),
            );
        } else if let Some(stem) = stem
            && stem != name
        {
            let warning = self
                .source
                .error(value.span(), format!("the job is named `{name}` but its file `{stem}.toml`"))
                .suggest(format!("`lore run` finds it by the name of the file: name it `{stem}`"))
                .warning();
            self.report(warning);
        }
        Some(name)
    }

    fn schedule(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = self.text(value)?;
        if let Err(error) = cron::check(&text) {
            let span = self.inside(value, &text, &error.span);
            self.error(span, error.message);
        }
        Some(text)
    }

    fn defaults(&mut self, value: Option<&Spanned<DeValue<'_>>>) -> (Option<Duration>, Retry) {
        let Some(table) = value.and_then(|value| self.table(value)) else {
            return (None, Retry::default());
        };
        self.unknown_keys(table, &keys::DEFAULTS, "[defaults]");
        let timeout = table.get("timeout").and_then(|value| self.duration(value));
        let retry = table.get("retry").map(|value| self.retry(value, Retry::default()));
        (timeout, retry.unwrap_or_default())
    }

    fn retry(&mut self, value: &Spanned<DeValue<'_>>, default: Retry) -> Retry {
        let mut retry = default;
        let Some(table) = self.table(value) else {
            return retry;
        };
        self.unknown_keys(table, &keys::RETRY, "`retry`");
        if let Some(count) = table.get("max_attempts").and_then(|value| self.integer(value, 1, 100)) {
            retry.max_attempts = u32::try_from(count).unwrap_or(1);
        }
        if let Some(base) = table.get("base").and_then(|value| self.duration(value)) {
            retry.backoff.base = base;
        }
        if let Some(max) = table.get("max").and_then(|value| self.duration(value)) {
            retry.backoff.max = max;
        }
        if retry.backoff.base > retry.backoff.max {
            let text = duration_text::format;
            let message = format!(
                "the first wait, {}, is longer than the longest, {}",
                text(retry.backoff.base),
                text(retry.backoff.max)
            );
            self.error(value.span(), message);
        }
        retry
    }

    fn steps(
        &mut self,
        value: Option<&Spanned<DeValue<'_>>>,
        timeout: Option<Duration>,
        retry: Retry,
    ) -> Vec<RawStep> {
        let Some(value) = value else {
            self.error(0..0, "a job has at least one step: add `[steps.NAME]`");
            return Vec::new();
        };
        let Some(table) = self.table(value) else {
            return Vec::new();
        };
        if table.is_empty() {
            self.error(value.span(), "a job has at least one step: add `[steps.NAME]`");
        }
        if table.len() > MAX_STEPS {
            self.error(
                value.span(),
                format!("a job has at most {MAX_STEPS} steps, this one has {}: split it", table.len()),
            );
            return Vec::new();
        }
        // The parser sorts keys by name; people sort them by meaning.
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
            .into_iter()
            .map(|(key, value)| {
                let id = key.get_ref().to_string();
                if !is_name(&id) {
                    self.error(
                        key.span(),
                        format!("`{id}` is no name for a step: use letters, digits, `-` and `_`"),
                    );
                }
                let mut raw = RawStep { id, id_span: key.span(), needs: Vec::new(), step: None };
                if let Some(table) = self.table(value) {
                    self.step(&mut raw, table, timeout, retry);
                }
                raw
            })
            .collect()
    }

    fn step(&mut self, raw: &mut RawStep, table: &DeTable<'_>, timeout: Option<Duration>, retry: Retry) {
        self.unknown_keys(table, &keys::STEP, &format!("[steps.{}]", raw.id));
        raw.needs = table.get("needs").map(|value| self.names(value)).unwrap_or_default();
        let when = table.get("when").and_then(|value| self.when(value));
        let timeout = match table.get("timeout") {
            Some(value) => self.duration(value),
            None => timeout,
        };
        let retry = table.get("retry").map_or(retry, |value| self.retry(value, retry));
        let allow_failure = table.get("allow_failure").and_then(|value| self.flag(value));
        let Some(def) = self.kind(raw, table.get("uses")) else {
            return;
        };
        let Some(params) = self.params(def, &raw.id, table.get("with"), raw.id_span.clone()) else {
            return;
        };
        raw.step = Some(JobStep {
            id: raw.id.clone(),
            kind: def.kind,
            needs: raw.needs.iter().map(|(need, _)| need.clone()).collect(),
            when: when.unwrap_or_default(),
            timeout,
            retry,
            allow_failure: allow_failure.unwrap_or(false),
            params,
        });
    }

    fn kind(&mut self, raw: &RawStep, uses: Option<&Spanned<DeValue<'_>>>) -> Option<&'a StepDef> {
        let (kind, span) = match uses {
            Some(value) => (self.text(value)?, value.span()),
            None => (raw.id.clone(), raw.id_span.clone()),
        };
        if let Some(def) = self.kinds.iter().find(|def| def.kind == kind) {
            return Some(def);
        }
        let known: Vec<&str> = self.kinds.iter().map(|def| def.kind).collect();
        let diagnostic = self.source.error(span, format!("unknown step kind `{kind}`"));
        let list = known.join(", ");
        self.report(match (nearest(&kind, known), uses) {
            (Some(near), _) => diagnostic.suggest(format!("did you mean `{near}`?")),
            (None, Some(_)) => diagnostic.suggest(format!("known: {list}")),
            (None, None) => diagnostic.suggest(format!("say which with `uses = \"…\"`; known: {list}")),
        });
        None
    }

    fn when(&mut self, value: &Spanned<DeValue<'_>>) -> Option<When> {
        let text = self.text(value)?;
        match when::parse(&text) {
            Ok(when) => Some(when),
            Err(error) => {
                let span = self.inside(value, &text, &error.span);
                let mut diagnostic = self.source.error(span, format!("`when`: {}", error.message));
                diagnostic.suggestion = error.suggestion;
                self.report(diagnostic);
                None
            }
        }
    }

    fn check_needs(&mut self, steps: &[RawStep]) {
        let places: BTreeMap<&str, usize> =
            steps.iter().enumerate().map(|(place, step)| (step.id.as_str(), place)).collect();
        let mut graph: Vec<Vec<usize>> = Vec::new();
        for step in steps {
            let mut needs: Vec<usize> = Vec::new();
            for (need, span) in &step.needs {
                if *need == step.id {
                    self.error(span.clone(), format!("step `{need}` needs itself"));
                    continue;
                }
                let Some(place) = places.get(need.as_str()) else {
                    let diagnostic = self.source.error(span.clone(), format!("there is no step `{need}`"));
                    let list: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
                    let others = list.iter().copied().filter(|id| *id != step.id);
                    self.report(match nearest(need, others) {
                        Some(near) => diagnostic.suggest(format!("did you mean `{near}`?")),
                        None => diagnostic.suggest(format!("steps: {}", diagnostic::list(list))),
                    });
                    continue;
                };
                if needs.contains(place) {
                    self.error(span.clone(), format!("`{need}` is needed twice"));
                    continue;
                }
                needs.push(*place);
            }
            graph.push(needs);
        }
        for cycle in graph::cycles(&graph) {
            let ids: Vec<&str> =
                cycle.iter().filter_map(|at| steps.get(*at)).map(|s| s.id.as_str()).collect();
            let (Some(first), Some(last)) = (ids.first(), cycle.last().and_then(|at| steps.get(*at))) else {
                continue;
            };
            // The need that closes the circle, as it is read.
            let closing = last.needs.iter().find(|(need, _)| need == first);
            let span = closing.map_or(last.id_span.clone(), |(_, span)| span.clone());
            self.error(span, format!("steps need each other: {} -> {first}", ids.join(" -> ")));
        }
    }

    fn check_timeouts(&mut self, timeout: Option<Duration>, root: &DeTable<'_>) {
        let Some(run) = timeout else {
            return;
        };
        let steps = root.get("steps").and_then(|steps| steps.get_ref().as_table());
        for value in steps.into_iter().flat_map(DeTable::values) {
            let Some(value) = value.get_ref().get("timeout") else {
                continue;
            };
            let step = value.get_ref().as_str().and_then(duration_text::parse);
            if step.is_some_and(|step| step > run) {
                let warning =
                    self.source.error(value.span(), "longer than the timeout of the whole run").warning();
                self.report(warning);
            }
        }
    }

    fn unknown_keys(&mut self, table: &DeTable<'_>, known: &[Key], place: &str) {
        for (key, _) in table {
            let name = key.get_ref().as_ref();
            if known.iter().any(|known| known.name == name) {
                continue;
            }
            let names = || known.iter().map(|key| key.name);
            let foreign = keys::ELSEWHERE.iter().find(|(word, _)| *word == name).map(|(_, ours)| *ours);
            let near = nearest(name, names()).or(foreign.filter(|ours| names().any(|known| known == *ours)));
            let diagnostic = self.source.error(key.span(), format!("unknown key `{name}` in {place}"));
            self.report(match near {
                Some(near) => diagnostic.suggest(format!("did you mean `{near}`?")),
                None => diagnostic.suggest(format!("known: {}", names().collect::<Vec<_>>().join(", "))),
            });
        }
    }

    fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, expected: &str) {
        // What the parser puts where it found nothing readable is reported as bad syntax.
        if value.span().is_empty() {
            return;
        }
        self.error(
            value.span(),
            format!("invalid type: {}, expected {expected}", value.get_ref().type_str()),
        );
    }

    fn text(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let text = value.get_ref().as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong_type(value, "a string");
        }
        text
    }

    fn flag(&mut self, value: &Spanned<DeValue<'_>>) -> Option<bool> {
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong_type(value, "true or false");
        }
        flag
    }

    fn table<'t, 'i>(&mut self, value: &'t Spanned<DeValue<'i>>) -> Option<&'t DeTable<'i>> {
        let table = value.get_ref().as_table();
        if table.is_none() {
            self.wrong_type(value, "a table");
        }
        table
    }

    fn integer(&mut self, value: &Spanned<DeValue<'_>>, min: i64, max: i64) -> Option<i64> {
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, &format!("an integer from {min} to {max}"));
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| (min..=max).contains(number));
        if number.is_none() {
            self.error(value.span(), format!("{integer} is out of range, expected {min} to {max}"));
        }
        number
    }

    fn duration(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Duration> {
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(value, duration_text::FORM);
            return None;
        };
        let parsed = duration_text::parse(text);
        match parsed {
            Some(Duration::ZERO) => self.error(value.span(), "a duration of zero would never be enough"),
            Some(_) => {}
            None => {
                let message = format!("invalid duration {text:?}, expected {}", duration_text::FORM);
                self.error(value.span(), message);
            }
        }
        parsed
    }

    fn names(&mut self, value: &Spanned<DeValue<'_>>) -> Vec<(String, Range<usize>)> {
        let Some(list) = value.get_ref().as_array() else {
            self.wrong_type(value, "a list of step names");
            return Vec::new();
        };
        list.iter().filter_map(|value| Some((self.text(value)?, value.span()))).collect()
    }

    /// The bytes of the file that `span` of the string `text` stands at: exact when the
    /// string is written without escapes, else the whole value.
    fn inside(&self, value: &Spanned<DeValue<'_>>, text: &str, span: &Range<usize>) -> Range<usize> {
        let whole = value.span();
        let written = self.source.text.get(whole.clone()).unwrap_or_default();
        for quotes in [1, 3] {
            if written.get(quotes..quotes + text.len()) == Some(text)
                && written.len() == text.len() + 2 * quotes
            {
                let start = whole.start + quotes;
                return start + span.start..start + span.end.max(span.start + 1);
            }
        }
        whole
    }

    fn check_overrides(&mut self, steps: &[RawStep]) {
        let overrides = self.overrides;
        for given in overrides {
            if steps.iter().any(|step| step.id == given.step) {
                continue;
            }
            let source = Source::new("--set", &given.text);
            let diagnostic = source.error(0..given.step.len(), format!("there is no step `{}`", given.step));
            let ids: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
            self.report(match nearest(&given.step, ids.iter().copied()) {
                Some(near) => diagnostic.suggest(format!("did you mean `{near}`?")),
                None => diagnostic.suggest(format!("steps: {}", ids.join(", "))),
            });
        }
    }
}

/// Name of a file without its directories and `.toml`; nothing for what is no such file.
fn stem(file: &str) -> Option<String> {
    let name = file.rsplit(['/', '\\']).next()?;
    name.strip_suffix(".toml").filter(|stem| is_name(stem)).map(str::to_owned)
}

/// Whether a text can name a job or a step.
pub(super) fn is_name(text: &str) -> bool {
    text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}
