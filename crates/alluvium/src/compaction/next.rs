//! Next piece of background work: pure functions from the state of the database, tested as text.
//!
//! A compaction thread looks at the database after each event and when a sleep ends. Its states,
//! drawn in ARCHITECTURE.md, are tried in this order:
//!
//! 1. **Compact**: a caller waits for the group; or it is due; or a caller of `settle` waits and
//!    the group has entries that no reader needs; or the device is full and a compaction may free
//!    space; or scans have paid for the compaction ([`crate::compaction::read_triggered`]).
//! 2. **Make room**, if the device is full and no compaction finds room: deletes in memory can
//!    help.
//! 3. **Retry**: a compaction has failed and waits for the next round.
//! 4. **Quiet**: no work is due. Scans may have paid for a flush of memtables. If there were no
//!    commits for a while ([`crate::compaction::idle`]), memtables are flushed and upper tables
//!    compacted, until the pass has no group left.

use std::time::Duration;

use crate::compaction::idle::Advice;
use crate::compaction::mode::Mode;
use crate::compaction::pick::{GroupSize, PickRules, Picked, Work};
use crate::compaction::read_triggered::{EarlyFlush, LOOK_WHILE_USED};

/// Time between two looks of a thread that waits for space or for a retry.
pub(super) const RETRY_LOOK: Duration = Duration::from_secs(1);

/// State of the database at one look.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// All groups; those that may not be compacted now are busy.
    pub groups: Vec<GroupSize>,
    /// A group of a range that a caller waits for.
    pub wanted: Option<usize>,
    /// True if a caller of `settle` waits.
    pub settling: bool,
    /// True if the device is full.
    pub low_on_space: bool,
    /// True if a compaction has failed and is to be tried again.
    pub postponed: bool,
    /// Bytes of sealed memtables; and true if any memtable has rows.
    pub sealed_bytes: usize,
    pub has_rows: bool,
    /// True if a flush has found no room and the active memtables have deletes, which may hide the
    /// rows of that flush.
    pub deletes_may_help: bool,
    /// Free bytes of the device.
    pub free_bytes: u64,
    /// Share of its cost at which a read-triggered compaction starts; `None` if no work is done
    /// that is not due.
    pub scan_share: Option<f64>,
}

/// Next action of a thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Next {
    Compact(Mode, Picked),
    /// The device has no room for the compaction that scans have paid for: resets the group's count
    /// of seeks and looks again.
    Refuse(usize),
    /// Looks for space, flushes, and sleeps for [`RETRY_LOOK`].
    MakeRoom(EarlyFlush),
    /// Sleeps until an event, or at most this long.
    Sleep(Option<Duration>),
    /// No work is due: [`quiet`] decides.
    Quiet,
}

/// Decides on the next work of a thread.
pub(super) fn next(rules: &PickRules, seen: &Seen) -> Next {
    let groups = &seen.groups[..];
    let wanted = seen.wanted.map(|group| Picked {
        group,
        work: Work::LastLevel,
    });
    let due = wanted.or_else(|| rules.pick(groups)).or_else(|| {
        // If the device is full, any entry that a compaction may drop is worth its work.
        let reclaim = seen.settling.then(|| rules.pick_reclaim(groups)).flatten();
        reclaim.or_else(|| seen.low_on_space.then(|| rules.pick_idle(groups)).flatten())
    });
    if let Some(picked) = due {
        return Next::Compact(Mode::Due, picked);
    }
    if seen.low_on_space {
        return Next::MakeRoom(flush_for_room(seen));
    }
    let paid = seen
        .scan_share
        .and_then(|share| rules.pick_read_triggered(groups, share));
    match paid {
        Some(picked) if has_room(seen, picked.group) => Next::Compact(Mode::ReadTriggered, picked),
        Some(picked) => Next::Refuse(picked.group),
        // There may be space again, since other jobs have found some; no event reports that.
        None if seen.postponed => Next::Sleep(Some(RETRY_LOOK)),
        None if seen.scan_share.is_none() => Next::Sleep(None),
        None => Next::Quiet,
    }
}

/// While sealed memtables find no space, sealing more rows does not help. They would only pile up,
/// above the ceiling and unnoticed by the check of it in each commit. Deletes may help, and the log
/// has little room for more of them.
fn flush_for_room(seen: &Seen) -> EarlyFlush {
    if seen.sealed_bytes > 0 && !seen.deletes_may_help {
        EarlyFlush::Sealed
    } else if seen.has_rows {
        EarlyFlush::All
    } else {
        EarlyFlush::Nothing
    }
}

/// Returns true if the device has room for a compaction that is not due: as much as it may take,
/// and as much again to be left over. Such a compaction is not worth a refused commit.
fn has_room(seen: &Seen, group: usize) -> bool {
    let group = &seen.groups[group];
    seen.free_bytes >= 2 * (group.upper_bytes() + group.last_bytes)
}

/// State of a database without due work.
#[derive(Debug)]
pub(super) struct Calm {
    /// Flush that the seeks of scans in memtables have paid for.
    pub paid: EarlyFlush,
    /// Answer of the idle clock.
    pub advice: Advice,
    /// True if there were commits or seeks since the last look.
    pub used: bool,
    /// True if another thread does idle work.
    pub others_idle: bool,
    /// Time between two looks without news.
    pub period: Duration,
}

/// Action of a thread in a database without due work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rest {
    /// Sleeps until an event, or at most this long.
    Sleep(Duration),
    /// Compacts a group of the idle pass.
    Compact(Picked),
    /// Ends the idle pass and sleeps.
    EndPass,
}

/// Decides on the work of a thread while no work is due. `in_pass` tells the groups that the idle
/// pass has compacted.
pub(super) fn quiet(
    rules: &PickRules,
    seen: &mut Seen,
    calm: &Calm,
    in_pass: impl Fn(usize) -> bool,
) -> (EarlyFlush, Rest) {
    match calm.advice {
        Advice::Wait(most) if calm.used => (calm.paid, Rest::Sleep(most.min(LOOK_WHILE_USED))),
        Advice::Wait(most) => (calm.paid, Rest::Sleep(most)),
        // One thread is enough for work that is not urgent.
        Advice::Work if calm.others_idle => (calm.paid, Rest::Sleep(calm.period)),
        // The end of the flush is an event.
        Advice::Work if seen.has_rows => (EarlyFlush::All, Rest::Sleep(calm.period)),
        Advice::Work => {
            for group in 0..seen.groups.len() {
                let left_out = in_pass(group) || !has_room(seen, group);
                seen.groups[group].busy |= left_out;
            }
            let picked = rules.pick_idle(&seen.groups);
            (calm.paid, picked.map_or(Rest::EndPass, Rest::Compact))
        }
    }
}

#[cfg(test)]
mod tests;
