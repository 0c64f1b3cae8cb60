//! The synchronization that the tree is built on: std's, or loom's when the crate is compiled with `--cfg loom`.
//!
//! Only what orders readers against the writer goes through here. Counters and filters, whose order does not matter,
//! use std directly, which keeps the loom models small.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Waits for the writer to finish a change of a node.
///
/// Changes take well under a microsecond, so a few rounds of spinning nearly always do. If the writer lost its core in
/// the middle of one, the reader gives its own core away.
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

/// Stands beside plain bytes that are written before a pointer to them is stored, and never after.
///
/// Under loom it fails the model when a reader reaches the bytes without having synchronized with that store; otherwise
/// it takes no space and does nothing.
#[cfg(not(loom))]
pub(crate) struct Published;

#[cfg(not(loom))]
impl Published {
    pub(crate) fn new() -> Published {
        Published
    }

    #[inline(always)]
    pub(crate) fn check(&self) {}
}

#[cfg(loom)]
pub(crate) struct Published(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Published {
    pub(crate) fn new() -> Published {
        Published(loom::cell::UnsafeCell::new(()))
    }

    pub(crate) fn check(&self) {
        self.0.with(|_| ());
    }
}
