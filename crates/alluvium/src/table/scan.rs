//! Forward scan over all versions in a key range, for compaction.
//!
//! It reads blocks in pieces of up to 512 KiB and decodes each into the same buffers. It bypasses
//! the cache: a compaction touches every block once, and would only evict blocks that readers use.

use crate::base::{SeqNo, ValueKind};
use crate::table::block::{DecodedBlock, ReusedBlock, decode_block};
use crate::table::codec::Unpacker;
use crate::table::reader::Table;
use crate::{Error, Result};
use alluvium_mem::pages::Buffer;
use std::sync::Arc;

/// Limit on the bytes of blocks in one read; a read has at least one block.
const READ_AHEAD_BYTES: u64 = 512 << 10;

/// Memory of an active scan in bytes: the bytes read ahead, one block of them, and a decompressor.
pub const SCAN_BYTES: usize = READ_AHEAD_BYTES as usize + (256 << 10);

/// Scan over all versions in a key range; see [`Table::scan_all`].
pub struct TableScan {
    table: Arc<Table>,
    to: Option<Vec<u8>>,
    /// Start key for the first `next`.
    from: Option<Vec<u8>>,
    /// Next block to decode, and the end of the blocks that may hold rows below `to`.
    next_block: usize,
    end_block: usize,
    block: ReusedBlock,
    /// The table's smallest sequence number: see [`Table::raise_seqnos`].
    seqno_floor: SeqNo,
    /// Next slot to show.
    next_slot: usize,
    /// Bytes of the file from `ahead_offset`.
    ahead: Buffer<u8>,
    ahead_offset: u64,
    unpacker: Unpacker,
    key: Vec<u8>,
}

impl TableScan {
    pub(super) fn new(table: Arc<Table>, from: Option<&[u8]>, to: Option<&[u8]>) -> TableScan {
        let blocks = table.fences.len();
        let next_block = from.map_or(0, |from| table.fences.find(from));
        let end_block = to.map_or(blocks, |to| (table.fences.find(to) + 1).min(blocks));
        TableScan {
            seqno_floor: table.seqno_floor(),
            table,
            to: to.map(<[u8]>::to_vec),
            from: from.map(<[u8]>::to_vec),
            next_block,
            end_block,
            block: ReusedBlock::default(),
            next_slot: 0,
            ahead: Buffer::default(),
            ahead_offset: 0,
            unpacker: Unpacker::default(),
            key: Vec::new(),
        }
    }

    /// Goes to the next entry, at first to the first one. Returns `false` at the end of the range,
    /// where the accessors below must not be called.
    ///
    /// Errors: `Corruption` and `Io` for a block. They end the scan.
    #[allow(
        clippy::should_implement_trait,
        reason = "a scan reports errors and lends its rows"
    )]
    pub fn next(&mut self) -> Result<bool> {
        // At most two rounds: only the first block can have no row at or after `from`.
        while self.next_slot >= self.block_len() {
            if self.next_block >= self.end_block {
                return Ok(false);
            }
            let decoded = self.decode_next_block();
            if decoded.is_err() {
                self.end_block = 0;
            }
            decoded?;
            self.next_slot = match self.from.take() {
                Some(from) => self.block().seek(&from),
                None => 0,
            };
        }
        // The block's prefix is in the buffer already.
        let block = self.block.rows().expect("a block was decoded");
        self.key.truncate(block.prefix().len());
        self.key.extend_from_slice(block.suffix(self.next_slot));
        // Blocks before the last one end below `to`.
        let last_block = self.next_block >= self.end_block;
        if last_block && self.to.as_ref().is_some_and(|to| self.key >= *to) {
            self.next_slot = self.block_len();
            return Ok(false);
        }
        self.next_slot += 1;
        Ok(true)
    }

    /// Returns the whole key, valid until the scan moves on.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the seqno of the commit that wrote the entry.
    pub fn seqno(&self) -> SeqNo {
        self.block().seqno(self.next_slot - 1).max(self.seqno_floor)
    }

    /// Returns the entry's kind.
    pub fn kind(&self) -> ValueKind {
        self.block().kind(self.next_slot - 1)
    }

    /// Returns the value, valid until the scan moves on.
    pub fn value(&self) -> &[u8] {
        let block = self.block();
        block.bytes(block.value_range(self.next_slot - 1))
    }

    fn block(&self) -> DecodedBlock<'_> {
        self.block.rows().expect("a block was decoded")
    }

    fn block_len(&self) -> usize {
        self.block.rows().map_or(0, DecodedBlock::len)
    }

    fn decode_next_block(&mut self) -> Result<()> {
        let range = self.table.fences.block_range(self.next_block);
        let ahead_end = self.ahead_offset + self.ahead.len() as u64;
        if range.start < self.ahead_offset || range.end > ahead_end {
            self.read_ahead()?;
        }
        let start = (range.start - self.ahead_offset) as usize;
        let bytes = &self.ahead[start..start + (range.end - range.start) as usize];
        let origin = self.table.origin(range.start);
        let unpacker = &mut self.unpacker;
        let decoded = self
            .block
            .replace(|space| decode_block(bytes, unpacker, origin, space))
            .map_err(|malformed| malformed.at(self.table.file.path(), range.start))?;
        self.key.clear();
        self.key.extend_from_slice(decoded.prefix());
        self.unpacker.free_huge_buffer();
        self.next_block += 1;
        Ok(())
    }

    /// Reads the next block and as many after it as fit.
    fn read_ahead(&mut self) -> Result<()> {
        let fences = &self.table.fences;
        let first = fences.block_range(self.next_block);
        let limit = first.start + READ_AHEAD_BYTES;
        let fitting = (self.next_block..self.end_block)
            .map(|block| fences.block_range(block).end)
            .take_while(|&end| end <= limit);
        let end = fitting.last().unwrap_or(first.end);
        self.ahead.resize((end - first.start) as usize, 0);
        self.ahead_offset = first.start;
        let file = &self.table.file;
        // The device reads the next piece while the compaction processes this one.
        let last = fences.block_range(self.end_block - 1).end;
        if last > end {
            file.start_reading(end, (last - end).min(READ_AHEAD_BYTES));
        }
        let read = file.read_at(&mut self.ahead, first.start);
        read.map_err(|e| Error::io("read blocks of", file.path(), e))
    }
}
