//! The container image: built without a registry, and the sample job run in it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::tools::{find, run};

fn docker() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/docker")
}

/// A store of images of its own.
struct Buildah {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Buildah {
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let root = self.dir.path().join("root");
        let mut command = Command::new(&self.program);
        command.arg("--root").arg(root).arg("--runroot").arg(self.dir.path().join("run"));
        command.args(["--storage-driver", "vfs"]).args(args).current_dir(self.dir.path());
        let (ok, said) = run(&mut command, "");
        assert!(ok, "buildah {args:?}: {said}");
        said
    }
}

/// The Dockerfile with its first stage, which needs a registry, replaced by what it makes.
fn without_compiling(dockerfile: &str) -> String {
    let last = dockerfile.find("\nFROM scratch").expect("the last stage starts from nothing");
    format!("FROM scratch AS build\nCOPY out /out\n{}", dockerfile.get(last..).unwrap())
}

#[test]
fn the_image_runs_the_sample_job_as_nobody_on_a_root_that_it_cannot_write() {
    let Some(program) = find("buildah") else { return };
    let buildah = Buildah { program, dir: tempfile::tempdir().unwrap() };
    // The user of the image looks at its root through this directory.
    std::fs::set_permissions(buildah.dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let out = buildah.dir.path().join("out");
    let mut rootfs = Command::new(docker().join("rootfs.sh"));
    let (ok, said) = run(rootfs.arg(env!("CARGO_BIN_EXE_lore")).arg(&out), "");
    assert!(ok, "rootfs.sh: {said}");
    let dockerfile = std::fs::read_to_string(docker().join("Dockerfile")).unwrap();
    assert!(
        dockerfile.contains("deploy/docker/rootfs.sh target/dist/lore /out"),
        "the stage that is replaced"
    );
    std::fs::write(buildah.dir.path().join("Dockerfile"), without_compiling(&dockerfile)).unwrap();
    buildah.ok(&["build", "--isolation", "chroot", "-t", "lore", "-f", "Dockerfile", "."]);

    let image: serde_json::Value =
        serde_json::from_str(&buildah.ok(&["inspect", "--type", "image", "lore"])).unwrap();
    let config = &image["OCIv1"]["config"];
    assert_eq!(config["User"], "10001:10001", "{config}");
    assert_eq!(config["Entrypoint"], serde_json::json!(["/usr/local/bin/lore"]));
    assert!(config["Volumes"]["/data"].is_object(), "{config}");
    assert!(config["ExposedPorts"]["9469/tcp"].is_object(), "{config}");

    let container = buildah.ok(&["from", "lore"]).trim().to_owned();
    let lore = |args: &[&str]| {
        let whole =
            [&["run", "--isolation", "chroot", &container, "--", "/usr/local/bin/lore"], args].concat();
        buildah.ok(&whole)
    };
    let said = lore(&["run", "demo", "--skip", "embed"]);
    assert!(said.contains("lore query"), "{said}");
    let answer = lore(&["query", "session expires", "--mode", "lexical", "--json", "--quiet"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["data"]["total_results"].as_u64().unwrap() > 0, "{answer}");
    let mounted = buildah.ok(&["mount", &container]).trim().to_owned();
    let owner = |path: &str| {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(Path::new(&mounted).join(path)).unwrap();
        (found.uid(), found.mode() & 0o022)
    };
    for path in ["", "usr", "usr/local/bin/lore", "etc", "lib64"] {
        assert_eq!(owner(path), (0, 0), "/{path} is root's and nobody else may write it");
    }
    assert_eq!(owner("data").0, 10001);
}
