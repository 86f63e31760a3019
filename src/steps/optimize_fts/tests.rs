use super::*;
use crate::config::Config;
use crate::content::document::Document;
use crate::content::{ItemType, Project, SourceType};
use crate::engine::cancel::Cancel;
use crate::engine::ctx::RunOptions;
use crate::engine::progress::{Progress, ProgressMode};
use crate::store::documents::{NewDocument, write_documents};
use crate::store::{OpenOptions, Store, entities};

fn document(project_id: i64, id: i64) -> Document {
    Document {
        source_type: SourceType::Issue,
        source_id: id,
        project_id,
        item_type: ItemType::Issue,
        item_id: id,
        item_iid: id,
        author_username: None,
        created_at: 0,
        updated_at: 0,
        state: "opened".into(),
        is_draft: false,
        is_confidential: false,
        is_internal: false,
        milestone_title: None,
        labels: vec![],
        url: None,
        title: Some(format!("title {id}")),
        content_text: format!("word{id} common"),
        body_start: 0,
        truncated: None,
        terms_text: String::new(),
        thread_text: String::new(),
        paths: vec![],
        assignees: vec![],
        refs: std::collections::BTreeSet::new(),
        content_hash: String::new(),
        labels_hash: String::new(),
        paths_hash: String::new(),
        meta_hash: String::new(),
    }
}

#[test]
fn segments_are_merged_into_one_and_then_there_is_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("lore.db"), OpenOptions::default()).unwrap();
    let project = Project { path: "g/p".into(), ..Project::default() };
    let project_id = store.write(|tx| entities::upsert_project(tx, "main", &project, 1)).unwrap();
    for id in 1..=7 {
        let document = document(project_id, id);
        let new = NewDocument { document: &document, source_hash: &[0; 32] };
        store.write(|tx| write_documents(tx, &[new])).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let ctx = StepCtx {
        store: &store,
        config: &Config::default(),
        vars: &|_| None,
        runtime: runtime.handle().clone(),
        cancel: Cancel::new(),
        deadline: None,
        options: RunOptions::default(),
        progress: Progress::new("optimize-fts", ProgressMode::Silent),
        shared: crate::engine::shared::Shared::default(),
    };
    let report = OptimizeFts::default().run(&ctx).unwrap();
    assert_eq!((report.count("segments_before"), report.count("segments_after")), (7, 1));
    assert!(report.count("merges") >= 1 && report.warnings.is_empty());
    let again = OptimizeFts::default().run(&ctx).unwrap();
    assert_eq!(again.skipped.as_deref(), Some("the full-text index is in one piece"));
    let found = crate::store::integrity::check(&store, &Cancel::new()).unwrap();
    assert!(found.counts.keys().all(|check| !check.starts_with("fts_")), "{found:?}");
}
