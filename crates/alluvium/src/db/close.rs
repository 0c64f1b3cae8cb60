//! Closing a database.

use std::sync::Arc;

use super::Handle;
use crate::db::options::Durability;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::keyspace::Tree;
use crate::sync::thread::JoinHandle;
use crate::wal::{PreparedSegment, WalWriter};

impl Handle {
    pub(super) fn close(&self) -> Result<()> {
        let shared = &self.shared;
        if !shared.is_own_process() {
            return Err(Error::Forked);
        }
        if shared.is_closed() {
            return Ok(());
        }
        // First, so that every acknowledged commit comes before the last sync.
        shared.set_closed();
        // Takes the log's mutex once: a stream that waits for the log either sleeps already or will
        // check again.
        drop(shared.log.lock());
        shared.log_grew.notify_all();
        let result = last_sync(shared);
        shared.jobs.stop();
        shared.stop_flusher();
        shared.stop_syncer();
        shared.removals.stop();
        // A background thread holds no handle. Only a listener that closes the database would join
        // itself.
        let own = crate::sync::thread::current().id();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        threads.retain(|thread| thread.thread().id() != own);
        // The listener's thread, the first in the list, ends once the other threads have sent their
        // last events.
        let listening = (shared.events.is_on() && !threads.is_empty()).then(|| threads.remove(0));
        let mut joined: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        shared.events.stop();
        joined.extend(listening.map(JoinHandle::join));
        // Cursors that are still open get `Closed` and keep only their row.
        let trees: Vec<Arc<Tree>> = shared.catalog.read().values().cloned().collect();
        trees.iter().for_each(|tree| tree.recall_cursors());
        if result.is_ok() && joined.iter().all(Result::is_ok) {
            cut_for_close(shared);
        }
        shared.open_files.close_all();
        shared.release_directory();
        if joined.iter().any(Result::is_err) {
            return Err(Error::Internal("a background thread panicked".into()));
        }
        result
    }
}

/// Makes all acknowledged commits durable, as close guarantees.
fn last_sync(shared: &Shared) -> Result<()> {
    shared.poison.check()?;
    if shared.options.read_only {
        return Ok(());
    }
    if shared.options.durability == Durability::None {
        shared.log.lock().seal(shared)?;
        return shared.wait_for_flushes();
    }
    let mut log = shared.log.lock();
    log.sync(shared)?;
    let unused = log.wal.as_mut().map(WalWriter::take_prepared);
    let unused = unused.into_iter().flatten();
    unused.for_each(PreparedSegment::remove);
    Ok(())
}

/// Releases disk space that only an open database needs. All threads have ended and all
/// acknowledged commits are durable, so a failure here loses nothing: files only stay longer than
/// necessary.
fn cut_for_close(shared: &Shared) {
    if shared.options.read_only {
        return;
    }
    shared.shrink_ballast_for_close();
    let mut log = shared.log.lock();
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
