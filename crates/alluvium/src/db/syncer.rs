//! Sync thread of the log: syncs the log at the sync interval and prepares segments ahead of time.
//! It also reads the clocks, so that times are confirmed and jumps are found even if no client
//! reads.

use crate::db::shared::Shared;
use crate::error::Result;
use crate::sync::time::Instant;
use crate::wal::{PreparedSegment, WalWriter};

/// With free space for this many log segments, several segments may be prepared.
const AMPLE_SEGMENTS: u64 = 256;

impl Shared {
    /// Runs the sync thread: bounds the time that a `Buffered` commit stays unsynced, and prepares
    /// the next segment.
    pub fn run_syncer(&self) {
        let next_round = || Instant::now().checked_add(self.options.sync_interval);
        let mut due = next_round();
        loop {
            {
                let mut stop = self.syncer_stop.lock();
                if !*stop {
                    match due {
                        Some(due) => drop(self.syncer_changed.wait_until(&mut stop, due)),
                        None => self.syncer_changed.wait(&mut stop),
                    }
                }
                if *stop || self.poison.check().is_err() {
                    return;
                }
            }
            let prepared = self.prepare_segments();
            let synced = if due.is_some_and(|due| Instant::now() >= due) {
                due = next_round();
                self.clock.watch();
                self.remove_surplus();
                self.sync_log()
            } else {
                Ok(())
            };
            if let Err(error) = prepared.and(synced) {
                self.poison.set(error);
                self.wake_after_poison();
                return;
            }
        }
    }

    /// Syncs the written part of the log without holding its lock, so that commits continue.
    fn sync_log(&self) -> Result<()> {
        let unsynced = self.log.lock().unsynced();
        if let Some(unsynced) = unsynced {
            self.metrics.timed_sync(|| unsynced.syncer.sync())?;
            let mut log = self.log.lock();
            log.note_durable(unsynced.position);
            self.note_durable(unsynced.seqno);
        }
        Ok(())
    }

    /// Creates files for as many future segments as the log wants, without holding its lock.
    fn prepare_segments(&self) -> Result<()> {
        let free = self.vfs.free_bytes(&self.dir);
        let segments = |free: u64| free / self.plan().segment_bytes();
        let ample = free.is_ok_and(|free| segments(free) >= AMPLE_SEGMENTS);
        // Ends: the log wants only a few segments, and none after one that could not be created.
        loop {
            let plan = self.log.lock().plan_segment(self, ample);
            let Some(plan) = plan else { return Ok(()) };
            let prepared = plan.create()?;
            let mut log = self.log.lock();
            let unneeded = match &mut log.wal {
                // Under the log's lock: a close that came before has already removed its prepared
                // files.
                Some(wal) if !self.is_closed() => wal.offer(prepared),
                _ => prepared,
            };
            drop(log);
            if let Some(unneeded) = unneeded {
                unneeded.remove();
            }
        }
    }

    /// Removes prepared segment files that the present write rate does not need.
    fn remove_surplus(&self) {
        let surplus = self.log.lock().wal.as_mut().map(WalWriter::take_surplus);
        surplus
            .into_iter()
            .flatten()
            .for_each(PreparedSegment::remove);
    }

    /// Wakes the sync thread to prepare a segment.
    ///
    /// Callers hold the log's mutex, so this does not take the thread's. A thread that is about to
    /// sleep may miss the wakeup and check only after the sync interval; a roll before that creates
    /// its own segment.
    pub fn wake_syncer(&self) {
        self.syncer_changed.notify_one();
    }

    /// Stops the sync thread.
    pub fn stop_syncer(&self) {
        *self.syncer_stop.lock() = true;
        self.syncer_changed.notify_all();
    }
}
