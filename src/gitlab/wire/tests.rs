use serde_json::json;

use super::*;

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap()
}

fn minimal() -> Value {
    json!({"id": 900, "iid": 7, "updated_at": "2024-05-01T10:00:00.123Z"})
}

fn with(mut base: Value, extra: Value) -> Box<RawValue> {
    let Value::Object(extra) = extra else { panic!("not an object") };
    for (key, value) in extra {
        base[key] = value;
    }
    raw(&base)
}

#[test]
fn bugs_38_a_row_needs_nothing_but_its_name_and_its_time() {
    let issue = issue(&raw(&minimal())).unwrap();
    assert_eq!((issue.gitlab_id, issue.iid, issue.updated_at), (900, 7, 1_714_557_600_123));
    assert_eq!((issue.state.as_str(), issue.issue_type.as_str()), ("opened", "issue"));
    let merge_request = merge_request(&raw(&minimal())).unwrap();
    assert!(!merge_request.draft && merge_request.labels.is_empty());
}

#[test]
fn bugs_37_38_null_and_wrong_types_count_as_absent() {
    let odd = json!({
        "title": null, "description": null, "labels": null, "assignees": {"a": 1}, "milestone": [],
        "author": "somebody", "confidential": "maybe", "closed_at": 5, "user_notes_count": null,
        "due_date": null, "moved_to_id": null, "created_at": null, "web_url": null, "brand_new_key": {"x": [1]},
        "state": "on_fire", "type": "HYPER_TASK",
    });
    let issue = issue(&with(minimal(), odd)).unwrap();
    assert_eq!(issue.created_at, issue.updated_at);
    assert_eq!((issue.state.as_str(), issue.issue_type.as_str()), ("on_fire", "hyper_task"));
    assert_eq!(issue.author, Author::default());
    assert_eq!(issue.closed_at, None);
}

#[test]
fn a_row_that_cannot_be_placed_is_refused_with_its_number() {
    for missing in ["id", "updated_at"] {
        let mut row = minimal();
        row.as_object_mut().unwrap().remove(missing);
        let bad = issue(&raw(&row)).unwrap_err();
        assert_eq!(bad.iid, Some(7));
        assert!(bad.reason.contains(missing), "{}", bad.reason);
    }
    for text in ["[1]", "null", "\"SECRET TEXT\"", "{\"iid\": 7, \"title\": \"SECRET \\ud800 TEXT\"}"] {
        let bad = issue(&RawValue::from_string(text.to_owned()).unwrap()).unwrap_err();
        assert!(!bad.reason.contains("SECRET"), "{}", bad.reason);
    }
}

#[test]
fn a5_05_bugs_42_authors_may_be_null_masked_or_ghosts() {
    let author = |value: Value| issue(&with(minimal(), json!({ "author": value }))).unwrap().author;
    let named = |username: &str, name: &str| Author {
        username: Some(username.to_owned()),
        name: Some(name.to_owned()),
    };
    assert_eq!(author(Value::Null), Author::default());
    assert_eq!(author(json!({"id": 0, "username": "ghost1"})), named("ghost1", "ghost1"));
    assert_eq!(author(json!({"username": "ghost", "name": "Ghost User"})), named("ghost", "Ghost User"));
    assert_eq!(author(json!({"username": "ada", "name": "****"})), named("ada", "ada"));
    assert_eq!(author(json!({"username": "ada", "name": null})), named("ada", "ada"));
}

#[test]
fn bugs_43_nul_is_removed_from_every_text() {
    let odd = json!({
        "title": "a\u{0}b", "description": "\u{0}", "labels": ["x\u{0}y"],
        "author": {"username": "u\u{0}", "name": "n\u{0}"}, "milestone": {"title": "m\u{0}"},
    });
    let issue = issue(&with(minimal(), odd)).unwrap();
    assert_eq!(issue.title, "ab");
    assert_eq!(issue.description.as_deref(), Some(""));
    assert_eq!(issue.labels, ["xy"]);
    assert_eq!(issue.author.username.as_deref(), Some("u"));
    assert_eq!(issue.milestone.as_deref(), Some("m"));
}

#[test]
fn labels_come_as_texts_or_objects_and_are_sorted_without_repeats() {
    let labels = |value: Value| issue(&with(minimal(), json!({ "labels": value }))).unwrap().labels;
    assert_eq!(
        labels(json!(["kind::Bug", "target: arm", "😀", "kind::Bug"])),
        ["kind::Bug", "target: arm", "😀"]
    );
    assert_eq!(labels(json!([{"id": 1, "name": "b"}, {"name": "a"}, null, {}])), ["a", "b"]);
}

#[test]
fn deprecated_duplicates_stand_in_for_what_is_missing() {
    let request = merge_request(&with(
        minimal(),
        json!({"work_in_progress": true, "assignee": {"username": "bo"}, "assignees": []}),
    ))
    .unwrap();
    assert!(request.draft);
    assert_eq!(request.assignees, ["bo"]);
    let request = merge_request(&with(
        minimal(),
        json!({"draft": false, "work_in_progress": true, "assignees": [{"username": "b"}, {"username": "a"}, {"username": "b"}]}),
    ))
    .unwrap();
    assert!(!request.draft);
    assert_eq!(request.assignees, ["a", "b"]);
}

#[test]
fn bugs_15_16_18_times_come_with_and_without_fraction_and_with_offsets() {
    let at = |text: &str| issue(&with(minimal(), json!({ "updated_at": text }))).unwrap().updated_at;
    assert_eq!(at("2018-12-06T17:17:38-05:00"), at("2018-12-06T22:17:38Z"));
    assert_eq!(at("2018-12-06T22:17:38.000Z"), at("2018-12-06T22:17:38Z"));
    assert_eq!(at("2018-12-06"), at("2018-12-06T00:00:00Z"));
}

#[test]
fn bugs_37_39_notes_of_any_kind_are_read() {
    let row = json!({
        "id": "abc", "individual_note": false,
        "notes": [
            {"id": 1, "type": "DiffNote", "body": "here", "author": null, "created_at": "2024-05-01T10:00:00Z",
             "resolvable": true, "resolved": true, "resolved_by": {"username": "ada", "name": "Ada"},
             "position": {"position_type": "text", "old_path": null, "new_path": "src/a.rs", "old_line": null,
                          "new_line": 12, "line_range": null}},
            {"id": 2, "type": "HologramNote", "system": true, "body": "assigned to @x", "created_at": "2024-05-01T10:00:00Z"},
            {"id": 3, "internal": true, "body": null, "created_at": "2024-05-01T10:00:00Z", "resolved_by": "bo",
             "position": {"position_type": "image", "x": 1, "y": 2}},
            {"id": 4, "confidential": true, "body": "x", "created_at": "2024-05-01T10:00:00Z",
             "position": {"line_range": {"end": {"old_line": null, "new_line": 9}}, "new_path": "b"}},
            {"body": "no id", "created_at": "2024-05-01T10:00:00Z"},
            "not a note",
        ],
    });
    let (discussion, bad) = discussion(&raw(&row)).unwrap();
    assert_eq!(discussion.notes.len(), 4);
    assert_eq!(bad.len(), 2);
    let [first, second, third, fourth] = discussion.notes.as_slice() else { panic!("four notes") };
    assert_eq!(first.resolved_by.as_deref(), Some("ada"));
    let place = first.position.as_ref().unwrap();
    assert_eq!(
        (place.old_path.as_deref(), place.new_path.as_deref(), place.new_line),
        (None, Some("src/a.rs"), Some(12))
    );
    assert!(second.system);
    assert_eq!(second.note_type.as_deref(), Some("HologramNote"));
    assert!(third.internal && third.body.is_empty());
    assert_eq!(third.resolved_by.as_deref(), Some("bo"));
    assert!(fourth.internal);
    assert_eq!(fourth.position.as_ref().unwrap().new_line, Some(9));
}

#[test]
fn bugs_22_a_project_tells_which_streams_are_off() {
    let row = |extra: Value| {
        let base = json!({"id": 5, "path_with_namespace": "g/p", "web_url": "https://h/g/p/"});
        project(&with(base, extra)).unwrap()
    };
    assert_eq!(row(json!({})).project.web_url.as_deref(), Some("https://h/g/p"));
    assert!(!row(json!({})).issues_off);
    assert!(row(json!({"issues_access_level": "disabled", "issues_enabled": true})).issues_off);
    assert!(!row(json!({"issues_access_level": "private"})).issues_off);
    assert!(row(json!({"merge_requests_enabled": false})).merge_requests_off);
}
