//! Conformance tests of fjall.

use rumbench_core::engine::Durability;
use rumbench_engines::conformance;
use rumbench_engines::fjall::Fjall;

use crate::setup::config;

#[test]
fn fjall_behaves_as_an_ordered_map() {
    let root = tempfile::tempdir().unwrap();
    conformance::key_value(root.path(), &|dir| {
        Fjall::open(
            &config(dir, Durability::Buffered),
            conformance::KEY_VALUE_MAPS,
        )
        .unwrap()
    });
}
