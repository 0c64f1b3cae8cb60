//! Conformance tests of LMDB.

use rumbench_core::engine::Durability;
use rumbench_engines::conformance;
use rumbench_engines::lmdb::Lmdb;

use crate::setup::config;

#[test]
fn lmdb_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        Lmdb::open(
            &config(dir, Durability::Buffered),
            conformance::KEY_VALUE_MAPS,
        )
        .unwrap()
    });
}
