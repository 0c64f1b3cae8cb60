//! Tiny suites of large values, from the command line to the report.

use std::path::Path;

use crate::{rumbench, text};

fn run(dir: &Path, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let mut arguments = vec!["run", "large-values", "--out", out.to_str().unwrap()];
    arguments.extend(["--set", "rows=300", "--set", "value_max=9000", "--engine"]);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

#[cfg(feature = "sqlite")]
#[test]
fn sizes_are_compared_with_the_rows_and_what_they_compress_to() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["--set", "rate=50", "--set", "seconds=1"];
    let engines = ["sqlite", "--engine", "null"];
    let output = run(dir.path(), &[&engines[..], &more[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = crate::result(&dir.path().join("out"));
    let trial = &result["trials"][0];
    assert_eq!(trial["engine"], "sqlite");
    let phases = trial["phases"].as_array().unwrap();
    let names = phases.iter().map(|phase| phase["name"].as_str().unwrap());
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["load", "settle", "query", "settle#2"]
    );
    let number = |place: usize, path: [&str; 2]| phases[place][path[0]][path[1]].as_f64().unwrap();
    let raw = number(1, ["stored_bytes", "raw"]);
    assert_eq!(phases[0]["written_bytes"].as_f64(), Some(raw));
    let share = number(1, ["stored_bytes", "compressed"]) / raw;
    assert!((0.44..0.47).contains(&share), "45 % are random: {share}");
    let data = number(1, ["size_bytes", "data"]);
    assert!(data >= raw, "SQLite compresses nothing");
    assert_eq!(number(1, ["amplification", "space"]), data / raw);
    let rows = |place: usize| number(place, ["stored_bytes", "raw"]);
    assert!(rows(3) > rows(1), "what was inserted beside queries counts");
    assert_eq!(phases[2]["background"]["rows_rate"], 50.0);
    let verified = trial["verified"].as_str().unwrap();
    assert!(verified.starts_with("350 rows in order"), "{verified}");
    let report = text(&output.stdout);
    for title in [
        "Summary: inserts and size, values of 100 to 9000 bytes, 45 % random",
        "Summary: queries by key, background inserts at a rate",
    ] {
        assert!(report.contains(title), "{title} is missing in {report}");
    }
}

#[test]
fn invalid_settings_are_usage_errors_that_list_the_valid_ones() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |set: &str| {
        let output = run(dir.path(), &["null", "--set", set]);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        text(&output.stderr).to_string()
    };
    assert!(refused("value_min=10000").contains("must not be above value_max=9000"));
    assert!(refused("load_batch=50000").contains("set load_batch to"));
    assert!(refused("random_percentage=5").contains("did you mean `random_percent`?"));
    assert!(refused("rate=-5").contains("a whole number from 0"));
}
