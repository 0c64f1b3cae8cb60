//! Databases written by earlier builds open and have the same rows.
//!
//! Each folder of `tests/golden` is a database as a killed process leaves it: tables in the last
//! level and above it, written with every codec, tombstones, and a log that was not flushed. The
//! ignored test at the end wrote it. It is never written again: a build that cannot read it breaks
//! the format. Trailing zeros of fully allocated files are cut off in the repository, and the tests
//! restore them.

use std::fs;
use std::path::{Path, PathBuf};

use alluvium::{Compression, Database, KeyspaceOptions, Options, WriteBatch};
use alluvium_testkit::model::{Rows, State};
use alluvium_testkit::random::Rng;

use crate::driver::state_of;

/// Oldest first: the first format, then the format with packed commits in the log.
const DATABASES: [&str; 2] = ["v1", "v1-packed"];

pub fn golden(name: &str) -> PathBuf {
    let all = Path::new("tests/golden");
    all.join(name)
}

fn options() -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(8_000),
        table_bytes: 4096,
        upper_fraction: 0.02,
        ..Options::default()
    }
}

/// Returns the keyspaces: every codec, every kind of filter, different block sizes.
fn keyspaces() -> [(&'static str, KeyspaceOptions); 3] {
    let adaptive = KeyspaceOptions {
        prefix_filter_bytes: Some(4),
        block_bytes: 1024,
        ..KeyspaceOptions::default()
    };
    let lz4 = KeyspaceOptions {
        compression: Compression::Lz4,
        whole_key_filter: false,
        block_bytes: 2048,
        ..KeyspaceOptions::default()
    };
    let none = KeyspaceOptions {
        compression: Compression::None,
        expect_hits: true,
        block_bytes: 8192,
        ..KeyspaceOptions::default()
    };
    [("adaptive", adaptive), ("lz4", lz4), ("none", none)]
}

/// One change of a phase: a key with its new value, or with `None` for a delete.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// The phases: settled rows, rows flushed above them, and rows that are only in the log.
const PHASES: usize = 3;

fn changes(keyspace: usize, phase: usize) -> Vec<Change> {
    let mut rng = Rng::new((10 * keyspace + phase) as u64);
    let rows = [160, 60, 15][phase];
    (0..rows)
        .map(|_| {
            let row = rng.below(200);
            // Text keys and integer keys, repetitive values and random ones.
            let key = match keyspace {
                1 => [&b"id"[..], &(row as u64 * 3).to_be_bytes()].concat(),
                _ => format!("row/{:02}/{row:05}", row % 7).into_bytes(),
            };
            let value = match row % 3 {
                0 => format!("value of {row} in phase {phase}. ")
                    .repeat(3)
                    .into_bytes(),
                1 => rng.bytes(row % 40),
                _ => [&(row as u64).to_le_bytes()[..], b"\0\0", &[phase as u8; 20]].concat(),
            };
            let deleted = phase > 0 && rng.percent(30);
            (key, (!deleted).then_some(value))
        })
        .collect()
}

fn expected() -> State {
    let rows = |keyspace: usize| {
        let mut rows = Rows::new();
        for (key, value) in (0..PHASES).flat_map(|phase| changes(keyspace, phase)) {
            match value {
                Some(value) => rows.insert(key, value),
                None => rows.remove(&key),
            };
        }
        rows
    };
    let named = keyspaces().into_iter().enumerate();
    named
        .map(|(at, (name, _))| (name.to_owned(), rows(at)))
        .collect()
}

/// Returns the length that a file had before its trailing zeros were cut off.
fn full_length(name: &str, bytes: &[u8]) -> usize {
    if name.ends_with(".wal") {
        let allocated: [u8; 8] = bytes[40..48].try_into().expect("8 bytes");
        return u64::from_le_bytes(allocated) as usize;
    }
    if name.ends_with(".manifest") {
        return bytes.len().next_multiple_of(1 << 16);
    }
    bytes.len()
}

/// Returns a copy of the golden database that a test may open and change.
pub fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("directory");
    for entry in fs::read_dir(golden(name)).expect("the golden database") {
        let path = entry.expect("entry").path();
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .expect("a name")
            .to_owned();
        let mut bytes = fs::read(&path).expect("read");
        bytes.resize(full_length(&name, &bytes), 0);
        fs::write(copy.path().join(name), bytes).expect("write");
    }
    copy
}

#[test]
fn databases_of_earlier_builds_open_and_hold_their_rows() {
    for name in DATABASES {
        opens_and_holds_its_rows(name);
    }
}

fn opens_and_holds_its_rows(database: &str) {
    let copy = copy(database);
    let not_created = Options {
        create: false,
        ..options()
    };
    let expected = expected();
    for round in ["as it was", "settled", "reopened"] {
        let db = Database::open(copy.path(), not_created.clone()).expect("open");
        if round == "settled" {
            db.settle().expect("settle");
        }
        assert!(state_of(&db) == expected, "{database}, {round}");
        for (name, options) in keyspaces() {
            let keyspace = db.existing_keyspace(name).expect("look").expect("keyspace");
            // These builds did not separate values, and stored no option for it.
            let options = KeyspaceOptions {
                value_separation_bytes: None,
                ..options
            };
            assert_eq!(keyspace.options(), options);
            for (key, value) in &expected[name] {
                let found = keyspace.get(key).expect("get");
                assert_eq!(
                    found.as_deref(),
                    Some(&value[..]),
                    "{database}, {round}: {}",
                    key.escape_ascii()
                );
            }
        }
        db.close().expect("close");
    }
}

fn write_phase(db: &Database, phase: usize) {
    for (at, (name, options)) in keyspaces().into_iter().enumerate() {
        let keyspace = db.keyspace(name, options).expect("keyspace");
        for chunk in changes(at, phase).chunks(10) {
            let mut batch = WriteBatch::new();
            for (key, value) in chunk {
                match value {
                    Some(value) => batch.put(&keyspace, key, value),
                    None => batch.delete(&keyspace, key),
                }
                .expect("write");
            }
            db.write(&batch).expect("commit");
        }
    }
}

#[test]
#[ignore = "writes the golden database of a new format version, once"]
fn write_the_golden_database() {
    let newest = golden(DATABASES[DATABASES.len() - 1]);
    fs::create_dir(&newest).expect("a golden database is never written again");
    let dir = tempfile::tempdir().expect("directory");
    // Small memtables first, so that everything is due for the last level; then larger ones, so
    // that no table is.
    let eager = Options {
        memtable_bytes: Some(1_000),
        ..options()
    };
    let db = Database::open(dir.path(), eager).expect("open");
    write_phase(&db, 0);
    db.settle().expect("settle");
    db.close().expect("close");
    let db = Database::open(dir.path(), options()).expect("open");
    write_phase(&db, 1);
    db.flush().expect("flush");
    write_phase(&db, 2);
    let stats = db.stats().expect("stats");
    assert!(
        stats.keyspaces.iter().all(|k| k.last_tables > 0),
        "{stats:?}"
    );
    assert!(
        stats.keyspaces.iter().all(|k| k.upper_tables > 0),
        "{stats:?}"
    );
    keep(dir.path(), &newest);
}

/// Copies a database while it is open: the log's tail stays unflushed, as after a killed process.
pub fn keep(dir: &Path, golden: &Path) {
    for entry in fs::read_dir(dir).expect("list") {
        let path = entry.expect("entry").path();
        let name = path.file_name().and_then(|n| n.to_str()).expect("a name");
        let mut bytes = fs::read(&path).expect("read");
        let complete = name.ends_with(".sst") || name.ends_with(".val");
        if full_length(name, &bytes) == bytes.len() && !complete {
            let used = bytes
                .iter()
                .rposition(|b| *b != 0)
                .map_or(0, |last| last + 1);
            bytes.truncate(used);
        }
        if name != "LOCK" {
            fs::write(golden.join(name), bytes).expect("write");
        }
    }
}
