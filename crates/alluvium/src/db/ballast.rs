//! Ballast file: reserved space that lets deletes, flushes and compactions continue on a full
//! device.
//!
//! A delete takes space before it frees any: for its log record, for the flush and for the
//! compaction. So an open database keeps a file, [`BALLAST`], that is allocated and never written.
//! It is as large as a log segment plus one flush or compaction, but at most a little more than a
//! 32nd of the tables, about the size of one compaction. A small database has a small ballast file.
//!
//! If an operation that makes room finds no space, the file is cut and the database is *low on
//! space*. Deleting commits, drops of keyspaces, flushes and compactions continue; all other
//! commits fail with `NoSpace`. The file is cut in steps: flushes and compactions leave some of it
//! to the log, and both leave some to the next open, which takes all of it. Once there is room for
//! the whole ballast file and a segment, the file is allocated again and all commits are accepted.
//! This is tried after each flush and compaction, and by each commit that would be refused.
//!
//! Closing a database shrinks the file to 1 MiB, because a closed database runs no compactions.
//!
//! Recovery does not depend on the file: it may be missing or have any length.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sync::plain::Mutex;

use crate::compaction::Jobs;
use crate::db::core::Core;
use crate::db::memory::MemoryPlan;
use crate::db::options::Options;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::SHORT_SEGMENT_BYTES;

/// Name of the ballast file.
pub(crate) const BALLAST: &str = "ballast";

/// Bytes left to the log and to the next open: for each a short segment and room for manifest
/// edits.
const LOG_BYTES: u64 = 2 * SHORT_SEGMENT_BYTES;
pub(crate) const OPEN_BYTES: u64 = 2 * SHORT_SEGMENT_BYTES;

/// Up to this size the ballast file may be a quarter as large as the tables, above it a 32nd.
const SMALL_BYTES: u64 = 4 << 20;

/// The ballast file is resized only if its size is wrong by more than this fraction (1 /
/// `SLACK_PART`).
const SLACK_PART: u64 = 4;

/// The ballast file, see the module.
pub(crate) struct Ballast {
    core: Arc<Core>,
    /// Compactions wait for space.
    jobs: Arc<Jobs>,
    /// Guards the file. A leaf in the lock order, held while the file is cut or allocated.
    held: Mutex<Held>,
    /// Length of the file, for commits, which do not wait for an allocation. Relaxed: a segment of
    /// the log leaves too much or too little room once.
    bytes: Arc<AtomicU64>,
    /// True if the database is low on space. Relaxed: a thread that reads a stale value meets the
    /// full device itself, or is refused once more.
    low: AtomicBool,
    /// True if a flush or compaction found no space and none has found any since. Relaxed: it only
    /// decides which events the listener gets.
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    /// `None` before the file is created, and if it cannot be created.
    file: Option<Arc<dyn VfsFile>>,
    bytes: u64,
    /// Copy of `bytes`.
    shown: Arc<AtomicU64>,
}

/// Kind of operation that takes space from the ballast file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Taker {
    /// A flush or a compaction.
    Background,
    /// A log record of a deleting commit or of a drop, or the segment that a flush needs.
    Log,
}

impl Taker {
    /// Returns the bytes that this taker must leave.
    fn leaves(self) -> u64 {
        match self {
            Taker::Background => LOG_BYTES + OPEN_BYTES,
            Taker::Log => OPEN_BYTES,
        }
    }
}

/// Returns the size of the ballast file for tables of `all_bytes` bytes in total.
fn ballast_bytes(plan: &MemoryPlan, options: &Options, all_bytes: u64) -> u64 {
    // A compaction rewrites one group, and a large keyspace has about 32 groups.
    let merge = (all_bytes / 32).min(2 * options.table_bytes);
    let work = plan.segment_bytes() + merge.max(plan.active_bytes as u64);
    // A small database has few groups, so a compaction rewrites a large part of it.
    let most = (all_bytes / 32).max(SMALL_BYTES.min(all_bytes / 4));
    LOG_BYTES + OPEN_BYTES + work.min(most)
}

/// Removes the ballast file of an earlier session. If that fails, there is only less room.
pub(crate) fn give_up(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join(BALLAST);
    if let Ok(file) = vfs.open(&path) {
        // Cut first: a removed file may keep its space until the directory is synced.
        let _ = file.truncate(0).and_then(|()| vfs.remove(&path));
    }
}

impl Held {
    /// Shrinks the file to `bytes`. Returns false if it was not larger or could not be cut.
    fn shrink(&mut self, bytes: u64) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes > bytes) else {
            return false;
        };
        let cut = file.truncate(bytes).is_ok();
        if cut {
            self.set(bytes);
        }
        cut
    }

    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes < bytes) else {
            return Ok(());
        };
        file.allocate(bytes)?;
        self.set(bytes);
        Ok(())
    }

    fn set(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.shown.store(bytes, Ordering::Relaxed);
    }
}

impl Ballast {
    /// Creates the ballast of a database, without its file.
    pub fn new(core: Arc<Core>, jobs: Arc<Jobs>) -> Ballast {
        let held = Held::default();
        Ballast {
            core,
            jobs,
            bytes: Arc::clone(&held.shown),
            held: Mutex::new(held),
            low: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    /// Returns true if the database is low on space.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }

    /// Creates the ballast file while the database is opened, after the sealed memtables are queued
    /// for their flush: it leaves room for that. On a full device the database starts low on space.
    /// After any other failure it runs without a ballast file.
    pub fn make(&self) {
        let mut held = self.held.lock();
        let full = |error: io::Error| {
            let path = self.core.files.path(BALLAST);
            matches!(Error::io("allocate", &path, error), Error::NoSpace { .. })
        };
        let made = self
            .core
            .files
            .vfs
            .create(&self.core.files.path(BALLAST))
            .and_then(|file| {
                held.file = Some(file);
                let wanted = self.wanted_bytes();
                if self.leaves_flush(wanted) {
                    held.grow(wanted)
                } else {
                    Err(io::ErrorKind::StorageFull.into())
                }
            });
        let low = made.is_err_and(full);
        if low {
            // The next open needs some space too: keep as much of that as there is.
            let parts = [OPEN_BYTES, OPEN_BYTES / 2, OPEN_BYTES / 4];
            let made = parts
                .into_iter()
                .any(|part| self.leaves_flush(part) && held.grow(part).is_ok());
            if !made {
                let _ = held.grow(OPEN_BYTES / 8);
            }
        }
        self.low.store(low, Ordering::Relaxed);
    }

    /// Returns true if this many bytes leave room for the flush of the largest sealed generation,
    /// or if the device does not tell its free space.
    fn leaves_flush(&self, bytes: u64) -> bool {
        let needed = bytes + self.core.backlog.largest_sealed_bytes();
        let free = self.core.files.vfs.free_bytes(&self.core.files.dir);
        free.map_or(true, |free| free >= needed)
    }

    fn wanted_bytes(&self) -> u64 {
        let sizes = &self.core.backlog.sizes;
        let all_bytes = sizes.upper_bytes() + sizes.last_bytes();
        ballast_bytes(&self.core.plan(), &self.core.options, all_bytes)
    }

    /// Cuts the ballast file for an operation that makes room and failed with `error`. From now on
    /// the database is low on space. Returns true if there is more room than before.
    pub fn spend(&self, taker: Taker, error: &Error) -> bool {
        if matches!(taker, Taker::Background) {
            self.failed.store(true, Ordering::Relaxed);
        }
        let spent = {
            let mut held = self.held.lock();
            self.low.store(true, Ordering::Relaxed);
            held.shrink(taker.leaves())
        };
        self.core.events.no_space(error);
        if spent {
            self.jobs.wake();
        }
        spent
    }

    /// Returns the bytes that flushes and compactions may take from the ballast file.
    pub fn background_bytes(&self) -> u64 {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes.saturating_sub(Taker::Background.leaves())
    }

    /// Shrinks the ballast file to the space that the next open needs on a full device. If that
    /// fails, the file stays larger.
    pub fn shrink_for_close(&self) {
        self.held.lock().shrink(LOG_BYTES + OPEN_BYTES);
    }

    /// Reports background work that failed without a change and will be tried again. If the device
    /// is full, cuts the ballast file for it. Returns true if there is more room than before.
    pub fn note_failure(&self, error: &Error) -> bool {
        if matches!(error, Error::NoSpace { .. }) {
            return self.spend(Taker::Background, error);
        }
        self.core.tell_failure(error);
        false
    }

    /// Runs an operation that makes room. If it finds no space, cuts the ballast file and runs it
    /// again.
    pub fn run<T>(&self, taker: Taker, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        match run() {
            Err(error @ Error::NoSpace { .. }) if self.spend(taker, &error) => run(),
            Err(error) if error.lacks_descriptors() && self.core.files.open_files.close_some() => {
                run()
            }
            result => result,
        }
    }

    /// Refuses a commit that takes space while the database is low on space.
    pub fn check_space(&self, makes_room: impl FnOnce() -> bool) -> Result<()> {
        if self.is_low() && !makes_room() {
            self.check_room()
        } else {
            Ok(())
        }
    }

    /// Refuses while the database is low on space.
    pub fn check_room(&self) -> Result<()> {
        if !self.is_low() || self.regain() {
            return Ok(());
        }
        let full = io::ErrorKind::StorageFull.into();
        Err(Error::io("write to", &self.core.files.dir, full))
    }

    /// Allocates the ballast file again if there is room for it, for a segment, and for the flush
    /// of the largest sealed generation. Returns true if the database is no longer low on space.
    fn regain(&self) -> bool {
        let mut held = self.held.lock();
        if !self.is_low() {
            return true;
        }
        let wanted = self.wanted_bytes();
        let flush = SHORT_SEGMENT_BYTES + self.core.backlog.largest_sealed_bytes();
        let missing =
            wanted.saturating_sub(held.bytes) + self.core.plan().segment_bytes().max(flush);
        let free = self.core.files.vfs.free_bytes(&self.core.files.dir);
        if !free.is_ok_and(|free| free >= missing) || held.grow(wanted).is_err() {
            return false;
        }
        self.low.store(false, Ordering::Relaxed);
        drop(held);
        if !self.failed.load(Ordering::Relaxed) {
            self.core.events.found_space();
        }
        self.jobs.found_space();
        true
    }

    /// After a flush or compaction: allocates the ballast file again, or fits it to the present
    /// size of the tables. Compactions that found no space are tried again.
    pub fn found_space(&self) {
        self.jobs.found_space();
        self.failed.store(false, Ordering::Relaxed);
        self.look_for_space();
    }

    /// After files were removed: if the database is low on space, wakes a compaction thread to look
    /// for room at once.
    pub fn look_at_removed(&self) {
        if self.is_low() {
            self.jobs.wake();
        }
    }

    /// Does the same as [`Ballast::found_space`] after some time without a flush or compaction.
    pub fn look_for_space(&self) {
        if !self.is_low() {
            if !self.failed.load(Ordering::Relaxed) {
                self.core.events.found_space();
            }
            let mut held = self.held.lock();
            let (bytes, wanted) = (held.bytes, self.wanted_bytes());
            let slack = bytes / SLACK_PART;
            if wanted > bytes + slack || wanted + slack < bytes {
                held.shrink(wanted);
                // If there is no room for more, the present size has to do.
                let _ = held.grow(wanted);
            }
            return;
        }
        // Removed files may keep their space until the directory is synced.
        if self.core.sync_directory().is_ok() {
            self.regain();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_ballast_is_small_for_small_databases_and_bounded_for_large_ones() {
        let options = Options::default();
        let of = |all_bytes| ballast_bytes(&MemoryPlan::new(&options), &options, all_bytes);
        assert_eq!(of(0), MIB);
        assert_eq!(of(8 * MIB), 3 * MIB);
        assert_eq!(of(64 * MIB), 5 * MIB);
        // A compaction of one group out of 32.
        assert_eq!(of(1024 * MIB), 33 * MIB);
        assert_eq!(of(1 << 50), 81 * MIB);
    }
}
