//! `lore config` from outside: what is shown, what is checked, what is never shown.

use crate::support::binary::Bench;

const MAIN: &str = "[sources.main]\nkind = \"gitlab\"\nurl = \"https://git.example.org\"\n\
                    projects = [\"a/b\"]\ntoken = { env = \"LORE_TOKN\" }\n";

fn work(text: &str) -> Bench {
    let bench = Bench::new();
    bench.write("lore.toml", text);
    bench
}

#[test]
fn show_says_where_each_value_came_from() {
    let mut bench = work(&format!("{MAIN}[lock]\nlease = \"90s\"\n"));
    bench.var("LORE__QUERY__CANDIDATES", "50").var("LORE_TOKN", "S3CR3TVALUE");
    let output = bench.lore(["config", "show"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.stdout;
    for want in [
        "lease = \"1m30s\"  # lore.toml:7",
        "candidates = 50  # LORE__QUERY__CANDIDATES",
        "heartbeat = \"10s\"\n",
        "token = { env = \"LORE_TOKN\" }  # lore.toml:5",
    ] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    let answer = bench.lore(["config", "show", "--json"]).json();
    assert_eq!(answer["data"]["config"]["sources"]["main"]["token"]["env"], "LORE_TOKN");
    assert_eq!(answer["data"]["origins"]["lock.lease"], "lore.toml:7");
    assert!(!format!("{text}{answer}").contains("S3CR3T"));
}

#[test]
fn what_show_prints_can_be_read_again() {
    let bench = work(MAIN);
    let text = bench.lore(["config", "show"]).stdout;
    std::fs::write(bench.path().join("again.toml"), &text).unwrap();
    let first = bench.lore(["config", "show", "--json"]).json();
    let again = bench.lore(["config", "show", "--json", "--config", "again.toml"]).json();
    assert_eq!(first["data"]["config"], again["data"]["config"], "{text}");
}

#[test]
fn a6_09_an_unset_secret_is_named_with_key_variable_and_line() {
    let mut bench = work(MAIN);
    for value in [None, Some(""), Some("  ")] {
        if let Some(value) = value {
            bench.var("LORE_TOKN", value);
        }
        let output = bench.lore(["config", "check"]);
        assert_eq!(output.code, 4, "{}", output.stderr);
        for want in ["sources.main.token", "LORE_TOKN", "lore.toml:5"] {
            assert!(output.stderr.contains(want), "{want}: {}", output.stderr);
        }
    }
    let answer = bench.lore(["config", "check", "--json"]).json();
    assert_eq!(answer["error"]["code"], "TOKEN_NOT_SET");
    assert_eq!(answer["error"]["details"]["secrets"][0]["ok"], false);
    bench.var("LORE_TOKN", "glpat-x");
    let output = bench.lore(["config", "check"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stdout.contains("sources: main"), "{}", output.stdout);
    assert!(!output.stdout.contains("glpat"));
}

#[test]
fn a6_10_check_names_every_problem() {
    let bench = work("[databse]\npath = \"x\"\n[lock]\nlease = \"5 minuts\"\n[query]\ncandidates = 0\n");
    let output = bench.lore(["config", "check"]);
    assert_eq!(output.code, 3);
    let text = output.stderr;
    for want in ["lore.toml:1:2", "did you mean `database`?", "lore.toml:4:9", "5 minuts"] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    let answer = bench.lore(["status", "--json"]).json();
    assert_eq!(answer["error"]["code"], "CONFIG_INVALID");
    assert!(answer["error"]["details"]["diagnostics"].as_array().unwrap().len() >= 2);
}

#[test]
fn a6_11_a_password_in_a_url_is_refused_and_not_repeated() {
    let bench = work(&MAIN.replace("https://", "https://user:S3CR3TVALUE@"));
    for args in [["config", "check", "-vv"], ["config", "show", "--json"], ["run", "sync", "-vv"]] {
        let output = bench.lore(args);
        assert_eq!(output.code, 3, "{}", output.stderr);
        assert!(!output.stdout.contains("S3CR3T"), "{}", output.stdout);
        assert!(!output.stderr.contains("S3CR3T"), "{}", output.stderr);
    }
}

#[test]
fn init_prints_a_file_that_is_valid_as_it_is_and_with_everything_switched_on() {
    let mut bench = Bench::new();
    let output = bench.lore(["config", "init"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.stdout;
    std::fs::write(bench.path().join("lore.toml"), &text).unwrap();
    let output = bench.lore(["config", "check"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let on = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let switched_on: String = text.lines().map(|line| on(line) + "\n").collect();
    std::fs::write(bench.path().join("lore.toml"), &switched_on).unwrap();
    for secret in ["GITLAB_TOKEN", "OTLP_AUTHORIZATION", "HEALTHCHECK_URL"] {
        bench.var(secret, "x");
    }
    let output = bench.lore(["config", "check"]);
    assert_eq!(output.code, 0, "{}\n{switched_on}", output.stderr);
    assert!(output.stdout.contains("archive, main"), "{}", output.stdout);
}

#[test]
fn init_overwrites_nothing() {
    let bench = Bench::new();
    let output = bench.lore(["config", "init", "--output", "new.toml"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    std::fs::write(bench.path().join("new.toml"), "mine").unwrap();
    let output = bench.lore(["config", "init", "--output", "new.toml"]);
    assert_eq!(output.code, 12, "{}", output.stderr);
    assert_eq!(std::fs::read_to_string(bench.path().join("new.toml")).unwrap(), "mine");
}

#[test]
fn a6_20_no_home_names_what_to_set() {
    let bench = Bench::new();
    let output =
        bench.command(["status"]).env("HOME", "/").env_remove("LORE__DATABASE__PATH").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("LORE__DATABASE__PATH"), "{stderr}");
}
