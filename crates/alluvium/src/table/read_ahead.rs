//! When to have the device read before somebody asks.
//!
//! Files of tables and values are advised as read at random, so that the kernel reads what is asked for and nothing
//! beside it: left alone it takes cached neighbours of a block for the trace of a sequential reader, and point reads
//! bring a quarter more bytes than they need. So whoever does read in order has to say it, and this notices when.

use std::ops::Range;

use crate::vfs::VfsFile;

/// Reads in a row, each beside the one before, until the first hint: a range of a few rows crosses one border of blocks
/// or two.
const READS_BEFORE: u32 = 3;
/// How far the first hint reaches behind the read, in bytes; each further one reaches twice as far as the one before.
const FIRST_BYTES: u64 = 64 << 10;
/// The farthest that a hint reaches. The next one comes when half of that is left, so that a quarter of a megabyte is under
/// way at least: at one millisecond a request that is as fast as blocks are decoded.
const MOST_BYTES: u64 = 512 << 10;
/// How far from each other two reads may be and still count as neighbours: what lies between is cached, or is garbage.
const GAP_BYTES: u64 = 32 << 10;

/// The reads of one reader in one file.
#[derive(Debug, Default)]
pub(in crate::table) struct ReadAhead {
    /// The read before.
    last: Range<u64>,
    forward: bool,
    /// How many reads there have been in this direction without a leap.
    run: u32,
    /// How far the last hint reached behind its read, in bytes; 0 before the first.
    window: u64,
    /// Where what has been asked for ends, in the direction of the reads.
    edge: u64,
    /// Whether there was a read since its user last said no.
    pub has_read: bool,
}

impl ReadAhead {
    /// Notes that `read` is read now, of a file whose content is `content`, and asks for what will follow.
    pub fn note(&mut self, file: &dyn VfsFile, read: Range<u64>, content: Range<u64>) {
        self.has_read = true;
        if let Some(hint) = self.next_hint(read, content) {
            file.start_reading(hint.start, hint.end - hint.start);
        }
    }

    /// Counts `read` as one more in a direction, or as the first of a new run.
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
        // The read itself is part of the first hint: the device gets one request and not two.
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
        let hint = match forward {
            true => from..(read.end + self.window).min(content.end),
            false => read.start.saturating_sub(self.window).max(content.start)..from,
        };
        self.edge = match forward {
            true => hint.end,
            false => hint.start,
        };
        (hint.start < hint.end).then_some(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const CONTENT: Range<u64> = 0..2048 * KIB;

    /// The hints for reads of 8 KiB at these offsets, offsets and hints in KiB.
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
