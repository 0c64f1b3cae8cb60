//! Tests on a database of an earlier build that uses every feature: range deletes, rows that
//! expire, value files, an ingest, prepared transactions.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::fixture::{alluvium, contents, document, text};

/// Copies the database, with the trailing zeros that the repository does not keep.
fn copy() -> tempfile::TempDir {
    let golden = Path::new("../alluvium/tests/golden/v1-whole");
    let copy = tempfile::tempdir().unwrap();
    for (path, mut bytes) in contents(golden) {
        let name = path.file_name().unwrap();
        match path.extension().and_then(|e| e.to_str()) {
            Some("wal") => {
                let allocated = u64::from_le_bytes(bytes[40..48].try_into().unwrap());
                bytes.resize(allocated as usize, 0);
            }
            Some("manifest") => bytes.resize(bytes.len().next_multiple_of(1 << 16), 0),
            _ => {}
        }
        std::fs::write(copy.path().join(name), bytes).unwrap();
    }
    copy
}

fn all<'a>(list: &'a Value, field: &str) -> BTreeSet<&'a str> {
    let items = list.as_array().unwrap().iter();
    items.filter_map(|item| item[field].as_str()).collect()
}

#[test]
fn every_feature_is_shown_and_nothing_is_written() {
    let copy = copy();
    let path = copy.path().to_str().unwrap();
    let before = contents(copy.path());
    assert_eq!(document(&["verify", path], 0)["clean"], true);

    let inspect = document(&["inspect", path], 0);
    assert_eq!(inspect["prepared_transactions"][0], "in doubt");
    assert_eq!(inspect["keyspaces"][0]["options"]["expiry"], "per row");
    assert_eq!(inspect["value_files"].as_array().map(Vec::len), Some(6));

    let log = document(&["dump", "log", path], 0);
    let kinds = all(&log["records"], "kind");
    for kind in ["packed_commit", "prepare", "commit_prepared", "rollback"] {
        assert!(kinds.contains(kind), "{kind} is not in {kinds:?}");
    }
    let one = document(&["dump", "log", path, "--segment", "9"], 0);
    let segments: BTreeSet<_> = one["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["segment"].as_u64())
        .collect();
    assert_eq!(segments, [Some(9)].into());

    let ingested = document(&["dump", "table", path, "8"], 0);
    assert_eq!(ingested["global_seqno"], 7);
    assert_eq!(ingested["rows"][0]["seqno"], 7);
    assert!(all(&ingested["rows"], "kind").contains("put_pointer"));
    let deletes = document(&["dump", "table", path, "000015.sst"], 0);
    assert!(all(&deletes["rows"], "kind").contains("range_delete"));

    let manifest = document(&["dump", "manifest", path], 0);
    let created = &manifest["edits"][0]["changes"][0];
    assert_eq!(created["options"]["value_separation_bytes"], 300);
    assert!(before == contents(copy.path()), "looking has written");
}

#[test]
fn a_table_without_its_manifest_can_be_dumped() {
    let copy = copy();
    let path = copy.path().join("000015.sst");
    let path = path.to_str().unwrap();
    let with = document(&["dump", "table", path], 0);
    std::fs::remove_file(copy.path().join("CURRENT")).unwrap();
    let without = document(&["dump", "table", path], 0);
    assert_eq!(with["rows"], without["rows"]);
}

#[test]
fn damage_anywhere_ends_with_an_exit_code_and_a_document() {
    let copy = copy();
    let path = copy.path().to_str().unwrap();
    for (file, bytes) in contents(copy.path()) {
        let file_path = file.to_str().unwrap();
        let written = bytes.iter().rposition(|&b| b != 0).unwrap_or(0) + 1;
        // Beginning, middle and end, whatever the content.
        for at in [3, 33, written / 2, written - 10] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x11;
            std::fs::write(&file, &damaged).unwrap();
            let commands = match file.extension().and_then(|e| e.to_str()) {
                Some("sst") => [&["dump", "table", file_path][..], &["verify", path]],
                Some("wal") => [&["dump", "log", path][..], &["verify", path]],
                Some("val") => [&["scan", path, "values"][..], &["verify", path]],
                _ => [&["dump", "manifest", path][..], &["inspect", path]],
            };
            for command in commands {
                let output = alluvium(&[command, &["--json"]].concat());
                let code = output.status.code();
                let message = text(&output.stderr);
                assert!(
                    matches!(code, Some(0 | 1 | 3)),
                    "{command:?} at {at}: {message}"
                );
                let parsed = serde_json::from_slice::<Value>(&output.stdout);
                assert!(
                    parsed.is_ok(),
                    "{command:?} at {at}: {}",
                    text(&output.stdout)
                );
            }
        }
        std::fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn a_file_that_is_no_table_is_damage() {
    let copy = copy();
    for name in ["CURRENT", "000007.wal", "000001.val"] {
        let path = copy.path().join(name);
        document(&["dump", "table", path.to_str().unwrap()], 1);
    }
}
