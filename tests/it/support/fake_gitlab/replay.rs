//! Recorded exchanges, answered by method, path and query.

use std::collections::BTreeMap;

use serde_json::Value;

use super::http::{Reply, Request, decode};

/// Recorded answers. Several of one request come in their order, the last one for ever.
#[derive(Debug, Default)]
pub struct Replay {
    answers: BTreeMap<String, Vec<Reply>>,
    /// Ids of recorded projects by path: most were recorded by id.
    ids: BTreeMap<String, i64>,
}

impl Replay {
    /// Reads exchanges, one JSON object a line.
    pub fn parse(lines: &str) -> Self {
        let mut replay = Self::default();
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let exchange: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("exchange: {error}"));
            let text = |key: &str| exchange.get(key).and_then(Value::as_str).unwrap_or_default();
            let Some((_, target)) = text("url").split_once("/api/v4") else { continue };
            let status = exchange.get("status").and_then(Value::as_u64).unwrap_or(0);
            let body = match exchange.get("body") {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => String::new(),
            };
            let project = exchange.get("body").and_then(|body| {
                Some((body.get("path_with_namespace")?.as_str()?.to_owned(), body.get("id")?.as_i64()?))
            });
            replay.ids.extend(project);
            let headers = exchange.get("headers").and_then(Value::as_object).into_iter().flatten();
            let reply = Reply {
                status: u16::try_from(status).unwrap_or(0),
                // What described the recorded bytes does not describe ours.
                headers: headers
                    .filter(|(name, _)| {
                        !["content-length", "content-encoding", "transfer-encoding", "connection"]
                            .contains(&name.to_ascii_lowercase().as_str())
                    })
                    .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                    .collect(),
                body: body.into_bytes(),
                ..Reply::default()
            };
            replay.answers.entry(key(text("method"), target)).or_default().push(reply);
        }
        replay
    }

    /// Answers a request. One that was not recorded with this query gets the longest first
    /// page of its path, one that was not recorded at all a 404.
    pub fn answer(&mut self, request: &Request) -> Reply {
        let target = request.target.split_once("/api/v4").map_or("", |(_, target)| target);
        let target = &self.by_id(target);
        let mut wanted = key(&request.method, target);
        if !self.answers.contains_key(&wanted) {
            let page: Option<u64> = request.param("page").and_then(|page| page.parse().ok());
            let path = wanted.split('?').next().unwrap_or_default();
            let first_pages = self.answers.iter().filter(|(key, _)| {
                key.split('?').next() == Some(path)
                    && key.split(['?', '&']).all(|pair| !pair.starts_with("page=") || pair == "page=1")
            });
            let longest = first_pages
                .max_by_key(|(_, replies)| replies.first().map_or(0, |reply| reply.body.len()))
                .map(|(key, _)| key.clone());
            match longest {
                Some(key) if page.is_none_or(|page| page == 1) => wanted = key,
                Some(_) | None => {
                    return Reply::json(404, &serde_json::json!({"message": "404 Not Recorded"}));
                }
            }
        }
        match self.answers.get_mut(&wanted) {
            Some(replies) if replies.len() > 1 => replies.remove(0),
            Some(replies) => replies.first().cloned().unwrap_or_default(),
            None => Reply::default(),
        }
    }

    /// The target with the path of a project replaced by its id.
    fn by_id(&self, target: &str) -> String {
        let named =
            target.strip_prefix("/projects/").map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
        match named.and_then(|named| Some((named, self.ids.get(&decode(named))?))) {
            Some((named, id)) => target.replacen(named, &id.to_string(), 1),
            None => target.to_owned(),
        }
    }
}

/// Method, path and query; the order of the query's pairs does not matter.
fn key(method: &str, target: &str) -> String {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut pairs: Vec<&str> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    pairs.sort_unstable();
    format!("{method} {path}?{}", pairs.join("&"))
}
