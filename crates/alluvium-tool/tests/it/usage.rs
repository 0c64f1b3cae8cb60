//! Failures: exit codes and advice for damage, a database in use, newer formats, bad input.

use alluvium::Database;

use crate::fixture::{
    Sample, alluvium, contents, document, expiring, options, start, text, with_input,
};

/// Returns the exit code and stderr.
fn failed(arguments: &[&str]) -> (Option<i32>, String) {
    let output = alluvium(arguments);
    (output.status.code(), text(&output.stderr))
}

fn assert_fails(arguments: &[&str], exit: i32, expected: &str) {
    let (code, message) = failed(arguments);
    assert_eq!(code, Some(exit), "{arguments:?}: {message}");
    assert!(message.contains(expected), "{arguments:?}: {message}");
}

/// Offset of the rows of a table's first block, after the section's header.
const IN_FIRST_BLOCK: usize = 30;

#[test]
fn a_damaged_block_is_reported_with_file_and_offset() {
    let sample = Sample::new();
    let table = sample.file("000003.sst");
    sample.damage(&table, IN_FIRST_BLOCK);
    let name = table.display().to_string();
    let report = document(&["verify", sample.path()], 1);
    assert_eq!(report["clean"], false);
    assert_eq!(report["damages"][0]["file"], name);
    assert_eq!(report["damages"][0]["offset"], 0);
    assert_fails(&["verify", sample.path()], 1, "alluvium repair DIR TARGET");
    assert_fails(&["scan", sample.path(), "fruit"], 1, &name);
    let dump = document(&["dump", "table", &name], 1);
    assert_eq!(dump["damages"][0]["file"], name);
    let other = document(&["dump", "table", sample.path(), "4"], 0);
    assert_eq!(other["damages"].as_array().map(Vec::len), Some(0));
}

#[test]
fn a_stored_time_ahead_of_the_clock_is_set_back() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("db");
    let path = dir.to_str().unwrap();
    // A time stored from a wrong clock, some eighty years ahead.
    const WRONG: u64 = 4_288_723_200_000;
    expiring(&dir, WRONG);
    assert_eq!(document(&["inspect", path], 0)["stored_time_ms"], WRONG);
    let later = format!("{}", WRONG + 1);
    assert_fails(&["set-time", path, "--to", &later], 2, "not forward");
    let set = document(&["set-time", path], 0);
    assert_eq!(set["stored_ms"], WRONG);
    let now = set["set_to_ms"].as_u64().unwrap();
    assert!(now < WRONG, "{set}");
    let again = alluvium(&["set-time", path]);
    let stays = format!("the stored time stays at {now} ms since 1970\n");
    assert_eq!(text(&again.stdout), stays);
    let output = alluvium(&["set-time", path, "--to", "7"]);
    let said = format!("the stored time was {now} ms since 1970, now it is 7 ms\n");
    assert_eq!(text(&output.stdout), said);
    assert_eq!(document(&["inspect", path], 0)["stored_time_ms"], 7);
    let missing = root.path().join("none");
    assert_fails(
        &["set-time", missing.to_str().unwrap()],
        3,
        "does not exist",
    );
}

#[test]
fn a_scan_that_ends_at_damage_is_still_one_document() {
    let sample = Sample::new();
    sample.damage(&sample.file("000003.sst"), IN_FIRST_BLOCK);
    let scan = document(&["scan", sample.path(), "fruit"], 1);
    assert!(
        scan["error"].as_str().unwrap().contains("corruption"),
        "{scan}"
    );
    let get = document(&["get", sample.path(), "fruit", "melon"], 1);
    assert!(
        get["error"].as_str().unwrap().contains("corruption"),
        "{get}"
    );
    assert_eq!(get["exit_code"], 1);
}

#[test]
fn damage_that_prevents_opening_is_an_answer_of_verify_and_can_be_repaired() {
    let sample = Sample::new();
    let table = sample.file("000003.sst");
    let end = std::fs::metadata(&table).unwrap().len() as usize;
    sample.damage(&table, end - 100);
    let before = contents(&sample.dir);
    let report = document(&["verify", sample.path()], 1);
    assert_eq!(report["opened"], false);
    assert_eq!(report["damages"][0]["file"], table.display().to_string());
    assert_fails(&["inspect", sample.path()], 1, "alluvium repair");
    let saved = sample.beside("saved");
    let repair = document(&["repair", sample.path(), &saved, "--yes"], 1);
    assert_eq!(repair["complete"], false);
    assert!(
        before == contents(&sample.dir),
        "a repair changes the damaged database"
    );
    assert_eq!(document(&["verify", &saved], 0)["clean"], true);
}

#[test]
fn a_damaged_manifest_is_dumped_up_to_the_damage() {
    let sample = Sample::new();
    let whole = document(&["dump", "manifest", sample.path()], 0);
    let edits = whole["edits"].as_array().unwrap();
    let last = edits.last().unwrap()["offset"].as_u64().unwrap();
    let file = sample.dir.join(whole["file"].as_str().unwrap());
    sample.damage(&file, last as usize + 40);
    let cut = document(&["dump", "manifest", sample.path()], 1);
    assert_eq!(
        cut["edits"].as_array().unwrap()[..],
        edits[..edits.len() - 1]
    );
    assert_eq!(cut["damages"][0]["offset"], last);
}

#[test]
fn a_damaged_log_is_dumped_up_to_the_damage() {
    let sample = Sample::new();
    let whole = document(&["dump", "log", sample.path()], 0);
    let records = whole["count"].as_u64().unwrap();
    assert!(records > 0, "{whole}");
    // The first record follows the header of 80 bytes.
    let oldest = whole["oldest_needed"].as_u64().unwrap();
    sample.damage(&sample.dir.join(format!("{oldest:06}.wal")), 80 + 45);
    let cut = document(&["dump", "log", sample.path()], 1);
    assert!(cut["count"].as_u64().unwrap() < records);
    assert_eq!(cut["damages"].as_array().map(Vec::len), Some(1), "{cut}");
}

#[test]
fn a_database_in_use_is_refused_by_all_that_would_read_what_changes() {
    let sample = Sample::new();
    let db = Database::open(&sample.dir, options()).unwrap();
    let path = sample.path();
    let target = sample.beside("target");
    for arguments in [
        &["inspect", path][..],
        &["get", path, "fruit", "apple"],
        &["verify", path],
        &["dump", "log", path],
        &["dump", "manifest", path],
        &["compact", path],
        &["checkpoint", path, &target],
        &["repair", path, &target, "--yes"],
    ] {
        assert_fails(arguments, 3, "is in use by another process");
    }
    // Tables never change.
    document(&["dump", "table", path, "4"], 0);
    db.close().unwrap();
    assert_eq!(failed(&["inspect", path]).0, Some(0));
}

#[test]
fn readers_share_a_database() {
    let sample = Sample::new();
    let _reader = Database::open_read_only(&sample.dir, options()).unwrap();
    assert_eq!(failed(&["scan", sample.path(), "fruit"]).0, Some(0));
    assert_fails(&["compact", sample.path()], 3, "is in use by readers");
}

#[test]
fn a_newer_format_is_refused_with_exit_code_3() {
    let sample = Sample::new();
    let table = sample.file("000003.sst");
    let mut bytes = std::fs::read(&table).unwrap();
    // The checksum of the footer covers the version, so it is recomputed as the format specifies.
    let footer = bytes.len() - 192;
    bytes[footer + 176] = 2;
    let uid = u64::from_le_bytes(bytes[footer + 8..footer + 16].try_into().unwrap());
    let seed = alluvium::base::checksum::place_seed(uid, footer as u64);
    let sum = alluvium::base::checksum::checksum(&bytes[footer + 8..], seed);
    bytes[footer..footer + 8].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&table, bytes).unwrap();
    for command in ["inspect", "verify", "stats"] {
        assert_fails(&[command, sample.path()], 3, "use a newer build");
    }
}

#[test]
fn other_directories_and_files_are_refused_with_exit_code_3() {
    let sample = Sample::new();
    let empty = tempfile::tempdir().unwrap();
    let empty_path = empty.path().to_str().unwrap();
    for command in ["inspect", "verify", "stats", "compact"] {
        assert_fails(&[command, empty_path], 3, "holds no database");
        assert_fails(&[command, &sample.beside("none")], 3, "does not exist");
    }
    let file = sample.file("CURRENT");
    assert_fails(&["inspect", file.to_str().unwrap()], 3, "is no directory");
    assert!(contents(empty.path()).is_empty(), "something was made");
    let failure = document(&["inspect", empty_path], 3);
    assert_eq!(failure["exit_code"], 3);
}

#[test]
fn a_database_without_its_pointer_is_damaged_and_not_missing() {
    let sample = Sample::new();
    std::fs::remove_file(sample.dir.join("CURRENT")).unwrap();
    assert_fails(&["verify", sample.path()], 1, "alluvium repair");
    assert_fails(&["inspect", sample.path()], 1, "CURRENT");
    let saved = sample.beside("saved");
    assert_fails(
        &["repair", sample.path(), &saved, "--yes"],
        1,
        "judge the new",
    );
    let scan = document(&["scan", &saved, "odd"], 0);
    assert_eq!(scan["rows"][0]["key"], "\\x00\\xff");
}

#[test]
fn unknown_commands_and_flags_are_answered_with_exit_code_2() {
    assert_fails(&["inspct", "x"], 2, "inspect");
    assert_fails(&["scan", "x", "y", "--prefx", "z"], 2, "--prefix");
    assert_fails(
        &["scan", "x", "y", "--prefix", "a", "--end", "b"],
        2,
        "cannot be used",
    );
    assert_fails(&[], 2, "Usage");
    assert_eq!(failed(&["--help"]).0, Some(0));
}

#[test]
fn a_repair_needs_yes_where_nobody_can_answer() {
    let sample = Sample::new();
    let saved = sample.beside("saved");
    let output = with_input(&["repair", sample.path(), &saved], b"db\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--yes"));
    assert!(!std::path::Path::new(&saved).exists());
}

#[test]
fn a_damaged_backup_is_found_and_not_restored() {
    let sample = Sample::new();
    let store = sample.beside("store");
    document(&["backup", "create", &store, sample.path()], 0);
    let mut files = contents(std::path::Path::new(&store)).into_keys();
    let table = files.find(|f| f.to_str().unwrap().ends_with(".table"));
    let table = table.unwrap();
    sample.damage(&table, IN_FIRST_BLOCK);
    let found = document(&["backup", "verify", &store], 1);
    assert_eq!(
        found["backups"][0]["damages"][0]["file"],
        table.display().to_string()
    );
    let target = sample.beside("restored");
    assert_fails(
        &["backup", "restore", &store, "1", &target],
        1,
        "corruption",
    );
    assert!(!std::path::Path::new(&target).exists());
}

#[test]
fn what_scan_prints_can_be_loaded() {
    let sample = Sample::new();
    for keyspace in ["fruit", "odd"] {
        let rows = alluvium(&["scan", sample.path(), keyspace]).stdout;
        let copy = format!("{keyspace}-copy");
        let loaded = with_input(&["load", sample.path(), &copy, "--create"], &rows);
        assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
        assert!(alluvium(&["scan", sample.path(), &copy]).stdout == rows);
    }
    let bad = with_input(&["load", sample.path(), "odd"], b"a\t1\nb\n");
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("line 2 of stdin"));
    let bad = with_input(&["load", sample.path(), "odd"], b"a\t\xff\n");
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("line 1 of stdin: it is no UTF-8 text"));
    assert!(alluvium(&["get", sample.path(), "odd", "a"]).status.code() == Some(4));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let sample = Sample::new();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_alluvium"));
    command.args(["scan", sample.path(), "fruit"]);
    command.stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = start(&mut command);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}
