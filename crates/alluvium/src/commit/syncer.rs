//! Sync thread of the log: syncs the log at the sync interval and prepares segments ahead of time.
//! It also reads the clocks, so that times are confirmed and jumps are found even if no client
//! reads.

use crate::commit::env::CommitEnv;
use crate::commit::log::Log;
use crate::commit::pipeline::CommitPipeline;
use crate::error::Result;
use crate::sync::time::Instant;
use crate::wal::{PreparedSegment, SegmentPlan};

/// With free space for this many log segments, several segments may be prepared.
const AMPLE_SEGMENTS: u64 = 256;

impl CommitPipeline {
    /// Runs the sync thread: bounds the time that a `Buffered` commit stays unsynced, and prepares
    /// the next segment.
    pub fn run_syncer(&self) {
        let next_round = || Instant::now().checked_add(self.env.core.options.sync_interval);
        let signal = &self.env.syncer;
        let mut due = next_round();
        loop {
            {
                let mut stop = signal.stop.lock();
                if !*stop {
                    match due {
                        Some(due) => drop(signal.changed.wait_until(&mut stop, due)),
                        None => signal.changed.wait(&mut stop),
                    }
                }
                if *stop || self.env.core.poison.check().is_err() {
                    return;
                }
            }
            let prepared = self.prepare_segments();
            let synced = if due.is_some_and(|due| Instant::now() >= due) {
                due = next_round();
                self.env.core.clock.watch();
                self.remove_surplus();
                let unsynced = self.log.lock().unsynced();
                self.make_durable(unsynced)
            } else {
                Ok(())
            };
            if let Err(error) = prepared.and(synced) {
                self.env.core.poison.set(error);
                return;
            }
        }
    }

    /// Creates files for as many future segments as the log wants, without holding its lock.
    fn prepare_segments(&self) -> Result<()> {
        let files = &self.env.core.files;
        let free = files.vfs.free_bytes(&files.dir);
        let segments = |free: u64| free / self.env.core.plan().segment_bytes();
        let ample = free.is_ok_and(|free| segments(free) >= AMPLE_SEGMENTS);
        // Ends: the log wants only a few segments, and none after one that could not be created.
        loop {
            let plan = self.log.lock().plan_segment(&self.env, ample);
            let Some(plan) = plan else { return Ok(()) };
            let prepared = plan.create()?;
            let mut log = self.log.lock();
            let unneeded = match &mut log.wal {
                // Under the log's lock: a close that came before has already removed its prepared
                // files.
                Some(wal) if !self.env.core.access.is_closed() => wal.offer(prepared),
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
        let surplus = self.log.lock().take_surplus(&self.env);
        surplus.into_iter().for_each(PreparedSegment::remove);
    }
}

impl Log {
    /// Returns true if the log may soon roll and the next segment is not prepared.
    pub(super) fn wants_segment(&self, env: &CommitEnv) -> bool {
        let soon = self.may_seal_soon(env);
        let wal = self.wal.as_ref();
        !env.ballast.is_low() && wal.is_some_and(|wal| wal.wants_plan(soon))
    }

    fn may_seal_soon(&self, env: &CommitEnv) -> bool {
        self.active_bytes() >= env.core.plan().worth_sealing_bytes()
    }

    /// Takes out the prepared segments that are not needed, for the caller to remove.
    pub fn take_surplus(&mut self, env: &CommitEnv) -> Vec<PreparedSegment> {
        let soon = self.may_seal_soon(env);
        let wal = self.wal.as_mut();
        wal.map_or_else(Vec::new, |wal| wal.take_surplus(soon))
    }

    /// Returns the segment for the sync thread to prepare for the next roll, if it is time.
    pub fn plan_segment(&mut self, env: &CommitEnv, ample_space: bool) -> Option<SegmentPlan> {
        if let Some(wal) = &mut self.wal {
            wal.set_ample_space(ample_space);
        }
        if !self.wants_segment(env) {
            return None;
        }
        let room = self.room_for_rows(env, &[]).beyond_ballast(env);
        let wal = self.wal.as_mut()?;
        wal.leave_free(room);
        wal.plan_next()
    }
}
