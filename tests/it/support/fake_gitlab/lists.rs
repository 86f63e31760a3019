//! Lists of items: filters, order, and how they are paged.

use serde_json::{Value, json};

use super::http::{Reply, Request};
use super::model::{Item, Kind, Model, Project};
use super::pages::{self, Listing};
use super::settings::{Access, Settings};

/// An item with the project it belongs to.
type Listed<'a> = (i64, &'a Project, i64, &'a Item);

/// Filters of a list, read from the query.
struct Wanted {
    updated_after: Option<i64>,
    updated_before: Option<i64>,
    created_after: Option<i64>,
    created_before: Option<i64>,
    state: String,
    labels: Vec<String>,
    confidential: Option<bool>,
    iids: Vec<i64>,
    author: Option<String>,
}

impl Wanted {
    fn read(request: &Request) -> Result<Self, Reply> {
        let micros = |name: &str| match request.param(name) {
            None => Ok(None),
            Some(text) => match chrono::DateTime::parse_from_rfc3339(&text) {
                Ok(time) => Ok(Some(time.timestamp_micros())),
                Err(_) => Err(Reply::json(400, &json!({"error": format!("{name} is invalid")}))),
            },
        };
        Ok(Self {
            updated_after: micros("updated_after")?,
            updated_before: micros("updated_before")?,
            created_after: micros("created_after")?,
            created_before: micros("created_before")?,
            state: request.param("state").unwrap_or_else(|| "all".to_owned()),
            labels: request
                .param("labels")
                .map(|names| names.split(',').map(|name| name.trim().to_owned()).collect())
                .unwrap_or_default(),
            confidential: request.param("confidential").map(|text| text == "true"),
            iids: request
                .query()
                .into_iter()
                .filter(|(key, _)| key == "iids[]" || key == "iids")
                .filter_map(|(_, value)| value.parse().ok())
                .collect(),
            author: request.param("author_username"),
        })
    }

    fn takes(&self, iid: i64, item: &Item) -> bool {
        let updated = updated(item);
        let created = created(item);
        self.updated_after.is_none_or(|after| updated >= after)
            && self.updated_before.is_none_or(|before| updated <= before)
            && self.created_after.is_none_or(|after| created >= after)
            && self.created_before.is_none_or(|before| created <= before)
            && (self.state == "all" || item.text("state") == Some(self.state.as_str()))
            && self
                .labels
                .iter()
                .all(|name| item.row["labels"].as_array().is_some_and(|labels| labels.contains(&json!(name))))
            && self.confidential.is_none_or(|wanted| item.row["confidential"] == json!(wanted))
            && (self.iids.is_empty() || self.iids.contains(&iid))
            && self.author.as_ref().is_none_or(|name| item.row["author"]["username"] == json!(name))
    }
}

/// Microseconds of the last update.
fn updated(item: &Item) -> i64 {
    item.updated_at * 1000 + item.micros
}

fn created(item: &Item) -> i64 {
    let time = item.text("created_at").and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
    time.map_or(0, |time| time.timestamp_micros())
}

/// Whether an item may be seen.
pub(super) fn may_see(item: &Item, access: Access, username: &str) -> bool {
    item.row["confidential"] != json!(true)
        || access >= Access::Reporter
        || item.row["author"]["username"] == json!(username)
}

/// The row of an item as it is shown to a token: where a moved issue went is known only to
/// those who may read there.
pub(super) fn shown(model: &Model, item: &Item, may_read: &dyn Fn(i64) -> bool) -> Value {
    let mut row = item.listed();
    if let Some(to) = row.get("moved_to_id").and_then(Value::as_i64) {
        let mut holders = model.projects.iter();
        let there = holders.find(|(_, project)| project.items.values().any(|item| item.id() == to));
        if there.is_some_and(|(id, _)| !may_read(*id)) {
            row["moved_to_id"] = Value::Null;
        }
    }
    row
}

/// Answers a list of items of some projects; `access` is what the token may do in each.
pub(super) fn answer(
    model: &Model,
    settings: &Settings,
    request: &Request,
    own: &str,
    kind: Kind,
    projects: &[(i64, &Project)],
    access: &dyn Fn(&Project) -> Access,
) -> Reply {
    let wanted = match Wanted::read(request) {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    let mut rows: Vec<Listed<'_>> = Vec::new();
    for (id, project) in projects {
        let level = access(project);
        rows.extend(
            project
                .items
                .iter()
                .filter(|((other, iid), item)| *other == kind && wanted.takes(*iid, item))
                .filter(|(_, item)| kind == Kind::MergeRequest || may_see(item, level, &settings.username))
                .map(|((_, iid), item)| (*id, *project, *iid, item)),
        );
    }
    let order = request.param("order_by").unwrap_or_else(|| "created_at".to_owned());
    let key = |(_, _, _, item): &Listed<'_>| match order.as_str() {
        "updated_at" => updated(item),
        "id" => item.id(),
        _ => created(item),
    };
    let ascending = request.param("sort").as_deref() == Some("asc");
    let is_keyset = request.param("pagination").as_deref() == Some("keyset")
        && kind == Kind::Issue
        && projects.len() == 1
        && settings.is_at_least(18, 3);
    rows.sort_by(|a, b| {
        let by_key = if ascending { key(a).cmp(&key(b)) } else { key(b).cmp(&key(a)) };
        // The tie-break of offset lists is descending whatever `sort` says; a cursor needs
        // one direction.
        let by_id = if is_keyset && ascending { a.3.id().cmp(&b.3.id()) } else { b.3.id().cmp(&a.3.id()) };
        by_key.then(by_id)
    });
    let may_read = |id: i64| {
        model
            .projects
            .get(&id)
            .is_some_and(|project| access(project) > Access::Public || project.says("visibility", "public"))
    };
    let simple = request.param("view").as_deref() == Some("simple");
    let details = request.param("with_labels_details").as_deref() == Some("true");
    let show = |(_, project, _, item): &Listed<'_>| {
        let mut row = shown(model, item, &may_read);
        if simple && let Some(fields) = row.as_object_mut() {
            let kept = [
                "id",
                "iid",
                "project_id",
                "title",
                "description",
                "state",
                "created_at",
                "updated_at",
                "web_url",
            ];
            fields.retain(|key, _| kept.contains(&key.as_str()));
        }
        if details && let Some(names) = row.get_mut("labels").and_then(Value::as_array_mut) {
            for name in names {
                let label = project.labels.iter().find(|label| label["name"] == *name);
                *name = label.cloned().unwrap_or_else(|| json!({"id": null, "name": name}));
            }
        }
        Some(row)
    };
    let what = if kind == Kind::Issue { "Issue" } else { "MergeRequest" };
    let list = Listing { rows, show: &show, what };
    if is_keyset {
        let place = |row: &Listed<'_>| (key(row), row.3.id());
        return pages::by_keyset(list, &place, !ascending, settings, request, own);
    }
    pages::by_offset(list, settings, request, own)
}
