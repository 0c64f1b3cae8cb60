//! A golden database with everything added after the first format: range deletes, rows that expire,
//! separated values, an ingest, and prepared transactions. And one with a transaction that is
//! prepared in tables. See `golden.rs`.

use std::collections::BTreeMap;
use std::fs;

use alluvium::internal::is_in_tables;
use alluvium::{
    Database, Durability, Expiry, Isolation, Keyspace, KeyspaceOptions, Options, WriteBatch,
};
use alluvium_testkit::model::{Rows, State};

use crate::driver::state_of;
use crate::golden::{copy, golden, keep};

const DATABASE: &str = "v1-whole";
const IN_TABLES: &str = "v1-in-tables";
/// Milliseconds since 1970, some centuries from now.
const FAR: u64 = 9_000_000_000_000;

fn options(memtable_bytes: usize) -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(memtable_bytes),
        table_bytes: 4096,
        upper_fraction: 0.02,
        durability: Durability::Sync,
        idle_after: None,
        ..Options::default()
    }
}

fn keyspaces() -> [(&'static str, KeyspaceOptions); 3] {
    let plain = KeyspaceOptions {
        block_bytes: 1024,
        ..KeyspaceOptions::default()
    };
    let values = KeyspaceOptions {
        value_separation_bytes: Some(300),
        ..plain.clone()
    };
    let expiring = KeyspaceOptions {
        expiry: Expiry::PerRow,
        ..values.clone()
    };
    [("expiring", expiring), ("plain", plain), ("values", values)]
}

fn key(n: usize) -> Vec<u8> {
    format!("key/{n:04}").into_bytes()
}

/// Returns the value of a row; every third value is longer than 300 bytes.
fn value(n: usize, phase: usize) -> Vec<u8> {
    let length = if n.is_multiple_of(3) { 500 } else { 20 };
    (0..length).map(|at| (n * 7 + at * phase) as u8).collect()
}

/// Returns the rows of a phase: settled, flushed above them, and only in the log.
fn written(phase: usize) -> std::ops::Range<usize> {
    [0..60, 20..35, 30..40][phase].clone()
}

/// Returns the range that a phase deletes before it writes: keys from the first to below the
/// second.
fn deleted(phase: usize) -> Option<(usize, usize)> {
    [None, Some((10, 25)), Some((33, 50))][phase]
}

const INGESTED: std::ops::Range<usize> = 100..120;

/// Returns true if the key's row had expired before the database was written.
fn is_expired(name: &str, n: usize) -> bool {
    name == "expiring" && n.is_multiple_of(5)
}

fn expected() -> State {
    let mut state = BTreeMap::new();
    for (name, _) in keyspaces() {
        let mut rows = Rows::new();
        for phase in 0..3 {
            if let Some((from, to)) = deleted(phase) {
                rows.retain(|k, _| *k < key(from) || *k >= key(to));
            }
            for n in written(phase) {
                if is_expired(name, n) {
                    rows.remove(&key(n))
                } else {
                    rows.insert(key(n), value(n, phase))
                };
            }
            if phase == 0 {
                rows.extend(INGESTED.map(|n| (key(n), value(n, 9))));
            }
        }
        rows.insert(b"prepared".to_vec(), b"and committed".to_vec());
        state.insert(name.to_owned(), rows);
    }
    state
}

fn write_phase(db: &Database, phase: usize) {
    for (name, options) in keyspaces() {
        let k = db.keyspace(name, options).expect("keyspace");
        let mut batch = WriteBatch::new();
        if let Some((from, to)) = deleted(phase) {
            let range = batch.delete_range(&k, &key(from), &key(to));
            range.expect("delete range");
        }
        for n in written(phase) {
            put(&mut batch, &k, name, n, phase);
        }
        db.write(&batch).expect("commit");
    }
}

fn put(batch: &mut WriteBatch, k: &Keyspace, name: &str, n: usize, phase: usize) {
    let value = value(n, phase);
    match name {
        "expiring" if is_expired(name, n) => batch.put_until(k, &key(n), &value, 1_000),
        "expiring" if n.is_multiple_of(2) => batch.put_until(k, &key(n), &value, FAR),
        _ => batch.put(k, &key(n), &value),
    }
    .expect("put");
}

fn prepare(db: &Database, xid: &[u8], value: &[u8]) -> alluvium::PreparedTransaction {
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for (name, options) in keyspaces() {
        let k = db.keyspace(name, options).expect("keyspace");
        txn.put(&k, b"prepared", value).expect("put");
    }
    txn.prepare(xid).expect("prepare")
}

#[test]
fn a_database_with_everything_in_it_opens_and_holds_its_rows() {
    let copy = copy(DATABASE);
    let expected = expected();
    for round in ["as it was", "settled", "reopened"] {
        let db = Database::open(copy.path(), options(8_000)).expect("open");
        if round == "settled" {
            db.settle().expect("settle");
        }
        assert!(state_of(&db) == expected, "{round}");
        assert_eq!(db.prepared().expect("list"), [b"in doubt".to_vec()]);
        let report = db.verify().expect("verify");
        assert!(report.is_clean(), "{round}: {report:?}");
        for (name, options) in keyspaces() {
            let k = db.existing_keyspace(name).expect("look").expect("keyspace");
            assert_eq!(k.options(), options);
        }
        db.close().expect("close");
    }
}

#[test]
#[ignore = "writes the golden database of a new format version, once"]
fn write_the_golden_database_with_everything() {
    let newest = golden(DATABASE);
    fs::create_dir(&newest).expect("a golden database is never written again");
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), options(1_000)).expect("open");
    write_phase(&db, 0);
    db.settle().expect("settle");
    let mut ingest = db.ingest().expect("ingest");
    for (name, options) in keyspaces() {
        let k = db.keyspace(name, options).expect("keyspace");
        for n in INGESTED {
            ingest.put(&k, &key(n), &value(n, 9)).expect("put");
        }
    }
    ingest.finish().expect("finish");
    db.close().expect("close");
    let db = Database::open(dir.path(), options(100_000)).expect("open");
    write_phase(&db, 1);
    db.flush().expect("flush");
    write_phase(&db, 2);
    let first = prepare(&db, b"first", b"and committed");
    first.commit().expect("commit");
    let second = prepare(&db, b"second", b"and rolled back");
    second.rollback().expect("roll back");
    let third = prepare(&db, b"in doubt", b"and neither");
    keep(dir.path(), &newest);
    drop(third);
}

/// Options with which the transaction of [`large`] does not fit into memory.
fn small_transactions() -> Options {
    Options {
        transaction_bytes: Some(8_000),
        ..options(100_000)
    }
}

fn large() -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    (0..200).map(|n| (key(n), value(n, 5)))
}

#[test]
fn a_transaction_that_is_prepared_in_tables_can_be_decided() {
    for commits in [true, false] {
        let copy = copy(IN_TABLES);
        let db = Database::open(copy.path(), small_transactions()).expect("open");
        let prepared = db.take_prepared(b"in doubt").expect("take");
        let decided = match commits {
            true => prepared.commit(),
            false => prepared.rollback(),
        };
        decided.expect("decide");
        let mut expected = Rows::from([(key(300), b"before".to_vec())]);
        expected.extend(large().filter(|_| commits));
        assert!(state_of(&db)["k"] == expected, "commits: {commits}");
        let report = db.verify().expect("verify");
        assert!(report.is_clean(), "{report:?}");
        db.close().expect("close");
    }
}

#[test]
#[ignore = "writes the golden database of a transaction that is prepared in tables, once"]
fn write_the_golden_database_with_a_transaction_in_tables() {
    let newest = golden(IN_TABLES);
    fs::create_dir(&newest).expect("a golden database is never written again");
    let dir = tempfile::tempdir().expect("directory");
    let db = Database::open(dir.path(), small_transactions()).expect("open");
    let (_, plain) = keyspaces()[1].clone();
    let k = db.keyspace("k", plain).expect("keyspace");
    k.put(&key(300), b"before").expect("put");
    let txn = db.begin(Isolation::Snapshot).expect("begin");
    for (key, value) in large() {
        txn.put(&k, &key, &value).expect("put");
    }
    let prepared = txn.prepare(b"in doubt").expect("prepare");
    assert!(is_in_tables(&prepared));
    keep(dir.path(), &newest);
    drop(prepared);
}
