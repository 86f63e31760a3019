use std::sync::Arc;

use super::*;
use crate::content::entities::ItemRef;
use crate::content::source::ProjectSource;

fn item(item_type: ItemType) -> ItemSource {
    let kind = match item_type {
        ItemType::Issue => "issues",
        ItemType::MergeRequest => "merge_requests",
    };
    ItemSource {
        id: 5,
        item_type,
        iid: 234,
        project: Arc::new(ProjectSource {
            id: 1,
            path: "group/project-one".into(),
            web_url: Some("https://gitlab.example.com/group/project-one".into()),
        }),
        title: "Authentication redesign".into(),
        description: Some("We need to modernize our authentication system, see #7.".into()),
        state: "opened".into(),
        is_draft: false,
        is_confidential: false,
        author: Author { username: Some("johndoe".into()), name: Some("John".into()) },
        assignees: vec!["anna".into()],
        labels: vec!["bug".into(), "auth".into()],
        milestone: Some("v1".into()),
        source_branch: None,
        target_branch: None,
        web_url: Some(format!("https://gitlab.example.com/group/project-one/-/{kind}/234")),
        created_at: 1_710_460_800_000,
        updated_at: 1_710_460_900_000,
        moved_to: None,
    }
}

fn note(username: &str, body: &str) -> NoteSource {
    NoteSource {
        gitlab_id: 12_345,
        author: Author { username: Some(username.into()), name: None },
        created_at: 1_710_460_800_000,
        updated_at: 1_710_460_800_000,
        body: body.into(),
        ..NoteSource::default()
    }
}

fn discussion(notes: Vec<NoteSource>) -> Option<Document> {
    render(&Source::Discussion { id: 8, item: Arc::new(item(ItemType::Issue)), notes })
}

fn of_item(item: ItemSource, notes: Vec<NoteSource>) -> Document {
    render(&Source::Item { item: Arc::new(item), notes }).unwrap()
}

fn body(document: &Document) -> &str {
    after_chars(&document.content_text, document.body_start)
}

#[test]
fn an_issue_reads_as_specified() {
    let document = of_item(item(ItemType::Issue), vec![]);
    assert_eq!(
        document.content_text,
        "[[Issue]] #234: Authentication redesign
Project: group/project-one
URL: https://gitlab.example.com/group/project-one/-/issues/234
Labels: [\"bug\", \"auth\"]
State: opened
Author: @johndoe

--- Description ---

We need to modernize our authentication system, see #7."
    );
    assert_eq!(body(&document), "We need to modernize our authentication system, see #7.");
    assert_eq!(document.title.as_deref(), Some("Authentication redesign"));
    let target = ItemRef { project_path: "group/project-one".into(), item_type: ItemType::Issue, iid: 7 };
    assert_eq!(document.refs, BTreeSet::from([Reference { kind: RefKind::Mentions, target }]));
}

#[test]
fn a_merge_request_reads_as_specified() {
    let mut source = item(ItemType::MergeRequest);
    source.source_branch = Some("feature/jwt-auth".into());
    source.target_branch = Some("main".into());
    let document = of_item(source, vec![]);
    assert!(
        document.content_text.starts_with(
            "[[MergeRequest]] !234: Authentication redesign
Project: group/project-one
URL: https://gitlab.example.com/group/project-one/-/merge_requests/234
Labels: [\"bug\", \"auth\"]
State: opened
Author: @johndoe
Source: feature/jwt-auth -> main

--- Description ---

We need"
        ),
        "{}",
        document.content_text
    );
}

#[test]
fn a_discussion_reads_as_specified() {
    let mut first = note("johndoe", "I think we should move to JWT-based auth...");
    first.new_path = Some("src/auth/login.ts".into());
    first.old_path = Some("src/auth/login.ts".into());
    let system = NoteSource { is_system: true, ..note("bot", "changed the label") };
    let document =
        discussion(vec![first, system, note("janedoe", "Agreed. What about refresh token strategy?")])
            .unwrap();
    assert_eq!(
        document.content_text,
        "[[Discussion]] Issue #234: Authentication redesign
Project: group/project-one
URL: https://gitlab.example.com/group/project-one/-/issues/234#note_12345
Labels: [\"bug\", \"auth\"]
Files: [\"src/auth/login.ts\"]

--- Thread ---

@johndoe (2024-03-15):
I think we should move to JWT-based auth...

@janedoe (2024-03-15):
Agreed. What about refresh token strategy?"
    );
    assert!(body(&document).starts_with("@johndoe (2024-03-15):"));
    assert_eq!(document.paths, ["src/auth/login.ts"]);
    assert_eq!((document.title, document.thread_text), (None, String::new()));
}

#[test]
fn what_is_unknown_is_left_out() {
    let mut source = item(ItemType::Issue);
    source.author = Author::default();
    source.labels.clear();
    source.web_url = None;
    source.description = Some(" \n".into());
    let document = of_item(source.clone(), vec![]);
    let text = "[[Issue]] #234: Authentication redesign\nProject: group/project-one\nState: opened";
    assert_eq!(document.content_text, text);
    assert_eq!(document.body_start, text.chars().count(), "all of it is header");
    let mut anonymous = note("", "Hm.");
    anonymous.author = Author::default();
    let named =
        NoteSource { author: Author { username: None, name: Some("User 0".into()) }, ..anonymous.clone() };
    let document =
        render(&Source::Discussion { id: 8, item: Arc::new(source), notes: vec![anonymous, named] }).unwrap();
    assert_eq!(body(&document), "unknown (2024-03-15):\nHm.\n\nUser 0 (2024-03-15):\nHm.");
    assert_eq!(document.url, None);
}

#[test]
fn a_discussion_of_system_notes_alone_has_no_document() {
    assert_eq!(discussion(vec![]), None);
    assert_eq!(discussion(vec![NoteSource { is_system: true, ..note("bot", "closed") }]), None);
}

#[test]
fn a5_19_internal_notes_never_meet_public_text() {
    let secret = NoteSource { is_internal: true, ..note("boss", "SECRETPLAN see !9") };
    let mixed = discussion(vec![note("a", "hello"), secret.clone()]).unwrap();
    assert!(!mixed.is_internal && !mixed.content_text.contains("SECRETPLAN") && mixed.refs.is_empty());
    let internal = discussion(vec![secret.clone()]).unwrap();
    assert!(internal.is_internal && internal.content_text.contains("SECRETPLAN"));
    let whole = of_item(item(ItemType::Issue), vec![note("a", "hello"), secret]);
    assert_eq!(whole.thread_text, "hello");
    assert!(!whole.is_internal);
}

#[test]
fn a_confidential_item_makes_its_discussions_confidential() {
    let source = ItemSource { is_confidential: true, ..item(ItemType::Issue) };
    let document =
        render(&Source::Discussion { id: 8, item: Arc::new(source), notes: vec![note("a", "b")] }).unwrap();
    assert!(document.is_confidential);
}

#[test]
fn a5_17_long_documents_keep_header_first_and_last_note() {
    let notes: Vec<NoteSource> = (0..30).map(|n| note("a", &format!("{} N{n}", "é".repeat(2_000)))).collect();
    let document = discussion(notes.clone()).unwrap();
    let chars = document.content_text.chars().count();
    assert!(chars <= MAX_CONTENT_CHARS && chars > 29_000, "{chars}");
    assert!(
        document.content_text.ends_with("N29") && document.content_text.contains("notes omitted for length")
    );
    assert_eq!(document.truncated, Some(TruncationReason::TokenLimitMiddleDrop));
    let whole = of_item(item(ItemType::Issue), notes);
    assert!(whole.thread_text.chars().count() <= MAX_CONTENT_CHARS && whole.thread_text.ends_with("N29"));
    assert_eq!(whole.truncated, None, "the thread of an item is not its text");
    let huge = ItemSource { description: Some("日".repeat(100_000)), ..item(ItemType::Issue) };
    let huge = of_item(huge, vec![]);
    assert_eq!(huge.content_text.chars().count(), MAX_CONTENT_CHARS);
    assert!(huge.content_text.ends_with("[truncated]"));
}

#[test]
fn a_hostile_header_leaves_room_for_the_text() {
    let mut source = item(ItemType::Issue);
    source.title = "t\n".repeat(50_000);
    source.labels = (0..5_000).map(|n| format!("label \"{n}\"")).collect();
    let document = of_item(source, vec![]);
    assert!(body(&document).starts_with("We need"));
    assert!(document.content_text.chars().count() < 10_000);
    let line = document.content_text.lines().find_map(|line| line.strip_prefix("Labels: ")).unwrap();
    let parsed: Vec<String> = serde_json::from_str(line).unwrap();
    assert!(parsed.last().unwrap().ends_with(" more"));
}

#[test]
fn repeated_import_tails_leave_the_first() {
    let tail = |name| format!("*By {name} on 2016-10-18T16:50:03 (imported from GitLab project)*");
    let text = format!("Hello\n\n{}\n\n{}\n\n{}", tail("User 0"), tail("root"), tail("root"));
    assert_eq!(note_text(&text), format!("Hello\n\n{}", tail("User 0")));
    assert_eq!(note_text("plain \n"), "plain");
}

#[test]
fn system_notes_and_the_stored_copy_tell_where_an_issue_went() {
    let target = ItemRef { project_path: "b/c".into(), item_type: ItemType::Issue, iid: 9 };
    let system = NoteSource { is_system: true, ..note("bot", "moved to b/c#9") };
    let want = Reference { kind: RefKind::Moved, target: target.clone() };
    assert!(of_item(item(ItemType::Issue), vec![system]).refs.contains(&want));
    let moved = ItemSource { moved_to: Some(target), ..item(ItemType::Issue) };
    assert!(of_item(moved, vec![]).refs.contains(&want));
}

#[test]
fn hashes_follow_what_they_stand_for() {
    let first = of_item(item(ItemType::Issue), vec![]);
    let later = ItemSource { updated_at: 9, ..item(ItemType::Issue) };
    let same = of_item(later, vec![]);
    assert_eq!((&first.content_hash, &first.meta_hash), (&same.content_hash, &same.meta_hash));
    let other = of_item(ItemSource { milestone: None, ..item(ItemType::Issue) }, vec![]);
    assert_eq!(first.content_hash, other.content_hash);
    assert_ne!(first.meta_hash, other.meta_hash);
    let talked = of_item(item(ItemType::Issue), vec![note("a", "b")]);
    assert_ne!(first.meta_hash, talked.meta_hash, "the thread is searched too");
}
