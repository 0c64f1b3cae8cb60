//! Publication of a tree's state: readers load it without a lock, writers replace it as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sync::plain::Mutex;
use crate::sync::step;
use arc_swap::{ArcSwap, Guard};

use crate::keyspace::state::TreeState;

/// Current state of one tree.
pub(super) struct Published {
    state: ArcSwap<TreeState>,
    /// Serializes changes of `state`. A leaf of the engine's lock order: nothing is locked under
    /// it.
    change: Mutex<()>,
    /// Number of publications, so that a cursor can check cheaply if its sources are still the
    /// newest. Stored with Release after `state`; a cursor's Acquire load pairs with it.
    count: AtomicU64,
}

impl Published {
    pub fn new(state: TreeState) -> Published {
        Published {
            state: ArcSwap::from_pointee(state),
            change: Mutex::new(()),
            count: AtomicU64::new(0),
        }
    }

    /// Returns the current state, for the duration of one call.
    pub fn load(&self) -> Guard<Arc<TreeState>> {
        step();
        self.state.load()
    }

    /// Returns the current state, to keep.
    pub fn load_full(&self) -> Arc<TreeState> {
        step();
        self.state.load_full()
    }

    /// Returns the number of publications.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Counts a publication of the same state, so that cursors load it anew.
    pub fn increment_count(&self) {
        self.count.fetch_add(1, Ordering::Release);
    }

    /// Copies the state, lets `f` change the copy and publishes it.
    pub fn change<R>(&self, f: impl FnOnce(&mut TreeState) -> R) -> R {
        let _changing = self.change.lock();
        let mut state = TreeState::clone(&self.state.load());
        let result = f(&mut state);
        step();
        self.state.store(Arc::new(state));
        step();
        self.increment_count();
        result
    }
}
