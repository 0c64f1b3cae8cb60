//! Tiny suites of the Insert Benchmark, from the command line to the report.

use std::path::Path;

use crate::{result, rumbench, text};

fn run(dir: &Path, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let mut arguments = vec!["run", "insert-benchmark", "--out", out.to_str().unwrap()];
    arguments.extend(["--set", "rows=2000", "--engine"]);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

fn phase<'a>(trial: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let phases = trial["phases"].as_array().unwrap();
    let found = phases.iter().find(|phase| phase["name"] == name);
    found.unwrap_or_else(|| panic!("no phase {name}"))
}

#[test]
fn ten_steps_on_null_are_measured_by_rows_and_queries_and_reported_in_three_summaries() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["null", "--set", "operations=300"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let trial = &result["trials"][0];
    let names: Vec<&str> = trial["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    let expected = [
        "l.i0", "l.x", "l.i1", "l.i2", "settle", "qr100", "qp100", "qr500", "qp500", "qr1000",
        "qp1000", "settle#2",
    ];
    assert_eq!(names, expected);
    let writes = phase(trial, "l.i1");
    assert_eq!(writes["rows"], 1600, "only inserts count");
    assert_eq!(writes["latency_us"]["INSERT"]["count"], 32);
    // The first of 32 deletes also reads the lowest key, so it counts as MIN_AND_DELETE.
    assert_eq!(writes["latency_us"]["DELETE"]["count"], 31);
    let ranges = phase(trial, "qr100");
    assert_eq!(ranges["operations"], 300);
    assert_eq!(ranges["background"]["rows_rate"], 100.0);
    let seconds = ranges["intervals"].as_array().unwrap();
    assert!(
        seconds
            .iter()
            .all(|second| second["background_ops"].is_u64())
    );
    let buckets = ranges["response_buckets"].as_object().unwrap();
    let counted = buckets
        .values()
        .flat_map(|counts| counts.as_array().unwrap());
    assert_eq!(
        counted.map(|count| count.as_u64().unwrap()).sum::<u64>(),
        300
    );
    let report = text(&output.stdout).to_string();
    for title in [
        "Summary: rows inserted per second",
        "Summary: throughput relative to null",
        "Summary: background rows",
        "l.i0: record, one line for each trial",
        "qp1000: query response time",
    ] {
        assert!(report.contains(title), "{title} is missing in {report}");
    }
}

#[test]
fn a_rate_that_no_engine_reaches_marks_the_trial_and_its_step_and_the_others_stand() {
    let dir = tempfile::tempdir().unwrap();
    let steps = "steps=l.i0,l.x,qr50000000,qr100";
    let output = run(
        dir.path(),
        &["null", "--set", "seconds=0.5", "--set", steps],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let trial = &result["trials"][0];
    let marks = trial["marks"].to_string();
    assert!(
        marks.contains("background-rate-unmet (qr50000000: "),
        "{marks}"
    );
    assert!(!marks.contains("qr100:"), "{marks}");
    let reached = |name: &str| {
        phase(trial, name)["background"]["rows_per_s"]
            .as_f64()
            .unwrap()
    };
    assert!(reached("qr50000000") < 0.95 * 5e7);
    assert!(
        text(&output.stdout).contains(" !"),
        "the step stands with its mark"
    );
}

#[cfg(feature = "sqlite")]
#[test]
fn a_step_by_seconds_does_the_same_writes_for_every_engine_and_checks_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--set", "seconds=1", "--set", "steps=l.i0,l.x,qr1000"];
    let engines = ["sqlite", "--engine", "null"];
    let output = run(dir.path(), &[&engines[..], &more[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    for trial in result["trials"].as_array().unwrap() {
        let latency = &phase(trial, "qr1000")["background"]["latency_us"];
        assert_eq!(latency["INSERT"]["count"], 20);
        assert_eq!(latency["DELETE"]["count"], 19);
    }
    let verified = result["trials"][0]["verified"].as_str().unwrap();
    assert!(verified.starts_with("2100 rows in 1 tables"), "{verified}");
    assert!(verified.contains("after 1000 deletes"), "{verified}");
}

#[test]
fn invalid_settings_are_usage_errors_that_list_the_valid_ones() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |more: &[&str]| {
        let output = run(dir.path(), more);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr).to_string()
    };
    assert!(refused(&["null", "--set", "rows=0"]).contains("a whole number from 1"));
    assert!(refused(&["null", "--set", "steps=l.i0,qr100"]).contains("put l.x before it"));
    assert!(refused(&["null", "--set", "row=5"]).contains("did you mean `rows`?"));
}

#[test]
fn a_single_stream_has_its_rates_and_no_rate_of_another_workload() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["null", "--set", "form=2016"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = text(&output.stdout);
    assert!(report.contains("l.i0: one stream of inserts"), "{report}");
    for set in ["rate=100", "arrivals=burst"] {
        let output = run(dir.path(), &["null", "--set", set]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("no phase that takes a rate"), "{said}");
    }
}
