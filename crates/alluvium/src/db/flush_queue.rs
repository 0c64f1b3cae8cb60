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
    /// Flush even a small amount: somebody waits for it.
    urgent: bool,
    stop: bool,
}

impl Shared {
    /// Hands a sealed generation to the flusher.
    pub fn queue_flush(&self, generation: SealedGeneration) {
        let mut flushes = self.flushes.state.lock();
        flushes.sealed_bytes += generation.bytes;
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
        flushes.urgent = true;
        self.flushes.changed.notify_all();
        while !flushes.sealed.is_empty() || flushes.in_flight > 0 {
            self.poison.check()?;
            if flushes.stop {
                return Err(Error::Closed);
            }
            self.flushes.changed.wait(&mut flushes);
        }
        Ok(())
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
        flushes.in_flight = 0;
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
