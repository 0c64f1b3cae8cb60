//! Row locks: who may write, or keep others from writing, the row behind a key.
//!
//! A lock is named by a 64-bit hash of keyspace and key, seeded anew at each open. Two keys with one hash share a
//! lock, which costs waiting and nothing else, because acquisitions are counted for each owner. The locks live in
//! shards, each a mutex around a map from hash to `Slot`; a lock that nobody holds has no slot.
//!
//! A request that cannot be granted joins the slot's queue. Whoever makes room hands the lock over under the
//! shard's mutex, before it wakes anybody, so no newcomer can overtake the queue and no wake-up can be lost: the
//! waiter finds the grant written in its own record, whenever it looks.
//!
//! # Lock order
//!
//! ```text
//! detector -> one shard -> one waiter's record        cancellation token -> one waiter's record
//! ```
//!
//! Nobody holds two shards at a time. A waiter sleeps holding only its own record's mutex, which the sleep gives
//! back. Background threads take none of these, so no client waits for a thread of lower priority.
//!
//! A transaction waits for one lock at a time. If two threads wait for the same owner at once, both are granted
//! in their turn, but a deadlock through the earlier of the two waits is ended by its timeout only.

mod deadlock;
mod slot;
mod wait;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
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
use slot::{Request, Slot};
pub use wait::{LockCancel, LockWait};
use wait::{Waiter, Woken};

/// Shards of a table: enough that clients on the same shard at the same moment are rare.
const SHARDS: usize = 64;

/// Names an owner of locks. Unique among the transactions that are open at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(pub u64);

/// What the owner of a lock keeps others from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Others may share the lock, none may have it exclusively.
    Shared,
    /// Nobody else has the lock.
    Exclusive,
}

/// Names a lock: the seeded hash of a keyspace and a key. Means nothing to another [`LockTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockHash(u64);

/// How a request was granted. Each grant is one acquisition, to be given back once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Granted {
    /// The owner did not have the lock before.
    New,
    /// The owner had the lock already, in this mode or a stronger one.
    Again,
    /// The owner had the lock shared and has it exclusively now.
    Upgraded,
}

/// Why a request was not granted. The owner's other locks are as before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockFailure {
    /// The time was over. Roll back, or try again.
    Timeout {
        /// Who had the lock at that moment.
        holders: Vec<TxnId>,
    },
    /// Waiting would never have ended. Roll back, so that the others can go on.
    Deadlock {
        /// The requester, then each transaction that the one before it waits for; the last waits for the first.
        cycle: Vec<TxnId>,
    },
    /// The wait's token was cancelled.
    Cancelled,
    /// The table was closed: nothing waits any more.
    Closed,
}

impl LockFailure {
    /// The error of a call that asked for the row `key` of `keyspace` and was ready to wait for `timeout`.
    pub fn into_error(self, keyspace: &str, key: &[u8], timeout: Duration) -> Error {
        let (keyspace, key) = (keyspace.to_owned(), key.to_vec());
        match self {
            LockFailure::Timeout { .. } => Error::LockTimeout {
                keyspace,
                key,
                waited_ms: timeout.as_millis() as u64,
            },
            LockFailure::Deadlock { .. } => Error::Deadlock { keyspace, key },
            LockFailure::Cancelled => Error::Cancelled { keyspace, key },
            LockFailure::Closed => Error::Closed,
        }
    }
}

type Shard = Mutex<HashMap<u64, Slot, BuildHasherDefault<Identity>>>;

/// The row locks of one database.
pub struct LockTable {
    seed: u64,
    shards: Box<[CachePadded<Shard>]>,
    detector: Detector,
    /// Set before the shards are walked to end their waits. A request looks at it under its shard's mutex before it
    /// joins a queue: it sees the flag, or the walk sees the request.
    closed: AtomicBool,
}

impl LockTable {
    /// An empty table. The seed is random for each open, so that nobody can prepare keys that share a lock.
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

    /// The name of the lock of a row, whether the row exists or not.
    pub fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> LockHash {
        LockHash(checksum(key, place_seed(self.seed, u64::from(keyspace.0))))
    }

    /// Takes the lock once for `owner`, and waits for it behind earlier requests if it must.
    ///
    /// An upgrade from shared to exclusive goes ahead of requests by others. Costs about 60 ns, the unlock
    /// included, where nobody else has the lock.
    ///
    /// # Errors
    /// [`LockFailure::Timeout`], [`LockFailure::Cancelled`], [`LockFailure::Closed`], and [`LockFailure::Deadlock`]
    /// where this request would close a cycle of waits: of the transactions in it only this one hears of it.
    pub fn lock(
        &self,
        owner: TxnId,
        hash: LockHash,
        mode: LockMode,
        wait: &LockWait,
    ) -> Result<Granted, LockFailure> {
        let (waiter, holders) = {
            let mut shard = self.shard(hash).lock();
            let slot = match shard.entry(hash.0) {
                Entry::Vacant(entry) => {
                    entry.insert(Slot::new(owner, mode));
                    return Ok(Granted::New);
                }
                Entry::Occupied(entry) => entry.into_mut(),
            };
            let request = match slot.request(owner, mode) {
                Ok(granted) => return Ok(granted),
                Err(request) => request,
            };
            let holders = slot.holders_but(owner);
            if wait.timeout.is_zero() {
                return Err(LockFailure::Timeout { holders });
            }
            if self.closed.load(Ordering::Acquire) {
                return Err(LockFailure::Closed);
            }
            (self.enqueue(slot, hash, request), holders)
        };
        self.wait_for(&waiter, wait, &holders)
    }

    /// Gives back one acquisition. With the last one the lock goes to the requests that wait for it.
    ///
    /// An upgrade is not taken back alone: the lock stays exclusive until its last acquisition is given back.
    pub fn unlock(&self, owner: TxnId, hash: LockHash) {
        self.release(hash, |slot| slot.release_one(owner));
    }

    /// Gives back all acquisitions of all the locks in `held`, which may name a lock more than once.
    pub fn unlock_all(&self, owner: TxnId, held: &[LockHash]) {
        for &hash in held {
            self.release(hash, |slot| slot.release_all(owner));
        }
    }

    /// Ends all waits, those to come too: the database is closing. Locks that are held stay with their owners.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for shard in &self.shards {
            for slot in shard.lock().values() {
                slot.queue().iter().for_each(|waiter| waiter.close());
            }
        }
    }

    /// Who has the lock now, in no particular order.
    #[cfg(test)]
    pub fn holders(&self, hash: LockHash) -> Vec<TxnId> {
        let shard = self.shard(hash).lock();
        shard.get(&hash.0).map(Slot::holders).unwrap_or_default()
    }

    /// How many requests wait for the lock now.
    #[cfg(test)]
    pub fn waiters(&self, hash: LockHash) -> usize {
        let shard = self.shard(hash).lock();
        shard.get(&hash.0).map_or(0, |slot| slot.queue().len())
    }

    /// How many locks are held: the shards are counted one after another.
    pub fn locks_held(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, hash: LockHash) -> &Shard {
        // The map uses the lowest and the highest bits; these are others.
        let index = (hash.0 >> 32) as usize % self.shards.len();
        &self.shards[index]
    }

    fn enqueue(&self, slot: &mut Slot, hash: LockHash, request: Request) -> Arc<Waiter> {
        let waiter = Arc::new(Waiter::new(hash, request));
        slot.enqueue(Arc::clone(&waiter));
        waiter
    }

    /// Sleeps until the queued request is granted or given up, and takes it out of everything that knows it.
    fn wait_for(
        &self,
        waiter: &Arc<Waiter>,
        wait: &LockWait,
        holders: &[TxnId],
    ) -> Result<Granted, LockFailure> {
        let deadline = Instant::now().checked_add(wait.timeout);
        if let Verdict::Victim(cycle) = self.detector.enter(self, waiter) {
            return Err(LockFailure::Deadlock { cycle });
        }
        if let Some(on_wait) = &wait.on_wait {
            on_wait(holders);
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
            Woken::Cancelled => self.give_up(waiter, |_| LockFailure::Cancelled),
            Woken::Closed => self.give_up(waiter, |_| LockFailure::Closed),
            Woken::TimedOut => self.give_up(waiter, |slot| LockFailure::Timeout {
                holders: slot.holders_but(waiter.request.owner),
            }),
        };
        // Only now may this owner go on to release locks: the detector counts on it.
        self.detector.leave(waiter);
        outcome
    }

    /// Withdraws a request, unless it was granted at the last moment: the grant is kept then.
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

    /// Changes a slot, hands the lock to those in the queue who can have it now, and removes a slot out of use.
    fn release(&self, hash: LockHash, change: impl FnOnce(&mut Slot)) {
        let mut shard = self.shard(hash).lock();
        let Entry::Occupied(mut entry) = shard.entry(hash.0) else {
            return;
        };
        let slot = entry.get_mut();
        change(slot);
        let granted = slot.promote();
        if slot.is_unused() {
            entry.remove();
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

/// Passes a number that is a good hash already, or a small counter, through unchanged.
#[derive(Debug, Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("only u64 keys are hashed this way");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
