//! The end of an open database.

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
        // First, so that every commit that is acknowledged is before the last sync.
        shared.set_closed();
        // Under the log's mutex: who waits for more of it has looked before, and sleeps, or will look again.
        drop(shared.log.lock());
        shared.log_grew.notify_all();
        let result = last_sync(shared);
        shared.jobs.stop();
        shared.stop_flusher();
        shared.stop_syncer();
        shared.removals.stop();
        // A background thread holds no handle; only a listener that closes the database would join itself.
        let own = crate::sync::thread::current().id();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        threads.retain(|thread| thread.thread().id() != own);
        // The listener's thread, the first, ends when the others have told their last news.
        let listening = (shared.events.is_on() && !threads.is_empty()).then(|| threads.remove(0));
        let mut joined: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        shared.events.stop();
        joined.extend(listening.map(JoinHandle::join));
        // Cursors that are still around get `Closed`, and keep nothing but their row.
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

/// What close owes to the commits it acknowledged.
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

/// Gives back the room that only an open database needs. All threads have ended, and everything that close owes is
/// durable: whatever fails here loses nothing, and leaves files that are longer than need be.
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
        // No caller is left to hear of an error; everything acknowledged is as durable as its level promised.
        let _ = self.close();
    }
}
