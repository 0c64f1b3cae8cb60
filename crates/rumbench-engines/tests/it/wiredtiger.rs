//! Tests of WiredTiger: the conformance suites, conflicts and settings.

use rumbench_core::engine::{Durability, EngineError};
use rumbench_core::kv::{KvConnection, KvEngine, KvTxn, MapId};
use rumbench_engines::conformance;
use rumbench_engines::wiredtiger::WiredTiger;

use crate::setup::config;

#[test]
fn wiredtiger_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        WiredTiger::open(
            &config(dir, Durability::Buffered),
            conformance::KEY_VALUE_MAPS,
        )
        .unwrap()
    });
}

#[test]
fn the_defaults_of_wiredtiger_behave_as_an_ordered_map() {
    variant_behaves_as_an_ordered_map("default", Durability::None);
}

#[test]
fn wiredtiger_with_zlib_or_snappy_behaves_as_an_ordered_map() {
    for variant in ["zlib", "snappy"] {
        variant_behaves_as_an_ordered_map(variant, Durability::Buffered);
    }
}

fn variant_behaves_as_an_ordered_map(variant: &str, durability: Durability) {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        let mut config = config(dir, durability);
        config.variant = Some(variant.to_string());
        WiredTiger::open(&config, conformance::KEY_VALUE_MAPS).unwrap()
    });
}

/// A snapshot alone would let another transaction change a row that is read for update but not
/// written.
#[test]
fn a_row_that_is_read_for_update_cannot_be_written_by_others() {
    let dir = tempfile::tempdir().unwrap();
    let engine = WiredTiger::open(
        &config(dir.path(), Durability::Buffered),
        conformance::KEY_VALUE_MAPS,
    )
    .unwrap();
    let map = MapId(0);
    let (mut reader, mut writer) = (engine.connect().unwrap(), engine.connect().unwrap());
    reader.put(map, b"a", b"1").unwrap();
    let mut reading = reader.begin().unwrap();
    reading.get_for_update(map, b"a", |_| ()).unwrap();
    let mut writing = writer.begin().unwrap();
    let refused = writing.put(map, b"a", b"2").unwrap_err();
    assert!(matches!(refused, EngineError::Retry(_)), "{refused}");
    drop(writing);
    reading.commit().unwrap();
    let mut writing = writer.begin().unwrap();
    writing.put(map, b"a", b"2").unwrap();
    writing.commit().unwrap();
}

#[test]
fn settings_that_the_library_would_refuse_are_found_before_anything_runs() {
    let found = rumbench_engines::find("wiredtiger").unwrap();
    for (key, value, expected) in [
        ("compressor", "lz4", "must be none, snappy, zlib or zstd"),
        ("leaf_page_bytes", "5000", "multiple of 4096"),
        ("eviction_dirty_percent", "81", "20"),
        ("eviction_thread", "1", "did you mean `eviction_threads`?"),
    ] {
        let mut config = config(std::path::Path::new(""), Durability::Buffered);
        config.settings.insert(key.to_string(), value.to_string());
        let error = found.entry.check(&config).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
