//! Facts about references between items, by their numbers in `docs/gitlab.md`.

use crate::content::refs::*;

const CONTEXT: RefContext<'_> = RefContext {
    project_path: "group/project",
    project_url: Some("https://gitlab.example.com/group/project"),
    own: (ItemType::Issue, 999),
};

fn found(text: &str, role: RefText) -> Vec<String> {
    let mut found = BTreeSet::new();
    collect_refs(text, role, CONTEXT, &mut found);
    found.into_iter().map(|reference| format!("{} {}", reference.kind.as_str(), reference.target)).collect()
}

#[test]
fn api_60_66_short_forms_and_addresses_of_every_age_name_the_same_item() {
    for text in [
        "#6",
        "project#6",
        "group/project#6",
        "https://gitlab.example.com/group/project/issues/6",
        "https://gitlab.example.com/group/project/-/issues/6",
        "https://gitlab.example.com/group/project/-/work_items/6",
        "https://gitlab.example.com/group/project/-/issues/6#note_123",
    ] {
        assert_eq!(found(text, RefText::Comment), ["mentions group/project#6"], "{text}");
    }
    assert_eq!(found("see other/place!34", RefText::Comment), ["mentions other/place!34"]);
}

#[test]
fn api_67_code_and_escaped_marks_name_nothing() {
    for text in ["`#6`", "```\n#6\n```", "    #6", "\\#6", "$10 and ~5"] {
        assert_eq!(found(text, RefText::Comment), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn api_68_the_closing_pattern_counts_in_titles_and_descriptions_alone() {
    let text = "Fixes #18, #19 and https://gitlab.example.com/other/place/-/issues/20";
    assert_eq!(
        found(text, RefText::Description),
        ["closes group/project#18", "closes group/project#19", "closes other/place#20"]
    );
    assert!(found(text, RefText::Comment).iter().all(|line| line.starts_with("mentions")));
    assert_eq!(found("Implements #1", RefText::Description), ["closes group/project#1"]);
}

#[test]
fn api_71_system_notes_are_hints_in_their_known_wordings() {
    assert_eq!(found("moved to other/place#5", RefText::System), ["moved other/place#5"]);
    assert_eq!(found("marked this issue as related to #8", RefText::System), ["related group/project#8"]);
    assert_eq!(
        found("mentioned in issue #9", RefText::System),
        Vec::<String>::new(),
        "the other item says so itself"
    );
    assert_eq!(found("Added ~392754 label", RefText::System), Vec::<String>::new());
}
