//! Servers under the limits and placements of a trial, like engines in the process: a control
//! group, cores of their own, and a sweep over configuration files.

use std::fs;
use std::process::Output;

use serde_json::Value;

use crate::killed::servers;
use crate::{SMALL_GRAPH, result, rumbench, text};

/// Runs a tiny LinkBench on a server, and returns its result if there is one.
fn run(server: &str, more: &[&str]) -> (Option<Value>, Output) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut arguments = vec!["run", "linkbench", "--engine", server, "--no-store"];
    arguments.extend(["--out", out.to_str().unwrap()]);
    arguments.extend(SMALL_GRAPH);
    for set in ["operations=200", "clients=2"] {
        arguments.extend(["--set", set]);
    }
    arguments.extend(more);
    let output = rumbench(dir.path(), &arguments);
    let found = out.join("result.json").exists().then(|| result(&out));
    (found, output)
}

/// Returns the result of a run that must succeed.
fn ended_well(server: &str, more: &[&str]) -> Value {
    let (found, output) = run(server, more);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{server} {more:?}: {said}");
    let found = found.expect("a result");
    for trial in found["trials"].as_array().unwrap() {
        let verified = trial["verified"].is_string();
        assert!(verified, "{server} {more:?}: {}", trial["marks"]);
    }
    found
}

#[test]
fn memory_and_operations_of_a_servers_processes_are_bounded() {
    for server in servers() {
        // Most of the memory is for the server's own start.
        let bounds = ["--memory", "1073741824", "--storage", "slow-ssd"];
        let bounds = [&bounds[..], &["--set", "cache_bytes=67108864"]].concat();
        let (found, output) = run(server, &bounds);
        let said = text(&output.stderr);
        let Some(found) = found else {
            // As for any engine, the user may have no control groups, or the folder is on no block
            // device.
            assert_eq!(output.status.code(), Some(1), "{server}: {said}");
            let why = said.contains("control group") || said.contains("block device");
            assert!(why, "{server}: {said}");
            return;
        };
        assert_eq!(output.status.code(), Some(0), "{server}: {said}");
        let trial = &found["trials"][0];
        assert_eq!(trial["memory"]["limit_bytes"], 1_073_741_824, "{server}");
        // Kernels before 5.19 have no peak in version 2. The laboratory alone takes a fraction of
        // this.
        let peak = trial["memory"]["peak_bytes"].as_u64();
        assert!(
            peak.is_none_or(|peak| peak > 40 << 20),
            "{server}: {peak:?}"
        );
        let storage = &trial["configuration"]["storage"];
        assert!(storage.as_str().unwrap().starts_with("slow-ssd (at most"));
    }
}

#[test]
fn server_and_clients_share_cores_or_have_their_own() {
    // Placement does not depend on the kind of server.
    for (server, placement) in servers().zip(["shared", "split"].into_iter().cycle()) {
        let (found, output) = run(server, &["--placement", placement]);
        let said = text(&output.stderr);
        if std::thread::available_parallelism().unwrap().get() < 2 {
            assert!(said.contains("core"), "{server}: {said}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{server}: {said}");
        let found = found.expect("a result");
        let recorded = &found["trials"][0]["configuration"]["workload.placement"];
        let recorded = recorded.as_str().expect("a placement");
        assert!(recorded.starts_with(placement), "{server}: {recorded}");
    }
}

#[test]
fn configurations_of_a_server_are_contestants() {
    for server in servers() {
        let dir = tempfile::tempdir().unwrap();
        let (setting, values) = match server {
            "postgresql" => ("wal_compression", ["pglz", "off"]),
            "mariadb-alluvium" => ("alluvium_compaction_threads", ["2", "3"]),
            "mariadb-innodb" => ("innodb_purge_threads", ["2", "3"]),
            _ => ("rocksdb_max_background_jobs", ["2", "3"]),
        };
        let files = values.map(|value| {
            let file = dir.path().join(value);
            let group = if server == "postgresql" {
                ""
            } else {
                "[mariadbd]\n"
            };
            fs::write(&file, format!("{group}{setting} = {value}\n")).unwrap();
            file.display().to_string()
        });
        let sweep = format!("{server}.options_file={}", files.join(","));
        let found = ended_well(server, &["--sweep", &sweep]);
        let trials = found["trials"].as_array().unwrap();
        assert_eq!(trials.len(), 2, "{server}");
        for (trial, file) in trials.iter().zip(&files) {
            let point = trial["point"].as_str().unwrap();
            assert_eq!(point, format!("{server}.options_file={file}"));
            let value = file.rsplit('/').next().unwrap();
            let found = trial["configuration"][setting].as_str().unwrap();
            assert!(found.starts_with(value), "{server}: {setting} is {found}");
        }
    }
}
