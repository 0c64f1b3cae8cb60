//! Suites of several runs: each has its folder, stopped ones continue, and invalid ones do not
//! begin.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::waits::wait;
use crate::{result, rumbench, text};

const FILE: &str = r#"
description = "two small runs"

[all]
engine = ["null", "no-such-engine?"]
set = { keys = 2000, load_rows = 200, steps = "load,get" }

[[run]]
name = "first"
workload = "kv-sequence"
repeat = 2
set = { operations = 500 }

[[run]]
name = "second"
workload = "kv-sequence"
set = { operations = 400 }
"#;

fn written(dir: &Path, text: &str) -> String {
    let path = dir.join("own.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn runs_follow_each_other_and_a_second_call_keeps_what_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (written(dir.path(), FILE), dir.path().join("out"));
    let arguments = ["suite", "run", &file, "--out", out.to_str().unwrap()];
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (first, second) = (result(&out.join("first")), result(&out.join("second")));
    assert_eq!(first["trials"].as_array().unwrap().len(), 2);
    assert_eq!(second["trials"][0]["phases"][1]["operations"], 400);
    assert_eq!(
        second["command"],
        "rumbench run kv-sequence --engine=null --set=keys=2000 --set=load_rows=200 --set=operations=400 --set=steps=load,get"
    );
    let page = std::fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("href=\"first/report.html\"") && page.contains("two small runs"));
    assert!(out.join("second").join("report.html").exists());

    let again = rumbench(dir.path(), &arguments);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let said = text(&again.stderr);
    assert!(
        said.contains("second: all trials have ended before"),
        "{said}"
    );
    assert_eq!(result(&out.join("first")), first);

    let other = written(dir.path(), &FILE.replace("two small", "other small"));
    let refused = rumbench(
        dir.path(),
        &["suite", "run", &other, "--out", out.to_str().unwrap()],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("holds another suite"));
}

#[test]
fn a_killed_suite_goes_on_at_the_trial_that_was_running() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (written(dir.path(), FILE), dir.path().join("out"));
    let arguments = ["suite", "run", &file, "--out", out.to_str().unwrap()];
    let mut child = Command::new(env!("CARGO_BIN_EXE_rumbench"))
        .args(arguments)
        .env("RUMBENCH_STORE", dir.path().join("store.sqlite"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let second = out.join("second").join("suite.json");
    wait(&mut child, &|| second.exists());
    // Fails if the process has ended, which is fine.
    let _ = child.kill();
    child.wait().unwrap();
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(
        said.contains("first: all trials have ended before"),
        "{said}"
    );
    assert_eq!(
        result(&out.join("first"))["trials"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(result(&out.join("second"))["interrupted"], false);
    assert!(out.join("index.html").exists());
}

#[test]
fn a_run_that_fails_does_not_keep_the_next_from_running() {
    let dir = tempfile::tempdir().unwrap();
    let fails = "name = \"first\"\nset = { operations = 500, null.fail_after_calls = 20 }";
    let text_ = FILE
        .replace("set = { operations = 500 }", "")
        .replace("name = \"first\"", fails);
    let (file, out) = (written(dir.path(), &text_), dir.path().join("out"));
    let output = rumbench(
        dir.path(),
        &["suite", "run", &file, "--out", out.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let marks = result(&out.join("first"))["trials"][0]["marks"].to_string();
    assert!(marks.contains("null.fail_after_calls=20"), "{marks}");
    assert_eq!(
        result(&out.join("second"))["trials"][0]["marks"],
        serde_json::json!([])
    );
}

#[test]
fn suites_are_listed_shown_planned_and_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let answer = |arguments: &[&str]| {
        let output = rumbench(dir.path(), arguments);
        let both = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), both)
    };
    let (code, list) = answer(&["suite", "list"]);
    assert!(
        code == Some(0) && list.contains("laptop") && list.contains("night"),
        "{list}"
    );
    let (code, shown) = answer(&["suite", "show", "hour"]);
    assert!(code == Some(0) && shown.contains("[[run]]"), "{shown}");
    let file = written(dir.path(), &shown);
    let (code, plan) = answer(&["suite", "plan", &file]);
    assert_eq!(code, Some(0), "{plan}");
    assert!(
        plan.starts_with("rumbench run linkbench --engine="),
        "{plan}"
    );
    let (code, unknown) = answer(&["suite", "plan", "hours"]);
    assert_eq!(code, Some(2));
    assert!(unknown.contains("did you mean `hour`?"), "{unknown}");

    let out = dir.path().join("out");
    let out = ["--out", out.to_str().unwrap()];
    for (from, to, expected) in [
        (
            "repeat = 2",
            "repeat = 0",
            "run first: invalid value '0' for '--repeat",
        ),
        ("operations = 400", "operation = 400", "run second: "),
        (
            "repeat = 2",
            "repaet = 2",
            "own.toml, line 11: no key of [[run]] is named `repaet`; did you mean `repeat`?",
        ),
        ("\"null\", ", "", "this build has none of these engines"),
    ] {
        let file = written(dir.path(), &FILE.replace(from, to));
        let (code, said) = answer(&[&["suite", "run", &file][..], &out].concat());
        assert_eq!(code, Some(2), "{to}: {said}");
        assert!(said.contains(expected), "{to}: {said}");
        assert!(!Path::new(out[1]).exists(), "{to}");
    }
}
