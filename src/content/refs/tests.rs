mod facts;

use proptest::prelude::*;

use super::*;

const CONTEXT: RefContext<'static> = RefContext {
    project_path: "group/sub/app",
    project_url: Some("https://gitlab.example.com/group/sub/app"),
    own: (ItemType::Issue, 99),
};

fn refs_in(text: &str, role: RefText, context: RefContext<'_>) -> Vec<String> {
    let mut found = BTreeSet::new();
    collect_refs(text, role, context, &mut found);
    found
        .into_iter()
        .map(|found| match found.kind {
            RefKind::Mentions => found.target.to_string(),
            kind => format!("{} {}", kind.as_str(), found.target),
        })
        .collect()
}

fn mentions(text: &str) -> Vec<String> {
    refs_in(text, RefText::Comment, CONTEXT)
}

fn described(text: &str) -> Vec<String> {
    refs_in(text, RefText::Description, CONTEXT)
}

#[test]
fn short_forms_are_completed() {
    assert_eq!(mentions("see #12, !34."), ["group/sub/app#12", "group/sub/app!34"]);
    assert_eq!(mentions("(lib#7)"), ["group/sub/lib#7"]);
    assert_eq!(mentions("other/lib#7 a/b/c!8"), ["a/b/c!8", "other/lib#7"]);
    assert_eq!(mentions("#12+ and #13+s"), ["group/sub/app#12", "group/sub/app#13"]);
    let flat = RefContext { project_path: "app", project_url: None, own: (ItemType::Issue, 1) };
    assert_eq!(refs_in("lib#7", RefText::Comment, flat), ["lib#7"]);
}

#[test]
fn a_bare_number_of_a_kind_names_that_kind() {
    assert_eq!(mentions("#2 is not !2"), ["group/sub/app#2", "group/sub/app!2"]);
}

#[test]
fn what_looks_like_a_reference_and_is_none() {
    for text in [
        "costs $10, ~5, %7, &8",
        "colour #fff000 and #12ab",
        "C#7 and F#8",
        r"escaped \#12 and \!34",
        "&#39; entity",
        "[top](#12)",
        "é#1 日#2",
        "##12 !!3 #0 #012 #1234567890",
        "#12_ #12x",
        "/lib#7 ../lib#7 a//b#7 -x#7",
        "@user#7",
        "https://example.org/page#12 http://x.org/a!34",
        "a != 1, !0",
        "mail:someone#x",
    ] {
        assert_eq!(mentions(text), [""; 0], "{text}");
    }
}

#[test]
fn a5_15_code_holds_no_references_and_quotes_do() {
    let text = "trace:\n```\n#1 0x00 in ?? ()\n#15 main ()\n```\ninline `#3`\n\n    #5 indented\n\n> #4\n";
    assert_eq!(mentions(text), ["group/sub/app#4"]);
    assert_eq!(mentions("~~~\n!7\n~~~\n#8"), ["group/sub/app#8"]);
    assert_eq!(mentions("<!-- Closes #7 --> #8"), ["group/sub/app#8"]);
}

#[test]
fn every_form_of_address_is_understood() {
    for address in [
        "https://gitlab.example.com/group/lib/issues/6",
        "https://gitlab.example.com/group/lib/-/issues/6",
        "http://GitLab.example.com/group/lib/-/issues/6#note_123",
        "https://gitlab.example.com/group/lib/-/work_items/6",
        "https://gitlab.example.com/group/lib/-/issues/incident/6",
        "https://gitlab.example.com/group/lib/-/issues/6?tab=x",
        "https://gitlab.example.com/group/lib/-/issues/6/designs",
        "(https://gitlab.example.com/group/lib/-/issues/6).",
        "[this](https://gitlab.example.com/group/lib/-/issues/6)",
        "<https://gitlab.example.com/group/lib/-/issues/6>",
        "**https://gitlab.example.com/group/lib/-/issues/6**",
        "见https://gitlab.example.com/group/lib/-/issues/6。",
    ] {
        assert_eq!(mentions(address), ["group/lib#6"], "{address}");
    }
    assert_eq!(mentions("https://gitlab.example.com/g/lib/-/merge_requests/3/diffs#x."), ["g/lib!3"]);
    for address in [
        "https://elsewhere.org/group/lib/-/issues/6",
        "https://gitlab.example.com/groups/g/-/work_items/6",
        "https://gitlab.example.com/group/lib/-/issues/new",
        "https://gitlab.example.com/group/lib/-/pipelines/6",
        "https://gitlab.example.com/-/issues/6",
        "ftp://gitlab.example.com/group/lib/-/issues/6",
    ] {
        assert_eq!(mentions(address), [""; 0], "{address}");
    }
}

#[test]
fn an_instance_under_a_path_and_an_unknown_instance() {
    let under = RefContext { project_url: Some("https://x.org/git/group/sub/app/"), ..CONTEXT };
    assert_eq!(refs_in("https://x.org/git/a/b/issues/6", RefText::Comment, under), ["a/b#6"]);
    assert_eq!(refs_in("https://x.org/a/b/issues/6", RefText::Comment, under), [""; 0]);
    let unknown = RefContext { project_url: None, ..CONTEXT };
    assert_eq!(refs_in("https://any.org/a/b/-/issues/6", RefText::Comment, unknown), ["a/b#6"]);
    let renamed = RefContext { project_url: Some("https://x.org/old/name"), ..CONTEXT };
    assert_eq!(refs_in("https://x.org/a/b/issues/6", RefText::Comment, renamed), ["a/b#6"]);
}

#[test]
fn closing_words_follow_the_default_pattern() {
    let url = "https://gitlab.example.com/o/p/-/issues/20";
    assert_eq!(
        described(&format!("This fixes #18, #19 and {url}. See #21")),
        ["group/sub/app#21", "closes group/sub/app#18", "closes group/sub/app#19", "closes o/p#20"]
    );
    for text in ["Closes: #1", "Resolved  issue #1", "Implementing #1", "closes issues #1", "(Fix #1)"] {
        assert_eq!(described(text), ["closes group/sub/app#1"], "{text}");
    }
    for text in ["closes\n#1", "FIXES #1", "hotfixes #1", "fixes `x` #1", "fixes#1 ", "discloses #1"] {
        assert!(!described(text).iter().any(|found| found.starts_with("closes")), "{text}");
    }
    assert_eq!(described("Closes !5"), ["group/sub/app!5"]);
    assert_eq!(described("closes #1 or #2"), ["group/sub/app#2", "closes group/sub/app#1"]);
    assert_eq!(mentions("closes #1"), ["group/sub/app#1"], "comments do not close");
}

#[test]
fn system_notes_give_hints() {
    let hint = |text| refs_in(text, RefText::System, CONTEXT);
    assert_eq!(hint("moved to other/app#9"), ["moved other/app#9"]);
    assert_eq!(hint("moved from other/app#9"), ["related other/app#9"]);
    assert_eq!(hint("marked this issue as a duplicate of #4"), ["duplicates group/sub/app#4"]);
    assert_eq!(hint("marked #4 as a duplicate of this issue"), ["related group/sub/app#4"]);
    assert_eq!(hint("marked this issue as related to #4"), ["related group/sub/app#4"]);
    assert_eq!(hint("closed via merge request !4"), ["related group/sub/app!4"]);
    assert_eq!(hint("mentioned in issue #4"), [""; 0]);
    assert_eq!(hint("changed the description"), [""; 0]);
}

#[test]
fn an_item_does_not_refer_to_itself() {
    assert_eq!(
        mentions("#99 !99 https://gitlab.example.com/group/sub/app/-/issues/99"),
        ["group/sub/app!99"]
    );
}

#[test]
fn a_megabyte_takes_linear_time() {
    for unit in
        ["a", "#", "a#1", "!", "/", "http://", "fixes #1, ", ":", " ", "a/", "https://gitlab.example.com/"]
    {
        let mut text = format!("x{}", unit.repeat(1_000_000 / unit.len()));
        text.push_str(" #5");
        assert!(mentions(&text).contains(&"group/sub/app#5".to_owned()), "{unit}");
        described(&text);
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in any::<String>()) {
        described(&text);
    }

    #[test]
    fn dense_marks_are_read_without_panic(text in r"[#!:/h.tps1a\\`~ \n<>é日]{0,120}") {
        described(&text);
        refs_in(&text, RefText::System, CONTEXT);
    }

    #[test]
    fn a_fence_hides_everything_inside(inside in r"[#!:/a1 \n>\-`]{0,80}", before in "[a-z .\n]{0,20}") {
        prop_assume!(!inside.contains("```"));
        prop_assert_eq!(mentions(&format!("{before}\n```\n{inside} #5\n```\n")), [""; 0]);
    }
}
