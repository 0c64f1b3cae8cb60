//! Real servers that fail by themselves: each failure affects its own trial only and is reported,
//! and the suite goes on.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::killed::servers;
use crate::{result, rumbench, text};

/// Returns the arguments of a suite of this server, followed by another engine.
fn suite<'a>(server: &'a str, nodes: &'a str, out: &'a str) -> Vec<&'a str> {
    vec![
        "run",
        "linkbench",
        "--engine",
        server,
        "--engine",
        "null",
        "--set",
        nodes,
        "--set",
        "numbers=2011",
        "--set",
        "operations=100",
        "--mix-durability",
        "--no-store",
        "--out",
        out,
    ]
}

/// Returns the result of such a suite, in which the server fails and the other engine does not.
/// Checks that the server's log is kept.
fn failed(dir: &Path, server: &str, output: &Output) -> Value {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{server}: {said}");
    let out = dir.join("out");
    let result = result(&out);
    let log = result["trials"][0]["configuration"]["server_log"].as_str();
    let log = out.join(log.unwrap_or_else(|| panic!("{server}: no log")));
    assert!(fs::metadata(log).unwrap().len() > 0);
    let other = &result["trials"][1];
    assert!(
        other["verified"].is_string(),
        "{server}: {}",
        other["marks"]
    );
    result
}

/// Returns the result of a suite of a server with lines of custom configuration.
fn configured(dir: &Path, server: &str, lines: &str, nodes: &str) -> Value {
    let (options, out) = (dir.join("own.conf"), dir.join("out"));
    fs::write(&options, lines).unwrap();
    let file = format!("{server}={}", options.display());
    let mut arguments = suite(server, nodes, out.to_str().unwrap());
    arguments.extend(["--set", "nlinks_max=500", "--options-file", &file]);
    failed(dir, server, &rumbench(dir, &arguments))
}

#[test]
fn a_server_that_does_not_come_up_costs_its_own_trial() {
    for server in servers() {
        let dir = tempfile::tempdir().unwrap();
        let section = if server.starts_with("mariadb") {
            "[mariadbd]\n"
        } else {
            ""
        };
        let lines = format!("{section}no_such_variable_of_a_server = 1\n");
        let result = configured(dir.path(), server, &lines, "nodes=100");
        let marks = result["trials"][0]["marks"].to_string().replace('-', "_");
        assert!(marks.contains("no_such_variable_of_a_server"), "{marks}");
    }
}

/// The error comes before anything runs, with a remedy.
#[test]
fn a_server_that_is_not_there_is_named_before_anything_runs() {
    for server in servers() {
        let dir = tempfile::tempdir().unwrap();
        let (root, out) = (dir.path().join("empty"), dir.path().join("out"));
        fs::create_dir(&root).unwrap();
        let setting = format!("{server}.root={}", root.display());
        let mut arguments = suite(server, "nodes=100", out.to_str().unwrap());
        arguments.extend(["--set", &setting]);
        let output = rumbench(dir.path(), &arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{server}: {said}");
        let names_both = said.contains(root.to_str().unwrap()) && said.contains("`root`");
        assert!(names_both, "{server}: {said}");
        assert!(!out.exists(), "{server}: {said}");
    }
}

/// For InnoDB a tablespace that may not grow is like a full device.
#[cfg(feature = "mariadb")]
#[test]
fn a_server_without_space_costs_its_own_trial_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "[mariadbd]\ninnodb_file_per_table=OFF\ninnodb_data_file_path=ibdata1:12M\n";
    let result = configured(dir.path(), "mariadb-innodb", lines, "nodes=100000");
    let marks = result["trials"][0]["marks"].to_string();
    assert!(marks.contains("is full"), "{marks}");
    assert!(marks.contains("its log ends with"), "{marks}");
}

/// No file may become larger than 40 MB; for servers this is like a device that rejects further
/// writes. PostgreSQL rejects the statement; MariaDB aborts if MyRocks cannot write.
#[test]
fn a_server_that_cannot_write_costs_its_own_trial_and_says_so() {
    for server in servers().filter(|server| *server != "mariadb-innodb") {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let limited = "trap '' XFSZ; ulimit -f 80000; exec \"$0\" \"$@\"";
        let output = Command::new("/bin/sh")
            .args(["-c", limited, env!("CARGO_BIN_EXE_rumbench")])
            .args(suite(server, "nodes=100000", out.to_str().unwrap()))
            .output()
            .unwrap();
        let result = failed(dir.path(), server, &output);
        let marks = result["trials"][0]["marks"].to_string();
        let reason = match server {
            // Alluvium allocates a segment of its log when it opens.
            "mariadb-alluvium" | "postgresql" => "File too large",
            _ => "aborting on WAL write error",
        };
        assert!(marks.contains(reason), "{server}: {marks}");
        assert!(marks.len() < 3000, "{server}: {marks}");
    }
}
