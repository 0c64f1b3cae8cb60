//! Lifetime hints that the engine gives the kernel for written data, read back from real files.

use std::fs::File;
use std::path::Path;

use alluvium::{Database, KeyspaceOptions};
use alluvium_mem::write_hint::{WriteHint, write_hint};

use crate::fixture::tiny;

/// Returns the names and hints of the files in `dir` with this ending.
fn hints(dir: &Path, end: &str) -> Vec<(String, u64)> {
    let mut hints = Vec::new();
    for entry in std::fs::read_dir(dir).expect("list") {
        let entry = entry.expect("entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(end) {
            let file = File::open(entry.path()).expect("open");
            hints.push((name, write_hint(&file).expect("a hint can be asked for")));
        }
    }
    hints
}

/// Hint of a file without one. The kernel also forgets the hint of a file that no process has open,
/// when it needs memory or another program drops the caches (seen on Linux 6.18).
const NONE: u64 = 0;

fn all_are(hints: &[(String, u64)], expected: WriteHint) {
    let right = |hint: u64| hint == expected as u64;
    let known = || {
        hints
            .iter()
            .map(|(_, hint)| *hint)
            .filter(|hint| *hint != NONE)
    };
    assert!(
        known().any(right) && known().all(right),
        "{hints:?}, not {expected:?}"
    );
}

#[test]
fn log_upper_tables_last_level_and_values_have_lifetimes_of_their_own() {
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), tiny()).expect("open");
    let options = KeyspaceOptions {
        value_separation_bytes: Some(2_000),
        ..KeyspaceOptions::default()
    };
    let k = db.keyspace("k", options).expect("keyspace");
    for row in 0..2_000_u32 {
        k.put(&row.to_be_bytes(), &[7; 60]).expect("put");
    }
    k.put(b"large", &[7; 5_000]).expect("put");
    k.compact_range(&[], None).expect("compact");
    all_are(&hints(dir.path(), ".wal"), WriteHint::Short);
    all_are(&hints(dir.path(), ".sst"), WriteHint::Extreme);
    all_are(&hints(dir.path(), ".val"), WriteHint::Extreme);

    let compacted = hints(dir.path(), ".sst");
    k.put(b"small", b"1").expect("put");
    db.flush().expect("flush");
    let mut tables = hints(dir.path(), ".sst");
    tables.retain(|(name, _)| compacted.iter().all(|(before, _)| before != name));
    all_are(&tables, WriteHint::Medium);
    db.close().expect("close");
}
