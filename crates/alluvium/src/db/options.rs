//! Options of a database: one memory budget, one default durability, few other choices.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::event::EventListener;
use crate::txn::lock_waits::LockWaitListener;

/// Guarantee of an acknowledged commit. A commit is acknowledged when its call returns `Ok`.
///
/// At every level, commits are atomic across keyspaces and keep their order: if a commit is present
/// after a failure, so is every commit acknowledged before it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// No write-ahead log. After any failure the database has the state of an earlier flush, with
    /// all keyspaces at the same commit. Applies to a whole database; a single commit cannot ask
    /// for it.
    None,
    /// The log record has been passed to the kernel. A killed process loses nothing. A power loss
    /// may lose only the commits of the last [`Options::sync_interval`].
    #[default]
    Buffered,
    /// The log record is durable on the device. Nothing is lost.
    Sync,
}

/// Options of [`crate::Database::open`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Memory budget in bytes, at least 8 MiB.
    ///
    /// It covers memtables, cached blocks, fences and filters, buffers of background work and bulk
    /// loads, and the writes of transactions. [`crate::Stats::memory`] shows its use.
    pub memory_bytes: usize,
    /// Durability of commits that do not choose their own.
    pub durability: Durability,
    /// Longest time that a `Buffered` commit stays unsynced.
    pub sync_interval: Duration,
    /// If true, creates the database if the directory holds none.
    pub create: bool,
    /// If true, opens the database, or a checkpoint of one, without changing a byte in its
    /// directory.
    ///
    /// The log is replayed into memory only, which takes memory from the cache. Every write is
    /// refused with [`Error::ReadOnly`]. Any number of readers may have the database open, but no
    /// writer. Overrides [`Options::create`].
    pub read_only: bool,
    /// Number of compaction threads, 1 to 16. One more thread flushes memtables, and one syncs the
    /// log. A large flush of rows in key order starts up to as many more while it runs.
    pub compaction_threads: usize,
    /// Timeout of waits for a row lock, unless the call sets another.
    pub lock_timeout: Duration,
    /// Space budget, 0.02 to 1.0: bytes of upper tables allowed per byte of the last level, over
    /// all keyspaces. More saves background writes; less saves space and reads.
    pub upper_fraction: f64,
    /// Time without a commit after which the database cleans up.
    ///
    /// It flushes its memtables and compacts all upper tables, until a writer returns, so that
    /// reads find each row in one table. This uses at most a tenth of one core and of the device.
    /// `None` turns it off, together with read-triggered compaction.
    pub idle_after: Option<Duration>,
    /// Total size of the active memtables, in bytes, at which they are sealed. `None` derives it
    /// from [`Options::memory_bytes`]. Tests set it small.
    pub memtable_bytes: Option<usize>,
    /// Size in bytes at which compaction starts a new last-level table.
    pub table_bytes: u64,
    /// Clock that decides whether rows have expired. Tests replace it.
    pub clock: Clock,
    /// Limit for the writes of one transaction or batch in memory, in bytes. `None`: a quarter of
    /// [`Options::memory_bytes`].
    ///
    /// A transaction above it moves its writes to temporary files, unless it is serializable or
    /// optimistic or has range deletes. Such a transaction commits as an [`crate::Ingest`] does:
    /// durable at every level, and told to [`crate::Database::changes`] without its rows. It can
    /// neither be prepared nor delete ranges.
    ///
    /// All prepared transactions together may take four times as much. The writes in memory count
    /// toward [`Options::memory_bytes`]. The limit is at most 4 GiB
    /// less 1 KiB, the most that a log record can hold. All open transactions together may take
    /// half of [`Options::memory_bytes`], or this limit if it is larger; those below 64 KiB do not
    /// count.
    pub transaction_bytes: Option<usize>,
    /// Bytes of old log segments, as allocated, kept for [`crate::Database::changes`] after
    /// recovery no longer needs them. An open stream keeps its unread segments up to
    /// [`Options::memory_bytes`], even if this is 0.
    pub change_log_bytes: u64,
    /// Maximum number of open files of tables and large values, at least 16. Others are closed, and
    /// opened again when they are read.
    ///
    /// `None`: half of the files that the process may have open (`RLIMIT_NOFILE`) when the database
    /// is opened. The log and the manifest need ten more, and each thread that writes tables one or
    /// two.
    pub open_files: Option<usize>,
    /// Listener for background events.
    pub event_listener: Option<Arc<dyn EventListener>>,
    /// Listener for waits for row locks.
    pub lock_wait_listener: Option<Arc<dyn LockWaitListener>>,
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
            lock_wait_listener: None,
        }
    }
}

/// Smallest memory budget that leaves room for memtables and a cache.
const MEMORY_BYTES_MIN: usize = 8 << 20;

/// With fewer, almost every read would close one file and open another.
const OPEN_FILES_MIN: usize = 16;

/// Largest transaction that fits into a log record together with the id of a prepared transaction.
pub(crate) const TRANSACTION_BYTES_MAX: usize = (1 << 32) - 1024;
const _: () = assert!(TRANSACTION_BYTES_MAX + 300 < crate::wal::PAYLOAD_BYTES_MAX);

impl Options {
    /// Refuses values outside their documented ranges with an error that names the option.
    /// [`crate::Database::open`] makes the same check.
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
