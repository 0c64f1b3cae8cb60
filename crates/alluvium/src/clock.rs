//! The time that decides which rows have expired.
//!
//! Milliseconds since 1970 from the system, or from a test. Within a database it never runs backwards, also over
//! restarts: manifest edits of databases with expiring rows record it. Whoever reads for longer than one call (a
//! snapshot, a cursor, a transaction) *holds* its time: merges take nothing away that expires after the oldest time
//! held, so that what such a reader sees does not change.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sync::plain::Mutex;

/// Where a database takes the time from: see [`crate::Options::clock`].
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Clock {
        Clock(Arc::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            })
        }))
    }

    /// A clock of the caller's: milliseconds since 1970. For tests.
    pub fn custom(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now_ms))
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// The clock of an open database.
pub(crate) struct ReadClock {
    source: Clock,
    /// The latest time seen; no later answer is below it. Relaxed: one variable, and its order is all that matters.
    latest: AtomicU64,
    /// Whether any keyspace has rows that expire: without one, nobody needs to hold anything. Stored before the first
    /// such keyspace is handed out. Relaxed: the handle brings the order.
    in_use: AtomicBool,
    /// Times held and by how many. A leaf in the lock order; held for a map operation.
    held: Mutex<BTreeMap<u64, usize>>,
}

/// A time that is held until this is dropped; no time in a database whose rows do not expire.
pub(crate) struct HeldTime(Option<(Arc<ReadClock>, u64)>);

impl ReadClock {
    /// A clock that never answers less than `floor_ms`.
    pub fn new(source: Clock, floor_ms: u64) -> Arc<ReadClock> {
        Arc::new(ReadClock {
            source,
            latest: AtomicU64::new(floor_ms),
            in_use: AtomicBool::new(false),
            held: Mutex::default(),
        })
    }

    /// The time now.
    pub fn now(&self) -> u64 {
        let now = (self.source.0)();
        let latest = self.latest.load(Ordering::Relaxed);
        if now > latest {
            // At most once a millisecond for all threads together, or nearly.
            return self.latest.fetch_max(now, Ordering::Relaxed).max(now);
        }
        latest
    }

    /// Says that rows of some keyspace expire.
    pub fn use_it(&self) {
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// Whether rows of any keyspace expire.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Holds the time now.
    pub fn hold(self: &Arc<Self>) -> HeldTime {
        if !self.in_use() {
            return HeldTime(None);
        }
        let mut held = self.held.lock();
        // Read under the mutex: a merge that looked before has an earlier time.
        let now = self.now();
        *held.entry(now).or_insert(0) += 1;
        HeldTime(Some((Arc::clone(self), now)))
    }

    /// What expires at or before this time has expired for everybody, now and later.
    pub fn expired_for_all(&self) -> u64 {
        let held = self.held.lock();
        let now = self.now();
        held.keys().next().map_or(now, |&oldest| oldest.min(now))
    }
}

impl HeldTime {
    /// The time held. One from before the first keyspace with expiring rows sees none of their rows at any time.
    pub fn now_ms(&self) -> u64 {
        self.0.as_ref().map_or(0, |(_, now)| *now)
    }
}

impl Clone for HeldTime {
    fn clone(&self) -> HeldTime {
        if let Some((clock, now)) = &self.0 {
            *clock.held.lock().entry(*now).or_insert(0) += 1;
        }
        HeldTime(self.0.clone())
    }
}

impl Drop for HeldTime {
    fn drop(&mut self) {
        if let Some((clock, now)) = &self.0 {
            let mut held = clock.held.lock();
            if let Some(count) = held.get_mut(now) {
                *count -= 1;
                if *count == 0 {
                    held.remove(now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stepped() -> (Arc<AtomicU64>, Clock) {
        let time = Arc::new(AtomicU64::new(100));
        let source = Arc::clone(&time);
        (time, Clock::custom(move || source.load(Ordering::Relaxed)))
    }

    #[test]
    fn the_time_never_runs_backwards() {
        let (time, source) = stepped();
        let clock = ReadClock::new(source, 150);
        assert_eq!(clock.now(), 150);
        time.store(200, Ordering::Relaxed);
        assert_eq!(clock.now(), 200);
        time.store(50, Ordering::Relaxed);
        assert_eq!(clock.now(), 200);
    }

    #[test]
    fn what_expires_after_the_oldest_time_held_has_not_expired_for_all() {
        let (time, source) = stepped();
        let clock = ReadClock::new(source, 0);
        clock.use_it();
        let first = clock.hold();
        time.store(120, Ordering::Relaxed);
        let second = clock.hold();
        time.store(130, Ordering::Relaxed);
        let copy = first.clone();
        assert_eq!((first.now_ms(), second.now_ms()), (100, 120));
        assert_eq!(clock.expired_for_all(), 100);
        drop(first);
        assert_eq!(clock.expired_for_all(), 100);
        drop(copy);
        assert_eq!(clock.expired_for_all(), 120);
        drop(second);
        assert_eq!(clock.expired_for_all(), 130);
    }
}
