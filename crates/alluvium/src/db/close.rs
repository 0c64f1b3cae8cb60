//! Closing a database.

use super::Handle;
use crate::db::options::Durability;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::sync::thread::JoinHandle;
use crate::wal::{PreparedSegment, WalWriter};

impl Handle {
    pub(super) fn close(&self) -> Result<()> {
        let shared = &self.shared;
        if !shared.core.access.is_own_process() {
            return Err(Error::Forked);
        }
        if shared.core.access.is_closed() {
            return Ok(());
        }
        // First, so that every acknowledged commit comes before the last sync.
        shared.set_closed();
        // Takes the log's mutex once: a stream that waits for the log either sleeps already or will
        // check again.
        drop(shared.commits.log.lock());
        shared.commits.env.progress.grew.notify_all();
        let result = last_sync(shared);
        shared.jobs.stop();
        shared.flushes.stop();
        shared.commits.env.syncer.stop();
        shared.core.files.removals.stop();
        // A background thread holds no handle. Only a listener that closes the database would join
        // itself.
        let own = crate::sync::thread::current().id();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        threads.retain(|thread| thread.thread().id() != own);
        // The listener's thread, the first in the list, ends once the other threads have sent their
        // last events.
        let listening =
            (shared.core.events.is_on() && !threads.is_empty()).then(|| threads.remove(0));
        let mut joined: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        shared.core.events.stop();
        joined.extend(listening.map(JoinHandle::join));
        // Cursors that are still open get `Closed` and keep only their row.
        let trees = shared.core.trees();
        trees.iter().for_each(|tree| tree.recall_cursors());
        if result.is_ok() && joined.iter().all(Result::is_ok) {
            cut_for_close(shared);
        }
        shared.core.files.open_files.close_all();
        shared.core.access.release_directory();
        if joined.iter().any(Result::is_err) {
            return Err(Error::Internal("a background thread panicked".into()));
        }
        result
    }
}

/// Makes all acknowledged commits durable, as close guarantees.
fn last_sync(shared: &Shared) -> Result<()> {
    shared.core.poison.check()?;
    if shared.core.options.read_only {
        return Ok(());
    }
    if shared.core.options.durability == Durability::None {
        shared.commits.log.lock().seal(&shared.commits.env)?;
        return shared.flushes.wait();
    }
    let mut log = shared.commits.log.lock();
    log.sync(&shared.commits.env)?;
    let unused = log.wal.as_mut().map(WalWriter::take_prepared);
    let unused = unused.into_iter().flatten();
    unused.for_each(PreparedSegment::remove);
    Ok(())
}

/// Releases disk space that only an open database needs. All threads have ended and all
/// acknowledged commits are durable, so a failure here loses nothing: files only stay longer than
/// necessary.
fn cut_for_close(shared: &Shared) {
    if shared.core.options.read_only {
        return;
    }
    shared.ballast.shrink_for_close();
    let mut log = shared.commits.log.lock();
    let newest = log.last_seqno;
    if let Some(wal) = &mut log.wal {
        let _ = wal.cut_tail(newest);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // No caller can receive an error here. Every acknowledged commit is as durable as its level
        // promises.
        let _ = self.close();
    }
}
