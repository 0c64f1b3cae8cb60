//! How a database is opened: one memory budget, one durability default, few other choices.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::event::EventListener;

/// What an acknowledged commit means (an acknowledged commit is one whose call returned `Ok`).
///
/// At every level commits are atomic across keyspaces and keep their order: if a commit is present after a
/// failure, so is every commit acknowledged before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// No write-ahead log: after any failure the database is as some earlier flush left it, all keyspaces at the
    /// same commit. A choice for the whole database; a single commit cannot ask for it.
    None,
    /// The log record was handed to the kernel. A killed process loses nothing; a power cut may lose the commits
    /// of the last [`Options::sync_interval`], and those only.
    #[default]
    Buffered,
    /// The log record was made durable on the device. Nothing is lost.
    Sync,
}

/// Options of [`crate::Database::open`].
#[derive(Debug, Clone)]
pub struct Options {
    /// The one memory budget in bytes: memtables, cached blocks, fences and filters, buffers of background work and bulk
    /// loads, and the writes of transactions together. What takes it is in [`crate::Stats::memory`]. At least 8 MiB.
    pub memory_bytes: usize,
    /// The durability of commits that do not choose their own.
    pub durability: Durability,
    /// How long a `Buffered` commit may stay unsynced.
    pub sync_interval: Duration,
    /// Whether to create the database where the directory holds none.
    pub create: bool,
    /// Whether to open the database, or a checkpoint of one, without changing a byte in its directory: what its log holds
    /// is replayed into memory only, at the cost of the cache, and every write is refused with
    /// [`Error::ReadOnly`]. Any number of readers may have it open, but no writer. Overrides [`Options::create`].
    pub read_only: bool,
    /// Threads that merge tables, 1 to 16. One more flushes memtables, one more syncs the log.
    pub compaction_threads: usize,
    /// How long a row lock is waited for unless the call says otherwise.
    pub lock_timeout: Duration,
    /// Bytes of unmerged tables allowed per byte of the last level over all keyspaces, 0.02 to 1.0: the space budget.
    /// More saves background writes, less saves space and reads.
    pub upper_fraction: f64,
    /// After this long without a commit the database tidies itself: it flushes its memtables and merges all upper
    /// tables away, as far as no writer comes back, so that reads find each row in one table. At most a tenth of one
    /// core and of the device goes into it. `None`: never, and what scans have paid for is not merged either.
    pub idle_after: Option<Duration>,
    /// Size in bytes of the active memtables together at which they are sealed; `None` derives it from
    /// [`Options::memory_bytes`]. Tests set it small.
    pub memtable_bytes: Option<usize>,
    /// Size in bytes at which a last-level table is cut.
    pub table_bytes: u64,
    /// Where the time comes from by which rows expire. Tests set it.
    pub clock: Clock,
    /// What the writes of one transaction or batch may take in bytes; all prepared transactions together may take
    /// four times as much. They are in memory until their commit, as a part of [`Options::memory_bytes`]. `None`: a
    /// quarter of it. At most 4 GiB less 1 KiB, which a record of the log can hold. All open transactions together may
    /// take half of [`Options::memory_bytes`], or this where it is more; those below 64 KiB do not count.
    pub transaction_bytes: Option<usize>,
    /// Bytes of old log segments, as allocated, that stay for [`crate::Database::changes`] after recovery needs them no
    /// more. An open stream keeps what it has not read yet up to [`Options::memory_bytes`], also where this is 0.
    pub change_log_bytes: u64,
    /// The most files of tables and large values that are open at a time, at least 16; others are closed and opened again
    /// when they are read. `None`: half of the files that the process may have open (`RLIMIT_NOFILE`) when the database is
    /// opened. Ten more are for the log and the manifest, and one or two for each thread that writes tables.
    pub open_files: Option<usize>,
    /// Is told what happens in the background.
    pub event_listener: Option<Arc<dyn EventListener>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_bytes: 256 << 20,
            durability: Durability::Buffered,
            sync_interval: Duration::from_millis(100),
            create: true,
            read_only: false,
            compaction_threads: 1,
            lock_timeout: Duration::from_secs(10),
            upper_fraction: 0.25,
            idle_after: Some(Duration::from_secs(20)),
            memtable_bytes: None,
            table_bytes: 32 << 20,
            clock: Clock::system(),
            transaction_bytes: None,
            change_log_bytes: 0,
            open_files: None,
            event_listener: None,
        }
    }
}

/// The smallest memory budget that leaves room for memtables and a cache.
const MEMORY_BYTES_MIN: usize = 8 << 20;

/// Fewer would be closed and opened at every turn.
const OPEN_FILES_MIN: usize = 16;

/// A record of the log has room for this much and the id of a prepared transaction.
pub(crate) const TRANSACTION_BYTES_MAX: usize = (1 << 32) - 1024;
const _: () = assert!(TRANSACTION_BYTES_MAX + 300 < crate::wal::PAYLOAD_BYTES_MAX);

impl Options {
    /// Refuses values outside their documented ranges, naming the option. [`crate::Database::open`] does the same.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`].
    pub fn check(&self) -> Result<()> {
        let bad = |message: String| Err(Error::InvalidArgument(message));
        if self.memory_bytes < MEMORY_BYTES_MIN {
            return bad(format!(
                "memory_bytes is {}, the least is {MEMORY_BYTES_MIN}",
                self.memory_bytes
            ));
        }
        if !(0.02..=1.0).contains(&self.upper_fraction) {
            return bad(format!(
                "upper_fraction is {}, it must be 0.02 to 1.0",
                self.upper_fraction
            ));
        }
        if !(1..=16).contains(&self.compaction_threads) {
            return bad(format!(
                "compaction_threads is {}, it must be 1 to 16",
                self.compaction_threads
            ));
        }
        if self.sync_interval.is_zero() {
            return bad("sync_interval is 0: choose Durability::Sync to sync each commit".into());
        }
        if self
            .memtable_bytes
            .is_some_and(|bytes| !(1..=self.memory_bytes).contains(&bytes))
        {
            return bad("memtable_bytes must be 1 to memory_bytes".into());
        }
        if self
            .transaction_bytes
            .is_some_and(|bytes| !(1..=TRANSACTION_BYTES_MAX).contains(&bytes))
        {
            return bad(format!(
                "transaction_bytes must be 1 to {TRANSACTION_BYTES_MAX}"
            ));
        }
        if self.open_files.is_some_and(|files| files < OPEN_FILES_MIN) {
            return bad(format!("open_files must be at least {OPEN_FILES_MIN}"));
        }
        if self.table_bytes < 4096 {
            return bad(format!(
                "table_bytes is {}, the least is 4096",
                self.table_bytes
            ));
        }
        Ok(())
    }
}
