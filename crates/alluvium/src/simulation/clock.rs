//! Monotonic clock for builds with the feature `simulation`: virtual time in a simulated run, real
//! time outside.

use std::ops::{Add, Sub};
use std::sync::OnceLock;
use std::time::Duration;

use super::now_ns;

/// Moment, with the part of the interface of `std::time::Instant` that the engine uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// Returns the current moment.
    pub fn now() -> Instant {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        Instant(match now_ns() {
            Some(now) => Duration::from_nanos(now),
            None => START.get_or_init(std::time::Instant::now).elapsed(),
        })
    }

    /// Returns the time since this moment.
    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    /// Returns the moment later by `duration`, if it can be represented.
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// Returns the time from `earlier` to this moment, zero if `earlier` is later.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// As [`Instant::saturating_duration_since`].
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// Returns nanoseconds since the run began.
    pub(super) fn as_ns(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns milliseconds since the run began, as a clock that also advances during suspend.
pub fn boot_ms() -> u64 {
    u64::try_from(Instant::now().0.as_millis()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0 + duration)
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}
