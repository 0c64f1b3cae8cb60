//! The tables of LinkBench on an ordered key-value engine.

use std::sync::Arc;

use rumbench_core::engine::{EngineError, Result};
use rumbench_core::kv::{KvEngine, MapDef};
use rumbench_core::linkbench::LinkStore;

pub(crate) const SCHEMA: &[MapDef] = &[];

pub(crate) fn store<E: KvEngine>(_engine: E) -> Result<Arc<dyn LinkStore>> {
    Err(EngineError::Unsupported("waiting".to_string()))
}
