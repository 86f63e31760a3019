//! The generated reference is up to date.

use std::path::Path;

use crate::support::binary::Bench;

fn generate(dir: &Path) {
    Bench::new().lore(["docs".as_ref(), dir.as_os_str()]).ok();
}

#[test]
fn generated_docs_are_fresh() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    #[expect(clippy::disallowed_methods, reason = "the switch of `just gen`")]
    let update = std::env::var("UPDATE_DOCS").is_ok_and(|value| value == "1");
    if update {
        generate(&docs);
    }
    let fresh = tempfile::tempdir().unwrap();
    generate(fresh.path());
    for name in [
        "jobs.md",
        "jobs.schema.json",
        "config.md",
        "config.schema.json",
        "metrics.md",
        "answers.schema.json",
    ] {
        let want = std::fs::read_to_string(fresh.path().join(name)).unwrap();
        let have = std::fs::read_to_string(docs.join(name)).unwrap_or_default();
        assert!(
            want == have,
            "docs/{name} is stale: run `just gen` (UPDATE_DOCS=1 cargo test --test it docs)"
        );
    }
}
