//! Clocks of the machine, which clients set, disturb and advance, and the rules for the time that
//! an open database uses.
//!
//! The wall clock is the boot-time clock plus an offset. Clients change the offset by little or by
//! years, permanently or for a moment. A client asks the database for the time of its reads before
//! and after each read, so rows are compared with the state at exactly that time. The time itself
//! must follow rules that hold whatever the database has seen of the clocks:
//!
//! - It runs back only if the wall clock has jumped meanwhile.
//! - It is at most the largest of these: the wall clock, a possibly confirmed time advanced since
//!   then, and the stored time advanced since the opening. So a glitch has no effect on reads after
//!   it has ended.
//! - A stored time may have been confirmed: the wall clock showed it at an offset that it had had
//!   ten minutes before.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::{Clock, Database, simulation};

/// Initial lead of the wall clock over the boot-time clock, with room to go back.
const BEGIN_MS: i64 = 50 * YEAR_MS;
/// A year in milliseconds.
pub const YEAR_MS: i64 = 365 * DAY_MS;
/// A day in milliseconds. Setting the wall clock by more counts as a jump.
pub const DAY_MS: i64 = 24 * 3_600_000;
/// Common advance of the clocks after which a database may confirm the time.
const CONFIRM_MS: u64 = 600_000;
/// Maximum difference of clocks that have advanced together.
const TOGETHER_MS: u64 = 5_000;
/// Maximum lead of the time of reads over the wall clock due to small steps back, in one
/// simulation.
const STEPS_MS: u64 = 3_600_000;
/// Duration of a glitch.
const GLITCH_MS: u64 = 3_000;

/// Clocks for all incarnations of a database and all its copies.
#[derive(Debug, Default)]
pub struct MachineClock {
    /// Not held over a step.
    places: Mutex<Places>,
    /// Latest time that any database has read. Relaxed: one thread of a simulation runs at a time.
    latest_ms: AtomicU64,
}

/// Offsets of the wall clock over time.
#[derive(Debug, Default)]
struct Places {
    /// Time that has passed in addition to the time of the simulation.
    passed_ms: u64,
    /// Sum of all settings of the wall clock.
    set_by_ms: i64,
    /// Shift during a glitch, and the boot time of the glitch's end.
    glitch: Option<(i64, u64)>,
    /// Each offset of the wall clock with the boot time at which it began, in order.
    since: Vec<(u64, i64)>,
    /// Number of settings by more than a day, and of beginnings and ends of glitches.
    jumps: u64,
}

impl Places {
    fn boot_ms(&self) -> u64 {
        self.passed_ms + simulation::now_ns().unwrap_or(0) / 1_000_000
    }

    /// Returns the lead of the wall clock over the boot-time clock. Ends a glitch when its time is
    /// over.
    fn offset_ms(&mut self) -> i64 {
        if self.since.is_empty() {
            self.since.push((0, BEGIN_MS));
        }
        let (by_ms, end) = self.glitch.unwrap_or_default();
        if self.glitch.is_some() && self.boot_ms() >= end {
            self.glitch = None;
            self.jumps += 1;
            self.note(end);
        }
        let glitch = self.glitch.map_or(0, |_| by_ms);
        BEGIN_MS + self.set_by_ms + glitch
    }

    fn note(&mut self, from: u64) {
        let glitch = self.glitch.map_or(0, |(by_ms, _)| by_ms);
        self.since.push((from, BEGIN_MS + self.set_by_ms + glitch));
    }

    fn wall_ms(&mut self) -> u64 {
        let offset = self.offset_ms();
        self.boot_ms().saturating_add_signed(offset)
    }

    /// Returns the largest offset at which a time may have been confirmed, and the latest such
    /// time.
    fn confirmed_most(&mut self) -> Option<(i64, u64)> {
        self.offset_ms();
        let now = self.boot_ms();
        let ends = self.since.iter().skip(1).map(|(from, _)| *from);
        let ends: Vec<u64> = ends.chain([now]).collect();
        let mut most = None;
        for (at, (_, offset)) in self.since.iter().enumerate() {
            let was_there = self.since[..=at].iter().any(|(from, before)| {
                before.abs_diff(*offset) <= TOGETHER_MS
                    && ends[at].saturating_sub(*from) >= CONFIRM_MS
            });
            if was_there {
                let time = ends[at].saturating_add_signed(*offset);
                let (offset_most, time_most) = most.unwrap_or((*offset, time));
                most = Some((offset_most.max(*offset), time_most.max(time)));
            }
        }
        most
    }
}

impl MachineClock {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the wall-clock time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.places().wall_ms()
    }

    /// Sets the wall clock forward or back.
    pub fn set(&self, by_ms: i64) {
        let mut places = self.places();
        places.offset_ms();
        places.set_by_ms += by_ms;
        places.jumps += u64::from(by_ms.abs() > DAY_MS);
        let now = places.boot_ms();
        places.note(now);
    }

    /// Makes the wall clock show another time for a moment.
    pub fn disturb(&self, by_ms: i64) {
        let mut places = self.places();
        places.offset_ms();
        let now = places.boot_ms();
        places.glitch = Some((by_ms, now + GLITCH_MS));
        places.jumps += 1;
        places.note(now);
    }

    /// Advances both clocks, as in suspend.
    pub fn pass(&self, ms: u64) {
        self.places().passed_ms += ms;
    }

    /// Returns whether the wall clock has ever jumped.
    pub fn has_jumped(&self) -> bool {
        self.jumps() > 0
    }

    fn jumps(&self) -> u64 {
        let mut places = self.places();
        places.offset_ms();
        places.jumps
    }

    /// Checks that a database may have confirmed this time before it stored it.
    pub fn check_stored(&self, stored_ms: u64) -> Result<(), String> {
        let most = self.places().confirmed_most().map_or(0, |(_, time)| time);
        if stored_ms <= most {
            Ok(())
        } else {
            Err(format!(
                "the time {stored_ms} ms is stored, and {most} ms is the latest that may have been confirmed"
            ))
        }
    }
}

/// Checks the time that one open database uses.
#[derive(Debug)]
pub struct Watch {
    machine: Arc<MachineClock>,
    /// Latest time that the database has read from the clock or returned. Relaxed, as above.
    told_ms: AtomicU64,
    /// Time that it had recorded before it was opened, if known, and the maximum of that time.
    recorded_ms: Option<u64>,
    recorded_ms_max: u64,
    /// Boot time at which the watch began.
    since_boot_ms: u64,
}

/// Moment in the time of one client.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    time_ms: u64,
    /// Jumps of the wall clock so far; `None` if it jumped during the call to the database.
    jumps: Option<u64>,
}

impl Moment {
    /// Returns the time of reads.
    pub fn time_ms(self) -> u64 {
        self.time_ms
    }
}

impl Watch {
    /// Creates a watch for a database that is about to be opened, with its recorded time if known.
    pub fn new(machine: &Arc<MachineClock>, recorded_ms: Option<u64>) -> Arc<Watch> {
        let told = || machine.latest_ms.load(Ordering::Relaxed);
        let since_boot_ms = machine.places().boot_ms();
        Arc::new(Watch {
            machine: Arc::clone(machine),
            told_ms: AtomicU64::new(recorded_ms.unwrap_or(0)),
            recorded_ms,
            recorded_ms_max: recorded_ms.unwrap_or_else(told),
            since_boot_ms,
        })
    }

    /// Returns the clock for the database's options.
    pub fn clock(self: &Arc<Watch>) -> Clock {
        let (watch, machine) = (Arc::clone(self), Arc::clone(&self.machine));
        let wall = move || {
            let now = watch.machine.now_ms();
            watch.told_ms.fetch_max(now, Ordering::Relaxed);
            watch.machine.latest_ms.fetch_max(now, Ordering::Relaxed);
            now
        };
        Clock::checked(wall, move || machine.places().boot_ms())
    }

    /// Returns the time of the database's reads at this moment. Panics if it breaks a rule. A
    /// closed database serves no reads, so any time is correct for it.
    pub fn moment(&self, db: &Database) -> Moment {
        let before = self.machine.jumps();
        let Ok(time_ms) = db.now_ms() else {
            return Moment {
                time_ms: self.latest_ms(),
                jumps: None,
            };
        };
        let jumps = Some(before).filter(|before| *before == self.machine.jumps());
        if jumps.is_some() {
            self.check(time_ms);
        }
        self.told_ms.fetch_max(time_ms, Ordering::Relaxed);
        self.machine.latest_ms.fetch_max(time_ms, Ordering::Relaxed);
        Moment { time_ms, jumps }
    }

    /// Panics if a time of reads is ahead of every source that it may come from.
    fn check(&self, time_ms: u64) {
        let mut places = self.machine.places();
        let (wall, boot) = (places.wall_ms(), places.boot_ms());
        let confirmed = places.confirmed_most();
        drop(places);
        let confirmed = confirmed.map_or(0, |(offset, _)| boot.saturating_add_signed(offset));
        let stored = self.recorded_ms_max + (boot - self.since_boot_ms);
        let most = wall.max(confirmed).max(stored) + STEPS_MS;
        assert!(
            time_ms <= most,
            "reads use the time {time_ms} ms: the clock shows {wall}, a confirmed one could show {confirmed}, the stored one {stored}"
        );
    }

    /// Returns the times that reads begun since `from` may use.
    pub fn since(&self, db: &Database, from: Moment) -> RangeInclusive<u64> {
        let now = self.moment(db);
        if from.jumps.is_none() || from.jumps != now.jumps {
            return self.recorded_ms.unwrap_or(0)..=self.latest_ms();
        }
        assert!(
            from.time_ms <= now.time_ms,
            "the time of reads ran back from {} to {} ms without a jump",
            from.time_ms,
            now.time_ms
        );
        from.time_ms..=now.time_ms.max(from.time_ms)
    }

    /// Returns the latest time that any reader may have used.
    pub fn latest_ms(&self) -> u64 {
        let told = self.told_ms.load(Ordering::Relaxed);
        let boot = self.machine.places().boot_ms();
        told.max(self.recorded_ms_max + (boot - self.since_boot_ms))
    }
}
