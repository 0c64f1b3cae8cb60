//! What waits for the flusher, and who waits for the flusher.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::commit::SealedGeneration;
use crate::db::shared::Shared;
use crate::error::{Error, Result};

/// See the module.
#[derive(Default)]
pub(crate) struct FlushQueue {
    /// Guards what waits for the flusher. Never held across I/O; nothing is locked under it.
    state: Mutex<Flushes>,
    /// Signals a change of `state`.
    changed: Condvar,
}

/// What waits for the flusher.
#[derive(Default)]
struct Flushes {
    sealed: VecDeque<SealedGeneration>,
    sealed_bytes: usize,
    /// Generations taken by the flusher and not yet in tables.
    in_flight: usize,
    /// Generations handed over so far, and those of them that left the queue for good.
    queued: u64,
    finished: u64,
    /// Flush even a small amount: somebody waits for it.
    urgent: bool,
    stop: bool,
}

impl Shared {
    /// Hands a sealed generation to the flusher.
    pub fn queue_flush(&self, generation: SealedGeneration) {
        let mut flushes = self.flushes.state.lock();
        flushes.sealed_bytes += generation.bytes;
        flushes.queued += 1;
        flushes.sealed.push_back(generation);
        self.flushes.changed.notify_all();
    }

    /// Waits while sealed memtables are at the hard ceiling.
    pub fn wait_for_flush_below_ceiling(&self) -> Result<()> {
        let mut flushes = self.flushes.state.lock();
        if flushes.sealed_bytes >= self.plan.ceiling_bytes() {
            self.metrics.ceiling_waits.add(1);
        }
        while flushes.sealed_bytes >= self.plan.ceiling_bytes() && !flushes.stop {
            self.poison.check()?;
            self.flushes.changed.wait(&mut flushes);
        }
        Ok(())
    }

    /// Waits until everything sealed so far is in tables.
    pub fn wait_for_flushes(&self) -> Result<()> {
        let mut flushes = self.flushes.state.lock();
        // What writers seal from now on is not waited for, or this would never end beside busy ones.
        let target = flushes.queued;
        while flushes.finished < target {
            self.poison.check()?;
            if flushes.stop {
                return Err(Error::Closed);
            }
            // The flusher clears it whenever its queue is empty, perhaps before this thread's generation came.
            if !std::mem::replace(&mut flushes.urgent, true) {
                self.flushes.changed.notify_all();
            }
            self.flushes.changed.wait(&mut flushes);
        }
        // A flush that failed has left the queue too.
        self.poison.check()
    }

    /// The flusher's next work, oldest first: all that is sealed, once that is worth a flush. `None`: stop.
    pub fn next_flush(&self) -> Option<Vec<SealedGeneration>> {
        let mut flushes = self.flushes.state.lock();
        loop {
            if flushes.stop {
                return None;
            }
            let worth = flushes.urgent || flushes.sealed_bytes >= self.plan.flush_bytes();
            if worth && !flushes.sealed.is_empty() {
                let taken: Vec<_> = flushes.sealed.drain(..).collect();
                flushes.in_flight = taken.len();
                return Some(taken);
            }
            flushes.urgent = false;
            self.flushes.changed.wait(&mut flushes);
        }
    }

    /// The flusher's word that `bytes` of sealed memtables are in tables, or that it failed and poisoned.
    pub fn flush_done(&self, bytes: usize) {
        let mut flushes = self.flushes.state.lock();
        flushes.finished += std::mem::take(&mut flushes.in_flight) as u64;
        flushes.sealed_bytes -= bytes;
        self.flushes.changed.notify_all();
    }

    /// Bytes of memtables that wait for their flush.
    pub fn sealed_bytes(&self) -> usize {
        self.flushes.state.lock().sealed_bytes
    }

    /// Ends the flusher and everybody who waits for it.
    pub fn stop_flusher(&self) {
        self.flushes.state.lock().stop = true;
        self.flushes.changed.notify_all();
    }
}
