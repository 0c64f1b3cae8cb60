//! The search for the highest rate on `null`. Its calls take a given time, so its capacity is known
//! on any machine.

use std::path::Path;

use crate::{result, rumbench, text};

/// Two clients and calls of at least 2 ms: no more than 1000 operations a second, on any machine.
const SLOW: [&str; 14] = [
    "--engine",
    "null",
    "--set",
    "null.service_us=2000",
    "--set",
    "nodes=200",
    "--set",
    "numbers=2011",
    "--set",
    "clients=2",
    "--set",
    "seconds=0.5",
    "--precision",
    "50",
];

fn find(dir: &Path, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let mut arguments = vec!["find-rate", "linkbench", "--out", out.to_str().unwrap()];
    arguments.extend(SLOW);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

#[test]
fn the_rate_of_an_engine_whose_calls_take_two_milliseconds_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let output = find(dir.path(), &["--sla", "p50=10s"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    assert_eq!(result["schema_version"], 2);
    let found = &result["rate_search"]["engines"][0];
    assert_eq!(found["ended"], true, "{found}");
    let number = |name: &str| found[name].as_f64().unwrap();
    // A sleep is never shorter than requested, so 95 % of a rate above 1000 / 0.95 cannot be
    // reached.
    assert!(number("closed_loop_per_s") <= 1000.0, "{found}");
    let highest = number("highest_rate");
    assert!(highest > 0.0 && highest <= 1000.0 / 0.95, "{found}");
    assert!(number("lowest_unmet_rate") <= highest * 1.5, "{found}");
    let share = number("share_rate") / highest;
    assert!((share - 0.7).abs() < 0.01, "{found}");
    let points: Vec<&str> = result["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(|trial| trial["point"].as_str().unwrap())
        .collect();
    assert_eq!(points[0], "rate=0", "first a closed loop: {points:?}");
    let rates = found["points"].as_array().unwrap();
    assert_eq!(rates.len(), points.len(), "one repetition each");
    for point in rates.iter().filter(|point| point.get("rate").is_some()) {
        let median = point["response_us"]["p50"].as_f64().unwrap();
        assert!(median >= 2000.0, "a call takes two milliseconds: {point}");
    }
    let shown = text(&output.stdout);
    assert!(shown.contains("Highest rate that holds p50=10s"), "{shown}");
    assert!(
        shown.contains("Response times at 70 % of the highest rate"),
        "{shown}"
    );
    let page = std::fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(page.contains("p50 of response times by rate (op/s); dark line: the limit"));
    shown_again(dir.path());
}

/// Checks that `report` shows the same and `resume` has nothing to do.
fn shown_again(dir: &Path) {
    let out = dir.join("out");
    let again = rumbench(dir, &["report", out.to_str().unwrap(), "--markdown"]);
    assert!(text(&again.stdout).contains("### Highest rate that holds p50=10s"));
    let resumed = rumbench(dir, &["resume", out.to_str().unwrap()]);
    assert_eq!(resumed.status.code(), Some(0), "{}", text(&resumed.stderr));
    let said = text(&resumed.stderr);
    assert!(said.contains("trials have ended; concluding"), "{said}");
}

#[test]
fn a_limit_that_cannot_be_held_ends_with_exit_code_3_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let output = find(dir.path(), &["--sla", "p50=1ms", "--set", "seconds=0.1"]);
    // The key is given twice: the later value counts.
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("holds p50=1ms at no rate down to"),
        "{shown}"
    );
    let found = &result(&dir.path().join("out"))["rate_search"]["engines"][0];
    assert!(found.get("highest_rate").is_none(), "{found}");
}

#[test]
fn what_cannot_be_searched_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let refuse = |arguments: &[&str]| {
        let all = [&["find-rate"][..], arguments, &["--engine", "null"]].concat();
        let output = rumbench(dir.path(), &all);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        text(&output.stderr)
    };
    let said = refuse(&["large-values", "--sla", "p99=5ms"]);
    assert!(said.contains("no phase that takes a rate"), "{said}");
    let said = refuse(&["linkbench", "--sla", "p99=5"]);
    assert!(said.contains("for example p99=5ms"), "{said}");
    let said = refuse(&["linkbench", "--sla", "p99=5ms", "--phase", "load"]);
    assert!(
        said.contains("no phase with a rate is named `load`"),
        "{said}"
    );
    let said = refuse(&["linkbench", "--sla", "p99=5ms", "--set", "rate=5"]);
    assert!(said.contains("is what find-rate looks for"), "{said}");
    let said = refuse(&["linkbench", "--sla", "p99=5ms", "--precision", "0"]);
    assert!(said.contains("from 1 to 100 percent"), "{said}");
    let said = refuse(&["linkbench"]);
    assert!(said.contains("--sla"), "{said}");
}
