//! The log's sync thread: it makes the log durable at the sync interval, and segments ahead of time. It also watches the
//! clocks, so that a time is confirmed and a jump is found where no client reads.

use crate::db::shared::Shared;
use crate::error::Result;
use crate::sync::time::Instant;
use crate::wal::{PreparedSegment, WalWriter};

/// With room for so many more segments of the log, several of them may lie ready.
const AMPLE_SEGMENTS: u64 = 256;

impl Shared {
    /// The log's sync thread: bounds how long a `Buffered` commit stays unsynced, and prepares the next segment.
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
            let synced = match due.is_some_and(|due| Instant::now() >= due) {
                true => {
                    due = next_round();
                    self.clock.watch();
                    self.remove_surplus();
                    self.sync_log()
                }
                false => Ok(()),
            };
            if let Err(error) = prepared.and(synced) {
                self.poison.set(error);
                self.wake_after_poison();
                return;
            }
        }
    }

    /// Syncs what is written of the log, without its lock: commits go on meanwhile.
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

    /// Makes files of segments to come as far as the log wants them, without its lock.
    fn prepare_segments(&self) -> Result<()> {
        let free = self.vfs.free_bytes(&self.dir);
        let segments = |free: u64| free / self.plan().segment_bytes();
        let ample = free.is_ok_and(|free| segments(free) >= AMPLE_SEGMENTS);
        // Ends: the log wants a few, and none after one that could not be made.
        loop {
            let plan = self.log.lock().plan_segment(self, ample);
            let Some(plan) = plan else { return Ok(()) };
            let prepared = plan.create()?;
            let mut log = self.log.lock();
            let unneeded = match &mut log.wal {
                // Under the log's lock: a close that came before has looked for prepared files already.
                Some(wal) if !self.is_closed() => wal.offer(prepared),
                _ => prepared,
            };
            drop(log);
            if let Some(unneeded) = unneeded {
                unneeded.remove();
            }
        }
    }

    /// Removes files of segments that were made for faster writers than those of the moment.
    fn remove_surplus(&self) {
        let surplus = self.log.lock().wal.as_mut().map(WalWriter::take_surplus);
        surplus
            .into_iter()
            .flatten()
            .for_each(PreparedSegment::remove);
    }

    /// Lets the sync thread look for a segment to prepare. Without its mutex, for it is called under the log's: where
    /// the thread was just about to sleep it looks after the sync interval, and a roll before that helps itself.
    pub fn wake_syncer(&self) {
        self.syncer_changed.notify_one();
    }

    /// Ends the sync thread.
    pub fn stop_syncer(&self) {
        *self.syncer_stop.lock() = true;
        self.syncer_changed.notify_all();
    }
}
