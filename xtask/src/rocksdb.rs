//! `cargo xtask rocksdb`: builds RocksDB's library once per machine, not once for every set of
//! features.
//!
//! Cargo rebuilds the C++ code whenever its own hash of `librocksdb-sys` changes, as with any
//! change of features or profile. So the library is a folder of the cache (see `cached`), named
//! after the version of `librocksdb-sys` in `Cargo.lock`, its features and the compiler's host. If
//! it is missing, a project that depends only on this package builds it. The command prints
//! variables that make the package's build script link the library instead of building it.
//!
//! The C++ compiler is not part of the name; after a change of it, `make clean-cache` removes the
//! library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cached;
use crate::licenses::{cargo_metadata, host_platform};

const PACKAGE: &str = "librocksdb-sys";
/// Libraries that the build script leaves in its output folder and another build script can link.
const LIBRARIES: [&str; 2] = ["librocksdb.a", "libsnappy.a"];
/// Paths of the libraries in the cache.
const FILES: [&str; 2] = ["lib/librocksdb.a", "lib/libsnappy.a"];
/// Variables for linking a finished library; they are removed for the build of one.
const LINK_VARIABLES: [&str; 4] = [
    "ROCKSDB_LIB_DIR",
    "ROCKSDB_STATIC",
    "SNAPPY_LIB_DIR",
    "SNAPPY_STATIC",
];

/// Ensures that the library is in the cache, and returns shell lines for linking it.
pub fn ensure_built(root: &Path) -> Result<String> {
    let library = Library::of_workspace(root)?;
    let lock = root.join("Cargo.lock");
    let folder = cached::ensure(&cached::folder()?, &library.name(), FILES, |project| {
        let built = build(&library, &lock, project)?;
        Ok(LIBRARIES.map(|file| built.join(file)))
    })?;
    Ok(shell_lines(&folder.join("lib")))
}

/// Inputs of a build of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Library {
    /// Version of `librocksdb-sys`, with RocksDB's own after a plus.
    version: String,
    /// Active features, sorted.
    features: Vec<String>,
    /// The compiler's host platform.
    host: String,
}

impl Library {
    /// Returns the inputs for the workspace with all its features.
    fn of_workspace(root: &Path) -> Result<Library> {
        let host = host_platform()?;
        Library::of_metadata(&cargo_metadata(root, &host)?, host)
    }

    fn of_metadata(metadata: &[u8], host: String) -> Result<Library> {
        let metadata: Value =
            serde_json::from_slice(metadata).context("cargo metadata is no JSON")?;
        let listed = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let packages = listed(&metadata["packages"]);
        let package = packages.iter().find(|package| package["name"] == PACKAGE);
        let package = package.with_context(|| format!("the workspace does not use {PACKAGE}"))?;
        let nodes = listed(&metadata["resolve"]["nodes"]);
        let node = nodes.iter().find(|node| node["id"] == package["id"]);
        let node = node.with_context(|| format!("cargo metadata does not resolve {PACKAGE}"))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let mut features: Vec<String> = listed(&node["features"]).iter().map(text).collect();
        features.sort();
        Ok(Library {
            version: text(&package["version"]),
            features,
            host,
        })
    }

    /// Returns the name of its folder in the cache.
    fn name(&self) -> String {
        let features = self.features.join(",");
        cached::folder_name("rocksdb", &self.version, &[&self.host, &features])
    }

    /// Returns the manifest of a project that depends on the package alone, and is in no workspace.
    fn manifest(&self) -> String {
        // The part after a plus names the included RocksDB; a requirement has no such part.
        let version = self.version.split('+').next().unwrap_or_default();
        let features: Vec<String> = self.features.iter().map(|f| format!("{f:?}")).collect();
        format!(
            "[package]\nname = \"rocksdb-library\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
             [workspace]\n\n\
             [dependencies]\n{PACKAGE} = {{ version = \"={}\", default-features = false, features = [{}] }}\n",
            version,
            features.join(", ")
        )
    }
}

/// Builds the package in `project` with the versions of `lock`, and returns the folder with its
/// libraries.
fn build(library: &Library, lock: &Path, project: &Path) -> Result<PathBuf> {
    let write = |name: &str, text: &str| {
        let path = project.join(name);
        let parent = path.parent().unwrap_or(project);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    write("Cargo.toml", &library.manifest())?;
    write(
        "src/lib.rs",
        "//! Nothing: only the dependency is wanted.\n",
    )?;
    // Cargo drops the packages that this project does not use, and keeps the versions of the
    // others.
    fs::copy(lock, project.join("Cargo.lock")).context("cannot copy Cargo.lock")?;
    eprintln!(
        "building RocksDB {} in {}: once, some ten minutes on two cores",
        library.version,
        project.display()
    );
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--message-format", "json"])
        .current_dir(project)
        .env("CARGO_TARGET_DIR", project.join("target"))
        .stderr(Stdio::inherit());
    for variable in LINK_VARIABLES {
        command.env_remove(variable);
    }
    let output = command.output().context("cannot run cargo build")?;
    ensure!(
        output.status.success(),
        "RocksDB was not built; `.ci/steps.sh system` says whether a compiler or libclang is missing"
    );
    let out = out_folder(&output.stdout);
    out.with_context(|| format!("cargo did not say where {PACKAGE} left its libraries"))
}

/// Returns the output folder of the package's build script, from cargo's messages.
fn out_folder(messages: &[u8]) -> Option<PathBuf> {
    let text = String::from_utf8_lossy(messages);
    text.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let package = message["package_id"].as_str()?;
        let ours = message["reason"] == "build-script-executed" && package.contains(PACKAGE);
        ours.then(|| message["out_dir"].as_str().map(PathBuf::from))?
    })
}

fn shell_lines(lib: &Path) -> String {
    let quoted = cached::quoted(lib);
    let [rocksdb, rocksdb_static, snappy, snappy_static] = LINK_VARIABLES;
    format!("export {rocksdb}={quoted} {rocksdb_static}=1 {snappy}={quoted} {snappy_static}=1\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> Library {
        Library {
            version: "0.19.0+11.8.1".to_string(),
            features: vec!["lz4".to_string(), "snappy".to_string()],
            host: "x86_64-unknown-linux-gnu".to_string(),
        }
    }

    #[test]
    fn the_project_pins_version_and_features_and_is_in_no_workspace() {
        let manifest = library().manifest();
        let dependency = "librocksdb-sys = { version = \"=0.19.0\", default-features = false, \
                          features = [\"lz4\", \"snappy\"] }";
        assert!(
            manifest.lines().any(|line| line == dependency),
            "{manifest}"
        );
        assert!(
            manifest.lines().any(|line| line == "[workspace]"),
            "{manifest}"
        );
    }

    #[test]
    fn the_name_changes_with_version_features_and_host() {
        let change = |change: fn(&mut Library)| {
            let mut other = library();
            change(&mut other);
            other.name()
        };
        let names = [
            library().name(),
            change(|library| library.version = "0.20.0+12.0.0".to_string()),
            change(|library| library.features.truncate(1)),
            change(|library| library.host = "aarch64-unknown-linux-gnu".to_string()),
        ];
        let different: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len(), "{names:?}");
    }

    #[test]
    fn version_and_features_come_from_what_cargo_resolved() {
        let metadata = r#"{
            "packages": [{"name": "a", "id": "1", "version": "1.0.0"},
                         {"name": "librocksdb-sys", "id": "2", "version": "0.19.0+11.8.1"}],
            "resolve": {"nodes": [{"id": "1", "features": ["x"]}, {"id": "2", "features": ["snappy", "lz4"]}]}
        }"#;
        let found = Library::of_metadata(metadata.as_bytes(), library().host);
        assert_eq!(found.unwrap(), library());
        assert!(Library::of_metadata(b"{}", String::new()).is_err());
    }

    #[test]
    fn the_output_folder_is_that_of_the_packages_build_script() {
        let messages = concat!(
            r#"{"reason":"build-script-executed","package_id":"registry+x#zstd-sys@2.0.0","out_dir":"a"}"#,
            "\nnoise\n",
            r#"{"reason":"build-script-executed","package_id":"registry+x#librocksdb-sys@0.19.0","out_dir":"b"}"#,
        );
        assert_eq!(out_folder(messages.as_bytes()), Some(PathBuf::from("b")));
        assert_eq!(out_folder(b""), None);
    }

    #[test]
    fn shell_lines_survive_spaces_and_quotes() {
        let expected = "export ROCKSDB_LIB_DIR='a b'\\''c' ROCKSDB_STATIC=1 SNAPPY_LIB_DIR='a b'\\''c' SNAPPY_STATIC=1\n";
        assert_eq!(shell_lines(Path::new("a b'c")), expected);
    }
}
