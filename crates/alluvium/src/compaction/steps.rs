//! Compaction in short steps: between two steps it checks whether its thread or core is needed for
//! more urgent work.
//!
//! A step ends after about 2 ms or 1 MiB of output. Then, in this order:
//!
//! 1. The compaction ends if the database closes or is poisoned.
//! 2. An idle compaction ends without result if there are new commits.
//! 3. It lets the flush thread go first while sealed memtables slow writers down.
//! 4. It runs a more urgent job of another group before it continues.
//! 5. A read-triggered compaction takes shorter steps and rests after each for as long, because the
//!    readers that it helps may need the same cores.
//!
//! No lock is held at such a moment, so no thread waits for the compaction meanwhile.

use std::cell::Cell;
use std::time::Duration;

use crate::sync::time::Instant;

use crate::compaction::env::CompactionEnv;
use crate::compaction::mode::Mode;
use crate::db::core::Core;
use crate::error::{Error, Result};

/// Keys between two checks of the clock.
const KEYS_PER_LOOK: u32 = 64;
/// Output after which the clock is checked in any case: a few keys may have large values.
const STEP_BYTES: u64 = 1 << 20;
/// Length of a step.
const STEP: Duration = Duration::from_millis(2);
/// Length of a step of a read-triggered compaction: a reader on the same core waits this long. In
/// steps of 2 ms without rests, the 99.9th percentile of 100-row scans on two cores was five times
/// as long (`docs/results/decision-0048.md`).
const READ_TRIGGERED_STEP: Duration = Duration::from_micros(250);
/// Longest time for which one step lets the flush thread go first. Bounded, because a flush may
/// itself wait for the space that this compaction frees.
const FLUSH_FIRST: Duration = Duration::from_millis(20);

/// Progress of one compaction through its steps.
pub(crate) struct Steps<'a> {
    env: &'a CompactionEnv,
    mode: Mode,
    /// Runs more urgent work.
    between_steps: &'a dyn Fn() -> Result<()>,
    keys: Cell<u32>,
    bytes: Cell<u64>,
    began: Cell<Instant>,
    given_up: Cell<bool>,
}

impl<'a> Steps<'a> {
    /// Begins a compaction. `between_steps` runs more urgent work; it is not called in a
    /// compaction that is itself urgent or idle.
    pub fn new(
        env: &'a CompactionEnv,
        mode: Mode,
        between_steps: &'a dyn Fn() -> Result<()>,
    ) -> Steps<'a> {
        Steps {
            env,
            mode,
            between_steps,
            keys: Cell::new(0),
            bytes: Cell::new(0),
            began: Cell::new(Instant::now()),
            given_up: Cell::new(false),
        }
    }

    pub fn core(&self) -> &'a Core {
        &self.env.core
    }

    /// Counts output.
    pub fn wrote(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Returns true if the compaction ended because there were new commits.
    pub fn given_up(&self) -> bool {
        self.given_up.get()
    }

    /// Counts a key; to be called at each one. An error ends the compaction.
    pub fn key(&self) -> Result<()> {
        let keys = self.keys.get() + 1;
        self.keys.set(keys);
        if keys < KEYS_PER_LOOK && self.bytes.get() < STEP_BYTES {
            return Ok(());
        }
        self.keys.set(0);
        self.look()
    }

    fn look(&self) -> Result<()> {
        let core = self.core();
        core.access.check_open()?;
        core.poison.check()?;
        if let Mode::Idle(seqno) = self.mode
            && core.read_points.visible() != seqno
        {
            self.given_up.set(true);
            return Err(Error::Closed);
        }
        let took = self.began.get().elapsed();
        let step = match self.mode {
            Mode::ReadTriggered => READ_TRIGGERED_STEP,
            Mode::Due | Mode::Urgent | Mode::Idle(_) => STEP,
        };
        if self.bytes.get() >= STEP_BYTES || took >= step {
            self.end_step(took)?;
            self.bytes.set(0);
            self.began.set(Instant::now());
        }
        Ok(())
    }

    fn end_step(&self, took: Duration) -> Result<()> {
        // If no other thread wants the core, this returns at once.
        crate::sync::thread::yield_now();
        self.env.flushes.go_first(FLUSH_FIRST);
        // Writers need the group soon.
        let is_needed = self.env.flushes.sealed_bytes() > 0;
        if self.mode == Mode::ReadTriggered && !is_needed {
            self.env.jobs.rest(took);
        }
        match self.mode {
            Mode::Due | Mode::ReadTriggered => (self.between_steps)(),
            Mode::Urgent | Mode::Idle(_) => Ok(()),
        }
    }
}
