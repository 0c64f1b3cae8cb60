//! Tiny suites of OLTP ranges, from the command line to the report.

use std::path::Path;

use crate::{result, rumbench, text};

fn run(dir: &Path, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let mut arguments = vec!["run", "oltp-range", "--out", out.to_str().unwrap()];
    arguments.extend(["--set", "rows=2000", "--engine"]);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

fn phases(trial: &serde_json::Value) -> Vec<&str> {
    let phases = trial["phases"].as_array().unwrap().iter();
    phases
        .map(|phase| phase["name"].as_str().unwrap())
        .collect()
}

#[test]
fn the_published_order_runs_on_null_and_is_reported_in_its_groups() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["null", "--set", "operations=5"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let trial = &result["trials"][0];
    let names = phases(trial);
    assert_eq!(
        names[..4],
        ["load", "index", "warmup-point-query", "settle"]
    );
    assert!(names.contains(&"read-write:100") && names.contains(&"points-covered-si"));
    let scan = &trial["phases"][names.iter().position(|name| *name == "scan").unwrap()];
    assert_eq!(scan["rows"], 5 * 2000);
    let warm = &trial["phases"][2];
    assert!(warm["latency_us"].is_null(), "a warm-up is not recorded");
    let report = text(&output.stdout);
    for title in [
        "Load: rows of all tables, their index included",
        "Point queries: queries per second, and divided by null",
        "Range queries without aggregation",
        "Range queries with aggregation or sort",
        "Writes: queries per second",
        "read-write:10: rate and cost",
    ] {
        assert!(report.contains(title), "{title} is missing in {report}");
    }
}

#[cfg(feature = "sqlite")]
#[test]
fn clients_that_write_the_same_rows_lose_no_update() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "tables=2",
        "clients=3",
        "operations=120",
        "steps=load,index,update-index,read-write:10,read-only:10,scan",
    ];
    let sets = settings.iter().flat_map(|set| ["--set", set]);
    let arguments: Vec<&str> = ["sqlite"].into_iter().chain(sets).collect();
    let output = run(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let trial = &result["trials"][0];
    assert_eq!(trial["phases"][3]["operations"], 120);
    let verified = trial["verified"].as_str().unwrap();
    assert!(verified.starts_with("4000 rows in 2 tables"), "{verified}");
    assert!(verified.contains("no update of k is lost"), "{verified}");
}

#[test]
fn invalid_settings_are_usage_errors_that_list_the_valid_ones() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |set: &str| {
        let output = run(dir.path(), &["null", "--set", set]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr).to_string()
    };
    assert!(refused("steps=load,read-onyl").contains("did you mean `read-only`?"));
    assert!(refused("steps=load,range-covered-si").contains("put index before it"));
    assert!(refused("range=5000").contains("longer than a table"));
    assert!(refused("zipf_exponent=1").contains("from 0.01 to 0.99"));
}
