//! Trials with memory bounded by a control group. If the kernel does not let this user create one,
//! the laboratory must say so.

use std::path::Path;
use std::process::Output;

use crate::{result, rumbench, script, text};

const MIB: u64 = 1 << 20;

fn run(dir: &Path, memory: u64, cache: u64, more: &[&str]) -> Output {
    let (out, memory, cache) = (
        dir.join("out"),
        memory.to_string(),
        format!("cache_bytes={cache}"),
    );
    let mut arguments = vec![
        "run",
        "linkbench",
        "--memory",
        &memory,
        "--out",
        out.to_str().unwrap(),
    ];
    for set in [
        &cache,
        "nodes=2000",
        "numbers=2011",
        "nlinks_max=20000",
        "operations=400",
    ] {
        arguments.extend(["--set", set]);
    }
    arguments.extend(more);
    rumbench(dir, &arguments)
}

/// Returns true if this user can have control groups; otherwise checks that the laboratory said so
/// before it ran anything.
fn bounded(dir: &Path, output: &Output) -> bool {
    if dir.join("out/result.json").exists() {
        return true;
    }
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("--memory") && said.contains("control group"),
        "{said}"
    );
    false
}

#[test]
fn a_trial_stays_within_its_memory_and_says_what_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), 128 * MIB, 16 * MIB, &["--engine", "alluvium"]);
    if !bounded(dir.path(), &output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let trial = &result(&dir.path().join("out"))["trials"][0];
    assert_eq!(trial["memory"]["limit_bytes"], 128 * MIB);
    let limit = (128 * MIB).to_string();
    assert_eq!(trial["configuration"]["memory_limit_bytes"], limit);
    // The trial on `null` before it had this much.
    let laboratory = trial["memory"]["laboratory_bytes"].as_u64().unwrap();
    assert!((MIB..=256 * MIB).contains(&laboratory), "{laboratory}");
    // Kernels before 5.19 have no peak in version 2.
    if let Some(peak) = trial["memory"]["peak_bytes"].as_u64() {
        assert!((MIB..=128 * MIB + laboratory).contains(&peak), "{peak}");
    }
}

#[test]
fn a_trial_that_needs_more_is_marked_and_the_suite_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    // `tail` keeps its input in memory and never reaches the end of a line.
    let this = env!("CARGO_BIN_EXE_rumbench");
    // Waits until the process is in its group, but not forever.
    let waits =
        "n=0; until grep -q rumbench- /proc/self/cgroup || [ $n = 999 ]; do n=$((n+1)); done";
    let grows = "ulimit -v 1000000; exec tail /dev/zero";
    let host = |name: &str, grows: &str| {
        let body =
            format!("if [ \"$1\" = trial-child ]; then {waits}; {grows}; fi\nexec {this} \"$@\"");
        format!("{name}={}", script(dir.path(), name, &body))
    };
    // In the first host the trial's process itself grows; in the second its child does, like a
    // server.
    let greedy = host("greedy", grows);
    let server = host("server", &format!("({grows})"));
    let engines = [
        "--engine",
        "null@greedy",
        "--engine",
        "null",
        "--engine",
        "null@server",
        "--host",
        &greedy,
        "--host",
        &server,
    ];
    let output = run(dir.path(), 65 * MIB, 1, &engines);
    if !bounded(dir.path(), &output) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let trials = &result(&dir.path().join("out"))["trials"];
    assert_eq!(trials[0]["memory"]["killed"], true);
    let marks = trials[0]["marks"].to_string();
    assert!(marks.contains("more memory than --memory"), "{marks}");
    assert_eq!(trials[1]["memory"]["killed"], false);
    assert!(trials[1]["verified"].is_string(), "{}", trials[1]["marks"]);
    let marks = trials[2]["marks"].to_string();
    assert!(marks.contains("out-of-memory"), "{marks}");
}

#[test]
fn a_cache_that_does_not_fit_is_refused_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), 100 * MIB, 90 * MIB, &["--engine", "alluvium"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("cache_bytes=37748736 would do"), "{said}");
    assert!(!dir.path().join("out").exists());
}
