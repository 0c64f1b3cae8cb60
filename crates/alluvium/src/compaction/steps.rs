//! A merge in short steps: between two of them it looks whether somebody needs its thread or its core more.
//!
//! A step ends after about 2 ms or 1 MiB of output. Then, in this order: the merge ends if the database closes or is
//! poisoned; it ends without result if it was only tidying and somebody writes again; it lets the flusher go first
//! while sealed memtables slow writers down; it runs a more urgent job of another group before it goes on. No lock is
//! held at such a moment, so nothing waits for the merge meanwhile.

use std::cell::Cell;
use std::time::Duration;

use crate::sync::time::Instant;

use crate::base::SeqNo;
use crate::compaction::threads::run_urgent;
use crate::db::shared::Shared;
use crate::error::{Error, Result};

/// Keys between two looks at the clock.
const KEYS_PER_LOOK: u32 = 64;
/// Output after which the clock is looked at in any case: a few keys may have large values.
const STEP_BYTES: u64 = 1 << 20;
/// How long a step lasts.
const STEP: Duration = Duration::from_millis(2);
/// How long one step lets the flusher go first. Bounded, because a flush may itself wait for the space that this
/// merge frees.
const FLUSH_FIRST: Duration = Duration::from_millis(20);

/// What kind of merge goes in steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Due work.
    Due,
    /// Not due, but paid for by scans.
    ReadTriggered,
    /// Due work that another merge made room for: it makes room for none.
    Urgent,
    /// Not due, done while nobody writes: ends as soon as there is a newer commit than this.
    Tidy(SeqNo),
}

impl Mode {
    /// Whether commits would sooner or later wait for it.
    pub fn is_due(self) -> bool {
        matches!(self, Mode::Due | Mode::Urgent)
    }
}

/// The steps of one merge.
pub(crate) struct Steps<'a> {
    shared: &'a Shared,
    mode: Mode,
    keys: Cell<u32>,
    bytes: Cell<u64>,
    began: Cell<Instant>,
    given_up: Cell<bool>,
}

impl<'a> Steps<'a> {
    pub fn new(shared: &'a Shared, mode: Mode) -> Steps<'a> {
        Steps {
            shared,
            mode,
            keys: Cell::new(0),
            bytes: Cell::new(0),
            began: Cell::new(Instant::now()),
            given_up: Cell::new(false),
        }
    }

    pub fn shared(&self) -> &'a Shared {
        self.shared
    }

    /// Counts output.
    pub fn wrote(&self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
    }

    /// Whether the merge ended because somebody writes again.
    pub fn given_up(&self) -> bool {
        self.given_up.get()
    }

    /// To be called at each key. An error ends the merge.
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
        self.shared.check_open()?;
        self.shared.poison.check()?;
        if let Mode::Tidy(seqno) = self.mode
            && self.shared.read_points.visible() != seqno
        {
            self.given_up.set(true);
            return Err(Error::Closed);
        }
        if self.bytes.get() >= STEP_BYTES || self.began.get().elapsed() >= STEP {
            self.between_steps()?;
            self.bytes.set(0);
            self.began.set(Instant::now());
        }
        Ok(())
    }

    fn between_steps(&self) -> Result<()> {
        // A core that is wanted by nobody comes back at once.
        crate::sync::thread::yield_now();
        self.shared.let_flush_go_first(FLUSH_FIRST);
        match self.mode {
            Mode::Due | Mode::ReadTriggered => run_urgent(self.shared),
            Mode::Urgent | Mode::Tidy(_) => Ok(()),
        }
    }
}
