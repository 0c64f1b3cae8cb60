//! Store of kv-sequence on any ordered key-value engine: one map; every call is forwarded.

use std::sync::Arc;

use super::store::{Row, RowConnection, RowStore};
use crate::error::Result;
use crate::kv::{BulkRow, KvConnection, KvEngine, MapDef, MapId, Scan};

/// The only map.
const ROWS: MapId = MapId(0);

/// Returns the map of a database for kv-sequence. Every read of this workload finds its key.
pub fn schema() -> [MapDef; 1] {
    [MapDef {
        name: "rows",
        scan_prefix_bytes: None,
        point_reads: true,
        expect_hits: true,
        is_queue: false,
    }]
}

/// kv-sequence's table on an engine that was opened with [`schema`].
pub struct KvRowStore<E: KvEngine>(Arc<E>);

impl<E: KvEngine> KvRowStore<E> {
    /// Creates the store on an open engine.
    pub fn new(engine: Arc<E>) -> KvRowStore<E> {
        KvRowStore(engine)
    }
}

impl<E: KvEngine> RowStore for KvRowStore<E> {
    fn connect(&self) -> Result<Box<dyn RowConnection>> {
        Ok(Box::new(KvRowConnection(self.0.connect()?)))
    }
}

struct KvRowConnection<C>(C);

impl<C: KvConnection> RowConnection for KvRowConnection<C> {
    fn load(&mut self, rows: &[Row<'_>]) -> Result<()> {
        // db_bench loads one row per commit: that form allocates nothing.
        match rows {
            [row] => self.0.bulk_insert(&[bulk_row(row)]),
            _ => self
                .0
                .bulk_insert(&rows.iter().map(bulk_row).collect::<Vec<_>>()),
        }
    }

    fn put(&mut self, row: Row<'_>) -> Result<()> {
        self.0.put(ROWS, row.key, row.value)
    }

    fn get(&mut self, key: &[u8], read: &mut dyn FnMut(Option<&[u8]>)) -> Result<()> {
        self.0.get(ROWS, key, read)
    }

    fn multi_get(
        &mut self,
        keys: &[&[u8]],
        read: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        self.0.multi_get(ROWS, keys, read)
    }

    fn scan(&mut self, scan: Scan<'_>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.scan(ROWS, scan, visit)
    }
}

fn bulk_row<'a>(row: &Row<'a>) -> BulkRow<'a> {
    BulkRow {
        map: ROWS,
        key: row.key,
        value: row.value,
    }
}
