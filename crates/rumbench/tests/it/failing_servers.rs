//! Real servers that fail by themselves: each costs its own trial, with its words, and the suite goes on.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::killed::servers;
use crate::{result, rumbench, text};

/// A suite of this server with lines of its own configuration, and of another engine behind it: its result.
fn run(dir: &Path, server: &str, lines: &str, nodes: u32) -> Value {
    let (options, out) = (dir.join("own.conf"), dir.join("out"));
    fs::write(&options, lines).unwrap();
    let file = format!("{server}={}", options.display());
    let nodes = format!("nodes={nodes}");
    let output = rumbench(
        dir,
        &[
            "run",
            "linkbench",
            "--engine",
            server,
            "--engine",
            "null",
            "--options-file",
            &file,
            "--set",
            &nodes,
            "--set",
            "numbers=2011",
            "--set",
            "operations=100",
            "--mix-durability",
            "--no-store",
            "--out",
            out.to_str().unwrap(),
        ],
    );
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{server}: {said}");
    let result = result(&out);
    let other = &result["trials"][1];
    assert!(
        other["verified"].is_string(),
        "{server}: {}",
        other["marks"]
    );
    result
}

#[test]
fn a_server_that_does_not_come_up_costs_its_own_trial() {
    for server in servers() {
        let dir = tempfile::tempdir().unwrap();
        let section = match server.starts_with("mariadb") {
            true => "[mariadbd]\n",
            false => "",
        };
        let lines = format!("{section}no_such_variable_of_a_server = 1\n");
        let result = run(dir.path(), server, &lines, 100);
        let marks = result["trials"][0]["marks"].to_string().replace('-', "_");
        assert!(marks.contains("no_such_variable_of_a_server"), "{marks}");
    }
}

/// A tablespace that may not grow is to InnoDB what a full device is.
#[cfg(feature = "mariadb")]
#[test]
fn a_server_without_space_costs_its_own_trial_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "[mariadbd]\ninnodb_file_per_table=OFF\ninnodb_data_file_path=ibdata1:12M\n";
    let result = run(dir.path(), "mariadb-innodb", lines, 100_000);
    let marks = result["trials"][0]["marks"].to_string();
    assert!(marks.contains("is full"), "{marks}");
    assert!(marks.contains("its log ends with"), "{marks}");
}
