//! `lore config` from outside: what is shown, what is checked, what is never shown.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn lore(dir: &Path, args: &[&str], vars: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lore"))
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("XDG_CONFIG_HOME", dir.join("xdg"))
        .envs(vars.iter().copied())
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", out(output)))
}

const MAIN: &str = "[sources.main]\nkind = \"gitlab\"\nurl = \"https://git.example.org\"\n\
                    projects = [\"a/b\"]\ntoken = { env = \"LORE_TOKN\" }\n";

fn work(text: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("lore.toml"), text).unwrap();
    dir
}

#[test]
fn show_says_where_each_value_came_from() {
    let dir = work(&format!("{MAIN}[lock]\nlease = \"90s\"\n"));
    let vars = [("LORE__QUERY__CANDIDATES", "50"), ("LORE_TOKN", "S3CR3TVALUE")];
    let output = lore(dir.path(), &["config", "show"], &vars);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    for want in [
        "lease = \"1m30s\"  # lore.toml:7",
        "candidates = 50  # LORE__QUERY__CANDIDATES",
        "heartbeat = \"10s\"\n",
        "token = { env = \"LORE_TOKN\" }  # lore.toml:5",
    ] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    let answer = json(&lore(dir.path(), &["config", "show", "--json"], &vars));
    assert_eq!(answer["data"]["config"]["sources"]["main"]["token"]["env"], "LORE_TOKN");
    assert_eq!(answer["data"]["origins"]["lock.lease"], "lore.toml:7");
    assert!(!format!("{text}{answer}").contains("S3CR3T"));
}

#[test]
fn what_show_prints_can_be_read_again() {
    let dir = work(MAIN);
    let text = out(&lore(dir.path(), &["config", "show"], &[]));
    std::fs::write(dir.path().join("again.toml"), &text).unwrap();
    let first = json(&lore(dir.path(), &["config", "show", "--json"], &[]));
    let again = json(&lore(dir.path(), &["config", "show", "--json", "--config", "again.toml"], &[]));
    assert_eq!(first["data"]["config"], again["data"]["config"], "{text}");
}

#[test]
fn a6_09_an_unset_secret_is_named_with_key_variable_and_line() {
    let dir = work(MAIN);
    for vars in [vec![], vec![("LORE_TOKN", "")], vec![("LORE_TOKN", "  ")]] {
        let output = lore(dir.path(), &["config", "check"], &vars);
        assert_eq!(output.status.code(), Some(4), "{}", err(&output));
        for want in ["sources.main.token", "LORE_TOKN", "lore.toml:5"] {
            assert!(err(&output).contains(want), "{want}: {}", err(&output));
        }
    }
    let output = lore(dir.path(), &["config", "check"], &[("LORE_TOKN", "glpat-x")]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("sources: main"), "{}", out(&output));
    assert!(!out(&output).contains("glpat"));
    let output = lore(dir.path(), &["config", "check", "--json"], &[]);
    let answer = json(&output);
    assert_eq!(answer["error"]["code"], "TOKEN_NOT_SET");
    assert_eq!(answer["error"]["details"]["secrets"][0]["ok"], false);
}

#[test]
fn a6_10_check_names_every_problem() {
    let dir = work("[databse]\npath = \"x\"\n[lock]\nlease = \"5 minuts\"\n[query]\ncandidates = 0\n");
    let output = lore(dir.path(), &["config", "check"], &[]);
    assert_eq!(output.status.code(), Some(3));
    let text = err(&output);
    for want in ["lore.toml:1:2", "did you mean `database`?", "lore.toml:4:9", "5 minuts"] {
        assert!(text.contains(want), "{want}\n{text}");
    }
    let answer = json(&lore(dir.path(), &["status", "--json"], &[]));
    assert_eq!(answer["error"]["code"], "CONFIG_INVALID");
    assert!(answer["error"]["details"]["diagnostics"].as_array().unwrap().len() >= 2);
}

#[test]
fn a6_11_a_password_in_a_url_is_refused_and_not_repeated() {
    let dir = work(&MAIN.replace("https://", "https://user:S3CR3TVALUE@"));
    for args in [["config", "check", "-vv"], ["config", "show", "--json"], ["run", "sync", "-vv"]] {
        let output = lore(dir.path(), &args, &[]);
        assert_eq!(output.status.code(), Some(3), "{}", err(&output));
        assert!(!out(&output).contains("S3CR3T"), "{}", out(&output));
        assert!(!err(&output).contains("S3CR3T"), "{}", err(&output));
    }
}

#[test]
fn init_prints_a_file_that_is_valid_as_it_is_and_with_everything_switched_on() {
    let dir = tempfile::tempdir().unwrap();
    let output = lore(dir.path(), &["config", "init"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let text = out(&output);
    std::fs::write(dir.path().join("lore.toml"), &text).unwrap();
    let output = lore(dir.path(), &["config", "check"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let on = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let switched_on: String = text.lines().map(|line| on(line) + "\n").collect();
    std::fs::write(dir.path().join("lore.toml"), &switched_on).unwrap();
    let output = lore(dir.path(), &["config", "check"], &[("GITLAB_TOKEN", "x")]);
    assert_eq!(output.status.code(), Some(0), "{}\n{switched_on}", err(&output));
    assert!(out(&output).contains("archive, main"), "{}", out(&output));
}

#[test]
fn init_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let output = lore(dir.path(), &["config", "init", "--output", "new.toml"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    std::fs::write(dir.path().join("new.toml"), "mine").unwrap();
    let output = lore(dir.path(), &["config", "init", "--output", "new.toml"], &[]);
    assert_eq!(output.status.code(), Some(12), "{}", err(&output));
    assert_eq!(std::fs::read_to_string(dir.path().join("new.toml")).unwrap(), "mine");
}

#[test]
fn a6_20_no_home_names_what_to_set() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_lore"))
        .args(["status"])
        .current_dir(dir.path())
        .env_clear()
        .env("HOME", "/")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("LORE__DATABASE__PATH"), "{}", err(&output));
}
