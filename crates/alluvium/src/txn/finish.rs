//! End of a transaction: commit with validation, prepare (the first phase of a two-phase commit),
//! or rollback.

use std::sync::Arc;

use crate::base::XID_BYTES_MAX;
use crate::commit::Request;
use crate::commit::payload::{encode_payload, written_rows};
use crate::commit::prepared::{Phase, PreparedState};
use crate::commit::validate::Validation;
use crate::db::Durability;
use crate::error::{Error, Result};
use crate::txn::prepared::PreparedTransaction;
use crate::txn::transaction::Transaction;

impl Transaction {
    /// Commits: all writes become visible together, with the durability from the transaction's
    /// options.
    ///
    /// # Errors
    ///
    /// After every error the transaction is rolled back. A serializable or optimistic transaction
    /// gets `Conflict` if another commit has changed a row or range that this one depends on; run
    /// it again. This includes the rows that an optimistic transaction without writes has read for
    /// update; any other transaction without writes is never refused. An optimistic transaction
    /// locks its rows here and may get `Deadlock` and `LockTimeout`. `NoSpace`: nothing was
    /// written. `Poisoned`, `Closed`, `KeyspaceDropped`.
    ///
    /// # Cost
    ///
    /// One record in the log. If writes are in files (see [`crate::Options::transaction_bytes`]),
    /// all rows are written into tables instead, as by an [`crate::Ingest`]. If reads are checked,
    /// a lookup of each key and range read in everything newer than the snapshot: mostly memtables,
    /// for a long transaction also tables.
    pub fn commit(self) -> Result<()> {
        let shared = Arc::clone(self.db.shared());
        if self.has_layers() {
            return self.commit_layers();
        }
        let Some(payload) = self.payload()? else {
            return self.check_read_for_update();
        };
        let bytes = payload.len();
        let durability = shared.core.durability(self.options.durability)?;
        self.forget_writes();
        let result = self.commit_payload(payload, durability);
        self.end();
        // The admission delay comes after the locks are released. Otherwise every waiter for a hot
        // row would wait with this client.
        shared.core.pay_for(bytes);
        result
    }

    /// Checks an optimistic transaction without writes: the rows read for update are unchanged up
    /// to a visible commit. The transaction takes effect at that commit, so nothing goes through
    /// the commit queue.
    fn check_read_for_update(&self) -> Result<()> {
        let (Some(reads), Some(at)) = (&self.state.read_for_update, self.state.fixed.get()) else {
            return Ok(());
        };
        let reads = reads.lock().take();
        if reads.is_empty() {
            return Ok(());
        }
        Validation::new(reads, at.seqno()).look(&self.shared().core.read_points)
    }

    /// Encodes the operations; `None` if there are none.
    fn payload(&self) -> Result<Option<Vec<u8>>> {
        self.shared().core.access.check_open()?;
        let held = self.state.held.lock();
        held.trees.iter().try_for_each(|tree| tree.check())?;
        let writes = self.writes();
        let writes = writes.lock();
        if writes.is_empty() {
            return Ok(None);
        }
        let payload = encode_payload(&writes);
        // Each write was checked; a deleted prefix may have become slightly longer as a range.
        self.shared()
            .core
            .memory
            .check_commit_bytes(payload.len())?;
        Ok(Some(payload))
    }

    fn commit_payload(&self, payload: Vec<u8>, durability: Durability) -> Result<()> {
        let shared = self.shared();
        let Some(reads) = &self.state.reads else {
            return shared.commits.commit(payload, durability).map(drop);
        };
        let validation = Validation::new(reads.lock().take(), self.fixed().seqno());
        if !self.options.optimistic {
            let result = shared
                .commits
                .commit_validated(payload, durability, validation);
            return result.map(drop);
        }
        // Locked as for a plain batch: other transactions may hold locks on these rows and rely on
        // them.
        let locks = shared
            .row_locks
            .lock_rows(written_rows(&payload), &self.lock_wait())?;
        let result = shared
            .commits
            .commit_validated(payload, durability, validation);
        shared.row_locks.unlock(locks);
        result.map(drop)
    }

    /// Prepares the transaction for a coordinator: its writes are durable under the id `xid` when
    /// this returns, even after power loss. They are not visible until
    /// [`PreparedTransaction::commit`]. Its row locks stay.
    ///
    /// Costs a sync of the log. The writes stay in memory until the decision, and are written into
    /// the log again each time the memtables are sealed: decide soon.
    ///
    /// If writes are in files (see [`crate::Options::transaction_bytes`]), all rows are written
    /// into tables here, which the decision only installs or removes. Such a prepare is durable at
    /// every durability, and so is its decision.
    ///
    /// # Errors
    ///
    /// After every error the transaction is rolled back. Only after `Io` and `Poisoned`, if the log
    /// could not be written, may it be prepared when the database is opened again.
    /// `InvalidArgument`: the id is longer than [`crate::XID_BYTES_MAX`] bytes or in use, the
    /// database keeps no log, or the transaction is serializable or optimistic. The reads of such a
    /// transaction are not locked, so nothing can be promised before its commit.
    /// `TransactionTooLarge`: too much is prepared in memory already. Otherwise as for
    /// [`Transaction::commit`].
    pub fn prepare(self, xid: &[u8]) -> Result<PreparedTransaction> {
        self.prepare_with(xid, Durability::Sync)
    }

    /// Prepares the transaction as [`Transaction::prepare`] does, with this durability of the
    /// prepare. After a prepare that is `Buffered`, a power loss may remove it: its coordinator
    /// must then not have promised the commit.
    ///
    /// # Errors
    ///
    /// As [`Transaction::prepare`]; `InvalidArgument` for `None`.
    pub fn prepare_with(self, xid: &[u8], durability: Durability) -> Result<PreparedTransaction> {
        let shared = self.shared();
        let refuse = |message: &str| Err(Error::InvalidArgument(message.into()));
        if xid.len() > XID_BYTES_MAX {
            return refuse("the id of a prepared transaction has at most 255 bytes");
        }
        if shared.core.options.durability == Durability::None {
            return refuse("a database without a log cannot prepare transactions");
        }
        if self.state.reads.is_some() {
            return refuse("a serializable or optimistic transaction cannot be prepared");
        }
        if durability == Durability::None {
            return refuse("a prepare that a killed process may lose decides nothing");
        }
        if self.has_layers() {
            return self.prepare_layers(xid);
        }
        let ops = self.payload()?.unwrap_or_default();
        let of_commit = shared.core.durability(self.options.durability)?;
        self.forget_writes();
        let mut state = PreparedState::new(xid, &ops, of_commit);
        state.owner = self.id;
        // Of rows in layers that were rolled back; it may have written them again.
        let taken = self.state.overflow.get().map(|o| o.spilled.give_locks());
        {
            let locks = &mut self.state.held.lock().locks;
            locks.extend(taken.into_iter().flatten());
            state.locks.clone_from(locks);
        }
        let state = Arc::new(state);
        let request = Request::of_prepared(Phase::Prepare, &state, durability);
        shared.commits.commit_request(request)?;
        // The locks now belong to the prepared transaction.
        self.state.held.lock().locks.clear();
        Ok(self.into_prepared(state))
    }

    /// Returns the handle of this transaction, which is prepared.
    pub(super) fn into_prepared(self, state: Arc<PreparedState>) -> PreparedTransaction {
        let tagged = self.state.tagged.lock().take();
        PreparedTransaction::new(self.db.clone(), state, tagged)
    }

    /// Discards all writes and releases all locks. Dropping the transaction does the same.
    pub fn rollback(self) {
        self.end();
    }

    pub(super) fn end(&self) {
        // The locks in a forked child's copy belong to its parent.
        if !self.state.is_current() {
            return;
        }
        let mut held = self.state.held.lock();
        held.ended = true;
        let locks = std::mem::take(&mut held.locks);
        let row_locks = &self.shared().row_locks;
        row_locks.table.unlock_all(self.id, &locks);
        if let Some(overflow) = self.state.overflow.get()
            && !held.gave_layers
        {
            row_locks.spilled.end(&overflow.spilled, &row_locks.table);
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.end();
    }
}
