//! Tests of finding, merging and checking the configuration.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::error::{Error, ErrorKind};

struct Home {
    dir: tempfile::TempDir,
    places: Places,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        std::fs::create_dir_all(&work).unwrap();
        let mut places = Places { explicit: None, current_dir: work, vars: BTreeMap::new() };
        places.vars.insert("XDG_CONFIG_HOME".to_owned(), dir.path().join("xdg").display().to_string());
        Self { dir, places }
    }

    fn write(&self, file: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn with(text: &str) -> Self {
        let home = Self::new();
        home.write("work/lore.toml", text);
        home
    }

    fn var(mut self, name: &str, value: &str) -> Self {
        self.places.vars.insert(name.to_owned(), value.to_owned());
        self
    }

    fn load(&self) -> Result<Loaded> {
        load(&self.places)
    }

    fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|error| panic!("{error}"))
    }

    fn error(&self) -> Error {
        let error = self.load().map(|loaded| loaded.config).expect_err("an invalid configuration");
        assert_eq!(error.kind(), ErrorKind::Config);
        error
    }

    fn problems(&self) -> Vec<String> {
        let details = self.error().details_value().cloned().unwrap();
        let found = details["diagnostics"].as_array().unwrap().clone();
        found
            .iter()
            .map(|found| {
                let hint = found["suggestion"].as_str().map(|hint| format!("; {hint}")).unwrap_or_default();
                let text = |key: &str| found[key].as_str().unwrap().to_owned();
                format!("{}:{}:{}: {}{hint}", text("file"), found["line"], found["column"], text("message"))
            })
            .collect()
    }
}

use crate::error::Result;

const GITLAB: &str =
    "[sources.main]\nkind = \"gitlab\"\nurl = \"https://git.example.org\"\nprojects = [\"a/b\"]\n";

#[test]
fn without_any_file_the_defaults_hold() {
    let loaded = Home::new().loaded();
    assert_eq!(loaded.config.lock.lease, Duration::from_secs(60));
    assert!(loaded.config.sources.is_empty());
    assert!(loaded.files.is_empty());
    assert!(loaded.origins.is_empty());
}

#[test]
fn a_later_place_wins_over_an_earlier_one() {
    let home = Home::with("[lock]\nlease = \"90s\"\n[query]\ncandidates = 50\n")
        .var("LORE__QUERY__CANDIDATES", "70")
        .var("LORE__LOCK__HEARTBEAT", "5s")
        .var("LORE_LOG_FORMAT", "json");
    home.write(
        "xdg/lore/lore.toml",
        "[lock]\nlease = \"80s\"\nheartbeat = \"7s\"\n[query]\ntext_weight = 2\n",
    );
    let loaded = home.loaded();
    assert_eq!(loaded.config.lock.lease, Duration::from_secs(90), "the working directory over the home");
    assert_eq!(loaded.config.lock.heartbeat, Duration::from_secs(5), "a variable over a file");
    assert_eq!(loaded.config.query.candidates, 70);
    assert!((loaded.config.query.text_weight - 2.0).abs() < f64::EPSILON, "the home over the default");
    assert_eq!(loaded.origins["lock.lease"], "lore.toml:2");
    assert_eq!(loaded.origins["lock.heartbeat"], "LORE__LOCK__HEARTBEAT");
    assert!(loaded.origins["query.text_weight"].ends_with("xdg/lore/lore.toml:5"));
    assert_eq!(loaded.files.len(), 2);
    assert_eq!(loaded.base_dir, home.places.current_dir);
}

#[test]
fn an_explicit_file_replaces_the_usual_ones_and_must_exist() {
    let mut home = Home::with("[query]\ncandidates = 50\n");
    home.write("other/my.toml", "[lock]\nlease = \"70s\"\n");
    home.places.explicit = Some("../other/my.toml".into());
    let loaded = home.loaded();
    assert_eq!((loaded.config.query.candidates, loaded.config.lock.lease.as_secs()), (200, 70));
    home.places.explicit = Some("absent.toml".into());
    let error = home.error();
    assert!(error.to_string().contains("absent.toml"), "{error}");
    assert!(error.hints()[0].contains("must exist"), "{error}");
}

#[test]
fn home_is_searched_when_xdg_is_unset_or_empty() {
    let mut home = Home::new();
    home.write("h/.config/lore/lore.toml", "[query]\ncandidates = 9\n");
    home.places.vars.insert("XDG_CONFIG_HOME".to_owned(), String::new());
    home.places.vars.insert("HOME".to_owned(), home.dir.path().join("h").display().to_string());
    assert_eq!(home.loaded().config.query.candidates, 9);
}

#[test]
fn a6_20_no_home_at_all_is_no_error() {
    let mut home = Home::new();
    home.places.vars.clear();
    assert!(home.load().is_ok());
    home.places.vars.insert("HOME".to_owned(), "/".to_owned());
    assert!(home.load().is_ok());
}

#[test]
fn relative_paths_belong_to_the_file_that_names_them() {
    let home = Home::with("[jobs]\ndir = \"my-jobs\"\n[sources.x]\nkind = \"gitlab-export\"\npath = \"export.tar.gz\"\nproject = \"a/b\"\n")
        .var("LORE__DATABASE__PATH", "var.db");
    home.write(
        "xdg/lore/lore.toml",
        &format!(
            "{GITLAB}ca_file = \"ca.pem\"\ntoken = {{ file = \"token\" }}\n[database]\npath = \"x.db\"\n"
        ),
    );
    let config = home.loaded().config;
    let root = home.dir.path();
    assert_eq!(config.jobs.dir, Some(root.join("work/my-jobs")));
    assert_eq!(config.database.path, Some(root.join("work/var.db")));
    let SourceConfig::Gitlab(main) = &config.sources["main"] else { panic!() };
    assert_eq!(main.ca_file.as_deref(), Some(root.join("xdg/lore/ca.pem").as_path()));
    assert_eq!(main.token.clone().unwrap().file, Some(root.join("xdg/lore/token")));
    let SourceConfig::GitlabExport(export) = &config.sources["x"] else { panic!() };
    assert_eq!(export.path, root.join("work/export.tar.gz"));
    let absolute = Home::with("[database]\npath = \"/data/lore.db\"\n").loaded();
    assert_eq!(absolute.config.database.path.as_deref(), Some(Path::new("/data/lore.db")));
}

#[test]
fn variables_are_typed_by_what_they_set() {
    let home = Home::with(&GITLAB.replace("main", "My-Source"))
        .var("LORE__SOURCES__MY_SOURCE__PROJECTS", "[\"x/y\", \"z/w\"]")
        .var("LORE__SOURCES__MY_SOURCE__REQUESTS_PER_SECOND", "2.5")
        .var("LORE__SOURCES__MY_SOURCE__TOKEN__ENV", "TOK")
        .var("LORE__DATABASE__PATH", "123")
        .var("LORE__DATABASE__ALLOW_NETWORK_FS", "true");
    let config = home.loaded().config;
    let SourceConfig::Gitlab(main) = &config.sources["My-Source"] else { panic!() };
    assert_eq!(main.projects, ["x/y", "z/w"]);
    assert!((main.requests_per_second - 2.5).abs() < f64::EPSILON);
    assert_eq!(main.token.clone().unwrap().env.as_deref(), Some("TOK"));
    assert_eq!(config.database.path, Some(home.places.current_dir.join("123")));
    assert!(config.database.allow_network_fs);
    let url = Home::with(GITLAB).var("LORE__SOURCES__MAIN__TOKEN__ENV", "2024").loaded();
    let SourceConfig::Gitlab(main) = &url.config.sources["main"] else { panic!() };
    assert_eq!(main.token.clone().unwrap().env.as_deref(), Some("2024"), "text where text is wanted");
}

#[test]
fn a_wrong_variable_is_named() {
    let home = Home::new().var("LORE__QUERY__CANDIDATES", "many").var("LORE__QUERRY__LIMIT", "1");
    let error = home.error();
    let problems = home.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0]
            .starts_with("environment:1:1: unknown key `querry` in the configuration; did you mean `query`?"),
        "{problems:?}"
    );
    assert!(error.to_string().contains("LORE__QUERY__CANDIDATES"), "{error}");
    assert!(error.to_string().contains("LORE__QUERRY__LIMIT"), "{error}");
}

#[test]
fn a6_10_unknown_keys_are_errors_with_place_and_near_match() {
    let home = Home::with(
        "[databse]\npath = \"x\"\n[lock]\nlaese = \"60s\"\n[sources.main]\nkind = \"gitlab\"\n\
         url = \"https://h\"\nprojets = [\"a/b\"]\nprojects = [\"a/b\"]\ntoken = { evn = \"X\" }\n\
         [sources.x]\nkind = \"gitlab-exprt\"\n[sources.y]\nurl = \"https://h\"\n[scopes.all]\nproject = [\"*\"]\n",
    );
    let problems = home.problems();
    let want = [
        "lore.toml:1:2: unknown key `databse` in the configuration; did you mean `database`?",
        "lore.toml:4:1: unknown key `laese` in [lock]; did you mean `lease`?",
        "lore.toml:8:1: unknown key `projets` in [sources.main]; did you mean `projects`?",
        "lore.toml:10:11: unknown key `evn` in [sources.main.token]; did you mean `env`?",
        "lore.toml:12:8: unknown kind of source \"gitlab-exprt\"; did you mean \"gitlab-export\"?",
        "lore.toml:13:10: source y has no `kind`, one of gitlab, gitlab-export",
        "lore.toml:15:9: `scopes.all.projects` is not set",
        "lore.toml:16:1: unknown key `project` in [scopes.all]; did you mean `projects`?",
    ];
    assert_eq!(problems, want, "{problems:#?}");
}

#[test]
fn wrong_types_and_ranges_are_all_named() {
    let home = Home::with(
        "[database]\nraw_payloads = \"zst\"\nallow_network_fs = \"yes\"\nbusy_timeout = \"5 minuts\"\n\
         [sources.main]\nkind = \"gitlab\"\nurl = \"https://h\"\nprojects = \"a/b\"\nconcurrency = -1\n\
         [sources.x]\nkind = \"gitlab-export\"\npath = \"p\"\n",
    );
    let problems = home.problems();
    let want = [
        "lore.toml:2:16: unknown variant: found `zst`, expected ``zstd` or `none``; did you mean `zstd`?",
        "lore.toml:3:20: invalid type: found string \"yes\", expected a boolean",
        "lore.toml:4:16: invalid duration \"5 minuts\", expected a duration like",
        "lore.toml:8:12: invalid type: found string \"a/b\", expected a sequence",
        "lore.toml:9:15: invalid value signed int `-1`, expected usize",
        "lore.toml:10:10: `sources.x.project` is not set",
    ];
    assert_eq!(problems.len(), want.len(), "{problems:#?}");
    for (problem, want) in problems.iter().zip(want) {
        assert!(problem.starts_with(want), "{problem}\n{want}");
    }
}

#[test]
fn a_table_that_is_written_as_something_else_is_an_error() {
    for (text, place) in [
        ("database = []\n", "1:1"),
        ("[[database]]\npath = \"x\"\n", "1:3"),
        ("lock = \"60s\"\n", "1:1"),
        ("sources = 1\n", "1:1"),
        ("sources = [1]\n", "1:1"),
        ("[sources]\nmain = \"https://h\"\n", "2:1"),
        ("scopes = []\n", "1:1"),
        ("[scopes]\nall = [\"a/*\"]\n", "2:1"),
    ] {
        let problems = Home::with(text).problems();
        assert!(problems.iter().any(|problem| problem.contains(place)), "{text}{problems:?}");
    }
}

#[test]
fn a6_11_a_token_in_place_of_a_variable_is_not_shown() {
    for value in ["glpat-S3CR3TVALUE", "${S3CR3TVALUE}"] {
        let text = format!("{GITLAB}token = {{ env = \"{value}\" }}\n");
        let error = Home::with(&text).error();
        let whole = format!("{error} {:?} {:?}", error.hints(), error.details_value());
        assert!(whole.contains("holds the name of a variable"), "{whole}");
        assert!(!whole.contains("S3CR3TVALUE"), "{whole}");
    }
}

#[test]
fn values_that_cannot_work_are_refused() {
    let gitlab = |more: &str| format!("{GITLAB}{more}\n");
    for (text, place, words) in [
        (gitlab("concurrency = 0"), "5:15", "1 to 64"),
        (gitlab("concurrency = 65"), "5:15", "1 to 64"),
        (gitlab("requests_per_second = 0"), "5:23", "more than 0"),
        (gitlab("requests_per_second = nan"), "5:23", "more than 0"),
        (gitlab("overlap = \"59s\""), "5:11", "60s"),
        (gitlab("timeout = \"0s\""), "5:11", "zero"),
        (gitlab("token = {}"), "5:9", "exactly one"),
        (gitlab("token = { env = \"A\", file = \"b\" }"), "5:9", "exactly one"),
        (GITLAB.replace("a/b", "b"), "4:12", "full path"),
        (GITLAB.replace("a/b", "https://git.example.org/a/b"), "4:12", "leave out the address"),
        (GITLAB.replace("a/b", "/a/b"), "4:12", "full path"),
        (GITLAB.replace("a/b", "a//b"), "4:12", "full path"),
        (GITLAB.replace("\"a/b\"", "\"a/b\", \"a/b\""), "4:12", "twice"),
        (GITLAB.replace("[\"a/b\"]", "[]"), "4:12", "no project"),
        (gitlab("groups = [\"https://h/g\"]"), "5:10", "full path of a group"),
        (gitlab("groups = [\"g/*\"]"), "5:10", "full path of a group"),
        (gitlab("groups = [\"g\", \"g\"]"), "5:10", "twice"),
        (gitlab("include = [\"a/*\"]"), "5:11", "no group is named"),
        (gitlab("groups = [\"g\"]\nexclude = [\"a*b\"]"), "6:11", "neither"),
        (GITLAB.replace("https://git.example.org", "git.example.org"), "3:7", "not a URL"),
        (GITLAB.replace("https:", "ftp:"), "3:7", "https://"),
        (GITLAB.replace("example.org", "example.org?a=b"), "3:7", "query"),
        ("[lock]\nlease = \"20s\"\n".to_owned(), "2:9", "three heartbeats"),
        ("[query]\ntitle_weight = -1.0\n".to_owned(), "2:16", "0 or more"),
        ("[query]\ntext_weight = inf\n".to_owned(), "2:15", "0 or more"),
        ("[database]\npath = \"\"\n".to_owned(), "2:8", "empty"),
        ("[query]\ncandidates = 0\n".to_owned(), "2:14", "out of range"),
        ("[query]\ngraph_factor = 1.5\n".to_owned(), "2:16", "0 to 1"),
        ("[query]\nlexical_weight = nan\n".to_owned(), "2:18", "0 to 1"),
        ("[query]\nhome = [\"a*\"]\n".to_owned(), "2:8", "neither"),
        ("[query]\nner = \"llm\"\n".to_owned(), "2:7", "ner_url"),
        ("[rerank]\nprovider = \"tei\"\n".to_owned(), "2:12", "url"),
        ("[rerank]\nprovider = \"cohere\"\nurl = \"http://h\"\n".to_owned(), "2:12", "model"),
        ("[rerank]\nweight = 2.0\n".to_owned(), "2:10", "0 to 1"),
        ("[rerank]\ntop_k = 1\n".to_owned(), "2:9", "2 to 100"),
        ("[embedding]\nurl = \"nope\"\n".to_owned(), "2:7", "not a URL"),
        ("[embedding]\nurl = \"unix:/x\"\n".to_owned(), "2:7", "http or https"),
        ("[embedding]\ndims = 0\n".to_owned(), "2:8", "1 to 8192"),
        ("[embedding]\nmodel = \"foo\"\n".to_owned(), "2:9", "one model"),
        ("[embedding]\nchunk_tokens = 5\n".to_owned(), "2:16", "32 to 2000"),
        ("[embedding]\nbatch = 0\n".to_owned(), "2:9", "1 to 2048"),
        ("[embedding]\nconcurrency = 65\n".to_owned(), "2:15", "1 to 64"),
        ("[embedding]\nbatch_chars = 0\n".to_owned(), "2:15", "1 or more"),
        ("[embedding]\nbatch_tokens = 0\n".to_owned(), "2:16", "1 or more"),
        ("[embedding]\nquery_timeout = \"0s\"\n".to_owned(), "2:17", "zero"),
        ("[embedding]\ntoken = {}\n".to_owned(), "2:9", "exactly one"),
        ("[metrics]\ntextfile = \"\"\n".to_owned(), "2:12", "empty"),
        ("[scopes.s]\nprojects = []\n".to_owned(), "2:12", "at least one"),
        ("[scopes.s]\nprojects = [\"a*b\"]\n".to_owned(), "2:12", "neither"),
    ] {
        let problems = Home::with(&text).problems();
        assert_eq!(problems.len(), 1, "{text}\n{problems:#?}");
        assert!(problems[0].starts_with(&format!("lore.toml:{place}:")), "{text}\n{problems:#?}");
        assert!(problems[0].contains(words), "{text}\n{problems:#?}");
    }
    for good in ["*", "a/*", "a/b/c", "ä/b.c_d-e"] {
        assert!(Home::with(&format!("[scopes.s]\nprojects = [\"{good}\"]\n")).load().is_ok(), "{good}");
    }
}

#[test]
fn a6_08_a_dollar_is_a_dollar() {
    let text = GITLAB.replace("https://git.example.org", "https://h/pa$USERword/$2y$10$abc/a$$b");
    let home = Home::with(&text).var("USER", "me");
    let SourceConfig::Gitlab(main) = home.loaded().config.sources["main"].clone() else { panic!() };
    assert_eq!(main.url, "https://h/pa$USERword/$2y$10$abc/a$$b");
}

#[test]
fn a6_08_a_secret_written_as_a_variable_is_refused_with_the_right_form() {
    for (written, hint) in [
        ("${LORE_TOKEN}", "write { env = \"LORE_TOKEN\" }"),
        ("$LORE_TOKEN", "write { env = \"LORE_TOKEN\" }"),
        ("${LORE_TOKEN:-x}", "write { env = \"LORE_TOKEN\" }"),
        ("glpat-S3CR3TVALUE", "write { env = \"NAME\" }"),
        ("pre-${LORE_TOKEN}-S3CR3TVALUE", "write { env = \"NAME\" }"),
    ] {
        let home = Home::with(&format!("{GITLAB}token = \"{written}\"\n"));
        let problems = home.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("lore.toml:5:9: a secret is not written here"), "{problems:?}");
        assert!(problems[0].contains(hint), "{problems:?}");
    }
}

#[test]
fn a6_11_no_secret_gets_into_an_error() {
    let gitlab = |more: &str| format!("{GITLAB}{more}\n");
    for text in [
        gitlab("token = \"S3CR3TVALUE\""),
        gitlab("tokn = \"S3CR3TVALUE\""),
        gitlab("token = { evn = \"S3CR3TVALUE\" }"),
        gitlab("token = { env = \"A\" } S3CR3TVALUE"),
        gitlab("token = S3CR3TVALUE"),
        gitlab("token = \"S3CR3TVALUE"),
        GITLAB.replace("https://", "https://user:S3CR3TVALUE@"),
        GITLAB.replace("https://", "https//user:S3CR3TVALUE@"),
        GITLAB.replace(".org", ".org/?private_token=S3CR3TVALUE"),
        "sources.m = { kind = \"gitlab\", token = \"S3CR3TVALUE\", colour = 1 }\n".to_owned(),
        "[rerank]\ntoken = \"S3CR3TVALUE\"\n".to_owned(),
        "[query]\nner_token = \"S3CR3TVALUE\"\n".to_owned(),
        "[embedding]\ntoken = \"S3CR3TVALUE\"\n".to_owned(),
        "[sources]\nm = { kind = \"gitlab\", url = 5, token = \"S3CR3TVALUE\" }\n".to_owned(),
    ] {
        let error = Home::with(&text).error();
        assert!(!error.to_string().contains("S3CR3T"), "{text}\n{error}");
        assert!(!error.details_value().unwrap().to_string().contains("S3CR3T"), "{text}");
        assert!(!format!("{:?}", error.hints()).contains("S3CR3T"), "{text}");
    }
    let home = Home::with(GITLAB)
        .var("LORE__SOURCES__MAIN__TOKEN", "S3CR3TVALUE")
        .var("LORE__SOURCES__MAIN__URL", "https://u:S3CR3TVALUE@h");
    let error = home.error();
    assert!(!error.to_string().contains("S3CR3T"), "{error}");
    assert!(error.to_string().contains("LORE__SOURCES__MAIN__TOKEN"), "{error}");
}

#[test]
fn a_secret_given_anew_replaces_the_old_reference() {
    let home = Home::with(&format!("{GITLAB}token = {{ env = \"OLD\" }}\n"))
        .var("LORE__SOURCES__MAIN__TOKEN__FILE", "/run/secrets/token");
    let loaded = home.loaded();
    let SourceConfig::Gitlab(main) = &loaded.config.sources["main"] else { panic!() };
    assert_eq!(main.token.clone().unwrap().env, None);
    assert_eq!(loaded.origins.get("sources.main.token.env"), None);
    assert_eq!(loaded.origins["sources.main.token.file"], "LORE__SOURCES__MAIN__TOKEN__FILE");
}

#[test]
fn a_source_may_be_completed_by_variables() {
    let home = Home::new()
        .var("LORE__SOURCES__MAIN__KIND", "gitlab")
        .var("LORE__SOURCES__MAIN__URL", "https://h")
        .var("LORE__SOURCES__MAIN__PROJECTS", "[\"a/b\"]")
        .var("LORE__SOURCES__MAIN__TOKEN", "{ env = \"T\" }");
    assert_eq!(home.loaded().config.sources.len(), 1);
}

#[test]
fn types_and_ranges_are_judged_in_one_pass() {
    let problems = Home::with(
        "[lock]\nlease = \"1s\"\n[query]\ncandidates = \"x\"\n[sources.main]\nkind = \"gitlab\"\n\
         url = \"https://h\"\nprojects = [\"a\"]\ntoken = \"x\"\nconcurrency = \"x\"\n",
    )
    .problems();
    let places: Vec<&str> = problems.iter().map(|found| found.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        ["lore.toml:2:9", "lore.toml:4:14", "lore.toml:8:12", "lore.toml:9:9", "lore.toml:10:15"],
        "{problems:#?}"
    );
}

#[test]
fn a_missing_key_does_not_hide_what_is_wrong_elsewhere() {
    let problems = Home::with(
        "[scopes.x]\nproject = [\"a\"]\n[rerank]\nweight = 1.5\n[query]\ncandidates = 0\nfusion = \"rrff\"\n\
         [embedding]\nprovider = \"olama\"\nchunk_tokens = 5\n",
    )
    .problems();
    let lines: Vec<&str> = problems.iter().filter_map(|found| found.split(':').nth(1)).collect();
    assert_eq!(lines, ["1", "2", "4", "6", "7", "9", "10"], "{problems:#?}");
}

#[test]
fn an_empty_variable_is_an_unset_one() {
    let home = Home::with("[database]\npath = \"x.db\"\n").var("LORE__DATABASE__PATH", "");
    assert_eq!(home.loaded().config.database.path, Some(home.places.current_dir.join("x.db")));
}

#[test]
fn bad_syntax_is_placed_and_does_not_hide_the_rest() {
    let home = Home::with("[lock]\nlease = = \"60s\"\nlaese = 1\n[query\ncandidates = 5\n");
    let problems = home.problems();
    assert!(problems.iter().any(|found| found.starts_with("lore.toml:2:")), "{problems:#?}");
    assert!(problems.iter().any(|found| found.contains("unknown key `laese`")), "{problems:#?}");
    assert!(problems.iter().any(|found| found.starts_with("lore.toml:4:")), "{problems:#?}");
}

#[test]
fn a_directory_or_bad_encoding_is_told_apart() {
    let home = Home::new();
    std::fs::create_dir_all(home.places.current_dir.join("lore.toml")).unwrap();
    assert!(home.error().to_string().contains("lore.toml"));
    let home = Home::new();
    std::fs::write(home.places.current_dir.join("lore.toml"), [0x66, 0xff, 0xfe]).unwrap();
    assert!(home.error().to_string().contains("not UTF-8"));
}
