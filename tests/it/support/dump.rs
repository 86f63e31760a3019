//! The logical content of a database as text: what two databases must share to be called the
//! same. Every table is shown, so a new one cannot be forgotten.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

/// Tables about the runs themselves: two ways to the same content differ in them.
const NOT_CONTENT: &[&str] =
    &["app_lock", "circuit_breakers", "counters", "integrity_findings", "runs", "step_attempts", "suspects"];

/// Columns that hold when or under which number lore stored something.
const VOLATILE: &[(&str, &[&str])] = &[
    ("projects", &["created_at", "updated_at"]),
    ("raw_payloads", &["id", "fetched_at"]),
    ("labels", &["id"]),
    ("milestones", &["id"]),
    ("issues", &["id", "synced_at"]),
    ("merge_requests", &["id", "synced_at"]),
    ("discussions", &["id"]),
    ("notes", &["id"]),
    ("cursors", &["saved_at"]),
    ("group_projects", &["missing_since"]),
    ("project_states", &["since", "proof"]),
    ("item_strikes", &["proof", "first_at", "last_at"]),
    ("tombstones", &["deleted_at"]),
    ("link_looks", &["next_attempt_at"]),
    ("dirty_sources", &["queued_at", "generation"]),
    ("pending_discussion_fetches", &["queued_at", "generation"]),
    ("documents", &["id"]),
    ("document_lengths", &["block", "lengths"]),
    ("embedding_identities", &["created_at", "activated_at", "retired_at"]),
    ("chunked_documents", &["embedded_at"]),
    ("chunks", &["id", "last_attempt_at", "next_attempt_at"]),
    ("query_embeddings", &["used_at"]),
];

/// Opens a database as any other program would.
pub fn open(path: &Path) -> Connection {
    #[expect(clippy::disallowed_methods, reason = "the tests look at the file from outside")]
    Connection::open(path).unwrap()
}

/// Runs a query that returns one number.
pub fn number(path: &Path, sql: &str) -> i64 {
    open(path).query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Runs a query that returns one number, on a database that may not be ready.
pub fn try_number(path: &Path, sql: &str) -> Option<i64> {
    open(path).query_row(sql, [], |row| row.get(0)).ok()
}

/// Runs statements.
pub fn execute(path: &Path, sql: &str) {
    open(path).execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Names of rows that do not depend on the order in which they were stored.
fn names(connection: &Connection, sql: &str) -> BTreeMap<i64, String> {
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Returns the content of every table as sorted text, after checking that the full-text
/// index agrees with the documents.
pub fn dump(path: &Path) -> String {
    let connection = open(path);
    connection
        .execute("INSERT INTO documents_fts(documents_fts, rank) VALUES ('integrity-check', 1)", [])
        .expect("index and documents agree");
    let projects = names(&connection, "SELECT id, path FROM projects");
    let issues = names(
        &connection,
        "SELECT i.id, p.path || '#' || i.iid FROM issues i JOIN projects p ON p.id = i.project_id",
    );
    let merge_requests = names(
        &connection,
        "SELECT m.id, p.path || '!' || m.iid FROM merge_requests m JOIN projects p ON p.id = m.project_id",
    );
    let discussions = names(
        &connection,
        "SELECT id, coalesce('i' || issue_id, 'm' || merge_request_id) || '/' || gitlab_discussion_id FROM discussions",
    );
    let of_type = |source_type: &str, id: i64| -> String {
        let names = match source_type {
            "issue" => &issues,
            "merge_request" => &merge_requests,
            _ => &discussions,
        };
        names.get(&id).cloned().unwrap_or_else(|| format!("?{source_type} {id}"))
    };
    let documents: BTreeMap<i64, String> = {
        let mut statement = connection.prepare("SELECT id, source_type, source_id FROM documents").unwrap();
        let rows = statement
            .query_map([], |row| {
                let source_type: String = row.get(1)?;
                Ok((row.get(0)?, of_type(&source_type, row.get(2)?)))
            })
            .unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    };
    let chunks: BTreeMap<i64, String> = {
        let mut statement =
            connection.prepare("SELECT id, document_id, identity_id, ordinal FROM chunks").unwrap();
        let rows = statement
            .query_map([], |row| {
                let (document, identity, ordinal): (i64, i64, i64) = (row.get(1)?, row.get(2)?, row.get(3)?);
                Ok((row.get(0)?, format!("{}/{identity}/{ordinal}", documents[&document])))
            })
            .unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    };
    // The codes of chunks are told by their vectors, and compared by the integrity check.
    let tables: Vec<String> = {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
                    AND name NOT LIKE 'documents_fts%' AND name NOT LIKE 'chunk_codes_%' ORDER BY name";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<rusqlite::Result<_>>().unwrap()
    };
    let mut text = String::new();
    for table in tables.iter().filter(|table| !NOT_CONTENT.contains(&table.as_str())) {
        let volatile =
            VOLATILE.iter().find(|(name, _)| name == table).map_or(&[][..], |(_, columns)| columns);
        let mut statement = connection.prepare(&format!("SELECT * FROM \"{table}\"")).unwrap();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut lines = Vec::new();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let source_type = columns
                .iter()
                .position(|column| column == "source_type" || column == "item_type")
                .map(|place| row.get::<_, String>(place).unwrap());
            let mut line = String::new();
            for (place, column) in
                columns.iter().enumerate().filter(|(_, column)| !volatile.contains(&column.as_str()))
            {
                let value = row.get_ref(place).unwrap();
                let shown = match (column.as_str(), value) {
                    ("project_id", ValueRef::Integer(id)) => projects[&id].clone(),
                    ("issue_id", ValueRef::Integer(id)) => issues[&id].clone(),
                    ("merge_request_id", ValueRef::Integer(id)) => merge_requests[&id].clone(),
                    ("discussion_id", ValueRef::Integer(id)) => discussions[&id].clone(),
                    ("document_id", ValueRef::Integer(id)) => documents[&id].clone(),
                    ("chunk_id", ValueRef::Integer(id)) => chunks[&id].clone(),
                    ("source_id", ValueRef::Integer(id)) => of_type(source_type.as_deref().unwrap(), id),
                    ("item_id", ValueRef::Integer(id)) => {
                        let item_type: String = row.get("item_type").unwrap();
                        of_type(&item_type, id)
                    }
                    (_, ValueRef::Null) => "NULL".to_owned(),
                    (_, ValueRef::Integer(number)) => number.to_string(),
                    (_, ValueRef::Real(number)) => number.to_string(),
                    (_, ValueRef::Text(text)) => format!("{:?}", String::from_utf8_lossy(text)),
                    (_, ValueRef::Blob(bytes)) => format!("{bytes:02x?}"),
                };
                write!(line, " {column}={shown}").unwrap();
            }
            lines.push(line);
        }
        lines.sort();
        writeln!(text, "{table}: {} rows", lines.len()).unwrap();
        for line in lines {
            writeln!(text, " {line}").unwrap();
        }
    }
    text
}
