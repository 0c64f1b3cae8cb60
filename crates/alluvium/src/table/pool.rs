//! Idle buffers of the whole process, kept for reuse.
//!
//! A buffer that another core used last costs a fetch for each of its cache lines, 128 for an LZ4
//! hash table. So each thread keeps its buffers in its shard and takes only from there. They are no
//! thread-locals: those have destructors, and a library that is unloaded must not leave any in its
//! callers' threads.

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use crate::sync::{THREAD_SHARDS, thread_shard};

/// Most values kept in a shard; further ones are freed. Threads that share a shard rarely work at
/// the same time.
const IDLE_MAX: usize = 2;

/// Pool of a few idle values. Each mutex is a leaf in the lock order, held for a push or a pop. The
/// pool is not part of a simulation: all simulations of the process share it, and no result depends
/// on its content.
pub(crate) struct Pool<T>([CachePadded<Mutex<Vec<T>>>; THREAD_SHARDS]);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Pool<T> {
        Pool([const { CachePadded::new(Mutex::new(Vec::new())) }; THREAD_SHARDS])
    }

    /// Returns the last value that a thread of the caller's shard kept, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.0[thread_shard()].lock().pop()
    }

    /// Keeps a value, unless the shard is full.
    pub(crate) fn keep(&self, value: T) {
        let mut idle = self.0[thread_shard()].lock();
        if idle.len() < IDLE_MAX {
            idle.push(value);
        }
    }
}

#[cfg(all(test, not(loom), not(feature = "simulation")))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_own_values_back_and_keeps_few() {
        static POOL: Pool<usize> = Pool::new();
        // More threads than shards would share some.
        let work = |thread: usize| {
            for value in 0..5 {
                POOL.keep(10 * thread + value);
            }
            assert_eq!(POOL.take(), Some(10 * thread + 1));
            assert_eq!(POOL.take(), Some(10 * thread));
            assert_eq!(POOL.take(), None);
        };
        for thread in 0..4 {
            std::thread::scope(|scope| drop(scope.spawn(move || work(thread))));
        }
    }
}
