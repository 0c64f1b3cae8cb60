//! The second phase of a two-phase commit: handles of prepared transactions.

use std::sync::Arc;

use alluvium_mem::process::Owned;

use crate::base::SeqNo;
use crate::commit::Request;
use crate::commit::prepared::{Phase, PreparedState};
use crate::db::{Database, Durability};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::txn::lock_waits::Tagged;

/// Prepared transaction that waits for its coordinator's decision. It holds its row locks.
///
/// Dropping the handle decides nothing: the transaction stays prepared, even after a restart, and
/// [`Database::take_prepared`] returns it again.
///
/// ```
/// use alluvium::{Database, Isolation, KeyspaceOptions, Options};
/// # let dir = tempfile::tempdir().unwrap();
/// let db = Database::open(dir.path(), Options::default())?;
/// let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
/// let txn = db.begin(Isolation::Snapshot)?;
/// txn.put(&accounts, b"ada", b"90")?;
/// drop(txn.prepare(b"transfer 7")?);
/// db.close()?;
///
/// let db = Database::open(dir.path(), Options::default())?;
/// let accounts = db.keyspace("accounts", KeyspaceOptions::default())?;
/// assert!(accounts.get(b"ada")?.is_none());
/// for xid in db.prepared()? {
///     // The coordinator knows how it has decided on this id.
///     db.take_prepared(&xid)?.commit()?;
/// }
/// assert_eq!(accounts.get(b"ada")?.as_deref(), Some(&b"90"[..]));
/// # Ok::<(), alluvium::Error>(())
/// ```
pub struct PreparedTransaction {
    db: Database,
    state: Owned<Arc<PreparedState>>,
    stage: Stage,
    /// Entry of the tag that the transaction had; `None` if the handle was taken up.
    _tagged: Owned<Option<Tagged>>,
}

/// Progress of the decision.
enum Stage {
    Undecided,
    /// Committed with this number, which was not visible yet. The row locks stay: their next owner
    /// would not see this commit.
    Ordered(SeqNo),
    /// Committed and visible, or rolled back; the row locks are released.
    Ended,
}

impl PreparedTransaction {
    pub(super) fn new(
        db: Database,
        state: Arc<PreparedState>,
        tagged: Option<Tagged>,
    ) -> PreparedTransaction {
        PreparedTransaction {
            db,
            state: Owned::new(state),
            stage: Stage::Undecided,
            _tagged: Owned::new(tagged),
        }
    }

    /// Returns the transaction's id.
    pub fn xid(&self) -> &[u8] {
        &self.state.xid
    }

    pub(crate) fn is_in_tables(&self) -> bool {
        self.state.in_tables.is_some()
    }

    /// Commits: its writes become visible together, with the durability from the transaction's
    /// options. A transaction taken up after a restart has the database's durability. If power loss
    /// removes a `Buffered` commit, the transaction is prepared again.
    ///
    /// # Errors
    ///
    /// After an error the transaction stays prepared: after `NoSpace` the caller may try again with
    /// [`Database::take_prepared`]. After `Io` and `Poisoned` it is committed or still prepared
    /// when the database is opened again.
    pub fn commit(mut self) -> Result<()> {
        if let Stage::Undecided = self.stage {
            self.resolve(Phase::Commit, self.state.durability, |request| request)?;
            self.unlock();
        }
        self.finish()?;
        // The admission delay comes after the locks are released.
        self.db.shared().core.pay_for(self.state.ops().len());
        Ok(())
    }

    /// Commits in the order of a coordinator's log: of two calls, the commit of the earlier one has
    /// the lower number. Waits for no sync of another client: the commit is `Buffered`, and the
    /// coordinator's log, which is durable before this call, decides after a power loss. Call
    /// [`PreparedTransaction::commit`] afterwards, outside of the coordinator's lock: it waits
    /// until the commit is visible, and for the admission delay. The commit is visible at once
    /// unless another client waits for the sync of an earlier commit. Then the row locks stay until
    /// `commit`, or until the handle is dropped, which waits for that sync.
    ///
    /// A second call does nothing.
    ///
    /// # Errors
    ///
    /// As for [`PreparedTransaction::commit`]: the transaction stays prepared. A coordinator that
    /// has promised the commit cannot go on after an error.
    pub fn commit_ordered(&mut self) -> Result<()> {
        if !matches!(self.stage, Stage::Undecided) {
            return self.check_process();
        }
        let seqno = self.resolve(Phase::Commit, Durability::Buffered, Request::ordered)?;
        self.stage = Stage::Ordered(seqno);
        if self.db.shared().core.read_points.visible() >= seqno {
            self.unlock();
        }
        Ok(())
    }

    /// Discards its writes. Errors as for [`PreparedTransaction::commit`]. Not synced: if power
    /// loss removes the rollback, the transaction is prepared again.
    ///
    /// `InvalidArgument` after [`PreparedTransaction::commit_ordered`].
    pub fn rollback(mut self) -> Result<()> {
        self.resolve(Phase::Rollback, Durability::Buffered, |request| request)?;
        self.unlock();
        Ok(())
    }

    /// Makes the decision durable: in the log, with `change` applied to the request, or, if the
    /// writes are in tables, in the manifest. Returns the number of the commit.
    fn resolve(
        &self,
        phase: Phase,
        durability: Durability,
        change: impl FnOnce(Request) -> Request,
    ) -> Result<SeqNo> {
        let shared = self.db.shared();
        let Some(in_tables) = &self.state.in_tables else {
            let request = Request::of_prepared(phase, &self.state, durability);
            return shared.commits.commit_request(change(request));
        };
        shared.core.access.check_open()?;
        if phase == Phase::Rollback {
            return shared.roll_back_tables(&self.state).map(|()| 0);
        }
        // As much as possible without the log's lock.
        let mut trees = in_tables.trees.iter();
        if trees.any(|part| part.tree.load().has_memtable_rows()) {
            self.db.flush_memtables()?;
        }
        shared.commit_tables(&self.state)
    }

    /// Waits until an ordered commit is visible, and releases its row locks.
    fn finish(&mut self) -> Result<()> {
        self.check_process()?;
        if let Stage::Ordered(seqno) = self.stage {
            self.db.shared().commits.wait_until_visible(seqno)?;
            self.unlock();
        }
        Ok(())
    }

    /// Refuses a forked child before it takes a lock that a thread of its parent may hold.
    fn check_process(&self) -> Result<()> {
        let is_own = self.db.shared().core.access.is_own_process();
        is_own.then_some(()).ok_or(Error::Forked)
    }

    fn unlock(&mut self) {
        let locks = &self.db.shared().row_locks;
        locks.table.unlock_all(self.state.owner, &self.state.locks);
        if let Some(in_tables) = &self.state.in_tables {
            locks.spilled.end(&in_tables.spilled, &locks.table);
        }
        self.stage = Stage::Ended;
    }
}

impl Drop for PreparedTransaction {
    fn drop(&mut self) {
        if !self.db.shared().core.access.is_own_process() {
            return;
        }
        match self.stage {
            Stage::Undecided => {
                let mut log = self.db.shared().commits.log.lock();
                log.unresolved.give_back(&self.state);
            }
            // After a failure no commit follows that could miss this one.
            Stage::Ordered(_) => drop(self.finish()),
            Stage::Ended => {}
        }
    }
}

impl Database {
    /// Returns the ids of all undecided prepared transactions in order, including those with a
    /// handle. Waits for a group of commits under way.
    pub fn prepared(&self) -> Result<Vec<Vec<u8>>> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        let log = shared.commits.log.lock();
        Ok(log.unresolved.states().map(|s| s.xid.clone()).collect())
    }

    /// Returns the id of an undecided prepared transaction that writes to a keyspace, with or
    /// without a handle; `None` if there is none. For a caller that keeps out new writers of the
    /// keyspace and wants all earlier ones to have ended. If there is none, all of them that are
    /// committed are visible: waits for commits under way.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a keyspace of another database; `Closed`, `Forked`.
    pub fn prepared_writer(&self, keyspace: &Keyspace) -> Result<Option<Vec<u8>>> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        keyspace.check_within(self)?;
        let last = {
            let log = shared.commits.log.lock();
            if let Some(state) = log.unresolved.writer_of(keyspace.tree().id) {
                return Ok(Some(state.xid.clone()));
            }
            log.last_seqno
        };
        shared.commits.wait_until_visible(last)?;
        Ok(None)
    }

    /// Takes a prepared transaction to decide on it: after a restart, or after an earlier handle
    /// was dropped.
    ///
    /// After a restart it holds the locks of the rows it writes; rows it only locked are free.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there is none with this id, or another handle has it.
    pub fn take_prepared(&self, xid: &[u8]) -> Result<PreparedTransaction> {
        let shared = self.shared();
        shared.core.access.check_open()?;
        let state = shared.commits.log.lock().unresolved.take(xid)?;
        Ok(PreparedTransaction::new(self.clone(), state, None))
    }
}
