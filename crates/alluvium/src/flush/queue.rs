//! Queue of sealed generations for the flush thread, and waits for flushes.
//!
//! Generations are numbered as they are queued, and flushed in that order. A wait is therefore
//! "until generation n is in tables", whatever is queued meanwhile. A flush may fail before it
//! changes anything, because the device is full or the system refused it a file. Such a flush is
//! tried again; every caller that waits for it gets its error and may call again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::plain::{Condvar, Mutex, MutexGuard};
use crate::sync::time::Instant;

use crate::commit::SealedGeneration;
use crate::db::core::Core;
use crate::error::{Error, Result};

/// Queue of the flush thread, see the module.
pub(crate) struct FlushQueue {
    core: Arc<Core>,
    /// Guards the queue. Never held across I/O, and no lock is taken under it.
    state: Mutex<Flushes>,
    /// Signaled when `state` changes, the database is poisoned, or the flush thread has to stop.
    changed: Condvar,
}

#[derive(Default)]
struct Flushes {
    sealed: VecDeque<SealedGeneration>,
    /// Bytes of each generation that is not in tables, oldest first, and their sum.
    waiting: VecDeque<usize>,
    sealed_bytes: usize,
    /// Numbers of the newest generation queued, the newest in tables, and the newest that a caller
    /// wants flushed.
    queued: u64,
    flushed: u64,
    wanted: u64,
    /// Number of requests for a flush: a new one ends the flush thread's pause after a failure.
    asked: u64,
    /// Number of flushes that failed without a change, and the last error unless a flush has
    /// succeeded since.
    failed: (u64, Option<Error>),
    stop: bool,
}

/// Number of sealed generations that triggers a flush, however small they are: readers search each
/// memtable.
const GENERATIONS_MAX: usize = 32;

/// Interval between two tries of background work that failed without a change.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Flushes {
    /// Requests a flush of everything up to generation `wanted`. Returns the number of failed tries
    /// so far.
    fn ask(&mut self, wanted: u64) -> u64 {
        self.wanted = self.wanted.max(wanted);
        self.asked += 1;
        self.failed.0
    }

    /// Reports the generations that wait to the backlog.
    fn report(&self, core: &Core) {
        let largest = self.waiting.iter().max().copied();
        core.backlog
            .set_sealed(self.sealed_bytes, largest.unwrap_or(0));
    }

    /// Returns an error if waiting is pointless; every waiter checks this before it sleeps again.
    /// Only tries after the first `known` count: an older failure says nothing about the next try.
    fn check(&self, core: &Core, known: u64) -> Result<()> {
        core.poison.check()?;
        if let (tries, Some(error)) = &self.failed
            && *tries > known
        {
            return Err(error.clone());
        }
        if self.stop {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }
}

impl FlushQueue {
    /// Creates an empty queue.
    pub fn new(core: Arc<Core>) -> FlushQueue {
        FlushQueue {
            core,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Queues a sealed generation for the flush thread.
    pub fn queue(&self, generation: SealedGeneration) {
        let mut flushes = self.state.lock();
        flushes.queued += 1;
        flushes.sealed_bytes += generation.bytes;
        flushes.waiting.push_back(generation.bytes);
        flushes.report(&self.core);
        flushes.sealed.push_back(generation);
        self.changed.notify_all();
    }

    /// Waits while sealed memtables are at the hard ceiling.
    ///
    /// Fails if they cannot be flushed now. Fails with `Closed` as soon as the database closes,
    /// because close waits for the log that the caller holds.
    pub fn wait_below_ceiling(&self) -> Result<()> {
        let mut flushes = self.state.lock();
        if flushes.sealed_bytes < self.core.plan().ceiling_bytes() {
            return Ok(());
        }
        self.core.metrics.ceiling_waits.add(1);
        let queued = flushes.queued;
        let known = flushes.ask(queued);
        self.changed.notify_all();
        while flushes.sealed_bytes >= self.core.plan().ceiling_bytes() {
            self.core.access.check_open()?;
            flushes.check(&self.core, known)?;
            self.changed.wait(&mut flushes);
        }
        Ok(())
    }

    /// Waits until all sealed generations are in tables.
    pub fn wait(&self) -> Result<()> {
        let mut flushes = self.state.lock();
        let target = flushes.queued;
        let known = flushes.ask(target);
        self.changed.notify_all();
        while flushes.flushed < target {
            flushes.check(&self.core, known)?;
            self.changed.wait(&mut flushes);
        }
        self.core.poison.check()
    }

    /// If the last flush failed, waits until all sealed generations are in tables.
    ///
    /// Calls that seal for a flush do this first. Only commits check the ceiling, so repeated calls
    /// would otherwise pile up memtables that cannot be flushed.
    pub fn wait_after_failure(&self) -> Result<()> {
        if self.has_failed() {
            self.wait()
        } else {
            Ok(())
        }
    }

    /// Returns true if the last flush failed.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed.1.is_some()
    }

    /// Requests a flush of all sealed generations, without waiting for it.
    pub fn want(&self) {
        let mut flushes = self.state.lock();
        let queued = flushes.queued;
        flushes.ask(queued);
        self.changed.notify_all();
    }

    /// Waits until a flush is worthwhile and returns all sealed generations, oldest first. `None`
    /// if the flush thread has to stop.
    pub fn next(&self) -> Option<Vec<SealedGeneration>> {
        let mut flushes = self.state.lock();
        let mut trimmed = false;
        loop {
            if flushes.stop || self.core.poison.check().is_err() {
                return None;
            }
            let wanted = flushes.wanted > flushes.flushed;
            let worth = wanted
                || flushes.sealed_bytes >= self.core.plan().flush_bytes
                || flushes.sealed.len() >= GENERATIONS_MAX;
            if worth && !flushes.sealed.is_empty() {
                return Some(flushes.sealed.drain(..).collect());
            }
            if !trimmed && !self.core.memory.cache.is_within() {
                // Memtables have taken memory from the cache. If no client reads, only this thread
                // trims it.
                MutexGuard::unlocked(&mut flushes, || self.core.memory.cache.trim());
                trimmed = true;
                continue;
            }
            self.changed.wait(&mut flushes);
            trimmed = false;
        }
    }

    /// Takes the generations that were sealed since [`FlushQueue::next`] or the last call, oldest
    /// first.
    pub fn take_new(&self) -> Vec<SealedGeneration> {
        self.state.lock().sealed.drain(..).collect()
    }

    /// Records that these generations are in tables.
    pub fn done(&self, generations: &[SealedGeneration]) {
        let mut flushes = self.state.lock();
        flushes.flushed += generations.len() as u64;
        flushes.sealed_bytes -= flushes.waiting.drain(..generations.len()).sum::<usize>();
        flushes.report(&self.core);
        flushes.failed.1 = None;
        self.changed.notify_all();
    }

    /// Records that a flush failed without a change.
    pub fn failed(&self, error: Error) {
        let mut flushes = self.state.lock();
        flushes.failed = (flushes.failed.0 + 1, Some(error));
        self.changed.notify_all();
    }

    /// Wakes all threads that wait for flushes, because a condition of their wait has changed.
    pub fn wake(&self) {
        // Under the mutex: a thread that has just checked is asleep when this notifies it.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Waits before failed background work is tried again. Returns false if a retry is pointless
    /// because the database closes or is poisoned.
    pub fn pause_before_retry(&self) -> bool {
        let until = Instant::now() + RETRY_AFTER;
        let mut flushes = self.state.lock();
        let asked = flushes.asked;
        loop {
            if flushes.stop || self.core.poison.check().is_err() {
                return false;
            }
            if flushes.asked != asked {
                return true;
            }
            if self.changed.wait_until(&mut flushes, until).timed_out() {
                return true;
            }
        }
    }

    /// Delays a compaction while sealed memtables slow writers down, so that the flush thread has
    /// the cores and the device to itself. Waits no longer than `most`.
    pub fn go_first(&self, most: Duration) {
        let mut flushes = self.state.lock();
        let until = Instant::now() + most;
        while flushes.sealed_bytes > self.core.plan().write_bytes && !flushes.stop {
            let waited = self.changed.wait_until(&mut flushes, until);
            if waited.timed_out() {
                return;
            }
        }
    }

    /// Returns the bytes of memtables that wait for their flush.
    pub fn sealed_bytes(&self) -> usize {
        self.sealed().1
    }

    /// Returns the number of generations sealed since the open, and the bytes of those that wait
    /// for their flush.
    pub fn sealed(&self) -> (u64, usize) {
        let flushes = self.state.lock();
        (flushes.queued, flushes.sealed_bytes)
    }

    /// Stops the flush thread and ends all waits for it.
    pub fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}
