//! An open database: its handle, keyspaces by name, commits, and its end.

mod amplification;
pub(crate) mod checkpoint;
pub(crate) mod flush_queue;
pub(crate) mod install_ingest;
pub(crate) mod memory;
pub(crate) mod old_segments;
mod open;
pub(crate) mod options;
pub(crate) mod poison;
mod removals;
pub(crate) mod reserve;
pub(crate) mod shared;
pub(crate) mod split;
mod stats;
pub(crate) mod store;

use crate::sync::thread::JoinHandle;
use std::path::Path;
use std::sync::Arc;

use crate::sync::plain::Mutex;

pub use amplification::{Amplification, Compared, KeyspaceAmplification};
pub use checkpoint::CheckpointInfo;
pub use memory::MemoryUse;
pub use options::{Durability, Options};
pub use stats::{Histogram, KeyspaceStats, Stats};

use crate::base::{KEYSPACE_NAME_BYTES_MAX, KeyspaceId, SeqNo, ValueKind};
use crate::commit::WriteBatch;
use crate::commit::batch::encode_payload;
use crate::commit::marker::{DdlAction, ddl_marker};
use crate::db::reserve::Taker;
use crate::db::shared::Shared;
use crate::error::{Error, Result};
use crate::ingest::{BulkLoad, BulkLoadOptions, Ingest};
use crate::keyspace::{Keyspace, KeyspaceOptions, Tree};
use crate::memory::{Charge, Use};
use crate::snapshot::Snapshot;
use crate::txn::write_set::WriteSet;
use crate::txn::{Isolation, Transaction, TransactionOptions};
use crate::version::group::Version;
use crate::version::{KeyspaceRecord, VersionEdit};
use crate::vfs::Vfs;
use crate::wal::{PreparedSegment, WalWriter};

/// An open database. Clones are handles of the same one; it closes when the last handle of any kind is gone, or
/// by [`Database::close`].
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
    handle: Arc<Handle>,
}

/// Owns the background threads; dropping it closes the database.
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
    /// cannot be trusted or read, `InvalidArgument` for options out of range, `Io` for the rest.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Database> {
        Database::open_on(Arc::new(crate::vfs::RealVfs), path, options)
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
        let handle = Arc::new(Handle { shared, threads });
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

    /// The keyspace of this name, created with `options` if there is none. The options of one that exists stay.
    ///
    /// Creating is durable when the call returns, at every durability level. It costs a sync of the log and one of the
    /// manifest, for which commits wait; taking a handle of one that exists costs a look into a map.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for options out of range, also where the keyspace exists, and for a name of more than
    /// [`KEYSPACE_NAME_BYTES_MAX`] bytes; `ReadOnly` where it would have to be
    /// created; `NoSpace` where nothing changed; `Poisoned`, `Closed`, `Io`.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let shared = self.shared();
        shared.check_open()?;
        options.check()?;
        if let Some(keyspace) = self.existing_keyspace(name)? {
            return Ok(keyspace);
        }
        shared.check_writable()?;
        if name.len() > KEYSPACE_NAME_BYTES_MAX {
            return Err(Error::InvalidArgument(format!(
                "the name of the keyspace has {} bytes, the most is {KEYSPACE_NAME_BYTES_MAX}",
                name.len()
            )));
        }
        let mut log = shared.log.lock();
        // Another thread may have created it while this one waited.
        if let Some(keyspace) = self.existing_keyspace(name)? {
            return Ok(keyspace);
        }
        let mut store = shared.store.lock();
        let id = store.state().next_keyspace;
        let encoded = options.encode();
        let marker = ddl_marker(DdlAction::Create, id, name, &encoded);
        let created_seqno = log.mark_ddl(shared, &marker)?;
        let record = KeyspaceRecord {
            id,
            name: name.to_owned(),
            options: encoded,
            created_seqno,
        };
        let edit = VersionEdit {
            next_keyspace: Some(KeyspaceId(id.0 + 1)),
            created: vec![record],
            last_seqno: Some(created_seqno),
            ..VersionEdit::default()
        };
        store.append(&shared.poison, &edit)?;
        if options.expiry.is_stored() {
            shared.clock.use_it();
        }
        let memtable_bytes = shared.plan().active_bytes;
        let version = Version::empty();
        let tree = Tree::new(id, name, options, version, memtable_bytes, &shared.cache);
        let tree = Arc::new(tree);
        log.trees.insert(id, Arc::clone(&tree));
        shared
            .catalog
            .write()
            .insert(name.to_owned(), Arc::clone(&tree));
        Ok(Keyspace::new(self.clone(), tree))
    }

    /// The keyspace of this name, if there is one. Fails only with `Closed`.
    pub fn existing_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.shared().check_open()?;
        let tree = self.shared().catalog.read().get(name).cloned();
        Ok(tree.map(|tree| Keyspace::new(self.clone(), tree)))
    }

    /// The names of all keyspaces, sorted. Fails only with `Closed`.
    pub fn keyspace_names(&self) -> Result<Vec<String>> {
        self.shared().check_open()?;
        let mut names: Vec<String> = self.shared().catalog.read().keys().cloned().collect();
        names.sort();
        Ok(names)
    }

    /// Drops a keyspace with everything in it. Durable when the call returns. Its space comes back as soon as
    /// calls that are under way have ended; its handles and open cursors get `KeyspaceDropped` from now on.
    ///
    /// # Errors
    ///
    /// `KeyspaceInUse` while a prepared transaction writes to it; `KeyspaceDropped` if it is gone already;
    /// `InvalidArgument` for a keyspace of another database; `NoSpace` where nothing changed; otherwise as for a write.
    pub fn drop_keyspace(&self, keyspace: &Keyspace) -> Result<()> {
        let shared = self.shared();
        shared.check_writable()?;
        keyspace.check_within(self)?;
        let tree = keyspace.tree();
        let _no_capture = shared.drops.lock();
        let mut log = shared.log.lock();
        if tree.is_dropped() {
            return Err(Error::KeyspaceDropped(tree.name.clone()));
        }
        if let Some(prepared) = log.unresolved.writer_of(tree.id) {
            return Err(Error::KeyspaceInUse {
                keyspace: tree.name.clone(),
                xid: prepared.xid.clone(),
            });
        }
        if shared.options.durability == Durability::None {
            // Without a log the drop, which is durable at once, must not overtake commits before it.
            log.seal(shared)?;
            shared.wait_for_flushes()?;
        }
        let options = tree.options().encode();
        let marker = ddl_marker(DdlAction::Drop, tree.id, &tree.name, &options);
        let seqno = log.mark_ddl(shared, &marker)?;
        let mut store = shared.store.lock();
        let edit = VersionEdit {
            dropped: vec![(tree.id, seqno)],
            last_seqno: Some(seqno),
            ..VersionEdit::default()
        };
        shared.with_reserve(Taker::Log, || store.append(&shared.poison, &edit))?;
        tree.mark_dropped();
        log.trees.remove(&tree.id);
        shared.catalog.write().remove(&tree.name);
        store.release_unnamed(shared);
        // The handles that are left keep an empty tree: its files are free to go.
        tree.change(|state| {
            state.sealed.clear();
            state.version = Arc::new(Version::empty());
        });
        drop((store, log));
        shared.release_cursors(tree);
        // After the cursors, for what they held.
        shared.removals.wait();
        Ok(())
    }

    /// See [`Keyspace::set_options`].
    pub(crate) fn change_options(&self, tree: &Tree, options: KeyspaceOptions) -> Result<()> {
        options.check()?;
        let shared = self.shared();
        shared.check_writable()?;
        if options.expiry.is_stored() != tree.stores_expiry {
            let message = "whether rows of a keyspace expire is chosen at its creation";
            return Err(Error::InvalidArgument(message.into()));
        }
        let mut log = shared.log.lock();
        tree.check()?;
        let encoded = options.encode();
        let marker = ddl_marker(DdlAction::SetOptions, tree.id, &tree.name, &encoded);
        let seqno = log.mark_ddl(shared, &marker)?;
        let mut store = shared.store.lock();
        let edit = VersionEdit {
            options_changed: vec![(tree.id, encoded)],
            last_seqno: Some(seqno),
            ..VersionEdit::default()
        };
        store.append(&shared.poison, &edit)?;
        tree.set_options(options);
        Ok(())
    }

    /// Changes the memory number, from now until the database is closed; [`Options::memory_bytes`] says it at the next
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
            let hidden = writes.range_deletes().iter().any(|range| {
                let (start, end) = (&range.start[..], &range.end[..]);
                range.keyspace == write.keyspace && start <= write.key && write.key < end
            });
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
        {
            // Checked under the log's lock: a closed database must not write to its directory any more.
            let mut log = shared.log.lock();
            shared.check_open()?;
            log.seal(shared)?;
        }
        shared.wait_for_flushes()?;
        // What a range delete has hidden whole.
        shared.removals.wait();
        Ok(())
    }

    /// Pays the background debt: flushes, then waits until no merge is due. What is due is decided by
    /// [`Options::upper_fraction`]; this is not a full compaction. For measurements; errors as [`Database::flush`].
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
    /// directory. Later calls of any handle get `Closed`. A second close does nothing.
    ///
    /// # Errors
    ///
    /// What the last sync or flush met; the database is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.handle.close()
    }
}

impl Handle {
    fn close(&self) -> Result<()> {
        let shared = &self.shared;
        if shared.is_closed() {
            return Ok(());
        }
        // First, so that every commit that is acknowledged is before the last sync.
        shared.set_closed();
        // Under the log's mutex: who waits for more of it has looked before, and sleeps, or will look again.
        drop(shared.log.lock());
        shared.log_grew.notify_all();
        let result = last_sync(shared);
        shared.jobs.stop();
        shared.stop_flusher();
        shared.stop_syncer();
        shared.removals.stop();
        // A background thread holds no handle; only a listener that closes the database would join itself.
        let own = crate::sync::thread::current().id();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        threads.retain(|thread| thread.thread().id() != own);
        // The listener's thread, the first, ends when the others have told their last news.
        let listening = (shared.events.is_on() && !threads.is_empty()).then(|| threads.remove(0));
        let mut joined: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
        shared.events.stop();
        joined.extend(listening.map(JoinHandle::join));
        // Cursors that are still around get `Closed`, and keep nothing but their row.
        let trees: Vec<Arc<Tree>> = shared.catalog.read().values().cloned().collect();
        trees.iter().for_each(|tree| tree.recall_cursors());
        shared.release_directory();
        if joined.iter().any(Result::is_err) {
            return Err(Error::InvalidArgument(
                "a background thread panicked".into(),
            ));
        }
        result
    }
}

/// What close owes to the commits it acknowledged.
fn last_sync(shared: &Shared) -> Result<()> {
    shared.poison.check()?;
    if shared.options.read_only {
        return Ok(());
    }
    if shared.options.durability == Durability::None {
        shared.log.lock().seal(shared)?;
        return shared.wait_for_flushes();
    }
    let mut log = shared.log.lock();
    log.sync(shared)?;
    log.mark_synced(shared)?;
    let unused = log.wal.as_mut().map(WalWriter::take_prepared);
    let unused = unused.into_iter().flatten();
    unused.for_each(PreparedSegment::remove);
    Ok(())
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; everything acknowledged is as durable as its level promised.
        let _ = self.close();
    }
}
