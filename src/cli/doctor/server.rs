//! One GitLab server: token, address, version, clock, scopes, projects.

use serde_json::value::RawValue;
use url::Url;

use super::source::Look;
use super::{Checks, PATIENCE, failure, now};
use crate::config::GitlabConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::gitlab::answer::{self, Verdict};
use crate::gitlab::diagnose::{self, Finding, Missing, TokenKind, TokenRow, UserRow, VersionRow};
use crate::gitlab::{Client, Look as Answered, wire};
use crate::secret::Secret;
use crate::store::entities;

/// Projects that are looked at.
const MOST_PROJECTS: usize = 20;

/// A server that is looked at.
pub(super) struct Server<'a> {
    pub(super) look: &'a Look<'a>,
    pub(super) config: &'a GitlabConfig,
}

impl Server<'_> {
    fn label(&self, what: &str) -> String {
        self.look.label(what)
    }

    pub(super) async fn look_at(&self, checks: &mut Checks) {
        let key = format!("sources.{}.token", self.look.name);
        let token = match self.config.token.as_ref().map(|token| token.read(&key, self.look.vars)).transpose()
        {
            Ok(token) => token,
            Err(error) => return checks.fail(self.label("token"), &error),
        };
        checks.add(self.label("token"), match &token {
            Some(token) => TokenKind::of(token.expose()).judge(),
            None => Finding::warn(
                "none is configured",
                "GitLab shows discussions to tokens only, even those of public projects: set token = { env = \"…\" }",
            ),
        });
        let client = match Client::new(self.config, token.clone(), None) {
            Ok(client) => client,
            Err(error) => return checks.fail(self.label("server"), &error),
        };
        if self.look.offline {
            return checks.add(self.label("server"), Finding::ok("not asked (--offline)"));
        }
        let asked = Asked { server: self, client: &client, token: token.as_ref() };
        if asked.version(checks).await {
            if token.is_some() {
                asked.token(checks).await;
            }
            asked.projects(checks).await;
        }
    }
}

/// A server that is asked.
struct Asked<'a> {
    server: &'a Server<'a>,
    client: &'a Client,
    token: Option<&'a Secret>,
}

impl Asked<'_> {
    fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        self.client.address().url(segments, query)
    }

    async fn get(&self, url: &Url) -> Result<Answered> {
        tokio::time::timeout(PATIENCE, self.client.look(url)).await.unwrap_or_else(|_| {
            let shown = crate::secret::redact_url(url);
            Err(Error::new(
                ErrorKind::Network,
                format!("GET {shown}: no answer within {} s", PATIENCE.as_secs()),
            )
            .hint("check url of the source, the network and proxy variables (HTTPS_PROXY, NO_PROXY)"))
        })
    }

    /// What an answer that is no success comes to; nothing for a success.
    fn refusal(&self, got: &Answered, url: &Url) -> Option<Finding> {
        let secret = self.token.map(Secret::expose);
        let answer = got.answer(secret, now());
        match answer::judge(&answer) {
            Verdict::Read => None,
            Verdict::Redirect(location) => Some(diagnose::redirect(self.client.address(), url, &location)),
            Verdict::Refuse(error) | Verdict::Retry { error, .. } => Some(failure(&error.error)),
        }
    }

    /// Looks whether GitLab answers; returns whether it is worth going on.
    async fn version(&self, checks: &mut Checks) -> bool {
        let label = |what: &str| self.server.label(what);
        let url = self.url(&["version"], &[]);
        let got = match self.get(&url).await {
            Ok(got) => got,
            Err(error) => {
                checks.fail(label("server"), &error);
                return false;
            }
        };
        let clock = diagnose::skew(answer::server_time(&got.headers), now());
        let answer = got.answer(None, now());
        let (finding, goes_on) = match (self.refusal(&got, &url), got.read::<VersionRow>()) {
            (None, Some(row)) => (diagnose::version(&row), true),
            (None, None) => {
                let page = if answer.is_html() { "an HTML page" } else { "something else" };
                let text = format!("answers with {page} instead of JSON");
                let advice = "check that url of the source is the address of GitLab itself, and that no login page or proxy stands in front of it";
                (Finding::fail(ErrorKind::Config, text, advice), false)
            }
            // Without a token GitLab does not tell its version.
            (Some(_), _) if got.status == 401 && self.token.is_none() => {
                (Finding::ok("answers; it does not tell its version without a token"), true)
            }
            (Some(_), _) if got.status == 404 => (
                Finding::fail(
                    ErrorKind::Config,
                    "answers, but has no GitLab API at this address",
                    "check url of the source: it ends before /api/v4, and holds the sub-path of the installation",
                ),
                false,
            ),
            (Some(finding), _) => (finding, false),
        };
        checks.add(label("server"), finding);
        checks.add(label("clock"), clock);
        goes_on
    }

    /// Looks at what the token may do, where the server tells it (GitLab 15.5 and later).
    async fn token(&self, checks: &mut Checks) {
        let got = self.get(&self.url(&["personal_access_tokens", "self"], &[])).await;
        let Ok(Some((row, server_now))) =
            got.map(|got| Some((got.read::<TokenRow>()?, answer::server_time(&got.headers))))
        else {
            checks.add(
                self.server.label("scopes"),
                Finding::ok("the server does not tell what the token may do"),
            );
            return;
        };
        let user = self.get(&self.url(&["user"], &[])).await.ok().and_then(|got| got.read::<UserRow>());
        checks.add(self.server.label("scopes"), diagnose::scopes(&row, user.as_ref()));
        checks.add(self.server.label("expiry"), diagnose::expiry(&row, server_now.unwrap_or_else(now)));
    }

    async fn projects(&self, checks: &mut Checks) {
        let projects = &self.server.config.projects;
        for path in projects.iter().take(MOST_PROJECTS) {
            let finding = match self.project(path).await {
                Ok(finding) => finding,
                Err(error) => failure(&error),
            };
            checks.add(self.server.label(&format!("project {path}")), finding);
        }
        if projects.len() > MOST_PROJECTS {
            let more = projects.len() - MOST_PROJECTS;
            checks.add(self.server.label("projects"), Finding::ok(format!("{more} more were not looked at")));
        }
    }

    async fn project(&self, path: &str) -> Result<Finding> {
        let url = self.url(&["projects", path], &[]);
        let mut got = self.get(&url).await?;
        if let Verdict::Redirect(location) = answer::judge(&got.answer(None, now())) {
            match self.client.address().redirect(&url, &location) {
                Ok(there) => got = self.get(&there).await?,
                Err(error) => return Ok(failure(&error)),
            }
        }
        if got.status == 404 {
            let is_html = got.answer(None, now()).is_html();
            let by_number = self.by_number(path).await?;
            return Ok(diagnose::missing(Missing { by_number, is_html }));
        }
        if let Some(finding) = self.refusal(&got, &url) {
            return Ok(finding);
        }
        let Some(row) = got.read::<Box<RawValue>>().and_then(|raw| wire::project(&raw).ok()) else {
            return Ok(Finding::fail(
                ErrorKind::Network,
                "the answer is not a project",
                "check that url of the source is the address of GitLab itself",
            ));
        };
        let there = &row.project.path;
        if !there.eq_ignore_ascii_case(path) {
            return Ok(Finding::warn(
                format!("renamed or moved to {there}"),
                format!(
                    "write {there} in projects of the source; the redirect ends when the old path is taken"
                ),
            ));
        }
        let off: Vec<&str> = [(row.issues_off, "issues"), (row.merge_requests_off, "merge requests")]
            .into_iter()
            .filter_map(|(is_off, name)| is_off.then_some(name))
            .collect();
        Ok(if off.is_empty() {
            Finding::ok("can be read")
        } else {
            Finding::ok(format!("can be read; switched off in the project: {}", off.join(", ")))
        })
    }

    /// Whether a project with this path answers under its number: the number of the last run,
    /// or the one that a search tells.
    async fn by_number(&self, path: &str) -> Result<bool> {
        let is_it =
            |raw: &RawValue| wire::project(raw).is_ok_and(|row| row.project.path.eq_ignore_ascii_case(path));
        let known = match self.server.look.store {
            Some(store) => store.read(|tx| entities::project(tx, self.server.look.name, path))?,
            None => None,
        };
        if let Some(id) = known.and_then(|known| known.gitlab_id) {
            let got = self.get(&self.url(&["projects", &id.to_string()], &[])).await?;
            return Ok(got.read::<Box<RawValue>>().is_some_and(|raw| is_it(&raw)));
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        let query = [("search", name), ("per_page", "100")];
        let got = self.get(&self.url(&["projects"], &query)).await?;
        let rows = got.read::<Vec<Box<RawValue>>>().unwrap_or_default();
        Ok(rows.iter().any(|raw| is_it(raw)))
    }
}
