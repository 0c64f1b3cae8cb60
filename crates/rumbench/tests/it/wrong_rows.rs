//! Real servers that return wrong rows: a setting unknown to the laboratory ends each answer after
//! 2,000 rows.

use std::fs;

use crate::{result, rumbench, text};

#[test]
fn rows_that_a_server_leaves_out_are_a_wrong_answer_and_the_suite_goes_on() {
    for server in ["mariadb-alluvium", "mariadb-innodb", "mariadb-rocksdb"] {
        rows_are_left_out(server);
    }
}

fn rows_are_left_out(server: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (script, options) = (dir.path().join("start.sql"), dir.path().join("my.cnf"));
    // More than the rows of the server's variables, which the laboratory reads too.
    fs::write(&script, "SET GLOBAL sql_select_limit=2000;\n").unwrap();
    let lines = format!("[mariadbd]\ninit_file={}\n", script.display());
    fs::write(&options, lines).unwrap();
    let out = dir.path().join("out");
    let file = format!("{server}={}", options.display());
    let engines = ["--engine", server, "--engine", "null"];
    let settings = [
        "rows=12000",
        "seconds=2",
        "steps=load,index,read-only:10000",
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let arguments: Vec<&str> = ["run", "oltp-range"]
        .into_iter()
        .chain(engines)
        .chain(settings)
        .chain(["--options-file", &file, "--mix-durability", "--no-store"])
        .chain(["--out", out.to_str().unwrap()])
        .collect();
    let output = rumbench(dir.path(), &arguments);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{server}: {}",
        text(&output.stderr)
    );
    let result = result(&out);
    let marks = result["trials"][0]["marks"].to_string();
    assert!(
        marks.contains("wrong-answer (Order of sbtest1"),
        "{server}: {marks}"
    );
    assert!(marks.contains("answered 2000 values"), "{server}: {marks}");
    let other = &result["trials"][1];
    assert!(
        other["verified"].is_string(),
        "{server}: {}",
        other["marks"]
    );
}
