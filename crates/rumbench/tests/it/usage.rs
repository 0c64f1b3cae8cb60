//! Command line: invalid commands are rejected with exit code 2 and the nearest name; the output of
//! help, lists, completions, `doctor` and `plan`.

use crate::{rumbench, text};

/// Returns exit code and stderr of a rejected command.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let output = rumbench(dir.path(), arguments);
    assert_eq!(text(&output.stdout), "", "nothing is a result");
    (output.status.code(), text(&output.stderr))
}

fn assert_usage(arguments: &[&str], expected: &str) {
    let (code, message) = refused(arguments);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains(expected), "{message}");
}

/// Checks that a suite of one engine with one setting is rejected.
fn assert_set_usage(engine: &str, set: &str, expected: &str) {
    let arguments = ["run", "linkbench", "--engine", engine, "--set", set];
    assert_usage(&arguments, expected);
}

#[test]
fn unknown_names_are_answered_with_the_nearest_and_exit_code_2() {
    assert_usage(&["run", "linkbench", "--engin", "null"], "--engine");
    assert_usage(
        &["run", "linkbench", "--engine", "nul"],
        "did you mean `null`?",
    );
    assert_usage(
        &["run", "linkbensh", "--engine", "null"],
        "did you mean `linkbench`?",
    );
    let misspelled = [
        "run",
        "kv-sequence",
        "--engine",
        "null",
        "--set",
        "form=2024",
    ];
    assert_usage(&misspelled, "2023 or 2025 or micro is allowed");
    assert_set_usage("null", "node=1", "did you mean `nodes`?");
    assert_set_usage("null", "cach_bytes=1", "did you mean `cache_bytes`?");
    assert_set_usage(
        "null",
        "getlinklist_hist=1",
        "did you mean `getlinklist_history`?",
    );
    assert_usage(
        &["run", "linkbench", "--engine", "null", "--base", "nulll"],
        "did you mean `null`?",
    );
    assert_usage(&["explain", "ops_per_sec"], "did you mean `ops_per_s`?");
    assert_usage(&["lst"], "list");
}

#[test]
fn values_out_of_range_are_refused_with_exit_code_2() {
    assert_set_usage("null", "nodes=0", "nodes=0");
    assert_set_usage("null", "rate=x", "operations per second");
    assert_usage(
        &["run", "linkbench", "--engine", "null", "--repeat", "0"],
        "--repeat",
    );
    assert_usage(&["durability", "--engine", "null"], "null keeps nothing");
}

#[test]
fn settings_of_an_engine_are_refused_before_anything_runs() {
    let cases = [
        ("alluvium.memory_byts=5", "did you mean `memory_bytes`?"),
        ("alluvium.memory_bytes=5", "memory_bytes is 5, the least is"),
        ("alluvium.memory_bytes=much", "alluvium.memory_bytes=much: "),
        ("fjall.block_bytes=1", "must lie between 1024 and 1048576"),
        ("lmdb.map_size=1", "must lie between 1048576 and"),
        ("sqlite.page_bytes=5000", "must be a power of two"),
        ("null.stall_s=1", "must exceed null.stall_s=1"),
    ];
    for (set, expected) in cases {
        let (engine, _) = set.split_once('.').unwrap();
        assert_set_usage(engine, set, expected);
    }
    assert_usage(
        &["durability", "--engine", "lmdb", "--set", "lmdb.mapsize=1"],
        "did you mean `map_size`?",
    );
}

#[test]
fn an_options_file_for_an_engine_without_one_is_refused() {
    let arguments = [
        "run",
        "linkbench",
        "--engine",
        "null",
        "--options-file",
        "null=Cargo.toml",
    ];
    assert_usage(&arguments, "null takes no options file");
}

#[test]
fn an_unknown_storage_tier_is_refused_with_the_known_ones() {
    let arguments = ["run", "linkbench", "--engine", "null", "--storage", "tape"];
    assert_usage(&arguments, "disk-array, slow-ssd, fast-ssd");
}

#[test]
fn a_placement_is_recorded_with_each_trial() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let run = |placement: &str| {
        let arguments = [
            "run",
            "kv-sequence",
            "--engine",
            "null",
            "--no-store",
            "--placement",
            placement,
        ];
        let small = [
            "--set",
            "keys=500",
            "--set",
            "operations=100",
            "--set",
            "load_rows=50",
        ];
        let out = ["--out", out.to_str().unwrap()];
        rumbench(dir.path(), &[&arguments[..], &small, &out].concat())
    };
    let output = run("split");
    if std::thread::available_parallelism().unwrap().get() < 2 {
        assert_eq!(output.status.code(), Some(2));
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = crate::result(&out);
    let placement = &found["trials"][0]["configuration"]["workload.placement"];
    let placement = placement.as_str().unwrap();
    assert!(
        placement.starts_with("split: engine on cores "),
        "{placement}"
    );
}

#[test]
fn result_folder_that_cannot_be_created_is_named_and_fails_with_1() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let out = file.join("out");
    let out = out.to_str().unwrap();
    let (code, message) = refused(&["run", "linkbench", "--engine", "null", "--out", out]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(out), "{message}");
    assert!(message.contains("choose another --out"), "{message}");
}

#[test]
fn without_arguments_it_explains_itself() {
    let dir = tempfile::tempdir().unwrap();
    let output = rumbench(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("rumbench quick") && shown.contains("durability"),
        "{shown}"
    );
    assert!(!shown.contains("trial-child"), "{shown}");
}

#[test]
fn lists_and_explanations_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        (["list", "engines"], "null"),
        (["list", "workloads"], "linkbench"),
        (["list", "workloads"], "./FILE.toml"),
        (["list", "phases"], "overwriteandwait"),
        (["explain", "ycsb-e"], "do = \"scan\""),
        (["list", "metrics"], "cpu_us_per_op.engine_foreground"),
        (["list", "results"], "newest first"),
        (["explain", "longest_stall_ms"], "formula"),
        (["explain", "settle"], "phase of    linkbench"),
        (["explain", "readwhilewriting"], "with a background writer"),
    ] {
        let output = rumbench(dir.path(), &arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains(expected), "{arguments:?}");
    }
}

#[test]
fn a_shell_gets_completions_and_man_gets_a_page_for_each_command_that_is_not_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = rumbench(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert!(
            script.contains("find-rate") && script.contains("sla"),
            "{shell}"
        );
    }
    assert!(run(&["man"]).contains(".TH rumbench 1"));
    let pages = dir.path().join("man1");
    run(&["man", pages.to_str().unwrap()]);
    let page = |name: &str| std::fs::read_to_string(pages.join(name));
    assert!(
        page("rumbench.1")
            .unwrap()
            .contains("rumbench\\-find\\-rate(1)")
    );
    assert!(page("rumbench-find-rate.1").unwrap().contains("p99=5ms"));
    assert!(page("rumbench-trial-child.1").is_err());
}

#[test]
fn the_doctor_judges_the_machine_and_names_the_engines() {
    let dir = tempfile::tempdir().unwrap();
    let output = rumbench(
        dir.path(),
        &["doctor", "--dir", dir.path().to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for expected in [
        "This machine",
        "syncs",
        "file system",
        "control groups",
        "Engines",
        "null",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let output = rumbench(
        dir.path(),
        &["doctor", "--json", "--dir", dir.path().to_str().unwrap()],
    );
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["findings"].as_array().unwrap().len() > 8, "{found}");
    let output = rumbench(dir.path(), &["doctor", "--dir", "/no/such/folder"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("choose another --dir"));
}

#[test]
fn a_plan_names_trials_settings_space_and_time_and_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let settings = [
        "--set",
        "nodes=1000",
        "--set",
        "seconds=7",
        "--set",
        "steps=2",
        "--sweep",
        "clients=1,2",
    ];
    let plan = |more: &[&str]| {
        let flags = [
            "plan",
            "linkbench",
            "--engine",
            "null",
            "--repeat",
            "2",
            "--out",
            out.to_str().unwrap(),
        ];
        rumbench(dir.path(), &[&flags[..], &settings, more].concat())
    };
    let output = plan(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for expected in [
        "linkbench: 4 trials",
        "order: null clients=1 #1, null clients=2 #1, null clients=2 #2, null clients=1 #2",
        "MiB are needed",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let from = |key: &str| {
        let line = shown
            .lines()
            .find(|line| line.starts_with(&format!("{key} ")));
        line.and_then(|line| line.split_whitespace().last())
            .map(str::to_string)
    };
    assert_eq!(from("nodes").as_deref(), Some("--set"), "{shown}");
    assert_eq!(from("clients").as_deref(), Some("--sweep"), "{shown}");
    assert_eq!(from("cache_bytes").as_deref(), Some("default"), "{shown}");
    let found: serde_json::Value = serde_json::from_slice(&plan(&["--json"]).stdout).unwrap();
    // Two steps of seven seconds in four trials, plus any warm-up.
    assert!(found["timed_seconds"].as_f64().unwrap() >= 56.0, "{found}");
    assert!(!out.exists(), "nothing was run");
    assert_eq!(
        plan(&["--set", "nodes=100000000000"]).status.code(),
        Some(1),
        "no disk has room for that"
    );
}

#[test]
fn a_result_that_cannot_be_written_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let ended = |command: &str, redirected: &str| {
        let script = format!("exec \"$0\" {command} {redirected}");
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_rumbench")])
            .current_dir(dir.path())
            .env("RUMBENCH_STORE", dir.path().join("store.sqlite"))
            .output()
            .unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let run = "run kv-sequence --engine null --set keys=100 --set operations=10 --out out";
    let (code, message) = ended(run, ">/dev/null");
    assert_eq!(code, Some(0), "{message}");
    for command in [
        "",
        "--help",
        "list engines",
        "report out",
        "completions bash",
    ] {
        let (code, message) = ended(command, ">/dev/full");
        assert_eq!(code, Some(1), "{command}: {message}");
        assert!(message.contains("cannot write to stdout"), "{message}");
    }
    assert!(dir.path().join("out/report.html").exists());
    std::fs::remove_file(dir.path().join("out/report.html")).unwrap();
    std::fs::create_dir(dir.path().join("out/report.html")).unwrap();
    let (code, message) = ended("report out", ">/dev/null");
    assert_eq!(code, Some(1), "the page cannot be written: {message}");
}

#[test]
fn sizes_and_times_have_units() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = [
        "plan",
        "linkbench",
        "--engine",
        "null",
        "--set",
        "cache_bytes=192MiB",
        "--set",
        "seconds=10m",
        "--memory",
        "384M",
    ];
    let output = rumbench(dir.path(), &arguments);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.contains("201326592") && shown.contains("600"),
        "{shown}"
    );
    let memory = ["run", "linkbench", "--engine", "null", "--memory", "384Q"];
    assert_usage(&memory, "such as 402653184, 384M or 1.5GiB");
    assert_set_usage("null", "cache_bytes=1.5", "cache_bytes");
    assert_set_usage("null", "seconds=ten", "seconds");
}
