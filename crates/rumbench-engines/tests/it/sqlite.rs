//! Tests of SQLite only: its check consists of its own SQL, and must find damage.

use std::path::Path;

use rumbench_core::engine::{Durability, Engine, EngineError};
use rumbench_core::linkbench::{Link, LinkKey};
use rumbench_engines::sqlite::Sqlite;

use crate::setup::config;

fn link(id1: u64, id2: u64) -> Link<'static> {
    Link {
        key: LinkKey {
            id1,
            link_type: 123_456_789,
            id2,
        },
        visibility: 1,
        time: id2,
        version: 0,
        data: b"payload",
    }
}

/// Creates three links in two lists, applies `damage` through another connection, and returns the
/// result of the check.
fn check_after(damage: &str) -> Result<(), EngineError> {
    let dir = tempfile::tempdir().unwrap();
    let engine = Sqlite::open(&config(dir.path(), Durability::Buffered)).unwrap();
    let store = engine.link_store().unwrap();
    store.build_index().unwrap();
    let mut connection = store.connect().unwrap();
    for (id1, id2) in [(1, 1), (1, 2), (2, 1)] {
        connection.add_link(&link(id1, id2)).unwrap();
    }
    run_sql(dir.path(), damage);
    connection.check().map(|_totals| ())
}

fn run_sql(dir: &Path, sql: &str) {
    let other = rusqlite::Connection::open(dir.join("rumbench.sqlite")).unwrap();
    other.execute_batch(sql).unwrap();
}

#[test]
fn an_intact_database_passes_the_check() {
    check_after("").unwrap();
}

#[test]
fn a_wrong_count_is_found() {
    let error = check_after("UPDATE counttable SET count = 5 WHERE id = 1").unwrap_err();
    assert!(matches!(error, EngineError::Wrong(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("count of (1, 123456789) is 5, but 2"),
        "{error}"
    );
}

#[test]
fn a_missing_count_is_found() {
    let error = check_after("DELETE FROM counttable WHERE id = 2").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("count of (2, 123456789) is 0, but 1"),
        "{error}"
    );
}

#[test]
fn a_count_without_links_is_found() {
    let error = check_after("DELETE FROM linktable WHERE id1 = 2").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("count of (2, 123456789) is 1, but 0"),
        "{error}"
    );
}

#[test]
fn an_index_that_differs_from_its_table_is_found() {
    let error = check_after(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET rootpage = (
             SELECT rootpage FROM sqlite_schema WHERE name = 'counttable'
         ) WHERE name = 'id1_type';
         PRAGMA schema_version = 1000;",
    )
    .unwrap_err();
    assert!(error.to_string().contains("integrity check"), "{error}");
}

#[test]
fn numbers_beyond_63_bits_are_refused_rather_than_wrapped() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Sqlite::open(&config(dir.path(), Durability::Buffered)).unwrap();
    let mut connection = engine.link_store().unwrap().connect().unwrap();
    let error = connection.add_link(&link(u64::MAX, 1)).unwrap_err();
    assert!(error.to_string().contains("exceeds 63 bits"), "{error}");
    // The refused write leaves the connection usable.
    connection.add_link(&link(1, 1)).unwrap();
    assert_eq!(connection.count_links(1, 123_456_789).unwrap(), 1);
}

#[test]
fn lists_come_from_the_index_without_sorting() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Sqlite::open(&config(dir.path(), Durability::Buffered)).unwrap();
    engine.link_store().unwrap().build_index().unwrap();
    let other = rusqlite::Connection::open(dir.path().join("rumbench.sqlite")).unwrap();
    let plan: Vec<String> = other
        .prepare(
            "EXPLAIN QUERY PLAN SELECT time, id2, version, data FROM linktable
             WHERE id1 = 1 AND link_type = 2 AND visibility = 1 AND time BETWEEN 3 AND 4
             ORDER BY time DESC, id2 LIMIT 5",
        )
        .unwrap()
        .query_map((), |row| row.get(3))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        plan,
        ["SEARCH linktable USING COVERING INDEX id1_type \
          (id1=? AND link_type=? AND visibility=? AND time>? AND time<?)"]
    );
}
