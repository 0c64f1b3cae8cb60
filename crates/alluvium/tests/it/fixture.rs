//! Common fixture: a database in memory, its rows, its files, and errors by kind.

use std::path::Path;
use std::sync::Arc;

use alluvium::vfs::{Fault, FaultEffect, IoCall, MemVfs, Vfs};
use alluvium::{
    Cursor, CursorOptions, Database, Durability, Keyspace, KeyspaceOptions, KeyspaceStats, Options,
    Stats,
};
use alluvium_testkit::model::Direction;

use crate::driver::collect;

/// Key and value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Returns the directory of databases in memory.
pub fn dir() -> &'static Path {
    Path::new("db")
}

/// Returns options under which a few dozen rows cause flushes, compactions and splits.
pub fn tiny() -> Options {
    Options {
        memory_bytes: 8 << 20,
        memtable_bytes: Some(4_000),
        table_bytes: 4096,
        durability: Durability::Buffered,
        ..Options::default()
    }
}

/// Opens the database on `vfs`.
pub fn open(vfs: &MemVfs, options: Options) -> Database {
    let opened = Database::open_on(Arc::new(vfs.clone()), dir(), options);
    opened.unwrap_or_else(|e| panic!("open: {}", crate::driver::chain(&e)))
}

/// Returns a new database with one keyspace `k`.
pub fn database(options: Options) -> (MemVfs, Database, Keyspace) {
    let vfs = MemVfs::new();
    let db = open(&vfs, options);
    let keyspace = db
        .keyspace("k", KeyspaceOptions::default())
        .expect("keyspace");
    (vfs, db, keyspace)
}

/// Returns all rows that a cursor shows.
pub fn rows(cursor: Cursor) -> Vec<Row> {
    collect(cursor, Direction::Forward, usize::MAX)
}

/// Returns all current rows of a keyspace.
pub fn all(keyspace: &Keyspace) -> Vec<Row> {
    rows(keyspace.cursor(CursorOptions::default()).expect("cursor"))
}

/// Seeks the first thousand keys that are numbers of four bytes, and finds a row at or after each.
pub fn seek_a_thousand(keyspace: &Keyspace) {
    let mut cursor = keyspace.cursor(CursorOptions::default()).expect("cursor");
    for n in 0..1_000_u32 {
        assert!(cursor.seek(&n.to_be_bytes()).expect("seek"));
    }
}

/// Returns the value of a key, as text.
pub fn text(keyspace: &Keyspace, key: &str) -> Option<String> {
    let value = keyspace.get(key.as_bytes()).expect("get");
    value.map(|v| String::from_utf8_lossy(&v).into_owned())
}

/// Returns the names of the table files, sorted.
pub fn table_files(vfs: &MemVfs) -> Vec<String> {
    files_ending(vfs, ".sst")
}

/// Returns the bytes of a file in the database directory.
pub fn contents(vfs: &MemVfs, name: &str) -> Vec<u8> {
    let file = vfs.open_read(&dir().join(name)).expect("open");
    let mut bytes = vec![0; file.len().expect("length") as usize];
    file.read_at(&mut bytes, 0).expect("read");
    bytes
}

/// Returns the names of the log's segments, oldest first.
pub fn segments(vfs: &MemVfs) -> Vec<String> {
    files_ending(vfs, ".wal")
}

fn files_ending(vfs: &MemVfs, ending: &str) -> Vec<String> {
    let mut names = vfs.list(dir()).expect("list");
    names.retain(|name| name.ends_with(ending));
    names.sort();
    names
}

/// Returns a fault that stops the device for good at call `nth` of these kinds.
pub fn stop_at(nth: u64, calls: &[IoCall], effect: FaultEffect) -> Fault {
    Fault {
        calls: calls.to_vec(),
        nth,
        sticky: true,
        effect,
    }
}

/// Returns the statistics of the keyspace `k`.
pub fn stats_of_k(db: &Database) -> KeyspaceStats {
    of(&db.stats().expect("stats"), "k").clone()
}

/// Returns the statistics of one keyspace.
pub fn of<'a>(stats: &'a Stats, name: &str) -> &'a KeyspaceStats {
    let mut found = stats.keyspaces.iter();
    found
        .find(|k| k.name == name)
        .unwrap_or_else(|| panic!("no stats of {name}"))
}

/// Asserts the kind of an error: `assert_error!(result, Error::Closed)`.
macro_rules! assert_error {
    ($result:expr, $pattern:pat) => {
        match $result {
            Err($pattern) => {}
            Err(other) => panic!("another error: {}", crate::driver::chain(&other)),
            Ok(_) => panic!("no error where {} was due", stringify!($pattern)),
        }
    };
}
pub(crate) use assert_error;
