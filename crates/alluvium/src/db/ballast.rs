//! Room for a full device: a file that holds space, and gives it up so that deletes, flushes and merges can go on.
//!
//! Deleting takes space before it gives any back: a record in the log, a flush, a merge. So an open database keeps a
//! file of [`BALLAST`] that nobody writes to. Its size is that of a log segment and of one flush or merge, but little
//! more than a 32nd of the tables, which is what one merge takes; a small database has a small one.
//!
//! Where something that makes room finds none, the file is cut and the database is *low on space*: commits that only
//! delete, drops of keyspaces, flushes and merges go on, all other commits are refused with `NoSpace`. The file is cut
//! by steps, so that flushes and merges leave something to the log, and both something to the next open, which takes
//! all of it. When there is room for the whole ballast and a segment beside it, it is taken back and everything goes
//! on; that is tried after each flush and merge, and by each commit that would be refused.
//!
//! A close leaves 1 MiB of it: a database that is closed makes no merges.
//!
//! The file means nothing to recovery: it may be missing, or of any length.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sync::plain::Mutex;

use crate::commit::Request;
use crate::db::memory::MemoryPlan;
use crate::db::options::Options;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::vfs::{Vfs, VfsFile};
use crate::wal::SHORT_SEGMENT_BYTES;

/// The name of the file.
pub(crate) const BALLAST: &str = "ballast";

/// What the log and the next open are left with: each of them a short segment and room for edits of the manifest.
const LOG_BYTES: u64 = 2 * SHORT_SEGMENT_BYTES;
const OPEN_BYTES: u64 = 2 * SHORT_SEGMENT_BYTES;

/// Up to here the ballast may take a quarter of the tables, beyond it a 32nd.
const SMALL_BYTES: u64 = 4 << 20;

/// The ballast is made smaller or larger only where it is wrong by more than a part of this size.
const SLACK_PART: u64 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ballast {
    /// Guards the file. A leaf in the lock order, held while the file is cut or allocated.
    held: Mutex<Held>,
    /// Whether the ballast was spent. Relaxed: who reads an old value meets the full device by itself, or is refused
    /// once more.
    low: AtomicBool,
    /// A flush or merge has found no space, and none has found any since. Relaxed: only says what a listener is told.
    failed: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    /// `None` before it is made, and where it cannot be.
    file: Option<Arc<dyn VfsFile>>,
    bytes: u64,
}

/// Who takes from the ballast.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Taker {
    /// A flush or a merge.
    Background,
    /// A record of a commit that deletes or of a drop, or the segment that a flush needs.
    Log,
}

impl Taker {
    /// The bytes that are not for it.
    fn leaves(self) -> u64 {
        match self {
            Taker::Background => LOG_BYTES + OPEN_BYTES,
            Taker::Log => OPEN_BYTES,
        }
    }
}

/// How large the ballast is of a database whose tables take `all_bytes`.
fn ballast_bytes(plan: &MemoryPlan, options: &Options, all_bytes: u64) -> u64 {
    // A merge rewrites one group. Keyspaces that are large have about 32.
    let merge = (all_bytes / 32).min(2 * options.table_bytes);
    let work = plan.segment_bytes() + merge.max(plan.active_bytes as u64);
    // A small one has few groups, and a merge rewrites a large part of it.
    let most = (all_bytes / 32).max(SMALL_BYTES.min(all_bytes / 4));
    LOG_BYTES + OPEN_BYTES + work.min(most)
}

/// Gives up what an earlier opening has left. A failure leaves less room, and nothing else.
pub(crate) fn give_up(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join(BALLAST);
    if let Ok(file) = vfs.open(&path) {
        // Cut first: a removed name may hold its space until the directory is synced.
        let _ = file.truncate(0).and_then(|()| vfs.remove(&path));
    }
}

impl Ballast {
    /// Whether the database is low on space.
    pub fn is_low(&self) -> bool {
        self.low.load(Ordering::Relaxed)
    }
}

impl Held {
    /// Gives up all but `bytes`. False: there was no more.
    fn shrink(&mut self, bytes: u64) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes > bytes) else {
            return false;
        };
        let cut = file.truncate(bytes).is_ok();
        if cut {
            self.bytes = bytes;
        }
        cut
    }

    fn grow(&mut self, bytes: u64) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.bytes < bytes) else {
            return Ok(());
        };
        file.allocate(bytes)?;
        self.bytes = bytes;
        Ok(())
    }
}

impl Shared {
    /// Makes the ballast of a database that is being opened. A full device leaves it low on space, any other failure
    /// without a ballast.
    pub fn make_ballast(&self) {
        let mut held = self.ballast.held.lock();
        let full = |error: io::Error| {
            let path = self.path(BALLAST);
            matches!(Error::io("allocate", &path, error), Error::NoSpace { .. })
        };
        let made = self.vfs.create(&self.path(BALLAST)).and_then(|file| {
            held.file = Some(file);
            held.grow(self.ballast_bytes())
        });
        let low = made.is_err_and(full);
        if low {
            // The next opening needs some too: as much of that as there is.
            let parts = [OPEN_BYTES, OPEN_BYTES / 2, OPEN_BYTES / 4, OPEN_BYTES / 8];
            let _ = parts.into_iter().find(|part| held.grow(*part).is_ok());
        }
        self.ballast.low.store(low, Ordering::Relaxed);
    }

    fn ballast_bytes(&self) -> u64 {
        let sizes = &self.table_sizes;
        let all_bytes = sizes.upper_bytes() + sizes.last_bytes();
        ballast_bytes(&self.plan(), &self.options, all_bytes)
    }

    /// Cuts the ballast for somebody who makes room and met `error`; from now on the database is low on space. True:
    /// there is more room than before.
    pub fn spend_ballast(&self, taker: Taker, error: &Error) -> bool {
        if matches!(taker, Taker::Background) {
            self.ballast.failed.store(true, Ordering::Relaxed);
        }
        let spent = {
            let mut held = self.ballast.held.lock();
            self.ballast.low.store(true, Ordering::Relaxed);
            held.shrink(taker.leaves())
        };
        self.events.no_space(error);
        if spent {
            self.jobs.wake();
        }
        spent
    }

    /// Leaves what the next opening of a database that is closed needs on a full device. A failure leaves more.
    pub fn shrink_ballast_for_close(&self) {
        self.ballast.held.lock().shrink(LOG_BYTES + OPEN_BYTES);
    }

    /// Runs what makes room; a second time, with what the ballast had, where it finds none.
    pub fn with_ballast<T>(&self, taker: Taker, mut run: impl FnMut() -> Result<T>) -> Result<T> {
        match run() {
            Err(error @ Error::NoSpace { .. }) if self.spend_ballast(taker, &error) => run(),
            Err(error) if error.lacks_descriptors() && self.open_files.close_some() => run(),
            result => result,
        }
    }

    /// Refuses a commit that takes space while the database is low on it.
    pub fn check_space(&self, request: &Request) -> Result<()> {
        match self.ballast.is_low() && !request.makes_room() {
            true => self.check_room(),
            false => Ok(()),
        }
    }

    /// Refuses while the database is low on space.
    pub fn check_room(&self) -> Result<()> {
        if !self.ballast.is_low() || self.regain_ballast() {
            return Ok(());
        }
        let full = io::ErrorKind::StorageFull.into();
        Err(Error::io("write to", &self.dir, full))
    }

    /// Takes the ballast back if there is room for it and for a segment. True: the database is not low on space.
    fn regain_ballast(&self) -> bool {
        let mut held = self.ballast.held.lock();
        if !self.ballast.is_low() {
            return true;
        }
        let wanted = self.ballast_bytes();
        let missing = wanted.saturating_sub(held.bytes) + self.plan().segment_bytes();
        let free = self.vfs.free_bytes(&self.dir);
        if !free.is_ok_and(|free| free >= missing) || held.grow(wanted).is_err() {
            return false;
        }
        self.ballast.low.store(false, Ordering::Relaxed);
        drop(held);
        if !self.ballast.failed.load(Ordering::Relaxed) {
            self.events.found_space();
        }
        self.jobs.found_space();
        true
    }

    /// After a flush or a merge: takes the ballast back, or fits it to the tables that there are now, and has merges that
    /// found no space tried again.
    pub fn found_space(&self) {
        self.jobs.found_space();
        self.ballast.failed.store(false, Ordering::Relaxed);
        self.look_for_space();
    }

    /// After the removal of files: where room is wanted, a merging thread looks for it at once.
    pub fn look_at_removed(&self) {
        if self.ballast.is_low() {
            self.jobs.wake();
        }
    }

    /// As [`Shared::found_space`] when nothing was done but time has passed.
    pub fn look_for_space(&self) {
        if !self.ballast.is_low() {
            if !self.ballast.failed.load(Ordering::Relaxed) {
                self.events.found_space();
            }
            let mut held = self.ballast.held.lock();
            let (bytes, wanted) = (held.bytes, self.ballast_bytes());
            let slack = bytes / SLACK_PART;
            if wanted > bytes + slack || wanted + slack < bytes {
                held.shrink(wanted);
                // Where there is no room for more, what is held has to do.
                let _ = held.grow(wanted);
            }
            return;
        }
        // What was removed may hold its space until the directory is synced.
        if self.sync_directory().is_ok() {
            self.regain_ballast();
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
        // A merge of one group out of 32.
        assert_eq!(of(1024 * MIB), 33 * MIB);
        assert_eq!(of(1 << 50), 81 * MIB);
    }
}
