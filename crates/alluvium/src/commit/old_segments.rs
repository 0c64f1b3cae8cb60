//! Old log segments: recovery no longer needs them, but some are kept for readers of changes.
//!
//! The newest ones stay, as many as [`crate::Options::change_log_bytes`] allows. Open readers keep
//! more if they still need them, up to a separate limit. Segments are deleted from the oldest on,
//! so the rest is always one contiguous part of the log. Recovery, verification, repairs and copies
//! begin at the oldest needed segment and never read old ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::sync::plain::Mutex;

use crate::base::SegmentId;
use crate::db::core::Core;
use crate::db::files::Files;
use crate::wal::parse_segment_name;

/// Pins of open readers and the size of the kept segments, see the module.
#[derive(Default)]
pub(crate) struct OldSegments {
    /// Guards the list of open readers. A leaf in the lock order, held briefly.
    readers: Mutex<Vec<Weak<AtomicU64>>>,
    /// Bytes of the segments kept at the last trim. Relaxed: only for statistics.
    kept_bytes: AtomicU64,
}

/// Claim of one reader: the oldest segment that it needs. It ends with its last owner.
pub(crate) struct SegmentPin(Arc<AtomicU64>);

impl SegmentPin {
    /// Moves the claim. Relaxed: a trim that reads the old value keeps a segment too many.
    pub fn advance(&self, segment: SegmentId) {
        self.0.store(segment.0, Ordering::Relaxed);
    }
}

/// Limits for the bytes of old segments.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Limit without open readers, for future readers.
    kept_bytes: u64,
    /// Limit for segments that open readers need.
    pinned_bytes: u64,
}

impl OldSegments {
    /// Registers a reader that needs every present segment until it advances its pin.
    pub fn pin_all(&self) -> SegmentPin {
        let pin = Arc::new(AtomicU64::new(0));
        let mut readers = self.readers.lock();
        readers.retain(|reader| reader.strong_count() > 0);
        readers.push(Arc::downgrade(&pin));
        SegmentPin(pin)
    }

    /// Bytes of the old segments that are kept.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load(Ordering::Relaxed)
    }

    /// Deletes the log segments before `oldest_needed` that are not kept. Called by one thread at a
    /// time.
    pub fn trim(&self, core: &Core, oldest_needed: SegmentId) {
        let files = &core.files;
        // Segments that cannot be listed or removed now are removed after the next flush or at the
        // next open.
        let names = files.vfs.list(&files.dir).unwrap_or_default();
        let ids = names.iter().filter_map(|name| parse_segment_name(name));
        let mut old: Vec<SegmentId> = ids.filter(|&id| id < oldest_needed).collect();
        if old.is_empty() {
            self.kept_bytes.store(0, Ordering::Relaxed);
            return;
        }
        old.sort_unstable();
        let old: Vec<_> = old.into_iter().map(|id| (id, len_of(files, id))).collect();
        let limits = Limits {
            kept_bytes: core.options.change_log_bytes,
            pinned_bytes: core
                .options
                .change_log_bytes
                .max(core.plan().memory_bytes as u64),
        };
        let from = first_kept(&old, self.oldest_pinned(), limits);
        for (id, _) in &old[..from] {
            let _ = files.vfs.remove(&files.path(id.to_string()));
        }
        let kept = old[from..].iter().map(|(_, bytes)| bytes).sum();
        self.kept_bytes.store(kept, Ordering::Relaxed);
    }

    fn oldest_pinned(&self) -> Option<SegmentId> {
        let readers = self.readers.lock();
        let pins = readers.iter().filter_map(Weak::upgrade);
        pins.map(|pin| SegmentId(pin.load(Ordering::Relaxed))).min()
    }
}

/// Returns the length of a segment; 0 if it cannot be read.
fn len_of(files: &Files, segment: SegmentId) -> u64 {
    let file = files.vfs.open_read(&files.path(segment.to_string()));
    file.and_then(|file| file.len()).unwrap_or(0)
}

/// Returns the index of the first segment to keep; `old` starts with the oldest.
fn first_kept(old: &[(SegmentId, u64)], pinned: Option<SegmentId>, limits: Limits) -> usize {
    let mut bytes = 0u64;
    let stays = |&&(id, len): &&(SegmentId, u64)| {
        bytes = bytes.saturating_add(len);
        let is_pinned = pinned.is_some_and(|pinned| id >= pinned);
        bytes <= limits.kept_bytes || is_pinned && bytes <= limits.pinned_bytes
    };
    old.len() - old.iter().rev().take_while(stays).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pinned: Option<u64>, kept_bytes: u64, pinned_bytes: u64) -> Vec<u64> {
        let old: Vec<_> = [3, 4, 6, 7].map(|id| (SegmentId(id), 100)).into();
        let limits = Limits {
            kept_bytes,
            pinned_bytes,
        };
        let from = first_kept(&old, pinned.map(SegmentId), limits);
        old[from..].iter().map(|(id, _)| id.0).collect()
    }

    #[test]
    fn the_newest_segments_within_the_limit_stay() {
        assert!(kept(None, 0, 400).is_empty());
        assert!(kept(None, 99, 400).is_empty());
        assert_eq!(kept(None, 250, 250), [6, 7]);
        assert_eq!(kept(None, 400, 400), [3, 4, 6, 7]);
    }

    #[test]
    fn segments_for_open_readers_have_their_own_limit() {
        assert_eq!(kept(Some(4), 0, 400), [4, 6, 7]);
        assert_eq!(kept(Some(0), 0, 400), [3, 4, 6, 7]);
        assert_eq!(kept(Some(0), 0, 250), [6, 7]);
        assert_eq!(kept(Some(7), 250, 400), [6, 7]);
        assert!(kept(Some(8), 0, 400).is_empty());
    }
}
