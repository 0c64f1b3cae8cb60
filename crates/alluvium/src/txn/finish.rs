//! How a transaction ends: commit, with the check of what it rests on, the first phase of a two-phase commit, or rollback.

use std::sync::Arc;

use crate::commit::Request;
use crate::commit::batch::{encode_payload, written_rows};
use crate::commit::prepared::{Phase, PreparedState, XID_BYTES_MAX};
use crate::commit::validate::Validation;
use crate::db::Durability;
use crate::error::{Error, Result};
use crate::txn::prepared::PreparedTransaction;
use crate::txn::transaction::Transaction;

impl Transaction {
    /// Commits: all writes become visible together and as durable as the transaction's options say.
    ///
    /// # Errors
    ///
    /// After every error the transaction is rolled back. `Conflict`, of a serializable or optimistic transaction:
    /// another commit has changed what this one rests on; run it again. That holds for what an optimistic one read for
    /// update although it writes nothing; any other transaction without writes is never refused. An optimistic one locks its rows here and may
    /// meet `Deadlock` and `LockTimeout`. `NoSpace`: nothing was written. `Poisoned`, `Closed`, `KeyspaceDropped`.
    ///
    /// # Cost
    ///
    /// One record in the log. Where reads are checked, a look at each key and range read in what is newer than the
    /// snapshot: mostly memtables, for a long transaction also tables.
    pub fn commit(self) -> Result<()> {
        let shared = Arc::clone(self.db.shared());
        let Some(payload) = self.payload()? else {
            return self.check_read_for_update();
        };
        let bytes = payload.len();
        let durability = shared.durability(self.options.durability)?;
        self.forget_writes();
        let result = self.commit_payload(payload, durability);
        self.end();
        // Paid without the locks, or every hot row would wait with this client.
        shared.pay_for(bytes);
        result
    }

    /// The check of an optimistic transaction that writes nothing: what it read for update is as it was up to a commit that
    /// is visible now. As a whole it takes place there, so nothing goes through the commit queue.
    fn check_read_for_update(&self) -> Result<()> {
        let (Some(reads), Some(point)) = (&self.state.read_for_update, &self.state.point) else {
            return Ok(());
        };
        let reads = reads.lock().take();
        if reads.is_empty() {
            return Ok(());
        }
        Validation::new(reads, point.seqno()).look(self.shared())
    }

    /// The operations, if there are any.
    fn payload(&self) -> Result<Option<Vec<u8>>> {
        self.shared().check_open()?;
        let held = self.state.held.lock();
        held.trees.iter().try_for_each(|tree| tree.check())?;
        let writes = self.state.writes.lock();
        if writes.is_empty() {
            return Ok(None);
        }
        let payload = encode_payload(&writes);
        // Each write was checked; a deleted prefix may have become a little longer as a range.
        self.shared().check_commit_bytes(payload.len())?;
        Ok(Some(payload))
    }

    fn commit_payload(&self, payload: Vec<u8>, durability: Durability) -> Result<()> {
        let shared = self.shared();
        let (Some(reads), Some(point)) = (&self.state.reads, &self.state.point) else {
            return shared.commit(payload, durability).map(drop);
        };
        let validation = Validation::new(reads.lock().take(), point.seqno());
        if !self.options.optimistic {
            let result = shared.commit_validated(payload, durability, validation);
            return result.map(drop);
        }
        // Like a plain batch: others may hold locks on these rows and count on them.
        let locks = shared.lock_rows(written_rows(&payload), &self.lock_wait())?;
        let result = shared.commit_validated(payload, durability, validation);
        shared.unlock_writes(locks);
        result.map(drop)
    }

    /// Prepares the transaction for a coordinator: its writes are durable under the id `xid` when this returns, also
    /// after power loss, but they are not visible until [`PreparedTransaction::commit`]. Its row locks stay.
    ///
    /// Costs a sync of the log. The writes stay in memory until the decision, and are written into the log again each
    /// time the memtables are sealed: decide soon.
    ///
    /// # Errors
    ///
    /// After every error the transaction is rolled back; only after `Io` and `Poisoned`, where the log could not be
    /// written, may it be found prepared when the database is opened again. `InvalidArgument`: the id is longer than
    /// [`crate::XID_BYTES_MAX`] bytes or in use, the database keeps no log, or the transaction is serializable or
    /// optimistic: what such a one has read is not locked, so nothing can be promised before its commit.
    /// `TransactionTooLarge`: too much is prepared already. Else as [`Transaction::commit`].
    pub fn prepare(self, xid: &[u8]) -> Result<PreparedTransaction> {
        let shared = self.shared();
        let refuse = |message: &str| Err(Error::InvalidArgument(message.into()));
        if xid.len() > XID_BYTES_MAX {
            return refuse("the id of a prepared transaction has at most 255 bytes");
        }
        if shared.options.durability == Durability::None {
            return refuse("a database without a log cannot prepare transactions");
        }
        if self.state.reads.is_some() {
            return refuse("a serializable or optimistic transaction cannot be prepared");
        }
        let ops = self.payload()?.unwrap_or_default();
        let durability = shared.durability(self.options.durability)?;
        self.forget_writes();
        let mut state = PreparedState::new(xid, &ops, durability);
        state.owner = self.id;
        state.locks.clone_from(&self.state.held.lock().locks);
        let state = Arc::new(state);
        let request = Request::of_prepared(Phase::Prepare, &state, Durability::Sync);
        shared.commit_request(request)?;
        // They are the prepared transaction's now.
        self.state.held.lock().locks.clear();
        Ok(PreparedTransaction::new(self.db.clone(), state))
    }

    /// Takes everything back. Dropping the transaction does the same.
    pub fn rollback(self) {
        self.end();
    }

    fn end(&self) {
        // The locks of a forked child's copy are its parent's.
        if !self.state.is_current() {
            return;
        }
        let mut held = self.state.held.lock();
        held.ended = true;
        let locks = std::mem::take(&mut held.locks);
        self.shared().row_locks.unlock_all(self.id, &locks);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.end();
    }
}
