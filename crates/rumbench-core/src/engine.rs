//! What the laboratory asks of any engine under test: opening, facts, sizes, counters, settling, closing.
//!
//! How rows are read and written is a trait of the workload ([`crate::linkbench::LinkStore`],
//! [`crate::kv_sequence::RowStore`], [`crate::tables::TableStore`] for all others); engines that are ordered maps implement
//! [`crate::kv::KvEngine`] once and get every workload from it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::kv::MapDef;
use crate::kv_sequence::{self, RowStore};
use crate::linkbench::{self, LinkStore};
use crate::tables::{TableSchema, TableStore};

/// The result of every engine call.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Why an engine call failed, in the terms that a client acts on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A conflict, deadlock or lock timeout: roll back and run the whole transaction again.
    #[error("conflict, retry the transaction: {0}")]
    Retry(String),
    /// The engine, variant or setting does not exist or cannot be had in this build.
    #[error("{0}")]
    Unsupported(String),
    /// The engine answered something that cannot be right. A wrong answer is never a number.
    #[error("wrong answer: {0}")]
    Wrong(String),
    /// Anything else, in the engine's own words.
    #[error("{context}: {source}")]
    Failed {
        /// What was attempted, naming engine and file.
        context: String,
        /// The engine's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl EngineError {
    /// An [`EngineError::Failed`] with the engine's own error as its source.
    pub fn failed(
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> EngineError {
        EngineError::Failed {
            context: context.into(),
            source: source.into(),
        }
    }
}

/// What an acknowledged commit means. The first is the default of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Handed to the kernel, synced about each second.
    Buffered,
    /// Synced before the commit returns.
    Sync,
    /// No promise.
    None,
}

/// What one engine in one configuration really keeps, part of every result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurabilityFacts {
    /// What survives a killed process, for example "all acknowledged commits".
    pub process_kill: String,
    /// What survives a power cut, for example "a prefix no older than 1 s" or "may corrupt".
    pub power_cut: String,
}

/// The fact of an engine that loses nothing; a durability test holds it to these words.
pub const ALL_ACKNOWLEDGED: &str = "all acknowledged commits";

/// Which workload's tables a database holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// Nodes, links, their index and counts.
    LinkBench,
    /// One table of keys and values.
    KvSequence,
    /// Tables with columns and indexes.
    Tables(&'static TableSchema),
}

impl Schema {
    /// The tables as ordered maps.
    pub fn maps(self) -> Vec<MapDef> {
        match self {
            Schema::LinkBench => linkbench::kv_store::schema().to_vec(),
            Schema::KvSequence => kv_sequence::kv_store::schema().to_vec(),
            Schema::Tables(schema) => schema.maps().to_vec(),
        }
    }

    /// Whether its workload begins transactions. Without them an engine may be opened in a form that has none, as its
    /// users would.
    pub fn has_transactions(self) -> bool {
        match self {
            Schema::LinkBench => true,
            Schema::KvSequence => false,
            Schema::Tables(schema) => schema.has_transactions(),
        }
    }
}

/// How to open an engine for one trial.
#[derive(Debug, Clone)]
pub struct OpenConfig {
    /// The data directory: exists, and is empty unless the database is being opened again.
    pub dir: PathBuf,
    /// The tables.
    pub schema: Schema,
    /// The variant after the colon of the engine's name, if one was given.
    pub variant: Option<String>,
    /// Bytes for the engine's own cache, the same for every engine of a table.
    pub cache_bytes: u64,
    /// The durability class of every commit.
    pub durability: Durability,
    /// How many clients will connect.
    pub clients: usize,
    /// `--set ENGINE.KEY=VALUE` settings of this engine. An unknown key is [`EngineError::Unsupported`].
    pub settings: BTreeMap<String, String>,
}

/// What an engine says of itself once open.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Version of the engine, for example "RocksDB 11.8.1 (crate rocksdb 0.25.0)".
    pub version: String,
    /// Every effective setting that decides performance, with the reason in parentheses where it is tuned.
    pub configuration: BTreeMap<String, String>,
    /// What survives what.
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

/// A server that was running before the laboratory came, and is not its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// The first of its processes, where it can be known.
    pub process: Option<u32>,
    /// Why its processes cannot be measured, in words.
    pub unseen: Option<String>,
    /// Its data folder, where that is a folder of this machine.
    pub data: Option<PathBuf>,
}

/// A database under test. Opened once for a trial and shared by all its phases and clients.
pub trait Engine: Send + Sync {
    /// Version, effective configuration and durability facts.
    fn facts(&self) -> EngineFacts;

    /// The tables of LinkBench on this engine, which was opened with [`Schema::LinkBench`].
    fn link_store(&self) -> Result<Arc<dyn LinkStore>>;

    /// The table of kv-sequence on this engine, which was opened with [`Schema::KvSequence`].
    fn row_store(&self) -> Result<Arc<dyn RowStore>>;

    /// The tables of `schema` on this engine, which was opened with it. Engines that are ordered maps answer with
    /// [`crate::tables::kv_table_store`].
    fn table_store(&self, schema: &'static TableSchema) -> Result<Arc<dyn TableStore>>;

    /// The engine's own counters, cheap enough to be asked each second.
    fn counters(&self) -> Vec<Counter>;

    /// Pays the engine's debt (flush, compaction, checkpoint) until a measured end condition holds, then makes
    /// everything durable. May take long; `progress` is called about each second with what is left, in words.
    fn settle(&self, progress: &mut dyn FnMut(&str)) -> Result<()>;

    /// Whether a file of the data directory holds data, as opposed to logs that can go at any time.
    fn is_data_file(&self, file_name: &str) -> bool;

    /// The first process of a server: it and those that it started are measured beside the laboratory. `None` for an
    /// engine that runs in this process.
    fn server_process(&self) -> Option<u32> {
        None
    }

    /// Kills a server that is the laboratory's own, so that nobody waits for its answers any more. Whether there was one.
    fn end_server(&self) -> bool {
        false
    }

    /// The last lines of the log of a server that is the laboratory's own, in one.
    fn log_tail(&self) -> Option<String> {
        None
    }

    /// Whether other clients may see a commit before what its class promises holds of it, so that one that was seen, and
    /// not acknowledged yet, may be lost.
    fn shows_commits_early(&self) -> bool {
        false
    }

    /// What is known of a server that is not the laboratory's own. `None` for all others.
    fn external(&self) -> Option<External> {
        None
    }

    /// Bytes of the tables and their indexes by the engine's own account, where its files are not in the data directory.
    fn stored_bytes(&self) -> Option<u64> {
        None
    }

    /// Ends background work and closes. All connections must be gone. Every commit is there when the database is opened again,
    /// whatever its durability class and that of the next opening.
    fn close(self: Box<Self>) -> Result<()>;
}
