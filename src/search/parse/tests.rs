use proptest::prelude::*;

use super::*;
use crate::content::{ItemType, SourceType};

fn read(text: &str) -> Query {
    parse(text, Wanted::default(), 0).unwrap()
}

fn phrase(text: &str) -> Clause {
    Clause::Phrase(text.to_owned())
}

#[test]
fn words_phrases_and_signs_are_told_apart() {
    let query = read(r#"login fails "session expired" +oauth -saml token* -"old ui" login"#);
    assert_eq!(query.words, ["login", "fails", "login"]);
    assert_eq!(
        query.required,
        [phrase("session expired"), phrase("oauth"), Clause::Prefix("token".to_owned())]
    );
    assert_eq!(query.excluded, [phrase("saml"), phrase("old ui")]);
}

#[test]
fn operators_are_filters_and_unknown_ones_are_text() {
    let query = read(r#"label:"needs review" Label:bug is:open type:mrs author:@ann foo:bar std::vector"#);
    assert_eq!(query.wanted.labels, ["needs review", "bug"]);
    assert_eq!(query.wanted.states, ["opened"]);
    assert_eq!(query.wanted.types, [SourceType::MergeRequest]);
    assert_eq!(query.wanted.authors, ["ann"]);
    assert_eq!(query.words, ["foo", "bar", "std", "vector"]);
    assert_eq!(read("label: bug").words, ["label", "bug"]);
}

#[test]
fn filters_are_left_out_with_a_dash_whatever_their_case_and_quotes() {
    let query = read("-LABEL:\"a b\" -Label:\"a b\" +is:open -is:MR upload");
    assert_eq!((query.wanted.not.len(), query.words), (2, vec!["upload".to_owned()]));
    assert_eq!(query.wanted.not[0].labels, ["a b"]);
    assert_eq!((query.wanted.states, query.required), (vec!["opened".to_owned()], vec![]));
    let error = |text: &str| parse(text, Wanted::default(), 0).unwrap_err();
    assert_eq!(error("crash -type:isue").kind(), ErrorKind::InvalidEnumValue);
    assert_eq!(error("crash -in:title").kind(), ErrorKind::Usage);
    assert_eq!(error("crash label:\"\"").kind(), ErrorKind::Usage);
    assert_eq!(read("-std::vec x").excluded, [phrase("std vec")]);
}

#[test]
fn what_is_pasted_is_text() {
    let log = "error: cannot borrow\nstate: ajar type:isue label:x is:open\nat src/a.rs:12 in:main author:me some more words of it";
    let query = read(log);
    assert!(query.wanted.is_empty(), "{:?}", query.wanted);
    assert!(query.words.contains(&"isue".to_owned()));
    let typed = read(
        "is:open label:bug type:isue the crash that happens when a file is opened and closed again and again",
    );
    assert_eq!((typed.wanted.labels.len(), typed.warnings.len()), (1, 1), "{:?}", typed.warnings);
    assert!(typed.words.contains(&"isue".to_owned()));
}

#[test]
fn what_nobody_sees_and_wide_signs_are_read_as_what_they_look_like() {
    assert_eq!(read("\u{feff}is:open\u{200b} crash").wanted.states, ["opened"]);
    assert_eq!(read("＃１２").references, read("#12").references);
    assert!(read("ｅｒｒｏｒ").words.contains(&"error".to_owned()));
    assert!(read("up\u{200b}load").words.contains(&"upload".to_owned()));
    assert_eq!(read("-draft").warnings.len(), 1);
    assert_eq!(read("-DWITH_SSL").warnings.len(), 0);
    assert_eq!(read(">=1.2.3").literals, read("1.2.3").literals);
}

#[test]
fn a_bad_value_of_a_known_operator_is_an_error() {
    let kind = |text: &str| parse(text, Wanted::default(), 0).unwrap_err().kind();
    assert_eq!(kind("crash type:isue"), ErrorKind::InvalidEnumValue);
    assert_eq!(kind("crash is:ajar"), ErrorKind::InvalidEnumValue);
    assert_eq!(kind("crash after:someday"), ErrorKind::Usage);
}

#[test]
fn a_filter_alone_is_a_query_and_nothing_is_not() {
    assert!(!read("is:open label:bug").has_text());
    for text in ["", "   ", "?!", "\0", "\"", "\"\"", "++ -- **", "🦀", "- \u{301}", "in:title"] {
        let error = parse(text, Wanted::default(), 0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoUsableTokens, "{text:?}");
    }
}

#[test]
fn an_option_of_a_command_is_text() {
    assert_eq!(read("-DWITH_SSL").words, ["dwith", "ssl"]);
    assert_eq!(read("cmake -DWITH_SSL=ON").words, ["cmake", "dwith", "ssl", "on"]);
    assert_eq!(read("-draft").words, ["draft"], "nothing else is asked for");
    assert_eq!(read("login -draft").excluded, [phrase("draft")]);
    assert_eq!(read("is:open -draft").excluded, [phrase("draft")]);
    assert_eq!(read("foo - bar").words, ["foo", "bar"]);
}

#[test]
fn a3_11_quotes_of_every_kind_are_read() {
    assert_eq!(read("\"--error-on-warnings\"").required, [phrase("error on warnings")]);
    assert_eq!(read("a\"b").words, ["a", "b"]);
    assert_eq!(read("\"unbalanced").words, ["unbalanced"]);
    let query = read("say \"hello world\" now");
    assert_eq!(query.words, ["say", "now"]);
    assert_eq!(query.required, [phrase("hello world")]);
}

#[test]
fn signs_do_not_bind_in_prose() {
    let text = "articles on what \"type correct\" means when processes exchange messages -blocksdir and the sender is not known";
    let query = read(text);
    assert!(query.required.is_empty() && query.excluded.is_empty());
    assert_eq!(query.literals, ["type correct"]);
    assert!(query.words.contains(&"correct".to_owned()) && query.words.contains(&"blocksdir".to_owned()));
    assert!(query.warnings[0].contains("prose"));
}

#[test]
fn literals_are_recognised() {
    let query = read("see group/proj#12, !34 and 4c76932b1 (v1.2.3) POL-358 error[E0382]");
    assert_eq!(query.references.len(), 2);
    assert_eq!(query.references[1].item_type, ItemType::MergeRequest);
    assert_eq!(query.hashes, ["4c76932b1"]);
    assert_eq!(
        query.literals,
        ["group proj 12", "1 2 3", "v1 2 3", "pol 358".to_uppercase().as_str(), "error E0382"]
    );
    assert!(query.words.contains(&"358".to_owned()));
    assert!(read("re-index the state-of-the-art").literals.is_empty());
}

#[test]
fn size_is_bounded() {
    let many: String = (0..10_000).map(|n| format!("w{n} ")).collect();
    let query = read(&many);
    assert!(query.words.len() <= MAX_WORDS);
    assert_eq!(query.warnings.len(), 1);
    let long = "a".repeat(100_000);
    assert_eq!(parse(&long, Wanted::default(), 0).unwrap_err().kind(), ErrorKind::NoUsableTokens);
    let query = read(&format!("tail {long} unread"));
    assert_eq!(query.words, ["tail"]);
    assert_eq!(query.warnings.len(), 2);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_in_words(text in any::<String>()) {
        match parse(&text, Wanted::default(), 0) {
            Ok(query) => {
                let all = query.words.iter().chain(&query.literals).chain(&query.hashes);
                for word in all {
                    prop_assert!(words(word).next().is_some());
                }
            }
            Err(error) => prop_assert!(matches!(
                error.kind(),
                ErrorKind::NoUsableTokens | ErrorKind::InvalidEnumValue | ErrorKind::Usage
            )),
        }
    }

    #[test]
    fn signs_and_quotes_in_any_order_are_read(text in r#"[-+*":#!a-c0-9_. ]{0,40}"#) {
        let read = parse(&text, Wanted::default(), 0);
        prop_assert!(read.is_ok() || read.unwrap_err().kind() == ErrorKind::NoUsableTokens);
    }
}

#[test]
fn numbers_below_zero_and_short_options_are_text() {
    for text in ["wallet has no keys (code -4)", "exit code -11", "gcc -O2 fails", "rm -v"] {
        let query = parse(text, Wanted::default(), 0).unwrap();
        assert!(query.excluded.is_empty(), "{text}: {:?}", query.excluded);
    }
    assert!(parse("code -4", Wanted::default(), 0).unwrap().words.contains(&"4".to_owned()));
    assert_eq!(parse("crash -windows", Wanted::default(), 0).unwrap().excluded.len(), 1);
}

#[test]
fn text_without_a_word_is_refused_beside_filters_too() {
    let issues = || Wanted { types: vec![SourceType::Issue], ..Wanted::default() };
    let error = parse("((( %", issues(), 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoUsableTokens);
    assert!(error.hints().iter().any(|hint| hint.contains("leave the text out")), "{:?}", error.hints());
    assert!(parse("", issues(), 0).is_ok());
    assert!(parse("is:open -draft", Wanted::default(), 0).is_ok());
}

#[test]
fn a_text_narrows_the_projects_of_a_flag_and_never_widens_them() {
    let flag = || Wanted { projects: vec!["acme/pub".to_owned()], ..Wanted::default() };
    let query = parse("project:other/x wombat", flag(), 0).unwrap();
    assert_eq!(query.wanted.projects, ["other/x"]);
    assert_eq!(query.wanted.within, ["acme/pub"]);
    assert_eq!(parse("wombat", flag(), 0).unwrap().wanted.projects, ["acme/pub"]);
}

#[test]
fn a_slip_in_the_name_of_a_filter_is_told() {
    let warned = |text: &str| parse(text, Wanted::default(), 0).unwrap().warnings;
    assert!(
        warned("crash auther:ann")[0].contains("did you mean author:?"),
        "{:?}",
        warned("crash auther:ann")
    );
    for text in ["http://host/x", "std::vector crash", "error: no space", "id:5 crash", "foo:bar"] {
        assert_eq!(warned(text), Vec::<String>::new(), "{text}");
    }
}
