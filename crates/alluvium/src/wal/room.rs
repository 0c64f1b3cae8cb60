//! Space that segments leave on the device.
//!
//! The log must not take the last bytes of a device: the flush that releases its segments writes
//! tables first. The owner of the log says how much it may need.

use std::path::Path;

use crate::vfs::Vfs;

/// Returns true if the device can take `bytes` and leave `leaves` bytes free, and at least `rows`.
/// A device that does not tell its free space has enough.
pub(super) fn has_space(vfs: &dyn Vfs, dir: &Path, bytes: u64, leaves: u64, rows: u64) -> bool {
    let needed = bytes.saturating_add(leaves.max(rows));
    leaves == 0 || vfs.free_bytes(dir).map_or(true, |free| free >= needed)
}
