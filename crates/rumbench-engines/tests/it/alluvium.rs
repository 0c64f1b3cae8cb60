//! alluvium against the suites.

use rumbench_core::engine::Durability;
use rumbench_engines::alluvium::Alluvium;
use rumbench_engines::conformance;

use crate::setup::config;

#[test]
fn alluvium_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        Alluvium::open(&config(dir, Durability::Buffered), conformance::SCHEMA).unwrap()
    });
}
