//! Configuration of the engines under test.

use std::collections::BTreeMap;
use std::path::Path;

use rumbench_core::engine::{Durability, OpenConfig, Schema};

/// Returns the configuration of a small engine in `dir`.
pub fn config(dir: &Path, durability: Durability) -> OpenConfig {
    OpenConfig {
        dir: dir.to_path_buf(),
        schema: Schema::LinkBench,
        variant: None,
        cache_bytes: 32 << 20,
        durability,
        clients: 4,
        settings: BTreeMap::new(),
    }
}
