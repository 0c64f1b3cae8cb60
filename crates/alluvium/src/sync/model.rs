//! loom's mutex and condition variable with the interface of `parking_lot`.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// loom's mutex with the interface of `parking_lot`.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// Guard of a [`Mutex`].
///
/// Empty only inside [`Condvar::wait`], while loom's condition variable has the inner guard.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

/// loom's condition variable with the interface of `parking_lot`.
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

/// Result of a wait with a deadline: under loom never a timeout.
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult;

impl<T> Mutex<T> {
    /// Creates an unlocked mutex around `value`.
    pub fn new(value: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(value))
    }

    /// Waits for the mutex and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(
            self.0.lock().expect("a model ends at its first panic"),
        ))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("empty only inside a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("empty only inside a wait")
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub fn new() -> Condvar {
        Condvar(loom::sync::Condvar::new())
    }

    /// Unlocks the mutex until notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let given = guard.0.take().expect("empty only inside a wait");
        guard.0 = Some(self.0.wait(given).expect("a model ends at its first panic"));
    }

    /// As [`wait`](Self::wait): the deadline never expires.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait(guard);
        WaitTimeoutResult
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl WaitTimeoutResult {
    /// Always false.
    pub fn timed_out(self) -> bool {
        false
    }
}
