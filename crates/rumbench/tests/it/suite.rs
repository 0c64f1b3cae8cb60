//! Tiny suites on `null`, which every build has, and on SQLite if the build has it.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::waits::{pause, wait};
use crate::{SMALL_GRAPH, result, rumbench, text};

fn run(dir: &Path, out: &Path, more: &[&str]) -> std::process::Output {
    let mut arguments = vec!["run", "linkbench", "--out", out.to_str().unwrap()];
    arguments.extend(SMALL_GRAPH);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

/// Returns the result of a suite that must succeed.
fn measured(more: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let output = run(dir.path(), &out, more);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    result(&out)
}

#[test]
fn suite_on_null_measures_every_phase_and_can_be_reported_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let more = [
        "--engine",
        "null",
        "--repeat",
        "2",
        "--set",
        "operations=20000",
        "--set",
        "clients=2",
    ];
    let output = run(dir.path(), &out, &more);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&out);
    let trials = result["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 2);
    let phases = trials[1]["phases"].as_array().unwrap();
    let names: Vec<&str> = phases
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["load", "request", "settle"]);
    let request = &phases[1];
    assert_eq!(request["operations"], 20_000);
    assert!(request["cpu_us_per_op"]["client"].as_f64().unwrap() > 0.0);
    let counts = request["latency_us"].as_object().unwrap().values();
    assert_eq!(
        counts
            .map(|latency| latency["count"].as_u64().unwrap())
            .sum::<u64>(),
        20_000
    );
    let intervals = request["intervals"].as_array().unwrap();
    assert_eq!(
        intervals
            .iter()
            .map(|i| i["ops"].as_u64().unwrap())
            .sum::<u64>(),
        20_000
    );
    assert!(!out.join("data").exists(), "data is removed");

    let again = rumbench(dir.path(), &["report", out.to_str().unwrap()]);
    assert_eq!(text(&again.stdout), text(&output.stdout));
    let json = rumbench(dir.path(), &["report", "--json", out.to_str().unwrap()]);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap(),
        result
    );
    let listed = rumbench(dir.path(), &["list", "results"]);
    assert!(
        text(&listed.stdout).contains("linkbench"),
        "{}",
        text(&listed.stdout)
    );

    let refused = run(dir.path(), &out, &["--engine", "null"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("another suite"));
}

#[test]
fn unreachable_rate_is_marked_and_counted() {
    let result = measured(&[
        "--engine",
        "null",
        "--set",
        "seconds=1",
        "--set",
        "rate=20000000",
    ]);
    let marks = result["trials"][0]["marks"].to_string();
    assert!(marks.contains("rate-unmet"), "{marks}");
    let request = &result["trials"][0]["phases"][1];
    let all =
        request["operations"].as_u64().unwrap() + request["missed_arrivals"].as_u64().unwrap();
    assert_eq!(all, 20_000_000);
}

/// The engine stalls for a quarter of the time. Only times from the intended start can show it,
/// because hardly any operation itself is slow.
#[test]
fn scripted_stall_shows_in_response_times_and_not_in_service_times() {
    let result = measured(&[
        "--engine",
        "null",
        "--set",
        "clients=2",
        "--set",
        "seconds=4",
        "--set",
        "rate=2000",
        "--set",
        "null.stall_every_s=2",
        "--set",
        "null.stall_s=0.5",
    ]);
    let request = &result["trials"][0]["phases"][1];
    let p99 = |times: &str| request[times]["GET_NODE"]["p99"].as_f64().unwrap();
    let (response, service) = (p99("latency_us"), p99("service_us"));
    assert!(response > 100_000.0, "{response}");
    assert!(service < response / 4.0, "{service} of {response}");
}

#[test]
fn a_phase_of_bursts_is_divided_by_the_time_that_was_asked() {
    let result = measured(&[
        "--engine",
        "null",
        "--set",
        "seconds=2",
        "--set",
        "rate=2000",
        "--set",
        "arrivals=burst",
    ]);
    let request = &result["trials"][0]["phases"][1];
    let number = |name: &str| request[name].as_f64().unwrap();
    assert!(number("seconds") >= 2.0, "{request}");
    assert!(number("ops_per_s") <= 2000.0, "{request}");
}

#[cfg(feature = "sqlite")]
#[test]
fn suite_on_sqlite_verifies_its_rows_and_splits_the_cpu() {
    // With its longest list whole, the graph does not fit into SQLite's log.
    let result = measured(&[
        "--engine",
        "sqlite",
        "--set",
        "nlinks_max=0",
        "--set",
        "operations=500",
    ]);
    let trial = &result["trials"][0];
    assert!(
        trial["verified"].as_str().unwrap().contains("links"),
        "{trial}"
    );
    let phases = trial["phases"].as_array().unwrap();
    let request = phases
        .iter()
        .find(|phase| phase["name"] == "request")
        .unwrap();
    let cpu = &request["cpu_us_per_op"];
    let of = |name: &str| cpu[name].as_f64().unwrap();
    let sum = of("client") + of("engine_foreground") + of("engine_background");
    assert!((sum - of("total")).abs() < 1e-6, "{cpu}");
    assert!(
        request["kb_written_per_op_settled"].is_number(),
        "{request}"
    );
    assert!(request["size_bytes"]["data"].as_u64().unwrap() > 1 << 20);
}

/// Starts an endless suite and waits until the request phase runs, as shown by the result saved
/// after the load.
fn start_endless(dir: &Path, out: &Path) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rumbench"))
        .args([
            "run",
            "linkbench",
            "--engine",
            "null",
            "--set",
            "seconds=3600",
        ])
        .args(SMALL_GRAPH)
        .args(["--out", out.to_str().unwrap()])
        .env("RUMBENCH_STORE", dir.join("store.sqlite"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let loaded = || {
        let text = std::fs::read_to_string(out.join("result.json")).unwrap_or_default();
        text.contains("\"name\": \"load\"")
    };
    wait(&mut child, &loaded);
    child
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn interrupted_suite_saves_what_it_measured_and_exits_with_130() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut child = start_endless(dir.path(), &out);
    signal(child.id(), rustix::process::Signal::INT);
    let status = child.wait().unwrap();
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert_eq!(
        (status.code(), status.signal()),
        (Some(130), None),
        "{stderr}"
    );
    let result = result(&out);
    assert_eq!(result["interrupted"], true);
    assert!(
        result["trials"][0]["marks"]
            .to_string()
            .contains("interrupted"),
        "{stderr}"
    );
}

/// Returns the process of the running trial, the laboratory's only child.
fn trial_process(parent: u32) -> u32 {
    loop {
        let path = format!("/proc/{parent}/task/{parent}/children");
        let children = std::fs::read_to_string(path).unwrap();
        if let Some(pid) = children.split_whitespace().next() {
            return pid.parse().unwrap();
        }
        pause();
    }
}

#[test]
fn killed_trial_is_marked_and_keeps_its_phases() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut child = start_endless(dir.path(), &out);
    signal(trial_process(child.id()), rustix::process::Signal::KILL);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let trial = &result(&out)["trials"][0];
    assert!(
        trial["marks"].to_string().contains("child-died (signal 9)"),
        "{trial}"
    );
    assert_eq!(trial["phases"][0]["name"], "load");
    assert!(trial["phases"][0]["ops_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn an_engine_that_fails_within_a_step_keeps_what_was_measured_and_the_suite_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let arguments = [
        "run",
        "kv-sequence",
        "--out",
        out.to_str().unwrap(),
        "--engine",
        "null",
        "--engine",
        "sqlite",
        "--mix-durability",
        "--set",
        "keys=2000",
        "--set",
        "load_rows=200",
        "--set",
        "operations=500",
        "--set",
        "steps=load,get,put",
        // 10 calls load, 500 read.
        "--set",
        "null.fail_after_calls=600",
    ];
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let result = result(&out);
    let [failed, sound] = &result["trials"].as_array().unwrap()[..] else {
        panic!("two trials: {result}");
    };
    let marks = failed["marks"].to_string();
    assert!(marks.contains("null.fail_after_calls=600"), "{marks}");
    assert_eq!(phase(failed, "load")["rows"], 2000);
    assert_eq!(phase(failed, "get")["operations"], 500);
    assert!(!sound["marks"].to_string().contains("fail"), "{sound}");
    assert_eq!(phase(sound, "put")["operations"], 500);
}

/// Returns the result of a small kv-sequence that must succeed.
fn sequence(more: &[&str]) -> serde_json::Value {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut arguments = vec!["run", "kv-sequence", "--out", out.to_str().unwrap()];
    arguments.extend(["--set", "keys=2000", "--set", "load_rows=200"]);
    arguments.extend(more);
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("db_bench columns"));
    result(&out)
}

fn phase<'a>(trial: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let mut phases = trial["phases"].as_array().unwrap().iter();
    phases.find(|phase| phase["name"] == name).unwrap()
}

/// Every row is read back at the end from a database that was opened four times.
#[test]
fn kv_sequence_opens_databases_again_and_keeps_their_rows() {
    let steps = "steps=fillseq,get,overwriteandwait,readwhilewriting";
    let engines = ["alluvium", "fjall", "lmdb", "sqlite"];
    let mut more: Vec<&str> = engines.iter().flat_map(|name| ["--engine", name]).collect();
    more.extend([
        "--mix-durability",
        "--set",
        "operations=300",
        "--set",
        steps,
    ]);
    more.extend(["--set", "reopen=yes", "--set", "load_log=no"]);
    // The cores are assigned once, however often a database is opened.
    more.extend(["--placement", "split"]);
    let result = sequence(&more);
    let trials = result["trials"].as_array().unwrap();
    assert_eq!(trials.len(), engines.len());
    for trial in trials {
        assert!(trial["verified"].is_string(), "{trial}");
        assert_eq!(trial["configuration"]["workload.load_log"], "no");
        let promised = &trial["durability_facts"]["process_kill"];
        assert_eq!(promised, "all acknowledged commits", "that of the steps");
        for name in ["get", "overwriteandwait", "settle", "readwhilewriting"] {
            assert!(phase(trial, name)["seconds"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn kv_sequence_measures_each_step_and_its_writer_apart() {
    let result = sequence(&[
        "--engine",
        "null",
        "--set",
        "seconds=0.5",
        "--set",
        "clients=2",
        "--set",
        "steps=fillseq,get,readwhilewriting,overwriteandwait",
    ]);
    let trial = &result["trials"][0];
    let phases = trial["phases"].as_array().unwrap().iter();
    let names: Vec<&str> = phases
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    let expected = [
        "fillseq",
        "get",
        "readwhilewriting",
        "overwriteandwait",
        "settle",
    ];
    assert_eq!(names, expected, "the drain is the last settle");
    let load = phase(trial, "fillseq");
    assert_eq!(
        (&load["operations"], &load["rows"]),
        (&10.into(), &2000.into())
    );
    assert_eq!(load["written_bytes"], 2000 * 420);
    assert!(phase(trial, "get").get("background").is_none());
    let reads = phase(trial, "readwhilewriting");
    let writer = &reads["background"];
    let puts = writer["operations"].as_u64().unwrap();
    // 4993 puts a second for half a second, plus more if a busy machine delays the end; without a
    // rate it would be a million.
    assert!((1..=50_000).contains(&puts), "{puts}");
    assert_eq!(reads["written_bytes"], puts * 420);
    assert!(reads["latency_us"].get("PUT").is_none(), "{reads}");
    assert_eq!(reads["latency_us"]["GET"]["count"], reads["operations"]);
    let cpu = &reads["cpu_us_per_op"];
    let part = |name: &str| cpu[name].as_f64().unwrap_or(0.0);
    let sum = part("client") + part("engine_foreground") + part("engine_background");
    assert!((part("total") - sum).abs() < 1e-6, "{cpu}");
}

#[cfg(feature = "alluvium")]
#[test]
fn kv_sequence_settles_in_the_middle_and_checks_every_row() {
    let result = sequence(&[
        "--engine",
        "alluvium",
        "--set",
        "operations=500",
        "--set",
        "form=micro",
        "--set",
        "alluvium.sync_interval_ms=50",
    ]);
    let trial = &result["trials"][0];
    let verified = trial["verified"].as_str().unwrap();
    assert!(verified.starts_with("2000 rows in order"), "{verified}");
    assert_eq!(trial["configuration"]["sync_interval_ms"], "50");
    assert!(phase(trial, "put")["kb_written_per_op_settled"].is_number());
    assert!(
        phase(trial, "get#2")
            .get("kb_written_per_op_settled")
            .is_none()
    );
    assert!(
        phase(trial, "settle")["size_bytes"]["data"]
            .as_u64()
            .unwrap()
            > 0
    );
    let rows = phase(trial, "scan10#3")["rows"].as_u64().unwrap();
    assert!((4800..=5000).contains(&rows), "{rows}");
    let client = &result["calibration"]["client_us_per_op"];
    assert!(client["scan10"].as_f64().unwrap() > 0.0, "{client}");
}
