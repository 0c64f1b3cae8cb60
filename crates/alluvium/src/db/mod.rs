//! An open database: its handle, commits, and the way to everything else that it offers.

mod amplification;
pub(crate) mod ballast;
pub(crate) mod checkpoint;
mod close;
pub(crate) mod flush_queue;
pub(crate) mod install_flush;
pub(crate) mod install_ingest;
mod keyspaces;
pub(crate) mod memory;
pub(crate) mod old_segments;
mod open;
pub(crate) mod options;
pub(crate) mod poison;
mod removals;
pub(crate) mod shared;
pub(crate) mod split;
mod stats;
pub(crate) mod store;
mod stored_time;
mod syncer;

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
use crate::commit::WriteBatch;
use crate::commit::batch::encode_payload;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::ingest::{BulkLoad, BulkLoadOptions, Ingest};
use crate::keyspace::Keyspace;
use crate::memory::{Charge, Use};
use crate::snapshot::Snapshot;
use crate::txn::write_set::WriteSet;
use crate::txn::{Isolation, Transaction, TransactionOptions};
use crate::vfs::Vfs;

/// An open database. Clones are handles of the same one; it closes when the last handle of any kind is gone, or
/// by [`Database::close`].
///
/// Handles belong to the process that opened the database. In a process that is forked from it every call fails with
/// `Forked`, and dropping a handle does nothing.
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

/// Owns the background threads; dropping it closes the database, in the process that opened it.
struct Handle {
    shared: Arc<Shared>,
    /// Guards the threads to join, so that two closing calls do not join twice.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How one write is to be made durable and checked: see [`Database::write_with`].
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// `None`: as [`Options::durability`] says. A database opened with [`Durability::None`] has no log, so
    /// nothing else can be asked of it, and no other database can be asked for it.
    pub durability: Option<Durability>,
    /// Write without row locks. Only for loads and replication, where no transaction writes the same keys:
    /// otherwise updates between another transaction's locking read and its commit go unnoticed.
    pub untracked: bool,
}

impl Database {
    /// Opens the database in a directory, creating it where [`Options::create`] allows.
    ///
    /// Costs a look at every table, whose fences and filters are read, and the replay of what the log holds above the
    /// tables: about as much as memtables had.
    ///
    /// # Errors
    ///
    /// `Locked` when another process or handle has it open, `Corruption` and `NewerFormat` when stored bytes
    /// cannot be trusted or read, `Corruption` also where the files of a database lack `CURRENT`, `InvalidArgument` for
    /// options out of range, `Io` for the rest.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::open_on(Arc::new(crate::vfs::RealVfs::new()), path, options)
    }

    /// As [`Database::open`], on a file system of the caller's: an in-memory or fault-injecting one in tests.
    /// Its errors are the same.
    pub fn open_on(
        vfs: Arc<dyn Vfs>,
        path: impl AsRef<Path>,
        options: Options,
    ) -> Result<Database> {
        let shared = Arc::new(open::open(vfs, path.as_ref(), options)?);
        let threads = Mutex::new(Vec::new());
        // The handle first: if a thread cannot be started, dropping it ends those that were.
        let handle = Arc::new(Owned::new(Handle { shared, threads }));
        open::start_threads(&handle.shared, &mut handle.threads.lock())?;
        Ok(Database { handle })
    }

    /// As [`Database::open`] with [`Options::read_only`].
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

    /// Changes the memory budget, from now until the database is closed; [`Options::memory_bytes`] says it at the next
    /// opening. Memtables are sealed and flushed by the new number at once, and what the cache has too much is given
    /// up before the call returns. The log's segments keep their size.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for less than the options allow.
    pub fn set_memory_bytes(&self, memory_bytes: usize) -> Result<()> {
        let shared = self.shared();
        shared.check_open()?;
        let options = Options {
            memory_bytes,
            ..shared.options.clone()
        };
        options.check()?;
        shared.set_memory_bytes(memory_bytes);
        Ok(())
    }

    /// Applies a batch atomically over its keyspaces, with row locks and the database's durability.
    ///
    /// # Errors
    ///
    /// `Deadlock` and `LockTimeout` when a transaction holds its rows: nothing was written, retry. `Poisoned` after
    /// an earlier failure, `NoSpace` when the log cannot grow: nothing was written, retry. `TransactionTooLarge` for a
    /// batch above [`Options::transaction_bytes`]. `KeyspaceDropped`, `ReadOnly`, `Closed`; `InvalidArgument` for keyspaces
    /// of another database. After `Io` the batch is there as a whole or not at all when the database is opened again.
    ///
    /// # Cost
    ///
    /// One record in the log, shared with commits of other threads, and a lock for each row. Where merging is behind,
    /// a wait of at most a second before that.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_with(batch, &WriteOptions::default())
    }

    /// As [`Database::write`] with options. `InvalidArgument` for a durability that the database cannot give: see
    /// [`WriteOptions::durability`].
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
            return self.shared().check_open();
        }
        let shared = self.shared();
        shared.check_writable()?;
        let durability = shared.durability(options.durability)?;
        let _charge = Charge::of(&shared.cache, Use::Commits, writes.allocated_bytes());
        let payload = encode_payload(writes);
        let bytes = payload.len();
        shared.check_commit_bytes(bytes)?;
        // Debt is paid before any lock is taken, or one writer's wait would become everybody's.
        shared.pay_for(bytes);
        if options.untracked {
            shared.commit(payload, durability)?;
        } else {
            let locks = shared.lock_writes(writes)?;
            // Under the locks: nobody else puts the keys there, or takes them away, before the commit.
            let result = self
                .check_inserts(writes)
                .and_then(|()| shared.commit(payload, durability));
            shared.unlock_writes(locks);
            result?;
        }
        Ok(())
    }

    /// In debug builds, refuses inserts of keys that exist. What the batch itself deletes is none of them.
    fn check_inserts(&self, writes: &WriteSet) -> Result<()> {
        if !cfg!(debug_assertions) {
            return Ok(());
        }
        for write in writes.iter().filter(|w| w.kind == ValueKind::Insert) {
            let hidden = writes.deletes(write.keyspace, write.key);
            let tree = {
                let catalog = self.shared().catalog.read();
                catalog.values().find(|t| t.id == write.keyspace).cloned()
            };
            if let Some(tree) = tree.filter(|_| !hidden) {
                Keyspace::new(self.clone(), tree).check_insert(write.key, None)?;
            }
        }
        Ok(())
    }

    /// Begins an ingest: many rows in key order, written straight into tables and installed as one commit. For thousands
    /// of rows and more. Fails only with `NoSpace`, `ReadOnly` and `Closed`; rows and [`Ingest::finish`] have errors of their own.
    pub fn ingest(&self) -> Result<Ingest> {
        self.shared().check_writable()?;
        self.shared().check_room()?;
        Ok(Ingest::new(self.clone()))
    }

    /// Begins a bulk load: as [`Database::ingest`] for rows in any order, within a limit of memory.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for too small a limit; `NoSpace`, `ReadOnly`, `Closed`.
    pub fn bulk_load(&self, options: BulkLoadOptions) -> Result<BulkLoad> {
        self.shared().check_writable()?;
        self.shared().check_room()?;
        BulkLoad::new(self.clone(), options)
    }

    /// The time by which a read that begins now judges whether rows have expired, in milliseconds since 1970. The wall
    /// clock shows it, or after a jump of the wall clock the clock since the machine's start: see [`crate::Clock::system`].
    /// Add to it for [`Keyspace::put_until`], and a wrong clock cannot hide the row. Fails only with `Closed`.
    pub fn now_ms(&self) -> Result<u64> {
        self.shared().check_open()?;
        Ok(self.shared().clock.now())
    }

    /// A fixed read point: the newest commit that is visible now. Takes no lock and reads nothing. Fails only with
    /// `Closed`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.shared().check_open()?;
        Ok(Snapshot::new(self.clone()))
    }

    /// Begins a transaction. Takes no lock and writes nothing. Fails only with `Closed`.
    pub fn begin(&self, isolation: Isolation) -> Result<Transaction> {
        self.begin_with(TransactionOptions {
            isolation,
            ..TransactionOptions::default()
        })
    }

    /// As [`Database::begin`] with options.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an optimistic transaction at [`Isolation::ReadCommitted`], and for a durability that the
    /// database cannot give: see [`WriteOptions::durability`]; `Closed`.
    pub fn begin_with(&self, options: TransactionOptions) -> Result<Transaction> {
        self.shared().check_open()?;
        Transaction::begin(self.clone(), options)
    }

    /// Makes everything committed so far as durable as [`Durability::Sync`] does. Without a log that is a flush. Commits
    /// wait meanwhile.
    ///
    /// # Errors
    ///
    /// `Io` if the sync fails, which poisons the database: it is not tried again. `Poisoned`, `ReadOnly`, `Closed`; without
    /// a log those of [`Database::flush`].
    pub fn sync(&self) -> Result<()> {
        let shared = self.shared();
        shared.check_writable()?;
        if shared.options.durability == Durability::None {
            return self.flush();
        }
        let mut log = shared.log.lock();
        shared.check_open()?;
        log.sync(shared)
    }

    /// Moves all memtables into tables and waits for it. What was committed before the call is durable then, at every
    /// level. Commits go on meanwhile. Many small flushes make many small tables, which have to be merged.
    ///
    /// # Errors
    ///
    /// `NoSpace`: the memtables stay and the flush is tried again in the background. `Io`, `Poisoned`, `ReadOnly`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        let shared = self.shared();
        shared.check_writable()?;
        shared.wait_for_flushes_after_failure()?;
        {
            // Checked under the log's lock: a closed database must not write to its directory any more.
            let mut log = shared.log.lock();
            shared.check_open()?;
            match log.active_bytes() {
                // What has changed no row since the last flush, as a rollback of a prepared transaction, is in the log.
                0 => log.sync(shared)?,
                _ => log.seal(shared)?,
            }
        }
        shared.wait_for_flushes()?;
        // What a range delete has hidden whole.
        shared.removals.wait();
        Ok(())
    }

    /// Pays the background debt: flushes, then waits until no merge is due, and until no last level has anything that only
    /// a released snapshot needed. What is due is decided by [`Options::upper_fraction`]; this is not a full compaction. The cache may have at once what memtables and merges
    /// took, instead of by little. For measurements, and between a load and its readers; errors as [`Database::flush`].
    pub fn settle(&self) -> Result<()> {
        self.flush()?;
        crate::compaction::settle(self.shared())
    }

    /// Makes a second database at `target` that holds exactly the commits up to one of them, in all keyspaces, and
    /// that goes its own way from there. Its tables are hard links, so it takes no space until the two differ.
    /// Commits go on meanwhile; dropping a keyspace waits for the flush.
    ///
    /// Prepared transactions that are unresolved at that commit are in it too, to be decided there by themselves.
    ///
    /// The target must not exist, and its parent must. On another file system the tables are copied, as the returned
    /// value says. Durable when the call returns.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a target that cannot be; `NoSpace` and `Io`, which leave nothing at the target and the
    /// database as it was; what a flush may meet. If only the very last sync fails, the target is there and whole, but
    /// a power cut may take it away.
    pub fn checkpoint(&self, target: impl AsRef<Path>) -> Result<CheckpointInfo> {
        checkpoint::checkpoint(self.shared(), target.as_ref())
    }

    /// Sizes and counters of the moment. Costs a look at every group of tables. Fails only with `Closed`.
    pub fn stats(&self) -> Result<Stats> {
        self.shared().check_open()?;
        Ok(stats::collect(self.shared()))
    }

    /// What reads, writes and space cost for each keyspace since the opening, beside what the design predicts.
    ///
    /// Costs a look at every table; ask every few seconds, not for every read.
    pub fn amplification(&self) -> Result<Amplification> {
        self.shared().check_open()?;
        Ok(amplification::collect(self.shared()))
    }

    /// The newest commit that readers see.
    pub fn visible_seqno(&self) -> SeqNo {
        self.shared().read_points.visible()
    }

    /// Closes the database: syncs the log (with [`Durability::None`]: flushes), ends the threads, releases the
    /// directory. Later calls of any handle get `Closed`, and so do at once the calls of other threads that wait for a row
    /// lock, for memtables at their ceiling, for the delay of a commit, or for changes. A second close does nothing.
    ///
    /// # Errors
    ///
    /// What the last sync or flush met; the database is closed all the same. `Forked`, after which nothing is closed.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }
}
