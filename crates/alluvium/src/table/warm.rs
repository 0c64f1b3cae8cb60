//! Warming: blocks of new tables that take over from blocks in use are cached before a version
//! names the tables, so that readers do not read them one by one.
//!
//! A compaction replaces whole tables, also where few of their rows changed, and all cached blocks
//! of the old ones are lost. Only blocks of the last level count: a block of a table above it has
//! its rows in many blocks of the new tables.

use crate::table::frames::USES_MAX;
use crate::table::reader::Table;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Least uses since the last eviction attempt that make a block worth warming its successor.
const USES_MIN: u8 = 2;

/// Caches the blocks of `new` tables that cover the most used cached blocks of `old` ones, up to
/// `bytes_max`. Both lists are in key order and do not overlap within themselves.
///
/// Stops at a block that is not readable: a reader that needs it gets the error.
pub(crate) fn warm(old: &[Arc<Table>], new: &[&Arc<Table>], bytes_max: u64) {
    let mut left = bytes_max;
    for uses in (USES_MIN..=USES_MAX).rev() {
        for (table, block) in old.iter().flat_map(|table| table.blocks_used(uses)) {
            for (successor, block) in successors(table, block, new) {
                let Some(bytes) = successor.warm_block(block) else {
                    return;
                };
                left = left.saturating_sub(bytes);
                if left == 0 {
                    return;
                }
            }
        }
    }
}

/// Returns the new blocks over the key range of an old one.
fn successors<'a>(
    table: &Table,
    block: usize,
    new: &[&'a Arc<Table>],
) -> impl Iterator<Item = (&'a Arc<Table>, usize)> {
    let last = table.fences.separator(block);
    let after = block.checked_sub(1).map(|at| table.fences.separator(at));
    let first = after.as_deref().unwrap_or(table.first_key());
    let from = new.partition_point(|t| t.last_key() < first);
    let to = new.partition_point(|t| t.first_key() <= &last[..]);
    let over = new[from..to.max(from)].to_vec().into_iter();
    over.flat_map(move |t| {
        let blocks = t.blocks_over(after.as_deref(), &last);
        blocks.map(move |block| (t, block))
    })
}

impl Table {
    /// Returns the cached blocks that were used this often since the last eviction attempt.
    fn blocks_used(&self, uses: u8) -> impl Iterator<Item = (&Table, usize)> {
        let used = (0..self.blocks()).filter(move |&block| self.frames.uses(block) == Some(uses));
        used.map(move |block| (self, block))
    }

    /// Returns the blocks that may hold keys after `after`, or from the first key on, to `last`.
    fn blocks_over(&self, after: Option<&[u8]>, last: &[u8]) -> RangeInclusive<usize> {
        let first = after.map_or(0, |after| {
            let block = self.fences.find(after);
            let ends = block < self.blocks() && self.fences.separator_is(block, after);
            block + usize::from(ends)
        });
        first..=self.fences.find(last).min(self.blocks() - 1)
    }

    /// Caches a block. Returns the bytes that this took, 0 if it was cached before; `None` if it is
    /// unreadable.
    fn warm_block(&self, block: usize) -> Option<u64> {
        if self.frames.has(block) {
            return Some(0);
        }
        Some(self.miss(block).ok()?.resident_bytes() as u64)
    }
}
