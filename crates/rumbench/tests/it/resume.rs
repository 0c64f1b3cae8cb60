//! Suites that are killed at certain states of their folder and resumed: they end with the trials
//! of an undisturbed suite.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::waits::wait;
use crate::{result, rumbench, text};

/// Small trials of the engine that every build has.
const SMALL: [&str; 10] = [
    "run",
    "kv-sequence",
    "--engine",
    "null",
    "--set",
    "keys=2000",
    "--set",
    "load_rows=200",
    "--set",
    "steps=fillseq,get",
];
/// Six small trials, at two points of a sweep.
const SUITE: [&str; 6] = [
    "--set",
    "operations=2000",
    "--sweep",
    "clients=1,2",
    "--repeat",
    "3",
];
const TRIALS: usize = 6;

/// Returns the command line of a suite.
fn arguments<'a>(more: &[&'a str], out: &'a Path) -> Vec<&'a str> {
    let out = ["--out", out.to_str().unwrap()];
    [&SMALL[..], more, &out].concat()
}

fn start(dir: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_rumbench"))
        .args(arguments)
        .env("RUMBENCH_STORE", dir.join("store.sqlite"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

pub fn kill(mut child: Child) {
    // Fails if the process has ended, which is fine.
    let _ = child.kill();
    child.wait().unwrap();
}

/// Returns the current result, if there is one.
fn peek(out: &Path) -> Option<serde_json::Value> {
    let text = std::fs::read_to_string(out.join("result.json")).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns true if a phase of the first trial is in the result. A running phase appears there some
/// seconds after its start.
#[cfg(any(feature = "mariadb", feature = "postgresql"))]
pub fn has_phase(out: &Path, name: &str) -> bool {
    let Some(result) = peek(out) else {
        return false;
    };
    let phases = result["trials"][0]["phases"].as_array();
    phases.is_some_and(|phases| phases.iter().any(|phase| phase["name"] == name))
}

fn ended(value: &serde_json::Value) -> usize {
    let trials = value["trials"].as_array().unwrap().iter();
    trials
        .filter(|trial| trial.get("ended_at").is_some())
        .count()
}

/// Returns everything that must be equal: engines, order, seeds, amounts of work, marks.
fn identity(value: &serde_json::Value) -> Vec<String> {
    let trial = |trial: &serde_json::Value| {
        let phase = |phase: &serde_json::Value| {
            // The split of a load into batches depends on the speed of its clients.
            let load = phase["name"] == "fillseq";
            let amount = if load { "rows" } else { "operations" };
            format!("{} {} {amount}", phase["name"], phase[amount])
        };
        let phases = trial["phases"].as_array().unwrap().iter();
        let phases: Vec<String> = phases.map(phase).collect();
        format!(
            "{} {} #{} seed {} {} marks {} verified {} ended {}",
            trial["engine"],
            trial["point"],
            trial["repetition"],
            trial["seed"],
            phases.join(", "),
            trial["marks"],
            trial["verified"],
            trial.get("ended_at").is_some()
        )
    };
    value["trials"]
        .as_array()
        .unwrap()
        .iter()
        .map(trial)
        .collect()
}

fn undisturbed(dir: &Path) -> Vec<String> {
    let out = dir.join("undisturbed");
    let arguments = arguments(&SUITE, &out);
    let output = rumbench(dir, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let found = identity(&result(&out));
    assert_eq!(found.len(), TRIALS);
    found
}

fn resume(dir: &Path, out: &Path) -> std::process::Output {
    rumbench(dir, &["resume", out.to_str().unwrap()])
}

/// Kills a suite when `wanted` holds for its folder, then resumes it to its end.
fn killed_and_resumed(name: &str, wanted: &dyn Fn(&Path) -> bool, expected: &[String], dir: &Path) {
    let out = dir.join(name);
    let arguments = arguments(&SUITE, &out);
    let mut child = start(dir, &arguments);
    wait(&mut child, &|| {
        out.join("suite.json").exists() && wanted(&out)
    });
    kill(child);
    let before = peek(&out);
    let output = resume(dir, &out);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{name}: {}",
        text(&output.stderr)
    );
    let after = result(&out);
    assert_eq!(identity(&after), expected, "{name}");
    if let Some(before) = before {
        let (old, new) = (&before["trials"], &after["trials"]);
        for i in 0..ended(&before) {
            assert_eq!(
                old[i]["started_at"], new[i]["started_at"],
                "{name}: trial {i} was not kept"
            );
            assert_eq!(
                old[i]["phases"], new[i]["phases"],
                "{name}: trial {i} was not kept"
            );
        }
    }
    assert!(!out.join("data").exists(), "{name}: data is removed");
    assert!(out.join("report.html").exists(), "{name}");
}

#[test]
fn a_suite_killed_at_any_moment_ends_with_the_trials_of_an_undisturbed_one() {
    let dir = tempfile::tempdir().unwrap();
    let expected = undisturbed(dir.path());
    let at_trials = |out: &Path, running: usize, done: usize| {
        peek(out).is_some_and(|value| {
            value["trials"].as_array().unwrap().len() >= running && ended(&value) >= done
        })
    };
    let dir = dir.path();
    killed_and_resumed("begun", &|_| true, &expected, dir);
    killed_and_resumed(
        "saved",
        &|out| out.join("result.json").exists(),
        &expected,
        dir,
    );
    killed_and_resumed(
        "data",
        &|out| out.join("data/001-null").exists(),
        &expected,
        dir,
    );
    killed_and_resumed("first", &|out| at_trials(out, 1, 0), &expected, dir);
    killed_and_resumed("second", &|out| at_trials(out, 2, 1), &expected, dir);
    killed_and_resumed(
        "last",
        &|out| at_trials(out, TRIALS, TRIALS - 1),
        &expected,
        dir,
    );
    killed_and_resumed("all", &|out| at_trials(out, TRIALS, TRIALS), &expected, dir);
}

#[test]
fn resumes_that_are_killed_too_come_to_the_same_end() {
    let dir = tempfile::tempdir().unwrap();
    let expected = undisturbed(dir.path());
    let out = dir.path().join("out");
    let arguments = arguments(&SUITE, &out);
    let mut child = start(dir.path(), &arguments);
    for done in 1..TRIALS {
        wait(&mut child, &|| {
            peek(&out).is_some_and(|value| ended(&value) >= done)
        });
        kill(child);
        child = start(dir.path(), &["resume", out.to_str().unwrap()]);
    }
    child.wait().unwrap();
    assert_eq!(identity(&result(&out)), expected);
    let again = resume(dir.path(), &out);
    assert_eq!(again.status.code(), Some(0));
    assert!(
        text(&again.stderr).contains("all 6 trials have ended"),
        "{}",
        text(&again.stderr)
    );
    let listed = text(&rumbench(dir.path(), &["list", "results"]).stdout);
    assert_eq!(listed.matches(out.to_str().unwrap()).count(), 1, "{listed}");
}

/// Runs a suite of one trial to its end.
fn finished(dir: &Path) -> std::path::PathBuf {
    let out = dir.join("out");
    let arguments = arguments(&SUITE[..2], &out);
    let output = rumbench(dir, &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    out
}

#[test]
fn what_another_build_machine_or_suite_began_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let out = finished(dir.path());
    let path = out.join("suite.json");
    let original = std::fs::read_to_string(&path).unwrap();
    let cases: [(&str, &str, &str); 4] = [
        ("build", "commit", "build: commit was other, is"),
        (
            "build",
            "compiler_flags",
            "build: compiler_flags was other, is",
        ),
        ("machine", "cpu", "machine: cpu was other, is"),
        ("suite", "command", "not of the same suite"),
    ];
    for (part, field, expected) in cases {
        let mut value: serde_json::Value = serde_json::from_str(&original).unwrap();
        value[part][field] = "other".into();
        std::fs::write(&path, value.to_string()).unwrap();
        let output = resume(dir.path(), &out);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let empty = resume(dir.path(), dir.path());
    assert_eq!(empty.status.code(), Some(2));
    assert!(text(&empty.stderr).contains("no suite that could be continued"));
}

#[test]
fn an_interrupted_trial_is_repeated_and_a_running_suite_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let arguments = arguments(&["--set", "seconds=3600"], &out);
    let mut child = start(dir.path(), &arguments);
    wait(&mut child, &|| {
        peek(&out).is_some_and(|value| value["trials"][0]["phases"][0]["ops_per_s"].is_number())
    });
    let running = resume(dir.path(), &out);
    assert_eq!(running.status.code(), Some(2), "{}", text(&running.stderr));
    assert!(
        text(&running.stderr).contains("still running"),
        "{}",
        text(&running.stderr)
    );
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let stopped = result(&out);
    assert_eq!(
        (stopped["interrupted"].as_bool(), ended(&stopped)),
        (Some(true), 0)
    );
    let mut child = start(dir.path(), &["resume", out.to_str().unwrap()]);
    let began = |value: serde_json::Value| value["trials"][0]["phases"][0]["ops_per_s"].is_number();
    wait(&mut child, &|| {
        peek(&out).is_some_and(|value| value["interrupted"] == false && began(value))
    });
    kill(child);
    let value = result(&out);
    assert_eq!(value["trials"][0]["marks"], serde_json::json!([]));
    assert_eq!(value["resumed_at"].as_array().unwrap().len(), 1);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_suite_killed_while_it_measures_itself_does_so_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let arguments = arguments(&["--set", "operations=2000", "--engine", "sqlite"], &out);
    let mut child = start(dir.path(), &arguments);
    wait(&mut child, &|| out.join("data/calibration").exists());
    kill(child);
    let output = resume(dir.path(), &out);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&out);
    assert!(result["calibration"]["client_us_per_op"]["get"].is_number());
    let engines = result["trials"].as_array().unwrap().iter();
    let engines: Vec<&str> = engines
        .map(|trial| trial["engine"].as_str().unwrap())
        .collect();
    assert_eq!(engines, ["null", "sqlite"]);
    assert!(!out.join("data").exists());
}
