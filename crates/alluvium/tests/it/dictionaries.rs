//! Databases whose last level is compressed with dictionaries, and one as the first build with
//! dictionaries left it; see `golden.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use alluvium::vfs::{MemVfs, Vfs};
use alluvium::{Database, Error, KeyspaceOptions, Options};
use alluvium_testkit::model::{Rows, State};
use alluvium_testkit::random::Rng;

use crate::driver::state_of;
use crate::fixture::{contents, database, dir, table_files};
use crate::golden::{copy, golden, keep};
use crate::script::path_of;

const DATABASE: &str = "v1-dictionary";
const FOOTER_BYTES: usize = 192;
const SECTION_HEADER_BYTES: usize = 24;
/// Place of the must-know features in the footer, and the feature bit of a dictionary.
const FEATURES: (usize, u8) = (24, 16);
/// Place of the handles of both copies of the dictionary.
const HANDLES: [usize; 2] = [112, 128];

/// Tables so small that dictionaries are trained from 16 KiB.
fn options() -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(32_000),
        table_bytes: 128 << 10,
        idle_after: None,
        ..Options::default()
    }
}

fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions {
        block_bytes: 1024,
        ..KeyspaceOptions::default()
    }
}

fn key(n: usize) -> Vec<u8> {
    format!("customer/{n:05}").into_bytes()
}

/// Returns a value that shares most of its words with others.
fn value(n: usize, phase: usize) -> Vec<u8> {
    const STREETS: [&str; 5] = [
        "Harbour Road",
        "Mill Lane",
        "Station Street",
        "Quay",
        "Abbey Row",
    ];
    let mut rng = Rng::new((n * 10 + phase) as u64);
    format!(
        "name=customer {}; street={} {}; status=active; balance={}.{:02}; phase={phase}",
        rng.below(100_000),
        rng.pick(&STREETS),
        rng.below(200),
        rng.below(10_000),
        rng.below(100),
    )
    .into_bytes()
}

const ROWS: usize = 3_000;

/// Rows that a phase writes: all, every ninth, and some that stay in the log.
fn written(phase: usize) -> impl Iterator<Item = usize> {
    let step = [1, 9, 500][phase];
    (0..ROWS).step_by(step)
}

fn expected(phases: usize) -> State {
    let mut rows = Rows::new();
    for phase in 0..phases {
        rows.extend(written(phase).map(|n| (key(n), value(n, phase))));
    }
    [("customers".to_owned(), rows)].into()
}

fn write_phase(db: &Database, phase: usize) {
    let k = db.keyspace("customers", keyspace_options());
    let k = k.expect("keyspace");
    for n in written(phase) {
        k.put(&key(n), &value(n, phase)).expect("put");
    }
}

/// Returns true if the table has a dictionary.
fn has_dictionary(table: &[u8]) -> bool {
    let (at, bit) = FEATURES;
    table[table.len() - FOOTER_BYTES + at] & bit != 0
}

#[test]
fn the_last_level_gets_dictionaries_and_keeps_its_rows() {
    let (vfs, db, _) = database(options());
    let mut expected_state = expected(3);
    expected_state.extend(state_of(&db));
    for phase in 0..3 {
        write_phase(&db, phase);
        db.settle().expect("settle");
    }
    assert!(state_of(&db) == expected_state);
    let tables = table_files(&vfs);
    let mut with = tables.iter().map(|t| has_dictionary(&contents(&vfs, t)));
    assert!(with.any(|has| has), "{tables:?}");
    assert!(db.verify().expect("verify").is_clean());
    db.close().expect("close");
    let db = Database::open_on(std::sync::Arc::new(vfs), dir(), options()).expect("open");
    assert!(state_of(&db) == expected_state);
}

/// Returns the stored bytes of all dictionaries, each once.
fn dictionaries(vfs: &MemVfs) -> BTreeSet<Vec<u8>> {
    let tables = table_files(vfs).into_iter();
    let with = tables.map(|table| contents(vfs, &table));
    let with = with.filter(|bytes| has_dictionary(bytes));
    with.map(|bytes| {
        let handle = bytes.len() - FOOTER_BYTES + HANDLES[0];
        let number = |at: usize| {
            let number = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
            number as usize
        };
        let (offset, length) = (number(handle), number(handle + 8));
        bytes[offset + SECTION_HEADER_BYTES..offset + length].to_vec()
    })
    .collect()
}

#[test]
fn a_keyspace_keeps_its_dictionary_after_an_open() {
    let (vfs, db, _) = database(options());
    write_phase(&db, 0);
    db.settle().expect("settle");
    db.close().expect("close");
    let before = dictionaries(&vfs);
    assert!(!before.is_empty());
    let db = Database::open_on(std::sync::Arc::new(vfs.clone()), dir(), options()).expect("open");
    let k = db.keyspace("customers", keyspace_options());
    let k = k.expect("keyspace");
    for n in 0..ROWS {
        // Other values than before: a training alone would find another dictionary.
        k.put(&key(n), &value(n + ROWS, 0)).expect("put");
    }
    db.settle().expect("settle");
    let after = dictionaries(&vfs);
    assert!(!after.is_empty() && after.is_subset(&before));
    assert!(db.verify().expect("verify").is_clean());
}

#[test]
fn a_damaged_dictionary_is_an_error_and_a_repair_loses_no_row() {
    let (vfs, db, _) = database(options());
    write_phase(&db, 0);
    db.settle().expect("settle");
    let before = state_of(&db);
    db.close().expect("close");
    let tables = table_files(&vfs);
    let with = tables.iter().find(|t| has_dictionary(&contents(&vfs, t)));
    let table = with.expect("a table with a dictionary");
    let bytes = contents(&vfs, table);
    for handle in HANDLES {
        let footer = &bytes[bytes.len() - FOOTER_BYTES..];
        let offset = u64::from_le_bytes(footer[handle..handle + 8].try_into().expect("8 bytes"));
        let file = vfs.open(&path_of(table)).expect("open");
        let flip = |mask: u8| {
            let damaged = [bytes[offset as usize + 30] ^ mask];
            file.write_at(&damaged, offset + 30).expect("write");
        };
        flip(1);
        let vfs_now = std::sync::Arc::new(vfs.clone());
        let opened = Database::open_on(vfs_now.clone(), dir(), options());
        let verified = opened.and_then(|db| db.verify());
        assert!(match verified {
            Ok(report) => !report.is_clean(),
            Err(error) => matches!(error, Error::Corruption { .. }),
        });
        let target = Path::new("repaired").join(handle.to_string());
        vfs.create_dir_all(Path::new("repaired")).expect("create");
        let report = alluvium::repair_on(vfs_now.clone(), dir(), &target).expect("repair");
        assert!(report.lost.is_empty(), "{report:?}");
        let repaired = Database::open_on(vfs_now, &target, options()).expect("open");
        assert!(state_of(&repaired) == before);
        flip(0);
    }
}

#[test]
fn a_database_of_the_first_build_with_dictionaries_opens_and_holds_its_rows() {
    let copy = copy(DATABASE);
    let files = fs::read_dir(copy.path()).expect("list");
    let mut tables = files.map(|file| file.expect("entry").path());
    assert!(tables.any(|path| {
        let is_table = path.extension().is_some_and(|e| e == "sst");
        is_table && has_dictionary(&fs::read(&path).expect("read"))
    }));
    for round in ["as it was", "settled", "reopened"] {
        let db = Database::open(copy.path(), options()).expect("open");
        if round == "settled" {
            db.settle().expect("settle");
        }
        assert!(state_of(&db) == expected(3), "{round}");
        let report = db.verify().expect("verify");
        assert!(report.is_clean(), "{round}: {report:?}");
        db.close().expect("close");
    }
}

#[test]
#[ignore = "writes the golden database of a new format version, once"]
fn write_the_golden_database_with_dictionaries() {
    let newest = golden(DATABASE);
    fs::create_dir(&newest).expect("a golden database is never written again");
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), options()).expect("open");
    write_phase(&db, 0);
    db.settle().expect("settle");
    db.close().expect("close");
    let eager = Options {
        upper_fraction: 1.0,
        ..options()
    };
    let db = Database::open(dir.path(), eager).expect("open");
    write_phase(&db, 1);
    db.flush().expect("flush");
    write_phase(&db, 2);
    keep(dir.path(), &newest);
}
