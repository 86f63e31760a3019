use super::super::parse::parse;
use super::super::wanted::Wanted;
use super::*;

fn plan_with(text: &str, corpus: i64, documents: &dyn Fn(&str) -> i64) -> Plan {
    let query = parse(text, Wanted::default(), 0).unwrap();
    plan(&query, corpus, &mut |expression, cap| Ok(documents(expression).min(cap))).unwrap()
}

fn expression(text: &str) -> String {
    plan_with(text, 1_000, &|_| 10).expression.unwrap()
}

#[test]
fn words_are_alternatives_and_stop_words_go() {
    assert_eq!(expression("why does the login crash"), "\"login\" OR \"crash\"");
    assert_eq!(expression("to be or not to be").split(" OR ").count(), 1, "`not` remains");
    assert_eq!(expression("the who"), "\"the\" OR \"who\"", "nothing else is left");
}

#[test]
fn repeats_and_inflections_count_as_one_word_twice() {
    let plan = plan_with("crash crashes login", 1_000, &|_| 10);
    assert_eq!(plan.expression.as_deref(), Some("\"crash\" OR \"login\""));
    assert_eq!(plan.phrases, [(10.0, 2.0), (10.0, 1.0)]);
}

#[test]
fn what_must_match_is_enough_alone() {
    let plan = plan_with("login \"session expired\" -saml", 1_000, &|_| 10);
    assert_eq!(
        plan.expression.as_deref(),
        Some("(\"session expired\" AND (\"login\" OR \"session expired\")) NOT (\"saml\")")
    );
    assert_eq!(plan.phrases, [(10.0, 1.0), (10.0, 1.0), (10.0, 0.0), (0.0, 0.0)]);
    let unmet = plan_with("login +zebra", 1_000, &|part| if part.contains("zebra") { 0 } else { 10 });
    assert_eq!(unmet.expression, None);
}

#[test]
fn a3_16_a_prefix_asks_for_the_stems_that_hide_it() {
    let text = expression("sanitiz*");
    assert!(text.starts_with("(\"sanitiz\"*") && text.contains("\"sanitize\""), "{text}");
    let (text, size) = prefix_expression("authentica");
    assert!(text.contains("\"authentication\"") || text.contains("\"authenticate\""), "{text}");
    assert_eq!(text.split(" OR ").count(), size.len());
    assert!(prefix_expression("recor").0.starts_with("(\"recor\"*"));
}

#[test]
fn quotation_marks_never_reach_the_index() {
    for text in ["a\"b c", "\"x\"\"y\"", "\"", "'\"'"] {
        if let Ok(query) = parse(text, Wanted::default(), 0) {
            let plan = plan(&query, 10, &mut |_, _| Ok(1)).unwrap();
            let marks = plan.expression.unwrap_or_default().matches('"').count();
            assert_eq!(marks % 2, 0, "{text}");
        }
    }
}

#[test]
fn a_word_that_no_document_holds_weighs_but_is_not_asked() {
    let plan = plan_with("printer zebra", 20, &|part| if part.contains("zebra") { 0 } else { 5 });
    assert_eq!(plan.expression.as_deref(), Some("\"printer\""));
    let alone = plan_with("printer", 20, &|_| 5);
    assert!(plan.mass > 2.0 * alone.mass);
}

#[test]
fn a_long_text_is_its_first_line_and_its_rarest_words() {
    let body: String = (0..60).map(|n| format!("word{n:02} ")).collect();
    let documents = |part: &str| part.trim_matches('"').trim_start_matches("word").parse().unwrap_or(500);
    let plan = plan_with(&format!("broken pump\n{body}"), 1_000_000, &documents);
    let text = plan.expression.unwrap();
    assert_eq!(text.split(" OR ").count(), 22);
    assert!(
        text.contains("\"broken\"") && text.contains("\"word01\"") && !text.contains("\"word30\""),
        "{text}"
    );
    assert_eq!(plan.phrases[0].1, 2.0, "words of the first line count twice");
}

#[test]
fn common_words_go_when_they_cost_too_much_and_rarer_ones_are_there() {
    let documents = |part: &str| match part {
        "\"error\"" => 60_000,
        "\"server\"" => 15_000,
        "\"kerberos\"" => 40,
        _ => 0,
    };
    assert_eq!(
        plan_with("kerberos server error", 100_000, &documents).expression.as_deref(),
        Some("\"kerberos\" OR \"server\"")
    );
    assert_eq!(plan_with("error", 100_000, &documents).expression.as_deref(), Some("\"error\""));
    let small = |part: &str| if part.contains("error") { 900 } else { 3 };
    assert_eq!(plan_with("kerberos error", 1_000, &small).phrases.len(), 2, "a small index reads everything");
}

#[test]
fn a_title_query_looks_into_titles_only() {
    let query = parse("crash -old in:title", Wanted::default(), 0).unwrap();
    let plan = plan(&query, 10, &mut |_, _| Ok(1)).unwrap();
    assert_eq!(plan.expression.as_deref(), Some("{title} : ((\"crash\") NOT (\"old\"))"));
}
