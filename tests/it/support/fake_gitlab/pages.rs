//! Paging: by offset with its headers, and by keyset with `Link` alone.

use serde_json::{Value, json};

use super::http::{Reply, Request};
use super::settings::{Paging, Settings};

/// A list to page.
pub(super) struct Listing<'a, T> {
    /// Everything, in order.
    pub rows: Vec<T>,
    /// What a row shows; nothing when it may not be seen, which is found out after the page
    /// was cut.
    pub show: &'a dyn Fn(&T) -> Option<Value>,
    /// What the rows are called in messages.
    pub what: &'static str,
}

/// Answers with the page that was asked for.
pub(super) fn by_offset<T>(list: Listing<'_, T>, settings: &Settings, request: &Request, own: &str) -> Reply {
    let (page, per_page) = (number(request, "page", 1), per_page(settings, request));
    let offset = (page - 1) * per_page;
    if offset >= settings.max_offset {
        let text = format!(
            "Offset pagination has a maximum allowed offset of {} for requests that return objects of type {}. Remaining records can be retrieved using keyset pagination.",
            settings.max_offset, list.what
        );
        return Reply::json(405, &json!({ "error": text }));
    }
    let (total, n_pages) = (list.rows.len(), list.rows.len().div_ceil(per_page).max(1));
    let shown: Vec<Value> = list.rows.iter().skip(offset).take(per_page).filter_map(list.show).collect();
    let link = |page: usize, rel: &str| {
        let mut pairs = kept(request, &["page", "per_page"]);
        pairs.extend([format!("page={page}"), format!("per_page={per_page}")]);
        link(settings, request, own, &pairs, rel)
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
        Paging::Full if total <= settings.max_total => {
            links.push(link(n_pages, "last"));
            told(reply)
                .with("Link", links.join(", "))
                .with("x-total", total.to_string())
                .with("x-total-pages", n_pages.to_string())
        }
        Paging::Full | Paging::NoTotal => told(reply).with("link", links.join(", ")),
    }
}

/// Answers with the rows behind the cursor that was sent. `key` orders the rows, which are in
/// that order already. The list ends with an empty page that has no `Link`.
pub(super) fn by_keyset<T>(
    list: Listing<'_, T>,
    key: &dyn Fn(&T) -> (i64, i64),
    descending: bool,
    settings: &Settings,
    request: &Request,
    own: &str,
) -> Reply {
    let per_page = per_page(settings, request);
    let after = request.param("cursor").and_then(|text| {
        let (first, second) = text.split_once('_')?;
        Some((first.parse::<i64>().ok()?, second.parse::<i64>().ok()?))
    });
    let is_behind =
        |row: &&T| after.is_none_or(|after| if descending { key(row) < after } else { key(row) > after });
    let page: Vec<&T> = list.rows.iter().filter(is_behind).take(per_page).collect();
    let last = page.last().map(|row| key(row));
    let shown: Vec<Value> = page.into_iter().filter_map(list.show).collect();
    let reply = Reply::json(200, &Value::Array(shown));
    match last {
        None => reply,
        Some((first, second)) => {
            let mut pairs = kept(request, &["cursor", "per_page"]);
            pairs.extend([format!("cursor={first}_{second}"), format!("per_page={per_page}")]);
            reply.with("Link", link(settings, request, own, &pairs, "next"))
        }
    }
}

fn number(request: &Request, name: &str, default: usize) -> usize {
    request.param(name).and_then(|text| text.parse().ok()).filter(|n| *n > 0).unwrap_or(default)
}

fn per_page(settings: &Settings, request: &Request) -> usize {
    number(request, "per_page", 20).min(settings.max_per_page)
}

/// Pairs of the query that a link repeats.
fn kept(request: &Request, without: &[&str]) -> Vec<String> {
    request
        .query()
        .into_iter()
        .filter(|(key, _)| !without.contains(&key.as_str()))
        .map(|(key, value)| format!("{}={}", encode(&key), encode(&value)))
        .collect()
}

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn link(settings: &Settings, request: &Request, own: &str, pairs: &[String], rel: &str) -> String {
    let path = request.path().strip_prefix(settings.prefix.as_str()).unwrap_or_default();
    format!("<{own}{path}?{}>; rel=\"{rel}\"", pairs.join("&"))
}
