//! Idle buffers of the whole process, kept for reuse.
//!
//! There are no thread-locals: server thread pools and the C ABI move work between threads.

use parking_lot::Mutex;

/// Most values kept, about one for each reader inside a cache miss at the same time. Further values
/// are freed.
const IDLE_MAX: usize = 32;

/// Pool of a few idle values. The mutex is a leaf in the lock order, held for a push or a pop. The
/// pool is not part of a simulation: all simulations of the process share it, and no result depends
/// on its content.
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Pool<T> {
        Pool(Mutex::new(Vec::new()))
    }

    /// Returns the last value that was kept, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().pop()
    }

    /// Keeps a value, unless the pool is full.
    pub(crate) fn keep(&self, value: T) {
        let mut idle = self.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(value);
        }
    }
}
