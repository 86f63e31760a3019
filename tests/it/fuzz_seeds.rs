//! Replays the seeds of the fuzz targets: what once went wrong, and a sample of every form.

use std::path::Path;

#[path = "../fuzz/targets.rs"]
mod targets;

#[test]
fn every_seed_of_every_fuzz_target_holds_what_its_target_asserts() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    for (name, target) in targets::TARGETS {
        let mut files: Vec<_> = std::fs::read_dir(seeds.join(name))
            .unwrap_or_else(|error| panic!("{name} has no seeds: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(files.len() >= 3, "{name} has {} seeds", files.len());
        for file in files {
            eprintln!("{}", file.display());
            target(&std::fs::read(&file).unwrap());
        }
    }
    let folders = std::fs::read_dir(&seeds).unwrap().count();
    assert_eq!(folders, targets::TARGETS.len(), "a folder of seeds without a target");
    let manifest = std::fs::read_to_string(seeds.join("../Cargo.toml")).unwrap();
    for (name, _) in targets::TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} cannot be fuzzed");
    }
}
