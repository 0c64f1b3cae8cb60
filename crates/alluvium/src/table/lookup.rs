//! Lookup of a key in a table: the newest entry at or below a read point. The entry stays in its
//! block until some of it is copied or pinned.

use crate::Result;
use crate::base::{SeqNo, ValueKind};
use crate::error::Error;
use crate::table::held_block::HeldBlock;
use crate::table::pinned::PinnedValue;
use crate::table::reader::Table;
use std::ops::Range;

/// Result of a lookup: the newest entry of a key at or below the read point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Seqno of the commit that wrote the entry.
    pub seqno: SeqNo,
    /// Kind of the entry: a [`ValueKind::Delete`] is found too.
    pub kind: ValueKind,
    /// The value as stored in the table, which for a separated value is the pointer to it; empty
    /// for a delete.
    pub value: PinnedValue,
}

/// Access of a lookup to blocks and separated values: [`Read`] waits for the device, [`Prefetch`]
/// does not.
pub(crate) trait Access {
    /// Reason to end the lookup without a result.
    type Stop;

    /// Returns a block of `table`.
    fn block(table: &Table, index: usize) -> Result<HeldBlock<'_>, Self::Stop>;

    /// Returns the separated value that the bytes `stored` in a row of `table` point to.
    fn value(table: &Table, stored: &[u8]) -> Result<PinnedValue, Self::Stop>;
}

/// Access that waits for the device if a block or value is not in memory.
pub(crate) struct Read;

/// Access that only starts a device read if a block is not in memory, and ends the lookup.
/// Separated values are never cached, so their read is always started. A lookup of several keys
/// then waits for all reads at once.
pub(crate) struct Prefetch;

/// A device read was started: see [`Prefetch`].
#[derive(Debug)]
pub(crate) struct Started;

impl Access for Read {
    type Stop = Error;

    fn block(table: &Table, index: usize) -> Result<HeldBlock<'_>> {
        table.hold_block(index)
    }

    fn value(table: &Table, stored: &[u8]) -> Result<PinnedValue> {
        table.value(stored)
    }
}

impl Access for Prefetch {
    type Stop = Started;

    fn block(table: &Table, index: usize) -> Result<HeldBlock<'_>, Started> {
        table.hold_cached_block(index).ok_or_else(|| {
            table.start_reading_block(index);
            Started
        })
    }

    fn value(table: &Table, stored: &[u8]) -> Result<PinnedValue, Started> {
        table.start_reading_value(stored);
        Err(Started)
    }
}

impl Table {
    /// Returns the newest entry of `key` with a seqno of at most `read_point`. `key_hash` is
    /// [`key_hash`] of the key; the whole-key filter is probed first.
    ///
    /// Errors: `Corruption` and `Io` for the block. Cost: one filter probe, and one block if the
    /// filter passes.
    ///
    /// [`key_hash`]: crate::base::checksum::key_hash
    pub fn get(&self, key: &[u8], key_hash: u64, read_point: SeqNo) -> Result<Option<Found>> {
        if !self.may_contain(key_hash) {
            return Ok(None);
        }
        let entry = self.find::<Read>(key, read_point)?;
        Ok(entry.map(|entry| Found {
            seqno: entry.seqno(),
            kind: entry.kind(),
            value: entry.into_value().pin(),
        }))
    }

    /// Returns the seqno of the newest entry of `key`, for conflict checks. Cost and errors as for
    /// [`Table::get`].
    pub fn newest_seqno(&self, key: &[u8], key_hash: u64) -> Result<Option<SeqNo>> {
        if !self.may_contain(key_hash) {
            return Ok(None);
        }
        let entry = self.find::<Read>(key, SeqNo::MAX)?;
        Ok(entry.map(|entry| entry.seqno()))
    }

    /// Returns the newest entry of `key` with a seqno of at most `read_point`, in its block. Does
    /// not touch the reference count of a cached block. No filter is probed.
    ///
    /// Errors: those of [`Access::block`].
    pub(crate) fn find<A: Access>(
        &self,
        key: &[u8],
        read_point: SeqNo,
    ) -> Result<Option<BlockEntry<'_>>, A::Stop> {
        let seqno_floor = self.seqno_floor();
        // A read point below the floor sees none of the table. For any other, stored seqnos decide.
        if read_point < seqno_floor {
            return Ok(None);
        }
        for index in self.fences.find(key)..self.fences.len() {
            let block = A::block(self, index)?;
            let rows = block.rows();
            let (mut slot, len) = (rows.seek(key), rows.len());
            while slot < len && rows.key_is(slot, key) {
                if rows.seqno(slot) <= read_point {
                    return Ok(Some(BlockEntry {
                        block,
                        slot,
                        seqno_floor,
                    }));
                }
                slot += 1;
            }
            // Older versions of the key may follow in the next block.
            if slot < len || !self.fences.separator_is(index, key) {
                break;
            }
        }
        Ok(None)
    }
}

/// The newest entry of a key at or below the read point, in its block.
pub(crate) struct BlockEntry<'t> {
    block: HeldBlock<'t>,
    slot: usize,
    /// Lower bound of the seqnos of the table's entries.
    seqno_floor: SeqNo,
}

impl<'t> BlockEntry<'t> {
    /// Returns the seqno of the commit that wrote the entry.
    pub fn seqno(&self) -> SeqNo {
        self.block.rows().seqno(self.slot).max(self.seqno_floor)
    }

    /// Returns the entry's kind.
    pub fn kind(&self) -> ValueKind {
        self.block.rows().kind(self.slot)
    }

    /// Returns the stored value; empty for a delete.
    pub fn into_value(self) -> BlockBytes<'t> {
        BlockBytes {
            range: self.block.rows().value_range(self.slot),
            block: self.block,
        }
    }
}

/// Bytes of a block that a lookup holds.
pub(crate) struct BlockBytes<'t> {
    block: HeldBlock<'t>,
    range: Range<usize>,
}

impl BlockBytes<'_> {
    /// Returns the bytes in place.
    pub fn bytes(&self) -> &[u8] {
        self.block.rows().bytes(self.range.clone())
    }

    /// Removes the last `bytes` bytes, or all if there are fewer.
    pub fn without_last(self, bytes: usize) -> Self {
        let kept = self.range.len().saturating_sub(bytes);
        BlockBytes {
            range: self.range.start..self.range.start + kept,
            ..self
        }
    }

    /// Returns the bytes in a holder that keeps them in memory.
    pub fn pin(self) -> PinnedValue {
        PinnedValue::of_held(self.block, self.range)
    }
}
