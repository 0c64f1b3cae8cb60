//! Sweeps on `null` and, if the build has it, on Alluvium: points, fits, aging, rejected sweeps.
//! Nothing here depends on the speed of the machine.

use std::path::Path;

use crate::{SMALL_GRAPH, result, rumbench, text};

fn run(dir: &Path, more: &[&str]) -> std::process::Output {
    let out = dir.join("out");
    let mut arguments = vec!["run", "linkbench", "--out", out.to_str().unwrap()];
    arguments.extend(SMALL_GRAPH);
    arguments.extend(["--set", "operations=400"]);
    arguments.extend(more);
    rumbench(dir, &arguments)
}

fn points(result: &serde_json::Value) -> Vec<String> {
    let trials = result["trials"].as_array().unwrap().iter();
    let name = |trial: &serde_json::Value| {
        let point = trial["point"].as_str().unwrap();
        format!("{point} #{}", trial["repetition"])
    };
    trials.map(name).collect()
}

/// Runs a sweep over clients that must succeed.
fn clients(dir: &Path) -> std::process::Output {
    let sweep = [
        "--engine",
        "null",
        "--sweep",
        "clients=1..3,5",
        "--repeat",
        "2",
    ];
    let output = run(dir, &sweep);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

#[test]
fn a_sweep_over_clients_interleaves_its_points_and_fits_them() {
    let dir = tempfile::tempdir().unwrap();
    clients(dir.path());
    let out = dir.path().join("out");
    let result = result(&out);
    let there = [
        "clients=1 #1",
        "clients=2 #1",
        "clients=3 #1",
        "clients=5 #1",
    ];
    let back = [
        "clients=5 #2",
        "clients=3 #2",
        "clients=2 #2",
        "clients=1 #2",
    ];
    assert_eq!(points(&result), [there, back].concat());
    assert_eq!(
        result["schema_version"], 2,
        "older readers would take points for repetitions"
    );
    assert_eq!(
        result["sweep"]["values"],
        serde_json::json!(["1", "2", "3", "5"])
    );
    assert!(result["settings"].get("clients").is_none());
    let trial = &result["trials"][3];
    assert_eq!(trial["configuration"]["workload.clients"], "5");
    let phases = trial["phases"].as_array().unwrap();
    let request = phases
        .iter()
        .find(|phase| phase["name"] == "request")
        .unwrap();
    assert_eq!(
        (&request["clients"], &request["operations"]),
        (&5.into(), &400.into())
    );
    let fits = result["sweep"]["scalability"].as_array().unwrap();
    let fit = fits.iter().find(|fit| fit["phase"] == "request").unwrap();
    assert_eq!((&fit["points"], &fit["trials"]), (&4.into(), &8.into()));
    assert!(!fit["judgment"].as_str().unwrap().is_empty(), "{fit}");
}

#[test]
fn a_sweep_is_shown_as_text_markdown_json_and_page_and_compares_by_point() {
    let dir = tempfile::tempdir().unwrap();
    let output = clients(dir.path());
    let out = dir.path().join("out");
    let shown = text(&output.stdout);
    assert!(
        shown.contains("request: throughput and cost by clients"),
        "{shown}"
    );
    assert!(shown.contains("Universal Scalability Law"), "{shown}");
    assert!(!shown.contains("Absolute: throughput by phase"), "{shown}");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("Sweep over clients"));
    let out = out.to_str().unwrap();
    let all = rumbench(dir.path(), &["report", out, "--all-tables"]);
    assert_eq!(
        text(&all.stdout)
            .matches("Absolute: throughput by phase")
            .count(),
        4
    );
    let markdown = rumbench(dir.path(), &["report", out, "--markdown"]);
    assert!(text(&markdown.stdout).contains("### request: throughput and cost by clients"));
    let json = rumbench(dir.path(), &["report", out, "--json"]);
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&json.stdout).unwrap(),
        result(Path::new(out))
    );
    // Points compare with the same point of another result, or with another point if named.
    let one = format!("{out}#null clients=1");
    let five = format!("{out}#null clients=5");
    let compared = rumbench(dir.path(), &["compare", &one, &five]);
    assert_eq!(
        compared.status.code(),
        Some(0),
        "{}",
        text(&compared.stderr)
    );
    assert!(text(&compared.stdout).contains("configuration workload.clients: 1 -> 5"));
    let same = rumbench(dir.path(), &["compare", out, out]);
    assert!(
        text(&same.stdout).contains("null clients=3"),
        "{}",
        text(&same.stdout)
    );
}

#[test]
fn a_setting_of_an_engine_is_swept_and_too_few_points_get_no_fit() {
    let dir = tempfile::tempdir().unwrap();
    let stalls = ["--engine", "null", "--set", "null.stall_every_s=1000"];
    let output = run(
        dir.path(),
        &[&stalls[..], &["--sweep", "null.stall_s=0.5,0.25"]].concat(),
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    assert_eq!(result["trials"][1]["configuration"]["stall_s"], "0.25");
    assert!(result["sweep"].get("scalability").is_none());
    let shown = text(&output.stdout);
    assert!(
        shown.contains("by null.stall_s") && !shown.contains("Universal"),
        "{shown}"
    );
    assert!(shown.contains("to null.stall_s=0.5 (ratio)"), "{shown}");

    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["--engine", "null", "--sweep", "clients=1,2"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("no fit: 2 numbers of clients"), "{shown}");
}

#[test]
fn nothing_runs_when_a_point_of_a_sweep_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    for (sweep, expected) in [
        ("clients", "KEY=V1,V2"),
        ("clients=3", "--set sets it"),
        ("client=1,2", "did you mean `clients`?"),
        ("clients=1,0", "from 1 to 4096"),
        ("nodes=1,2", "gives it too"),
        ("sqlite.page_bytes=4096,8192", "null has no such setting"),
        ("null.stal_s=1,2", "did you mean `stall_s`?"),
        ("turnover=0", "from 0.01 to 1000"),
    ] {
        let output = run(dir.path(), &["--engine", "null", "--sweep", sweep]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{sweep}: {said}");
        assert!(said.contains(expected), "{sweep}: {said}");
    }
    assert!(!dir.path().join("out").exists());
}

#[test]
fn an_engine_that_stores_nothing_never_ages_and_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["--engine", "null", "--sweep", "turnover=5"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&dir.path().join("out"));
    let trial = &result["trials"][0];
    let marks = trial["marks"].to_string();
    assert!(
        marks.contains("turnover-unmet (0.000 of 5 times"),
        "{marks}"
    );
    let names: Vec<&str> = trial["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "load",
            "settle",
            "request",
            "request#2",
            "request#3",
            "settle#2"
        ]
    );
    assert_eq!(result["sweep"]["aging"][0]["reached"], false);
}

#[cfg(feature = "alluvium")]
#[test]
fn a_database_ages_until_it_was_written_often_enough() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let arguments = [
        "run",
        "kv-sequence",
        "--out",
        out.to_str().unwrap(),
        "--engine",
        "alluvium",
        "--set",
        "keys=20000",
        "--set",
        "operations=20000",
        "--sweep",
        "turnover=0.2",
    ];
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let result = result(&out);
    let trial = &result["trials"][0];
    assert!(
        trial["verified"].as_str().unwrap().contains("20000 rows"),
        "{trial}"
    );
    assert_eq!(
        trial["configuration"]["workload.steps"],
        "overwrite until 0.2 times the data"
    );
    let aging = &result["sweep"]["aging"][0];
    assert_eq!(aging["reached"], true, "{aging}");
    let steps = aging["steps"].as_array().unwrap();
    assert_eq!(steps[0]["phase"], "overwrite");
    let last = steps.last().unwrap()["turnover"].as_f64().unwrap();
    assert!(last >= 0.2, "{aging}");
    let shown = text(&output.stdout);
    assert!(shown.contains("alluvium: aging in equal steps"), "{shown}");
    assert!(
        shown.contains("Change from one step to the next"),
        "{shown}"
    );
}
