use proptest::prelude::*;

use super::super::parse::parse;
use super::super::wanted::Wanted;
use super::super::{lexical, stem};
use super::*;

fn needles(query: &str) -> Needles {
    let query = parse(query, Wanted::default(), 0).unwrap();
    lexical::plan(&query, 1_000, &mut |_, _| Ok(1)).unwrap().needles
}

fn cut(text: &str, query: &str) -> Snippet {
    build(text, &needles(query))
}

#[test]
fn a4_20_stems_are_marked_as_whole_words() {
    let text = "the gallery was running";
    assert_eq!(cut(text, "galleries").html(), "the <mark>gallery</mark> was running");
    assert_eq!(cut(text, "run").html(), "the gallery was <mark>running</mark>");
    assert_eq!(cut(text, "gall*").html(), "the <mark>gallery</mark> was running");
    assert_eq!(
        cut("apple apples applied", "apples").html(),
        "<mark>apple</mark> <mark>apples</mark> applied"
    );
}

#[test]
fn a4_18_under_mark_everything_else_is_escaped() {
    let html = cut("Quarterly <img src=x onerror=\"alert(1)\"> quarterly & 'co'", "quarterly").html();
    assert_eq!(
        html,
        "<mark>Quarterly</mark> &lt;img src=x onerror=&quot;alert(1)&quot;&gt; <mark>quarterly</mark> &amp; &#39;co&#39;"
    );
}

#[test]
fn control_characters_never_reach_a_terminal() {
    let text = cut("a \u{1b}[31mred\u{7} word\u{202e} here\r\n\tnext", "word").text;
    assert_eq!(text, "a [31mred word here next");
}

#[test]
fn a4_16_cuts_never_split_a_character() {
    for text in [
        format!("{}─────text after", "a".repeat(99)),
        format!("{}—", "a".repeat(79)),
        format!("{} crash {}日本", "é ".repeat(300), "語".repeat(500)),
    ] {
        let snippet = cut(&text, "crash text");
        assert!(snippet.text.chars().count() <= LENGTH + 2, "{snippet:?}");
    }
}

#[test]
fn a4_16_a_cut_never_divides_what_is_seen_as_one_sign() {
    for (sign, size) in
        [("👩\u{200d}👩\u{200d}👧", 5), ("e\u{301}\u{323}", 3), ("🇩🇪", 2), ("👍🏽", 2), ("❤\u{fe0f}", 2)]
    {
        for lead in 0..size {
            let text = format!("{}{}", "a".repeat(lead), sign.repeat(300));
            let cut = cut(&text, "absent").text;
            let signs = cut.trim_start_matches('a').trim_end_matches('…');
            assert_eq!(signs.chars().count() % size, 0, "{sign} after {lead}: {cut}");
            assert!(signs.chars().count() + size > LENGTH - lead, "{cut}");
        }
    }
}

#[test]
fn line_ends_in_a_title_are_spaces() {
    assert_eq!(printable("one\ntwo\tthree\u{2028}four\u{1b}[31m"), "one two three four[31m");
}

#[test]
fn the_densest_passage_wins() {
    let far = "padding ".repeat(100);
    let text = format!("token at first. {far} the session token has expired today. {far} session");
    let snippet = cut(&text, "session token expired");
    assert!(snippet.text.contains("the session token has expired"), "{}", snippet.text);
    assert!(snippet.text.starts_with('…') && snippet.text.ends_with('…'));
    assert_eq!(snippet.density, 3);
}

#[test]
fn runs_without_spaces_are_marked_inside() {
    assert_eq!(cut("サンドボックス修正テスト", "テスト").html(), "サンドボックス修正<mark>テスト</mark>");
    assert_eq!(cut("Der Müller kam", "muller").html(), "Der <mark>Müller</mark> kam");
}

#[test]
fn without_a_hit_it_is_the_beginning() {
    let snippet = cut(&"word ".repeat(100), "absent");
    assert!(snippet.text.starts_with("word word") && snippet.text.ends_with("word…"));
    assert!(snippet.highlights.is_empty());
    assert_eq!(cut("", "x").text, "");
}

/// The index itself says how it stems.
#[test]
fn stems_are_those_of_the_index() {
    let (_dir, store) = crate::store::fixtures::store();
    let roots = [
        "abil",
        "adopt",
        "agree",
        "analog",
        "authentic",
        "bleed",
        "cache",
        "commun",
        "conflat",
        "control",
        "cry",
        "decis",
        "defens",
        "depend",
        "differ",
        "digit",
        "elect",
        "fall",
        "fil",
        "form",
        "gallery",
        "general",
        "happ",
        "hop",
        "hopp",
        "inferen",
        "io",
        "irrit",
        "live",
        "logg",
        "match",
        "motor",
        "oper",
        "oscill",
        "plaster",
        "pony",
        "predic",
        "probat",
        "radic",
        "rat",
        "relat",
        "replac",
        "reviv",
        "roll",
        "sanit",
        "sens",
        "size",
        "tann",
        "tie",
        "trip",
        "troubl",
        "us",
        "valid",
        "vietnam",
        "vil",
        "x1b2",
        "yy",
        "deadbeef4",
    ];
    let endings = [
        "", "s", "es", "ies", "ed", "eed", "ing", "y", "er", "ement", "ment", "ent", "ate", "ational",
        "tional", "enci", "anci", "izer", "bli", "alli", "entli", "eli", "ousli", "ization", "ation", "ator",
        "alism", "iveness", "fulness", "ousness", "aliti", "iviti", "biliti", "icate", "ative", "alize",
        "iciti", "ical", "ful", "ness", "al", "ance", "ence", "ic", "able", "ible", "ant", "ion", "ou",
        "ism", "iti", "ous", "ive", "ize", "e", "ll", "logi", "sses", "ss", "zz", "ied", "ying",
    ];
    let all: Vec<String> =
        roots.iter().flat_map(|root| endings.iter().map(move |end| format!("{root}{end}"))).collect();
    let indexed = crate::store::fixtures::index_forms(&store, &all);
    for (word, form) in all.iter().zip(indexed) {
        assert_eq!(stem::index_form(word), form, "{word}");
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { cases: 2_000, ..Default::default() })]

    #[test]
    fn a4_16_any_unicode_gives_passages_within_their_bounds(
        parts in prop::collection::vec(
            prop_oneof![any::<String>(), "\\PC{0,40}", "(crash|running|日本語|e\u{301}|👩‍👩‍👧|\u{202e}|\r\n| ){1,40}"],
            0..12,
        ),
        query in "crash|run|日本|cr* e|\"crash run\"|👩",
        chars in 0_usize..600,
    ) {
        let text = parts.concat();
        let Ok(query) = parse(&query, Wanted::default(), 0) else { return Ok(()) };
        let needles = lexical::plan(&query, 1_000, &mut |_, _| Ok(1)).unwrap().needles;
        let (part, _) = excerpt(&text, &needles, chars);
        prop_assert!(part.chars().count() <= chars.max(1), "{}", part.chars().count());
        prop_assert!(!part.contains(|c: char| c.is_control() && !matches!(c, '\n' | '\t')));
        let snippet = build(&text, &needles);
        let length = snippet.text.chars().count();
        prop_assert!(length <= LENGTH + 2);
        prop_assert!(!snippet.text.contains(char::is_control));
        let mut last = 0;
        for (from, to) in &snippet.highlights {
            prop_assert!(last <= *from && from < to && *to <= length);
            last = *to;
        }
        let bare = snippet.html().replace("<mark>", "").replace("</mark>", "");
        prop_assert_eq!(bare, Snippet { highlights: vec![], ..snippet.clone() }.html());
    }

    #[test]
    fn any_text_gives_a_bounded_passage_with_marks_inside(
        text in "(\\PC{0,12}[ \\n]|crash |running |日本語|\u{1b}|e\u{301}|─){0,120}",
        query in "crash|run|日本|cr* e",
    ) {
        let snippet = cut(&text, &query);
        let length = snippet.text.chars().count();
        prop_assert!(length <= LENGTH + 2);
        prop_assert!(!snippet.text.chars().any(char::is_control));
        let mut last = 0;
        for (from, to) in &snippet.highlights {
            prop_assert!(last <= *from && from < to && *to <= length);
            last = *to;
        }
        let bare = snippet.html().replace("<mark>", "").replace("</mark>", "");
        prop_assert_eq!(bare, Snippet { highlights: vec![], ..snippet.clone() }.html());
        let ansi = snippet.ansi().replace("\u{1b}[1m", "").replace("\u{1b}[22m", "");
        prop_assert_eq!(&ansi, &snippet.text);
    }
}
