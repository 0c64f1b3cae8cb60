//! Runs the built binary: bad usage and its exit codes, tiny suites from load to report, sweeps,
//! searches for rates, bounded memory, other builds, comparisons, explanations, imports, resumed
//! suites, suites of several runs, kill tests. With servers: failovers, external ones, laboratories
//! killed with a server, and servers that fail, lose rows, are bounded, or belong to an ordinary
//! user.

#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod bounded_servers;
mod compare;
mod custom;
mod durability;
mod explain;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod external;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod failing_servers;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod failover;
mod find_rate;
mod host;
mod import;
mod insert_benchmark;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod killed;
mod large_values;
mod memory;
mod oltp_range;
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
mod ordinary_user;
mod profile;
mod resume;
mod series;
mod storage;
mod suite;
mod sweep;
mod usage;
mod waits;
#[cfg(feature = "mariadb")]
mod wrong_rows;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Settings of LinkBench for a small graph. Without a limit, the longest list of any graph has a
/// million links.
const SMALL_GRAPH: [&str; 6] = [
    "--set",
    "nodes=200",
    "--set",
    "numbers=2011",
    "--set",
    "nlinks_max=500",
];

/// Runs rumbench with a results store of its own.
fn rumbench(store: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rumbench"))
        .args(arguments)
        .env("RUMBENCH_STORE", store.join("store.sqlite"))
        .output()
        .expect("the binary can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads `DIR/result.json` of a finished command.
fn result(dir: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(dir.join("result.json")).expect("there is a result");
    serde_json::from_str(&text).expect("the result is JSON")
}

/// Writes an executable shell script and returns its path.
fn script(dir: &Path, name: &str, body: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("the script is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    path.to_str().expect("UTF-8").to_string()
}
