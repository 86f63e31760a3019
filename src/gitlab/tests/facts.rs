//! Facts about GitLab's API that a single address, header, status or field decides, by their
//! numbers in `docs/gitlab.md`.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::content::Author;
use crate::error::ErrorKind;
use crate::gitlab::answer::{self, Answer, Verdict};
use crate::gitlab::{Address, paging, wire};

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&str, &str)| {
        (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
    };
    list.iter().map(pair).collect()
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

fn row(extra: Value) -> Box<RawValue> {
    let mut row = json!({"id": 900, "iid": 7, "title": "t", "updated_at": "2024-05-01T10:00:00.123Z"});
    for (key, value) in extra.as_object().cloned().unwrap_or_default() {
        row[key] = value;
    }
    raw(&row)
}

fn verdict(status: u16, list: &[(&str, &str)], body: &str) -> Verdict {
    let headers = headers(list);
    answer::judge(&Answer {
        what: "GET https://host/api/v4/projects/5",
        status,
        headers: &headers,
        body: body.as_bytes(),
        secret: None,
        now: 1_609_844_370_000,
    })
}

#[test]
fn api_2_4_5_6_12_the_next_page_is_where_link_or_x_next_page_say() {
    let address = Address::parse("https://host/gitlab").unwrap();
    let current = address.url(&["projects", "5", "issues"], &[("page", "2")]);
    let next = |list: &[(&str, &str)], rows: usize| {
        paging::next_page(&address, &current, &headers(list), rows)
            .map(|url| url.query().unwrap_or_default().to_owned())
    };
    assert_eq!(next(&[("X-Next-Page", "3"), ("x-page", "2")], 1).as_deref(), Some("page=3"));
    assert_eq!(next(&[("x-next-page", ""), ("x-page", "2")], 100), None, "present and empty: the last one");
    let old = "<https://host/gitlab/api/v4/projects/5/issues?page=3>; rel=\"next\"";
    assert_eq!(next(&[("links", old)], 1), None, "the old plural header is gone");
    assert_eq!(next(&[("LINK", old)], 0).as_deref(), Some("page=3"));
    let opaque = "<https://host/gitlab/api/v4/projects/5/issues?cursor=eyJpZCI6IjEyIn0%3D&pagination=keyset>; rel=\"next\"";
    assert_eq!(
        next(&[("link", opaque)], 9).as_deref(),
        Some("cursor=eyJpZCI6IjEyIn0%3D&pagination=keyset"),
        "copied, not built"
    );
    assert_eq!(next(&[], 0), None, "no header and no row: the end of a keyset list");
}

#[test]
fn api_7_33_34_83_only_our_own_authority_is_asked_and_a_sub_path_is_kept() {
    let address = Address::parse("https://host:8443/gitlab").unwrap();
    assert_eq!(address.url(&["projects"], &[]).as_str(), "https://host:8443/gitlab/api/v4/projects");
    let current = address.url(&["projects", "g/old"], &[]);
    for foreign in ["http://inside/api/v4/projects?page=2", "https://host/gitlab/api/v4/projects?page=2"] {
        assert_eq!(
            address.own(&current, foreign).unwrap().as_str(),
            "https://host:8443/gitlab/api/v4/projects?page=2"
        );
    }
    let moved = address.redirect(&current, "https://host:8443/gitlab/api/v4/projects/81").unwrap();
    assert_eq!(moved.as_str(), "https://host:8443/gitlab/api/v4/projects/81");
    assert!(address.redirect(&current, "https://evil/api/v4/projects/81").is_err());
}

#[test]
fn api_31_32_a_path_is_one_segment_with_its_slashes_and_dots_encoded() {
    let address = Address::parse("https://host").unwrap();
    assert_eq!(
        address.url(&["projects", "a/b.c/d"], &[]).as_str(),
        "https://host/api/v4/projects/a%2Fb%2Ec%2Fd"
    );
}

#[test]
fn api_16_times_come_with_and_without_fraction_with_offsets_and_as_days() {
    let at = |text: &str| wire::issue(&row(json!({"updated_at": text}))).unwrap().updated_at;
    assert_eq!(at("2013-10-02T09:22:45Z"), at("2013-10-02T09:22:45.000Z"));
    assert_eq!(at("2013-10-02T11:22:45+02:00"), at("2013-10-02T09:22:45Z"));
    assert_eq!(at("2013-10-02T09:22:45.123456Z"), at("2013-10-02T09:22:45.123Z"));
    let issue = wire::issue(&row(json!({"due_date": "2024-02-29"}))).unwrap();
    assert_eq!(issue.due_date.as_deref(), Some("2024-02-29"));
}

#[test]
fn api_40_41_44_45_49_notes_of_every_kind() {
    let discussion = raw(&json!({
        "id": "abc", "individual_note": false,
        "notes": [
            {"id": 1, "type": null, "body": "plain ![x](/uploads/0a1b/x.png)", "attachment": "old.png", "created_at": "2024-05-01T10:00:00Z"},
            {"id": 2, "type": "LegacyDiffNote", "body": "", "created_at": "2024-05-01T10:00:00Z",
             "resolvable": true, "resolved": true, "resolved_by": null, "resolved_at": null},
            {"id": 3, "type": "DiffNote", "internal": true, "body": "", "created_at": "2024-05-01T10:00:00Z",
             "position": {"old_path": null, "new_path": "b", "old_line": null, "new_line": 4, "line_range": null, "position_type": "text"}},
            {"id": 4, "type": "DiffNote", "confidential": true, "body": "", "created_at": "2024-05-01T10:00:00Z",
             "position": {"position_type": "image", "new_path": "c.png", "x": 1, "y": 2, "width": 3, "height": 4}},
            {"id": 5, "type": "DiffNote", "body": "", "created_at": "2024-05-01T10:00:00Z"},
            {"id": 6, "type": "DiffNote", "body": "", "created_at": "2024-05-01T10:00:00Z", "position": {"position_type": "file", "new_path": "d"}},
        ],
    }));
    let (read, bad) = wire::discussion(&discussion).unwrap();
    assert!(bad.is_empty() && !read.individual_note);
    let kinds: Vec<Option<&str>> = read.notes.iter().map(|note| note.note_type.as_deref()).collect();
    assert_eq!(
        kinds,
        [
            None,
            Some("LegacyDiffNote"),
            Some("DiffNote"),
            Some("DiffNote"),
            Some("DiffNote"),
            Some("DiffNote")
        ]
    );
    assert!(read.notes[0].body.contains("/uploads/0a1b/x.png"), "what is attached is part of the text");
    assert!(read.notes[1].resolved && read.notes[1].resolved_by.is_none());
    assert_eq!(
        read.notes.iter().map(|note| note.internal).collect::<Vec<_>>(),
        [false, false, true, true, false, false]
    );
    let paths: Vec<Option<&str>> = read
        .notes
        .iter()
        .map(|note| note.position.as_ref().and_then(|position| position.new_path.as_deref()))
        .collect();
    assert_eq!(paths, [None, None, Some("b"), Some("c.png"), None, Some("d")]);
}

#[test]
fn api_50_51_58_59_65_fields_may_be_null_missing_doubled_or_unknown() {
    let nulls = [
        "description",
        "milestone",
        "assignee",
        "closed_at",
        "closed_by",
        "discussion_locked",
        "due_date",
        "merged_by",
        "merge_user",
        "merged_at",
        "merge_commit_sha",
        "sha",
        "moved_to_id",
        "service_desk_reply_to",
        "author",
        "references",
    ];
    let mut odd =
        json!({"state": "closed", "brand_new": {"deep": [1]}, "imported_from": "none", "severity": 4});
    for name in nulls {
        odd[name] = Value::Null;
    }
    let issue = wire::issue(&row(odd.clone())).unwrap();
    assert_eq!((issue.state.as_str(), issue.closed_at, issue.moved_to_gitlab_id), ("closed", None, None));
    assert!(wire::merge_request(&row(odd)).is_ok());
    let doubled = json!({
        "assignee": {"username": "old"}, "assignees": [{"username": "new"}], "work_in_progress": true, "draft": false,
        "reference": "#7", "references": {"full": "g/p#7", "relative": "p#7"}, "merge_status": "unchecked",
    });
    let request = wire::merge_request(&row(doubled)).unwrap();
    assert_eq!((request.assignees, request.draft), (vec!["new".to_owned()], false));
    let fallback =
        wire::merge_request(&row(json!({"assignee": {"username": "old"}, "work_in_progress": true})))
            .unwrap();
    assert_eq!((fallback.assignees, fallback.draft), (vec!["old".to_owned()], true));
    assert_eq!(wire::issue(&row(json!({}))).unwrap().state, "opened");
}

#[test]
fn api_52_53_ghosts_nobody_and_masked_names() {
    let author = |value: Value| wire::issue(&row(json!({"author": value}))).unwrap().author;
    assert_eq!(author(Value::Null), Author::default());
    assert_eq!(author(json!({"username": "ghost", "name": "Ghost User"})).username.as_deref(), Some("ghost"));
    assert_eq!(author(json!({"username": "ada", "name": "****"})).name.as_deref(), Some("ada"));
}

#[test]
fn api_54_55_labels_are_any_text_and_types_are_an_open_list() {
    let labels = json!(["target: arm", "kind::Bug", "日本 😀", "a, b"]);
    let issue = wire::issue(&row(json!({"labels": labels, "type": "TASK", "issue_type": "task"}))).unwrap();
    assert_eq!(issue.labels, ["a, b", "kind::Bug", "target: arm", "日本 😀"]);
    assert_eq!(issue.issue_type, "task");
    let details = json!([{"id": 1, "name": "kind::Bug", "color": "#fff"}]);
    assert_eq!(wire::issue(&row(json!({"labels": details}))).unwrap().labels, ["kind::Bug"]);
    for (given, read) in
        [(json!("KEY_RESULT"), "key_result"), (json!("TEST_CASE"), "test_case"), (Value::Null, "issue")]
    {
        assert_eq!(wire::issue(&row(json!({"type": given}))).unwrap().issue_type, read);
    }
}

#[test]
fn api_72_errors_of_every_shape_are_told_shortly() {
    let told = |status: u16, list: &[(&str, &str)], body: &str| match verdict(status, list, body) {
        Verdict::Refuse(error) | Verdict::Retry { error, .. } => error.error.to_string(),
        other @ (Verdict::Read | Verdict::Redirect(_)) => panic!("{other:?}"),
    };
    for (body, part) in [
        ("{\"message\":\"404 Project Not Found\"}", "404 Project Not Found"),
        ("{\"message\":{\"name\":[\"is taken\"]}}", "is taken"),
        ("{\"message\":[\"one\",\"two\"]}", "two"),
        ("{\"error\":\"updated_after is invalid\"}", "updated_after is invalid"),
        (
            "{\"error\":\"insufficient_scope\",\"error_description\":\"higher privileges\",\"scope\":\"api\"}",
            "higher privileges",
        ),
        ("404 page not found", "404 page not found"),
        ("<!DOCTYPE html><html><body>SECRET</body></html>", "an HTML page"),
    ] {
        let text = told(404, &[], body);
        assert!(text.contains(part) && !text.contains("SECRET"), "{text}");
    }
}

#[test]
fn api_73_74_75_79_what_a_status_means_for_the_run() {
    let kind = |status: u16, body: &str| match verdict(status, &[], body) {
        Verdict::Refuse(error) => (false, error.error.kind()),
        Verdict::Retry { error, .. } => (true, error.error.kind()),
        other @ (Verdict::Read | Verdict::Redirect(_)) => panic!("{other:?}"),
    };
    assert_eq!(
        kind(401, "{\"error\":\"invalid_token\",\"error_description\":\"Token was revoked.\"}"),
        (false, ErrorKind::Auth)
    );
    assert_eq!(kind(403, "{\"message\":\"403 Forbidden\"}"), (false, ErrorKind::SourceNotFound));
    assert_eq!(kind(403, "{\"error\":\"insufficient_scope\"}"), (false, ErrorKind::Auth));
    assert_eq!(kind(404, ""), (false, ErrorKind::SourceNotFound));
    for status in [500, 502, 503, 504, 520, 525, 530] {
        assert_eq!(kind(status, "<!DOCTYPE html>"), (true, ErrorKind::Network), "{status}");
    }
}

#[test]
fn api_76_77_waits_are_read_from_whichever_header_there_is() {
    let wait = |list: &[(&str, &str)]| match verdict(429, list, "Retry later") {
        Verdict::Retry { wait, rate_limited: true, .. } => wait.map(|wait| wait.as_secs()),
        other => panic!("{other:?}"),
    };
    assert_eq!(wait(&[("Retry-After", "30"), ("RateLimit-Reset", "1609844400")]), Some(30));
    assert_eq!(wait(&[("RateLimit-Reset", "1609844400")]), Some(30));
    assert_eq!(wait(&[("RateLimit-ResetTime", "Tue, 05 Jan 2021 11:00:00 GMT")]), Some(30));
    assert_eq!(wait(&[]), None);
    assert!(matches!(verdict(200, &[("RateLimit-Remaining", "0")], "[]"), Verdict::Read));
}
