//! Row locks that are held for one commit (plain batches, optimistic transactions), and those of
//! prepared transactions after recovery; the waits of all requests. Other transactions lock rows in
//! [`LockTable`] themselves, and come here if they have to wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::base::KeyspaceId;
use crate::commit::Log;
use crate::commit::payload::written_rows;
use crate::compaction::output::TreeTables;
use crate::db::core::Core;
use crate::error::{Error, Result};
use crate::sync::time::Instant;
use crate::sync::{THREAD_SHARDS, thread_shard};
use crate::txn::layers::{Spilled, SpilledTransactions};
use crate::txn::lock_table::{
    Granted, LockFailure, LockHash, LockMode, LockTable, LockWait, OnWait, TxnId,
};
use crate::txn::lock_waits::{LockWaitInfo, Tags, Wait, Waits};

/// Lock table of a database, the tags and waits of lock owners, and the counters that give each
/// owner its id.
pub(crate) struct RowLocks {
    core: Arc<Core>,
    pub table: LockTable,
    /// Transactions whose rows are locked without an entry in the table.
    pub spilled: SpilledTransactions,
    pub tags: Tags,
    waits: Waits,
    owners: Owners,
}

/// Source of ids for transactions and batches: the number of ids that each shard of threads gave.
/// One counter for all would move from core to core at each commit.
#[derive(Default)]
struct Owners([CachePadded<AtomicU64>; THREAD_SHARDS]);

impl Owners {
    /// Returns an id that no earlier call returned. It is not 0.
    fn next(&self) -> TxnId {
        let shard = thread_shard();
        // Relaxed: only uniqueness matters.
        let before = self.0[shard].fetch_add(1, Ordering::Relaxed);
        TxnId((before + 1) * THREAD_SHARDS as u64 + shard as u64)
    }
}

/// Row locks held during one commit.
pub(crate) struct CommitLocks {
    owner: TxnId,
    held: Vec<LockHash>,
}

impl RowLocks {
    pub fn new(core: Arc<Core>) -> RowLocks {
        RowLocks {
            core,
            table: LockTable::new(crate::version::random_uid()),
            spilled: SpilledTransactions::default(),
            tags: Tags::default(),
            waits: Waits::default(),
            owners: Owners::default(),
        }
    }

    /// Locks the row `(keyspace, key)`, which [`LockTable::try_lock`] has refused: waits, in the
    /// list of waits and after a call of the listener.
    pub fn lock(
        &self,
        owner: TxnId,
        hash: LockHash,
        (keyspace, key): (&str, &[u8]),
        mode: LockMode,
        wait: &LockWait,
    ) -> Result<Granted> {
        let failed = |failure: LockFailure| failure.into_error(keyspace, key, wait.timeout);
        if wait.timeout.is_zero() {
            return self.table.lock(owner, hash, mode, wait).map_err(failed);
        }
        let under_way = Wait {
            waiter: owner,
            hash,
            keyspace: keyspace.to_owned(),
            key: key.to_vec(),
            since: Instant::now(),
        };
        let on_wait = self
            .core
            .options
            .lock_wait_listener
            .clone()
            .map(|listener| {
                let (tags, wait) = (self.tags.clone(), under_way.clone());
                let call = move |owners: &[TxnId]| {
                    let info = wait.clone().info(&tags, owners);
                    // The wait begins whatever the listener did.
                    let _ = catch_unwind(AssertUnwindSafe(|| listener.on_lock_wait(&info)));
                };
                Arc::new(call) as Arc<OnWait>
            });
        let heard = LockWait {
            on_wait,
            ..wait.clone()
        };
        let _listed = self.waits.enter(under_way);
        self.table.lock(owner, hash, mode, &heard).map_err(failed)
    }

    /// Checks a lock that `owner` was just granted: while the layers of another transaction have
    /// the row, gives the lock to that transaction and waits for it.
    ///
    /// # Errors
    ///
    /// As [`LockTable::lock`]; `Corruption` and `Io` from the layers. `owner` does not have the
    /// lock then.
    pub fn yield_to_spilled(
        &self,
        owner: TxnId,
        (keyspace, key): (KeyspaceId, &[u8]),
        mode: LockMode,
        wait: &LockWait,
    ) -> Result<()> {
        let hash = self.table.hash(keyspace, key);
        let found = |_: &Error| self.table.unlock(owner, hash);
        let look = || self.spilled.writer_of(owner, keyspace, key);
        // Each round ends with a lock that `owner` got after the transaction found has ended.
        while let Some(writer) = look().inspect_err(found)? {
            if writer.take_lock(&self.table, hash, owner) {
                let name = self.core.keyspace_name(keyspace);
                self.lock(owner, hash, (&name, key), mode, wait)?;
            }
        }
        Ok(())
    }

    /// Returns the waits under way, oldest first.
    pub fn waits(&self) -> Vec<LockWaitInfo> {
        let mut infos = Vec::new();
        for wait in self.waits.all() {
            let owners = self.table.owners_before(wait.waiter, wait.hash);
            // Without one, the lock was granted in the meantime.
            if !owners.is_empty() {
                infos.push(wait.info(&self.tags, &owners));
            }
        }
        infos
    }

    /// Returns an id for a new owner of locks.
    pub fn next_owner(&self) -> TxnId {
        self.owners.next()
    }

    /// Locks every row that a payload writes, in key order, so that batches never deadlock with
    /// each other.
    pub fn lock_writes(&self, payload: &[u8]) -> Result<CommitLocks> {
        let wait = LockWait::timeout(self.core.options.lock_timeout);
        self.lock_rows(written_rows(payload), &wait)
    }

    /// Locks the rows that an optimistic transaction is about to commit. The caller gives them in
    /// key order, so that such commits never deadlock with each other or with batches.
    pub fn lock_rows<'a>(
        &self,
        rows: impl Iterator<Item = (KeyspaceId, &'a [u8])>,
        wait: &LockWait,
    ) -> Result<CommitLocks> {
        let mut locks = CommitLocks {
            owner: self.next_owner(),
            held: Vec::new(),
        };
        for (keyspace, key) in rows {
            let hash = self.table.hash(keyspace, key);
            let (owner, mode) = (locks.owner, LockMode::Exclusive);
            if self.table.try_lock(owner, hash, mode).is_none() {
                let name = self.core.keyspace_name(keyspace);
                if let Err(error) = self.lock(owner, hash, (&name, key), mode, wait) {
                    self.unlock(locks);
                    return Err(error);
                }
            }
            if !self.spilled.is_empty()
                && let Err(error) = self.yield_to_spilled(owner, (keyspace, key), mode, wait)
            {
                self.unlock(locks);
                return Err(error);
            }
            locks.held.push(hash);
        }
        Ok(locks)
    }

    /// Releases the locks of one commit.
    pub fn unlock(&self, locks: CommitLocks) {
        self.table.unlock_all(locks.owner, &locks.held);
    }

    /// Takes the row locks of the prepared transactions that recovery found.
    pub fn lock_prepared(&self, log: &mut Log) {
        log.unresolved.charge(&self.core.memory.budget);
        log.unresolved.lock_all(|state| {
            state.owner = self.next_owner();
            if let Some(in_tables) = &mut state.in_tables {
                let tables = TreeTables::tables_of(&in_tables.trees);
                in_tables.spilled = Arc::new(Spilled::in_tables(state.owner, tables));
                self.spilled.add(&in_tables.spilled);
            }
            let mut locks = Vec::new();
            for (keyspace, key) in written_rows(state.ops()) {
                let hash = self.table.hash(keyspace, key);
                // Only another prepared transaction can hold this lock: one of the two used an
                // untracked write. That lock then protects the row for both.
                let mode = LockMode::Exclusive;
                if self.table.try_lock(state.owner, hash, mode).is_some() {
                    locks.push(hash);
                }
            }
            state.locks = locks;
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn no_two_owners_have_one_id_although_threads_share_a_counter() {
        let owners = Owners::default();
        let mut ids: Vec<TxnId> = thread::scope(|scope| {
            let threads: Vec<_> = (0..3 * THREAD_SHARDS)
                .map(|_| scope.spawn(|| (0..100).map(|_| owners.next()).collect::<Vec<_>>()))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.flat_map(|ids| ids.expect("no panic")).collect()
        });
        ids.push(TxnId(0));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}
