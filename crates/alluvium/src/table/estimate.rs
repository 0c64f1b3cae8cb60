//! Estimate of a table's share of a key range, from fences and counts in memory. It reads no block.
//!
//! Whole blocks count by their bytes. In the two blocks that contain the ends of the range, keys
//! are assumed to be spread evenly between the separators. The error is therefore at most one block
//! at each end, plus the variation of entries per block within the table.

use crate::table::block::common_prefix;
use crate::table::reader::Table;

/// Estimated part of a table in a key range.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TableShare {
    /// Number of entries, tombstones included.
    pub entries: f64,
    /// Number of tombstones among them, assumed to be spread evenly over the table.
    pub tombstones: f64,
    /// Bytes of the file.
    pub bytes: f64,
}

impl Table {
    /// Estimates the share of the table from `start` (inclusive) to `end` (exclusive; `None` is the
    /// end of the table).
    pub fn estimate(&self, start: &[u8], end: Option<&[u8]>) -> TableShare {
        let to = end.map_or(1.0, |end| self.position(end));
        let share = (to - self.position(start)).max(0.0);
        TableShare {
            entries: share * self.entries() as f64,
            tombstones: share * self.tombstones() as f64,
            bytes: share * self.file_bytes() as f64,
        }
    }

    /// Returns the share of the table before `key`, from 0 to 1.
    fn position(&self, key: &[u8]) -> f64 {
        if key <= self.first_key() {
            return 0.0;
        }
        if key > self.last_key() {
            return 1.0;
        }
        let index = self.fences.find(key);
        if index == self.fences.len() {
            return 1.0;
        }
        let within = match index.checked_sub(1) {
            None => fraction_between(key, self.first_key(), &self.fences.separator(0)),
            Some(below) => {
                // A key between two separators has their prefix.
                let (prefix, low) = self.fences.parts(below);
                let key = &key[prefix.len().min(key.len())..];
                fraction_between(key, low, self.fences.parts(index).1)
            }
        };
        let block = self.fences.block_range(index);
        let before = block.start as f64 + within * (block.end - block.start) as f64;
        before / self.fences.blocks_end().max(1) as f64
    }
}

/// Returns the position of `key` between `low` (0) and `high` (1) if keys are spread evenly. It
/// compares the eight bytes after the common prefix of `low` and `high`.
fn fraction_between(key: &[u8], low: &[u8], high: &[u8]) -> f64 {
    if key <= low {
        return 0.0;
    }
    if key >= high {
        return 1.0;
    }
    // A key between the two has this prefix too.
    let shared = common_prefix(low, high);
    let number = |key: &[u8]| {
        let mut bytes = [0; 8];
        let rest = &key[shared.min(key.len())..];
        let taken = rest.len().min(8);
        bytes[..taken].copy_from_slice(&rest[..taken]);
        u64::from_be_bytes(bytes)
    };
    let (key, low, high) = (number(key), number(low), number(high));
    match high.saturating_sub(low) {
        0 => 0.5,
        width => (key.saturating_sub(low) as f64 / width as f64).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::fraction_between;

    #[test]
    fn keys_are_taken_to_lie_evenly_between_two_others() {
        assert_eq!(fraction_between(b"a", b"b", b"c"), 0.0);
        assert_eq!(fraction_between(b"d", b"b", b"c"), 1.0);
        let half = fraction_between(b"key\x80", b"key\x00", b"key\xFF");
        assert!((half - 0.5).abs() < 0.01, "{half}");
        let quarter = fraction_between(b"x\x01\x40", b"x\x01", b"x\x02");
        assert!((quarter - 0.25).abs() < 0.01, "{quarter}");
        // Keys too long to differ within eight bytes.
        let equal = fraction_between(b"aaaaaaaaab", b"aaaaaaaaaa", b"aaaaaaaaac\0");
        assert!(equal > 0.0 && equal < 1.0, "{equal}");
    }
}
