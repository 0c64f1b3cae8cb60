//! Writes of a transaction.
//!
//! Writes lock their rows at once and are kept in the transaction until commit. Blind writes stay
//! blind: a write reads nothing except for the conflict check of snapshot isolation. That check
//! reads only memtables and tables with anything newer than the snapshot.

use std::sync::Arc;

use crate::base::ValueKind;
use crate::commit::payload::{check_range, check_sizes};
use crate::error::{Error, Result};
use crate::keyspace::Keyspace;
use crate::snapshot::ReadsAt;
use crate::txn::Transaction;
use crate::txn::lock_table::LockMode;
use crate::txn::write_set::{WRITE_OVERHEAD, WriteSet};

impl Transaction {
    /// Writes `value` under `key`, whether or not the key exists. Locks the row. Errors as for
    /// [`Transaction::get_for_update`]. `TransactionTooLarge` above
    /// [`crate::Options::transaction_bytes`], or if all open transactions together exceed their
    /// memory limit, and this one cannot move its writes to files; `NoSpace` and `Io` from these
    /// files. Nothing of the call was applied after an error.
    pub fn put(&self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(keyspace, ValueKind::Put, key, value, None)
    }

    /// Writes like [`Transaction::put`]; the row expires at `until_ms`: see
    /// [`Keyspace::put_until`].
    pub fn put_until(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        self.write(keyspace, ValueKind::Put, key, value, Some(until_ms))
    }

    /// Writes a key that the caller knows to be absent: see [`Keyspace::insert`]. Locks the row.
    /// Errors as for [`Transaction::put`]; in debug builds `InvalidArgument` if the key exists.
    pub fn insert(&self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(keyspace, ValueKind::Insert, key, value, None)
    }

    /// Removes `key`, whether or not it exists. Locks the row. Errors as for [`Transaction::put`].
    pub fn delete(&self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.write(keyspace, ValueKind::Delete, key, &[], None)
    }

    /// Removes every key from `start` (inclusive) to `end` (exclusive) when the transaction
    /// commits.
    ///
    /// It is a blind write: it takes no row locks and makes no conflict check for the rows that it
    /// removes, at any isolation level. Rows that other transactions commit before this one commits
    /// are removed too.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an empty range, and if the transaction has moved writes to files:
    /// delete the keys, or commit first. `TransactionTooLarge`, `ReadOnly`, `KeyspaceDropped`,
    /// `Closed`.
    pub fn delete_range(&self, keyspace: &Keyspace, start: &[u8], end: &[u8]) -> Result<()> {
        check_range(start, end)?;
        self.shared().core.access.check_writable()?;
        self.check(keyspace)?;
        self.check_room(start, end)?;
        self.check_no_layers()?;
        self.enter(keyspace, |writes| {
            writes.delete_range(keyspace.id(), start, end)
        });
        Ok(())
    }

    /// Removes every key that begins with `prefix` when the transaction commits: see
    /// [`Transaction::delete_range`].
    pub fn delete_prefix(&self, keyspace: &Keyspace, prefix: &[u8]) -> Result<()> {
        check_sizes(prefix, &[])?;
        self.shared().core.access.check_writable()?;
        self.check(keyspace)?;
        self.check_room(prefix, prefix)?;
        self.check_no_layers()?;
        self.enter(keyspace, |writes| {
            writes.delete_prefix(keyspace.id(), prefix)
        });
        Ok(())
    }

    fn write(
        &self,
        keyspace: &Keyspace,
        kind: ValueKind,
        key: &[u8],
        value: &[u8],
        until_ms: Option<u64>,
    ) -> Result<()> {
        let kind = keyspace.written_as(kind);
        let value = keyspace.stored(kind, value, until_ms)?;
        check_sizes(key, &value)?;
        self.shared().core.access.check_writable()?;
        self.check(keyspace)?;
        self.check_room(key, &value)?;
        if self.options.optimistic {
            self.note_read(keyspace, key)
        } else {
            self.lock_row(keyspace, key, LockMode::Exclusive)?
        }
        if cfg!(debug_assertions) && kind == ValueKind::Insert {
            self.check_insert(keyspace, key)?;
        }
        self.add_write(keyspace, key, kind, &value);
        Ok(())
    }

    /// Refuses an insert of a key that exists for this transaction. The transaction may insert a
    /// key again that it has written itself: this is stored as a put.
    fn check_insert(&self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        if self.own_write(keyspace, key)?.is_some() {
            return Ok(());
        }
        // Without a lock the newest commit proves nothing, so this checks at the snapshot; a later
        // change is a conflict at the commit.
        let at = self.state.fixed.get().filter(|_| self.options.optimistic);
        keyspace.check_insert(key, at.map(ReadsAt::seqno))
    }

    /// Writes without a row lock or conflict check. For changes that are serialized by other means,
    /// for example secondary index entries of a locked row, or replication. Never waits, and never
    /// returns `Conflict`, `Deadlock` or `LockTimeout`; other errors as for [`Transaction::put`].
    pub fn put_untracked(&self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_untracked(keyspace, ValueKind::Put, key, value, None)
    }

    /// Does the same as [`Transaction::put_untracked`] for [`Transaction::put_until`].
    pub fn put_until_untracked(
        &self,
        keyspace: &Keyspace,
        key: &[u8],
        value: &[u8],
        until_ms: u64,
    ) -> Result<()> {
        self.write_untracked(keyspace, ValueKind::Put, key, value, Some(until_ms))
    }

    /// Does the same as [`Transaction::put_untracked`] for [`Transaction::insert`].
    pub fn insert_untracked(&self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_untracked(keyspace, ValueKind::Insert, key, value, None)
    }

    /// Does the same as [`Transaction::put_untracked`] for [`Transaction::delete`].
    pub fn delete_untracked(&self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.write_untracked(keyspace, ValueKind::Delete, key, &[], None)
    }

    fn write_untracked(
        &self,
        keyspace: &Keyspace,
        kind: ValueKind,
        key: &[u8],
        value: &[u8],
        until_ms: Option<u64>,
    ) -> Result<()> {
        let kind = keyspace.written_as(kind);
        let value = keyspace.stored(kind, value, until_ms)?;
        check_sizes(key, &value)?;
        self.shared().core.access.check_writable()?;
        self.check_room(key, &value)?;
        self.check(keyspace)?;
        self.add_write(keyspace, key, kind, &value);
        Ok(())
    }

    /// Makes room for a write: if the transaction would become too large for its memory, moves its
    /// writes to files. Refuses the write if it cannot.
    pub(super) fn check_room(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.has_room(key, value) {
            Err(error @ Error::TransactionTooLarge { .. }) => {
                self.spill(error)?;
                self.has_room(key, value)
            }
            result => result,
        }
    }

    /// Refuses a write that would make the transaction too large for its memory limit or for a log
    /// record.
    fn has_room(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let writes = self.writes().lock().memory_bytes();
        let write = key.len() + value.len() + WRITE_OVERHEAD;
        let shared = self.shared();
        shared.core.memory.check_commit_bytes(writes + write)?;
        shared.core.memory.check_open_transactions(writes, write)
    }

    pub(super) fn add_write(&self, keyspace: &Keyspace, key: &[u8], kind: ValueKind, value: &[u8]) {
        self.enter(keyspace, |writes| {
            writes.put(keyspace.id(), key, kind, value)
        });
    }

    /// Changes the write set and adds the keyspace to the transaction.
    fn enter(&self, keyspace: &Keyspace, change: impl FnOnce(&mut WriteSet)) {
        let mut held = self.state.held.lock();
        if !held.trees.iter().any(|tree| tree.id == keyspace.id()) {
            held.trees.push(Arc::clone(keyspace.tree()));
        }
        let writes = self.writes();
        let mut writes = writes.lock();
        change(&mut writes);
        held.write_bytes = writes.allocated_bytes();
        drop(writes);
        held.charge(&self.shared().core.memory.budget);
    }

    /// Frees the memory of the writes after they were encoded for their commit. If a cursor is
    /// still open, it keeps them.
    pub(super) fn forget_writes(&self) {
        let mut held = self.state.held.lock();
        self.writes().lock().retire(held.charge.take());
        held.write_bytes = 0;
        held.charge(&self.shared().core.memory.budget);
    }
}
