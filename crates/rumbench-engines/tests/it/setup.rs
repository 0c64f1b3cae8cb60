//! How the tests open engines.

use std::collections::BTreeMap;
use std::path::Path;

use rumbench_core::engine::{Durability, OpenConfig, Schema};

/// A small engine in `dir`.
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
