//! Lengths of segments, and the space that they leave on the device.
//!
//! The log must not take the last bytes of a device: the flush that releases its segments writes
//! tables first. The owner of the log says how much it may need.

use std::path::Path;

use super::segment::{SEGMENT_HEADER_BYTES, SHORT_SEGMENT_BYTES};
use crate::vfs::Vfs;

/// Segments are allocated in multiples of a device page.
const ALLOCATION_UNIT_BYTES: u64 = 4096;

/// Smallest segment on a full device: the first of an opening, or that of a seal. The first takes
/// part of the space that is held back for openings, and there may be many openings before space is
/// freed.
pub(super) const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// Returns true if the device can take `bytes` and leave `leaves` bytes free, and at least `rows`.
/// A device that does not tell its free space has enough.
pub(super) fn has_space(vfs: &dyn Vfs, dir: &Path, bytes: u64, leaves: u64, rows: u64) -> bool {
    let needed = bytes.saturating_add(leaves.max(rows));
    leaves == 0 || vfs.free_bytes(dir).map_or(true, |free| free >= needed)
}

/// Returns the size for the first segment of a session. A larger one could leave too little space
/// for the manifest and segment of the next opening.
pub(super) fn first_segment_bytes(vfs: &dyn Vfs, dir: &Path, segment_bytes: u64) -> u64 {
    let Ok(free) = vfs.free_bytes(dir) else {
        return segment_bytes;
    };
    if free >= segment_bytes.saturating_add(4 * SHORT_SEGMENT_BYTES) {
        return segment_bytes;
    }
    let rest = free.saturating_sub(SHORT_SEGMENT_BYTES / 2);
    segment_bytes.min(rest.clamp(SEGMENT_BYTES_MIN, SHORT_SEGMENT_BYTES))
}

/// Returns the length of a segment that must hold a group of this size.
pub(super) fn allocation(segment_bytes: u64, group_bytes: usize) -> u64 {
    let needed = SEGMENT_HEADER_BYTES + group_bytes as u64;
    segment_bytes
        .max(needed)
        .next_multiple_of(ALLOCATION_UNIT_BYTES)
}
