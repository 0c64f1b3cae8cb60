//! Shards of what many threads change: each thread has one, so that it finds the cache lines of its
//! shard where it left them.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of shards: about as many threads run at the same time on common machines.
pub const THREAD_SHARDS: usize = 16;

/// Returns the index of the calling thread's shard, below [`THREAD_SHARDS`].
pub fn thread_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // No destructor, so the runtime that owns the thread does not matter.
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    if cfg!(feature = "simulation") {
        // State shared by threads must not depend on simulations that ran before.
        return 0;
    }
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % THREAD_SHARDS);
        }
        shard.get()
    })
}
