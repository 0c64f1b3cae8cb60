//! The machine's clock, which clients set forward and back, and what each open database knows of it.
//!
//! A database answers with the latest time that it was told, or that the database on disk has recorded: so its time never
//! runs backwards while it is open. What was recorded is at most what any database was told before. A reader's time lies
//! between two [moments](Moment) of its client; where nobody set the clock between them, that is the clock's own time.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use alluvium::{Clock, simulation};

/// The time at which each simulation begins, in milliseconds: room to go back.
const BEGIN_MS: i64 = 100_000_000;

/// A clock for all lives of a database and all its copies. Relaxed everywhere: one thread of a simulation runs at a time.
#[derive(Debug, Default)]
pub struct MachineClock {
    offset_ms: AtomicI64,
    /// How often it was set.
    moves: AtomicU64,
    /// The latest time that any database was told.
    latest_ms: AtomicU64,
}

impl MachineClock {
    /// What it shows, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        let since = simulation::now_ns().unwrap_or(0) / 1_000_000;
        let offset = BEGIN_MS + self.offset_ms.load(Ordering::Relaxed);
        since.saturating_add_signed(offset)
    }

    /// Sets it forward, or back.
    pub fn set(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
        self.moves.fetch_add(1, Ordering::Relaxed);
    }
}

/// What one open database knows of the clock.
#[derive(Debug)]
pub struct Watch {
    machine: Arc<MachineClock>,
    /// The latest time that it was told.
    told_ms: AtomicU64,
    /// The latest that may have been recorded before it was opened.
    recorded_ms_max: u64,
}

/// A moment of a client.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    shown_ms: u64,
    told_ms: u64,
    moves: u64,
}

impl Watch {
    /// For a database that is about to be opened, and has recorded this time if that is known.
    pub fn new(machine: &Arc<MachineClock>, recorded_ms: Option<u64>) -> Arc<Watch> {
        let told = || machine.latest_ms.load(Ordering::Relaxed);
        Arc::new(Watch {
            machine: Arc::clone(machine),
            told_ms: AtomicU64::new(recorded_ms.unwrap_or(0)),
            recorded_ms_max: recorded_ms.unwrap_or_else(told),
        })
    }

    /// The clock for its options.
    pub fn clock(self: &Arc<Watch>) -> Clock {
        let watch = Arc::clone(self);
        Clock::custom(move || {
            let now = watch.machine.now_ms();
            watch.told_ms.fetch_max(now, Ordering::Relaxed);
            watch.machine.latest_ms.fetch_max(now, Ordering::Relaxed);
            now
        })
    }

    /// This moment.
    pub fn moment(&self) -> Moment {
        Moment {
            shown_ms: self.machine.now_ms(),
            told_ms: self.told_ms.load(Ordering::Relaxed),
            moves: self.machine.moves.load(Ordering::Relaxed),
        }
    }

    /// The times by which a reader may go that began since a moment.
    pub fn since(&self, from: Moment) -> RangeInclusive<u64> {
        let now = self.moment();
        let least = match from.moves == now.moves {
            true => from.told_ms.max(from.shown_ms),
            false => from.told_ms,
        };
        least..=self.latest_ms().max(least)
    }

    /// The latest time by which any reader may have gone.
    pub fn latest_ms(&self) -> u64 {
        let told = self.told_ms.load(Ordering::Relaxed);
        told.max(self.recorded_ms_max)
    }
}
