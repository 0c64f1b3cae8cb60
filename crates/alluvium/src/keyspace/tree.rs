//! Tree: data of one keyspace, shared by its handles, cursors and background jobs.
//!
//! Readers load the [`TreeState`] after they register their read point (see `read_points`), so it
//! holds everything at or below that point. The commit leader (which seals), flushes and
//! compactions publish changed states.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::plain::Mutex;
use arc_swap::ArcSwap;

use crate::base::KeyspaceId;
use crate::clock::ReadClock;
use crate::compaction::retire::{CompactionFilter, Retire};
use crate::error::{Error, Result};
use crate::keyspace::dead::DeadSpace;
use crate::keyspace::memtable::TreeMemtable;
use crate::keyspace::memtable_maker::MemtableMaker;
use crate::keyspace::options::KeyspaceOptions;
use crate::keyspace::published::Published;
use crate::keyspace::resting::OpenCursors;
use crate::keyspace::state::TreeState;
use crate::memory::{MemoryBudget, Use};
use crate::metrics::TreeCounters;
use crate::table::ValueFiles;
use crate::version::group::Version;

/// Data of one keyspace, shared by its handles, cursors and background jobs.
pub(crate) struct Tree {
    pub id: KeyspaceId,
    pub name: String,
    /// Replaced as a whole by a change of options. Memtables and tables built under the old options
    /// record the keys that their filters cover.
    options: ArcSwap<KeyspaceOptions>,
    /// True if stored values end with an expiry time. Never changes, because it determines how
    /// values are decoded.
    pub stores_expiry: bool,
    pub counters: Arc<TreeCounters>,
    /// Memtables and tables.
    published: Published,
    memtables: MemtableMaker,
    /// Set once, when the keyspace is dropped. Read before every operation; the leader catches
    /// stale reads.
    dropped: AtomicBool,
    /// Open cursors; each is asked to release a replaced state.
    pub cursors: OpenCursors,
    /// Key ranges in which readers met only deleted rows.
    pub dead: DeadSpace,
    /// Compaction filter. The mutex guards nothing else and is taken without any other lock.
    filter: Mutex<Option<Arc<dyn CompactionFilter>>>,
}

/// Memory of a keyspace without rows and tables: this tree and its entries in the lists of
/// keyspaces and the state of the manifest. Measured by `examples/many_keyspaces`.
const OVERHEAD_BYTES: usize = 1792;

impl Drop for Tree {
    fn drop(&mut self) {
        let budget = self.memtables.budget();
        budget.subtract(Use::Tables, OVERHEAD_BYTES);
    }
}

impl Tree {
    pub fn new(
        id: KeyspaceId,
        name: &str,
        options: KeyspaceOptions,
        version: Version,
        memtable_bytes: usize,
        budget: &Arc<MemoryBudget>,
    ) -> Tree {
        budget.add(Use::Tables, OVERHEAD_BYTES);
        let state = TreeState {
            active: None,
            sealed: Vec::new(),
            version: Arc::new(version),
            counters: Arc::default(),
        };
        Tree {
            counters: Arc::clone(&state.counters),
            id,
            name: name.to_owned(),
            stores_expiry: options.expiry.is_stored(),
            options: ArcSwap::from_pointee(options),
            published: Published::new(state),
            memtables: MemtableMaker::new(memtable_bytes, budget),
            dropped: AtomicBool::new(false),
            cursors: OpenCursors::default(),
            dead: DeadSpace::new(budget),
            filter: Mutex::new(None),
        }
    }

    /// Returns the options for everything built from now on, for the duration of one call.
    pub fn options(&self) -> arc_swap::Guard<Arc<KeyspaceOptions>> {
        self.options.load()
    }

    /// Changes the options. The manifest already has them.
    pub fn set_options(&self, options: KeyspaceOptions) {
        self.options.store(Arc::new(options));
    }

    /// Sets the expected maximum size of new memtables.
    pub fn set_memtable_bytes(&self, bytes: usize) {
        self.memtables.set_max_bytes(bytes);
    }

    /// Returns the current state, for the duration of one call.
    pub fn load(&self) -> arc_swap::Guard<Arc<TreeState>> {
        self.published.load()
    }

    /// Returns the current state, to keep.
    pub fn load_full(&self) -> Arc<TreeState> {
        self.published.load_full()
    }

    /// Returns a number that increases whenever cursors must load the state anew.
    pub fn publications(&self) -> u64 {
        self.published.count()
    }

    pub fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Returns an error if the keyspace was dropped. Called after loading a state, it proves that
    /// the state was not the empty one of a dropped keyspace: the mark is set before that state is
    /// published.
    pub fn check(&self) -> Result<()> {
        if self.is_dropped() {
            return Err(Error::KeyspaceDropped(self.name.clone()));
        }
        Ok(())
    }

    pub fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Returns the expiry cutoff and compaction filter for a compaction that starts now.
    pub fn retire(&self, clock: &ReadClock, values: &ValueFiles) -> Retire {
        let expires = self.stores_expiry;
        let expired_for_all = expires.then(|| clock.expired_for_all());
        let filter = self.filter.lock().clone();
        Retire::new(&self.name, expired_for_all, filter, values)
    }

    /// Replaces the compaction filter for compactions that start later.
    pub fn set_compaction_filter(&self, filter: Option<Arc<dyn CompactionFilter>>) {
        *self.filter.lock() = filter;
    }

    /// Publishes a changed state. `f` must be short: it runs under the change lock.
    pub fn change<R>(&self, f: impl FnOnce(&mut TreeState) -> R) -> R {
        self.published.change(f)
    }

    /// Makes cursors check if they may still read: at their next call they ask the database first.
    pub fn recall_cursors(&self) {
        self.published.increment_count();
        self.cursors.release();
    }

    /// Seals the active memtable and returns it, if it is not empty.
    pub fn seal(&self) -> Option<Arc<TreeMemtable>> {
        {
            let state = self.load();
            let active = state.active.as_ref().filter(|active| !active.is_empty());
            active?.join_ranges();
        }
        let sealed = self.change(|state| {
            let sealed = state.active.take()?;
            state.sealed.insert(0, Arc::clone(&sealed));
            Some(sealed)
        })?;
        self.memtables.note_sealed(sealed.bytes());
        Some(sealed)
    }

    /// Creates an active memtable for the commit leader, which is about to write one of
    /// `keyspaces`. Returns the bytes of memory that it takes.
    pub fn activate(&self, keyspaces: usize) -> usize {
        let fresh = self.memtables.make(&self.options.load(), keyspaces);
        let bytes = fresh.memory_bytes();
        self.change(|state| state.active = Some(fresh));
        bytes
    }
}
