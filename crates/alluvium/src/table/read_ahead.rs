//! Detection of sequential reads, to start device reads ahead of the reader.
//!
//! Files of tables and values are advised as read at random, so that the kernel reads only the
//! requested bytes. Without the advice the kernel takes cached pages next to a block for the trace
//! of a sequential reader, and point reads fetch a quarter more bytes than they need. A sequential
//! reader therefore has to announce its reads; [`ReadAhead`] detects it.

use std::ops::Range;

use crate::vfs::VfsFile;

/// Adjacent reads in a row before the first hint: a range of a few rows crosses only one or two
/// borders of blocks.
const READS_BEFORE: u32 = 3;
/// Bytes past the read that the first hint covers; each further hint covers twice as many as the
/// one before.
const FIRST_BYTES: u64 = 64 << 10;
/// Most bytes past the read that a hint covers. The next hint comes when half of them are left, so
/// at least a quarter of a megabyte is in flight. At one millisecond a request, that is as fast as
/// blocks are decoded.
const MOST_BYTES: u64 = 512 << 10;
/// Largest gap between two adjacent reads; the bytes between them are cached or garbage.
const GAP_BYTES: u64 = 32 << 10;

/// State of one reader in one file.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    /// The previous read.
    last: Range<u64>,
    forward: bool,
    /// Number of reads in this direction without a leap.
    run: u32,
    /// Bytes past its read that the last hint covered; 0 before the first.
    window: u64,
    /// End of the hinted bytes, in the direction of the reads.
    edge: u64,
    /// True after a read; the user of this structure resets it.
    pub has_read: bool,
}

impl ReadAhead {
    /// Records a read of `read` in a file with rows or values in `content`, and starts reading the
    /// bytes that will follow.
    pub fn note(&mut self, file: &dyn VfsFile, read: Range<u64>, content: Range<u64>) {
        self.has_read = true;
        if let Some(hint) = self.next_hint(read, content) {
            file.start_reading(hint.start, hint.end - hint.start);
        }
    }

    /// Counts `read` as another one in the same direction, or as the first of a new run.
    fn count(&mut self, read: &Range<u64>) {
        let last = std::mem::replace(&mut self.last, read.clone());
        let near = |gap: Option<u64>| !last.is_empty() && gap.is_some_and(|gap| gap <= GAP_BYTES);
        let forward = near(read.start.checked_sub(last.end));
        let backward = near(last.start.checked_sub(read.end));
        if !forward && !backward {
            (self.run, self.window) = (1, 0);
        } else if self.run > 1 && self.forward != forward {
            (self.run, self.window) = (2, 0);
        } else {
            self.run += 1;
        }
        self.forward = forward;
    }

    fn next_hint(&mut self, read: Range<u64>, content: Range<u64>) -> Option<Range<u64>> {
        self.count(&read);
        if self.run < READS_BEFORE {
            return None;
        }
        let forward = self.forward;
        // The first hint includes the read itself: the device gets one request and not two.
        let (from, left) = match (self.window, forward) {
            (0, true) => (read.start, 0),
            (0, false) => (read.end, 0),
            (_, true) => (
                self.edge.max(read.start),
                self.edge.saturating_sub(read.end),
            ),
            (_, false) => (
                self.edge.min(read.end),
                read.start.saturating_sub(self.edge),
            ),
        };
        if left > self.window / 2 {
            return None;
        }
        self.window = (2 * self.window).clamp(FIRST_BYTES, MOST_BYTES);
        let hint = if forward {
            from..(read.end + self.window).min(content.end)
        } else {
            read.start.saturating_sub(self.window).max(content.start)..from
        };
        self.edge = if forward { hint.end } else { hint.start };
        (hint.start < hint.end).then_some(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const CONTENT: Range<u64> = 0..2048 * KIB;

    /// Returns the hints for reads of 8 KiB at these offsets, offsets and hints in KiB.
    fn hints(offsets: impl IntoIterator<Item = u64>) -> Vec<(u64, Range<u64>)> {
        let mut ahead = ReadAhead::default();
        let mut hints = Vec::new();
        for offset in offsets {
            let read = offset * KIB..(offset + 8) * KIB;
            if let Some(hint) = ahead.next_hint(read, CONTENT) {
                hints.push((offset, hint.start / KIB..hint.end / KIB));
            }
        }
        hints
    }

    #[test]
    fn reads_here_and_there_get_no_hint() {
        assert_eq!(hints([1000, 0, 500, 508, 1500, 1492, 20, 300]), []);
    }

    #[test]
    fn reads_in_order_are_read_ahead_in_growing_pieces() {
        let expected = [
            (816, 816..888),
            (848, 888..984),
            (912, 984..1176),
            (1040, 1176..1560),
            (1296, 1560..1816),
            (1552, 1816..2048),
        ];
        assert_eq!(hints((800..2048).step_by(8)), expected);
    }

    #[test]
    fn backwards_as_forwards() {
        let expected = [
            (824, 760..832),
            (792, 664..760),
            (728, 472..664),
            (600, 88..472),
            (344, 0..88),
        ];
        assert_eq!(hints((0..=840).rev().step_by(8)), expected);
    }

    #[test]
    fn cached_blocks_between_reads_do_not_matter_and_a_leap_begins_anew() {
        let expected = [(80, 80..152), (1080, 1080..1152)];
        assert_eq!(hints([0, 40, 80, 88, 1000, 1040, 1080, 1090]), expected);
    }
}
