//! Row locks, shared or exclusive, on the row of a key, whether the row exists or not.
//!
//! A lock is named by a 64-bit hash of keyspace and key, seeded anew at each open. Two keys with
//! the same hash share a lock. This costs waiting and nothing else, because acquisitions are
//! counted for each owner. The locks live in shards, each a mutex around `Locks`; a lock without a
//! holder has no slot there.
//!
//! A request that cannot be granted joins the slot's queue. A release hands the lock over under the
//! shard's mutex, before it wakes any waiter. So no newcomer can overtake the queue and no wake-up
//! can be lost: the waiter finds the grant in its own record whenever it checks.
//!
//! # Lock order
//!
//! ```text
//! detector -> one shard -> one waiter's record        cancellation token -> one waiter's record
//! locks taken by a spilled transaction (`txn/layers.rs`) -> one shard
//! ```
//!
//! No thread holds two shards at a time. A waiter sleeps holding only its own record's mutex, and
//! the sleep releases it. Background threads take none of these, so no client waits for a thread of
//! lower priority.
//!
//! A transaction waits for one lock at a time. If two threads wait for the same owner at once, both
//! are granted in their turn. A deadlock through the earlier of the two waits is ended by its
//! timeout only.

mod deadlock;
mod locks;
mod slot;
mod wait;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::sync::time::Instant;

use crossbeam_utils::CachePadded;

use crate::base::KeyspaceId;
use crate::base::checksum::{checksum, place_seed};
use crate::error::Error;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

use deadlock::{Detector, Verdict};
use locks::Locks;
use slot::{Request, Slot};
pub use wait::{LockCancel, LockWait, OnWait};
use wait::{Waiter, Woken};

/// Number of shards: enough that clients rarely meet on a shard.
const SHARDS: usize = 64;

/// Owner of locks. Unique among the transactions open at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

/// Mode of a row lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Other owners may share the lock; none may have it exclusively.
    Shared,
    /// No other owner has the lock.
    Exclusive,
}

/// Name of a lock: the seeded hash of a keyspace and a key. Valid for one [`LockTable`] only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockHash(u64);

/// Kind of a grant. Each grant is one acquisition, to be released once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Granted {
    /// The owner did not have the lock before.
    New,
    /// The owner had the lock already, in this mode or a stronger one.
    Again,
    /// The owner had the lock shared and has it exclusively now.
    Upgraded,
}

/// Reason for a failed request. The owner's other locks are unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockFailure {
    /// The timeout expired. Roll back or try again.
    Timeout {
        /// Holders of the lock when the timeout expired.
        holders: Vec<TxnId>,
    },
    /// The wait would never end. Roll back, so that the other transactions can continue.
    Deadlock {
        /// The requester, then each transaction that the one before it waits for; the last waits
        /// for the requester.
        cycle: Vec<TxnId>,
    },
    /// The wait's token was canceled.
    Canceled,
    /// The table was closed: no request waits any more.
    Closed,
}

impl LockFailure {
    /// Converts to the error of a call that requested the row `key` of `keyspace` with this
    /// `timeout`.
    pub fn into_error(self, keyspace: &str, key: &[u8], timeout: Duration) -> Error {
        let (keyspace, key) = (keyspace.to_owned(), key.to_vec());
        match self {
            LockFailure::Timeout { .. } => Error::LockTimeout {
                keyspace,
                key,
                waited_ms: timeout.as_millis() as u64,
            },
            LockFailure::Deadlock { .. } => Error::Deadlock { keyspace, key },
            LockFailure::Canceled => Error::Canceled { keyspace, key },
            LockFailure::Closed => Error::Closed,
        }
    }
}

type Shard = Mutex<Locks>;

/// Row locks of one database.
pub struct LockTable {
    seed: u64,
    shards: Box<[CachePadded<Shard>]>,
    detector: Detector,
    /// Set before `close` walks the shards to end their waits. A request reads it under its shard's
    /// mutex before it joins a queue: it sees the flag, or the walk sees the request.
    closed: AtomicBool,
}

impl LockTable {
    /// Creates an empty table. The seed is random for each open, so no client can construct keys
    /// that share a lock.
    pub fn new(seed: u64) -> LockTable {
        LockTable::with_shards(seed, SHARDS)
    }

    fn with_shards(seed: u64, shards: usize) -> LockTable {
        LockTable {
            seed,
            shards: (0..shards).map(|_| CachePadded::default()).collect(),
            detector: Detector::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns the name of a row's lock, whether the row exists or not.
    pub fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> LockHash {
        LockHash(checksum(key, place_seed(self.seed, u64::from(keyspace.0))))
    }

    /// Acquires the lock once for `owner`, and waits after earlier requests if necessary.
    ///
    /// An upgrade from shared to exclusive goes ahead of requests by other owners. Costs about 60
    /// ns, the unlock included, if no other owner has the lock.
    ///
    /// # Errors
    /// [`LockFailure::Timeout`], [`LockFailure::Canceled`], [`LockFailure::Closed`], and
    /// [`LockFailure::Deadlock`] if this request would close a cycle of waits. Only this
    /// transaction of the cycle gets the error.
    pub fn lock(
        &self,
        owner: TxnId,
        hash: LockHash,
        mode: LockMode,
        wait: &LockWait,
    ) -> Result<Granted, LockFailure> {
        let (waiter, owners) = {
            let mut shard = self.shard(hash).lock();
            let Some(slot) = shard.get_mut(hash) else {
                shard.insert(hash, Slot::new(owner, mode));
                return Ok(Granted::New);
            };
            let request = match slot.request(owner, mode) {
                Ok(granted) => return Ok(granted),
                Err(request) => request,
            };
            if wait.timeout.is_zero() {
                let holders = slot.holders_but(owner);
                return Err(LockFailure::Timeout { holders });
            }
            if self.closed.load(Ordering::Acquire) {
                return Err(LockFailure::Closed);
            }
            let waiter = self.enqueue(slot, hash, request);
            let owners = slot.owners_before(&waiter);
            (waiter, owners)
        };
        self.wait_for(&waiter, wait, &owners)
    }

    /// Acquires the lock once for `owner` if it need not wait; `None` otherwise.
    pub fn try_lock(&self, owner: TxnId, hash: LockHash, mode: LockMode) -> Option<Granted> {
        let mut shard = self.shard(hash).lock();
        let Some(slot) = shard.get_mut(hash) else {
            shard.insert(hash, Slot::new(owner, mode));
            return Some(Granted::New);
        };
        slot.request(owner, mode).ok()
    }

    /// Returns the owners that a queued request of `owner` waits for: see
    /// [`Slot::owners_before`]. None if it has no request in the lock's queue.
    pub fn owners_before(&self, owner: TxnId, hash: LockHash) -> Vec<TxnId> {
        let shard = self.shard(hash).lock();
        let Some(slot) = shard.get(hash) else {
            return Vec::new();
        };
        let mut queue = slot.queue().iter();
        let waiter = queue.find(|waiter| waiter.request.owner == owner);
        waiter.map_or_else(Vec::new, |waiter| slot.owners_before(waiter))
    }

    /// Releases one acquisition. After the last one the lock goes to the waiting requests.
    ///
    /// An upgrade is not released alone: the lock stays exclusive until its last acquisition is
    /// released.
    pub fn unlock(&self, owner: TxnId, hash: LockHash) {
        self.release(hash, |slot| slot.release_one(owner));
    }

    /// Makes `to` the exclusive owner of a lock that was just granted to `from`, once. Other owners
    /// may share it for a moment, until each of them has handed it over too.
    pub fn hand_over(&self, hash: LockHash, from: TxnId, to: TxnId) {
        self.release(hash, |slot| slot.hand_over(from, to));
    }

    /// Releases all acquisitions of all locks in `held`, which may name a lock more than once.
    pub fn unlock_all(&self, owner: TxnId, held: &[LockHash]) {
        for &hash in held {
            self.release(hash, |slot| slot.release_all(owner));
        }
    }

    /// Ends all waits, present and future: the database is closing. Held locks stay with their
    /// owners.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for shard in &self.shards {
            for slot in shard.lock().slots() {
                slot.queue().iter().for_each(|waiter| waiter.close());
            }
        }
    }

    /// Returns the current holders of the lock, in no particular order.
    #[cfg(test)]
    pub fn holders(&self, hash: LockHash) -> Vec<TxnId> {
        let shard = self.shard(hash).lock();
        shard.get(hash).map(Slot::holders).unwrap_or_default()
    }

    /// Returns the number of requests that wait for the lock.
    #[cfg(test)]
    pub fn waiters(&self, hash: LockHash) -> usize {
        let shard = self.shard(hash).lock();
        shard.get(hash).map_or(0, |slot| slot.queue().len())
    }

    /// Returns the number of held locks. The shards are counted one after another.
    pub fn locks_held(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, hash: LockHash) -> &Shard {
        // A map of a shard uses the lowest and the highest bits; these are others.
        let index = (hash.0 >> 32) as usize % self.shards.len();
        &self.shards[index]
    }

    fn enqueue(&self, slot: &mut Slot, hash: LockHash, request: Request) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new(hash, request));
        slot.enqueue(Arc::clone(&waiter));
        waiter
    }

    /// Sleeps until the queued request is granted or withdrawn. Removes it from the detector and
    /// the cancellation token.
    fn wait_for(
        &self,
        waiter: &Arc<Waiter>,
        wait: &LockWait,
        owners: &[TxnId],
    ) -> Result<Granted, LockFailure> {
        let deadline = Instant::now().checked_add(wait.timeout);
        if let Verdict::Victim(cycle) = self.detector.enter(self, waiter) {
            return Err(LockFailure::Deadlock { cycle });
        }
        if let Some(on_wait) = &wait.on_wait {
            on_wait(owners);
        }
        if let Some(cancel) = &wait.cancel {
            cancel.attach(waiter);
        }
        let woken = waiter.sleep(deadline);
        if let Some(cancel) = &wait.cancel {
            cancel.detach(waiter);
        }
        let outcome = match woken {
            Woken::Granted => Ok(waiter.request.grant),
            Woken::Canceled => self.give_up(waiter, |_| LockFailure::Canceled),
            Woken::Closed => self.give_up(waiter, |_| LockFailure::Closed),
            Woken::TimedOut => self.give_up(waiter, |slot| LockFailure::Timeout {
                holders: slot.holders_but(waiter.request.owner),
            }),
        };
        // Only now may this owner release locks: the detector relies on it.
        self.detector.leave(waiter);
        outcome
    }

    /// Withdraws a request, unless it was granted at the last moment: then the grant is kept.
    fn give_up(
        &self,
        waiter: &Arc<Waiter>,
        failure: impl FnOnce(&Slot) -> LockFailure,
    ) -> Result<Granted, LockFailure> {
        let mut outcome = Ok(waiter.request.grant);
        self.release(waiter.hash, |slot| {
            if slot.withdraw(waiter) {
                outcome = Err(failure(slot));
            }
        });
        outcome
    }

    /// Changes a slot, grants the lock to queued requests that can have it now, and removes an
    /// unused slot.
    fn release(&self, hash: LockHash, change: impl FnOnce(&mut Slot)) {
        let mut shard = self.shard(hash).lock();
        let Some(slot) = shard.get_mut(hash) else {
            return;
        };
        change(slot);
        let granted = slot.promote();
        if slot.is_unused() {
            shard.remove(hash);
        }
        drop(shard);
        for waiter in granted {
            waiter.wake();
        }
    }
}

impl fmt::Debug for LockTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable")
            .field("locks_held", &self.locks_held())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
