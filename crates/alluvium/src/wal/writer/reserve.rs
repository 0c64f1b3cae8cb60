//! Room that the writer keeps: in its segment for records that must not fail, and on the device.

use std::io;

use super::WalWriter;
use crate::error::{Error, Result};
use crate::wal::room::{allocation, has_space};

/// A reserve of more than one part in this many of a segment makes the segment longer.
const RESERVE_PART: u64 = 4;

impl WalWriter {
    /// Keeps this many bytes free in the segment after the next write and all later ones, for
    /// records that must not fail for lack of space. Before it appends such a record, the caller
    /// lowers the number by [`frame_bytes`](crate::wal::frame_bytes) of its payload: the write then
    /// needs no new segment. A higher number takes effect with the next write, which may need one.
    pub fn reserve(&mut self, bytes: u64) {
        self.reserve = bytes;
    }

    /// Does the same as [`WalWriter::reserve`], and begins a new segment at once if the current one
    /// has less room.
    ///
    /// # Errors
    ///
    /// As [`WalWriter::rotate`]. After an error that may be retried, writes go on in the segment
    /// while they find no room for one that has the reserve.
    pub fn make_reserve(&mut self, bytes: u64) -> Result<()> {
        self.check()?;
        (self.reserve, self.reserve_before) = (bytes, bytes);
        match self.has_room(self.reserve) {
            true => Ok(()),
            false => self.roll(),
        }
    }

    /// Returns true if the segment has room for the appended records and this many bytes.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let end = self.segment.end + self.buffer.len() as u64;
        end + bytes <= self.segment.allocated_bytes
    }

    /// Returns true if the segment's header does not declare the records of prepared transactions
    /// that are appended, and must.
    pub(super) fn is_undeclared(&self) -> bool {
        self.pending_prepared && !self.segment.prepared
    }

    /// Returns true if the appended records may be written without the reserve: the segment lacks
    /// it already, and they do not raise it.
    pub(super) fn may_stay(&self) -> bool {
        let free = self.segment.allocated_bytes - self.segment.end;
        let is_lacking = free < self.reserve_before && !self.is_undeclared();
        is_lacking && self.reserve <= self.reserve_before && self.has_room(0)
    }

    /// Makes later new segments leave this many bytes of the device free, and at least as many as
    /// a segment holds, because its rows have to be flushed. 0: a segment may take all space.
    pub fn leave_free(&mut self, bytes: u64) {
        self.leaves = bytes;
    }

    /// Returns true if the appended records begin a new segment.
    pub fn needs_segment(&self) -> bool {
        self.is_undeclared() || !self.has_room(self.reserve)
    }

    /// Returns the length of a segment to create: the first of these for which the device has free
    /// space. Fails with [`Error::NoSpace`] if it has too little for `least`.
    pub(super) fn affordable(&self, whole: u64, short: u64, least: u64) -> Result<u64> {
        let rows = |bytes: u64| bytes.min(self.segment_bytes);
        let fits = |bytes| has_space(&*self.vfs, &self.dir, bytes, self.leaves, rows(bytes));
        let found = [whole, short, least].into_iter().find(|bytes| fits(*bytes));
        found.ok_or_else(|| {
            let full = io::ErrorKind::StorageFull.into();
            Error::io("make a log segment in", &self.dir, full)
        })
    }

    /// Returns the length of a segment of this size that must hold the appended records and the
    /// reserve. A large reserve makes it longer, so that both leave other records their room.
    pub(super) fn allocation(&self, segment_bytes: u64) -> u64 {
        let held = self.buffer.len() as u64 + self.reserve;
        let longer = if self.has_large_reserve() { held } else { 0 };
        allocation(segment_bytes + longer, held as usize)
    }

    fn has_large_reserve(&self) -> bool {
        self.reserve > self.segment_bytes / RESERVE_PART
    }

    /// Returns the least length of a file that is ready for the next roll. The file may be of a
    /// time with a smaller reserve, but must leave other records half of a segment.
    pub(super) fn least_ready(&self) -> u64 {
        if !self.has_large_reserve() {
            return self.allocation(self.segment_bytes);
        }
        let held = self.buffer.len() as u64 + self.reserve;
        allocation(0, (held + self.segment_bytes / 2) as usize)
    }
}
