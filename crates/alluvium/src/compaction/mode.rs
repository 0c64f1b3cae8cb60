//! Kinds of compaction jobs.

use crate::base::SeqNo;

/// Kind of job that a compaction belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Due work.
    Due,
    /// Read-triggered work, not due.
    ReadTriggered,
    /// Due work that interrupts another compaction; it is not interrupted itself.
    Urgent,
    /// Idle work, not due: ends as soon as there is a newer commit than this.
    Idle(SeqNo),
}

impl Mode {
    /// Returns true if commits would sooner or later wait for it.
    pub fn is_due(self) -> bool {
        matches!(self, Mode::Due | Mode::Urgent)
    }
}
