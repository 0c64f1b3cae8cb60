//! Admission control: slows writers smoothly to the rate that background work sustains, so that
//! they never stall.
//!
//! Background work reports its *debt* (the excess of the backlog over its target, as a share of the
//! target) and the rate at which it drains the backlog. From these follows one rate for all writers
//! together, `drain / debt^2`: no limit without debt, four times the drain rate at half a debt, the
//! drain rate at one, and less beyond. So debt settles near one under any number of clients. A
//! delay capped for each commit would not do that: each of 200 clients could still commit hundreds
//! of times a second.
//!
//! The rate fills one bucket of bytes. A commit takes its bytes out, at once and in arrival order,
//! and waits for as long as the bucket takes to come back to zero. So waiting commits form one
//! virtual queue, in which each waits for the bytes of the earlier ones. Commits wait before they
//! join the commit queue and never while they hold row locks: otherwise all clients that want the
//! row would wait too.
//!
//! Background work publishes the rate by one atomic store and never takes the bucket's mutex: no
//! client waits for a thread of lower priority.

use std::time::Duration;

use crate::sync::time::Instant;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// Most bytes that the bucket saves up, as time at the current rate: enough to bridge the
/// scheduler's tick, too little for a burst that would disturb background work.
const SAVED: Duration = Duration::from_millis(10);

/// Longest single wait. Bytes that a commit did not wait for stay in the bucket, and later commits
/// wait for them.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Least drain rate in bytes per second: a drain rate that is not measured yet stops no writer.
const DRAIN_MIN: f64 = 1024.0 * 1024.0;

/// Token bucket for the writers of a database.
#[derive(Debug)]
pub struct Admission {
    /// Bytes per second as the bits of an `f64`; infinite without debt. Background work stores it,
    /// writers load it; nothing else is published with it.
    rate: AtomicU64,
    /// Set if there was no debt at some time since the last commit: a negative balance of the
    /// bucket is void.
    forgive: AtomicBool,
    /// Locked by writers only, for some arithmetic. A leaf in the lock order.
    bucket: Mutex<Bucket>,
    /// Set when waits are to end. Guards the sleep on `gate`.
    closed: Mutex<bool>,
    gate: Condvar,
}

/// Pure core: the bytes in hand, and the time when they were counted.
#[derive(Debug)]
struct Bucket {
    /// Negative while commits wait.
    bytes: f64,
    counted_at: Option<Instant>,
}

impl Admission {
    /// Creates the bucket of a database without debt.
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

    /// Sets the rate from the state of background work. `debt` is (upper bytes - target) / target,
    /// smoothed by the caller; `drain_bytes_per_s` is the measured drain rate, in bytes of commits.
    pub fn set_debt(&self, debt: f64, drain_bytes_per_s: f64) {
        let rate = allowed_rate(debt, drain_bytes_per_s);
        self.rate.store(rate.to_bits(), Ordering::Relaxed);
        if rate.is_infinite() {
            self.forgive.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the rate now allowed to all writers together, in bytes per second; infinite without
    /// debt.
    pub fn rate(&self) -> f64 {
        f64::from_bits(self.rate.load(Ordering::Relaxed))
    }

    /// Takes a commit's bytes out of the bucket and returns how long the commit must wait before it
    /// joins the queue.
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

    /// Charges a commit and sleeps as long as it must. Returns the intended wait.
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

    /// Ends all waits, also future ones: the database is closing, and its commits fail by
    /// themselves.
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
        // A writer that read the clock earlier but arrived later adds nothing.
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

/// Returns the bytes per second for all writers at this debt: continuous, falling, infinite without
/// debt.
fn allowed_rate(debt: f64, drain_bytes_per_s: f64) -> f64 {
    // A debt that is not a number limits nothing.
    if debt > 0.0 {
        drain_bytes_per_s.max(DRAIN_MIN) / (debt * debt)
    } else {
        f64::INFINITY
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
