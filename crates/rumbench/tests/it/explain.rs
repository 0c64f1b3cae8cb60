//! `rumbench explain` of a result: its folder, its file, its name in the store; as text and as
//! JSON.

use std::path::Path;

use crate::{rumbench, text};

/// Measures a small result on `null`.
fn measured(dir: &Path) -> std::path::PathBuf {
    let out = dir.join("measured");
    let arguments = [
        "run",
        "kv-sequence",
        "--engine",
        "null",
        "--set",
        "keys=2000",
        "--set",
        "steps=fillseq,get",
        "--set",
        "operations=20000",
        "--out",
        out.to_str().unwrap(),
    ];
    let output = rumbench(dir, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    out
}

#[test]
fn a_result_is_explained_by_its_folder_its_file_and_its_stored_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = measured(dir.path());
    let explained = |name: &str| {
        let output = rumbench(dir.path(), &["explain", name]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let said = explained(out.to_str().unwrap());
    for expected in [
        "\nget\n  null was bounded by",
        "About the experiment",
        "Each engine ran once",
        "[trials.repetition]",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert_eq!(explained(out.join("result.json").to_str().unwrap()), said);
    std::fs::remove_dir_all(&out).unwrap();
    assert_eq!(explained("measured"), said, "the store has it");
}

#[test]
fn json_has_every_sentence_with_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    let out = measured(dir.path());
    let output = rumbench(dir.path(), &["explain", "--json", out.to_str().unwrap()]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = value["findings"].as_array().unwrap();
    let bound =
        |finding: &&serde_json::Value| finding["kind"] == "bound" && finding["phase"] == "get";
    let bound = findings.iter().find(bound).unwrap();
    assert_eq!(bound["engine"], "null");
    assert!(
        bound["figures"][0]["metric"].is_string() && bound["figures"][0]["value"].is_number(),
        "{bound}"
    );
    let metric = rumbench(dir.path(), &["explain", "--json", "ops_per_s"]);
    let metric: serde_json::Value = serde_json::from_slice(&metric.stdout).unwrap();
    assert_eq!(metric["unit"], "operations/s");
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = measured(dir.path());
    let base = rumbench(
        dir.path(),
        &["explain", out.to_str().unwrap(), "--base", "nul"],
    );
    assert_eq!(base.status.code(), Some(2));
    assert!(
        text(&base.stderr).contains("did you mean `null`?"),
        "{}",
        text(&base.stderr)
    );
    let unknown = rumbench(dir.path(), &["explain", "measurd"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("nor is there a result folder"),
        "{}",
        text(&unknown.stderr)
    );
    let folder = rumbench(dir.path(), &["explain", dir.path().to_str().unwrap()]);
    assert_eq!(folder.status.code(), Some(1));
    assert!(
        text(&folder.stderr).contains("is this a result folder?"),
        "{}",
        text(&folder.stderr)
    );
}
