//! Mutexes, read-write locks and condition variables under the scheduler, with the interface of
//! `parking_lot`.
//!
//! In a run only one thread runs at a time, so the underlying lock never blocks. A thread that
//! finds it taken waits by its address until the guard is dropped, and then tries again: the seed
//! decides the order of waiters.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use super::clock::Instant;
use super::{Key, place};

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

/// Guard of a [`Mutex`]. Empty only inside a wait.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    held: Option<parking_lot::MutexGuard<'a, T>>,
}

/// As `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

/// Result of a wait with a deadline.
#[derive(Debug, Clone, Copy)]
pub struct WaitTimeoutResult(bool);

/// As `parking_lot::RwLock`.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

/// Guard of a reader or a writer of a [`RwLock`].
pub struct Held<'a, G> {
    lock: Key,
    guard: Option<G>,
    _borrow: std::marker::PhantomData<&'a ()>,
}

/// Guard of a reader.
pub type RwLockReadGuard<'a, T> = Held<'a, parking_lot::RwLockReadGuard<'a, T>>;
/// Guard of a writer.
pub type RwLockWriteGuard<'a, T> = Held<'a, parking_lot::RwLockWriteGuard<'a, T>>;

fn key_of<T: ?Sized>(lock: &T) -> Key {
    Key::Lock((&raw const *lock).cast::<()>() as usize)
}

/// Takes a lock: in the scheduler's order in a run, in the system's outside.
fn take<G>(key: Key, mut attempt: impl FnMut() -> Option<G>, block: impl FnOnce() -> G) -> G {
    let Some(own) = place() else {
        return block();
    };
    own.step();
    loop {
        if let Some(guard) = attempt() {
            return guard;
        }
        own.wait(key, None);
    }
}

/// Wakes the threads that wait for this lock in the scheduler.
fn freed(key: Key, may_switch: bool) {
    if let Some(own) = place() {
        own.wake(key, true);
        if may_switch {
            own.step();
        }
    }
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex around `value`.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Returns the value, without the mutex.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the mutex and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = take(key_of(self), || self.0.try_lock(), || self.0.lock());
        MutexGuard {
            mutex: self,
            held: Some(held),
        }
    }

    /// Takes the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        super::step();
        let held = Some(self.0.try_lock()?);
        Some(MutexGuard { mutex: self, held })
    }

    /// Returns the value of a mutex borrowed exclusively.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Runs `body` with the mutex unlocked.
    pub fn unlocked<R>(own: &mut Self, body: impl FnOnce() -> R) -> R {
        own.held = None;
        freed(key_of(own.mutex), true);
        let result = body();
        let mutex = own.mutex;
        own.held = Some(take(
            key_of(mutex),
            || mutex.0.try_lock(),
            || mutex.0.lock(),
        ));
        result
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.held.as_ref().expect("empty only inside a wait")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("empty only inside a wait")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        freed(key_of(self.mutex), true);
    }
}

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    fn key(&self) -> Key {
        Key::Condition((&raw const *self).cast::<()>() as usize)
    }

    /// Unlocks the mutex until notified.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_ns(guard, None);
    }

    /// As [`wait`](Self::wait), until the deadline at most.
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_ns(guard, Some(deadline))
    }

    /// As [`wait`](Self::wait), for `most` at most.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        most: Duration,
    ) -> WaitTimeoutResult {
        self.wait_ns(guard, Instant::now().checked_add(most))
    }

    fn wait_ns<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        let Some(own) = place() else {
            return self.wait_outside(guard, deadline);
        };
        // No step between unlocking and waiting: they are atomic.
        guard.held = None;
        freed(key_of(guard.mutex), false);
        let timed_out = own.wait(self.key(), deadline.map(Instant::as_ns));
        let mutex = guard.mutex;
        guard.held = Some(take(
            key_of(mutex),
            || mutex.0.try_lock(),
            || mutex.0.lock(),
        ));
        WaitTimeoutResult(timed_out)
    }

    fn wait_outside<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Option<Instant>,
    ) -> WaitTimeoutResult {
        let held = guard.held.as_mut().expect("empty only inside a wait");
        let Some(deadline) = deadline else {
            self.0.wait(held);
            return WaitTimeoutResult(false);
        };
        let result = self.0.wait_for(held, deadline - Instant::now());
        WaitTimeoutResult(result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) -> bool {
        self.notify(false, |real| real.notify_one())
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        self.notify(true, |real| real.notify_all() > 0);
    }

    fn notify(&self, all: bool, outside: impl FnOnce(&parking_lot::Condvar) -> bool) -> bool {
        match place() {
            None => outside(&self.0),
            Some(own) => {
                own.wake(self.key(), all);
                own.step();
                true
            }
        }
    }
}

impl WaitTimeoutResult {
    /// Returns true if the deadline came first.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl<T> RwLock<T> {
    /// Creates a free lock around `value`.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until there is no writer, and takes the lock for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let key = key_of(self);
        Held::new(key, take(key, || self.0.try_read(), || self.0.read()))
    }

    /// Waits until there is no reader and no writer, and takes the lock for writing.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let key = key_of(self);
        Held::new(key, take(key, || self.0.try_write(), || self.0.write()))
    }
}

impl<G> Held<'_, G> {
    fn new(lock: Key, guard: G) -> Self {
        Held {
            lock,
            guard: Some(guard),
            _borrow: std::marker::PhantomData,
        }
    }
}

impl<G: Deref> Deref for Held<'_, G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        self.guard.as_ref().expect("there until it is dropped")
    }
}

impl<G: DerefMut> DerefMut for Held<'_, G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        self.guard.as_mut().expect("there until it is dropped")
    }
}

impl<G> Drop for Held<'_, G> {
    fn drop(&mut self) {
        self.guard = None;
        freed(self.lock, true);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
