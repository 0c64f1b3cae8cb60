//! Room that new segments leave on the device.

use std::io;

use super::WalWriter;
use crate::error::{Error, Result};
use crate::wal::room::has_space;

impl WalWriter {
    /// Makes later new segments leave this many bytes of the device free, and at least as many as
    /// a segment holds, because its rows have to be flushed. 0: a segment may take all space.
    pub fn leave_free(&mut self, bytes: u64) {
        self.leaves = bytes;
    }

    /// Returns true if the appended records begin a new segment.
    pub fn needs_segment(&self) -> bool {
        self.is_undeclared() || !self.has_room(self.reserve)
    }

    /// Returns the length of a segment to create: `whole`, or `least` if the device has too little
    /// free space. Fails with [`Error::NoSpace`] if it has too little for `least`.
    pub(super) fn affordable(&self, whole: u64, least: u64) -> Result<u64> {
        let rows = |bytes: u64| bytes.min(self.segment_bytes);
        let fits = |bytes| has_space(&*self.vfs, &self.dir, bytes, self.leaves, rows(bytes));
        if fits(whole) {
            Ok(whole)
        } else if fits(least) {
            Ok(least)
        } else {
            let full = io::ErrorKind::StorageFull.into();
            Err(Error::io("make a log segment in", &self.dir, full))
        }
    }
}
