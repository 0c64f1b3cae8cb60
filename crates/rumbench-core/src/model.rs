//! In-memory engine for tests: ordered maps under one lock, transactions one after another.
//!
//! It is strict where engines may be lenient: inserting a key that exists is a wrong answer. It can
//! refuse every n-th commit to exercise retries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::{Counter, DurabilityFacts, Engine, EngineFacts};
use crate::error::{EngineError, Result};
use crate::kv::{BulkRow, Direction, KvConnection, KvEngine, KvTxn, MapId, Scan};
use crate::linkbench::{KvLinkStore, LinkStore};
use crate::tables::{TableSchema, TableStore, kv_table_store};

/// Number of maps: enough for three tables with three indexes each.
const MAPS: usize = 16;

type Maps = Vec<BTreeMap<Vec<u8>, Vec<u8>>>;

#[derive(Debug)]
struct Shared {
    maps: Mutex<Maps>,
    conflict_every: u64,
    commits: AtomicU64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Maps> {
        // A transaction that panicked has rolled back before its lock was released.
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In-memory engine. Clones share the data.
#[derive(Debug, Clone)]
pub struct ModelEngine {
    shared: Arc<Shared>,
}

impl ModelEngine {
    /// Creates an empty engine with more maps than a workload's tests need. Every
    /// `conflict_every`-th commit is refused; with 0 none is.
    pub fn new(conflict_every: u64) -> ModelEngine {
        ModelEngine {
            shared: Arc::new(Shared {
                maps: Mutex::new(vec![BTreeMap::new(); MAPS]),
                conflict_every,
                commits: AtomicU64::new(0),
            }),
        }
    }

    /// Returns LinkBench's tables on this engine.
    pub fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        Ok(Arc::new(KvLinkStore::new(Arc::new(self.clone()))?))
    }

    /// Returns all rows of one map, for comparing two databases.
    pub fn rows(&self, map: MapId) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.shared.lock()[map.0].clone()
    }

    /// Changes rows without the knowledge of the workload, for tests of its checks.
    pub fn tamper(&self, map: MapId, change: impl FnOnce(&mut BTreeMap<Vec<u8>, Vec<u8>>)) {
        change(&mut self.shared.lock()[map.0]);
    }
}

impl KvEngine for ModelEngine {
    type Connection = ModelConnection;

    fn connect(&self) -> Result<ModelConnection> {
        Ok(ModelConnection {
            shared: Arc::clone(&self.shared),
        })
    }
}

/// One client's connection to the model.
#[derive(Debug)]
pub struct ModelConnection {
    shared: Arc<Shared>,
}

impl KvConnection for ModelConnection {
    type Txn<'a> = ModelTxn<'a>;

    fn get<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        Ok(read(self.shared.lock()[map.0].get(key).map(Vec::as_slice)))
    }

    fn scan(
        &mut self,
        map: MapId,
        scan: Scan<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let maps = self.shared.lock();
        let range = maps[map.0].range(scan.start.to_vec()..scan.end.to_vec());
        let mut visit = |(key, value): (&Vec<u8>, &Vec<u8>)| visit(key, value);
        match scan.direction {
            Direction::Forward => range.take(scan.limit).all(&mut visit),
            Direction::Reverse => range.rev().take(scan.limit).all(&mut visit),
        };
        Ok(())
    }

    fn begin(&mut self) -> Result<ModelTxn<'_>> {
        Ok(ModelTxn {
            maps: self.shared.lock(),
            shared: &self.shared,
            undo: Vec::new(),
        })
    }

    fn bulk_insert(&mut self, rows: &[BulkRow<'_>]) -> Result<()> {
        let mut maps = self.shared.lock();
        let mut keys = BTreeSet::new();
        for row in rows {
            if maps[row.map.0].contains_key(row.key) || !keys.insert((row.map.0, row.key)) {
                return Err(EngineError::Wrong(format!(
                    "loaded twice: {:?} {:02x?}",
                    row.map, row.key
                )));
            }
        }
        for row in rows {
            maps[row.map.0].insert(row.key.to_vec(), row.value.to_vec());
        }
        Ok(())
    }
}

/// A transaction of the model: it holds the lock and keeps an undo list.
#[derive(Debug)]
pub struct ModelTxn<'a> {
    maps: MutexGuard<'a, Maps>,
    shared: &'a Shared,
    undo: Vec<(MapId, Vec<u8>, Option<Vec<u8>>)>,
}

impl KvTxn for ModelTxn<'_> {
    fn get_for_update<R>(
        &mut self,
        map: MapId,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R> {
        Ok(read(self.maps[map.0].get(key).map(Vec::as_slice)))
    }

    fn insert(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        if self.maps[map.0].contains_key(key) {
            return Err(EngineError::Wrong(format!(
                "inserted twice: {map:?} {key:02x?}"
            )));
        }
        self.put(map, key, value)
    }

    fn put(&mut self, map: MapId, key: &[u8], value: &[u8]) -> Result<()> {
        let old = self.maps[map.0].insert(key.to_vec(), value.to_vec());
        self.undo.push((map, key.to_vec(), old));
        Ok(())
    }

    fn delete(&mut self, map: MapId, key: &[u8]) -> Result<()> {
        let old = self.maps[map.0].remove(key);
        self.undo.push((map, key.to_vec(), old));
        Ok(())
    }

    fn commit(mut self) -> Result<()> {
        let commit = self.shared.commits.fetch_add(1, Ordering::Relaxed) + 1;
        let every = self.shared.conflict_every;
        if every > 0 && commit.is_multiple_of(every) {
            return Err(EngineError::Retry(format!("commit {commit} is refused")));
        }
        self.undo.clear();
        Ok(())
    }
}

impl Drop for ModelTxn<'_> {
    fn drop(&mut self) {
        while let Some((map, key, old)) = self.undo.pop() {
            match old {
                Some(value) => self.maps[map.0].insert(key, value),
                None => self.maps[map.0].remove(&key),
            };
        }
    }
}

impl Engine for ModelEngine {
    fn facts(&self) -> EngineFacts {
        EngineFacts {
            version: "model".to_owned(),
            configuration: BTreeMap::new(),
            durability: DurabilityFacts {
                process_kill: "nothing".to_owned(),
                power_cut: "nothing".to_owned(),
            },
        }
    }

    fn link_store(&self) -> Result<Arc<dyn LinkStore>> {
        ModelEngine::link_store(self)
    }

    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>> {
        kv_table_store(self.clone(), schema)
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
