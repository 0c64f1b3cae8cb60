//! Slows writers smoothly to what the background can digest, so that they are never stopped.
//!
//! The background reports its *debt* (how far the upper levels are above their target, as a share of it) and the
//! rate at which it drains them. From these follows one rate for all writers together, `drain / debt^2`: no limit
//! without debt, four times the drain rate at half a debt, the drain rate at one, and less beyond, so that debt
//! settles near one under any number of clients. A delay capped for each commit would not do that: each of 200
//! clients could still commit hundreds of times a second.
//!
//! The rate fills one bucket of bytes. A commit takes its bytes out, at once and in arrival order, and waits for as
//! long as the bucket takes to come back to zero: so waiting commits stand in one virtual queue, each behind the
//! bytes of those before it. Commits pay before they join the commit queue and never while they hold row locks,
//! for everybody who wants the row would pay too.
//!
//! The background publishes the rate by one atomic store and never touches the bucket's mutex: no client waits for
//! a thread of lower priority.

use std::time::Duration;

use crate::sync::time::Instant;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// What the bucket may save up, as time at the current rate: enough to ride over the scheduler's tick, too little
/// for a burst that the background would feel.
const SAVED: Duration = Duration::from_millis(10);

/// The longest single wait. What a commit did not wait for stays in the bucket, and later commits wait for it.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The least drain rate in bytes per second: a background that has not measured itself yet stops nobody.
const DRAIN_MIN: f64 = 1024.0 * 1024.0;

/// The token bucket of a database.
#[derive(Debug)]
pub struct Admission {
    /// Bytes per second as the bits of an `f64`; infinite without debt. Stored by the background, loaded by
    /// writers; nothing else is published with it.
    rate: AtomicU64,
    /// The debt was paid off since the last commit: what the bucket still holds against writers is void.
    forgive: AtomicBool,
    /// Taken by writers only, for some arithmetic. A leaf in the lock order.
    bucket: Mutex<Bucket>,
    /// Set when waits are to end. Guards the sleep on `gate`.
    closed: Mutex<bool>,
    gate: Condvar,
}

/// The pure core: bytes in hand, and when they were counted.
#[derive(Debug)]
struct Bucket {
    /// Negative while commits wait.
    bytes: f64,
    counted_at: Option<Instant>,
}

impl Admission {
    /// A database without debt.
    pub fn new() -> Admission {
        Admission {
            rate: AtomicU64::new(f64::INFINITY.to_bits()),
            forgive: AtomicBool::new(false),
            bucket: Mutex::new(Bucket {
                bytes: 0.0,
                counted_at: None,
            }),
            closed: Mutex::new(false),
            gate: Condvar::new(),
        }
    }

    /// Reports the background's state: `debt` is (upper bytes - target) / target, smoothed by the caller;
    /// `drain_bytes_per_s` is what it digests, measured in bytes of commits.
    pub fn set_debt(&self, debt: f64, drain_bytes_per_s: f64) {
        let rate = allowed_rate(debt, drain_bytes_per_s);
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
        if rate.is_infinite() {
            self.forgive.store(true, Ordering::Relaxed);
        }
    }

    /// The rate now allowed to all writers together, in bytes per second; infinite without debt.
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Takes a commit's bytes out of the bucket and says how long the commit must wait before it joins the queue.
    ///
    /// At most one second. Costs one load without debt.
    pub fn charge(&self, bytes: u64, now: Instant) -> Duration {
        let rate = self.rate();
        if rate.is_infinite() {
            return Duration::ZERO;
        }
        let mut bucket = self.bucket.lock();
        if self.forgive.swap(false, Ordering::Relaxed) {
            bucket.bytes = bucket.bytes.max(0.0);
        }
        bucket.charge(bytes, rate, now)
    }

    /// Charges a commit and sleeps as long as it must. Returns how long that was to be.
    pub fn admit(&self, bytes: u64) -> Duration {
        if self.rate().is_infinite() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let wait = self.charge(bytes, now);
        if !wait.is_zero() {
            let mut closed = self.closed.lock();
            // Ends at the deadline: a second at most.
            while !*closed && !self.gate.wait_until(&mut closed, now + wait).timed_out() {}
        }
        wait
    }

    /// Ends all waits, those to come too: the database is closing, and its commits fail by themselves.
    pub fn close(&self) {
        *self.closed.lock() = true;
        self.gate.notify_all();
    }
}

impl Default for Admission {
    fn default() -> Admission {
        Admission::new()
    }
}

impl Bucket {
    fn charge(&mut self, bytes: u64, rate: f64, now: Instant) -> Duration {
        // A writer that read the clock earlier but came later adds nothing.
        let since = self
            .counted_at
            .map(|then| now.saturating_duration_since(then));
        self.counted_at = self.counted_at.max(Some(now));
        let earned = since.unwrap_or(SAVED).as_secs_f64() * rate;
        let saved_max = SAVED.as_secs_f64() * rate;
        self.bytes = (self.bytes + earned).min(saved_max) - bytes as f64;
        if self.bytes >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.bytes / rate).map_or(WAIT_MAX, |wait| wait.min(WAIT_MAX))
    }
}

/// Bytes per second for all writers at this debt: continuous, falling, infinite where there is no debt.
fn allowed_rate(debt: f64, drain_bytes_per_s: f64) -> f64 {
    // A debt that is no number says nothing and limits nothing.
    if debt > 0.0 {
        drain_bytes_per_s.max(DRAIN_MIN) / (debt * debt)
    } else {
        f64::INFINITY
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
