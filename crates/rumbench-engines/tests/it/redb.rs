//! Conformance tests of redb.

use rumbench_core::engine::Durability;
use rumbench_engines::conformance;
use rumbench_engines::redb::Redb;

use crate::setup::config;

#[test]
fn redb_behaves_as_an_ordered_map() {
    // Covers each class: `none` commits differently from the two that sync.
    for class in [Durability::Buffered, Durability::None] {
        let root = tempfile::tempdir().unwrap();
        conformance::key_value(root.path(), &|dir| {
            Redb::open(&config(dir, class), conformance::KEY_VALUE_MAPS).unwrap()
        });
    }
}
