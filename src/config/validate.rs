//! What types cannot say: ranges, shapes of paths and URLs, values that must fit together.

mod embedding;

use std::path::Path;
use std::time::Duration;

use url::Url;

use super::{Config, ExportConfig, GitlabConfig, NerBackend, RerankProvider, SourceConfig};
use crate::duration::duration_text;
use crate::secret::{SecretRef, is_variable_name};

/// Shortest overlap of incremental reads: GitLab may leave `updated_at` standing this long.
pub const MIN_OVERLAP: Duration = Duration::from_secs(60);
/// Most requests under way at once.
pub const MAX_CONCURRENCY: usize = 64;
/// Most candidates of a retriever.
pub const MAX_CANDIDATES: usize = 10_000;

/// A value that cannot be used.
pub(super) struct Problem {
    /// Its key path.
    pub(super) path: String,
    /// What is wrong. Holds no part of a URL or secret.
    pub(super) message: String,
    /// What to do.
    pub(super) suggestion: Option<String>,
}

struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Problem { path: path.into(), message: message.into(), suggestion: None });
    }

    fn check(&mut self, valid: bool, path: impl Into<String>, message: impl Into<String>) {
        if !valid {
            self.add(path, message);
        }
    }

    fn suggest(&mut self, suggestion: impl Into<String>) {
        if let Some(last) = self.0.last_mut() {
            last.suggestion = Some(suggestion.into());
        }
    }
}

/// Finds every value that cannot be used.
pub(super) fn problems(config: &Config) -> Vec<Problem> {
    let mut found = Found(Vec::new());
    for (path, value) in [("database.path", &config.database.path), ("jobs.dir", &config.jobs.dir)] {
        check_path(path, value.as_deref(), &mut found);
    }
    lock(config, &mut found);
    query(config, &mut found);
    embedding::check(&config.embedding, &mut found);
    services(config, &mut found);
    telemetry(config, &mut found);
    for (name, source) in &config.sources {
        let path = format!("sources.{name}");
        let named = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
        found.check(named, path.as_str(), "the name of a source is of letters, digits, `-` and `_`");
        match source {
            SourceConfig::Gitlab(gitlab) => check_gitlab(&path, gitlab, &mut found),
            SourceConfig::GitlabExport(export) => check_export(&path, export, &mut found),
        }
    }
    for (name, scope) in &config.scopes {
        let path = format!("scopes.{name}.projects");
        found.check(
            !scope.projects.is_empty(),
            path.as_str(),
            "a scope names at least one project, or `*` for all",
        );
        for pattern in &scope.projects {
            check_pattern(&path, pattern, &mut found);
        }
    }
    found.0
}

fn lock(config: &Config, found: &mut Found) {
    let lock = &config.lock;
    found.check(!lock.heartbeat.is_zero(), "lock.heartbeat", "the heartbeat is longer than nothing");
    if lock.lease < lock.heartbeat.saturating_mul(3) {
        let text = duration_text::format;
        found.add(
            "lock.lease",
            format!(
                "the lease, {}, is shorter than three heartbeats of {}: one late beat would lose the lock",
                text(lock.lease),
                text(lock.heartbeat)
            ),
        );
    }
}

fn query(config: &Config, found: &mut Found) {
    let query = &config.query;
    let weights = [
        ("title_weight", query.title_weight),
        ("text_weight", query.text_weight),
        ("thread_weight", query.thread_weight),
        ("terms_weight", query.terms_weight),
    ];
    for (name, weight) in weights {
        let valid = weight.is_finite() && weight >= 0.0;
        found.check(valid, format!("query.{name}"), format!("{weight} is no weight, expected 0 or more"));
    }
    let factors = [
        ("graph_factor", query.graph_factor, 1.0),
        ("hub_factor", query.hub_factor, 10.0),
        ("active_factor", query.active_factor, 10.0),
        ("pending_factor", query.pending_factor, 10.0),
        ("stale_factor", query.stale_factor, 10.0),
        ("moved_factor", query.moved_factor, 1.0),
        ("away_factor", query.away_factor, 10.0),
        ("lexical_weight", query.lexical_weight, 1.0),
    ];
    for (name, factor, most) in factors {
        let valid = factor.is_finite() && (0.0..=most).contains(&factor);
        found.check(
            valid,
            format!("query.{name}"),
            format!("{factor} is out of range, expected 0 to {most}"),
        );
    }
    let rrf_k = query.rrf_k;
    found.check(
        rrf_k.is_finite() && rrf_k >= 0.0,
        "query.rrf_k",
        format!("{rrf_k} is out of range, expected 0 or more"),
    );
    for pattern in &query.home {
        check_pattern("query.home", pattern, found);
    }
    let range = 1..=MAX_CANDIDATES;
    found.check(
        range.contains(&query.candidates),
        "query.candidates",
        format!("{} is out of range, expected 1 to {MAX_CANDIDATES}", query.candidates),
    );
}

fn services(config: &Config, found: &mut Found) {
    let rerank = &config.rerank;
    let is_on = rerank.provider != RerankProvider::None;
    if let Some(url) = &rerank.url {
        check_url("rerank.url", url, found);
    }
    found.check(
        !is_on || rerank.url.is_some(),
        "rerank.provider",
        "the address of the reranker is missing: url = \"http://…\"",
    );
    let needs_model = rerank.provider == RerankProvider::Cohere;
    found.check(
        !needs_model || rerank.model.is_some(),
        "rerank.provider",
        "`cohere` needs the name of a model: model = \"…\"",
    );
    check_secret("rerank.token", rerank.token.as_ref(), found);
    check_path("rerank.ca_file", rerank.ca_file.as_deref(), found);
    found.check(
        (2..=100).contains(&rerank.top_k),
        "rerank.top_k",
        format!("{} is out of range, expected 2 to 100", rerank.top_k),
    );
    found.check(
        rerank.weight.is_finite() && (0.0..=1.0).contains(&rerank.weight),
        "rerank.weight",
        format!("{} is out of range, expected 0 to 1", rerank.weight),
    );
    found.check(!rerank.timeout.is_zero(), "rerank.timeout", "a timeout of zero lets no request succeed");
    found.check(
        (200..=100_000).contains(&rerank.max_chars),
        "rerank.max_chars",
        format!("{} is out of range, expected 200 to 100000", rerank.max_chars),
    );
    let query = &config.query;
    if let Some(url) = &query.ner_url {
        check_url("query.ner_url", url, found);
    }
    let is_llm = query.ner == NerBackend::Llm;
    found.check(
        !is_llm || query.ner_url.is_some(),
        "query.ner",
        "the address of the model is missing: ner_url = \"http://…\"",
    );
    check_secret("query.ner_token", query.ner_token.as_ref(), found);
    found.check(
        !query.ner_timeout.is_zero(),
        "query.ner_timeout",
        "a timeout of zero lets no request succeed",
    );
}

fn telemetry(config: &Config, found: &mut Found) {
    check_path("metrics.textfile", config.metrics.textfile.as_deref(), found);
    if let Some(push) = &config.metrics.push {
        check_url("metrics.push", push, found);
    }
    found.check(
        !config.metrics.push_group.is_empty(),
        "metrics.push_group",
        "an empty group breaks the Pushgateway for everybody",
    );
    if let Some(endpoint) = &config.tracing.endpoint {
        check_url("tracing.endpoint", endpoint, found);
    }
    for (name, secret) in &config.tracing.headers {
        check_secret(&format!("tracing.headers.{name}"), Some(secret), found);
    }
    for (job, notify) in &config.notify {
        let addresses = [
            ("ping", &notify.ping),
            ("start", &notify.start),
            ("success", &notify.success),
            ("fail", &notify.fail),
        ];
        for (key, secret) in addresses {
            check_secret(&format!("notify.{job}.{key}"), secret.as_ref(), found);
        }
        found.check(
            addresses.iter().any(|(_, secret)| secret.is_some()),
            format!("notify.{job}"),
            "no address is given: ping = { env = \"NAME\" }",
        );
    }
}

fn check_gitlab(path: &str, source: &GitlabConfig, found: &mut Found) {
    check_url(&format!("{path}.url"), &source.url, found);
    check_secret(&format!("{path}.token"), source.token.as_ref(), found);
    check_path(&format!("{path}.ca_file"), source.ca_file.as_deref(), found);
    let projects = format!("{path}.projects");
    found.check(
        !source.projects.is_empty() || !source.groups.is_empty(),
        projects.as_str(),
        "no project is named: add projects = [\"group/project\"] or groups = [\"group\"]",
    );
    check_groups(path, source, found);
    for (place, project) in source.projects.iter().enumerate() {
        check_project(&projects, project, found);
        if source.projects.iter().take(place).any(|earlier| earlier == project) {
            found.add(projects.as_str(), format!("{project:?} is named twice"));
        }
    }
    let range = 1..=MAX_CONCURRENCY;
    found.check(
        range.contains(&source.concurrency),
        format!("{path}.concurrency"),
        format!("{} is out of range, expected 1 to {MAX_CONCURRENCY}", source.concurrency),
    );
    let rate = source.requests_per_second;
    found.check(
        rate.is_finite() && rate > 0.0,
        format!("{path}.requests_per_second"),
        format!("{rate} is no rate, expected more than 0"),
    );
    found.check(
        !source.timeout.is_zero(),
        format!("{path}.timeout"),
        "a timeout of zero lets no request succeed",
    );
    if source.overlap < MIN_OVERLAP {
        found.add(
            format!("{path}.overlap"),
            format!(
                "{} is shorter than the 60s for which GitLab may leave `updated_at` standing after a change",
                duration_text::format(source.overlap)
            ),
        );
    }
}

fn check_groups(path: &str, source: &GitlabConfig, found: &mut Found) {
    let groups = format!("{path}.groups");
    for (place, group) in source.groups.iter().enumerate() {
        if !is_group_path(group) {
            found.add(groups.as_str(), "not the full path of a group, as in `group/subgroup`");
            if group.contains("://") {
                found.suggest("leave out the address of the server");
            } else if group.contains('*') {
                found.suggest("name the group itself; `include` and `exclude` choose among its projects");
            }
        }
        if source.groups.iter().take(place).any(|earlier| earlier == group) {
            found.add(groups.as_str(), format!("{group:?} is named twice"));
        }
    }
    for (key, patterns) in [("include", &source.include), ("exclude", &source.exclude)] {
        let key = format!("{path}.{key}");
        if !patterns.is_empty() && source.groups.is_empty() {
            found.add(key.as_str(), "chooses among the projects of groups, and no group is named");
        }
        for pattern in patterns {
            check_pattern(&key, pattern, found);
        }
    }
}

/// Checks a pattern of project paths.
fn check_pattern(path: &str, pattern: &str, found: &mut Found) {
    let plain = pattern.strip_suffix("/*").unwrap_or(pattern);
    if pattern != "*" && (plain.contains('*') || !is_group_path(plain)) {
        found.add(path, format!("{pattern:?} is neither a project path, `group/*` nor `*`"));
    }
}

fn check_export(path: &str, source: &ExportConfig, found: &mut Found) {
    check_path(&format!("{path}.path"), Some(&source.path), found);
    check_project(&format!("{path}.project"), &source.project, found);
    if let Some(url) = &source.web_url {
        check_url(&format!("{path}.web_url"), url, found);
    }
}

fn check_path(path: &str, value: Option<&Path>, found: &mut Found) {
    found.check(value.is_none_or(|value| !value.as_os_str().is_empty()), path, "the path is empty");
}

fn check_secret(path: &str, secret: Option<&SecretRef>, found: &mut Found) {
    let Some(secret) = secret else { return };
    let one = secret.env.is_some() != secret.file.is_some();
    found.check(one, path, "a secret is { env = \"NAME\" } or { file = \"/path\" }, exactly one of them");
    let empty = secret.env.as_ref().is_some_and(String::is_empty)
        || secret.file.as_ref().is_some_and(|file| file.as_os_str().is_empty());
    found.check(!empty, path, "the reference to the secret is empty");
    let named = secret.env.as_deref().is_none_or(|name| name.is_empty() || is_variable_name(name));
    if !named {
        found.add(path, "`env` holds the name of a variable, and what is written there is none");
        found.suggest("a name has letters, digits and `_`; the secret itself belongs into the variable");
    }
}

/// Checks an address. Nothing of it is repeated: it may hold a password.
fn check_url(path: &str, text: &str, found: &mut Found) {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => {
            found.add(path, format!("not a URL: {error}"));
            found.suggest(if text.contains('$') {
                "values are not expanded: write the address itself, or set it by a variable LORE__SOURCES__NAME__URL"
            } else {
                "for example https://gitlab.example.com"
            });
            return;
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        found.add(path, "the address does not begin with https:// or http://");
    }
    if !url.username().is_empty() || url.password().is_some() {
        found.add(path, "the address holds a user name or password");
        found.suggest("take it out, and say where the token is kept: token = { env = \"NAME\" }");
    }
    if url.query().is_some() || url.fragment().is_some() {
        found.add(path, "the address holds a query or fragment");
        found.suggest("the address of the server is enough, with its sub-path when it has one");
    }
}

fn check_project(path: &str, project: &str, found: &mut Found) {
    if is_group_path(project) && project.contains('/') {
        return;
    }
    found.add(path, "not the full path of a project, as in `group/subgroup/project`");
    if project.contains("://") {
        found.suggest("leave out the address of the server");
    }
}

/// Whether a text is a path of namespaces: no empty part, no white space.
fn is_group_path(text: &str) -> bool {
    !text.is_empty()
        && text.split('/').all(|part| {
            !part.is_empty()
                && part != "."
                && part != ".."
                && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
        })
}
