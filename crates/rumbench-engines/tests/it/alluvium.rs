//! Tests of alluvium: its settings and the conformance suites.

use rumbench_core::engine::{Durability, Engine};
use rumbench_engines::alluvium::Alluvium;
use rumbench_engines::conformance;

use crate::setup::config;

#[test]
fn the_sync_interval_is_a_setting_within_what_buffered_promises() {
    let root = tempfile::tempdir().unwrap();
    let open = |interval: &str| {
        let mut config = config(root.path(), Durability::Buffered);
        let setting = ("sync_interval_ms".to_owned(), interval.to_owned());
        config.settings.extend([setting]);
        Alluvium::open(&config, conformance::KEY_VALUE_MAPS).map(|engine| engine.facts())
    };
    let facts = open("250").unwrap();
    assert_eq!(facts.configuration["sync_interval_ms"], "250");
    for refused in ["0", "1001"] {
        let error = open(refused).map(drop).unwrap_err().to_string();
        assert!(error.contains("between 1 and 1000"), "{error}");
    }
}

#[test]
fn compression_and_the_size_of_blocks_are_settings() {
    let root = tempfile::tempdir().unwrap();
    let open = |key: &str, value: &str| {
        let dir = root.path().join(format!("{key}-{value}"));
        let mut config = config(&dir, Durability::Buffered);
        config.settings.extend([(key.to_owned(), value.to_owned())]);
        Alluvium::open(&config, conformance::KEY_VALUE_MAPS)
            .map(|engine| engine.facts().configuration)
    };
    assert_eq!(open("compression", "none").unwrap()["compression"], "none");
    assert_eq!(
        open("block_bytes", "16384").unwrap()["block_bytes"],
        "16384"
    );
    for (key, value, said) in [
        ("compression", "zstd", "adaptive, lz4 or none"),
        ("block_bytes", "100", "between 1024 and 65536"),
    ] {
        let error = open(key, value).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn alluvium_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        Alluvium::open(
            &config(dir, Durability::Buffered),
            conformance::KEY_VALUE_MAPS,
        )
        .unwrap()
    });
}
