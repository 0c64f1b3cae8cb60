//! Rules for the clocks: from pairs of readings of two clocks, decides which time reads use and
//! which time is confirmed.
//!
//! The wall clock can be wrong for a moment or for years. The boot-time clock counts milliseconds
//! since the machine's start, suspend included, and cannot be set. Pure: the caller reads the
//! clocks, so every rule is tested as a table.
//!
//! - A time is **confirmed** if the wall clock shows it and both clocks have advanced together for
//!   [`CONFIRM_MS`]. Only a confirmed time is stored or lets a compaction drop rows. It never
//!   falls.
//! - Before the first confirmation of this opening, reads follow the wall clock in both directions,
//!   but never below the stored time. A wall clock that is more than a day earlier than the stored
//!   time is not followed: reads use the stored time plus the boot-time clock.
//! - After it, reads follow the wall clock as long as it is within a day of the last confirmed time
//!   plus the boot-time clock. Otherwise they use that sum, until the wall clock is back or is
//!   confirmed at its new place.
//! - The time of reads never runs back, with one exception: before the first confirmation it
//!   follows a wall clock back that was more than a day ahead.
//!
//! Invariant: no read gets a time below the confirmed one, so no read misses a row that a
//! compaction dropped for it.

/// Time for which the wall clock and the boot-time clock must advance together before a time is
/// confirmed.
pub const CONFIRM_MS: u64 = 10 * 60 * 1000;
/// Difference from the time expected by the boot-time clock above which the wall clock has jumped.
pub const JUMP_MS: u64 = 24 * 60 * 60 * 1000;
/// Difference since the run began up to which the clocks have advanced together. Both are slewed
/// alike, so only a step of the wall clock, or a thread suspended between the two readings, makes a
/// difference.
pub const TOGETHER_MS: u64 = 5_000;

/// Reading of both clocks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Milliseconds since 1970.
    pub wall_ms: u64,
    /// Milliseconds since the machine's start.
    pub boot_ms: u64,
}

/// Clock that reads use until the next judgment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The wall clock.
    Wall,
    /// The boot-time clock plus this many milliseconds.
    Boot(i64),
}

/// Judgment of one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Clock for reads.
    pub source: Source,
    /// Time that this clock shows.
    pub shown_ms: u64,
    /// Time for reads: `shown_ms`, or a later time that reads have already got.
    pub time_ms: u64,
    /// True if the wall clock has jumped since the previous reading.
    pub jumped: bool,
    /// Stored time, if this is the first reading and the wall clock is more than a day earlier.
    pub stored_ahead_ms: Option<u64>,
}

/// State between readings.
#[derive(Debug)]
pub struct Judge {
    /// Last confirmed time: initially the stored one.
    confirmed_ms: u64,
    /// Last confirmed reading of this opening.
    confirmed_at: Option<Reading>,
    /// First reading of the current run, in which both clocks have advanced together.
    run: Option<Reading>,
    /// Boot-time clock at the first reading.
    opened_boot_ms: u64,
    /// Latest time that reads got.
    floor_ms: u64,
}

impl Judge {
    /// Creates the state for a database with this stored time; 0 if it has none.
    pub fn new(stored_ms: u64) -> Judge {
        Judge {
            confirmed_ms: stored_ms,
            confirmed_at: None,
            run: None,
            opened_boot_ms: 0,
            floor_ms: stored_ms,
        }
    }

    /// Returns the last confirmed time: the stored one until this opening confirms a time.
    pub fn confirmed_ms(&self) -> u64 {
        self.confirmed_ms
    }

    /// Notes a time that a read got since the last judgment.
    pub fn note_read(&mut self, time_ms: u64) {
        self.floor_ms = self.floor_ms.max(time_ms);
    }

    /// Judges a reading.
    pub fn observe(&mut self, reading: Reading) -> Judged {
        let first = self.run.is_none();
        let run = *self.run.get_or_insert(reading);
        let moved_ms = reading.wall_ms.abs_diff(after(run, reading.boot_ms));
        let jumped = moved_ms > JUMP_MS;
        if moved_ms > TOGETHER_MS {
            self.run = Some(reading);
        } else if reading.boot_ms.saturating_sub(run.boot_ms) >= CONFIRM_MS {
            self.confirmed_ms = self.confirmed_ms.max(reading.wall_ms);
            self.confirmed_at = Some(reading);
        }
        if first {
            self.opened_boot_ms = reading.boot_ms;
        }
        let (source, shown_ms) = self.source(reading);
        if self.confirmed_at.is_none() {
            let held_ms = after(self.stored(), reading.boot_ms);
            // Reads are so far ahead of both times only after a wall clock that was ahead and no
            // longer is. After a jump back they may be less far ahead at the next reading, if time
            // has passed without one.
            let was_ahead = self.floor_ms > shown_ms.max(held_ms).saturating_add(JUMP_MS);
            let is_back = jumped && reading.wall_ms < after(run, reading.boot_ms);
            if was_ahead || is_back {
                self.floor_ms = self.confirmed_ms;
            }
        }
        self.floor_ms = self.floor_ms.max(shown_ms);
        Judged {
            source,
            shown_ms,
            time_ms: self.floor_ms,
            jumped,
            stored_ahead_ms: (first && source != Source::Wall).then_some(self.confirmed_ms),
        }
    }

    /// Returns the stored time, as if the wall clock had shown it at the opening. For use before
    /// the first confirmation.
    fn stored(&self) -> Reading {
        Reading {
            wall_ms: self.confirmed_ms,
            boot_ms: self.opened_boot_ms,
        }
    }

    /// Returns the clock for reads, and its time.
    fn source(&self, reading: Reading) -> (Source, u64) {
        let (base, is_near) = match self.confirmed_at {
            Some(base) => {
                let expected_ms = after(base, reading.boot_ms);
                (base, reading.wall_ms.abs_diff(expected_ms) <= JUMP_MS)
            }
            None => {
                let is_near = reading.wall_ms.saturating_add(JUMP_MS) >= self.confirmed_ms;
                (self.stored(), is_near)
            }
        };
        if is_near {
            return (Source::Wall, reading.wall_ms);
        }
        // Times beyond i64 come only from a damaged or foreign manifest; they saturate.
        let ahead = i128::from(base.wall_ms) - i128::from(base.boot_ms);
        let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
        (
            Source::Boot(ahead),
            reading.boot_ms.saturating_add_signed(ahead),
        )
    }
}

/// Returns the time that the wall clock shows at `boot_ms` if it has not been set since `base`.
fn after(base: Reading, boot_ms: u64) -> u64 {
    base.wall_ms
        .saturating_add(boot_ms.saturating_sub(base.boot_ms))
}

#[cfg(test)]
mod tests;
