//! State of the engine while it is open: counts, and the first row of each table.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use rumbench_core::tables::RowBatch;

use super::delays::Delays;

/// State shared by all stores and connections.
pub(super) struct Shared {
    pub(super) delays: Delays,
    pub(super) totals: Totals,
    /// Tables of the schema.
    pub(super) tables: OnceLock<Vec<NullTable>>,
}

/// Row counts of a real database after the same operations.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) nodes: AtomicU64,
    pub(super) links: AtomicU64,
    pub(super) counts: AtomicU64,
    pub(super) next_node_id: AtomicU64,
}

/// State of a table while the engine is open.
#[derive(Default)]
pub(super) struct NullTable {
    pub(super) rows: AtomicU64,
    /// The client reads as many bytes as from a real engine.
    pub(super) first: OnceLock<RowBatch>,
}
