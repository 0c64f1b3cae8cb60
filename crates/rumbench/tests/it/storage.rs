//! `--storage`: trials with kernel limits on their device operations. If the kernel does not let
//! this user create a control group, or the folder is on no device, the laboratory must say so.

use std::process::Output;

use crate::{SMALL_GRAPH, result, rumbench, script, text};

#[test]
fn a_trial_runs_in_a_group_with_the_limits_of_its_tier() {
    let dir = tempfile::tempdir().unwrap();
    // The trial's process records the limits of its group after it was moved there, and again at
    // the end.
    let this = env!("CARGO_BIN_EXE_rumbench");
    let [noted, at_last] = ["noted", "at_last"].map(|name| dir.path().join(name));
    let body = format!(
        "[ \"$1\" = trial-child ] || exec {this} \"$@\"\n\
         for n in $(seq 500); do grep -q rumbench- /proc/$$/cgroup && break; sleep 0.01; done\n\
         group=$(grep rumbench- /proc/$$/cgroup | head -n 1 | cut -d: -f3)\n\
         limits() {{ cat /sys/fs/cgroup/blkio$group/blkio.throttle.*_iops_device /sys/fs/cgroup$group/io.max \
         /sys/fs/cgroup/unified$group/io.max 2> /dev/null; }}\n\
         limits > {}\n{this} \"$@\"\nstatus=$?\n\
         for n in $(seq 500); do limits | grep -q 10000 || break; sleep 0.01; done\n\
         limits > {}\nexit $status",
        noted.display(),
        at_last.display()
    );
    let host = format!("noting={}", script(dir.path(), "noting", &body));
    let out = dir.path().join("out");
    let arguments = [
        "run",
        "linkbench",
        "--engine",
        "alluvium@noting",
        "--host",
        &host,
        "--storage",
        "slow-ssd",
        "--out",
        out.to_str().unwrap(),
        "--set",
        "nodes=2000",
        "--set",
        "numbers=2011",
        "--set",
        "nlinks_max=20000",
        "--set",
        "operations=400",
    ];
    let output = rumbench(dir.path(), &arguments);
    let said = text(&output.stderr);
    if !out.join("result.json").exists() {
        assert_eq!(output.status.code(), Some(1), "{said}");
        let why = said.contains("control group") || said.contains("block device");
        assert!(said.contains("--storage") && why, "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    let trial = &result(&out)["trials"][0];
    let expected = "slow-ssd (at most 10000 reads and 10000 writes a second)";
    assert_eq!(trial["configuration"]["storage"], expected);
    let noted = std::fs::read_to_string(noted).expect("the script ran");
    assert_eq!(noted.matches("10000").count(), 2, "{noted}");
    let at_last = std::fs::read_to_string(at_last).expect("the script ran to its end");
    assert!(
        !at_last.contains("10000"),
        "the check is limited: {at_last}"
    );
}

/// Runs a tiny suite on `null` at a tier, and returns its result if there is one.
fn at_tier(tier: &str, more: &[&str]) -> (Option<serde_json::Value>, Output) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut arguments = vec!["run", "linkbench", "--engine", "null", "--storage", tier];
    arguments.extend(["--out", out.to_str().unwrap()]);
    arguments.extend(SMALL_GRAPH);
    arguments.extend(["--set", "operations=100"]);
    arguments.extend(more);
    let output = rumbench(dir.path(), &arguments);
    let found = out.join("result.json").exists().then(|| result(&out));
    (found, output)
}

#[test]
fn the_limits_can_begin_with_a_phase() {
    let from = |phase: &str| at_tier("slow-ssd", &["--storage-from", phase]);
    let (found, output) = from("request");
    // The test above checks the error of a kernel without groups for this user.
    let Some(found) = found else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = "slow-ssd (at most 10000 reads and 10000 writes a second), from request on";
    assert_eq!(found["trials"][0]["configuration"]["storage"], expected);
    let (found, output) = from("elsewhere");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let marks = found.expect("a result")["trials"][0]["marks"].to_string();
    assert!(marks.contains("no phase of this name began"), "{marks}");
}

#[test]
fn a_tier_without_limits_needs_no_group() {
    let (found, output) = at_tier("fast-ssd", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let trial = &found.expect("a result")["trials"][0];
    assert_eq!(trial["configuration"]["storage"], "fast-ssd (no limit)");
}
