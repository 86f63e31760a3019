use proptest::prelude::*;

use super::*;

fn terms(text: &str) -> Vec<String> {
    document_terms(text).split(' ').filter(|term| !term.is_empty()).map(str::to_owned).collect()
}

#[test]
fn plain_words_have_no_terms() {
    for text in [
        "The quick brown fox jumps. HTTP_502 in atomic_write_json(), see src/auth/login.ts",
        "Clément Müller résumé 1.2.3 E0382 4c76932b1e0f state-of-the-art Base64 URLs PRs 日 ",
        "i++ -Wall --debug a-Dog",
    ] {
        let found = terms(text);
        assert!(found.is_empty() || found == ["日"], "{found:?}");
    }
}

#[test]
fn names_in_camel_case_are_found_by_their_ends_and_parts() {
    assert_eq!(terms("getUserById"), ["userbyid", "byid", "get", "user"]);
    assert_eq!(terms("HTTPServer XMLHttpRequest"), ["server", "http", "httprequest", "request", "xml"]);
    assert_eq!(terms("std::HashMap<u8>"), ["map", "hash"]);
    assert_eq!(terms("aGVsbG8gd29ybGQgZm9v"), [""; 0], "encoded data is no name");
    assert_eq!(query_terms("getUserById"), ["get", "user", "by", "id"]);
    assert_eq!(query_terms("user_by_id"), ["userbyid"]);
    assert_eq!(query_terms("UserById"), ["user", "by", "id"]);
}

#[test]
fn names_of_compiler_flags_are_found_without_the_flag() {
    assert_eq!(terms("cmake -DWITH_SSL=ON -DNDEBUG"), ["withssl", "ndebug"]);
    assert_eq!(query_terms("WITH_SSL"), ["withssl"]);
}

#[test]
fn a3_28_languages_with_signs_are_told_apart() {
    assert_eq!(
        terms("C++ template, C# async, plain C, F#, .NET and ASP.NET"),
        ["cplusplus", "csharp", "fsharp", "dotnet"]
    );
    assert_eq!(query_terms("C++"), ["cplusplus"]);
    assert_eq!(query_terms("c#"), ["csharp"]);
    assert_eq!(query_terms(".net"), ["dotnet"]);
    assert_eq!(query_terms("C"), [""; 0]);
    assert_eq!(terms("example.net i++"), [""; 0]);
}

#[test]
fn a3_21_versions_are_found_without_their_letters() {
    assert_eq!(terms("since v1.2.3, and go1.21."), ["1.2.3", "1.21"]);
    assert_eq!(query_terms("v1.2.3"), ["1.2.3"]);
    assert_eq!(query_terms("1.2.3"), [""; 0]);
    assert_eq!(query_terms("E0382"), [""; 0]);
}

#[test]
fn a3_20_letters_that_are_not_folded_are_spelt_out() {
    assert_eq!(terms("Økland, Paweł, Straße, Łódź, Clément"), ["okland", "pawel", "strasse", "lódź"]);
    assert_eq!(query_terms("Økland"), ["okland"]);
    assert_eq!(query_terms("okland"), [""; 0]);
    assert_eq!(query_terms("Müller"), [""; 0]);
    assert_eq!(terms("ＡＢＣ１"), ["abc1"]);
}

#[test]
fn a3_18_runs_without_spaces_become_pairs() {
    assert_eq!(terms("公寓大廈"), ["公寓", "寓大", "大廈", "廈"]);
    assert_eq!(query_terms("管理"), ["管理"]);
    for (title, query) in [
        ("統全公寓大廈管理維護", "管理"),
        ("サンドボックス修正テスト", "テスト"),
        ("한국어를", "한국어"),
        ("ภาษาไทย", "ไทย"),
    ] {
        let title = terms(title);
        let wanted = query_terms(query);
        assert!(!wanted.is_empty() && wanted.iter().all(|pair| title.contains(pair)), "{query}");
    }
    assert_eq!(query_terms("猫"), ["猫"]);
    assert_eq!(
        terms("使用getUserById函数"),
        ["使用", "用", "getuserbyid", "userbyid", "byid", "get", "user", "函数", "数"]
    );
}

#[test]
fn terms_are_bounded() {
    let text: String = (0..20_000).map(|n| format!("someName{n} ")).collect();
    assert_eq!(terms(&text).len(), MAX_TERMS);
    assert_eq!(document_terms(&"aB".repeat(500_000)), "");
}

proptest! {
    #[test]
    fn any_text_has_terms_without_panic(text in any::<String>()) {
        let once = terms(&text);
        prop_assert_eq!(once.iter().collect::<HashSet<_>>().len(), once.len());
        query_terms(&text);
    }

    #[test]
    fn dense_signs_are_read_without_panic(text in r"[-_.#+DvcC1aB日本ßøé\u{0E34}]{0,60}") {
        terms(&text);
        query_terms(&text);
    }
}
