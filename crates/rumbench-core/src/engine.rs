//! Interface of an engine under test: opening, facts, sizes, counters, settling, closing.
//!
//! Two traits read and write rows: [`crate::linkbench::LinkStore`]
//! for LinkBench, [`crate::tables::TableStore`] for all others. Engines that are ordered maps
//! implement [`crate::kv::KvEngine`] once and get every workload from it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::error::{EngineError, Result};
use crate::kv::MapDef;
use crate::linkbench::kv_store;
use crate::linkbench::store::LinkStore;
use crate::tables::schema::TableSchema;
use crate::tables::store::TableStore;

/// Guarantee of an acknowledged commit. The first is the default of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Handed to the kernel, synced about once a second.
    Buffered,
    /// Synced before the commit returns.
    Sync,
    /// No guarantee.
    None,
}

/// Commits that one engine in one configuration really keeps; part of every result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurabilityFacts {
    /// Commits that survive a killed process, for example "all acknowledged commits".
    pub process_kill: String,
    /// Commits that survive a power cut, for example "a prefix no older than 1 s" or "may corrupt".
    pub power_cut: String,
}

/// Fact of an engine that loses nothing; a durability test checks it.
pub const ALL_ACKNOWLEDGED: &str = "all acknowledged commits";

/// Tables of a database, by workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// Nodes, links, their index and counts.
    LinkBench,
    /// Tables with columns and indexes, or one of keys and values.
    Tables(&'static TableSchema),
}

impl Schema {
    /// Returns the tables as ordered maps.
    pub fn maps(self) -> Vec<MapDef> {
        match self {
            Schema::LinkBench => kv_store::schema().to_vec(),
            Schema::Tables(schema) => schema.maps().to_vec(),
        }
    }

    /// Returns true if its workload begins transactions. Otherwise an engine may be opened in a
    /// form without them, as its users would.
    pub fn has_transactions(self) -> bool {
        match self {
            Schema::LinkBench => true,
            Schema::Tables(schema) => schema.has_transactions(),
        }
    }
}

/// Options for opening an engine for one trial.
#[derive(Debug, Clone)]
pub struct OpenConfig {
    /// The data directory: it exists, and is empty unless the database is opened again.
    pub dir: PathBuf,
    /// The tables.
    pub schema: Schema,
    /// The variant after the colon of the engine's name, if one was given.
    pub variant: Option<String>,
    /// Bytes for the engine's own cache, the same for every engine of a table.
    pub cache_bytes: u64,
    /// The durability class of every commit.
    pub durability: Durability,
    /// Number of clients that will connect.
    pub clients: usize,
    /// `--set ENGINE.KEY=VALUE` settings of this engine. An unknown key is
    /// [`EngineError::Unsupported`].
    pub settings: BTreeMap<String, String>,
}

/// Facts that an engine reports about itself once open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Version of the engine, for example "RocksDB 11.8.1 (crate rocksdb 0.25.0)".
    pub version: String,
    /// Every effective setting that decides performance; the reason of a tuned one follows in
    /// parentheses.
    pub configuration: BTreeMap<String, String>,
    /// Commits that survive a killed process and a power cut.
    pub durability: DurabilityFacts,
}

/// One engine counter on the time axis: cumulative unless its unit says otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Counter {
    /// Name with its unit last, for example `compaction_write_bytes`.
    pub name: String,
    /// Current value.
    pub value: f64,
}

/// A server that was running before the laboratory started and is not managed by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// The first of its processes, if known.
    pub process: Option<u32>,
    /// Reason why its processes cannot be measured.
    pub unseen: Option<String>,
    /// Its data directory, if that is a directory of this machine.
    pub data: Option<PathBuf>,
}

/// A database under test, opened once for a trial and shared by all its phases and clients.
pub trait Engine: Send + Sync {
    /// Returns version, effective configuration and durability facts.
    fn facts(&self) -> EngineFacts;

    /// Returns the tables of LinkBench on this engine, which was opened with [`Schema::LinkBench`].
    fn link_store(&self) -> Result<Arc<dyn LinkStore>>;

    /// Returns the tables of `schema` on this engine, which was opened with it. Engines that are
    /// ordered maps answer with [`crate::tables::kv_table_store`].
    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>>;

    /// Returns the engine's own counters; cheap enough for a call each second.
    fn counters(&self) -> Vec<Counter>;

    /// Works off the engine's backlog (flush, compaction, checkpoint) until a measured end
    /// condition holds, then makes everything durable. It may take long; `progress` is called about
    /// once a second with a text about the remaining work.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()>;

    /// Returns true if a file of the data directory holds data; false for logs that can be deleted
    /// at any time.
    fn is_data_file(&self, file_name: &str) -> bool;

    /// Returns the first process of a server. The process and its children are measured in addition
    /// to the laboratory. `None` for an engine that runs in this process.
    fn server_process(&self) -> Option<u32> {
        None
    }

    /// Kills a server that the laboratory manages, so that no client waits for its answers any
    /// more. Returns true if there was one.
    fn end_server(&self) -> bool {
        false
    }

    /// Returns the last lines of the log of a server that the laboratory manages, as one line.
    fn log_tail(&self) -> Option<String> {
        None
    }

    /// Returns true if other clients may see a commit before it has the durability of its class, so
    /// that a commit may be lost after it was seen and before it is acknowledged.
    fn shows_commits_early(&self) -> bool {
        false
    }

    /// Returns the known facts about a server that the laboratory does not manage. `None` for all
    /// others.
    fn external(&self) -> Option<External> {
        None
    }

    /// Returns the bytes of the tables and their indexes as the engine reports them, if its files
    /// are not in the data directory.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// Ends background work and closes. All connections must be closed before. Every commit is
    /// there when the database is opened again, whatever its durability class and that of the next
    /// opening.
    fn close(self: Box<Self>) -> Result<()>;
}
