//! Custom workloads from the command line: the guide's file, a preset, invalid files.

use std::path::Path;

use crate::{result, rumbench, text};

/// Returns the file of the guide's tutorial: its first block of TOML.
fn tutorial() -> String {
    let page = Path::new("../../docs/guide/own-workloads.md");
    let page = std::fs::read_to_string(page).unwrap();
    let start = page.find("```toml\n").unwrap() + "```toml\n".len();
    let length = page[start..].find("```").unwrap();
    page[start..start + length].to_owned()
}

fn run(dir: &Path, workload: &str, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let arguments = ["run", workload, "--out", out.to_str().unwrap()];
    rumbench(dir, &[&arguments[..], more].concat())
}

/// Engine that keeps rows, if the build has one.
const ENGINE: &str = if cfg!(feature = "sqlite") {
    "sqlite"
} else {
    "null"
};

#[test]
fn the_tutorials_file_runs_is_checked_and_stays_with_its_result() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.toml");
    std::fs::write(&file, tutorial()).unwrap();
    let small = [
        "--set",
        "scale=0.001",
        "--set",
        "requests=300",
        "--set",
        "rates=no",
    ];
    let engines = ["--engine", ENGINE, "--engine", "null"];
    let output = run(
        dir.path(),
        file.to_str().unwrap(),
        &[&engines[..], &small[..]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    assert_eq!(result["workload"], "shop.toml");
    assert_eq!(result["settings"]["definition"], tutorial());
    let marks = result["trials"][0]["marks"].to_string();
    assert!(!marks.contains("wrong-answer"), "{marks}");
    let phases = result["trials"][0]["phases"].as_array().unwrap();
    let names: Vec<&str> = phases
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["load", "index", "settle", "warmup", "day", "settle#2"]
    );
    assert_eq!(phases[4]["operations"], 300);
    if ENGINE != "null" {
        let verified = result["trials"][0]["verified"].as_str().unwrap();
        assert!(verified.contains("rows in 2 tables"), "{verified}");
    }
    let html = std::fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(
        html.contains("File of the workload"),
        "the file is on the page"
    );
}

#[test]
fn a_preset_runs_at_the_size_and_the_rate_that_are_given() {
    let dir = tempfile::tempdir().unwrap();
    let sets = "rows=500 requests=200 clients=2 rate=20000 arrivals=poisson";
    let sets: Vec<&str> = sets.split(' ').flat_map(|set| ["--set", set]).collect();
    let output = run(
        dir.path(),
        "ycsb-f",
        &[&["--engine", ENGINE][..], &sets].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let phases = result["trials"][0]["phases"].as_array().unwrap();
    assert_eq!(phases[0]["rows"], 500);
    assert_eq!(phases[2]["operations"], 200);
    assert_eq!(phases[2]["rate"], 20000.0);
    assert!(phases[2]["latency_us"]["READ_MODIFY_WRITE"].is_object());
}

#[test]
fn a_phase_keeps_the_rate_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("paced.toml");
    let mix = "rate = 4000\n[[phase.operation]]";
    let output = rumbench(dir.path(), &["explain", "ycsb-c"]);
    let paced = text(&output.stdout).replacen("[[phase.operation]]", mix, 1);
    std::fs::write(&file, paced).unwrap();
    let more = [
        "--engine",
        "null",
        "--set",
        "rows=100",
        "--set",
        "requests=100",
    ];
    let output = run(dir.path(), file.to_str().unwrap(), &more);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    assert_eq!(result["trials"][0]["phases"][2]["rate"], 4000.0);
}

#[test]
fn a_file_that_cannot_be_followed_is_a_usage_error_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |workload: &str, more: &[&str]| {
        let output = run(
            dir.path(),
            workload,
            &[&["--engine", "null"], more].concat(),
        );
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!dir.path().join("out").exists(), "nothing was begun");
        text(&output.stderr)
    };
    let file = dir.path().join("bad.toml");
    std::fs::write(&file, tutorial().replace("percent = 20", "percnt = 20")).unwrap();
    let file = file.to_str().unwrap();
    let message = refused(file, &[]);
    assert!(message.contains("bad.toml:"), "{message}");
    assert!(message.contains("did you mean `percent`?"), "{message}");
    assert!(refused("./no-such.toml", &[]).contains("cannot read the workload"));
    assert!(refused("ycsb-g", &[]).contains("did you mean `ycsb-"));
    assert!(refused("ycsb-a", &["--set", "row=5"]).contains("did you mean `rows`?"));
    assert!(refused("ycsb-a", &["--set", "seconds=0"]).contains("from 0.1"));
}
