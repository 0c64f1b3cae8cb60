//! Files for future segments, created ahead of time by a thread that nothing waits for.
//!
//! A prepared file has its name and its space, durable, and no header. Replay therefore always
//! skips it as an unfinished creation. The writer turns it into a segment by writing the header, as
//! soon as it knows where the previous one ended.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::room::has_space;
use super::segment::create_room;
use super::{hard_io, sync_dir};
use crate::base::SegmentId;
use crate::error::{Error, Result};
use crate::sync::time::Instant;
use crate::vfs::{Vfs, VfsFile};

/// Plan of a file to prepare: see [`super::WalWriter::plan_next`].
#[derive(Debug)]
pub struct SegmentPlan {
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) dir: PathBuf,
    pub(super) segment: SegmentId,
    pub(super) bytes: u64,
    /// Bytes of the device that the file leaves free: see [`super::WalWriter::leave_free`].
    pub(super) leaves: u64,
    /// The writer's first failure.
    pub(super) failure: Arc<OnceLock<Error>>,
}

/// File with the space for a future segment.
#[derive(Debug)]
pub struct PreparedSegment {
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) segment: SegmentId,
    pub(super) bytes: u64,
    vfs: Arc<dyn Vfs>,
}

impl SegmentPlan {
    /// Creates the file, durable on return. Returns `None` if it could not be created or found no
    /// room: nothing happened, and the writer creates the file itself. Costs two syncs.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] after a failed sync is final for the log: the directory may hold names that
    /// matter, and a later sync of it could still report success.
    pub fn create(self) -> Result<Option<PreparedSegment>> {
        let (vfs, bytes) = (&*self.vfs, self.bytes);
        if !has_space(vfs, &self.dir, bytes, self.leaves, bytes) {
            return Ok(None);
        }
        let Ok((file, _)) = create_room(vfs, &self.dir, self.segment, bytes, bytes) else {
            return Ok(None);
        };
        let synced = file
            .sync()
            .map_err(|error| hard_io("sync", file.path(), error))
            .and_then(|()| sync_dir(vfs, &self.dir));
        synced.map_err(|error| self.failure.get_or_init(|| error).clone())?;
        Ok(Some(PreparedSegment {
            file,
            segment: self.segment,
            bytes: self.bytes,
            vfs: self.vfs,
        }))
    }
}

impl PreparedSegment {
    /// Removes the file, which is not needed. A leftover is harmless, and is removed with the
    /// segments before it.
    pub fn remove(self) {
        let _ = self.vfs.remove(self.file.path());
    }
}

/// The prepared files of a writer, oldest first.
#[derive(Debug)]
pub(super) struct Stock {
    ready: VecDeque<PreparedSegment>,
    /// Number of files to have ready if there is ample space; otherwise it is one.
    wanted: usize,
    /// Time of the last roll, which asked for a file.
    taken: Option<Instant>,
    ample: bool,
    /// True while a plan is given out.
    planned: bool,
    /// True if a file could not be made, or the log is closing; not tried again before the next
    /// roll.
    refused: bool,
}

/// The files kept ready last for this long at the current rate. Devices have been seen to stall for
/// a second, and a roll that has to allocate space itself then waits with them.
const READY_FOR: Duration = Duration::from_secs(3);

/// A log without a new record for this long is idle: see [`super::WalWriter::take_surplus`].
pub(super) const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Most files kept ready. They take space on the device: this many take half as much as the memory
/// budget.
const READY_MAX: usize = 8;

/// The same if a seal has left a segment mostly empty: the files would take much more space than
/// the logged data.
const READY_MAX_SPARSE: usize = 4;

impl Default for Stock {
    fn default() -> Stock {
        Stock {
            ready: VecDeque::new(),
            wanted: 1,
            taken: None,
            ample: false,
            planned: false,
            refused: false,
        }
    }
}

impl Stock {
    /// Returns true if another file must be planned.
    pub(super) fn wants_more(&self) -> bool {
        !self.planned && !self.refused && self.ready.len() < self.wanted_now()
    }

    fn wanted_now(&self) -> usize {
        if self.ample { self.wanted } else { 1 }
    }

    /// Allows more than one file to be ready if `ample` is true: tables need scarce space more.
    pub(super) fn set_ample(&mut self, ample: bool) {
        self.ample = ample;
    }

    /// Returns true if more than one file must be ready.
    pub(super) fn wants_several(&self) -> bool {
        self.wanted_now() > 1
    }

    /// Notes that a plan is given out.
    pub(super) fn plan(&mut self) {
        self.planned = true;
    }

    /// Takes the result of the plan, while the log is in the segment `current`. Returns a file that
    /// came too late.
    pub(super) fn offer(
        &mut self,
        prepared: Option<PreparedSegment>,
        current: SegmentId,
    ) -> Option<PreparedSegment> {
        let planned = std::mem::replace(&mut self.planned, false);
        match prepared {
            None => {
                self.refused |= planned;
                None
            }
            // Numbers rise along the log: a number below the current segment is not used any more.
            Some(late) if late.segment < current || self.refused => Some(late),
            Some(prepared) => {
                self.ready.push_back(prepared);
                None
            }
        }
    }

    /// Returns the file for a roll at this moment that needs this many bytes. `sparse` is true if
    /// the roll leaves a segment that is mostly empty.
    pub(super) fn take(
        &mut self,
        needed: u64,
        now: Instant,
        sparse: bool,
    ) -> Option<PreparedSegment> {
        self.refused = false;
        let last = self.taken.replace(now);
        if let Some(last) = last {
            // A single late roll says little: the number rises at once and falls by one at a time.
            let most = if sparse { READY_MAX_SPARSE } else { READY_MAX };
            let wanted = lasting(last, now).min(most);
            self.wanted = wanted.max(self.wanted - 1).max(1);
        }
        let first = self.ready.pop_front()?;
        if first.bytes >= needed {
            return Some(first);
        }
        // The roll takes a new number, above those of all prepared files.
        first.remove();
        self.ready.drain(..).for_each(PreparedSegment::remove);
        None
    }

    /// Takes out the files that are not needed any more: the last roll is long ago, or space became
    /// short.
    pub(super) fn surplus(&mut self, now: Instant) -> Vec<PreparedSegment> {
        if let Some(last) = self.taken {
            self.wanted = self.wanted.min(lasting(last, now));
        }
        let kept = self.wanted_now().min(self.ready.len());
        self.ready.drain(kept..).collect()
    }

    /// Takes out all but `kept` files, and forgets the rate of the rolls.
    pub(super) fn shrink(&mut self, kept: usize) -> Vec<PreparedSegment> {
        (self.wanted, self.taken) = (1, None);
        self.ready.drain(kept.min(self.ready.len())..).collect()
    }

    /// Takes out all files, and refuses planned ones that come later.
    pub(super) fn close(&mut self) -> Vec<PreparedSegment> {
        self.refused = true;
        self.ready.drain(..).collect()
    }
}

/// Returns how many files last for [`READY_FOR`] if a roll takes one per interval from `last` to
/// `now`.
fn lasting(last: Instant, now: Instant) -> usize {
    let between = now.saturating_duration_since(last).as_secs_f64();
    let files = (READY_FOR.as_secs_f64() / between.max(1e-3)).ceil() as usize;
    files.clamp(1, READY_MAX)
}

#[cfg(all(test, not(loom), not(feature = "simulation")))]
mod tests {
    use super::*;
    use crate::vfs::MemVfs;
    use std::path::Path;

    #[test]
    fn fast_rolls_want_more_files_ready_and_slow_ones_few() {
        let (mut stock, mut now) = (Stock::default(), Instant::now());
        stock.set_ample(true);
        let mut roll = |stock: &mut Stock, after_ms| {
            now += Duration::from_millis(after_ms);
            assert!(stock.take(1 << 20, now, false).is_none());
            stock.wanted
        };
        assert_eq!(roll(&mut stock, 0), 1);
        assert_eq!(roll(&mut stock, 60_000), 1);
        assert!(!stock.wants_several());
        assert_eq!(roll(&mut stock, 1_100), 3, "three seconds' worth");
        assert!(stock.wants_several() && stock.wants_more());
        assert_eq!(roll(&mut stock, 10), READY_MAX);
        let slower: Vec<usize> = (0..6).map(|_| roll(&mut stock, 60_000)).collect();
        assert_eq!(slower, [7, 6, 5, 4, 3, 2]);
        stock.set_ample(false);
        roll(&mut stock, 10);
        assert!(!stock.wants_several());
    }

    #[test]
    fn rolls_of_nearly_empty_segments_want_few_files_ready() {
        let (mut stock, now) = (Stock::default(), Instant::now());
        stock.set_ample(true);
        for after_ms in [0, 10, 20] {
            let now = now + Duration::from_millis(after_ms);
            assert!(stock.take(1 << 20, now, true).is_none());
        }
        assert_eq!(stock.wanted, READY_MAX_SPARSE);
        assert!(
            stock
                .take(1 << 20, now + Duration::from_millis(30), false)
                .is_none()
        );
        assert_eq!(stock.wanted, READY_MAX);
    }

    #[test]
    fn surplus_prepared_files_are_removed() {
        let (vfs, dir): (Arc<dyn Vfs>, _) = (Arc::new(MemVfs::new()), Path::new("/log"));
        vfs.create_dir_all(dir).expect("a directory");
        let (mut stock, began) = (Stock::default(), Instant::now());
        let ready = |stock: &mut Stock, from: u64| {
            for segment in from..from + 4 {
                let (file, bytes) =
                    create_room(&*vfs, dir, SegmentId(segment), 4096, 4096).expect("room");
                stock.plan();
                let segment = SegmentId(segment);
                let vfs = Arc::clone(&vfs);
                let offered = PreparedSegment {
                    file,
                    segment,
                    bytes,
                    vfs,
                };
                assert!(stock.offer(Some(offered), SegmentId(1)).is_none());
            }
        };
        stock.set_ample(true);
        stock.take(4096, began, false);
        stock.take(4096, began + Duration::from_millis(500), false);
        ready(&mut stock, 2);
        let after = |ms: u64| began + Duration::from_millis(500 + ms);
        assert!(stock.surplus(after(700)).is_empty(), "four a three seconds");
        let two = stock.surplus(after(1_900));
        assert_eq!(two.iter().map(|p| p.segment.0).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(stock.surplus(after(60_000)).len(), 1);
        assert_eq!(stock.ready.len(), 1, "one is always ready");
        ready(&mut stock, 6);
        stock.set_ample(false);
        assert_eq!(stock.surplus(after(60_000)).len(), 4);
    }
}
