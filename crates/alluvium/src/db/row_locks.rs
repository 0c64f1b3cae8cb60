//! Row locks that are held for one commit (plain batches, optimistic transactions), and those of
//! prepared transactions after recovery. Other transactions lock rows in [`LockTable`] themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::base::KeyspaceId;
use crate::commit::Log;
use crate::commit::payload::written_rows;
use crate::db::core::Core;
use crate::error::Result;
use crate::sync::{THREAD_SHARDS, thread_shard};
use crate::txn::lock_table::{LockHash, LockMode, LockTable, LockWait, TxnId};

/// Lock table of a database, and the counters that give each lock owner its id.
pub(crate) struct RowLocks {
    core: Arc<Core>,
    pub table: LockTable,
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
            owners: Owners::default(),
        }
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
            match self
                .table
                .lock(locks.owner, hash, LockMode::Exclusive, wait)
            {
                Ok(_) => locks.held.push(hash),
                Err(failure) => {
                    self.unlock(locks);
                    let name = self.core.keyspace_name(keyspace);
                    return Err(failure.into_error(&name, key, wait.timeout));
                }
            }
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
            let mut locks = Vec::new();
            for (keyspace, key) in written_rows(state.ops()) {
                let hash = self.table.hash(keyspace, key);
                // Only another prepared transaction can hold this lock: one of the two used an
                // untracked write. That lock then protects the row for both.
                let wait = LockWait::timeout(Duration::ZERO);
                let locked = self
                    .table
                    .lock(state.owner, hash, LockMode::Exclusive, &wait);
                if locked.is_ok() {
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
