//! State shared by all stores and connections.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use rumbench_core::engine::EngineFacts;
use rusqlite::Connection;

use super::tuning::Tuning;
use crate::periodic::Periodic;

/// Open database.
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) tuning: Tuning,
    pub(super) facts: EngineFacts,
    /// Guards no data: its holder is the only writer. Taken before any lock of SQLite.
    pub(super) writer: Mutex<()>,
    /// The laboratory's own connection. It also keeps the log file while clients connect and
    /// disconnect.
    pub(super) own: Mutex<Connection>,
    pub(super) syncer: Mutex<Option<Periodic>>,
    /// Id of the next node that a request adds, counted in the process as for the key-value
    /// engines.
    pub(super) next_node: AtomicU64,
}
