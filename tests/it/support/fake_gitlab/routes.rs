//! The API over the model: who asks, for what, and what they may see of it.

use serde_json::{Value, json};

use super::http::{Reply, Request, decode};
use super::limits::http_date;
use super::lists;
use super::model::{Item, Kind, Model, Project};
use super::notes::notes_of;
use super::pages::{self, Listing};
use super::rows;
pub use super::rows::{label, milestone};
use super::settings::{Access, Settings};

/// Answers a request.
pub fn answer(model: &Model, settings: &mut Settings, request: &Request, authority: &str) -> Reply {
    if let Some(limit) = &mut settings.rate {
        if let Some(refused) = limit.count(model.now) {
            return refused.with("Date", http_date(model.now));
        }
        let reply = Asked { model, settings, request, own: String::new() }.respond(authority);
        let limit = settings.rate.as_ref();
        return limit
            .map_or(reply.clone(), |limit| limit.tell(reply, model.now))
            .with("Date", http_date(model.now));
    }
    let reply = Asked { model, settings, request, own: String::new() }.respond(authority);
    let reply = reply.with("Date", http_date(model.now));
    if settings.rate_headers {
        reply.with("RateLimit-Limit", "2000").with("RateLimit-Remaining", "1999")
    } else {
        reply
    }
}

/// One request while it is answered.
struct Asked<'a> {
    model: &'a Model,
    settings: &'a Settings,
    request: &'a Request,
    /// Scheme, host, port and sub-path that links name.
    own: String,
}

fn error(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({ "message": message }))
}

impl<'a> Asked<'a> {
    fn respond(mut self, authority: &str) -> Reply {
        let (settings, request) = (self.settings, self.request);
        if settings.to_https {
            let location = format!("https://{authority}{}", request.target);
            return Reply::text(301, "text/html", "<html><body>301 Moved Permanently</body></html>")
                .with("Location", location);
        }
        let path = if settings.decodes_slashes {
            request.path().replace("%2F", "/").replace("%2f", "/")
        } else {
            request.path().to_owned()
        };
        let root = format!("{}/api/v4/", settings.prefix);
        let Some(path) = path.strip_prefix(&root) else {
            return Reply::text(404, "text/html", "<!DOCTYPE html><html>The page could not be found</html>");
        };
        let segments: Vec<String> = path.split('/').map(decode).collect();
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let access = match self.access() {
            Ok(access) => access,
            Err(reply) => return reply,
        };
        let own = format!("http://{authority}{}", settings.prefix);
        self.own = settings.foreign_authority.clone().unwrap_or(own);
        let scoped =
            |needed: &[&str]| needed.iter().any(|scope| settings.scopes.iter().any(|known| known == scope));
        let of_user = matches!(parts.as_slice(), ["user"]) && scoped(&["read_user"]);
        let of_token = matches!(parts.as_slice(), ["personal_access_tokens", "self"]);
        if access > Access::Public && !of_user && !of_token && !scoped(&["api", "read_api"]) {
            return Reply::json(
                403,
                &json!({"error": "insufficient_scope", "scope": "api read_api",
                        "error_description": "The request requires higher privileges than provided by the access token."}),
            );
        }
        self.route(&parts, access)
    }

    /// What the sender may do at all.
    fn access(&self) -> Result<Access, Reply> {
        let settings = self.settings;
        let sent = self
            .request
            .header("private-token")
            .or_else(|| self.request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")));
        let Some(sent) = sent else {
            return Ok(if settings.token.is_none() { settings.access } else { Access::Public });
        };
        if let Some(access) = settings.tokens.get(sent) {
            return Ok(*access);
        }
        if settings.token.as_ref().is_some_and(|token| token != sent) {
            return Err(error(401, "401 Unauthorized"));
        }
        match &settings.revoked {
            Some(why) => Err(Reply::json(401, &json!({"error": "invalid_token", "error_description": why}))),
            None => Ok(settings.access),
        }
    }

    fn route(&self, parts: &[&str], access: Access) -> Reply {
        if self.request.method != "GET" && self.request.method != "HEAD" {
            return match parts {
                ["projects", wanted, ..] if matches!(self.find_project(wanted), Found::Moved(_)) => {
                    error(405, "Non GET methods are not allowed for moved projects")
                }
                _ => error(405, "405 Method Not Allowed"),
            };
        }
        match parts {
            ["projects"] => self.projects(access),
            ["groups"] => self.groups(access),
            ["version" | "metadata" | "user"] | ["personal_access_tokens", "self"]
                if access == Access::Public =>
            {
                error(401, "401 Unauthorized")
            }
            ["version" | "metadata"] => Reply::json(200, &rows::version(self.settings)),
            ["user"] => Reply::json(200, &rows::current_user(self.settings)),
            ["personal_access_tokens", "self"] => Reply::json(200, &rows::token(self.settings)),
            ["issues" | "merge_requests"] => self.of_instance(parts, access),
            ["projects", wanted, rest @ ..] => self.in_project(wanted, rest, access),
            ["groups", wanted, rest @ ..] => self.in_group(wanted, rest, access),
            _ => error(404, "404 Not Found"),
        }
    }

    /// What the sender may do in a project.
    fn level(&self, project: &Project, access: Access) -> Access {
        if access == Access::Public { access } else { project.access.unwrap_or(access) }
    }

    fn may_read(&self, project: &Project, access: Access) -> bool {
        self.level(project, access) > Access::Public || project.says("visibility", "public")
    }

    fn readable(&self, access: Access) -> Vec<(i64, &'a Project)> {
        let all = self.model.projects.iter();
        all.filter(|(_, project)| self.may_read(project, access))
            .map(|(id, project)| (*id, project))
            .collect()
    }

    fn list<T>(&self, list: Listing<'_, T>) -> Reply {
        pages::by_offset(list, self.settings, self.request, &self.own)
    }

    fn values(&self, rows: Vec<Value>, what: &'static str) -> Reply {
        self.list(Listing { rows, show: &|row: &Value| Some(row.clone()), what })
    }

    /// `GET /issues` and `GET /merge_requests`: of oneself, unless `scope=all`.
    fn of_instance(&self, parts: &[&str], access: Access) -> Reply {
        if access == Access::Public {
            return error(401, "401 Unauthorized");
        }
        let kind = if parts == ["issues"] { Kind::Issue } else { Kind::MergeRequest };
        let mut request = self.request.clone();
        if request.param("scope").as_deref() != Some("all") {
            let sign = if request.target.contains('?') { '&' } else { '?' };
            request.target = format!("{}{sign}author_username={}", request.target, self.settings.username);
        }
        let projects = self.readable(access);
        let level = |project: &Project| self.level(project, access);
        lists::answer(self.model, self.settings, &request, &self.own, kind, &projects, &level)
    }

    fn projects(&self, access: Access) -> Reply {
        let rows = self.sorted(self.readable(access));
        let show = |(id, project): &(i64, &Project)| Some(rows::project(self.model, *id, project));
        let list = Listing { rows, show: &show, what: "Project" };
        if self.request.param("pagination").as_deref() != Some("keyset") {
            return self.list(list);
        }
        if self.request.param("order_by").as_deref() != Some("id") {
            return error(405, "Keyset pagination is not yet available for this type of request");
        }
        let descending = self.request.param("sort").as_deref() != Some("asc");
        let key = |(id, _): &(i64, &Project)| (*id, 0);
        pages::by_keyset(list, &key, descending, self.settings, self.request, &self.own)
    }

    /// Projects that are asked for, in the order that is asked for.
    fn sorted(&self, mut rows: Vec<(i64, &'a Project)>) -> Vec<(i64, &'a Project)> {
        if let Some(archived) = self.request.param("archived") {
            rows.retain(|(_, project)| project.row["archived"] == json!(archived == "true"));
        }
        for kind in [Kind::Issue, Kind::MergeRequest] {
            let list = kind.list();
            if self.request.param(&format!("with_{list}_enabled")).as_deref() == Some("true") {
                rows.retain(|(_, project)| !project.says(&format!("{list}_access_level"), "disabled"));
            }
        }
        let by_path = matches!(self.request.param("order_by").as_deref(), Some("path" | "name"));
        rows.sort_by(|a, b| if by_path { a.1.path.cmp(&b.1.path) } else { a.0.cmp(&b.0) });
        if self.request.param("sort").as_deref() != Some("asc") {
            rows.reverse();
        }
        rows
    }

    fn groups(&self, access: Access) -> Reply {
        let visible = self.model.groups.iter().filter(|(_, group)| self.may_see_group(&group.path, access));
        let rows: Vec<Value> = visible.map(|(id, group)| rows::group(self.model, *id, group)).collect();
        self.values(rows, "Group")
    }

    fn may_see_group(&self, path: &str, access: Access) -> bool {
        let below = format!("{path}/");
        let known = self.model.groups.values().find(|group| group.path == path);
        known.is_some_and(|group| group.row["visibility"] == json!("public"))
            || access > Access::Public
            || self.readable(access).iter().any(|(_, project)| project.path.starts_with(&below))
    }

    fn in_group(&self, wanted: &str, rest: &[&str], access: Access) -> Reply {
        let known = self.model.groups.iter();
        let mut matching = known.filter(|(id, group)| wanted.parse() == Ok(**id) || group.path == wanted);
        let Some((id, group)) = matching.next().filter(|(_, group)| self.may_see_group(&group.path, access))
        else {
            return error(404, "404 Group Not Found");
        };
        if let Some(status) = group.denied.get(rest.first().copied().unwrap_or("group")) {
            return error(*status, if *status == 403 { "403 Forbidden" } else { "404 Group Not Found" });
        }
        let below = format!("{}/", group.path);
        let is_direct = |path: &str| path.strip_prefix(&below).is_some_and(|rest| !rest.contains('/'));
        let flag =
            |name: &str, default: bool| self.request.param(name).map_or(default, |text| text == "true");
        match rest {
            [] => Reply::json(200, &rows::group(self.model, *id, group)),
            ["subgroups" | "descendant_groups"] => {
                let all = rest == ["descendant_groups"];
                let below =
                    self.model.groups.iter().filter(|(_, other)| {
                        is_direct(&other.path) || (all && other.path.starts_with(&below))
                    });
                self.values(below.map(|(id, group)| rows::group(self.model, *id, group)).collect(), "Group")
            }
            ["projects"] => {
                let mut rows = self.readable(access);
                let (deep, shared) = (flag("include_subgroups", false), flag("with_shared", true));
                rows.retain(|(id, project)| {
                    is_direct(&project.path)
                        || (deep && project.path.starts_with(&below))
                        || (shared && group.shared.contains(id))
                });
                let show = |(id, project): &(i64, &Project)| Some(rows::project(self.model, *id, project));
                self.list(Listing { rows: self.sorted(rows), show: &show, what: "Project" })
            }
            ["issues" | "merge_requests"] => {
                let kind = if rest == ["issues"] { Kind::Issue } else { Kind::MergeRequest };
                let live = flag("non_archived", true);
                let mut projects = self.readable(access);
                projects.retain(|(_, project)| {
                    project.path.starts_with(&below) && !(live && project.row["archived"] == json!(true))
                });
                let level = |project: &Project| self.level(project, access);
                lists::answer(self.model, self.settings, self.request, &self.own, kind, &projects, &level)
            }
            ["epics", ..] => error(403, "403 Forbidden"),
            _ => error(404, "404 Not Found"),
        }
    }

    fn find_project(&self, wanted: &str) -> Found<'a> {
        let projects = &self.model.projects;
        if let Some((id, project)) = wanted.parse().ok().and_then(|id: i64| projects.get_key_value(&id)) {
            return Found::Here(*id, project);
        }
        if let Some((id, project)) = projects.iter().find(|(_, project)| project.path == wanted) {
            return Found::Here(*id, project);
        }
        let moved = projects.iter().find(|(_, project)| project.old_paths.iter().any(|old| old == wanted));
        match moved {
            Some((id, _)) if self.settings.is_at_least(16, 7) => Found::Moved(*id),
            Some(_) | None => Found::Nowhere,
        }
    }

    fn in_project(&self, wanted: &str, rest: &[&str], access: Access) -> Reply {
        let (id, project) = match self.find_project(wanted) {
            Found::Here(id, project) => (id, project),
            Found::Moved(id) => {
                let rest: String = rest.iter().map(|part| format!("/{part}")).collect();
                let location = format!("{}/api/v4/projects/{id}{rest}", self.own);
                let text = format!("This resource has been moved permanently to {location}");
                return Reply::text(301, "text/plain", &text).with("Location", location);
            }
            Found::Nowhere => return error(404, "404 Project Not Found"),
        };
        if !self.may_read(project, access) {
            return error(404, "404 Project Not Found");
        }
        let stream = match rest {
            [] => "project",
            [_, _, last] => last,
            [first, ..] => first,
        };
        if let Some(status) = project.denied.get(stream) {
            return error(*status, if *status == 403 { "403 Forbidden" } else { "404 Not found" });
        }
        let level = self.level(project, access);
        let is_off = |kind: Kind| match project.row[format!("{}_access_level", kind.list())].as_str() {
            Some("disabled") => true,
            Some("private") => level == Access::Public,
            Some(_) | None => project.row[format!("{}_enabled", kind.list())] == json!(false),
        };
        match rest {
            [] => Reply::json(200, &rows::project(self.model, id, project)),
            ["labels"] => {
                let mut labels = project.labels.clone();
                labels.extend(self.model.group_labels(project));
                self.values(labels, "Label")
            }
            ["milestones"] if is_off(Kind::Issue) && is_off(Kind::MergeRequest) => {
                error(403, "403 Forbidden")
            }
            ["milestones"] => self.values(project.milestones.clone(), "Milestone"),
            // Lists of issues that are switched off are empty, those of merge requests refused.
            ["merge_requests", ..] if is_off(Kind::MergeRequest) => error(403, "403 Forbidden"),
            ["issues"] if is_off(Kind::Issue) => self.values(Vec::new(), "Issue"),
            ["issues", ..] if is_off(Kind::Issue) => error(404, "404 Not found"),
            ["issues" | "merge_requests"] => {
                let kind = if rest == ["issues"] { Kind::Issue } else { Kind::MergeRequest };
                let level = |other: &Project| self.level(other, access);
                lists::answer(
                    self.model,
                    self.settings,
                    self.request,
                    &self.own,
                    kind,
                    &[(id, project)],
                    &level,
                )
            }
            [name @ ("issues" | "merge_requests"), iid, of_item @ ..] => {
                let kind = if *name == "issues" { Kind::Issue } else { Kind::MergeRequest };
                let number: Option<i64> = iid.parse().ok();
                let found = number.and_then(|iid| Some((iid, project.items.get(&(kind, iid))?)));
                match found.filter(|(_, item)| lists::may_see(item, level, &self.settings.username)) {
                    None => error(404, "404 Not found"),
                    Some((iid, item)) => self.of_item(id, kind, iid, item, of_item, access, level),
                }
            }
            _ => error(404, "404 Not Found"),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "where the item is, and who asks")]
    fn of_item(
        &self,
        project: i64,
        kind: Kind,
        iid: i64,
        item: &Item,
        rest: &[&str],
        access: Access,
        level: Access,
    ) -> Reply {
        let may_read =
            |id: i64| self.model.projects.get(&id).is_some_and(|project| self.may_read(project, access));
        let visible = |rows: Vec<(i64, Value)>| {
            let rows = rows.into_iter().filter(|(project, _)| may_read(*project));
            self.values(rows.map(|(_, row)| row).collect(), "Issue")
        };
        let place = (project, iid);
        match (kind, rest) {
            (_, []) => Reply::json(200, &lists::shown(self.model, item, &may_read)),
            // Everybody may read public issues, but only users their notes.
            (_, ["discussions" | "notes", ..]) if access == Access::Public => error(401, "401 Unauthorized"),
            (_, ["discussions"]) => {
                let show = |row: &Value| {
                    let is_hidden = row["id"].as_str().is_some_and(|id| item.hidden.contains(id));
                    if is_hidden { None } else { rows::discussion(self.model, row, level) }
                };
                self.list(Listing { rows: item.discussions.clone(), show: &show, what: "Discussion" })
            }
            (_, ["discussions", wanted]) => {
                let found = item.discussions.iter().find(|row| row["id"].as_str() == Some(wanted));
                match found.and_then(|row| rows::discussion(self.model, row, level)) {
                    Some(row) => Reply::json(200, &row),
                    None => error(404, "404 Discussion Not Found"),
                }
            }
            (_, ["notes"]) => self.notes(item, level),
            (_, ["notes", wanted]) => {
                let mut notes = item.discussions.iter().flat_map(notes_of);
                let found = notes.find(|note| note["id"].as_i64().is_some_and(|id| wanted.parse() == Ok(id)));
                match found.filter(|note| rows::may_see_note(self.model, note, level)) {
                    Some(note) => Reply::json(200, note),
                    None => error(404, "404 Note Not Found"),
                }
            }
            (Kind::Issue, ["links"]) => visible(self.model.linked(place)),
            (Kind::Issue, ["closed_by"]) => visible(self.model.closed_by(place)),
            (Kind::Issue, ["related_merge_requests"]) => visible(self.model.related_requests(place)),
            (Kind::MergeRequest, ["closes_issues"]) => visible(self.model.closes_issues(place)),
            (_, _) => error(404, "404 Not Found"),
        }
    }

    /// `…/notes`: pages over notes, newest first unless asked otherwise.
    fn notes(&self, item: &Item, level: Access) -> Reply {
        let mut rows: Vec<Value> = item.discussions.iter().flat_map(notes_of).cloned().collect();
        let field = self.request.param("order_by").unwrap_or_else(|| "created_at".to_owned());
        let ascending = self.request.param("sort").as_deref() == Some("asc");
        rows.sort_by(|a, b| {
            let key = |row: &Value| (row[&field].as_str().map(str::to_owned), row["id"].as_i64());
            if ascending { key(a).cmp(&key(b)) } else { key(b).cmp(&key(a)) }
        });
        let show = |note: &Value| rows::may_see_note(self.model, note, level).then(|| note.clone());
        self.list(Listing { rows, show: &show, what: "Note" })
    }
}

enum Found<'a> {
    Here(i64, &'a Project),
    Moved(i64),
    Nowhere,
}
