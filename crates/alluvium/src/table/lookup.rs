//! Lookup of a key in a table: the newest entry at or below a read point. The entry is shown in
//! place before any of it is copied or pinned.

use crate::Result;
use crate::base::{SeqNo, ValueKind};
use crate::table::block::DecodedBlock;
use crate::table::pinned::PinnedValue;
use crate::table::reader::Table;
use std::ops::Range;
use std::sync::Arc;

/// Result of a lookup: the newest entry of a key at or below the read point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Seqno of the commit that wrote the entry.
    pub seqno: SeqNo,
    /// Kind of the entry: a [`ValueKind::Delete`] is found too.
    pub kind: ValueKind,
    /// The value; empty for a delete.
    pub value: PinnedValue,
}

/// Action of a lookup on a block that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnMiss {
    /// Waits for the device.
    Read,
    /// Starts the device read and returns, so that a lookup of several keys waits for all of them
    /// at once.
    Prefetch,
}

/// Outcome of a lookup in a table.
pub(crate) enum Lookup<R, C> {
    /// The result of the caller's closure on the entry.
    Found(R),
    /// No entry: the caller gets its context back.
    NotThere(C),
    /// A device read was started: see [`OnMiss::Prefetch`].
    Started,
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
        self.find_now(key, read_point, |entry| Found {
            seqno: entry.seqno(),
            kind: entry.kind(),
            value: entry.value().pin(),
        })
    }

    /// Returns the seqno of the newest entry of `key`, for conflict checks. Cost and errors as for
    /// [`Table::get`].
    pub fn newest_seqno(&self, key: &[u8], key_hash: u64) -> Result<Option<SeqNo>> {
        if !self.may_contain(key_hash) {
            return Ok(None);
        }
        self.find_now(key, SeqNo::MAX, |entry| entry.seqno())
    }

    fn find_now<R>(
        &self,
        key: &[u8],
        read_point: SeqNo,
        found: impl Fn(BlockEntry<'_>) -> R,
    ) -> Result<Option<R>> {
        let found = |(), entry: BlockEntry<'_>| found(entry);
        Ok(match self.find(key, read_point, OnMiss::Read, (), found)? {
            Lookup::Found(found) => Some(found),
            Lookup::NotThere(()) => None,
            Lookup::Started => unreachable!("misses are read"),
        })
    }

    /// Runs `found` on the newest entry of `key` with a seqno of at most `read_point`. The call
    /// works in place, and takes no reference if the block is cached. `found` gets `context` as
    /// well. No filter is probed.
    ///
    /// Errors: `Corruption` and `Io` for the block.
    pub(crate) fn find<C, R>(
        &self,
        key: &[u8],
        read_point: SeqNo,
        misses: OnMiss,
        mut context: C,
        found: impl Fn(C, BlockEntry<'_>) -> R,
    ) -> Result<Lookup<R, C>> {
        let floor = self.seqno_floor();
        // A read point below the floor sees none of the table. For any other, stored seqnos decide.
        if read_point < floor {
            return Ok(Lookup::NotThere(context));
        }
        for index in self.fences.find(key)..self.fences.len() {
            if misses == OnMiss::Prefetch && !self.has_block(index) {
                self.start_reading_block(index);
                return Ok(Lookup::Started);
            }
            let (outcome, at_end) = self.with_block(index, |block| {
                let mut slot = block.seek(key);
                while slot < block.len() && block.key_is(slot, key) {
                    if block.seqno(slot) <= read_point {
                        let entry = BlockEntry::new(block, slot, floor);
                        return (Lookup::Found(found(context, entry)), false);
                    }
                    slot += 1;
                }
                // Older versions of the key may follow in the next block.
                (Lookup::NotThere(context), slot == block.len())
            })?;
            match outcome {
                Lookup::NotThere(back) if at_end && self.fences.separator_is(index, key) => {
                    context = back;
                }
                outcome => return Ok(outcome),
            }
        }
        Ok(Lookup::NotThere(context))
    }
}

/// The newest entry of a key at or below the read point, in its block.
#[derive(Clone, Copy)]
pub struct BlockEntry<'a> {
    block: &'a Arc<DecodedBlock>,
    slot: usize,
    seqno_floor: SeqNo,
}

impl<'a> BlockEntry<'a> {
    /// Creates the entry in a slot of `block`. The entries of its table count as not older than
    /// `seqno_floor`.
    pub(super) fn new(
        block: &'a Arc<DecodedBlock>,
        slot: usize,
        seqno_floor: SeqNo,
    ) -> BlockEntry<'a> {
        BlockEntry {
            block,
            slot,
            seqno_floor,
        }
    }

    /// Returns the seqno of the commit that wrote the entry.
    pub fn seqno(&self) -> SeqNo {
        self.block.seqno(self.slot).max(self.seqno_floor)
    }

    /// Returns the entry's kind.
    pub fn kind(&self) -> ValueKind {
        self.block.kind(self.slot)
    }

    /// Returns the stored value; empty for a delete.
    pub fn value(&self) -> BlockBytes<'a> {
        BlockBytes {
            block: self.block,
            range: self.block.value_range(self.slot),
        }
    }
}

/// Bytes of a block that its reader keeps in memory.
pub struct BlockBytes<'a> {
    block: &'a Arc<DecodedBlock>,
    range: Range<usize>,
}

impl<'a> BlockBytes<'a> {
    /// Returns the bytes, borrowed from the block.
    pub fn bytes(&self) -> &'a [u8] {
        self.block.bytes(self.range.clone())
    }

    /// Removes the last `bytes` bytes, or all if there are fewer.
    pub fn without_last(self, bytes: usize) -> BlockBytes<'a> {
        let kept = self.range.len().saturating_sub(bytes);
        BlockBytes {
            range: self.range.start..self.range.start + kept,
            ..self
        }
    }

    /// Returns the bytes in a holder that keeps them in memory.
    pub fn pin(self) -> PinnedValue {
        PinnedValue::from_block(self.block, self.range)
    }
}
