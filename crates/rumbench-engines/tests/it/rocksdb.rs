//! Tests of RocksDB: the conformance suites, ingestion, options files and settings.

use std::path::Path;

use rumbench_core::engine::{Durability, Engine, OpenConfig};
use rumbench_core::kv::{KvConnection, KvEngine};
use rumbench_engines::conformance;
use rumbench_engines::rocksdb::{Plain, RocksDb, Transactional};

use crate::setup::config;

#[test]
fn rocksdb_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        RocksDb::<Transactional>::open(
            &config(dir, Durability::Buffered),
            conformance::KEY_VALUE_MAPS,
        )
        .unwrap()
    });
}

#[test]
fn rocksdb_without_transactions_behaves_as_an_ordered_map() {
    let variants = ["universal", "snappy", "zlib", "zstd", "default", "myrocks"];
    for variant in variants.map(Some).into_iter().chain([None]) {
        let root = tempfile::tempdir().unwrap();
        conformance::key_value_without_transactions(root.path(), &|dir| {
            let mut config = config(dir, Durability::Buffered);
            config.variant = variant.map(str::to_string);
            RocksDb::<Plain>::open(&config, conformance::KEY_VALUE_MAPS).unwrap()
        });
    }
}

#[test]
fn rocksdb_without_transactions_refuses_one_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let config = config(root.path(), Durability::Buffered);
    let engine = RocksDb::<Plain>::open(&config, conformance::KEY_VALUE_MAPS).unwrap();
    let stated = &engine.facts().configuration["transactions"];
    assert!(stated.starts_with("none"), "{stated}");
    let mut connection = engine.connect().unwrap();
    let refusal = connection.begin().map(|_| ()).unwrap_err().to_string();
    assert!(refusal.contains("opened without transactions"), "{refusal}");
}

/// RocksDB takes over an ingested table: no file of the adapter's stays.
#[test]
fn ingesting_a_table_leaves_no_extra_file() {
    let root = tempfile::tempdir().unwrap();
    let config = config(root.path(), Durability::Buffered);
    let engine = RocksDb::<Plain>::open(&config, conformance::KEY_VALUE_MAPS).unwrap();
    let mut connection = engine.connect().unwrap();
    let rows = [(&b"a"[..], &b"1"[..]), (b"b", b"2")];
    let map = rumbench_core::kv::MapId(0);
    assert!(connection.ingest(map, rows.into_iter()).unwrap());
    let files = std::fs::read_dir(root.path()).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.starts_with("ingested")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_variant_of_rocksdb_behaves_as_an_ordered_map() {
    for variant in ["universal", "snappy", "zlib", "zstd", "default", "myrocks"] {
        let root = tempfile::tempdir().unwrap();
        conformance::key_value(root.path(), &|dir| {
            let mut config = config(dir, Durability::Buffered);
            config.variant = Some(variant.to_string());
            RocksDb::<Transactional>::open(&config, conformance::KEY_VALUE_MAPS).unwrap()
        });
    }
}

const OPTIONS: &str = "\
[Version]
  rocksdb_version=11.8.1
  options_file_version=1.1
[DBOptions]
  max_background_jobs=3
[CFOptions \"default\"]
  write_buffer_size=1048576
  prefix_extractor=rocksdb.CappedPrefix.20
[TableOptions/BlockBasedTable \"default\"]
  filter_policy=bloomfilter:10:false
";

fn with_file(dir: &Path, file: &Path) -> OpenConfig {
    let mut config = config(dir, Durability::Buffered);
    let path = file.display().to_string();
    config.settings.insert("options_file".to_string(), path);
    config
}

/// The prefix extractor of the file differs from that of the maps, which must not change the
/// results of scans.
#[test]
fn rocksdb_with_a_users_options_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("OPTIONS");
    std::fs::write(&file, OPTIONS).unwrap();
    conformance::key_value(root.path(), &|dir| {
        RocksDb::<Transactional>::open(&with_file(dir, &file), conformance::KEY_VALUE_MAPS).unwrap()
    });
}

#[test]
fn a_users_options_are_those_that_rocksdb_runs_with() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("OPTIONS");
    std::fs::write(&file, OPTIONS).unwrap();
    let dir = root.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    let engine =
        RocksDb::<Transactional>::open(&with_file(&dir, &file), conformance::KEY_VALUE_MAPS)
            .unwrap();
    let configuration = engine.facts().configuration;
    let database = &configuration["options_file [DBOptions]"];
    assert_eq!(database, "max_background_jobs=3");
    Box::new(engine).close().unwrap();
    let written = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap());
    let written =
        written.filter(|entry| entry.file_name().to_string_lossy().starts_with("OPTIONS-"));
    let newest = written.map(|entry| entry.path()).max().unwrap();
    let effective = std::fs::read_to_string(newest).unwrap();
    let lines: Vec<&str> = effective.lines().map(str::trim).collect();
    assert!(lines.contains(&"max_background_jobs=3"));
    let buffers = lines
        .iter()
        .filter(|line| **line == "write_buffer_size=1048576");
    // The mandatory column family and one for each map.
    assert_eq!(buffers.count(), 1 + conformance::KEY_VALUE_MAPS.len());
}

#[test]
fn settings_that_contradict_an_options_file_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("OPTIONS");
    std::fs::write(&file, OPTIONS).unwrap();
    let refusal = |change: &dyn Fn(&mut OpenConfig)| {
        let mut config = with_file(root.path(), &file);
        change(&mut config);
        let entry = rumbench_engines::find("rocksdb").unwrap().entry;
        entry.check(&config).unwrap_err().to_string()
    };
    let variant = refusal(&|config| config.variant = Some("zlib".to_string()));
    assert!(
        variant.contains("give the file to plain `rocksdb`"),
        "{variant}"
    );
    let set = |key: &str, value: &str| {
        refusal(&|config| {
            config.settings.insert(key.to_string(), value.to_string());
        })
    };
    let both = set("block_bytes", "4096");
    assert!(
        both.contains("rocksdb.block_bytes cannot be set together"),
        "{both}"
    );
    let cache = set("block_cache", "clock");
    assert!(cache.contains("must be hyperclock or lru"), "{cache}");
}

#[test]
fn one_codec_for_all_levels_is_a_setting_and_reported() {
    let root = tempfile::tempdir().unwrap();
    let open = |variant: Option<&str>, codec: &str| {
        let mut config = config(root.path(), Durability::Buffered);
        config.variant = variant.map(str::to_string);
        let setting = ("compression".to_string(), codec.to_string());
        config.settings.extend([setting]);
        RocksDb::<Plain>::open(&config, conformance::KEY_VALUE_MAPS).map(|engine| engine.facts())
    };
    let facts = open(None, "none").unwrap();
    assert_eq!(
        facts.configuration["compression"],
        "none in all levels (as set)"
    );
    let facts = open(Some("universal"), "zstd").unwrap();
    assert!(facts.configuration["compression"].starts_with("zstd in all levels"));
    let error = open(None, "gzip").map(drop).unwrap_err().to_string();
    assert!(error.contains("none, lz4, snappy, zlib or zstd"), "{error}");
    let error = open(Some("default"), "lz4").map(drop).unwrap_err();
    assert!(
        error.to_string().contains("compresses as the library does"),
        "{error}"
    );
}

#[test]
fn the_compaction_style_is_a_setting_of_every_tuned_variant() {
    let root = tempfile::tempdir().unwrap();
    let style = |variant: Option<&str>, style: Option<&str>| {
        let mut config = config(root.path(), Durability::Buffered);
        config.variant = variant.map(str::to_string);
        let setting = style.map(|style| ("compaction".to_string(), style.to_string()));
        config.settings.extend(setting);
        let engine = RocksDb::<Plain>::open(&config, conformance::KEY_VALUE_MAPS);
        engine.map(|engine| engine.facts().configuration["compaction"].clone())
    };
    assert_eq!(style(None, Some("universal")).unwrap(), "universal");
    assert_eq!(style(Some("universal"), None).unwrap(), "universal");
    assert_eq!(style(Some("zstd"), Some("universal")).unwrap(), "universal");
    assert!(style(None, None).unwrap().starts_with("leveled"));
    assert!(
        style(Some("universal"), Some("leveled"))
            .unwrap()
            .starts_with("leveled")
    );
    let error = style(None, Some("tiered")).unwrap_err().to_string();
    assert!(error.contains("leveled or universal"), "{error}");
    let error = style(Some("myrocks"), Some("universal"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("their own compaction"), "{error}");
}

#[test]
fn rocksdb_with_an_lru_cache_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        let mut config = config(dir, Durability::Buffered);
        config
            .settings
            .insert("block_cache".to_string(), "lru".to_string());
        RocksDb::<Transactional>::open(&config, conformance::KEY_VALUE_MAPS).unwrap()
    });
}
