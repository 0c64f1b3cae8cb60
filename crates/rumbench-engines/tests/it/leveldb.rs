//! Conformance tests of LevelDB.

use rumbench_core::engine::Durability;
use rumbench_engines::conformance;
use rumbench_engines::leveldb::LevelDb;

use crate::setup::config;

#[test]
fn leveldb_behaves_as_an_ordered_map() {
    for variant in [None, Some("default".to_string())] {
        let root = tempfile::tempdir().unwrap();
        conformance::key_value(root.path(), &|dir| {
            let mut config = config(dir, Durability::Buffered);
            config.variant = variant.clone();
            LevelDb::open(&config, conformance::KEY_VALUE_MAPS).unwrap()
        });
    }
}

/// Every write syncs in this class, so the suite checks that a commit is one batch.
#[test]
fn leveldb_with_synced_commits_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        LevelDb::open(&config(dir, Durability::Sync), conformance::KEY_VALUE_MAPS).unwrap()
    });
}
