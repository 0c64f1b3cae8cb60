//! Waits for row locks as others see them: tags of transactions, the listener of waits, and the
//! list of those under way.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::collections::HashMap;
use crate::sync::plain::Mutex;
use crate::sync::time::Instant;
use crate::txn::lock_table::{LockHash, TxnId};

/// Transaction or batch that has a row lock, waits for one, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// Number that no other transaction or batch of this opening has.
    pub id: u64,
    /// Tag from [`crate::TransactionOptions::tag`]; `None` for batches, for transactions without a
    /// tag, and for prepared ones whose first handle was dropped.
    pub tag: Option<u64>,
}

/// Wait for a row lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockWaitInfo {
    /// Transaction or batch that waits.
    pub waiter: LockOwner,
    /// Owners of the lock, then the requests that get it earlier and exclude this one.
    pub owners: Vec<LockOwner>,
    /// Name of the row's keyspace.
    pub keyspace: String,
    /// Key of the row.
    pub key: Vec<u8>,
    /// Time waited so far.
    pub waited: Duration,
}

/// Receiver of lock waits: see [`crate::Options::lock_wait_listener`].
///
/// A replication applier learns from it that a transaction waits for one that must commit later,
/// and can cancel the other at once instead of after a timeout.
pub trait LockWaitListener: Send + Sync {
    /// Receives a wait for a row lock that is about to begin. Called by the waiting thread, without
    /// an engine lock held, after the check for deadlocks. It may call the database and cancel
    /// waits, but must not use the waiting transaction. A panic is caught.
    fn on_lock_wait(&self, wait: &LockWaitInfo);
}

impl fmt::Debug for dyn LockWaitListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockWaitListener")
    }
}

/// Number of maps of tags: enough that threads that begin and end transactions rarely meet.
const TAG_SHARDS: usize = 16;

/// Tags of the open transactions that have one.
#[derive(Clone, Default)]
pub(crate) struct Tags(Arc<[Mutex<HashMap<TxnId, u64>>; TAG_SHARDS]>);

impl Tags {
    /// Adds a transaction until the returned entry is dropped.
    pub fn add(&self, id: TxnId, tag: u64) -> Tagged {
        self.shard(id).lock().insert(id, tag);
        Tagged {
            tags: self.clone(),
            id,
        }
    }

    /// Returns an owner of locks with its tag.
    pub fn owner(&self, id: TxnId) -> LockOwner {
        LockOwner {
            id: id.0,
            tag: self.shard(id).lock().get(&id).copied(),
        }
    }

    /// Returns the map of an id. Its mutex is a leaf in the lock order.
    fn shard(&self, id: TxnId) -> &Mutex<HashMap<TxnId, u64>> {
        &self.0[(id.0 % TAG_SHARDS as u64) as usize]
    }
}

/// Entry of one transaction in [`Tags`].
pub(crate) struct Tagged {
    tags: Tags,
    id: TxnId,
}

impl Drop for Tagged {
    fn drop(&mut self) {
        self.tags.shard(self.id).lock().remove(&self.id);
    }
}

/// Wait under way.
#[derive(Clone)]
pub(crate) struct Wait {
    pub waiter: TxnId,
    pub hash: LockHash,
    pub keyspace: String,
    pub key: Vec<u8>,
    pub since: Instant,
}

impl Wait {
    /// Describes the wait for these owners.
    pub fn info(self, tags: &Tags, owners: &[TxnId]) -> LockWaitInfo {
        LockWaitInfo {
            waiter: tags.owner(self.waiter),
            owners: owners.iter().map(|&id| tags.owner(id)).collect(),
            keyspace: self.keyspace,
            key: self.key,
            waited: self.since.elapsed(),
        }
    }
}

/// Waits under way, by a number of their own: one owner may wait in two threads. The mutex is a
/// leaf in the lock order.
#[derive(Default)]
pub(crate) struct Waits(Mutex<Numbered>);

#[derive(Default)]
struct Numbered {
    next: u64,
    waits: BTreeMap<u64, Wait>,
}

impl Waits {
    /// Adds a wait until the returned entry is dropped.
    pub fn enter(&self, wait: Wait) -> Waiting<'_> {
        let mut numbered = self.0.lock();
        let number = numbered.next;
        numbered.next += 1;
        numbered.waits.insert(number, wait);
        Waiting {
            waits: self,
            number,
        }
    }

    /// Returns the waits, oldest first.
    pub fn all(&self) -> Vec<Wait> {
        self.0.lock().waits.values().cloned().collect()
    }
}

/// Entry of one wait in [`Waits`].
pub(crate) struct Waiting<'a> {
    waits: &'a Waits,
    number: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.waits.0.lock().waits.remove(&self.number);
    }
}
