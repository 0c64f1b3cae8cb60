//! The machine's clocks, which clients set, disturb and let pass, and what each open database may make of them.
//!
//! The wall clock is the boot-time clock plus an offset that clients set, by little or by years, for good or for a moment.
//! A database is asked for the time of its reads before and after each read, so rows are compared with the state at just
//! that time. The time itself is judged by what every database must keep to, whatever it has seen of the clocks:
//!
//! - It runs back only if the wall clock has jumped meanwhile.
//! - It is not ahead of the wall clock, of a time that may have been confirmed and has gone on since, and of the stored
//!   time that has gone on since the opening. So a glitch that is over is over for reads.
//! - What is stored may have been confirmed: the wall clock showed it at a place where it had been ten minutes before.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use alluvium::{Clock, Database, simulation};

/// Lead of the wall clock over the boot-time clock at first: room to go back.
const BEGIN_MS: i64 = 50 * YEAR_MS;
/// A year.
pub const YEAR_MS: i64 = 365 * DAY_MS;
/// A day. A wall clock that is set by more jumps.
pub const DAY_MS: i64 = 24 * 3_600_000;
/// After so much common advance a database may confirm the time.
const CONFIRM_MS: u64 = 600_000;
/// Clocks that differ by no more have advanced together.
const TOGETHER_MS: u64 = 5_000;
/// Small steps back may leave the time of reads ahead of the wall clock by no more in one simulation.
const STEPS_MS: u64 = 3_600_000;
/// A glitch lasts so long.
const GLITCH_MS: u64 = 3_000;

/// The clocks for all incarnations of a database and all its copies.
#[derive(Debug, Default)]
pub struct MachineClock {
    /// Not held over a step.
    places: Mutex<Places>,
    /// The latest time that any database was told. Relaxed: one thread of a simulation runs at a time.
    latest_ms: AtomicU64,
}

/// Times that the wall clock has shown.
#[derive(Debug, Default)]
struct Places {
    /// Time that has passed in addition to that of the simulation.
    passed_ms: u64,
    /// Lead of the wall clock over its beginning.
    set_by_ms: i64,
    /// Its lead in a glitch, and the boot time of the glitch's end.
    glitch: Option<(i64, u64)>,
    /// Each offset of the wall clock with the boot time from which it had it, in order.
    since: Vec<(u64, i64)>,
    /// Settings by more than a day, and glitches.
    jumps: u64,
}

impl Places {
    fn boot_ms(&self) -> u64 {
        self.passed_ms + simulation::now_ns().unwrap_or(0) / 1_000_000
    }

    /// Lead of the wall clock over the boot-time clock. Ends a glitch whose time is over.
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

    /// The largest offset at which a time may have been confirmed, and the latest such time.
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

    /// The time that the wall clock shows, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.places().wall_ms()
    }

    /// Sets the wall clock forward, or back.
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

    /// Lets time pass, as in suspend: for both clocks.
    pub fn pass(&self, ms: u64) {
        self.places().passed_ms += ms;
    }

    /// Returns true if it has ever jumped.
    pub fn has_jumped(&self) -> bool {
        self.jumps() > 0
    }

    fn jumps(&self) -> u64 {
        let mut places = self.places();
        places.offset_ms();
        places.jumps
    }

    /// Returns true if a database may have confirmed this time before it stored it.
    pub fn check_stored(&self, stored_ms: u64) -> Result<(), String> {
        let most = self.places().confirmed_most().map_or(0, |(_, time)| time);
        match stored_ms <= most {
            true => Ok(()),
            false => Err(format!(
                "the time {stored_ms} ms is stored, and {most} ms is the latest that may have been confirmed"
            )),
        }
    }
}

/// Knowledge that one open database has of the clocks.
#[derive(Debug)]
pub struct Watch {
    machine: Arc<MachineClock>,
    /// The latest time that it was told, or answered with. Relaxed, as above.
    told_ms: AtomicU64,
    /// Time that it had recorded before it was opened, if that is known, and the latest that this may be.
    recorded_ms: Option<u64>,
    recorded_ms_max: u64,
    /// The boot-time clock at that time.
    since_boot_ms: u64,
}

/// A moment of a client.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    time_ms: u64,
    /// Jumps of the wall clock so far; `None` if it has jumped while the database was asked.
    jumps: Option<u64>,
}

impl Moment {
    /// The time of reads.
    pub fn time_ms(self) -> u64 {
        self.time_ms
    }
}

impl Watch {
    /// For a database that is about to be opened, and has recorded this time if that is known.
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

    /// The clock for its options.
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

    /// The time of the database's reads at this moment. Panics if it breaks a rule. A closed database shows nothing, so
    /// any time will do.
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

    /// A time of reads is not ahead of all that it may come from.
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

    /// The times by which a reader may go that began since a moment.
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

    /// The latest time by which any reader may have gone.
    pub fn latest_ms(&self) -> u64 {
        let told = self.told_ms.load(Ordering::Relaxed);
        let boot = self.machine.places().boot_ms();
        told.max(self.recorded_ms_max + (boot - self.since_boot_ms))
    }
}
