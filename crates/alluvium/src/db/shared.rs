//! What all handles and background threads of one open database share.
//!
//! Lock order, outermost first: `drops`, `log`, `store`, `flushes`, `Tree::change`. `syncer_stop` is taken by itself. The catalog is locked by itself.

use crate::sync::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use alluvium_mem::process::Process;

use crate::sync::plain::{Condvar, Mutex, RwLock};

use crate::admission::Admission;
use crate::base::{KeyspaceId, SeqNo, TableId};
use crate::cache::Cache;
use crate::clock::ReadClock;
use crate::commit::batch::written_rows;
use crate::commit::packed::pack;
use crate::commit::validate::{Validating, Validation};
use crate::commit::{Committer, Done, Log, Request};
use crate::compaction::Jobs;
use crate::db::ballast::{Ballast, Taker};
use crate::db::flush_queue::FlushQueue;
use crate::db::old_segments::OldSegments;
use crate::db::options::{Durability, Options};
use crate::db::poison::Poison;
use crate::db::removals::Removals;
use crate::db::store::{Store, TableSizes};
use crate::error::{Error, Result};
use crate::event::{Event, Events};
use crate::keyspace::tree::Tree;
use crate::memory::{CHARGE_STEP, Charge, Use};
use crate::metrics::Metrics;
use crate::read_points::ReadPoints;
use crate::table::open_files::OpenFiles;
use crate::txn::lock_table::{LockHash, LockMode, LockTable, LockWait, TxnId};
use crate::txn::write_set::WriteSet;
use crate::vfs::{LockGuard, Vfs, VfsFile};
use crate::wal::hard_io;

/// See the module.
pub(crate) struct Shared {
    /// The process that opened the database.
    process: Process,
    pub dir: PathBuf,
    /// Tells this database from any other.
    pub uid: u64,
    pub vfs: Arc<dyn Vfs>,
    pub options: Options,
    /// The memory budget. Relaxed: whoever reads an old one decides by it once more.
    pub memory_bytes: AtomicUsize,
    pub read_points: Arc<ReadPoints>,
    /// Decides which rows have expired.
    pub clock: Arc<ReadClock>,
    pub row_locks: LockTable,
    pub cache: Arc<Cache>,
    /// The descriptors of tables and value files.
    pub open_files: Arc<OpenFiles>,
    pub committer: Committer,
    pub validating: Validating,
    /// Guards the log, sequence numbers and the active memtables' writers. Held across the log's own I/O.
    pub log: Mutex<Log>,
    /// Guards the manifest and the lists of tables. Held across manifest I/O, by background threads and by
    /// creating and dropping keyspaces; never needed by a commit.
    pub store: Mutex<Store>,
    /// Guards the open keyspaces by name. Never held across I/O.
    pub catalog: RwLock<HashMap<String, Arc<Tree>>>,
    /// Held by a drop of a keyspace and by a checkpoint, so that no drop overtakes the commits which the checkpoint is
    /// flushing. Before every other lock; guards no data.
    pub drops: Mutex<()>,
    /// Waits for it hold `log`, under which it is notified: something was published or has become durable.
    pub log_grew: Condvar,
    /// The newest commit that is known to be durable in the log. Release: pairs with the look of a stream of changes.
    durable_seqno: AtomicU64,
    /// The newest commit at the opening.
    pub opened_at: SeqNo,
    pub old_segments: OldSegments,
    pub flushes: FlushQueue,
    pub jobs: Jobs,
    pub removals: Arc<Removals>,
    pub ballast: Ballast,
    pub admission: Admission,
    pub poison: Poison,
    pub events: Arc<Events>,
    pub metrics: Metrics,
    pub table_sizes: TableSizes,
    /// Numbers transactions and batches for the lock table.
    next_txn: AtomicU64,
    /// Set by close; every later call is refused. A stale read only lets a racing call finish.
    closed: AtomicBool,
    /// Numbers table files. Relaxed: only uniqueness matters; the manifest records it with each table.
    next_table: AtomicU64,
    /// Whether the sync thread is to end; its condition is `syncer_changed`. Guards nothing else.
    pub(super) syncer_stop: Mutex<bool>,
    pub(super) syncer_changed: Condvar,
    /// The lock of the directory, until close gives it back; `None` also where a directory that is only read has no
    /// lock file. Guards nothing else.
    directory: Mutex<Option<LockGuard>>,
}

/// The parts that opening a database brings together.
pub(crate) struct Parts {
    pub dir: PathBuf,
    pub vfs: Arc<dyn Vfs>,
    pub options: Options,
    pub cache: Arc<Cache>,
    pub open_files: Arc<OpenFiles>,
    pub log: Log,
    pub store: Store,
    pub catalog: HashMap<String, Arc<Tree>>,
    pub read_points: Arc<ReadPoints>,
    pub lock: Option<LockGuard>,
}

impl Shared {
    pub fn new(parts: Parts, next_table: TableId) -> Shared {
        let events = Events::new(parts.options.event_listener.clone());
        let stored_ms = parts.store.state().read_clock_ms;
        let clock = ReadClock::new(parts.options.clock.clone(), stored_ms, Arc::clone(&events));
        if parts
            .catalog
            .values()
            .any(|t| t.options().expiry.is_stored())
        {
            clock.use_it();
        }
        // Recovery has read them from the device.
        let opened_at = parts.log.last_seqno;
        Shared {
            process: Process::current(),
            clock,
            memory_bytes: AtomicUsize::new(parts.options.memory_bytes),
            row_locks: LockTable::new(crate::version::random_uid()),
            read_points: parts.read_points,
            uid: parts.store.database_uid(),
            dir: parts.dir,
            vfs: Arc::clone(&parts.vfs),
            options: parts.options,
            cache: parts.cache,
            open_files: parts.open_files,
            committer: Committer::default(),
            validating: Validating::default(),
            log: Mutex::new(parts.log),
            store: Mutex::new(parts.store),
            catalog: RwLock::new(parts.catalog),
            drops: Mutex::new(()),
            log_grew: Condvar::new(),
            durable_seqno: AtomicU64::new(opened_at),
            opened_at,
            old_segments: OldSegments::default(),
            flushes: FlushQueue::default(),
            jobs: Jobs::default(),
            removals: Removals::new(parts.vfs, Arc::clone(&events)),
            ballast: Ballast::default(),
            admission: Admission::new(),
            poison: Poison::new(Arc::clone(&events)),
            events,
            metrics: Metrics::default(),
            table_sizes: TableSizes::default(),
            next_txn: AtomicU64::new(1),
            closed: AtomicBool::new(false),
            next_table: AtomicU64::new(next_table.0),
            syncer_stop: Mutex::new(false),
            syncer_changed: Condvar::new(),
            directory: Mutex::new(parts.lock),
        }
    }

    /// Refuses once the database is closed, and in a process that was forked from the one that opened it. Every call
    /// of a handle asks this first: a child must not take a lock, for its holder may be a thread that the child
    /// does not have.
    pub fn check_open(&self) -> Result<()> {
        if !self.process.is_current() {
            Err(Error::Forked)
        } else if self.closed.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// Returns whether this is the process that opened the database, and no fork of it.
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Refuses once the database is closed, or where it is only read.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.options.read_only {
            true => Err(Error::ReadOnly),
            false => Ok(()),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes for new calls, and ends what clients wait for before their commits are numbered.
    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
        self.admission.close();
        self.row_locks.close();
        self.look_at_flushes();
    }

    /// Lets others open the directory: the last step of closing.
    pub fn release_directory(&self) {
        *self.directory.lock() = None;
    }

    /// Whether the directory is still this database's, so that its files may be touched.
    pub fn owns_directory(&self) -> bool {
        self.process.is_current() && self.directory.lock().is_some()
    }

    /// A number for a new table file.
    pub fn next_table_id(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// The first number not given out yet, for the manifest.
    pub fn peek_next_table(&self) -> TableId {
        TableId(self.next_table.load(Ordering::Relaxed))
    }

    pub fn next_txn(&self) -> TxnId {
        // Relaxed: only uniqueness matters.
        TxnId(self.next_txn.fetch_add(1, Ordering::Relaxed))
    }

    /// Commits an encoded payload, whose size was checked: see [`crate::commit`].
    pub fn commit(&self, payload: Vec<u8>, durability: Durability) -> Result<SeqNo> {
        let packed = self.packed(&payload);
        self.commit_request(Request::new(payload, packed, durability))
    }

    /// As [`Shared::commit`] where the commit rests on what was read.
    pub fn commit_validated(
        &self,
        payload: Vec<u8>,
        durability: Durability,
        validation: Validation,
    ) -> Result<SeqNo> {
        let packed = self.packed(&payload);
        let _watch = self.validating.watch();
        self.commit_request(Request::new(payload, packed, durability).validated(validation))
    }

    fn packed(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let has_log = self.options.durability != Durability::None;
        has_log.then(|| pack(payload)).flatten()
    }

    /// Runs a request through the commit queue.
    pub fn commit_request(&self, request: Request) -> Result<SeqNo> {
        self.check_writable()?;
        self.check_space(&request)?;
        // What the log writes is a copy of it.
        let copies = 2 * request.record().1.len();
        let _charge = Charge::of(&self.cache, Use::Commits, copies);
        let sync = request.durability == Durability::Sync;
        let request = Arc::new(request);
        self.metrics.timed_commit(sync, || self.queue(&request))
    }

    fn queue(&self, request: &Arc<Request>) -> Result<SeqNo> {
        // Ends: the leader sends a validation back a bounded number of times.
        loop {
            if let Some(validation) = &request.validation {
                validation.look(self)?;
            }
            let done = self.committer.commit(request, |group| {
                // A leader that unwinds would leave its group and everybody behind it waiting for ever.
                let processed = AssertUnwindSafe(|| self.log.lock().process(self, group));
                catch_unwind(processed).unwrap_or_else(|_| {
                    let error = self.poison_after_panic();
                    group.iter().map(|_| Err(error.clone())).collect()
                })
            });
            if let Done::At(seqno) = done? {
                return Ok(seqno);
            }
        }
    }

    /// Makes the commits up to `seqno` visible. The caller holds the log's mutex.
    pub fn publish(&self, seqno: SeqNo) {
        self.read_points.publish(seqno);
        // One load where nobody waits.
        self.log_grew.notify_all();
    }

    /// Notes that commits are durable through `seqno`. The caller holds the log's mutex, so that nobody misses it who
    /// waits for it.
    pub fn note_durable(&self, seqno: SeqNo) {
        self.durable_seqno.fetch_max(seqno, Ordering::Release);
        self.log_grew.notify_all();
    }

    /// The newest commit that no power loss takes away.
    pub fn durable_seqno(&self) -> SeqNo {
        self.durable_seqno.load(Ordering::Acquire)
    }

    /// Refuses a commit that would take more memory than one may.
    pub fn check_commit_bytes(&self, bytes: usize) -> Result<()> {
        let limit = self.plan().transaction_bytes;
        match bytes > limit {
            true => Err(Error::TransactionTooLarge { bytes, limit }),
            false => Ok(()),
        }
    }

    /// Refuses a write of a transaction that takes `held` bytes, where open transactions together would take more than
    /// they may. Those that are too small to be counted are never refused.
    pub fn check_open_transactions(&self, held: usize, more: usize) -> Result<()> {
        if held < CHARGE_STEP {
            return Ok(());
        }
        let bytes = self.cache.taken_bytes(Use::Writes) as usize + more;
        let limit = self.plan().open_transactions_bytes();
        match bytes > limit {
            true => Err(Error::TransactionTooLarge { bytes, limit }),
            false => Ok(()),
        }
    }

    /// Makes the names in the database directory durable. A failure poisons: the kernel may have dropped the names of
    /// others too, and a later sync would not tell.
    pub fn sync_directory(&self) -> Result<()> {
        self.vfs.sync_dir(&self.dir).map_err(|error| {
            let error = self.poison.set(hard_io("sync", &self.dir, error));
            self.wake_after_poison();
            error
        })
    }

    /// Tells the listener of background work that failed without a change and will be tried again. Where the device was
    /// full, cuts the reserve for it. True: there is more room than before.
    pub fn note_background_failure(&self, error: &Error) -> bool {
        if matches!(error, Error::NoSpace { .. }) {
            return self.spend_ballast(Taker::Background, error);
        }
        self.events.tell(|| Event::BackgroundFailure {
            error: error.clone(),
        });
        false
    }

    /// Creates a file for a table or values, with the descriptor of another one where there is no other.
    pub fn create_file(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let created = self.open_files.with_descriptor(|| self.vfs.create(path));
        created.map_err(|e| Error::io("create", path, e))
    }

    /// Opens a file that was written a moment ago, to be one of those that are closed when others need their descriptors.
    pub fn open_file(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let opened = self.open_files.with_descriptor(|| self.vfs.open_read(path));
        let file = opened.map_err(|e| Error::io("open", path, e))?;
        Ok(self.open_files.keep(file))
    }

    /// The path of a file in the database directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Poisons after a panic of the engine's own: what it left half done is not to be trusted.
    pub fn poison_after_panic(&self) -> Error {
        let message = "the engine panicked; see the panic's own message";
        let error = self.poison.set(Error::Internal(message.into()));
        self.wake_after_poison();
        self.jobs.wake();
        error
    }

    /// The durability of a commit that asks for this, if it can have it.
    pub fn durability(&self, asked: Option<Durability>) -> Result<Durability> {
        let own = self.options.durability;
        let durability = asked.unwrap_or(own);
        if (durability == Durability::None) != (own == Durability::None) {
            let message = "durability none is chosen for a whole database, at its opening";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(durability)
    }

    /// Delays the caller as the background debt asks, before (or after) its commit, never under a lock.
    pub fn pay_for(&self, bytes: usize) {
        let waited = self.admission.admit(bytes as u64);
        if !waited.is_zero() {
            self.metrics.delayed_commits.add(1);
            self.metrics.delay_us.add(waited.as_micros() as u64);
        }
    }

    /// Locks every row of a batch, in key order, so that batches never deadlock among themselves.
    pub fn lock_writes(&self, writes: &WriteSet) -> Result<BatchLocks> {
        let wait = LockWait::timeout(self.options.lock_timeout);
        self.lock_rows(writes.iter().map(|w| (w.keyspace, w.key)), &wait)
    }

    /// As [`Shared::lock_writes`] for rows that are given in key order.
    pub fn lock_rows<'a>(
        &self,
        rows: impl Iterator<Item = (KeyspaceId, &'a [u8])>,
        wait: &LockWait,
    ) -> Result<BatchLocks> {
        let mut locks = BatchLocks {
            owner: self.next_txn(),
            held: Vec::new(),
        };
        for (keyspace, key) in rows {
            let hash = self.row_locks.hash(keyspace, key);
            match self
                .row_locks
                .lock(locks.owner, hash, LockMode::Exclusive, wait)
            {
                Ok(_) => locks.held.push(hash),
                Err(failure) => {
                    self.unlock_writes(locks);
                    let name = self.keyspace_name(keyspace);
                    return Err(failure.into_error(&name, key, wait.timeout));
                }
            }
        }
        Ok(locks)
    }

    /// Takes the row locks of the prepared transactions that recovery found.
    pub fn lock_prepared(&self) {
        let mut log = self.log.lock();
        log.unresolved.charge(&self.cache);
        log.unresolved.lock_all(|state| {
            state.owner = self.next_txn();
            let mut locks = Vec::new();
            for (keyspace, key) in written_rows(state.ops()) {
                let hash = self.row_locks.hash(keyspace, key);
                // Only another prepared transaction can have it: both wrote the row, one of them without a lock.
                // Then that one's lock has to do for both.
                let wait = LockWait::timeout(Duration::ZERO);
                if let Ok(_granted) =
                    self.row_locks
                        .lock(state.owner, hash, LockMode::Exclusive, &wait)
                {
                    locks.push(hash);
                }
            }
            state.locks = locks;
        });
    }

    /// Releases what [`Shared::lock_writes`] locked.
    pub fn unlock_writes(&self, locks: BatchLocks) {
        self.row_locks.unlock_all(locks.owner, &locks.held);
    }

    /// A keyspace's name for messages.
    fn keyspace_name(&self, id: KeyspaceId) -> String {
        let catalog = self.catalog.read();
        catalog
            .values()
            .find(|t| t.id == id)
            .map_or_else(|| id.to_string(), |t| t.name.clone())
    }
}

/// Row locks of one plain batch.
pub(crate) struct BatchLocks {
    owner: TxnId,
    held: Vec<LockHash>,
}
