//! The second phase of a two-phase commit: handles of prepared transactions.

use std::sync::Arc;

use crate::commit::Request;
use crate::commit::prepared::{Phase, PreparedState};
use crate::db::{Database, Durability};
use crate::error::Result;

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
    state: Arc<PreparedState>,
    /// True after it was committed or rolled back.
    decided: bool,
}

impl PreparedTransaction {
    pub(crate) fn new(db: Database, state: Arc<PreparedState>) -> PreparedTransaction {
        PreparedTransaction {
            db,
            state,
            decided: false,
        }
    }

    /// Returns the transaction's id.
    pub fn xid(&self) -> &[u8] {
        &self.state.xid
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
        self.resolve(Phase::Commit, self.state.durability)?;
        // The admission delay comes after the locks are released.
        self.db.shared().core.pay_for(self.state.ops().len());
        Ok(())
    }

    /// Discards its writes. Errors as for [`PreparedTransaction::commit`]. Not synced: if power
    /// loss removes the rollback, the transaction is prepared again.
    pub fn rollback(mut self) -> Result<()> {
        self.resolve(Phase::Rollback, Durability::Buffered)
    }

    fn resolve(&mut self, phase: Phase, durability: Durability) -> Result<()> {
        let shared = self.db.shared();
        shared
            .commits
            .commit_request(Request::of_prepared(phase, &self.state, durability))?;
        shared
            .row_locks
            .table
            .unlock_all(self.state.owner, &self.state.locks);
        self.decided = true;
        Ok(())
    }
}

impl Drop for PreparedTransaction {
    fn drop(&mut self) {
        // A decided transaction need not wait for the log again.
        if !self.decided && self.db.shared().core.access.is_own_process() {
            let mut log = self.db.shared().commits.log.lock();
            log.unresolved.give_back(&self.state);
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
        Ok(PreparedTransaction::new(self.clone(), state))
    }
}
