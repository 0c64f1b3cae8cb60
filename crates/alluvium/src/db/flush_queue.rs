//! What waits for the flusher, and who waits for the flusher.
//!
//! Generations are numbered as they are queued and flushed in that order, so that waiting is "until number n is in
//! tables", whatever is queued meanwhile. A flush that failed before it changed anything, because the device is full or
//! the system refused it a file, is tried again; every caller that waits for it gets its error and may call again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sync::plain::{Condvar, Mutex, MutexGuard};
use crate::sync::time::Instant;

use crate::commit::SealedGeneration;
use crate::db::shared::Shared;
use crate::error::{Error, Result};

/// See the module.
#[derive(Default)]
pub(crate) struct FlushQueue {
    /// Guards what waits for the flusher. Never held across I/O; nothing is locked under it.
    state: Mutex<Flushes>,
    /// Signals a change of `state`, of the poison, or the end.
    changed: Condvar,
}

#[derive(Default)]
struct Flushes {
    sealed: VecDeque<SealedGeneration>,
    sealed_bytes: usize,
    /// Number of the newest generation queued, of the newest in tables, and of the newest somebody waits for.
    queued: u64,
    flushed: u64,
    wanted: u64,
    /// Number of requests for a flush: a new one ends the flusher's pause after a failure.
    asked: u64,
    /// Number of tries that failed without a change, and the last error, if none has ended well since.
    failed: (u64, Option<Error>),
    stop: bool,
}

/// So many generations are flushed however small they are: readers ask each memtable.
const GENERATIONS_MAX: usize = 32;

/// Between two tries of background work that failed without a change.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Flushes {
    /// Asks for a flush of everything up to generation `wanted`. Returns how many tries had failed so far.
    fn ask(&mut self, wanted: u64) -> u64 {
        self.wanted = self.wanted.max(wanted);
        self.asked += 1;
        self.failed.0
    }

    /// Checks that every waiter makes before it sleeps again. Only tries after the first `known` count: an older failure
    /// says nothing about the next try.
    fn check(&self, shared: &Shared, known: u64) -> Result<()> {
        shared.poison.check()?;
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

impl Shared {
    /// Hands a sealed generation to the flusher.
    pub fn queue_flush(&self, generation: SealedGeneration) {
        let mut flushes = self.flushes.state.lock();
        flushes.queued += 1;
        flushes.sealed_bytes += generation.bytes;
        flushes.sealed.push_back(generation);
        self.flushes.changed.notify_all();
    }

    /// Waits while sealed memtables are at the hard ceiling. Fails where they cannot be flushed at the moment, and with
    /// `Closed` as soon as the database closes, which waits for the log that the caller holds.
    pub fn wait_for_flush_below_ceiling(&self) -> Result<()> {
        let mut flushes = self.flushes.state.lock();
        if flushes.sealed_bytes < self.plan().ceiling_bytes() {
            return Ok(());
        }
        self.metrics.ceiling_waits.add(1);
        let queued = flushes.queued;
        let known = flushes.ask(queued);
        self.flushes.changed.notify_all();
        while flushes.sealed_bytes >= self.plan().ceiling_bytes() {
            self.check_open()?;
            flushes.check(self, known)?;
            self.flushes.changed.wait(&mut flushes);
        }
        Ok(())
    }

    /// Waits until everything sealed so far is in tables.
    pub fn wait_for_flushes(&self) -> Result<()> {
        let mut flushes = self.flushes.state.lock();
        let target = flushes.queued;
        let known = flushes.ask(target);
        self.flushes.changed.notify_all();
        while flushes.flushed < target {
            flushes.check(self, known)?;
            self.flushes.changed.wait(&mut flushes);
        }
        self.poison.check()
    }

    /// Waits for what is sealed if the last try failed. A call that seals for a flush asks this first: on top of
    /// memtables that cannot be flushed, those of more and more calls would only pile up, past every commit's look at
    /// the ceiling.
    pub fn wait_for_flushes_after_failure(&self) -> Result<()> {
        if self.flush_has_failed() {
            self.wait_for_flushes()
        } else {
            Ok(())
        }
    }

    /// Returns true if the last try failed.
    pub fn flush_has_failed(&self) -> bool {
        self.flushes.state.lock().failed.1.is_some()
    }

    /// Sends what is in memory to the flusher, for background work: a failure is known to the poison, or has changed
    /// nothing.
    pub fn seal_and_flush(&self) {
        let mut log = self.log.lock();
        if self.check_open().is_ok() && log.seal(self).is_ok() {
            drop(log);
            self.want_flush();
        }
    }

    /// Asks for a flush of everything sealed so far, without waiting for it.
    pub fn want_flush(&self) {
        let mut flushes = self.flushes.state.lock();
        let queued = flushes.queued;
        flushes.ask(queued);
        self.flushes.changed.notify_all();
    }

    /// The flusher's next work, oldest first: all that is sealed, once that is worth a flush. `None`: stop.
    pub fn next_flush(&self) -> Option<Vec<SealedGeneration>> {
        let mut flushes = self.flushes.state.lock();
        let mut trimmed = false;
        loop {
            if flushes.stop || self.poison.check().is_err() {
                return None;
            }
            let wanted = flushes.wanted > flushes.flushed;
            let worth = wanted
                || flushes.sealed_bytes >= self.plan().flush_bytes
                || flushes.sealed.len() >= GENERATIONS_MAX;
            if worth && !flushes.sealed.is_empty() {
                return Some(flushes.sealed.drain(..).collect());
            }
            if !trimmed && !self.cache.is_within() {
                // Memtables have taken from the cache, which nobody may be reading.
                MutexGuard::unlocked(&mut flushes, || self.cache.trim());
                trimmed = true;
                continue;
            }
            self.flushes.changed.wait(&mut flushes);
            trimmed = false;
        }
    }

    /// The flusher's word that these generations are in tables.
    pub fn flush_done(&self, generations: &[SealedGeneration]) {
        let mut flushes = self.flushes.state.lock();
        flushes.flushed += generations.len() as u64;
        flushes.sealed_bytes -= generations.iter().map(|g| g.bytes).sum::<usize>();
        flushes.failed.1 = None;
        self.flushes.changed.notify_all();
    }

    /// The flusher's word that a try failed and nothing has changed.
    pub fn flush_failed(&self, error: Error) {
        let mut flushes = self.flushes.state.lock();
        flushes.failed = (flushes.failed.0 + 1, Some(error));
        self.flushes.changed.notify_all();
    }

    /// Wakes everybody who waits here, after the database was poisoned.
    pub fn wake_after_poison(&self) {
        self.look_at_flushes();
    }

    /// Wakes everybody who waits here: something that they look at has changed.
    pub fn look_at_flushes(&self) {
        // Under the mutex: a waiter that has just looked is asleep when this notifies.
        drop(self.flushes.state.lock());
        self.flushes.changed.notify_all();
    }

    /// Waits a moment before background work that failed is tried again; false when there is no point,
    /// because the database closes or is poisoned.
    pub fn pause_before_retry(&self) -> bool {
        let until = Instant::now() + RETRY_AFTER;
        let mut flushes = self.flushes.state.lock();
        let asked = flushes.asked;
        loop {
            if flushes.stop || self.poison.check().is_err() {
                return false;
            }
            if flushes.asked != asked {
                return true;
            }
            if self
                .flushes
                .changed
                .wait_until(&mut flushes, until)
                .timed_out()
            {
                return true;
            }
        }
    }

    /// For merges: waits while sealed memtables slow writers down, so that the flusher has cores and device to itself,
    /// but no longer than `most`.
    pub fn let_flush_go_first(&self, most: Duration) {
        let mut flushes = self.flushes.state.lock();
        let until = Instant::now() + most;
        while flushes.sealed_bytes > self.plan().write_bytes && !flushes.stop {
            let waited = self.flushes.changed.wait_until(&mut flushes, until);
            if waited.timed_out() {
                return;
            }
        }
    }

    /// Bytes of memtables that wait for their flush.
    pub fn sealed_bytes(&self) -> usize {
        self.sealed().1
    }

    /// How many generations were ever sealed, and the bytes of those that wait for their flush.
    pub fn sealed(&self) -> (u64, usize) {
        let flushes = self.flushes.state.lock();
        (flushes.queued, flushes.sealed_bytes)
    }

    /// Ends the flusher and everybody who waits for it.
    pub fn stop_flusher(&self) {
        self.flushes.state.lock().stop = true;
        self.flushes.changed.notify_all();
    }
}
