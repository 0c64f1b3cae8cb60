//! Cursor over one table: for each key the newest version at or below a read point, in both
//! directions.
//!
//! The cursor is at a slot of a block that it holds by a reference. It assembles the key from the
//! block's prefix and the slot's suffix in a reused buffer, so a step allocates nothing. The
//! versions of a key may cross a block border; the separator of a block tells whether they can,
//! without a read of the next block.

use crate::base::{SeqNo, ValueKind};
use crate::table::block::{BlockFrame, DecodedBlock};
use crate::table::pinned::{BlockValue, PinnedValue};
use crate::table::read_ahead::ReadAhead;
use crate::table::reader::Table;
use crate::{Error, Result};
use std::sync::Arc;

/// Cursor over the visible rows of one table; see [`Table::cursor`].
///
/// After an error the cursor is invalid and may be positioned again.
pub struct TableCursor {
    table: Arc<Table>,
    read_point: SeqNo,
    /// The table's smallest sequence number: see [`Table::raise_seqnos`].
    seqno_floor: SeqNo,
    at: Position,
    valid: bool,
    key: Vec<u8>,
    /// Index of the block whose prefix `key` begins with.
    key_index: usize,
    ahead: ReadAhead,
}

#[derive(Clone)]
struct Position {
    /// `None` before the first move.
    block: Option<BlockFrame>,
    index: usize,
    slot: usize,
}

impl Position {
    fn frame(&self) -> &BlockFrame {
        self.block.as_ref().expect("a block was loaded")
    }

    fn block(&self) -> DecodedBlock<'_> {
        DecodedBlock(self.frame())
    }
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, read_point: SeqNo) -> TableCursor {
        TableCursor {
            seqno_floor: table.seqno_floor(),
            table,
            read_point,
            at: Position {
                block: None,
                index: usize::MAX,
                slot: 0,
            },
            valid: false,
            key: Vec::new(),
            key_index: usize::MAX,
            ahead: ReadAhead::default(),
        }
    }

    /// Goes to the first key that is at least `key`. Like all moves, returns true if there is such
    /// a key.
    ///
    /// Errors of all moves: `Corruption` and `Io` for a block.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if !self.begin() {
            return Ok(false);
        }
        let index = self.table.fences.find(key);
        if index == self.table.fences.len() {
            return Ok(false);
        }
        self.load(index)?;
        self.at.slot = self.at.block().seek(key);
        if self.at.slot == self.at.block().len() && !self.enter_next_block()? {
            return Ok(false);
        }
        self.settle_forward()
    }

    /// Returns the error for a row out of key order.
    pub fn out_of_order(&self) -> Error {
        let offset = self.table.fences.block_range(self.at.index).start;
        let path = self.table.file.path();
        Error::corruption(
            path,
            offset,
            "order of rows",
            "ascending keys",
            "a row out of place",
        )
    }

    /// Goes to the last key below `key`.
    pub fn seek_before(&mut self, key: &[u8]) -> Result<bool> {
        if !self.begin() {
            return Ok(false);
        }
        let index = self.table.fences.find(key);
        if index == self.table.fences.len() {
            return self.seek_last();
        }
        self.load(index)?;
        self.at.slot = self.at.block().seek(key);
        if self.step_back()? {
            self.settle_backward()
        } else {
            Ok(false)
        }
    }

    /// Goes to the first key.
    pub fn seek_first(&mut self) -> Result<bool> {
        if !self.begin() {
            return Ok(false);
        }
        self.load(0)?;
        self.at.slot = 0;
        self.settle_forward()
    }

    /// Goes to the last key.
    pub fn seek_last(&mut self) -> Result<bool> {
        if !self.begin() {
            return Ok(false);
        }
        self.load(self.table.fences.len() - 1)?;
        self.at.slot = self.at.block().len() - 1;
        self.settle_backward()
    }

    /// Goes to the next key. An invalid cursor does not move.
    #[allow(
        clippy::should_implement_trait,
        reason = "a cursor reports errors and lends its rows"
    )]
    pub fn next(&mut self) -> Result<bool> {
        if !self.valid {
            return Ok(false);
        }
        self.valid = false;
        loop {
            let slot = self.at.slot;
            if slot + 1 < self.at.block().len() {
                self.at.slot = slot + 1;
                if !self.at.block().same_key(slot, slot + 1) {
                    break;
                }
            } else if !self.enter_next_block()? {
                return Ok(false);
            } else if !self.at.block().key_is(0, &self.key) {
                break;
            }
        }
        self.settle_forward()
    }

    /// Goes to the previous key. An invalid cursor does not move.
    pub fn prev(&mut self) -> Result<bool> {
        if !self.valid {
            return Ok(false);
        }
        self.valid = false;
        loop {
            if !self.step_back()? {
                return Ok(false);
            }
            if !self.at.block().key_is(self.at.slot, &self.key) {
                return self.settle_backward();
            }
        }
    }

    /// Begins a seek. Returns false if the whole table is newer than the read point: then no block
    /// is read. A read point at or above the floor is compared with stored seqnos, which give the
    /// same result as the raised ones.
    fn begin(&mut self) -> bool {
        self.valid = false;
        self.ahead.has_read = false;
        self.read_point >= self.seqno_floor
    }

    /// Returns true if the last seek, or a step after it, read a block that was not in the cache.
    pub fn has_read(&self) -> bool {
        self.ahead.has_read
    }

    /// Returns true if the cursor is at an entry; the accessors below may be called only then.
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// Returns the whole key.
    pub fn key(&self) -> &[u8] {
        debug_assert!(self.valid);
        &self.key
    }

    /// Returns the seqno of the commit that wrote the entry.
    pub fn seqno(&self) -> SeqNo {
        self.at.block().seqno(self.at.slot).max(self.seqno_floor)
    }

    /// Returns the entry's kind; deletes are shown too.
    pub fn kind(&self) -> ValueKind {
        self.at.block().kind(self.at.slot)
    }

    /// Returns the value, valid until the cursor moves.
    pub fn value(&self) -> &[u8] {
        let block = self.at.block();
        block.bytes(block.value_range(self.at.slot))
    }

    /// Returns the value in a holder that outlives the cursor's moves.
    pub fn pin_value(&self) -> PinnedValue {
        let block = self.at.block();
        PinnedValue::from_block(self.at.frame(), block.value_range(self.at.slot))
    }

    /// Puts the value into a holder that the caller reuses for the next row.
    pub fn keep_value(&self, value: &mut BlockValue) {
        value.keep(self.at.frame(), self.at.slot);
    }

    /// Returns the value in a holder that outlives the cursor's moves; reads the value file if the
    /// entry is a pointer.
    pub fn load_value(&self) -> Result<PinnedValue> {
        if self.kind().is_pointer() {
            self.table.value(self.value())
        } else {
            Ok(self.pin_value())
        }
    }

    /// From the newest version of a key, goes forward to the first version at or below the read
    /// point.
    fn settle_forward(&mut self) -> Result<bool> {
        while self.at.block().seqno(self.at.slot) > self.read_point {
            if self.at.slot + 1 < self.at.block().len() {
                self.at.slot += 1;
            } else if !self.enter_next_block()? {
                return Ok(false);
            }
        }
        self.show();
        Ok(true)
    }

    /// From the oldest version of a key, goes back to a key with a version at or below the read
    /// point, and then to the newest such version of that key.
    fn settle_backward(&mut self) -> Result<bool> {
        while self.at.block().seqno(self.at.slot) > self.read_point {
            if !self.step_back()? {
                return Ok(false);
            }
        }
        self.show();
        self.valid = false;
        loop {
            let slot = self.at.slot;
            if slot > 0 {
                let newer = slot - 1;
                let block = self.at.block();
                if !block.same_key(newer, slot) || block.seqno(newer) > self.read_point {
                    break;
                }
                self.at.slot = newer;
            } else {
                let index = self.at.index;
                if index == 0 || !self.table.fences.separator_is(index - 1, &self.key) {
                    break;
                }
                // The previous block ends with the same key.
                let here = self.at.clone();
                self.step_back()?;
                if self.at.block().seqno(self.at.slot) > self.read_point {
                    self.at = here;
                    break;
                }
            }
        }
        self.valid = true;
        Ok(true)
    }

    fn show(&mut self) {
        let block = self.at.block();
        if self.key_index == self.at.index {
            self.key.truncate(block.prefix().len());
        } else {
            self.key.clear();
            self.key.extend_from_slice(block.prefix());
            self.key_index = self.at.index;
        }
        self.key.extend_from_slice(block.suffix(self.at.slot));
        self.valid = true;
    }

    /// Moves to the previous slot, in this or the previous block; returns `false` at the start of
    /// the table.
    fn step_back(&mut self) -> Result<bool> {
        if self.at.slot == 0 {
            if self.at.index == 0 {
                return Ok(false);
            }
            self.load(self.at.index - 1)?;
            self.at.slot = self.at.block().len();
        }
        self.at.slot -= 1;
        Ok(true)
    }

    /// Moves to the first slot of the next block; returns `false` at the end of the table.
    fn enter_next_block(&mut self) -> Result<bool> {
        if self.at.index + 1 >= self.table.fences.len() {
            return Ok(false);
        }
        self.load(self.at.index + 1)?;
        self.at.slot = 0;
        Ok(true)
    }

    fn load(&mut self, index: usize) -> Result<()> {
        if self.at.index != index {
            self.at.block = Some(self.table.block(index, &mut self.ahead)?);
            self.at.index = index;
        }
        Ok(())
    }
}
