//! Failovers of real servers: unprotected commits are lost, protected ones are not.

use std::path::Path;

use crate::{result, rumbench, text};

/// Runs rounds of one mode and returns the exit code and the mode's result.
fn failover(engine: &str, mode: &str, more: &[&str]) -> (Option<i32>, serde_json::Value) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = rumbench(
        dir.path(),
        &[
            &["failover", "--engine", engine, "--mode", mode][..],
            &["--seconds-per-round", "0.6", "--out", out.to_str().unwrap()],
            more,
        ]
        .concat(),
    );
    let mut result = result(&out);
    let mode = result["modes"][0].take();
    assert_eq!(mode["errors"], serde_json::json!([]), "{mode}");
    assert!(!out.join("data").exists());
    assert!(text(&output.stdout).contains("acknowledged lost"));
    (output.status.code(), mode)
}

/// Returns a sum over the rounds of a mode.
fn sum(mode: &serde_json::Value, part: &str) -> u64 {
    let rounds = mode["rounds"].as_array().unwrap();
    let parts = rounds.iter().map(|round| &round["judgment"][part]);
    parts.map(|part| part.as_u64().unwrap()).sum()
}

/// Checks one mode that loses commits and one that keeps them. In the first mode the primary
/// commits for three seconds without a network, so the round must find lost commits.
fn loses_and_keeps(engine: &str, [loses, keeps]: [&str; 2]) {
    let (code, mode) = failover(engine, loses, &["--rounds", "1", "--isolated", "3s"]);
    assert_eq!(code, Some(0), "{mode}");
    assert!(sum(&mode, "acknowledged_lost") > 0, "{mode}");
    assert!(sum(&mode, "seen_lost") > 0, "{mode}");
    assert_eq!(sum(&mode, "unexplained"), 0, "{mode}");
    let (code, mode) = failover(engine, keeps, &["--rounds", "2"]);
    assert_eq!(code, Some(0), "{mode}");
    assert!(sum(&mode, "acknowledged") > 0, "{mode}");
    for part in ["acknowledged_lost", "seen_lost", "unexplained"] {
        assert_eq!(sum(&mode, part), 0, "{mode}");
    }
}

#[cfg(feature = "mariadb")]
#[test]
fn failovers_of_mariadb_with_innodb_and_alluvium() {
    loses_and_keeps("mariadb-innodb", ["asynchronous", "after-sync"]);
    loses_and_keeps("mariadb-alluvium", ["asynchronous", "after-sync"]);
}

#[cfg(feature = "postgresql")]
#[test]
fn failovers_of_postgresql() {
    loses_and_keeps("postgresql", ["local", "remote-write"]);
}

#[test]
fn failovers_of_unknown_engines_and_modes_are_refused_with_those_that_exist() {
    let dir = Path::new("/");
    let refused = |arguments: &[&str]| {
        let output = rumbench(dir, &[&["failover"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let words = refused(&["--engine", "lmdb"]);
    assert!(
        words.contains("--engine lmdb: failovers are measured with"),
        "{words}"
    );
    let words = refused(&["--mode", "majority"]);
    assert!(words.contains("--mode majority: the modes are"), "{words}");
    assert!(refused(&["--round-trip", "1h"]).contains("from 0 to 2 s"));
    assert!(refused(&["--rounds", "0"]).contains("--rounds"));
    let words = refused(&["--isolated", "1s", "--bytes", "drained"]);
    assert!(words.contains("--bytes cut"), "{words}");
}
