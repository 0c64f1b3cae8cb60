//! Environment of the commit pipeline.

use std::sync::Arc;

use crate::commit::progress::Progress;
use crate::commit::validate::Validating;
use crate::db::ballast::Ballast;
use crate::db::core::Core;
use crate::flush::queue::FlushQueue;
use crate::sync::plain::{Condvar, Mutex};

/// Parts of a database that a leader uses besides the log.
pub(crate) struct CommitEnv {
    pub core: Arc<Core>,
    pub flushes: Arc<FlushQueue>,
    pub ballast: Arc<Ballast>,
    pub progress: Arc<Progress>,
    pub validating: Validating,
    pub syncer: SyncerSignal,
}

/// Signals to the sync thread.
#[derive(Default)]
pub(crate) struct SyncerSignal {
    /// Tells the thread to stop. Guards nothing else and is taken without any other lock.
    pub stop: Mutex<bool>,
    /// Signaled if `stop` is set or the log wants a segment.
    pub changed: Condvar,
}

impl SyncerSignal {
    /// Wakes the sync thread to prepare a segment.
    ///
    /// Callers hold the log's mutex, so this does not take the thread's. A thread that is about to
    /// sleep may miss the wakeup and check only after the sync interval; a roll before that creates
    /// its own segment.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Stops the sync thread.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.changed.notify_all();
    }
}
