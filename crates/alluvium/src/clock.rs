//! Clock of a database: decides which rows have expired.
//!
//! Times are milliseconds since 1970. A glitch of the system's clock must hide no row for good and
//! must not be stored. So a database checks the wall clock against the boot-time clock
//! (`clock/judge.rs` has the rules) and distinguishes two times: the time of reads, and the
//! confirmed time. Only the confirmed time is stored in the manifest and lets compactions drop
//! rows.
//!
//! Readers that live longer than one call (a snapshot, a cursor, a transaction) *hold* their time.
//! Compactions drop nothing that expires after the oldest time held, so such a reader keeps seeing
//! the same rows.
//!
//! A read loads one clock and a few atomics. Every [`WINDOW_MS`], and whenever the clock that reads
//! use leaves the expected window, one read judges both clocks under a mutex.

mod judge;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::event::{Event, Events};
use crate::sync::plain::Mutex;
use crate::sync::time::boot_ms;

use self::judge::{Judge, Judged, Reading, Source};

/// Time for which reads trust the clock of the last judgment. A longer time would delay the
/// detection of a clock that is set back; with a shorter one more reads would take the mutex.
const WINDOW_MS: u64 = 10_000;

/// Source of time of a database: see [`crate::Options::clock`].
#[derive(Clone)]
pub struct Clock(Readings);

type ReadMs = Arc<dyn Fn() -> u64 + Send + Sync>;

#[derive(Clone)]
enum Readings {
    /// A wall clock that is checked against a boot-time clock.
    Checked { wall: ReadMs, boot: ReadMs },
    /// A clock that is trusted without a check.
    Believed(ReadMs),
}

impl Clock {
    /// Returns the system's clock, checked against the time since the machine's start. A jump by
    /// more than a day affects reads only after it has lasted ten minutes, and it is not stored and
    /// drops no rows before that.
    pub fn system() -> Clock {
        let wall = || {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            since.map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            })
        };
        Clock::checked(wall, boot_ms)
    }

    /// Returns a clock that calls `now_ms` for the milliseconds since 1970. It is trusted at once,
    /// jumps included, but the database's time never falls. For tests, and for callers that check
    /// their time themselves.
    pub fn custom(now_ms: impl Fn() -> u64 + Send + Sync + 'static) -> Clock {
        Clock(Readings::Believed(Arc::new(now_ms)))
    }

    /// Returns a clock made of two functions, treated as [`Clock::system`] treats the system's
    /// clocks: milliseconds since 1970, and milliseconds since some start, which never run back or
    /// jump. For tests.
    pub fn checked(
        wall_ms: impl Fn() -> u64 + Send + Sync + 'static,
        boot_ms: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Clock {
        Clock(Readings::Checked {
            wall: Arc::new(wall_ms),
            boot: Arc::new(boot_ms),
        })
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

/// Value of `ReadClock::boot_ahead_ms` if reads use the wall clock.
const READS_USE_WALL: i64 = i64::MIN;

/// Clock of an open database.
///
/// The atomics are one judgment, published for reads without a mutex. All are relaxed. A read that
/// mixes two judgments finds its clock outside the window, or `latest_ms` above its bound, and
/// judges anew. Or it gets a time that was valid a moment ago, as if it had begun then.
pub(crate) struct ReadClock {
    source: Readings,
    /// Latest time that reads got. Trusted only up to `latest_ms_max`: a read that was suspended
    /// may raise it to the time of a glitch that is over.
    latest_ms: AtomicU64,
    latest_ms_max: AtomicU64,
    /// Reads use the boot-time clock plus this, or the wall clock.
    boot_ahead_ms: AtomicI64,
    /// Start of the window: that clock is expected to show at least this and at most [`WINDOW_MS`]
    /// more.
    window_from_ms: AtomicU64,
    /// Guards the judgment, and changes of the atomics above other than a rising `latest_ms`. Held
    /// for two readings and the queue of events.
    judge: Mutex<Judge>,
    /// Number of jumps of the wall clock.
    jumps: AtomicU64,
    events: Arc<Events>,
    /// True if any keyspace has rows that expire: without one, no reader holds a time. Stored
    /// before the first such keyspace is handed out. Relaxed: the handle brings the order.
    in_use: AtomicBool,
    /// Times held, each with the number of its holders. Held for a map operation and a judgment.
    held: Mutex<BTreeMap<u64, usize>>,
}

/// A time that is held until this is dropped; none in a database without rows that expire.
pub(crate) struct HeldTime(Option<(Arc<ReadClock>, u64)>);

impl ReadClock {
    /// Creates a clock that never returns less than `stored_ms`.
    pub fn new(source: Clock, stored_ms: u64, events: Arc<Events>) -> Arc<ReadClock> {
        Arc::new(ReadClock {
            source: source.0,
            latest_ms: AtomicU64::new(stored_ms),
            latest_ms_max: AtomicU64::new(stored_ms),
            boot_ahead_ms: AtomicI64::new(READS_USE_WALL),
            // No clock shows this time, so the first read judges.
            window_from_ms: AtomicU64::new(u64::MAX - WINDOW_MS),
            judge: Mutex::new(Judge::new(stored_ms)),
            jumps: AtomicU64::new(0),
            events,
            in_use: AtomicBool::new(false),
            held: Mutex::default(),
        })
    }

    /// Returns the time for a read that begins now.
    pub fn now(&self) -> u64 {
        let (wall, boot) = match &self.source {
            Readings::Checked { wall, boot } => (wall, boot),
            Readings::Believed(now) => return self.raise_latest(now()),
        };
        let shown = match self.boot_ahead_ms.load(Ordering::Relaxed) {
            READS_USE_WALL => wall(),
            ahead => boot().saturating_add_signed(ahead),
        };
        let from = self.window_from_ms.load(Ordering::Relaxed);
        if shown.wrapping_sub(from) <= WINDOW_MS {
            let time = self.raise_latest(shown);
            if time <= self.latest_ms_max.load(Ordering::Relaxed) {
                return time;
            }
        }
        self.judge(&mut self.judge.lock(), wall, boot)
    }

    /// Raises the latest time to `now`, and returns the later one of the two.
    fn raise_latest(&self, now: u64) -> u64 {
        let latest = self.latest_ms.load(Ordering::Relaxed);
        if now > latest {
            // At most once a millisecond for all threads together, or nearly.
            return self.latest_ms.fetch_max(now, Ordering::Relaxed).max(now);
        }
        latest
    }

    /// Judges both clocks. Returns the time for reads.
    fn judge(&self, judge: &mut Judge, wall: &ReadMs, boot: &ReadMs) -> u64 {
        let reading = Reading {
            wall_ms: wall(),
            boot_ms: boot(),
        };
        let latest = self.latest_ms.load(Ordering::Relaxed);
        if latest <= self.latest_ms_max.load(Ordering::Relaxed) {
            judge.note_read(latest);
        }
        let judged = judge.observe(reading);
        self.publish(&judged);
        self.tell(&judged, reading);
        judged.time_ms
    }

    fn publish(&self, judged: &Judged) {
        let ahead = match judged.source {
            Source::Wall => READS_USE_WALL,
            Source::Boot(ahead) => ahead,
        };
        let latest_max = judged
            .time_ms
            .max(judged.shown_ms.saturating_add(WINDOW_MS));
        self.boot_ahead_ms.store(ahead, Ordering::Relaxed);
        self.window_from_ms
            .store(judged.shown_ms, Ordering::Relaxed);
        self.latest_ms_max.store(latest_max, Ordering::Relaxed);
        if self.latest_ms.load(Ordering::Relaxed) > latest_max {
            // The time of a glitch that is over.
            self.latest_ms.store(judged.time_ms, Ordering::Relaxed);
        }
        self.latest_ms.fetch_max(judged.time_ms, Ordering::Relaxed);
    }

    fn tell(&self, judged: &Judged, reading: Reading) {
        let wall_ms = reading.wall_ms;
        if judged.jumped {
            self.jumps.fetch_add(1, Ordering::Relaxed);
            let time_ms = judged.time_ms;
            self.events.tell(|| Event::ClockJump { wall_ms, time_ms });
        }
        if let Some(stored_ms) = judged.stored_ahead_ms {
            self.events
                .tell(|| Event::StoredTimeAhead { wall_ms, stored_ms });
        }
    }

    /// Returns the last confirmed time, which may be stored.
    pub fn confirmed(&self) -> u64 {
        match &self.source {
            Readings::Believed(now) => self.raise_latest(now()),
            Readings::Checked { wall, boot } => {
                let mut judge = self.judge.lock();
                self.judge(&mut judge, wall, boot);
                judge.confirmed_ms()
            }
        }
    }

    /// Returns the number of jumps of the wall clock since the database was opened.
    pub fn jumps(&self) -> u64 {
        self.jumps.load(Ordering::Relaxed)
    }

    /// Notes that rows of some keyspace expire. The ten minutes of the first confirmation begin.
    pub fn use_it(&self) {
        self.in_use.store(true, Ordering::Relaxed);
        self.now();
    }

    /// Checks the clocks if rows expire, as a read does.
    pub fn watch(&self) {
        if self.in_use() {
            self.now();
        }
    }

    /// Returns true if rows of any keyspace expire.
    pub fn in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Holds the current time.
    pub fn hold(self: &Arc<Self>) -> HeldTime {
        if !self.in_use() {
            return HeldTime(None);
        }
        let mut held = self.held.lock();
        // Read under the mutex: a compaction that checked earlier has a time that was confirmed by
        // then, and no later read gets an earlier time.
        let now = self.now();
        *held.entry(now).or_insert(0) += 1;
        HeldTime(Some((Arc::clone(self), now)))
    }

    /// Returns the time at or before which everything has expired for every reader, now and later.
    pub fn expired_for_all(&self) -> u64 {
        let held = self.held.lock();
        let confirmed = self.confirmed();
        held.keys()
            .next()
            .map_or(confirmed, |&oldest| oldest.min(confirmed))
    }
}

impl HeldTime {
    /// Returns the time held. A reader that began before the first keyspace with expiring rows sees
    /// no rows of such keyspaces at any time.
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
#[cfg(all(test, not(loom)))]
mod tests;
