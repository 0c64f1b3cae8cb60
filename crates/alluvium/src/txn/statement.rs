//! Controls of a transaction for each of its statements, as a SQL server sets them: the read point,
//! the limits of lock waits, and locks on the newest version of a row.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{SeqNo, ValueKind};
use crate::commit::payload::check_sizes;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::snapshot::{ReadsAt, Snapshot};
use crate::table::PinnedValue;
use crate::txn::Transaction;
use crate::txn::lock_table::{LockCancel, LockMode};
use crate::txn::transaction::Isolation;

/// State that the plain reads of a transaction see, besides its own writes.
pub(super) enum Reads<'a> {
    /// That of the transaction.
    Fixed(&'a ReadsAt),
    /// That of the statement.
    Statement(Arc<ReadsAt>),
    /// The newest commit at each read.
    Newest,
}

impl Reads<'_> {
    /// Returns the point; `None` for the newest commit.
    pub fn at(&self) -> Option<&ReadsAt> {
        match self {
            Reads::Fixed(at) => Some(at),
            Reads::Statement(at) => Some(at),
            Reads::Newest => None,
        }
    }

    /// Returns a point to keep; registers the newest commit if there is none.
    pub fn or_newest(&self, core: &Core) -> ReadsAt {
        match self.at() {
            Some(at) => at.clone(),
            None => ReadsAt::newest(core),
        }
    }
}

impl Transaction {
    /// Returns the read point that the transaction keeps to its end. The first call takes it if the
    /// transaction has none. Not for read committed.
    pub(super) fn fixed(&self) -> &ReadsAt {
        debug_assert_ne!(self.options.isolation, Isolation::ReadCommitted);
        let core = &self.shared().core;
        self.state.fixed.get_or_init(|| ReadsAt::newest(core))
    }

    /// Returns the state that a plain read sees now.
    pub(super) fn reads(&self) -> Reads<'_> {
        if self.options.isolation != Isolation::ReadCommitted {
            return Reads::Fixed(self.fixed());
        }
        match &*self.state.statement.lock() {
            Some(at) => Reads::Statement(Arc::clone(at)),
            None => Reads::Newest,
        }
    }

    /// Returns the time of the reads of a keyspace.
    pub(super) fn now_ms(&self, keyspace: &Keyspace) -> u64 {
        let reads = self.reads();
        let at = reads.at();
        at.map_or_else(|| keyspace.now_ms(), |at| at.time.now_ms())
    }

    /// Makes the plain reads and cursors of the next statement see the commit of `snapshot` and the
    /// transaction's own writes, instead of the newest commit at each read. `None` ends this. Reads
    /// that lock their row still see the newest commit.
    ///
    /// ```
    /// use alluvium::{Database, Isolation, KeyspaceOptions, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let db = Database::open(dir.path(), Options::default())?;
    /// let rows = db.keyspace("rows", KeyspaceOptions::default())?;
    /// let txn = db.begin(Isolation::ReadCommitted)?;
    /// txn.set_read_point(Some(&db.snapshot()?))?;
    /// rows.put(b"ann", b"Oslo")?;
    /// assert!(txn.get(&rows, b"ann")?.is_none());
    /// assert!(txn.get_for_update(&rows, b"ann")?.is_some());
    /// txn.set_read_point(None)?;
    /// assert!(txn.get(&rows, b"ann")?.is_some());
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` at another level than read committed, for a snapshot of another opening,
    /// and after the transaction's end. `Closed`, `Forked`.
    pub fn set_read_point(&self, snapshot: Option<&Snapshot>) -> Result<()> {
        self.check_open()?;
        if self.options.isolation != Isolation::ReadCommitted {
            let message = "the read point of a transaction is fixed: only ReadCommitted has one for each statement";
            return Err(Error::InvalidArgument(message.into()));
        }
        let at = snapshot.map(|snapshot| snapshot.reads_within(&self.db));
        let at = at.transpose()?;
        // The former point is released after the mutex.
        let before = std::mem::replace(&mut *self.state.statement.lock(), at);
        drop(before);
        Ok(())
    }

    /// Returns the number of the commit that plain reads see; `None` if they see the newest one, or
    /// if the transaction takes its read point at a later call. Takes no read point.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` after the transaction's end; `Closed`, `Forked`.
    pub fn read_point(&self) -> Result<Option<SeqNo>> {
        self.check_open()?;
        if self.options.isolation != Isolation::ReadCommitted {
            return Ok(self.state.fixed.get().map(ReadsAt::seqno));
        }
        let statement = self.state.statement.lock();
        Ok(statement.as_ref().map(|at| at.seqno()))
    }

    /// Sets the maximum of later waits for a row lock; `None`: the database's
    /// [`crate::Options::lock_timeout`]. A wait under way keeps its own. Fails as
    /// [`Transaction::set_cancel`].
    pub fn set_lock_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.check_open()?;
        self.state.held.lock().waits.timeout = timeout;
        Ok(())
    }

    /// Sets the token that ends later lock waits from another thread; `None` for none. A canceled
    /// token stays canceled: give each statement a new one. A wait under way keeps its own.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` after the transaction's end; `Closed`, `Forked`.
    pub fn set_cancel(&self, cancel: Option<LockCancel>) -> Result<()> {
        self.check_open()?;
        self.state.held.lock().waits.cancel = cancel;
        Ok(())
    }

    /// Locks a row and reads its newest version, own writes included, even if the row does not
    /// exist. The row is not checked against the transaction's read point: no `Conflict`, now or in
    /// later calls that lock or write it. For checks that SQL makes on the newest state, such as
    /// that of a unique key.
    ///
    /// # Errors
    ///
    /// `Deadlock`, `LockTimeout` and `Canceled` from the lock. `InvalidArgument` for an optimistic
    /// transaction, which locks nothing. Otherwise as [`Keyspace::get`].
    pub fn get_newest_locked(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        mode: LockMode,
    ) -> Result<Option<PinnedValue>> {
        self.check(keyspace)?;
        if self.options.optimistic {
            let message = "an optimistic transaction takes no locks before its commit";
            return Err(Error::InvalidArgument(message.into()));
        }
        self.acquire(keyspace, key, mode)?;
        // A serializable transaction depends on what it has read, so its commit checks the row.
        self.note_read(keyspace, key);
        match self.own_write(keyspace, key)? {
            Some(own) => Ok(own),
            None => self.get_newest(keyspace, key),
        }
    }

    /// Returns the newest version of a row that is locked, at the time of the transaction's reads.
    pub(super) fn get_newest(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
    ) -> Result<Option<PinnedValue>> {
        let Some(at) = self.state.fixed.get().filter(|_| keyspace.expires()) else {
            return keyspace.get(key);
        };
        let newest = self.shared().core.read_points.register();
        keyspace.get_at(key, newest.seqno(), at.time.now_ms())
    }

    /// Inserts a row unless it exists: locks it, and returns the existing value, or writes `value`
    /// and returns `None`. The newest version counts, so a row that another transaction has
    /// inserted since the read point is returned instead of a `Conflict`.
    ///
    /// An optimistic transaction locks nothing and looks at its read point; its commit is the
    /// `Conflict`.
    ///
    /// # Errors
    ///
    /// As [`Transaction::insert`]. `Conflict` if the row does not exist and another transaction has
    /// changed it since the read point.
    pub fn insert_new(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
    ) -> Result<Option<PinnedValue>> {
        let kind = keyspace.written_as(ValueKind::Insert);
        let stored = keyspace.stored(kind, value, None)?;
        check_sizes(key, &stored)?;
        self.shared().core.access.check_writable()?;
        self.check(keyspace)?;
        self.check_room(key, &stored)?;
        let existing = if self.options.optimistic {
            self.note_read(keyspace, key);
            self.get(keyspace, key)?
        } else {
            self.newest_for_insert(keyspace, key)?
        };
        if existing.is_none() {
            self.add_write(keyspace, key, kind, &stored);
        }
        Ok(existing)
    }

    /// Locks a row for an insert and reads its newest version. If it does not exist, checks that it
    /// did not at the read point either.
    fn newest_for_insert(&self, keyspace: &Keyspace, key: &[u8]) -> Result<Option<PinnedValue>> {
        let acquired = self.acquire(keyspace, key, LockMode::Exclusive)?;
        self.note_read(keyspace, key);
        let existing = match self.own_write(keyspace, key)? {
            Some(own) => own,
            None => self.get_newest(keyspace, key)?,
        };
        if existing.is_none() {
            self.check_locked(keyspace, key, acquired)?;
        }
        Ok(existing)
    }

    /// Releases the newest lock on a row that the transaction has read and does not want, for
    /// example because a condition of the statement refuses it. Returns true if a lock was
    /// released: not if the transaction has written the row, nor if the lock is older than the
    /// newest savepoint. A row that was locked several times stays locked until each lock is
    /// released.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` and `Closed` as for [`Transaction::lock`].
    pub fn unlock(&self, keyspace: &Keyspace, key: &[u8]) -> Result<bool> {
        self.check(keyspace)?;
        let shared = self.shared();
        let hash = shared.row_locks.table.hash(keyspace.id(), key);
        let mut held = self.state.held.lock();
        if self.writes().lock().get(keyspace.id(), key).is_some() {
            return Ok(false);
        }
        let is_held = held.forget_lock(hash);
        if is_held {
            held.charge(&shared.core.memory.budget);
            shared.row_locks.table.unlock(self.id, hash);
        }
        Ok(is_held)
    }
}
