//! Documents of the awkward texts that real trackers hold.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use lore::content::refs::{RefContext, RefText, collect_refs};
use lore::content::render::render;
use lore::content::source::{ItemSource, NoteSource, ProjectSource, Source};
use lore::content::terms::{document_terms, query_terms};
use lore::content::truncate::MAX_CONTENT_CHARS;
use lore::content::{Author, ItemType};

#[derive(serde::Deserialize)]
struct EdgeCase {
    feature: String,
    body: Option<String>,
}

fn edge_cases() -> Vec<EdgeCase> {
    let shared =
        std::env::var("LORE_SHARED").unwrap_or_else(|_| format!("{}/../shared", env!("CARGO_MANIFEST_DIR")));
    let path = PathBuf::from(shared).join("gitlab/corpus/edge_cases.ndjson");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("{} is absent, skipped", path.display());
        return Vec::new();
    };
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn item(title: &str, description: Option<String>) -> Arc<ItemSource> {
    Arc::new(ItemSource {
        id: 1,
        item_type: ItemType::Issue,
        iid: 1,
        project: Arc::new(ProjectSource { id: 1, path: "g/p".into(), web_url: None }),
        title: title.into(),
        description,
        state: "opened".into(),
        is_draft: false,
        is_confidential: false,
        author: Author::default(),
        assignees: vec![],
        labels: vec![title.into()],
        milestone: None,
        source_branch: None,
        target_branch: None,
        web_url: None,
        created_at: 0,
        updated_at: 0,
        moved_to: None,
    })
}

#[test]
fn awkward_texts_become_documents_within_the_limit() {
    for EdgeCase { feature, body } in edge_cases() {
        let text = body.clone().unwrap_or_default();
        let title: String = text.chars().take(300).collect();
        let note = NoteSource { body: text.clone(), ..NoteSource::default() };
        let sources = [
            Source::Item { item: item(&title, body), notes: vec![note.clone(), note.clone()] },
            Source::Discussion { id: 2, item: item(&title, None), notes: vec![note.clone(), note] },
        ];
        for source in sources {
            let document = render(&source).unwrap();
            let chars = document.content_text.chars().count();
            assert!(chars <= MAX_CONTENT_CHARS && document.body_start <= chars, "{feature}");
            assert!(document.thread_text.chars().count() <= MAX_CONTENT_CHARS, "{feature}");
        }
    }
}

/// Words of a text all have the terms that a query for the same word asks for.
#[test]
fn what_a_query_asks_for_is_what_a_document_holds() {
    for word in ["管理維護", "テスト", "한국어", "C++", "c#", ".NET", "Økland", "Straße", "v1.2.3", "ＡＢＣ"]
    {
        let held = document_terms(&format!("before {word} after"));
        let held: BTreeSet<&str> = held.split(' ').collect();
        let asked = query_terms(word);
        assert!(
            !asked.is_empty() && asked.iter().all(|term| held.contains(term.as_str())),
            "{word}: {asked:?}"
        );
    }
}

#[test]
fn references_of_awkward_texts_are_read() {
    let context = RefContext { project_path: "g/p", project_url: None, own: (ItemType::Issue, 1) };
    for EdgeCase { body, .. } in edge_cases() {
        for role in [RefText::Description, RefText::Comment, RefText::System] {
            collect_refs(body.as_deref().unwrap_or_default(), role, context, &mut BTreeSet::new());
        }
    }
}
