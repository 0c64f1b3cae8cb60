//! An open database: its handle, commits, and access to all other features.

pub(crate) mod access;
mod amplification;
pub(crate) mod backlog;
pub(crate) mod ballast;
pub(crate) mod checkpoint;
mod close;
pub(crate) mod core;
pub(crate) mod files;
pub(crate) mod install_ingest;
mod keyspaces;
pub(crate) mod memory;
mod open;
pub(crate) mod options;
pub(crate) mod poison;
mod prepared_tables;
mod removals;
pub(crate) mod row_locks;
pub(crate) mod shared;
pub(crate) mod split;
mod stats;
pub(crate) mod store;
mod stored_time;

use crate::sync::thread::JoinHandle;
use std::path::Path;
use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::sync::plain::Mutex;

pub use amplification::{Amplification, Compared, KeyspaceAmplification};
pub use checkpoint::CheckpointInfo;
pub use memory::MemoryUse;
pub use options::{Durability, Options};
pub use stats::{Histogram, KeyspaceStats, Stats};
pub use stored_time::{set_stored_time, set_stored_time_on};

use crate::base::{SeqNo, ValueKind};
use crate::commit::env::CommitEnv;
use crate::commit::log::Log;
use crate::commit::payload::{Ops, encode_payload};
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::ingest::{BulkLoad, BulkLoadOptions, Ingest};
use crate::keyspace::Keyspace;
use crate::memory::Use;
use crate::snapshot::Snapshot;
use crate::txn::WriteBatch;
use crate::txn::write_set::WriteSet;
use crate::txn::{Isolation, LockWaitInfo, Transaction, TransactionOptions};
use crate::vfs::Vfs;

/// An open database. Clones are handles of the same database, which closes when its last handle of
/// any kind is dropped, or by [`Database::close`].
///
/// Handles belong to the process that opened the database. In a forked process every call fails
/// with `Forked`, and dropping a handle does nothing.
///
/// ```
/// use alluvium::{Database, Isolation, KeyspaceOptions, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let users = db.keyspace("users", KeyspaceOptions::default())?;
/// users.put(b"ada", b"1815")?;
/// let txn = db.begin(Isolation::Snapshot)?;
/// assert_eq!(txn.get_for_update(&users, b"ada")?.as_deref(), Some(&b"1815"[..]));
/// txn.put(&users, b"grace", b"1906")?;
/// txn.commit()?;
/// assert!(users.get(b"grace")?.is_some());
/// # Ok::<(), alluvium::Error>(())
/// ```
#[derive(Clone)]
pub struct Database {
    handle: Arc<Owned<Handle>>,
}

/// Owner of the background threads. Dropping it closes the database, but only in the process that
/// opened it.
struct Handle {
    shared: Arc<Shared>,
    /// Threads to join. The mutex prevents two concurrent calls to close from joining them twice.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Options of one write, see [`Database::write_with`].
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Durability of the write. `None`: as set by [`Options::durability`]. A database opened with
    /// [`Durability::None`] accepts no other level, because it has no log; any other database
    /// refuses that level.
    pub durability: Option<Durability>,
    /// Writes without row locks. Only for loads and replication, if no transaction writes the same
    /// keys. Otherwise an update between the locking read and the commit of a transaction goes
    /// unnoticed.
    pub untracked: bool,
}

impl Database {
    /// Opens the database in a directory, creating it if [`Options::create`] allows.
    ///
    /// # Errors
    ///
    /// `Locked` if another process or handle has the database open. `Corruption` and `NewerFormat`
    /// if stored bytes cannot be trusted or read; `Corruption` also if the files of a database lack
    /// `CURRENT`. `InvalidArgument` for options out of range. `Io` for all other failures.
    ///
    /// # Cost
    ///
    /// Reads the fences and filters of every table, and replays the part of the log that is not yet
    /// in tables: about as many bytes as the memtables had.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::open_on(Arc::new(crate::vfs::RealVfs::new()), path, options)
    }

    /// Opens the database as [`Database::open`] does, on another file system: an in-memory or
    /// fault-injecting one in tests. The errors are the same.
    pub fn open_on(
        vfs: Arc<dyn Vfs>,
        path: impl AsRef<Path>,
        options: Options,
    ) -> Result<Database> {
        let shared = Arc::new(open::open(vfs, path.as_ref(), options)?);
        let threads = Mutex::new(Vec::new());
        // Created first: if a thread cannot be started, dropping the handle stops the threads
        // started before.
        let handle = Arc::new(Owned::new(Handle { shared, threads }));
        open::start_threads(&handle.shared, &mut handle.threads.lock())?;
        Ok(Database { handle })
    }

    /// Opens the database as [`Database::open`] does, with [`Options::read_only`].
    pub fn open_read_only(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        let read_only = true;
        Database::open(
            path,
            Options {
                read_only,
                ..options
            },
        )
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Changes the memory budget until the database is closed. The next open uses
    /// [`Options::memory_bytes`] again.
    ///
    /// Memtables are sealed and flushed according to the new budget at once, and the cache shrinks
    /// to it before the call returns. The log's segments keep their size.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for less than the options allow.
    pub fn set_memory_bytes(&self, memory_bytes: usize) -> Result<()> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        let options = Options {
            memory_bytes,
            ..shared.core.options.clone()
        };
        options.check()?;
        shared.set_memory_bytes(memory_bytes);
        Ok(())
    }

    /// Applies a batch atomically over its keyspaces, with row locks and the database's durability.
    ///
    /// # Errors
    ///
    /// `Deadlock` and `LockTimeout` if a transaction holds its rows: nothing was written, retry.
    /// `Poisoned` after an earlier failure. `NoSpace` if the log cannot grow: nothing was written,
    /// retry. `TransactionTooLarge` for a batch above [`Options::transaction_bytes`].
    /// `KeyspaceDropped`, `ReadOnly`, `Closed`; `InvalidArgument` for keyspaces of another
    /// database. After `Io` the next open finds the batch as a whole or not at all.
    ///
    /// # Cost
    ///
    /// One log record, shared with commits of other threads, and a lock for each row. With a
    /// compaction backlog, a delay of at most one second before that.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// Applies a batch as [`Database::write`] does, with options. Also fails with `InvalidArgument`
    /// for a durability that the database does not support, see [`WriteOptions::durability`].
    pub fn write_with(&self, batch: &WriteBatch, options: &WriteOptions) -> Result<()> {
        let shared = self.shared();
        if batch.database().is_some_and(|uid| uid != shared.uid) {
            return Err(Error::InvalidArgument(
                "the batch has keyspaces of another database".into(),
            ));
        }
        batch.check_trees()?;
        self.commit_writes(batch.writes(), options)
    }

    pub(crate) fn commit_writes(&self, writes: &WriteSet, options: &WriteOptions) -> Result<()> {
        if writes.is_empty() {
            return self.shared().core.access.check_open();
        }
        let core = &self.shared().core;
        // Before the charge, which may lock the cache: a forked child takes no lock.
        core.access.check_writable()?;
        let _charge = core.memory.charge(Use::Commits, writes.allocated_bytes());
        self.commit_payload(encode_payload(writes), options)
    }

    /// Commits operations as [`encode_payload`] encodes them.
    pub(crate) fn commit_payload(&self, payload: Vec<u8>, options: &WriteOptions) -> Result<()> {
        let shared = self.shared();
        shared.core.access.check_writable()?;
        let durability = shared.core.durability(options.durability)?;
        let bytes = payload.len();
        // While it is delayed or waits for a lock; the commit itself has a charge of its own.
        let waiting = shared.core.memory.charge(Use::Commits, bytes);
        shared.core.memory.check_commit_bytes(bytes)?;
        // Delayed before taking any lock: otherwise other writers would wait for the locks of a
        // delayed writer.
        shared.core.pay_for(bytes);
        if options.untracked {
            drop(waiting);
            shared.commits.commit(payload, durability)?;
        } else {
            let locks = shared.row_locks.lock_writes(&payload)?;
            // Under the locks: no other writer inserts or deletes these keys before the commit.
            let result = self.check_inserts(&payload).and_then(|()| {
                drop(waiting);
                shared.commits.commit(payload, durability)
            });
            shared.row_locks.unlock(locks);
            result?;
        }
        Ok(())
    }

    /// In debug builds, refuses inserts of keys that exist, unless the batch itself deletes them.
    fn check_inserts(&self, payload: &[u8]) -> Result<()> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        let ops = || Ops::new(payload).flatten();
        // Range deletes are first in a payload.
        let ranges = || ops().take_while(|op| op.kind == ValueKind::RangeDelete);
        for insert in ops().filter(|op| op.kind == ValueKind::Insert) {
            let hidden = ranges().any(|op| op.deletes_range_of(insert.keyspace, insert.key));
            let tree = {
                let catalog = self.shared().core.catalog.read();
                catalog.values().find(|t| t.id == insert.keyspace).cloned()
            };
            if let Some(tree) = tree.filter(|_| !hidden) {
                Keyspace::new(self.clone(), tree).check_insert(insert.key, None)?;
            }
        }
        Ok(())
    }

    /// Begins an ingest: rows in key order, written straight into tables and installed as one
    /// commit. Suited to thousands of rows or more.
    ///
    /// Fails only with `NoSpace`, `ReadOnly` and `Closed`; adding rows and [`Ingest::finish`] have
    /// their own errors.
    pub fn ingest(&self) -> Result<Ingest> {
        self.shared().core.access.check_writable()?;
        self.shared().ballast.check_room()?;
        Ok(Ingest::new(self.clone()))
    }

    /// Begins a bulk load: an ingest, see [`Database::ingest`], of rows in any order within a
    /// memory limit.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the limit is too small; `NoSpace`, `ReadOnly`, `Closed`.
    pub fn bulk_load(&self, options: BulkLoadOptions) -> Result<BulkLoad> {
        self.shared().core.access.check_writable()?;
        self.shared().ballast.check_room()?;
        BulkLoad::new(self.clone(), options)
    }

    /// Returns the time that decides for a read starting now whether rows have expired, in
    /// milliseconds since 1970.
    ///
    /// It follows the wall clock or, after a jump of the wall clock, the clock since the machine's
    /// start: see [`crate::Clock::system`]. Times for [`Keyspace::put_until`] should be computed
    /// from it, so that a wrong clock cannot hide the row. Fails only with `Closed`.
    pub fn now_ms(&self) -> Result<u64> {
        self.shared().core.access.check_open()?;
        Ok(self.shared().core.clock.now())
    }

    /// Returns a fixed read point: the newest visible commit. Takes no lock and reads nothing.
    /// Fails only with `Closed`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.shared().core.access.check_open()?;
        Ok(Snapshot::new(self.clone()))
    }

    /// Begins a transaction. Takes no lock and writes nothing. Fails only with `Closed`.
    pub fn begin(&self, isolation: Isolation) -> Result<Transaction> {
        self.begin_with(TransactionOptions {
            isolation,
            ..TransactionOptions::default()
        })
    }

    /// Begins a transaction as [`Database::begin`] does, with options.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an optimistic transaction at [`Isolation::ReadCommitted`], and for a
    /// durability that the database does not support, see [`WriteOptions::durability`]; `Closed`.
    pub fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        self.shared().core.access.check_open()?;
        Transaction::begin(self.clone(), options)
    }

    /// Returns the waits for row locks under way, oldest first. The waits are read one after
    /// another, so two of them may be from different moments.
    ///
    /// # Errors
    ///
    /// `Closed`, `Forked`.
    pub fn lock_waits(&self) -> Result<Vec<LockWaitInfo>> {
        self.shared().core.access.check_open()?;
        Ok(self.shared().row_locks.waits())
    }

    /// Makes everything committed so far as durable as [`Durability::Sync`] does. Without a log
    /// this is a flush. Commits wait meanwhile.
    ///
    /// # Errors
    ///
    /// `Io` if the sync fails, which poisons the database: the sync is not tried again. `Poisoned`,
    /// `ReadOnly`, `Closed`; without a log, the errors of [`Database::flush`].
    pub fn sync(&self) -> Result<()> {
        let shared = self.shared();
        shared.core.access.check_writable()?;
        if shared.core.options.durability == Durability::None {
            return self.flush();
        }
        let mut log = shared.commits.log.lock();
        shared.core.access.check_open()?;
        log.sync(&shared.commits.env)
    }

    /// Flushes all memtables into tables and waits for it.
    ///
    /// Everything committed before the call is durable when it returns, at every durability level.
    /// Commits continue meanwhile. Many small flushes make many small tables, which have to be
    /// compacted.
    ///
    /// # Errors
    ///
    /// `NoSpace`: the memtables stay, and the flush is tried again in the background. `Io`,
    /// `Poisoned`, `ReadOnly`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        // Records that changed no row since the last flush, such as a rollback of a prepared
        // transaction, are only in the log.
        self.flush_after(|log, env| match log.active_bytes() {
            0 => log.sync(env),
            _ => log.seal(env),
        })
    }

    /// Waits for a flush of everything that `seal` has sealed, and for the removal of files.
    fn flush_after(&self, seal: impl FnOnce(&mut Log, &CommitEnv) -> Result<()>) -> Result<()> {
        self.flush_sealed(seal)?;
        // Waits for tables that a range delete has hidden entirely.
        self.shared().core.files.removals.wait();
        Ok(())
    }

    /// Waits for a flush of all memtables. Large files may be under removal afterwards.
    pub(crate) fn flush_memtables(&self) -> Result<()> {
        self.flush_sealed(Log::seal)
    }

    fn flush_sealed(&self, seal: impl FnOnce(&mut Log, &CommitEnv) -> Result<()>) -> Result<()> {
        let shared = self.shared();
        shared.core.access.check_writable()?;
        shared.flushes.wait_after_failure()?;
        {
            // Checked under the log's lock: a closed database must not write to its directory.
            let mut log = shared.commits.log.lock();
            shared.core.access.check_open()?;
            seal(&mut log, &shared.commits.env)?;
        }
        shared.flushes.wait()
    }

    /// Works off the compaction backlog: flushes, then waits until no compaction is due and no last
    /// level holds entries that only a released snapshot needed.
    ///
    /// [`Options::upper_fraction`] decides which compactions are due; this is not a full
    /// compaction. Afterwards the log is one small segment, unless the last flush has just begun a
    /// new one. Use it for measurements, and between a load and its readers. Errors as for
    /// [`Database::flush`].
    pub fn settle(&self) -> Result<()> {
        self.flush_after(Log::seal_to_idle)?;
        crate::compaction::settle(&self.shared().compaction_env())
    }

    /// Makes a second, independent database at `target` that holds exactly the commits up to one
    /// point, in all keyspaces.
    ///
    /// Its tables are hard links, so it takes no space until the two databases differ. On another
    /// file system the tables are copied, as the returned value reports. Commits continue
    /// meanwhile; dropping a keyspace waits for the flush. Transactions that are prepared and
    /// unresolved at that point are included; they must be resolved in each database separately.
    ///
    /// The target must not exist, and its parent must. Durable when the call returns.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an unsuitable target. `NoSpace` and `Io`, which leave nothing at the
    /// target and the source unchanged. The errors of a flush. If only the very last sync fails,
    /// the target is complete, but a power loss may remove it.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CheckpointInfo> {
        checkpoint::checkpoint(self.shared(), target.as_ref())
    }

    /// Returns current sizes and counters. Visits every group of tables. Fails only with `Closed`.
    pub fn stats(&self) -> Result<Stats> {
        self.shared().core.access.check_open()?;
        Ok(stats::collect(self.shared()))
    }

    /// Returns read, write and space amplification of each keyspace since the database was opened,
    /// each compared with the design's prediction.
    ///
    /// Visits every table: call it every few seconds, not for every read.
    pub fn amplification(&self) -> Result<Amplification> {
        self.shared().core.access.check_open()?;
        Ok(amplification::collect(self.shared()))
    }

    /// Returns the newest visible commit.
    pub fn visible_seqno(&self) -> SeqNo {
        self.shared().core.read_points.visible()
    }

    /// Closes the database: syncs the log (with [`Durability::None`]: flushes), ends the threads,
    /// and releases the directory.
    ///
    /// Later calls on any handle return `Closed`. So do, at once, calls of other threads that wait
    /// for a row lock, for memtables at their ceiling, for the delay of a commit, or for changes. A
    /// second close does nothing.
    ///
    /// # Errors
    ///
    /// The error of the last sync or flush; the database is closed all the same. `Forked`, after
    /// which nothing is closed.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }
}
