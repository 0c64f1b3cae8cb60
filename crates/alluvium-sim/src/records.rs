//! Records of a run that outlive an incarnation: the oracle, other facts about the database, and
//! counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::{KeyspaceOptions, Options};

use crate::history::History;
use crate::state::State;
use crate::time::{MachineClock, Watch};

/// State that outlives an incarnation. None of its locks is held over a step.
#[derive(Default)]
pub struct Records {
    history: Mutex<History>,
    outside: Mutex<Outside>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// Clock of the machine.
    pub clock: Arc<MachineClock>,
}

/// Facts about a database other than its rows.
#[derive(Debug, Default)]
pub struct Outside {
    /// Ids of the lasting keyspaces, once they were opened.
    pub lasting: Vec<u32>,
    /// Passing keyspaces by id.
    pub passing: BTreeMap<u32, Passing>,
    /// Transactions that clients tried to prepare, by tag.
    pub prepared: BTreeMap<u64, Prepared>,
    /// Backups by id.
    pub backups: BTreeMap<u64, Backup>,
    /// True once a client has tried to create a backup: one may exist without an acknowledgment.
    pub backup_tried: bool,
    /// Next change of each client's stream, by client number.
    pub positions: BTreeMap<usize, u64>,
    /// Options of keyspaces that clients have changed, by id.
    pub settings: BTreeMap<u32, Settings>,
}

/// Options of a keyspace.
#[derive(Debug, Default)]
pub struct Settings {
    /// Options that the keyspace may have.
    pub possible: Vec<KeyspaceOptions>,
    /// Number of changes in progress.
    pub running: u64,
    /// True if the newest change began while another was in progress.
    pub crowded: bool,
}

/// State of a keyspace that was created.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passing {
    /// True once a client has tried to drop it.
    pub drop_tried: bool,
    /// True once a drop was acknowledged.
    pub dropped: bool,
}

/// State of a transaction that a client tried to prepare.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prepared {
    /// True once the prepare was acknowledged.
    pub done: bool,
    /// True once a client has tried to roll it back.
    pub rollback_tried: bool,
}

/// State of a backup.
#[derive(Debug, Clone)]
pub struct Backup {
    /// Number of the commit that it holds.
    pub seqno: u64,
    /// State after that commit; `None` if it is not known for certain.
    pub state: Option<Arc<State>>,
    /// True once a client has tried to delete it.
    pub delete_tried: bool,
}

/// Result of a check; the error describes a failure of the engine.
pub type Checked<T> = Result<T, String>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Records {
    /// Locks the history.
    pub fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// Counts an event that a good simulation causes now and then.
    pub fn count(&self, what: &'static str, times: u64) {
        *lock(&self.counts).entry(what).or_default() += times;
    }

    /// Returns the count of each event.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.counts).clone()
    }

    /// Returns options for another database next to this one, with its own watch and without a
    /// listener.
    pub fn watched(&self, options: &Options) -> (Options, Arc<Watch>) {
        self.watched_from(options, None)
    }

    /// Does the same for a database that has recorded this time.
    pub fn watched_from(
        &self,
        options: &Options,
        recorded_ms: Option<u64>,
    ) -> (Options, Arc<Watch>) {
        let watch = Watch::new(&self.clock, recorded_ms);
        let options = Options {
            clock: watch.clock(),
            event_listener: None,
            ..options.clone()
        };
        (options, watch)
    }

    /// Locks the facts other than rows.
    pub fn outside(&self) -> MutexGuard<'_, Outside> {
        lock(&self.outside)
    }
}
