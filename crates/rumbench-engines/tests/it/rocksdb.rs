//! RocksDB against the suites.

use rumbench_core::engine::Durability;
use rumbench_engines::conformance;
use rumbench_engines::rocksdb::RocksDb;

use crate::setup::config;

#[test]
fn rocksdb_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        RocksDb::open(&config(dir, Durability::Buffered), conformance::SCHEMA).unwrap()
    });
}

#[test]
fn every_variant_of_rocksdb_behaves_as_an_ordered_map() {
    for variant in ["universal", "zlib", "zstd", "default", "myrocks"] {
        let root = tempfile::tempdir().unwrap();
        conformance::key_value(root.path(), &|dir| {
            let mut config = config(dir, Durability::Buffered);
            config.variant = Some(variant.to_string());
            RocksDb::open(&config, conformance::SCHEMA).unwrap()
        });
    }
}
