//! Results of other programs as result folders: alone, together with our trials, and rejected
//! input.

use std::path::{Path, PathBuf};

use crate::{result, rumbench, text};

fn input(file: &str) -> String {
    let path = Path::new("tests/import").join(file);
    path.display().to_string()
}

/// Runs a kv-sequence of ours on `null`.
fn ours(dir: &Path) -> PathBuf {
    let out = dir.join("ours");
    let settings = [
        "--set",
        "keys=1000",
        "--set",
        "operations=100",
        "--set",
        "steps=fillseq,readrandom",
    ];
    let arguments = [
        "run",
        "kv-sequence",
        "--engine",
        "null",
        "--out",
        out.to_str().unwrap(),
    ];
    let output = rumbench(dir, &[&arguments[..], &settings].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    out
}

#[test]
fn imported_steps_share_tables_with_ours_when_asked_and_ours_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, out) = (ours(dir.path()), dir.path().join("both"));
    let before = std::fs::read(ours.join("result.json")).unwrap();
    let file = input("db_bench_report.tsv");
    let arguments = [
        "import",
        "db_bench",
        &file,
        "--engine",
        "rocksdb-8.8",
        "--with",
        ours.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ];
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let apart = text(&output.stdout);
    assert_eq!(
        apart.matches("Absolute: throughput by phase").count(),
        2,
        "{apart}"
    );
    assert!(
        apart.contains("--mix-durability puts them together"),
        "{apart}"
    );
    assert_eq!(std::fs::read(ours.join("result.json")).unwrap(), before);
    let both = result(&out);
    assert_eq!(both["trials"][1]["imported"]["program"], "db_bench");
    let latency = &both["trials"][1]["phases"][1]["latency_us"]["GET"];
    assert_eq!(latency["p99"], 22.3);
    assert!(latency.get("p95").is_none(), "absent, not 0: {latency}");
    let mixed = rumbench(
        dir.path(),
        &["report", out.to_str().unwrap(), "--mix-durability"],
    );
    let shown = text(&mixed.stdout);
    assert_eq!(
        shown.matches("Absolute: throughput by phase").count(),
        1,
        "{shown}"
    );
    assert!(shown.contains("2,059,793"), "{shown}");
    let explained = rumbench(dir.path(), &["explain", out.to_str().unwrap()]);
    assert_eq!(
        explained.status.code(),
        Some(0),
        "{}",
        text(&explained.stderr)
    );
    let sides = [
        format!("{}#null", out.display()),
        format!("{}#rocksdb-8.8", out.display()),
    ];
    let compared = rumbench(
        dir.path(),
        &["compare", &sides[0], &sides[1], "--mix-durability"],
    );
    assert_eq!(
        compared.status.code(),
        Some(0),
        "{}",
        text(&compared.stderr)
    );
}

#[test]
fn what_cannot_be_imported_is_a_usage_error_and_leaves_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let refuse = |arguments: &[&str]| {
        let all = [
            &["import"][..],
            arguments,
            &["--out", out.to_str().unwrap()],
        ]
        .concat();
        let output = rumbench(dir.path(), &all);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(!out.exists());
        text(&output.stderr)
    };
    let (report, output) = (input("db_bench_report.tsv"), input("point-query.txt"));
    let said = refuse(&["sysbench", &report]);
    assert!(
        said.contains("db_bench_report.tsv: `db_bench_report` is no test"),
        "{said}"
    );
    let said = refuse(&["db_bench", &output]);
    assert!(
        said.contains("point-query.txt: no result of db_bench"),
        "{said}"
    );
    let said = refuse(&["db_bench", "no-such-file"]);
    assert!(said.contains("cannot read no-such-file"), "{said}");
    let ours = ours(dir.path());
    let said = refuse(&["sysbench", &output, "--with", ours.to_str().unwrap()]);
    assert!(said.contains("it is of kv-sequence"), "{said}");
    let said = refuse(&[
        "db_bench",
        &report,
        "--engine",
        "null",
        "--with",
        ours.to_str().unwrap(),
    ]);
    assert!(said.contains("trials of null already"), "{said}");
}
