//! Check for lost updates: what a transaction has locked does not change before its commit.

use alluvium::Isolation;

use crate::history::Intent;
use crate::records::Checked;
use crate::state::Row;
use crate::world::World;

/// Checks a transaction that was prepared before the database was opened: the rows that it has
/// locked must not change before its commit.
pub fn check_inherited(world: &World, tag: u64, seqno: u64) -> Checked<()> {
    let rows = world.records.history().intent(tag).map(Intent::rows);
    let locked: Vec<_> = rows.into_iter().flatten().map(|row| (row, 0)).collect();
    check_locked(world, Isolation::Snapshot, world.opened_at, &locked, seqno)
}

/// Checks for lost updates: no commit excluded by locks may have written a row that the transaction
/// wrote or locked. Rows absent both before and after are exempt.
pub fn check_locked(
    world: &World,
    isolation: Isolation,
    point: u64,
    locked: &[(Row, u64)],
    seqno: u64,
) -> Checked<()> {
    let history = world.records.history();
    if history.is_uncertain(seqno) {
        return Ok(());
    }
    for (row, visible) in locked {
        let from = match isolation {
            Isolation::ReadCommitted => *visible,
            _ => point,
        };
        let others = history.tracked_between(from, seqno, row);
        // A row that was created and removed leaves no version that a compaction must keep. No
        // reader can detect it: the transaction could as well have begun after it.
        let may_be_gone = |at: u64| {
            history
                .at(at)
                .get(row)
                .is_none_or(|stored| history.may_be_gone(row, stored))
        };
        let came_and_went = may_be_gone(from) && may_be_gone(seqno - 1);
        if !others.is_empty() && !came_and_went {
            return Err(format!(
                "lost update: a {isolation:?} transaction of state {from} committed as {seqno}, and its row {} of keyspace {} was written by {others:?} in between",
                row.1.escape_ascii(),
                row.0
            ));
        }
    }
    Ok(())
}
