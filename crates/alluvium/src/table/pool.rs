//! Idle buffers of the whole process, kept for the next who needs one.
//!
//! There are no thread-locals: server thread pools and the C ABI move work between threads.

use parking_lot::Mutex;

/// About as many as there are readers inside a miss at one time; more are freed rather than kept.
const IDLE_MAX: usize = 32;

/// A few idle values. The mutex is a leaf in the lock order, held for a push or a pop. It is no
/// simulation's: other simulations of the process have the pool too, and what is in it decides
/// nothing.
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T> Pool<T> {
    pub(crate) const fn new() -> Pool<T> {
        Pool(Mutex::new(Vec::new()))
    }

    /// The one that was kept last, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().pop()
    }

    /// Keeps a value, unless there are enough.
    pub(crate) fn keep(&self, value: T) {
        let mut idle = self.0.lock();
        if idle.len() < IDLE_MAX {
            idle.push(value);
        }
    }
}
