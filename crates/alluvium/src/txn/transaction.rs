//! Transactions: reads with own writes, row locks, conflict checks, savepoints.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alluvium_mem::process::Owned;

use crate::sync::plain::Mutex;

use crate::base::{SeqNo, ValueKind};
use crate::db::shared::Shared;
use crate::db::{Database, Durability};
use crate::error::{Error, Result};
use crate::iter::{Cursor, CursorOptions};
use crate::keyspace::{FoundIn, Keyspace, Tree};
use crate::memory::{CHARGE_STEP, Charge, MemoryBudget, Use};
use crate::snapshot::ReadsAt;
use crate::table::PinnedValue;
use crate::txn::layers::Overflow;
use crate::txn::lock_table::{Granted, LockCancel, LockHash, LockMode, LockWait, TxnId};
use crate::txn::lock_waits::Tagged;
use crate::txn::read_set::{READ_SET_BYTES_MAX, ReadSet};
use crate::txn::write_cursor::WriteCursor;
use crate::txn::write_set::{SavepointId, SharedWrites, View};

/// Isolation level: the concurrent commits that a transaction sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Isolation {
    /// Each read sees the newest commit, or that of [`Transaction::set_read_point`]; rows that were
    /// locked or written stay locked to the end.
    ReadCommitted,
    /// All reads see the state at the beginning. A write to a row that another transaction has
    /// changed since is a `Conflict`. Write skew between two transactions is possible.
    #[default]
    Snapshot,
    /// Like `Snapshot`, and the commit is a `Conflict` if another commit has changed anything read:
    /// a row, an absent key, or a range passed over by a cursor. The result equals that of running
    /// the transactions of this level one after another, in the order of their commits. Reads take
    /// no locks. A transaction without writes is never checked: it reads one commit's state.
    ///
    /// ```
    /// use alluvium::{CursorOptions, Database, Error, Isolation, KeyspaceOptions, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path(), Options::default())?;
    /// let seats = db.keyspace("seats", KeyspaceOptions::default())?;
    /// let [one, two] = [db.begin(Isolation::Serializable)?, db.begin(Isolation::Serializable)?];
    /// for (txn, who) in [(&one, b"ada"), (&two, b"eve")] {
    ///     // The last seat is free if nobody has one yet.
    ///     assert!(!txn.cursor(&seats, CursorOptions::default())?.seek_first()?);
    ///     txn.put(&seats, who, b"last seat")?;
    /// }
    /// one.commit()?;
    /// assert!(matches!(two.commit(), Err(Error::Conflict { .. })));
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    Serializable,
}

/// Options of [`Database::begin_with`].
#[derive(Debug, Clone, Default)]
pub struct TransactionOptions {
    /// Isolation level.
    pub isolation: Isolation,
    /// Durability of the commit; `None`: the database's.
    pub durability: Option<Durability>,
    /// Maximum wait for a row lock; `None`: the database's [`crate::Options::lock_timeout`].
    pub lock_timeout: Option<Duration>,
    /// Token that ends lock waits of this transaction from another thread.
    pub cancel: Option<LockCancel>,
    /// Takes no row locks before the commit. The commit then checks all rows that were written,
    /// locked or read for update. If another commit has changed one of them since the beginning,
    /// this commit is a `Conflict`. For transactions that rarely conflict. Not with
    /// [`Isolation::ReadCommitted`], and such a transaction cannot be prepared.
    pub optimistic: bool,
    /// Takes the read point at the first read instead of at the beginning. If a row is locked
    /// first, takes it after the lock is granted, so that this lock is no `Conflict`, however long
    /// the transaction waited for it. No effect under [`Isolation::ReadCommitted`].
    pub late_read_point: bool,
    /// Number by which [`LockOwner`](crate::LockOwner) names the transaction to a
    /// [`LockWaitListener`](crate::LockWaitListener), for example that of a session. Several
    /// transactions may have the same.
    pub tag: Option<u64>,
}

/// Transaction with its own writes, row locks and savepoints.
///
/// Its methods take `&self`, so it can write while one of its cursors is open. Dropping it without
/// [`Transaction::commit`] rolls it back. It is `Send`, so threads may pass it on.
pub struct Transaction {
    pub(super) db: Database,
    pub(super) id: TxnId,
    pub(super) options: TransactionOptions,
    pub(super) state: Owned<State>,
}

/// Read point, writes and locks of a transaction.
pub(super) struct State {
    /// Point of all reads, set at the beginning, by the first read or after the first lock. Never
    /// set under read committed.
    pub(super) fixed: OnceLock<ReadsAt>,
    /// Point of the plain reads of a statement under read committed; `None`: each read sees the
    /// newest commit. Nothing is locked while this is held.
    pub(super) statement: Mutex<Option<Arc<ReadsAt>>>,
    /// The transaction's first writes; shared with its cursors. Nothing else is locked while this
    /// is held, except by a spill, which writes files.
    pub(super) writes: SharedWrites,
    /// Writes that did not fit into memory, and those after them; `None` unless there are any.
    pub(super) overflow: OnceLock<Overflow>,
    /// Reads that must be unchanged at the commit; shared with its cursors. Nothing is locked while
    /// this is held. `None` if the commit checks nothing.
    pub(super) reads: Option<Arc<Mutex<ReadSet>>>,
    /// Reads that were locked or read for update; checked even if nothing is written. Nothing is
    /// locked while this is held. `None` unless the transaction is optimistic.
    pub(super) read_for_update: Option<Mutex<ReadSet>>,
    /// Locks and savepoints. Taken before `writes` if both are needed.
    pub(super) held: Mutex<Held>,
    /// Entry of the transaction's tag; `None` if it has none.
    pub(super) tagged: Mutex<Option<Tagged>>,
}

/// Locks and savepoints, in order of creation.
#[derive(Default)]
pub(super) struct Held {
    /// Limits of the next wait for a row lock.
    pub(super) waits: WaitLimits,
    /// Acquired locks, one entry for each acquisition.
    pub(super) locks: Vec<LockHash>,
    pub(super) savepoints: Vec<Mark>,
    /// Number of the next savepoint.
    next_savepoint: u64,
    /// Keyspaces written to, each once.
    pub(super) trees: Vec<Arc<Tree>>,
    pub(super) ended: bool,
    /// The layers belong to a prepared transaction now.
    pub(super) gave_layers: bool,
    /// Memory charge for writes and locks; `None` until they reach `CHARGE_STEP`.
    pub(super) charge: Option<Charge>,
    /// Memory of the writes in bytes.
    pub(super) write_bytes: usize,
}

/// Limits of waits for row locks.
#[derive(Default)]
pub(super) struct WaitLimits {
    /// Maximum wait; `None`: the database's.
    pub timeout: Option<Duration>,
    pub cancel: Option<LockCancel>,
}

/// Memory of a lock in bytes: its slot, and its hash in `Held::locks`.
const LOCK_BYTES: usize = 64;

impl Held {
    /// Removes the newest acquisition of a lock from the list, unless it is older than the newest
    /// savepoint. Returns true if there was one; the caller then releases it.
    pub(super) fn forget_lock(&mut self, hash: LockHash) -> bool {
        let from = self.savepoints.last().map_or(0, |mark| mark.locks);
        let place = self.locks[from..].iter().rposition(|held| *held == hash);
        if let Some(place) = place {
            self.locks.remove(from + place);
        }
        place.is_some()
    }

    /// Returns the memory of writes and locks.
    fn bytes(&self) -> usize {
        self.write_bytes + self.locks.len() * LOCK_BYTES
    }

    /// Takes the charge of the writes alone.
    pub(super) fn charge_of_writes(&mut self) -> Option<Charge> {
        let mut charge = self.charge.take();
        if let Some(charge) = &mut charge {
            charge.set(self.write_bytes);
        }
        charge
    }

    /// Charges the memory of writes and locks. Most transactions are too small to be charged.
    pub(super) fn charge(&mut self, budget: &Arc<MemoryBudget>) {
        let bytes = self.bytes();
        if self.charge.is_some() || bytes >= CHARGE_STEP {
            let charge = self
                .charge
                .get_or_insert_with(|| Charge::new(budget, Use::Writes));
            charge.set(bytes);
        }
    }
}

/// Row that was just locked.
#[derive(Clone, Copy)]
pub(super) struct Acquired {
    hash: LockHash,
    /// True if the row cannot have changed since the read point, or need not be checked.
    is_checked: bool,
}

/// Savepoint with its place in each list of the transaction.
pub(super) struct Mark {
    public: Savepoint,
    /// Savepoint of the writes in memory.
    pub writes: SavepointId,
    /// Number of layers before it.
    pub layers: usize,
    /// Number of locks before it.
    pub locks: usize,
}

/// Savepoint of one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Savepoint(u64);

impl Transaction {
    pub(crate) fn begin(db: Database, options: TransactionOptions) -> Result<Transaction> {
        let shared = db.shared();
        shared.core.durability(options.durability)?;
        let id = shared.row_locks.next_owner();
        let fixed = options.isolation != Isolation::ReadCommitted;
        if options.optimistic && !fixed {
            let message = "an optimistic transaction reads as of its beginning: choose Snapshot or Serializable";
            return Err(Error::InvalidArgument(message.into()));
        }
        let checked = options.optimistic || options.isolation == Isolation::Serializable;
        let reads = checked.then(|| Arc::new(Mutex::new(ReadSet::new(READ_SET_BYTES_MAX))));
        let read_for_update = options
            .optimistic
            .then(|| Mutex::new(ReadSet::new(READ_SET_BYTES_MAX)));
        let at = (fixed && !options.late_read_point).then(|| ReadsAt::newest(&shared.core));
        let waits = WaitLimits {
            timeout: options.lock_timeout,
            cancel: options.cancel.clone(),
        };
        let tagged = options.tag.map(|tag| shared.row_locks.tags.add(id, tag));
        let state = State {
            fixed: at.map(OnceLock::from).unwrap_or_default(),
            statement: Mutex::default(),
            writes: SharedWrites::default(),
            overflow: OnceLock::new(),
            reads,
            read_for_update,
            held: Mutex::new(Held {
                waits,
                ..Held::default()
            }),
            tagged: Mutex::new(tagged),
        };
        Ok(Transaction {
            db,
            id,
            options,
            state: Owned::new(state),
        })
    }

    pub(super) fn shared(&self) -> &Shared {
        self.db.shared()
    }

    pub(super) fn check(&self, keyspace: &Keyspace) -> Result<()> {
        keyspace.check_within(&self.db)?;
        self.check_not_ended()
    }

    pub(super) fn check_open(&self) -> Result<()> {
        self.shared().core.access.check_open()?;
        self.check_not_ended()
    }

    fn check_not_ended(&self) -> Result<()> {
        if self.state.held.lock().ended {
            return Err(Error::InvalidArgument("the transaction has ended".into()));
        }
        Ok(())
    }

    /// Returns the value of `key` as this transaction sees it, own writes included. Takes no lock.
    /// Errors and cost as for [`Keyspace::get`]; `InvalidArgument` for a keyspace of another
    /// database.
    pub fn get(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.check(keyspace)?;
        if let Some(own) = self.own_write(keyspace, key)? {
            return Ok(own);
        }
        if self.options.isolation == Isolation::Serializable {
            self.note_read(keyspace, key);
        }
        match self.reads().at() {
            Some(at) => keyspace.get_at(key, at.seqno(), at.time.now_ms()),
            None => keyspace.get(key),
        }
    }

    /// Returns the values of several keys as this transaction sees them, in the order of `keys`.
    /// Under read committed all values except own writes come from one commit.
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: &[K],
    ) -> Result<Vec<Option<PinnedValue>>> {
        self.check(keyspace)?;
        let reads = self.reads().or_newest(&self.shared().core);
        let (seqno, now_ms) = (reads.point.seqno(), reads.time.now_ms());
        let mut values = keyspace.multi_get_at(keys, seqno, now_ms)?;
        for (value, key) in values.iter_mut().zip(keys) {
            if let Some(own) = self.own_write(keyspace, key.as_ref())? {
                *value = own;
            } else if self.options.isolation == Isolation::Serializable {
                self.note_read(keyspace, key.as_ref());
            }
        }
        Ok(values)
    }

    /// Makes the commit check that no other commit changes this row.
    pub(super) fn note_read(&self, keyspace: &Keyspace, key: &[u8]) {
        if let Some(reads) = &self.state.reads {
            if self.options.optimistic {
                self.fixed();
            }
            reads.lock().add_key(keyspace.tree(), key);
        }
    }

    /// Reads a row like [`Transaction::get`], with an exclusive lock on it, even if it does not
    /// exist.
    ///
    /// After the lock is granted the newest commit is read, at every isolation level.
    ///
    /// # Errors
    ///
    /// `Deadlock` or `LockTimeout` from the lock. Unless the level is read committed, `Conflict` if
    /// the row changed since the beginning. An optimistic transaction gets none of these here: its
    /// commit is the `Conflict`.
    pub fn get_for_update(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<PinnedValue>> {
        self.lock(keyspace, key, LockMode::Exclusive)?;
        if let Some(own) = self.own_write(keyspace, key)? {
            return Ok(own);
        }
        let Some(at) = self.state.fixed.get() else {
            return keyspace.get(key);
        };
        if self.options.optimistic {
            return keyspace.get_at(key, at.seqno(), at.time.now_ms());
        }
        self.get_newest(keyspace, key)
    }

    /// Locks a row without reading it, even if it does not exist. Errors as for
    /// [`Transaction::get_for_update`].
    pub fn lock(&self, keyspace: &Keyspace, key: &[u8], mode: LockMode) -> Result<()> {
        self.check(keyspace)?;
        // Noted for locked rows too: a rollback to a savepoint releases the lock, but the caller
        // still knows the row's state.
        self.note_read(keyspace, key);
        match &self.state.read_for_update {
            Some(reads) => {
                reads.lock().add_key(keyspace.tree(), key);
                Ok(())
            }
            None => self.lock_row(keyspace, key, mode),
        }
    }

    /// Locks a row, and checks that nothing has changed it since the read point.
    pub(super) fn lock_row(&self, keyspace: &Keyspace, key: &[u8], mode: LockMode) -> Result<()> {
        let acquired = self.acquire(keyspace, key, mode)?;
        self.check_locked(keyspace, key, acquired)
    }

    /// Locks a row without any check. Then takes the read point, if the transaction has none yet.
    pub(super) fn acquire(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Acquired> {
        let shared = self.shared();
        let hash = shared.row_locks.table.hash(keyspace.id(), key);
        let granted = match shared.row_locks.table.try_lock(self.id, hash, mode) {
            Some(granted) => granted,
            None => {
                let wait = self.lock_wait();
                let row = (keyspace.name(), key);
                shared.row_locks.lock(self.id, hash, row, mode, &wait)?
            }
        };
        let row_locks = &shared.row_locks;
        if granted == Granted::New && !row_locks.spilled.is_empty() {
            let (row, wait) = ((keyspace.id(), key), self.lock_wait());
            row_locks.yield_to_spilled(self.id, row, mode, &wait)?;
        }
        {
            let mut held = self.state.held.lock();
            held.locks.push(hash);
            held.charge(&shared.core.memory.budget);
        }
        let mut is_first = false;
        if self.options.isolation != Isolation::ReadCommitted {
            self.state.fixed.get_or_init(|| {
                is_first = true;
                ReadsAt::newest(&shared.core)
            });
        }
        // A lock that the transaction had before was checked then, or the caller waived that.
        let is_checked = is_first || granted != Granted::New;
        Ok(Acquired { hash, is_checked })
    }

    /// Refuses a row that was just locked and has changed since the read point.
    pub(super) fn check_locked(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        acquired: Acquired,
    ) -> Result<()> {
        let Some(at) = self.state.fixed.get().filter(|_| !acquired.is_checked) else {
            return Ok(());
        };
        self.check_unchanged(keyspace, key, at.seqno())
            .inspect_err(|_| {
                // Released, so that a second try is checked again instead of passing as the
                // holder's.
                if self.state.held.lock().forget_lock(acquired.hash) {
                    let table = &self.shared().row_locks.table;
                    table.unlock(self.id, acquired.hash);
                }
            })
    }

    pub(super) fn lock_wait(&self) -> LockWait {
        let held = self.state.held.lock();
        let own = held.waits.timeout;
        LockWait {
            timeout: own.unwrap_or(self.shared().core.options.lock_timeout),
            cancel: held.waits.cancel.clone(),
            ..LockWait::none()
        }
    }

    /// Does the check of snapshot isolation: first committer wins.
    fn check_unchanged(&self, keyspace: &Keyspace, key: &[u8], snapshot: SeqNo) -> Result<()> {
        match keyspace.tree().load().written_after(key, snapshot)? {
            None => Ok(()),
            Some(_) => Err(Error::Conflict {
                keyspace: keyspace.name().to_owned(),
                key: key.to_vec(),
            }),
        }
    }

    pub(super) fn own_write(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
    ) -> Result<Option<Option<PinnedValue>>> {
        // Before the mutex of the writes, under which nothing is locked.
        let now_ms = if keyspace.expires() {
            self.now_ms(keyspace)
        } else {
            0
        };
        {
            let writes = self.writes();
            let writes = writes.lock();
            if let Some((kind, stored)) = writes.get(keyspace.id(), key) {
                let found = (kind != ValueKind::Delete).then_some(FoundIn::Memory(stored));
                let found = keyspace.unexpired(found, now_ms)?;
                return Ok(Some(found.map(FoundIn::pin)));
            }
        }
        let Some(overflow) = self.state.overflow.get() else {
            return Ok(None);
        };
        let Some((kind, stored)) = overflow.spilled.get(keyspace.id(), key)? else {
            return Ok(None);
        };
        let found = (kind != ValueKind::Delete).then_some(FoundIn::Pinned(stored));
        let found = keyspace.unexpired(found, now_ms)?;
        Ok(Some(found.map(FoundIn::pin)))
    }

    /// Returns the writes in memory.
    pub(super) fn writes(&self) -> Cow<'_, SharedWrites> {
        match self.state.overflow.get() {
            None => Cow::Borrowed(&self.state.writes),
            Some(overflow) => Cow::Owned(overflow.writes()),
        }
    }

    /// Opens a cursor over the transaction's snapshot and its own writes. Under read committed the
    /// snapshot is the statement's, or the newest commit now. The cursor sees the own writes made
    /// before it was opened, no later ones.
    pub fn cursor(&self, keyspace: &Keyspace, options: CursorOptions) -> Result<Cursor> {
        self.check(keyspace)?;
        let ReadsAt { point, time } = self.reads().or_newest(&self.shared().core);
        // Without own writes there is nothing to merge; later ones stay invisible either way.
        let (writes, layers) = (self.writes(), self.layers());
        let layers = layers.as_deref().unwrap_or_default();
        let id = keyspace.id();
        let own = layers.iter().any(|layer| layer.table(id).is_some()) || {
            let writes = writes.lock();
            let next = || writes.next(id, Bound::Unbounded, View::LATEST);
            writes.range_deletes(id).is_some() || next().is_some()
        };
        let writes = own.then(|| WriteCursor::open(writes.into_owned(), layers, id));
        let keyspace = keyspace.clone();
        let reads = self
            .state
            .reads
            .clone()
            .filter(|_| self.options.isolation == Isolation::Serializable);
        Ok(match reads {
            Some(reads) => Cursor::tracked(keyspace, point, time, options, writes, reads),
            None => Cursor::new(keyspace, point, time, options, writes),
        })
    }

    /// Marks a point to which [`Transaction::rollback_to`] can return. Savepoints of one
    /// transaction are ordered by creation. In a forked process it marks nothing.
    pub fn savepoint(&self) -> Savepoint {
        if !self.state.is_current() {
            return Savepoint(u64::MAX);
        }
        let mut held = self.state.held.lock();
        let public = Savepoint(held.next_savepoint);
        held.next_savepoint += 1;
        let writes = self.writes().lock().savepoint();
        let layers = self.layers().map_or(0, |layers| layers.len());
        let locks = held.locks.len();
        held.savepoints.push(Mark {
            public,
            writes,
            layers,
            locks,
        });
        public
    }

    /// Undoes everything since the savepoint: writes, locks acquired since, later savepoints. The
    /// savepoint itself stays. Fails with `InvalidArgument` if the savepoint was released or rolled
    /// back, and with `Closed`.
    pub fn rollback_to(&self, savepoint: Savepoint) -> Result<()> {
        self.shared().core.access.check_open()?;
        let mut held = self.state.held.lock();
        let place = held.savepoints.iter().position(|m| m.public == savepoint);
        let Some(place) = place else {
            return Err(Error::InvalidArgument(
                "the savepoint was released or rolled back".into(),
            ));
        };
        held.savepoints.truncate(place + 1);
        let Mark {
            writes,
            layers,
            locks,
            ..
        } = held.savepoints[place];
        if let Some(overflow) = self.state.overflow.get() {
            overflow.spilled.undo_from(layers);
        }
        self.writes().lock().rollback_to(writes)?;
        for hash in held.locks.drain(locks..) {
            self.shared().row_locks.table.unlock(self.id, hash);
        }
        Ok(())
    }

    /// Removes a savepoint and later ones; their changes stay.
    pub fn release(&self, savepoint: Savepoint) {
        if !self.state.is_current() {
            return;
        }
        let mut held = self.state.held.lock();
        if let Some(place) = held.savepoints.iter().position(|m| m.public == savepoint) {
            self.writes().lock().release(held.savepoints[place].writes);
            held.savepoints.truncate(place);
        }
    }
}
