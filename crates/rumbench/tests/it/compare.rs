//! `rumbench compare` and the page as scripts use them: exit codes, messages, files. Tiny suites on
//! `null`.

use std::path::Path;

use crate::{SMALL_GRAPH, rumbench, text};

/// Runs a tiny suite on `null` into a folder, without storing it.
fn suite(store: &Path, out: &Path, more: &[&str]) {
    run(store, "null", out, &[&["--no-store"], more].concat());
}

/// Runs a tiny suite into a folder.
fn run(store: &Path, engine: &str, out: &Path, more: &[&str]) {
    let out = out.to_str().unwrap();
    let mut arguments = vec!["run", "linkbench", "--engine", engine, "--out", out];
    arguments.extend(SMALL_GRAPH);
    for set in ["operations=300", "steps=1"] {
        arguments.extend(["--set", set]);
    }
    arguments.extend(more);
    let output = rumbench(store, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn the_result_before_is_found_in_the_store_also_when_its_folder_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name);
    let new = out("new");
    let compare = |base: &str| rumbench(dir.path(), &["compare", base, new.to_str().unwrap()]);
    run(dir.path(), "null", &out("old"), &[]);
    run(dir.path(), "sqlite", &out("other"), &[]);
    run(dir.path(), "null", &out("new"), &[]);
    std::fs::remove_dir_all(out("old")).unwrap();
    for base in ["@previous", "@previous#null", "old"] {
        let compared = compare(base);
        let shown = text(&compared.stdout);
        assert_eq!(
            compared.status.code(),
            Some(0),
            "{base}: {}",
            text(&compared.stderr)
        );
        assert!(
            shown.starts_with("base ") && shown.contains("old"),
            "{base}: {shown}"
        );
    }
    let listed = text(&rumbench(dir.path(), &["results", "sqlite"]).stdout);
    assert!(
        listed.contains("/other") && !listed.contains("/new"),
        "{listed}"
    );
    let first = rumbench(
        dir.path(),
        &["compare", "@previous", out("other").to_str().unwrap()],
    );
    assert_eq!(first.status.code(), Some(2));
    assert!(
        text(&first.stderr).contains("no stored result of linkbench on this machine"),
        "{}",
        text(&first.stderr)
    );
}

#[test]
fn compare_says_what_differs_and_fails_a_threshold_with_exit_code_3() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (dir.path().join("base#1"), dir.path().join("new"));
    suite(dir.path(), &base, &[]);
    suite(dir.path(), &new, &["--set", "clients=2"]);
    let (base, new) = (base.to_str().unwrap(), new.to_str().unwrap());
    let compared = rumbench(dir.path(), &["compare", base, new]);
    let shown = text(&compared.stdout);
    assert_eq!(
        compared.status.code(),
        Some(0),
        "{}",
        text(&compared.stderr)
    );
    assert!(
        shown.contains("clients: ") && shown.contains("n=1, no spread"),
        "{shown}"
    );
    let same = [
        "compare",
        new,
        new,
        "--fail-if",
        "ops_per_s < -50%",
        "--json",
    ];
    let compared = rumbench(dir.path(), &same);
    assert_eq!(
        compared.status.code(),
        Some(0),
        "{}",
        text(&compared.stderr)
    );
    assert!(text(&compared.stdout).contains("\"ratio\": 1.0"));
    let improvement = ["compare", new, new, "--fail-if", "request:ops_per_s < +50%"];
    let compared = rumbench(dir.path(), &improvement);
    assert_eq!(
        compared.status.code(),
        Some(3),
        "{}",
        text(&compared.stdout)
    );
    assert!(text(&compared.stdout).contains("FAILED request:ops_per_s < +50%"));
}

#[test]
fn compare_refuses_what_it_cannot_compare() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("result");
    suite(dir.path(), &folder, &[]);
    let result = folder.to_str().unwrap();
    let code = |arguments: &[&str], code: i32, message: &str| {
        let output = rumbench(dir.path(), arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
    };
    let missing = dir.path().join("missing");
    code(
        &["compare", result, missing.to_str().unwrap()],
        1,
        "is this a result folder?",
    );
    code(
        &["compare", result, &format!("{result}#nul")],
        2,
        "did you mean `null`?",
    );
    code(
        &["compare", result, result, "--fail-if", "ops_per_sec > +1%"],
        2,
        "did you mean `ops_per_s`?",
    );
    code(
        &[
            "compare",
            result,
            result,
            "--fail-if",
            "latency_us.NOT_DONE.p99 > +1%",
        ],
        2,
        "nothing could be checked",
    );
    let broken = dir.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(
        broken.join("result.json"),
        "{\"schema_version\": \"</script>\"}",
    )
    .unwrap();
    code(
        &["compare", result, broken.to_str().unwrap()],
        1,
        "is not a suite result",
    );
}

#[test]
fn run_and_report_write_the_page_and_fail_after_the_tables_if_they_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("result");
    suite(dir.path(), &folder, &[]);
    let page = folder.join("report.html");
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(
        written.starts_with("<!doctype html>") && written.contains("null"),
        "{written}"
    );
    std::fs::remove_file(&page).unwrap();
    let report = rumbench(dir.path(), &["report", folder.to_str().unwrap()]);
    assert!(
        text(&report.stderr).contains("report.html"),
        "{}",
        text(&report.stderr)
    );
    assert_eq!(std::fs::read_to_string(&page).unwrap(), written);
    // A folder in place of the page cannot be overwritten.
    std::fs::remove_file(&page).unwrap();
    std::fs::create_dir(&page).unwrap();
    let report = rumbench(dir.path(), &["report", folder.to_str().unwrap()]);
    assert_eq!(report.status.code(), Some(1));
    assert!(
        text(&report.stderr).contains("cannot write"),
        "{}",
        text(&report.stderr)
    );
    assert!(text(&report.stdout).contains("Absolute: throughput"));
}
