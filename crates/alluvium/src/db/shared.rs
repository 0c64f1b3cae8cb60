//! State shared by all handles and background threads of one open database.
//!
//! Lock order, outermost first: `drops`, `log`, `store`, `flushes`, `Tree::change`. `syncer_stop`
//! is taken without any other lock. The catalog has its own lock.

use crate::sync::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alluvium_mem::process::Process;

use crate::sync::plain::{Condvar, Mutex, RwLock};

use crate::admission::Admission;
use crate::base::{KeyspaceId, SeqNo, TableId};
use crate::clock::ReadClock;
use crate::commit::batch::written_rows;
use crate::commit::packed::pack;
use crate::commit::validate::{Validating, Validation};
use crate::commit::{Committer, Done, Log, Request};
use crate::compaction::Jobs;
use crate::db::ballast::{Ballast, Taker};
use crate::db::flush_queue::FlushQueue;
use crate::db::memory::{Memory, MemoryPlan};
use crate::db::old_segments::OldSegments;
use crate::db::options::{Durability, Options};
use crate::db::poison::Poison;
use crate::db::removals::Removals;
use crate::db::store::{Store, TableSizes};
use crate::error::{Error, Result};
use crate::event::{Event, Events};
use crate::keyspace::tree::Tree;
use crate::memory::Use;
use crate::metrics::Metrics;
use crate::read_points::ReadPoints;
use crate::table::open_files::OpenFiles;
use crate::txn::lock_table::{LockHash, LockMode, LockTable, LockWait, TxnId};
use crate::txn::write_set::WriteSet;
use crate::vfs::{LockGuard, Vfs, VfsFile};
use crate::wal::hard_io;

/// Shared state of an open database, see the module.
pub(crate) struct Shared {
    /// The process that opened the database.
    process: Process,
    pub dir: PathBuf,
    /// Distinguishes this database from all others.
    pub uid: u64,
    pub vfs: Arc<dyn Vfs>,
    pub options: Options,
    pub memory: Memory,
    pub read_points: Arc<ReadPoints>,
    /// Decides which rows have expired.
    pub clock: Arc<ReadClock>,
    pub row_locks: LockTable,
    /// Descriptors of tables and value files.
    pub open_files: Arc<OpenFiles>,
    pub committer: Committer,
    pub validating: Validating,
    /// Guards the log, sequence numbers and the writers of active memtables. Held across the log's
    /// own I/O.
    pub log: Mutex<Log>,
    /// Guards the manifest and the lists of tables. Held across manifest I/O by background threads
    /// and by creating and dropping keyspaces; commits never need it.
    pub store: Mutex<Store>,
    /// Guards the open keyspaces by name. Never held across I/O.
    pub catalog: RwLock<HashMap<String, Arc<Tree>>>,
    /// Held by a drop of a keyspace and by a checkpoint, so that no drop overtakes the commits that
    /// the checkpoint flushes. Comes before every other lock and guards no data.
    pub drops: Mutex<()>,
    /// Signaled under `log` when a commit is published or becomes durable. Waiters hold `log`.
    pub log_grew: Condvar,
    /// Newest commit that is known to be durable in the log. Release: pairs with the load of a
    /// stream of changes.
    durable_seqno: AtomicU64,
    /// Newest commit when the database was opened.
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
    /// Next id of a transaction or batch in the lock table.
    next_txn: AtomicU64,
    /// Set by close; every later call is refused. A stale read only lets a racing call finish.
    closed: AtomicBool,
    /// Next number of a table file. Relaxed: only uniqueness matters; the manifest records it with
    /// each table.
    next_table: AtomicU64,
    /// Tells the sync thread to stop; its condition variable is `syncer_changed`. Guards nothing
    /// else.
    pub(super) syncer_stop: Mutex<bool>,
    pub(super) syncer_changed: Condvar,
    /// Lock of the directory, until close releases it. Also `None` if a read-only directory has no
    /// lock file. Guards nothing else.
    directory: Mutex<Option<LockGuard>>,
}

/// Parts that recovery assembles into [`Shared`].
pub(crate) struct Parts {
    pub dir: PathBuf,
    pub vfs: Arc<dyn Vfs>,
    pub options: Options,
    pub memory: Memory,
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
        // Recovery has read these commits from the device.
        let opened_at = parts.log.last_seqno;
        Shared {
            process: Process::current(),
            clock,
            memory: parts.memory,
            row_locks: LockTable::new(crate::version::random_uid()),
            read_points: parts.read_points,
            uid: parts.store.database_uid(),
            dir: parts.dir,
            vfs: Arc::clone(&parts.vfs),
            options: parts.options,
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

    /// Fails if the database is closed, or if this process was forked from the one that opened it.
    ///
    /// Every call on a handle checks this first: a forked process must not take a lock, because its
    /// holder may be a thread that the process does not have.
    pub fn check_open(&self) -> Result<()> {
        if !self.process.is_current() {
            Err(Error::Forked)
        } else if self.closed.load(Ordering::Acquire) {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    /// Returns true if this process opened the database, and false in a fork of it.
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Fails if the database is closed or read-only.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.options.read_only {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses new calls, and ends the waits of clients with commits that have no number yet.
    pub fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
        self.admission.close();
        self.row_locks.close();
        self.look_at_flushes();
    }

    /// Releases the directory for other openers: the last step of closing.
    pub fn release_directory(&self) {
        *self.directory.lock() = None;
    }

    /// Returns true if this handle still owns the directory, so that its files may be touched.
    pub fn owns_directory(&self) -> bool {
        self.process.is_current() && self.directory.lock().is_some()
    }

    /// Returns a new table number.
    pub fn next_table_id(&self) -> TableId {
        TableId(self.next_table.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the first table number not assigned yet, for the manifest.
    pub fn peek_next_table(&self) -> TableId {
        TableId(self.next_table.load(Ordering::Relaxed))
    }

    pub fn next_txn(&self) -> TxnId {
        // Relaxed: only uniqueness matters.
        TxnId(self.next_txn.fetch_add(1, Ordering::Relaxed))
    }

    /// Commits an encoded payload after its size has been checked, see [`crate::commit`].
    pub fn commit(&self, payload: Vec<u8>, durability: Durability) -> Result<SeqNo> {
        let packed = self.packed(&payload);
        self.commit_request(Request::new(payload, packed, durability))
    }

    /// Commits as [`Shared::commit`] does, and validates the reads that the commit depends on.
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
        // The log writes a copy of the record.
        let copies = 2 * request.record().1.len();
        let _charge = self.memory.charge(Use::Commits, copies);
        let sync = request.durability == Durability::Sync;
        let request = Arc::new(request);
        self.metrics.timed_commit(sync, || self.queue(&request))
    }

    fn queue(&self, request: &Arc<Request>) -> Result<SeqNo> {
        // Ends: the leader returns a validation to this thread a bounded number of times.
        loop {
            if let Some(validation) = &request.validation {
                validation.look(self)?;
            }
            let done = self.committer.commit(request, |group| {
                // If a leader unwound, its group and every thread queued after it would wait
                // forever.
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
        // Costs one load if no thread waits.
        self.log_grew.notify_all();
    }

    /// Records that commits are durable through `seqno`. A caller that holds the log's mutex wakes
    /// every waiting thread; without it a thread that is about to sleep may miss this.
    pub fn note_durable(&self, seqno: SeqNo) {
        self.durable_seqno.fetch_max(seqno, Ordering::Release);
        self.log_grew.notify_all();
    }

    /// Returns the newest commit that survives any power loss.
    pub fn durable_seqno(&self) -> SeqNo {
        self.durable_seqno.load(Ordering::Acquire)
    }

    /// Returns the current shares of the memory budget.
    pub fn plan(&self) -> MemoryPlan {
        self.memory.plan()
    }

    /// Changes the memory budget and wakes the threads that wait because of the old one.
    pub fn set_memory_bytes(&self, memory_bytes: usize) {
        self.memory.set_bytes(memory_bytes);
        let active_bytes = self.plan().active_bytes;
        for tree in self.catalog.read().values() {
            tree.set_memtable_bytes(active_bytes);
        }
        self.look_at_flushes();
        self.jobs.wake();
    }

    /// Returns true if any row is only in memory.
    pub fn has_memtables(&self) -> bool {
        let catalog = self.catalog.read();
        let has_rows = |tree: &Arc<Tree>| tree.load().has_memtable_rows();
        catalog.values().any(has_rows)
    }

    /// Makes the names in the database directory durable. A failure poisons: the kernel may have
    /// dropped other names too, and a later sync would not report it.
    pub fn sync_directory(&self) -> Result<()> {
        self.vfs.sync_dir(&self.dir).map_err(|error| {
            let error = self.poison.set(hard_io("sync", &self.dir, error));
            self.wake_after_poison();
            error
        })
    }

    /// Reports background work that failed without a change and will be tried again. If the device
    /// is full, cuts the ballast file for it. Returns true if there is more room than before.
    pub fn note_background_failure(&self, error: &Error) -> bool {
        if matches!(error, Error::NoSpace { .. }) {
            return self.spend_ballast(Taker::Background, error);
        }
        self.events.tell(|| Event::BackgroundFailure {
            error: error.clone(),
        });
        false
    }

    /// Creates a table or value file. If no descriptor is free, closes another file.
    pub fn create_file(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let created = self.open_files.with_descriptor(|| self.vfs.create(path));
        created.map_err(|e| Error::io("create", path, e))
    }

    /// Opens a newly written file. It may be closed later if other files need its descriptor.
    pub fn open_file(&self, path: &Path) -> Result<Arc<dyn VfsFile>> {
        let opened = self.open_files.with_descriptor(|| self.vfs.open_read(path));
        let file = opened.map_err(|e| Error::io("open", path, e))?;
        Ok(self.open_files.keep(file))
    }

    /// Returns the path of a file in the database directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Poisons the database after a panic of the engine: half-finished changes cannot be trusted.
    pub fn poison_after_panic(&self) -> Error {
        let message = "the engine panicked; see the panic's own message";
        let error = self.poison.set(Error::Internal(message.into()));
        self.wake_after_poison();
        self.jobs.wake();
        error
    }

    /// Returns the durability of a commit that asks for this level, if the database supports it.
    pub fn durability(&self, asked: Option<Durability>) -> Result<Durability> {
        let own = self.options.durability;
        let durability = asked.unwrap_or(own);
        if (durability == Durability::None) != (own == Durability::None) {
            let message = "durability none is chosen for a whole database, at its opening";
            return Err(Error::InvalidArgument(message.into()));
        }
        Ok(durability)
    }

    /// Delays the caller as admission control requires, before (or after) its commit and never
    /// under a lock.
    pub fn pay_for(&self, bytes: usize) {
        let waited = self.admission.admit(bytes as u64);
        if !waited.is_zero() {
            self.metrics.delayed_commits.add(1);
            self.metrics.delay_us.add(waited.as_micros() as u64);
        }
    }

    /// Locks every row of a batch in key order, so that batches never deadlock with each other.
    pub fn lock_writes(&self, writes: &WriteSet) -> Result<BatchLocks> {
        let wait = LockWait::timeout(self.options.lock_timeout);
        self.lock_rows(writes.iter().map(|w| (w.keyspace, w.key)), &wait)
    }

    /// Locks rows that are given in key order, as [`Shared::lock_writes`] does.
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
        log.unresolved.charge(&self.memory.budget);
        log.unresolved.lock_all(|state| {
            state.owner = self.next_txn();
            let mut locks = Vec::new();
            for (keyspace, key) in written_rows(state.ops()) {
                let hash = self.row_locks.hash(keyspace, key);
                // Only another prepared transaction can hold this lock: both wrote the row, one of
                // them without a lock. One lock then protects the row for both.
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

    /// Releases the locks of [`Shared::lock_writes`].
    pub fn unlock_writes(&self, locks: BatchLocks) {
        self.row_locks.unlock_all(locks.owner, &locks.held);
    }

    /// Returns a keyspace's name for messages.
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
