//! Null engine: a trial on it measures the cost of the client alone.
//!
//! Every operation returns at once with the answer of a healthy database. Its arguments pass
//! through [`black_box`], so that the compiler cannot optimize their construction away. No rows are
//! stored: reads for checks find nothing, and every other read of a table finds the first row of
//! the load. Rows are counted, so that the totals of a load are correct.
//!
//! Settings `stall_every_s` and `stall_s` script a stall: each `stall_every_s` seconds after
//! opening, the engine stops for `stall_s` seconds. An operation that starts inside this window
//! returns at its end. A laboratory that measures from the intended start must show exactly these
//! stalls. `service_us` is the minimum duration of every call, spent asleep. It gives an engine
//! with a known highest rate, clients / `service_us`. With `fail_after_calls`, every call after
//! this number fails, as on a device that has died.

mod delays;
mod state;
mod tables;

use std::hint::black_box;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use rumbench_core::engine::{Counter, Engine, EngineFacts, OpenConfig, Result};
use rumbench_core::linkbench::{
    Count, Link, LinkConnection, LinkKey, LinkStore, ListQuery, ListResult, Node, TableTotals,
    WriteOutcome,
};
use rumbench_core::tables::{TableSchema, TableStore};

use crate::adapter::Adapter;
use crate::facts::survives;
use delays::Delays;
use state::{Shared, Totals};
use tables::NullTables;

/// Entry of this engine in the registry. No variants; settings `stall_every_s`, `stall_s`,
/// `service_us` and `fail_after_calls`.
pub(crate) const ADAPTER: Adapter = Adapter { check, open };

fn check(config: &OpenConfig) -> Result<()> {
    Delays::of(config).map(drop)
}

fn open(config: &OpenConfig) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Null::open(config)?))
}

/// Open null engine.
pub struct Null(Arc<Shared>);

impl Null {
    /// Opens the engine; `config.dir` is not touched.
    ///
    /// # Errors
    /// [`rumbench_core::engine::EngineError::Unsupported`] for a variant, an unknown setting or
    /// stalls that leave no time between them.
    pub fn open(config: &OpenConfig) -> Result<Null> {
        Ok(Null(Arc::new(Shared {
            delays: Delays::of(config)?,
            totals: Totals::default(),
            tables: OnceLock::new(),
        })))
    }
}

impl Engine for Null {
    fn facts(&self) -> EngineFacts {
        EngineFacts {
            version: format!("null {}", env!("CARGO_PKG_VERSION")),
            configuration: self.0.delays.configuration().to_map(),
            durability: survives("nothing", "nothing"),
        }
    }

    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(NullStore(self.0.clone())))
    }

    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        Ok(Arc::new(NullTables::new(self.0.clone(), schema)))
    }

    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    fn settle(&self, _progress: &mut dyn FnMut(&str)) -> Result<()> {
        Ok(())
    }

    fn is_data_file(&self, _file_name: &str) -> bool {
        false
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// LinkBench store without rows.
struct NullStore(Arc<Shared>);

impl LinkStore for NullStore {
    fn connect(&self) -> Result<Box<dyn LinkConnection>> {
        Ok(Box::new(NullConnection(self.0.clone())))
    }

    fn keeps_rows(&self) -> bool {
        false
    }
}

struct NullConnection(Arc<Shared>);

impl LinkConnection for NullConnection {
    fn load_nodes(&mut self, nodes: &[Node<'_>]) -> Result<()> {
        self.0.delays.start()?;
        let nodes = black_box(nodes);
        let totals = &self.0.totals;
        totals
            .nodes
            .fetch_add(nodes.len() as u64, Ordering::Relaxed);
        let next = nodes.iter().map(|node| node.id + 1).max().unwrap_or(0);
        totals.next_node_id.fetch_max(next, Ordering::Relaxed);
        Ok(())
    }

    fn load_links(&mut self, links: &[Link<'_>]) -> Result<()> {
        self.0.delays.start()?;
        let rows = black_box(links).len() as u64;
        self.0.totals.links.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    fn load_counts(&mut self, counts: &[Count]) -> Result<()> {
        self.0.delays.start()?;
        let rows = black_box(counts).len() as u64;
        self.0.totals.counts.fetch_add(rows, Ordering::Relaxed);
        Ok(())
    }

    fn add_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.0.delays.start()?;
        black_box(link);
        self.0.totals.links.fetch_add(1, Ordering::Relaxed);
        Ok(WriteOutcome::Inserted)
    }

    fn update_link(&mut self, link: &Link<'_>) -> Result<WriteOutcome> {
        self.0.delays.start()?;
        black_box(link);
        Ok(WriteOutcome::Changed)
    }

    fn delete_link(&mut self, key: LinkKey, time: u64, expunge: bool) -> Result<WriteOutcome> {
        self.0.delays.start()?;
        black_box((key, time, expunge));
        Ok(WriteOutcome::Nothing)
    }

    fn count_links(&mut self, id1: u64, link_type: u64) -> Result<u64> {
        self.0.delays.start()?;
        black_box((id1, link_type));
        Ok(1)
    }

    fn multiget_links(&mut self, id1: u64, link_type: u64, id2s: &[u64]) -> Result<u64> {
        self.0.delays.start()?;
        let (_, _, id2s) = black_box((id1, link_type, id2s));
        // Half of the ids that LinkBench asks for exist.
        Ok(id2s.len() as u64 / 2)
    }

    fn list_links(&mut self, query: &ListQuery) -> Result<ListResult> {
        self.0.delays.start()?;
        let query = black_box(query);
        // Most lists of LinkBench hold one link.
        let rows = u64::from(query.limit > 0 && query.offset == 0);
        let last = (rows == 1).then_some((query.time_min, query.id1));
        Ok(ListResult { rows, last })
    }

    fn add_node(&mut self, node: &Node<'_>) -> Result<u64> {
        self.0.delays.start()?;
        black_box(node);
        self.0.totals.nodes.fetch_add(1, Ordering::Relaxed);
        Ok(self.0.totals.next_node_id.fetch_add(1, Ordering::Relaxed))
    }

    fn update_node(&mut self, node: &Node<'_>) -> Result<bool> {
        self.0.delays.start()?;
        black_box(node);
        Ok(true)
    }

    fn delete_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        self.0.delays.start()?;
        black_box((id, node_type));
        Ok(false)
    }

    fn get_node(&mut self, id: u64, node_type: u32) -> Result<bool> {
        self.0.delays.start()?;
        black_box((id, node_type));
        Ok(true)
    }

    fn read_link(&mut self, key: LinkKey) -> Result<Option<(u8, u64, u32, Vec<u8>)>> {
        black_box(key);
        Ok(None)
    }

    fn read_node(&mut self, id: u64) -> Result<Option<(u32, u64, u32, Vec<u8>)>> {
        black_box(id);
        Ok(None)
    }

    fn read_count(&mut self, id: u64, link_type: u64) -> Result<Option<Count>> {
        black_box((id, link_type));
        Ok(None)
    }

    fn check(&mut self) -> Result<TableTotals> {
        let totals = &self.0.totals;
        let links = totals.links.load(Ordering::Relaxed);
        Ok(TableTotals {
            nodes: totals.nodes.load(Ordering::Relaxed),
            links,
            visible_links: links,
            counts: totals.counts.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_call_takes_as_long_as_it_is_told_to() {
        let with = |text: &str| OpenConfig {
            dir: std::path::PathBuf::new(),
            schema: rumbench_core::engine::Schema::LinkBench,
            variant: None,
            cache_bytes: 0,
            durability: rumbench_core::engine::Durability::None,
            clients: 1,
            settings: [("service_us".to_string(), text.to_string())].into(),
        };
        let engine = Null::open(&with("2000")).unwrap();
        assert_eq!(engine.facts().configuration["service_us"], "2000");
        let mut connection = engine.link_store().unwrap().connect().unwrap();
        let start = Instant::now();
        connection.get_node(1, 1).unwrap();
        // A sleep is never shorter than requested.
        assert!(start.elapsed() >= Duration::from_micros(2000));
        assert!(Null::open(&with("-1")).is_err());
    }
}
