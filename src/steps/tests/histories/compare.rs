//! What the database must hold, told by the server, and what it holds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::bench::Bench;
use crate::fake_gitlab::model::{Kind, Model};
use crate::fake_gitlab::notes::notes_of;

/// Lines that say everything that is compared.
type Lines = BTreeSet<String>;

/// Asserts that the database holds what the server shows, that nothing waits, and that the
/// documents are those of what is stored.
pub(super) fn same(bench: &Bench) {
    let (wanted, held) = (bench.server.edit(|model| wanted(model)), held(bench));
    let missing: Vec<&String> = wanted.difference(&held).collect();
    let surplus: Vec<&String> = held.difference(&wanted).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "the server shows {missing:#?}\nthe database holds {surplus:#?}"
    );
}

fn text(row: &Value, field: &str) -> String {
    match row.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

fn flag(row: &Value, field: &str) -> i64 {
    i64::from(row.get(field) == Some(&Value::Bool(true)))
}

fn wanted(model: &Model) -> Lines {
    let mut lines = Lines::new();
    for (id, project) in &model.projects {
        lines.insert(format!("project {id} {}", project.path));
        for label in &project.labels {
            lines.insert(format!("label {id} {}", text(label, "name")));
        }
        for ((kind, iid), item) in &project.items {
            let row = &item.row;
            let name = match kind {
                Kind::Issue => "issue",
                Kind::MergeRequest => "merge_request",
            };
            let mut labels: Vec<String> = row["labels"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect();
            labels.sort();
            let confidential = flag(row, "confidential");
            let moved = text(row, "moved_to_id");
            lines.insert(format!(
                "{name} {id} {iid} {} {} {labels:?} {} {} confidential={confidential} moved={moved}",
                text(row, "title"),
                text(row, "state"),
                text(row, "description"),
                item.updated_at,
            ));
            lines.insert(format!(
                "document {name} {id} {iid} {} {} confidential={confidential} {labels:?}",
                text(row, "title"),
                text(row, "state"),
            ));
            for discussion in &item.discussions {
                let key = format!("{name} {id} {iid} {}", text(discussion, "id"));
                let mut spoken = Vec::new();
                for (place, note) in notes_of(discussion).enumerate() {
                    let system = flag(note, "system");
                    lines.insert(format!(
                        "note {key} {place} {} {} system={system} internal={} resolved={}",
                        text(note, "id"),
                        text(note, "body"),
                        flag(note, "internal"),
                        flag(note, "resolved"),
                    ));
                    if system == 0 {
                        spoken.push(text(note, "body"));
                    }
                }
                if !spoken.is_empty() {
                    lines.insert(format!("document discussion {key} {spoken:?}"));
                }
            }
        }
    }
    lines
}

const HELD: &[&str] = &[
    "SELECT 'project ' || gitlab_id || ' ' || path FROM projects",
    "SELECT 'label ' || p.gitlab_id || ' ' || l.name FROM labels l JOIN projects p ON p.id = l.project_id",
    "SELECT 'waits: ' || source_type || ' ' || source_id FROM dirty_sources",
    "SELECT 'waits: ' || noteable_type || ' ' || noteable_iid || coalesce(last_error, '') FROM pending_discussion_fetches",
    "SELECT 'fails: ' || stream || ' ' || last_error FROM stream_failures",
    "SELECT 'document of nothing ' || source_type FROM documents d
      WHERE source_type = 'issue' AND NOT EXISTS (SELECT 1 FROM issues i WHERE i.id = d.source_id)
         OR source_type = 'merge_request' AND NOT EXISTS (SELECT 1 FROM merge_requests i WHERE i.id = d.source_id)
         OR source_type = 'discussion' AND NOT EXISTS (SELECT 1 FROM discussions i WHERE i.id = d.source_id)",
];

/// Key of a discussion `d`, with its project `p` and its item.
const KEY: &str =
    "CASE d.noteable_type WHEN 'Issue' THEN 'issue' ELSE 'merge_request' END || ' ' || p.gitlab_id || ' '
     || coalesce(i.iid, m.iid) || ' ' || d.gitlab_discussion_id";
const JOINS: &str = "JOIN projects p ON p.id = d.project_id
     LEFT JOIN issues i ON i.id = d.issue_id LEFT JOIN merge_requests m ON m.id = d.merge_request_id";

fn held(bench: &Bench) -> Lines {
    #[expect(clippy::disallowed_methods, reason = "tests look at the tables")]
    let connection = rusqlite::Connection::open(&bench.path).unwrap();
    let column = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap_or_else(|error| panic!("{sql}: {error}"))
    };
    let mut lines: Lines = HELD.iter().flat_map(|sql| column(sql)).collect();
    {
        let mut statement = connection
            .prepare(
                "SELECT 'issue', p.gitlab_id, iid, title, state, label_names, coalesce(description, '-'), i.updated_at,
                        confidential, coalesce(CAST(moved_to_gitlab_id AS TEXT), '-')
                   FROM issues i JOIN projects p ON p.id = i.project_id
                 UNION ALL
                 SELECT 'merge_request', p.gitlab_id, iid, title, state, label_names, coalesce(description, '-'), i.updated_at, 0, '-'
                   FROM merge_requests i JOIN projects p ON p.id = i.project_id",
            )
            .unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let names: String = row.get(5).unwrap();
            let mut labels: Vec<String> = serde_json::from_str(&names).unwrap();
            labels.sort();
            lines.insert(format!(
                "{} {} {} {} {} {labels:?} {} {} confidential={} moved={}",
                row.get::<_, String>(0).unwrap(),
                row.get::<_, i64>(1).unwrap(),
                row.get::<_, i64>(2).unwrap(),
                row.get::<_, String>(3).unwrap(),
                row.get::<_, String>(4).unwrap(),
                row.get::<_, String>(6).unwrap(),
                row.get::<_, i64>(7).unwrap(),
                row.get::<_, i64>(8).unwrap(),
                row.get::<_, String>(9).unwrap(),
            ));
        }
    }
    {
        let mut statement = connection
            .prepare(
                "SELECT d.source_type, p.gitlab_id, d.item_iid, coalesce(d.title, '?'), d.state, d.is_confidential, d.label_names
                   FROM documents d JOIN projects p ON p.id = d.project_id WHERE d.source_type <> 'discussion'",
            )
            .unwrap();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let names: String = row.get(6).unwrap();
            let mut labels: Vec<String> = serde_json::from_str(&names).unwrap();
            labels.sort();
            lines.insert(format!(
                "document {} {} {} {} {} confidential={} {labels:?}",
                row.get::<_, String>(0).unwrap(),
                row.get::<_, i64>(1).unwrap(),
                row.get::<_, i64>(2).unwrap(),
                row.get::<_, String>(3).unwrap(),
                row.get::<_, String>(4).unwrap(),
                row.get::<_, i64>(5).unwrap(),
            ));
        }
    }
    lines.extend(column(&format!(
        "SELECT 'note ' || {KEY} || ' ' || n.position || ' ' || n.gitlab_id || ' ' || n.body || ' system=' || n.is_system
             || ' internal=' || n.is_internal || ' resolved=' || n.resolved
           FROM notes n JOIN discussions d ON d.id = n.discussion_id {JOINS}"
    )));
    let documents = {
        let mut statement = connection
            .prepare(&format!(
                "SELECT {KEY}, t.content_text FROM discussions d {JOINS}
                   JOIN documents t ON t.source_type = 'discussion' AND t.source_id = d.id"
            ))
            .unwrap();
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
        rows.collect::<rusqlite::Result<Vec<_>>>().unwrap()
    };
    for (key, content) in documents {
        // Bodies are `note N.`: each is a line of its own.
        let spoken: Vec<&str> =
            content.lines().filter(|line| line.starts_with("note ") && line.ends_with('.')).collect();
        lines.insert(format!("document discussion {key} {spoken:?}"));
    }
    lines
}
