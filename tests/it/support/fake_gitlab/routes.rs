//! The API over the model: routes, filters, order, paging.

use serde_json::{Value, json};

use super::http::{Reply, Request, decode};
use super::model::{Item, Kind, Model, Project, time};
use super::{Paging, Settings};

/// Answers a request.
pub fn answer(model: &Model, settings: &Settings, request: &Request, authority: &str) -> Reply {
    let date = chrono::DateTime::from_timestamp_millis(model.now).unwrap_or_default();
    respond(model, settings, request, authority)
        .with("Date", date.format("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .with("RateLimit-Limit", "2000")
        .with("RateLimit-Remaining", "1999")
}

fn respond(model: &Model, settings: &Settings, request: &Request, authority: &str) -> Reply {
    let root = format!("{}/api/v4/", settings.prefix);
    let Some(path) = request.path().strip_prefix(&root) else {
        return Reply::text(404, "text/html", "<!DOCTYPE html><html>The page could not be found</html>");
    };
    if let Some(token) = &settings.token
        && request.header("private-token") != Some(token)
    {
        return error(401, "401 Unauthorized");
    }
    if request.method != "GET" {
        return error(405, "405 Method Not Allowed");
    }
    let segments: Vec<String> = path.split('/').map(decode).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let ["projects", wanted, rest @ ..] = parts.as_slice() else { return error(404, "404 Not Found") };
    let own = settings
        .foreign_authority
        .clone()
        .unwrap_or_else(|| format!("http://{authority}{}", settings.prefix));
    let (id, project) = match find_project(model, wanted) {
        Found::Here(id, project) => (id, project),
        Found::Moved(id) => {
            let rest: String = rest.iter().map(|part| format!("/{part}")).collect();
            let location = format!("{own}/api/v4/projects/{id}{rest}");
            return Reply::text(
                301,
                "text/plain",
                &format!("This resource has been moved permanently to {location}"),
            )
            .with("Location", location);
        }
        Found::Nowhere => return error(404, "404 Project Not Found"),
    };
    let stream = match rest {
        [] => "project",
        [_, _, last @ "discussions"] => last,
        [first, ..] => first,
    };
    if let Some(status) = project.denied.get(stream) {
        return error(*status, if *status == 403 { "403 Forbidden" } else { "404 Not found" });
    }
    let list = |rows: Vec<Value>| page(rows, settings, request, &own);
    match rest {
        [] => Reply::json(200, &project_row(id, project)),
        ["labels"] => list(project.labels.clone()),
        ["milestones"] => list(project.milestones.clone()),
        ["issues"] => items(project, Kind::Issue, request).map_or_else(|reply| reply, list),
        ["merge_requests"] => items(project, Kind::MergeRequest, request).map_or_else(|reply| reply, list),
        [name, iid] | [name, iid, "discussions"] => {
            let kind = if *name == "issues" { Kind::Issue } else { Kind::MergeRequest };
            match iid.parse().ok().and_then(|iid| project.items.get(&(kind, iid))) {
                None => error(404, "404 Not found"),
                Some(item) if rest.len() == 2 => Reply::json(200, &item.listed()),
                Some(item) => {
                    let mut reply = list(item.discussions.clone());
                    // Hidden ones are removed after the page was cut.
                    if let Ok(Value::Array(mut rows)) = serde_json::from_slice(&reply.body) {
                        rows.retain(|row| row["id"].as_str().is_none_or(|id| !item.hidden.contains(id)));
                        reply.body = Value::Array(rows).to_string().into_bytes();
                    }
                    reply
                }
            }
        }
        _ => error(404, "404 Not Found"),
    }
}

fn error(status: u16, message: &str) -> Reply {
    Reply::json(status, &json!({ "message": message }))
}

enum Found<'a> {
    Here(i64, &'a Project),
    Moved(i64),
    Nowhere,
}

fn find_project<'a>(model: &'a Model, wanted: &str) -> Found<'a> {
    if let Some((id, project)) = wanted.parse().ok().and_then(|id: i64| model.projects.get_key_value(&id)) {
        return Found::Here(*id, project);
    }
    if let Some((id, project)) = model.projects.iter().find(|(_, project)| project.path == wanted) {
        return Found::Here(*id, project);
    }
    let moved = model.projects.iter().find(|(_, project)| project.old_paths.iter().any(|old| old == wanted));
    moved.map_or(Found::Nowhere, |(id, _)| Found::Moved(*id))
}

fn project_row(id: i64, project: &Project) -> Value {
    let mut row = project.row.clone();
    row["id"] = json!(id);
    row["path_with_namespace"] = json!(project.path);
    row["web_url"] = json!(format!("https://gitlab.example.com/{}", project.path));
    row
}

fn items(project: &Project, kind: Kind, request: &Request) -> Result<Vec<Value>, Reply> {
    let after = match request.param("updated_after") {
        None => None,
        Some(text) => match chrono::DateTime::parse_from_rfc3339(&text) {
            Ok(time) => Some(time.timestamp_millis()),
            Err(_) => return Err(Reply::json(400, &json!({"error": "updated_after is invalid"}))),
        },
    };
    let state = request.param("state").unwrap_or_else(|| "all".to_owned());
    let mut found: Vec<&Item> = project
        .items
        .iter()
        .filter(|((other, _), item)| {
            *other == kind
                && after.is_none_or(|after| item.updated_at >= after)
                && (state == "all" || item.row["state"] == json!(state))
        })
        .map(|(_, item)| item)
        .collect();
    let id = |item: &Item| item.row["id"].as_i64().unwrap_or(0);
    let by_update = request.param("order_by").as_deref() == Some("updated_at");
    let key = |item: &Item| if by_update { item.updated_at } else { id(item) };
    let ascending = request.param("sort").as_deref() == Some("asc");
    found.sort_by(|a, b| {
        let order = key(a).cmp(&key(b));
        let order = if ascending { order } else { order.reverse() };
        // The tie-break is descending whatever `sort` says.
        order.then(id(b).cmp(&id(a)))
    });
    Ok(found.into_iter().map(Item::listed).collect())
}

fn page(rows: Vec<Value>, settings: &Settings, request: &Request, own: &str) -> Reply {
    let number = |name: &str, default: usize| {
        request.param(name).and_then(|text| text.parse().ok()).filter(|n| *n > 0).unwrap_or(default)
    };
    let (page, per_page) = (number("page", 1), number("per_page", 20).min(settings.max_per_page));
    let offset = (page - 1) * per_page;
    if offset >= settings.max_offset {
        let text = format!(
            "Offset pagination has a maximum allowed offset of {} for requests that return objects of type Issue. Remaining records can be retrieved using keyset pagination.",
            settings.max_offset
        );
        return Reply::json(405, &json!({ "error": text }));
    }
    let (total, n_pages) = (rows.len(), rows.len().div_ceil(per_page).max(1));
    let shown: Vec<Value> = rows.into_iter().skip(offset).take(per_page).collect();
    let link = |page: usize, rel: &str| {
        let mut pairs: Vec<String> = request
            .query()
            .into_iter()
            .filter(|(key, _)| key != "page" && key != "per_page")
            .map(|(key, value)| format!("{key}={}", value.replace('+', "%2B").replace(':', "%3A")))
            .collect();
        pairs.extend([format!("page={page}"), format!("per_page={per_page}")]);
        let path = request.path().strip_prefix(settings.prefix.as_str()).unwrap_or_default();
        format!("<{own}{path}?{}>; rel=\"{rel}\"", pairs.join("&"))
    };
    let next = (page < n_pages).then_some(page + 1);
    let mut links = Vec::new();
    links.extend((page > 1).then(|| link(page - 1, "prev")));
    links.extend(next.map(|next| link(next, "next")));
    links.push(link(1, "first"));
    let text = |page: Option<usize>| page.map(|page| page.to_string()).unwrap_or_default();
    let reply = Reply::json(200, &Value::Array(shown));
    let told = |reply: Reply| {
        reply
            .with("X-Page", page.to_string())
            .with("x-per-page", per_page.to_string())
            .with("x-next-page", text(next))
            .with("x-prev-page", text((page > 1).then(|| page - 1)))
    };
    match settings.paging {
        Paging::None => reply,
        Paging::LinkOnly => match next {
            Some(next) => reply.with("Link", link(next, "next")),
            None => reply,
        },
        Paging::NoTotal => told(reply).with("link", links.join(", ")),
        Paging::Full => {
            links.push(link(n_pages, "last"));
            told(reply)
                .with("Link", links.join(", "))
                .with("x-total", total.to_string())
                .with("x-total-pages", n_pages.to_string())
        }
    }
}

/// A label row.
pub fn label(id: i64, name: &str) -> Value {
    json!({"id": id, "name": name, "color": "#ff0000", "description": null, "text_color": "#FFFFFF"})
}

/// A milestone row.
pub fn milestone(id: i64, title: &str, now: i64) -> Value {
    json!({"id": id, "iid": id, "title": title, "description": "", "state": "active", "due_date": null,
           "created_at": time(now), "updated_at": time(now), "web_url": null})
}
