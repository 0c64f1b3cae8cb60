//! Other builds as contestants: this binary under another name as a good one, scripts as bad ones.

use std::path::Path;

use crate::{SMALL_GRAPH, result, rumbench, script, text};

const THIS: &str = env!("CARGO_BIN_EXE_rumbench");

fn run(dir: &Path, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let mut arguments = vec!["run", "linkbench", "--out", out.to_str().unwrap()];
    arguments.extend(SMALL_GRAPH);
    arguments.extend(["--set", "operations=400"]);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

#[test]
fn two_builds_of_an_engine_stand_in_one_interleaved_table() {
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other");
    std::fs::copy(THIS, &other).unwrap();
    let host = format!("old={}", other.display());
    let engines = ["--engine", "null", "--engine", "null@old", "--host", &host];
    let output = run(dir.path(), &[&engines[..], &["--repeat", "2"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let trials = result["trials"].as_array().unwrap();
    let hosts: Vec<Option<&str>> = trials.iter().map(|t| t["host"]["name"].as_str()).collect();
    assert_eq!(hosts, [None, Some("old"), Some("old"), None]);
    let host = &trials[1]["host"];
    assert_eq!(host["path"], other.to_str().unwrap());
    assert_eq!(host["commit"], result["environment"]["commit"]);
    assert_eq!(
        host["compiler_flags"],
        result["environment"]["compiler_flags"]
    );
    assert_eq!(
        result["schema_version"], 2,
        "older readers would take builds for repetitions"
    );
    let compared = result["comparisons"].as_array().unwrap();
    assert!(
        compared
            .iter()
            .any(|c| c["engine"] == "null@old" && c["base"] == "null")
    );
    let shown = text(&output.stdout);
    assert!(shown.contains("null@old"), "{shown}");
    assert!(
        shown.contains(&format!("{}: rumbench", other.display())),
        "{shown}"
    );
    let page = std::fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(page.contains("Other builds"));
}

#[test]
fn one_build_can_run_all_trials() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["--engine", "null", "--host", THIS]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    assert_eq!(result["trials"][0]["host"]["path"], THIS);
}

#[test]
fn what_is_no_host_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let bad = |name: &str, body: &str| script(dir.path(), name, body);
    let missing = dir.path().join("missing").to_str().unwrap().to_string();
    let text_file = dir.path().join("text").to_str().unwrap().to_string();
    std::fs::write(&text_file, "no program").unwrap();
    let cases = [
        (missing, "no such file"),
        (text_file, "cannot start it"),
        (bad("silent", "exit 0"), "gave no answer to `trial-check`"),
        (
            bad("chatty", "echo hello"),
            "gave no answer to `trial-check`",
        ),
        (
            bad("older", "echo 'error: unrecognized subcommand' >&2; exit 2"),
            "is it a rumbench",
        ),
        (bad("dies", "kill -9 $$"), "signal: 9"),
        (
            bad(
                "newer",
                "echo '{\"protocol\":9,\"commit\":\"x\",\"new\":[1]}'",
            ),
            "speaks version 9 of the protocol between laboratory and trial, this build version 1",
        ),
        (
            bad(
                "lacks",
                "echo '{\"protocol\":1,\"error\":\"this build has no null: build it\"}'",
            ),
            "it cannot run null: this build has no null: build it",
        ),
        (
            bad("other", "echo '{\"protocol\":1,\"workload_version\":99}'"),
            "its linkbench has version 99",
        ),
    ];
    for (path, expected) in &cases {
        let host = format!("bad={path}");
        let output = run(dir.path(), &["--engine", "null@bad", "--host", &host]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{path}: {said}");
        assert!(
            said.contains("--host bad=") && said.contains(expected),
            "{path}: {said}"
        );
    }
    assert!(!dir.path().join("out").exists());
}

#[test]
fn a_build_that_cannot_run_a_trial_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let own = format!("bad={THIS}");
    for (engine, expected) in [
        ("nul@bad", "did you mean `null`?"),
        ("null:x@bad", "no variant of null is named `x`"),
        ("null@good", "--host good=BINARY names one"),
        ("null", "no engine runs in it"),
    ] {
        let output = run(dir.path(), &["--engine", engine, "--host", &own]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{engine}: {said}");
        assert!(said.contains(expected), "{engine}: {said}");
    }
    let set = [
        "--engine",
        "null@bad",
        "--host",
        &own,
        "--set",
        "null@bad.stal_s=1",
    ];
    let said = text(&run(dir.path(), &set).stderr);
    assert!(said.contains("did you mean `stall_s`?"), "{said}");
    assert!(!dir.path().join("out").exists());
}

#[test]
fn a_build_that_dies_in_a_trial_costs_only_its_own_trials() {
    let dir = tempfile::tempdir().unwrap();
    let body = format!("[ \"$1\" = trial-check ] && exec '{THIS}' \"$1\"\nkill -9 $$");
    let host = format!("bad={}", script(dir.path(), "dies-later", &body));
    let output = run(
        dir.path(),
        &["--engine", "null@bad", "--engine", "null", "--host", &host],
    );
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let marks = result["trials"][0]["marks"].to_string();
    assert!(marks.contains("child-died (signal 9)"), "{marks}");
    assert_eq!(result["trials"][1]["marks"], serde_json::json!([]));
    assert!(result["trials"][1]["phases"][1]["ops_per_s"].is_number());

    // A build that vanishes after its answer: the trial cannot be started.
    let dir = tempfile::tempdir().unwrap();
    let body = format!("exec '{THIS}' \"$@\"");
    let gone = script(dir.path(), "gone", &format!("rm \"$0\"\n{body}"));
    let host = format!("bad={gone}");
    let engines = ["--engine", "null@bad", "--engine", "null", "--host", &host];
    let output = run(dir.path(), &engines);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let result = crate::result(&dir.path().join("out"));
    let marks = result["trials"][0]["marks"].to_string();
    assert!(marks.contains("failed (cannot start"), "{marks}");
}
