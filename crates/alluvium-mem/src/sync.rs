//! Synchronization primitives of memtables, slots and frames: std's, or loom's when compiled with
//! `--cfg loom`.
//!
//! Only operations that order readers against the writer go through here. Counters and filters need
//! no order and use std directly, which keeps the loom models small.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Waits for the writer to finish a change of a node.
///
/// A change takes well under a microsecond, so a few rounds of spinning are nearly always enough.
/// If the writer lost its core during a change, the reader yields its own core.
pub(crate) struct Spin {
    rounds: u32,
}

/// Longer than any change takes while the writer is running, shorter than a context switch.
#[cfg(not(loom))]
const ROUNDS_BEFORE_YIELD: u32 = 64;

impl Spin {
    pub(crate) fn new() -> Spin {
        Spin { rounds: 0 }
    }

    #[cfg(not(loom))]
    pub(crate) fn wait(&mut self) {
        if self.rounds < ROUNDS_BEFORE_YIELD {
            self.rounds += 1;
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    #[cfg(loom)]
    pub(crate) fn wait(&mut self) {
        self.rounds += 1;
        loom::thread::yield_now();
    }
}

/// Marks plain memory that threads read together, or one of them writes alone.
///
/// Under loom it fails the model when two of them meet without having synchronized; otherwise it
/// takes no space and does nothing.
#[cfg(not(loom))]
pub(crate) struct Watched;

#[cfg(not(loom))]
impl Watched {
    pub(crate) fn new() -> Watched {
        Watched
    }

    #[inline(always)]
    pub(crate) fn read(&self) {}

    #[inline(always)]
    pub(crate) fn written(&self) {}
}

#[cfg(loom)]
pub(crate) struct Watched(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Watched {
    pub(crate) fn new() -> Watched {
        Watched(loom::cell::UnsafeCell::new(()))
    }

    pub(crate) fn read(&self) {
        self.0.with(|_| ());
    }

    pub(crate) fn written(&self) {
        self.0.with_mut(|_| ());
    }
}
