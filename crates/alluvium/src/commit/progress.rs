//! Progress of the log: which commits are visible, and which are durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::SeqNo;
use crate::read_points::ReadPoints;
use crate::sync::plain::Condvar;

/// Newest visible and newest durable commit, and the threads that wait for them.
pub(crate) struct Progress {
    read_points: Arc<ReadPoints>,
    /// Newest commit when the database was opened.
    pub opened_at: SeqNo,
    /// Newest commit that is known to be durable in the log. Release: pairs with the load of a
    /// stream of changes.
    durable: AtomicU64,
    /// Signaled under the log's mutex when a commit is published or becomes durable. Waiters hold
    /// that mutex.
    pub grew: Condvar,
}

impl Progress {
    /// Creates the progress of a database that was opened with these commits on its device.
    pub fn new(read_points: Arc<ReadPoints>, opened_at: SeqNo) -> Progress {
        Progress {
            read_points,
            opened_at,
            durable: AtomicU64::new(opened_at),
            grew: Condvar::new(),
        }
    }

    /// Makes the commits up to `seqno` visible. The caller holds the log's mutex.
    pub fn publish(&self, seqno: SeqNo) {
        self.read_points.publish(seqno);
        // Costs one load if no thread waits.
        self.grew.notify_all();
    }

    /// Records that commits are durable through `seqno`. A caller that holds the log's mutex wakes
    /// every waiting thread; without it a thread that is about to sleep may miss this.
    pub fn note_durable(&self, seqno: SeqNo) {
        self.durable.fetch_max(seqno, Ordering::Release);
        self.grew.notify_all();
    }

    /// Returns the newest commit that survives any power loss.
    pub fn durable(&self) -> SeqNo {
        self.durable.load(Ordering::Acquire)
    }
}
