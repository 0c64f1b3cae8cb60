//! Parts of an open database that every pipeline uses: commits, flushes, compactions and readers.
//!
//! No part here knows a pipeline. Each pipeline receives the core and the few other parts that it
//! needs, as its *environment*: `CommitEnv`, `FlushEnv`, `CompactionEnv`.

use crate::sync::collections::HashMap;
use std::sync::Arc;

use crate::sync::plain::RwLock;

use crate::base::KeyspaceId;
use crate::clock::ReadClock;
use crate::compaction::dictionaries::Dictionaries;
use crate::db::access::Access;
use crate::db::backlog::Backlog;
use crate::db::files::Files;
use crate::db::memory::{Memory, MemoryPlan};
use crate::db::options::{Durability, Options};
use crate::db::poison::Poison;
use crate::error::{Error, Result};
use crate::event::{Event, Events};
use crate::keyspace::tree::Tree;
use crate::metrics::Metrics;
use crate::read_points::ReadPoints;

/// Common parts of an open database, see the module.
pub(crate) struct Core {
    pub options: Options,
    pub access: Access,
    pub files: Files,
    pub memory: Memory,
    pub read_points: Arc<ReadPoints>,
    /// Dictionaries for the next tables.
    pub dictionaries: Dictionaries,
    /// Decides which rows have expired.
    pub clock: Arc<ReadClock>,
    /// Guards the open keyspaces by name. Never held across I/O.
    pub catalog: RwLock<HashMap<String, Arc<Tree>>>,
    pub backlog: Backlog,
    pub poison: Poison,
    pub events: Arc<Events>,
    pub metrics: Metrics,
}

impl Core {
    /// Returns the current shares of the memory budget.
    pub fn plan(&self) -> MemoryPlan {
        self.memory.plan()
    }

    /// Returns all keyspaces.
    pub fn trees(&self) -> Vec<Arc<Tree>> {
        self.catalog.read().values().cloned().collect()
    }

    /// Returns true if any row is only in memory.
    pub fn has_memtables(&self) -> bool {
        let catalog = self.catalog.read();
        let has_rows = |tree: &Arc<Tree>| tree.load().has_memtable_rows();
        catalog.values().any(has_rows)
    }

    /// Returns a keyspace's name for messages.
    pub fn keyspace_name(&self, id: KeyspaceId) -> String {
        let catalog = self.catalog.read();
        catalog
            .values()
            .find(|t| t.id == id)
            .map_or_else(|| id.to_string(), |t| t.name.clone())
    }

    /// Returns the durability of a commit that asks for this level, if the database supports it.
    pub fn durability(&self, asked: Option<Durability>) -> Result<Durability> {
        let own = self.options.durability;
        let durability = asked.unwrap_or(own);
        if (durability == Durability::None) != (own == Durability::None) {
            let message = "durability none is chosen for a whole database, at its opening";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(durability)
    }

    /// Makes the names in the database directory durable, see [`Files::sync_directory`].
    pub fn sync_directory(&self) -> Result<()> {
        self.files.sync_directory(&self.poison)
    }

    /// Poisons the database after a panic of the engine: half-finished changes cannot be trusted.
    pub fn poison_after_panic(&self) -> Error {
        let message = "the engine panicked; see the panic's own message";
        self.poison.set(Error::Internal(message.into()))
    }

    /// Delays the caller as admission control requires, before (or after) its commit and never
    /// under a lock.
    pub fn pay_for(&self, bytes: usize) {
        let waited = self.backlog.admission.admit(bytes as u64);
        if !waited.is_zero() {
            self.metrics.delayed_commits.add(1);
            self.metrics.delay_us.add(waited.as_micros() as u64);
        }
    }

    /// Reports the backlog to admission control. Cheap: it runs under the log's mutex whenever
    /// memtables are sealed.
    pub fn update_admission(&self) {
        self.backlog.update(&self.plan());
        let delays = self.backlog.admission.rate().is_finite();
        self.events.delaying(delays);
    }

    /// Makes resting cursors release everything that the newest change of the tree has replaced.
    /// Called without locks, because it may remove files.
    pub fn release_cursors(&self, tree: &Tree) {
        self.metrics.cursors_released.add(tree.cursors.release());
    }

    /// Reports background work that failed without a change and will be tried again.
    pub fn tell_failure(&self, error: &Error) {
        self.events.tell(|| Event::BackgroundFailure {
            error: error.clone(),
        });
    }
}
